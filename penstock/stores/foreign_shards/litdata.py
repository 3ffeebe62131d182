"""LitData's folders of chunks (``litdata.optimize``), read where they are.

::

    index.json      chunks: files, counts; config: data_format (encodings of the leaves), data_spec (their tree)
    chunk           see :mod:`.foreign_shards.sample_shards`; each sample begins with the sizes of all its leaves

    of Zstandard    batch     "LDFZ01" | count, rows of a frame, frames | offset of each sample and of the end, from 0
                              | frames: first sample, samples, offset, bytes compressed, bytes | frames of Zstandard
                    sample    an ordinary chunk, each sample one frame of Zstandard

Such chunks are written out uncompressed once (:mod:`penstock.stores.common.decompressed`): each frame to the number of
bytes that it declares, all of them to at most 4 GiB, which the 32-bit offsets can address.
Source: LitData's writer, serializers and tree specification. Nothing is unpickled: a leaf of pickles is refused.
"""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Final, Literal

import numpy as np

from penstock.errors import ArgumentError
from penstock.fields.roles import Candidate, Stated, choose_roles
from penstock.sample import Field
from penstock.stores.common.compression import decompress_chunks
from penstock.stores.fields.values import (
    ValueReader,
    make_array,
    make_scalar,
    read_boolean,
    read_bytes,
    read_pil,
    read_text,
)
from penstock.stores.foreign_shards.sample_shards import (
    SampleColumn,
    SampleShard,
    SampleShardStore,
    ShardFolder,
    get_dtype,
    read_shaped_array,
)
from penstock.stores.foreign_shards.shard_index import check_extent, join_inside

__all__ = ["LitDataStore"]

