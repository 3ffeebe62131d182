"""Claim: a full decode is at least 1.5 times as fast as libjpeg-turbo, with the same pixels.

One thread, from bytes in memory to RGB arrays, compared with Pillow and simplejpeg (both use libjpeg-turbo). First, the
pixels of every image are compared with Pillow's, in full and for a random region.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import simplejpeg
from harness import arguments, images_folder, in_turns, jpegs, machine, table, versions
from PIL import Image, features

import penstock as ps


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


def main() -> None:
    """Check, measure and print."""
    options = arguments(__doc__, rounds=7)
    images = [path.read_bytes() for path in jpegs(images_folder(options.images))]
    compared = check(images)

    def over(decode: Callable[[bytes], object]) -> Callable[[], float]:
        def run() -> float:
            for encoded in images:
                decode(encoded)
            return len(images)

        return run

    timings = in_turns(
        {
            "Pillow": over(pillow),
            "simplejpeg": over(lambda encoded: simplejpeg.decode_jpeg(encoded, fastdct=False, fastupsample=False)),
            "penstock.decode": over(ps.decode),
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


if __name__ == "__main__":
    main()
