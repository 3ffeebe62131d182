"""Small writers of formats whose own packages are not installed: TFRecord, RecordIO, MDS, LitData, beton.

They follow the descriptions of the formats, so that tests can write large, odd and damaged containers. The containers
of the genuine packages are read by `tests/foreign`.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _native

Value = bytes | float | int


def write_anew(path: Path, content: bytes) -> None:
    """Write a file in place of another one; maps of the old one stay as they are."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)


# ------------------------------------------------------------------------------------------------ TFRecord


def varint(value: int) -> bytes:
    """A number in groups of seven bits; a negative one as 64 bits."""
    value &= (1 << 64) - 1
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def field(number: int, content: bytes) -> bytes:
    """A field of bytes, or of a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def feature(values: Sequence[Value], *, packed: bool = True) -> bytes:
    """A `tf.train.Feature` of values of one type."""
    if not values:
        return b""
    if isinstance(values[0], bytes):
        return field(1, b"".join(field(1, value) for value in values if isinstance(value, bytes)))
    if isinstance(values[0], float):
        floats = [struct.pack("<f", value) for value in values]
        return field(2, field(1, b"".join(floats)) if packed else b"".join(b"\x0d" + each for each in floats))
    ints = [varint(int(value)) for value in values]
    return field(3, field(1, b"".join(ints)) if packed else b"".join(b"\x08" + each for each in ints))


def example(features: Mapping[str, Sequence[Value]], *, packed: bool = True) -> bytes:
    """A serialised `tf.train.Example`."""
    entries = (
        field(1, field(1, name.encode()) + field(2, feature(values, packed=packed)))
        for name, values in features.items()
    )
    return field(1, b"".join(entries))


def mask(content: bytes) -> bytes:
    """The masked CRC-32C of some bytes."""
    crc = _native.crc32c(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def frame(record: bytes) -> bytes:
    """A record as it lies in a file."""
    length = struct.pack("<Q", len(record))
    return length + mask(length) + record + mask(record)


def write_tfrecord(path: Path, records: Iterable[bytes], compression: str = "") -> Path:
    """A file of records."""
    content = b"".join(map(frame, records))
    compress: dict[str, Callable[[bytes], bytes]] = {"": bytes, "gzip": gzip.compress, "zlib": zlib.compress}
    write_anew(path, compress[compression](content))
    return path


# ------------------------------------------------------------------------------------------------ RecordIO

RECORDIO_MAGIC = struct.pack("<I", 0xCED7230A)


def recordio_frame(payload: bytes, part: int = 0) -> bytes:
    """One frame; part 0 is a whole record, 1 the first part of one, 2 a middle one, 3 the last one."""
    return RECORDIO_MAGIC + struct.pack("<I", part << 29 | len(payload)) + payload + bytes(-len(payload) % 4)


def recordio_frames(payload: bytes) -> bytes:
    """The frames of a record, which is divided at each multiple of 4 bytes where it contains the magic number."""
    pieces, begin = [], 0
    for at in range(0, len(payload) - 3, 4):
        if payload[at : at + 4] == RECORDIO_MAGIC:
            pieces.append(payload[begin:at])
            begin = at + 4
    pieces.append(payload[begin:])
    parts = [0] if len(pieces) == 1 else [1, *[2] * (len(pieces) - 2), 3]
    return b"".join(map(recordio_frame, pieces, parts))


def recordio_image(image: bytes, label: float | Sequence[float] = 0.0, number: int = 0, second: int = 0) -> bytes:
    """A payload with the header of an image, as `mxnet.recordio.pack` makes it."""
    if isinstance(label, Sequence):
        head = struct.pack("<IfQQ", len(label), 0.0, number, second)
        return head + np.array(label, "<f4").tobytes() + image
    return struct.pack("<IfQQ", 0, label, number, second) + image


def write_recordio(path: Path, payloads: Iterable[bytes], *, has_index: bool = True) -> Path:
    """A `.rec` file of records, and the `.idx` file of their numbers beside it."""
    content, lines = bytearray(), []
    for number, payload in enumerate(payloads):
        lines.append(f"{number}\t{len(content)}\n")
        content += recordio_frames(payload)
    write_anew(path, bytes(content))
    if has_index:
        write_anew(path.with_suffix(".idx"), "".join(lines).encode())
    return path


# ------------------------------------------------------------------------------------------------ MDS and LitData


def shard(samples: Sequence[bytes], head: bytes = b"") -> bytes:
    """Samples behind their number and offsets."""
    begin = 8 + 4 * len(samples) + len(head)
    offsets = np.cumsum([begin, *map(len, samples)]).astype("<u4")
    return struct.pack("<I", len(samples)) + offsets.tobytes() + head + b"".join(samples)


def compress_zstd(content: bytes) -> bytes:
    """One frame of Zstandard."""
    return bytes(pa.Codec("zstd").compress(content, asbytes=True))


def pil(width: int, height: int, mode: str, raw: bytes) -> bytes:
    """An image as both packages store Pillow's."""
    return struct.pack("<III", width, height, len(mode)) + mode.encode() + raw


