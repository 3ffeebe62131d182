"""Reads tables row by row: CSV, TSV, JSON, JSON Lines, Parquet. One row is in memory, whatever the size of the file.

Manifests that are packed, and those that are joined with the documents of a database, are such tables. Text is UTF-8,
or UTF-16 with a byte order mark. A first line of CSV or TSV that has values is a row: columns are then "0", "1", ...
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

from penstock.errors import StoreError, StoreFormatError, StoreNotFoundError
from penstock.paths import IMAGE_SUFFIXES, find_encoding, is_file
from penstock.registry import require

__all__ = ["MISSING_WORDS", "TABLE_SUFFIXES", "Table", "TableRow"]

TABLE_SUFFIXES: Final = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet")
"""Endings of files that are read as tables."""
MISSING_WORDS: Final = frozenset(
    {"", "-", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A"}
    | {"NA", "NULL", "NaN", "None", "n/a", "nan", "null"}
)
"""What stands for a missing value in a column of numbers: the texts that pandas reads so, and a dash."""

_DELIMITERS: Final = ",;\t|"
_MAX_ROW_NBYTES: Final = 64 << 20
_MAX_CELLS_LENGTH: Final = 16 << 20
"""Characters of a row of CSV, whose cells take twenty times as much memory where they are short."""
_FEW_COLUMNS: Final = 1024
_MAX_ABSENT: Final = 1 << 26
"""Values that rows with more columns than these may lack together."""
_READ_NBYTES: Final = 1 << 20
_BATCH_ROWS: Final = 1024
_STATED_DELIMITER: Final = re.compile(r'"?sep=([,;\t|])"?\r?\n?')
"""The first line by which a program tells Excel the delimiter."""
_NO_SPACE: Final = re.compile(r"[^ \t\r\n]")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_MARK_NBYTES: Final = 4


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row: its line in the file (or its number), and its values by column."""

    line: int
    values: Mapping[str, Any]


class Table:
    """A file of rows.

    Parameters
    ----------
    path : Path
        The file; its ending says how it is read.

    Attributes
    ----------
    name : str
        Names it in messages.
    is_text : bool
        Whether every value is text, whose meaning is to be found.
    unit : str
        What the number of a row counts: "line" or "row".
    header : bool
        False if the rows that were read have no names of columns.
    categories : mapping of str to tuple of str
        The texts that a column can have, in their order, where the table says them.
    """

    header = True
    categories: Mapping[str, tuple[str, ...]] = {}

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.name
        suffix = path.suffix.lower()
        self.is_text = suffix in {".csv", ".tsv"}
        self.unit = "row" if suffix in {".json", ".parquet"} else "line"
        self._read = _READERS[suffix]

    def rows(self) -> Iterator[TableRow]:
        """Yield the rows, in order.

        Raises
        ------
        StoreFormatError
            If a row is not as the format of the file says; names the line.
        StoreNotFoundError
            If there is no file.
        StoreError
            If it cannot be read.
        """
        try:
            yield from self._read(self) if self.is_text else _bound_columns(self._read(self), self.name)
        except StoreError:
            raise
        except FileNotFoundError as error:
            raise StoreNotFoundError(f"there is no table {self.path.name}") from error
        except OSError as error:
            raise StoreError(f"the table {self.path.name} cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise StoreFormatError(
                f"the table {self.path.name} must be UTF-8: {error}; it may be cp1252 or latin-1: save it again in "
                "UTF-8, which Excel calls 'CSV UTF-8', or read it by pandas with encoding='cp1252', and pack the "
                "dataframe"
            ) from error

    def describe(self, row: TableRow) -> str:
        """Return where a row is, such as ``"line 7"``."""
        return f"{self.unit} {row.line}"


def _open_text(path: Path, newline: str | None = None) -> TextIO:
    """Return the text of a table, in the encoding of its mark."""
    with path.open("rb") as file:
        return path.open(encoding=find_encoding(file.read(_MARK_NBYTES)), newline=newline)


