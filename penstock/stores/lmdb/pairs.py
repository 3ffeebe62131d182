"""The ``lmdb-pairs`` store: an LMDB environment of numbered pixels, each with a text of numbers.

::

    b"17"   pixels without a header: shape, dtype and order of channels are known only from outside
    b"17_"  b"LABEL,B0 B1 B2 B3,L0 ... L9": label, box, landmarks; the last two may be empty, a fourth field may follow

Scripts that train on small patches of images write millions of records so. Records are in the order of their numbers.
Box and landmarks are given as they are stored, unless ``units`` says what they mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, StoreFormatError
from penstock.sample import Array, Blob, Field, Record, Schema
from penstock.stores.base import Indices, PathLike, Skipped
from penstock.stores.common.mirrors import ByteRanges
from penstock.stores.fields.box_corners import to_corners
from penstock.stores.fields.image_signatures import looks_like_image
from penstock.stores.fields.pixels import PIXEL_DTYPES, PixelLayout
from penstock.stores.lmdb.entries import LmdbEntries, ValuePlaces
from penstock.stores.lmdb.entry_keys import decode_key, name_numbers
from penstock.stores.lmdb.layout import LmdbLayoutStore
from penstock.stores.lmdb.pair_texts import parse_labels, parse_text
from penstock.wording import counted

__all__ = ["LmdbPairsStore"]

_PAIRS: Final = ("* *_", "*_ *")
_MARK: Final = ord("_")
_SAMPLED: Final = 64
_MOST_GAPS: Final = 1000
_SMALL_NBYTES: Final = 4096  # up to here, the pixels of a batch are gathered at once

Rows = NDArray[np.int64]


class LmdbPairsStore(LmdbLayoutStore):
    """Numbered pixels with a text each.

    Parameters
    ----------
    path : str, path or Location
        The folder with ``data.mdb``, or the file.
    shape : sequence of int, optional
        Height, width and channels of the pixels; needed unless the values are encoded images.
    channels : {"RGB", "BGR"}, optional
        The order of the channels; needed where there are three or four.
    dtype : {"uint8", "uint16", "float32"}, optional
        The dtype of the pixels (little-endian); by default uint8.
    units : {"offsets", "relative", "pixels"}, optional
        What box and landmarks are. By default they are not interpreted: the fields ``box`` and ``landmarks`` are
        float32 arrays of the numbers. If given, the fields are ``boxes`` and ``keypoints`` in absolute pixels of the
        patch: from corners ``x1 y1 x2 y2`` and points ``x y`` in fractions of its size (``"relative"``) or in pixels
        (``"pixels"``), or from the offset of each corner from the same corner of the patch, in fractions of its size
        (``"offsets"``, as MTCNN's regression targets; its points are fractions).
    expected_count : int, optional
        The number of records that there must be.
    classes : sequence of str, optional
        Names of the labels, by number.
    pair : {"* *_", "*_ *"}, optional
        The keys of pixels and text, with ``*`` for the number: ``"*_ *"`` where the texts have the plain numbers.
    missing : {"raise", "skip"}, optional
        What to do where a number has only one of its two entries: refuse the environment (default), or leave the
        record out and list it in :attr:`problems`.

    Raises
    ------
    ArgumentError
        If an option is needed that was not given, or is none of the allowed ones.
    StoreFormatError
        If the environment is damaged or of another layout, a partner is missing, or the number of records is not
        ``expected_count``.
    """

    kind: ClassVar[str] = "lmdb-pairs"
    layout: ClassVar[str] = "pairs"
    choices: ClassVar[Mapping[str, Sequence[str]]] = {
        "dtype": sorted(PIXEL_DTYPES),
        "units": ("offsets", "relative", "pixels"),
        "missing": ("raise", "skip"),
        "pair": _PAIRS,
    }

    def __init__(
        self,
        path: PathLike,
        *,
        shape: Sequence[int] | None = None,
        channels: str | None = None,
        dtype: str | None = None,
        units: str | None = None,
        expected_count: int | None = None,
        classes: Sequence[str] | None = None,
        pair: str | None = None,
        missing: str | None = None,
    ) -> None:
        self._gaps = 0
        self._is_encoded = self._has_more = False
        self._gathered: Rows | None = None
        super().__init__(
            path,
            shape=shape,
            channels=channels,
            dtype=dtype,
            units=units,
            expected_count=expected_count,
            classes=classes,
            pair=pair,
            missing=missing,
        )

    def __len__(self) -> int:
        return len(self._images)

    @classmethod
    def fits(cls, entries: LmdbEntries) -> bool:
        """Look for keys ``i`` and ``i_``, and few others."""
        marked = entries.last_bytes() == _MARK
        numbers, _ = entries.parse_numbers(marked.astype(np.int64))
        is_number = numbers >= 0
        return bool((marked & is_number).any()) and 2 * int(is_number.sum()) > len(entries)

    @property
    def description(self) -> str:
        """Count, gaps, and how the pixels are read."""
        values = "encoded images" if self._is_encoded else f"pixels, {self._pixels.describe()}"
        units = self._stated.get("units")
        read = f"box and landmarks read as {units}" if units else "box and landmarks as they are stored"
        gaps = f", {counted(self._gaps, 'number')} left out" if self._gaps else ", no gaps"
        return f"pairs: {counted(len(self), 'record')} by number{gaps}, values are {values}, {read}"

    def find_values(self, index: int) -> Sequence[tuple[ValuePlaces, int]]:
        """The pixels and the text of a record."""
        return (self._images, index), (self._texts, index)

    def read_record(self, opened: ByteRanges, index: int) -> Record:
        """The pixels and the parsed text of one record."""
        label, box, landmarks, more = parse_text(bytes(self._texts.read(opened, index)))
        fields: dict[str, object] = {"image": self.read_image(opened, index), "label": label}
        if self._stated.get("units"):
            height, width = self._height_and_width
            fields["boxes"] = self._scale_box(box, width, height)
            fields["keypoints"] = self._scale_points(landmarks, width, height)
        else:
            fields["box"], fields["landmarks"] = box, landmarks
        if self._has_more:
            fields["more"] = more
        elif len(more):
            raise ValueError("its text has a fourth field, which the first records do not have")
        return Record(index, self._keys[index], fields)

    def read_image(self, opened: ByteRanges, index: int) -> Blob:
        """The pixels of one record, or its encoded image."""
        value = self._images.read(opened, index)
        if self._is_encoded:
            return value
        assert self._pixels.shape is not None, "needed for pixels"
        return self._pixels.convert(np.frombuffer(value, self._dtype).reshape(self._pixels.shape))

    def blobs(self, field: str, indices: Indices) -> Sequence[Blob]:
        """Pixels of small patches are gathered at once; see :meth:`Store.blobs`."""
        if field != "image" or self._gathered is None:
            return super().blobs(field, indices)
        numbers = np.array(self._check_indices(indices), np.int64)
        self.get_opened()
        whole = np.frombuffer(self._entries.whole, np.uint8)  # of a remote file too: they are in leaf pages
        pixels = whole[self._images.begins[numbers][:, None] + self._gathered]
        pixels.flags.writeable = False
        assert self._pixels.shape is not None, "needed for pixels"
        return list(pixels.reshape(len(numbers), *self._pixels.shape))

    def read_column(self, opened: ByteRanges, field: str) -> Iterable[object]:
        """Read labels without the rest of the texts."""
        if field != "label":
            return super().read_column(opened, field)
        return parse_labels(opened, self._texts.begins, self._texts.sizes)

    def _arrange(self) -> None:
        stated = self._stated
        images, texts = self._find_pairs(self._entries)
        if stated.get("pair") == _PAIRS[1]:
            images, texts = texts, images
        self._images, self._texts = (ValuePlaces(self._entries, rows) for rows in (images, texts))
        self._refuse_count(stated.get("expected_count"))
        self._refuse_swapped()
        kind = self._arrange_pixels()
        self._has_more = self._find_more()
        fields = {"image": Field(kind), "label": Field("label", self._class_names)}
        if stated.get("units"):
            fields |= {"boxes": Field("boxes"), "keypoints": Field("keypoints")}
        else:
            fields |= {"box": Field("float32[*]"), "landmarks": Field("float32[*]")}
        if self._has_more:
            fields["more"] = Field("float32[*]")
        self._schema = Schema(fields)

    def _find_pairs(self, entries: LmdbEntries) -> tuple[Rows, Rows]:
        """Rows of pixels and of texts, in order of the numbers; sets the keys."""
        marked = entries.last_bytes() == _MARK
        numbers, digits = entries.parse_numbers(marked.astype(np.int64))
        self._note_problems(np.flatnonzero(numbers < 0).tolist(), "it is neither a number nor a number with _")
        images = self._sort(numbers, np.flatnonzero((numbers >= 0) & ~marked))
        texts = self._sort(numbers, np.flatnonzero((numbers >= 0) & marked))
        if not len(images) and not len(texts):
            raise StoreFormatError("it has no keys i and i_ (layout pairs)", store=self.url)
        if not np.array_equal(numbers[images], numbers[texts]):
            without_text = np.setdiff1d(numbers[images], numbers[texts])
            without_image = np.setdiff1d(numbers[texts], numbers[images])
            missing = [*(f"{each}_" for each in without_text), *(f"{each}" for each in without_image)]
            found = f"{len(missing)} {'key is' if len(missing) == 1 else 'keys are'} missing whose partner is there"
            self._refuse_missing(found, missing, "it is missing, and its partner is there")
            images = images[~np.isin(numbers[images], without_text)]
            texts = texts[~np.isin(numbers[texts], without_image)]
        self._note_gaps(numbers[images])
        self._keys = name_numbers(numbers[images], digits[images])
        return images, texts

    def _sort(self, numbers: Rows, rows: Rows) -> Rows:
        rows = rows[np.argsort(numbers[rows], kind="stable")]
        twice = np.diff(numbers[rows]) == 0
        if twice.any():
            first, other = rows[:-1][twice][0], rows[1:][twice][0]
            named = " and ".join(repr(decode_key(self._entries.key(int(row)))) for row in (first, other))
            raise StoreFormatError(f"the keys {named} are the same number", store=self.url)
        return rows

    def _note_gaps(self, numbers: Rows) -> None:
        """Report numbers that are left out; a set may begin with 0 or 1."""
        if not len(numbers):
            return
        ends = np.concatenate([[-1 if numbers[0] != 1 else 0], numbers])
        before = np.flatnonzero(np.diff(ends) > 1)
        self._gaps = int(numbers[-1] - ends[0] - len(numbers))
        for at in before[:_MOST_GAPS].tolist():
            first, last = int(ends[at]) + 1, int(ends[at + 1]) - 1
            name = str(first) if first == last else f"{first} .. {last}"
            self._problems.append(Skipped(name, "no entries have this number; a writer may have dropped a commit"))
        if len(before) > _MOST_GAPS:
            self._problems.append(Skipped("...", f"{len(before) - _MOST_GAPS} more gaps"))

    def _refuse_count(self, expected: int | None) -> None:
        if expected is not None and expected != len(self):
            last = f", the last one is {self._keys[-1]!r}" if len(self) else ""
            raise StoreFormatError(
                f"it has {counted(len(self), 'record')}, expected_count is {expected}{last}; a script that was "
                "stopped, or did not commit its last transaction, loses its last records",
                store=self.url,
            )

    def _refuse_swapped(self) -> None:
        """Refuse keys that are exchanged: the first value is a text, and its partner is none."""
        if not len(self):
            return
        first, second = (bytes(places.read(self.get_opened(), 0)) for places in (self._images, self._texts))
        if first and _is_text(first) and not _is_text(second):
            is_other = self._stated.get("pair") == _PAIRS[1]
            raise ArgumentError(
                f"pair must be {_PAIRS[not is_other]!r}, the keys of pixels and text: the value of {self._keys[0]!r} "
                f"that must be pixels is the text {first[:40]!r}, and its partner has {len(second)} bytes"
            )

    def _arrange_pixels(self) -> str:
        """Decide how pixels are read; the kind of their field."""
        stated = self._stated
        self._pixels = PixelLayout(stated.get("channels"), shape=stated.get("shape"))
        self._dtype = np.dtype(stated.get("dtype") or "uint8").newbyteorder("<")
        first = self._images.read(self.get_opened(), 0) if len(self) else memoryview(b"")
        shape = self._pixels.shape
        if shape is None:
            if looks_like_image(first):
                self._is_encoded = True
                if stated.get("units"):
                    raise ArgumentError("units must be left out where the values are encoded images")
                return "image"
            raise ArgumentError(
                f"shape must be the height, width and channels of the pixels, such as shape=(12, 12, 3): the values "
                f"have {len(first)} bytes, and the container does not say their shape"
            )
        self._height_and_width = shape[:2]
        nbytes = int(np.prod(shape)) * self._dtype.itemsize
        if len(first) != nbytes and len(self):
            raise ArgumentError(
                f"shape must be that of the pixels: {shape} and {self._dtype.name} have {nbytes} bytes, the value of "
                f"{self._keys[0]!r} has {len(first)}"
            )
        kind = self._pixels.make_kind([np.empty(shape, self._dtype)])
        places = np.arange(nbytes).reshape(*shape, -1)
        if self._pixels.channels == "BGR" and shape[2] > 1:
            places = places[:, :, [2, 1, 0, 3][: shape[2]]]
        is_plain = self._images.are_inline and bool((self._images.sizes == nbytes).all())
        if is_plain and nbytes <= _SMALL_NBYTES and self._dtype.itemsize == 1:
            self._gathered = places.reshape(-1)
        return kind

    def _find_more(self) -> bool:
        """Return whether one of the first and last texts has a fourth field."""
        count = len(self)
        opened = self.get_opened()
        failure, is_any = None, False
        for index in sorted({*range(min(count, _SAMPLED)), *range(max(0, count - _SAMPLED), count)}):
            try:
                if len(parse_text(bytes(self._texts.read(opened, index)))[3]):
                    return True
                is_any = True
            except ValueError as error:
                failure = failure or error  # where others can be read, reading the record says what is wrong
        if failure is not None and not is_any:
            raise StoreFormatError(
                f"{failure}; none of the texts that were looked at is. The label must be first; other texts can be "
                "packed by a function that yields samples, see docs/packing.md",
                store=self.url,
            ) from failure
        return False

    def _scale_box(self, box: Array, width: int, height: int) -> Array:
        if len(box) % 4:
            raise ValueError(f"its box must have 4 numbers, got {len(box)}")
        boxes = box.reshape(-1, 4)
        if self._stated["units"] == "offsets":
            return to_corners(boxes, size=(width, height)) + np.array([0, 0, width, height], np.float32)
        return to_corners(boxes, size=(width, height) if self._stated["units"] == "relative" else None)

    def _scale_points(self, points: Array, width: int, height: int) -> Array:
        if len(points) % 2:
            raise ValueError(f"its landmarks must be pairs of numbers, got {len(points)}")
        pairs = points.reshape(-1, 2)
        return pairs if self._stated["units"] == "pixels" else pairs * np.array([width, height], np.float32)


def _is_text(value: bytes) -> bool:
    try:
        parse_text(value)
    except ValueError:
        return False
    return True
