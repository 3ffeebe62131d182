"""Reads Lance datasets (pylance) by the positions of their rows.

::

    read([3, 90210, 7]) ──one take for the batch: rows 3, 7, 90210──> an Arrow table with these rows ──> Record ...

Lance finds and decodes the pages of the rows; the images are views of the table that it returns. It is asked for each
row once, in the order of the rows: it would copy the images again to bring them into another order. Rows of one
fragment are asked of that fragment, which saves a third of the time of small requests. A store reads the version that
was the newest when it was opened.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from penstock import system
from penstock.errors import (
    CorruptRecordError,
    PenstockError,
    StoreError,
    StoreFormatError,
    StoreNotFoundError,
)
from penstock.registry import require
from penstock.sample import Array
from penstock.stores.arrow.columnar import PEEKED_ROWS, ColumnarStore, takes_columns
from penstock.stores.arrow.columns import TextColumn
from penstock.stores.arrow.table import ColumnarReader, ColumnKeys
from penstock.stores.base import PathLike
from penstock.stores.container import fingerprint_files, naming_damage
from penstock.stores.location import Location
from penstock.wording import counted

if TYPE_CHECKING:
    import lance
    import pyarrow as pa

__all__ = ["LanceStore"]

_LANCE_ERRORS: Final = (OSError, RuntimeError, ValueError, KeyError, TypeError)


class LanceStore(ColumnarStore["lance.LanceDataset"]):
    """Records of a Lance dataset: its rows, without deleted ones, in its order.

    Parameters
    ----------
    path : str or path
        The folder of the dataset.
    version : int, optional
        Which version; by default the newest.
    image, label, key, fields, boxes, shape, dtype, channels : optional
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
    reads_copies: ClassVar[bool] = False
    is_mapped: ClassVar[bool] = False

    @takes_columns
    def __init__(
        self,
        path: PathLike,
        *,
        version: int | None = None,
        allow_paths: bool = False,
        **columns: object,
    ) -> None:
        self.location = location = self.locate(path)
        folder = location.local_path
        if not folder.is_dir():
            raise StoreNotFoundError("there is no store at this path", store=str(location))
        self._folder, self._version = folder, version
        dataset = self._open_dataset(str(location))
        with self._calling():
            self._version = int(dataset.version)
            # A pickled store opens the version that this one has, also where a newer one was written since.
            files = _list_files(dataset, folder)
            schema, fragments = dataset.schema, dataset.get_fragments()
            self._fragments = [each.fragment_id for each in fragments]
            self._starts = [0, *itertools.accumulate(each.count_rows() for each in fragments)]
        super().__init__(
            location,
            files=files,
            columns=columns,
            folder=folder.parent,
            allow_paths=allow_paths,
            version=self._version,
        )
        self._is_blob = {each.name: _is_lance_blob(each) for each in schema}
        first = range(min(self._starts[-1], PEEKED_ROWS))
        reader = self.make_reader(lambda name, _: self._take(dataset, first, [name]).column(name).chunks)
        self._set_plan(_with_plain_blobs(schema, self._is_blob), self._starts[-1], reader)

    @property
    def description(self) -> str:
        """What was found."""
        return f"lance: {counted(len(self), 'row')} of version {self._version}, {self._plan.describe()}"

    @classmethod
    def recognises(cls, path: str) -> bool:
        """Recognise a folder with the versions of a dataset, which has no data if it has no rows."""
        where = Path(path)
        return (where / "_versions").is_dir() and any((where / name).is_dir() for name in ("data", "_transactions"))

    def open_files(self) -> lance.LanceDataset:
        """Open the dataset in this process."""
        return self._open_dataset(self.url)

    def find_rows(
        self, opened: lance.LanceDataset, indices: Sequence[int], field: str | None = None
    ) -> tuple[ColumnarReader, Callable[[int], int]]:
        """A table of some records, of one request for all of them."""
        columns = {each.column for each in self._plan.fields if field in {None, each.name}}
        ordered = sorted(set(indices))
        table = self._take(opened, ordered, sorted(columns))
        rows = {index: row for row, index in enumerate(ordered)}
        return self.make_reader(lambda name, _: table.column(name).chunks), rows.__getitem__

    def read_key_column(self, opened: lance.LanceDataset, key: tuple[str, ...]) -> Sequence[str]:
        """Return the keys; the column is read once."""
        with self._calling():
            table = opened.to_table(columns={"key": ".".join(key) if len(key) > 1 else f"`{key[0]}`"})
        return ColumnKeys(TextColumn(table.column("key").chunks))

    def read_column(self, opened: lance.LanceDataset, field: str) -> Array | list[object]:
        """Return a column, without an object for each number."""
        with self._calling():
            table = opened.to_table(columns=[each.column for each in self._plan.fields if each.name == field])
        return self.make_reader(lambda name, _: table.column(name).chunks).read_column(field, len(self), None)

    def fingerprint(self) -> str:
        """Hash sizes, first and last bytes of the files with the records, and the options."""
        if not self._fingerprint:
            files = [path for path in self._files if path.suffix == ".lance"]
            stated = sorted(item for item in self._options.items() if item[0] != "version")
            with naming_damage("the store", self.url):
                self._fingerprint = fingerprint_files(files, f"{stated}\0{len(self)}")
        return self._fingerprint

    def _take(self, dataset: lance.LanceDataset, rows: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Return some rows, whose numbers increase."""
        import pyarrow as pa

        numbers = list(rows)
        plain = [name for name in columns if not self._is_blob[name]]
        with self._calling():
            table = self._take_plain(dataset, numbers, plain) if plain else pa.table({})
            for name in columns:
                if self._is_blob[name]:
                    found = dataset.read_blobs(name, indices=numbers, preserve_order=True)
                    blobs = pa.array([content for _, content in found], pa.large_binary())
                    table = table.append_column(name, blobs) if table.num_columns else pa.table({name: blobs})
        if columns and len(table) != len(numbers):
            raise CorruptRecordError(f"Lance gave {len(table)} rows of {len(numbers)}", store=str(self._folder))
        return table

    def _take_plain(self, dataset: lance.LanceDataset, rows: list[int], columns: list[str]) -> pa.Table:
        """Return columns without blobs: of the fragment that has all the rows, if one has."""
        part = bisect_right(self._starts, rows[0]) - 1 if rows else 0
        is_one = bool(rows) and rows[-1] < self._starts[part + 1]
        if not is_one or (fragment := dataset.get_fragment(self._fragments[part])) is None:
            return dataset.take(rows, columns=columns)
        return fragment.take([row - self._starts[part] for row in rows], columns=columns)

    @contextlib.contextmanager
    def _calling(self) -> Iterator[None]:
        """Raise what functions of Lance raise as errors of this store."""
        if system.used_before_fork("Lance"):
            raise StoreError(
                "Lance does not support fork, and this process was forked after Lance was used; start worker processes "
                "by multiprocessing_context='forkserver' or 'spawn', or use threads",
                store=str(self._folder),
            )
        system.note_use("Lance")
        try:
            yield
        except PenstockError:
            raise
        except BaseException as error:
            # PanicException is a fault in Lance's own code, such as a damaged file causes
            if not isinstance(error, _LANCE_ERRORS) and type(error).__name__ != "PanicException":
                raise
            if self.location.remote is not None:
                error.args = (self.location.remote.options.describe(error),)  # it may repeat them
            raise CorruptRecordError(f"Lance cannot read the dataset: {error}", store=str(self._folder)) from error

    def _open_dataset(self, where: str) -> lance.LanceDataset:
        library = require("lance", extra="lance", purpose="to read Lance datasets")
        if self.location.remote is None:
            _refuse_irregular(self._folder, where)
        try:
            with self._calling():
                dataset: lance.LanceDataset = library.dataset(
                    str(self._folder) if self.location.remote is None else self.location.remote.url,
                    version=self._version,
                    storage_options=_find_options(self.location),
                )
        except CorruptRecordError as error:
            raise StoreFormatError(f"the dataset cannot be opened: {error.__cause__}", store=where) from error
        return dataset


def _find_options(location: Location) -> dict[str, str] | None:
    """Return what Lance's own client of object storage is given, whose options are named as those of obstore."""
    remote = location.remote
    if remote is None:
        return None
    options = {name: str(value) for name, value in remote.options.get(remote.url).items()}
    endpoint = options.get("endpoint", "") or os.environ.get("AWS_ENDPOINT_URL", "")
    return {"allow_http": "true", **options} if endpoint.startswith("http://") else options


def _refuse_irregular(folder: Path, where: str) -> None:
    """Raise StoreError if something in a folder is no regular file, such as a FIFO, for which Lance would wait."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)  # noqa: PTH118  # there may be many
            if os.path.exists(path) and not os.path.isfile(path):  # noqa: PTH110, PTH113  # as above
                raise StoreError(f"{os.path.relpath(path, folder)} is not a regular file", store=where)


def _list_files(dataset: lance.LanceDataset, folder: Path) -> list[Path]:
    """Return the files that hold the rows of the dataset."""
    names = [entry.path for fragment in dataset.get_fragments() for entry in fragment.data_files()]
    if any(Path(name).is_absolute() or ".." in Path(name).parts for name in names):
        raise StoreFormatError("the dataset names files outside of its folder", store=str(folder))
    return [folder / "data" / name for name in names]


def _is_lance_blob(field: pa.Field) -> bool:
    """Whether a column is in Lance's encoding for large values, of version 1 (metadata) or 2 (an extension type)."""
    is_marked = (field.metadata or {}).get(b"lance-encoding:blob") == b"true"
    return is_marked or str(getattr(field.type, "extension_name", "")).startswith("lance.blob")


def _with_plain_blobs(schema: pa.Schema, is_blob: Mapping[str, bool]) -> pa.Schema:
    """Return the schema of what :meth:`LanceStore._take` returns."""
    import pyarrow as pa

    plain = [each.with_type(pa.large_binary()) if is_blob[each.name] else each for each in schema]
    return pa.schema(plain, schema.metadata)
