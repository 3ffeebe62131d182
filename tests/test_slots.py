"""Slots: memory is used again when nobody looks at it any more, and never before."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

from penstock.errors import ArgumentError
from penstock.sample import ArraySpec
from penstock.slots import Layout, SlotPool

SPEC = (ArraySpec((3, 5), np.dtype(np.float32)), {"label": ArraySpec((), np.dtype(np.int64))})


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
    pool, layout = SlotPool(), Layout(SPEC, 7)
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
    pool, layout = SlotPool(), Layout(SPEC, 7)

    images, rest = layout.arrays(pool.take(layout.nbytes), 2)

    assert images.shape == (2, 3, 5)
    assert rest["label"].shape == (2,)


def test_arrays_of_one_layout_share_one_lease() -> None:
    """While one field of a batch is kept, the slot is."""
    pool, layout = SlotPool(), Layout(SPEC, 7)
    images, rest = layout.arrays(pool.take(layout.nbytes))
    del images
    held = pool.free
    del rest

    assert held == 0
    assert pool.free == 1


def test_objects_have_no_place_in_a_slot() -> None:
    """Python objects cannot live in raw memory."""
    with pytest.raises(ArgumentError, match="plain numbers"):
        Layout(ArraySpec((), np.dtype(object)), 2)


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


def test_huge_pages_are_only_advice() -> None:
    """With or without the advice the memory works."""
    array = SlotPool(huge_pages=True).take(1 << 22).bytes()
    array[-1] = 7

    assert array[-1] == 7


def test_a_negative_reserve_is_refused() -> None:
    """keep counts slots."""
    with pytest.raises(ArgumentError, match="non-negative"):
        SlotPool(keep=-1)
