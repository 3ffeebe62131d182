"""The loader's arguments, checked once: torch's meaning, order of checks and beginnings of texts.

Every error here is an :class:`~penstock.errors.ArgumentError` (a ``ValueError``).
"""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from typing import TypedDict

from penstock.collate import default_collate
from penstock.datasets import Subset
from penstock.datasets.base import is_iterable, spec_of
from penstock.errors import ArgumentError
from penstock.loader.tuning import AUTO, AutoCount, choose_workers_count, resolve
from penstock.sample import Batch, DatasetLike, Sample, SamplerLike
from penstock.samplers.base import check_count, check_seed
from penstock.stores.base import Store
from penstock.system.control_group import count_usable_cores
from penstock.workers import BACKENDS
from penstock.workers.ray.options import RayWorkers, workers_kind

__all__ = [
    "Arguments",
    "LoaderOptions",
    "NamedLoaderOptions",
    "check_arguments",
    "check_workers_kind",
    "choose_counts",
    "choose_workers",
    "refuse_records",
    "refuse_torch_arguments",
]


@dataclass(slots=True)
class Arguments:
    """What the caller gave, by the names of :class:`~penstock.loader.DataLoader`."""

    dataset: DatasetLike
    batch_size: int | None
    shuffle: object
    sampler: SamplerLike
    batch_sampler: SamplerLike
    num_workers: int
    collate_fn: Callable[[Sample], Batch] | None
    drop_last: bool
    timeout: float
    worker_init_fn: Callable[[int], None] | None
    prefetch_factor: int | None
    persistent_workers: bool
    workers: str | RayWorkers
    seed: int | None
    in_order: bool
    stall_timeout: float | None
    chunk_size: int | None
    multiprocessing_context: str | BaseContext | None
    context: BaseContext | None = None  # found by its name


class LoaderOptions(TypedDict, total=False):
    """Arguments of both loaders that are given by name, and have no say in the type of batches."""

    prefetch_factor: int | str | None
    persistent_workers: bool
    workers: str | RayWorkers
    seed: int | None
    in_order: bool
    stall_timeout: float | None
    chunk_size: int | None
    memory_fraction: float
    on_error: str
    max_errors: float | None
    error_log: str | os.PathLike[str] | None
    seed_per_sample: bool
    overlap_epochs: bool
    view: bool


class NamedLoaderOptions(LoaderOptions, total=False):
    """The keywords of a loader, with those that torch takes by place too."""

    pin_memory: bool
    drop_last: bool
    timeout: float
    worker_init_fn: Callable[[int], None] | None
    multiprocessing_context: str | BaseContext | None


def check_arguments(given: Arguments) -> Arguments:
    """Complete the arguments of a loader.

    Raises ArgumentError if an argument is wrong, or does not fit another one.
    """
    if isinstance(given.dataset, str | bytes | os.PathLike):
        raise ArgumentError(
            f"dataset must be a dataset, got {given.dataset!r}; if it is the path of a store, write "
            "penstock.StoreDataset(path, ...)"
        )
    is_batched = given.batch_size is not None or given.batch_sampler is not None
    if is_batched and (given.collate_fn is None or given.collate_fn is default_collate):
        refuse_records(given.dataset)
    _check_workers(given)
    _check_context(given)
    if is_iterable(given.dataset):
        _check_stream(given)
    _check_order(given)
    if given.seed is not None:
        given.seed = check_seed(given.seed)
    return given


def refuse_records(dataset: DatasetLike, subsets: tuple[type, ...] = (Subset,)) -> None:
    """Refuse a store, or a part of one, whose records cannot be collated.

    Raises ArgumentError if its samples are records.
    """
    held = dataset
    while type(held) in subsets:
        held = held.dataset
    if isinstance(held, Store) and type(held).__getitem__ is Store.__getitem__:
        raise ArgumentError(
            f"dataset must give samples that can be collated, got the records of {held!r}; write "
            "DataLoader(penstock.StoreDataset(store, fields=..., transform=...), ...), or give a collate_fn that takes "
            "a list of records"
        )


def refuse_torch_arguments(pin_memory: object, generator: object) -> None:
    """Refuse what only a loader of tensors can do, by the name of the one that does it."""
    if pin_memory:
        raise ArgumentError(
            f"pin_memory must be False, got {pin_memory!r}: batches are NumPy arrays; penstock.torch.DataLoader gives "
            "tensors in page-locked memory"
        )
    if generator is not None:
        raise ArgumentError(
            f"generator must be None, got {generator!r}: the order and every random number hang on seed=; "
            "penstock.torch.DataLoader takes torch's generators"
        )


def check_workers_kind(workers: str | RayWorkers, num_workers: int, context: object) -> None:
    """Raise an ArgumentError unless ``workers`` is a kind of workers, and ``num_workers`` and ``context`` fit it."""
    kind = workers_kind(workers)
    if kind not in ("auto", *BACKENDS):
        raise ArgumentError(f"workers must be one of auto, {', '.join(BACKENDS)}, or a RayWorkers, got {workers!r}")
    if kind == "ray" and context is not None:
        raise ArgumentError(
            f"multiprocessing_context must be None with workers={workers!r}, got {context!r}: Ray starts the workers"
        )
    if workers == "serial" and num_workers > 0:
        raise ArgumentError(f"workers='serial' has no workers, but got num_workers={num_workers}; give num_workers=0")
    if workers not in {"auto", "serial"} and num_workers == 0:
        raise ArgumentError(f"workers={workers!r} needs num_workers > 0")


