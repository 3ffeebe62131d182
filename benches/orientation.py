"""Claim: images that Exif turns (phones) are filled at 0.95 of the speed of upright ones or more.

The same JPEGs with and without an Exif segment that gives an orientation, and the same regions of the stored rows as
RandomResizedCrop draws them: decoding is the same work. Resized to 224 x 224, normalised, float32 CHW; one thread,
bytes in memory, in turns in one run. Two sets: the photographs, and some of them enlarged to 12 megapixels, as phones
make.
The pixels are those of the general path: see the tests.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import numpy as np
from harness import arguments, images_folder, in_turns, jpegs, machine, table, versions
from numpy.typing import NDArray
from PIL import Image

from penstock import _native
from penstock import transforms as T
from penstock.sample import SampleKeys
from penstock.transforms.decoding.decode import MAX_PIXELS, read_orientations

ORIENTATIONS = {"mirrored": 2, "upside down": 3, "turned left": 6, "turned right": 8}
PHONE = (4032, 3024)


def turned(encoded: bytes, orientation: int) -> bytes:
    """The same JPEG with this orientation in an Exif segment."""
    entry = b"".join(n.to_bytes(size, "big") for n, size in ((0x112, 2), (3, 2), (1, 4), (orientation, 2), (0, 2)))
    body = b"Exif\0\0MM\0*\0\0\0\x08\0\x01" + entry + bytes(4)
    return encoded[:2] + b"\xff\xe1" + (len(body) + 2).to_bytes(2, "big") + body + encoded[2:]


def enlarged(encoded: bytes) -> bytes:
    """A photograph as a phone makes it: 12 megapixels, 4:2:0, quality 90."""
    file = io.BytesIO()
    image = Image.open(io.BytesIO(encoded)).convert("RGB")
    image.resize(PHONE, Image.Resampling.LANCZOS).save(file, "JPEG", quality=90, subsampling="4:2:0")
    return file.getvalue()


def draw_regions(images: Sequence[bytes]) -> NDArray[np.int32]:
    """The regions of the stored images that RandomResizedCrop draws for upright ones."""
    program = T.Pipeline([T.Decode(), T.RandomResizedCrop(224)]).compile("image")
    plan = program.plan(SampleKeys(0, 0, np.arange(len(images))), _native.sizes(images))
    regions: NDArray[np.int32] = plan.geometry
    return regions


def filler(images: Sequence[bytes], geometry: NDArray[np.int32], *, orient: bool) -> Callable[[], float]:
    """A candidate: fill a row with every image, and read its orientation."""
    out, rows = np.empty((len(images), 3, 224, 224), np.float32), np.arange(len(images))
    scale, offset = (0.017, 0.0175, 0.0174), (-2.1, -2.0, -1.8)

    def run() -> float:
        orientations = read_orientations(images, MAX_PIXELS) if orient else None
        failed, *_ = _native.fill(
            images, geometry, out, rows, layout="CHW", filter="bilinear", scale=scale, offset=offset,
            orientations=orientations,
        )  # fmt: skip
        if failed:
            raise SystemExit(f"not decoded: {failed}")
        return len(images)

    return run


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=7)
    photographs = [path.read_bytes() for path in jpegs(images_folder(options.images))[:200]]
    sets = {"photographs": photographs, "12 megapixels": [enlarged(each) for each in photographs[:8]]}
    print(f"{machine()}; {versions('numpy', 'pillow')}\n")
    for name, images in sets.items():
        regions = draw_regions(images)
        candidates = {
            "upright, not asked": filler(images, regions, orient=False),
            "upright": filler(images, regions, orient=True),
        }
        for what, orientation in ORIENTATIONS.items():
            candidates[what] = filler([turned(each, orientation) for each in images], regions, orient=True)
        print(f"{name}: {len(images)} images\n")
        print(table(in_turns(candidates, rounds=options.rounds, unit="images/s"), against="upright"), end="\n\n")


if __name__ == "__main__":
    main()
