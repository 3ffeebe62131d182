"""Tables of paths of images and other columns as sources: streamed, checked before anything is written.

::

    1. every row: what the columns hold      2. every row: keys, sizes and times of the files      3. pack
                                                missing files, equal keys: by name and line

A path is below ``root``, by default the folder of the table. The files are the images: they are stored as they are.
"""

from __future__ import annotations

import functools
import itertools
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

import numpy as np
import xxhash

from penstock.errors import ArgumentError, PackError, StoreError
from penstock.pack.sources.base import KEY, Source, SourceItem, SourceOptions
from penstock.pack.sources.columns import ColumnPlan, plan_columns
from penstock.pack.sources.conversion import PictureEncoding, RecordConverter
from penstock.pack.sources.inference import INFERRED_FROM, GivenSchema
from penstock.pack.sources.samples import NUMBERED
from penstock.pack.sources.values import guess, names_image, plain
from penstock.paths import FolderListings, find_named_file
from penstock.sample import DatasetLike, Index, Value
from penstock.stores.common.keys import KeyList
from penstock.stores.common.table_files import MISSING_WORDS, TABLE_SUFFIXES, Table, TableRow
from penstock.stores.images.listing import describe_file_type
from penstock.stores.location import Location
from penstock.stores.writing import Skipped
from penstock.transforms.inputs import is_pil

__all__ = ["OPTIONS", "ManifestSource", "PackedTable", "names_images"]

OPTIONS: Final = ("schema", "classes", "key", "root", "columns")
"""Options of tables."""
_REMEMBERED: Final = 1024
"""Files that are remembered: tables name one several times in a row."""
_NOUNS: Final = {"image": "an image", "mask": "an image", "bytes": "a sound"}


class PackedTable(Table):
    """A table as a source: what is wrong with it is a :class:`PackError`."""

    def rows(self) -> Iterator[TableRow]:
        """Yield the rows, in order."""
        try:
            yield from super().rows()
        except StoreError as error:
            raise PackError(error.message) from error


class ManifestSource(Source):
    """The rows of a table, with the files that they name.

    Parameters
    ----------
    table : Table
        The table.
    options : SourceOptions
        Schema, classes, key and columns.
    root : Path
        The folder of relative paths.

    Raises
    ------
    PackError
        If the table cannot be parsed, or a column has no kind.
    ArgumentError
        If an option names what the table does not have.
    """

    keys: Sequence[str]

    def __init__(self, table: Table, options: SourceOptions, root: Path) -> None:
        self.url = table.name
        self._table, self._root = table, root.absolute()
        given = GivenSchema(options.schema, options.classes)
        self._plan = plan_columns(self._table, given, options.columns)
        self.schema = self._plan.schema
        self._converter = RecordConverter(self.schema, PictureEncoding("png"), root=self._root)
        self._key_column = _choose_key(self._plan, options.key)
        self.numbers_records = self._key_column is None
        self._left_out: set[int] = set()
        self._look_at_files()

    @classmethod
    def recognises(cls, src: object) -> bool:
        """Recognise a file with the ending of a table; a Parquet file only if it has paths of images and no images."""
        if not isinstance(src, str | os.PathLike):
            return False
        path = Path(os.fsdecode(src))
        if path.suffix.lower() not in TABLE_SUFFIXES or not path.is_file():
            return False
        return path.suffix.lower() != ".parquet" or _has_paths(path)

    @classmethod
    def open(cls, src: DatasetLike, options: SourceOptions) -> Self:
        """Read the table, and look at its files."""
        options.refuse_others(OPTIONS, "a table")
        path = Path(os.fsdecode(src))
        source = cls(PackedTable(path), options, path.absolute().parent if options.root is None else Path(options.root))
        source.location, source.url = Location.from_path("table", path), str(path)
        return source

    def items(self, start: int) -> Iterator[SourceItem]:
        """Key and row of each row that can be packed."""
        position = 0
        for number, row in enumerate(self._table.rows()):
            if number in self._left_out:
                continue
            if position >= start:
                yield SourceItem(self.keys[position], row)
            position += 1
        if position != len(self.keys):
            raise PackError(f"the table {self.url} was changed while it was packed")

    def load(self, token: Index) -> Mapping[str, Value]:
        """Read the files of a row, and convert its values."""
        return self._converter.convert(self._plan.parse(token.values))

    def describe_item(self, token: Index) -> str:
        """Return the line of a row, and the path of its first file if its key is none."""
        columns = [each.column for each in self._plan.files.values()]
        value = None if not columns or self._key_column in columns else token.values.get(columns[0])
        return f"{self._table.describe(token)}{f' ({value})' if isinstance(value, str) else ''}: "

    def digest(self) -> str:
        """The hash of the table's bytes, its fields, and the names, sizes and times of change of the files."""
        return self._digest

    def _look_at_files(self) -> None:
        """Find the key of each row, and the rows that cannot be packed; compute the digest."""
        with np.printoptions(threshold=sys.maxsize, floatmode="unique"):  # arrays whole, as all else is
            self._read_rows()

    def _read_rows(self) -> None:
        state = xxhash.xxh3_128(f"{self.schema.to_json()}\0{self._key_column}\0{self._root}\0".encode())
        keys: list[str] = []
        problems: list[Skipped] = []
        first_lines: dict[int, int] = {}
        listings = FolderListings()
        find = functools.lru_cache(_REMEMBERED)(lambda value: _find_file(self._root, value, listings))
        for number, row in enumerate(self._table.rows()):
            paths: dict[str, str] = {}
            reason = self._find_problem(row, state, paths, find)
            key = str(number) if self._key_column is None else _make_key(row.values.get(self._key_column), paths)
            reason = "it has no key" if not key else reason
            earlier = first_lines.setdefault(hash(key), row.line) if self._key_column is not None else row.line
            if reason is None and earlier != row.line:
                reason = (
                    f'{self._table.unit} {earlier} has the same {self._key_column}; key="index" (--key index) names '
                    "records by their numbers"
                )
            if reason is None:
                keys.append(key.replace("\0", ""))
            else:
                self._left_out.add(number)
                problems.append(Skipped(key or str(number), f"{self.describe_item(row)}{reason}"))
            state.update(repr(sorted(row.values.items())).encode(errors="surrogatepass"))
        self.keys, self.total = KeyList.from_names(keys), len(keys)
        self.problems = self.unreadable = tuple(problems)
        self._digest = state.hexdigest()

    def _find_problem(
        self, row: TableRow, state: xxhash.xxh3_128, paths: dict[str, str], find: Callable[[str], _NamedFile | None]
    ) -> str | None:
        """Why the files of a row cannot be read; adds them to the digest, and to ``paths`` those that were found."""
        for name, column in self._plan.files.items():
            value = row.values.get(column.column)
            if not isinstance(value, str | None):  # the content
                continue
            if value is None or value.strip() in MISSING_WORDS:
                return f"it has no path in column {column.column!r}"
            if "://" in value:
                return f"{value} is an address, and images must be files"
            if column.suffixes and os.path.splitext(value.rstrip())[1].lower() not in column.suffixes:  # noqa: PTH122
                return f"column {column.column!r} has no path of {_NOUNS[column.field.kind]}, but {value!r:.200}"
            found = find(value)
            if found is None:
                return f"there is no file {self._root / value}; root= (--root) names the folder of the paths"
            if not stat.S_ISREG(found.seen.st_mode):
                return f"{self._root / value} is {describe_file_type(found.seen.st_mode)}, not a file"
            state.update(f"{name}\0{found.seen.st_size}\0{found.seen.st_mtime_ns}\0".encode())
            paths[value] = found.path
        return None


