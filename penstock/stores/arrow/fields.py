"""Which columns of an Arrow schema become which fields of a record: found by types, names and features, or stated.

::

    pyarrow.Schema (+ "huggingface" features, "penstock" schema) ──plan_fields──> FieldsPlan: ColumnField ..., key

Stores of Arrow, Parquet, Lance and Hugging Face data call :func:`plan_fields` once, when they are opened. Nothing is
guessed that only a person knows: the format of boxes and the order of channels are stated, or the column stays what
it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from penstock.errors import ArgumentError, StoreFormatError, check_choice
from penstock.fields.names import BOX_NAMES, CLASS_NAMES
from penstock.fields.roles import Candidate, Roles, Stated, choose_roles, find_key, select_paths
from penstock.sample import Field, Schema
from penstock.stores.arrow.features import (
    axes_of,
    children_of,
    class_names,
    feature_of_child,
    has_child,
    is_binary,
    is_list,
    is_text,
    make_dtype,
    read_features,
    storage_type_of,
)
from penstock.stores.fields.image_signatures import are_images
from penstock.stores.fields.pixels import check_shape
from penstock.stores.fields.record_names import quote_names
from penstock.stores.writing import Skipped

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["METADATA_KEY", "ColumnField", "FieldsPlan", "Peek", "plan_fields"]

Peek = Callable[[str, Sequence[str]], list[bytes]]
"""Gives the first bytes of the first values of a column (or a child of it) that are not null."""

METADATA_KEY: Final = b"penstock"
"""The entry of an Arrow schema's metadata that holds the schema of records that penstock wrote."""

_BOX_FORMATS: Final = ("xyxy", "xywh")


@dataclass(frozen=True, slots=True)
class ColumnField:
    """A field, and the column that it is read from."""

    name: str
    field: Field
    """``name`` and ``field``: as in the schema of the store."""
    column: str
    path: tuple[str, ...] = ()  # names of its children, down to the value
    path_child: str = ""  # the child with the path of an image's file, for images that may be stored as a path only
    boxes_format: str = "xyxy"  # ``xyxy`` or ``xywh``
    channels: str = "RGB"  # ``RGB`` or ``BGR``
    size_children: tuple[str, ...] = ()  # the children with height and width, for pixels of varying shape

    @property
    def dotted(self) -> str:
        """Its column, and its children down to the value; the bytes of an image are the column."""
        return ".".join([self.column, *(name for name in self.path if name != "bytes")])


@dataclass(frozen=True, slots=True)
class FieldsPlan:
    """The fields of a store's records, the column with their keys, and what a description says of them."""

    fields: tuple[ColumnField, ...]
    roles: Roles
    key: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    left_out: tuple[Skipped, ...] = ()
    """Columns, or children of them, that are not read although nobody asked to leave them out."""

    def describe(self) -> str:
        """Return which column is what: the end of a sentence."""
        return ", ".join([self.roles.describe(), *self.notes, *(f"{e.key!r}: {e.reason}" for e in self.left_out)])


def plan_fields(schema: pa.Schema, stated: Stated, peek: Peek) -> FieldsPlan:
    """The fields of records with the columns of an Arrow schema.

    Raises ArgumentError if an option names no column, or a column needs an option that is not given; the message says
    which. Raises StoreFormatError if no column can be read.
    """
    check_choice("boxes", stated.boxes, _BOX_FORMATS, optional=True)
    metadata = schema.metadata or {}
    if METADATA_KEY in metadata and not stated.given:
        return _plan_own(schema, metadata[METADATA_KEY])
    names = _choose_names(schema.names, stated)
    planner = _Planner(stated, read_features(metadata), peek)
    for name in names:
        planner.plan_column(name, storage_type_of(schema.field(name).type))
    found = {each.dotted: each for each in planner.found}
    if not found:
        raise StoreFormatError(f"none of the columns can be read: {quote_names(names)}")
    candidates = [Candidate(path, each.field, name=each.name) for path, each in found.items()]
    roles = choose_roles(candidates, replace(stated, key=""))
    key = _find_key(schema, found[roles.fields["image"].path] if "image" in roles.fields else None, stated, peek)
    roles = replace(roles, key=None if key is None else ".".join(key))
    fields = (replace(found[each.path], name=name, field=each.field) for name, each in roles.fields.items())
    return FieldsPlan(tuple(fields), roles, key, tuple(planner.notes), tuple(planner.left_out))


