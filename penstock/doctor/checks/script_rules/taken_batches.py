"""Rules about how batches are taken: iterator-each-step, loader-each-epoch, held-batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import torch.utils.data

from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.script_subject import ScriptSubject
from penstock.doctor.watching.steps.source import SourceLine
from penstock.wording import counted

__all__ = ["find_held_batches", "find_iterator_each_step", "find_loader_each_epoch"]

_LEAST_NBYTES: Final = 1 << 30
_LEAST_STEPS: Final = 3


def find_iterator_each_step(subject: ScriptSubject) -> Iterator[Finding]:
    """Find ``next(iter(loader))`` in each step, if the loader has workers: each step seen is the first of an epoch."""
    steps = subject.recording.steps
    epochs = steps.epoch[~steps.replayed] if len(steps.epoch) == len(steps.replayed) else steps.epoch
    if not subject.num_workers or len(epochs) < _LEAST_STEPS or not (np.diff(epochs) > 0).all():
        return
    for taking in subject.places.takings:
        if "next" not in taking.text:  # else it may be an epoch of one batch
            continue
        is_persistent = subject.samples.argument("persistent_workers", False)
        begins = "asks for new batches ahead" if is_persistent else "starts them again"
        text = (
            f"{taking.text} in a loop begins a new epoch of {counted(subject.num_workers, 'worker')} for one batch: it "
            f"{begins}, and all other batches are thrown away."
        )
        advice = "Make the iterator once: batches = iter(loader) before the loop, and next(batches) in it."
        start_s = subject.mean_start_s
        cost = f"{1000 * start_s:.0f} ms for the start in each step" if start_s else ""
        yield _warn_at("iterator-each-step", taking.line, text, advice, cost)


def find_loader_each_epoch(subject: ScriptSubject) -> Iterator[Finding]:
    """Find a DataLoader that is made anew for each epoch, of the same dataset."""
    line, epochs = subject.places.made, len(subject.places.epoch_starts_ns)
    if subject.num_workers and line is not None and epochs <= subject.recording.loaders:
        workers = counted(subject.num_workers, "worker")
        text = f"The loader is made anew in each epoch, so {workers} start again, and nothing is loaded ahead."
        advice = (
            "Make it once before the loop. If the dataset does not change between epochs, pass persistent_workers=True."
        )
        start_s = subject.mean_start_s
        cost = f"{1000 * start_s:.0f} ms for the start in each epoch" if start_s else ""
        yield _warn_at("loader-each-epoch", line, text, advice, cost)


def find_held_batches(subject: ScriptSubject) -> Iterator[Finding]:
    """Find ``list(loader)`` of 1 GB or more, and ``itertools.cycle`` of that or of a loader that shuffles."""
    layout, loader = subject.places.layout, subject.samples.loader
    if layout is None or loader is None:
        return
    try:
        count = len(loader)
    except Exception:  # noqa: BLE001  # a stream, or a length of the user's that fails
        return
    nbytes = count * sum(leaf.nbytes for leaf in layout.leaves())
    cost = f"{nbytes / 1e9:.1f} GB of memory" if nbytes >= _LEAST_NBYTES else ""
    batches = counted(count, "batch")
    for taking in subject.places.takings:
        text = taking.text
        if text.startswith(("list(", "tuple(")) and nbytes >= _LEAST_NBYTES:
            what = f"{text} holds {batches} in memory, and the first step waits until the last one is loaded."
            advice = "Iterate the loader itself: for batch in loader."
        elif taking.is_cycled and (nbytes >= _LEAST_NBYTES or _shuffles(subject.samples.loader)):
            what = (
                f"{text}: itertools.cycle keeps the {batches} of the first epoch, and gives the same ones again: "
                "they are shuffled and augmented once."
            )
            advice = "Begin each epoch anew: while True: yield from loader, in a generator function."
        else:
            continue
        yield _warn_at("held-batches", taking.line, what, advice, cost)


def _warn_at(rule: str, line: SourceLine, what: str, advice: str, cost: str) -> Finding:
    return Finding.at_lines(rule, "warning", line.function, line.file, [line.line], what, advice, cost)


def _shuffles(loader: object) -> bool:
    """Return whether the loader has an order of its own in each epoch."""
    sampler = vars(loader).get("sampler")
    return sampler is not None and not isinstance(sampler, torch.utils.data.SequentialSampler)
