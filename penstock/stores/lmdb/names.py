"""The ``lmdb-names`` store: an LMDB environment of images by name, with an array for each.

::

    b"IMG_1.jpg"   the encoded image
    b"IMG_1.txt"   the bytes of an array: its shape and dtype are known only from outside; empty: no rows

``pair`` states other names, such as ``"images/* labels/*.txt"``, and ``columns`` which columns of an array are boxes::

    "class cx cy w h", relative    rows of (n, 5)  ──> boxes (n, 4) xyxy float32, classes (n,) int64

Records are in the order of the bytes of the images' keys, which is LMDB's own. Without arrays, images alone are a
container of this layout too.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, StoreFormatError
from penstock.sample import Array, Field, Record, Schema
from penstock.stores.base import PathLike, Skipped
from penstock.stores.common.mirrors import ByteRanges
from penstock.stores.fields.box_corners import FractionBoxes, to_corners
from penstock.stores.fields.image_signatures import looks_like_image
from penstock.stores.indices import spread_indices
from penstock.stores.lmdb.entries import LmdbEntries, ValuePlaces
from penstock.stores.lmdb.entry_keys import ARRAY_SUFFIX, IMAGE_KEY_SUFFIXES, decode_key, list_entry_keys, split_suffix
from penstock.stores.lmdb.layout import LmdbLayoutStore
from penstock.stores.lmdb.pair_texts import NUMERIC, parse_numbers, plan_text_labels, quote_text
from penstock.wording import counted

__all__ = ["LmdbNamesStore"]

_SAMPLED: Final = 8
_DTYPES: Final = (
    "float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "text",
)  # fmt: skip
_TRIED: Final = 3
_PAIR: Final = "* *.txt"
_FORMS: Final = {
    ("cx", "cy", "w", "h"): "centre and size",
    ("x1", "y1", "w", "h"): "corner and size",
    ("x1", "y1", "x2", "y2"): "corners",
}
_NAMES: Final = dict(zip(_FORMS, ("cxcywh", "xywh", "xyxy"), strict=True))
_UNITS: Final = ("relative", "pixels")
_CLASS: Final = "class"


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
        Their dtype, such as ``"float64"`` (little-endian), or ``"text"`` for numbers that are written as text, which
        are read as float64; with ``shape=()`` a text is a label: a number, one of ``classes``, or the text itself.
        Needed where there are arrays.
    pair : str, optional
        The keys of an image and of its array, with ``*`` for the part that both have: ``"images/* labels/*.txt"``,
        ``"* *_label"``. The ending of an image may be left out. By default ``"* *.txt"``.
    columns : str, optional
        What their columns are, as names between spaces: ``"class cx cy w h"``. Then the fields are ``boxes`` and
        ``classes``; see :class:`~penstock.stores.lmdb.names.BoxColumns`.
    units : {"relative", "pixels"}, optional
        The unit of the boxes: fractions of the image's size, or pixels. Needed with ``columns``.
    upright : bool, optional
        Which picture such fractions are of, where an Exif orientation turns it: the upright one (default), or the one
        that is stored. Boxes become those of upright pictures.
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
    choices: ClassVar[Mapping[str, Sequence[str]]] = {"dtype": _DTYPES}

    def __init__(
        self,
        path: PathLike,
        *,
        shape: Sequence[int] | None = None,
        dtype: str | None = None,
        pair: str | None = None,
        columns: str | None = None,
        units: str | None = None,
        upright: bool | None = None,
        classes: Sequence[str] | None = None,
    ) -> None:
        self._array_field = ""
        self._is_text = False
        self._parse_label: Callable[[bytes], object] = float
        self._boxes: BoxColumns | None = None
        super().__init__(
            path, shape=shape, dtype=dtype, pair=pair, columns=columns, units=units, upright=upright, classes=classes
        )

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
        others = f", {counted(len(self._problems), 'problem')}" if self._problems else ""
        return f"names: {counted(len(self), 'image')} in the order of their names, {arrays}{others}"

    def find_values(self, index: int) -> Sequence[tuple[ValuePlaces, int]]:
        """The image of a record, and its array."""
        row = self._partners[index]
        return ((self._images, index),) if row < 0 else ((self._images, index), (self._arrays, row))

    def read_record(self, opened: ByteRanges, index: int) -> Record:
        """Return an image and its array."""
        image = self._images.read(opened, index)
        fields: dict[str, object] = {"image": image}
        row = self._partners[index]
        if self._boxes is not None:
            stored = None if row < 0 else self._read_array(opened, row)
            fields |= self._boxes.convert(stored, image)
        elif self._array_field:
            fields[self._array_field] = self._read_field(opened, row)
        return Record(index, self._keys[index], fields)

    def read_column(self, opened: ByteRanges, field: str) -> Iterable[object]:
        """Read arrays and labels without the images."""
        if field != self._array_field:
            return super().read_column(opened, field)
        return (self._read_field(opened, row) for row in self._partners)

    def _read_field(self, opened: ByteRanges, row: int) -> object:
        read = self._read_label if self._array_field == "label" else self._read_array
        return None if row < 0 else read(opened, row)

    def read_image(self, opened: ByteRanges, index: int) -> memoryview:
        """The encoded image of one record."""
        return self._images.read(opened, index)

    def _arrange(self) -> None:
        entries = self._entries
        images, partners = self._find_images(entries)
        if not len(images):
            pair = self._stated.get("pair")
            named = f" whose keys fit pair={pair!r}" if pair else ""
            raise StoreFormatError(f"it has no images{named} (layout names)", store=self.url)
        self._array_count = int((partners >= 0).sum())
        self._partners = partners.data
        self._images, self._arrays = ValuePlaces(entries, images), ValuePlaces(entries)
        self._keys = list_entry_keys(entries, images)
        fields = {"image": Field("image")}
        if self._array_count or self._stated.get("shape") is not None:
            fields |= self._arrange_arrays()
        self._schema = Schema(fields)

    def _find_images(self, entries: LmdbEntries) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows of the images, and of their arrays (-1: none)."""
        keys = list(entries.iterate_keys())
        pair = self._stated.get("pair") or _PAIR
        arrays = _find_arrays(keys, pair)
        named = _find_named(keys, pair, set(arrays.values()))
        images, partners = [*named], [arrays.get(part, -1) for part in named.values()]
        others = sorted(set(range(len(keys))).difference(images, partners))
        paired = len(keys) - len(images) - len(others)
        fewest = 1 if self._stated.get("pair") else 0.1 * (paired + len(others))
        if self._stated.get("shape") is not None and images and others and paired < fewest:
            raise ArgumentError(_describe_unpaired(keys, images, others, paired))
        unpaired = set(arrays.values())
        self._problems += [
            Skipped(decode_key(keys[row]), "it has no image" if row in unpaired else "its name is not that of an image")
            for row in others
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
        """Return the fields that the arrays are, from what is stated."""
        stated = self._stated
        if stated.get("upright") is not None and stated.get("units") != "relative":
            raise ArgumentError("upright says which picture boxes in fractions are of, and needs units='relative'")
        shape, dtype, columns = stated.get("shape"), stated.get("dtype"), stated.get("columns")
        samples = self._read_samples()
        if shape is None or dtype is None:
            raise ArgumentError(
                'shape and dtype must be those of the arrays, such as shape=(-1, 5), dtype="float64": the first one '
                f"has {len(samples[0]) if samples else 0} bytes{quote_text(samples)}, and the container does not say "
                'its shape; dtype="text" reads texts'
            )
        self._is_text = dtype == "text"
        self._dtype = np.dtype("float64" if self._is_text else dtype).newbyteorder("<")
        self._shape = _check_array_shape(shape)
        if not self._is_text:
            self._refuse_texts(samples)
        names = self._class_names
        if columns is not None:
            if len(self._shape) != 2:
                raise ArgumentError(f"shape must be (-1, number of columns) with columns, got {tuple(shape)}")
            self._boxes = BoxColumns(columns, stated.get("units"), self._shape[1], names)
            if stated.get("units") == "relative":
                opened, sampled = self.get_opened(), spread_indices(len(self._images))
                images = (self._images.read(opened, index) for index in sampled)
                self._boxes.place_fractions(FractionBoxes(stated.get("upright"), images))
            return self._boxes.fields
        if self._shape == ():
            self._array_field = "label"
            kind = "label" if self._dtype.kind in "iu" else "float"
            if self._is_text:
                kind, self._parse_label = plan_text_labels(samples, names)
            return {"label": Field(kind, names if kind == "label" else ())}
        self._array_field = "array"
        lengths = ",".join("*" if length < 0 else str(length) for length in self._shape)
        return {"array": Field(f"{self._dtype.name}[{lengths}]")}

    def _read_array(self, opened: ByteRanges, row: int) -> Array | None:
        """Return an array in its stated shape; None for an empty value, where the shape has no place for one."""
        value = self._arrays.read(opened, row)
        if not len(value):
            if -1 not in self._shape:
                return None
            return np.empty([max(length, 0) for length in self._shape], self._dtype.newbyteorder("="))
        if self._is_text:
            return parse_numbers(bytes(value)).reshape(self._shape)
        try:
            stored = np.frombuffer(value, self._dtype).reshape(self._shape)
        except ValueError as error:
            raise ValueError(
                f"the {len(value)} bytes of its array are not those of {self._dtype.name} and shape {self._shape}"
            ) from error
        return stored if self._dtype.isnative else stored.astype(self._dtype.newbyteorder("="))

    def _read_label(self, opened: ByteRanges, row: int) -> object:
        """Return a label that is one number, or a text."""
        if self._is_text:
            text = bytes(self._arrays.read(opened, row)).strip()
            return self._parse_label(text) if text else None
        stored = self._read_array(opened, row)
        return None if stored is None else stored.item()

    def _read_samples(self) -> list[bytes]:
        """Return some of the arrays, from all parts of the environment; empty ones are left out."""
        rows = np.asarray(self._partners)
        rows = rows[rows >= 0]
        rows = rows[self._arrays.sizes[rows] > 0]
        chosen = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), 2 * _SAMPLED)).astype(np.int64))
        opened = self.get_opened()
        return [bytes(self._arrays.read(opened, row)) for row in rows[chosen].tolist()]

    def _refuse_texts(self, samples: Sequence[bytes]) -> None:
        """Refuse arrays that are texts: they would be damaged, or other numbers."""
        row = int(np.prod([length for length in self._shape if length > 0])) * self._dtype.itemsize
        fits = all(len(sample) % row == 0 if -1 in self._shape else len(sample) == row for sample in samples)
        if quote_text(samples) and (not fits or all(map(NUMERIC.issuperset, samples))):
            raise ArgumentError(
                f'dtype must be "text" where the arrays are texts{quote_text(samples)}, got {self._stated["dtype"]!r}'
            )


