"""The recipe of a torch loader: what the workers do, which they are, and in which memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from torch.utils.data import DistributedSampler, RandomSampler, SequentialSampler, get_worker_info
from torch.utils.data import Subset as TorchSubset
from torch.utils.data._utils import worker as torch_worker

from penstock.collate import ArrayBatch, FrameworkCollate
from penstock.datasets import Subset as OwnSubset
from penstock.datasets.base import is_iterable, spec_of
from penstock.datasets.store.batch_assembly import BatchAssembly, batch_assembly
from penstock.datasets.store.ragged_collate import map_ragged, with_ragged
from penstock.datasets.store.ragged_fields import ragged_forms
from penstock.loader.arguments import refuse_records
from penstock.loader.order import length
from penstock.loader.recipe import Filling, Memory, Recipe, Workers, count_batches_under_way
from penstock.loader.tuning import count_most, is_movable
from penstock.sample import Batch, DatasetLike, Tree, tree_leaves
from penstock.samplers import DistributedSampler as OwnDistributedSampler
from penstock.torch.collate import (
    as_batch,
    as_tensors,
    convert,
    convert_parts,
    default_collate,
    default_convert,
    has_own_functions,
)
from penstock.torch.datasets import Subset, native
from penstock.torch.device import pinning
from penstock.torch.loader.device_decoding import decode_on_device, find_decoding, find_device
from penstock.torch.loader.order import TorchOrder
from penstock.torch.samplers import StatefulDistributedSampler
from penstock.trace import Trace
from penstock.workers import BACKENDS, Job
from penstock.workers.jobs import WorkerStart
from penstock.workers.left_out import SampleRules
from penstock.workers.ray.options import RayWorkers, workers_kind
from penstock.workers.slots import BatchLayout

__all__ = ["choose_backend", "make_recipe"]

_LARGE: Final = 64 << 20
"""Bytes of a batch above which a dataset is asked for its length, which torch does not do here."""
_WHOLE: Final = frozenset({SequentialSampler, RandomSampler})
_DISTRIBUTED: Final = frozenset({DistributedSampler, OwnDistributedSampler, StatefulDistributedSampler})
"""Samplers that draw from all of their dataset; those that give each rank a part of it."""
_SUBSETS: Final = (OwnSubset, Subset, TorchSubset)


def make_recipe(loader: Any, order: TorchOrder, memory: Memory) -> Recipe:
    """Return what ``iter(loader)`` decides.

    Raises ArgumentError if samples are records of a store, which cannot be collated.
    """
    dataset, batched, by_default = native(loader.dataset), order.batched, _collates_by_default(loader)
    if batched and by_default:
        refuse_records(dataset, _SUBSETS)
    decoding = find_decoding(loader)
    spec = _find_spec(loader) if decoding is None else decoding.spec
    pins = pinning.should_pin(loader.pin_memory, loader.pin_memory_device, stacklevel=4)
    rows = getattr(loader.batch_sampler, "batch_size", None)
    if isinstance(rows, int) and spec is not None and rows * sum(leaf.nbytes for leaf in tree_leaves(spec)) > _LARGE:
        rows = min(rows, max(length(dataset) or rows, 1))  # batch_size=10**9 is the whole dataset
    kind = choose_backend(loader)
    context = loader.workers if isinstance(loader.workers, RayWorkers) else loader.multiprocessing_context
    capabilities = BACKENDS.get(kind).capabilities
    limit = count_batches_under_way(loader.num_workers, loader.prefetch_factor)
    collate = convert if by_default and not batched else loader.collate_fn
    if by_default and capabilities.isolated and not has_own_functions():
        collate = FrameworkCollate("torch", batched=batched)  # a worker process need not import torch
    forms = assembly = None
    if batched and loader.collate_fn is default_collate and not order.is_stream:
        forms, assembly = ragged_forms(dataset), batch_assembly(dataset)
        collate = with_ragged(collate, dataset)
    on_device = decoding is not None
    deliver = _Deliver(pins and not on_device, forms)  # what is on the device needs no page-locked memory
    if assembly is not None:
        deliver = _DeliverForm(deliver.pins, forms, assembly)
    filling = None
    if spec is not None:
        device = None if decoding is None else decoding.runtime.device
        pool = memory.slots(limit + 2, pinning.create_slot_lock(device) if pins or on_device else None)
        filling = Filling(BatchLayout(spec, rows if isinstance(rows, int) else 1), pool, deliver.rows)
    page_lock = pinning.create_slot_lock() if deliver.pins and capabilities.pins_memory else None
    made = _ThreadRecipe if _starts_threads(context) and loader.worker_init_fn is not None else Recipe
    recipe = made(
        workers=Workers(
            kind, count_most(loader.num_workers), loader.chunk_size, context, loader.worker_init_fn, page_lock
        ),
        limit=limit, dataset=dataset, is_stream=order.is_stream, batched=batched, collate=collate,
        rules=_make_rules(loader, order), filling=filling, batch_size=loader.batch_size, drop_last=loader.drop_last,
        deliver=deliver.batch, returns_as_given=True,
    )  # fmt: skip
    return recipe if decoding is None else decode_on_device(recipe, decoding)


def choose_backend(loader: Any) -> str:
    """Name of the backend that ``iter(loader)`` chooses; starts and allocates nothing."""
    if not loader.num_workers:
        return "serial"
    if find_device(loader) is not None:
        return "threads"  # a forked process cannot use the device
    if loader.workers != "auto":
        return workers_kind(loader.workers)
    context = loader.multiprocessing_context
    if _starts_threads(context):
        return "threads"
    is_plain = loader.worker_init_fn is None and context is None
    return "threads" if is_plain and get_worker_info() is None and _find_spec(loader) is not None else "processes"


def _starts_threads(context: object) -> bool:
    """Return whether a context's "processes" are threads, as those of MONAI's ``ThreadDataLoader``."""
    process = getattr(context, "Process", None)
    return isinstance(process, type) and issubclass(process, threading.Thread)


def _find_spec(loader: Any) -> Tree | None:
    """Find the spec of one sample, if the dataset fills rows and batches are collated by default."""
    batched = loader._auto_collation  # noqa: SLF001  # torch's name, which a subclass may override
    if not batched or is_iterable(loader.dataset) or not _collates_by_default(loader):
        return None
    return spec_of(native(loader.dataset))


def _collates_by_default(loader: Any) -> bool:
    if loader._auto_collation:  # noqa: SLF001  # as above
        return loader.collate_fn is default_collate and not has_own_functions(of_tensors=False)
    return loader.collate_fn is default_convert


def _make_rules(loader: Any, order: TorchOrder) -> SampleRules:
    sampler = order.sampler
    # An order that somebody else made may be of one split alone: no sample from outside of it replaces one that fails.
    source = getattr(sampler, "dataset" if type(sampler) in _DISTRIBUTED else "data_source", None)
    is_whole = type(sampler) in _WHOLE | _DISTRIBUTED and source is loader.dataset
    population = len(loader.dataset) if is_whole and loader.on_error == "replace" else 0
    return SampleRules(loader.on_error, population, loader.seed_per_sample, is_movable(loader, native(loader.dataset)))


@dataclass(frozen=True, slots=True)
class _Deliver:
    """The last step to the user: tensors, in page-locked memory if ``pins``.

    ``forms``: of ragged fields, where samples are collated by default.
    """

    pins: bool
    forms: Tree | None

    def rows(self, arrays: Tree) -> Batch:
        """Return a batch over the memory of filled rows."""
        return self._pin(as_batch(arrays))

    def batch(self, batch: Batch) -> Batch:
        """Return a collated batch; one that was collated without torch becomes tensors."""
        if isinstance(batch, ArrayBatch):
            batch = convert(batch.batch)
        if self.forms is not None:
            batch = map_ragged(as_tensors, self.forms, batch)
        return self._pin(batch)

    def _pin(self, batch: Batch) -> Batch:
        return pinning.pin_batch(batch) if self.pins else batch


@dataclass(frozen=True, slots=True)
class _DeliverForm(_Deliver):
    """The last step for batches that have a form: their parts become tensors, are pinned, and then split by views."""

    assembly: BatchAssembly

    def rows(self, arrays: Tree) -> Batch:
        return self._split(self.assembly.join(arrays))

    def batch(self, batch: Batch) -> Batch:
        return self._split(batch.batch if isinstance(batch, ArrayBatch) else batch)

    def _split(self, parts: dict[str, Batch]) -> Batch:
        return self.assembly.split(self._pin(convert_parts(parts)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ThreadRecipe(Recipe):
    """Where threads stand for worker processes: ``worker_init_fn`` finds torch's worker info there."""

    def make_job(self, trace: Trace, seed: int, worker_starts: Mapping[int, WorkerStart]) -> Job:
        workers = self.workers
        assert workers.init_fn is not None, "else there is nothing to wrap"
        init = _InitInThread(workers.init_fn, workers.num_workers, seed, self.dataset)
        return Recipe.make_job(replace(self, workers=replace(workers, init_fn=init)), trace, seed, worker_starts)


class _InitInThread:
    """Calls ``worker_init_fn`` in a thread that stands for a worker process, with torch's worker info set meanwhile."""

    _one_at_a_time: Final = threading.Lock()

    def __init__(
        self, worker_init_fn: Callable[[int], None], num_workers: int, seed: int, dataset: DatasetLike
    ) -> None:
        self._call, self._num_workers, self._seed, self._dataset = worker_init_fn, num_workers, seed, dataset

    def __call__(self, worker: int) -> None:
        of_worker = {"num_workers": self._num_workers, "seed": self._seed + worker, "dataset": self._dataset}
        with self._one_at_a_time:  # torch keeps the info in one place for the process
            torch_worker._worker_info = torch_worker.WorkerInfo(id=worker, **of_worker)  # noqa: SLF001  # where torch looks
            try:
                self._call(worker)
            finally:
                torch_worker._worker_info = None  # noqa: SLF001  # as above
