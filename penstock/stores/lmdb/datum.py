"""The ``lmdb-datum`` store: an LMDB environment of Caffe's messages, as ``convert_imageset`` writes it.

::

    b"00000017_cat.jpg"   Datum: label, and an encoded image or pixels (CHW)

    1 channels  2 height  3 width    varint      5 label    varint (int32)
    4 data      bytes: CHW, or an encoded image  6 float_data  floats, packed or one by one
    7 encoded   varint (bool)                    other fields are skipped

Records are in the order of the bytes of their keys, as Caffe reads them. Pixels are BGR unless ``channels`` says
otherwise: Caffe reads images with OpenCV. Messages are parsed by hand, a few fields of protobuf's wire format, and no
length in them is trusted. Source: ``caffe.proto`` of Caffe, and protobuf's description of its encoding.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError, StoreFormatError
from penstock.sample import Array, ArrayKind, Blob, Field, Record, Schema
from penstock.stores.base import PathLike
from penstock.stores.common.mirrors import ByteRanges
from penstock.stores.fields.image_signatures import looks_like_image
from penstock.stores.fields.pixels import CHANNEL_COUNTS, PixelLayout
from penstock.stores.lmdb.entries import LmdbEntries, ValuePlaces
from penstock.stores.lmdb.entry_keys import list_entry_keys
from penstock.stores.lmdb.layout import LmdbLayoutStore, list_sampled
from penstock.wording import counted

__all__ = ["LmdbDatumStore", "parse_datum"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FLOAT_TAG: Final = 6 << 3 | _FIXED32
_MAX_AXIS: Final = 1 << 31


class LmdbDatumStore(LmdbLayoutStore):
    """Caffe's messages by key.

    Parameters
    ----------
    path : str, path or Location
        The folder with ``data.mdb``, or the file.
    channels : {"BGR", "RGB"}, optional
        The order of the channels of messages with pixels; by default BGR, Caffe's own.
    shape : sequence of int, optional
        Height, width and channels, where the pixels of all records have the same.
    classes : sequence of str, optional
        Names of the labels, by number.

    Raises
    ------
    ArgumentError
        If an option is none of the allowed ones.
    StoreFormatError
        If the environment is damaged or of another layout.
    """

    kind: ClassVar[str] = "lmdb-datum"
    layout: ClassVar[str] = "datum"

    def __init__(
        self,
        path: PathLike,
        *,
        channels: str | None = None,
        shape: Sequence[int] | None = None,
        classes: Sequence[str] | None = None,
    ) -> None:
        self._kind: ArrayKind | None = None
        super().__init__(path, channels=channels, shape=shape, classes=classes)

    def __len__(self) -> int:
        return len(self._values)

    @classmethod
    def fits(cls, entries: LmdbEntries) -> bool:
        """The first and the last value are messages with an image or pixels."""
        return all(_is_datum(entries.value(row)) for row in (0, len(entries) - 1))

    @property
    def description(self) -> str:
        """What the messages contain."""
        values = "encoded images"
        if self._kind is not None:
            known = "stated" if "channels" in self._stated else "Caffe's convention"
            values = (
                f"pixels, {self._pixels.describe()} ({known})" if self._kind.axes[2] != (1,) else "pixels, one channel"
            )
        return f"datum: {counted(len(self), 'record')} in the order of their keys, values are {values}"

    def find_values(self, index: int) -> Sequence[tuple[ValuePlaces, int]]:
        """The value of a record."""
        return ((self._values, index),)

    def read_record(self, opened: ByteRanges, index: int) -> Record:
        """Parse one message."""
        datum = parse_datum(self._values.read(opened, index))
        return Record(index, self._keys[index], {"image": self._convert(datum), "label": datum.label})

    def read_image(self, opened: ByteRanges, index: int) -> Blob:
        """Parse one message, and convert its pixels."""
        return self._convert(parse_datum(self._values.read(opened, index)))

    def _convert(self, datum: Datum) -> Blob:
        """Return the encoded image of a message, or its pixels."""
        if datum.is_encoded != (self._kind is None):
            raise ValueError(
                f"it has {'an encoded image' if datum.is_encoded else 'pixels'}; the first record has "
                f"{'pixels' if datum.is_encoded else 'an encoded image'}"
            )
        if self._kind is None:
            if datum.content is None:
                raise ValueError("it has no image")
            return datum.content
        return self._pixels.read(datum.read_pixels(), self._kind)

    def read_column(self, opened: ByteRanges, field: str) -> Iterable[object]:
        """Read labels, without the images."""
        del field
        return (parse_datum(self._values.read(opened, index)).label for index in self.iterate(opened))

    def _arrange(self) -> None:
        entries = self._entries
        self._values = ValuePlaces(entries)
        self._keys = list_entry_keys(entries)
        if not len(entries):
            raise StoreFormatError("it has no records (layout datum)", store=self.url)
        stated = self._stated
        self._pixels = PixelLayout(stated.get("channels", "BGR"), "CHW", stated.get("shape"))
        try:
            datum = parse_datum(entries.value(0))
            kind = "image" if datum.is_encoded else self._pixels.make_kind([*self._read_samples(datum)])
        except PenstockError:
            raise
        except ValueError as error:
            raise self.make_damage_error(0, error) from error
        fields = {"image": Field(kind), "label": Field("label", self._class_names)}
        self._kind = fields["image"].pixels
        self._schema = Schema(fields)

    def _read_samples(self, first: Datum) -> Iterator[Array]:
        """The pixels of the first records, one in the middle and the last one, as far as they can be read."""
        pixels = first.read_pixels()
        yield pixels
        for index in list_sampled(len(self._values)):
            with contextlib.suppress(ValueError):  # reading the record says what is wrong
                other = parse_datum(self._entries.value(index)).read_pixels()
                if other.dtype == pixels.dtype and len(other) in CHANNEL_COUNTS:
                    yield other


def _is_datum(value: memoryview) -> bool:
    try:
        datum: Datum = parse_datum(value)
        if datum.is_encoded:
            return datum.content is not None and looks_like_image(datum.content)
        return datum.read_pixels().size > 0
    except ValueError:
        return False


@dataclass(slots=True)
class Datum:
    """What a message says; None for what it does not say."""

    channels: int
    height: int
    width: int
    content: memoryview | None
    label: int | None
    floats: NDArray[np.float32] | None
    encoded: bool

    @property
    def is_encoded(self) -> bool:
        """Whether the content is an encoded image."""
        if self.encoded or not (self.channels or self.height or self.width):
            return True
        content = self.content  # some writers do not set the mark
        if content is None or len(content) == self.channels * self.height * self.width:
            return False
        return looks_like_image(content)

    def read_pixels(self) -> Array:
        """Return the pixels: CHW, a view of the message where they are uint8.

        Raises ValueError if their number is not that of the shape.
        """
        shape = (self.channels, self.height, self.width)
        if not (0 < self.channels < _MAX_AXIS and 0 < self.height < _MAX_AXIS and 0 < self.width < _MAX_AXIS):
            raise ValueError(f"its pixels must have channels, height and width, got {shape}")
        stored: Array | None = self.floats
        if self.content is not None and (len(self.content) or stored is None):
            stored = np.frombuffer(self.content, np.uint8)
        count = 0 if stored is None else len(stored)
        if stored is None or count != math.prod(shape):
            raise ValueError(f"its {count} values are not those of {shape} (channels, height, width)")
        return stored.reshape(shape)


def parse_datum(content: memoryview) -> Datum:
    """Parse a message.

    Raises ValueError if it is damaged.
    """
    numbers: dict[int, int] = {}
    image: memoryview | None = None
    at, end = 0, len(content)
    parts: list[NDArray[np.float32]] = []
    while at < end:
        tag = content[at]
        at += 1
        if tag >= 0x80:
            tag, at = _read_varint(content, at - 1)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            numbers[number], at = _read_varint(content, at)
        elif wire == _BYTES:
            nbytes, at = _read_varint(content, at)
            if nbytes > end - at:
                raise ValueError(f"its message is truncated: a field of {nbytes} bytes at byte {at} of {end}")
            if number == 4:
                image = content[at : at + nbytes]
            elif number == 6:
                parts.append(_read_packed(content[at : at + nbytes]))
            at += nbytes
        elif tag == _FLOAT_TAG:
            floats, at = _read_floats(content, at)
            parts.append(floats)
        elif wire in {_FIXED32, _FIXED64}:
            at += 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"its message is damaged: wire type {wire} at byte {at}")
    channels, height, width = (numbers.get(axis, 0) for axis in (1, 2, 3))
    if at != end or max(channels, height, width) >= _MAX_AXIS:
        raise ValueError(f"its message is truncated at byte {end}")
    label = (numbers[5] + (1 << 31) & 0xFFFFFFFF) - (1 << 31) if 5 in numbers else None  # an int32
    joined = np.concatenate(parts) if len(parts) > 1 else next(iter(parts), None)
    return Datum(channels, height, width, image, label, joined, bool(numbers.get(7)))


def _read_varint(content: memoryview, at: int) -> tuple[int, int]:
    if at < len(content) and content[at] < 0x80:
        return content[at], at + 1
    value = shift = 0
    for byte in content[at : at + 10]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise ValueError(f"its message is damaged: a number at byte {at} does not end")


def _read_packed(content: memoryview) -> NDArray[np.float32]:
    if len(content) % 4:
        raise ValueError(f"its message is damaged: {len(content)} bytes are no float32 numbers")
    return np.frombuffer(content, "<f4") if len(content) else np.empty(0, np.float32)


def _read_floats(content: memoryview, at: int) -> tuple[NDArray[np.float32], int]:
    """A run of floats, each behind a tag of its own; ``at`` is behind the first tag."""
    begin, count, block = at - 1, 0, 64
    most = (len(content) - begin) // 5
    if not most:
        raise ValueError(f"its message is truncated: a float at byte {at}")
    while count < most:  # in growing blocks: many short runs cost no more than one long run
        tags = np.frombuffer(content[begin + 5 * count : begin + 5 * min(most, count + block)], np.uint8)[::5]
        same = int(np.argmin(tags == _FLOAT_TAG)) if (tags != _FLOAT_TAG).any() else len(tags)
        count += same
        if same < len(tags):
            break
        block *= 2
    rows = np.frombuffer(content[begin : begin + 5 * count], np.uint8).reshape(-1, 5)
    return np.ascontiguousarray(rows[:, 1:]).view("<f4")[:, 0], begin + 5 * count
