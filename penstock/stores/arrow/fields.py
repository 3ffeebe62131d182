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
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from penstock.errors import ArgumentError, StoreFormatError, check_choice
from penstock.fields.names import BOX_NAMES, IMAGE_NAMES, KEY_NAMES, LABEL_NAMES, MASK_NAMES
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
from penstock.stores.fields.image_signatures import looks_like_image
from penstock.stores.fields.pixels import CHANNELS, check_shape
from penstock.stores.fields.record_names import quote_names
from penstock.stores.writing import Skipped

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["METADATA_KEY", "ColumnField", "ColumnOptions", "FieldsPlan", "Peek", "plan_fields"]

Peek = Callable[[str, Sequence[str]], bytes | None]
"""Gives the first bytes of the first value of a column (or a child of it) that is not null; None if all are null."""

METADATA_KEY: Final = b"penstock"
"""The entry of an Arrow schema's metadata that holds the schema of records that penstock wrote."""

_CATEGORY_NAMES: Final = (*LABEL_NAMES, "categories", "classes")
_BOX_FORMATS: Final = ("xyxy", "xywh")


@dataclass(frozen=True, slots=True)
class ColumnOptions:
    """What a person states of the columns; see :class:`~penstock.stores.arrow.parquet.ParquetStore`."""

    image: str | None = None
    label: str | None = None
    key: str | None = None
    fields: Sequence[str] | None = None
    boxes_format: str | None = None
    shape: Sequence[int] | None = None
    dtype: str | None = None
    channels: str | None = None

    def __post_init__(self) -> None:
        check_choice("boxes_format", self.boxes_format, _BOX_FORMATS, optional=True)
        check_choice("channels", self.channels, CHANNELS, optional=True)
        if isinstance(self.fields, str):
            raise ArgumentError(f"fields must be a sequence of names of columns, got {self.fields!r}")

    @property
    def given(self) -> dict[str, object]:
        """What is stated, by name; lists as tuples."""
        stated = {name: value for name, value in asdict(self).items() if value is not None}
        return {name: tuple(value) if isinstance(value, list) else value for name, value in stated.items()}


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
    def may_be_label(self) -> bool:
        """Whether the value is a number, text or a list of numbers."""
        return not self.field.is_blob and self.field.kind not in {"boxes", "json"}


@dataclass(frozen=True, slots=True)
class FieldsPlan:
    """The fields of a store's records, the column with their keys, and what a description says of them."""

    fields: tuple[ColumnField, ...]
    key: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    left_out: tuple[Skipped, ...] = ()
    """Columns, or children of them, that are not read although nobody asked to leave them out."""

    @property
    def schema(self) -> Schema:
        """The schema of the store."""
        return Schema({each.name: each.field for each in self.fields})

    def describe(self) -> str:
        """Which column is what: the end of a sentence."""
        image = next((each for each in self.fields if each.field.is_image), None)
        parts = [] if image is None else [f"{'pixels' if image.field.pixels else 'images'} in {_dotted(image)!r}"]
        label = next((each for each in self.fields if each.field.kind == "label"), None)
        if label is not None:
            classes = f" of {len(label.field.classes)} classes" if label.field.classes else ""
            parts.append(f"labels{classes} in {_dotted(label)!r}")
        parts.append("no keys" if self.key is None else f"keys in {'.'.join(self.key)!r}")
        return ", ".join([*parts, *self.notes, *(f"{each.key!r}: {each.reason}" for each in self.left_out)])


def plan_fields(schema: pa.Schema, options: ColumnOptions, peek: Peek) -> FieldsPlan:
    """The fields of records with the columns of an Arrow schema.

    Raises ArgumentError if an option names no column, or a column needs an option that is not given; the message says
    which. Raises StoreFormatError if no column can be read.
    """
    metadata = schema.metadata or {}
    if METADATA_KEY in metadata and not options.given:
        return _plan_own(schema, metadata[METADATA_KEY])
    names = _choose_names(schema.names, options)
    planner = _Planner(options, read_features(metadata), peek)
    for name in names:
        planner.plan_column(name, storage_type_of(schema.field(name).type))
    found = _name_label(_name_image(planner.found, options), options)
    if not found:
        raise StoreFormatError(f"none of the columns can be read: {quote_names(names)}")
    if twice := _find_twice([each.name for each in found]):
        raise ArgumentError(
            f"two columns would become the field {twice!r}; state image= and label=, or leave one out with fields="
        )
    return FieldsPlan(tuple(found), _find_key(schema, found, options), tuple(planner.notes), tuple(planner.left_out))


def _find_twice(names: Sequence[str]) -> str | None:
    return next((name for number, name in enumerate(names) if name in names[:number]), None)


def _choose_names(names: Sequence[str], options: ColumnOptions) -> list[str]:
    """The columns that are read."""
    if twice := _find_twice(names):
        raise StoreFormatError(f"two columns have the name {twice!r}")
    wanted = [("fields", name) for name in options.fields or ()]
    for what, name in [("image", options.image), ("label", options.label)]:
        if name is not None:  # a child of a column may be stated, and the name of a column may have points itself
            wanted.append((what, name if name in names else name.split(".")[0]))
    for what, name in wanted:
        if name not in names:
            raise ArgumentError(f"{what} must name a column ({quote_names(names, 20)}), got {name!r}")
    chosen = {name for _, name in wanted}
    return list(names) if options.fields is None else [name for name in names if name in chosen]


