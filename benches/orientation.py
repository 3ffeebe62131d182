"""Claim: images that Exif turns (phones) are filled at 0.95 of the speed of upright ones or more.

The same JPEGs with and without an Exif segment that gives an orientation: decoding is the same work. RandomResizedCrop
to 224 x 224, flip, normalise, float32 CHW; one thread, bytes in memory, in turns in one run. Two sets: the photographs,
and some of them enlarged to 12 megapixels, as phones make. The pixels are those of the general path: see the tests.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import numpy as np
from harness import arguments, images_folder, in_turns, jpegs, machine, table, versions
from PIL import Image

from penstock import transforms as T
from penstock.sample import SampleKeys

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


def filler(images: Sequence[bytes], orient: bool) -> Callable[[], float]:
    """Fills one row for each image."""
    pipeline = T.Pipeline(
        [
            T.Decode(orient=orient),
            T.RandomResizedCrop(224),
            T.HorizontalFlip(),
            T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD),
            T.ToLayout("CHW", "float32"),
        ]
    )
    program = pipeline.compile(("image",))
    keys, out = SampleKeys(0, 0, np.arange(len(images))), np.empty((len(images), 3, 224, 224), np.float32)

    def run() -> float:
        program.fill(images, out, keys)
        return len(images)

    return run


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=7)
    photographs = [path.read_bytes() for path in jpegs(images_folder(options.images))[:200]]
    sets = {"photographs": photographs, "12 megapixels": [enlarged(each) for each in photographs[:8]]}
    print(f"{machine()}; {versions('numpy', 'pillow')}\n")
    for name, images in sets.items():
        candidates = {"upright, orient=False": filler(images, orient=False), "upright": filler(images, orient=True)}
        for what, orientation in ORIENTATIONS.items():
            candidates[what] = filler([turned(each, orientation) for each in images], orient=True)
        print(f"{name}: {len(images)} images\n")
        print(table(in_turns(candidates, rounds=options.rounds, unit="images/s"), against="upright"), end="\n\n")


if __name__ == "__main__":
    main()