def write_mds(
    folder: Path,
    columns: Mapping[str, tuple[str, int | None]],
    samples: Sequence[Mapping[str, bytes]],
    *,
    per_shard: int = 1000,
    compression: str | None = None,
    hashes: Sequence[str] = (),
    edit: Callable[[dict[str, Any]], object] | None = None,
) -> Path:
    """A folder of shards; `columns`: encoding and fixed size by name; `samples`: encoded values by name."""
    folder.mkdir(parents=True, exist_ok=True)
    shards: list[dict[str, Any]] = []
    compress: dict[str, Callable[[bytes], bytes]] = {
        "zstd": compress_zstd,
        "gz": gzip.compress,
        "snappy": lambda content: bytes(pa.Codec("snappy").compress(content, asbytes=True)),
    }
    for start in range(0, max(len(samples), 1), per_shard):
        part = samples[start : start + per_shard]
        encoded = []
        for sample in part:
            sizes = [len(sample[name]) for name, (_, nbytes) in columns.items() if nbytes is None]
            encoded.append(struct.pack(f"<{len(sizes)}I", *sizes) + b"".join(sample[name] for name in columns))
        content = shard(encoded, b'{"format": "mds"}')
        names = [f"shard.{len(shards):05}.mds", f"shard.{len(shards):05}.mds.{compression}"]
        stored = content if compression is None else compress[compression.partition(":")[0]](content)
        write_anew(folder / names[compression is not None], stored)
        data = {
            name: {
                "basename": name,
                "bytes": len(each),
                "hashes": {h: hashlib.new(h, each).hexdigest() for h in hashes},
            }
            for name, each in zip(names, (content, stored), strict=True)
        }
        shards.append(
            {
                "column_encodings": [encoding for encoding, _ in columns.values()],
                "column_names": list(columns),
                "column_sizes": [nbytes for _, nbytes in columns.values()],
                "compression": compression,
                "format": "mds",
                "hashes": list(hashes),
                "raw_data": data[names[0]],
                "samples": len(part),
                "size_limit": 1 << 26,
                "version": 2,
                "zip_data": data[names[1]] if compression is not None else None,
            }
        )
    index: dict[str, Any] = {"shards": shards, "version": 2}
    if edit is not None:
        edit(index)
    write_anew(folder / "index.json", json.dumps(index, sort_keys=True).encode())
    return folder


def leaf() -> dict[str, Any]:
    """A leaf of a tree specification."""
    return {"type": None, "context": None, "children_spec": []}


def dict_spec(names: Sequence[str]) -> str:
    """The specification of a dict of leaves."""
    tree = {"type": "builtins.dict", "context": json.dumps(list(names)), "children_spec": [leaf() for _ in names]}
    return json.dumps([1, tree])


