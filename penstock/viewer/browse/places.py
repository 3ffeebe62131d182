"""Where the bytes of a value lie: a file, and the offset in it, where a store gives views of mapped files.

::

    memoryview ──address──> /proc/self/maps ──> (path, offset)          Linux; elsewhere, and for copies: None
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from penstock.sample import Blob
from penstock.stores.base import Store

__all__ = ["BytesPlace", "find_place"]

_MAPS: Final = Path("/proc/self/maps")
_LINE: Final = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) \S+ \d+ +(/.*)")


@dataclass(frozen=True, slots=True)
class BytesPlace:
    """A range of bytes of a file.

    Parameters
    ----------
    path : str
        The file.
    offset, nbytes : int
        Where it begins, and its length.
    """

    path: str
    offset: int
    nbytes: int


def find_place(store: Store, key: str, value: Blob) -> BytesPlace | None:
    """Where a value of a record lies; None where that is not known: it is decompressed, copied, or on a server.

    Parameters
    ----------
    store : Store
        Of the record.
    key : str
        Of the record.
    value : bytes-like or ndarray
        As the store gave it.
    """
    if store.kind == "files" and store.location.is_local and store.location.remote is None:
        return BytesPlace(str(Path(store.location.path, key)), 0, memoryview(value).nbytes)
    if isinstance(value, bytes):
        return None
    try:
        array = np.asarray(value) if isinstance(value, np.ndarray) else np.frombuffer(value, np.uint8)
        lines = _MAPS.read_text("utf-8", "surrogateescape").splitlines()
    except (OSError, ValueError):
        return None
    address = array.__array_interface__["data"][0]
    for line in lines:
        found = _LINE.match(line)
        if found is not None and int(found[1], 16) <= address < int(found[2], 16):
            return BytesPlace(found[4], address - int(found[1], 16) + int(found[3], 16), array.nbytes)
    return None
