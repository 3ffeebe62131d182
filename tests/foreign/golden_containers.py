"""Writes the columns of a case in containers, as programs of each kind would write them; `golden_kinds` lists them.

`CannotHold` says that a kind has no place for a value; another way to write it (JSON in bytes, say) would be another
case. Each writer returns what `ps.open` takes.
"""

from __future__ import annotations

import atexit
import io
import json
import math
import pickle
import struct
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.conformance import lmdb_layouts
from tests.foreign.golden_cases import COUNT, Column
from tests.stores import written

__all__ = [
    "CannotHold",
    "Columns",
    "Unstored",
    "flatten",
    "is_encoded",
    "make_dataset",
    "rows_of",
    "to_json",
    "to_lists",
    "write_arrow",
    "write_beton",
    "write_dataset",
    "write_datum",
    "write_gridfs",
    "write_hdf5",
    "write_lance",
    "write_litdata",
    "write_litdata_tuples",
    "write_mds",
    "write_mongodb",
    "write_parquet",
    "write_pickles",
    "write_recordio",
    "write_tar",
    "write_tfrecord",
    "write_words",
]

Columns = Mapping[str, Column]


class CannotHold(Exception):  # noqa: N818  # no fault: the answer of a kind
    """A kind of container has no place for these values."""


def rows_of(columns: Columns) -> Iterator[dict[str, Any]]:
    """The records, as dicts."""
    return (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))


def is_encoded(value: object) -> bool:
    """Whether a value is an encoded picture of a case."""
    return isinstance(value, bytes) and value[:2] in {b"\xff\xd8", b"\x89P"}


def is_jpeg(column: Column) -> bool:
    """Whether most values of a column are JPEG files: a writer of JPEG files is then used for it."""
    return 2 * sum(isinstance(value, bytes) and value[:2] == b"\xff\xd8" for value in column) > len(column)


def to_lists(value: Any) -> Any:
    """Arrays as lists, whatever they are in."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: to_lists(each) for name, each in value.items()}
    return [to_lists(each) for each in value] if isinstance(value, list) else value


def to_json(value: Any) -> str:
    """A value as JSON; refused where bytes are in it."""
    try:
        return json.dumps(to_lists(value))
    except TypeError:
        raise CannotHold("bytes in dicts") from None


def to_array(value: Any) -> Any:
    """A list of numbers as an array; refused for other lists."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise CannotHold("lists of many lengths") from None
    if array.dtype.kind not in "iufb":
        raise CannotHold("lists of other values than numbers")
    return array


def refuse_missing(columns: Columns) -> None:
    """For formats in which each record has a value in each column."""
    if any(value is None for column in columns.values() for value in column):
        raise CannotHold("missing values")


def flatten(columns: Columns, separator: str) -> dict[str, Column]:
    """Values in dicts as columns of their own."""
    found: dict[str, Column] = {}
    for name, column in columns.items():
        if isinstance(column[0], dict):
            inner = {each: [row[each] for row in column] for each in column[0]}
            found |= {f"{name}{separator}{each}": value for each, value in flatten(inner, separator).items()}
        else:
            found[name] = column
    return found


# ------------------------------------------------------------------------------------------------ Arrow


def to_arrow(column: Column) -> Any:
    """A column of Arrow; arrays are lists of lists of their dtype."""
    import pyarrow as pa

    if isinstance(column[0], np.ndarray):
        kind = pa.from_numpy_dtype(column[0].dtype)
        for _ in range(column[0].ndim):
            kind = pa.list_(kind)
        return pa.array(to_lists(list(column)), kind)
    try:
        return pa.array(to_lists(list(column)))
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise CannotHold("values of several types") from error


def to_table(columns: Columns) -> Any:
    """A table of Arrow."""
    import pyarrow as pa

    return pa.table({name: to_arrow(column) for name, column in columns.items()})


def write_parquet(folder: Path, columns: Columns) -> str:
    """A Parquet file of PyArrow."""
    import pyarrow.parquet as pq

    pq.write_table(to_table(columns), folder / "case.parquet")
    return str(folder / "case.parquet")


def write_arrow(folder: Path, columns: Columns) -> str:
    """A stream of record batches."""
    return write_stream(folder, to_table(columns))


