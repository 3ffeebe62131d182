"""A table that names documents and gives them fields: joined with a database by one column.

::

    img_name,label,score        {"img_name": "a.jpg", "label": 3, ...}
    a.jpg,3,0.5                 column "img_name": which document      "label", "score": fields of the records

Numbers are recognised in CSV: a column is of integers or of floats if all its values are. Called by
:mod:`penstock.stores.mongo.opening`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from penstock.errors import ArgumentError, StoreError, StoreFormatError
from penstock.fields.names import CLASS_NAMES
from penstock.sample import Array, Field
from penstock.stores.common.table_files import MISSING_WORDS, TABLE_SUFFIXES, Table
from penstock.stores.fields.record_names import quote_names

__all__ = ["JoinedManifest", "ManifestColumn", "read_manifest"]

_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_FLOAT: Final = re.compile(r"(?i)[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]{1,4})?|inf)")


@dataclass(frozen=True, slots=True)
class ManifestColumn:
    """The values of one field, by row."""

    field: Field  # its kind
    values: Array | list[object]  # int64 or float64 for numbers, else objects
    missing: Array | None = None  # bool: rows without a value; None if all have one

    def get(self, row: int) -> object:
        """Return the value of a row; None if it has none."""
        if self.missing is not None and self.missing[row]:
            return None
        value = self.values[row]
        return value.item() if isinstance(value, np.generic) else value

    def select(self, rows: Sequence[int]) -> ManifestColumn:
        """Return some rows."""
        values = self.values[rows] if isinstance(self.values, np.ndarray) else [self.values[row] for row in rows]
        return ManifestColumn(self.field, values, None if self.missing is None else self.missing[rows])

    def to_bytes(self) -> bytes:
        """Return all values, for a digest."""
        values = self.values.tobytes() if isinstance(self.values, np.ndarray) else json.dumps(self.values).encode()
        return values + (b"" if self.missing is None else self.missing.tobytes())


@dataclass(frozen=True, slots=True)
class JoinedManifest:
    """The rows of a manifest."""

    names: list[str]  # the values of the column by which it is joined
    columns: Mapping[str, ManifestColumn]  # the other columns


def read_manifest(path: str | Path, join: str) -> JoinedManifest:
    """Read a manifest.

    ``path``: a table: see :class:`~penstock.stores.common.table_files.Table`. ``join``: the column that names the
    documents. Raises StoreNotFoundError if there is no file. Raises ArgumentError if it is no such file, or has no such
    column. Raises StoreFormatError if a row is damaged; the message says which.
    """
    file = Path(path)
    if file.suffix.lower() not in TABLE_SUFFIXES:
        raise ArgumentError(f"manifest must be a file {', '.join(TABLE_SUFFIXES)}, got {file.name!r}")
    table = Table(file)
    columns: dict[str, list[object]] = {}  # not the rows: a dict each takes a hundred times as much memory as its text
    count = 0
    try:
        for row in table.rows():
            for name, value in row.values.items():
                column = columns.setdefault(name, [])
                column.extend([None] * (count - len(column)))
                column.append(value)
            count += 1
    except StoreError as error:
        error.locate(store=str(path))
        raise
    if join not in columns:
        held = quote_names(list(columns), 20)
        raise ArgumentError(f"join must be a column of the manifest, got {join!r}; it has: {held}")
    for values in columns.values():
        values.extend([None] * (count - len(values)))
    names = columns.pop(join)
    if nameless := [number for number, name in enumerate(names) if name in {None, ""}]:
        raise StoreFormatError(f"row {nameless[0]} of the manifest has no {join!r}", store=str(path))
    return JoinedManifest(
        [str(name) for name in names],
        {name: _make_column(name, values, table.is_text) for name, values in columns.items()},
    )


def _make_column(name: str, values: list[object], is_text: bool) -> ManifestColumn:
    if is_text:
        values = _parse_numbers([str(value) for value in values])
    present = [value for value in values if value is not None]
    missing = None if len(present) == len(values) else np.array([value is None for value in values])
    if present and all(type(value) is int and -(2**63) <= value < 2**63 for value in present):
        kind = Field("label" if name.lower() in CLASS_NAMES else "int")
        return ManifestColumn(kind, np.array([0 if v is None else v for v in values], np.int64), missing)
    if present and all(type(value) in {int, float} for value in present):
        numbers = np.array([0.0 if value is None else value for value in values], np.float64)
        return ManifestColumn(Field("float"), numbers, missing)
    texts = [value for value in present if isinstance(value, str)]
    if len(texts) < len(present):
        return ManifestColumn(Field("json"), values, missing)
    if name.lower() == "label" and texts:
        classes = sorted({text.strip() for text in texts})
        order = {text: number for number, text in enumerate(classes)}
        numbers = np.array([order[value.strip()] if isinstance(value, str) else 0 for value in values], np.int64)
        return ManifestColumn(Field("label", tuple(classes)), numbers, missing)
    return ManifestColumn(Field("text"), values, missing)


def _parse_numbers(values: Sequence[str]) -> list[object]:
    """Return the values of a column of CSV: integers or floats if all of them are.

    A missing value is None among numbers.
    """
    present = [value for value in values if value.strip() not in MISSING_WORDS]
    if present and all(_INTEGER.fullmatch(value.strip()) for value in present):
        return [None if value.strip() in MISSING_WORDS else int(value) for value in values]
    if any(re.fullmatch(r"-?0[0-9]+", value.strip()) for value in present):  # "007" is a name
        return list(values)
    if present and all(_FLOAT.fullmatch(value.strip()) for value in present):
        return [None if value.strip() in MISSING_WORDS else float(value) for value in values]
    return list(values)
