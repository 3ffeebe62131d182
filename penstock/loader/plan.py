"""From a sampler to tasks: which indices each batch has, and the key of each sample.

::

    sampler with order(start, stop, epoch)  ->  plan_samples  begins at any batch in O(1)
    batch sampler with batches(start, ...)  ->  plan_batches  likewise
    any other (batch) sampler               ->  SamplerPlan   iterates it (penstock.loader.sampler_cursor)
    iterable dataset                        ->  plan_stream   tasks without indices

A plan is an iterator of tasks for one epoch, used by one thread. It reads no sample.
"""

from __future__ import annotations

import hashlib
import itertools
import operator
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.base import IndexBatch
from penstock.errors import SampleError
from penstock.loader.sampler_cursor import SamplerCursor
from penstock.sample import Index, SampleKeys
from penstock.samplers.base import BatchAccess, RandomAccess
from penstock.workers.base import Task

__all__ = ["SamplerPlan", "TaskPlan", "plan_ahead", "plan_batches", "plan_samples", "plan_stream"]

_BLOCK: Final = 4096
"""Indices asked of a sampler at once: one vectorised call serves many batches."""

_BATCHES: Final = 32
"""Batches asked of a batch sampler at once."""


TaskPlan = Iterator[Task]
"""The tasks of one epoch, in order. A generator is at its end when it has raised; other plans can be advanced again."""


def plan_samples(
    sampler: RandomAccess, count: int, batch_size: int, drop_last: bool, seed: int, epoch: int, start: int
) -> TaskPlan:
    """Tasks from a sampler with random access and ``count`` indices, from batch ``start`` on."""
    count -= count % batch_size if drop_last else 0
    step = max(batch_size, _BLOCK // batch_size * batch_size)
    for first in range(start * batch_size, count, step):
        block = sampler.order(first, min(first + step, count), epoch)
        if len(block) != min(step, count - first):
            raise SampleError(f"{type(sampler).__name__} gave {len(block)} of {min(step, count - first)} indices")
        for begin in range(0, len(block), batch_size):
            indices = block[begin : begin + batch_size]
            yield Task((first + begin) // batch_size, indices, SampleKeys(seed, epoch, indices))


def plan_batches(sampler: BatchAccess, count: int, seed: int, epoch: int, start: int) -> TaskPlan:
    """Tasks from a batch sampler with random access and ``count`` batches, from batch ``start`` on."""
    for first in range(start, count, _BATCHES):
        block = sampler.batches(first, min(first + _BATCHES, count), epoch)
        if len(block) != min(_BATCHES, count - first):
            raise SampleError(f"{type(sampler).__name__} gave {len(block)} of {min(_BATCHES, count - first)} batches")
        for seq, batch in enumerate(block, first):
            indices = np.asarray(batch, np.int64)
            yield Task(seq, indices, SampleKeys(seed, epoch, indices))


def plan_stream(seed: int, epoch: int, start: int) -> TaskPlan:
    """Yield endless tasks without indices: the stream itself ends, and numbers its batches."""
    keys = SampleKeys(seed, epoch, np.empty(0, np.int64))
    for seq in itertools.count(start):
        yield Task(seq, (), keys)


class SamplerPlan:
    """Tasks from a sampler that is iterated; as torch's loader, it advances a sampler again that has raised."""

    def __init__(
        self,
        cursor: SamplerCursor,
        *,
        batched: bool,
        seed: int,
        epoch: int,
        start: int,
        fills: bool = False,
        expected: int | None = None,
    ) -> None:
        self._cursor, self._batched, self._fills, self._expected = cursor, batched, fills, expected
        self._seed, self._epoch, self._seq = seed, epoch, start

    def __iter__(self) -> Iterator[Task]:
        return self

    def __next__(self) -> Task:
        seq, self._seq = self._seq, self._seq + 1
        try:
            drawn = next(self._cursor)
        except StopIteration:
            self._seq = seq  # but an error keeps the number: it is delivered in a batch's place
            self._check_length()
            raise
        except Exception:
            self._expected = None  # why the epoch ends short is known now
            raise
        if not self._batched:
            drawn = [drawn]
        elif type(drawn) is not list:
            drawn = IndexBatch(drawn)
        task = Task(seq, *_add_keys(drawn, self._seed, self._epoch, fills=self._fills))
        task.sampler_state = self._cursor.state()
        return task

    def _check_length(self) -> None:
        """Raise if the epoch ends short, or long, of the sampler's ``len()``."""
        expected, self._expected = self._expected, None
        if expected is not None and expected != self._cursor.drawn:
            raise SampleError(
                f"{type(self._cursor.inner).__name__} gave {self._cursor.drawn} indices, but its len() was {expected}",
                epoch=self._epoch,
            )


def _add_keys(
    drawn: list[Index], seed: int, epoch: int, *, fills: bool
) -> tuple[NDArray[np.int64] | list[Index], SampleKeys]:
    """Indices, and the keys of their samples: the index itself if it is an integer, else a digest of its text.

    A dataset is given what its sampler drew, of the same type; one that fills rows is given an array.
    """
    try:
        numbers = np.array([_as_integer(index) for index in drawn], np.int64)
    except (TypeError, OverflowError):
        digests = [hashlib.blake2b(repr(index).encode(), digest_size=8).digest() for index in drawn]
        return drawn, SampleKeys(seed, epoch, np.frombuffer(b"".join(digests), "<i8").astype(np.int64))
    is_plain = (fills and len(drawn) > 0) or (type(drawn) is list and all(type(index) is int for index in drawn))
    return numbers if is_plain else drawn, SampleKeys(seed, epoch, numbers)


def _as_integer(index: Index) -> int:
    if isinstance(index, int):
        return index
    if getattr(index, "ndim", 0):
        raise TypeError("an array is not one integer")
    return operator.index(index)


def plan_ahead(plan: TaskPlan, announce: Callable[[Sequence[Index]], object], samples: int) -> TaskPlan:
    """The tasks of a plan that draws nothing; each comes when as many as ``samples`` after it are announced.

    At first there are fewer, so that the first batches do not wait for later ones: two are announced for each that
    comes. Later half of ``samples`` is announced at once: of a store of many objects, several of each.
    """
    waiting: deque[Task] = deque()
    gathered: list[Index] = []
    count = ahead = 0
    try:
        for task in plan:
            waiting.append(task)
            gathered.extend(task.indices)
            if len(gathered) < min(ahead, samples) // 2:
                continue
            announce(gathered)
            count += len(gathered)
            gathered = []
            while waiting and count - len(waiting[0].indices) >= min(ahead, samples):
                count -= len(waiting[0].indices)
                ahead += len(waiting[0].indices)
                yield waiting.popleft()
    except Exception:
        yield from waiting  # they were drawn before it failed
        raise
    if gathered:
        announce(gathered)
    yield from waiting