def write_stream(folder: Path, table: Any) -> str:
    """A table as a stream of record batches."""
    from pyarrow import ipc

    with ipc.new_stream(folder / "case.arrow", table.schema) as stream:
        stream.write_table(table)
    return str(folder / "case.arrow")


def write_lance(folder: Path, columns: Columns) -> str:
    """A dataset of Lance."""
    import lance

    if any("." in name for name in columns):
        raise CannotHold("names with a dot")
    lance.write_dataset(to_table(columns), folder / "case.lance")
    return str(folder / "case.lance")


def make_dataset(columns: Columns) -> Any:
    """A dataset of Hugging Face: encoded images are of its feature Image, arrays of several axes of ArrayND."""
    import datasets

    def find_feature(column: Column) -> Any:
        first = next((value for value in column if value is not None), None)
        if is_encoded(first) or (isinstance(first, dict) and first.keys() == {"bytes", "path"}):
            return datasets.Image()
        if isinstance(first, np.ndarray) and first.ndim in {2, 3}:
            if len({value.shape for value in column}) > 1:
                return None
            kind: Any = datasets.Array2D if first.ndim == 2 else datasets.Array3D
            return kind(shape=first.shape, dtype=str(first.dtype))
        return None

    data = {name: [to_lists(value) for value in column] for name, column in columns.items()}
    features = {name: found for name, column in columns.items() if (found := find_feature(column)) is not None}
    others = to_table({name: column for name, column in columns.items() if name not in features})
    typed = {**datasets.Features.from_arrow_schema(others.schema), **features}
    return datasets.Dataset.from_dict(data, datasets.Features({name: typed[name] for name in columns}))


def write_dataset(folder: Path, columns: Columns) -> str:
    """The file of a dataset of Hugging Face, as it is in the cache and in a folder of `save_to_disk`."""
    return write_stream(folder, make_dataset(columns).data.table)


# ------------------------------------------------------------------------------------------------ HDF5


def write_hdf5(folder: Path, columns: Columns) -> str:
    """A file of h5py: a dataset for each column, a group for each dict."""
    import h5py

    refuse_missing(columns)
    with h5py.File(folder / "case.h5", "w") as file:
        for name, column in flatten(columns, "/").items():
            write_values(file, name, column)
    return str(folder / "case.h5")


def write_values(file: Any, name: str, column: Column) -> None:
    """One dataset: bytes have variable length, lists of many lengths too."""
    import h5py

    if isinstance(column[0], bytes):
        column = [np.frombuffer(value, np.uint8) for value in column]
    elif isinstance(column[0], str):
        file.create_dataset(name, data=list(column), dtype=h5py.string_dtype())
        return
    elif isinstance(column[0], list | np.ndarray):
        column = [to_array(value) for value in column]
    else:
        file.create_dataset(name, data=np.asarray(column))
        return
    if len({value.shape for value in column}) == 1 and column[0].dtype != np.uint8:
        file.create_dataset(name, data=np.stack(column))
    elif column[0].ndim == 1:
        made = file.create_dataset(name, (COUNT,), h5py.vlen_dtype(column[0].dtype))
        for row, value in enumerate(column):
            made[row] = value
    elif len({value.shape for value in column}) == 1:
        file.create_dataset(name, data=np.stack(column))
    else:
        raise CannotHold("arrays of many shapes")


# ------------------------------------------------------------------------------------------------ LMDB


def write_lmdb(folder: Path, entries: Sequence[tuple[bytes, bytes]]) -> str:
    """An environment of these entries; the disk is not waited for."""
    import lmdb

    opened = lmdb.open(str(folder / "case.lmdb"), map_size=1 << 20, sync=False, metasync=False)
    with opened as environment, environment.begin(write=True) as transaction:
        for key, value in entries:
            transaction.put(key, value)
    return str(folder / "case.lmdb")


def write_pickles(folder: Path, values: Sequence[object]) -> str:
    """Numbered entries, `__keys__` and `__len__`."""
    keys = [b"%d" % row for row in range(len(values))]
    entries = [*zip(keys, map(pickle.dumps, values), strict=True)]
    ends = [(b"__keys__", pickle.dumps(keys)), (b"__len__", pickle.dumps(len(keys)))]
    return write_lmdb(folder, [*entries, *ends])


