"""The drop-in for ``torch.utils.data.DataLoader``: torch's arguments, order, random draws and errors.

torch's constructor checks the arguments and keeps them as attributes, so that libraries which make a new loader from
these attributes (Lightning, Accelerate) find them. Nothing is started before ``iter()``.
"""

from __future__ import annotations

import copy
import functools
import logging
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

import torch
import torch.utils.data
from torch import Tensor

from penstock.datasets.base import is_iterable
from penstock.datasets.batch_types import BatchT, BatchT_co, MapDataset
from penstock.errors import ArgumentError, StateError
from penstock.loader.arguments import LoaderOptions, NamedLoaderOptions, check_workers_kind, choose_counts
from penstock.loader.counters import LoaderCounters
from penstock.loader.epoch import Epoch
from penstock.loader.faults import LeftOutLog
from penstock.loader.order import Fingerprint
from penstock.loader.past import PastSample
from penstock.loader.recipe import Memory
from penstock.loader.sampling import makes_sampler
from penstock.loader.state import split_merged
from penstock.loader.statistics import LoaderStatistics
from penstock.loader.tuning import AutoCount, LoaderTuner, check_memory_fraction, count_most, find_tuner
from penstock.sample import Batch, DatasetLike, Index, Sample, SamplerLike, State, StateDict
from penstock.samplers.base import check_count, check_seed
from penstock.torch.datasets import native
from penstock.torch.loader.device_decoding import check_decode
from penstock.torch.loader.epoch_draws import EpochCounter
from penstock.torch.loader.epoch_starter import EpochStarter
from penstock.torch.loader.iteration import DataLoaderIterator
from penstock.torch.loader.order import TorchOrder, TorchSettings
from penstock.torch.loader.past import find_samples
from penstock.torch.loader.recipe import choose_backend
from penstock.torch.loader.saving import check_state, defer_state, make_unstarted_state
from penstock.torch.loader.state import parse
from penstock.workers import BACKENDS, Backend
from penstock.workers.ray.options import RayWorkers, workers_kind

__all__ = ["DataLoader", "StatefulDataLoader"]

_logger = logging.getLogger(__name__)
SampleT = TypeVar("SampleT", bound="Tensor | tuple[Tensor, ...] | Mapping[str, Tensor]")
"""A sample whose batch has the same type."""


class _TorchOptions(LoaderOptions, total=False):
    """Arguments that are given by name, and that do not change the type of batches."""

    pin_memory_device: str
    snapshot_every_n_steps: int | None
    decode: str | torch.device
    channels_last: bool


class _NamedTorchOptions(NamedLoaderOptions, _TorchOptions, total=False):
    """The same, with those that torch takes by place too."""

    generator: torch.Generator | None


class _OwnStream(torch.utils.data.IterableDataset[Sample]):
    """Replaces a stream of penstock's while torch checks the arguments, since torch accepts only its own class."""

    def __init__(self, dataset: DatasetLike) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.dataset)


