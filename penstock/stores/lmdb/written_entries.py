"""What the entries of a record are, for each layout of other programs that is written.

::

    PickleIndexWriter   b"17"             pickle, protocol 4, of (bytes, label) or an RGB array;  __keys__, __len__
    PairsWriter         b"17", b"17_"     pixels, text "LABEL,BOX,LANDMARKS"
    NamesWriter         b"a.jpg", b"a.txt"  encoded image, rows of float64 or one number

:class:`~penstock.stores.lmdb.layout_writer.LmdbLayoutWriter` commits and resumes.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, SupportsInt, cast

import numpy as np

from penstock.errors import ArgumentError, PackError, check_choice
from penstock.sample import Blob, Field, Schema
from penstock.stores.common.lmdb.environment_writer import CommitLimits
from penstock.stores.fields.box_corners import find_image_size
from penstock.stores.fields.pixels import CHANNELS
from penstock.stores.fields.small_fields import check_pixels
from penstock.stores.lmdb.entries import MAX_KEY_NBYTES
from penstock.stores.lmdb.entry_keys import ARRAY_SUFFIX, COUNT, IMAGE_KEY_SUFFIXES, KEYS, split_suffix
from penstock.stores.lmdb.layout_writer import EncodedEntries, LmdbLayoutWriter
from penstock.stores.location import Location

__all__ = ["NamesWriter", "PairsWriter", "PickleIndexWriter", "make_image_name"]

_PROTOCOL: Final = 4
_NEW_MODULE, _OLD_MODULE = b"\x8c\x16numpy._core.multiarray", b"\x8c\x15numpy.core.multiarray"
_HEAD_NBYTES: Final = 64
_IMAGE, _LABEL = "image", "label"
_NUMBERS: Final = frozenset({"label", "int"})


class PickleIndexWriter(LmdbLayoutWriter):
    """Writes the layout ``pickle-index``: readers call ``pickle.loads`` on each value.

    Values are tuples ``(bytes, label)``, of a label that is None where there is none; images that are stored as their
    pixels are uint8, uint16 or float32 arrays in RGB, without a tuple where there are no labels.
    """

    layout: ClassVar[str] = "pickle-index"

    @classmethod
    def choose(cls, schema: Schema) -> Schema:
        """Image and label."""
        fields = {_IMAGE: _get_image(schema, cls.layout)}
        label = schema.fields.get(_LABEL)
        if label is not None and (label.kind in _NUMBERS | {"float", "text"} or label.array is not None):
            fields[_LABEL] = Field("label", label.classes) if label.kind == "int" else label
        elif fields[_IMAGE].pixels is None:
            fields[_LABEL] = Field("label")  # of None: readers expect a tuple
        return Schema(fields)

    def prepare(self, key: str, fields: Mapping[str, object]) -> EncodedEntries:
        """The pickle of one record."""
        del key
        pixels = self.schema[_IMAGE].pixels
        image, label = fields[_IMAGE], _to_plain(fields.get(_LABEL))
        if image is None and _LABEL in self.schema:  # a tuple has a place for it
            return EncodedEntries(((b"", _dump((None, label))),), 0)
        stored: Blob = _copy_encoded(image) if pixels is None else check_pixels(_IMAGE, pixels, image)
        value = (stored, label) if _LABEL in self.schema else stored
        return EncodedEntries(((b"", _dump(value)),), memoryview(stored).nbytes)

    def list_last_entries(self) -> list[tuple[bytes, bytes]]:
        """Order and number of the records."""
        keys = [b"%d" % index for index in range(self.records)]
        return [(KEYS, pickle.dumps(keys, _PROTOCOL)), (COUNT, pickle.dumps(self.records, _PROTOCOL))]

    def describe_reading(self) -> dict[str, object]:
        """Order of channels and shape of pixels, and the names of the classes."""
        options = _describe_pixels(self.schema, "RGB")
        return options | _describe_classes(self.schema, _LABEL)


class PairsWriter(LmdbLayoutWriter):
    """Writes the layout ``pairs``: pixels of one shape without a header, and a text.

    Parameters
    ----------
    channels : {"BGR", "RGB"}
        The order in which three or four channels are written; readers of this layout expect BGR as a rule.
    """

    layout: ClassVar[str] = "pairs"

    def __init__(
        self,
        location: Location,
        schema: Schema,
        source: str,
        *,
        overwrite: bool = False,
        channels: str = "BGR",
        limits: CommitLimits | None = None,
    ) -> None:
        check_choice("channels", channels, CHANNELS)
        self._channels = channels
        options = {"channels": channels}
        super().__init__(location, schema, source, overwrite=overwrite, options=options, limits=limits)

    @classmethod
    def choose(cls, schema: Schema) -> Schema:
        """Pixels of one shape, label, box and landmarks."""
        image = _get_image(schema, cls.layout)
        if image.pixels is None or image.pixels.shape is None:
            raise ArgumentError(
                "the layout pairs stores pixels of one shape, such as pixels:uint8[12,12,3], got field 'image' of kind "
                f"{image.kind!r}"
            )
        fields = {_IMAGE: image}
        label = schema.fields.get(_LABEL)
        fields[_LABEL] = Field("label", label.classes if label is not None else ())
        if label is not None and label.kind not in _NUMBERS:
            fields[_LABEL] = Field("label")
        for name in ("box", "landmarks"):
            fields[name] = Field("float32[*]")
        if "more" in schema and _is_vector(schema["more"]):
            fields["more"] = Field("float32[*]")
        return Schema(fields)

    def prepare(self, key: str, fields: Mapping[str, object]) -> EncodedEntries:
        """The pixels and the text of one record."""
        del key
        kind = self.schema[_IMAGE].pixels
        assert kind is not None, "chosen so"
        pixels = check_pixels(_IMAGE, kind, fields[_IMAGE])
        if self._channels == "BGR" and pixels.shape[2] > 1:
            pixels = pixels[:, :, [2, 1, 0, 3][: pixels.shape[2]]]
        content = pixels.tobytes()
        return EncodedEntries(((b"", content), (b"_", self._make_text(fields))), len(content))

    def describe_reading(self) -> dict[str, object]:
        """Shape, order of channels, dtype, and the names of the classes."""
        options = _describe_pixels(self.schema, self._channels)
        kind = self.schema[_IMAGE].pixels
        if kind is not None and kind.dtype != np.uint8:
            options["dtype"] = kind.dtype.name
        return options | {"expected_count": self.records} | _describe_classes(self.schema, _LABEL)

    def _make_text(self, fields: Mapping[str, object]) -> bytes:
        label = cast("SupportsInt | None", fields.get(_LABEL))
        names = [name for name in ("box", "landmarks", "more") if name in self.schema]
        numbers = [" ".join(map(str, _to_floats(name, fields.get(name)))) for name in names]
        return ",".join(["" if label is None else str(int(label)), *numbers]).encode()


class NamesWriter(LmdbLayoutWriter):
    """Writes the layout ``names``: encoded images under their names, and rows of float64 under ``NAME.txt``.

    Boxes are written as rows ``class cx cy w h`` in fractions of the image's size (``cx cy w h`` where they have no
    classes); a record without boxes (None) has no such entry, and one with no rows an empty one. Where the schema has
    no boxes, the entry is the label: one int64 or float64.
    """

    layout: ClassVar[str] = "names"
    is_numbered: ClassVar[bool] = False

    @classmethod
    def choose(cls, schema: Schema) -> Schema:
        """Image; boxes and their classes, or the label."""
        image = _get_image(schema, cls.layout)
        if image.pixels is not None:
            raise ArgumentError(f"the layout names stores encoded images, got field 'image' of kind {image.kind!r}")
        fields = {_IMAGE: image}
        if "boxes" in schema and schema["boxes"].kind == "boxes":
            fields["boxes"] = Field("boxes")
            if "classes" in schema and schema["classes"].kind.startswith("int"):
                fields["classes"] = Field("int64[*]", schema["classes"].classes)
        elif _LABEL in schema and schema[_LABEL].kind in _NUMBERS | {"float"}:
            label = schema[_LABEL]
            fields[_LABEL] = Field("float") if label.kind == "float" else Field("label", label.classes)
        return Schema(fields)

    def prepare(self, key: str, fields: Mapping[str, object]) -> EncodedEntries:
        """The image and the array of one record."""
        content = _copy_encoded(fields[_IMAGE])
        name = make_image_name(key, content)
        entries = [(name, content)]
        stored = self._make_array(fields, content)
        if stored is not None:
            entries.append((split_suffix(name)[0] + ARRAY_SUFFIX, stored))
        return EncodedEntries(tuple(entries), len(content))

    def describe_reading(self) -> dict[str, object]:
        """Shape, dtype and columns of the arrays, and the names of the classes."""
        if "boxes" in self.schema:
            columns = "class cx cy w h" if "classes" in self.schema else "cx cy w h"
            options: dict[str, object] = {"shape": [-1, len(columns.split())], "dtype": "float64", "columns": columns}
            return options | {"units": "relative"} | _describe_classes(self.schema, "classes")
        if _LABEL in self.schema:
            dtype = "float64" if self.schema[_LABEL].kind == "float" else "int64"
            return {"shape": [], "dtype": dtype} | _describe_classes(self.schema, _LABEL)
        return {}

    def _make_array(self, fields: Mapping[str, object], image: bytes) -> bytes | None:
        if _LABEL in self.schema:
            label = fields.get(_LABEL)
            dtype = "<f8" if self.schema[_LABEL].kind == "float" else "<i8"
            return None if label is None else np.array(label, dtype).tobytes()
        boxes = fields.get("boxes")
        if "boxes" not in self.schema or boxes is None:
            return None
        corners = np.asarray(boxes).astype(np.float64).reshape(-1, 4)
        if not len(corners):
            return b""
        try:
            size = np.array(find_image_size(image), np.float64)
        except ValueError as error:
            raise PackError(f"boxes are stored as fractions of the image: {error}") from error
        columns = [(corners[:, :2] + corners[:, 2:]) / 2 / size, (corners[:, 2:] - corners[:, :2]) / size]
        if "classes" in self.schema:
            classes = np.asarray(() if fields.get("classes") is None else fields["classes"]).astype(np.float64)
            if classes.shape != (len(corners),):
                raise PackError(f"it has {len(corners)} boxes and {classes.size} classes")
            columns.insert(0, classes[:, None])
        return np.ascontiguousarray(np.concatenate(columns, axis=1), "<f8").tobytes()


def _get_image(schema: Schema, layout: str) -> Field:
    if _IMAGE not in schema or not schema[_IMAGE].is_image:
        raise ArgumentError(
            f"the layout {layout} must have images in a field 'image', got fields {', '.join(schema.fields)}"
        )
    return schema[_IMAGE]


def _is_vector(field: Field) -> bool:
    return field.array is not None and len(field.array.axes) == 1 and field.array.dtype.kind in "fiu"


def _copy_encoded(image: object) -> bytes:
    """The bytes of an encoded image."""
    try:
        return bytes(memoryview(image))  # type: ignore[arg-type]  # or a TypeError; not of the image itself: bytes(3) are three zeros
    except TypeError:
        raise PackError(f"field 'image' must hold encoded bytes, got {type(image).__name__}") from None


def _describe_pixels(schema: Schema, channels: str) -> dict[str, object]:
    kind = schema[_IMAGE].pixels
    options: dict[str, object] = {}
    if kind is not None:
        if kind.axes[2] != (1,):
            options["channels"] = channels
        if kind.shape is not None:
            options["shape"] = list(kind.shape)
    return options


def _describe_classes(schema: Schema, field: str) -> dict[str, object]:
    classes: Sequence[str] = schema[field].classes if field in schema else ()
    return {"classes": list(classes)} if classes else {}


def _dump(value: object) -> bytes:
    """A pickle that every version of NumPy reads: the module of version 2 is unknown to those before 1.26."""
    content = pickle.dumps(value, _PROTOCOL)
    if _NEW_MODULE in content[:_HEAD_NBYTES]:
        frame = int.from_bytes(content[3:11], "little") - 1
        content = content[:3] + frame.to_bytes(8, "little") + content[11:].replace(_NEW_MODULE, _OLD_MODULE, 1)
    return content


def _to_plain(value: object) -> object:
    """A label without NumPy where it is a number: a pickle of it is read by any version."""
    return value.item() if isinstance(value, np.generic) else value


def _to_floats(name: str, value: object) -> list[object]:
    """Numbers of which the shortest text gives the same float32 again."""
    numbers = np.asarray(() if value is None else value).astype(np.float32)
    if numbers.ndim != 1:
        raise PackError(f"field {name!r} must have one axis, got shape {numbers.shape}")
    return list(numbers)


def make_image_name(key: str, content: bytes) -> bytes:
    """A key as the name of an image whose bytes begin with ``content``: an ending is appended where it has none."""
    name = key.encode()
    if split_suffix(name)[1] not in IMAGE_KEY_SUFFIXES:
        name += b".png" if content.startswith(b"\x89PNG") else b".jpg"
    if len(name) > MAX_KEY_NBYTES:
        raise PackError(f"its name must have at most {MAX_KEY_NBYTES} bytes, got {len(name)}")
    return name
