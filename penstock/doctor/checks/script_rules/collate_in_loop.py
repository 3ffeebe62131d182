"""Rule collate-in-loop: samples that become a batch in the main process, while it has workers for that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.script.subject import ScriptSubject, describe_events, quote_events
from penstock.doctor.watching.batch_layout import BatchParts

__all__ = ["find"]

_LEAST_SAMPLES: Final = 4


def find(subject: ScriptSubject) -> Iterator[Finding]:
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
    """Whether a batch is a list of samples, or holds lists of their parts."""
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