_TENSOR_DTYPES: Final[Mapping[int, str]] = {
    **dict.fromkeys((0, 1), "float32"),
    **dict.fromkeys((2, 3), "float64"),
    **dict.fromkeys((8, 9), "float16"),
    11: "uint8",
    12: "int8",
    **dict.fromkeys((13, 14), "int16"),
    **dict.fromkeys((15, 16), "int32"),
    **dict.fromkeys((17, 18), "int64"),
    19: "bool",
    20: "uint16",
}
_ARRAY_DTYPES: Final[Mapping[int, str]] = {
    **dict(enumerate(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"))),
    8: "float16",
    9: "float32",
    10: "float64",
    13: "bool",
}
_FILE_FORMATS: Final = frozenset({"bytes", "file", "video", "audio", "nifti", "mesh", "pdf"})
_MAX_DEPTH: Final = 32
_ITEM_LOADERS: Final = ("PyTreeLoader", "TokensLoader")
_PREFIX: Final = struct.Struct("<8sHHIII")  # magic, version, flags, samples, samples in a frame, frames
_MAGIC: Final = b"LDFZ01\0\0"
_FRAME: Final = np.dtype(
    [("first", "<u4"), ("count", "<u4"), ("offset", "<u8"), ("compressed_nbytes", "<u4"), ("nbytes", "<u4")]
)
_MOST_NBYTES: Final = 1 << 32


class LitDataStore(SampleShardStore):
    """A folder that ``litdata.optimize`` wrote.

    Parameters
    ----------
    path : str, path or Location
        The folder with ``index.json``. Of a data set in parts, one part.
    image, label, key : str, optional
        The leaves of the image, the label and the keys; as for :class:`~.mds.MdsStore`. Leaves of
        a dict have its keys as names (``meta.size`` inside another dict). Of a tuple such as ``(image, label)``, the
        only image is ``image``, the only integer beside it ``label``, and others have their numbers as names.
    fields : sequence of str, optional
        The leaves that are read, by default all; needed where one cannot be read.
    cache : str or path, optional
        The folder for decompressed copies of compressed chunks.
    cache_nbytes : int, optional
        The most bytes of these copies. See :class:`~penstock.stores.common.decompressed.DecompressedCopies`.

    Raises
    ------
    StoreFormatError
        If ``index.json`` is not valid.
    ArgumentError
        If the folder has parts, the chunks are encrypted, or a leaf cannot be read (a pickle, an unknown encoding).

    Notes
    -----
    Encoded images are views, as they were written. Images of encoding ``pil`` are pixels: HWC arrays. Chunks of tokens
    (``TokensLoader``) have one record for each item that was written, with the field ``tokens``. Chunks have no
    checksums. Compressed chunks are decompressed once (:mod:`penstock.stores.common.decompressed`).
    """

    kind: ClassVar[str] = "litdata"

    @staticmethod
    def is_index(head: bytes) -> bool:
        """Return whether the first bytes of a file are those of LitData's index."""
        return b'"chunks"' in head and b'"chunk_size"' in head and b'"shards"' not in head

    @staticmethod
    def parse_index(folder: Path, index: Mapping[str, Any]) -> ShardFolder:
        """Parse LitData's index."""
        chunks, config = index["chunks"], index["config"]
        if not isinstance(chunks, list) or not isinstance(config, dict):
            raise ValueError("chunks must be a list, and config an object")  # noqa: TRY004  # of a file, not an argument
        if config.get("encryption"):
            raise ArgumentError("the chunks are encrypted, which is not read; decrypt them with litdata first")
        loader = config.get("item_loader") or _ITEM_LOADERS[0]
        if loader not in _ITEM_LOADERS:
            raise ValueError(f"item_loader must be one of {', '.join(_ITEM_LOADERS)}, got {loader!r:.100}")
        formats = config["data_format"]
        if not isinstance(formats, list) or not formats or not all(isinstance(each, str) for each in formats):
            raise ValueError(f"data_format must be a list of texts, got {formats!r:.200}")
        shards = [_parse_chunk(folder, chunk, config) for chunk in chunks]
        if loader != _ITEM_LOADERS[0]:
            if len(formats) != 1:
                raise ValueError(f"chunks of tokens must have one format, got {formats!r:.200}")
            return ShardFolder(shards, [_make_column("tokens", formats[0])], has_sizes=False)
        names = _name_leaves(config["data_spec"], formats)
        return ShardFolder(shards, [_make_column(*leaf) for leaf in zip(names, formats, strict=True)])


def _parse_chunk(folder: Path, chunk: Mapping[str, Any], config: Mapping[str, Any]) -> SampleShard:
    count, nbytes = check_extent("a chunk", chunk["chunk_size"], chunk["chunk_bytes"])
    path = join_inside(folder, chunk["filename"])
    compression = config.get("compression")
    if not compression:
        return SampleShard(path, count, nbytes)
    if not isinstance(compression, str) or compression.partition(":")[0] != "zstd":
        raise ValueError(f"compression must be zstd, got {compression!r:.100}")
    level = config.get("compression_level") or "chunk"
    if level == "chunk":
        return SampleShard(path, count, nbytes, "zstd")
    if level not in {"batch", "sample"}:
        raise ValueError(f"compression_level must be chunk, batch or sample, got {level!r:.100}")
    return SampleShard(path, count, None, "zstd", expand_frames if level == "batch" else expand_samples)


def _name_leaves(spec: object, formats: Sequence[str]) -> list[str]:
    """A name for each leaf of the tree of a sample."""
    if not isinstance(spec, str):
        raise ValueError(f"data_spec must be a text, got {type(spec).__name__}")  # noqa: TRY004  # of a file
    version, tree = json.loads(spec)
    if version != 1:
        raise ValueError(f"data_spec must be of version 1, got {version!r:.100}")
    paths = list(_walk(tree, (), _MAX_DEPTH))
    if len(paths) != len(formats):
        raise ValueError(f"data_spec has {len(paths)} leaves, and data_format {len(formats)}")
    if any(isinstance(step, str) for path in paths for step in path):
        names = [".".join(map(str, path)) for path in paths]
    else:
        names = _name_positions(paths, formats)
    if len(set(names)) < len(names) or not all(names):
        raise ValueError(f"leaves must have different names, got {names!r:.200}")
    return names


def _name_positions(paths: Sequence[tuple[str | int, ...]], formats: Sequence[str]) -> list[str]:
    """Names of the leaves of tuples: ``image`` and ``label`` where only one can be meant, else numbers."""
    readers = [_find_reader(encoding)[0] or ValueReader(read_bytes) for encoding in formats]
    candidates = [
        Candidate(".".join(map(str, path)) or "value", Field(reader.kind or "json"), reader.read is read_pil)
        for path, reader in zip(paths, readers, strict=True)
    ]
    return [*choose_roles(candidates, Stated(fields=())).fields]


def _walk(node: Mapping[str, Any], path: tuple[str | int, ...], depth: int) -> Iterator[tuple[str | int, ...]]:
    """The paths of the leaves: keys of dicts, numbers in tuples and lists."""
    children = node["children_spec"]
    if node["type"] is None:
        if children:
            raise ValueError("a leaf of data_spec has children")
        yield path
        return
    if depth == 0:
        raise ValueError(f"data_spec must have at most {_MAX_DEPTH} levels")
    context = node.get("context")
    context = json.loads(context) if isinstance(context, str) else context
    if isinstance(context, dict):  # a defaultdict: the keys, and what makes its values, which is not called
        context = context.get("dict_context")
    names: Sequence[object] = range(len(children))
    if str(node["type"]).lower().endswith("dict"):
        if not isinstance(context, list) or len(context) != len(children):
            raise ValueError("a dict of data_spec must have as many keys as children")
        names = [str(key) for key in context]
    for name, child in zip(names, children, strict=True):
        yield from _walk(child, (*path, name), depth - 1)  # type: ignore[arg-type]  # texts, or numbers of a range


def _make_column(name: str, encoding: str) -> SampleColumn:
    reader, refusal = _find_reader(encoding[:200])
    return SampleColumn(name, encoding[:200], replace(reader, nbytes=None) if reader is not None else None, refusal)


def _find_reader(encoding: str) -> tuple[ValueReader | None, str]:
    """Return the reader of an encoding, or why there is none."""
    name, _, argument = encoding.partition(":")
    if name in {"jpeg", "image", "tiff"}:
        return ValueReader(read_bytes, "image"), ""
    if name in _FILE_FORMATS:
        return ValueReader(read_bytes, "" if name in {"bytes", "file"} else "bytes"), ""
    if name in {"pickle", "graph"}:
        return None, "it holds pickles, which could run code when they are read"
    if name in {"no_header_tensor", "no_header_numpy"}:
        dtypes = _TENSOR_DTYPES if name == "no_header_tensor" else _ARRAY_DTYPES
        if re.fullmatch("[0-9]{1,3}", argument) and int(argument) in dtypes:
            return make_array(np.dtype(dtypes[int(argument)])), ""
        return None, f"arrays of its type {argument!r} are not read"
    reader = _READERS.get(name)
    return reader, "" if reader is not None else f"its encoding {encoding!r} is unknown"


def _read_array(content: memoryview, order: Literal["little", "big"], dtypes: Mapping[int, str]) -> object:
    """Return an array behind the number of its dtype, the number of its axes, and their lengths, 32 bits each."""
    if len(content) < 8:
        raise ValueError(f"its {len(content)} bytes are shorter than the header of an array")
    number, axes = (int.from_bytes(content[at : at + 4], order) for at in (0, 4))
    return read_shaped_array(content, 8, get_dtype(number, dtypes), axes, 4, order)


_READERS: Final[Mapping[str, ValueReader]] = {
    "int": make_scalar("int64"),
    "float": make_scalar("float64"),
    "bool": ValueReader(read_boolean, "int"),
    "boolean": ValueReader(read_boolean, "int"),
    "str": ValueReader(read_text, "text"),
    "text": ValueReader(read_text, "text"),
    "pil": ValueReader(read_pil),
    "tensor": ValueReader(partial(_read_array, order="big", dtypes=_TENSOR_DTYPES)),
    "numpy": ValueReader(partial(_read_array, order="little", dtypes=_ARRAY_DTYPES)),
}


def expand_frames(file: BinaryIO) -> Iterator[bytes]:
    """An ordinary chunk of the samples of a chunk that is compressed in batches.

    Raises ValueError if it is damaged.
    """
    content = file.read()
    if len(content) < _PREFIX.size:
        raise ValueError("its header is truncated")
    magic, version, _, count, _, frame_count = _PREFIX.unpack_from(content)
    if magic != _MAGIC or version != 1:
        raise ValueError("it is no chunk that is compressed in batches, or of a later version")
    begin = _PREFIX.size + 4 * (count + 1)
    if begin + frame_count * _FRAME.itemsize > len(content):
        raise ValueError("its table is truncated")
    offsets = np.frombuffer(content, "<u4", count + 1, _PREFIX.size).astype(np.int64)
    frames = np.frombuffer(content, _FRAME, frame_count, begin)
    if frames["nbytes"].sum(dtype=np.int64) != offsets[-1]:
        raise ValueError("its frames and its samples do not have the same number of bytes")
    yield _make_head(offsets)
    for frame in frames:
        nbytes = int(frame["nbytes"])
        compressed = content[int(frame["offset"]) :][: int(frame["compressed_nbytes"])]
        frame_bytes = _decompress(compressed, nbytes)
        if len(frame_bytes) != nbytes:
            raise ValueError(f"a frame must have {nbytes} bytes, got {len(frame_bytes)}")
        yield frame_bytes


def expand_samples(file: BinaryIO) -> Iterator[bytes]:
    """An ordinary chunk of the samples of a chunk in which each sample is compressed.

    Raises ValueError if it is damaged.
    """
    content = file.read()
    count = int.from_bytes(content[:4], "little")
    if len(content) < 4 * count + 8:
        raise ValueError("its table is truncated")
    bounds = np.frombuffer(content, "<u4", count + 1, 4).astype(np.int64)
    samples, rest = [], _MOST_NBYTES
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        samples.append(_decompress(content[begin:end], rest))
        rest -= len(samples[-1])
    yield _make_head(np.cumsum([0, *map(len, samples)]))
    yield from samples


def _make_head(offsets: np.ndarray[tuple[int], np.dtype[np.int64]]) -> bytes:
    """The number of samples, and their offsets in a chunk whose samples follow."""
    head_nbytes = 4 * len(offsets) + 4
    if offsets[-1] + head_nbytes >= _MOST_NBYTES:
        raise ValueError(f"a chunk must have less than {_MOST_NBYTES} bytes")
    return struct.pack("<I", len(offsets) - 1) + (offsets + head_nbytes).astype("<u4").tobytes()


def _decompress(compressed: bytes, most_nbytes: int) -> bytes:
    pieces, written = [], 0
    for piece in decompress_chunks(io.BytesIO(compressed), "zstd"):
        written += len(piece)
        if written > most_nbytes:
            raise ValueError(f"a frame has more than {most_nbytes} bytes")
        pieces.append(piece)
    return b"".join(pieces)
