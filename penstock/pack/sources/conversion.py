"""Converts the values of a sample to what is stored, by the schema. Nothing is rounded, cut or guessed silently.

Called in threads and worker processes, for each record. A converter has constants only, and can be pickled.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from penstock.errors import ArgumentError, PackError
from penstock.pack.sources.values import describe, plain, suggest_kind, to_json
from penstock.paths import find_named_file
from penstock.sample import Array, ArrayKind, Field, Schema, Value
from penstock.stores.fields.exact_casts import as_numbers, cast_exactly, to_float, to_whole
from penstock.transforms.inputs import is_pil

__all__ = ["PictureEncoding", "RecordConverter"]

_ENCODING: Final = re.compile(r"(png|pixels|jpeg)(?::([0-9]{1,3}))?")
_QUALITY: Final = 95
_PNG_MODES: Final = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I", "I;16"})


@dataclass(frozen=True, slots=True)
class PictureEncoding:
    """How pictures of Pillow, and pixels in fields of kind ``image``, are stored: as PNG, JPEG or pixels."""

    format: str
    quality: int = _QUALITY

    @classmethod
    def parse(cls, images: str) -> PictureEncoding:
        """Parse the argument ``images`` of :func:`penstock.pack`."""
        found = _ENCODING.fullmatch(str(images))
        quality = int(found[2]) if found is not None and found[2] else _QUALITY
        if found is None or (found[2] and found[1] != "jpeg") or not 1 <= quality <= 100:
            raise ArgumentError(
                f"images must be 'png', 'pixels', 'jpeg', or 'jpeg:QUALITY' with a quality of 1 to 100, got {images!r}"
            )
        return cls(found[1], quality)

    def encode(self, picture: Value) -> bytes:
        """Return the bytes of a picture of Pillow; as PNG unless the format is ``jpeg``.

        Raises
        ------
        PackError
            If the format cannot hold its mode.
        """
        file = io.BytesIO()
        if self.format == "jpeg":
            if picture.mode not in {"L", "RGB", "CMYK"}:
                raise PackError(
                    f"a JPEG must be of mode L, RGB or CMYK, got a picture of mode {picture.mode}; give images='png', "
                    "or convert it"
                )
            picture.save(file, "JPEG", quality=self.quality, subsampling=0)
            return file.getvalue()
        if picture.mode not in _PNG_MODES:
            raise PackError(
                f"a picture must be of a mode that PNG holds ({', '.join(sorted(_PNG_MODES))}), got {picture.mode}; "
                "convert it, such as with picture.convert('RGB')"
            )
        picture.save(file, "PNG", compress_level=1)
        return file.getvalue()


@dataclass(frozen=True, slots=True)
class RecordConverter:
    """Converts samples to records of one schema."""

    schema: Schema  # fields of the records
    encoding: PictureEncoding  # how pictures are stored
    dropped: frozenset[str] = frozenset()  # names of values that are not stored
    root: Path | None = None  # the folder of relative paths; by default the current one
    inferred: frozenset[str] = frozenset()  # fields whose kind some samples showed: floats are not rounded to it
    _numbers: dict[str, dict[str, int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        numbers = {
            name: {each: number for number, each in enumerate(kind.classes)}
            for name, kind in self.schema.fields.items()
        }
        object.__setattr__(self, "_numbers", {name: found for name, found in numbers.items() if found})

    def below(self, root: str | os.PathLike[str] | None) -> RecordConverter:
        """Return a converter of paths that are relative to ``root``."""
        return self if root is None else replace(self, root=Path(root))

    def convert(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """The fields of a record.

        Raises
        ------
        PackError
            If a value does not fit its field, or is of no field.
        """
        for name in values:
            if name not in self.schema and name not in self.dropped:
                raise PackError(
                    f"it has a value {name!r}, which is no field of the schema ({', '.join(self.schema.fields)}); give "
                    f"schema={{{name!r}: kind}}, or {{{name!r}: None}} to leave it out"
                )
        return {name: self._convert(name, kind, values.get(name)) for name, kind in self.schema.fields.items()}

    def _convert(self, name: str, kind: Field, given: object) -> Value:
        value = plain(given)
        converted: Value
        if value is None and not kind.is_blob:
            return None
        try:
            if kind.pixels is not None:
                converted = self._to_pixels(value, kind.pixels)
            elif kind.is_blob:
                converted = self._to_bytes(value, kind.kind)
            elif kind.array is not None:
                converted = _to_array(self._name_numbers(name, value), kind.array, may_round=name not in self.inferred)
            else:
                converted = self._to_scalar(name, kind.kind, value)
        except OSError as error:
            raise PackError(f"field {name!r}: the file cannot be read: {error.filename}: {error.strerror}") from error
        if converted is None:
            found = suggest_kind(name, kind.kind, value)
            raise PackError(
                f"field {name!r} must be {kind.kind} by the schema, got {describe(value)}; if other records are so "
                f"too, give its kind: schema={{{name!r}: {repr(found) if found else 'kind'}}}"
            )
        return converted

    def _to_bytes(self, value: object, kind: str) -> bytes | None:
        if isinstance(value, bytes):
            return value
        if isinstance(value, Path) or (isinstance(value, str) and kind != "bytes"):
            return self._read_file(value)
        if kind == "bytes":
            return None
        if isinstance(value, np.ndarray):
            value = _to_picture(value, is_mask=kind == "mask")
        if not is_pil(value):
            return None
        return (PictureEncoding("png") if kind == "mask" else self.encoding).encode(value)

    def _read_file(self, path: str | Path) -> bytes:
        """Return the bytes of a file; a path that is no file as it stands may be one of another system."""
        root = self.root or Path()
        try:
            return (root / path).read_bytes()
        except FileNotFoundError:
            found = find_named_file(root, str(path))
            if found is None:
                raise
            return found.read_bytes()

    def _to_pixels(self, value: Value, kind: ArrayKind) -> Array | None:
        if is_pil(value):
            if value.mode not in {"L", "RGB", "RGBA", "I;16", "F"}:
                raise PackError(
                    f"a picture must be of mode L, RGB, RGBA, I;16 or F to be stored as pixels, got {value.mode}"
                )
            value = np.asarray(value)
        if not isinstance(value, np.ndarray):
            return None
        pixels = value[:, :, None] if value.ndim == 2 else value
        return np.ascontiguousarray(pixels) if pixels.dtype == kind.dtype and kind.allows(pixels.shape) else None

    def _name_numbers(self, name: str, value: object) -> Value:
        """A list of names of classes as their numbers."""
        numbers = self._numbers.get(name)
        if numbers is None or not isinstance(value, list | tuple) or not any(isinstance(each, str) for each in value):
            return value
        return [self._find_class(name, each) for each in value]

    def _to_scalar(self, name: str, kind: str, value: object) -> Value:
        if kind == "json":
            return to_json(value)
        if kind == "text":
            return value if isinstance(value, str) else None
        if isinstance(value, str):
            return self._find_class(name, value) if name in self._numbers else None
        try:
            return to_float(value) if kind == "float" else to_whole(value)
        except ValueError:
            return None

    def _find_class(self, name: str, text: str) -> int:
        numbers = self._numbers[name]
        text = text if text in numbers else text.strip()
        if text not in numbers:
            known = ", ".join(list(numbers)[:10])
            raise PackError(f"field {name!r} must be one of its {len(numbers)} classes ({known} ...), got {text!r}")
        return numbers[text]


def _to_array(value: object, kind: ArrayKind, *, may_round: bool) -> Array | None:
    """Return the array in the dtype of its field; None if its shape is another one, or a number would change."""
    if not isinstance(value, np.ndarray | list | tuple):
        return None
    try:
        array = as_numbers(value, kind.dtype)
        if array.shape == (0,) and kind.empty_shape is not None:
            return np.zeros(kind.empty_shape, kind.dtype)
        return cast_exactly(array, kind.dtype, may_round=may_round) if kind.allows(array.shape) else None
    except ValueError:
        return None


def _to_picture(array: Array, *, is_mask: bool) -> Value:
    """Return a picture of Pillow with the values of an array; the array itself if there is none."""
    from PIL import Image

    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if is_mask and array.ndim == 2 and array.dtype.kind in "biu" and array.size and array.min() >= 0:
        largest = int(array.max())
        if largest <= 0xFFFF:
            return Image.fromarray(array.astype(np.uint8 if largest <= 0xFF else np.uint16))
    if not is_mask and array.dtype == np.uint8 and (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in {3, 4})):
        return Image.fromarray(np.ascontiguousarray(array))
    if not is_mask and array.dtype == np.uint16 and array.ndim == 2:
        return Image.fromarray(array)
    return array
