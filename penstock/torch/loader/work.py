"""Who works, on what, and with which memory: the one place where a torch loader chooses job and backend.

====================  =========  =================================================
dataset               workers    job
====================  =========  =================================================
fills rows            threads    rows written into slots, delivered as tensors
any other, map-style  processes  samples collated by torch's rules
stream                processes  a replica in each worker; one stream without
====================  =========  =================================================
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from torch.utils.data import DistributedSampler, RandomSampler, SequentialSampler, get_worker_info
from torch.utils.data import Subset as TorchSubset
from torch.utils.data._utils import worker as torch_worker

from penstock.collate import TorchCollate, Untorched
from penstock.datasets import Subset as OwnSubset
from penstock.datasets.base import is_iterable, spec_of
from penstock.loader.arguments import refuse_records
from penstock.loader.faults import Rules
from penstock.loader.jobs import FillJob, Opening, SampleJob, StreamJob
from penstock.loader.order import length
from penstock.sample import Tree, tree_leaves
from penstock.samplers import DistributedSampler as OwnDistributedSampler
from penstock.slots import Layout, SlotPool
from penstock.torch.collate import as_batch, default_collate, default_convert, has_own_functions
from penstock.torch.datasets import Subset, native
from penstock.torch.device import pinning
from penstock.torch.loader.order import innermost
from penstock.torch.samplers import StatefulDistributedSampler
from penstock.trace import Trace
from penstock.workers import BACKENDS, Backend, Job

__all__ = ["Memory", "Work", "kind_of"]


_LARGE: Final = 64 << 20
"""Bytes of a batch above which a dataset is asked how many rows it has at all, which torch does not do here."""
_WHOLE: Final = frozenset({SequentialSampler, RandomSampler})
_SHARING: Final = frozenset({DistributedSampler, OwnDistributedSampler, StatefulDistributedSampler})
"""Samplers that draw from all of their dataset; those that give each rank a share of it."""
_SUBSETS: Final = (OwnSubset, Subset, TorchSubset)


class Memory:
    """A loader's slots, which outlive its epochs; made when the first are needed."""

    def __init__(self) -> None:
        self.pool: SlotPool | None = None

    def slots(self, keep: int, *, pin: bool) -> SlotPool:
        """The pool; page-locked if batches are to be pinned."""
        if self.pool is None:
            self.pool = SlotPool(keep=keep, page_lock=_lock(pin=pin))
        return self.pool


def _nbytes(spec: Tree) -> int:
    return sum(leaf.nbytes for leaf in tree_leaves(spec))


def _lock(*, pin: bool) -> Any:
    return pinning.slot_lock() if pin else None


@dataclass(frozen=True, slots=True)
class Work:
    """What one ``iter()`` of a loader found to do; kept as long as its workers.

    Parameters
    ----------
    kind : str
        Name of the backend.
    dataset : dataset
        Which the job works on.
    stream : bool
        Whether it is a stream.
    spec : tree of ArraySpec, optional
        Of one sample, if the dataset fills.
    pin : bool
        Whether batches go to page-locked memory.
    batched : bool
        Whether samples come in batches.
    pool : SlotPool, optional
        For rows.
    rules : Rules
        What becomes of samples that fail, and how generators are seeded.
    arguments : mapping
        Of the loader, by name.
    """

    kind: str
    dataset: Any
    stream: bool
    spec: Tree | None
    pin: bool
    batched: bool
    pool: SlotPool | None
    rules: Rules
    arguments: Mapping[str, Any]

    @classmethod
    def of(cls, loader: Any, memory: Memory) -> Work:
        """The work that ``loader`` has."""
        dataset, stream = native(loader.dataset), is_iterable(loader.dataset)
        batched = loader._auto_collation  # noqa: SLF001  # torch's name, which a subclass may override
        if batched and _collates_by_default(loader):
            refuse_records(dataset, _SUBSETS)
        spec = _spec(loader)
        pin = pinning.wanted(loader.pin_memory, loader.pin_memory_device, stacklevel=4)
        rows = getattr(loader.batch_sampler, "batch_size", None)
        if isinstance(rows, int) and spec is not None and rows * _nbytes(spec) > _LARGE:
            rows = min(rows, max(length(dataset) or rows, 1))  # batch_size=10**9 is the whole dataset
        names = ("num_workers", "worker_init_fn", "collate_fn", "batch_size", "drop_last", "chunk_size")
        arguments = {name: getattr(loader, name) for name in names}
        arguments |= {
            "by_default": _collates_by_default(loader),
            "context": loader.multiprocessing_context,
            "rows": rows if isinstance(rows, int) else 1,
            "limit": loader.num_workers * (loader.prefetch_factor or 0) or 1,
        }
        pool = memory.slots(arguments["limit"] + 2, pin=pin) if spec is not None else None
        return cls(kind_of(loader), dataset, stream, spec, pin, batched, pool, _rules(loader), arguments)

    @property
    def limit(self) -> int:
        """Most batches under way or ready."""
        return int(self.arguments["limit"])

    @property
    def processes(self) -> int:
        """Worker processes; 0 where batches are built in this one."""
        return int(self.arguments["num_workers"]) if self.kind == "processes" else 0

    def backend(self, base_seed: int) -> Backend:
        """A backend of this kind, not started."""
        given = self.arguments
        make: Any = BACKENDS.get(self.kind)
        if self.kind != "processes":
            own: Backend = make(given["num_workers"], given["chunk_size"])
            return own
        backend: Backend = make(
            given["num_workers"], given["chunk_size"], context=given["context"], base_seed=base_seed,
            page_lock=_lock(pin=self.pin),
        )  # fmt: skip
        return backend

    def job(self, trace: Trace, seed: int, openings: Mapping[int, Opening]) -> Job:
        """What is done with an epoch's tasks.

        Parameters
        ----------
        trace : Trace
            The epoch's.
        seed : int
            Of the samples' keys.
        openings : mapping
            How each worker begins.
        """
        given = self.arguments
        init = given["worker_init_fn"]
        if init is not None and _starts_threads(given["context"]):
            init = _InThread(init, given["num_workers"], seed, self.dataset)
        if self.spec is not None:
            assert self.pool is not None, "made with the spec"
            layout = Layout(self.spec, given["rows"])
            return FillJob(trace, init, self.dataset, layout, self.pool, self._deliver_rows, self.rules)
        collate, deliver = given["collate_fn"], self._deliver
        if given["by_default"] and self.processes:
            collate = TorchCollate(batched=self.batched)  # torch need not be there
        if self.stream:
            return StreamJob(
                trace, init, self.dataset, (given["batch_size"] or 1) if self.batched else None, given["drop_last"],
                collate, seed,
                deliver=deliver, openings=openings, rules=self.rules,
            )  # fmt: skip
        return SampleJob(
            trace, init, self.dataset, collate, batched=self.batched, deliver=deliver, openings=openings, stateful=True,
            rules=self.rules, as_given=True,
        )  # fmt: skip

    def _deliver_rows(self, arrays: Any) -> Any:
        return self._pinned(as_batch(arrays))

    def _deliver(self, batch: Any) -> Any:
        if isinstance(batch, Untorched):
            batch = default_convert(batch.batch)  # type: ignore[no-untyped-call]  # torch's is untyped
        return self._pinned(batch)

    def _pinned(self, batch: Any) -> Any:
        return pinning.pin(batch) if self.pin else batch


