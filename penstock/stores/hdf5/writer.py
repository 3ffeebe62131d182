"""Writes HDF5 files. A writer that was killed is resumed, to the same bytes.

::

    append ──> photos.h5.partial     records one after another (msgpack), with the commits of :class:`.FileWriter`
    finish ──> photos.h5.building    the HDF5 file, made of them in one pass ──> photos.h5

HDF5 updates its structures in place: a file whose writer is killed cannot be opened, and one that grows cannot be cut
back to a commit. Records are therefore kept in a plain file until their number is known; the HDF5 file is then written
front to back with datasets of their final size. It takes twice the space until it is done.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgpack  # type: ignore[import-untyped]  # ships no types
import numpy as np

from penstock.errors import PackError, check_choice
from penstock.registry import require
from penstock.sample import Array, Field, Schema
from penstock.stores.common.file_writer import FileWriter
from penstock.stores.fields.small_fields import check_pixels, check_text, pack_small
from penstock.stores.hdf5.format import LAYOUT, Hdf5Layout, array_kind, element_dtype, needs_shapes, row_shape
from penstock.stores.location import Location

if TYPE_CHECKING:
    import h5py

__all__ = ["COMPRESSIONS", "Hdf5Writer"]

COMPRESSIONS: Final = ("none", "gzip")

_Row = tuple[str, list[object]]
"""The key of a record, and its values as msgpack holds them."""

_ROWS: Final = 1024
_BATCH_NBYTES: Final = 32 << 20
_CHUNK_NBYTES: Final = 64 << 10
_MAX_RECORD_NBYTES: Final = 0xFFFFFFFF
_MAX_ATTRIBUTE_NBYTES: Final = 32 << 10  # HDF5's limit is 64 KiB, with what it adds


class Hdf5Writer(FileWriter[tuple[bytes, int]]):
    """Writes one HDF5 file.

    ``location``, ``schema``, ``source``, ``overwrite``: as for :class:`FileWriter`. ``compression``: {"none", "gzip"}:
    how pixels of one shape are compressed. Without, they are contiguous and read without copying. Raises ArgumentError
    if the compression is unknown. Raises OptionalPackageError if h5py is not installed.
    """

    def __init__(
        self, location: Location, schema: Schema, source: str, *, overwrite: bool = False, compression: str = "none"
    ) -> None:
        check_choice("compression", compression, COMPRESSIONS)
        require("h5py", extra="hdf5", purpose="to write HDF5 files")
        self._compression = compression
        self._building = Path(f"{location.local_path}.building")
        super().__init__(location, schema, source, overwrite=overwrite, options={"compression": compression})
        self._complete = [self._building]

    def prepare(self, key: str, fields: Mapping[str, object]) -> tuple[bytes, int]:
        """A record as it is kept until :meth:`finish`; see :meth:`Writer.prepare`."""
        _refuse_text("a key", key, key)
        if not key:
            raise PackError("a key must have at least one character")
        nbytes = 0
        values = []
        for name, field in self.schema.fields.items():
            if name not in fields:
                raise PackError(f"the record has no field {name!r}", key=key)
            value = fields[name]
            packed = None if value is None else _pack_value(name, field, value, key)
            content = packed[1] if isinstance(packed, list) else packed
            nbytes += len(content) if field.is_blob and isinstance(content, bytes) else 0
            values.append(packed)
        record: bytes = msgpack.packb([key, values])
        if len(record) > _MAX_RECORD_NBYTES:
            raise PackError(f"a record must have at most {_MAX_RECORD_NBYTES} bytes, got {len(record)}", key=key)
        return record, nbytes

    def write_record(self, prepared: tuple[bytes, int]) -> int:
        """Append the record to the plain file."""
        record, nbytes = prepared
        self.files[0].write(record)
        return nbytes

    def write_end(self) -> None:
        """Make the HDF5 file of the records."""
        self.files[0].flush()
        with require("h5py").File(self._building, "w", track_order=False) as file:
            _FileBuilder(file, self.schema, self.records, self._compression).build(
                _read_records(self._partials[0]), Hdf5Layout(self.schema, self.journal.nbytes, tuple(self.skipped))
            )
        with self._building.open("rb+") as written:
            os.fsync(written.fileno())

    def discard(self) -> None:
        """Remove the files that were written."""
        super().discard()
        self._building.unlink(missing_ok=True)


class _FileBuilder:
    """Writes the datasets of one file, some records at a time."""

    def __init__(self, file: h5py.File, schema: Schema, count: int, compression: str) -> None:
        self._library = require("h5py")
        self._file, self._schema, self._count, self._compression = file, schema, count, compression
        self._missing: dict[str, list[int]] = {name: [] for name in schema.fields}

    def build(self, records: Iterator[_Row], layout: Hdf5Layout) -> None:
        """Write everything."""
        text = self._library.string_dtype("utf-8")
        keys = self._file.create_dataset(layout.key, (self._count,), text)
        datasets = {name: self._create(layout.name_dataset(name), field) for name, field in self._schema.fields.items()}
        shapes = {
            name: self._file.create_dataset(f"{layout.name_dataset(name)}.shape", (self._count, _axes(field)), np.int64)
            for name, field in self._schema.fields.items()
            if needs_shapes(field)
        }
        for begin, batch in _in_batches(records):
            end = begin + len(batch)
            keys[begin:end] = [key for key, _ in batch]
            for column, (name, field) in enumerate(self._schema.fields.items()):
                values = [values[column] for _, values in batch]
                self._missing[name] += [begin + i for i, value in enumerate(values) if value is None]
                if row_shape(field) is None and field.kind not in {"text", "json"}:
                    self._write_ragged(datasets[name], begin, [_list_numbers(field, value) for value in values])
                else:
                    datasets[name][begin:end] = _stack(field, values)
                if name in shapes:
                    empty = [0] * _axes(field)
                    shapes[name][begin:end] = [value[0] if isinstance(value, list) else empty for value in values]
        missing = {name: rows for name, rows in self._missing.items() if rows}
        for name, rows in missing.items():
            self._file.create_dataset(f"{layout.name_dataset(name)}.missing", data=np.array(rows, np.int64))
        layout.missing = frozenset(missing)
        self._file.create_dataset(LAYOUT, data=layout.to_text(), dtype=text)

    def _write_ragged(self, dataset: h5py.Dataset, begin: int, arrays: Sequence[Array]) -> None:
        """Write values of variable length; ``dataset[begin:end] =`` would make one array of those of equal lengths."""
        values = np.empty(len(arrays), self._library.vlen_dtype(arrays[0].dtype))
        for position, array in enumerate(arrays):
            values[position] = array
        target = dataset.id.get_space()
        target.select_hyperslab((begin,), (len(arrays),))
        dataset.id.write(self._library.h5s.create_simple((len(arrays),)), target, values)

    def _create(self, name: str, field: Field) -> h5py.Dataset:
        shape, dtype = row_shape(field), element_dtype(field)
        if field.kind in {"text", "json"}:
            return self._file.create_dataset(name, (self._count,), self._library.string_dtype("utf-8"))
        if shape is None:
            return self._file.create_dataset(name, (self._count,), self._library.vlen_dtype(dtype))
        options: dict[str, object] = {}
        if field.pixels is not None and self._compression != "none" and self._count:
            rows = max(1, _CHUNK_NBYTES // (int(np.prod(shape)) * dtype.itemsize))
            options = {"chunks": (min(rows, self._count), *shape), "compression": self._compression}
        dataset = self._file.create_dataset(name, (self._count, *shape), dtype, **options)
        if field.classes and sum(len(each.encode()) + 16 for each in field.classes) < _MAX_ATTRIBUTE_NBYTES:
            dataset.attrs["classes"] = list(field.classes)
        if field.pixels is not None and shape[2] in {3, 4}:
            dataset.attrs["channels"] = "RGB"
        return dataset


def _axes(field: Field) -> int:
    kind = array_kind(field)
    assert kind is not None, "only arrays have shapes"
    return len(kind.axes)


def _pack_value(name: str, field: Field, value: object, key: str) -> object:
    """Return a value as msgpack holds it; arrays are their shape and bytes."""
    if field.pixels is not None:
        pixels = check_pixels(name, field.pixels, value)
        return [list(pixels.shape), pixels.tobytes()]
    if field.is_blob:
        assert isinstance(value, bytes | bytearray | memoryview), "so records hold blobs"
        return bytes(value)
    packed = pack_small(name, field, value)
    if isinstance(packed, str):
        _refuse_text(f"field {name!r}", packed, key)
    return packed


def _refuse_text(what: str, text: str, key: str) -> None:
    """HDF5's texts end at the first zero."""
    if "\0" in check_text(what, text):
        raise PackError(f"{what} must not contain the character of number 0, which HDF5 cannot store", key=ascii(key))


