"""The contents of a store in numbers: fields, classes, and the sizes and formats of its images.

Numbers from columns are exact. Formats, bytes, and sizes without columns are measured on evenly spaced images, and the
result says on how many.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final, Self

import numpy as np

from penstock import stores
from penstock.errors import DecodeError
from penstock.paths import COEFFICIENTS
from penstock.sample import Array, Schema
from penstock.stores.base import Skipped, Store
from penstock.stores.fields import image_signatures
from penstock.transforms.decoding import fallback

__all__ = ["SizeRange", "StoreInfo", "info"]

SAMPLED: Final = 2000
_MASKS: Final = 200
_SKIPPED_SHOWN: Final = 5
_MAX_PIXELS: Final = 1 << 27


@dataclass(frozen=True, slots=True)
class SizeRange:
    """Minimum, median and maximum of some numbers."""

    min: float
    median: float
    max: float

    @classmethod
    def of(cls, values: Array) -> Self:
        """Summarise at least one number."""
        return cls(float(values.min()), float(np.median(values)), float(values.max()))


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """The contents of a store.

    Parameters
    ----------
    url : str
        URL of the store.
    records : int
        Number of records.
    schema : Schema
        Fields and kinds.
    classes : mapping of str to int
        Number of records of each class, in the order of class numbers; empty without labels. Where records have no
        label, but a list of classes with names (those of boxes), the number of objects; where they have no objects, but
        masks, the number of pixels of each value.
    width, height : SizeRange or None
        Sizes of the images, in pixels.
    nbytes : SizeRange or None
        Bytes of the images as they are stored.
    formats : mapping of str to int
        Number of measured images of each format, the most frequent first; ``JPEG (coefficients)`` and ``pixels`` where
        these are stored, ``no image`` for records without one.
    stored_nbytes, files_nbytes : mapping of str to int
        Bytes of the measured images of each format, as they are stored, and as ``store.read`` gives them: these differ
        for ``JPEG (coefficients)`` alone.
    measured, sizes_measured, masks_measured : int
        Number of images on which ``nbytes`` and ``formats``, and ``width`` and ``height``, are measured, and of masks.
    skipped : int
        Number of entries of the source that were not packed.
    first_skipped : tuple of Skipped
        The first five of them: key and reason.
    description : str
        What was found out about a container of another program; empty for other stores.
    """

    url: str
    records: int
    schema: Schema
    classes: Mapping[str, int] = field(default_factory=dict)
    width: SizeRange | None = None
    height: SizeRange | None = None
    nbytes: SizeRange | None = None
    formats: Mapping[str, int] = field(default_factory=dict)
    stored_nbytes: Mapping[str, int] = field(default_factory=dict)
    files_nbytes: Mapping[str, int] = field(default_factory=dict)
    measured: int = 0
    sizes_measured: int = 0
    masks_measured: int = 0
    skipped: int = 0
    description: str = ""
    counted: str = "record"
    """What ``classes`` counts: "record", "object" or "pixel"."""
    first_skipped: tuple[Skipped, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Convert to dicts, lists, strings and numbers."""
        fields = {name: getattr(self, name) for name in self.__slots__ if name != "schema"}
        plain = {name: asdict(value) if isinstance(value, SizeRange) else value for name, value in fields.items()}
        return {**plain, "schema": self.schema.to_json()}


def info(store: str | os.PathLike[str] | Store) -> StoreInfo:
    """Summarise a store.

    Parameters
    ----------
    store : str, path or Store
        A path is opened, and closed afterwards.

    Raises
    ------
    StoreError
        If the store cannot be opened, or a measured image cannot be read.
    """
    if isinstance(store, Store):
        return _summarise(store)
    with stores.open(store) as opened:
        return _summarise(opened)


@dataclass(slots=True)
class _Measured:
    """What is measured on images: width and height, bytes, and of each format their number and bytes."""

    sizes: list[tuple[int, int]] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)
    formats: Counter[str] = field(default_factory=Counter)
    stored_nbytes: Counter[str] = field(default_factory=Counter)
    files_nbytes: Counter[str] = field(default_factory=Counter)

    def add(self, form: str, nbytes: int, file_nbytes: int) -> None:
        """Count an image of a format."""
        self.nbytes.append(nbytes)
        self.formats[form] += 1
        self.stored_nbytes[form] += nbytes
        self.files_nbytes[form] += file_nbytes


