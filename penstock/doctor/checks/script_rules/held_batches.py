"""Rule held-batches: ``list(loader)`` and ``itertools.cycle(loader)``, which hold all batches of an epoch in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch.utils.data

from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.script.subject import ScriptSubject
from penstock.plurals import counted

__all__ = ["find"]

_LEAST_NBYTES: Final = 1 << 30


def find(subject: ScriptSubject) -> Iterator[Finding]:
    """Find ``list(loader)`` of 1 GB or more, and ``itertools.cycle`` of that or of a loader that shuffles."""
    layout = subject.places.layout
    if layout is None:
        return
    try:
        count = len(subject.loader)
    except Exception:  # noqa: BLE001  # a stream, or a length of the user's that fails
        return
    nbytes = count * sum(leaf.nbytes for leaf in layout.leaves())
    cost = f"{nbytes / 1e9:.1f} GB of memory" if nbytes >= _LEAST_NBYTES else ""
    batches = counted(count, "batch")
    for loop in subject.loops:
        line, text = loop.taking.line, loop.taking.text
        if loop.taking.kind == "all" and nbytes >= _LEAST_NBYTES:
            what = f"{text} holds {batches} in memory, and the first step waits until the last one is loaded."
            advice = "Iterate the loader itself: for batch in loader."
        elif loop.taking.is_cycled and (nbytes >= _LEAST_NBYTES or _shuffles(subject.loader)):
            what = (
                f"{text}: itertools.cycle keeps the {batches} of the first epoch, and gives the same ones again: "
                "they are shuffled and augmented once."
            )
            advice = "Begin each epoch anew: while True: yield from loader, in a generator function."
        else:
            continue
        yield Finding("held-batches", "warning", str(line), what, advice, cost, line.file, line.line)


def _shuffles(loader: Any) -> bool:
    """Whether the loader has an order of its own in each epoch."""
    sampler = vars(loader).get("sampler")
    return sampler is not None and not isinstance(sampler, torch.utils.data.SequentialSampler)
