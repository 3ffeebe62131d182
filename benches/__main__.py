"""Run all scripts of this folder and write their tables to ``results/<machine>.md``: ``make bench``.

Arguments are passed to each script (``make bench ARGS="--rounds 3"``). Run it while nothing else uses the machine.
"""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
from pathlib import Path

from harness import machine

HERE = Path(__file__).resolve().parent


def main() -> int:
    scripts = sorted(p for p in HERE.glob("*.py") if p.stem not in {"__main__", "harness", "samples"})
    name = re.sub(r"[^a-z0-9]+", "-", machine().lower()).strip("-")
    report = HERE / "results" / f"{name}.md"
    report.parent.mkdir(exist_ok=True)
    lines = [f"# {machine()}\n\nMeasured {dt.datetime.now(tz=dt.UTC).date()} by `make bench`.\n"]
    failed: list[str] = []
    for script in scripts:
        print(f"==> {script.name}", flush=True)
        done = subprocess.run([sys.executable, script, *sys.argv[1:]], stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout, flush=True)
        if done.returncode:
            failed.append(script.name)
            continue
        lines.append(f"## {script.stem}\n\n{done.stdout.strip()}\n")
        report.write_text("\n".join(lines))  # after each script, so that an interrupted run keeps its results
        print(f"wrote {report.relative_to(HERE.parent)}\n", flush=True)
    if failed:
        print(f"failed, and not in the report: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
