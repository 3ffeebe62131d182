"""A store of any number of records, made when they are read, for pages that have to stand a million of them."""

from __future__ import annotations

import functools
import io
from collections.abc import Sequence
from typing import ClassVar, overload

import numpy as np
from PIL import Image

from penstock.sample import Array, Field, Record, Schema
from penstock.stores.base import Indices, Store

PICTURES = 64


@functools.cache
def make_picture(number: int) -> bytes:
    """A JPEG file whose size and colours depend on ``number``."""
    ramp = np.linspace(0, 255, 48 + number, dtype=np.uint8)
    pixels = np.stack(np.broadcast_arrays(ramp[None], ramp[:40, None], np.uint8(number * 4)), axis=-1)
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "JPEG")
    return file.getvalue()


class Keys(Sequence[str]):
    """Keys that are made when they are asked for."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [f"{each:07}.jpg" for each in range(*index.indices(self._count))]
        return f"{index:07}.jpg"


class ManyStore(Store):
    """``count`` records of ten classes; ``keys`` and ``pictures`` replace those of the first."""

    kind: ClassVar[str] = "many"

    def __init__(self, count: int, keys: Sequence[str] = (), pictures: Sequence[bytes] = ()) -> None:
        super().__init__("many-records")
        self._count, self._first_keys, self._first_pictures = count, keys, pictures

    @property
    def schema(self) -> Schema:
        """An image and its class."""
        return Schema({"image": Field("image"), "label": Field("label", tuple(f"class {i}" for i in range(10)))})

    def __len__(self) -> int:
        return self._count

    def read(self, indices: Indices) -> list[Record]:
        """Make them."""
        keys = self.keys()
        return [
            Record(index, keys[index], {"image": self._picture(index), "label": index % 10})
            for index in map(int, indices)
        ]

    def column(self, field: str) -> Array:
        """The classes."""
        return np.arange(self._count) % 10

    def keys(self) -> Sequence[str]:
        """Numbers, or what was given."""
        return self._first_keys or Keys(self._count)

    def digest(self) -> str:
        """Of nothing that changes."""
        return f"many-{self._count}"

    def _picture(self, index: int) -> bytes:
        return self._first_pictures[index] if index < len(self._first_pictures) else make_picture(index % PICTURES)
