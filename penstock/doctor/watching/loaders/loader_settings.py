"""What decides a loader's speed, by its arguments and its store. Nothing is imported, and no worker is started."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sized
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol

from penstock.doctor.watching.recording import LoaderSettings
from penstock.sample import Batch
from penstock.workers.ray.options import workers_kind

if TYPE_CHECKING:
    from penstock.stores.location import Location

__all__ = ["WatchedLoader", "describe_loader", "describe_remote", "find_cache", "read_start_method"]


class WatchedLoader(Protocol):
    """A loader of torch's or penstock's. Its other arguments are attributes too, as far as it has them."""

    @property
    def dataset(self) -> object:
        """The dataset that gives the samples."""

    @property
    def num_workers(self) -> int:
        """0: the caller builds batches."""

    @property
    def prefetch_factor(self) -> int | None:
        """Batches that a worker builds ahead."""

    @property
    def collate_fn(self) -> Callable[..., object]:
        """Makes a batch of samples."""

    @property
    def worker_init_fn(self) -> Callable[[int], None] | None:
        """The function that is called in each worker."""

    def __iter__(self) -> Iterator[Batch]:
        """A run over its batches."""


def describe_loader(loader: WatchedLoader) -> LoaderSettings:
    """Return the settings of a loader of torch's or penstock's."""
    is_own = _is_of_penstock(loader)
    num_workers = loader.num_workers
    kind = _kind_of_workers(loader, num_workers) if is_own else ("processes" if num_workers else "serial")
    dataset = loader.dataset
    return LoaderSettings(
        library="penstock" if is_own else "torch",
        workers=kind,
        num_workers=num_workers,
        prefetch_factor=(loader.prefetch_factor or 0) if num_workers else 0,
        batch_size=_batch_size(loader),
        pin_memory=bool(getattr(loader, "pin_memory", False)),
        persistent_workers=bool(getattr(loader, "persistent_workers", False)),
        in_order=bool(getattr(loader, "in_order", True)),
        start_method=read_start_method(loader) if kind == "processes" else "",
        dataset=type(dataset).__name__,
        length=_length(dataset),
    )


def _is_of_penstock(loader: WatchedLoader) -> bool:
    return any(base.__module__.startswith("penstock.") for base in type(loader).__mro__)


def _kind_of_workers(loader: WatchedLoader, num_workers: int) -> str:
    kind = workers_kind(getattr(loader, "workers", "processes"))
    if not num_workers:
        return "serial"
    if kind == "auto":
        from penstock.torch.loader.recipe import choose_backend

        return str(choose_backend(loader))
    return kind


def describe_remote(loader: WatchedLoader) -> dict[str, int | str]:
    """Return what a loader of penstock's has fetched from a remote store.

    Returns
    -------
    dict
        The counts of :class:`~penstock.loader.stats.RemoteStats` by name; ``url``, ``objects``, ``store_nbytes`` and
        ``cache_nbytes``, 0 and "" if they are not known. Empty, if nothing was read from a remote store.
    """
    statistics = sys.modules.get("penstock.loader.statistics")
    counts = loader.stats().remote if statistics and isinstance(loader, statistics.LoaderStatistics) else None
    if not counts:
        return {}
    location = _find_location(loader.dataset)
    source = None if location is None else location.remote
    manifest = getattr(getattr(loader.dataset, "store", None), "manifest", None)  # of a sharded pack
    return {
        **asdict(counts),
        "url": "" if source is None else source.url,
        "objects": len(manifest.shards.names if manifest is not None else getattr(source, "objects", ())),
        "store_nbytes": 0 if source is None else source.nbytes if manifest is None else manifest.committed.nbytes,
        "cache_nbytes": getattr(source, "cache_nbytes", 0),
    }


def find_cache(dataset: object) -> str | None:
    """The copies of the dataset's store, if it is remote."""
    location = _find_location(dataset)
    return location.path if location is not None and location.remote is not None else None


def _find_location(dataset: object) -> Location | None:
    locations = sys.modules.get("penstock.stores.location")
    location = getattr(getattr(dataset, "store", None), "location", None)
    return location if locations and isinstance(location, locations.Location) else None


def _batch_size(loader: WatchedLoader) -> int:
    size = getattr(loader, "batch_size", None)
    if size is None:
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return int(size) if isinstance(size, int) else 0


def _length(dataset: object) -> int:
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is not None and isinstance(dataset, torch_data.IterableDataset):
        return -1
    try:
        return len(dataset) if hasattr(dataset, "__getitem__") and isinstance(dataset, Sized) else -1
    except (TypeError, NotImplementedError):
        return -1


def read_start_method(loader: object) -> str:
    """The start method of a loader's processes. Reading it does not fix the program's default."""
    context = getattr(loader, "multiprocessing_context", None)
    if isinstance(context, str):
        return context
    if context is not None:
        return str(context.get_start_method())
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