def _read_delimited(table: Table) -> Iterator[TableRow]:
    path = table.path
    with _open_text(path, newline="") as file:
        head = file.readline(_MAX_ROW_NBYTES)
        if "\0" in head:
            raise StoreFormatError(
                f"the table {path.name} has zero bytes, as text in UTF-16 without a byte order mark has: save it again "
                "in UTF-8, or read it by pandas with encoding='utf-16-le', and pack the dataframe"
            )
        stated = _STATED_DELIMITER.fullmatch(head)
        if stated is None:
            file.seek(0)
        delimiter = stated[1] if stated else "\t" if path.suffix.lower() == ".tsv" else max(_DELIMITERS, key=head.count)
        rows = _read_cells(file, delimiter, 0 if stated is None else 1, path.name)
        line, header = next(rows, (0, []))
        if not header:
            raise StoreFormatError(f"the table {path.name} must begin with a line of column names, and it is empty")
        names = [name.strip() for name in header]
        table.header = not _are_values(names, path.parent)
        if not table.header:
            names = list(map(str, range(len(names))))
            yield TableRow(line, dict(zip(names, header, strict=True)))
        if "" in names or len(set(names)) < len(names):
            raise StoreFormatError(
                f"the columns of {path.name} must have different names, none empty, got {names!s:.500}; name "
                "each column in the header (a first column without a name has row numbers: write the table without it, "
                "in pandas with index=False)"
            )
        for line, cells in rows:
            if not cells:
                continue
            if len(cells) != len(names):
                what = f"the header has {len(names)} columns" if table.header else f"the first line has {len(names)}"
                raise StoreFormatError(
                    f"line {line} of {path.name} has {len(cells)} values, and {what}; quote values that contain the "
                    "delimiter"
                )
            yield TableRow(line, dict(zip(names, cells, strict=True)))


def _read_cells(file: TextIO, delimiter: str, line: int, name: str) -> Iterator[tuple[int, list[str]]]:
    """Rows of cells, each with the line where it ends; ``line``: lines before them.

    Raises StoreFormatError, which names the line where the row begins, if it cannot be parsed or is too long.
    """
    length = 0

    def read_lines() -> Iterator[str]:
        nonlocal length
        while text := file.readline(_MAX_CELLS_LENGTH):
            length += len(text)
            if length >= _MAX_CELLS_LENGTH:
                raise csv.Error(f"a row must have less than {_MAX_CELLS_LENGTH:,} characters")
            yield text

    before = line
    reader = csv.reader(read_lines(), delimiter=delimiter, strict=True)
    try:
        for cells in reader:
            line, length = before + reader.line_num, 0
            yield line, cells
    except csv.Error as error:
        reason = str(error)
        if "field limit" in reason:
            reason = f"a value has more than {csv.field_size_limit():,} characters, as of a quote that is not closed"
        elif "end of data" in reason:
            reason = "a quote is not closed"
        where = f"the row that begins at line {line + 1}"
        raise StoreFormatError(f"the table {name} cannot be parsed: {where}: {reason}") from error


def _bound_columns(rows: Iterator[TableRow], name: str) -> Iterator[TableRow]:
    """Yield the rows; StoreFormatError if each has columns of its own, so that nearly all values would be missing."""
    columns: set[str] = set()
    cells = 0
    for count, row in enumerate(rows, 1):
        columns.update(row.values)
        cells += len(row.values)
        if len(columns) > _FEW_COLUMNS and count * len(columns) - cells > _MAX_ABSENT:
            raise StoreFormatError(
                f"the rows of {name} must have the same columns: the first {count:,} have {len(columns):,}, and lack "
                f"more than {_MAX_ABSENT:,} values together"
            )
        yield row


def _are_values(cells: list[str], folder: Path) -> bool:
    """Whether a first line is a row: it names a file, or has only numbers, which are not 0, 1, ... as pandas writes."""
    if any(Path(cell).suffix.lower() in IMAGE_SUFFIXES or ("." in cell and is_file(folder / cell)) for cell in cells):
        return True
    others = [cell for cell in cells if not _NUMBER.fullmatch(cell)]
    return len(others) < len(cells) and MISSING_WORDS.issuperset(others) and cells != list(map(str, range(len(cells))))


