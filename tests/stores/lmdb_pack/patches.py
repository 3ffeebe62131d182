"""Packs of small records of fixed size, which are stored in blocks, for tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from penstock.sample import Field, Schema
from penstock.stores.common.lmdb.environment_writer import CommitLimits
from penstock.stores.lmdb_pack.writer import LmdbWriter

SCHEMA = Schema(
    {
        "image": Field("pixels:uint8[12,12,3]"),
        "label": Field("label", ("face", "part", "none")),
        "score": Field("float"),
        "box": Field("float32[4]"),
        "flags": Field("bool[3]"),
    }
)
COUNT = 700
"""Records: three blocks, the last of which is not full."""
OFTEN = CommitLimits(records=100, nbytes=1 << 17, map_nbytes=1 << 18)
"""A commit for each block, and a map that must grow."""


def make_fields(count: int = COUNT, seed: int = 0) -> dict[str, Any]:
    """The fields of ``count`` records, as arrays."""
    rng = np.random.default_rng(seed)
    return {
        "image": rng.integers(0, 256, (count, 12, 12, 3), np.uint8),
        "label": rng.integers(0, 3, count),
        "score": rng.random(count),
        "box": rng.random((count, 4), np.float32),
        "flags": rng.integers(0, 2, (count, 3)).astype(np.bool_),
    }


def number_keys(count: int) -> list[str]:
    """The numbers of the records: the keys that take no bytes."""
    return [str(index) for index in range(count)]


def names(count: int) -> list[str]:
    """Keys of several lengths and scripts."""
    return [f"{'ä' * (index % 4)}{index}.jpg" for index in range(count)]


def write_batches(
    path: Path,
    fields: dict[str, Any],
    keys: list[str],
    *,
    schema: Schema = SCHEMA,
    batch: int = 90,
    stop: int | None = None,
) -> LmdbWriter:
    """Append what is not committed yet of the records before ``stop``, in batches; gives the writer, unfinished."""
    writer = LmdbWriter(path, schema, "source", limits=OFTEN)
    for begin in range(writer.committed.consumed, len(keys) if stop is None else stop, batch):
        part = slice(begin, min(begin + batch, len(keys) if stop is None else stop))
        batch_fields = {name: values[part] for name, values in fields.items()}
        writer.append_batch(writer.prepare_batch(keys[part], batch_fields))
    return writer


def make_patches(
    path: Path, count: int = COUNT, make_keys: Callable[[int], list[str]] = number_keys, schema: Schema = SCHEMA
) -> Path:
    """A finished pack of the records of :func:`make_fields`."""
    fields = make_fields(count)
    write_batches(path, {name: fields[name] for name in schema.fields}, make_keys(count), schema=schema).finish()
    return path
