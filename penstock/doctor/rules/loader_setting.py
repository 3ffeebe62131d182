"""Rule loader-setting: arguments of the loader that cannot be meant."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from penstock.doctor.findings import Finding
from penstock.doctor.subject import Subject, usable_cores

__all__ = ["find"]


def find(subject: Subject) -> Iterator[Finding]:
    """More workers than cores, epochs without a batch, pinning without a GPU."""
    if subject.loader is None:
        return
    yield from _too_many_workers(subject)
    yield from _empty_epoch(subject)
    if subject.given("pin_memory", False) and not torch.accelerator.is_available():
        text = "No accelerator is here: nothing is pinned, and the loader warns at each epoch."
        advice = "Give pin_memory=torch.accelerator.is_available()."
        yield Finding("loader-setting", "note", "pin_memory=True", text, advice)


def _too_many_workers(subject: Subject) -> Iterator[Finding]:
    workers, cores = subject.setting.num_workers or 0, usable_cores()
    if workers > cores:
        text = (
            f"This process may use {cores} cores: more workers than that wait for one another, and each takes memory."
        )
        advice = f"Give num_workers={cores} or fewer."
        yield Finding("loader-setting", "warning", f"num_workers={workers}", text, advice)


def _empty_epoch(subject: Subject) -> Iterator[Finding]:
    batch_size = subject.given("batch_size")
    if subject.is_stream or not subject.given("drop_last", False) or not isinstance(batch_size, int):
        return
    try:
        samples = len(subject.loader.sampler)
    except Exception:  # noqa: BLE001  # a sampler or dataset without a length; rule `length` speaks of datasets
        return
    if 0 < samples < batch_size:
        text = f"The sampler has {samples} samples, fewer than batch_size={batch_size}: every epoch is empty."
        yield Finding(
            "loader-setting", "error", "drop_last=True", text, "Give a smaller batch_size, or drop_last=False."
        )
