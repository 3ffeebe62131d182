"""The table of the records of RecordIO files: found by one scan, kept as arrays.

Called by :class:`~penstock.stores.recordio.store.RecordioStore`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.sample import Array
from penstock.stores.common.keys import KeyList
from penstock.stores.common.mapped_files import MappedFiles
from penstock.stores.common.regular_file import open_regular
from penstock.stores.recordio.format import HEADER_NBYTES, ImageHeaders, parse_index, read_headers, scan_frames
from penstock.wording import counted

__all__ = ["RecordTable", "scan_files"]

_DTYPES: Final = {
    "shards": np.uint32,
    "starts": np.int64,
    "lengths": np.int64,
    "heads": np.int64,
    "split": np.bool_,
    "flags": np.uint32,
    "labels": np.float32,
    "ids": np.int64,
    "ids2": np.int64,
}


@dataclass(frozen=True, slots=True)
class RecordTable:
    """One value for each record in every array.

    Parameters
    ----------
    shards : ndarray of uint32
        Number of the file.
    starts, lengths, heads : ndarray of int64
        Offset of the first frame, bytes of the payload, and of what stands before the image in it.
    split : ndarray of bool
        Whether the record lies in several parts.
    flags : ndarray of uint32
        How many numbers the label has; 0: one, in ``labels``.
    labels : ndarray of float32
    ids, ids2 : ndarray of int64
        Those of the header, as numbers with a sign.
    keys : KeyList
    has_index : bool
        Whether the keys are those of ``.idx`` files.
    """

    shards: NDArray[np.uint32]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    heads: NDArray[np.int64]
    split: NDArray[np.bool_]
    flags: NDArray[np.uint32]
    labels: NDArray[np.float32]
    ids: NDArray[np.int64]
    ids2: NDArray[np.int64]
    keys: KeyList
    has_index: bool

    def to_arrays(self) -> dict[str, Array]:
        """The table for :func:`~penstock.stores.common.record_index.load_or_scan`."""
        columns = {name: getattr(self, name) for name in _DTYPES}
        return {**columns, "keys": np.frombuffer(self.keys.joined, np.uint8), "has_index": np.array(self.has_index)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], files: int) -> RecordTable:
        """The table of so many files whose :meth:`to_arrays` returned ``arrays``; ValueError, KeyError for others."""
        keys = KeyList(arrays["keys"].tobytes())
        columns: dict[str, Any] = {name: arrays[name] for name in _DTYPES}
        if any(each.dtype != _DTYPES[name] or each.shape != (len(keys),) for name, each in columns.items()):
            raise ValueError("its columns have other dtypes or lengths")
        if arrays["shards"].max(initial=0) >= files:
            raise ValueError("it has more files")
        return cls(**columns, keys=keys, has_index=bool(arrays["has_index"]))

    def select(self, rows: NDArray[np.int64]) -> RecordTable:
        """The table of some records."""
        names = list(self.keys)
        keys = KeyList.from_names(names[row] for row in rows.tolist())
        columns: dict[str, Any] = {name: getattr(self, name)[rows] for name in _DTYPES}
        return RecordTable(**columns, keys=keys, has_index=self.has_index)


def scan_files(
    mapped: MappedFiles, indexes: Sequence[Path | None], explicit: Collection[Path], *, image_header: bool
) -> RecordTable:
    """Find the records of some files.

    Parameters
    ----------
    mapped : MappedFiles
        The ``.rec`` files.
    indexes : sequence of Path or None
        The ``.idx`` file of each.
    explicit : collection of Path
        Those of them that were named by the user; they may list a part of the records, which are then the only ones.
    image_header : bool
        Whether records have the header of an image.

    Raises
    ------
    ValueError
        If a file is damaged, or an ``.idx`` file does not belong to it.
    """
    pieces = [_scan_file(mapped, number, path, path in explicit, image_header) for number, path in enumerate(indexes)]
    columns: dict[str, Any] = {name: np.concatenate([columns[name] for columns, _ in pieces]) for name in _DTYPES}
    return RecordTable(
        **columns, keys=_join_keys(pieces, indexes), has_index=any(keys is not None for _, keys in pieces)
    )


_Piece = tuple[dict[str, Array], list[str] | None]


def _scan_file(mapped: MappedFiles, number: int, path: Path | None, is_explicit: bool, image_header: bool) -> _Piece:
    content = mapped.whole(number)
    frames = scan_frames(content)
    count = len(frames.starts)
    headers = read_headers(content, frames) if image_header else _make_empty_headers(count)
    if headers is None:
        raise ValueError(
            "not all records have the header of an image (24 bytes); open it with image_header=False to read each "
            "record as bytes"
        )
    heads = HEADER_NBYTES + 4 * headers.flags.astype(np.int64) if image_header else np.zeros(count, np.int64)
    columns: dict[str, Array] = {
        "shards": np.full(count, number, np.uint32),
        "starts": frames.starts,
        "lengths": frames.lengths,
        "heads": heads,
        "split": frames.split,
        "flags": headers.flags,
        "labels": headers.labels,
        "ids": headers.ids.view(np.int64),
        "ids2": headers.ids2.view(np.int64),
    }
    if path is None:
        return columns, None
    rows, keys = _match_index(path, frames.starts, is_explicit)
    return {name: column[rows] for name, column in columns.items()}, keys


def _make_empty_headers(count: int) -> ImageHeaders:
    ids = np.zeros(count, np.uint64)
    return ImageHeaders(np.zeros(count, np.uint32), np.zeros(count, np.float32), ids, ids)


def _match_index(path: Path, starts: NDArray[np.int64], is_explicit: bool) -> tuple[NDArray[np.int64], list[str]]:
    """The rows that an ``.idx`` file lists, in the order of the file of records, and their keys."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            keys, offsets = parse_index(file.read().decode())
    except ValueError as error:
        raise ValueError(f"{path.name} is no index of a RecordIO file: {error}") from error
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
    for columns, keys in pieces:
        first = len(names)
        names += keys if keys is not None else map(str, range(first, first + len(columns["starts"])))
    if len(pieces) > 1 and len(set(names)) < len(names):
        names = [
            f"{'' if path is None else path.stem}/{name}"
            for (columns, keys), path in zip(pieces, indexes, strict=True)
            for name in (keys if keys is not None else map(str, range(len(columns["starts"]))))
        ]
    return KeyList.from_names(names)
