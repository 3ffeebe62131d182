"""Rule unsharded-stream: an iterable dataset that every worker yields in full."""

from __future__ import annotations

from collections.abc import Iterator

import torch.utils.data

from penstock.datasets.base import IterableDataset
from penstock.datasets.user_code import is_user_code
from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.subject import Subject

__all__ = ["find"]


def find(subject: Subject) -> Iterator[Finding]:
    """Find streams whose code does not read the worker's id although there are several workers."""
    settings, dataset = subject.settings, subject.dataset
    if not subject.is_stream or settings.kind != "processes" or (settings.num_workers or 0) < 2:
        return
    if subject.argument("worker_init_fn") is not None or subject.functions.mentions("get_worker_info", "worker_info"):
        return
    if not is_user_code(type(dataset)) or not any(function.entry_point == "__iter__" for function in subject.functions):
        return  # the source of installed packages is not read
    if any(_is_packaged_stream(place.value) for place in subject.graph.objects):
        return  # a stream of an installed package may divide its samples itself
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


def _is_packaged_stream(value: object) -> bool:
    kind = type(value)
    return issubclass(kind, (torch.utils.data.IterableDataset, IterableDataset)) and not is_user_code(kind)
