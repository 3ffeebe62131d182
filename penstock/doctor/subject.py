"""What is checked: a loader's settings, in one form for every kind of loader, and what its workers are sent.

::

    loader ──Setting──┐                                      who runs samples, how many, how they come to be
           ├─roots────┼── Subject ── graph                   the objects that a worker gets, by attribute path
           │          │           ── code                    the user's functions that run in it
           │          │           ── pickled                 a trial of what spawn and forkserver do
           └ dataset ─┘   rules take a Subject and yield findings

Everything is computed once, when the first rule asks; nothing starts a worker.
"""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch.utils.data

from penstock.datasets.base import is_iterable, spec_of
from penstock.datasets.walk import Graph, walk
from penstock.doctor.code import Code
from penstock.doctor.pickled import Pickled, try_pickling
from penstock.errors import ArgumentError
from penstock.loader import DataLoader as NumpyDataLoader
from penstock.torch.collate import default_collate
from penstock.torch.datasets import native

__all__ = ["Setting", "Subject", "usable_cores"]


@dataclass(frozen=True, slots=True)
class Setting:
    """How samples are made.

    Parameters
    ----------
    workers : {"serial", "threads", "processes"}
        Who makes them. A dataset without a loader is judged as if processes did.
    num_workers : int, optional
        How many; None without a loader.
    start_method : {"fork", "spawn", "forkserver"}, optional
        How processes come to be; None where there are none.
    keyed : bool
        Whether the loader seeds every sample by itself.
    """

    workers: Literal["serial", "threads", "processes"]
    num_workers: int | None
    start_method: str | None
    keyed: bool = False

    @property
    def forks(self) -> bool:
        """Whether workers begin as copies of this process."""
        return self.start_method == "fork"

    @property
    def pickles(self) -> bool:
        """Whether the dataset is pickled on its way to workers."""
        return self.start_method in {"spawn", "forkserver"}

    @property
    def each(self) -> str:
        """Workers, in words."""
        if self.num_workers is None:
            return "each worker"
        return "the worker" if self.num_workers == 1 else f"each of {self.num_workers} workers"


class Subject:
    """A loader (or a dataset alone) as rules see it.

    Parameters
    ----------
    given : DataLoader or dataset
        As the user gave it. A wrapper that has ``loader`` is looked through.
    samples : int
        How many samples may be made to look at them.
    """

    def __init__(self, given: Any, samples: int) -> None:
        self.samples = samples
        self.loader = _loader_in(given)
        self.dataset = given if self.loader is None else self.loader.dataset
        if not any(hasattr(type(self.dataset), name) for name in ("__getitem__", "__getitems__", "__iter__")):
            raise ArgumentError(
                f"check takes a DataLoader or a dataset, but got {type(self.dataset).__name__}, which has neither "
                "__getitem__ nor __iter__"
            )
        self.is_stream = is_iterable(self.dataset)
        self.setting = _setting(self.loader, self.dataset)

    def given(self, name: str, default: Any = None) -> Any:
        """An argument of the loader; ``default`` if it has none of this name."""
        return getattr(self.loader, name, default)

    @cached_property
    def roots(self) -> list[tuple[str, Any]]:
        """What a worker is sent, by the names of the loader's arguments."""
        named = [(name, self.given(name)) for name in ("collate_fn", "worker_init_fn")]
        return [("dataset", self.dataset), *((name, value) for name, value in named if value is not None)]

    @cached_property
    def graph(self) -> Graph:
        """The objects in it."""
        return walk(self.roots)

    @cached_property
    def code(self) -> Code:
        """The user's functions that make samples."""
        return Code(place.value for place in self.graph.places)

    @cached_property
    def pickled(self) -> Pickled | None:
        """What pickling it would do; None where nothing is pickled."""
        return try_pickling(self.roots) if self.setting.pickles else None


def usable_cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Cores that this process may use: its affinity, and the quota of its control group (a file of cgroup v2)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        limit_us, period_us = quota.read_text().split()
        return max(1, min(cores, -(-int(limit_us) // int(period_us))))
    except (OSError, ValueError):  # no control group, or "max": no quota
        return cores


def _loader_in(given: Any) -> Any:
    inner = getattr(given, "loader", None)
    for candidate in (given, inner):
        if isinstance(candidate, (torch.utils.data.DataLoader, NumpyDataLoader)):
            return candidate
    return None


def _setting(loader: Any, dataset: Any) -> Setting:
    if loader is None:
        return Setting("processes", None, _start_method(None))
    keyed = bool(getattr(loader, "seed_per_sample", False))
    if loader.num_workers == 0:
        return Setting("serial", 0, None, keyed)
    workers = getattr(loader, "workers", "processes")
    if workers == "auto":
        workers = _chosen(loader, dataset)
    if workers == "threads":
        return Setting("threads", loader.num_workers, None, keyed)
    return Setting("processes", loader.num_workers, _start_method(loader), keyed)


def _chosen(loader: Any, dataset: Any) -> Literal["threads", "processes"]:
    """Who will work for a loader of ``penstock.torch`` that decides at ``iter()``, without asking it to begin."""
    by_default = loader.batch_sampler is not None and loader.collate_fn is default_collate
    plain = loader.worker_init_fn is None and loader.multiprocessing_context is None
    fills = by_default and not is_iterable(dataset) and spec_of(native(dataset)) is not None
    return "threads" if plain and fills else "processes"


def _start_method(loader: Any) -> str:
    """The start method of a loader's processes; asking must not settle the program's own choice."""
    context = getattr(loader, "multiprocessing_context", None)
    if isinstance(context, str):
        return context
    if context is not None:
        return str(context.get_start_method())
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