def _parse_pair(pair: object) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return the patterns of an image and of its array, with a group for the part that ``*`` stands for.

    Raises ArgumentError if it is not two patterns between spaces, each with one ``*``.
    """
    patterns = pair.encode().split() if isinstance(pair, str) else []
    if [pattern.count(b"*") for pattern in patterns] != [1, 1] or patterns[0] == patterns[1]:
        raise ArgumentError(
            "pair must be the keys of an image and of its array, with * for the part that both have, such as "
            f'"images/* labels/*.txt", got {pair!r:.200}'
        )
    image, array = (
        re.compile(b"%s(.*)(?i:%s)" % tuple(map(re.escape, pattern.split(b"*"))), re.DOTALL)  # endings have no case
        for pattern in patterns
    )
    return image, array


def _find_arrays(keys: Sequence[bytes], pair: str) -> dict[bytes, int]:
    """Return the row of each array, by the part of its key that its image has too."""
    _, array = _parse_pair(pair)
    return {match[1]: row for row, key in enumerate(keys) if (match := array.fullmatch(key))}


def _find_named(keys: Sequence[bytes], pair: str, arrays: set[int]) -> dict[int, bytes]:
    """Rows of the images, with the part of their keys that arrays have too."""
    split = [split_suffix(key) for key in keys]
    image, _ = _parse_pair(pair)
    has_ending = split_suffix(pair.split(maxsplit=1)[0].encode())[1] in IMAGE_KEY_SUFFIXES
    images = [row for row, (_, suffix) in enumerate(split) if suffix in IMAGE_KEY_SUFFIXES and row not in arrays]
    if images:
        names = {row: keys[row] if has_ending else split[row][0] for row in images}
    else:  # names without endings
        names = {row: key for row, key in enumerate(keys) if row not in arrays}
    return {row: match[1] for row, name in names.items() if (match := image.fullmatch(name))}


def _describe_unpaired(keys: Sequence[bytes], image_rows: Sequence[int], other_rows: Sequence[int], paired: int) -> str:
    """Return what to state where arrays do not have the names of their images."""
    images, others = [keys[row] for row in image_rows], [keys[row] for row in other_rows]
    shown = [", ".join(repr(decode_key(key)) for key in each[:2]) for each in (images, others)]
    count = counted(paired + len(others), "entry")
    pair = next(_suggest_pairs(images, others, keys), None)
    advice = f'give pair="{pair}"' if pair else 'give pair="IMAGE ARRAY", such as pair="images/* labels/*.txt"'
    return (
        f"shape and dtype describe arrays, and {paired or 'none'} of the {count} beside the images belong to an image: "
        f"images have keys such as {shown[0]}, the others such as {shown[1]}; {advice}, where * is the part that the "
        "keys of an image and of its array have in common"
    )


def _suggest_pairs(images: Sequence[bytes], others: Sequence[bytes], keys: Sequence[bytes]) -> Iterator[str]:
    """Pairs of patterns by which at least a tenth of the other entries have an image."""
    tried = set()
    for stem in [split_suffix(key)[0] for key in images[:_TRIED]]:
        for part in _list_parts(stem):
            for other in itertools.islice((key for key in others if part in key), _TRIED):
                before, _, after = other.rpartition(part)
                pair = decode_key(b"%s* %s*%s" % (stem[: len(stem) - len(part)], before, after))
                is_new = pair not in tried and pair.count("*") == len(pair.split()) == 2
                tried.add(pair)
                if is_new and _count_pairs(pair, keys) * 10 >= len(others):
                    yield pair


def _list_parts(stem: bytes) -> Iterable[bytes]:
    """Ends of a key without its ending, which its array may have: names of folders and files, and the digits."""
    folders = stem.split(b"/")
    yield from (b"/".join(folders[start:]) for start in range(len(folders)))
    if digits := stem[len(stem.rstrip(b"0123456789")) :]:
        yield digits


def _count_pairs(pair: str, keys: Sequence[bytes]) -> int:
    arrays = _find_arrays(keys, pair)
    return len(arrays.keys() & set(_find_named(keys, pair, set(arrays.values())).values()))


def _check_array_shape(shape: object) -> tuple[int, ...]:
    lengths = tuple(shape) if isinstance(shape, list | tuple) else (shape,)
    if (
        not all(isinstance(length, int | np.integer) and (length > 0 or length == -1) for length in lengths)
        or sum(length == -1 for length in lengths) > 1
    ):
        raise ArgumentError(f"shape must be lengths with at most one -1, such as (-1, 5), got {shape!r}")
    return tuple(int(length) for length in lengths)


class BoxColumns:
    """What the columns of an array are.

    Parameters
    ----------
    columns : str
        A name for each column, between spaces: the box is ``cx cy w h`` (centre and size), ``x1 y1 w h`` (first corner
        and size) or ``x1 y1 x2 y2`` (corners), in any order; ``class`` is the number of the class. Another name becomes
        a field of its own, ``float64[*]``.
    units : {"relative", "pixels"}
        The unit of the box: fractions of the width and height of the image, or pixels.
    count : int
        The number of columns of the array; -1 if the array varies in it.
    classes : tuple of str
        Names of the classes.

    Raises
    ------
    ArgumentError
        If they are none of these.
    """

    def __init__(self, columns: object, units: object, count: int, classes: tuple[str, ...] = ()) -> None:
        names = columns.split() if isinstance(columns, str) else []
        self._form = next((form for form in _FORMS if set(form) <= set(names)), None)
        if self._form is None or len(set(names)) < len(names):
            forms = " or ".join(f"{' '.join(form)} ({text})" for form, text in _FORMS.items())
            raise ArgumentError(
                f'columns must name each column once, with a box as {forms}, such as "class cx cy w h", got {columns!r}'
            )
        if len(names) != count:
            raise ArgumentError(f"columns must name the {count} columns of shape, got {len(names)}: {columns!r}")
        if units not in _UNITS:
            raise ArgumentError(f"units must be one of {', '.join(_UNITS)} with columns, got {units!r}")
        self._corners = _NAMES[self._form]
        self._fractions: FractionBoxes | None = None
        self._box = [names.index(name) for name in self._form]
        self._class = names.index(_CLASS) if _CLASS in names else -1
        self._others = {name: at for at, name in enumerate(names) if name not in self._form and name != _CLASS}
        self.fields = {"boxes": Field("boxes")}
        if self._class >= 0:
            self.fields["classes"] = Field("int64[*]", classes)
        self.fields |= {name: Field("float64[*]") for name in self._others}

    def place_fractions(self, fractions: FractionBoxes) -> None:
        """Have boxes, which are fractions, placed in their pictures."""
        self._fractions = fractions
        self.fields["boxes"] = fractions.field

    def convert(self, rows: Array | None, image: memoryview) -> dict[str, object]:
        """The fields of one record.

        Parameters
        ----------
        rows : ndarray, (n, columns), or None
            The array; None gives None in each field.
        image : memoryview
            The encoded image, of which the header is read if the boxes are relative.

        Raises
        ------
        ValueError
            If the size of the image is needed and cannot be read.
        """
        if rows is None:
            return dict.fromkeys(self.fields)
        table = rows.astype(np.float64, copy=False)
        boxes = table[:, self._box]
        found: dict[str, object] = {
            "boxes": to_corners(boxes, self._corners)
            if self._fractions is None
            else self._fractions.place(boxes, self._corners, image)
        }
        if self._class >= 0:
            found["classes"] = _to_whole(table[:, self._class])
        return found | {name: np.ascontiguousarray(table[:, at]) for name, at in self._others.items()}


def _to_whole(numbers: Array) -> Array:
    with np.errstate(invalid="ignore"):
        whole: Array = numbers.astype(np.int64)
    if (whole != numbers).any():
        raise ValueError(f"its classes must be whole numbers, got {numbers[whole != numbers][0]}")
    return whole
