"""Datasets and helpers that the loader's tests share."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import penstock as ps
from penstock.rng import uniforms
from penstock.sample import ArraySpec, SampleKeys, tree_leaves


class Samples(ps.Dataset[Any]):
    """Map-style samples with randomness of their own, for the general path."""

    def __init__(self, n: int = 50) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        if not -self.n <= index < self.n:
            raise IndexError(index)
        return {"x": np.full((2, 3), index, np.float32), "noise": ps.rng().random(), "y": (index, f"s{index}")}


class Rows(Samples):
    """The same idea, filled: values depend on index and key."""

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError("a filler is not asked for samples")

    def spec(self) -> Any:
        """As the interface has it."""
        return {"x": ArraySpec((2, 3), np.dtype(np.float32)), "noise": ArraySpec((2,), np.dtype(np.float64))}

    def fill(self, indices: Any, out: Any, keys: SampleKeys, rows: Any = None) -> None:
        """As the interface has it."""
        out["x"][rows] = indices[:, None, None]
        out["noise"][rows] = uniforms(keys, 0, 2)


class Stream(ps.IterableDataset[Any]):
    """A stream with randomness of its own."""

    def __init__(self, n: int = 50) -> None:
        self.n = n

    def __iter__(self) -> Iterator[Any]:
        for i in range(self.n):
            yield np.full(2, i), ps.rng().random()


class StatefulStream(ps.IterableDataset[int]):
    """A stream that can say where it is, and counts what it was asked for."""

    def __init__(self, n: int = 50) -> None:
        self.n, self.at, self.drawn = n, 0, 0

    def __iter__(self) -> Iterator[int]:
        start, self.at = self.at, 0
        for i in range(start, self.n):
            self.at = i + 1
            self.drawn += 1
            yield i
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        """As the interface has it."""
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """As the interface has it."""
        self.at = state["at"]


class Failing(Samples):
    """Raises for some indices: an error, or a new one of a type at each try.

    A dataset that keeps the error it raised keeps, by its traceback, whoever waited for the sample.
    """

    def __init__(self, n: int, errors: dict[int, BaseException | type[BaseException]]) -> None:
        super().__init__(n)
        self.errors = errors

    def __getitem__(self, index: int) -> Any:
        error = self.errors.get(index)
        if isinstance(error, type):
            raise error(index)
        if error is not None:
            raise error
        return index


class Blocking(Samples):
    """Waits at one index until it is released."""

    def __init__(self, n: int, at: int) -> None:
        super().__init__(n)
        self.at, self.release, self.reached = at, threading.Event(), threading.Event()
        self.begun: list[int] = []

    def __getitem__(self, index: int) -> Any:
        self.begun.append(index)
        if index == self.at:
            self.reached.set()
            self.release.wait(60)
        return index


def threads(num_workers: int) -> dict[str, Any]:
    """A loader's arguments for that many threads; for no worker, none."""
    return {"num_workers": num_workers, "workers": "threads"} if num_workers else {}


def frozen(batch: Any) -> Any:
    """A batch as something that compares by every byte, and that does not keep its memory."""
    return [
        (leaf.dtype.str, leaf.shape, leaf.tobytes()) if isinstance(leaf, np.ndarray) else leaf
        for leaf in tree_leaves(batch)
    ]


def epoch(loader: Any) -> list[Any]:
    """All batches of the next epoch, frozen."""
    return [frozen(batch) for batch in loader]


def workers_alive() -> list[str]:
    """Names of worker threads, once those that are ending have had the time to."""
    deadline = time.monotonic() + 60
    while True:
        names = [thread.name for thread in threading.enumerate() if thread.name.startswith("penstock-worker")]
        if not names or time.monotonic() > deadline:
            return names
        time.sleep(0.005)
