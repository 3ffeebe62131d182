"""Malformed JPEG files, made here: each breaks one rule of the format (ITU-T T.81), or lies about what follows."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image

__all__ = ["write_gallery"]

SOF0, SOF2, DHT, EOI, SOS, DQT, DNL, DRI, APP0, APP1, APP14, COM = (
    0xC0, 0xC2, 0xC4, 0xD9, 0xDA, 0xDB, 0xDC, 0xDD, 0xE0, 0xE1, 0xEE, 0xFE,
)  # fmt: skip

Segment = tuple[int, bytes]
"""Marker and what stands behind its length; of SOS also the entropy-coded data up to the next marker."""

PROCESSES: Final = (0xC1, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF)
"""Frame markers of processes that the file does not follow: lossless, hierarchical, arithmetic."""


def write_gallery(folder: Path) -> Path:
    """Write ``folder/<base>-<fault>.jpg`` for every fault; give ``folder``."""
    for base, file in bases().items():
        for fault, damaged in faults(file):
            (folder / f"{base}-{fault}.jpg").write_bytes(damaged)
    return folder


def bases() -> dict[str, bytes]:
    """Whole files of each kind, of 61 x 43 pixels."""
    rng = np.random.default_rng(5)
    small = Image.fromarray(rng.integers(0, 256, (6, 9, 3), dtype=np.uint8))
    picture = small.resize((61, 43), Image.Resampling.BICUBIC)
    options: dict[str, dict[str, object]] = {
        "baseline": {"subsampling": 2},
        "restart": {"subsampling": 1, "restart_marker_blocks": 3},
        "progressive": {"subsampling": 2, "progressive": True},
    }
    files = {}
    for name, option in options.items():
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=80, **option)
        files[name] = file.getvalue()
    return files


def faults(file: bytes) -> Iterator[tuple[str, bytes]]:
    """Name of the fault and the file that has it."""
    parts = segments(file)
    yield from _faults_of_order(parts)
    yield from _faults_of_the_frame(parts)
    yield from _faults_of_tables(parts)
    yield from _faults_of_scans(parts)
    yield from _faults_of_data(file, parts)


def segments(file: bytes) -> list[Segment]:
    """The segments of a whole file between SOI and EOI."""
    found: list[Segment] = []
    at = 2
    while file[at + 1] != EOI:
        end = at + 2 + int.from_bytes(file[at + 2 : at + 4])
        if file[at + 1] == SOS:
            while not (file[end] == 0xFF and file[end + 1] != 0 and not 0xD0 <= file[end + 1] <= 0xD7):
                end += 1
        found.append((file[at + 1], file[at + 4 : end]))
        at = end
    return found


def joined(parts: list[Segment], end: bytes = b"\xff\xd9") -> bytes:
    """The file of these segments, each with its true length."""
    return b"\xff\xd8" + b"".join(written(marker, body) for marker, body in parts) + end


def written(marker: int, body: bytes) -> bytes:
    """A segment with its true length."""
    size = 6 + 2 * body[0] if marker == SOS else 2 + len(body)
    return bytes([0xFF, marker]) + size.to_bytes(2) + body


def changed(parts: list[Segment], marker: int, at: int, values: bytes) -> bytes:
    """The file with ``values`` at byte ``at`` of the first segment of that marker."""
    number = position(parts, marker)
    body = parts[number][1]
    body = body[:at] + values + body[at + len(values) :]
    return joined([*parts[:number], (marker, body), *parts[number + 1 :]])


def position(parts: list[Segment], marker: int) -> int:
    """Where the first segment of that marker stands."""
    return next(number for number, part in enumerate(parts) if part[0] == marker)


def frame_of(parts: list[Segment]) -> int:
    """The marker of the frame."""
    return next(marker for marker, _ in parts if marker in {SOF0, SOF2})


def _faults_of_order(parts: list[Segment]) -> Iterator[tuple[str, bytes]]:
    """Segments that are missing, doubled, or in the wrong order."""
    for marker, name in ((DQT, "dqt"), (DHT, "dht"), (frame_of(parts), "frame"), (SOS, "scan")):
        one = parts[position(parts, marker)]
        others = [part for part in parts if part[0] != marker]
        yield f"without-{name}", joined(others)
        yield f"{name}-last", joined([*others, *(part for part in parts if part[0] == marker)])
        yield f"{name}-twice", joined([*parts[: position(parts, marker)], one, *parts[position(parts, marker) :]])
    yield "nothing-but-ends", joined([])
    yield "second-start", joined(parts[:2])[:-2] + joined(parts[2:])
    yield "many-comments", joined([(COM, b"again")] * 3000 + parts)
    yield "without-end", joined(parts, b"")
    yield "end-first", b"\xff\xd8\xff\xd9" + joined(parts)[2:]
    yield "end-twice", joined(parts, b"\xff\xd9\xff\xd9")


def _faults_of_the_frame(parts: list[Segment]) -> Iterator[tuple[str, bytes]]:
    """Sizes, samplings and components that cannot be, or that the data do not have."""
    frame = frame_of(parts)
    yield "precision-12", changed(parts, frame, 0, b"\x0c")
    yield "precision-0", changed(parts, frame, 0, b"\x00")
    for name, height, width in (
        ("no-rows", 0, 61), ("no-columns", 43, 0), ("one-row", 1, 61), ("too-tall", 4000, 61), ("too-wide", 43, 4000),
        ("largest", 65535, 65535),
    ):  # fmt: skip
        yield name, changed(parts, frame, 1, height.to_bytes(2) + width.to_bytes(2))
    for count in (0, 1, 2, 4, 255):
        yield f"{count}-components", changed(parts, frame, 5, bytes([count]))
    for factors in (0x00, 0x01, 0x14, 0x33, 0x44, 0x5F, 0xFF):
        yield f"factors-{factors:02x}", changed(parts, frame, 7, bytes([factors]))
    yield "chroma-factors-44", changed(parts, frame, 10, b"\x44")
    yield "same-component-twice", changed(parts, frame, 9, b"\x01")
    yield "quantisation-table-3", changed(parts, frame, 8, b"\x03")
    yield "quantisation-table-200", changed(parts, frame, 8, b"\xc8")
    number = position(parts, frame)
    for process in PROCESSES:
        yield f"process-{process:02x}", joined([*parts[:number], (process, parts[number][1]), *parts[number + 1 :]])
    other = SOF2 if frame == SOF0 else SOF0
    yield "other-process", joined([*parts[:number], (other, parts[number][1]), *parts[number + 1 :]])
    yield "number-of-lines", joined([*parts, (DNL, b"\x00\x08")])


def _faults_of_tables(parts: list[Segment]) -> Iterator[tuple[str, bytes]]:
    """Tables with numbers, lengths and codes that cannot be."""
    yield "quantisation-0", changed(parts, DQT, 1, bytes(64))
    yield "quantisation-16-bits", changed(parts, DQT, 0, b"\x10")
    yield "quantisation-destination-9", changed(parts, DQT, 0, b"\x09")
    yield "huffman-destination-15", changed(parts, DHT, 0, b"\x0f")
    yield "huffman-class-7", changed(parts, DHT, 0, b"\x70")
    yield "huffman-no-codes", changed(parts, DHT, 1, bytes(16))
    yield "huffman-too-many-codes", changed(parts, DHT, 1, b"\xff" * 16)
    yield "huffman-oversubscribed", changed(parts, DHT, 1, b"\x03" + bytes(15))
    yield "huffman-all-ones", changed(parts, DHT, 1, b"\x02" + bytes(15))
    yield "huffman-large-symbols", changed(parts, DHT, 17, b"\xff" * 12)
    yield "restart-interval-65535", joined([(DRI, b"\xff\xff"), *parts])
    yield "restart-interval-short", joined([(DRI, b"\x01"), *parts])


def _faults_of_scans(parts: list[Segment]) -> Iterator[tuple[str, bytes]]:
    """Scans of components, tables and coefficients that do not exist."""
    count = parts[position(parts, SOS)][1][0]
    yield "scan-of-none", changed(parts, SOS, 0, b"\x00")
    yield "scan-of-five", changed(parts, SOS, 0, b"\x05")
    yield "scan-of-component-9", changed(parts, SOS, 1, b"\x09")
    yield "scan-by-table-3", changed(parts, SOS, 2, b"\x33")
    yield "scan-by-table-15", changed(parts, SOS, 2, b"\xff")
    if count > 1:
        yield "scan-of-one-twice", changed(parts, SOS, 3, b"\x01")
    yield "scan-backwards", changed(parts, SOS, 1 + 2 * count, b"\x3f\x00")
    yield "scan-of-coefficient-200", changed(parts, SOS, 1 + 2 * count, b"\x00\xc8")
    yield "scan-of-bit-15", changed(parts, SOS, 3 + 2 * count, b"\xff")
    scan = parts[position(parts, SOS)]
    yield "a-thousand-scans", joined([*parts, *[scan] * 1000])


def _faults_of_data(file: bytes, parts: list[Segment]) -> Iterator[tuple[str, bytes]]:
    """Lengths that lie, entropy-coded data with foreign bytes, files that are cut."""
    yield "colour-transform-9", joined([(APP14, b"Adobe\x00\x64\x00\x00\x00\x00\x09"), *parts])
    yield "density-cut", joined([(APP0, b"JFIF\0\1\1"), *parts])
    yield "exif-lies", joined([(APP1, b"Exif\0\0II*\0\xff\xff\xff\xff\xff\xff"), *parts])
    for size in (0, 1, 2, 0xFFFF):
        yield f"length-{size}", file[:2] + b"\xff\xe5" + size.to_bytes(2) + file[2:]
        frame = file.index(bytes([0xFF, frame_of(parts)]))
        yield f"frame-length-{size}", file[: frame + 2] + size.to_bytes(2) + file[frame + 4 :]
    data = file.index(b"\xff\xda") + 30
    for name, junk in (
        ("ones", b"\xff\x00" * 200), ("zeros", bytes(400)), ("restarts", bytes(range(0xD0, 0xD8)).join([b"\xff"] * 9)),
        ("fill-bytes", b"\xff" * 300), ("scan-header", b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00"),
        ("unknown-marker", b"\xff\x02"), ("end", b"\xff\xd9"), ("comment", b"\xff\xfe\x00\x04ab"),
    ):  # fmt: skip
        yield f"data-with-{name}", file[:data] + junk + file[data:]
        yield f"data-over-{name}", file[:data] + junk + file[data + len(junk) :]
    for share in (1, 3, 5, 7, 9):
        yield f"cut-{share}-tenths", file[: len(file) * share // 10]
    yield "cut-before-data", file[: file.index(b"\xff\xda")]
    yield "cut-in-scan-header", file[: data - 24]
