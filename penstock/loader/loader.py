"""DataLoader: torch's arguments, order and errors over any dataset, as NumPy batches.

It checks its arguments, and keeps what outlives an epoch: seed, epoch counter, slots, statistics. It starts nothing
before ``iter()``.
"""

from __future__ import annotations

import copy
import os
import secrets
import weakref
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.context import BaseContext
from typing import Any, Final, Generic, Unpack, overload

import numpy as np

from penstock.bfloat16 import refuse_stand_in
from penstock.collate import default_collate, default_convert
from penstock.datasets.base import spec_of
from penstock.datasets.batch_types import ArrayT, BatchT, BatchT_co, MapDataset, SampleT
from penstock.datasets.store.batch_assembly import batch_assembly
from penstock.datasets.store.ragged_collate import with_ragged
from penstock.errors import ArgumentError, StateError
from penstock.loader.ahead import EpochAhead, EpochKey
from penstock.loader.arguments import (
    Arguments,
    NamedLoaderOptions,
    check_arguments,
    choose_counts,
    choose_workers,
    refuse_torch_arguments,
)
from penstock.loader.counters import LoaderCounters
from penstock.loader.epoch import PreparedEpoch
from penstock.loader.faults import LeftOutLog, warn_of_unequal_steps
from penstock.loader.iteration import LoaderIterator
from penstock.loader.past import PastSample, count_from, find_task, list_samples, of_rank
from penstock.loader.plan import TaskPlan, plan_stream
from penstock.loader.position import Position, assign_workers
from penstock.loader.recipe import Filling, IdleWorkers, Memory, Recipe, Settings, Workers, count_batches_under_way
from penstock.loader.sampler_cursor import SamplerCursor
from penstock.loader.sampling import LoaderOrder
from penstock.loader.state import dump, parse, split_merged
from penstock.loader.statistics import LoaderStatistics
from penstock.loader.tuning import check_memory_fraction, count_most, find_tuner, is_movable
from penstock.sample import Array, Batch, DatasetLike, Index, Sample, SamplerLike, State, StateDict, tree_leaves
from penstock.samplers.base import check_count
from penstock.workers import BACKENDS
from penstock.workers.left_out import SampleRules
from penstock.workers.ray.options import RayWorkers, workers_kind
from penstock.workers.slots import BatchLayout

__all__ = ["DataLoader"]

_FIXED: Final = frozenset({"batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"})
_NOT_PICKLED: Final = frozenset({"_ahead", "_idle", "_memory", "_position"})


class _NamedOptions(NamedLoaderOptions, total=False):
    generator: object


