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
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.errors import ArgumentError, StoreError, StoreFormatError, StoreNotFoundError
from penstock.paths import IMAGE_SUFFIXES
from penstock.registry import require
from penstock.stores.arrow.features import refuse_other_classes
from penstock.stores.arrow.thrift_compact import Struct, get_struct, get_structs, get_whole, read_struct
from penstock.stores.common.mirrors import announce_ends
from penstock.stores.common.regular_file import has_magic, open_by_library, open_file
from penstock.stores.fields.record_names import make_natural_key, quote_names

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet as pq

__all__ = ["LeafColumn", "ParquetIndex", "find_parquet_files", "holds_parquet", "open_parquet", "read_footers"]

_SHARD: Final = re.compile(r"(.*?)-([0-9]+)-of-([0-9]+)")
_SPLIT: Final = re.compile(
    r"(?i)(?:^|[-_. ])(train|training|test|testing|eval|evaluation|validation|valid|val|dev)(?:$|[-_. 0-9])"
)
_SPLIT_NAMES: Final = {"training": "train", "testing": "test", "eval": "test", "evaluation": "test"}
_MAX_ROWS: Final = 1 << 40
_MAGIC: Final = b"PAR1"
_FOOTER_NBYTES: Final = 1 << 16
"""What pyarrow reads first, from the end of a file."""


@dataclass(slots=True)
class LeafColumn:
    """A column of bytes without lists: what its values are, and the compression of its chunks."""

    max_definition: int
    value_nbytes: int
    codecs: list[int] = field(default_factory=list)


@dataclass(slots=True)
class ParquetIndex:
    """The row groups of some files."""

    schema: pa.Schema  # that of all files
    unpacked_nbytes: dict[str, int]
    """For each leaf column, by its dotted path, its bytes when unpacked, as the footers say."""
    leaves: dict[str, LeafColumn]  # the columns of bytes, by their dotted paths
    spans: dict[str, list[tuple[int, int]]]
    """For each leaf column offset and number of bytes of its chunks, one for each row group."""
    starts: list[int] = field(default_factory=lambda: [0])  # first row of each row group, and the number of all rows
    files: list[int] = field(default_factory=list)  # for each row group the number of its file
    groups: list[int] = field(default_factory=list)  # for each row group its number in that file


def holds_parquet(path: str) -> bool:
    """Return whether a path is a Parquet file, or a folder of them that is no folder of images."""
    where = Path(path)
    if not where.is_dir():
        return has_magic(where, _MAGIC)
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
    """Return the files of a container, in order.

    Raises ArgumentError if there are several splits and none is stated, or the stated one is not there. Raises
    StoreFormatError if a shard is missing. Raises StoreNotFoundError if nothing is there.
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


def open_parquet(path: Path, *, check: bool = False, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """An open file; the caller closes it.

    Raises StoreFormatError if it is no readable Parquet file.
    """
    parquet = require("pyarrow.parquet", extra="parquet", purpose="to read Parquet files")
    try:
        file = open_by_library(path)
        return parquet.ParquetFile(
            file,
            memory_map=file is path,
            metadata=metadata,
            page_checksum_verification=check,
            pre_buffer=False,
        )
    except FileNotFoundError as error:
        raise StoreNotFoundError("there is no store at this path", store=str(path)) from error
    except StoreError:
        raise
    except Exception as error:  # pyarrow's exceptions have no common base but this
        raise StoreFormatError(f"{path.name} is no readable Parquet file: {error}", store=str(path)) from error


def read_footers(paths: Sequence[Path]) -> ParquetIndex:
    """Return the index of some files.

    Raises StoreFormatError if a file is damaged, or the columns of two files differ.
    """
    index: ParquetIndex | None = None
    announce_ends(paths, _FOOTER_NBYTES, last=True)
    for number, path in enumerate(paths):
        with open_parquet(path) as file:
            try:
                if index is None:
                    index = _begin_index(file)
                elif not file.schema_arrow.equals(index.schema):
                    raise ValueError("its columns differ from those of the first file")  # noqa: TRY301  # one handler
                else:
                    refuse_other_classes(file.schema_arrow.metadata, index.schema.metadata)
                for group, entry in enumerate(_read_row_groups(path)):
                    _add_row_group(index, entry, number, group)
            except ValueError as error:
                raise StoreFormatError(
                    f"{path.name} cannot be read with the others: {error}", store=str(path)
                ) from error
    assert index is not None, "a container has at least one file"
    return index


def _begin_index(file: pq.ParquetFile) -> ParquetIndex:
    """Return the columns of a file."""
    columns = [file.schema.column(number) for number in range(len(file.schema))]
    paths = [column.path for column in columns]
    index = ParquetIndex(file.schema_arrow, dict.fromkeys(paths, 0), {}, {path: [] for path in paths})
    for column in columns:
        if column.physical_type in {"BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"} and not column.max_repetition_level:
            nbytes = max(0, column.length) if column.physical_type != "BYTE_ARRAY" else 0
            index.leaves[column.path] = LeafColumn(column.max_definition_level, nbytes)
    return index


def _add_row_group(index: ParquetIndex, entry: Struct, number: int, group: int) -> None:
    """Note the rows of a row group, and where its column chunks are: their first bytes, sizes and compressions."""
    rows, chunks = index.starts[-1] + get_whole(entry, 3), get_structs(entry, 1)
    if rows > _MAX_ROWS:
        raise ValueError(f"row groups 0 to {group} have {rows} rows; there may be {_MAX_ROWS}")
    if len(chunks) != len(index.unpacked_nbytes):
        raise ValueError(f"row group {group} has {len(chunks)} columns, and the schema {len(index.unpacked_nbytes)}")
    if rows == index.starts[-1]:
        return
    index.starts.append(rows)
    index.files.append(number)
    index.groups.append(group)
    for name, column in zip(index.unpacked_nbytes, chunks, strict=True):
        chunk = get_struct(column, 3)
        index.unpacked_nbytes[name] += get_whole(chunk, 6)
        begin, dictionary = get_whole(chunk, 9), chunk.get(11)
        has_dictionary = type(dictionary) is int and 0 < dictionary < begin
        index.spans[name].append((get_whole(chunk, 11) if has_dictionary else begin, get_whole(chunk, 7)))
        if (leaf := index.leaves.get(name)) is not None:
            leaf.codecs.append(get_whole(chunk, 4))


def _read_row_groups(path: Path) -> list[Struct]:
    """The row groups in the footer of a file.

    pyarrow has read the footer already. Its accessors of column chunks are not used: they end the process where the
    statistics of a chunk are damaged.
    """
    with open_file(path) as file:
        end = file.seek(0, os.SEEK_END) - 8
        file.seek(max(0, end))
        nbytes = int.from_bytes(file.read(4), "little")
        if nbytes > end:
            raise ValueError(f"its footer has {nbytes} bytes, and the file {end}")
        file.seek(end - nbytes)
        try:
            footer, _ = read_struct(file.read(nbytes), 0)
        except IndexError as error:
            raise ValueError("its footer ends too early") from error
    return get_structs(footer, 4)


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
