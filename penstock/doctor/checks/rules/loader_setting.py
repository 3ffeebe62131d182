"""Rule loader-setting: arguments of the loader that are probably a mistake."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.settings import count_usable_cores
from penstock.doctor.checks.subject import Subject
from penstock.wording import counted

__all__ = ["find"]


def find(subject: Subject) -> Iterator[Finding]:
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
    batch_size = subject.argument("batch_size")
    if subject.is_stream or not subject.argument("drop_last", False) or not isinstance(batch_size, int):
        return
    try:
        samples = len(subject.loader.sampler)
    except Exception:  # noqa: BLE001  # no length; the rule `length` reports datasets without one
        return
    if 0 < samples < batch_size:
        text = f"The sampler has {counted(samples, 'sample')}, and batch_size={batch_size}, so every epoch is empty."
        advice = "Pass a smaller batch_size, or drop_last=False."
        yield Finding("loader-setting", "error", "drop_last=True", text, advice)