class DataLoader(LoaderStatistics, Generic[BatchT_co]):
    """Batches of a dataset, in order, built by workers ahead of the consumer.

    Parameters
    ----------
    dataset : dataset
        Map-style (``__getitem__``) or iterable; penstock's, torch's or any object.
    batch_size : int, optional
        Samples per batch; None: samples are not batched.
    shuffle : bool, optional
        A new order each epoch, by :class:`~penstock.samplers.RandomSampler`.
    sampler, batch_sampler : iterable, optional
        Of indices, of lists of indices. A state is resumed at once with the samplers of penstock and those that have a
        ``state_dict``; others are iterated up to where it was taken.
    num_workers : int or "auto"
        Number of workers; 0: the calling thread builds each batch in ``next()``. "auto": found by trial while the
        loader runs, and anew where its speed or the machine changes; no batch depends on it. Worker
        processes then seed the global random generators at the beginning of each batch. Among the workers of a stream,
        and of a dataset with a ``state_dict``, work is not moved: they are as many as cores. ``stats().changes`` says
        what was tried.
    collate_fn : callable, optional
        From a list of samples to a batch; :func:`~penstock.collate.default_collate` by default, which a dataset that
        fills rows does not need.
    drop_last : bool
        Leave out a last batch that is short.
    timeout : float
        Most seconds to wait for one batch; 0: see ``stall_timeout``.
    worker_init_fn : callable, optional
        Called with the worker's number in each worker.
    prefetch_factor : int or "auto", optional
        Batches per worker under way or ready, not yet delivered; 2 by default. "auto": found by trial, from 2 on.
    persistent_workers : bool
        Keep workers from epoch to epoch.
    workers : {"auto", "serial", "threads", "processes", "ray"} or RayWorkers
        Kind of the workers. "auto": threads for a dataset that fills rows and is collated by default; processes for any
        other, and with ``worker_init_fn`` or ``multiprocessing_context``. "ray": actors; :class:`~penstock.RayWorkers`.
    seed : int, optional
        Fixes the order and every random number of samples, with the epoch and the index. None: drawn from the
        operating system, and kept in :meth:`state_dict`.
    in_order : bool
        Deliver in the sampler's order; False: as batches end.
    stall_timeout : float, optional
        Seconds without any progress of any worker after which :class:`~penstock.errors.StallError` says where they
        stand. A call for several samples (``__getitems__``, ``load_samples``, a chunk of rows to fill, ``collate_fn``)
        is allowed this time for each of them; after the first a warning is logged. Progress is compared once in this
        time, so that an error comes after one to two times of it. None: wait for ever.
    chunk_size : int, optional
        Rows of a batch that a thread takes at a time; changes no batch.
    memory_fraction : float
        Part of the memory of the machine, or of the control group, that worker processes and batches may take together
        where they are chosen.
    multiprocessing_context : str or context, optional
        How worker processes are started; by default as :mod:`penstock.workers.processes.start` says.
    on_error : {"raise", "skip", "replace"}
        What happens if a sample cannot be built. "raise": its batch is an error. "skip": its batch is shorter; an empty
        batch is not delivered, so that ranks may take unequal numbers of steps (a warning says so under a process
        group). "replace": another sample of the batch, chosen by the sample's key, is built in its place (one of the
        dataset, if the batch has no other and all of the dataset is drawn from); the number of batches stays. Errors of
        collation and of samplers are always raised.
    max_errors : int or float, optional
        Most samples that an epoch may lose before that is an error: a number, or a share of those drawn. None: 100, or
        one in 100 if that is more.
    error_log : path, optional
        A file that gets one line of JSON for each sample that is left out: ``store``, ``key``, ``index``, ``epoch``,
        ``batch``, ``worker``, ``type``, ``reason``.
    seed_per_sample : bool
        Seed ``random``, ``numpy.random`` and, where they are imported, torch's CPU generator and cv2's from each
        sample's key before it is built, and from the batch's before it is collated: any number and kind of workers draw
        the same, also after a resume. Seeded besides are transforms of albumentations, imgaug and MONAI that the
        dataset holds, since they draw from generators of their own (:mod:`penstock.datasets.seeded_libraries`); other
        generators are not, and ``penstock.torch.check`` names them. Outside worker processes, samples are then built
        one at a time, and the global generators are put back behind each (cv2's cannot be). Threads share them with the
        caller: a loop that draws from them itself, while threads build, disturbs both; processes have their own.
    overlap_epochs : bool
        Begin the next epoch while the last batches of this one are consumed, so that ``iter()`` finds its first batches
        built. Needs a map-style dataset and a sampler of penstock's (``shuffle=`` makes one). The next epoch has its
        own workers. If ``set_epoch`` or a state chooses another epoch, what was built is dropped.
    view : bool
        Show the work to ``penstock view --attach``.
    pin_memory, generator : bool, object
        torch's. They are refused: :class:`penstock.torch.DataLoader` takes them.

    Raises
    ------
    ArgumentError
        If an argument is wrong, or does not fit another one; it is a ``ValueError``.

    Notes
    -----
    The first ``iter()`` is epoch 0, the next one epoch 1, and so on; :meth:`set_epoch` chooses. Iterators are
    independent of one another. Arrays are the user's for as long as any view of them lives; then their memory is used
    again. Not thread-safe: one thread iterates an iterator.
    """

    sampler: SamplerLike
    batch_sampler: SamplerLike

    @overload
    def __init__(
        self: DataLoader[BatchT], dataset: DatasetLike, batch_size: int | None = 1, shuffle: bool | None = None,
        sampler: Iterable[Index] | None = None, batch_sampler: Iterable[Index] | None = None,
        num_workers: int | str = 0, *,
        collate_fn: Callable[[Any], BatchT], **options: Unpack[_NamedOptions],
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: DataLoader[SampleT], dataset: MapDataset[SampleT], batch_size: int = 1, shuffle: bool | None = None,
        sampler: Iterable[Index] | None = None, batch_sampler: None = None,
        num_workers: int | str = 0,
        **options: Unpack[_NamedOptions],
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: DataLoader[tuple[ArrayT, Array]], dataset: MapDataset[tuple[ArrayT, float]], batch_size: int = 1,
        shuffle: bool | None = None, sampler: Iterable[Index] | None = None, batch_sampler: None = None,
        num_workers: int | str = 0, **options: Unpack[_NamedOptions],
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: DataLoader[Any], dataset: DatasetLike, batch_size: int | None = 1, shuffle: bool | None = None,
        sampler: Iterable[Index] | None = None, batch_sampler: Iterable[Index] | None = None,
        num_workers: int | str = 0, collate_fn: Callable[[Any], Any] | None = None, **options: Unpack[_NamedOptions],
    ) -> None: ...  # fmt: skip
    def __init__(
        self,
        dataset: DatasetLike,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Index] | None = None,
        batch_sampler: Iterable[Index] | None = None,
        num_workers: int | str = 0,
        collate_fn: Callable[[Sample], Batch] | None = None,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        *,
        prefetch_factor: int | str | None = None,
        persistent_workers: bool = False,
        workers: str | RayWorkers = "auto",
        seed: int | None = None,
        in_order: bool = True,
        stall_timeout: float | None = 120.0,
        chunk_size: int | None = None,
        memory_fraction: float = 0.5,
        multiprocessing_context: str | BaseContext | None = None,
        on_error: str = "raise",
        max_errors: float | None = None,
        error_log: str | os.PathLike[str] | None = None,
        seed_per_sample: bool = False,
        overlap_epochs: bool = False,
        view: bool = False,
        pin_memory: bool = False,
        generator: object = None,
    ) -> None:
        refuse_torch_arguments(pin_memory, generator)
        num_workers, prefetch_factor = choose_counts(num_workers, prefetch_factor, dataset, workers)
        given = check_arguments(
            Arguments(
                dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, collate_fn, drop_last, timeout,
                worker_init_fn, prefetch_factor, persistent_workers, workers, seed, in_order, stall_timeout, chunk_size,
                multiprocessing_context,
            )
        )  # fmt: skip
        if overlap_epochs and not num_workers:
            raise ArgumentError("overlap_epochs needs num_workers > 0: without workers nothing is built ahead")
        self.dataset, self.num_workers, self.prefetch_factor = dataset, num_workers, given.prefetch_factor
        self.memory_fraction = check_memory_fraction(memory_fraction)
        self.persistent_workers, self.in_order, self.timeout = persistent_workers, in_order, timeout
        self.stall_timeout, self.worker_init_fn, self.chunk_size = stall_timeout, worker_init_fn, given.chunk_size
        self.multiprocessing_context, self.overlap_epochs = given.context, overlap_epochs
        self.on_error, self.view = on_error, view
        self._counters = LoaderCounters(LeftOutLog(on_error, max_errors, error_log))
        self.seed = secrets.randbits(63) if given.seed is None else given.seed
        self._seed_given = given.seed is not None
        self._order = order = LoaderOrder(given, self.seed)
        self.sampler, self.batch_sampler = order.own_sampler, order.batch_sampler
        self.batch_size, self.drop_last = order.batch_size, order.drop_last
        self._collates_by_default = collate_fn is None or collate_fn is self._collate
        self.collate_fn = collate_fn or (self._collate if order.batched else self._convert)
        may_fill = order.batched and self._collates_by_default
        self.workers = choose_workers(given, may_fill=may_fill) if workers == "auto" else workers
        self.seed_per_sample = seed_per_sample
        self._init_runtime()

    _collate: Callable[[list[Sample]], Batch] = staticmethod(default_collate)
    _convert: Callable[[Sample], Batch] = staticmethod(default_convert)

    def _init_runtime(self) -> None:
        self._epoch = 0
        self._position: Position | None = None
        self._resume: Position | None = None
        self._memory, self._idle = Memory(), IdleWorkers()
        self._ahead = EpochAhead(self) if getattr(self, "overlap_epochs", False) else None
        self.reported_length: int | None = None
        self._initialized = True

    def __setattr__(self, name: str, value: object) -> None:
        if name in _FIXED and getattr(self, "_initialized", False):
            raise ArgumentError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    def __getstate__(self) -> StateDict:
        """Return arguments and position, without workers, slots and times."""
        pickled = {name: value for name, value in self.__dict__.items() if name not in _NOT_PICKLED}
        resume = self._parse(self.state_dict())
        return {**pickled, "_counters": copy.copy(self._counters), "_resume": resume, "_initialized": False}

    def __setstate__(self, state: StateDict) -> None:
        self._init_runtime()
        self._initialized = False
        self.__dict__.update(state)
        self._ahead = EpochAhead(self) if self.overlap_epochs else None
        self._initialized = True

    # iteration

    def __iter__(self) -> LoaderIterator[BatchT_co]:
        warn_of_unequal_steps(self.on_error, stacklevel=2)
        iterator = None if self._ahead is None else self._ahead.take(self._next_epoch_key())
        if iterator is None:
            iterator = self._make_iterator()
        position = iterator.epoch.position
        self._resume, self._epoch, self._position = None, position.epoch + 1, position
        return iterator

    def _make_iterator(self) -> LoaderIterator[BatchT_co]:
        """Return an iterator of the next epoch; position and epoch counter stay as they are."""
        settings, recipe = self._make_settings(), self._make_recipe()
        prepared = self._prepare(recipe)
        plan = self._make_plan(prepared, recipe)
        backend = self._idle.take() or recipe.workers.make_backend(prepared.base_seed)
        try:
            epoch = prepared.start(settings, recipe, plan, backend)
        except BaseException:
            backend.close()
            raise
        return LoaderIterator(settings, epoch, backend)

    _begin_next_epoch = _make_iterator

    def _next_epoch_key(self) -> EpochKey | None:
        """Return the key by which an epoch is begun early.

        It is None where it is not, as of a stream or a foreign sampler.
        """
        order = self._order
        if self._resume is not None or order.unit is None or order.is_stream:
            return None
        return (self._epoch, self.seed, order.sampler_seed), (self.collate_fn, self.dataset)

    def __len__(self) -> int:
        """Return the number of batches per epoch; for a stream as its own ``len()`` says."""
        if self._order.is_stream:
            self.reported_length = len(self.dataset)
        return self._order.count_batches()

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next ``iter()``. An epoch that is to be resumed in its middle stays so.

        Raises
        ------
        ArgumentError
            If ``epoch`` is no non-negative int.
        """
        epoch = check_count("epoch", epoch, least=0)
        if self._resume is None or self._resume.epoch != epoch:
            self._epoch, self._resume, self._position = epoch, None, None

    def close(self) -> None:
        """Stop workers that wait for the next epoch, or have begun it. Iterators under way have their own ``close``."""
        if self._ahead is not None:
            self._ahead.close()
        self._idle.close()

    def _make_settings(self) -> Settings:
        return Settings(
            self._order, self.num_workers, self.in_order, self.timeout, self.stall_timeout, self.persistent_workers,
            self._counters, self._order.count_batches, self.seed,
            self._idle, begin_next=None if self._ahead is None else weakref.WeakMethod(self._ahead.begin),
            reported_length=self.reported_length, view=self.view,
            tuner=find_tuner(self, self.dataset, self._counters, BACKENDS.get(workers_kind(self.workers)).capabilities),
        )  # fmt: skip

    def _make_recipe(self) -> Recipe:
        order, limit = self._order, count_batches_under_way(self.num_workers, self.prefetch_factor)
        by_default = order.batched and self._collates_by_default and not order.is_stream
        spec = spec_of(self.dataset) if by_default else None
        for leaf in [] if spec is None else tree_leaves(spec):
            refuse_stand_in(leaf.dtype)
        collate = with_ragged(self.collate_fn, self.dataset) if by_default else self.collate_fn
        assembly = batch_assembly(self.dataset) if by_default else None
        population = order.population if self.on_error == "replace" else 0
        rules = SampleRules(self.on_error, population, self.seed_per_sample, is_movable(self, self.dataset))
        filling = None
        if spec is not None:
            deliver = self._convert if assembly is None else assembly.form_rows
            filling = Filling(BatchLayout(spec, order.rows), self._memory.slots(limit + 2), deliver)
        kind = workers_kind(self.workers)
        context = self.workers if isinstance(self.workers, RayWorkers) else self.multiprocessing_context
        return Recipe(
            workers=Workers(kind, count_most(self.num_workers), self.chunk_size, context, self.worker_init_fn),
            limit=limit, dataset=self.dataset, is_stream=order.is_stream, batched=order.batched, collate=collate,
            rules=rules, filling=filling, batch_size=self.batch_size, drop_last=self.drop_last,
            deliver=None if assembly is None else assembly.split,
        )  # fmt: skip

    def _prepare(self, recipe: Recipe) -> PreparedEpoch:
        position = Position(self._epoch) if self._resume is None else self._resume.copy()
        assign_workers(position, recipe.workers.processes, is_stream=recipe.is_stream, dataset=self.dataset)
        # Of the epoch too: workers that are started anew for each epoch must not draw the same in each.
        words = np.random.SeedSequence([self.seed, position.epoch]).generate_state(1, np.uint64)
        return PreparedEpoch(position, self.seed, int(words[0] >> np.uint64(1)))

    def _make_plan(self, prepared: PreparedEpoch, recipe: Recipe) -> TaskPlan:
        order, position, fills = self._order, prepared.position, recipe.filling is not None
        if recipe.is_stream:
            return plan_stream(self.seed, position.epoch, position.batches)
        if order.unit is None:
            order.set_sampler_epoch(position.epoch)
            prepared.cursor = SamplerCursor(order.index_sampler, cuts=order.cuts)
            prepared.cursor.restore(position.sampler, position.batches)
        return order.make_plan(self.seed, position, prepared.cursor, fills=fills, checks_length=True)

    def samples_of(self, step: int, *, epoch: int | None = None, rank: int | None = None) -> list[PastSample]:
        """Return the samples of a batch, of any epoch: which records, with which random numbers, and each built again.

        Computed from the seed and the order, in a time that depends neither on the step nor on the dataset's length.
        Nothing is drawn, opened or changed, and iterators go on as if nobody had asked.

        Parameters
        ----------
        step : int
            Batches of one rank before this one, counted from the start of epoch 0 in epochs of ``len(loader)``; of
            ``epoch``, if it is given. With gradients that are accumulated over k batches, step s of the optimizer has
            the batches k * s to k * s + k - 1.
        epoch : int, optional
            Count from the start of this epoch; of one that another number of ranks has begun, from where this number
            of ranks went on.
        rank : int, optional
            Another rank of the job than this one, with a sampler of penstock's that knows ranks.

        Returns
        -------
        list of PastSample
            By the rows of the batch, as the sampler drew them: samples that were left out or replaced are those that
            were drawn. With ``in_order=False``, batches are counted as they were drawn.

        Raises
        ------
        ArgumentError
            If there is no such batch, the dataset is a stream, or the order has to be iterated: the sampler is not of
            penstock, and no list.
        """
        order = of_rank(self._order, rank)
        position = count_from(
            step, epoch, self._order.count_batches(), self._resume or self._position or Position(self._epoch)
        )
        task = find_task(order, self.seed, position)
        return list_samples(task, order, position, self.dataset, seeds_globals=self.seed_per_sample)

    # state

    def state_dict(self) -> StateDict:
        """Return where the newest iterator stands: what was delivered, not what was prefetched.

        Returns
        -------
        dict
            JSON-able (if the user's own sampler and dataset give JSON-able states) and O(1) in size. After the last
            batch it resumes to an epoch of no batches; after ``StopIteration``, to the next epoch.
        """
        position = self._resume or self._position or Position(self._epoch)
        return copy.deepcopy(dump(position, self.seed, self._order))

    def _parse(self, state: Mapping[str, State]) -> Position:
        position = parse(state, self._order)
        processes = (
            count_most(self.num_workers) if BACKENDS.get(workers_kind(self.workers)).capabilities.isolated else 0
        )
        assign_workers(position, processes, is_stream=self._order.is_stream, dataset=self.dataset)
        return position

    def load_state_dict(self, state: Mapping[str, State]) -> None:
        """Resume the next ``iter()`` where ``state`` was taken, with any number and kind of workers.

        With a sampler of ours that knows ranks, any number of those too: they resume where all of them together were,
        each with the state of any one of them. The state must be taken between steps, when all have come equally far;
        ``batch_size`` may then be another one, as the rest is divided anew.

        Raises
        ------
        StateError
            If the state belongs to a loader with another order or dataset, or to another seed than was given here; if
            each worker process has a state of its own, and there is another number of processes.
        """
        position = self._parse(copy.deepcopy(state))
        state = split_merged(state)[0]
        if self._seed_given and state["seed"] != self.seed:
            raise StateError(f"the state was taken with seed={state['seed']}, this loader was given seed={self.seed}")
        self._order.check_position(position)
        if self.seed != state["seed"]:
            self.close()  # processes know the seed that they were started with
        self.seed = state["seed"]
        if self._order.sampler_seed is not None and state["sampler_seed"] is not None:
            self._order.sampler.seed = state["sampler_seed"]
        self._resume, self._epoch, self._position = position, position.epoch, None
