"""The index of TFRecord files: their shards, frames, keys, and a summary of the features of all records.

The scan reads the frames and the names of all features; of images it touches the first bytes. It is made once and kept
(:mod:`penstock.stores.common.record_index`), so that no feature is overlooked that only some records have.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, StoreFormatError
from penstock.fields.roles import Candidate, Stated
from penstock.fields.roles import find_key as find_key_path
from penstock.paths import IMAGE_SUFFIXES
from penstock.sample import Array, Field
from penstock.stores.common.keys import KeyList
from penstock.stores.common.regular_file import open_file
from penstock.stores.fields.record_names import make_natural_key, quote_names
from penstock.stores.location import Location
from penstock.stores.tfrecord.example import Features, FeatureSummary, parse_example, summarise
from penstock.stores.tfrecord.frames import PLACE, find_frames, is_frame, is_intact

__all__ = ["RecordIndex", "find_codec", "find_key", "find_shards", "is_tfrecord", "parse_index", "scan_files"]

_KEY_FEATURES: Final = ("image/filename", "image/source_id")
"""Features of texts that give the keys before those of usual names; the first that the first record has."""

_HEAD_NBYTES: Final = 4096
_MAX_LISTED: Final = 100_000
_MAX_KEY_NBYTES: Final = 4096
_NAME: Final = re.compile(r"tfrecord|\.tfrec", re.IGNORECASE)
_OWN: Final = re.compile(r"^\.|\.(index\.npz|decompressed|partial|json|txt|csv|pbtxt)$")
_SHARD: Final = re.compile(r"-(\d{5,})-of-(\d{5,})")
_CONTEXT: Final = 1 << 3 | 2
_FEATURE_LISTS: Final = 2 << 3 | 2
_BYTES: Final = 1
_INTS: Final = 3


@dataclass(frozen=True, slots=True)
class RecordIndex:
    """Where the records lie: ``counts`` of each file, ``places`` of all records.

    ``key``: the feature of the keys; ``keys``: one for each record, or None; ``summaries``: of all features,
    in the ``parsed`` records that are undamaged as far as the scan can know.
    """

    counts: NDArray[np.int64]
    places: Array
    key: str | None
    keys: KeyList | None
    summaries: Mapping[str, FeatureSummary]
    parsed: int


def find_shards(location: Location) -> list[Path]:
    """The files of a store: those of the location, or the TFRecord files of a folder.

    Raises StoreFormatError if a folder has no such files, or lacks one that the names of the others count. Raises
    ArgumentError if a folder has several sets of files.
    """
    paths = list(location.paths)
    if len(paths) > 1 or not paths[0].is_dir():
        return paths
    names = _list_names(paths[0])
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_SHARD.sub("", name) if _SHARD.search(name) else re.sub(r"\d+", "#", name), []).append(name)
    if not groups:
        raise StoreFormatError("there is no TFRecord file in this folder", store=str(location))
    if len(groups) > 1:
        firsts = [group[0] for group in groups.values()]
        raise ArgumentError(
            f"this folder has {len(groups)} sets of TFRecord files, which begin with {quote_names(firsts)}; open one "
            f"by a pattern such as '{paths[0]}/train*', store {location}"
        )
    numbers = [match for name in names if (match := _SHARD.search(name))]
    if numbers and (missing := int(numbers[0][2]) - len({int(match[1]) for match in numbers})) > 0:
        raise StoreFormatError(
            f"{missing} of {int(numbers[0][2])} shards are missing; to read the others, give a list of them",
            store=str(location),
        )
    return [paths[0] / name for name in names]


def is_tfrecord(path: Path) -> bool:
    """Return whether a file, or the first TFRecord file of a folder, begins with a frame; reads a few kilobytes.

    A folder with images is a folder of images.
    """
    try:
        if path.is_dir():
            names = _list_names(path, refuse_images=True)
            return bool(names) and find_codec(path / names[0]) is not None
        return find_codec(path) is not None
    except OSError:
        return False


def find_codec(path: Path) -> str | None:
    """Return the compression of a file: ``"gz"``, ``"zlib"``, or empty.

    It is None if it is no TFRecord file. Raises OSError.
    """
    with open_file(path) as file:
        head = file.read(_HEAD_NBYTES)
    if is_frame(head):
        return ""
    codec = "gz" if head.startswith(b"\x1f\x8b") else "zlib" if head[:1] == b"\x78" else None
    if codec is None:
        return None
    try:
        return codec if is_frame(zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(head, 64)) else None
    except zlib.error:
        return None


def find_key(features: Features, record: memoryview, name: str | None, row: int) -> str:
    """The key of a record: the value of a feature, or the number of the row where it has none that is a name."""
    kind, values = features.get(name, (0, None)) if name is not None else (0, None)
    if values and kind == _INTS and len(values) == 8:
        return str(int.from_bytes(values, "little", signed=True))
    if values and kind == _BYTES and len(values) == 1:
        begin, end = values[0]
        if 0 < end - begin <= _MAX_KEY_NBYTES:
            try:
                text = str(record[begin:end], "utf-8")
            except UnicodeDecodeError:
                return str(row)
            if "\0" not in text:
                return text
    return str(row)


def scan_files(contents: Sequence[memoryview], paths: Sequence[Path], key: str | None) -> dict[str, Array]:
    """Return the arrays of an index, as :func:`parse_index` reads them.

    ``contents``: the uncompressed bytes of each file. ``paths``: the files, for errors. ``key``: the feature of the
    keys, where it is stated. Raises StoreFormatError if a file is truncated or its frames are damaged, or no record is
    a ``tf.train.Example``.
    """
    found = [find_frames(content, path) for content, path in zip(contents, paths, strict=True)]
    summaries: dict[str, FeatureSummary] = {}
    keys: list[str] = []
    parsed = 0
    failure: ValueError | None = None
    for content, places in zip(contents, found, strict=True):
        for offset, length in places.tolist():
            record = content[offset : offset + length]
            try:
                features = parse_example(record)
            except ValueError as error:  # raised again when the record is read
                failure = error
                keys.append(str(len(keys)))
                continue
            if not parsed and _has_feature_lists(record) and is_intact(content, offset, length):
                raise StoreFormatError("the records are tf.train.SequenceExample, whose lists of features are not read")
            if key is None and not parsed and is_intact(content, offset, length):
                texts = [name for name in features if _has_text(features, record, name)]
                key = next((name for name in _KEY_FEATURES if name in texts), None)
                key = key or find_key_path([Candidate(name, Field("text")) for name in texts], Stated())
            parsed += summarise(summaries, features, record, partial(is_intact, content, offset, length))
            keys.append(find_key(features, record, key, len(keys)))
    if failure is not None and not summaries:
        raise StoreFormatError(f"no record is a tf.train.Example: {failure}") from failure
    described = json.dumps(
        {"key": key or None, "parsed": parsed, "features": {name: asdict(each) for name, each in summaries.items()}}
    ).encode()
    return {
        "counts": np.array([len(places) for places in found], np.int64),
        "places": np.concatenate(found),
        "keys": np.frombuffer(KeyList.from_names(keys if key else []).joined, np.uint8),
        "summaries": np.frombuffer(described, np.uint8),
    }


def parse_index(arrays: Mapping[str, Array]) -> RecordIndex:
    """Return the index that :func:`scan_files` returned.

    Raises ValueError, KeyError or TypeError if the arrays are not those of an index.
    """
    described = json.loads(arrays["summaries"].tobytes())
    counts, places = np.ascontiguousarray(arrays["counts"], np.int64), arrays["places"]
    if places.dtype != PLACE or len(places) != counts.sum() or (counts < 0).any():
        raise ValueError("its numbers of records differ")
    key = described["key"]
    keys = None if key is None else KeyList(arrays["keys"].tobytes())
    if keys is not None and len(keys) != len(places):
        raise ValueError("its numbers of keys and records differ")
    summaries = {name: FeatureSummary(**summary) for name, summary in described["features"].items()}
    return RecordIndex(counts, places, key, keys, summaries, int(described["parsed"]))


def _list_names(folder: Path, *, refuse_images: bool = False) -> list[str]:
    """The names of the TFRecord files of a folder, in natural order; of one with images perhaps none."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in itertools.islice(entries, _MAX_LISTED)]
    if refuse_images and any(name.lower().endswith(tuple(IMAGE_SUFFIXES)) for name in names):
        return []
    return sorted((name for name in names if _NAME.search(name) and not _OWN.search(name)), key=make_natural_key)


def _has_feature_lists(record: memoryview) -> bool:
    """Return whether a message has a field 2, as ``tf.train.SequenceExample`` has behind its context."""
    at = 0
    while at < len(record) and record[at] == _CONTEXT:
        nbytes, shift, at = 0, 0, at + 1
        while at < len(record) and shift < 64:
            byte = record[at]
            nbytes, shift, at = nbytes | (byte & 127) << shift, shift + 7, at + 1
            if byte < 128:
                break
        at += nbytes
    return at < len(record) and record[at] == _FEATURE_LISTS


def _has_text(features: Features, record: memoryview, name: str) -> bool:
    kind, _ = features.get(name, (0, None))
    return kind == _BYTES and find_key(features, record, name, -1) != "-1"
