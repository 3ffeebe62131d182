"""The drop-in for ``torch.utils.data.DataLoader``: torch's arguments, order, draws and errors over penstock's engine.

torch's own constructor checks the arguments and keeps them as attributes, so that whoever makes a loader again out of
one (Lightning, Accelerate) finds what it looks for. What it would run in worker processes, this module hands to a job
and a backend: it decides which, begins epochs and answers for their state. It starts nothing before ``iter()``.
"""

from __future__ import annotations

import copy
import functools
import logging
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.utils.data
from typing_extensions import TypeVar  # torch brings it along

from penstock.datasets.base import is_iterable
from penstock.errors import ArgumentError, StallError, StateError
from penstock.loader.arguments import check_workers_kind
from penstock.loader.epoch import Epoch
from penstock.loader.faults import LeftOut, Losses, warn_of_unequal_steps
from penstock.loader.order import Fingerprint
from penstock.loader.position import Position
from penstock.loader.recipe import Memory, Recipe
from penstock.loader.stats import Ledger, Stats
from penstock.rng import undisturbed
from penstock.samplers.base import checked_count, checked_seed
from penstock.torch.datasets import native
from penstock.torch.loader.beginning import EpochCounter, TorchEpochStart, draw_epoch, draw_next_epoch
from penstock.torch.loader.iteration import DataLoaderIterator
from penstock.torch.loader.order import TorchOrder, TorchSettings
from penstock.torch.loader.recipe import choose_backend, make_recipe
from penstock.torch.loader.saving import (
    Mark,
    check_state,
    make_mark,
    make_unstarted_state,
    may_have_state,
    parse_for_loader,
)
from penstock.torch.loader.state import Resume, parse
from penstock.workers import BACKENDS, Backend

__all__ = ["DataLoader", "StatefulDataLoader"]

_logger = logging.getLogger(__name__)
T_co = TypeVar("T_co", covariant=True, default=Any)


