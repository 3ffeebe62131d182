"""Run pytest as every word of the Makefile does: in sessions, what looks at a clock alone, what failed once more.

::

    python scripts/run_tests.py                               the sessions of `make test`, then those marked `timing`
    python scripts/run_tests.py --package stores/hdf5         the tests of one package
    python scripts/run_tests.py --python .venv-site/bin/python tests/site      one session, arguments as pytest's

Tests that fail are run once more, in one process with nothing beside it. Those that pass then are printed as ``FLAKY``
and counted; more than five of them are a failure, as is a test that fails twice. The last line is the sum of all
sessions. It needs nothing but the standard library: a session runs in the environment that ``--python`` names.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
MOST_FLAKY = 5

# Folders of tests that run in one session; what is not named here runs in one more, with the documentation in the last.
# A session is small enough that forks of its runners are cheap, and large enough that few of them start.
GROUPS = (
    ("native", "transforms", "hostile", "samplers", "datasets", "annotations", "sheets"),
    ("stores", "foreign", "formats", "pack"),
    ("conformance",),
    ("loader", "workers", "faults"),
    ("torch", "parity", "distributed"),
)
ELSEWHERE = {"clients", "site", "browser", "types", "servers", "__pycache__"}
"""Folders that other words of the Makefile run, or that hold no tests."""

OK, FAILED, NONE_COLLECTED = 0, 1, 5


@dataclass
class Sum:
    """What the sessions have reported until now."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    flaky: list[str] = field(default_factory=list)

    def add(self, line: str) -> None:
        """Add the numbers of pytest's last line: ``1 failed, 220 passed, 3 skipped in 75.73s``."""
        counts = {word: int(count) for count, word in re.findall(r"(\d+) (\w+)", line.rpartition(" in ")[0])}
        self.passed += counts.get("passed", 0) + counts.get("xfailed", 0)
        self.failed += counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
        self.skipped += counts.get("skipped", 0)


def main() -> int:
    """Run what the command line asks for; pytest's exit status."""
    parser = argparse.ArgumentParser(
        description="Run pytest in sessions, and what failed once more. Other arguments are pytest's.",
        allow_abbrev=False,
    )
    parser.add_argument("--python", default=".venv/bin/python", help="the environment of the session")
    parser.add_argument("--package", default="", help="only the tests of one package, such as stores/hdf5")
    given, arguments = parser.parse_known_args()
    os.chdir(ROOT)
    if given.package and not (TESTS / given.package).is_dir():
        parser.error(f"--package must be a folder in tests/, such as stores/hdf5, got {given.package!r}")
    package = [f"tests/{given.package}"] if given.package else []
    if arguments:
        sessions = [[*runners(), *package, *arguments]]
    elif package:
        sessions = [[*runners(), *package], *find_timing(TESTS / given.package)]
    else:
        sessions = [[*runners(), *paths] for paths in divide_tests()] + find_timing(TESTS)
    print(say_left_out(), flush=True)
    return run_sessions(given.python, sessions)


def runners() -> list[str]:
    """As many runners as cores, at most four."""
    return ["-n", str(min(os.cpu_count() or 1, 4)), "--dist", "worksteal"]


def divide_tests() -> list[list[str]]:
    """The paths of each session of `make test`: all folders and files of ``tests/`` are in one of them."""
    grouped = {name for group in GROUPS for name in group} | ELSEWHERE
    rest = [path for path in sorted(TESTS.iterdir()) if path.name not in grouped and is_test(path)]
    sessions = [[f"tests/{name}" for name in group] for group in GROUPS]
    return [*sessions, [f"tests/{path.name}" for path in rest] + ["README.md", "docs"]]


def find_timing(folder: Path) -> list[list[str]]:
    """The session of tests that look at a clock: one process with nothing beside it; none without such tests."""
    files = [path for path in sorted(folder.rglob("test_*.py")) if "mark.timing" in path.read_text()]
    files = [path for path in files if path.relative_to(TESTS).parts[0] not in ELSEWHERE]
    return [["-n", "0", "-m", "timing", *(str(path.relative_to(ROOT)) for path in files)]] if files else []


