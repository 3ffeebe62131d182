"""What is done with images that are truncated or damaged, and the record of those that were repaired.

::

    StoreDataset, a job ──RepairScope("repair")──> decode fails ──> note_repair(reason)
                        <── scope.notes ─────────────────────────────────┘   named by store, key and index on the way

The scope belongs to the current thread. Nothing here decodes; :mod:`penstock.transforms.decoding.decode` asks what to
do, and only where an image cannot be decoded.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from penstock.errors import check_choice

if TYPE_CHECKING:
    from types import TracebackType

__all__ = [
    "ON_TRUNCATED",
    "RepairScope",
    "Repaired",
    "check_on_truncated",
    "get_policy",
    "note_repair",
    "set_position",
    "this_thread",
]

ON_TRUNCATED: Final = ("raise", "repair", "skip")
"""What may be done with an image that is truncated or damaged."""

_REASON: Final = 1000


@dataclass(frozen=True, slots=True)
class Repaired:
    """An image that was truncated or damaged, and was decoded as far as possible."""

    reason: str  # what is wrong with it
    store: str | None = None
    key: str | None = None
    index: int | None = None
    """``store``, ``key`` and ``index``: the record, where the dataset says so. In a scope, ``index`` is the position in
    the chunk that is filled."""


class RepairScope:
    """Collects, in this thread, the images that are repaired inside a ``with`` statement.

    ``policy``: {"raise", "repair", "skip"}: what is done with images that are truncated or damaged, where the op or the
    call does not say so. None: as outside.
    """

    __slots__ = ("_outer", "notes", "policy", "position")

    def __init__(self, policy: str | None = None) -> None:
        self.policy = policy
        self.notes: list[Repaired] = []
        self.position: int | None = None
        self._outer: RepairScope | None = None

    def __enter__(self) -> Self:
        self._outer = this_thread.scope
        this_thread.scope = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        this_thread.scope = self._outer

    def hand_on(self, records: Iterable[Repaired]) -> None:
        """Give records to the scope around this one, or to the batch that is built in this thread."""
        notes = this_thread.notes if self._outer is None else self._outer.notes
        if notes is not None:
            notes.extend(records)

    def find_policy(self) -> str:
        """Return the policy of this scope, or of the first one around it that has one."""
        scope: RepairScope | None = self
        while scope is not None and scope.policy is None:
            scope = scope._outer  # noqa: SLF001  # of this class
        return "raise" if scope is None or scope.policy is None else scope.policy


class _ThreadLocal(threading.local):
    scope: RepairScope | None = None
    notes: list[Repaired] | None = None
    """Collects the records outside any scope: of the batch that is built in this thread."""


this_thread = _ThreadLocal()


def get_policy() -> str:
    """Return what is to be done in this thread with an image that is truncated or damaged."""
    return "raise" if this_thread.scope is None else this_thread.scope.find_policy()


def set_position(position: int) -> None:
    """Say which image of a chunk this thread decodes from now on, until the scope ends."""
    if this_thread.scope is not None:
        this_thread.scope.position = position


def note_repair(reason: str) -> None:
    """Record that an image was repaired."""
    scope = this_thread.scope
    if scope is not None:
        scope.notes.append(Repaired(reason[:_REASON], index=scope.position))
    elif this_thread.notes is not None:
        this_thread.notes.append(Repaired(reason[:_REASON]))


def check_on_truncated(value: object) -> None:
    """Raise :class:`ArgumentError` unless ``value`` is one of :data:`ON_TRUNCATED`, or None."""
    if value is not None:
        check_choice("on_truncated", value, ON_TRUNCATED)
