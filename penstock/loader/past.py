"""From a step back to its samples: what a batch of any epoch was made of, computed from seed and position.

::

    step ──> epoch, batch ──order──> indices, random keys ──> PastSample: its record, what was drawn, the sample again

Called by ``samples_of`` of both loaders. Nothing was logged; no generator is drawn from, and no sample is built before
it is asked for.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from penstock.datasets.base import fetch
from penstock.datasets.sample_names import find_record, name_sample
from penstock.datasets.seeded_libraries import find_seeders
from penstock.errors import ArgumentError
from penstock.loader.order import Order
from penstock.loader.position import Position
from penstock.loader.sampler_cursor import SamplerCursor
from penstock.rng import globals_put_back, seeding_globals
from penstock.sample import Sample, SampleKeys
from penstock.samplers.base import check_count
from penstock.samplers.ranks import RankedSampler
from penstock.transforms.apply import AppliedOps, observing_ops
from penstock.workers.base import Task

__all__ = ["PastSample", "count_from", "find_task", "list_samples", "of_rank", "refuse_unknown"]


T_order = TypeVar("T_order", bound=Order)


@dataclass(frozen=True, slots=True)
class PastSample:
    """A sample of a batch that a loader has given, or will give; made by ``loader.samples_of(step)``.

    Attributes
    ----------
    index : int or object
        What the sampler drew: the sample is ``dataset[index]``.
    key, store, record : str, str, int or None
        The name of its record, the URL of the store, and the number of the record there; of a sample that is no record
        of a store, the name of its file, "" and None.
    rank, epoch, batch, row : int
        Where it was: of which rank, in which batch of the epoch, and at which place of the batch.
    seed : int
        Of its random numbers, whose key is (seed, epoch, index).
    dataset : dataset
        What it is built by: the loader's dataset, not a copy.
    """

    index: object
    key: str
    store: str
    record: int | None
    rank: int
    epoch: int
    batch: int
    row: int
    seed: int
    dataset: object = field(repr=False, compare=False)
    _number: int = field(repr=False)  # the last part of the key: the index, or a digest of it
    _seeds_globals: bool = field(repr=False, compare=False)

    def load(self) -> Sample:
        """Build the sample again: what the dataset gave, to the bit, before it was collated.

        Calls the dataset as ``dataset[index]`` does. Global generators are put back. Transforms that draw from them
        draw what they drew only if the loader has ``seed_per_sample=True``.

        Raises
        ------
        Exception
            What the dataset raises.
        """
        keys = SampleKeys(self.seed, self.epoch, np.array([self._number], np.int64))
        with globals_put_back(), self._seeding():
            return fetch(self.dataset, [self.index], keys)[0]

    def draws(self) -> dict[str, list[float]]:
        """Return what each random op of a pipeline drew for this sample, by its name, as ``op.draw`` documents it.

        The sample is built for it. An op that comes again has a number: ``"RandomCrop 2"``. Empty for transforms that
        are no pipeline of penstock's.
        """
        found: dict[str, list[float]] = {}

        def note(applied: AppliedOps) -> None:
            if applied.step is None or not applied.step.op.random:
                return
            name = type(applied.step.op).__name__
            count = 1 + sum(other.partition(" ")[0] == name for other in found)
            params = np.asarray(applied.step.params, np.float64)
            found[name if count == 1 else f"{name} {count}"] = params.ravel().tolist()

        with observing_ops(note):
            self.load()
        return found

    @contextmanager
    def _seeding(self) -> Iterator[None]:
        others = find_seeders([("dataset", self.dataset)]) if self._seeds_globals else ()
        with seeding_globals(put_back=True, others=others) if self._seeds_globals else nullcontext():
            yield


def count_from(step: int, epoch: int | None, batches: int, now: Position) -> Position:
    """The position of a batch: of ``epoch``, or counted from the start of epoch 0 in epochs of so many ``batches``.

    ``now``: where the loader is, whose epoch another number of ranks may have begun.

    Raises
    ------
    ArgumentError
        If a number is none, or ``epoch`` has to be given.
    """
    step = check_count("step", step, least=0)
    if epoch is not None:
        epoch = check_count("epoch", epoch, least=0)
        return Position(epoch, batches=step, origin=now.origin if epoch == now.epoch else 0)
    if not batches:
        raise ArgumentError("the loader has no batches: its epochs are empty")
    epoch, batch = divmod(step, batches)
    if now.origin and epoch >= now.epoch:
        raise ArgumentError(
            f"step {step} is not known to be in one epoch, as another number of ranks has begun epoch {now.epoch}: "
            "give epoch=, and the step counted from where this number of ranks went on"
        )
    return Position(epoch, batches=batch)


def refuse_unknown(order: Order, why: str) -> ArgumentError:
    """The error for an order that cannot be computed."""
    return ArgumentError(
        f"samples_of() cannot compute the order of {type(order.sampler).__name__}: {why}; use a sampler of penstock's, "
        "or give yours order(start, stop, epoch) and signature() (penstock.samplers.RandomAccess)"
    )


def of_rank(order: T_order, rank: int | None) -> T_order:
    """A copy of ``order`` for another rank of the job, whose samplers are copies too; None: for the same rank."""
    if order.is_stream:
        raise ArgumentError(
            f"samples_of() needs a map-style dataset, but {type(order.dataset).__name__} is a stream: which samples a "
            "step has is known only after those before it were read"
        )
    made, sampler = copy.copy(order), copy.copy(order.sampler)
    if rank is not None and rank != getattr(sampler, "rank", 0):
        if not isinstance(sampler, RankedSampler):
            raise ArgumentError(
                f"rank must be {getattr(sampler, 'rank', 0)}, that of {type(sampler).__name__}, got {rank!r}; samplers "
                "of penstock that know ranks compute any"
            )
        sampler = sampler.of_rank(rank)
    made.index_sampler = copy.copy(order.index_sampler) if order.cuts else sampler
    if order.cuts:
        made.index_sampler.sampler = sampler
    return made


def find_task(order: Order, seed: int, position: Position) -> Task | None:
    """The task of the batch at ``position``; None if the epoch has no such batch.

    Raises ArgumentError if the sampler has to be iterated, and may give another order each time.
    """
    if order.unit is not None:
        return next(order.seek(seed, position), None)
    if not isinstance(order.sampler, list | tuple | range | np.ndarray):
        raise refuse_unknown(order, "it has to be iterated, and may draw another order each time")
    cursor = SamplerCursor(order.index_sampler, cuts=order.cuts)
    cursor.open()
    cursor.skip(position.batches)
    return next(order.make_plan(seed, position, cursor, fills=False), None)


def list_samples(
    task: Task | None, order: Order, position: Position, dataset: object, *, seeds_globals: bool
) -> list[PastSample]:
    """The samples of a task, in the order of the batch's rows; ``dataset`` is told the keys of samples.

    Raises ArgumentError if there is no task.
    """
    rank = int(getattr(order.sampler, "rank", 0))
    if task is None:
        raise ArgumentError(f"epoch {position.epoch} of rank {rank} has no batch {position.batches}: it has fewer")
    indices: Sequence[object] = task.indices.tolist() if isinstance(task.indices, np.ndarray) else task.indices
    return [
        PastSample(
            index, *_name(order.dataset, index), rank, position.epoch, position.batches, row, task.keys.seed, dataset,
            number, seeds_globals,
        )
        for row, (index, number) in enumerate(zip(indices, task.keys.indices.tolist(), strict=True))
    ]  # fmt: skip


def _name(dataset: object, index: object) -> tuple[str, str, int | None]:
    """Key, store and number of the record of a sample."""
    if not isinstance(index, int):
        return "", "", None
    found = find_record(dataset, index)
    store, record = ("", None) if found is None else (found[0].url, found[1])
    return name_sample(dataset, index), store, record
