"""Buffers of batches in Ray's object store, as arrays that the user may write to.

Ray maps an object read-only for Python, since several readers may share it. A batch has one reader, and its object is
freed with the batch's last array: nobody else sees what is written to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.workers.processes.messages import SlotPayload

__all__ = ["ObjectPayload", "as_writable"]

_SMALL: Final = 100_000
"""Bytes of a buffer that is copied: Ray sends so small a reply without its object store."""


@dataclass(slots=True)
class ObjectPayload(SlotPayload):
    """A batch in Ray's object store: its buffers, read-only."""

    buffers: Sequence[NDArray[np.uint8]] = ()


def as_writable(buffer: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A writable view of memory of the object store that nobody else reads; a copy if it is small, or not writable."""
    address = buffer.__array_interface__["data"][0]
    if buffer.nbytes < _SMALL or not _is_mapped_writable(address, buffer.nbytes):
        return buffer.copy()
    return np.asarray(_WritableView(buffer, address))


class _WritableView:
    """The memory of an array, which it keeps alive, as a writable array."""

    def __init__(self, array: NDArray[np.uint8], address: int) -> None:
        self._array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


def _is_mapped_writable(address: int, nbytes: int) -> bool:
    """Whether this process has mapped these bytes of shared memory writable, as Linux says."""
    if any(start <= address and address + nbytes <= stop for start, stop in _writable):
        return True
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    for line in maps.splitlines():
        addresses, permissions, *_ = line.split(maxsplit=2)
        start, stop = (int(part, 16) for part in addresses.split("-"))
        if start <= address and address + nbytes <= stop and permissions.startswith("rw") and permissions[3] == "s":
            _writable.append((start, stop))
            return True
    return False


_writable: list[tuple[int, int]] = []
"""Mappings of object stores that were found writable; they last as long as the process."""
