"""The structure of a JPEG for a person: size, sampling, process, scans, restart markers, and the estimated quality.

Called by the viewer. Nothing is decoded; a damaged header gives what is known of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock import _native
from penstock.sample import Blob
from penstock.transforms.decoding.jpeg_markers import count_scans, is_cut, iterate_segments

__all__ = ["JpegStructure", "describe_jpeg", "describe_seek_table", "estimate_quality"]

_MAX_SCANS: Final = 1000
_DQT: Final = 0xDB
_SOS: Final = 0xDA
_LUMA: Final = np.sort(
    np.frombuffer(
        bytes.fromhex(
            "100b0a101828333d0c0c0e131a3a3c370e0d1018283945380e11161d3357503e"
            "12162538446d674d182337405168715c31404e5767797865485c5f6270646763"
        ),
        np.uint8,
    )
).astype(np.int64)
"""The typical luminance table of ITU-T T.81, K.1, from its smallest number to its largest."""


@dataclass(frozen=True, slots=True)
class JpegStructure:
    """What the markers of a JPEG say."""

    process: str  # "sequential", "progressive", or what the header names; empty if it is damaged
    sampling: str
    color: str
    """``sampling`` and ``color``: of the components: "4:2:0", "ycbcr"."""
    components: int  # number of components
    precision: int  # bits of a sample
    restart_interval: int  # MCUs between restart markers; 0: none
    scans: int  # number of scans, counted up to 1,000
    quality: int | None  # the quality for which libjpeg makes these tables, 1 to 100; None without a table
    is_standard_quality: bool  # whether libjpeg makes exactly this table for it; otherwise it is the nearest
    is_truncated: bool  # whether the end marker is missing
    decoder: str  # "native", or why the native decoder does not read it


def describe_jpeg(jpeg: bytes) -> JpegStructure:
    """Return the structure of a file that begins as a JPEG does."""
    try:
        facts = _native.inspect(jpeg)
    except (_native.CorruptError, _native.UnsupportedError) as error:
        facts = {"native": False, "reason": str(error)}
    quality, is_standard = estimate_quality(jpeg)
    return JpegStructure(
        process=facts.get("process", ""),
        sampling=facts.get("sampling", ""),
        color=facts.get("color", ""),
        components=facts.get("components", 0),
        precision=facts.get("precision", 0),
        restart_interval=facts.get("restart_interval", 0),
        scans=count_scans(jpeg, _MAX_SCANS),
        quality=quality,
        is_standard_quality=is_standard,
        is_truncated=is_cut(jpeg),
        decoder="native" if facts.get("native") else str(facts.get("reason", "")),
    )


def describe_seek_table(jpeg: Blob, table: bytes | None) -> str | None:
    """The kind of a seek table, and how many of the places it holds where decoding can begin; None without one."""
    if table is None:
        return None
    found = _native.inspect_index(jpeg, table)
    return "damaged, or of another image" if found is None else f"{found[0]}, {found[1]:,} of {found[2]:,} places"


def estimate_quality(jpeg: bytes) -> tuple[int | None, bool]:
    """The quality setting of libjpeg whose luminance table is nearest, and whether it is equal; None without a table.

    The numbers of a table are compared in order of size, as the file has them in zigzag order.
    """
    table = next(_iterate_tables(jpeg), None)
    if table is None:
        return None, False
    qualities = np.arange(1, 101)
    factors = np.where(qualities < 50, 5000 // qualities, 200 - 2 * qualities)
    made = np.clip((_LUMA[None] * factors[:, None] + 50) // 100, 1, 255)
    distances = np.abs(made - np.sort(table)[None]).sum(axis=1)
    best = int(np.argmin(distances))
    return int(qualities[best]), int(distances[best]) == 0


def _iterate_tables(jpeg: bytes) -> Iterator[NDArray[np.int64]]:
    """The quantisation tables before the first scan: 64 numbers each."""
    for marker, at in iterate_segments(jpeg):
        if marker == _SOS:
            return
        if marker != _DQT:
            continue
        end = min(at + 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big"), len(jpeg))
        place = at + 4
        while place < end:
            dtype = np.dtype(">u2" if jpeg[place] >> 4 else "u1")
            place += 1 + 64 * dtype.itemsize
            if place > end:
                return
            yield np.frombuffer(jpeg, dtype, 64, place - 64 * dtype.itemsize).astype(np.int64)
