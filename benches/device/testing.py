"""Stages "tests" and "sanitizer": ``pytest -m cuda``, and two of these tests under compute-sanitizer.

Warnings are not errors here, as they are in the project's own runs: versions of packages are those of the machine.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, Final

from benches.device.program import Skipped, Stage, run_stage

__all__ = ["read_report", "run_sanitizer", "run_tests"]

PYTEST: Final = (
    "-m",
    "pytest",
    "-m",
    "cuda",
    "-W",
    "default",
    "-p",
    "no:cacheprovider",
    "-q",
    "--import-mode=importlib",
)
FOLDERS: Final = ("tests/torch/cuda", "tests/torch/device")
SANITIZED: Final = tuple(
    f"tests/torch/cuda/test_on_cuda.py::{name}"
    for name in ("test_batches_of_all_pictures_in_groups", "test_batches_are_the_same[0-jitter]")
)
"""All kernels of decoding, and some of augmentation, in few launches: each takes many times as long as otherwise."""

TOOLS: Final = ("memcheck", "racecheck")


def run_tests(stage: Stage) -> None:
    """Run the tests that need a device, and count."""
    report = stage.result.with_suffix(".xml")
    folders = FOLDERS[:1] if stage.rehearse else FOLDERS
    code = _run([sys.executable, *PYTEST, f"--junitxml={report}", *folders], stage.left_s - 5)
    if not report.exists():
        raise RuntimeError(f"pytest wrote no report; it ended with {code}")
    stage.found |= read_report(report) | {"exit_code": code}


def read_report(report: Path) -> dict[str, Any]:
    """Counts, and the failed tests with the first line of their errors."""
    found: dict[str, Any] = {"passed": 0, "skipped": 0, "failed": 0, "failures": []}
    for case in ET.parse(report).getroot().iter("testcase"):
        problem = next((child for child in case if child.tag in {"failure", "error"}), None)
        if problem is not None:
            found["failed"] += 1
            text = (problem.get("message") or "").strip().split("\n")[0][:300]
            found["failures"].append(f"{case.get('classname')}.{case.get('name')}: {text}")
        elif case.find("skipped") is not None:
            found["skipped"] += 1
        else:
            found["passed"] += 1
    return found


def run_sanitizer(stage: Stage) -> None:
    """Run some tests under each tool; a tool that needs longer than its share is ended, and what it found counts."""
    program = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if program is None:
        raise Skipped("compute-sanitizer is neither on PATH nor in /usr/local/cuda/bin")
    for number, tool in enumerate(TOOLS):
        log = stage.result.with_suffix(f".{tool}")
        command = [
            program,
            "--tool",
            tool,
            "--log-file",
            str(log),
            "--error-exitcode",
            "9",
            "--target-processes",
            "all",
        ]
        share_s = max((stage.left_s - 5) / (len(TOOLS) - number), 5)
        # Each tensor has memory of its own, so that an access behind it is seen.
        code = _run([*command, sys.executable, *PYTEST, *SANITIZED], share_s, PYTORCH_NO_CUDA_MEMORY_CACHING="1")
        text = log.read_text(errors="replace") if log.exists() else ""
        stage.found[tool] = {
            "ended": "at its time limit" if code is None else f"with {code}",
            "errors": len(
                re.findall(r"^=+ (?:Invalid|Error|Potential|Race|Uninitialized|Program hit)", text, re.MULTILINE)
            ),
            "summary": re.findall(r"=+ (\S+ SUMMARY.*)", text),
            "first": text[:1500],
        }
        stage.save()


def _run(command: list[str], limit_s: float, **environment: str) -> int | None:
    """Run a program in a session of its own; its exit code, or None if it was ended at the limit."""
    process = subprocess.Popen(command, env=os.environ | environment, start_new_session=True)
    try:
        return process.wait(max(limit_s, 1))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None


if __name__ == "__main__":
    which = sys.argv.pop(1)
    run_stage({"tests": run_tests, "sanitizer": run_sanitizer}[which])
