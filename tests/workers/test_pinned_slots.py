"""Slots of worker processes that a device copies from: locked once, used again only when the device has read them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.sample import SampleKeys
from penstock.trace import Trace
from penstock.workers import Task
from penstock.workers.jobs import SampleJob
from penstock.workers.processes import ProcessBackend


class Device:
    """A page lock that notes what is locked, and a device that is done when it is told to be."""

    def __init__(self) -> None:
        self.locked: list[int] = []
        self.unlocked: list[int] = []
        self.done = False

    def __call__(self, address: int, nbytes: int) -> Callable[[], None]:
        """Lock."""
        self.locked.append(address)
        return lambda: self.unlocked.append(address)

    def fence(self) -> Callable[[], bool]:
        """Open as soon as the device is done."""
        return lambda: self.done


class Rows:
    """Samples large enough for a slot."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> Any:
        return np.full(5000, index, np.float64)


def _batches(backend: ProcessBackend, seqs: range) -> list[float]:
    """Take these batches one by one, and drop each."""
    seen = []
    for seq in seqs:
        indices = np.array([seq, seq + 1], np.int64)
        backend.submit(Task(seq, indices, SampleKeys(0, 0, indices)))
        done = backend.result(60)
        assert done is not None
        assert done.error is None
        seen.append(float(done.batch[0, 0]))
        del done
    return seen


def test_a_slot_waits_for_the_device() -> None:
    """As long as the device may read, no slot is written again; afterwards, no further slot is made."""
    device = Device()
    backend = ProcessBackend(1, page_lock=device)
    try:
        backend.start(SampleJob(Trace(), None, Rows(), np.stack, batched=True))
        while_reading = _batches(backend, range(6))
        made_while_reading = len(device.locked)
        device.done = True
        afterwards = _batches(backend, range(6, 30))

        assert made_while_reading == 6
        assert len(device.locked) <= 8
        assert while_reading + afterwards == list(range(30))
    finally:
        backend.close()


def test_a_slot_is_unlocked_when_it_goes() -> None:
    """Every lock is undone once, when the memory that it is for is let go."""
    device = Device()
    device.done = True
    backend = ProcessBackend(1, page_lock=device)
    backend.start(SampleJob(Trace(), None, Rows(), np.stack, batched=True))
    _batches(backend, range(8))
    backend.close()
    del backend
    gc.collect()

    assert sorted(device.unlocked) == sorted(device.locked)
