"""Reads Lance datasets (pylance) by the positions of their rows.

::

    read([3, 90210, 7]) ──one take for the batch──> an Arrow table with these rows ──> Record ...

Lance finds and decodes the pages of the rows; the images are views of the table that it returns. A store reads the
version that was the newest when it was opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from penstock import forks
from penstock.errors import (
    CorruptRecordError,
    PenstockError,
    StoreError,
    StoreFormatError,
    StoreNotFoundError,
)
from penstock.registry import require
from penstock.sample import Array
from penstock.stores.arrow.columnar import ColumnarStore, takes_columns
from penstock.stores.arrow.columns import TextColumn
from penstock.stores.arrow.files import peek_column
from penstock.stores.arrow.table import ColumnKeys, TableReader, make_column_values, make_reader
from penstock.stores.base import PathLike
from penstock.stores.container import fingerprint_files
from penstock.wording import counted

__all__ = ["LanceStore"]

T_result = TypeVar("T_result")
_PEEKED_ROWS = 16


class LanceStore(ColumnarStore[Any]):
    """Records of a Lance dataset: its rows, without deleted ones, in its order.

    Parameters
    ----------
    path : str or path
        The folder of the dataset.
    version : int, optional
        Which version; by default the newest.
    image, label, key, fields, boxes_format, shape, dtype, channels : optional
        As for :class:`~penstock.stores.arrow.parquet.ParquetStore`.
    allow_paths : bool
        Whether images that are stored as a path may be read from anywhere on this machine.

    Raises
    ------
    StoreFormatError
        If the dataset is damaged, or has no such version.

    Notes
    -----
    The dataset is opened in each process. Lance does not support ``fork``: some forked children crash or wait for ever
    in its code. So a process that was forked after its parent had used Lance is refused with a
    :class:`~penstock.errors.StoreError`; the loaders of penstock start workers by ``forkserver`` where they choose.
    """

    kind: ClassVar[str] = "lance"

    @takes_columns
    def __init__(
        self,
        path: PathLike,
        *,
        version: int | None = None,
        allow_paths: bool = False,
        **columns: Any,
    ) -> None:
        location = self.locate(path)
        folder = location.local_path
        if not folder.is_dir():
            raise StoreNotFoundError("there is no store at this path", store=str(location))
        self._folder, self._version = folder, version
        dataset = self._open_dataset(str(location))
        self._version = int(self._call(lambda: dataset.version))
        # A pickled store opens the version that this one has, also where a newer one was written since.
        files = self._call(lambda: _list_files(dataset, folder))
        super().__init__(
            location,
            files=files,
            columns=columns,
            folder=folder.parent,
            allow_paths=allow_paths,
            version=self._version,
        )
        stored = self._call(lambda: dataset.schema)
        self._is_blob = {each.name: _is_lance_blob(each) for each in stored}
        count = int(self._call(dataset.count_rows))
        head = self._take(dataset, list(range(min(count, _PEEKED_ROWS))), self._find_binary(stored))
        schema = _with_plain_blobs(stored, self._is_blob)
        self._set_plan(schema, lambda name, path: peek_column(head.column(name).chunks, path), count)
        self._columns_of = {field.name: field.column for field in self._plan.fields}

    @property
    def description(self) -> str:
        """What was found."""
        return f"lance: {counted(len(self), 'row')} of version {self._version}, {self._plan.describe()}"

    @classmethod
    def recognises(cls, path: str) -> bool:
        """A folder with the versions of a dataset, which has no data if it has no rows."""
        where = Path(path)
        return (where / "_versions").is_dir() and any((where / name).is_dir() for name in ("data", "_transactions"))

    def open_files(self) -> Any:
        """Open the dataset in this process."""
        return self._open_dataset(self.url)

    def find_rows(
        self, opened: Any, indices: Sequence[int], field: str | None = None
    ) -> tuple[TableReader, Callable[[int], int]]:
        """A table of some records, of one request for all of them."""
        columns = sorted(set(self._columns_of.values())) if field is None else [self._columns_of[field]]
        table = self._take(opened, list(indices), columns)
        rows = {index: row for row, index in enumerate(indices)}
        reader = TableReader(self._plan.fields, lambda name: table.column(name).chunks, self._image_files)
        return reader, rows.__getitem__

    def read_key_column(self, opened: Any, key: tuple[str, ...]) -> Sequence[str]:
        """The keys; the column is read once."""
        column, *path = key
        name = ".".join(key)
        table = self._call(lambda: opened.to_table(columns={"key": f"`{column}`" if not path else name}))
        return ColumnKeys(TextColumn(table.column("key").chunks))

    def read_column(self, opened: Any, field: str) -> Array | list[Any]:
        """A column, without an object for each number."""
        planned = next(each for each in self._plan.fields if each.name == field)
        table = self._call(lambda: opened.to_table(columns=[planned.column]))
        reader = make_reader(planned, lambda name, _: table.column(name).chunks, self._image_files)
        return make_column_values(reader, self.schema[field].kind, len(self))

    def fingerprint(self) -> str:
        """Of sizes, and of the first and last bytes, of the files with the records; and of the options."""
        if not self._fingerprint:
            files = [path for path in self._files if path.suffix == ".lance"]
            stated = sorted(item for item in self._options.items() if item[0] != "version")
            self._fingerprint = fingerprint_files(files, f"{stated}\0{len(self)}")
        return self._fingerprint

    def _take(self, dataset: Any, numbers: list[int], columns: list[str]) -> Any:
        import pyarrow as pa

        plain = [name for name in columns if not self._is_blob[name]]
        table = self._call(lambda: dataset.take(numbers, columns=plain)) if plain else None
        for name in columns:
            if self._is_blob[name]:
                contents = self._call(lambda name=name: _read_blobs(dataset, name, numbers))  # type: ignore[misc]
                blobs = pa.array(contents, pa.large_binary())
                table = pa.table({name: blobs}) if table is None else table.append_column(name, blobs)
        if table is None:
            return pa.table({})
        if len(table) != len(numbers):
            raise CorruptRecordError(f"Lance gave {len(table)} rows of {len(numbers)}", store=str(self._folder))
        return table

    def _find_binary(self, schema: Any) -> list[str]:
        """The columns whose content decides what they are."""
        return [each.name for each in schema if self._is_blob[each.name] or "binary" in str(each.type)]

    def _call(self, function: Callable[[], T_result]) -> T_result:
        """What a function of Lance returns; whatever it raises becomes an error of this store."""
        if forks.used_before_fork("Lance"):
            raise StoreError(
                "Lance does not support fork, and this process was forked after Lance was used; start worker processes "
                "by multiprocessing_context='forkserver' or 'spawn', or use threads",
                store=str(self._folder),
            )
        forks.note_use("Lance")
        try:
            return function()
        except PenstockError:
            raise
        except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
            raise CorruptRecordError(f"Lance cannot read the dataset: {error}", store=str(self._folder)) from error
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # a fault in Lance's own code, such as a damaged file causes
                raise
            raise CorruptRecordError(f"Lance failed on the dataset: {error}", store=str(self._folder)) from error

    def _open_dataset(self, where: str) -> Any:
        lance = require("lance", extra="lance", purpose="to read Lance datasets")
        try:
            return self._call(lambda: lance.dataset(str(self._folder), version=self._version))
        except CorruptRecordError as error:
            raise StoreFormatError(f"the dataset cannot be opened: {error.__cause__}", store=where) from error


def _list_files(dataset: Any, folder: Path) -> list[Path]:
    """The files that hold the rows of the dataset."""
    names = [entry.path for fragment in dataset.get_fragments() for entry in fragment.data_files()]
    if any(Path(name).is_absolute() or ".." in Path(name).parts for name in names):
        raise StoreFormatError("the dataset names files outside of its folder", store=str(folder))
    return [folder / "data" / name for name in names]


def _is_lance_blob(field: Any) -> bool:
    """Whether a column is in Lance's encoding for large values, of version 1 (metadata) or 2 (an extension type)."""
    is_marked = (field.metadata or {}).get(b"lance-encoding:blob") == b"true"
    return is_marked or str(getattr(field.type, "extension_name", "")).startswith("lance.blob")


def _with_plain_blobs(schema: Any, is_blob: Mapping[str, bool]) -> Any:
    """The schema of what :meth:`LanceStore._take` returns."""
    import pyarrow as pa

    plain = [each.with_type(pa.large_binary()) if is_blob[each.name] else each for each in schema]
    return pa.schema(plain, schema.metadata)


def _read_blobs(dataset: Any, name: str, numbers: list[int]) -> list[bytes | None]:
    """The values of a column in Lance's encoding for large values; older versions leave out null rows."""
    blobs = dataset.take_blobs(name, indices=numbers)
    if len(blobs) != len(numbers):
        blobs = [next(iter(dataset.take_blobs(name, indices=[number])), None) for number in numbers]
    return [None if blob is None else blob.readall() for blob in blobs]