class _OwnStream(torch.utils.data.IterableDataset[Any]):
    """Stands for a stream of penstock's while torch checks the arguments: torch knows its own class alone."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return iter(self.dataset)


class DataLoader(torch.utils.data.DataLoader[T_co]):
    """Batches of a dataset as ``torch.utils.data.DataLoader`` gives them; an instance of it.

    Parameters
    ----------
    dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, collate_fn, pin_memory, drop_last, timeout
        As torch's.
    worker_init_fn, multiprocessing_context, generator, prefetch_factor, persistent_workers, pin_memory_device, in_order
        As torch's.
    workers : {"auto", "threads", "processes"}
        What the ``num_workers`` workers are. "auto": threads, if the dataset fills rows, batches are collated by
        default and nothing is asked for that only a process has (``worker_init_fn``, ``multiprocessing_context``);
        else processes, as with torch. "threads" has any dataset work on threads of this process: they share it and,
        if it is a stream, its one iterator; ``get_worker_info()`` is None there.
    seed : int, optional
        Fixes the order, as ``generator=torch.Generator().manual_seed(seed)`` would, and the samples' keys.
    stall_timeout : float, optional
        Seconds without any progress of any worker after which :class:`~penstock.errors.StallError` says where they
        stand. A call for several samples (``__getitems__``, ``load_samples``, a chunk of rows to fill, ``collate_fn``)
        is allowed this time for each of them; after the first a warning is logged. None: wait for ever, as torch does.
    chunk_size : int, optional
        Rows of a batch that a thread takes at a time; changes no batch.
    snapshot_every_n_steps : int, optional
        Batches between two times that worker processes tell their state; what was delivered since is built again when
        a run is resumed. 0 or None: only where they began.
    seed_per_sample : bool
        Seed ``random``, ``numpy.random``, torch's CPU generator and, where it is imported, cv2's from each sample's key
        before it is built, and from the batch's before it is collated: any number and kind of workers draw the same,
        also after a resume. Seeded besides are transforms of albumentations, imgaug and MONAI that the dataset holds;
        other generators are not, and :func:`penstock.torch.check` names them. Outside worker processes, samples are
        then built one at a time, and the global generators are put back behind each (cv2's cannot be).
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

    Notes
    -----
    A dataset that fills rows gives tensors over the slot's own memory: it is used again when the last tensor (or view
    of one) is gone. Any other dataset is collated by ``torch.utils.data.default_collate``.

    With ``persistent_workers``, each ``iter()`` goes on with the same workers, as torch's does. An iterator that it
    takes them from, and that torch would reset, goes on too: with what was under way, then with workers of its own.

    A batch that fails is raised in its turn, and counts as delivered; the iterator goes on behind it.
    ``StopIteration`` out of ``dataset[index]`` is an error, not an end.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        workers: str = "auto",
        seed: int | None = None,
        stall_timeout: float | None = 120.0,
        chunk_size: int | None = None,
        snapshot_every_n_steps: int | None = 1,
        seed_per_sample: bool = False,
        on_error: str = "raise",
        max_errors: float | None = None,
        error_log: str | os.PathLike[str] | None = None,
    ) -> None:
        if seed is not None and generator is None:
            generator = torch.Generator()
            generator.manual_seed(checked_seed(seed))
        own_stream = is_iterable(dataset) and not isinstance(dataset, torch.utils.data.IterableDataset)
        super().__init__(
            _OwnStream(dataset) if own_stream else dataset, batch_size, shuffle, sampler, batch_sampler, num_workers,
            collate_fn, pin_memory, drop_last, timeout, worker_init_fn, multiprocessing_context, generator,
            prefetch_factor=prefetch_factor, persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device, in_order=in_order,
        )  # fmt: skip
        if own_stream:
            self.__dict__["dataset"] = dataset
        check_workers_kind(workers, num_workers)
        self.workers, self.seed = workers, None if seed is None else checked_seed(seed)
        if stall_timeout is not None and stall_timeout <= 0:
            raise ArgumentError(f"stall_timeout should be positive or None, but got {stall_timeout}")
        self.stall_timeout = stall_timeout
        self.chunk_size = None if chunk_size is None else checked_count("chunk_size", chunk_size, least=1)
        self.snapshot_every_n_steps, self.seed_per_sample = snapshot_every_n_steps, seed_per_sample
        self.on_error, self.max_errors, self.error_log = on_error, max_errors, error_log
        self._losses = Losses(on_error, max_errors, error_log)
        self._resume: Any = None
        self._restores_globals = True
        self.__dict__.update(self._runtime())

    _iterator: Any
    _newest: weakref.ref[DataLoaderIterator] | None
    _epoch: Epoch | None
    _ledger: Ledger
    _fingerprint: Fingerprint
    _memory: Memory
    _counter: EpochCounter

    def _runtime(self) -> dict[str, Any]:
        """Attributes of a loader that was never iterated."""
        return {
            "_iterator": None,
            "_newest": None,
            "_epoch": None,
            "_ledger": Ledger(self._losses),
            "_fingerprint": Fingerprint(native(self.dataset)),
            "_memory": Memory(),
            "_counter": EpochCounter(),
        }

    def __getstate__(self) -> dict[str, Any]:
        """Arguments, and a state that is loaded: workers, position and statistics stay behind.

        There is no ``__setstate__``: a wrapper that passes attribute access on, as Accelerate's does, would be
        unpickled by that of the loader inside.
        """
        return {**self.__dict__, **self._runtime()}

    # iteration

    def __iter__(self) -> Any:
        if not (self.persistent_workers and self.num_workers > 0):
            return self._get_iterator()
        kept: Any = self._iterator
        if kept is None:
            self._iterator = self._get_iterator()
        elif not isinstance(kept, DataLoaderIterator):  # what a subclass's _get_iterator returned
            kept._reset(self)  # noqa: SLF001  # torch's name
        elif kept.stopped:
            self._iterator = self._get_iterator()
        elif kept.finished:
            self._begin_again(kept)
        else:  # left before its end; somebody may be in the middle of it
            self._iterator = self._take_over(kept)
        return self._iterator

    def _get_iterator(self) -> Any:
        warn_of_unequal_steps(self.on_error, stacklevel=3)
        self._check_rationality()
        settings = self._make_settings()
        recipe = make_recipe(self, settings.order, self._memory)
        resume = self._take_resume(settings)
        with undisturbed():
            start = draw_epoch(settings, recipe, self._counter, resume)
            epoch, backend = self._start_epoch(settings, recipe, start)
        iterator = self._make_iterator(settings, epoch, backend)
        if start.position.finished:  # resumed after its end: workers repeat what they had done, and then go on
            iterator.exhaust()
            self._begin_again(iterator)
        return iterator

    def _start_epoch(self, settings: TorchSettings, recipe: Recipe, start: TorchEpochStart) -> tuple[Epoch, Backend]:
        """Make workers and start the job, after what the epoch draws was drawn."""
        backend = None
        try:
            backend = recipe.make_backend(start.base_seed)
            epoch = start.start(settings, recipe, start.make_plan(settings, recipe), backend)
        except BaseException:
            start.restore_generators(settings, started=False)
            if backend is not None:
                backend.close()
            raise
        start.restore_generators(settings, started=True)
        return epoch, backend

    def _make_iterator(self, settings: TorchSettings, epoch: Epoch, backend: Backend) -> DataLoaderIterator:
        try:
            self._await_workers(backend, epoch)
            iterator = DataLoaderIterator(settings, epoch, backend)
        except BaseException:
            backend.close()
            raise
        self._note(iterator)
        return iterator

    def _begin_again(self, iterator: DataLoaderIterator) -> None:
        """torch's reset of a persistent iterator: the next epoch with the same workers."""
        last, settings = iterator.epoch, self._make_settings()
        epoch = self._start_next(settings, last.recipe, last.position, iterator.backend)
        self._await_workers(iterator.backend, epoch)
        iterator.begin(settings, epoch)
        self._note(iterator)

    def _start_next(self, settings: TorchSettings, recipe: Recipe, last: Position, backend: Backend) -> Epoch:
        with undisturbed():
            start = draw_next_epoch(settings, recipe, self._counter, last)
            return start.start(settings, recipe, start.make_plan(settings, recipe), backend)

    def _restart(self, iterator: DataLoaderIterator) -> None:
        """torch's reset of an iterator that something else wraps: the next epoch, wherever it stands in this one."""
        iterator.abandon()
        self._begin_again(iterator)

    def _take_over(self, old: DataLoaderIterator) -> DataLoaderIterator:
        """The same where somebody may still use the last epoch's iterator, which then goes on alone."""
        recipe, settings, last = old.epoch.recipe, self._make_settings(), old.epoch.position
        if recipe.processes:
            try:
                self._record_first_states(old)
                backend, last = old.release_workers()
            except StallError:
                fresh: DataLoaderIterator = self._get_iterator()
                return fresh
        else:  # threads are quickly made, and the dataset, perhaps a stream in use, is not theirs alone
            backend = recipe.make_backend(old.epoch.start.base_seed)
        try:
            epoch = self._start_next(settings, recipe, last, backend)
        except BaseException:
            backend.close()
            raise
        return self._make_iterator(settings, epoch, backend)

    def _record_first_states(self, iterator: DataLoaderIterator) -> None:
        """Keep the states of workers when they began; an error of theirs is raised with their first batch."""
        if not may_have_state(self._make_settings().order):
            return
        try:
            iterator.record_first_states()
        except StallError:
            raise
        except Exception as error:  # noqa: BLE001  # as the docstring says
            _logger.debug("a worker could not begin: %r", error)

    def _note(self, iterator: DataLoaderIterator) -> None:
        self._epoch, self._newest = iterator.epoch, weakref.ref(iterator)

    def _await_workers(self, backend: Backend, epoch: Epoch) -> None:
        """Wait for workers that are no processes; an error of a process is raised with its first batch."""
        if not epoch.recipe.processes:
            epoch.record_first_states(backend, self._make_settings().patience_s)

    def _check_rationality(self) -> None:
        if self.num_workers == 0:
            if self.timeout != 0:
                raise AssertionError(f"timeout={self.timeout} needs num_workers > 0: nobody else could stop waiting")
            return
        self.check_worker_number_rationality()
        if not self.prefetch_factor:
            raise AssertionError("prefetch_factor must be greater than 0: with 0 no batch is ever asked for")

    def _make_settings(self) -> TorchSettings:
        index_sampler, batched = self._index_sampler, self._auto_collation
        order = TorchOrder(self.dataset, index_sampler, batched=batched, fingerprint=self._fingerprint)
        order.seed = self.seed
        return TorchSettings(
            order, self.num_workers, self.in_order, self.timeout, self.stall_timeout, self.persistent_workers,
            self._ledger, functools.partial(len, index_sampler), self.seed,
            snapshot_every=self.snapshot_every_n_steps, reported_length=self._IterableDataset_len_called,
            generator=self.generator, restores_globals=self._restores_globals,
        )  # fmt: skip

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next ``iter()``, also in samplers that have one. One to be resumed stays so."""
        epoch = checked_count("epoch", epoch, least=0)
        if self._resume is not None and parse(self._resume).position.epoch != epoch:
            self._resume = None
        self._counter.set(epoch)
        samplers: tuple[Any, ...] = (self.batch_sampler, self.sampler, getattr(self.batch_sampler, "sampler", None))
        for sampler in samplers:
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)

    def close(self) -> None:
        """Stop workers that wait for another epoch. Iterators under way have their own ``close``."""
        iterator, self._iterator = self._iterator, None
        if isinstance(iterator, DataLoaderIterator):
            iterator._shutdown_workers()  # noqa: SLF001  # torch's name

    # state

    def state_dict(self) -> dict[str, Any]:
        """Where the newest iterator stands: what was delivered, not what was prefetched.

        Returns
        -------
        dict
            In the layout of torchdata's ``StatefulDataLoader``, with one key more. JSON-able if the user's own sampler
            and dataset give JSON-able states, and O(1) in size. After the last batch it resumes to an epoch of no
            batches; after ``StopIteration``, to the next epoch. Before ``iter()`` it resumes to the epoch that
            ``iter()`` would begin now.

        Notes
        -----
        Starts no worker, draws no random number and opens no sampler.
        """
        if self._resume is not None:
            saved: dict[str, Any] = copy.deepcopy(self._resume)
            return saved
        mark = self._mark()
        if mark is not None:
            return mark.state()
        settings = self._make_settings()
        processes = self.num_workers if BACKENDS.get(choose_backend(self)).capabilities.isolated else 0
        return make_unstarted_state(settings, self._counter.upcoming(settings.order), processes)

    def _mark(self) -> Mark | None:
        """Where the newest iterator stands, to be written down later; None before ``iter()``."""
        if self._resume is not None or self._epoch is None:
            return None
        iterator = None if self._newest is None else self._newest()
        return make_mark(self._make_settings(), self._epoch, iterator)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Make the next ``iter()`` go on where ``state_dict`` was taken; an empty one begins anew.

        Any number and kind of workers will do where the dataset is not a stream, or keeps no state of its own in each
        worker. What no state can be is only found at ``iter()``.

        Raises
        ------
        StateError
            If it is no mapping, or belongs to a loader with another order; the field is named.
        """
        given: Any = state_dict  # whatever a file held
        if not isinstance(given, Mapping):
            raise StateError(f"a loader's state is the mapping that state_dict() gives, got {type(given).__name__}")
        self._epoch = self._newest = self._iterator = None
        self._resume = None
        if given == {}:
            return
        own = given.get("penstock")
        if isinstance(own, Mapping) and "order" in own:
            check_state(own, self._make_settings().order)
        self._resume = copy.deepcopy(given)

    def _take_resume(self, settings: TorchSettings) -> Resume | None:
        if self._resume is None:
            return None
        resume = parse_for_loader(self._resume, settings)
        self._resume = None
        return resume

    # statistics

    def stats(self) -> Stats:
        """Time per stage, samples and batches since construction; print it for a table."""
        return self._ledger.stats()

    @property
    def left_out(self) -> list[LeftOut]:
        """What could not be built, of the batches delivered up to now: the newest 10,000, oldest first; a copy."""
        return self._losses.kept()


class StatefulDataLoader(DataLoader[T_co]):
    """torchdata's loader by its name: a :class:`DataLoader` whose workers have begun when ``iter()`` returns.

    An error of ``worker_init_fn`` or ``iter(dataset)`` is therefore raised by ``iter()``, not by the first ``next()``.
    """

    def _await_workers(self, backend: Backend, epoch: Epoch) -> None:
        patience_s = self._make_settings().patience_s
        backend.opened(patience_s)
        epoch.record_first_states(backend, patience_s)
