"""Packs of gray images with annotations, for tests of sheets: every colour on a sheet is then one that was drawn."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from penstock.sample import Array, Field, Schema
from penstock.stores.lmdb_pack.writer import LmdbWriter

GRAY = (90, 90, 90)


def encode(pixels: Array) -> bytes:
    """An array as a PNG file."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def gray(width: int = 200, height: int = 100) -> bytes:
    """An image of one colour, :data:`GRAY`."""
    return encode(np.full((height, width, 3), GRAY[0], np.uint8))


def write_pack(path: Path, fields: Mapping[str, Field], records: Sequence[Mapping[str, Any]]) -> Path:
    """A pack of these records, with keys a, b, c, ..."""
    writer = LmdbWriter(str(path), Schema(fields), "source")
    for number, record in enumerate(records):
        writer.append(writer.prepare(chr(ord("a") + number), record))
    writer.finish()
    return path
