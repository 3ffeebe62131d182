"""Slots: memory is used again when nobody looks at it any more, and never before."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import ArgumentError
from penstock.sample import ArraySpec
from penstock.workers.slots import BatchLayout, Quarantine, SlotPool

SPEC = (ArraySpec((3, 5), np.dtype(np.float32)), {"label": ArraySpec((), np.dtype(np.int64))})


class Device:
    """Stands for an accelerator: remembers what was locked, and opens the fences that it is told to."""

    def __init__(self) -> None:
        self.locked: dict[int, int] = {}
        self.mapped_when_unlocked: list[bool] = []
        self.fences = 0
        self.open = 0

    def __call__(self, address: int, nbytes: int) -> Callable[[], None]:
        """Lock."""
        assert address not in self.locked
        self.locked[address] = nbytes

        def undo() -> None:
            del self.locked[address]
            maps = Path("/proc/self/maps").read_text().splitlines()
            self.mapped_when_unlocked.append(any(line.startswith(f"{address:x}-") for line in maps))

        return undo

    def fence(self) -> Callable[[], bool]:
        """Fences are numbered from 1."""
        number = self.fences = self.fences + 1
        return lambda: number <= self.open


def address(array: Any) -> int:
    """Where an array's memory begins."""
    return int(array.__array_interface__["data"][0])


def test_a_dead_lease_gives_its_slot_back() -> None:
    """take() after the last view has died gives the same memory, and allocates nothing."""
    pool = SlotPool()
    array = pool.take(1000).bytes()
    first = address(array)
    del array

    again = pool.take(1000).bytes()

    assert address(again) == first
    assert pool.allocated == 1


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[1:],
        lambda a: a[::2][::3],
        lambda a: a.reshape(8, -1).T,
        lambda a: a.view(np.float32),
        memoryview,
        lambda a: np.frombuffer(a, np.int64),
        lambda a: np.asarray(memoryview(a)[8:]),
    ],
)
def test_any_view_keeps_the_slot(view: Any) -> None:
    """A slice, a reshape, a memoryview: as long as one lives, nobody else gets the memory."""
    pool = SlotPool()
    kept = view(pool.take(1000).bytes())
    gc.collect()

    other = pool.take(1000).bytes()

    assert pool.allocated == 2
    assert not np.shares_memory(np.asarray(kept), other)
    del kept, other
    assert pool.free == 2


def test_a_torch_tensor_keeps_the_slot() -> None:
    """A tensor made by from_numpy, and a view of it, are views too."""
    torch = pytest.importorskip("torch")
    pool = SlotPool()
    kept = torch.from_numpy(pool.take(1000).bytes())[5:10]
    gc.collect()

    held = pool.free
    del kept

    assert held == 0
    assert pool.free == 1


def test_a_cycle_gives_back_when_collected() -> None:
    """A batch in a reference cycle returns with the garbage collection."""
    pool = SlotPool()
    cycle: list[Any] = [pool.take(100).bytes()]
    cycle.append(cycle)
    del cycle
    before = pool.free

    gc.collect()

    assert before == 0
    assert pool.free == 1


def test_a_pool_never_waits_and_lets_surplus_go() -> None:
    """A user who keeps ten batches gets ten slots; when they are dropped, `keep` stay."""
    pool = SlotPool(keep=3)
    leases = [pool.take(100) for _ in range(10)]

    held = pool.allocated
    leases.clear()

    assert held == 10
    assert pool.free == 3


def test_a_slot_that_is_too_small_is_replaced() -> None:
    """A longer batch gets a slot of its size; the small one is let go."""
    pool = SlotPool()
    pool.take(100)

    large = pool.take(100_000).bytes()

    assert large.nbytes >= 100_000
    assert pool.free == 0


def test_layout_carves_aligned_arrays_that_do_not_overlap() -> None:
    """Each array has its dtype and shape, begins on a page, and is its own."""
    pool, layout = SlotPool(), BatchLayout(SPEC, 7)
    images, rest = layout.arrays(pool.take(layout.nbytes))

    images[:] = 1.5
    rest["label"][:] = -1

    assert (images.shape, images.dtype) == ((7, 3, 5), np.float32)
    assert (rest["label"].shape, rest["label"].dtype) == ((7,), np.int64)
    assert (images == 1.5).all()
    assert images.flags.c_contiguous
    assert images.flags.writeable
    assert address(images) % 4096 == address(rest["label"]) % 4096 == 0


def test_a_short_batch_is_a_shorter_view() -> None:
    """The last batch of an epoch has only its own rows."""
    pool, layout = SlotPool(), BatchLayout(SPEC, 7)

    images, rest = layout.arrays(pool.take(layout.nbytes), 2)

    assert images.shape == (2, 3, 5)
    assert rest["label"].shape == (2,)


def test_arrays_of_one_layout_share_one_lease() -> None:
    """While one field of a batch is kept, the slot is."""
    pool, layout = SlotPool(), BatchLayout(SPEC, 7)
    images, rest = layout.arrays(pool.take(layout.nbytes))
    del images
    held = pool.free
    del rest

    assert held == 0
    assert pool.free == 1


def test_objects_have_no_place_in_a_slot() -> None:
    """Python objects cannot live in raw memory."""
    with pytest.raises(ArgumentError, match="dtype of numbers"):
        BatchLayout(ArraySpec((), np.dtype(object)), 2)


def test_threads_never_share_a_slot() -> None:
    """Eight threads that take, write, check and drop at once never see another's bytes."""
    pool, wrong = SlotPool(keep=4), []

    def work(mark: int) -> None:
        for _ in range(300):
            array = pool.take(64).bytes()
            array[:] = mark
            if (array != mark).any():
                wrong.append(mark)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
    assert pool.free <= 4
    assert pool.allocated <= 8 * 300


