"""TFRecord files of ``tf.train.Example``, read where they are, without TensorFlow.

::

    train.tfrecord-00000-of-00002 ─┐ scan, once: frames, names and kinds of features, keys ──> .index.npz beside them
    train.tfrecord-00001-of-00002 ─┘ mapped ──record──> checksum ──> features ──> image (a view), label, boxes, ...

Files that are compressed as a whole (gzip, zlib) are decompressed once
(:mod:`penstock.stores.common.decompressed`). Which feature is which field: :mod:`penstock.stores.tfrecord.example`.
"""

from __future__ import annotations

import itertools
import os
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final, cast

import numpy as np
import xxhash

from penstock.errors import ArgumentError, StoreFormatError
from penstock.fields.roles import Candidate, Stated, choose_roles, find_image, select_paths
from penstock.sample import Array, Field, Record
from penstock.stores.base import PathLike
from penstock.stores.common.compression import PROGRAMS
from penstock.stores.common.decompressed import DecompressedCopies, select_cache_options
from penstock.stores.common.mapped_files import MappedFiles
from penstock.stores.common.mirrors import announce_ends
from penstock.stores.common.record_index import load_or_scan
from penstock.stores.container import ContainerStore, fingerprint_files, select_given
from penstock.stores.fields.box_corners import FractionBoxes
from penstock.stores.fields.pixels import PIXEL_DTYPES, PixelLayout
from penstock.stores.indices import spread_indices
from penstock.stores.tfrecord.example import (
    INTEGERS,
    FeaturePixels,
    ReadFeature,
    find_boxes,
    find_content,
    find_feature_field,
    make_box_reader,
    make_pixel_reader,
    make_reader,
    parse_example,
)
from penstock.stores.tfrecord.frames import CRC_NBYTES, is_intact
from penstock.stores.tfrecord.index import (
    RecordIndex,
    find_codec,
    find_key,
    find_shards,
    is_tfrecord,
    parse_index,
    scan_files,
)
from penstock.wording import counted

__all__ = ["TFRecordStore"]

_VERSION: Final = 4  # of the index
_BOXES: Final = "\0boxes"
_CLASSES: Final = "\0classes"
_CLASS_FEATURES: Final = ("image/object/class/label", "objects/label")
_RENAMED: Final = {"image/class/text": "text"}
_MOST_RELATIVE: Final = 2.0
"""Edges of boxes above this are pixels, not fractions."""