def _summarise(store: Store) -> StoreInfo:
    measured = _measure(store)
    sizes = np.array(measured.sizes, np.int64).reshape(-1, 2)
    exact = len(store) > 0 and all(
        name in store.schema and store.schema[name].kind == "int" for name in ("width", "height")
    )
    if exact:
        sizes = np.stack([store.column("width"), store.column("height")], axis=1)
    counted, classes, masks = _count_classes(store)
    skipped = store.skipped or store.problems
    return StoreInfo(
        url=store.url,
        records=len(store),
        schema=store.schema,
        classes=classes,
        counted=counted,
        width=SizeRange.of(sizes[:, 0]) if len(sizes) else None,
        height=SizeRange.of(sizes[:, 1]) if len(sizes) else None,
        nbytes=SizeRange.of(np.array(measured.nbytes)) if measured.nbytes else None,
        formats=dict(measured.formats.most_common()),
        stored_nbytes=dict(measured.stored_nbytes.most_common()),
        files_nbytes=dict(measured.files_nbytes.most_common()),
        measured=measured.formats.total(),
        sizes_measured=len(sizes),
        masks_measured=masks,
        skipped=len(skipped),
        first_skipped=tuple(skipped[:_SKIPPED_SHOWN]),
        description=store.description,
    )


def _count_classes(store: Store) -> tuple[str, dict[str, int], int]:
    """Return what is counted, how many of each class there are, and in how many masks."""
    fields = store.schema.fields.items()
    label = next((name for name, each in fields if each.kind == "label"), None)
    if label is not None:
        missing = store.find_missing(label)
        found = _name_counts(*_count(np.delete(store.column(label), missing)), store.schema[label].classes)
        return "record", ({"no value": len(missing)} if len(missing) else {}) | found, 0
    lists = next((name for name, each in fields if each.kind == "int64[*]" and each.classes), None)
    labels = np.zeros(0, np.int64) if lists is None else store.ragged_column(lists).values
    names = () if lists is None else store.schema[lists].classes
    mask = next((name for name, each in fields if each.kind == "mask" and (each.classes or names)), None)
    if mask is None or len(labels):
        return ("record", {}, 0) if lists is None else ("object", _name_counts(*_count(labels), names), 0)
    pixels: Counter[int] = Counter()
    measured, names = 0, store.schema[mask].classes or names
    for index in _choose(store, _MASKS):
        with contextlib.suppress(DecodeError):  # one of several channels, whose values are no classes
            encoded = store.read([index])[0].fields[mask]
            numbers, counts = _count(fallback.channel_pixels(bytes(encoded or b""), _MAX_PIXELS))
            pixels.update(dict(zip(numbers, counts, strict=True)))
            measured += 1
    return "pixel", _name_counts(sorted(pixels), [pixels[each] for each in sorted(pixels)], names), measured


def _count(values: Array) -> tuple[list[int], list[int]]:
    numbers, counts = np.unique(values, return_counts=True)  # np.bincount allocates memory up to the largest label
    return numbers.tolist(), counts.tolist()


def _name_counts(numbers: Sequence[int], counts: Sequence[int], names: Sequence[str]) -> dict[str, int]:
    counted = {**dict.fromkeys(range(len(names)), 0), **dict(zip(numbers, counts, strict=True))}
    named = dict(enumerate(names))
    return {named.get(number, str(number)): count for number, count in counted.items()}


def _choose(store: Store, most: int) -> list[int]:
    """Evenly spaced records, which are announced."""
    indices = np.unique(np.linspace(0, len(store) - 1, min(len(store), most)).astype(np.int64))
    store.prefetch(indices)
    return [int(index) for index in indices]


def _measure(store: Store) -> _Measured:
    """Measure sizes, bytes and formats of evenly spaced images."""
    image = next((name for name, each in store.schema.fields.items() if each.is_image), None)
    found = _Measured()
    if image is not None:
        has_sizes = "width" in store.schema
        for index in _choose(store, SAMPLED):
            encoded = store.read_stored([index])[0].fields[image]
            if encoded is None:
                found.formats["no image"] += 1
            elif store.schema[image].pixels is not None:
                found.add("pixels", encoded.nbytes, encoded.nbytes)
                found.sizes.append((encoded.shape[1], encoded.shape[0]))
            else:
                _measure_encoded(bytes(encoded), found, has_sizes=has_sizes)
    return found


def _measure_encoded(encoded: bytes, found: _Measured, *, has_sizes: bool) -> None:
    form, file_nbytes = "unreadable", len(encoded)
    with contextlib.suppress(DecodeError):
        if not has_sizes:
            found.sizes.append(fallback.image_size(encoded, _MAX_PIXELS))
        form = fallback.sniff(encoded[:32])
        if encoded.startswith(COEFFICIENTS):
            form, file_nbytes = f"{form} (coefficients)", image_signatures.read_jpeg_nbytes(encoded)
    found.add(form, len(encoded), file_nbytes)
