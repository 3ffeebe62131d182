"""Rules about what steps do that were observed.

These are blocking-copy, cast-before-copy, wait-each-step, cleanup-each-step and collate-in-loop.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from typing import Final

import numpy as np
import torch

from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.script_subject import NO_DEVICE, ScriptSubject, describe_events, quote_events
from penstock.doctor.watching.batch_layout import BatchParts
from penstock.doctor.watching.steps.events import ScriptEvent
from penstock.doctor.watching.steps.source import read_source
from penstock.wording import format_bytes, format_time_us

__all__ = ["find_blocking_copies", "find_casts_before_copies", "find_cleanups", "find_collation", "find_waits"]

_LEAST_NBYTES: Final = 1 << 16


def find_blocking_copies(subject: ScriptSubject) -> Iterator[Finding]:
    """Find copies of page-locked batches without ``non_blocking``, and ``non_blocking`` without page-locked batches."""
    severity, cost = subject.device_severity(), _describe_cost(subject)
    for events in subject.events("copy"):
        loaded = [event for event in events if event.is_loaded]
        if subject.samples.argument("pin_memory", False):
            waiting = [event for event in loaded if not event.non_blocking and not _has_alternative(subject, event)]
            if waiting:
                text = (
                    f"The loader page-locks its batches, but {quote_events(waiting)} waits until the copy to the "
                    "device has ended."
                )
                advice = "Pass non_blocking=True: the copy then runs while Python starts the next operations."
                yield describe_events("blocking-copy", severity, waiting, text, advice, cost)
        elif subject.has_device or not _mentions_pinning(subject):
            unpinned = [event for event in loaded if event.non_blocking and event.nbytes >= _LEAST_NBYTES]
            if unpinned:
                text = (
                    f"non_blocking=True has no effect in {quote_events(unpinned)}: the batch is not in page-locked "
                    "memory, so the copy waits."
                )
                advice = "Pass pin_memory=True to the DataLoader."
                yield describe_events("blocking-copy", severity, unpinned, text, advice, cost)


def _has_alternative(subject: ScriptSubject, event: ScriptEvent) -> bool:
    """Return whether a machine with a device may copy by another line: this one is in one of two branches."""
    source = read_source(event.line.file)
    return not subject.has_device and source is not None and source.is_in_branch(event.line.line)


def _mentions_pinning(subject: ScriptSubject) -> bool:
    """Return whether the script has the argument, perhaps with a value that differs where there is a device."""
    files = subject.places.files | {event.line.file for events in subject.events("copy") for event in events}
    return any("pin_memory" in line for file in files for line in linecache.getlines(file))


def _describe_cost(subject: ScriptSubject) -> str:
    """Return what copies take of a step, as it was measured."""
    if not subject.has_device:
        return NO_DEVICE
    steps = subject.recording.steps
    if not len(steps.copy_ns) or not int(steps.copy_ns.sum()):
        return ""
    copy_us, step_us = (float(np.mean(times)) / 1000 for times in (steps.copy_ns, steps.step_ns))
    return f"copies take {format_time_us(copy_us)} of a step of {format_time_us(step_us)}"


def find_casts_before_copies(subject: ScriptSubject) -> Iterator[Finding]:
    """Find casts that make a batch larger before it is copied."""
    for events in subject.events("cast"):
        for event in events:
            before, after = (0, 0) if event.cast is None else event.cast.count_bytes()
            if event.cast is None or after - before < _LEAST_NBYTES:
                continue
            text = (
                f"The batch becomes {_name_dtype(event.cast.after)} on the CPU before it is copied to the device: "
                f"{format_bytes(after)} a batch are copied instead of {format_bytes(before)}."
            )
            advice = (
                "Copy the batch as it is, and cast on the device: "
                f"images.to(device, non_blocking=True).to({event.cast.after})."
            )
            cost = f"{format_time_us(1e6 * event.cast.seconds)} a batch for the cast"
            if not subject.has_device:
                cost += "; the larger copy costs nothing on this machine, which has no device"
            severity = subject.device_severity()
            yield describe_events("cast-before-copy", severity, [event], text, advice, cost)


def _name_dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def find_waits(subject: ScriptSubject) -> Iterator[Finding]:
    """Find ``.item()``, ``.cpu()``, ``print``, conditions and the like on values of the device, in each step."""
    if not subject.is_training:
        return
    for events in subject.events("wait", each_step=True):
        verb = "waits" if len({event.text for event in events}) == 1 else "wait"
        text = (
            f"{quote_events(events)} {verb} in each step until the device has computed everything that was started. "
            "Meanwhile Python starts nothing, and the device has nothing to do afterwards."
        )
        advice = (
            "Add up values on the device (total += loss.detach()), and read them every 100 steps or at the end of the "
            "epoch."
        )
        cost = "" if subject.has_device else NO_DEVICE
        yield describe_events("wait-each-step", subject.device_severity(), events, text, advice, cost)


def find_cleanups(subject: ScriptSubject) -> Iterator[Finding]:
    """Find ``torch.cuda.empty_cache()`` and ``gc.collect()`` in each step."""
    for events in subject.events("cleanup", each_step=True):
        all_collects = [event for event in events if "collect" in event.text]
        empties = [event for event in events if event not in all_collects]
        collects = [event for event in all_collects if not _controls_collection(event)]
        if empties:
            text = (
                f"{quote_events(empties)} waits for the device in each step and gives its memory back, and the next "
                "step has to ask for it again."
            )
            advice = "Leave it out: torch uses free memory again by itself."
            cost = "" if subject.has_device else NO_DEVICE
            yield describe_events("cleanup-each-step", subject.device_severity(), empties, text, advice, cost)
        if collects:
            text = f"{quote_events(collects)} visits all objects of the program in each step."
            advice = "Leave it out, or collect once in an epoch: Python collects garbage by itself."
            cost = f"{format_time_us(1e6 * sum(event.seconds for event in collects))} in each step"
            yield describe_events("cleanup-each-step", "warning", collects, text, advice, cost)


def _controls_collection(event: ScriptEvent) -> bool:
    """Return whether the file turns Python's own collection off."""
    return any("gc.disable" in line or "gc.freeze" in line for line in linecache.getlines(event.line.file))


_LEAST_SAMPLES: Final = 4


def find_collation(subject: ScriptSubject) -> Iterator[Finding]:
    """Find ``torch.stack`` and the like of a batch that is a list of samples."""
    if not subject.num_workers or subject.places.layout is None or not _is_list_of_samples(subject.places.layout):
        return
    for events in subject.events("join", each_step=True):
        if events[0].line.function.endswith(".forward"):
            continue  # a model that takes lists
        text = (
            f"The loader gives a list of samples, and {quote_events(events)} makes a batch of them in the main "
            "process, while the device waits."
        )
        advice = "Do it in collate_fn, which the workers call."
        yield describe_events("collate-in-loop", "warning", events, text, advice)


def _is_list_of_samples(layout: BatchParts) -> bool:
    """Return whether a batch is a list of samples, or holds lists of their parts."""
    if layout.kind in {"mapping", "sequence"} and any(_is_list(part) for part in layout.parts):
        return True
    return _is_list(layout)


def _is_list(layout: BatchParts) -> bool:
    parts = layout.parts
    if layout.kind != "sequence" or len(parts) < _LEAST_SAMPLES:
        return False
    first = [(leaf.kind, leaf.dtype, len(leaf.shape)) for leaf in parts[0].leaves()]
    return bool(first) and all(
        [(leaf.kind, leaf.dtype, len(leaf.shape)) for leaf in part.leaves()] == first for part in parts
    )
