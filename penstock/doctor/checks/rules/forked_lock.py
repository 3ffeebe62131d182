"""Rule forked-lock: locks that a fork copies in their present state."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

from penstock.datasets.user_code import is_user_code
from penstock.doctor.checks.findings import Finding, Severity
from penstock.doctor.checks.subject import Subject
from penstock.wording import counted

__all__ = ["find"]

_LOCKS: Final = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Semaphore)
_ADVICE: Final = (
    "Create the lock on first use in each process, or replace it in a function registered with os.register_at_fork. "
    'workers="threads" and the start methods spawn and forkserver do not fork.'
)


def find(subject: Subject) -> Iterator[Finding]:
    """Find locks in the user's objects if workers are forked."""
    if not subject.settings.uses_fork:
        return
    others = threading.active_count() - 1
    for place in subject.graph.objects:
        if not issubclass(place.kind, _LOCKS) or (place.owner is not None and not is_user_code(type(place.owner))):
            continue
        is_held = _is_held(place.value)
        now = "It is held now." if is_held else f"{counted(others, 'other thread')} may hold it now." if others else ""
        severity: Severity = "error" if is_held else "warning" if others else "note"
        text = (
            f"fork copies this {place.kind.__name__} in its present state. If a thread holds it at that moment, "
            f"{subject.settings.each_worker} waits for it forever. {now}"
        )
        yield Finding("forked-lock", severity, place.path, text.strip(), _ADVICE)


def _is_held(lock: object) -> bool:
    """Whether a thread holds the lock. Before Python 3.14 an RLock shows this only in its repr."""
    locked = getattr(lock, "locked", None)
    return bool(locked()) if locked is not None else repr(lock).startswith("<locked")