def pick_pair(columns: Columns) -> tuple[Column, Column]:
    """An encoded image, and another value."""
    chosen = [column for column in columns.values() if is_encoded(column[0])]
    others = [column for column in columns.values() if not is_encoded(column[0])]
    refuse_missing(columns)
    if len(chosen) != 1 or len(others) != 1:
        raise CannotHold("other columns than an image and a label")
    return chosen[0], others[0]


def write_words(folder: Path, columns: Columns) -> str:
    """Images of words and their texts."""
    images, labels = pick_pair(columns)
    if not isinstance(labels[0], str):
        raise CannotHold("labels that are no text")
    entries = [(b"num-samples", b"%d" % COUNT)]
    for row, (image, label) in enumerate(zip(images, labels, strict=True), 1):
        entries += [(b"image-%09d" % row, image), (b"label-%09d" % row, label.encode())]
    return write_lmdb(folder, entries)


def write_datum(folder: Path, columns: Columns) -> str:
    """Caffe's messages."""
    images, labels = pick_pair(columns)
    if type(labels[0]) not in {int, bool} or any(type(label) not in {int, bool} for label in labels):
        raise CannotHold("labels that are no whole numbers")
    if any(not -(1 << 31) <= label < 1 << 31 for label in labels):
        raise CannotHold("numbers of 64 bits")
    entries = [
        (
            b"%08d" % row,
            b"\x22" + lmdb_layouts.varint(len(image)) + image + b"\x28" + lmdb_layouts.varint(label) + b"\x38\x01",
        )
        for row, (image, label) in enumerate(zip(images, labels, strict=True))
    ]
    return write_lmdb(folder, entries)


# ------------------------------------------------------------------------------------------------ RecordIO, tar


def write_recordio(folder: Path, columns: Columns) -> str:
    """A file as `im2rec` writes it: a header with one number, or with several, and an image."""
    images, labels = pick_pair(columns)
    content = b""
    for row, (image, label) in enumerate(zip(images, labels, strict=True)):
        array = to_array(label).astype("<f4").ravel()
        is_one = not isinstance(label, list | np.ndarray)
        head = struct.pack("<IfQQ", 0 if is_one else array.size, array[0] if is_one else 0.0, row, 0)
        payload = head + (b"" if is_one else array.tobytes()) + image
        content += struct.pack("<II", 0xCED7230A, len(payload)) + payload + b"\0" * (-len(payload) % 4)
    (folder / "case.rec").write_bytes(content)
    return str(folder / "case.rec")


_TAR_SUFFIXES: Final = frozenset({"jpg", "jpeg", "png", "webp", "cls", "txt", "json", "npy", "id", "index", "count"})


