"""The ``lmdb-datum`` store: an LMDB environment of Caffe's messages, as ``convert_imageset`` writes it.

::

    b"00000017_cat.jpg"   Datum: label, and an encoded image or pixels (CHW)

Records are in the order of the bytes of their keys, as Caffe reads them. Pixels are BGR unless ``channels`` says
otherwise: Caffe reads images with OpenCV. Messages are parsed by :mod:`.lmdb.datum_message`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from penstock.errors import PenstockError, StoreFormatError
from penstock.sample import Array, ArrayKind, Blob, Field, Record, Schema
from penstock.stores.base import PathLike
from penstock.stores.common.mirrors import ByteRanges
from penstock.stores.fields.image_signatures import looks_like_image
from penstock.stores.fields.pixels import CHANNEL_COUNTS, PixelLayout
from penstock.stores.lmdb.datum_message import Datum, parse_datum
from penstock.stores.lmdb.entries import LmdbEntries, ValuePlaces
from penstock.stores.lmdb.entry_keys import list_entry_keys
from penstock.stores.lmdb.layout import LmdbLayoutStore, list_sampled
from penstock.wording import counted

__all__ = ["LmdbDatumStore"]


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
        """The encoded image of a message, or its pixels."""
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
        """Labels, without the images."""
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
