"""A loader with other arguments: a copy that shares dataset, sampler and collation with the user's loader.

The copy is iterated in a forked child only (:mod:`.trials`), so the user's loader is never touched.
"""

from __future__ import annotations

import copy
import ctypes
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.doctor.trials.ablation import GivenStage, NotApplicableError, give_back
from penstock.sample import Batch, Sample, tree_leaves, tree_map
from penstock.workers.ray.options import workers_kind

if TYPE_CHECKING:
    from penstock.doctor.watching.loaders.loader_settings import WatchedLoader

__all__ = ["Change", "NotApplicableError", "apply_change", "limit_threads"]

_MANY: Final = 8
"""Small tensors in a sample from which joining them is tried."""
_LARGE: Final = 4096
"""Elements of an array from which its bytes matter."""
_SETTERS: Final = (
    "omp_set_num_threads",
    "openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "MKL_Set_Num_Threads",
)


@dataclass(frozen=True, slots=True)
class Change:
    """What is different from the loader that the script uses."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the loader by name, such as ``num_workers``."""
    worker_threads: int = 0  # threads that libraries may use in each worker; 0: as it is
    narrows: bool = False  # send large float arrays as uint8, as a normalisation on the device would allow
    joins: bool = False  # send the small arrays of a batch as one
    given: GivenStage | None = None  # the stage that costs nothing, since what it gives was kept

    def count_workers(self, loader: WatchedLoader) -> int:
        """The number of workers of ``loader`` with this change."""
        return int(self.arguments.get("num_workers", loader.num_workers))

    def __str__(self) -> str:
        parts = [f"{name}={value!r}" for name, value in self.arguments.items()]
        parts += [f"{self.worker_threads} threads in each worker"] if self.worker_threads else []
        parts += ["large arrays as uint8"] if self.narrows else []
        parts += ["small arrays joined"] if self.joins else []
        parts += [f"{self.given} given back from memory"] if self.given else []
        return ", ".join(parts) or "the present setting"


def apply_change(loader: object, change: Change) -> WatchedLoader:
    """A copy of ``loader`` with ``change``; starts nothing.

    Parameters
    ----------
    loader : DataLoader
        Of torch or penstock.

    Notes
    -----
    Memory is not page-locked in the copy, since a forked child cannot use the device.
    """
    loader = cast("WatchedLoader", loader)
    changed = copy.copy(loader)
    arguments = dict(change.arguments)
    workers = change.count_workers(loader)
    if workers == 0:
        arguments |= {
            "prefetch_factor": None,
            "persistent_workers": False,
            "multiprocessing_context": None,
            "timeout": 0,
        }
    elif arguments.get("prefetch_factor", loader.prefetch_factor) is None:
        arguments["prefetch_factor"] = 2
    if getattr(changed, "pin_memory", False):
        arguments["pin_memory"] = False
    if change.worker_threads:
        arguments["worker_init_fn"] = _LimitedThreads(loader.worker_init_fn, change.worker_threads)
    if change.narrows:
        arguments["collate_fn"] = NarrowingCollate(loader.collate_fn)
    if change.joins:
        arguments["collate_fn"] = JoiningCollate(loader.collate_fn)
    kind = workers_kind(getattr(loader, "workers", ""))
    if kind == "serial" and workers:
        arguments["workers"] = "processes"
    elif kind in {"threads", "processes", "ray"} and not workers:
        arguments["workers"] = "serial" if hasattr(loader, "_order") else "auto"
    fields = changed.__dict__
    for name, value in arguments.items():
        # torch keeps the context behind a property; the other names are plain attributes, some guarded by __setattr__.
        fields["_DataLoader__multiprocessing_context" if name == "multiprocessing_context" else name] = value
    if "_iterator" in fields:
        fields["_iterator"] = None
    if "multiprocessing_context" in arguments and not _is_torch(loader):
        fields["multiprocessing_context"] = None
    if change.given:
        give_back(fields, loader, change.given)
    return changed


def _is_torch(loader: WatchedLoader) -> bool:
    return any(kind.__module__.startswith("torch.utils.data") for kind in type(loader).__mro__)


@dataclass(slots=True)
class _LimitedThreads:
    """A ``worker_init_fn`` that calls the user's, then limits the threads of libraries."""

    before: Callable[[int], None] | None
    threads: int

    def __call__(self, worker: int) -> None:
        if self.before is not None:
            self.before(worker)
        limit_threads(self.threads)


def limit_threads(threads: int) -> None:
    """Let the libraries that are loaded in this process compute with ``threads`` threads."""
    torch, cv2 = sys.modules.get("torch"), sys.modules.get("cv2")
    if torch is not None:
        torch.set_num_threads(threads)
    if cv2 is not None:
        cv2.setNumThreads(0 if threads == 1 else threads)
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(threads)  # for libraries that are loaded later
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:  # no Linux
        return
    for path in sorted(set(re.findall(r"(/\S*(?:openblas|libgomp|libomp|libiomp|mkl_rt)\S*\.so\S*)", maps))):
        try:
            library = ctypes.CDLL(path, mode=getattr(os, "RTLD_NOLOAD", 0) | os.RTLD_NOW)
        except OSError:  # replaced since it was loaded
            continue
        for name in _SETTERS:
            setter = getattr(library, name, None)
            if setter is not None:
                setter(ctypes.c_int(threads))


@dataclass(slots=True)
class NarrowingCollate:
    """A ``collate_fn`` that puts zeros of uint8 in the place of large float arrays.

    A dataset that returns uint8 converts nothing, so the trial does not either.
    """

    collate: Callable[[list[Sample]], Batch]

    def __call__(self, samples: list[Sample]) -> Batch:
        return self.collate(tree_map(_narrow, samples))


@dataclass(slots=True)
class JoiningCollate:
    """A ``collate_fn`` that returns the small arrays of all samples as one array for each type, and the rest collated.

    Its time is that of samples which hold one array each.
    """

    collate: Callable[[list[Sample]], Batch]

    def __call__(self, samples: list[Sample]) -> Batch:
        torch = sys.modules.get("torch")
        small: dict[object, list[Sample]] = {}

        def take(leaf: Sample) -> object:
            if torch is not None and isinstance(leaf, torch.Tensor) and leaf.numel() < _LARGE:
                small.setdefault(leaf.dtype, []).append(leaf.reshape(-1))
                return 0
            return leaf

        rest = [tree_map(take, sample) for sample in samples]
        if sum(map(len, small.values())) < _MANY * len(rest):
            raise NotApplicableError("samples hold few small tensors")
        large = [leaf for sample in rest for leaf in tree_leaves(sample) if hasattr(leaf, "shape")]
        joined = {} if torch is None else {str(dtype): torch.cat(leaves) for dtype, leaves in small.items()}
        return (joined, self.collate(rest) if large else len(rest))


def _narrow(leaf: Sample) -> object:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(leaf, torch.Tensor):
        is_large = leaf.is_floating_point() and leaf.numel() >= _LARGE
        return torch.zeros(leaf.shape, dtype=torch.uint8) if is_large else leaf
    if numpy is not None and isinstance(leaf, numpy.ndarray):
        return numpy.zeros(leaf.shape, numpy.uint8) if leaf.dtype.kind == "f" and leaf.size >= _LARGE else leaf
    return leaf
