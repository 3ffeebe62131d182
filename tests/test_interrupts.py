"""An interrupt that falls into a finalizer is not lost."""

from __future__ import annotations

import subprocess
import sys

import pytest

COMMON = """
import threading, weakref
from penstock.workers.slots import SlotPool

def interrupt(*_):
    raise KeyboardInterrupt

class Own:
    pass

def drop():
    if kind == "lease":
        SlotPool._give_back = interrupt
        pool = SlotPool()
        pool.take(100)
    elif kind == "weak reference":
        weakref.finalize(Own(), interrupt)
    else:
        Own.__del__ = interrupt
        Own()
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    """What a program prints."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)


@pytest.mark.parametrize("kind", ["lease", "weak reference"])
def test_an_interrupt_in_a_finalizer_comes_again(kind: str) -> None:
    """What no exception can leave is raised in the main thread a moment later, and ends what it waits for."""
    program = (
        f"kind = {kind!r}\n{COMMON}\ntry:\n    drop()\n    threading.Event().wait(40)\nexcept KeyboardInterrupt:\n"
    )

    found = run(program + "    print('interrupted')")

    assert (found.stdout, found.stderr) == ("interrupted\n", "")


def test_finalizers_of_others_are_left_to_the_hook_that_there_was() -> None:
    """Nothing is raised, and Python says what it ignores."""
    program = (
        "import sys\nsys.unraisablehook = lambda found: print('ignored', found.exc_type.__name__)\nkind = 'other'\n"
    )

    found = run(f"{program}{COMMON}\ndrop()\nthreading.Event().wait(0.2)")

    assert (found.stdout, found.stderr) == ("ignored KeyboardInterrupt\n", "")


def test_interrupts_at_any_bytecode_are_raised() -> None:
    """Signals between the bytecodes of a loop that takes and drops slots: each is raised, and nothing is printed."""
    program = """
import os, random, signal, sys, threading, time
from penstock.workers.slots import SlotPool
pool, lost = SlotPool(), 0

def shoot():
    time.sleep(random.uniform(0.0005, 0.002))
    os.kill(os.getpid(), signal.SIGINT)

for _ in range(40):
    shooter, end = threading.Thread(target=shoot, daemon=True), time.monotonic() + 20
    try:
        shooter.start()
        while time.monotonic() < end:
            pool.take(100)
        lost += 1
    except KeyboardInterrupt:
        pass
print(lost)
"""

    found = run(program)

    assert (found.stdout, found.stderr) == ("0\n", "")
