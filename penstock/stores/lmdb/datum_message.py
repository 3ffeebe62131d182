"""Caffe's message ``Datum``, parsed by hand: a few fields of protobuf's wire format.

::

    1 channels  2 height  3 width    varint      5 label    varint (int32)
    4 data      bytes: CHW, or an encoded image  6 float_data  floats, packed or one by one
    7 encoded   varint (bool)                    other fields are skipped

Lengths are never trusted. Source: ``caffe.proto`` of Caffe, and protobuf's description of its encoding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.sample import Array
from penstock.stores.fields.image_signatures import looks_like_image

__all__ = ["Datum", "parse_datum"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FLOAT_TAG: Final = 6 << 3 | _FIXED32
_MAX_AXIS: Final = 1 << 31


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
        """The pixels: CHW, a view of the message where they are uint8.

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