def _choose_names(names: Sequence[str], stated: Stated) -> list[str]:
    """Return the columns that are read.

    A child of a column may be stated, and the name of a column may have points itself.
    """
    if twice := next((name for number, name in enumerate(names) if name in names[:number]), None):
        raise StoreFormatError(f"two columns have the name {twice!r}")

    def find_column(path: str | None) -> str | None:
        return path if not path or path in names else path.split(".")[0]

    fields = stated.fields
    if isinstance(fields, Mapping):
        fields = {name: find_column(path) or "" for name, path in fields.items()}
    return select_paths(names, Stated(find_column(stated.image), find_column(stated.label), key="", fields=fields))


class _Planner:
    """Plans the fields of columns, one after another; ``features`` is what ``datasets`` says of the columns."""

    def __init__(self, options: Stated, features: Mapping[str, object], peek: Peek) -> None:
        self._options, self._features, self._peek = options, features, peek
        self.found: list[ColumnField] = []
        self.notes: list[str] = []
        self.left_out: list[Skipped] = []

    def plan_column(self, name: str, arrow_type: pa.DataType) -> None:
        """Add the fields that a column gives: one as a rule, none if it holds nothing that a record can have."""
        children, feature = children_of(arrow_type), self._features.get(name)
        if name == self._options.image and self._options.shape is not None:
            self.found.append(_plan_pixels(name, arrow_type, self._options))
        elif is_binary(arrow_type):
            self.found.append(self._plan_blob(name, (), "", feature))
        elif set(children) in ({"bytes"}, {"bytes", "path"}) and is_binary(children["bytes"]):
            self.found.append(self._plan_blob(name, ("bytes",), "path" if "path" in children else "", feature))
        elif not self._plan_boxes(name, arrow_type, feature):
            simple = _plan_simple(name, arrow_type, feature)
            if simple is not None:
                self.found.append(simple)
            elif (kind := str(arrow_type)) != "null" and "binary" not in kind:
                self.found.append(ColumnField(name, Field("json"), name))
            else:
                self._leave_out(name, arrow_type)

    def _leave_out(self, name: str, arrow_type: pa.DataType) -> None:
        self.left_out.append(Skipped(name, f"the column is left out: no field holds values of type {arrow_type!s:.60}"))

    def _plan_blob(self, name: str, path: tuple[str, ...], path_child: str, feature: object) -> ColumnField:
        kind = feature.get("_type") if isinstance(feature, dict) else None
        contents = [] if kind == "Image" else self._peek(name, path)
        is_image = kind == "Image" or are_images(contents) or (not contents and bool(path_child) and kind is None)
        if name == self._options.image and not is_image and contents:
            raise ArgumentError(
                f"column {name!r} holds bytes that are no encoded images; if they are pixels, state shape=(height, "
                'width, channels), dtype= and channels="RGB" or "BGR"'
            )
        return ColumnField(name, Field("image" if is_image else "bytes"), name, path, path_child if is_image else "")

    def _plan_boxes(self, name: str, arrow_type: pa.DataType, feature: object) -> bool:
        """Add the fields of a column with boxes, if their format is stated: boxes, classes, and what else there is.

        Boxes are lists of lists of four numbers, or children of a struct of lists, or of a list of structs.
        """
        is_outer = is_list(arrow_type) and bool(children_of(storage_type_of(arrow_type.value_type)))
        children = children_of(storage_type_of(arrow_type.value_type) if is_outer else arrow_type)
        axes, dtype = axes_of(arrow_type)
        box = next((child for usual in BOX_NAMES for child in children if child.lower() == usual), None)
        if children and (box is None or axes_of(children[box])[1] is None):
            return False
        if not children and (dtype is None or name.lower() not in BOX_NAMES or axes.count(",") != 1):
            return False
        if self._options.boxes is None:
            self.notes.append(f"{name!r} may hold boxes: state boxes=")
            return False
        path = () if box is None else (box,)
        self.found.append(ColumnField("boxes", Field("boxes"), name, path, boxes_format=self._options.boxes))
        category = next((child for child in CLASS_NAMES if child in children), None)
        for child, child_type in children.items():
            axes, dtype = ("*", make_dtype(child_type)) if is_outer else axes_of(child_type)
            if child == box:
                continue
            if dtype is None or "," in axes:
                self._leave_out(f"{name}.{child}", child_type)
            elif child == category and dtype.kind in "iu":
                field = Field("int64[*]", class_names(feature_of_child(feature, child)))
                self.found.append(ColumnField("classes", field, name, (child,)))
            else:
                self.found.append(ColumnField(f"{name}.{child}", Field(f"{dtype}[*]"), name, (child,)))
        return True


