"""Rule unsharded-stream: an iterable dataset of which every worker yields all."""

from __future__ import annotations

from collections.abc import Iterator

import torch.utils.data

from penstock.datasets.base import IterableDataset
from penstock.datasets.user_code import is_user_code
from penstock.doctor.findings import Finding
from penstock.doctor.subject import Subject

__all__ = ["find"]


def find(subject: Subject) -> Iterator[Finding]:
    """A stream whose code never asks which worker it is in, where there are several."""
    setting, dataset = subject.setting, subject.dataset
    if not subject.is_stream or setting.workers != "processes" or (setting.num_workers or 0) < 2:
        return
    if subject.given("worker_init_fn") is not None or subject.code.mentions("get_worker_info", "worker_info"):
        return
    if not is_user_code(type(dataset)) or not any(function.begin == "__iter__" for function in subject.code.functions):
        return  # its source is not ours to read
    if any(_is_foreign_stream(place.value) for place in subject.graph.places):
        return  # what it wraps may well share itself out
    text = (
        f"{setting.each.capitalize()} iterates a copy of it, and nothing in its code asks which worker that is: an "
        f"epoch has every sample {setting.num_workers} times."
    )
    advice = (
        "In __iter__, ask torch.utils.data.get_worker_info() and yield every num_workers-th sample, from id on. "
        "num_workers=1 is right as it is."
    )
    where = f"dataset ({type(dataset).__qualname__}.__iter__)"
    yield Finding("unsharded-stream", "error", where, text, advice)


def _is_foreign_stream(value: object) -> bool:
    kind = type(value)
    return issubclass(kind, (torch.utils.data.IterableDataset, IterableDataset)) and not is_user_code(kind)
