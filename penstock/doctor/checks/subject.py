"""What :func:`penstock.doctor.check` examines: a loader (or a dataset), and what its workers receive.

::

    loader ──settings──┐                                    kind and number of workers, start method
           ├──roots────┼── Subject ── graph                 objects that a worker receives, by attribute path
           │           │           ── functions             the user's functions that run in a worker
           │           │           ── pickling              a trial of what spawn and forkserver do
           └─ dataset ─┘   rules take a Subject and yield findings

Each part is computed once, when the first rule reads it. No worker is started, and the program's start method is not
fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, cast

import torch.utils.data

from penstock.datasets.base import is_iterable
from penstock.datasets.object_graph import ObjectGraph, find_objects
from penstock.doctor.checks.functions import UserFunctions
from penstock.doctor.checks.pickling import PicklingResult, try_pickling
from penstock.doctor.watching.loaders.loader_settings import read_start_method
from penstock.errors import ArgumentError
from penstock.loader import DataLoader as NumpyDataLoader
from penstock.loader.tuning import AutoCount
from penstock.torch.loader.recipe import choose_backend

__all__ = ["Loader", "Subject", "WorkerSettings"]


class Loader(Protocol):
    """What the loaders of torch and penstock have in common, as far as it is examined."""

    dataset: object
    num_workers: int
    sampler: Sized
    collate_fn: Callable[[object], object]

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of the workers that make samples."""

    kind: Literal["serial", "threads", "processes"]
    """The kind of worker. A dataset without a loader is checked as if processes read it."""
    num_workers: int | None  # number of workers; None without a loader
    start_method: str | None  # {"fork", "spawn", "forkserver"}: how worker processes start; None if there are none
    seeds_samples: bool = False  # whether the loader seeds the global generators for samples or batches

    @property
    def uses_fork(self) -> bool:
        """Whether workers start as copies of this process."""
        return self.start_method == "fork"

    @property
    def pickles_dataset(self) -> bool:
        """Whether the dataset is pickled and sent to the workers."""
        return self.start_method in {"spawn", "forkserver"}

    @property
    def each_worker(self) -> str:
        """The workers, in words for a finding."""
        if self.num_workers is None:
            return "each worker"
        return "the worker" if self.num_workers == 1 else f"each of {self.num_workers} workers"


class Subject:
    """A loader, or a dataset alone, in the form that rules read.

    ``loader_or_dataset``: what the user passed to ``check``. For a wrapper with an attribute ``loader``, that loader is
    examined. ``samples``: number of samples that a rule may load. Raises ArgumentError if it is neither a loader nor a
    dataset.
    """

    def __init__(self, loader_or_dataset: object, samples: int) -> None:
        self.samples = samples
        self.loader = _find_loader(loader_or_dataset)
        self.dataset: Any = loader_or_dataset if self.loader is None else self.loader.dataset
        if not any(hasattr(type(self.dataset), name) for name in ("__getitem__", "__getitems__", "__iter__")):
            raise ArgumentError(
                f"loader must be a DataLoader or a dataset, got {type(self.dataset).__name__}, which has neither "
                "__getitem__ nor __iter__"
            )
        self.is_stream = is_iterable(self.dataset)
        self.settings: WorkerSettings = _read_worker_settings(self.loader)

    def argument(self, name: str, default: object = None) -> object:
        """Return an argument of the loader; ``default`` if it has none of this name."""
        value: object = getattr(self.loader, name, default)
        return value

    @cached_property
    def roots(self) -> list[tuple[str, object]]:
        """The objects that a worker receives, by the names of the loader's arguments."""
        named = [(name, self.argument(name)) for name in ("collate_fn", "worker_init_fn")]
        return [("dataset", self.dataset), *((name, value) for name, value in named if value is not None)]

    @cached_property
    def graph(self) -> ObjectGraph:
        """The objects that can be reached from :attr:`roots`."""
        return find_objects(self.roots)

    @cached_property
    def functions(self) -> UserFunctions:
        """The user's functions that make samples."""
        return UserFunctions(place.value for place in self.graph.objects)

    @cached_property
    def pickling(self) -> PicklingResult | None:
        """The result of pickling :attr:`roots`; None if the loader pickles nothing."""
        return try_pickling(self.roots) if self.settings.pickles_dataset else None


def _find_loader(value: object) -> Loader | None:
    for candidate in (value, getattr(value, "loader", None)):
        if isinstance(candidate, (torch.utils.data.DataLoader, NumpyDataLoader)):
            return cast("Loader", candidate)
    return None


def _read_worker_settings(loader: Loader | None) -> WorkerSettings:
    """Read the settings of ``loader``; those of a dataset alone if it is None."""
    if loader is None:
        return WorkerSettings("processes", None, read_start_method(None))
    seeds_samples, workers = bool(getattr(loader, "seed_per_sample", False)), loader.num_workers
    if workers == 0:
        return WorkerSettings("serial", 0, None, seeds_samples)
    kind = getattr(loader, "workers", "processes")
    if kind == "auto":
        kind = choose_backend(loader)
    if kind == "threads":
        return WorkerSettings("threads", workers, None, seeds_samples)
    return WorkerSettings(
        "processes", workers, read_start_method(loader), seeds_samples or isinstance(workers, AutoCount)
    )
