"""Indices in ascending order, and batches of the indices of any sampler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.sample import Index
from penstock.samplers.base import IndexSampler, Sampler, check_count

__all__ = ["BatchSampler", "SequentialSampler"]


class SequentialSampler(IndexSampler):
    """The indices 0, 1, 2, ... of a dataset, whose length is read at each use.

    Parameters
    ----------
    data_source : sized
        An object with a length.
    """

    def __init__(self, data_source: Sized) -> None:
        super().__init__()
        self.data_source = data_source

    def __len__(self) -> int:
        return len(self.data_source)

    def order(self, start: int, stop: int, epoch: int | None = None) -> NDArray[np.int64]:  # noqa: ARG002  # the same in each
        """Positions are indices."""
        return np.arange(start, min(stop, len(self)), dtype=np.int64)

    def signature(self) -> dict[str, object]:
        """Return the type and length."""
        return {"type": "SequentialSampler", "length": len(self)}


class BatchSampler(Sampler[list[Index]]):
    """Lists of ``batch_size`` indices.

    Parameters
    ----------
    sampler : iterable
        An iterable of indices. Where it has random access, the loader seeks in O(1).
    batch_size : int
        Indices per batch.
    drop_last : bool
        Leave out a last batch that is short.

    Raises
    ------
    ArgumentError
        If ``batch_size`` is not a positive int, or ``drop_last`` not a bool.
    """

    def __init__(self, sampler: Iterable[Index], batch_size: int, drop_last: bool) -> None:
        self.batch_size = check_count("batch_size", batch_size, least=1)
        if not isinstance(drop_last, bool):
            raise ArgumentError(f"drop_last should be a boolean value, but got drop_last={drop_last!r}")
        self.sampler = sampler
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[Index]]:
        batch: list[Index] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]  # a sampler without a length: TypeError, as it should be
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, also of the inner sampler if it has one."""
        super().set_epoch(epoch)
        if isinstance(self.sampler, Sampler):
            self.sampler.set_epoch(epoch)
