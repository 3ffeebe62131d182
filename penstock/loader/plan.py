"""From a sampler to tasks: which indices each batch has, and the key of each sample.

::

    sampler with order(start, stop, epoch)  ->  IndexPlan     seeks to any batch in O(1)
    batch sampler with batches(start, ...)  ->  BatchPlan     likewise
    any other (batch) sampler               ->  ForeignPlan   asked for its state, else run forward
    iterable dataset                        ->  StreamPlan    numbers only; the job pulls

A plan is an iterator of tasks for one epoch, used by one thread. It reads no sample.
"""

from __future__ import annotations

import copy
import hashlib
import logging
from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.errors import SampleError
from penstock.loader.order import length
from penstock.sample import SampleKeys
from penstock.samplers.base import BatchAccess, IndexSampler, RandomAccess, Sampler
from penstock.workers.base import Task

__all__ = ["BatchPlan", "ForeignPlan", "IndexPlan", "Plan", "StreamPlan"]

_BLOCK: Final = 4096
"""Indices asked of a sampler at once: one vectorised call serves many batches."""

_BATCHES: Final = 32
"""Batches asked of a batch sampler at once."""

_logger = logging.getLogger(__name__)


class Plan(Protocol):
    """The tasks of one epoch, in order.

    An error that it raises ends the epoch, unless it has ``numbers_errors``, true: an error then takes the number of a
    task, and what follows can be asked for.
    """

    def __iter__(self) -> Iterator[Task]: ...

    def __next__(self) -> Task: ...


