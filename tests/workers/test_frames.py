"""Stacks of threads are read whatever the garbage collector has to do."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import pytest

from penstock.workers.stack_frames import current_frames

# The frames of `collect_inside` are allocated inside the call, and that allocation starts the collector.
PROGRAM = """
import gc, threading
from penstock.workers.stack_frames import current_frames

def collect_inside():
    gc.disable()
    gc.collect()
    cycle = [threading.local()]
    cycle[0].x = 1
    cycle.append(cycle)
    del cycle
    kept = [[] for _ in range(300)]
    free = [{} for _ in range(10)]
    del free
    gc.set_threshold(100)
    gc.enable()
    current_frames()

collect_inside()
print("done")
"""


def test_a_collection_does_not_block_the_process() -> None:
    """Garbage that holds a `threading.local` does not make the call wait for a lock that it has itself."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout == "done\n"


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_collector_is_left_as_it_was(is_enabled: bool) -> None:
    """On stays on, off stays off."""
    before = gc.isenabled()
    (gc.enable if is_enabled else gc.disable)()

    frames = current_frames()

    after = gc.isenabled()
    (gc.enable if before else gc.disable)()
    assert threading.get_ident() in frames
    assert after is is_enabled
