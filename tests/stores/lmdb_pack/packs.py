"""Small packs for tests: written record by record, without images."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from penstock.sample import Field, Schema
from penstock.stores.common.lmdb.environment_writer import CommitLimits
from penstock.stores.lmdb_pack.writer import LmdbWriter

SCHEMA = Schema({"image": Field("image"), "label": Field("label", ("cat", "dog"))})
SMALL_COMMITS = CommitLimits(records=7, nbytes=30_000, map_nbytes=1 << 16)
"""Commits every few records, and a map that must grow several times."""


def fields(index: int) -> dict[str, Any]:
    """The fields of record ``index``: blobs from none to several pages, each another one."""
    size = (index * 977) % 9000 if index % 5 else index % 3
    return {"image": np.random.default_rng(index).bytes(size), "label": index % 2}


def key(index: int) -> str:
    """The key of record ``index``."""
    return f"class{index % 2}/picture {index}.jpg"


def write(
    path: Path,
    indices: Iterable[int],
    *,
    source: str = "source",
    limits: CommitLimits | None = None,
    schema: Schema = SCHEMA,
) -> LmdbWriter:
    """Append what is not committed yet of ``indices``; gives the writer, unfinished."""
    writer = LmdbWriter(str(path), schema, source, limits=limits)
    for index in list(indices)[writer.committed.consumed :]:
        writer.append(writer.prepare(key(index), fields(index)))
    return writer


def make_pack(path: Path, count: int = 40, limits: CommitLimits | None = None) -> Path:
    """A finished pack of ``count`` records."""
    write(path, range(count), limits=limits).finish()
    return path
