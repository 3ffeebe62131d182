"""Any batch as a pickle and a list of places in slots: arrays and tensors are not in the pickle.

Pickle protocol 5 hands out the buffers of arrays; one that lies in the batch's memory already (collation put it
there) is named, another is copied there once. Small ones stay in the pickle. Objects travel as pickles do, torch's
own kinds as torch reduces them (:mod:`penstock.torch.transport`, if torch is there).
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final

import numpy as np

from penstock.workers.processes.memory import ALIGNMENT, ParentSlots, WorkerMemory

__all__ = ["REDUCERS", "Places", "pack", "packed_state", "unpack", "unpacked_state"]

Places = list[tuple[int, int, int]]
"""Slot, offset, size of each buffer, in the pickle's order."""

_SMALL: Final = ALIGNMENT

REDUCERS: dict[type, Callable[[Any], Any]] = {}
"""How values of exactly a type are taken apart into buffers; ``NotImplemented``: as pickle would."""


class _Pickler(pickle.Pickler):
    """Hands out buffers, and pickles all else as multiprocessing does."""

    def __init__(self, file: io.BytesIO, hand_out: Callable[[pickle.PickleBuffer], bool]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL, buffer_callback=hand_out)
        # asked for each time, as it is a copy: torch may be imported, and register its own, after this module
        self.dispatch_table = ForkingPickler(file).dispatch_table

    def reducer_override(self, value: Any) -> Any:
        reduce = REDUCERS.get(type(value))
        return NotImplemented if reduce is None else reduce(value)


def pack(batch: Any, memory: WorkerMemory) -> tuple[bytes, Places]:
    """``batch`` as a pickle and the places of its buffers in ``memory``."""
    places: Places = []

    def hand_out(buffer: pickle.PickleBuffer) -> bool:
        """Whether the buffer stays in the pickle."""
        raw = buffer.raw()
        if raw.nbytes < _SMALL:
            return True
        place = memory.place(np.frombuffer(raw, np.uint8))
        if place is not None:
            places.append(place)
        return place is None

    file = io.BytesIO()
    _Pickler(file, hand_out).dump(batch)  # it holds no cycle: what it remembers of the batch goes with it, now
    return file.getvalue(), places


def unpack(pickled: bytes, places: Places, slots: ParentSlots) -> Any:
    """The batch again; its arrays are views of ``slots``, the consumer's until the last of them dies."""
    return pickle.loads(pickled, buffers=slots.buffers(places) if places else ())  # noqa: S301  # from a worker of this program


def packed_state(state: Any) -> bytes | None:
    """What a dataset says of itself, apart from its message: if it cannot be loaded, the message still can."""
    return None if state is None else pickle.dumps(state, pickle.HIGHEST_PROTOCOL)


def unpacked_state(pickled: bytes | None) -> Any:
    """The state again."""
    return None if pickled is None else pickle.loads(pickled)  # noqa: S301  # as above
