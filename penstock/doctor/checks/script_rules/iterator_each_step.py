"""Rule iterator-each-step: ``next(iter(loader))`` in a loop, which starts all workers for one batch."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.script.subject import ScriptSubject
from penstock.plurals import counted

__all__ = ["find"]


def find(subject: ScriptSubject) -> Iterator[Finding]:
    """Find ``next(iter(loader))`` in a loop, if the loader has workers."""
    if not subject.num_workers or any(loop.taking.kind == "for" for loop in subject.loops):
        return  # beside a loop over the loader, it may be done once in an epoch, to show some samples
    for loop in subject.loops:
        taking = loop.taking
        if not (taking.starts_workers and taking.is_repeated):
            continue
        is_persistent = bool(getattr(subject.loader, "persistent_workers", False))
        begins = "asks for new batches ahead" if is_persistent else "starts them again"
        text = (
            f"{taking.text} in a loop begins a new epoch of {counted(subject.num_workers, 'worker')} for one batch: it "
            f"{begins}, and all other batches are thrown away."
        )
        advice = "Make the iterator once: batches = iter(loader) before the loop, and next(batches) in it."
        start_s = subject.mean_start_s
        cost = f"{1000 * start_s:.0f} ms for the start in each step" if start_s else ""
        yield Finding("iterator-each-step", "warning", str(taking.line), text, advice, cost, taking.line.file,
                      taking.line.line)  # fmt: skip
