"""A test whose time is up fails by name, whatever it has started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

HANGING = """
import os, time, pytest
@pytest.mark.timeout(1)
def test_hangs():
    if not os.fork():
        os.fork()
        time.sleep(600)
    time.sleep(600)

def test_next():
    pass
"""


@pytest.mark.timeout(180)  # two runners start
def test_a_forked_child_does_not_keep_the_run_waiting(tmp_path: Path) -> None:
    """pytest-xdist waits for the end of pipes of which each forked child holds copies: for 10 minutes, if it is let."""
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout_method = thread")
    (tmp_path / "conftest.py").write_text("from tests.time_limits import pytest_timeout_set_timer")
    (tmp_path / "test_hanging.py").write_text(HANGING)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--disable-plugin-autoload",
        "-p",
        "pytest_timeout",
        "-p",
        "xdist",
        "-n1",
    ]
    variables = os.environ | {"PYTHONPATH": str(ROOT)}

    ran = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False, timeout=150)

    assert "1 failed, 1 passed" in ran.stdout
    assert "crashed while running 'test_hanging.py::test_hangs'" in ran.stdout