def tuple_spec(count: int) -> str:
    """The specification of a tuple of leaves."""
    tree = {"type": "builtins.tuple", "context": "null", "children_spec": [leaf() for _ in range(count)]}
    return json.dumps([1, tree])


def write_litdata(
    folder: Path,
    spec: str,
    formats: Sequence[str],
    samples: Sequence[Sequence[bytes]],
    *,
    per_chunk: int = 1000,
    compression: str | None = None,
    level: str | None = None,
    loader: str = "PyTreeLoader",
    edit: Callable[[dict[str, Any]], object] | None = None,
) -> Path:
    """A folder of chunks; `samples`: the encoded leaves of each."""
    folder.mkdir(parents=True, exist_ok=True)
    chunks: list[dict[str, Any]] = []
    for start in range(0, max(len(samples), 1), per_chunk):
        part = samples[start : start + per_chunk]
        encoded = [
            (struct.pack(f"<{len(s)}I", *map(len, s)) if loader == "PyTreeLoader" else b"") + b"".join(s) for s in part
        ]
        content = shard(encoded)
        stored = content
        if compression is not None:
            stored = {"batch": batch_frames, "sample": sample_frames}.get(
                level or "", lambda e: compress_zstd(shard(e))
            )(encoded)
        name = f"chunk-0-{len(chunks)}.{'zstd.' if stored is not content and level is None else ''}bin"
        write_anew(folder / name, stored)
        chunks.append({"chunk_bytes": len(content), "chunk_size": len(part), "dim": None, "filename": name})
    config: dict[str, Any] = {
        "chunk_bytes": 1 << 26,
        "chunk_size": None,
        "compression": compression,
        "compression_level": level,
        "data_format": list(formats),
        "data_spec": spec,
        "encryption": None,
        "item_loader": loader,
    }
    index = {"chunks": chunks, "config": config, "updated_at": "0"}
    if edit is not None:
        edit(index)
    write_anew(folder / "index.json", json.dumps(index).encode())
    return folder


def batch_frames(samples: Sequence[bytes], rows: int = 3) -> bytes:
    """A chunk whose samples are compressed in batches."""
    offsets = np.cumsum([0, *map(len, samples)]).astype("<u4")
    parts = [b"".join(samples[start : start + rows]) for start in range(0, len(samples), rows)]
    frames = [compress_zstd(part) for part in parts]
    at = 24 + offsets.nbytes + 24 * len(frames)
    table = b""
    for number, (part, compressed) in enumerate(zip(parts, frames, strict=True)):
        count = min(rows, len(samples) - number * rows)
        table += struct.pack("<IIQII", number * rows, count, at, len(compressed), len(part))
        at += len(compressed)
    head = struct.pack("<8sHHIII", b"LDFZ01\0\0", 1, 0, len(samples), rows, len(frames))
    return head + offsets.tobytes() + table + b"".join(frames)


def sample_frames(samples: Sequence[bytes]) -> bytes:
    """A chunk in which each sample is compressed."""
    return shard([compress_zstd(sample) for sample in samples])


# ------------------------------------------------------------------------------------------------ beton

FLOAT, INT, IMAGE, BYTES, ARRAY, JSON, TENSOR, CUSTOM = 0, 1, 2, 3, 4, 5, 6, 255
BETON_METADATA: dict[int, Any] = {
    FLOAT: "<f8",
    INT: "<i8",
    IMAGE: np.dtype([("mode", "<u1"), ("width", "<u2"), ("height", "<u2"), ("data_ptr", "<u8")]),
    BYTES: np.dtype([("ptr", "<u8"), ("size", "<u8")]),
    ARRAY: "<u8",
    JSON: np.dtype([("ptr", "<u8"), ("size", "<u8")]),
    TENSOR: "<u8",
    CUSTOM: "<u8",
}


