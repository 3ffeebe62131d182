"""``python -m benches.device build | run | report``; called by ``benches/device_session.sh``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 1 if a stage failed."""
    parser = argparse.ArgumentParser(prog="device_session.sh", description="A session on a machine with a CUDA device.")
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="make the folder that is carried there; needs no device")
    build.add_argument("folder", type=Path)
    build.add_argument(
        "--photographs", type=Path, help="a folder of JPEGs, of which 400 are packed; default: the demo's"
    )
    build.add_argument("--malformed", type=Path, help="a folder of malformed JPEGs; default: those of the tests")
    build.add_argument("--python", default="3.12", help="the version of Python there")
    build.add_argument("--wheel", type=Path, help="a wheel of penstock; default: it is built")
    build.add_argument("--rivals", action="store_true", help="also carry the libraries that are measured beside it")
    build.add_argument("--part-nbytes", type=int, default=40_000_000, help="largest part, in bytes")
    run = commands.add_parser("run", help="run the stages")
    run.add_argument("folder", type=Path, help="what build wrote, unpacked")
    run.add_argument("out", type=Path, help="where session.json and session.md are written")
    run.add_argument("--only", help="names of stages, separated by commas")
    run.add_argument("--minutes", type=float, default=8)
    run.add_argument("--rehearse", action="store_true", help="without a device, with few images")
    report = commands.add_parser("report", help="write the tables of a session.json again")
    report.add_argument("file", type=Path)
    given = parser.parse_args(argv)
    return {"build": _build, "run": _run, "report": _report}[given.command](given)


def _build(given: argparse.Namespace) -> int:
    from benches.device.bundle import Contents, build

    contents = Contents(given.photographs, given.malformed, given.python, given.wheel, given.rivals, given.part_nbytes)
    build(given.folder, contents)
    return 0


def _run(given: argparse.Namespace) -> int:
    from benches.device.packages import unpack_missing
    from benches.device.session import STAGES, Session

    known = [plan.name for plan in STAGES]
    names = given.only.split(",") if given.only else known
    if unknown := sorted(set(names) - set(known)):
        raise SystemExit(f"--only must name stages of {', '.join(known)}, got {', '.join(unknown)}")
    work = given.folder.resolve()
    if not (work / "photographs.lmdb").exists():
        raise SystemExit(f"{work} must hold what `device_session.sh build` has written, and has no photographs.lmdb")
    with tempfile.TemporaryDirectory(prefix="device-packages-") as site:
        unpacked = unpack_missing(work / "wheels", Path(site))
        print(f"unpacked: {', '.join(unpacked) or 'nothing'}", flush=True)
        paths = [site, str(work), os.environ.get("PYTHONPATH", "")]
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": "1"}
        if (work / "cache").is_dir():
            environment["XDG_CACHE_HOME"] = str(work / "cache")
        if given.rehearse:
            environment["REHEARSAL_KERNELS"] = site  # compiled by the first stage
        session = Session(work, given.out.resolve(), given.minutes, rehearse=given.rehearse, environment=environment)
        record = session.run([plan for plan in STAGES if plan.name in names])
    print((given.out / "session.md").read_text())
    states = [stage["state"] for stage in record["stages"].values()]
    return int(any(state not in {"done", "skipped"} for state in states))


def _report(given: argparse.Namespace) -> int:
    from benches.device.goals import judge
    from benches.device.report import make_report

    record = json.loads(given.file.read_text())
    record["goals"] = judge(record)
    sys.stdout.write(make_report(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
