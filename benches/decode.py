"""Claim: a full decode is at least 1.5 times as fast as libjpeg-turbo, with the same pixels; more so from coefficients.

One thread, from bytes in memory to RGB arrays, compared with Pillow and simplejpeg (both use libjpeg-turbo). First, the
pixels of every image are compared with Pillow's, in full and for a random region. Coefficients: records that
``ps.pack(transcode="coefficients")`` stores; thumbnails are decoded at 1/8; progressive: the same pictures, saved
anew by Pillow at quality 90 as baseline and as progressive JPEG.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial

import numpy as np
import simplejpeg
from harness import arguments, images_folder, in_turns, jpegs, machine, table, versions
from PIL import Image, features

import penstock as ps
from penstock import _native


def pillow(encoded: bytes) -> np.ndarray:
    """Decode with Pillow, as most PyTorch code does."""
    return np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB"))


def check(images: list[bytes]) -> int:
    """Compare every pixel of every image and of one region of each; return the number of compared pixels."""
    draw = np.random.default_rng(0)
    compared = 0
    for encoded in images:
        want = pillow(encoded)
        height, width = want.shape[:2]
        x0, y0 = int(draw.integers(width)), int(draw.integers(height))
        x1, y1 = int(draw.integers(x0, width)) + 1, int(draw.integers(y0, height)) + 1
        if not np.array_equal(ps.decode(encoded), want):
            raise SystemExit("a full decode differs from Pillow's")
        if not np.array_equal(ps.decode(encoded, region=(x0, y0, x1, y1)), want[y0:y1, x0:x1]):
            raise SystemExit(f"the region {x0, y0, x1, y1} differs from Pillow's")
        compared += want.shape[0] * want.shape[1] + (x1 - x0) * (y1 - y0)
    return compared


KINDS = ("baseline", "progressive")
EXACT = {"fastdct": False, "fastupsample": False}


def over(decode: Callable[[bytes], object], images: list[bytes]) -> Callable[[], float]:
    """Decode all images."""

    def run() -> float:
        for encoded in images:
            decode(encoded)
        return len(images)

    return run


def saved(encoded: bytes, *, progressive: bool) -> bytes:
    """Save an image anew."""
    file = io.BytesIO()
    Image.open(io.BytesIO(encoded)).convert("RGB").save(file, "JPEG", quality=90, progressive=progressive)
    return file.getvalue()


def main() -> None:
    """Check, measure and print."""
    options = arguments(__doc__, rounds=7)
    images = [path.read_bytes() for path in jpegs(images_folder(options.images))]
    records = [_native.coefficients_from_jpeg(encoded) for encoded in images]
    for encoded, record in zip(images, records, strict=True):
        if _native.jpeg_from_coefficients(record) != encoded or not np.array_equal(
            ps.decode(record), ps.decode(encoded)
        ):
            raise SystemExit("coefficients differ from their JPEG")
    compared = check(images)

    timings = in_turns(
        {
            "Pillow": over(pillow, images),
            "simplejpeg": over(lambda encoded: simplejpeg.decode_jpeg(encoded, **EXACT), images),
            "penstock.decode": over(ps.decode, images),
            "penstock.decode, coefficients": over(ps.decode, records),
        },
        rounds=options.rounds,
        unit="images/s",
    )
    rival = max(("Pillow", "simplejpeg"), key=lambda name: timings[name].median)
    print("### Full decode, one thread\n")
    print(f"{len(images)} JPEGs, {sum(map(len, images)) / 1e6:.1f} MB; {machine()}; ", end="")
    print(versions("penstock-data", "Pillow", "simplejpeg", "numpy"), end="")
    print(f"; libjpeg-turbo in Pillow {features.version('libjpeg_turbo')}.")
    print(
        f"Same pixels: {compared / 1e6:.1f} million compared with Pillow's (whole and one region each), none differs.\n"
    )
    print(table(timings, against=rival))
    nbytes = sum(map(len, records)) / sum(map(len, images))
    print(f"\nThe records of coefficients have {nbytes:.3f} of the bytes of the JPEGs, and give all of these back.\n")
    print("### Thumbnails at 1/8, one thread\n")
    timings = in_turns(
        {
            "simplejpeg": over(lambda encoded: simplejpeg.decode_jpeg(encoded, min_height=1, min_width=1), images),
            "penstock.decode": over(partial(ps.decode, scale=8), images),
            "penstock.decode, coefficients": over(partial(ps.decode, scale=8), records),
        },
        rounds=options.rounds,
        unit="images/s",
    )
    print(table(timings, against="simplejpeg"))
    print("\n### Baseline and progressive JPEGs of the same pixels, one thread\n")
    kinds = {kind: [saved(encoded, progressive=kind == "progressive") for encoded in images] for kind in KINDS}
    candidates = {kind: over(ps.decode, kinds[kind]) for kind in KINDS}
    for kind in KINDS:
        records = [_native.coefficients_from_jpeg(encoded) for encoded in kinds[kind]]
        nbytes = sum(map(len, records)) / sum(map(len, kinds[kind]))
        candidates[f"{kind}, coefficients ({nbytes:.3f} of the bytes)"] = over(ps.decode, records)
    print(table(in_turns(candidates, rounds=options.rounds, unit="images/s"), against="baseline"))


if __name__ == "__main__":
    main()
