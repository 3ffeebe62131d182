"""Reads tables row by row: CSV, TSV, JSON, JSON Lines, Parquet. One row is in memory, whatever the size of the file.

Manifests that are packed, and those that are joined with the documents of a database, are such tables.
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
from penstock.registry import require

__all__ = ["TABLE_SUFFIXES", "Table", "TableRow"]

TABLE_SUFFIXES: Final = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet")
"""Endings of files that are read as tables."""

_DELIMITERS: Final = ",;\t|"
_MAX_ROW_NBYTES: Final = 64 << 20
_READ_NBYTES: Final = 1 << 20
_BATCH_ROWS: Final = 1024
_STATED_DELIMITER: Final = re.compile(r'"?sep=([,;\t|])"?\r?\n?')
"""The first line by which a program tells Excel the delimiter."""
_NO_SPACE: Final = re.compile(r"[^ \t\r\n]")


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
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.name
        suffix = path.suffix.lower()
        self.is_text = suffix in {".csv", ".tsv"}
        self.unit = "row" if suffix in {".json", ".parquet"} else "line"
        self._read = _READERS[suffix]

    def rows(self) -> Iterator[TableRow]:
        """The rows, in order.

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
            yield from self._read(self.path)
        except StoreError:
            raise
        except FileNotFoundError as error:
            raise StoreNotFoundError(f"there is no table {self.path.name}") from error
        except OSError as error:
            raise StoreError(f"the table {self.path.name} cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise StoreFormatError(
                f"the table {self.path.name} must be UTF-8: {error}; save it again in this encoding, which Excel calls "
                "'CSV UTF-8', or read it by pandas with encoding=, and pack the dataframe"
            ) from error
        except csv.Error as error:
            raise StoreFormatError(f"the table {self.path.name} cannot be parsed: {error}") from error

    def describe(self, row: TableRow) -> str:
        """Where a row is, such as ``"line 7"``."""
        return f"{self.unit} {row.line}"


def _read_delimited(path: Path) -> Iterator[TableRow]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        head = file.readline(_MAX_ROW_NBYTES)
        stated = _STATED_DELIMITER.fullmatch(head)
        if stated is None:
            file.seek(0)
        delimiter = stated[1] if stated else "\t" if path.suffix.lower() == ".tsv" else max(_DELIMITERS, key=head.count)
        before = 0 if stated is None else 1
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        header = next(reader, None)
        if not header:
            raise StoreFormatError(f"the table {path.name} must begin with a line of column names, and it is empty")
        names = [name.strip() for name in header]
        if "" in names or len(set(names)) < len(names):
            raise StoreFormatError(
                f"the columns of {path.name} must have different names, none empty, got {names}; name each column in "
                "the header (a first column without a name has row numbers: write the table without it, in pandas with "
                "index=False)"
            )
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(names):
                raise StoreFormatError(
                    f"line {before + reader.line_num} of {path.name} has {len(cells)} values, and the header has "
                    f"{len(names)} columns; quote values that contain the delimiter"
                )
            yield TableRow(before + reader.line_num, dict(zip(names, cells, strict=True)))


def _read_json_lines(path: Path) -> Iterator[TableRow]:
    with path.open(encoding="utf-8-sig") as file:
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


def _read_json_array(path: Path) -> Iterator[TableRow]:
    """The objects of one JSON array, decoded one by one as the file is read."""
    with path.open(encoding="utf-8-sig") as file:
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
        """The next character that is no space."""
        while True:
            found = _NO_SPACE.search(self._text, self._at)
            if found is not None:
                self._at = found.start()
                return found[0]
            self._text, self._at = self._file.read(_READ_NBYTES), 0
            if not self._text:
                raise StoreFormatError(f"{self._name} is truncated: its JSON array does not end")

    def take(self) -> str:
        """The next character that is no space; it is read."""
        found = self.peek()
        self._at += 1
        return found

    def decode(self, where: str) -> object:
        """The next value."""
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


def _read_parquet(path: Path) -> Iterator[TableRow]:
    parquet = require("pyarrow.parquet", extra="parquet", purpose="to read Parquet")
    errors = require("pyarrow", extra="parquet").ArrowException
    try:
        number = 0
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                for values in batch.to_pylist():
                    yield TableRow(number, values)
                    number += 1
    except errors as error:
        raise StoreFormatError(f"the table {path.name} cannot be parsed: {error}") from error


_READERS: Final[Mapping[str, Callable[[Path], Iterator[TableRow]]]] = {
    ".csv": _read_delimited,
    ".tsv": _read_delimited,
    ".json": _read_json_array,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".parquet": _read_parquet,
}