def test_a_negative_reserve_is_refused() -> None:
    """keep counts slots."""
    with pytest.raises(ArgumentError, match="non-negative"):
        SlotPool(keep=-1)


def test_a_forked_child_leaves_the_parents_slots_alone() -> None:
    """Pages are shared with a forked child, slots are not: neither free ones nor those whose lease dies there."""
    code = (  # in a process of its own, which has no threads
        "import os\n"
        "from penstock.workers.slots import SlotPool\n"
        "pool = SlotPool()\n"
        "free, kept = pool.take(100).bytes(), pool.take(100).bytes()\n"
        "free[:] = kept[:] = 1\n"
        "del free\n"
        "if os.fork() == 0:\n"
        "    for _ in range(3):\n"
        "        kept = pool.take(100).bytes()\n"  # the child's copy of the parent's lease dies here
        "        kept[:] = 9\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "print(set(kept.tolist()), set(pool.take(100).bytes().tolist()))\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "{1} {1}\n", "")


def test_a_slot_that_was_leased_during_a_fork_is_not_used_again() -> None:
    """What a forked child holds stays as it was: the parent lets such a slot go, and keeps the others."""
    code = (  # in a process of its own, which has no threads
        "import os\n"
        "from penstock.workers.slots import SlotPool\n"
        "pool = SlotPool()\n"
        "free, batch = pool.take(100).bytes(), pool.take(100).bytes()\n"
        "batch[:] = 1\n"
        "del free\n"
        "ready, go = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.read(ready, 1)\n"
        "    os._exit(0 if set(batch.tolist()) == {1} else 1)\n"
        "del batch\n"  # as Process.start() drops the arguments of its process
        "later = [pool.take(100).bytes() for _ in range(2)]\n"
        "for array in later: array[:] = 9\n"
        "os.write(go, b'.')\n"
        "print(os.wait()[1], pool.allocated)\n"
        "del array, later\n"
        "later = [pool.take(100).bytes() for _ in range(2)]\n"
        "print(pool.allocated)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "0 3\n3\n", "")


def test_a_slot_is_locked_when_allocated_and_unlocked_before_it_is_unmapped() -> None:
    """The hook hears of each slot once, and its undo runs while the memory is still there."""
    device = Device()
    pool = SlotPool(keep=1, page_lock=device)
    device.open = 99
    for _ in range(5):
        leases = [pool.take(5000) for _ in range(4)]
        del leases
    locked = dict(device.locked)

    allocated = pool.allocated
    del pool

    assert set(locked.values()) == {8192}
    assert len(device.mapped_when_unlocked) == allocated
    assert all(device.mapped_when_unlocked)
    assert device.locked == {}


def test_a_tensor_that_outlives_its_pool_stays_locked() -> None:
    """Memory is unlocked when nobody can copy from it any more, not when its pool goes."""
    device = Device()
    pool = SlotPool(page_lock=device)
    array = pool.take(100).bytes()
    del pool

    held = len(device.locked)
    del array

    assert held == 1
    assert device.locked == {}


def test_a_locked_slot_waits_for_the_device() -> None:
    """What the consumer dropped may still be read by a copy: no slot is used again while its fence is closed."""
    device = Device()
    pool = SlotPool(page_lock=device)

    def use() -> int:
        return address(pool.take(100).bytes())

    busy = [use() for _ in range(6)]
    device.open = 6
    idle = [use() for _ in range(2)]

    assert len(set(busy)) == 6
    assert set(idle) <= set(busy)
    assert pool.allocated == 6


@pytest.mark.parametrize(("open_", "out"), [(0, []), (1, []), (2, []), (3, ["a"]), (4, ["a", "b"])])
def test_quarantine_ends_with_the_fences_of_two_later_deaths(open_: int, out: list[str]) -> None:
    """A copy on a side stream may be joined up to two batches after its source was dropped."""
    device = Device()
    quarantine: Quarantine[str] = Quarantine(device.fence)
    for slot in "abcd":
        quarantine.put(slot)
    device.open = open_

    got = []
    while (free := quarantine.get()) is not None:
        got.append(free)

    assert got == out
    assert len(quarantine) == 4 - len(out)


def test_fences_in_any_order_count() -> None:
    """Streams finish in their own order: one closed fence among the three is enough to wait."""
    states = {0: True, 1: False, 2: True}
    numbers = iter(range(3))

    def fence() -> Callable[[], bool]:
        number = next(numbers)
        return lambda: states[number]

    quarantine: Quarantine[str] = Quarantine(fence)
    for slot in "abc":
        quarantine.put(slot)
    closed = quarantine.get()
    states[1] = True

    assert closed is None
    assert quarantine.get() == "a"


def test_quarantine_is_no_lock_to_wait_for_oneself() -> None:
    """The garbage collector may give a slot back while a fence is asked: nothing waits, nothing comes twice."""
    nested: list[Any] = []

    def ask() -> bool:
        quarantine.put("found by the collector")
        nested.append(quarantine.get())
        return True

    quarantine: Quarantine[str] = Quarantine(lambda: ask)
    for slot in "abc":
        quarantine.put(slot)

    assert quarantine.get() == "a"
    assert nested == [None, None, None]


def test_nothing_is_unlocked_at_exit() -> None:
    """At exit the device's driver may be gone: the operating system unlocks what is left."""
    code = (
        "from penstock.workers.slots import SlotPool\n"
        "class Device:\n"
        "    def __call__(self, address, nbytes): return lambda: print('unlocked')\n"
        "    def fence(self): return lambda: True\n"
        "pool = SlotPool(page_lock=Device()); kept = pool.take(9).bytes(); pool.take(9); pool.take(9)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
