"""DataLoader: torch's arguments, order and errors over a dataset of ours, torch's or the user's, as NumPy batches.

It puts the parts together (sampler -> plan, dataset -> job, backend) when iterated, and keeps what outlives an epoch:
seed, epoch counter, slots, statistics. It starts nothing before ``iter()``; an iterator does the rest.
"""

from __future__ import annotations

import copy
import multiprocessing
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Self

import numpy as np

from penstock.collate import default_collate, default_convert
from penstock.datasets.base import spec_of
from penstock.errors import ArgumentError, StateError
from penstock.loader.arguments import Arguments, checked, refuse_torch_arguments
from penstock.loader.faults import LeftOut, Losses, Rules, Tally, warn_of_unequal_steps
from penstock.loader.iteration import LoaderIterator
from penstock.loader.jobs import FillJob, Opening, SampleJob, StreamJob
from penstock.loader.ledger import Ledger
from penstock.loader.plan import Plan
from penstock.loader.replicas import Replicas, ReplicasIterator
from penstock.loader.sampling import Sampling
from penstock.loader.state import Progress, dump, parse
from penstock.loader.stats import Stats
from penstock.samplers.base import checked_count
from penstock.slots import Layout, SlotPool
from penstock.trace import Trace
from penstock.workers import BACKENDS, Backend, Done, Job

__all__ = ["DataLoader"]

_FIXED: Final = frozenset({"batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"})
_LEFT_BEHIND: Final = frozenset({"_idle_backend", "_pid", "_pool", "_progress"})