def is_test(path: Path) -> bool:
    """Whether pytest finds tests in a file, or in a folder."""
    return any(path.rglob("test_*.py")) if path.is_dir() else path.name.startswith("test_")


def say_left_out() -> str:
    """Which tests this run leaves out or skips, and why."""
    reasons = ["those marked slow or cluster (make whole)"]
    if not shutil.which("go"):
        reasons.append("MongoDB and versitygw (Go is not installed)")
    if not shutil.which("cargo"):
        reasons.append("object storage (cargo is not installed)")
    if not (shutil.which("g++") or shutil.which("c++")):
        reasons.append("kernels on the processor (no compiler for C++)")
    if not Path("/dev/nvidia0").exists():
        reasons.append("CUDA (no device)")
    if not any(ROOT.glob(".venv/lib/python3.*/site-packages/torch")) and not any(ROOT.glob(".venv/lib/*/*/*torch.pth")):
        reasons.append("torch (not installed)")
    return f"left out: {'; '.join(reasons)}"


def run_sessions(python: str, sessions: list[list[str]]) -> int:
    """Run each session, then what failed once more; print the sum as the last line."""
    total, worst, collected = Sum(), OK, False
    for number, arguments in enumerate(sessions):
        started = time.monotonic()
        clear = [] if number else ["--cache-clear"]
        status, line = run_pytest(python, [*clear, *arguments])
        if status not in {OK, FAILED, NONE_COLLECTED}:
            print(f"pytest ended with status {status}: {line or 'without a summary'}", file=sys.stderr)
            return status
        collected |= status != NONE_COLLECTED
        worst = max(worst, status % NONE_COLLECTED)
        total.add(line)
        if len(sessions) > 1:
            print(f"--- session {number + 1} of {len(sessions)}: {time.monotonic() - started:.0f} s", flush=True)
    if worst == FAILED:
        worst = run_again(python, total)
    print(f"flaky: {len(total.flaky)} of at most {MOST_FLAKY}")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped", flush=True)
    return worst if collected else NONE_COLLECTED


def run_again(python: str, total: Sum) -> int:
    """Run what failed once more, alone; pytest's exit status, a failure also where too much was flaky."""
    before = read_failed()
    if len(before) > MOST_FLAKY:
        print(f"{len(before)} tests failed: none is run again, since at most {MOST_FLAKY} may be flaky", flush=True)
        return FAILED
    print(f"==> running {len(before)} failed again, alone", flush=True)
    files = sorted({test.partition("::")[0] for test in before})
    status, _ = run_pytest(python, ["--lf", "--lfnf=none", "-n", "0", "-m", "", *files])
    if status not in {OK, FAILED}:
        return status
    after = read_failed()
    total.flaky += sorted(before - after)
    total.passed, total.failed = total.passed + len(before - after), len(after)
    for test in total.flaky:
        print(f"FLAKY: {test}: failed beside others, passed alone", flush=True)
    return FAILED if after else OK


def read_failed() -> set[str]:
    """The tests that failed when they ran last, as pytest keeps them."""
    kept = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
    return set(json.loads(kept.read_text())) if kept.exists() else set()


def run_pytest(python: str, arguments: list[str]) -> tuple[int, str]:
    """Run one session, show what it prints; its exit status and its last line of numbers."""
    color = ["--color=yes"] if sys.stdout.isatty() else []
    line, numbers = "", ""
    with subprocess.Popen([python, "-m", "pytest", *color, *arguments], stdout=subprocess.PIPE) as process:
        assert process.stdout
        while chunk := os.read(process.stdout.fileno(), 1 << 16):
            sys.stdout.buffer.write(chunk)
            sys.stdout.flush()
            *lines, line = (line + chunk.decode(errors="replace")).split("\n")
            for each in lines:
                plain = re.sub(r"\x1b\[[\d;]*m", "", each).strip(" =")
                numbers = plain if re.search(r"^(\d+ \w+|no tests).* in [\d.]+s", plain) else numbers
    return process.returncode, numbers


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
