"""Run every claim in this folder and write their tables to ``results/<machine>.md``: ``make bench``.

Arguments are passed on to each script (``make bench ARGS="--rounds 3"``). Measure while nothing else runs.
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
    sections: list[str] = []
    failed: list[str] = []
    for script in scripts:
        print(f"==> {script.name}", flush=True)
        done = subprocess.run([sys.executable, script, *sys.argv[1:]], stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout, flush=True)
        if done.returncode:
            failed.append(script.name)
        else:
            sections.append(f"## {script.stem}\n\n{done.stdout.strip()}\n")
    name = re.sub(r"[^a-z0-9]+", "-", machine().lower()).strip("-")
    report = HERE / "results" / f"{name}.md"
    report.parent.mkdir(exist_ok=True)
    today = dt.datetime.now(tz=dt.UTC).date()
    report.write_text(f"# {machine()}\n\nMeasured {today} by `make bench`.\n\n" + "\n".join(sections))
    print(f"wrote {report.relative_to(HERE.parent)}")
    if failed:
        print(f"failed, and left out: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
