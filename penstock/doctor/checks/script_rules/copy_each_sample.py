"""Rule copy-each-sample: without workers, CUDA works where samples are made, but each sample is copied by itself.

The rule ``cuda-in-worker`` of :func:`penstock.doctor.check` is about loaders with worker processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.rules.cuda_in_worker import find_moves
from penstock.doctor.checks.script.subject import NO_DEVICE, ScriptSubject

__all__ = ["find"]

_ADVICE: Final = (
    "Make samples on the CPU, and move whole batches to the GPU in the training loop: with workers, pin_memory=True "
    "and non_blocking=True, that takes no time of the main process."
)
_OF_SAMPLES: Final = frozenset({"__getitem__", "__iter__", "__next__"})


def find(subject: ScriptSubject) -> Iterator[Finding]:
    """Find functions that move samples to the GPU in the main process, and a ``collate_fn`` that moves batches."""
    if subject.samples.settings.kind != "serial":
        return
    cost = "" if subject.has_device else NO_DEVICE
    for function, lines in find_moves(subject.samples):
        if function.entry_point in _OF_SAMPLES:
            text = "This function copies each sample to the GPU by itself, and the main process waits for each copy."
            yield function.describe("copy-each-sample", subject.device_severity(), lines, text, _ADVICE, cost)
        elif function.function is subject.samples.argument("collate_fn"):
            text = "collate_fn copies the batch to the GPU, so that it cannot run in worker processes."
            yield function.describe("copy-each-sample", "note", lines, text, _ADVICE, cost)
