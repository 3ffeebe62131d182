"""Which files a Parquet container consists of, and where its row groups and column chunks are.

::

    folder/data/train-00000-of-00002.parquet, ... ──find_parquet_files──> files of one split, in order
    files ──read_footers──> ParquetIndex: first row of each row group, bytes of each column chunk

Called when a :class:`~penstock.stores.arrow.parquet.ParquetStore` is opened. pyarrow parses the footers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, StoreFormatError, StoreNotFoundError
from penstock.paths import IMAGE_SUFFIXES
from penstock.registry import require
from penstock.stores.arrow.thrift_compact import Shape, get_whole, read_struct
from penstock.stores.common.regular_file import open_regular
from penstock.stores.fields.record_names import make_natural_key, quote_names

__all__ = ["LeafColumn", "ParquetIndex", "find_parquet_files", "holds_parquet", "open_parquet", "read_footers"]

_SHARD: Final = re.compile(r"(.*?)-([0-9]+)-of-([0-9]+)")
_SPLIT: Final = re.compile(
    r"(?i)(?:^|[-_. ])(train|training|test|testing|eval|evaluation|validation|valid|val|dev)(?:$|[-_. 0-9])"
)
_SPLIT_NAMES: Final = {"training": "train", "testing": "test", "eval": "test", "evaluation": "test"}
_FOOTER: Final[Shape] = {4: ({1: ({3: dict.fromkeys((4, 6, 7, 9, 11))},), 3: None},)}
"""Of a footer: row groups; of these, column chunks and number of rows; of these, compression, sizes and offsets."""
_COMPRESSIONS: Final = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
_MAX_ROWS: Final = 1 << 40
_MAGIC: Final = b"PAR1"


@dataclass(frozen=True, slots=True)
class LeafColumn:
    """A column of bytes without lists: where its chunks are, one for each row group, and what its values are."""

    max_definition: int
    value_nbytes: int
    begins: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    compressions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ParquetIndex:
    """The row groups of some files.

    Parameters
    ----------
    schema : pyarrow.Schema
        That of all files.
    starts : int64 array
        First row of each row group, and the number of all rows.
    files, groups : int32 array
        For each row group the number of its file, and its number there.
    leaves : dict
        The columns of bytes, by their dotted paths.
    unpacked_nbytes : dict
        For each leaf column its bytes when unpacked, as the footers say.
    """

    schema: Any
    starts: NDArray[np.int64]
    files: NDArray[np.int32]
    groups: NDArray[np.int32]
    leaves: dict[str, LeafColumn]
    unpacked_nbytes: dict[str, int]


def holds_parquet(path: str) -> bool:
    """Whether a path is a Parquet file, or a folder of them that is no folder of images."""
    where = Path(path)
    if not where.is_dir():
        try:
            with os.fdopen(open_regular(where), "rb") as file:
                return file.read(4) == _MAGIC
        except OSError:
            return False
    try:
        with os.scandir(where) as entries:
            shown = [(entry.name, entry.is_dir()) for entry in entries if not entry.name.startswith(".")]
        if any(name.lower().endswith(tuple(IMAGE_SUFFIXES)) for name, _ in shown):
            return False
        if any(name.endswith(".parquet") for name, is_folder in shown if not is_folder):
            return not any(is_folder and name != "data" for name, is_folder in shown)
        return ("data", True) in shown and any((where / "data").glob("*.parquet"))
    except OSError:
        return False


def find_parquet_files(paths: Sequence[Path], split: str | None) -> list[Path]:
    """The files of a container, in order.

    Raises
    ------
    ArgumentError
        If there are several splits and none is stated, or the stated one is not there.
    StoreFormatError
        If a shard is missing.
    StoreNotFoundError
        If nothing is there.
    """
    is_folder = len(paths) == 1 and paths[0].is_dir()
    if is_folder:
        folder = paths[0]
        found = [*folder.glob("*.parquet")] or [*(folder / "data").glob("*.parquet")]
        if not found:
            raise StoreNotFoundError("there are no Parquet files in this folder", store=str(folder))
        found.sort(key=lambda path: make_natural_key(path.name))
    else:
        found = list(paths)
    if len(found) > 1 or split is not None:
        found = _choose_split(found, split, is_folder=is_folder)
    if is_folder:
        _refuse_missing_shards(found)
    return found


def open_parquet(path: Path, *, check: bool = False, metadata: Any = None) -> Any:
    """A ``pyarrow.parquet.ParquetFile``; the caller closes it.

    Raises
    ------
    StoreFormatError
        If it is no readable Parquet file.
    """
    parquet = require("pyarrow.parquet", extra="parquet", purpose="to read Parquet files")
    try:
        os.close(open_regular(path))
        return parquet.ParquetFile(
            path, memory_map=True, metadata=metadata, page_checksum_verification=check, pre_buffer=False
        )
    except FileNotFoundError as error:
        raise StoreNotFoundError("there is no store at this path", store=str(path)) from error
    except Exception as error:  # pyarrow's exceptions have no common base but this
        raise StoreFormatError(f"{path.name} is no readable Parquet file: {error}", store=str(path)) from error


def read_footers(paths: Sequence[Path]) -> ParquetIndex:
    """The index of some files.

    Raises
    ------
    StoreFormatError
        If a file is damaged, or the columns of two files differ.
    """
    footers = _Footers()
    for number, path in enumerate(paths):
        with open_parquet(path) as file:
            try:
                footers.add(number, path, file)
            except ValueError as error:
                raise StoreFormatError(
                    f"{path.name} cannot be read with the others: {error}", store=str(path)
                ) from error
    return footers.to_index()


class _Footers:
    """Collects the footers of files."""

    def __init__(self) -> None:
        self._schema: Any = None
        self._names: list[str] = []  # of the leaf columns
        self._levels: dict[str, tuple[int, int]] = {}  # of the columns of bytes: largest level, bytes of a value
        self._rows = 0
        self._groups: list[tuple[int, int, int]] = []  # rows, file, number in the file
        self._places: dict[str, list[tuple[int, int, str]]] = {}
        self._unpacked: dict[str, int] = {}

    def add(self, number: int, path: Path, file: Any) -> None:
        """Add a file; raises ValueError."""
        if self._schema is None:
            self._begin(file)
        elif not file.schema_arrow.equals(self._schema):
            raise ValueError("its columns differ from those of the first file")
        for group, entry in enumerate(_read_row_groups(path)):
            rows, chunks = get_whole(entry, 3), entry.get(1, [])
            self._rows += rows
            if self._rows > _MAX_ROWS:
                raise ValueError(f"row groups 0 to {group} have {self._rows} rows; there may be {_MAX_ROWS}")
            if len(chunks) != len(self._names):
                raise ValueError(f"row group {group} has {len(chunks)} columns, and the schema {len(self._names)}")
            if rows:
                self._groups.append((rows, number, group))
                for name, chunk in zip(self._names, chunks, strict=True):
                    self._add_chunk(name, chunk.get(3, {}))

    def to_index(self) -> ParquetIndex:
        """What was found."""
        rows, files, groups = (np.array([entry[i] for entry in self._groups], np.int64) for i in range(3))
        leaves = {
            name: LeafColumn(
                *self._levels[name],
                np.array([place[0] for place in places], np.int64),
                np.array([place[1] for place in places], np.int64),
                tuple(place[2] for place in places),
            )
            for name, places in self._places.items()
        }
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(rows)])
        return ParquetIndex(
            self._schema, starts, files.astype(np.int32), groups.astype(np.int32), leaves, self._unpacked
        )

    def _add_chunk(self, name: str, chunk: dict[int, Any]) -> None:
        """Note where a column chunk begins in its file, its number of bytes, and its compression."""
        self._unpacked[name] += get_whole(chunk, 6)
        if name in self._places:
            begin, dictionary = get_whole(chunk, 9), chunk.get(11)
            if type(dictionary) is int and 0 < dictionary < begin:
                begin = dictionary
            codec = get_whole(chunk, 4)
            compression = _COMPRESSIONS[codec] if codec < len(_COMPRESSIONS) else str(codec)
            self._places[name].append((begin, get_whole(chunk, 7), compression))

    def _begin(self, file: Any) -> None:
        self._schema = file.schema_arrow
        for number in range(len(file.schema)):
            leaf = file.schema.column(number)
            self._names.append(leaf.path)
            self._unpacked[leaf.path] = 0
            is_fixed = leaf.physical_type == "FIXED_LEN_BYTE_ARRAY"
            if (is_fixed or leaf.physical_type == "BYTE_ARRAY") and not leaf.max_repetition_level:
                self._levels[leaf.path] = leaf.max_definition_level, max(0, leaf.length) if is_fixed else 0
                self._places[leaf.path] = []


def _read_row_groups(path: Path) -> list[dict[int, Any]]:
    """The row groups in the footer of a file.

    pyarrow has read the footer already. Its accessors of column chunks are not used: they end the process where the
    statistics of a chunk are damaged.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        end = file.seek(0, os.SEEK_END) - 8
        file.seek(max(0, end))
        nbytes = int.from_bytes(file.read(4), "little")
        if nbytes > end:
            raise ValueError(f"its footer has {nbytes} bytes, and the file {end}")
        file.seek(end - nbytes)
        try:
            footer, _ = read_struct(file.read(nbytes), 0, _FOOTER)
        except IndexError as error:
            raise ValueError("its footer ends too early") from error
    groups: list[dict[int, Any]] = footer.get(4, [])
    return groups


