"""Groups of processes are ended whole, and leave no shared memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from penstock.doctor.trials.forked_child import find_members, kill_group

START = """
import os, subprocess, sys, time
os.setpgid(0, 0)
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


def has_ended(pid: int) -> bool:
    """Whether a process, of any parent, runs no more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def test_a_group_is_killed_with_its_shared_memory(tmp_path: Path) -> None:
    """Files of torch that a member made are removed; those of other processes, and other files, are not."""
    leader = subprocess.Popen([sys.executable, "-S", "-c", START], stdout=subprocess.PIPE)
    assert leader.stdout is not None
    child = int(leader.stdout.readline())
    own = [tmp_path / f"torch_{pid}_123_7" for pid in (leader.pid, child)]
    others = [tmp_path / f"torch_{os.getpid()}_123_7", tmp_path / f"sem.{child}"]
    for path in own + others:
        path.touch()
    members = sorted(find_members(leader.pid))
    kill_group(leader.pid, tmp_path)
    leader.wait(60)
    leader.stdout.close()
    deadline = time.monotonic() + 60
    while not has_ended(child):
        assert time.monotonic() < deadline, "the leader's child runs on"
        time.sleep(0.01)

    assert members == sorted([leader.pid, child])
    assert sorted(tmp_path.iterdir()) == sorted(others)


def test_a_child_without_a_group_is_killed_alone() -> None:
    """It may be killed before it has begun a group: that of its parent goes on."""
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    kill_group(child.pid)

    assert child.wait(60) == -9
