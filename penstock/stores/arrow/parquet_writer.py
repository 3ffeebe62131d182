"""Writes a Parquet file in the layout of Hugging Face: images as struct<bytes, path>, class names in the metadata.

::

    photos.parquet.partial    PAR1 row groups footer | PAR1 row groups footer | ...     one part for each commit
    finish ──> one more footer behind them, which has all row groups: a Parquet file like any other

pyarrow cannot continue a file. So a part, with a footer of its own, ends at each commit, and a killed writer continues
with the next part. In the last footer, offsets are those in the whole file. The footers of parts stay between the row
groups: some kilobytes for 64 MiB. Encoded images are not compressed again: their pages are read as they lie.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np

from penstock.errors import PackError, PenstockError, StoreFormatError
from penstock.registry import require
from penstock.sample import Array, ArrayKind, Field, Schema
from penstock.stores.arrow.fields import METADATA_KEY
from penstock.stores.arrow.parquet_files import open_parquet
from penstock.stores.arrow.thrift_compact import Spans, Struct, add_to_numbers, get_struct, get_structs, read_struct
from penstock.stores.common.file_writer import FileWriter
from penstock.stores.container import fingerprint_files
from penstock.stores.fields.small_fields import check_pixels, check_small, check_text
from penstock.stores.location import Location
from penstock.stores.origin import Origin, read_origin
from penstock.stores.writing import CommittedRecords

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet as pq

__all__ = ["SHARD_PREFIX", "ParquetWriter", "Prepared", "list_written", "read_written"]

Prepared = tuple[dict[str, object], int]
"""A record whose values were checked, as a row of the table; the number of bytes of its blobs."""

SHARD_PREFIX: Final = "train"
"""How the names of the files in a folder of shards begin."""

_MAGIC: Final = b"PAR1"
_KEY_COLUMN: Final = "__key__"
_GROUP_NBYTES: Final = 1 << 20
_MAX_GROUP_NBYTES: Final = 64 << 20
_MAX_GROUP_RECORDS: Final = 10_000
_FEATURE_DTYPES: Final = {"text": "string", "json": "string", "bytes": "binary", "int": "int64", "float": "float64"}
_MAX_BLOB_NBYTES: Final = (1 << 31) - 1


class ParquetWriter(FileWriter[Prepared]):
    """Writes records as rows.

    ``location``, ``schema``, ``source``, ``overwrite``: as for :class:`~penstock.stores.common.file_writer.FileWriter`.
    ``row_group_records``: number of records of a row group; more where they have less than 1 MiB together, fewer where
    they have more than 64 MiB.
    """

    def __init__(
        self, location: Location, schema: Schema, source: str, *, overwrite: bool = False, row_group_records: int = 100
    ) -> None:
        require("pyarrow.parquet", extra="parquet", purpose="to write Parquet files")
        self._group_records = row_group_records
        self._key = _choose_key(schema)
        self._arrow_schema = _make_schema(schema, self._key)
        self._part: tuple[pq.ParquetWriter, int] | None = None  # its writer, and where it begins
        self._rows: list[dict[str, object]] = []
        self._rows_nbytes = 0
        super().__init__(
            location, schema, source, overwrite=overwrite, options={"row_group_records": row_group_records}
        )
        self._parts: list[list[int]] = [list(map(int, span)) for span in self.state.get("parts", [])]

    def prepare(self, key: str, fields: Mapping[str, object]) -> Prepared:
        """Check the values of a record; thread-safe."""
        check_text("key", key)
        row: dict[str, object] = {_KEY_COLUMN: key} if self._key == (_KEY_COLUMN,) else {}
        nbytes = 0
        for name, field in self.schema.fields.items():
            value = fields[name]
            stored = None if value is None else _prepare_value(name, field, value)
            content = stored.get("bytes") if isinstance(stored, dict) else stored
            nbytes += len(content) if isinstance(content, bytes) else 0
            if field.kind in {"image", "mask"}:
                path = key if self._key == (name, "path") else None
                stored = None if stored is None and path is None else {"bytes": stored, "path": path}
            row[name] = stored
        if nbytes > _MAX_BLOB_NBYTES:
            raise PackError(f"a record must have at most {_MAX_BLOB_NBYTES} bytes, got {nbytes}")
        return row, nbytes

    def write_record(self, prepared: Prepared) -> int:
        """Add a row; writes a row group if it is complete."""
        row, nbytes = prepared
        if self._rows and self._rows_nbytes + nbytes > _MAX_GROUP_NBYTES:
            self._write_group()
        self._rows.append(row)
        self._rows_nbytes += nbytes
        is_large = self._rows_nbytes >= _GROUP_NBYTES and len(self._rows) >= self._group_records
        if is_large or len(self._rows) >= max(_MAX_GROUP_RECORDS, self._group_records):
            self._write_group()
        return nbytes

    def write_pending(self) -> None:
        """Write the last rows, and end the part with its footer."""
        if self._rows:
            self._write_group()
        if self._part is None:
            return
        writer, begin = self._part
        self._part = None
        writer.close()
        self._parts.append([begin, self.files[0].tell()])
        self.state["parts"] = self._parts

    def write_end(self) -> None:
        """Write the footer with the row groups of all parts."""
        from pyarrow import parquet as pq

        self.write_pending()
        totals = self.journal.written.to_json()
        empty = io.BytesIO()
        with pq.ParquetWriter(empty, _make_schema(self.schema, self._key, totals), **self._options_of_writer()):
            pass
        merged = pq.read_metadata(io.BytesIO(empty.getvalue()))
        file = self.files[0]
        for begin, end in self._parts:
            merged.append_row_groups(_read_footer(file, begin, end))
        whole = io.BytesIO()
        merged.write_metadata_file(whole)
        at = file.seek(0, io.SEEK_END)
        file.write(whole.getvalue()[len(_MAGIC) if at else 0 :])

    def close(self) -> None:
        """Close the files; the part that is not committed is cut off by the writer that continues."""
        if self._part is not None:
            writer, _ = self._part
            self._part = None
            writer.close()
        super().close()

    def _write_group(self) -> None:
        from pyarrow import Table
        from pyarrow import parquet as pq

        if self._part is None:
            begin = self.files[0].tell()
            self._part = pq.ParquetWriter(self.files[0], self._arrow_schema, **self._options_of_writer()), begin
        self._part[0].write_table(Table.from_pylist(self._rows, self._arrow_schema), row_group_size=len(self._rows))
        self._rows, self._rows_nbytes = [], 0

    def _options_of_writer(self) -> dict[str, object]:
        small = [name for name, field in self.schema.fields.items() if not field.is_blob and field.array is None]
        leaves = dict.fromkeys([*small, *([_KEY_COLUMN] if self._key == (_KEY_COLUMN,) else [])], "snappy")
        return {
            "compression": leaves,
            "use_dictionary": [name for name in leaves if name != _KEY_COLUMN],
            "write_statistics": small,
            "write_page_index": True,
            "write_page_checksum": True,
        }


def read_written(location: Location, schema: Schema, source: str) -> CommittedRecords | None:
    """Return what a finished file or folder holds, if it has this schema and source; see :meth:`Store.finished`."""
    held = CommittedRecords()
    try:
        files = list_written(location.local_path)
        if not files or read_origin(location, fingerprint_files(files)) != Origin.from_text(source):
            return None
        for path in files:
            with open_parquet(path) as file:
                entry = json.loads((file.schema_arrow.metadata or {})[METADATA_KEY])
            if Schema.from_json(entry["schema"]) != schema:
                return None
            held += CommittedRecords.from_json(entry["written"])
    except (PenstockError, OSError, ValueError, KeyError, TypeError):
        return None  # there is no such file, or another one
    return held


def list_written(path: Path) -> list[Path]:
    """The files of a finished store at ``path``: the shards of a folder, or the file itself."""
    return sorted(path.glob(f"{SHARD_PREFIX}-*.parquet")) if path.is_dir() else [path]


def _read_footer(file: BinaryIO, begin: int, end: int) -> pq.FileMetaData:
    """Return the metadata of a part, with offsets in the whole file."""
    from pyarrow import BufferReader
    from pyarrow import parquet as pq

    tail = len(_MAGIC) + 4
    file.seek(end - tail)
    nbytes = int.from_bytes(file.read(4), "little")
    if nbytes > end - begin - tail:
        raise StoreFormatError("the unfinished file is damaged; write with overwrite=True (--overwrite) to start anew")
    file.seek(end - tail - nbytes)
    content = file.read(nbytes)
    spans: Spans = {}
    footer, _ = read_struct(content, 0, spans=spans)
    content = add_to_numbers(content, spans, _list_offsets(footer), begin)
    return pq.read_metadata(BufferReader(b"".join([_MAGIC, content, len(content).to_bytes(4, "little"), _MAGIC])))


def _list_offsets(footer: Struct) -> Iterator[tuple[Struct, int]]:
    """The numbers in a footer that are offsets in the file: of row groups, column chunks, their pages and indexes."""
    for group in get_structs(footer, 4):
        yield group, 5
        for chunk in get_structs(group, 1):
            yield from ((chunk, number) for number in (2, 4, 6))
            yield from ((get_struct(chunk, 3), number) for number in (9, 10, 11, 14))


def _choose_key(schema: Schema) -> tuple[str, ...]:
    """Return where the keys are: the paths of the first images, or a column of their own."""
    image = next((name for name, field in schema.fields.items() if field.kind == "image"), None)
    return (_KEY_COLUMN,) if image is None else (image, "path")


def _make_schema(schema: Schema, key: tuple[str, ...], written: Mapping[str, object] | None = None) -> pa.Schema:
    """Return the Arrow schema, with the features that ``datasets`` reads and the schema that penstock reads."""
    import pyarrow as pa

    columns = [pa.field(_KEY_COLUMN, pa.string())] if key == (_KEY_COLUMN,) else []
    features: dict[str, object] = {_KEY_COLUMN: {"dtype": "string", "_type": "Value"}} if columns else {}
    for name, field in schema.fields.items():
        arrow_type, features[name] = _describe_field(field)
        columns.append(pa.field(name, arrow_type))
    own = {"schema": schema.to_json(), "key": list(key), **({} if written is None else {"written": written})}
    metadata = {"huggingface": json.dumps({"info": {"features": features}}), METADATA_KEY: json.dumps(own)}
    return pa.schema(columns, metadata)


def _describe_field(field: Field) -> tuple[pa.DataType, object]:
    """Return the Arrow type of a field, and its feature."""
    import pyarrow as pa

    if field.kind in {"image", "mask"}:
        return pa.struct([("bytes", pa.binary()), ("path", pa.string())]), {"_type": "Image"}
    if field.pixels is not None:
        shape = field.pixels.shape
        if shape is not None:
            return pa.binary(int(np.prod(shape)) * field.pixels.dtype.itemsize), {"dtype": "binary", "_type": "Value"}
        numbers = {name: {"dtype": "int32", "_type": "Value"} for name in _list_lengths(field.pixels)}
        sizes = [(name, pa.int32()) for name in numbers]
        return pa.struct([("bytes", pa.binary()), *sizes]), {"bytes": {"dtype": "binary", "_type": "Value"}, **numbers}
    if field.array is not None:
        arrow_type = pa.from_numpy_dtype(field.array.dtype)
        feature: object = {"dtype": str(field.array.dtype), "_type": "Value"}
        for _ in field.array.axes:
            arrow_type, feature = pa.list_(arrow_type), {"feature": feature, "_type": "Sequence"}
        return arrow_type, feature
    if field.kind == "label" and field.classes:
        return pa.int64(), {"names": list(field.classes), "_type": "ClassLabel"}
    dtype = _FEATURE_DTYPES.get(field.kind, "int64")
    return pa.type_for_alias(dtype), {"dtype": dtype, "_type": "Value"}


def _list_lengths(kind: ArrayKind) -> tuple[str, ...]:
    """Names of the lengths of pixels of several sizes."""
    return ("height", "width") if kind.axes[2] else ("height", "width", "channels")


def _prepare_value(name: str, field: Field, value: object) -> object:
    """Return the value of a field as Arrow takes it: bytes, a struct, a number, text, nested lists."""
    if field.pixels is not None:
        pixels = check_pixels(name, field.pixels, value)
        if field.pixels.shape is not None:
            return pixels.tobytes()
        return {"bytes": pixels.tobytes(), **dict(zip(_list_lengths(field.pixels), pixels.shape, strict=False))}
    if field.is_blob:
        assert isinstance(value, bytes | bytearray | memoryview), "so records hold blobs"
        return bytes(value)
    small = check_small(name, field, value)
    return _split_rows(small) if isinstance(small, np.ndarray) else small


def _split_rows(array: Array) -> Array | list[object]:
    """Return an array as nested lists of vectors: a float of Python would lose bits of a NaN that signals."""
    return array if array.ndim == 1 else [_split_rows(row) for row in array]