class TFRecordStore(ContainerStore[MappedFiles]):
    """TFRecord files with one ``tf.train.Example`` in each record.

    Parameters
    ----------
    path : str, path, Location or sequence of paths
        A file, the shards of a set in order, or a folder with the shards of one set.
    image, label, key : str, optional
        The features of the image, the label and the keys. By default: ``image/encoded``, ``image``, or the only one
        with images; ``image/class/label``, ``label`` or another usual name; ``image/filename``, ``image/source_id`` or
        another usual name. A record without a key has the number of its row.
    fields : sequence of str, optional
        The features that are read, by default all.
    shape : tuple of (int or str, int or str, int), optional
        Height, width and channels of an image that is stored as its pixels; a text names the feature with the length.
    dtype : {"uint8", "uint16", "float32"}
        The type of such pixels.
    channels : {"RGB", "BGR"}, optional
        The order of three channels of such pixels; needed with ``shape``.
    units : {"relative", "pixels"}, optional
        Whether the edges of boxes are fractions of the image's size, which is the convention, or pixels. Edges that are
        whole numbers are pixels.
    upright : bool, optional
        Which picture such fractions are of, where an Exif orientation turns it: the upright one, or the one that is
        stored. By default the one whose size ``image/width`` and ``image/height`` are, and the upright one where they
        are missing, or are those of both. Boxes become those of upright pictures.
    check : bool
        Whether the checksum of each record is compared when it is read.
    cache : str or path, optional
        The folder for decompressed copies of compressed files.
    cache_nbytes : int, optional
        The most bytes of these copies. See :class:`~penstock.stores.common.decompressed.DecompressedCopies`.

    Raises
    ------
    StoreFormatError
        If a file is truncated or damaged, or its records are no ``tf.train.Example``.
    ArgumentError
        If a feature cannot be a field, or what only a person knows is not stated.

    Notes
    -----
    Boxes (``image/object/bbox/xmin`` and so on, or ``objects/bbox`` of TensorFlow Datasets) are the field ``boxes``,
    their classes ``classes``, as they are stored. ``image/class/text`` is ``text``. Other features keep their names,
    with dots for slashes: a number where no record has more than one, else an array. A feature that a record lacks is
    None, or an empty array.
    """

    kind: ClassVar[str] = "tfrecord"
    takes_shards: ClassVar[bool] = True

    def __init__(
        self,
        path: PathLike,
        *,
        image: str | None = None,
        label: str | None = None,
        key: str | None = None,
        fields: Sequence[str] | Mapping[str, str] | None = None,
        shape: Sequence[int | str] | None = None,
        dtype: str | None = None,
        channels: str | None = None,
        units: str | None = None,
        upright: bool | None = None,
        check: bool = True,
        cache: str | os.PathLike[str] | None = None,
        cache_nbytes: int | None = None,
    ) -> None:
        stated = Stated(image, label, key, fields, shape=shape, dtype=dtype, channels=channels, units=units)
        given = {"image": image, "label": label, "key": key, "fields": stated.fields, "shape": shape, "dtype": dtype}
        options = select_given(type(self), **given, channels=channels, units=units, upright=upright, check=check)
        options |= select_cache_options(cache, cache_nbytes)
        location = self.locate(path)
        super().__init__(location, files=find_shards(location), **options)
        self._check = check
        self._copies = DecompressedCopies(self._files, cache, cache_nbytes)
        self._index = self._find_index(key)
        counts = self._index.counts.tolist()
        self._ends = list(itertools.accumulate(counts))
        places = self._index.places
        self._offsets, self._lengths = places["offset"].data, places["nbytes"].data
        self._plan(stated, _parse_layout(shape, dtype or "uint8", channels), upright)

    @classmethod
    def recognises(cls, path: str) -> bool:
        """Return whether a file, or the first TFRecord file of a folder, begins with a length and its checksum."""
        return is_tfrecord(Path(path))

    @property
    def description(self) -> str:
        """Number of files, compression, and the features."""
        codec = next(filter(None, self._codecs), "")
        compressed = f" (compressed with {PROGRAMS.get(codec, codec)})" if codec else ""
        names = ", ".join(self._index.summaries)
        files, roles = counted(len(self._files), "file"), self._roles.describe()
        return f"tfrecord: {files}{compressed} of tf.train.Example with {names}; {roles}"

    def __len__(self) -> int:
        return len(self._offsets)

    def open_files(self) -> MappedFiles:
        """Map the files; those that are compressed are decompressed if that was not done yet."""
        pairs = zip(self._files, self._codecs, strict=True)
        return MappedFiles([self._copies.find(path, codec) if codec else path for path, codec in pairs])

    def files_of(self, indices: Sequence[int]) -> Iterable[int]:
        """The files of some records."""
        return {bisect_right(self._ends, index) for index in indices}

    def ranges_of(self, opened: MappedFiles, indices: Sequence[int]) -> Iterable[tuple[int, int, int]]:
        """The record and its checksum, where its file is not compressed."""
        del opened
        for index in indices:
            if not self._codecs[number := bisect_right(self._ends, index)]:
                yield number, self._offsets[index], self._lengths[index] + CRC_NBYTES

    def read_record(self, opened: MappedFiles, index: int) -> Record:
        """Read one record; its image is a view of the mapped file."""
        record = self._view(opened, index, check=self._check)
        features = parse_example(record)
        key = find_key(features, record, self._index.key, index)
        return Record(index, key, {name: read(features, record) for name, read in self._readers})

    def read_column(self, opened: MappedFiles, field: str) -> Iterable[object]:
        """Return the values of one field; images are not touched, and checksums not compared."""
        read = dict(self._readers)[field]
        for index in self.iterate(opened):
            record = self._view(opened, index, check=False)
            yield read(parse_example(record), record)

    def read_keys(self) -> Sequence[str]:
        """Return the keys that the scan found; else the numbers of the rows."""
        return super().read_keys() if self._index.keys is None else self._index.keys

    def _view(self, opened: MappedFiles, index: int, *, check: bool) -> memoryview:
        offset, nbytes = self._offsets[index], self._lengths[index]
        content = opened.view(bisect_right(self._ends, index), offset, nbytes + CRC_NBYTES)
        if check and not is_intact(content, 0, nbytes):
            raise ValueError("its checksum is wrong")
        return content[:nbytes]

    def _find_index(self, key: str | None) -> RecordIndex:
        with self.opening("TFRecord file"):
            announce_ends(self._files)
            self._codecs = [self._find_codec(path) for path in self._files]
            digest = xxhash.xxh3_128(f"{_VERSION} {key!r}".encode())
            for path, identity in zip(self._files, self._identities, strict=True):
                digest.update(
                    f"{path.name}\0{identity.nbytes}\0{identity.changed_ns}\0".encode(errors="surrogateescape")
                )
            index = load_or_scan(
                self.location,
                digest.hexdigest(),
                lambda: fingerprint_files(self._files, f"{_VERSION} {key!r}"),
                lambda: self._scan(key),
                parse_index,
            )
        if not len(index.places) or not index.summaries:
            raise StoreFormatError("there are no records with features", store=self.url)
        return index

    def _find_codec(self, path: Path) -> str:
        codec = find_codec(path)
        if codec is None and path.stat().st_size:
            raise StoreFormatError(f"{path.name} is no TFRecord file: it does not begin with a length and its checksum")
        return codec or ""

    def _scan(self, key: str | None) -> dict[str, Array]:
        opened = self._opened.get()
        contents = [opened.whole(number) for number in range(len(self._files))]
        return scan_files(contents, self._files, key)

    def _plan(self, stated: Stated, layout: FeaturePixels | None, upright: bool | None) -> None:
        """Decide which feature is which field, and how it is read."""
        summaries = self._index.summaries
        wanted = select_paths(summaries, stated, "features")
        boxes = () if isinstance(stated.fields, Mapping) else find_boxes({name: summaries[name] for name in wanted})
        classes = next((n for n in _CLASS_FEATURES if boxes and n in wanted and summaries[n].kinds == INTEGERS), None)
        kinds = {
            name: find_feature_field(name, summaries[name], self._index.parsed)
            for name in wanted
            if name not in {*boxes, classes}
        }
        readers: dict[str, ReadFeature] = {name: make_reader(name, field) for name, field in kinds.items()}
        if layout is not None:
            blobs = [Candidate(name, kind) for name, kind in kinds.items() if kind.is_blob]
            found = find_image([replace(each, holds_images=True) for each in blobs], stated)
            if found is None:
                raise ArgumentError(
                    f"image= must name the feature that shape= describes, one of {', '.join(kinds):.500}"
                )
            axes = ",".join("*" if isinstance(axis, str) else str(axis) for axis in layout.shape)
            kinds[found.path] = Field(f"pixels:{layout.dtype}[{axes}]")
            readers[found.path] = make_pixel_reader(found.path, layout)
        elif stated.image and kinds[stated.image].kind != "image":
            raise ArgumentError(
                f"feature {stated.image!r} holds no encoded images; give shape=(height, width, channels) if it holds "
                "pixels, or leave it out with fields="
            )
        candidates = [Candidate(name, kind, name=_RENAMED.get(name, "")) for name, kind in kinds.items()]
        if boxes:
            image = find_image(candidates, stated)
            path = None if image is None else image.path
            field, readers[_BOXES] = self._plan_boxes(boxes, path, stated.units, upright)
            candidates.append(Candidate(_BOXES, field, name="boxes"))
        elif upright is not None:
            raise ArgumentError("upright says which picture boxes are of, and there are none")
        if classes is not None:
            candidates.append(Candidate(_CLASSES, Field("int64[*]"), name="classes"))
            readers[_CLASSES] = make_reader(classes, Field("int64[*]"))
        roles = choose_roles(candidates, stated if stated.key else replace(stated, key=""))
        self._roles = replace(roles, key=self._index.key)
        self._schema = self._roles.schema
        self._readers = [(field, readers[each.path]) for field, each in self._roles.fields.items()]

    def _plan_boxes(
        self, names: Sequence[str], image: str | None, units: str | None, upright: bool | None
    ) -> tuple[Field, ReadFeature]:
        stored = make_box_reader(names, None)
        if units == "pixels" or (units is None and self._index.summaries[names[0]].kinds == INTEGERS):
            if upright is not None:
                raise ArgumentError("upright says which picture fractions are of, and these boxes are pixels")
            return Field("boxes"), stored
        values, images, opened = [], [], self._opened.get()
        for index in spread_indices(len(self)):
            try:
                record = self._view(opened, index, check=False)
                features = parse_example(record)
                values.append(cast("Array", stored(features, record)))
                images.append(find_content(features, record, image))
            except ValueError:
                continue  # raised again when the record is read
        if units is None and any(np.max(each, initial=0.0) > _MOST_RELATIVE for each in values):
            raise ArgumentError(
                f"edges of boxes are larger than {_MOST_RELATIVE}, so they seem to be pixels and not fractions; "
                "give units='pixels' or units='relative'"
            )
        fractions = FractionBoxes(upright, filter(None, images))
        return fractions.field, make_box_reader(names, image, fractions)


def _parse_layout(shape: Sequence[int | str] | None, dtype: str, channels: str | None) -> FeaturePixels | None:
    if shape is None:
        return None
    axes = tuple(shape)
    is_valid = len(axes) == 3 and all(isinstance(a, str) or (type(a) is int and 0 < a < 1 << 31) for a in axes)
    if not is_valid or not isinstance(axes[2], int) or axes[2] > 9999:
        raise ArgumentError(f"shape must be (height, width, channels), with a number of channels, got {shape!r:.200}")
    if dtype not in PIXEL_DTYPES:
        raise ArgumentError(f"dtype must be one of {', '.join(sorted(PIXEL_DTYPES))}, got {dtype!r:.100}")
    if axes[2] == 3 and channels is None:
        raise ArgumentError("channels must be 'RGB' or 'BGR' for pixels of three channels; the files do not say it")
    order = PixelLayout(channels)
    return FeaturePixels(axes, dtype, order if axes[2] == 3 else PixelLayout())