class _NamedFile(NamedTuple):
    """A file that a cell names: its path below the root, and what the system says of it."""

    path: str
    seen: os.stat_result


def _find_file(root: Path, value: str, listings: FolderListings) -> _NamedFile | None:
    try:
        seen = os.stat(os.path.join(root, value))  # noqa: PTH116, PTH118  # texts, since they may be a million
    except (OSError, ValueError):
        found = find_named_file(root, value, listings)
        return None if found is None else _NamedFile(found.relative_to(root).as_posix(), found.stat())
    return _NamedFile(Path(value).as_posix(), seen)


def _make_key(value: object, paths: Mapping[str, str]) -> str:
    """Return the key that a cell is: the path of its file, a text or a number; empty if it is none."""
    if isinstance(value, str):
        return paths.get(value, value)
    return str(value) if isinstance(value, int) else ""


def _choose_key(plan: ColumnPlan, key: str | None) -> str | None:
    """Return the column that names records; None for their numbers."""
    columns = {name: each.column for name, each in plan.columns.items()}
    if key is not None:
        if key in columns or key in columns.values():
            return columns.get(key, key)
        if key == NUMBERED:
            return None
        raise ArgumentError(f"key must be one of the columns ({', '.join(columns.values())}) or 'index', got {key!r}")
    if plan.has_keys:
        return KEY
    images = [each.column for each in plan.columns.values() if each.field.kind == "image"]
    return images[0] if images else None


def _has_paths(path: Path) -> bool:
    """Return whether a Parquet file has a column of paths of images, and no column of bytes."""
    try:
        rows = [row.values for row in itertools.islice(PackedTable(path).rows(), INFERRED_FROM)]
    except (PackError, ImportError):
        return False  # the store of Parquet files says what is wrong
    dicts = (value for row in rows for value in row.values() if isinstance(value, dict))
    return names_images(rows) and not any("bytes" in value for value in dicts)


def names_images(rows: Sequence[object]) -> bool:
    """Return whether rows are dicts without an image, and most values of one of their columns are paths of images."""
    columns: dict[str, list[object]] = {}
    for row in rows:
        if not isinstance(row, Mapping) or not all(isinstance(name, str) for name in row):
            return False
        for name, value in row.items():
            if _may_be_image(name, value):
                return False
            if value is not None:
                columns.setdefault(name, []).append(value)
    return any(
        2 * sum(isinstance(value, str) and names_image(value) for value in column) > len(column)
        for column in columns.values()
    )


def _may_be_image(name: str, value: object) -> bool:
    if getattr(value, "ndim", 0) > 1:  # an array or a tensor, such as boxes or pixels
        try:
            return guess(name, plain(value), "pixels").kind.startswith("pixels:")
        except PackError:
            return False
    return isinstance(value, bytes | bytearray | memoryview | os.PathLike) or is_pil(value)
