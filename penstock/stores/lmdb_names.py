"""The ``lmdb-names`` store: an LMDB environment of images by name, with an array for each.

::

    b"IMG_1.jpg"   the encoded image
    b"IMG_1.txt"   the bytes of an array: its shape and dtype are known only from outside; empty: no rows

Records are in the order of the bytes of the images' keys, which is LMDB's own. Without arrays, images alone are a
container of this layout too. The writer is :mod:`.lmdb_layout_writers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, StoreFormatError
from penstock.plurals import counted
from penstock.sample import Array, Field, Record, Schema
from penstock.stores.base import PathLike, Skipped
from penstock.stores.box_columns import BoxColumns
from penstock.stores.image_signatures import looks_like_image
from penstock.stores.listing import IMAGE_SUFFIXES
from penstock.stores.lmdb_entries import LmdbEntries, ValuePlaces
from penstock.stores.lmdb_layout import EntryKeys, LmdbLayoutStore, decode_key, refuse_other
from penstock.stores.location import Location
from penstock.stores.record_names import check_classes
from penstock.stores.writing import Writer

__all__ = ["ARRAY_SUFFIX", "IMAGE_KEY_SUFFIXES", "LmdbNamesStore", "split_suffix"]

ARRAY_SUFFIX: Final = b".txt"
_SAMPLED: Final = 8
_DTYPES: Final = (
    "float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8",
)  # fmt: skip
IMAGE_KEY_SUFFIXES: Final = frozenset(suffix.encode() for suffix in IMAGE_SUFFIXES)


class LmdbNamesStore(LmdbLayoutStore):
    """Images by name, with an array for each.

    Parameters
    ----------
    path : str, path or Location
        The folder with ``data.mdb``, or the file.
    shape : sequence of int, optional
        The shape of the arrays, with -1 for one length that varies, such as ``(-1, 5)``; ``()`` for one number, which
        is the label. Needed where there are arrays.
    dtype : str, optional
        Their dtype, such as ``"float64"`` (little-endian). Needed where there are arrays.
    columns : str, optional
        What their columns are, as names between spaces: ``"class cx cy w h"``. Then the fields are ``boxes`` and
        ``classes``; see :class:`~penstock.stores.box_columns.BoxColumns`.
    units : {"relative", "pixels"}, optional
        The unit of the boxes: fractions of the image's size, or pixels. Needed with ``columns``.
    classes : sequence of str, optional
        Names of the classes, by number.

    Raises
    ------
    ArgumentError
        If an option is needed that was not given, or is none of the allowed ones.
    StoreFormatError
        If the environment is damaged or of another layout.
    """

    kind: ClassVar[str] = "lmdb-names"
    layout: ClassVar[str] = "names"
    keeps_order: ClassVar[bool] = False

    def __init__(
        self,
        path: PathLike,
        *,
        shape: Sequence[int] | None = None,
        dtype: str | None = None,
        columns: str | None = None,
        units: str | None = None,
        classes: Sequence[str] | None = None,
    ) -> None:
        self._array_field = ""
        self._boxes: BoxColumns | None = None
        super().__init__(path, shape=shape, dtype=dtype, columns=columns, units=units, classes=classes)

    def __len__(self) -> int:
        return len(self._images)

    @classmethod
    def fits(cls, entries: LmdbEntries) -> bool:
        """Encoded images under names of images, or under all names but those with ``.txt``."""
        rows = sorted({*range(min(_SAMPLED, len(entries))), *range(max(0, len(entries) - _SAMPLED), len(entries))})
        suffixes = {row: split_suffix(entries.key(row))[1] for row in rows}
        images = [row for row in rows if suffixes[row] in IMAGE_KEY_SUFFIXES]
        images = images or [row for row in rows if suffixes[row] != ARRAY_SUFFIX]
        return bool(images) and all(looks_like_image(entries.value(row)) for row in images)

    @property
    def description(self) -> str:
        """Count, and what the arrays are."""
        arrays = "no arrays"
        if self._array_field or self._boxes:
            shape, dtype = self._stated["shape"], self._stated["dtype"]
            read = f", read as {self._stated['columns']} ({self._stated['units']})" if self._boxes else ""
            arrays = f"{counted(self._array_count, 'array')} of {dtype} {tuple(shape)}{read}"
        return f"names: {counted(len(self), 'image')} in the order of their names, {arrays}"

    def keys(self) -> Sequence[str]:
        """The keys of the images."""
        self._refuse_closed()
        return self._keys

    def read_record(self, opened: memoryview, index: int) -> Record:
        """An image and its array."""
        image = self._images.read(opened, index)
        fields: dict[str, Any] = {"image": image}
        row = self._partners[index]
        if self._boxes is not None:
            stored = None if row < 0 else self._read_array(opened, row)
            fields |= self._boxes.convert(stored, image)
        elif self._array_field:
            stored = None if row < 0 else self._read_array(opened, row)
            is_number = stored is not None and self._array_field == "label"
            fields[self._array_field] = stored.item() if is_number and stored is not None else stored
        return Record(index, self._keys[index], fields)

    def read_image(self, opened: memoryview, index: int) -> memoryview:
        """The encoded image of one record."""
        return self._images.read(opened, index)

    @classmethod
    def storable(cls, schema: Schema) -> Schema:
        """The image; boxes and their classes, or the label."""
        from penstock.stores.lmdb_layout_writers import NamesWriter

        return NamesWriter.choose(schema)

    @classmethod
    def stored_key(cls, key: str, fields: Mapping[str, Any], schema: Schema) -> str:
        """The name of the image: an ending is appended to a key without one."""
        del schema
        from penstock.stores.lmdb_layout_writers import make_image_name

        return make_image_name(key, bytes(fields["image"][:8])).decode()

    @classmethod
    def writer(  # type: ignore[override]  # it has no options
        cls, location: Location, schema: Schema, source: str, *, overwrite: bool = False
    ) -> Writer[Any]:
        """Begin or resume such an environment; see :class:`.lmdb_layout_writers.NamesWriter`."""
        from penstock.stores.lmdb_layout_writers import NamesWriter

        return NamesWriter(location, schema, source, overwrite=overwrite)

    def _arrange(self) -> None:
        entries = self._entries
        refuse_other("dtype", self._stated.get("dtype"), _DTYPES)
        images, partners = self._find_images(entries)
        if not len(images):
            raise StoreFormatError("it has no images (layout names)", store=self.url)
        self._array_count = int((partners >= 0).sum())
        self._partners = partners.data
        self._images, self._arrays = ValuePlaces(entries, images), ValuePlaces(entries)
        self._keys = EntryKeys(entries, images)
        fields = {"image": Field("image")}
        if self._array_count or self._stated.get("shape") is not None:
            fields |= self._arrange_arrays()
        self._schema = Schema(fields)

    def _find_images(self, entries: LmdbEntries) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of the images, and of their arrays (-1: none)."""
        keys = list(entries.iterate_keys())
        split = [split_suffix(key) for key in keys]
        arrays = {stem: row for row, (stem, suffix) in enumerate(split) if suffix == ARRAY_SUFFIX}
        images = [row for row, (_, suffix) in enumerate(split) if suffix in IMAGE_KEY_SUFFIXES]
        if not images:  # names without endings
            images = [row for row, (_, suffix) in enumerate(split) if suffix != ARRAY_SUFFIX]
            stems = [keys[row] for row in images]
        else:
            stems = [split[row][0] for row in images]
        partners = [arrays.get(stem, -1) for stem in stems]
        others = set(range(len(keys))).difference(images, partners)
        self._problems += [
            Skipped(
                decode_key(keys[row]),
                "it has no image" if split[row][1] == ARRAY_SUFFIX else "its name is not that of an image",
            )
            for row in sorted(others)
        ]
        owners: dict[int, list[int]] = {}
        for image, partner in zip(images, partners, strict=True):
            owners.setdefault(partner, []).append(image)
        self._problems += [
            Skipped(
                decode_key(keys[row]), "several images have it: " + ", ".join(decode_key(keys[each]) for each in held)
            )
            for row, held in owners.items()
            if row >= 0 and len(held) > 1
        ]
        return np.array(images, np.int64), np.array(partners, np.int64)

    def _arrange_arrays(self) -> dict[str, Field]:
        """The fields that the arrays are, from what is stated."""
        stated = self._stated
        shape, dtype, columns = stated.get("shape"), stated.get("dtype"), stated.get("columns")
        if shape is None or dtype is None:
            sizes = self._arrays.sizes
            size = next((sizes[row] for row in self._partners if row >= 0 and sizes[row]), 0)
            raise ArgumentError(
                'shape and dtype must be those of the arrays, such as shape=(-1, 5), dtype="float64": the first one '
                f"has {size} bytes, and the container does not say its shape"
            )
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._shape = _check_array_shape(shape)
        names = check_classes(stated["classes"]) if stated.get("classes") is not None else ()
        if columns is not None:
            if len(self._shape) != 2:
                raise ArgumentError(f"shape must be (-1, number of columns) with columns, got {tuple(shape)}")
            self._boxes = BoxColumns(columns, stated.get("units"), self._shape[1], names)
            return self._boxes.fields
        if self._shape == ():
            self._array_field = "label"
            return {"label": Field("label" if self._dtype.kind in "iu" else "float", names)}
        self._array_field = "array"
        lengths = ",".join("*" if length < 0 else str(length) for length in self._shape)
        return {"array": Field(f"{self._dtype.name}[{lengths}]")}

    def _read_array(self, opened: memoryview, row: int) -> Array | None:
        """An array in its stated shape; None for an empty value, where the shape has no place for one."""
        value = self._arrays.read(opened, row)
        if not len(value):
            if -1 not in self._shape:
                return None
            return np.empty([max(length, 0) for length in self._shape], self._dtype.newbyteorder("="))
        try:
            stored = np.frombuffer(value, self._dtype).reshape(self._shape)
        except ValueError as error:
            raise ValueError(
                f"the {len(value)} bytes of its array are not those of {self._dtype.name} and shape {self._shape}"
            ) from error
        return stored if self._dtype.isnative else stored.astype(self._dtype.newbyteorder("="))


def split_suffix(key: bytes) -> tuple[bytes, bytes]:
    """A key without its ending, and the ending in lower case with its dot; empty for a key without one."""
    stem, dot, suffix = key.rpartition(b".")
    if not dot or b"/" in suffix:
        return key, b""
    return stem, b"." + suffix.lower()


def _check_array_shape(shape: object) -> tuple[int, ...]:
    lengths = tuple(shape) if isinstance(shape, list | tuple) else (shape,)
    if (
        not all(isinstance(length, int | np.integer) and (length > 0 or length == -1) for length in lengths)
        or sum(length == -1 for length in lengths) > 1
    ):
        raise ArgumentError(f"shape must be lengths with at most one -1, such as (-1, 5), got {shape!r}")
    return tuple(int(length) for length in lengths)
