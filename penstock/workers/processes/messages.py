"""Messages between a backend and its worker processes, and between the two sides of a worker's memory.

::

    parent --StartEpoch, Task--------> worker       worker --EpochStarted, BatchBuilt--> parent
    parent --SlotReturn--------------> worker       worker --SlotReport----------------> parent

:mod:`penstock.workers.processes.sockets` carries them. Pickling an object of a class costs several
times as much as pickling a tuple, which counts for small batches: :func:`encode` makes a tuple of plain values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.repairs import Repaired
from penstock.sample import SampleKeys
from penstock.workers.base import Indices, Task, WorkerStart
from penstock.workers.left_out import LeftOut
from penstock.workers.processes.captured_errors import CapturedError
from penstock.workers.slow_samples import TimedPart

__all__ = [
    "BatchBuilt",
    "BufferSpan",
    "EpochStarted",
    "FromWorker",
    "Message",
    "SlotPayload",
    "SlotReport",
    "SlotReturn",
    "StartEpoch",
    "ToWorker",
    "decode",
    "encode",
]


@dataclass(slots=True)
class StartEpoch:
    """Start an epoch, as ``start`` says."""

    start: WorkerStart


@dataclass(slots=True)
class EpochStarted:
    """The worker has started the epoch, or failed to.

    ``state`` is the pickled state of its dataset before the first batch. It is pickled separately, so that the message
    can be unpickled where the state cannot.
    """

    state: bytes | None
    error: CapturedError | None


class BufferSpan(NamedTuple):
    """Where a buffer lies in a worker's slots."""

    slot: int
    start: int
    nbytes: int


@dataclass(slots=True)
class SlotPayload:
    """A batch in slots: what is left of it in the pickle, and where its buffers are.

    ``new`` and ``fds`` are the slots that the parent has not mapped yet (number, size) and their descriptors.
    """

    pickled: bytes = b""
    spans: Sequence[BufferSpan] = ()
    new: Sequence[tuple[int, int]] = ()
    fds: Sequence[int] = ()


@dataclass(slots=True)
class BatchBuilt:
    """A batch is built, or failed.

    Parameters
    ----------
    seq, rows, left_out, repaired
        As in :class:`~penstock.workers.base.TaskResult`.
    state : bytes, optional
        Pickled state of the dataset after the batch; see :class:`EpochStarted`.
    rng : bytes, optional
        State of the worker's random generators, if it has changed.
    error : CapturedError, optional
        Why there is no batch.
    times : tuple
        Nanoseconds and items of each stage, in the order of :data:`~penstock.trace.STAGES`.
    remote : dict of str to int
        Counts of what was fetched from remote stores, since the batch before; empty if nothing was.
    slow : sequence of TimedPart
        The slowest samples, if they were timed.
    payload : SlotPayload
        The batch; it is sent beside the other fields.
    """

    seq: int
    rows: int
    state: bytes | None
    rng: bytes | None
    error: CapturedError | None
    left_out: Sequence[LeftOut]
    times: tuple[tuple[int, int], ...]
    repaired: Sequence[Repaired] = ()
    remote: Mapping[str, int] = field(default_factory=dict)
    slow: Sequence[TimedPart] = ()
    payload: SlotPayload = field(default_factory=SlotPayload, repr=False)


@dataclass(slots=True)
class SlotReport:
    """Sent by a worker with a batch, unless it is empty: the slots that it uses."""

    spans: Sequence[tuple[int, int, int]]
    """The batch's buffers (:class:`BufferSpan`) in the order of its pickle; plain tuples, which are pickled faster."""
    new: list[tuple[int, int]]
    """Number and bytes of slots that the parent has not mapped yet; their descriptors come with the message."""
    dropped: list[int]  # slots that the worker has unmapped
    refused: str  # why the system gives no more shared memory; empty if it does


@dataclass(slots=True)
class SlotReturn:
    """Sent by the parent, unless it is empty: slots that it no longer uses.

    ``freed`` may be used again, ``lost`` must not be.
    """

    freed: list[int]
    lost: list[int]


ToWorker = StartEpoch | Task
FromWorker = EpochStarted | BatchBuilt
Message = ToWorker | FromWorker | SlotReport | SlotReturn


def _split_task(task: Task) -> tuple[object, ...]:
    """Return what a worker needs of a task; keys that are the indices are sent once."""
    keys, indices = task.keys, task.indices
    drawn = None if keys.indices is indices else keys.indices
    return task.seq, indices, keys.seed, keys.epoch, drawn, task.snapshot, task.fatal, task.size


def _join_task(
    seq: int, indices: Indices, seed: int, epoch: int, drawn: NDArray[np.int64] | None, snapshot: bool,
    fatal: Mapping[int, str] | None, size: int | None,
) -> Task:  # fmt: skip
    keys = SampleKeys(seed, epoch, indices if drawn is None else drawn)
    return Task(seq, indices, keys, snapshot=snapshot, fatal=fatal, size=size)


def _field_getter(cls: type) -> Callable[[Message], tuple[object, ...]]:
    names = [each.name for each in fields(cls) if each.name != "payload"]  # which is sent beside them
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda message: (get(message),)


_PLAIN: Final = (StartEpoch, EpochStarted, BatchBuilt, SlotReport, SlotReturn)
_MAKERS: Final[tuple[Callable[..., Message], ...]] = (_join_task, *_PLAIN)
_GETTERS: Final[dict[type, tuple[int, Callable[..., tuple[object, ...]]]]] = {
    Task: (0, _split_task),
    **{cls: (number, _field_getter(cls)) for number, cls in enumerate(_PLAIN, 1)},
}


def encode(message: Message) -> tuple[object, ...]:
    """Return ``message`` as a tuple: the number of its class, then its fields."""
    number, get_fields = _GETTERS[type(message)]
    return number, *get_fields(message)


def decode(values: tuple[Any, ...]) -> Message:
    """Return the message of a tuple that :func:`encode` made."""
    number, *rest = values
    message: Message = _MAKERS[number](*rest)
    return message
