"""Rules about a loader's arguments, and what it asks of its dataset.

These are loader-setting, length, unsharded-stream and stop-iteration.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

import torch
import torch.utils.data

from penstock.datasets.base import IterableDataset
from penstock.datasets.user_code import is_user_code
from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.subject import Subject
from penstock.loader import DataLoader as NumpyDataLoader
from penstock.samplers import RandomSampler, SequentialSampler
from penstock.system.control_group import count_usable_cores
from penstock.wording import counted

__all__ = [
    "find_doubtful_settings",
    "find_missing_length",
    "find_stop_iteration",
    "find_unsharded_stream",
    "is_unsharded",
]


def find_doubtful_settings(subject: Subject) -> Iterator[Finding]:
    """Find more workers than cores, epochs without a batch, and pinning without an accelerator."""
    if subject.loader is None:
        return
    yield from _find_too_many_workers(subject)
    yield from _find_empty_epoch(subject)
    if subject.argument("pin_memory", False) and not torch.accelerator.is_available():
        text = "There is no accelerator, so nothing is pinned, and the loader warns in each epoch."
        advice = "Pass pin_memory=torch.accelerator.is_available()."
        yield Finding("loader-setting", "note", "pin_memory=True", text, advice)


def _find_too_many_workers(subject: Subject) -> Iterator[Finding]:
    workers, cores = subject.settings.num_workers or 0, count_usable_cores()
    if workers > cores:
        text = (
            f"This process may use {counted(cores, 'core')}. More workers than cores wait for one another, and each "
            "takes memory."
        )
        advice = f"Pass num_workers={cores} or fewer."
        yield Finding("loader-setting", "warning", f"num_workers={workers}", text, advice)


def _find_empty_epoch(subject: Subject) -> Iterator[Finding]:
    batch_size, loader = subject.argument("batch_size"), subject.loader
    if subject.is_stream or loader is None or not subject.argument("drop_last", False):
        return
    if not isinstance(batch_size, int):
        return
    try:
        samples = len(loader.sampler)
    except Exception:  # noqa: BLE001  # no length; the rule `length` reports datasets without one
        return
    if 0 < samples < batch_size:
        text = f"The sampler has {counted(samples, 'sample')}, and batch_size={batch_size}, so every epoch is empty."
        advice = "Pass a smaller batch_size, or drop_last=False."
        yield Finding("loader-setting", "error", "drop_last=True", text, advice)


_NEED_LENGTH = (
    torch.utils.data.SequentialSampler, torch.utils.data.RandomSampler, SequentialSampler, RandomSampler,
)  # fmt: skip


def find_missing_length(subject: Subject) -> Iterator[Finding]:
    """Find a ``__len__`` that is missing or fails, if the loader's sampler needs it."""
    if subject.is_stream or (subject.loader is not None and not isinstance(subject.loader.sampler, _NEED_LENGTH)):
        return
    kind = type(subject.dataset).__qualname__
    advice = "Define __len__ to return the number of samples, or pass a sampler."
    if not hasattr(type(subject.dataset), "__len__"):
        text = f"{kind} has no __len__, so the sampler cannot know which indices exist."
        yield Finding("length", "error", "dataset", text, advice)
        return
    try:
        len(subject.dataset)
    except Exception as error:  # noqa: BLE001  # the user's code may raise anything: that is the finding
        text = f"len(dataset) raises {type(error).__name__}: {error}."
        yield Finding("length", "error", f"dataset ({kind}.__len__)", text, advice)


def find_unsharded_stream(subject: Subject) -> Iterator[Finding]:
    """Find streams whose code does not read the worker's id although there are several workers."""
    settings, dataset = subject.settings, subject.dataset
    if settings.kind != "processes" or (settings.num_workers or 0) < 2 or not is_unsharded(subject):
        return
    text = (
        f"{settings.each_worker.capitalize()} iterates a copy of the dataset, whose code does not call "
        f"get_worker_info(), so an epoch has every sample {settings.num_workers} times."
    )
    advice = (
        "In __iter__, call torch.utils.data.get_worker_info() and yield every num_workers-th sample, beginning with "
        "sample id. Or pass num_workers=1."
    )
    where = f"dataset ({type(dataset).__qualname__}.__iter__)"
    yield Finding("unsharded-stream", "error", where, text, advice)


def is_unsharded(subject: Subject) -> bool:
    """Return whether it is a stream whose code, as far as it is the user's, gives every worker all samples."""
    if not subject.is_stream or subject.argument("worker_init_fn") is not None:
        return False
    if subject.functions.mentions("get_worker_info", "worker_info"):
        return False
    if not is_user_code(type(subject.dataset)) or not any(each.entry_point == "__iter__" for each in subject.functions):
        return False  # the source of installed packages is not read
    # a stream of an installed package may divide its samples itself
    return not any(_is_packaged_stream(place.value) for place in subject.graph.objects)


def _is_packaged_stream(value: object) -> bool:
    kind = type(value)
    return issubclass(kind, (torch.utils.data.IterableDataset, IterableDataset)) and not is_user_code(kind)


def find_stop_iteration(subject: Subject) -> Iterator[Finding]:
    """Find ``raise StopIteration`` in ``__getitem__``, in transforms, and in the functions that they call."""
    for function in subject.functions:
        iterates = function.entry_point in {"__iter__", "__next__"} or function.function.__name__ == "__next__"
        if iterates or inspect.isgeneratorfunction(function.function):
            continue
        raises = [node for node in ast.walk(function.tree) if isinstance(node, ast.Raise)]
        lines = [node.lineno for node in raises if _is_stop_iteration(node.exc)]
        if not lines:
            continue
        is_numpy = isinstance(subject.loader, NumpyDataLoader)
        is_penstock = is_numpy or type(subject.loader).__module__.startswith("penstock.")
        effect = (
            "penstock turns it into a SampleError, but torch's loader ends the epoch"
            if is_penstock
            else "the loader ends the epoch there, and the remaining samples are lost, without an error"
        )
        text = f"This function raises StopIteration: {effect}."
        advice = "Raise IndexError or ValueError instead."
        yield function.describe("stop-iteration", "error", lines, text, advice)


def _is_stop_iteration(raised: ast.expr | None) -> bool:
    if isinstance(raised, ast.Call):
        raised = raised.func
    return isinstance(raised, ast.Name) and raised.id == "StopIteration"