def _stack(field: Field, values: Sequence[object]) -> Array | list[object]:
    """The values of some records as h5py takes them; a record without one has -1, NaN, or nothing."""
    if field.kind in {"text", "json"}:
        return ["" if value is None else value for value in values]
    shape, dtype = row_shape(field), element_dtype(field)
    if not shape:
        return np.array([{"i": -1, "f": np.nan}[dtype.kind] if value is None else value for value in values], dtype)
    stacked = np.zeros((len(values), *shape), dtype)
    for position, value in enumerate(values):
        if value is not None:
            stacked[position] = _list_numbers(field, value).reshape(shape)
    return stacked


def _list_numbers(field: Field, value: object) -> Array:
    """Return the elements of a value; a record without one has none."""
    content = value[1] if isinstance(value, list) else value
    assert content is None or isinstance(content, bytes), "as it was packed"
    return np.frombuffer(content or b"", element_dtype(field))


def _read_records(path: Path) -> Iterator[_Row]:
    with path.open("rb") as file:
        yield from map(tuple, msgpack.Unpacker(file, max_buffer_size=_MAX_RECORD_NBYTES))


def _in_batches(records: Iterator[_Row]) -> Iterator[tuple[int, list[_Row]]]:
    """The records in lists of a thousand or some megabytes, each with the number of its first record."""
    begin, nbytes = 0, 0
    batch: list[_Row] = []
    for record in records:
        batch.append(record)
        nbytes += sum(len(value[1]) if isinstance(value, list) else len(value) if isinstance(value, bytes) else 8
                      for value in record[1])  # fmt: skip
        if len(batch) >= _ROWS or nbytes >= _BATCH_NBYTES:
            yield begin, batch
            begin, nbytes, batch = begin + len(batch), 0, []
    if batch:
        yield begin, batch
