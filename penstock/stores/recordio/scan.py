"""The table of the records of RecordIO files: found by one scan, kept as arrays.

Called by :class:`~penstock.stores.recordio.store.RecordioStore`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from penstock.sample import Array
from penstock.stores.common.keys import KeyList
from penstock.stores.common.mapped_files import MappedFiles
from penstock.stores.common.mirrors import MirrorBytes
from penstock.stores.common.regular_file import open_file
from penstock.stores.recordio.format import (
    FRAME_HEAD_NBYTES,
    HEADER_NBYTES,
    ROW,
    Rows,
    parse_index,
    read_headers,
    scan_frames,
)
from penstock.wording import counted

__all__ = ["RecordTable", "scan_files"]


@dataclass(frozen=True, slots=True)
class RecordTable:
    """The records of some files: their rows, their keys, and whether the keys are those of ``.idx`` files."""

    rows: Rows
    keys: KeyList
    has_index: bool

    def to_arrays(self) -> dict[str, Array]:
        """Return the table for :func:`~penstock.stores.common.record_index.load_or_scan`."""
        keys = np.frombuffer(self.keys.joined, np.uint8)
        return {"rows": self.rows, "keys": keys, "has_index": np.array(self.has_index)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], files: int) -> RecordTable:
        """Make the table of so many files of what :meth:`to_arrays` returned; ValueError, KeyError for others."""
        rows, keys = arrays["rows"], KeyList(arrays["keys"].tobytes())
        if rows.dtype != ROW or rows.shape != (len(keys),) or rows["shard"].max(initial=0) >= files:
            raise ValueError("it has rows of another kind, or of more records or files")
        return cls(rows, keys, bool(arrays["has_index"]))

    def select(self, numbers: NDArray[np.int64]) -> RecordTable:
        """The table of some records."""
        names = list(self.keys)
        keys = KeyList.from_names(names[number] for number in numbers.tolist())
        return RecordTable(self.rows[numbers], keys, self.has_index)


def scan_files(
    mapped: MappedFiles, indexes: Sequence[Path | None], explicit: Collection[Path], *, image_header: bool
) -> RecordTable:
    """Find the records of ``.rec`` files, each with its ``.idx``; ValueError if one is damaged, or not of the other.

    Those that are ``explicit`` were named by the user; they may list a part of the records, then the only ones.
    """
    pieces = [_scan_file(mapped, number, path, path in explicit, image_header) for number, path in enumerate(indexes)]
    rows = np.concatenate([rows for rows, _ in pieces])
    return RecordTable(rows, _join_keys(pieces, indexes), any(keys is not None for _, keys in pieces))


_Piece = tuple[Rows, list[str] | None]


def _scan_file(mapped: MappedFiles, number: int, path: Path | None, is_explicit: bool, image_header: bool) -> _Piece:
    listed = None if path is None else _read_index(path)
    content = mapped.whole(number) if listed is None else mapped.ranges(number)
    if listed is not None and isinstance(content, MirrorBytes):
        content.fetch(np.sort(listed[1]).tolist(), FRAME_HEAD_NBYTES + HEADER_NBYTES)
    rows = scan_frames(content)
    rows["shard"] = number
    if image_header and not read_headers(content, rows):
        raise ValueError(
            "not all records have the header of an image (24 bytes); open it with image_header=False to read each "
            "record as bytes"
        )
    if path is None or listed is None:
        return rows, None
    chosen, keys = _match_index(path, *listed, rows["start"], is_explicit)
    return rows[chosen], keys


def _read_index(path: Path) -> tuple[list[str], NDArray[np.int64]]:
    """Read the keys and offsets of an ``.idx`` file."""
    try:
        with open_file(path) as file:
            return parse_index(file.read().decode())
    except ValueError as error:
        raise ValueError(f"{path.name} is no index of a RecordIO file: {error}") from error


def _match_index(
    path: Path, keys: list[str], offsets: NDArray[np.int64], starts: NDArray[np.int64], is_explicit: bool
) -> tuple[NDArray[np.int64], list[str]]:
    """Return the rows that an ``.idx`` file lists, in the order of the file of records, and their keys."""
    advice = "write it again, or open the store with index=False"
    rows = np.minimum(np.searchsorted(starts, offsets), max(len(starts) - 1, 0))
    if len(offsets) and (not len(starts) or (starts[rows] != offsets).any()):
        wrong = int(np.flatnonzero(starts[rows] != offsets)[0]) if len(starts) else 0
        raise ValueError(
            f"{path.name} is stale: no record begins at byte {offsets[wrong]}, where it has key {keys[wrong]!r:.80}; "
            f"{advice}"
        )
    order = np.argsort(rows, kind="stable")
    if (np.diff(rows[order]) == 0).any() or len(set(keys)) < len(keys):
        raise ValueError(f"{path.name} has a record or a key twice; {advice}")
    if len(rows) < len(starts) and not is_explicit:
        raise ValueError(
            f"{path.name} lists {counted(len(rows), 'record')} of {len(starts)}; {advice}, or give both files to read "
            "only those"
        )
    return rows[order], [keys[row] for row in order.tolist()]


def _join_keys(pieces: Sequence[_Piece], indexes: Sequence[Path | None]) -> KeyList:
    """Keys of the index files, or numbers of records; with the name of the file where a key occurs in several."""
    names: list[str] = []
    for rows, keys in pieces:
        first = len(names)
        names += keys if keys is not None else map(str, range(first, first + len(rows)))
    if len(pieces) > 1 and len(set(names)) < len(names):
        names = [
            f"{'' if path is None else path.stem}/{name}"
            for (rows, keys), path in zip(pieces, indexes, strict=True)
            for name in (keys if keys is not None else map(str, range(len(rows))))
        ]
    return KeyList.from_names(names)
