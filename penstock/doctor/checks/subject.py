"""What :func:`penstock.doctor.check` examines: a loader (or a dataset), and what its workers receive.

::

    loader ──settings──┐                                    kind and number of workers, start method
           ├──roots────┼── Subject ── graph                 objects that a worker receives, by attribute path
           │           │           ── functions             the user's functions that run in a worker
           │           │           ── pickling              a trial of what spawn and forkserver do
           └─ dataset ─┘   rules take a Subject and yield findings

Each part is computed once, when the first rule reads it. No worker is started.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch.utils.data

from penstock.datasets.base import is_iterable
from penstock.datasets.object_graph import ObjectGraph, find_objects
from penstock.doctor.checks.functions import UserFunctions
from penstock.doctor.checks.pickling import PicklingResult, try_pickling
from penstock.doctor.checks.settings import WorkerSettings, read_worker_settings
from penstock.errors import ArgumentError
from penstock.loader import DataLoader as NumpyDataLoader

__all__ = ["Subject"]


class Subject:
    """A loader, or a dataset alone, in the form that rules read.

    Parameters
    ----------
    loader_or_dataset : DataLoader or dataset
        What the user passed to ``check``. For a wrapper with an attribute ``loader``, that loader is examined.
    samples : int
        Number of samples that a rule may load.

    Raises
    ------
    ArgumentError
        If it is neither a loader nor a dataset.
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
        self.settings: WorkerSettings = read_worker_settings(self.loader)

    def argument(self, name: str, default: Any = None) -> Any:
        """An argument of the loader; ``default`` if it has none of this name."""
        return getattr(self.loader, name, default)

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


def _find_loader(value: object) -> Any:
    inner = getattr(value, "loader", None)
    for candidate in (value, inner):
        if isinstance(candidate, (torch.utils.data.DataLoader, NumpyDataLoader)):
            return candidate
    return None
