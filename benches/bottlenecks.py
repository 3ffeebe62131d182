"""Claim: the doctor names the stage that limits a script, and measures what a change brings.

Twelve scripts in ``planted/`` know nothing of penstock; each is slow for one reason, or healthy. ``penstock doctor``
runs each in every round, with its own trials; ``--loader penstock`` imports penstock's loader into the same scripts.
``--set others`` takes eight scripts in ``planted/others/``, in other styles: the rules were made without them, and
mended where they failed.
Run it on a quiet machine, and again beside other programs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import machine

SCRIPTS = Path(__file__).resolve().parent / "planted"
STAGES = {
    "slow_disk": "read",
    "slow_decode": "decode",
    "slow_operation": "augment",
    "many_tensors": "collate",
    "large_floats": "transport",
    "too_few_workers": "workers",
    "too_many_workers": "workers",
    "many_threads": "threads",
    "slow_copy": "copy",
    "slow_step": "step",
    "straggler": "read",
    "healthy": "none",
}
OTHERS = {
    "web_server": "read",
    "database": "read",
    "zipped_images": "decode",
    "text_stream": "augment",
    "token_padding": "collate",
    "double_volumes": "transport",
    "short_epochs": "workers",
    "checkpoints": "step",
}
SETS = {"planted": STAGES, "others": OTHERS}
ALSO_RIGHT = {("penstock", "large_floats"): "none", ("penstock", "healthy"): "step"}
"""Where penstock's loader gives several times what torch's does: the script hardly waits, or only trains."""
COMPUTING = {"text_stream", "token_padding", "checkpoints"}
"""Scripts that train with torch on the processor: on two cores, ``torch.set_num_threads(1)`` alone makes them up to 2.3
times as fast, so that "threads" is right, too."""
TORCH_IMPORT = re.compile(r"^from torch\.utils\.data import (.*)\bDataLoader, (.*)$", re.MULTILINE)
PENSTOCK_IMPORT = r"from penstock.torch import DataLoader\nfrom torch.utils.data import \1\2"


def write_script(name: str, loader: str, folder: Path) -> Path:
    """The script as it is, or a copy that imports penstock's loader."""
    script = (SCRIPTS if name in STAGES else SCRIPTS / "others") / f"{name}.py"
    if loader == "torch":
        return script
    source, count = TORCH_IMPORT.subn(PENSTOCK_IMPORT, script.read_text())
    if count != 1:
        raise ValueError(f"{script} must import its loader once, by a line as {TORCH_IMPORT.pattern!r}")
    copy = folder / script.name
    copy.write_text(source)
    return copy


def examine(name: str, loader: str, budget: int, keep: Path | None, turn: int) -> dict[str, Any]:
    """The doctor's JSON of one script."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        options = ["--json", str(result), "--budget", str(budget)]
        script = write_script(name, loader, Path(folder))
        command = [sys.executable, "-m", "penstock", "doctor", *options, str(script)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            raise RuntimeError(f"{name}: penstock doctor failed:\n{done.stderr[-2000:]}")
        content: dict[str, Any] = json.loads(result.read_text())
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{name}-{loader}-{turn}.json").write_text(json.dumps(content, indent=1))
        (keep / f"{name}-{loader}-{turn}.txt").write_text(done.stderr)
    return content


def measured_advice(results: list[dict[str, Any]]) -> list[float]:
    """What the first advice of each round was measured to bring."""
    firsts = (next((each["measured"] for each in result["advice"] if each["measured"]), None) for result in results)
    return [first for first in firsts if first is not None]


def main() -> int:
    """Examine, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget", type=int, default=40, help="seconds for the trials of one script")
    parser.add_argument("--loader", choices=("torch", "penstock"), default="torch", help="that the scripts import")
    parser.add_argument("--set", choices=tuple(SETS), default="planted", help="of scripts")
    parser.add_argument("--scripts", nargs="+", metavar="NAME", help="of the set; by default all of them")
    parser.add_argument("--keep", type=Path, help="a folder for the JSON and the text of each run")
    arguments = parser.parse_args()
    expected = SETS[arguments.set]
    if unknown := set(arguments.scripts or ()) - set(expected):
        parser.error(f"--scripts must be of {', '.join(expected)}; got {', '.join(sorted(unknown))}")
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in arguments.scripts or expected}
    for turn in range(arguments.rounds):
        for name, results in found.items():
            results.append(examine(name, arguments.loader, arguments.budget, arguments.keep, turn))
            print(f"{name}: {results[-1]['verdict']['stage']}", file=sys.stderr, flush=True)
    print(
        f"{machine()}; load average {os.getloadavg()[1]:.1f}; {arguments.loader}'s loader; {arguments.rounds} rounds\n"
    )
    print("| script | right stage | named instead | delivered, samples/s | first advice, measured |")
    print("|---|---|---|---|---|")
    for name, results in found.items():
        stages = [result["verdict"]["stage"] for result in results]
        also = [ALSO_RIGHT.get((arguments.loader, name)), "threads" if name in COMPUTING else None]
        allowed = [expected[name], *filter(None, also)]
        others = ", ".join(stage for stage in stages if stage not in allowed)
        right = f"{' or '.join(allowed)}: {sum(map(allowed.count, stages))} of {len(stages)}"
        speed = statistics.median(result["samples_per_s"]["delivered"] for result in results)
        advice = measured_advice(results)
        ratios = ", ".join(f"{measured:.2f}" for measured in advice)
        print(f"| {name} | {right} | {others or '-'} | {speed:,.0f} | {ratios or '-'} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
