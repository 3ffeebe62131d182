"""Claim: of a record of coefficients, a crop of T1 needs three quarters, and 1/8 of the size a tenth to a quarter.

For every JPEG of a folder, its record, and 200 crops of RandomResizedCrop (scale 0.08 to 1): the bytes of the head with
the DC coefficients, which are all that 1/8 reads; those and the rows of MCUs that a crop covers; the same in pages of
4 KiB, which a copy of a remote object has; and the rows that the crops of several epochs cover together, of which a
cache has those of all epochs so far. Shares are of the bytes of all records. Nothing is timed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from harness import arguments, images_folder, jpegs

from penstock import _native
from penstock import transforms as T
from penstock.errors import PenstockError
from penstock.sample import SampleKeys

DRAWS = 200
EPOCHS = (2, 5)
MEGAPIXELS = (0, 1.5, 4, 8.5, float("inf"))
"""Limits of the rows of the table."""
PAGE = 4096
FRAMES = (0xC0, 0xC1, 0xC2)


def row_ends(record: bytes, width: int, height: int) -> tuple[int, np.ndarray]:
    """The height of a row of MCUs in pixels, and where the head and each row end."""
    head, before, after, left_out = struct.unpack_from("<4I", record, 36)
    at = 54
    while record[at + 1] not in FRAMES:
        at += 2 + int.from_bytes(record[at + 2 : at + 4], "big")
    count = record[at + 9]
    sampling = [divmod(each, 16) for each in record[at + 11 : at + 11 + 3 * count : 3]] if count > 1 else [(1, 1)]
    across, down = (max(each) for each in zip(*sampling, strict=True))
    columns, rows = -(-width // (8 * across)), -(-height // (8 * down))
    segments = sum(v for _, v in sampling) * -(-columns // (64 // across))
    sizes = np.frombuffer(record, "<u2", segments * rows, 52 + before + after + left_out).reshape(rows, segments)
    ends = head + np.concatenate([[0], np.cumsum(sizes.sum(1))])
    assert ends[-1] == len(record), "all of the record is head and rows"
    return 8 * down, ends


def shares(record: bytes, first: int) -> Iterator[float]:
    """Bytes of the record, of 1/8, of a crop, of both in pages, and of the crops of some epochs; means of the draws."""
    width, height = _native.sizes([record])[0].tolist()
    mcu, ends = row_ends(record, width, height)
    sizes = np.tile(np.array([[width, height]], np.int32), (DRAWS, 1))
    drawn = T.RandomResizedCrop(224).draw(SampleKeys(0, 0, first + np.arange(DRAWS)), sizes, 0)
    top, bottom = np.maximum(drawn[:, 1] - 1, 0), np.minimum(drawn[:, 1] + drawn[:, 3] + 1, height)
    covered = np.arange(len(ends) - 1)[None] * mcu
    is_needed = (covered + mcu > top[:, None]) & (covered < bottom[:, None])
    head, rows = int(ends[0]), np.diff(ends)
    yield from (len(record), head, head + float((is_needed @ rows).mean()))
    begins, last = ends[is_needed.argmax(1)], ends[len(rows) - is_needed[:, ::-1].argmax(1)]
    offset = np.random.default_rng(first).integers(0, PAGE, DRAWS)  # of the record in its first page
    of_head = -(-(offset + head) // PAGE)
    of_rows = -(-(offset + last) // PAGE) - np.maximum((offset + begins) // PAGE, of_head)
    yield PAGE * float(of_head.mean())
    yield PAGE * float((of_head + np.maximum(of_rows, 0)).mean())
    for epochs in EPOCHS:
        of_epochs = is_needed[: DRAWS // epochs * epochs].reshape(-1, epochs, len(rows)).any(1)
        yield head + float((of_epochs @ rows).mean())


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=1)
    found = []
    for path in jpegs(images_folder(options.images)):
        content = path.read_bytes()
        width, height = _native.sizes([content])[0].tolist()
        try:
            record = _native.coefficients_from_jpeg(content)
        except PenstockError:
            continue  # it stays a file
        found.append([width * height / 1e6, *shares(record, DRAWS * len(found))])
    print("| images | megapixels | KB of a record | 1/8 | crop | 1/8, pages | crop, pages |", end=" ")
    print(" | ".join(f"rows of {epochs} epochs" for epochs in EPOCHS), f"|\n{'|---' * 9}|")
    all_parts = np.array(found)
    for least, most in pairwise(MEGAPIXELS):
        pixels, *parts = all_parts[(all_parts[:, 0] >= least) & (all_parts[:, 0] < most)].T
        if len(pixels):
            said = " | ".join(f"{part.sum() / parts[0].sum():.2f}" for part in parts[1:])
            print(f"| {len(pixels)} | {pixels.mean():.1f} | {parts[0].mean() / 1e3:.0f} | {said} |")


if __name__ == "__main__":
    main()
