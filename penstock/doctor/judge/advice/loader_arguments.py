"""Other arguments of the loader; the number of workers is in ``num_workers.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from penstock.doctor.judge.diagnosis import Advice
from penstock.doctor.judge.observations import measure_start_ns
from penstock.doctor.judge.situation import Situation
from penstock.doctor.trials.changed_loader import Change

__all__ = [
    "advise_arguments",
    "find_delivery_order",
    "find_persistent_workers",
    "find_pin_memory",
    "find_prefetch_factor",
    "find_threads_as_workers",
]

_CONCENTRATED: Final = 0.5
"""Part of the waiting that falls on few steps, from which on rare batches are slow."""


def advise_arguments(arguments: Mapping[str, object], reason: str, *, rule: str = "") -> Advice:
    """Return other values of arguments; the rule has the name of the first argument where none is given."""
    change = Change(arguments)
    return Advice(rule or next(iter(arguments)), str(change), reason, code=f"DataLoader(..., {change})", trial=change)


def find_delivery_order(situation: Situation) -> Iterator[Advice]:
    """Try ``in_order=False`` if rare batches are slow."""
    if (
        situation.workers >= 2
        and situation.recording.settings.in_order
        and situation.steps.concentration > _CONCENTRATED
    ):
        reason = "Batches that are ready wait for a slow one before them; the order of batches is then no longer fixed."
        yield advise_arguments({"in_order": False}, reason)


def find_persistent_workers(situation: Situation) -> Iterator[Advice]:
    """Try persistent workers if epochs are short, and each starts its workers anew."""
    if not situation.epoch_batches:
        return
    wait_s = measure_start_ns(situation.recording) / 1e9
    reason = f"Each epoch of {situation.epoch_batches} batches waits {wait_s:.2f} s for its workers."
    advice = advise_arguments({"persistent_workers": True}, reason)
    if situation.recording.loaders > 1:
        change = "make the loader once, before the first epoch, with persistent_workers=True"
        reason += " Each epoch makes a new loader, and workers end with theirs; a sampler can choose other samples."
        advice = replace(advice, change=change, reason=reason)
    yield advice


def find_pin_memory(situation: Situation) -> Iterator[Advice]:
    """Tell that copies wait for pageable memory if they take much of the time; a child process has no device."""
    steps, settings = situation.steps, situation.recording.settings
    if steps.copy_share < 0.1:
        return
    change = (
        "copy with non_blocking=True" if settings.pin_memory else "pin_memory=True, and copy with non_blocking=True"
    )
    yield Advice(
        "pin_memory",
        change,
        f"Copies to the device take {steps.copy_share:.0%} of the time; from page-locked memory the next batch is "
        "copied while the device computes.",
        code="DataLoader(..., pin_memory=True); batch = batch.to(device, non_blocking=True)",
    )


def find_prefetch_factor(situation: Situation) -> Iterator[Advice]:
    """Try a longer buffer if rare batches are slow."""
    if situation.workers and situation.steps.concentration > _CONCENTRATED:
        factor = max(4, 2 * situation.recording.settings.prefetch_factor)
        reason = f"Batches differ in their time; {factor} ahead for each worker hide slow ones."
        yield advise_arguments({"prefetch_factor": factor}, reason)


def find_threads_as_workers(situation: Situation) -> Iterator[Advice]:
    """Try threads if sending batches between processes limits a loader of penstock's."""
    settings = situation.recording.settings
    if settings.library == "penstock" and settings.workers == "processes" and situation.brings("transport") >= 1.1:
        reason = "Sending batches between processes takes much of the time; threads send nothing."
        yield advise_arguments({"workers": "threads"}, reason, rule="threads-as-workers")
