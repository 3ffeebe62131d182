"""Stacks of threads are read whatever the garbage collector has to do."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import pytest

from penstock.workers.stack_frames import current_frames, walk_stack

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

# Each walk allocates frames of functions of different sizes, which the other thread leaves whenever the GIL is free.
WALK_OF_ANOTHER_THREAD = """
import gc, threading, time
from penstock.workers.stack_frames import current_frames, walk_stack

class Cycle:
    def __init__(self):
        self.itself = self

    def __del__(self):
        time.sleep(0.0002)

calls = []
for size in range(2, 16, 2):
    names = ", ".join(f"a{number}" for number in range(size))
    code = f"def call(depth):\\n    {names} = range({size})\\n    return calls[depth % 7](depth - 1) if depth else 0"
    made = {"calls": calls}
    exec(code, made)
    calls.append(made["call"])

def work():
    while not is_over:
        for depth, call in enumerate(calls):
            call(50 + depth)

is_over = False
thread = threading.Thread(target=work)
thread.start()
gc.set_threshold(20)
walks, kinds = 0, set()
while walks < 300:
    Cycle()
    frame = current_frames().get(thread.ident)
    if frame is not None:
        walks, kinds = walks + 1, kinds | {type(place).__name__ for place in walk_stack(frame)}
is_over = True
thread.join()
print(sorted(kinds))
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


def test_a_walk_is_not_disturbed_by_a_collection() -> None:
    """While a stack of another thread is walked, no garbage is collected whose finalizers let that thread go on."""
    command = [sys.executable, "-c", WALK_OF_ANOTHER_THREAD]

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    assert (done.returncode, done.stdout) == (0, "['frame']\n")


def test_a_walk_goes_outwards_as_far_as_asked() -> None:
    """The first frame is the given one, the next is its caller."""

    def called(most: int) -> list[str]:
        return [place.f_code.co_name for place in walk_stack(sys._getframe(), most)]

    mine = sys._getframe().f_code.co_name

    assert called(2) == ["called", mine]
    assert called(1) == ["called"]
