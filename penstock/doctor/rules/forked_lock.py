"""Rule forked-lock: locks that a fork copies as they stand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Final

from penstock.datasets.user_code import is_user_code
from penstock.doctor.findings import Finding, Severity
from penstock.doctor.subject import Subject

__all__ = ["find"]

_LOCKS: Final = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Semaphore)
_ADVICE: Final = (
    'Make the lock on first use in each process, or have os.register_at_fork renew it; workers="threads" and the start '
    "methods spawn and forkserver do not fork."
)


def find(subject: Subject) -> Iterator[Finding]:
    """A lock in the user's objects, where workers are forked."""
    if not subject.setting.forks:
        return
    others = threading.active_count() - 1
    for place in subject.graph.places:
        if not issubclass(place.kind, _LOCKS) or (place.owner is not None and not is_user_code(type(place.owner))):
            continue
        is_held = _is_held(place.value)
        now = "It is held now." if is_held else f"{others} other threads run now." if others else ""
        severity: Severity = "error" if is_held else "warning" if others else "note"
        text = (
            f"A {place.kind.__name__} is copied by fork as it stands: if a thread holds it at that moment, "
            f"{subject.setting.each} waits for it for ever. {now}"
        )
        yield Finding("forked-lock", severity, place.path, text.strip(), _ADVICE)


def _is_held(lock: Any) -> bool:
    """Whether somebody holds it; an RLock tells before Python 3.14 only by its text."""
    locked = getattr(lock, "locked", None)
    return bool(locked()) if locked is not None else repr(lock).startswith("<locked")