class IndexPlan:
    """Tasks from a sampler with random access, from batch ``start`` on.

    Parameters
    ----------
    sampler : RandomAccess
        Asked for positions, never iterated.
    batch_size : int
        Samples per task.
    drop_last : bool
        Leave out a short last batch.
    seed, epoch : int
        Parts of the samples' keys; the epoch is the sampler's too.
    start : int
        Batches to leave out.
    """

    def __init__(
        self, sampler: RandomAccess, batch_size: int, drop_last: bool, seed: int, epoch: int, start: int
    ) -> None:
        self._sampler, self._batch_size, self._seed, self._epoch = sampler, batch_size, seed, epoch
        count = len(sampler)
        self._count = count - count % batch_size if drop_last else count
        self._seq = start
        self._block: NDArray[np.int64] = np.empty(0, np.int64)
        self._block_start = 0

    def __iter__(self) -> Iterator[Task]:
        return self

    def __next__(self) -> Task:
        start = self._seq * self._batch_size
        stop = min(start + self._batch_size, self._count)
        if start >= stop:
            raise StopIteration
        if stop > self._block_start + len(self._block) or start < self._block_start:
            self._block_start = start
            end = min(start + max(self._batch_size, _BLOCK // self._batch_size * self._batch_size), self._count)
            self._block = self._sampler.order(start, end, self._epoch)
            if len(self._block) != end - start:
                raise SampleError(f"{type(self._sampler).__name__} gave {len(self._block)} of {end - start} indices")
        indices = self._block[start - self._block_start : stop - self._block_start]
        seq, self._seq = self._seq, self._seq + 1
        return Task(seq, indices, SampleKeys(self._seed, self._epoch, indices))


class BatchPlan:
    """Tasks from a batch sampler with random access, from batch ``start`` on.

    Parameters
    ----------
    sampler : BatchAccess
        Asked for batches, never iterated.
    seed, epoch, start
        As for :class:`IndexPlan`.
    """

    def __init__(self, sampler: BatchAccess, seed: int, epoch: int, start: int) -> None:
        self._sampler, self._seed, self._epoch, self._seq = sampler, seed, epoch, start
        self._count = len(sampler)
        self._block: list[list[int]] = []

    def __iter__(self) -> Iterator[Task]:
        return self

    def __next__(self) -> Task:
        seq = self._seq
        if seq >= self._count:
            raise StopIteration
        if not self._block:
            stop = min(seq + _BATCHES, self._count)
            self._block = self._sampler.batches(seq, stop, self._epoch)[::-1]
            if len(self._block) != stop - seq:
                raise SampleError(f"{type(self._sampler).__name__} gave {len(self._block)} of {stop - seq} batches")
        indices = np.asarray(self._block.pop(), np.int64)
        self._seq += 1
        return Task(seq, indices, SampleKeys(self._seed, self._epoch, indices))


class ForeignPlan:
    """Tasks from any iterable of indices (``batch_size`` given) or of batches of indices (None).

    Parameters
    ----------
    sampler : iterable
        Of indices, or of lists of them. Iterated once; if it or its iterator has ``state_dict``, the state after each
        batch travels with the task.
    batch_size : int, optional
        Samples per task; None: the sampler gives batches.
    drop_last, seed, epoch, start
        As for :class:`IndexPlan`.
    state : object
        A state that a task carried: restored, in place of running forward.
    """

    def __init__(
        self,
        sampler: Iterable[Any],
        batch_size: int | None,
        drop_last: bool,
        seed: int,
        epoch: int,
        start: int,
        state: Any,
    ) -> None:
        self._sampler, self._batch_size, self._drop_last = sampler, batch_size, drop_last
        self._seed, self._epoch, self._seq = seed, epoch, start
        self._expected = length(sampler)
        self._drawn = start if batch_size is None else start * batch_size
        if isinstance(sampler, Sampler):
            sampler.set_epoch(epoch)
        self._iterator: Any
        self._ended = state is not None and state["ended"]
        if self._ended:  # what it says of itself at its end may be its start again: it is not asked
            self._iterator, self._stateful = iter(()), ""
            self._expected = None
            return
        if state is not None and state["of"] == "sampler":
            sampler.load_state_dict(copy.deepcopy(state["state"]))  # type: ignore[attr-defined]  # it gave the state
        self._iterator = iter(sampler)
        if state is not None and state["of"] == "iterator":
            self._iterator.load_state_dict(copy.deepcopy(state["state"]))
        self._stateful = _owner_of_state(self._iterator, sampler)
        if state is None and self._drawn:
            _logger.warning(
                "%s has no state_dict: running it forward over %d draws", type(sampler).__name__, self._drawn
            )
            for _ in range(self._drawn):
                next(self._iterator, None)

    def __iter__(self) -> Iterator[Task]:
        return self

    def __next__(self) -> Task:
        drawn: Any = self._next_batch()
        task = Task(self._seq, *_keyed(drawn, self._seed, self._epoch))
        if self._stateful:
            owner: Any = self._iterator if self._stateful == "iterator" else self._sampler
            state = copy.deepcopy(owner.state_dict())
            task.sampler_state = {"of": self._stateful, "state": state, "ended": self._ended}
        self._seq += 1
        return task

    def _next_batch(self) -> list[Any]:
        if self._batch_size is None:
            try:
                batch = next(self._iterator)
            except StopIteration:
                self._check_length()
                raise
            self._drawn += 1
            return list(batch)
        batch = []
        for index in self._iterator:
            batch.append(index)
            self._drawn += 1
            if len(batch) == self._batch_size:
                return batch
        self._ended = True
        self._check_length()
        if not batch or self._drop_last:
            raise StopIteration
        return batch

    def _check_length(self) -> None:
        """An epoch that ends short, or long, of what was promised does not pass in silence."""
        expected, self._expected = self._expected, None
        if expected is not None and expected != self._drawn:
            raise SampleError(
                f"{type(self._sampler).__name__} gave {self._drawn} indices, but its len() was {expected}",
                epoch=self._epoch,
            )


class StreamPlan:
    """Endless tasks without indices: the stream itself says when it ends, and numbers its batches."""

    def __init__(self, seed: int, epoch: int, start: int) -> None:
        self._keys = SampleKeys(seed, epoch, np.empty(0, np.int64))
        self._seq = start

    def __iter__(self) -> Iterator[Task]:
        return self

    def __next__(self) -> Task:
        seq, self._seq = self._seq, self._seq + 1
        return Task(seq, (), self._keys)


def _owner_of_state(iterator: Any, sampler: Any) -> str:
    """Who is asked where the order stands; "": nobody can say."""
    if _is_stateful(iterator):
        return "iterator"
    # One of ours comes here only if a subclass iterates in its own way, of which our state_dict() knows nothing.
    own = isinstance(sampler, (IndexSampler, BatchAccess))
    return "sampler" if _is_stateful(sampler) and not own else ""


def _is_stateful(what: Any) -> bool:
    return hasattr(what, "state_dict") and hasattr(what, "load_state_dict")


def _keyed(drawn: list[Any], seed: int, epoch: int) -> tuple[Any, SampleKeys]:
    """Indices as an int64 array where they are ints, else as they are, keyed by a digest of their text."""
    array = np.asarray(drawn) if all(isinstance(index, (int, np.integer)) for index in drawn) else None
    if array is not None and (array.dtype.kind in "iu" or not len(array)):
        indices = array.astype(np.int64)
        return indices, SampleKeys(seed, epoch, indices)
    digests = [hashlib.blake2b(repr(index).encode(), digest_size=8).digest() for index in drawn]
    return drawn, SampleKeys(seed, epoch, np.frombuffer(b"".join(digests), "<i8").astype(np.int64))
