"""Rule length: a map-style dataset without a length."""

from __future__ import annotations

from collections.abc import Iterator

import torch.utils.data

from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.subject import Subject
from penstock.samplers import RandomSampler, SequentialSampler

__all__ = ["find"]

_NEED_LENGTH = (
    torch.utils.data.SequentialSampler, torch.utils.data.RandomSampler, SequentialSampler, RandomSampler,
)  # fmt: skip


def find(subject: Subject) -> Iterator[Finding]:
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
