"""Reads Arrow files, as they lie: what ``datasets.Dataset.save_to_disk`` wrote, and files or streams of record batches.

::

    set/state.json ──> data-00000-of-00002.arrow, ...     mapped into memory; a record's image is a view of the file
    cache-1234.arrow   a stream (as in the cache of ``datasets``) or a file with a footer

Records are read in any order at the same speed, since nothing is compressed. Files with compressed buffers are
unpacked in memory when they are opened.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from penstock.errors import ArgumentError, PenstockError, StoreFormatError
from penstock.registry import require
from penstock.stores.arrow.columnar import ColumnarStore, takes_columns
from penstock.stores.arrow.features import refuse_other_classes
from penstock.stores.arrow.table import ColumnarReader
from penstock.stores.base import PathLike
from penstock.stores.common.regular_file import has_magic, open_regular, read_json
from penstock.stores.fields.record_names import quote_names
from penstock.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrowStore"]

_MAGIC: Final = b"ARROW1"
_STREAM: Final = b"\xff\xff\xff\xff"
_STATE: Final = "state.json"
_SPLITS: Final = "dataset_dict.json"


class ArrowStore(ColumnarStore[ColumnarReader]):
    """Records of Arrow files: rows in the order of the files.

    Parameters
    ----------
    path : str, path or sequence of paths
        A folder that ``save_to_disk`` wrote, or Arrow files.
    split : str, optional
        Which split of a folder with several.
    image, label, key, fields, boxes, shape, dtype, channels : optional
        As for :class:`~penstock.stores.arrow.parquet.ParquetStore`.
    allow_paths : bool
        Whether images that are stored as a path may be read from anywhere on this machine.

    Raises
    ------
    StoreFormatError
        If the files are damaged, or are no Arrow files.
    """

    kind: ClassVar[str] = "arrow"
    takes_shards: ClassVar[bool] = True

    @takes_columns
    def __init__(
        self,
        path: PathLike,
        *,
        split: str | None = None,
        allow_paths: bool = False,
        **columns: object,
    ) -> None:
        location = self.locate(path)
        folder, files = self.find_files(location.paths, split)
        given = {} if split is None else {"split": split}
        super().__init__(location, files=files, columns=columns, folder=folder, allow_paths=allow_paths, **given)
        tables = self._open_tables()
        schema = _common_schema(tables, files)
        self._starts = [0, *itertools.accumulate(map(len, tables))]
        self._file_of = range(len(files))
        self._set_plan(schema, self._starts[-1], self._make_reader(tables))

    @property
    def description(self) -> str:
        """What was found."""
        rows, files = counted(len(self), "row"), counted(len(self._files), "file")
        return f"{self.kind}: {rows} in {files}, {self._plan.describe()}"

    @classmethod
    def recognises(cls, path: str) -> bool:
        """A folder of ``save_to_disk``, or a file that begins as Arrow's files do or is named ``*.arrow``."""
        where = Path(path)
        if where.is_dir():
            is_dataset = (where / _STATE).is_file() and (where / "dataset_info.json").is_file()
            return is_dataset or (where / _SPLITS).is_file()
        return has_magic(where, _MAGIC) or (where.suffix in {".arrow", ".arrows"} and has_magic(where, _STREAM))

    @staticmethod
    def find_files(paths: Sequence[Path], split: str | None) -> tuple[Path, list[Path]]:
        """Return the folder of a container, and its files in order."""
        first = paths[0]
        if len(paths) > 1 or not first.is_dir():
            return first.parent, list(paths)
        if (first / _SPLITS).is_file():
            splits = _read_json(first / _SPLITS).get("splits")
            names = [str(name) for name in splits] if isinstance(splits, list) else []
            if split not in names:
                raise ArgumentError(f"split must be one of {quote_names(names)}, got {split!r}", store=str(first))
            first = _child(first, split)
        elif split is not None:
            raise ArgumentError(f"split must not be given: the folder has no splits, got {split!r}", store=str(first))
        entries = _read_json(first / _STATE).get("_data_files")
        try:
            names = [str(entry["filename"]) for entry in entries] if isinstance(entries, list) else []
        except (TypeError, KeyError) as error:
            raise StoreFormatError(f"{_STATE} does not list the files of the container", store=str(first)) from error
        if not names:
            raise StoreFormatError(f"{_STATE} names no files", store=str(first))
        return first, [_child(first, name) for name in names]

    @staticmethod
    def map_table(path: Path) -> pa.Table:
        """Return the table in a file, whose buffers are pages of the mapped file."""
        from pyarrow import ipc, memory_map

        os.close(open_regular(path))
        mapped = memory_map(str(path))
        start = mapped.read(len(_MAGIC))
        mapped.seek(0)
        reader = ipc.open_file(mapped) if start == _MAGIC else ipc.open_stream(mapped)
        table = reader.read_all()
        table.validate()
        return table

    def open_files(self) -> ColumnarReader:
        """Map the files."""
        return self._make_reader(self._open_tables())

    def _make_reader(self, tables: Sequence[pa.Table]) -> ColumnarReader:
        return self.make_reader(lambda name, _: [chunk for table in tables for chunk in table.column(name).chunks])

    def _open_tables(self) -> list[pa.Table]:
        arrow = require("pyarrow", extra="parquet", purpose="to read Arrow files")
        tables = []
        for path in self._files:
            try:
                tables.append(self.map_table(path))
            except PenstockError:
                raise
            except (arrow.ArrowException, OSError, ValueError, MemoryError) as error:
                raise StoreFormatError(f"{path.name} is no readable Arrow file: {error}", store=self.url) from error
        return tables


def _common_schema(tables: Sequence[pa.Table], files: Sequence[Path]) -> pa.Schema:
    """Return the schema of all files.

    Raises StoreFormatError if the columns of two files differ.
    """
    schema = tables[0].schema
    for table, path in zip(tables, files, strict=True):
        if not table.schema.equals(schema):
            raise StoreFormatError(f"the columns of {path.name} differ from those of {files[0].name}")
        try:
            refuse_other_classes(table.schema.metadata, schema.metadata)
        except ValueError as error:
            raise StoreFormatError(f"{path.name} cannot be read with the others: {error}") from error
    return schema


def _child(folder: Path, name: str | None) -> Path:
    if not name or name in {".", ".."} or "/" in name or "\0" in name:
        raise StoreFormatError(f"a container must name files of its folder, got {name!r:.200}", store=str(folder))
    return folder / name


def _read_json(path: Path) -> dict[str, object]:
    try:
        found = read_json(path)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise StoreFormatError(f"{path.name} cannot be read: {error}", store=str(path.parent)) from error
    return found if isinstance(found, dict) else {}