def _choose_split(found: Sequence[Path], split: str | None, *, is_folder: bool) -> list[Path]:
    splits: dict[str, list[Path]] = {}
    for path in found:
        splits.setdefault(_split_of(path.name), []).append(path)
    names = quote_names(sorted(splits), 20)
    if split is not None:
        if split not in splits:
            raise ArgumentError(f"split must be one of {names}, got {split!r}", store=str(found[0].parent))
        return splits[split]
    if len(splits) > 1 and is_folder:
        raise ArgumentError(
            f"this folder has {len(splits)} splits; state one of them: split= {names}", store=str(found[0].parent)
        )
    return list(found)


def _split_of(name: str) -> str:
    """The split that a file belongs to by its name; empty where the name has none."""
    stem = name.removesuffix(".parquet")
    found = _SPLIT.search(stem)
    if found is not None:
        word = found[1].lower()
        return _SPLIT_NAMES.get(word, "validation" if word in {"valid", "val", "dev"} else word)
    shard = _SHARD.match(stem)
    return shard[1] if shard else ""


def _refuse_missing_shards(found: Sequence[Path]) -> None:
    numbers: dict[tuple[str, str], set[int]] = {}
    for path in found:
        shard = _SHARD.match(path.name)
        if shard is not None:
            numbers.setdefault((shard[1], shard[3]), set()).add(int(shard[2]))
    for (prefix, count), present in numbers.items():
        missing = sorted(set(range(min(int(count), 100_000))) - present)
        if missing:
            raise StoreFormatError(
                f"{len(missing)} of {int(count)} shards {prefix!r} are missing, the first one is number {missing[0]}",
                store=str(found[0].parent),
            )