def choose_counts(
    num_workers: int | str, prefetch_factor: int | str | None, dataset: object, workers: str | RayWorkers
) -> tuple[int, int | None]:
    """``num_workers`` and ``prefetch_factor``, where "auto" becomes a count that the loader chooses.

    The number of workers among which a stream is divided stays: it is that of the cores. Raises ArgumentError for
    another text, and for Ray's workers.
    """
    if AUTO in {num_workers, prefetch_factor} and workers_kind(workers) == "ray":
        raise ArgumentError('num_workers and prefetch_factor must be ints with workers="ray", got "auto"')
    workers_count = resolve("num_workers", num_workers, choose_workers_count(dataset))
    return workers_count, resolve("prefetch_factor", prefetch_factor, AutoCount(2))


def _check_workers(given: Arguments) -> None:
    if given.num_workers < 0:
        raise ArgumentError("num_workers option should be non-negative; use num_workers=0 to disable workers.")
    if given.timeout < 0:
        raise ArgumentError("timeout option should be non-negative")
    _check_prefetch(given)
    if given.persistent_workers and given.num_workers == 0:
        raise ArgumentError("persistent_workers option needs num_workers > 0")
    check_workers_kind(given.workers, given.num_workers, given.multiprocessing_context)
    if given.timeout > 0 and given.num_workers == 0:
        raise ArgumentError("timeout needs num_workers > 0: without workers the calling thread cannot stop waiting")
    if given.stall_timeout is not None and given.stall_timeout <= 0:
        raise ArgumentError(f"stall_timeout should be positive or None, but got {given.stall_timeout}")
    if given.chunk_size is not None:
        given.chunk_size = check_count("chunk_size", given.chunk_size, least=1)
    cores = count_usable_cores()
    if (
        given.num_workers > cores
        and not isinstance(given.num_workers, AutoCount)
        and workers_kind(given.workers) != "ray"
    ):
        warnings.warn(
            f"This DataLoader will create {given.num_workers} workers in total. Our suggested max number of worker in "
            f"current system is {cores}. Please be aware that excessive worker creation might get DataLoader running "
            "slow or even freeze, lower the worker number to avoid potential slowness/freeze if necessary.",
            stacklevel=4,
        )


def _check_context(given: Arguments) -> None:
    context = given.multiprocessing_context
    if context is None:
        return
    if given.num_workers == 0:
        raise ArgumentError(
            "multiprocessing_context can only be used with multi-process loading (num_workers > 0), "
            f"but got num_workers={given.num_workers}"
        )
    if given.workers == "threads":
        raise ArgumentError("multiprocessing_context is about processes, but workers='threads' was given")
    if isinstance(context, str):
        methods = multiprocessing.get_all_start_methods()
        if context not in methods:
            raise ArgumentError(
                f"multiprocessing_context option should specify a valid start method in {methods!r}, "
                f"but got multiprocessing_context={context!r}"
            )
        given.context = multiprocessing.get_context(context)
    elif not isinstance(context, BaseContext):
        raise ArgumentError(
            "multiprocessing_context option should be a valid context object or a string specifying the start method, "
            f"but got multiprocessing_context={context!r}"
        )
    else:
        given.context = context


def _check_prefetch(given: Arguments) -> None:
    if given.num_workers == 0 and given.prefetch_factor is not None:
        raise ArgumentError(
            "prefetch_factor option could only be specified in multiprocessing: let num_workers > 0 to enable workers"
        )
    if given.prefetch_factor is None:
        given.prefetch_factor = 2 if given.num_workers else None
    elif given.prefetch_factor < 0:
        raise ArgumentError("prefetch_factor option should be non-negative")
    elif given.prefetch_factor == 0:
        raise ArgumentError("prefetch_factor option should be positive: with 0 no batch is ever asked for")


def _check_stream(given: Arguments) -> None:
    if given.shuffle not in {False, None}:
        raise ArgumentError(
            f"DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle={given.shuffle}"
        )
    for name in ("sampler", "batch_sampler"):
        if getattr(given, name) is not None:
            raise ArgumentError(
                f"DataLoader with IterableDataset: expected unspecified {name} option, "
                f"but got {name}={getattr(given, name)}"
            )


def _check_order(given: Arguments) -> None:
    if given.sampler is not None and given.shuffle:
        raise ArgumentError("sampler option is mutually exclusive with shuffle")
    if given.batch_sampler is not None:
        if given.batch_size != 1 or given.shuffle or given.sampler is not None or given.drop_last:
            raise ArgumentError(
                "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
            )
    elif given.batch_size is None:
        if given.drop_last:
            raise ArgumentError(
                "batch_size=None option disables auto-batching and is mutually exclusive with drop_last"
            )
    else:
        given.batch_size = check_count("batch_size", given.batch_size, least=1)
    if not isinstance(given.drop_last, bool):
        raise ArgumentError(f"drop_last should be a boolean value, but got drop_last={given.drop_last!r}")


def choose_workers(given: Arguments, *, may_fill: bool) -> str:
    """Choose workers for ``workers="auto"``; ``may_fill``: whether samples are batched and collated by default."""
    if given.num_workers == 0:
        return "serial"
    if given.context is None and given.worker_init_fn is None and may_fill and spec_of(given.dataset) is not None:
        return "threads"
    # A worker process may not start processes of its own.
    is_daemon = multiprocessing.current_process().daemon and given.context is None
    return "threads" if is_daemon else "processes"
