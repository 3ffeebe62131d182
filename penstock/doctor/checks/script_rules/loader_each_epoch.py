"""Rule loader-each-epoch: a loader that is made anew for each epoch, with its workers."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.script.subject import ScriptSubject
from penstock.plurals import counted

__all__ = ["find"]


def find(subject: ScriptSubject) -> Iterator[Finding]:
    """Find a DataLoader that is made in the loop of epochs, from what does not change there."""
    if not subject.num_workers:
        return
    seen = set()
    for loop in subject.loops:
        for line, _ in loop.loaders:
            if line in seen:
                continue
            seen.add(line)
            workers = counted(subject.num_workers, "worker")
            text = f"The loader is made anew in each epoch, so {workers} start again, and nothing is loaded ahead."
            advice = (
                "Make it once before the loop. If the dataset does not change between epochs, pass "
                "persistent_workers=True."
            )
            start_s = subject.mean_start_s
            cost = f"{1000 * start_s:.0f} ms for the start in each epoch" if start_s else ""
            yield Finding("loader-each-epoch", "warning", str(line), text, advice, cost, line.file, line.line)