class _Planner:
    """Plans the fields of columns, one after another; ``features`` is what ``datasets`` says of the columns."""

    def __init__(self, options: ColumnOptions, features: Mapping[str, object], peek: Peek) -> None:
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
        content = None if kind == "Image" else self._peek(name, path)
        is_image = kind == "Image" or looks_like_image(content or b"")
        is_image |= content is None and bool(path_child) and kind is None
        if name == self._options.image and not is_image and content is not None:
            raise ArgumentError(
                f"column {name!r} holds bytes that are no encoded images; if they are pixels, state shape=(height, "
                'width, channels), dtype= and channels="RGB" or "BGR"'
            )
        field = Field(("mask" if name.lower() in MASK_NAMES else "image") if is_image else "bytes")
        return ColumnField(name, field, name, path, path_child if is_image else "")

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
        if self._options.boxes_format is None:
            self.notes.append(f"{name!r} may hold boxes: state boxes_format=")
            return False
        path = () if box is None else (box,)
        self.found.append(ColumnField("boxes", Field("boxes"), name, path, boxes_format=self._options.boxes_format))
        category = next((child for child in _CATEGORY_NAMES if child in children), None)
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


def _plan_pixels(name: str, arrow_type: pa.DataType, options: ColumnOptions) -> ColumnField:
    shape, dtype = check_shape(options.shape), options.dtype or "uint8"
    if shape[2] == 3 and options.channels is None:
        raise ArgumentError(f'the order of the channels of {name!r} is not stored; state channels="RGB" or "BGR"')
    if not is_binary(arrow_type) and str(axes_of(arrow_type)[1]) != dtype:
        raise ArgumentError(f"dtype must be that of column {name!r} ({arrow_type}), got {dtype!r}")
    field = Field(f"pixels:{dtype}[{shape[0]},{shape[1]},{shape[2]}]")
    return ColumnField(name, field, name, channels=options.channels or "RGB")


def _plan_simple(name: str, arrow_type: pa.DataType, feature: object) -> ColumnField | None:
    """A field of numbers, text, or lists of numbers; None for other types."""
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


def _name_image(found: Sequence[ColumnField], options: ColumnOptions) -> list[ColumnField]:
    """The fields, with the image that a transform is applied to called ``image``."""
    images = [each for each in found if each.field.is_image]
    if options.image is not None:
        chosen = next((each for each in images if each.column == options.image), None)
        if chosen is None:
            raise ArgumentError(
                f"image must name a column of encoded images ({quote_names([i.column for i in images], 20)}), or of "
                f"pixels of a stated shape=, got {options.image!r}"
            )
    else:
        by_name = [each for name in IMAGE_NAMES for each in images if each.column.lower() == name]
        chosen = next(iter([*by_name, *images]), None)
    return [replace(each, name="image") if each is chosen else each for each in found]


def _name_label(found: Sequence[ColumnField], options: ColumnOptions) -> list[ColumnField]:
    """The fields, with one called ``label``: the stated one, one with a usual name, or the only one with classes."""
    if options.label is not None:
        chosen = next((each for each in found if _dotted(each) == options.label), None)
        if chosen is None or not chosen.may_be_label:
            raise ArgumentError(f"label must name a column of numbers, lists of numbers or text, got {options.label!r}")
    else:
        simple = [each for each in found if each.may_be_label]
        by_name = [each for name in LABEL_NAMES for each in simple if each.column.lower() == name and not each.path]
        with_classes = [each for each in found if each.field.kind == "label"]
        chosen = by_name[0] if by_name else with_classes[0] if len(with_classes) == 1 else None
    if chosen is None:
        return list(found)
    field = Field("label", chosen.field.classes) if chosen.field.kind == "int" else chosen.field
    return [replace(each, name="label", field=field) if each is chosen else each for each in found]


def _find_key(schema: pa.Schema, found: Sequence[ColumnField], options: ColumnOptions) -> tuple[str, ...] | None:
    """The column with the names of the records: the stated one, the paths of the images, or one with a usual name."""
    if options.key is not None:
        path = tuple(options.key.split("."))
        if options.key in schema.names:
            return (options.key,)
        if path[0] not in schema.names or not has_child(storage_type_of(schema.field(path[0]).type), path[1:]):
            raise ArgumentError(f"key must name a column ({quote_names(schema.names, 20)}), got {options.key!r}")
        return path
    image = next((each for each in found if each.name == "image"), None)
    if image is not None and image.path_child:
        return (image.column, image.path_child)
    texts = [name for name in schema.names if is_text(schema.field(name).type)]
    return next(((name,) for usual in KEY_NAMES for name in texts if name.lower() == usual), None)


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
    return FieldsPlan(tuple(planned), key)


def _plan_own_field(name: str, field: Field, arrow_type: pa.DataType) -> ColumnField:
    children = children_of(arrow_type)
    sizes = tuple(child for child in ("height", "width", "channels") if child in children)
    return ColumnField(name, field, name, ("bytes",) if children else (), size_children=sizes)


def _dotted(field: ColumnField) -> str:
    return ".".join([field.column, *(name for name in field.path if name != "bytes")])
