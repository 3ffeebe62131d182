"""MosaicML Streaming's MDS folders, read where they are; the format is that of version 2.

Source: the documentation of MosaicML Streaming, and its readers for the encodings of columns. Nothing is unpickled: a
column of pickles is refused by name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import xxhash

from penstock.errors import PenstockError
from penstock.stores.common.compression import CODECS
from penstock.stores.common.regular_file import open_regular
from penstock.stores.fields.values import (
    ValueReader,
    make_array,
    make_scalar,
    read_bytes,
    read_json,
    read_pil,
    read_text,
    view_array,
)
from penstock.stores.foreign_shards.sample_shards import (
    SampleColumn,
    SampleShard,
    SampleShardStore,
    ShardFolder,
    get_dtype,
    read_shaped_array,
)
from penstock.stores.foreign_shards.shard_index import check_extent, join_inside, read_index_json
from penstock.stores.location import Location
from penstock.stores.problems import Problem

__all__ = ["MdsStore"]

_VERSION: Final = 2
_SCALAR: Final = re.compile(r"u?int(?:8|16|32|64)|float(?:16|32|64)")
_ARRAY_DTYPES: Final[Mapping[int, str]] = {
    8: "uint8",
    9: "int8",
    16: "uint16",
    17: "int16",
    18: "float16",
    32: "uint32",
    33: "int32",
    34: "float32",
    64: "uint64",
    65: "int64",
    66: "float64",
}
"""Numbers by which an array names its dtype, where the column does not."""
_MAX_AXES: Final = 31


class MdsStore(SampleShardStore):
    """A folder that MosaicML Streaming's ``MDSWriter`` wrote.

    Parameters
    ----------
    path : str, path or Location
        The folder with ``index.json``. Of a data set in parts, one part.
    image, label, key : str, optional
        The columns of the image, the label and the keys; empty: there is none. By default they are found by what they
        hold and by their names (:mod:`penstock.fields.roles`). Without a column of keys, keys are the numbers of the
        rows.
    fields : sequence of str or mapping of str to str, optional
        The columns that are read, by default all, or fields and their columns; needed where one cannot be read.
    cache : str or path, optional
        The folder for decompressed copies of compressed shards.
    cache_nbytes : int, optional
        The most bytes of these copies. See :class:`~penstock.stores.common.decompressed.DecompressedCopies`.

    Raises
    ------
    StoreFormatError
        If ``index.json`` is not valid, or not of version 2.
    ArgumentError
        If the folder has parts, or a column cannot be read (a pickle, an unknown encoding).

    Notes
    -----
    Encoded images are views, as they were written. Images of encoding ``pil`` are pixels: HWC arrays. Samples have no
    checksums; :meth:`check` compares the hashes of the shards, where the index has them. Compressed shards are
    decompressed once (:mod:`penstock.stores.common.decompressed`).
    """

    kind: ClassVar[str] = "mds"

    @staticmethod
    def is_index(head: bytes) -> bool:
        """Return whether the first bytes of a file are those of an index of MDS."""
        return b'"shards"' in head and re.search(rb'"format"\s*:\s*"mds"', head) is not None

    @staticmethod
    def parse_index(folder: Path, index: Mapping[str, Any]) -> ShardFolder:
        """Parse the index of MDS."""
        if index.get("version") != _VERSION:
            raise ValueError(f"version must be {_VERSION}, got {index.get('version')!r:.100}")
        listed = index["shards"]
        if not isinstance(listed, list) or not listed:
            raise ValueError("shards must be a list of at least one")
        first = listed[0]
        named = [first["column_names"], first["column_encodings"], first["column_sizes"]]
        if not all(isinstance(each, list) and len(each) == len(named[0]) for each in named) or not named[0]:
            raise ValueError("columns must have as many names as encodings and sizes")
        shards = []
        for number, shard in enumerate(listed):
            if [shard["column_names"], shard["column_encodings"], shard["column_sizes"]] != named:
                raise ValueError(f"shard {number} has other columns than the first one")
            shards.append(_parse_shard(folder, number, shard))
        if len(set(map(str, named[0]))) < len(named[0]) or not all(isinstance(name, str) for name in named[0]):
            raise ValueError(f"names of columns must be different texts, got {named[0]!r:.200}")
        return ShardFolder(shards, [_make_column(*column) for column in zip(*named, strict=True)])

    @classmethod
    def check(
        cls, location: Location, progress: Callable[[int, int], None] | None = None, **options: object
    ) -> Iterator[Problem]:
        """Everything that is wrong: shards whose hashes differ from the index, and records that cannot be read."""
        try:
            index = read_index_json(location)
            shards = [shard for shard in index.get("shards", ()) if isinstance(shard, dict)]
        except (PenstockError, TypeError):
            shards = []  # reported when the store is opened
        for shard in shards:
            yield from _check_hashes(location.local_path, shard)
        yield from super().check(location, progress, **options)


def _parse_shard(folder: Path, number: int, shard: Mapping[str, Any]) -> SampleShard:
    if shard["format"] != "mds" or shard["version"] != _VERSION:
        raise ValueError(f"shard {number} must be of format mds, version {_VERSION}")
    raw = shard["raw_data"]
    count, nbytes = check_extent(f"shard {number}", shard["samples"], raw["bytes"])
    path = join_inside(folder, raw["basename"])
    compression = shard["compression"]
    if not compression or path.exists():
        return SampleShard(path, count, nbytes)
    codec = str(compression).partition(":")[0]
    if codec not in CODECS:
        raise ValueError(f"compression must be one of {', '.join(CODECS)}, got {compression!r:.100}")
    return SampleShard(join_inside(folder, shard["zip_data"]["basename"]), count, nbytes, codec)


def _make_column(name: str, encoding: object, nbytes: object) -> SampleColumn:
    text = str(encoding)[:200]
    reader, refusal = _find_reader(text)
    if nbytes is not None and (type(nbytes) is not int or not 0 <= nbytes < 1 << 32):
        raise ValueError(f"column {name!r:.200} cannot have values of {nbytes!r:.100} bytes")
    stated = nbytes or None
    if reader is None and stated is not None:
        raise ValueError(f"column {name!r:.200} has an unknown encoding of fixed size, {text!r}")
    if reader is not None and reader.nbytes != stated:
        raise ValueError(f"column {name!r:.200} of encoding {text!r} cannot have values of {nbytes} bytes")
    return SampleColumn(name, text, reader, refusal)


def _find_reader(encoding: str) -> tuple[ValueReader | None, str]:
    """Return the reader of an encoding, or why there is none."""
    name, _, arguments = encoding.partition(":")
    if name == "ndarray":
        return _make_array_reader(arguments), ""
    if _SCALAR.fullmatch(name):
        return make_scalar(name), ""
    if name == "pkl":
        return None, "it holds pickles, which could run code when they are read"
    reader = _READERS.get(name)
    return reader, "" if reader is not None else f"its encoding {encoding!r} is unknown"


def _make_array_reader(arguments: str) -> ValueReader:
    """Make the reader of ``ndarray``, ``ndarray:dtype`` or ``ndarray:dtype:axis,axis``."""
    dtype_name, _, shape_text = arguments.partition(":")
    if dtype_name and not _SCALAR.fullmatch(dtype_name):
        raise ValueError(f"arrays must be of a number type, got {dtype_name!r}")
    dtype = np.dtype(dtype_name) if dtype_name else None
    shape = tuple(int(axis) for axis in shape_text.split(",")) if shape_text else None
    if shape is not None and (len(shape) > _MAX_AXES or not all(0 < axis < 1 << 32 for axis in shape)):
        raise ValueError(f"arrays cannot have the shape {shape_text!r}")
    if dtype is not None and shape is not None:
        return make_array(dtype, shape)

    def read(content: memoryview) -> object:
        found, at = (dtype, 0) if dtype is not None else (get_dtype(content[0], _ARRAY_DTYPES), 1)
        if shape is not None:
            return view_array(content[at:], found, shape)
        return read_shaped_array(content, at + 1, found, content[at] >> 2, 1 << (content[at] & 3))

    return ValueReader(read)


def _read_integer(content: memoryview) -> int:
    return int(str(content[:100], "utf-8"))


def _read_decimal(content: memoryview) -> float:
    return float(str(content[:1000], "utf-8"))


_READERS: Final[Mapping[str, ValueReader]] = {
    "bytes": ValueReader(read_bytes),
    "str": ValueReader(read_text, "text"),
    "int": make_scalar("int64"),
    "str_int": ValueReader(_read_integer, "int"),
    "str_float": ValueReader(_read_decimal, "float"),
    "str_decimal": ValueReader(read_text, "text"),
    "pil": ValueReader(read_pil),
    "jpeg": ValueReader(read_bytes, "image"),
    "png": ValueReader(read_bytes, "image"),
    "json": ValueReader(read_json, "json"),
}


def _check_hashes(folder: Path, shard: Mapping[str, Any]) -> Iterator[Problem]:
    """Compare the hashes of a shard's files with those of the index; hashes of unknown algorithms are left out."""
    entries = [shard[name] for name in ("raw_data", "zip_data") if isinstance(shard.get(name), dict)]
    for entry in entries:
        hashes = entry.get("hashes")
        for name, expected in hashes.items() if isinstance(hashes, dict) else ():
            try:
                path = join_inside(folder, entry.get("basename"))
                with open(open_regular(path), "rb") as file:  # noqa: PTH123  # a descriptor
                    found = hashlib.file_digest(file, partial(_make_hash, name)).hexdigest()
            except (OSError, ValueError):
                continue  # missing: reported when the store is opened, or it is kept in its other form only
            if found != expected:
                yield Problem(f"{path.name} is damaged: its {name} is not that of index.json")


def _make_hash(name: str) -> Any:
    if name in {"xxh32", "xxh64", "xxh128", "xxh3_64", "xxh3_128"}:
        return getattr(xxhash, name)()
    if name not in hashlib.algorithms_guaranteed or name.startswith("shake"):
        raise ValueError(f"hashes {name!r} are not known")
    return hashlib.new(name)
