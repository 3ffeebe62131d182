"""The ``recordio`` store: MXNet's ``.rec`` files of images, with or without an ``.idx`` file.

::

    set.rec ──one scan of the frames──> offsets, labels, ids, kept in set.rec.index.npz
    set.idx ──────────────────────────> keys

A whole record is a view of the mapped file; one in several parts is joined. The records are in the order of the file.
Labels are class numbers, other numbers, arrays, or MXNet's labels of detection, with A numbers of header (A = 4: A, B,
width, height) and B numbers for each object, whose corners are divided by the size of the image::

    A │ B │ ... A - 2 numbers │ class, xmin, ymin, xmax, ymax, ... B numbers │ the next object │ ...

:mod:`.recordio.format` knows the frames.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, StoreFormatError, check_choice
from penstock.sample import Array, Field, Record, Schema
from penstock.stores.base import PathLike
from penstock.stores.common.mapped_files import MappedFiles
from penstock.stores.common.record_index import load_or_scan
from penstock.stores.common.regular_file import open_file
from penstock.stores.container import ContainerStore, select_given
from penstock.stores.fields.box_corners import FractionBoxes
from penstock.stores.fields.image_signatures import are_images
from penstock.stores.indices import spread_indices
from penstock.stores.recordio.format import FRAME_HEAD_NBYTES, HEADER_NBYTES, MAGIC_BYTES, ROW, join_parts
from penstock.stores.recordio.scan import RecordTable, scan_files
from penstock.wording import counted

__all__ = ["RecordioStore"]

_VERSION: Final = "recordio-2"
_INDEX_LINE: Final = re.compile(rb"[^\t\n\0]+\t[0-9]{1,18}\r?\n")
_RECOGNISED_NBYTES: Final = 300
_LABEL_FORMATS: Final = ("auto", "array", "detection")
_LEAST_HEADER, _LEAST_OBJECT, _SIZED_HEADER = 2, 5, 4
_MAX_CLASS: Final = 1 << 24  # float32 holds the whole numbers up to here
_OUTSIDE: Final = 0.5  # how far a corner may lie outside the image, as a share of its size


class RecordioStore(ContainerStore[MappedFiles]):
    """RecordIO files of images.

    Parameters
    ----------
    path : str, path, Location or sequence of paths
        The ``.rec`` file, several of them, or ``.rec`` and ``.idx`` files. An ``.idx`` file that is not given is
        found by its name.
    index : bool
        False: ``.idx`` files are not read; keys are the numbers of the records.
    image_header : bool
        False: the records have no header of an image (24 bytes); each is one field of bytes.
    empty_records : bool
        True: records without an image are records too, in a file of InsightFace (whose first and last records describe
        the identities; by default, they are left out).
    label_format : {"auto", "array", "detection"}
        What an array of labels is. ``"detection"``: boxes and their classes, which are read as the fields ``boxes``
        and ``classes``; the array stays in ``label``. ``"auto"``: detection if each label has this structure.
    upright : bool, optional
        Which picture such boxes are of, where an Exif orientation turns it: the upright one, or the one that is stored.
        By default the one whose size the label has, and the upright one where it has none, or that of both. Boxes
        become those of upright pictures.

    Raises
    ------
    StoreFormatError
        If a file is truncated or no RecordIO file, or an ``.idx`` file does not belong to its ``.rec`` file.

    Notes
    -----
    Labels are class numbers if all of them are whole numbers, else ``float``; NaN is None. ``id`` and ``id2`` are
    fields where they differ from the key, or from 0.
    """

    kind: ClassVar[str] = "recordio"
    takes_shards: ClassVar[bool] = True

    def __init__(
        self,
        path: PathLike,
        *,
        index: bool = True,
        image_header: bool = True,
        empty_records: bool = False,
        label_format: str = "auto",
        upright: bool | None = None,
    ) -> None:
        check_choice("label_format", label_format, _LABEL_FORMATS)
        options = select_given(
            type(self), index=index, image_header=image_header, empty_records=empty_records, label_format=label_format,
            upright=upright,
        )  # fmt: skip
        location = self.locate(path)
        self._records, indexes = _pair_files(location.paths, find_indexes=index, store=str(location))
        files = [*self._records, *(each for each in indexes if each is not None)]
        super().__init__(location, files=files, **options)
        mapped = MappedFiles(self._records)
        explicit = {each for each in location.paths if each.suffix == ".idx"}

        def scan() -> dict[str, Array]:
            return scan_files(mapped, indexes, explicit, image_header=image_header).to_arrays()

        with self.opening("RecordIO file"):
            table = load_or_scan(
                self.location,
                f"{_VERSION}:{self.digest()}",
                lambda: f"{_VERSION}:{self.fingerprint()}",
                scan,
                lambda arrays: RecordTable.from_arrays(arrays, len(self._records)),
            )
            table, self._left_out = (table, 0) if empty_records else _leave_out_identities(table)
            self._set_table(table)
            self._has_headers = image_header
            self._blob = "image" if image_header and self._holds_images(mapped) else "bytes"
            self._schema = Schema({self._blob: Field(self._blob)} | self._find_fields(mapped, label_format, upright))

    def _set_table(self, table: RecordTable) -> None:
        if not len(table.rows):
            raise StoreFormatError("this file has no records", store=self.url)
        self._table = table
        self._keys: Sequence[str] = table.keys
        views = [table.rows[name].data for name in ROW.names or ()]  # they give Python numbers, faster than arrays do
        self._shards, self._flags, self._starts, self._lengths, self._heads = views[:5]
        self._ids, self._ids2, self._labels, self._split = views[5:]

    @property
    def description(self) -> str:
        """How many records and files, what the labels are, and what was left out."""
        kind = self.schema["label"].kind if "label" in self.schema else ""
        words = {"": "no labels", "label": "labels are class numbers", "float": "labels are numbers"}
        what = "labels are boxes (detection)" if "boxes" in self.schema else words.get(kind, "labels are arrays")
        split = int(np.count_nonzero(self._table.rows["is_split"]))
        identities = f"InsightFace: {counted(self._left_out, 'record')} of identities without an image left out"
        parts = [
            f"RecordIO: {counted(len(self), 'record')} in {counted(len(self._records), 'file')}",
            "keys of the index file" if self._table.has_index else "keys are numbers",
            what if self._has_headers else "bytes",
            f"{split} in several parts" if split else "",
            identities if self._left_out else "",
        ]
        return ", ".join(filter(None, parts))

    def __len__(self) -> int:
        return len(self._starts)

    def open_files(self) -> MappedFiles:
        """Map the files when they are first read."""
        return MappedFiles(self._records)

    def files_of(self, indices: Sequence[int]) -> Iterable[int]:
        """The files of these records."""
        return {self._shards[index] for index in indices}

    def ranges_of(self, opened: MappedFiles, indices: Sequence[int]) -> Iterable[tuple[int, int, int]]:
        """The payload of each record that is not in several parts."""
        del opened
        for index in indices:
            if not self._split[index]:
                yield self._shards[index], self._starts[index] + FRAME_HEAD_NBYTES, self._lengths[index]

    def read_record(self, opened: MappedFiles, index: int) -> Record:
        """Read one record; the image is a view."""
        schema = self._schema.fields
        payload = self._read_payload(opened, index)
        fields: dict[str, object] = {self._blob: self._find_blob(payload, index)}
        if "label" in schema and schema["label"].array is None:
            fields["label"] = self._read_number(index)
        elif "label" in schema:
            label = self._read_array(payload, index)
            fields["label"] = label
            if "boxes" in schema:
                image = payload[self._heads[index] :]
                fields["boxes"], fields["classes"] = (
                    (None, None) if label is None else find_boxes(label, image, self._fractions)
                )
        if "id" in schema:
            fields["id"] = self._ids[index]
        if "id2" in schema:
            fields["id2"] = self._ids2[index]
        return Record(index, self._keys[index], fields)

    def make_blob_reader(self, opened: MappedFiles, field: str, indices: Sequence[int]) -> Callable[[int], object]:
        """Return what gives views of one field; labels are not read."""
        del field, indices  # there is one
        return lambda index: self._find_blob(self._read_payload(opened, index), index)

    def read_column(self, opened: MappedFiles, field: str) -> Iterable[object]:
        """Read values from the index, without the file, but for arrays."""
        if field in {"id", "id2"}:
            return self._ids if field == "id" else self._ids2
        if field == "label" and self.schema["label"].array is None:
            return (self._read_number(index) for index in range(len(self)))
        return super().read_column(opened, field)

    @classmethod
    def recognises(cls, path: str) -> bool:
        """A file that begins with the magic number, or an ``.idx`` file that begins with a key and an offset."""
        try:
            with open_file(path) as opened:
                head = opened.read(_RECOGNISED_NBYTES)
        except OSError:
            return False
        if path.endswith(".idx"):
            return _INDEX_LINE.match(head) is not None
        return head[:4] == MAGIC_BYTES and len(head) >= FRAME_HEAD_NBYTES and head[7] >> 5 in {0, 1}

    def _read_payload(self, opened: MappedFiles, index: int) -> memoryview:
        file, start = self._shards[index], self._starts[index]
        if self._split[index]:
            return memoryview(join_parts(opened.ranges(file), start))
        return opened.view(file, start + FRAME_HEAD_NBYTES, self._lengths[index])

    def _find_blob(self, payload: memoryview, index: int) -> memoryview | None:
        """Return the image, or None where it has no bytes; other bytes may be none."""
        blob = payload[self._heads[index] :]
        return blob if len(blob) or self._blob != "image" else None

    def _read_number(self, index: int) -> float | None:
        number = self._labels[index]
        if math.isnan(number):
            return None
        return int(number) if self._schema["label"].kind == "label" else number

    def _read_array(self, payload: memoryview, index: int) -> NDArray[np.float32] | None:
        count = self._flags[index]
        if not count:
            number = self._labels[index]
            return None if math.isnan(number) else np.array([number], np.float32)
        return np.frombuffer(payload, "<f4", count, HEADER_NBYTES)

    def _find_fields(self, mapped: MappedFiles, label_format: str, upright: bool | None) -> dict[str, Field]:
        """Return the label and the ids: ``id`` where an id is not the key, ``id2`` where one is not 0."""
        rows = self._table.rows
        found = find_label_field(rows["flag"], rows["label"]) if self._has_headers else None
        fields = {} if found is None else {"label": found}
        if found is None or found.array is None:
            if label_format == "detection":
                raise ArgumentError(
                    "label_format='detection' needs labels of several numbers; there are none", store=self.url
                )
        elif label_format == "detection" or (label_format == "auto" and is_detection_label(self._read_arrays(mapped))):
            self._fractions = FractionBoxes(upright, self._sample_blobs(mapped))
            fields |= {"boxes": self._fractions.field, "classes": Field("int64[*]")}
        if upright is not None and "boxes" not in fields:
            raise ArgumentError("upright says which picture boxes are of, and there are none", store=self.url)
        if self._has_headers and any(key != str(each) for key, each in zip(self._keys, self._ids, strict=True)):
            fields["id"] = Field("int")
        if self._has_headers and rows["id2"].any():
            fields["id2"] = Field("int")
        return fields

    def _holds_images(self, mapped: MappedFiles) -> bool:
        return are_images(self._sample_blobs(mapped))

    def _sample_blobs(self, mapped: MappedFiles) -> Iterator[memoryview]:
        filled = np.flatnonzero(self._table.rows["nbytes"] > self._table.rows["head_nbytes"])
        sampled = filled[spread_indices(len(filled))]
        return (self._read_payload(mapped, index)[self._heads[index] :] for index in sampled.tolist())

    def _read_arrays(self, mapped: MappedFiles) -> Iterator[NDArray[np.float32]]:
        for index in self.iterate(mapped):
            label = self._read_array(self._read_payload(mapped, index), index)
            yield np.empty(0, np.float32) if label is None else label


def _pair_files(
    paths: Sequence[Path], *, find_indexes: bool, store: str
) -> tuple[tuple[Path, ...], tuple[Path | None, ...]]:
    """The files of records, and for each its index."""
    records = tuple(path for path in paths if path.suffix != ".idx") or tuple(p.with_suffix(".rec") for p in paths)
    given = {path.with_suffix(""): path for path in paths if path.suffix == ".idx"}
    if others := given.keys() - {path.with_suffix("") for path in records}:
        if len(given) == len(records) == 1:
            return records, (next(iter(given.values())) if find_indexes else None,)
        raise ArgumentError(f"the file {min(others).name}.idx belongs to no .rec file that is given", store=store)
    if not find_indexes:
        return records, (None,) * len(records)
    beside = (path.with_suffix(".idx") for path in records)
    return records, tuple(path if path in given.values() or path.is_file() else None for path in beside)


def _leave_out_identities(table: RecordTable) -> tuple[RecordTable, int]:
    """The table without the records of a file of InsightFace that have no image, and how many these are.

    There, the first record has no image, and a label of two numbers: the records of identities from the first number to
    the second.
    """
    empty = table.rows["nbytes"] == table.rows["head_nbytes"]
    if not (len(empty) > 1 and empty[0] and table.rows["flag"][0] == 2 and not empty.all()):
        return table, 0
    return table.select(np.flatnonzero(~empty)), int(np.count_nonzero(empty))


def find_label_field(flags: NDArray[np.uint32], labels: NDArray[np.float32]) -> Field | None:
    """Return the field of the labels; None if no record has one.

    ``flags``: how many numbers the label of each record has; 0: one, in ``labels``. ``labels``: the labels of one
    number; NaN: the record has none.
    """
    if flags.any():
        least, most = int(flags.min()), int(flags.max())
        return Field(f"float32[{least}]" if least == most else "float32[*]")
    numbers = labels[~np.isnan(labels)]
    if not len(numbers):
        return None
    is_class = (np.abs(numbers) <= _MAX_CLASS).all() and (numbers == np.trunc(numbers)).all()
    return Field("label" if is_class else "float")


def is_detection_label(labels: Iterable[NDArray[np.float32]]) -> bool:
    """Return whether every label has the structure of a label of detection, and at least one has an object."""
    objects = 0
    for label in labels:
        try:
            table = _read_objects(label)
        except ValueError:
            return False
        corners = table[:, 1:5]
        if (
            (table[:, 0] < 0).any()
            or (table[:, 0] != np.trunc(table[:, 0])).any()
            or not ((corners >= -_OUTSIDE) & (corners <= 1 + _OUTSIDE)).all()
            or (corners[:, :2] > corners[:, 2:]).any()
        ):
            return False
        objects += len(table)
    return objects > 0


def find_boxes(
    label: NDArray[np.float32], image: memoryview, fractions: FractionBoxes
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the boxes and classes in the label of an image.

    Returns
    -------
    boxes : ndarray, shape (n, 4), float32
        Corners xyxy in pixels.
    classes : ndarray, shape (n,), int64

    Raises
    ------
    ValueError
        If the label is not one of detection, or the size of the image is neither in the label nor in the image.
    """
    table = _read_objects(label)
    size = label[2:4].tolist() if label[0] >= _SIZED_HEADER else []
    known = size if len(size) == 2 and min(size) > 0 else None
    return fractions.place(table[:, 1:5], "xyxy", image, known), table[:, 0].astype(np.int64)


def _read_objects(label: NDArray[np.float32]) -> NDArray[np.float32]:
    """Read one row for each object."""
    header, width = (float(number) for number in label[:2]) if len(label) >= 2 else (0.0, 0.0)
    if not (
        _LEAST_HEADER <= header <= len(label)
        and _LEAST_OBJECT <= width <= _MAX_CLASS
        and header.is_integer()
        and width.is_integer()
        and (len(label) - int(header)) % int(width) == 0
    ):
        raise ValueError(f"its label of {len(label)} numbers is not one of detection: {label[:6].tolist()}")
    return label[int(header) :].reshape(-1, int(width))
