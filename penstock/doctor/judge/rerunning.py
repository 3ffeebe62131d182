"""``penstock doctor --rerun``: run the script again with the advice, and measure the training itself.

Only what is an argument of the loader can be set from outside; other advice keeps what its trial has measured.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.doctor.judge.diagnosis import ONE_THREAD
from penstock.doctor.trials.turns import Measured

if TYPE_CHECKING:
    from penstock.doctor.judge.text_report import Diagnosis
    from penstock.doctor.trials.run_options import RunOptions

__all__ = ["parse_change", "rerun_with_advice"]

_ARGUMENTS: Final = frozenset({"num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "in_order"})
_PAIR: Final = re.compile(r"([a-z_]+)=(\d+|True|False|None)")
_MOST: Final = 3
_RUNS: Final = 2
_SLACK_S: Final = 120.0


def parse_change(text: str) -> dict[str, object]:
    """Return the loader's arguments in an advice such as ``num_workers=4, prefetch_factor=4``.

    It is empty if it is another one.
    """
    pairs = [(name, json.loads(value.lower().replace("none", "null"))) for name, value in _PAIR.findall(text)]
    rest = _PAIR.sub("", text).strip(" ,")
    return {} if rest or any(name not in _ARGUMENTS for name, _ in pairs) else dict(pairs)


def rerun_with_advice(diagnosis: Diagnosis, options: RunOptions, target: Sequence[str]) -> None:
    """Replace ``measured`` of the first advice by what the script itself gains, in turns with the script as it is."""
    tried = 0
    for position, advice in enumerate(diagnosis.advice):
        threads = advice.change.endswith(ONE_THREAD)
        change = parse_change(advice.change.removesuffix(ONE_THREAD).removesuffix(", with "))
        if not (change or threads) or tried == _MOST:
            continue
        tried += 1
        ratios = []
        for _ in range(_RUNS):
            before, after = _run(options, target, {}), _run(options, target, change, one_thread=threads)
            if before and after:
                ratios.append(after / before)
        if ratios:
            ratios.sort()
            middle = (ratios[(len(ratios) - 1) // 2] + ratios[len(ratios) // 2]) / 2
            measured = Measured(middle, ratios[0], ratios[-1], len(ratios))
            diagnosis.advice[position] = dataclasses.replace(advice, measured=measured)
        else:
            diagnosis.notes.append(f"The script could not be run again with {advice.change}.")
    if tried:
        diagnosis.notes.append("The script was run again (--rerun): measured gains are of the training itself.")


def _run(options: RunOptions, target: Sequence[str], change: dict[str, object], *, one_thread: bool = False) -> float:
    """Samples per second of the script with a change; 0 if it fails."""
    with tempfile.TemporaryDirectory(prefix="penstock-doctor-") as folder:
        path = Path(folder) / "speed.json"
        again = dataclasses.replace(
            options, trials=False, rerun=False, json=None, html=None, trace=None, github=False, fail_if_waiting=None,
            change=change, speed=str(path),
        )  # fmt: skip
        command = [sys.executable, "-m", "penstock.doctor.run", again.to_text(), *target]
        try:
            subprocess.run(  # noqa: S603  # the script that the user wants to run
                command, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                timeout=options.most_s + _SLACK_S,
                env={**os.environ, "OMP_NUM_THREADS": "1"} if one_thread else None,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return 0.0
        return float(json.loads(path.read_text())) if path.exists() else 0.0