def _plan_pixels(name: str, arrow_type: pa.DataType, options: Stated) -> ColumnField:
    shape, dtype = check_shape(options.shape), options.dtype or "uint8"
    if shape[2] == 3 and options.channels is None:
        raise ArgumentError(f'the order of the channels of {name!r} is not stored; state channels="RGB" or "BGR"')
    if not is_binary(arrow_type) and str(axes_of(arrow_type)[1]) != dtype:
        raise ArgumentError(f"dtype must be that of column {name!r} ({arrow_type}), got {dtype!r}")
    field = Field(f"pixels:{dtype}[{shape[0]},{shape[1]},{shape[2]}]")
    return ColumnField(name, field, name, channels=options.channels or "RGB")


def _plan_simple(name: str, arrow_type: pa.DataType, feature: object) -> ColumnField | None:
    """Return a field of numbers, text, or lists of numbers; None for other types."""
    from pyarrow import types

    classes = class_names(feature)
    if types.is_dictionary(arrow_type):
        return _plan_simple(name, storage_type_of(arrow_type.value_type), feature)
    dtype = make_dtype(arrow_type)
    if dtype is not None:
        is_label = bool(classes) or (isinstance(feature, dict) and feature.get("_type") == "ClassLabel")
        field = Field("float") if dtype.kind == "f" else Field("label" if is_label else "int", classes)
        return ColumnField(name, field, name)
    is_time = types.is_temporal(arrow_type) and not types.is_duration(arrow_type)
    if is_text(arrow_type) or is_time or types.is_decimal(arrow_type):
        return ColumnField(name, Field("text"), name)
    axes, dtype = axes_of(arrow_type)
    if dtype is None or "*" in axes.split(",")[1:]:  # lists of lists may differ in length: polygons
        return None
    return ColumnField(name, Field(f"{dtype}[{axes}]", classes), name)


def _find_key(schema: pa.Schema, image: ColumnField | None, stated: Stated, peek: Peek) -> tuple[str, ...] | None:
    """The column with the names of the records: the stated one, the paths of the images, or one with a usual name."""
    names = schema.names
    if stated.key:
        path = (stated.key,) if stated.key in names else tuple(stated.key.split("."))
        if path[0] not in names or not has_child(found := storage_type_of(schema.field(path[0]).type), path[1:]):
            raise ArgumentError(f"key must name a column ({quote_names(names, 20)}), got {stated.key!r}")
        for name in path[1:]:
            found = children_of(found)[name]
        if is_binary(found):
            raise ArgumentError(f"key must name a column of texts or integers, got {stated.key!r}, which is {found}")
        return path
    if stated.key is None and image is not None and image.path_child:
        children = children_of(storage_type_of(schema.field(image.column).type))
        if is_text(children[image.path_child]) and peek(image.column, (image.path_child,)):
            return image.column, image.path_child
    texts = [Candidate(name, Field("text")) for name in names if is_text(schema.field(name).type)]
    key = find_key(texts, stated)
    return None if key is None else (key,)


def _plan_own(schema: pa.Schema, metadata: bytes) -> FieldsPlan:
    """The fields of records that penstock wrote."""
    try:
        entry = json.loads(metadata)
        stored = Schema.from_json(entry["schema"]).fields
        key = tuple(str(name) for name in entry["key"])
    except (ValueError, KeyError, TypeError, RecursionError, ArgumentError) as error:
        raise StoreFormatError(f"the metadata 'penstock' of the schema are damaged: {error}") from error
    planned = []
    for name, field in stored.items():
        if schema.get_field_index(name) < 0:
            raise StoreFormatError(f"the column {name!r} is missing, which the metadata 'penstock' of the schema name")
        planned.append(_plan_own_field(name, field, storage_type_of(schema.field(name).type)))
    if key[0] not in schema.names or not has_child(schema.field(key[0]).type, key[1:]):
        raise StoreFormatError(f"the column {'.'.join(key)!r} with the keys is missing")
    roles = Roles({name: Candidate(name, field) for name, field in stored.items()}, ".".join(key))
    return FieldsPlan(tuple(planned), roles, key)


def _plan_own_field(name: str, field: Field, arrow_type: pa.DataType) -> ColumnField:
    children = children_of(arrow_type)
    sizes = tuple(child for child in ("height", "width", "channels") if child in children)
    return ColumnField(name, field, name, ("bytes",) if children else (), size_children=sizes)