def write_tar(folder: Path, columns: Columns) -> str:
    """A shard as webdataset's writer makes it of `{"image.jpg": ..., "label.cls": ..., "meta.json": ...}`.

    A column whose name is a suffix that webdataset knows is a file of that suffix.
    """
    with tarfile.open(folder / "case.tar", "w") as archive:
        for number, row in enumerate(rows_of(columns)):
            for name, value in row.items():
                if value is None:
                    continue
                suffix, content = encode_file(value)
                member = tarfile.TarInfo(f"{number:04d}.{name if name in _TAR_SUFFIXES else f'{name}.{suffix}'}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return str(folder / "case.tar")


def encode_file(value: Any) -> tuple[str, bytes]:
    """The suffix and the bytes of a file with a value."""
    if isinstance(value, bytes):
        return ("jpg" if value[:2] == b"\xff\xd8" else "png" if value[:1] == b"\x89" else "bin"), value
    if isinstance(value, str):
        return "txt", value.encode()
    if isinstance(value, int | float):
        return "cls", str(value if not isinstance(value, bool) else int(value)).encode()
    if isinstance(value, np.ndarray):
        file = io.BytesIO()
        np.save(file, value)
        return "npy", file.getvalue()
    return "json", to_json(value).encode()


# ------------------------------------------------------------------------------------------------ MDS, LitData, beton


def write_mds(folder: Path, columns: Columns) -> str:
    """Shards of MosaicML Streaming."""
    refuse_missing(columns)
    encodings, values = {}, {}
    for name, column in columns.items():
        encodings[name], values[name] = encode_mds(column)
    samples = [*rows_of(values)]
    return str(written.write_mds(folder / "case.mds", encodings, samples))


def encode_mds(column: Column) -> tuple[tuple[str, int | None], list[bytes]]:
    """Encoding, fixed size, and encoded values of a column."""
    first = column[0]
    if isinstance(first, bytes):
        return ("jpeg" if is_jpeg(column) else "png" if is_encoded(first) else "bytes", None), list(column)
    if isinstance(first, str):
        return ("str", None), [value.encode() for value in column]
    if all(isinstance(value, bool | int) for value in column):
        return ("int", 8), [struct.pack("<q", value) for value in column]
    if all(isinstance(value, int | float) for value in column):
        return ("float64", 8), [struct.pack("<d", value) for value in column]
    try:
        arrays = [to_array(value) for value in column]
    except CannotHold:
        return ("json", None), [to_json(value).encode() for value in column]
    dtype = np.result_type(*(array.dtype for array in arrays if array.size))
    numbers = {"uint8": 8, "uint16": 16, "int64": 65, "float32": 34, "float64": 66}
    encoded = [
        bytes([numbers[dtype.name], array.ndim << 2, *array.shape]) + array.astype(dtype).tobytes() for array in arrays
    ]
    return ("ndarray", None), encoded


def write_litdata(folder: Path, columns: Columns) -> str:
    """Chunks of LitData, of dicts; lists of numbers are arrays, as lists would be leaves."""
    refuse_missing(columns)
    formats, leaves = encode_leaves(flatten(columns, "\0"))
    spec = json.dumps([1, describe_tree({name: column[0] for name, column in columns.items()})])
    return str(written.write_litdata(folder / "case.litdata", spec, formats, leaves))


def describe_tree(value: object) -> dict[str, Any]:
    """The specification of a tree of dicts."""
    if not isinstance(value, dict):
        return written.leaf()
    children = [describe_tree(each) for each in value.values()]
    return {"type": "builtins.dict", "context": json.dumps(list(value)), "children_spec": children}


def write_litdata_tuples(folder: Path, columns: Columns) -> str:
    """Chunks of LitData, of tuples."""
    refuse_missing(columns)
    formats, leaves = encode_leaves(columns)
    return str(written.write_litdata(folder / "case.litdata", written.tuple_spec(len(columns)), formats, leaves))


def encode_leaves(columns: Columns) -> tuple[list[str], list[tuple[bytes, ...]]]:
    """Formats of columns, and the encoded values of each record."""
    encoded = [encode_leaf(column) for column in columns.values()]
    return [name for name, _ in encoded], [*zip(*(values for _, values in encoded), strict=True)]


def encode_leaf(column: Column) -> tuple[str, list[bytes]]:
    """Format and encoded values of a column."""
    first = column[0]
    if isinstance(first, bytes):
        return "jpeg" if is_jpeg(column) else "bytes", list(column)
    if isinstance(first, str):
        return "str", [value.encode() for value in column]
    if all(isinstance(value, bool) for value in column):
        return "boolean", [bytes([value]) for value in column]
    if all(isinstance(value, int) for value in column):
        return "int", [struct.pack("<q", value) for value in column]
    if all(isinstance(value, int | float) for value in column):
        return "float", [struct.pack("<d", value) for value in column]
    if isinstance(first, dict):
        raise CannotHold("dicts in tuples")
    arrays = [to_array(value) for value in column]
    numbers = {"uint8": 4, "uint16": 5, "int64": 3, "float32": 9, "float64": 10}
    dtype = np.result_type(*(array.dtype for array in arrays if array.size))
    heads = [struct.pack(f"<{2 + array.ndim}I", numbers[dtype.name], array.ndim, *array.shape) for array in arrays]
    return "numpy", [head + array.astype(dtype).tobytes() for head, array in zip(heads, arrays, strict=True)]


def write_beton(folder: Path, columns: Columns) -> str:
    """A file of FFCV: images are `RGBImageField`, other bytes and texts have no field but JSON."""
    refuse_missing(columns)
    fields, values = {}, {}
    for name, column in columns.items():
        if len(name.encode()) > 16:
            raise CannotHold("names of more than 16 bytes")
        fields[name], values[name] = encode_beton(column)
    return str(written.write_beton(folder / "case.beton", fields, [*rows_of(values)]))


def encode_beton(column: Column) -> tuple[tuple[int, bytes], list[Any]]:
    """Type, arguments and values of a field."""
    first = column[0]
    if isinstance(first, bytes):
        return (written.IMAGE if is_jpeg(column) else written.BYTES, b""), list(column)
    if all(isinstance(value, int) for value in column):
        return (written.INT, b""), [int(value) for value in column]
    if all(isinstance(value, int | float) for value in column):
        return (written.FLOAT, b""), list(column)
    if isinstance(first, str):
        raise CannotHold("texts")
    if isinstance(first, np.ndarray) and first.dtype == np.uint8 and first.ndim == 3 and first.shape[2] == 3:
        return (written.IMAGE, b""), list(column)
    try:
        arrays = [to_array(value) for value in column]
        if len({array.shape for array in arrays}) == 1 and arrays[0].ndim:
            return (written.ARRAY, written.array_arguments(arrays[0].dtype.name, arrays[0].shape)), arrays
    except CannotHold:
        pass
    return (written.JSON, b""), [to_json(value).encode() + b"\0" for value in column]


# ------------------------------------------------------------------------------------------------ TFRecord, MongoDB


def write_tfrecord(folder: Path, columns: Columns) -> str:
    """Records of `tf.train.Example`: dicts are names with a slash, arrays of bytes are bytes, other arrays numbers."""
    records = [
        written.example({name: to_feature(value) for name, value in row.items()})
        for row in rows_of(flatten(columns, "/"))
    ]
    return str(written.write_tfrecord(folder / "case.tfrecord", records))


def to_feature(value: Any) -> list[Any]:
    """The values of a feature."""
    if value is None:
        return []
    if isinstance(value, bytes | str):
        return [value.encode() if isinstance(value, str) else value]
    if isinstance(value, np.ndarray) and value.dtype.itemsize < 4:
        return [value.tobytes()]
    if isinstance(value, list) and value and isinstance(value[0], str):
        return [each.encode() for each in value]
    array = to_array(value).ravel()
    return [float(each) if array.dtype.kind == "f" else int(each) for each in array]


@dataclass(frozen=True)
class Unstored:
    """Documents that the test server does not take, and the URL of an empty collection."""

    url: str
    documents: list[dict[str, Any]]


def write_mongodb(folder: Path, columns: Columns) -> str | Unstored:
    """Documents of a collection."""
    from tests.stores.mongo.collections_of_documents import open_database

    server = _mongo(open_database)
    name = f"c{next(_NUMBERS)}"
    documents = [to_lists(row) for row in rows_of(columns)]
    if any(map(is_refused, documents)):
        return Unstored(server.url(name), [{"_id": number, **each} for number, each in enumerate(documents)])
    server.insert(documents, name)
    return str(server.url(name))


def is_refused(value: object, *, in_list: bool = False) -> bool:
    """Whether the test server refuses a value, which MongoDB takes: lists in lists, NaN, names with dots."""
    if isinstance(value, dict):
        return any("." in name for name in value) or any(map(is_refused, value.values()))
    if isinstance(value, list):
        return in_list or any(is_refused(each, in_list=True) for each in value)
    return isinstance(value, float) and math.isnan(value)


def write_gridfs(folder: Path, columns: Columns) -> str:
    """Files of GridFS with the image, and the other values as their metadata."""
    from tests.stores.mongo.collections_of_documents import new_id, open_database

    server = _mongo(open_database)
    bucket = f"c{next(_NUMBERS)}"
    chosen = [name for name, column in columns.items() if any(map(is_encoded, column))]
    if len(chosen) != 1 or any(value is None for value in columns[chosen[0]]):
        raise CannotHold("other bytes than one image")
    files, chunks = [], []
    for number, row in enumerate(rows_of(columns)):
        content, key = row.pop(chosen[0]), new_id()
        head = {"_id": key, "filename": f"filename {number}", "length": len(content), "chunkSize": 1 << 18}
        files.append({**head, "metadata": to_lists(row)} if row else head)
        chunks.append({"_id": key, "files_id": key, "n": 0, "data": content})
    if any(map(is_refused, files)):
        raise CannotHold("this, on the test server")
    server.insert(files, f"{bucket}.files")
    server.insert(chunks, f"{bucket}.chunks")
    return str(server.url(bucket, "gridfs"))


_OPENED: Final[list[Any]] = []
_NUMBERS: Final = iter(range(1 << 30))


def _mongo(open_database: Any) -> Any:
    """The database of this process; it is dropped with its server."""
    if not _OPENED:
        context = open_database()
        _OPENED.append(context.__enter__())
        atexit.register(context.__exit__, None, None, None)
    return _OPENED[0]
