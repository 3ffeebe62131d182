"""Datasets that the tests of torch's loader share; importable by worker processes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

import penstock as ps
from penstock.rng import uniforms
from penstock.sample import ArraySpec, SampleKeys


class Drawn(Dataset[Any]):
    """Map-style samples that draw from every global generator."""

    def __init__(self, n: int = 11) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        return index, torch.rand(()), random.random(), np.random.random()  # noqa: NPY002  # global ones are meant


class Filled(ps.Dataset[Any]):
    """Rows whose values depend on index and key."""

    def __init__(self, n: int = 11) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def spec(self) -> Any:
        """As the interface has it."""
        return {"x": ArraySpec((2,), np.dtype(np.int64)), "noise": ArraySpec((2,), np.dtype(np.float64))}

    def fill(self, indices: Any, out: Any, keys: SampleKeys, rows: Any = None) -> None:
        """As the interface has it."""
        out["x"][rows] = np.asarray(indices)[:, None]
        out["noise"][rows] = uniforms(keys, 0, 2)


def part() -> tuple[int, int]:
    """First number and step of this worker's part of a stream."""
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


class Plain(IterableDataset[Any]):
    """A stream in parts that draws, and knows nothing of states."""

    def __init__(self, n: int = 13) -> None:
        self.n = n

    def __iter__(self) -> Iterator[Any]:
        start, step = part()
        for i in range(start, self.n, step):
            yield i, torch.rand(())


class Remembering(Plain):
    """The same, with an iterator that knows where it is."""

    def __iter__(self) -> Iterator[Any]:
        return _Walk(self.n, *part())


class _Walk:
    def __init__(self, n: int, start: int, step: int) -> None:
        self.n, self.at, self.step = n, start, step

    def __iter__(self) -> _Walk:
        return self

    def __next__(self) -> Any:
        if self.at >= self.n:
            raise StopIteration
        at, self.at = self.at, self.at + self.step
        return at, torch.rand(())

    def state_dict(self) -> dict[str, int]:
        """As torchdata's protocol has it."""
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """As torchdata's protocol has it."""
        self.at = state["at"]


def frozen(batch: Any) -> str:
    """A batch as something that compares by every value."""
    if isinstance(batch, torch.Tensor):
        return f"{batch.dtype}{batch.tolist()!r}"
    if isinstance(batch, dict):
        return str({name: frozen(value) for name, value in batch.items()})
    if isinstance(batch, (list, tuple)):
        return str([frozen(value) for value in batch])
    return repr(batch)
