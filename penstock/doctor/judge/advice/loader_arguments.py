"""Other arguments of the loader; the number of workers is in ``num_workers.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from penstock.doctor.judge.diagnosis import Advice
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


def advise_arguments(
    arguments: Mapping[str, object], reason: str, predicted: float, *, rule: str = "", doubt: float = 0.2
) -> Advice:
    """Return other values of arguments; the rule has the name of the first argument where none is given."""
    change = Change(arguments)
    code = f"DataLoader(..., {change})"
    return Advice(rule or next(iter(arguments)), str(change), reason, predicted, None, code, change, doubt)


def find_delivery_order(situation: Situation) -> Iterator[Advice]:
    """Advise ``in_order=False`` if batches that are ready wait for a slow one before them."""
    pipeline = situation.pipeline
    if pipeline.workers < 2 or not pipeline.in_order:
        return
    reason = "Batches that are ready wait for a slow one before them; the order of batches is then no longer fixed."
    yield advise_arguments({"in_order": False}, reason, situation.gain_of(replace(pipeline, in_order=False)))


def find_persistent_workers(situation: Situation) -> Iterator[Advice]:
    """Advise persistent workers if epochs are short, and each starts its workers anew."""
    pipeline = situation.pipeline
    if not pipeline.epoch_batches or pipeline.workers == 0:
        return
    changed = replace(pipeline, startup_ns=0.0, preparation=None)
    reason = f"Each epoch of {pipeline.epoch_batches} batches waits {pipeline.startup_ns / 1e9:.2f} s for its workers."
    advice = advise_arguments({"persistent_workers": True}, reason, situation.gain_of(changed))
    if situation.recording.loaders > 1:
        change = "make the loader once, before the first epoch, with persistent_workers=True"
        reason += " Each epoch makes a new loader, and workers end with theirs; a sampler can choose other samples."
        advice = replace(advice, change=change, reason=reason)
    yield advice


def find_pin_memory(situation: Situation) -> Iterator[Advice]:
    """Advise page-locked memory if the script spends a large part of its time in copies to the device."""
    steps, settings = situation.steps, situation.recording.settings
    if steps.copy_share < 0.1:
        return
    gain = 1 / max(1 - steps.copy_share, steps.copy_share)
    change = (
        "copy with non_blocking=True" if settings.pin_memory else "pin_memory=True, and copy with non_blocking=True"
    )
    yield Advice(
        "pin_memory",
        change,
        f"Copies to the device take {steps.copy_share:.0%} of the time; from page-locked memory the next batch is "
        "copied while the device computes. A copy is assumed to overlap with the rest of the step.",
        gain,
        code="DataLoader(..., pin_memory=True); batch = batch.to(device, non_blocking=True)",
    )


def find_prefetch_factor(situation: Situation) -> Iterator[Advice]:
    """Advise a longer buffer if building times differ so much that it hides slow batches."""
    pipeline = situation.pipeline
    if pipeline.workers == 0:
        return
    gains = {
        factor: situation.gain_of(replace(pipeline, prefetch=factor)) for factor in (4, 8) if factor > pipeline.prefetch
    }
    if not gains:
        return
    factor = next(factor for factor in gains if gains[factor] >= 0.98 * max(gains.values()))
    reason = f"Batches differ in their time; {factor} ahead for each worker hide slow ones."
    yield advise_arguments({"prefetch_factor": factor}, reason, gains[factor])


def find_threads_as_workers(situation: Situation) -> Iterator[Advice]:
    """Advise threads if sending batches between processes limits a loader of penstock's."""
    settings = situation.recording.settings
    if settings.library != "penstock" or settings.workers != "processes" or situation.share("transport") < 0.3:
        return
    reason = "Sending batches between processes takes much of the time; threads send nothing."
    gain = situation.gain_of(situation.pipeline.with_stage("transport", 0.0))
    yield advise_arguments({"workers": "threads"}, reason, gain, rule="threads-as-workers")