def kind_of(loader: Any) -> str:
    """Name of the backend that ``iter(loader)`` chooses; starts and allocates nothing."""
    if not loader.num_workers:
        return "serial"
    if loader.workers != "auto":
        return str(loader.workers)
    context = loader.multiprocessing_context
    if _starts_threads(context):
        return "threads"
    plain = loader.worker_init_fn is None and context is None
    return "threads" if plain and get_worker_info() is None and _spec(loader) is not None else "processes"


def _starts_threads(context: Any) -> bool:
    """Whether a context's "processes" are threads, as those of MONAI's ``ThreadDataLoader``."""
    process = getattr(context, "Process", None)
    return isinstance(process, type) and issubclass(process, threading.Thread)


class _InThread:
    """Calls ``worker_init_fn`` in a thread that stands for a worker process: torch's worker info is there meanwhile."""

    _one_at_a_time: Final = threading.Lock()

    def __init__(self, worker_init_fn: Any, num_workers: int, seed: int, dataset: Any) -> None:
        self._call, self._num_workers, self._seed, self._dataset = worker_init_fn, num_workers, seed, dataset

    def __call__(self, worker: int) -> None:
        of_worker = {"num_workers": self._num_workers, "seed": self._seed + worker, "dataset": self._dataset}
        with self._one_at_a_time:  # torch keeps the info in one place for the process
            torch_worker._worker_info = torch_worker.WorkerInfo(id=worker, **of_worker)  # noqa: SLF001  # where torch looks
            try:
                self._call(worker)
            finally:
                torch_worker._worker_info = None  # noqa: SLF001  # as above


def _spec(loader: Any) -> Tree | None:
    """Of one sample, if the dataset fills and batches are collated by default."""
    batched = loader._auto_collation  # noqa: SLF001  # as above
    if not batched or is_iterable(loader.dataset) or not _collates_by_default(loader):
        return None
    return spec_of(native(loader.dataset))


def _collates_by_default(loader: Any) -> bool:
    if loader._auto_collation:  # noqa: SLF001  # as above
        return loader.collate_fn is default_collate and not has_own_functions()
    return loader.collate_fn is default_convert


def _rules(loader: Any) -> Rules:
    sampler: Any = innermost(loader._index_sampler)  # noqa: SLF001  # torch's name for what is iterated
    # an order that somebody else made may be of one split alone: no stand-in comes from outside of it
    source = getattr(sampler, "dataset" if type(sampler) in _SHARING else "data_source", None)
    whole = type(sampler) in _WHOLE | _SHARING and source is loader.dataset
    population = len(loader.dataset) if whole and loader.on_error == "replace" else 0
    return Rules(loader.on_error, population, loader.seed_per_sample)
