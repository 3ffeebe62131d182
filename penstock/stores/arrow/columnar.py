"""What the stores over columns share: fields planned from an Arrow schema, keys, blobs without the other fields.

::

    open ──plan_fields──> schema          read ──find_rows──> a reader of rows, and the row of each record

A subclass says how its columns are opened (:mod:`.arrow.files`, :mod:`.arrow.parquet`, :mod:`.arrow.lance`,
:mod:`.arrow.hugging_face`).
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError, StoreFormatError
from penstock.fields.roles import Roles, Stated
from penstock.sample import Array, Record
from penstock.stores.arrow.columns import TextColumn
from penstock.stores.arrow.fields import FieldsPlan, plan_fields
from penstock.stores.arrow.table import ColumnarReader, ColumnKeys, GetChunks, ImageFiles
from penstock.stores.base import Indices, PathLike
from penstock.stores.common.keys import LazyKeys
from penstock.stores.container import DAMAGE, ContainerStore

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PEEKED_ROWS", "ColumnarStore", "takes_columns"]

T_opened = TypeVar("T_opened", bound=ColumnarReader)
T_init = TypeVar("T_init", bound=Callable[..., None])
PEEKED_ROWS: Final = 64
"""The first values in so many rows say whether a column holds images."""
_PEEKED_VALUES: Final = 8
_RARELY: Final = 63
_OPTIONS: Final = ("image", "label", "key", "fields", "boxes", "boxes_format", "shape", "dtype", "channels")
"""What may be stated of the columns; ``boxes_format`` is an earlier name of ``boxes``."""


def takes_columns(init: T_init) -> T_init:
    """Show the options of columns in the signature of a constructor that has ``**columns`` for them.

    ``ps.open`` compares options with the signature.
    """
    signature = inspect.signature(init)
    named = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    columns = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in _OPTIONS]
    init.__signature__ = signature.replace(parameters=[*named, *columns])  # type: ignore[attr-defined]  # not in typeshed
    return init


class ColumnarStore(ContainerStore[T_opened]):
    """A store whose records are rows of columns.

    Parameters
    ----------
    path : str, path, Location or sequence of paths
        As for :class:`ContainerStore`.
    files : sequence of Path
        As for :class:`ContainerStore`.
    columns : mapping
        What is stated of the columns: arguments of :class:`~penstock.fields.roles.Stated`.
    folder : Path or None
        Where the paths of images begin that are stored as a path; None if the container is in memory.
    allow_paths : bool
        Whether such images may be read from elsewhere.
    **options
        Other options that were given.
    """

    _plan: FieldsPlan = FieldsPlan((), Roles({}, None))
    _count: int
    _rows: Array | None = None
    """The rows of the records, where they are not those of the columns in order."""
    _starts: Sequence[int] = ()
    """The first records of the parts that columns are read in, and the number of all."""
    _file_of: Sequence[int] | None = None
    """For each part its file, where a store knows it."""
    is_mapped: ClassVar[bool] = True
    """Whether rows are read from files that are mapped, or may be; else by a library."""
    _needless = _passed = 0
    """How many batches the system had nothing to read for, in a row, and how many passed since it was last asked."""

    def __init__(
        self,
        path: PathLike,
        *,
        files: Sequence[Path],
        columns: Mapping[str, object],
        folder: Path | None,
        allow_paths: bool,
        **options: object,
    ) -> None:
        named = {"boxes" if name == "boxes_format" else name: value for name, value in columns.items()}
        self._stated = Stated(**named)  # type: ignore[arg-type]  # the options of users, of any type
        allowed = {"allow_paths": True} if allow_paths else {}
        super().__init__(path, files=files, **self._stated.given, **allowed, **options)
        self._image_files = ImageFiles(folder, allow_paths=allow_paths)

    def _set_plan(self, schema: pa.Schema, count: int, reader: ColumnarReader) -> None:
        """Plan the fields of an Arrow schema; the first bytes of a column say whether it holds images."""

        def peek(column: str, path: Sequence[str]) -> list[bytes]:
            values = map(reader.open_bytes(column, path), range(min(count, PEEKED_ROWS)))
            return list(itertools.islice((bytes(value[:64]) for value in values if value is not None), _PEEKED_VALUES))

        try:
            self._plan = plan_fields(schema, self._stated, peek)
            self._schema, self._problems = self._plan.roles.schema, self._plan.left_out
        except PenstockError as error:
            error.locate(store=self.url)
            raise
        except (*DAMAGE, OSError) as error:
            raise StoreFormatError(f"the columns cannot be read: {error}", store=self.url) from error
        self._count = count

    def make_reader(self, get_chunks: GetChunks) -> ColumnarReader:
        """Return what reads rows of columns that are in memory, or mapped."""
        return ColumnarReader(self._plan.fields, get_chunks, self._image_files)

    def __len__(self) -> int:
        return self._count

    def files_of(self, indices: Sequence[int]) -> Iterable[int]:
        """Return the files of the parts that have these records."""
        files, starts = self._file_of, self._starts
        if files is None or len(self._files) == 1:
            return super().files_of(indices)
        return {files[bisect_right(starts, index) - 1] for index in indices}

    @property
    def prefetches(self) -> bool:
        """Whether :meth:`prefetch` may have something to do."""
        return self.is_mapped

    def prefetch(self, indices: Indices) -> bool | None:
        """Let the system begin to read the encoded fields of some records; returns at once."""
        if self.is_mapped and not self._closed:
            with contextlib.suppress(PenstockError, OSError, ValueError):  # reading the records raises what is wrong
                numbers = [number for number in map(int, indices) if 0 <= number < len(self)]
                reader, row_of = self.find_rows(self._opened.get(), numbers)
                return reader.announce(list(map(row_of, numbers))) > 0
        return False

    def _read_ahead(
        self, reader: ColumnarReader, row_of: Callable[[int], int], indices: Sequence[int], field: str | None = None
    ) -> None:
        """Have the system read a batch at once, instead of page by page when it is looked at.

        While files are in memory, it is asked rarely: the next time after 1, 3, 7 ... 63 batches.
        """
        self._passed += 1
        if not self.is_mapped or self.location.remote is not None or len(indices) < 2 or self._passed < self._needless:
            return
        asked = reader.announce(list(map(row_of, indices)), field)
        self._needless, self._passed = 0 if asked else min(2 * self._needless + 1, _RARELY), 0

    def find_rows(
        self, opened: T_opened, indices: Sequence[int], field: str | None = None
    ) -> tuple[ColumnarReader, Callable[[int], int]]:
        """Return what reads some records (of one field, or of all), and what gives the row that a record has there."""
        del indices, field
        return opened, int if self._rows is None else self._rows.item

    def read_keys(self) -> Sequence[str]:
        """The keys in the column that was found or stated, decoded when they are asked for; numbers without one."""
        key = self._plan.key
        return super().read_keys() if key is None else self.read_key_column(self.get_opened(), key)

    def read_key_column(self, opened: T_opened, key: tuple[str, ...]) -> Sequence[str]:
        """Return the keys in the column ``key[0]``, at the path of the other names."""
        column, *path = key
        return ColumnKeys(TextColumn(opened.get_chunks(column, path), path), self._rows)

    def read_column(self, opened: T_opened, field: str) -> Array | list[object]:
        """Return a column, without an object for each number."""
        return opened.read_column(field, self._count, self._rows)

    def lacks_value(self, field: str, indices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Read no other column; see :meth:`Store.lacks_value`."""
        numbers = indices.tolist()
        reader, row_of = self.find_rows(self.get_opened(self.files_of(numbers)), numbers, field)
        get = reader.open_field(field)
        return np.array([get(row_of(number)) is None for number in numbers], np.bool_)

    def read_record(self, opened: T_opened, index: int) -> Record:
        """A record, field by field."""
        return self.make_record_reader(opened, [index])(index)

    def make_record_reader(self, opened: T_opened, indices: Sequence[int]) -> Callable[[int], Record]:
        """Return what gives records, field by field."""
        reader, row_of = self.find_rows(opened, indices)
        read, keys = reader.read, self.keys()
        get_key = keys.get if isinstance(keys, LazyKeys) else keys.__getitem__
        self._read_ahead(reader, row_of, indices)
        return lambda index: Record(index, get_key(index), read(row_of(index)))

    def make_blob_reader(self, opened: T_opened, field: str, indices: Sequence[int]) -> Callable[[int], object]:
        """Return what gives one field, without the others."""
        reader, row_of = self.find_rows(opened, indices, field)
        get = reader.open_field(field)
        self._read_ahead(reader, row_of, indices, field)
        return get if row_of is int else lambda index: get(row_of(index))