class DataLoader(EpochStarter, torch.utils.data.DataLoader[Any], LoaderStatistics, Generic[BatchT_co]):
    """Batches of a dataset as ``torch.utils.data.DataLoader`` gives them; an instance of it.

    Parameters
    ----------
    dataset, batch_size, shuffle, sampler, batch_sampler, collate_fn, pin_memory, drop_last, timeout
        As torch's.
    worker_init_fn, multiprocessing_context, generator, persistent_workers, pin_memory_device, in_order
        As torch's.
    num_workers, prefetch_factor : int or "auto"
        As torch's; "auto": as for :class:`penstock.DataLoader`.
    workers : {"auto", "threads", "processes", "ray"} or RayWorkers
        Kind of the workers. "auto": threads, if the dataset fills rows, batches are collated by default, and
        ``worker_init_fn`` and ``multiprocessing_context`` are not given; else processes, as with torch. "threads":
        threads of this process share the dataset and, if it is a stream, its iterator; ``get_worker_info()`` is None.
        "ray": actors of Ray, on this machine or on others; :class:`~penstock.RayWorkers` says what each asks for.
    seed : int, optional
        Fixes the order, as ``generator=torch.Generator().manual_seed(seed)`` would, and the samples' keys.
    chunk_size : int, optional
        Rows of a batch that a thread takes at a time; changes no batch.
    snapshot_every_n_steps : int, optional
        Batches between two states that worker processes send. A resumed run builds again what was delivered after the
        last one. 0 or None: only the state at their start.
    stall_timeout, seed_per_sample, memory_fraction, on_error, max_errors, error_log, view
        As for :class:`penstock.DataLoader`.
    overlap_epochs : bool
        Begin the next epoch while the last batches of this one are consumed, so that ``iter()`` finds its first batches
        built. Needs ``persistent_workers``, whose workers are then two sets that take turns; only for a map-style
        dataset in an order that is not drawn from random states: by penstock's samplers, torch's ``SequentialSampler``
        or ``DistributedSampler``. If ``set_epoch`` or another sampler changes the epoch, what was built is dropped.
    decode : {"cpu", "cuda", "cuda:<number>", "auto"}
        What decodes the images of a :class:`~penstock.datasets.StoreDataset`, or of a folder of torchvision whose
        transforms are all native, or of subsets and concatenations of such.
        "cuda": the device does, workers are threads, and the tensors of batches are on the device, complete, with the
        same values as on the CPU. What no kernel can do is an error of ``iter()`` that names it. "auto": a device, if
        there is one and it can do all of it, else the CPU; with a warning if its kernels cannot be compiled or loaded.
        If the device fails, ``next()`` raises a :class:`~penstock.errors.DeviceError`.
    channels_last : bool
        Whether the images that a device decodes have the memory format ``torch.channels_last``.

    Raises
    ------
    ValueError, AssertionError, TypeError
        As torch's constructor.
    ArgumentError
        If one of penstock's arguments is wrong, or does not fit another one; it is a ``ValueError``.

    Notes
    -----
    A dataset that fills rows gives tensors over the memory of a slot, which is used again when the last tensor (or view
    of one) is freed. Samples of any other dataset are collated by ``torch.utils.data.default_collate``.

    With ``persistent_workers``, each ``iter()`` uses the same workers, as with torch. An older iterator that is still
    in use, which torch resets, continues: with the batches under way, then with workers of its own.

    If a batch fails, ``next()`` raises the error in the batch's place, and the iterator continues after it. A state
    that is taken before it does has the batch again. ``StopIteration`` raised by ``dataset[index]`` is an error, not
    the end of the epoch.
    """

    @overload
    def __init__(
        self: DataLoader[BatchT], dataset: DatasetLike, batch_size: int | None = 1, shuffle: bool | None = None,
        sampler: Iterable[Index] | None = None, batch_sampler: Iterable[Index] | None = None,
        num_workers: int | str = 0, *,
        collate_fn: Callable[[Any], BatchT], **options: Unpack[_NamedTorchOptions],
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: DataLoader[SampleT], dataset: MapDataset[SampleT], batch_size: int = 1, shuffle: bool | None = None,
        sampler: Iterable[Index] | None = None, batch_sampler: None = None,
        num_workers: int | str = 0,
        **options: Unpack[_NamedTorchOptions],
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: DataLoader[tuple[Tensor, Tensor]], dataset: MapDataset[tuple[Tensor, float]], batch_size: int = 1,
        shuffle: bool | None = None, sampler: Iterable[Index] | None = None, batch_sampler: None = None,
        num_workers: int | str = 0, **options: Unpack[_NamedTorchOptions],
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: DataLoader[Any], dataset: DatasetLike, batch_size: int | None = 1, shuffle: bool | None = None,
        sampler: Iterable[Index] | None = None, batch_sampler: Iterable[Index] | None = None,
        num_workers: int | str = 0,
        collate_fn: Callable[[Any], Any] | None = None, pin_memory: bool = False, drop_last: bool = False,
        timeout: float = 0, worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: object = None, generator: torch.Generator | None = None,
        **options: Unpack[_TorchOptions],
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
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: object = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | str | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        workers: str | RayWorkers = "auto",
        seed: int | None = None,
        stall_timeout: float | None = 120.0,
        chunk_size: int | None = None,
        memory_fraction: float = 0.5,
        snapshot_every_n_steps: int | None = 1,
        seed_per_sample: bool = False,
        on_error: str = "raise",
        max_errors: float | None = None,
        error_log: str | os.PathLike[str] | None = None,
        overlap_epochs: bool = False,
        view: bool = False,
        decode: str | torch.device = "cpu",
        channels_last: bool = False,
    ) -> None:
        if seed is not None and generator is None:
            generator = torch.Generator()
            generator.manual_seed(check_seed(seed))
        if makes_sampler(dataset) and sampler is None and batch_sampler is None:
            own_seed = torch.initial_seed() if generator is None else generator.initial_seed()
            sampler, shuffle = dataset.make_sampler(shuffle=bool(shuffle), seed=own_seed), None
        self.__dict__["workers"] = workers  # torch's constructor calls check_worker_number_rationality()
        workers_chosen, factor = choose_counts(num_workers, prefetch_factor, native(dataset), workers)
        self.__dict__["memory_fraction"] = check_memory_fraction(memory_fraction)
        own_stream = is_iterable(dataset) and not isinstance(dataset, torch.utils.data.IterableDataset)
        super().__init__(
            _OwnStream(dataset) if own_stream else dataset, batch_size, shuffle, sampler, batch_sampler, workers_chosen,
            collate_fn, pin_memory, drop_last, timeout, worker_init_fn, multiprocessing_context, generator,
            prefetch_factor=factor, persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device, in_order=in_order,
        )  # fmt: skip
        if own_stream:
            self.__dict__["dataset"] = dataset
        check_workers_kind(workers, workers_chosen, multiprocessing_context)
        self.workers, self.seed = workers, None if seed is None else check_seed(seed)
        if stall_timeout is not None and stall_timeout <= 0:
            raise ArgumentError(f"stall_timeout should be positive or None, but got {stall_timeout}")
        self.stall_timeout = stall_timeout
        self.chunk_size = None if chunk_size is None else check_count("chunk_size", chunk_size, least=1)
        self.snapshot_every_n_steps = snapshot_every_n_steps
        self.on_error, self.max_errors, self.error_log = on_error, max_errors, error_log
        if overlap_epochs and not persistent_workers:
            raise ArgumentError("overlap_epochs needs persistent_workers=True: new workers' seeds are drawn at iter()")
        self.overlap_epochs, self.view = overlap_epochs, view
        self.decode, self.channels_last = check_decode(decode, workers, multiprocessing_context), bool(channels_last)
        self.seed_per_sample = seed_per_sample
        self._left_out_log = LeftOutLog(on_error, max_errors, error_log)
        self._resume: State = None
        self._restores_globals = True
        self.__dict__.update(self._runtime())

    memory_fraction: float
    _counters: LoaderCounters
    _fingerprint: Fingerprint

    if TYPE_CHECKING:

        def __iter__(self) -> DataLoaderIterator[BatchT_co]:  # type: ignore[override]  # torch's is a private class
            ...

    def _runtime(self) -> StateDict:
        """Attributes of a loader that was never iterated."""
        return {
            "_iterator": None,
            "_newest": None,
            "_epoch": None,
            "_counters": LoaderCounters(self._left_out_log),
            "_fingerprint": Fingerprint(native(self.dataset)),
            "_memory": Memory(),
            "_counter": EpochCounter(),
            "_ahead": None,
            "_spare": None,
        }

    def __getstate__(self) -> StateDict:
        """Arguments, and a state that is loaded: workers, position and statistics stay behind.

        There is no ``__setstate__``: a wrapper that passes attribute access on, as Accelerate's does, would be
        unpickled by that of the loader inside.
        """
        return {**self.__dict__, **self._runtime()}

    def check_worker_number_rationality(self) -> None:
        """torch's warning of more workers than this machine has cores, unless they run on others, or are chosen."""
        if workers_kind(self.workers) != "ray" and not isinstance(self.num_workers, AutoCount):
            super().check_worker_number_rationality()

    def _make_settings(self, *, begins: bool = False) -> TorchSettings:
        index_sampler, batched = self._index_sampler, self._auto_collation
        order = TorchOrder(self.dataset, index_sampler, batched=batched, fingerprint=self._fingerprint)
        order.seed = self.seed
        return TorchSettings(
            order, self.num_workers, self.in_order, self.timeout, self.stall_timeout, self.persistent_workers,
            self._counters, functools.partial(len, index_sampler), self.seed,
            snapshot_every=self.snapshot_every_n_steps, reported_length=self._IterableDataset_len_called,
            begin_next=None if self._ahead is None else weakref.WeakMethod(self._ahead.begin),
            generator=self.generator, restores_globals=self._restores_globals, view=self.view,
            tuner=self._find_tuner() if begins else None,
        )  # fmt: skip

    def _find_tuner(self) -> LoaderTuner | None:
        capabilities = BACKENDS.get(choose_backend(self)).capabilities
        return find_tuner(self, native(self.dataset), self._counters, capabilities)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next ``iter()``, also in samplers that have one. One to be resumed stays so."""
        epoch = check_count("epoch", epoch, least=0)
        if self._resume is not None and parse(self._resume).position.epoch != epoch:
            self._resume = None
        self._counter.set(epoch)
        samplers: tuple[SamplerLike, ...] = (
            self.batch_sampler,
            self.sampler,
            getattr(self.batch_sampler, "sampler", None),
        )
        for sampler in samplers:
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)

    def close(self) -> None:
        """Stop workers that wait for another epoch. Iterators under way have their own ``close``."""
        iterators = self._iterator, self._spare
        self._iterator = self._spare = None
        if self._ahead is not None:
            self._ahead.close()
        for iterator in iterators:
            if isinstance(iterator, DataLoaderIterator):
                iterator._shutdown_workers()  # noqa: SLF001  # torch's name

    def samples_of(self, step: int, *, epoch: int | None = None, rank: int | None = None) -> list[PastSample]:
        """Return the samples of a batch of any epoch; as :meth:`penstock.DataLoader.samples_of`.

        With a sampler of penstock's and ``seed=`` it is computed at once. An order that torch draws is drawn again,
        from copies of the generators: that of the epoch in which the loader is, or its loaded state, always; others
        epoch by epoch, which takes the time and memory of a permutation each, from ``seed=`` or ``generator=``. With
        torch's ``DistributedSampler``, whose ``set_epoch`` is taken to be called with the number of each epoch.

        Raises
        ------
        ArgumentError
            If there is no such batch, or its order is not known any more: it was drawn from torch's global generator
            in another epoch, a generator was drawn from by others, an epoch was not iterated to its end, or the
            sampler is neither torch's nor penstock's.
        """
        return find_samples(self, step, epoch, rank)

    # state

    def state_dict(self) -> StateDict:
        """Return where the newest iterator stands: what was delivered, not what was prefetched.

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
            saved: StateDict = copy.deepcopy(self._resume)
            return saved
        write = self._defer_state()
        return self._describe_next_epoch() if write is None else write()

    def _describe_next_epoch(self) -> StateDict:
        """Return the state that resumes to the epoch that ``iter()`` would begin now, whatever is left of this one."""
        settings = self._make_settings()
        processes = count_most(self.num_workers) if BACKENDS.get(choose_backend(self)).capabilities.isolated else 0
        return make_unstarted_state(settings, self._counter.upcoming(settings.order), processes)

    def _defer_state(self) -> Callable[[], StateDict] | None:
        """Return what writes down where the newest iterator stands now; None before ``iter()``."""
        if self._resume is not None or self._epoch is None:
            return None
        iterator = None if self._newest is None else self._newest()
        return defer_state(self._make_settings(), self._epoch, iterator)

    def load_state_dict(self, state_dict: Mapping[str, State]) -> None:
        """Make the next ``iter()`` go on where ``state_dict`` was taken; an empty one begins anew.

        Any number and kind of workers will do where the dataset is not a stream, or keeps no state of its own in each
        worker. What no state can be is only found at ``iter()``.

        Raises
        ------
        StateError
            If it is no mapping, or belongs to a loader with another order; the field is named.
        """
        given: State = state_dict  # whatever a file held
        if not isinstance(given, Mapping):
            raise StateError(f"a loader's state is the mapping that state_dict() gives, got {type(given).__name__}")
        self._epoch = self._newest = self._iterator = None
        self._resume = None
        if given == {}:
            return
        order = self._make_settings().order
        for part in split_merged(given):
            own = part.get("penstock")
            if isinstance(own, Mapping) and "order" in own:
                check_state(own, order)
        if not order.is_stream:
            given = split_merged(given)[0]  # ranks that are in step have one state
        self._resume = copy.deepcopy(given)


class StatefulDataLoader(DataLoader[BatchT_co]):
    """torchdata's loader by its name: a :class:`DataLoader` whose workers have begun when ``iter()`` returns.

    An error of ``worker_init_fn`` or ``iter(dataset)`` is therefore raised by ``iter()``, not by the first ``next()``.
    """

    def _await_workers(self, backend: Backend, epoch: Epoch) -> None:
        patience_s = self._make_settings().patience_s
        backend.wait_for_start(patience_s)
        epoch.record_first_states(backend, patience_s)
