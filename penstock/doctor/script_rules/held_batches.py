"""Rule held-batches: ``list(loader)``, which holds all batches of an epoch in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.doctor.findings import Finding
from penstock.doctor.script_subject import ScriptSubject
from penstock.plurals import counted

__all__ = ["find"]

_LEAST_NBYTES: Final = 1 << 30


def find(subject: ScriptSubject) -> Iterator[Finding]:
    """Find ``list(loader)`` of 1 GB or more."""
    layout = subject.places.layout
    if layout is None:
        return
    try:
        count = len(subject.loader)
    except Exception:  # noqa: BLE001  # a stream, or a length of the user's that fails
        return
    nbytes = count * sum(leaf.nbytes for leaf in layout.leaves())
    for loop in subject.loops:
        line = loop.taking.line
        if loop.taking.kind == "all" and nbytes >= _LEAST_NBYTES:
            text = (
                f"{loop.taking.text} holds {counted(count, 'batch')} in memory, and the first step waits "
                "until the last one is loaded."
            )
            advice = "Iterate the loader itself: for batch in loader."
            cost = f"{nbytes / 1e9:.1f} GB of memory"
            yield Finding("held-batches", "warning", str(line), text, advice, cost, line.file, line.line)