def array_arguments(dtype: str, shape: Sequence[int]) -> bytes:
    """The arguments of a field of arrays."""
    described = json.dumps(np.dtype(dtype).descr).encode()
    return struct.pack("<33Q", *shape, *[0] * (32 - len(shape)), len(described)) + described


def write_beton(
    path: Path,
    fields: Mapping[str, tuple[int, bytes]],
    samples: Sequence[Mapping[str, Any]],
    *,
    page_nbytes: int = 1 << 12,
) -> Path:
    """A file; `fields`: type and arguments by name; values: numbers, bytes (JPEG), or arrays (raw pixels)."""
    types = [kind for kind, _ in fields.values()]
    metadata_type = np.dtype([("", BETON_METADATA[kind]) for kind in types], align=True)
    metadata = np.zeros(len(samples), metadata_type)
    begin = 24 + 1041 * len(fields)
    data_begin = -(-(begin + metadata.nbytes) // page_nbytes) * page_nbytes
    pages, table = bytearray(), []
    for row, sample in enumerate(samples):
        for place, (name, (kind, _)) in enumerate(fields.items()):
            value = sample[name]
            if kind in {FLOAT, INT}:
                metadata[f"f{place}"][row] = value
                continue
            content = value.tobytes() if isinstance(value, np.ndarray) else bytes(value)
            where = data_begin + len(pages)
            entry = metadata[f"f{place}"][row : row + 1]
            if kind == IMAGE:
                raw = isinstance(value, np.ndarray)
                height, width = value.shape[:2] if raw else (1, 1)
                entry[0] = (int(raw), width, height, where)
            elif kind in {BYTES, JSON}:
                entry[0] = (where, len(content))
            else:
                entry[0] = where
            table.append((row, where, len(content)))
            pages += content
    descriptors = b"".join(
        struct.pack("<B16s1024s", kind, name.encode(), arguments) for name, (kind, arguments) in fields.items()
    )
    at = data_begin + len(pages)
    header = struct.pack("<HHIQQ", 2, len(fields), page_nbytes, len(samples), at)
    content = header + descriptors + metadata.tobytes()
    rows = np.array(table, "<u8").reshape(-1, 3)[::-1]  # not in the order of the places, as several workers leave them
    write_anew(path, content.ljust(data_begin, b"\0") + bytes(pages) + rows.tobytes())
    return path


def write_many(kind: str, folder: Path, count: int, nbytes: int = 0) -> str:
    """A store of many records of at least ``nbytes``, with the labels 0 to 999; returns its path."""
    images = ((b"\xff\xd8\xff%d" % i).ljust(nbytes, b".") for i in range(count))
    labels = [i % 1000 for i in range(count)]
    numbers = [struct.pack("<q", label) for label in labels]
    path = folder / f"many.{kind}"
    if kind == "tfrecord":
        features = zip(images, labels, range(count), strict=True)
        write_tfrecord(path, (example({"image": [i], "label": [n], "name": [b"%06d.jpg" % k]}) for i, n, k in features))
    elif kind == "recordio":
        path = path.with_suffix(".rec")
        write_recordio(path, (recordio_image(i, n, k) for i, n, k in zip(images, labels, range(count), strict=True)))
    elif kind == "beton":
        fields = {"image": (IMAGE, b""), "label": (INT, b"")}
        write_beton(path, fields, [{"image": i, "label": n} for i, n in zip(images, labels, strict=True)])
    elif kind == "mds":
        columns = {"image": ("jpeg", None), "label": ("int", 8)}
        samples = [{"image": i, "label": n} for i, n in zip(images, numbers, strict=True)]
        write_mds(path, columns, samples, per_shard=7000)
    else:
        spec = dict_spec(["image", "label"])
        write_litdata(path, spec, ("jpeg", "int"), list(zip(images, numbers, strict=True)), per_chunk=7000)
    return str(path)