def _read_json_lines(table: Table) -> Iterator[TableRow]:
    path = table.path
    with _open_text(path) as file:
        line = 0
        while text := file.readline(_MAX_ROW_NBYTES):
            line += 1
            if len(text) >= _MAX_ROW_NBYTES:
                raise StoreFormatError(f"line {line} of {path.name} has more than {_MAX_ROW_NBYTES} characters")
            if text.strip():
                where = f"line {line} of {path.name}"
                try:
                    parsed = json.loads(text)
                except (ValueError, RecursionError) as error:
                    raise StoreFormatError(f"{where} must be a JSON object: {error}") from error
                yield TableRow(line, _check_object(parsed, where))


def _check_object(parsed: object, where: str) -> Mapping[str, Any]:
    if not isinstance(parsed, dict):
        raise StoreFormatError(f"{where} must be a JSON object, got {type(parsed).__name__}")
    return parsed


def _read_json_array(table: Table) -> Iterator[TableRow]:
    """Yield the objects of one JSON array, decoded one by one as the file is read."""
    path = table.path
    with _open_text(path) as file:
        text = _JsonText(file, path.name)
        if text.peek() != "[":
            raise StoreFormatError(
                f"{path.name} must be a JSON array of objects, one for each record (annotations of COCO are packed "
                "with format='coco' or --format coco)"
            )
        text.take()
        number = 0
        while text.peek() != "]":
            if number and text.take() != ",":
                raise StoreFormatError(f"{path.name}: there must be a comma behind row {number - 1}")
            where = f"row {number} of {path.name}"
            yield TableRow(number, _check_object(text.decode(where), where))
            number += 1


class _JsonText:
    """The unread text of a file, from which JSON values are decoded."""

    def __init__(self, file: TextIO, name: str) -> None:
        self._file, self._name, self._text, self._at = file, name, "", 0
        self._decoder = json.JSONDecoder()

    def peek(self) -> str:
        """Return the next character that is no space."""
        while True:
            found = _NO_SPACE.search(self._text, self._at)
            if found is not None:
                self._at = found.start()
                return found[0]
            self._text, self._at = self._file.read(_READ_NBYTES), 0
            if not self._text:
                raise StoreFormatError(f"{self._name} is truncated: its JSON array does not end")

    def take(self) -> str:
        """Return the next character that is no space; it is read."""
        found = self.peek()
        self._at += 1
        return found

    def decode(self, where: str) -> object:
        """Return the next value."""
        self.peek()
        while True:
            failure: Exception | None = None
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
                if end < len(self._text):  # else a number may go on
                    self._at = end
                    return value
            except ValueError as error:
                failure = error
            except RecursionError as error:
                raise StoreFormatError(f"{where} must be a JSON object: it is nested too deeply") from error
            left = len(self._text) - self._at
            more = self._file.read(max(_READ_NBYTES, left)) if left <= _MAX_ROW_NBYTES else ""
            if not more:
                raise StoreFormatError(
                    f"{where} must be a JSON object: {failure or 'the array does not end'}"
                ) from failure
            self._text, self._at = self._text[self._at :] + more, 0


def _read_parquet(table: Table) -> Iterator[TableRow]:
    parquet = require("pyarrow.parquet", extra="parquet", purpose="to read Parquet")
    errors = require("pyarrow", extra="parquet").ArrowException
    try:
        number = 0
        with parquet.ParquetFile(table.path) as file:
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                for values in batch.to_pylist():
                    yield TableRow(number, values)
                    number += 1
    except errors as error:
        raise StoreFormatError(f"the table {table.path.name} cannot be parsed: {error}") from error


_READERS: Final[Mapping[str, Callable[[Table], Iterator[TableRow]]]] = {
    ".csv": _read_delimited,
    ".tsv": _read_delimited,
    ".json": _read_json_array,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".parquet": _read_parquet,
}
