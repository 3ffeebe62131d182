"""Finds what the columns of a table hold: files, classes, numbers, lists, texts. Every row is looked at.

::

    file,mask_file,label,tags        columns
    a.jpg,a.png,dog,[1; 2]           image: image, mask: mask, label: label of classes cat, dog, tags: int64[*]
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.errors import ArgumentError, PackError
from penstock.fields.kinds import EMPTY, NOTHING, ValueKind, unite_kinds
from penstock.fields.names import CLASS_NAMES, is_mask_name
from penstock.pack.sources.base import KEY
from penstock.pack.sources.inference import STACKLEVEL, GivenSchema, warn_without_images
from penstock.pack.sources.point_columns import PointColumns, find_points
from penstock.pack.sources.values import guess, plain
from penstock.paths import IMAGE_SUFFIXES, UNREAD_SUFFIXES
from penstock.sample import Field, Schema, Value
from penstock.stores.common.table_files import MISSING_WORDS, Table
from penstock.stores.fields.exact_casts import MAX_EXACT
from penstock.stores.fields.record_names import fold_name
from penstock.stores.images.folder_checks import SOUND_SUFFIXES
from penstock.wording import counted

__all__ = ["ColumnPlan", "PlannedColumn", "plan_columns"]

_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|nan|NaN|[+-]?inf")
_SEPARATORS: Final = re.compile(r"[;|,\s]+")
_PATH_NAMES: Final = frozenset(
    {"path", "file", "filename", "file_name", "filepath", "file_path", "name", "img", "picture", "photo"}
)
_PATH_ENDINGS: Final = re.compile(r"(?i)[_ -]?(?:file_?path|file_?name|path|file|name)$")
_TEXT_NAMES: Final = re.compile(r"(?i).*(?:caption|text|name)|captions|texts|names")
_DECIMAL_COMMA: Final = (
    "; numbers have a decimal point (read the table by pandas with decimal=',', and pack the dataframe)"
)
_MAX_CLASSES: Final = 100_000
_NOTES: Final = 5


@dataclass(frozen=True, slots=True)
class PlannedColumn:
    """A column, and the field that is made of it.

    ``is_text`` if each value is text, and an empty one is missing; ``suffixes``: endings of the files of a column whose
    field was found by them, else empty.
    """

    column: str
    field: Field
    is_text: bool
    suffixes: frozenset[str] = frozenset()

    def parse(self, value: object) -> Value:
        """Return the value of a cell, as :class:`~penstock.pack.sources.conversion.RecordConverter` takes it.

        Raises PackError if it is no value of the field's kind.
        """
        if not isinstance(value, str):
            return None if isinstance(value, float) and math.isnan(value) else value
        return None if self._is_missing(value, value.strip()) else self._parse_text(value)

    def _parse_text(self, value: str) -> Value:
        stripped, kind = value.strip(), self.field.kind
        if kind in {"image", "mask", "bytes"}:
            return Path(value)
        if kind == "text" or (kind == "label" and self.field.classes) or (kind == "json" and not self.is_text):
            return value
        try:
            if kind in {"label", "int", "float"}:
                return int(stripped) if _INTEGER.fullmatch(stripped) else float(stripped)
            if kind == "json":
                return json.loads(value)
        except (ValueError, RecursionError) as error:
            hint = _DECIMAL_COMMA if self.field.kind == "float" and value.count(",") == 1 else ""
            raise PackError(f"column {self.column!r} must be {self.field.kind}, got {value!r:.80}{hint}") from error
        return self._split(value)

    def _is_missing(self, value: str, stripped: str) -> bool:
        """Return whether a cell has no value: an empty text, and in a column of numbers a word for it."""
        if value == "":
            return self.is_text or self.field.kind != "text"
        return stripped in MISSING_WORDS and not _keeps_words(self.field, is_text=self.is_text)

    def _split(self, text: str) -> Value:
        """A list, written as JSON or as values with separators."""
        if text.lstrip().startswith("["):
            try:
                return json.loads(text)
            except (ValueError, RecursionError) as error:
                raise PackError(f"column {self.column!r} must be a list, got {text!r:.80}") from error
        parts = [part for part in _SEPARATORS.split(text.strip()) if part]
        if all(_INTEGER.fullmatch(part) for part in parts):
            return [int(part) for part in parts]
        return [float(part) for part in parts] if all(_NUMBER.fullmatch(part) for part in parts) else parts


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """The fields of records of a table: by name, the column of each."""

    columns: Mapping[str, PlannedColumn]
    has_keys: bool
    """Whether a column ``__key__`` names the records."""
    points: Mapping[str, PointColumns]
    """Fields of several columns."""

    @property
    def schema(self) -> Schema:
        """Fields of the records."""
        fields = {name: column.field for name, column in self.columns.items()}
        return Schema({**fields, **{name: each.field for name, each in self.points.items()}})

    @property
    def files(self) -> dict[str, PlannedColumn]:
        """Fields that are files, and the column of the path of each."""
        kinds = {"image", "mask", "bytes"}
        return {name: each for name, each in self.columns.items() if each.field.kind in kinds}

    def parse(self, row: Mapping[str, Value]) -> dict[str, Value]:
        """Return the values of a row by field.

        Raises PackError if a cell is no value of its field's kind.
        """
        values = {name: each.parse(row.get(each.column)) for name, each in self.columns.items()}
        return {**values, **{name: each.parse(row) for name, each in self.points.items()}}


class _ColumnSurvey:
    """What is known of the values of one column; ``field`` is the name of its field, if the caller gave one."""

    def __init__(self, name: str, field: str, *, is_text: bool) -> None:
        self.name, self._field, self._is_text = name, field, is_text
        self.failure = ""
        self._found = ValueKind(NOTHING)
        self._names: set[str] = set()
        self.named = ""  # the first path of an image
        self._image_count = self._sound_count = self._text_count = 0
        self._texts: set[str] | None = set()
        self._words: dict[str, tuple[int, str]] = {}  # that may be missing values: how often, and where the first is
        self._is_label, self._has_gaps = field.lower() in CLASS_NAMES, False
        self._forms, self._may_be_json = {"integer", "whole", "number"}, is_text

    def add(self, value: object, where: str) -> None:
        """Look at a value; what is wrong with it is kept in :attr:`failure`, with ``where``."""
        try:
            value = plain(value)
        except PackError as error:
            self.failure = self.failure or f"{where}: column {self.name!r}: {error.message}"
        is_nan = isinstance(value, float) and math.isnan(value)
        if value is None or is_nan or self.failure or (self._is_text and value == ""):
            self._has_gaps = True
            return
        if isinstance(value, str):
            if value.strip() in MISSING_WORDS:
                count, first = self._words.get(value, (0, where))
                self._words[value] = count + 1, first
                return
            self._add_text(value)
            if self._is_text:
                return
        else:
            self._texts, self._text_count = None, sys.maxsize  # no column of paths
            self._forms &= _find_forms(str(value)) if isinstance(value, int | float) else set()
            if isinstance(value, list):
                self._names.update(each.strip() for each in value if isinstance(each, str))
        try:
            found = ValueKind("text") if isinstance(value, str) else guess(self._field, value, "png")
        except PackError as error:
            self.failure = f"{where}: {error.message}"
            return
        united = unite_kinds(self._found, found)
        if united is None:
            self.failure = f"{where}: column {self.name!r} is {found.kind}, and was {self._found.kind} before"
        else:
            self._found = united

    def _add_text(self, text: str) -> None:
        self._text_count += 1
        if self._texts is not None:
            self._texts.add(text)
            self._texts = self._texts if len(self._texts) <= _MAX_CLASSES else None
        if self._forms:
            self._forms &= _find_forms(text.strip())
        if "." in text and not self._forms:  # else no path
            suffix = os.path.splitext(text.rstrip())[1].lower()  # noqa: PTH122  # a text, fast
            self._image_count += suffix in IMAGE_SUFFIXES
            self._sound_count += suffix in SOUND_SUFFIXES
            if not self.named and (suffix in IMAGE_SUFFIXES or suffix in UNREAD_SUFFIXES):
                self.named = text
        if self._may_be_json:
            self._add_json(text)

    def _add_json(self, text: str) -> None:
        try:
            parsed = json.loads(text) if text.lstrip()[:1] in {"[", "{"} else None
            united = None if parsed is None else unite_kinds(self._found, guess(self.name, parsed, "png"))
        except (ValueError, RecursionError, PackError):
            united = None
        if united is None:
            self._may_be_json = False
        else:
            self._found = united

    @property
    def suffixes(self) -> frozenset[str]:
        """Endings of the files that most texts are paths of: those of images, or of sounds; empty for other texts."""
        counts = ((self._image_count, IMAGE_SUFFIXES), (self._sound_count, SOUND_SUFFIXES))
        return next((frozenset(suffixes) for count, suffixes in counts if 2 * count > self._text_count), frozenset())

    @property
    def is_number(self) -> bool:
        """Whether all values are numbers; then words for missing values are no values."""
        return bool(self._forms) if self._is_text else self._found.kind in {"int", "float", NOTHING}

    @property
    def classes(self) -> tuple[str, ...]:
        """The texts that occur, without blanks around them, in plain string order."""
        return tuple(sorted({text.strip() for text in (*(self._texts or ()), *self._words)} - {""}))

    def notes(self, field: Field) -> Iterator[str]:
        """Yield what is read otherwise than it stands, where the column became ``field``."""
        if field.kind == "label" and field.classes and (padded := {t for t in self._texts or () if t != t.strip()}):
            yield f"column {self.name!r}: blanks around names of classes are no part of them, such as {min(padded)!r}"
        seen: dict[str, str] = {}
        for name in field.classes if field.kind == "label" and field.classes == self.classes else ():
            other = seen.setdefault(fold_name(" ".join(name.split())), name)
            if other != name and len(name) > 1:  # the letters a and A are classes
                both = f"{other!r} and {name!r} are two classes that differ only in case, spaces or encoding"
                yield f"column {self.name!r}: {both}"
        if not _keeps_words(field, is_text=self._is_text):
            for word, (count, first) in self._words.items():
                yield (
                    f"column {self.name!r}: {word!r} is read as a missing value ({counted(count, 'row')}, the first is "
                    f"{first})"
                )

    @property
    def has_names(self) -> bool:
        """Whether values are texts that are no numbers."""
        return bool(self._texts) and not self._forms

    def list_names(self) -> tuple[str, ...]:
        """The names in lists, in plain string order; empty if the lists hold numbers."""
        names = {name.strip() for text in self._texts or () for name in _split_names(text)}
        return tuple(sorted(names | self._names))

    def find_field(self) -> Field | None:
        """Return the field for these values; None if there is no value."""
        if self.suffixes:
            if self.suffixes == SOUND_SUFFIXES:
                return Field("bytes")
            return Field("mask" if is_mask_name(self._field) else "image")
        if self._found.kind == NOTHING and not self._text_count:
            return (Field("label", self.classes) if self._is_label else Field("text")) if self._words else None
        if (self._is_text and self._text_count) or (self._is_label and self._found.kind in {"text", "float"}):
            return self._find_field_of_texts()
        return Field("json" if self._found.kind == EMPTY else self._found.kind)

    def _find_field_of_texts(self) -> Field:
        """Return the field for texts that may be numbers; pandas writes integers as 1.0 where a value is missing."""
        if self._is_text and not self._is_label and _TEXT_NAMES.fullmatch(self._field):
            return Field("text")
        has_gaps = self._has_gaps or self._words
        if "integer" in self._forms or (self._is_label and has_gaps and "whole" in self._forms):
            return Field("label" if self._is_label else "int")
        if "number" in self._forms:
            return Field("float")
        if self._may_be_json:
            return Field("json" if self._found.kind == EMPTY else self._found.kind)
        return Field("label", self.classes) if self._is_label and self._texts else Field("text")


def plan_columns(table: Table, given: GivenSchema, columns: Mapping[str, str] | None) -> ColumnPlan:
    """Look at every row of a table, and plan the fields of its records.

    ``given``: kinds of fields that the caller gave; names of classes are found in the table if they are not given.
    ``columns``: names of fields, and the column of each. Raises ArgumentError if a column, or a field that is named,
    does not exist. Raises PackError if the table has no rows, or a column no kind.
    """
    wanted = dict(columns or {})
    field_names = {column: name for name, column in wanted.items()}
    surveys = _survey(table, field_names)
    if unknown := [column for column in wanted.values() if column not in surveys]:
        raise ArgumentError(f"columns names {unknown[0]!r}, and the columns of {table.name} are: {', '.join(surveys)}")
    names = _name_fields(surveys, wanted, given.fields)
    numbers = {column: each.is_number for column, each in surveys.items() if column not in field_names}
    points = find_points(numbers, names, given)
    known = [*names, *points]
    if missing := [name for name in (*given.fields, *given.dropped) if name not in known]:
        raise ArgumentError(f"schema names {missing[0]!r}, and the fields of {table.name} are: {', '.join(known)}")
    used = {column for each in points.values() for point in each.columns for column in point}
    left_out = {name for name in known if name in given.dropped or (given.is_complete and name not in given.fields)}
    planned = {}
    for name, column in names.items():
        if name not in left_out and column not in used and name != KEY:
            field = _choose_field(name, surveys[column], given.fields.get(name), table)
            suffixes = frozenset() if name in given.fields else surveys[column].suffixes
            planned[name] = PlannedColumn(column, field, table.is_text, suffixes)
    points = {name: each for name, each in points.items() if name not in left_out}
    if not planned and not points:
        raise PackError(f"the table {table.name} has no column that is to be packed")
    _warn(table, surveys, planned, points)
    named = {name: surveys[each.column].named for name, each in planned.items()}
    warn_without_images(table.name, {name: each.field for name, each in planned.items()}, named, given.fields)
    return ColumnPlan(planned, KEY in names, points)


def _survey(table: Table, field_names: Mapping[str, str]) -> dict[str, _ColumnSurvey]:
    """Look at every row; ``field_names``: of columns whose fields have other names."""
    surveys: dict[str, _ColumnSurvey] = {}
    for row in table.rows():
        for column, value in row.values.items():
            if column not in surveys:
                surveys[column] = _ColumnSurvey(column, field_names.get(column, column), is_text=table.is_text)
            surveys[column].add(value, table.describe(row))
    if not surveys:
        raise PackError(f"the table {table.name} has no rows")
    return surveys


def _warn(
    table: Table,
    surveys: Mapping[str, _ColumnSurvey],
    planned: Mapping[str, PlannedColumn],
    points: Mapping[str, PointColumns],
) -> None:
    """Warn of what is read otherwise than it stands, and of what is likely to be wrong."""
    notes = [note for each in planned.values() for note in surveys[each.column].notes(each.field)]
    notes += [note for each in points.values() for note in each.notes(row.values for row in table.rows())]
    if not table.header:
        *_, last = map(repr, surveys)
        notes.append(
            f"its first line has values and is a row, and its columns are named by their numbers from '0' on; "
            f"columns={{'label': {last}}} names a field"
        )
    if notes:
        shown = "; ".join(notes[:_NOTES]) + (f"; and {len(notes) - _NOTES} more" if len(notes) > _NOTES else "")
        warnings.warn(f"{table.name}: {shown}", stacklevel=STACKLEVEL + 1)


def _keeps_words(field: Field, *, is_text: bool) -> bool:
    """Return whether a word such as NA is a value as any other, because values are texts."""
    texts = {"text", "image", "mask", "bytes", *(() if is_text else ["json"]), *(["label"] if field.classes else ())}
    return field.kind in texts


def _name_fields(
    surveys: Mapping[str, _ColumnSurvey], wanted: Mapping[str, str], given: Mapping[str, Field]
) -> dict[str, str]:
    """Names of fields, and the column of each: as given, else that of the column, without "path" if it is a file."""
    names = {column: name for name, column in wanted.items()}
    taken = {*names.values(), *(column for column in surveys if column not in names)}
    for column, survey in surveys.items():
        if column in names:
            continue
        short = _shorten(column) if survey.suffixes and column not in given else column
        names[column] = short if short not in taken else column
        taken.add(names[column])
    return {names[column]: column for column in surveys}


def _shorten(column: str) -> str:
    """The name of the field of a column of paths."""
    if column.lower() in _PATH_NAMES or column.isdecimal():
        return "image"
    return _PATH_ENDINGS.sub("", column) or column


def _choose_field(name: str, survey: _ColumnSurvey, given: Field | None, table: Table) -> Field:
    if given is not None:
        if given.array is not None and not given.classes and given.array.dtype.kind in "iu":
            return Field(given.kind, survey.list_names())
        if given != Field("label") or not survey.has_names:
            return given
        return Field("label", table.categories.get(survey.name, survey.classes))
    if survey.failure:
        raise PackError(
            f"{table.name}, {survey.failure}; give schema={{{name!r}: kind}}, or None as the kind to leave it out"
        )
    field = survey.find_field()
    if field is not None and field.kind == "label" and field.classes:
        return Field("label", table.categories.get(survey.name, field.classes))
    if field is None:
        raise PackError(
            f"{table.name}: column {survey.name!r} has no value; give schema={{{name!r}: kind}}, or None as the "
            "kind to leave it out"
        )
    return field


def _split_names(text: str) -> Iterable[str]:
    if text.lstrip().startswith("["):
        try:
            return [each for each in json.loads(text) if isinstance(each, str)]
        except (ValueError, TypeError, RecursionError):
            return []
    return (part for part in _SEPARATORS.split(text.strip()) if part and not _NUMBER.fullmatch(part))


def _find_forms(text: str) -> set[str]:
    """Find the forms in which a text keeps its value: "integer" (int64), "number" (float64), "whole" (no fraction)."""
    digits = text.lstrip("+-")
    if not _NUMBER.fullmatch(text) or (len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()):
        return set()  # 007 is a name
    forms = {"integer"} if _INTEGER.fullmatch(text) and -(2**63) <= int(text) < 2**63 else set()
    number = float(text)
    is_exact = abs(number) < MAX_EXACT
    if is_exact and number.is_integer():
        forms.add("whole")
    if is_exact or (not digits.isdigit() and (math.isfinite(number) or "n" in digits)):  # 1e999 is not inf
        forms.add("number")
    return forms
