"""How a loader's samples are made: by which kind of worker, how many, and how the workers start.

:class:`~.subject.Subject` reads these settings from the loader, in one form for every kind of loader.
Nothing here starts a worker or fixes the program's start method.
"""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass
from typing import Any, Literal

from penstock.torch.loader.recipe import choose_backend

__all__ = ["WorkerSettings", "read_worker_settings"]


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How samples are made.

    Parameters
    ----------
    kind : {"serial", "threads", "processes"}
        The kind of worker. A dataset without a loader is checked as if processes read it.
    num_workers : int, optional
        Number of workers; None without a loader.
    start_method : {"fork", "spawn", "forkserver"}, optional
        How worker processes start; None if there are none.
    seeds_samples : bool
        Whether the loader seeds the global generators before each sample.
    """

    kind: Literal["serial", "threads", "processes"]
    num_workers: int | None
    start_method: str | None
    seeds_samples: bool = False

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


def read_worker_settings(loader: Any) -> WorkerSettings:
    """Read the settings of ``loader``; those of a dataset alone if it is None."""
    if loader is None:
        return WorkerSettings("processes", None, _read_start_method(None))
    seeds_samples = bool(getattr(loader, "seed_per_sample", False))
    if loader.num_workers == 0:
        return WorkerSettings("serial", 0, None, seeds_samples)
    kind = getattr(loader, "workers", "processes")
    if kind == "auto":
        kind = choose_backend(loader)
    if kind == "threads":
        return WorkerSettings("threads", loader.num_workers, None, seeds_samples)
    return WorkerSettings("processes", loader.num_workers, _read_start_method(loader), seeds_samples)


def _read_start_method(loader: object) -> str:
    """The start method of a loader's processes. Reading it does not fix the program's default."""
    context = getattr(loader, "multiprocessing_context", None)
    if isinstance(context, str):
        return context
    if context is not None:
        return str(context.get_start_method())
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