class DataLoader:
    """Batches of a dataset, in order, built by workers ahead of the consumer.

    Parameters
    ----------
    dataset : dataset
        Map-style (``__getitem__``) or iterable; penstock's, torch's or any object.
    batch_size : int, optional
        Samples per batch; None: samples as they are, one by one.
    shuffle : bool, optional
        A new order each epoch, by :class:`~penstock.samplers.RandomSampler`.
    sampler, batch_sampler : iterable, optional
        Of indices, of lists of indices. One with random access (ours) is seeked; others are asked for their
        ``state_dict`` or run forward when a state is resumed.
    num_workers : int
        Workers; 0: the calling thread builds each batch when it is asked for.
    collate_fn : callable, optional
        From a list of samples to a batch; :func:`~penstock.collate.default_collate` by default. A dataset that fills
        rows is collated by default only on paper: its batches are written where they end.
    drop_last : bool
        Leave out a last batch that is short.
    timeout : float
        Most seconds that one batch may be waited for; 0: see ``stall_timeout``.
    worker_init_fn : callable, optional
        Called with the worker's number in each worker.
    prefetch_factor : int, optional
        Batches per worker under way or ready, not yet delivered; 2 by default.
    persistent_workers : bool
        Keep workers from epoch to epoch.
    workers : {"auto", "serial", "threads", "processes"}
        Kind of workers. "auto", where ``num_workers`` is not 0: threads for a dataset that fills rows and is collated
        by default (native code runs beside Python), processes for any other.
    seed : int, optional
        Fixes the order and every random number of samples, with the epoch and the index. None: drawn from the
        operating system, and kept in :meth:`state_dict`.
    in_order : bool
        Deliver in the sampler's order; False: as batches end.
    stall_timeout : float, optional
        Seconds without any progress of any worker after which :class:`~penstock.errors.StallError` says where they
        stand. A call for several samples (``__getitems__``, ``load_samples``, a chunk of rows to fill, ``collate_fn``)
        is allowed this time for each of them; after the first a warning is logged. None: wait for ever.
    chunk_size : int, optional
        Rows of a batch that a thread takes at a time; changes no batch.
    multiprocessing_context : str or context, optional
        How worker processes are started; by default as :mod:`penstock.workers.processes.start` says.
    on_error : {"raise", "skip", "replace"}
        What becomes of a sample that cannot be built. "raise": its batch is an error. "skip": its batch is shorter; one
        with nothing left is not delivered, so that ranks may take unequal numbers of steps (a warning says so under a
        process group). "replace": another sample of the same batch, chosen by the sample's own key, is built in its
        place (one of the dataset, where the batch has no other and all of the dataset is drawn from); the number of
        batches stays.
        Errors of collation, and of samplers, are raised always.
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
        dataset holds, since they draw from generators of their own (:mod:`penstock.datasets.libraries`); other
        generators are not, and ``penstock.torch.check`` names them. Outside worker processes, samples are then built
        one at a time, and the global generators are put back behind each (cv2's cannot be). Threads share them with the
        caller: a loop that draws from them itself, while threads build, disturbs both; processes have their own.
    pin_memory, generator : bool, object
        torch's. They are refused: :class:`penstock.torch.DataLoader` takes them.

    Notes
    -----
    The first ``iter()`` is epoch 0, the next one epoch 1, and so on; :meth:`set_epoch` chooses. Iterators are
    independent of one another. Arrays are the user's for as long as any view of them lives; then their memory is used
    again. Not thread-safe: one thread iterates an iterator.
    """

    sampler: Any
    batch_sampler: Any

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        workers: str = "auto",
        seed: int | None = None,
        in_order: bool = True,
        stall_timeout: float | None = 120.0,
        chunk_size: int | None = None,
        multiprocessing_context: Any = None,
        on_error: str = "raise",
        max_errors: float | None = None,
        error_log: str | os.PathLike[str] | None = None,
        seed_per_sample: bool = False,
        pin_memory: bool = False,
        generator: Any = None,
    ) -> None:
        refuse_torch_arguments(pin_memory, generator)
        given = checked(
            Arguments(
                dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, collate_fn, drop_last, timeout,
                worker_init_fn, prefetch_factor, persistent_workers, workers, seed, in_order, stall_timeout, chunk_size,
                multiprocessing_context,
            )
        )  # fmt: skip
        self.dataset = dataset
        self.num_workers, self.prefetch_factor = num_workers, given.prefetch_factor
        self.persistent_workers, self.in_order = persistent_workers, in_order
        self.timeout, self.stall_timeout = timeout, stall_timeout
        self.worker_init_fn, self.chunk_size = worker_init_fn, given.chunk_size
        self.multiprocessing_context = given.multiprocessing_context
        self.on_error, self.seed_per_sample = on_error, seed_per_sample
        self._ledger = Ledger(Losses(on_error, max_errors, error_log))
        self.seed = secrets.randbits(63) if given.seed is None else given.seed
        self._seed_given = given.seed is not None
        self._sampling = sampling = Sampling(given, self.seed)
        self.sampler, self.batch_sampler = sampling.sampler, sampling.batch_sampler
        self.batch_size, self.drop_last = sampling.batch_size, sampling.drop_last
        self._default_collate = collate_fn is None or collate_fn is self._collate
        self.collate_fn = collate_fn or (self._collate if sampling.batched else self._convert)
        self.workers = self._kind() if workers == "auto" else workers
        self._limit = num_workers * (given.prefetch_factor or 0) or 1
        self._init_memory()

    _collate: Callable[[Any], Any] = staticmethod(default_collate)
    _convert: Callable[[Any], Any] = staticmethod(default_convert)
    # From a fill's arrays, in the sample's structure, to what the user gets.
    _deliver: Callable[[Any], Any] = staticmethod(default_convert)

    def _kind(self) -> str:
        """Who works, where that is not said."""
        if self.num_workers == 0:
            return "serial"
        fills = self._sampling.batched and self._default_collate and spec_of(self.dataset) is not None
        if self.multiprocessing_context is not None:
            return "processes"
        # a worker is a daemonic process, which may not have processes of its own
        return "threads" if fills or multiprocessing.current_process().daemon else "processes"

    def _init_memory(self) -> None:
        self._epoch = 0
        self._progress: Progress | None = None
        self._resume: Progress | None = None
        self._pool: SlotPool | None = None
        self._idle_backend: Backend | None = None
        self._pid = os.getpid()
        self.reported_length: int | None = None
        self._initialized = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and getattr(self, "_initialized", False):
            raise ArgumentError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        """Arguments and position: workers, slots and statistics stay behind."""
        kept = {name: value for name, value in self.__dict__.items() if name not in _LEFT_BEHIND}
        return {
            **kept,
            "_ledger": copy.copy(self._ledger),
            "_resume": self._parsed(self.state_dict()),
            "_initialized": False,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._init_memory()
        self._initialized = False
        self.__dict__.update(state)
        self._initialized = True

    def __class_getitem__(cls, item: Any) -> type[Self]:  # DataLoader[T], as torch's subscripts
        return cls

    # iteration

    def __iter__(self) -> LoaderIterator:
        warn_of_unequal_steps(self.on_error, stacklevel=2)
        progress = self._resume.copy() if self._resume is not None else self._placed(Progress(self._epoch))
        trace = Trace()
        plan, job = self._plan_and_job(progress, trace)
        backend = self._backend(progress.epoch)
        backend.start(job)
        self._resume, self._epoch, self._progress = None, progress.epoch + 1, progress
        self._ledger.open(trace)
        given = plan, backend, trace
        if isinstance(progress, Replicas):
            return ReplicasIterator(self, *given, progress, self._limit, self._tally(progress))
        return LoaderIterator(self, *given, progress, self._limit, self._tally(progress))

    def _tally(self, progress: Progress) -> Tally | None:
        """What watches over an epoch's losses; None where nothing is left out."""
        if self.on_error == "raise":
            return None
        losses, expected = self._ledger.losses, self._sampling.expected()
        before = {"drawn": progress.samples, "lost": progress.lost}
        return losses.epoch(progress.epoch, expected, resumed=progress.batches > 0, **before)

    def __len__(self) -> int:
        """Batches per epoch; for a stream as its own ``len()`` says."""
        if not self._sampling.stream:
            return len(self.batch_sampler if self._sampling.batched else self.sampler)
        count = self.reported_length = len(self.dataset)
        if self.batch_size is None:
            return count
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next ``iter()``. One that is to be resumed in its middle stays so."""
        epoch = checked_count("epoch", epoch, least=0)
        if self._resume is None or self._resume.epoch != epoch:
            self._epoch, self._resume, self._progress = epoch, None, None

    def close(self) -> None:
        """Stop workers that :class:`persistent_workers` keeps. Iterators under way have their own ``close``."""
        backend, self._idle_backend = self._idle_backend, None
        if backend is not None:
            backend.close()

    def _plan_and_job(self, progress: Progress, trace: Trace) -> tuple[Plan, Job]:
        job = self._stream_job(trace, progress) if self._sampling.stream else self._map_job(trace)
        return self._sampling.plan(self.seed, progress), job

    def _stream_job(self, trace: Trace, progress: Progress) -> Job:
        replicas = progress.openings() if isinstance(progress, Replicas) else None
        return StreamJob(
            trace,
            self.worker_init_fn,
            self.dataset,
            self.batch_size,
            self.drop_last,
            self.collate_fn,
            self.seed,
            openings=replicas or {0: Opening(progress.epoch, 0, progress.samples, progress.dataset)},
            rules=self._rules(),
        )

    def _rules(self) -> Rules:
        population = self._sampling.population if self.on_error == "replace" else 0
        return Rules(self.on_error, population, self.seed_per_sample)

    def _map_job(self, trace: Trace) -> Job:
        spec = spec_of(self.dataset) if self._sampling.batched and self._default_collate else None
        given, rules = (trace, self.worker_init_fn, self.dataset), self._rules()
        if spec is None:
            return SampleJob(*given, self.collate_fn, batched=self._sampling.batched, rules=rules)
        if self._pool is None:
            self._pool = SlotPool(keep=self._limit + 2)
        return FillJob(*given, Layout(spec, self._sampling.rows), self._pool, self._deliver, rules)

    def _backend(self, epoch: int) -> Backend:
        backend, self._idle_backend = self._idle_backend, None
        if backend is None or self._pid != os.getpid():  # threads stay behind in a fork
            self._pid = os.getpid()
            kind, own = BACKENDS.get(self.workers), {}
            if self.workers == "processes":
                # of the epoch too, or workers that are started anew would draw the same in each
                base_seed = np.random.SeedSequence([self.seed, epoch]).generate_state(1, np.uint64)[0] >> np.uint64(1)
                own = {"context": self.multiprocessing_context, "base_seed": int(base_seed)}
            backend = kind(self.num_workers, self.chunk_size, **own)
        return backend

    def _put_back(self, backend: Backend) -> None:
        if self.persistent_workers and self._idle_backend is None:
            backend.pause()
            self._idle_backend = backend
        else:
            backend.close()

    # state

    def state_dict(self) -> dict[str, Any]:
        """Where the newest iterator stands: what was delivered, not what was prefetched.

        Returns
        -------
        dict
            JSON-able (if the user's own sampler and dataset give JSON-able states) and O(1) in size. After the last
            batch it resumes to an epoch of no batches; after ``StopIteration``, to the next epoch.
        """
        progress = self._resume or self._progress or Progress(self._epoch)
        drawn = self._sampling
        state = dump(progress, self.seed, drawn.seed, drawn.order(), drawn.ranks)
        if isinstance(progress, Replicas) and progress.batches and not progress.finished:
            state["workers"] = progress.dump()
        return copy.deepcopy(state)

    def _parsed(self, state: Mapping[str, Any]) -> Progress:
        progress = parse(state, self._sampling.order(), self._sampling.ranks)
        if state.get("workers") is not None:  # streams of their own, which alone have it
            progress = Replicas.parse(progress, state["workers"])
        return self._placed(progress)

    def _placed(self, progress: Progress) -> Progress:
        """``progress`` as this loader's workers go on with it."""
        if self._sampling.stream and self.workers == "processes":
            return Replicas.of(progress, self.num_workers)
        return progress.alone() if isinstance(progress, Replicas) else progress

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next ``iter()`` go on where ``state`` was taken, with any number and kind of workers.

        With a sampler of ours that knows ranks, any number of those too: they go on where all of them together were,
        each with the state of any one of them. The state is to be taken between steps, when all have come equally far;
        ``batch_size`` may then be another one, as the samples are dealt out anew.

        Raises
        ------
        StateError
            If the state belongs to a loader with another order or dataset, or to another seed than was given here.
        """
        progress = self._parsed(copy.deepcopy(state))
        if self._seed_given and state["seed"] != self.seed:
            raise StateError(f"the state was taken with seed={state['seed']}, this loader was given seed={self.seed}")
        self._sampling.check_position(progress)
        if self.seed != state["seed"]:
            self.close()  # processes know the seed that they were started with
        self.seed = state["seed"]
        if self._sampling.seed is not None and state["sampler_seed"] is not None:
            self._sampling.seed = state["sampler_seed"]
        self._resume, self._epoch, self._progress = progress, progress.epoch, None

    # statistics

    def stats(self) -> Stats:
        """Time per stage, samples and batches since construction; print it for a table."""
        return self._ledger.stats()

    @property
    def left_out(self) -> list[LeftOut]:
        """What could not be built, of the batches delivered up to now: the newest 10,000, oldest first; a copy."""
        return self._ledger.losses.kept()

    def _retire(self, trace: Trace) -> None:
        self._ledger.retire(trace)

    def _count(self, done: Done) -> None:
        self._ledger.count(done)
