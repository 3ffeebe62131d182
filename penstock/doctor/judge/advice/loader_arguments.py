"""Other arguments of the loader, but its number of workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.doctor.judge.candidate import Candidate
from penstock.doctor.judge.situation import Situation
from penstock.doctor.trials.changed_loader import Change

__all__ = [
    "find_delivery_order",
    "find_persistent_workers",
    "find_pin_memory",
    "find_prefetch_factor",
    "find_threads_as_workers",
]


def find_delivery_order(situation: Situation) -> Iterator[Candidate]:
    """If batches that are ready wait for a slow one before them."""
    pipeline = situation.pipeline
    if pipeline.workers < 2 or not pipeline.in_order:
        return
    yield Candidate(
        "in_order",
        "in_order=False",
        "Batches that are ready wait for a slow one before them; the order of batches is then no longer fixed.",
        situation.gain_of(replace(pipeline, in_order=False)),
        Change({"in_order": False}),
        "DataLoader(..., in_order=False)",
    )


def find_persistent_workers(situation: Situation) -> Iterator[Candidate]:
    """If epochs are short, and each starts its workers anew."""
    pipeline = situation.pipeline
    if not pipeline.epoch_batches or pipeline.workers == 0:
        return
    changed = replace(pipeline, startup_ns=0.0, preparation=None)
    yield Candidate(
        "persistent_workers",
        "persistent_workers=True",
        f"Each epoch of {pipeline.epoch_batches} batches waits {pipeline.startup_ns / 1e9:.2f} s for its workers.",
        situation.gain_of(changed),
        Change({"persistent_workers": True}),
        "DataLoader(..., persistent_workers=True)",
    )


def find_pin_memory(situation: Situation) -> Iterator[Candidate]:
    """If the script spends a large part of its time in copies to the device."""
    steps, settings = situation.steps, situation.recording.settings
    if steps.copy_share < 0.1:
        return
    gain = 1 / max(1 - steps.copy_share, steps.copy_share)
    change = (
        "copy with non_blocking=True" if settings.pin_memory else "pin_memory=True, and copy with non_blocking=True"
    )
    yield Candidate(
        "pin_memory",
        change,
        f"Copies to the device take {steps.copy_share:.0%} of the time; from page-locked memory the next batch is "
        "copied while the device computes. A copy is assumed to overlap with the rest of the step.",
        gain,
        code="DataLoader(..., pin_memory=True); batch = batch.to(device, non_blocking=True)",
    )


def find_prefetch_factor(situation: Situation) -> Iterator[Candidate]:
    """If building times differ so much that a longer buffer hides slow batches."""
    pipeline = situation.pipeline
    if pipeline.workers == 0:
        return
    gains = {
        factor: situation.gain_of(replace(pipeline, prefetch=factor)) for factor in (4, 8) if factor > pipeline.prefetch
    }
    if not gains:
        return
    factor = next(factor for factor in gains if gains[factor] >= 0.98 * max(gains.values()))
    yield Candidate(
        "prefetch_factor",
        f"prefetch_factor={factor}",
        f"Batches differ in their time; {factor} ahead for each worker hide slow ones.",
        gains[factor],
        Change({"prefetch_factor": factor}),
        f"DataLoader(..., prefetch_factor={factor})",
    )


def find_threads_as_workers(situation: Situation) -> Iterator[Candidate]:
    """If sending batches between processes limits a loader of penstock's."""
    settings = situation.recording.settings
    if settings.library != "penstock" or settings.workers != "processes" or situation.share("transport") < 0.3:
        return
    yield Candidate(
        "threads-as-workers",
        'workers="threads"',
        "Sending batches between processes takes much of the time; threads send nothing.",
        situation.gain_of(situation.pipeline.with_stage("transport", 0.0)),
        Change({"workers": "threads"}),
        'DataLoader(..., workers="threads")',
    )
