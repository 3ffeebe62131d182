"""Datasets of which everything that may go wrong can be asked; their classes are sent to actors by value."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

import penstock as ps
from penstock.sample import ArraySpec

__all__ = ["Counting", "Deadly", "Filled", "Global", "Slow", "Stream"]

WIDTH: Final = 30_000
"""A sample of so many float32 makes a batch that goes through the object store."""


class Global:
    """Samples that hold numbers of the global generators of the worker."""

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> Any:
        sample = np.full(WIDTH, index, np.float32)
        sample[1:4] = np.random.random(), random.random(), np.random.normal()  # noqa: NPY002  # as user code draws
        return sample


class Slow(Global):
    """The same without random numbers, 5 ms each."""

    def __init__(self, n: int = 48, sleep_s: float = 0.005) -> None:
        self.n, self.sleep_s = n, sleep_s

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.sleep_s)
        return np.full(WIDTH, index, np.float32)


class Deadly(Slow):
    """Sample 13 ends the process that builds it, by ``sig``."""

    def __init__(self, sig: int = signal.SIGSEGV) -> None:
        super().__init__(24, 0.0)
        self.sig = sig

    def __getitem__(self, index: int) -> Any:
        if index == 13:
            os.kill(os.getpid(), self.sig)
            time.sleep(30)
        return super().__getitem__(index)


class Counting(Slow):
    """Appends to a file which worker has built which sample."""

    def __init__(self, log: Path, n: int = 48) -> None:
        super().__init__(n, 0.005)
        self.log = log

    def __getitem__(self, index: int) -> Any:
        info = ps.get_worker_info()
        with self.log.open("a") as file:
            file.write(f"{-1 if info is None else info.id} {index}\n")
        return super().__getitem__(index)


class Stream(ps.IterableDataset[Any]):
    """Each worker's share of a stream, with a number of its generator."""

    def __iter__(self) -> Iterator[Any]:
        info = ps.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(first, 40, step):
            yield np.array([index, np.random.random()])  # noqa: NPY002  # as user code draws


class Filled(Slow):
    """A dataset that fills rows, as :class:`penstock.StoreDataset` does."""

    def spec(self) -> Any:
        """Of one sample."""
        return ArraySpec((WIDTH,), np.dtype(np.float32))

    def fill(self, indices: Any, out: Any, keys: Any, rows: Any = None) -> None:  # noqa: D102
        for at, index in enumerate(indices):
            out[at if rows is None else rows[at]] = self[int(index)]
