"""PNG files of every kind, written by the rules of the format: colour types, depths, filters, interlacing, chunks."""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["KINDS", "chunk", "data_chunks", "header", "picture_lines", "png", "samples"]

KINDS: Final = (
    *[(0, depth) for depth in (1, 2, 4, 8, 16)],
    *[(color, depth) for color in (2, 4, 6) for depth in (8, 16)],
    *[(3, depth) for depth in (1, 2, 4, 8)],
)
"""Colour type and bit depth of every kind of PNG."""

_CHANNELS: Final = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_PASSES: Final = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"


def chunk(name: bytes, body: bytes = b"") -> bytes:
    """A chunk with its checksum."""
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def header(width: int, height: int, color: int, depth: int, interlace: int = 0) -> bytes:
    """The signature and the IHDR chunk."""
    return _SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace))


def samples(width: int, height: int, color: int, depth: int, seed: int = 0) -> NDArray[np.uint16]:
    """Random samples in smooth and noisy parts, (height, width, channels)."""
    rng = np.random.default_rng((seed, width, height, color, depth))
    values = rng.integers(0, 1 << depth, (height, width, _CHANNELS[color]))
    smooth = np.arange(width)[None, :, None] * 3 + np.arange(height)[:, None, None] * 5
    values[height // 3 :] = (smooth + values // 8)[height // 3 :] % (1 << depth)
    return values.astype(np.uint16)


def picture_lines(pixels: NDArray[np.uint16], depth: int, interlace: int = 0, seed: int = 0) -> bytes:
    """The filtered lines of all passes; each line has a random filter."""
    rng = np.random.default_rng((seed, *pixels.shape))
    passes = _PASSES if interlace else ((0, 0, 1, 1),)
    lines = b""
    for x, y, across, down in passes:
        part = pixels[y::down, x::across]
        if part.size == 0:
            continue
        step = max(1, depth * part.shape[2] // 8)
        above = np.zeros(len(_packed(part[0], depth)), np.int32)
        for row in part:
            line = _packed(row, depth)
            number = int(rng.integers(5))
            lines += bytes([number]) + _filtered(line, above, number, step)
            above = line
    return lines


def _packed(row: NDArray[np.uint16], depth: int) -> NDArray[np.int32]:
    if depth == 16:
        return np.frombuffer(row.astype(">u2").tobytes(), np.uint8).astype(np.int32)
    bits = np.unpackbits(row.astype(np.uint8).reshape(-1, 1), axis=1)[:, 8 - depth :]
    return np.packbits(bits).astype(np.int32)


def _filtered(line: NDArray[np.int32], above: NDArray[np.int32], number: int, step: int) -> bytes:
    left, corner = (np.concatenate([np.zeros(step, np.int32), each])[: len(line)] for each in (line, above))
    estimate = left + above - corner
    to_left, to_above, to_corner = (np.abs(estimate - each) for each in (left, above, corner))
    nearest = np.where(to_above <= to_corner, above, corner)
    nearest = np.where((to_left <= to_above) & (to_left <= to_corner), left, nearest)
    prediction = (np.zeros_like(line), left, above, (left + above) // 2, nearest)[number]
    return ((line - prediction) % 256).astype(np.uint8).tobytes()


def data_chunks(lines: bytes, part: int = 1 << 16, level: int = 6) -> bytes:
    """The lines, compressed, in IDAT chunks of ``part`` bytes."""
    packed = zlib.compress(lines, level)
    return b"".join(chunk(b"IDAT", packed[start : start + part]) for start in range(0, len(packed), part))


def png(
    pixels: NDArray[np.uint16],
    color: int,
    depth: int,
    *,
    interlace: int = 0,
    palette: int | None = None,
    before: Iterable[bytes] = (),
    after: Iterable[bytes] = (),
    part: int = 1 << 16,
    level: int = 6,
    seed: int = 0,
) -> bytes:
    """A file of these samples.

    ``palette``: number of its random colours, by default as many as there are values; ``before`` and ``after``: chunks
    before and after the data; ``part``: bytes of each IDAT chunk.
    """
    height, width, _ = pixels.shape
    count = (1 << depth if color == 3 else 0) if palette is None else palette
    colors = np.random.default_rng(seed).integers(0, 256, 3 * count, dtype=np.uint8).tobytes()
    return b"".join(
        [
            header(width, height, color, depth, interlace),
            chunk(b"PLTE", colors) if count else b"",
            *before,
            data_chunks(picture_lines(pixels, depth, interlace, seed), part, level),
            *after,
            chunk(b"IEND"),
        ]
    )


def _write_kinds(folder: Path) -> None:
    """Write a small file of each kind: seeds for fuzzing."""
    for color, depth in KINDS:
        for interlace in (0, 1):
            file = png(samples(19, 11, color, depth), color, depth, interlace=interlace, part=100)
            (folder / f"{color}-{depth}-{interlace}.png").write_bytes(file)


if __name__ == "__main__":
    _write_kinds(Path(sys.argv[1]))
