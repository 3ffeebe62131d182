"""A batch as a pickle and a list of spans in slots: large arrays and tensors are not in the pickle.

Pickle protocol 5 hands out the buffers of arrays. A buffer that lies in the batch's memory already (collation put it
there) is sent as its span; another is copied there once. Small buffers stay in the pickle. Other objects are pickled as
multiprocessing pickles them.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final

import numpy as np

from penstock.frameworks import REDUCERS
from penstock.sample import Batch, State
from penstock.workers.processes.memory import ALIGNMENT, ParentSlots, WorkerMemory
from penstock.workers.processes.messages import BufferSpan, SlotPayload

__all__ = ["dumps", "pack", "pack_state", "unpack", "unpack_payload", "unpack_state"]

_SMALL: Final = ALIGNMENT


class _Pickler(pickle.Pickler):
    """Hands out buffers, and pickles other objects as multiprocessing does."""

    def __init__(self, file: io.BytesIO, hand_out: Callable[[pickle.PickleBuffer], bool]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL, buffer_callback=hand_out)
        # a copy, so it is made each time: torch may be imported, and register its reducers, after this module
        self.dispatch_table = ForkingPickler(file).dispatch_table

    def reducer_override(self, value: object) -> Any:
        reduce = REDUCERS.get(type(value))
        return NotImplemented if reduce is None else reduce(value)


def pack(
    batch: Batch, memory: WorkerMemory, make_pickler: Callable[..., pickle.Pickler] = _Pickler
) -> tuple[bytes, list[BufferSpan]]:
    """``batch`` as a pickle, and the spans of its buffers in ``memory`` in the order of the pickle.

    ``make_pickler(file, hand_out)`` makes the pickler; ``hand_out`` is a ``buffer_callback`` of pickle.
    """
    spans: list[BufferSpan] = []

    def hand_out(buffer: pickle.PickleBuffer) -> bool:
        """Return whether the buffer stays in the pickle."""
        raw = buffer.raw()
        if raw.nbytes < _SMALL:
            return True
        span = memory.store(np.frombuffer(raw, np.uint8))
        if span is not None:
            spans.append(span)
        return span is None

    file = io.BytesIO()
    make_pickler(file, hand_out).dump(batch)  # in no cycle: it is deleted now, with its references to the batch
    return file.getvalue(), spans


def unpack(pickled: bytes, spans: Sequence[BufferSpan], slots: ParentSlots) -> Batch:
    """Return the batch of :func:`pack`.

    Its arrays are views of ``slots``, which are in use until the last one is deleted.
    """
    return pickle.loads(pickled, buffers=slots.lease_buffers(spans) if spans else ())  # noqa: S301  # from a worker of this program


def unpack_payload(payload: SlotPayload, slots: ParentSlots) -> Batch:
    """Map the new slots of a payload, and unpack its batch.

    Raises
    ------
    OSError
        If the memory cannot be mapped.
    Exception
        What unpickling raises.
    """
    try:
        slots.add(payload.new, payload.fds)
    except OSError:
        slots.free(payload.spans)
        raise
    return unpack(payload.pickled, payload.spans, slots)


def dumps(value: object) -> bytes:
    """Pickle ``value``; raises what that raises."""
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def pack_state(state: State, dumps: Callable[[object], bytes] = dumps) -> bytes | None:
    """The state of a dataset, pickled by ``dumps``; None if it has none."""
    return None if state is None else dumps(state)


def unpack_state(pickled: bytes | None) -> State:
    """Unpack a state that :func:`pack_state` has packed."""
    return None if pickled is None else pickle.loads(pickled)  # noqa: S301  # as above
