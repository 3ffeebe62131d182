"""`make whole`: what the gate (`.ci/run`) leaves out, before an issue is called done and before a release.

Each word of the Makefile below runs alone, within a time limit of its own. Words that run pytest run what failed once
more by themselves (scripts/run_tests.py); of the others, one that fails is run once more here. The last lines are a
table.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Word:
    """A word of the Makefile, and the minutes that it may take."""

    name: str
    minutes: int
    runs_again: bool = True  # what failed, by itself


WORDS = (
    Word("test-slow", 60),
    Word("test-cluster", 20),
    Word("test-clients", 40),
    Word("site", 20),
    Word("test-browser", 20),
    Word("test-emulated", 40, runs_again=False),
    Word("test-wheels", 40, runs_again=False),
)


def main() -> int:
    """Run the words that the command line names, all by default; 1 if one failed."""
    chosen = [word for word in WORDS if word.name in sys.argv[1:] or not sys.argv[1:]]
    if unknown := set(sys.argv[1:]) - {word.name for word in WORDS}:
        print(f"whole: a word must be one of {', '.join(word.name for word in WORDS)}, got {unknown.pop()}")
        return 2
    rows, all_passed = [], True
    for word in chosen:
        print(f"==> make {word.name} (at most {word.minutes} minutes)", flush=True)
        outcome, seconds, numbers = run(word)
        if outcome != "passed" and not word.runs_again:
            first = outcome
            outcome, seconds, numbers = run(word)
            outcome = f"FLAKY: {first}, then passed" if outcome == "passed" else outcome
        all_passed &= outcome.endswith("passed")
        rows.append(f"{word.name:15}{seconds:7.0f} s  {outcome:30}{numbers}")
    print("", f"{'word':15}{'time':>9}  {'outcome':30}tests", *rows, sep="\n")
    return int(not all_passed)


def run(word: Word) -> tuple[str, float, str]:
    """Run a word, show what it prints; the outcome, seconds, and the numbers of its tests."""
    started, last = time.monotonic(), ""
    own = {"ARGS", "MAKEFLAGS", "MAKEOVERRIDES"}  # the arguments of `make whole` are not those of the word
    environment = {"HYPOTHESIS_PROFILE": "many"} | {name: each for name, each in os.environ.items() if name not in own}
    command = ["make", "--no-print-directory", word.name]
    limit = ["timeout", "--kill-after=30", str(60 * word.minutes)]
    with subprocess.Popen(
        [*limit, *command], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        assert process.stdout
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() if " passed, " in line and " failed" in line and "=" not in line else last
    seconds = time.monotonic() - started
    if process.returncode in {124, 128 + signal.SIGKILL, -signal.SIGKILL}:
        return f"ended after {word.minutes} minutes", seconds, last
    return "passed" if process.returncode == 0 else f"failed with {process.returncode}", seconds, last


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
