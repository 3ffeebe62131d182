"""Which columns of a container are the image, the label and the key, and under which names the others are read.

MDS, LitData, FFCV and TFRecord containers name their columns as their authors liked. The rules here are the same for
all of them: what is stated counts first, then the name, then the only column that can be meant. Nothing is read here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.errors import ArgumentError, StoreFormatError
from penstock.sample import Field, Schema
from penstock.stores.fields.record_names import quote_names
from penstock.stores.fields.usual_names import IMAGE_NAMES, KEY_NAMES, LABEL_NAMES, MASK_NAMES

__all__ = ["NamedColumns", "find_image", "name_columns", "select_columns"]

_WORD: Final = re.compile("[a-z]+")


@dataclass(frozen=True, slots=True)
class NamedColumns:
    """How the columns of a container are read."""

    schema: Schema  # the fields, in the order of the columns
    columns: tuple[str, ...]  # the column of each field of the schema
    key: str | None  # the column that gives the keys; None: records have no names


def select_columns(
    columns: Sequence[str], fields: Sequence[str] | None, *, stated: Mapping[str, str | None]
) -> list[str]:
    """The columns that are read: those of ``fields``, or all; in the order of the container.

    ``columns``: those of the container. ``fields``: the option ``fields``; None: all columns. ``stated``: the options
    that name a column, by their names. Raises ArgumentError if a column is not there.
    """
    if isinstance(fields, str):
        raise ArgumentError(f"fields must be a sequence of columns, got {fields!r:.200}")
    wanted = [("fields", name) for name in fields or ()]
    wanted += [(option, name) for option, name in stated.items() if name is not None]
    for option, name in wanted:
        if name not in columns:
            raise ArgumentError(f"{option} must name columns of {quote_names(columns, 20)}, got {name!r:.200}")
    if fields is None:
        return list(columns)
    names = {name for _, name in wanted}
    return [name for name in columns if name in names]


def name_columns(
    kinds: Mapping[str, Field],
    *,
    image: str | None = None,
    label: str | None = None,
    key: str | None = None,
    renamed: Mapping[str, str] | None = None,
    store: str = "",
) -> NamedColumns:
    """The fields as which some columns are read.

    Parameters
    ----------
    kinds : mapping of str to Field
        The columns that are read, with what they hold.
    image, label, key : str, optional
        The column of the image, of the label and of the keys, where a person stated it. Else those with usual names
        (:mod:`~penstock.stores.fields.usual_names`): of the image, or the only one with images; of numbers; of texts.
    renamed : mapping of str to str, optional
        The fields of other columns whose names have a meaning in the format.
    store : str
        The store, for errors.

    Raises
    ------
    ArgumentError
        If a stated column cannot be meant.
    StoreFormatError
        If two columns would be the same field, or a name is not valid.
    """
    if image is not None and not (kinds[image].is_blob or kinds[image].array is not None):
        raise ArgumentError(f"image must be a column of images, got {image!r}, which is {kinds[image].kind}")
    if key is not None and kinds[key].kind not in {"text", "int", "label"}:
        raise ArgumentError(f"key must be a column of texts or integers, got {key!r}, which is {kinds[key].kind}")
    image_column = image if image is not None else find_image(kinds)
    label_column = label if label is not None else _find_label(kinds)
    texts = [name for name, kind in kinds.items() if kind.kind == "text"]
    key_column = key if key is not None else _find_named(KEY_NAMES, texts)
    fields: dict[str, Field] = {}
    for column, kind in kinds.items():
        name = (renamed or {}).get(column) or column.replace("/", ".").replace("\\", ".")
        if column == image_column:
            name = "image"
            kind = replace(kind, kind="image") if kind.kind == "bytes" else kind  # noqa: PLW2901  # the field's own kind
        elif column == label_column:
            name = "label"
            kind = replace(kind, kind="label") if kind.kind == "int" else kind  # noqa: PLW2901  # as above
        if name in fields:
            raise StoreFormatError(
                f"two columns would be the field {name!r}, one of them {column!r}; give fields= to leave one out",
                store=store or None,
            )
        fields[name] = kind
    try:
        schema = Schema(fields)
    except ArgumentError as error:
        raise StoreFormatError(f"its columns cannot be fields: {error.message}", store=store or None) from error
    return NamedColumns(schema, tuple(kinds), key_column)


def find_image(kinds: Mapping[str, Field]) -> str | None:
    """The column of the image where none is stated: one with a usual name, or the only one with images but masks."""
    if "image" in kinds:
        return "image" if kinds["image"].is_blob else None
    images = [name for name, kind in kinds.items() if kind.is_image]
    pictures = [name for name in images if not set(_WORD.findall(name.lower())) & set(MASK_NAMES)] or images
    return pictures[0] if len(pictures) == 1 else _find_named(IMAGE_NAMES, pictures)


def _find_label(kinds: Mapping[str, Field]) -> str | None:
    return _find_named(LABEL_NAMES, [name for name, kind in kinds.items() if kind.kind in {"int", "label", "float"}])


def _find_named(names: Sequence[str], columns: Sequence[str]) -> str | None:
    """The column with the first of some names."""
    return next((column for name in names for column in columns if column.lower() == name), None)
