"""Photographs for tests, as JPEG files of the kinds that collections hold, cut from the pictures inside scikit-image.

``skimage.data`` documents the author and the licence of each picture; all are free. The files are the same on every
machine that has the pinned Pillow, so that a test needs nothing beside the repository.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

__all__ = ["write_photographs"]

PICTURES: Final = {
    "astronaut": "astronaut.png",
    "brick": "brick.png",
    "camera": "camera.png",
    "cat": "chelsea.png",
    "coffee": "coffee.png",
    "coins": "coins.png",
    "galaxies": "hubble_deep_field.jpg",
    "grass": "grass.png",
    "motorcycle": "motorcycle_left.png",
    "page": "page.png",
    "retina": "retina.jpg",
    "rocket": "rocket.jpg",
    "tissue": "ihc.png",
}
"""Class to file in ``skimage/data``."""

LARGEST: Final = (640, 500)


def write_photographs(folder: Path, per_class: int = 4) -> Path:
    """Write ``folder/<class>/<number>.jpg``, baseline JPEGs of 100 to 640 pixels a side; give ``folder``.

    Colour photographs are 4:4:4, 4:2:0 and 4:2:2 in turn; about every fifth file has restart markers.
    """
    import skimage  # here, so that tests that need no photographs run without it

    rng = np.random.default_rng(2026)
    samplings = itertools.cycle((0, 2, 1, 2))
    for name, file in PICTURES.items():
        (folder / name).mkdir(parents=True)
        with Image.open(Path(skimage.__file__).parent / "data" / file) as opened:
            picture = opened.convert("L" if opened.mode == "L" else "RGB")
        picture.thumbnail((900, 900))
        for number in range(per_class):
            # The first file of a class shows most of the picture, the others less.
            width, height = (
                min(most, round(side * share))
                for side, most, share in zip(picture.size, LARGEST, rng.uniform(0.4, 0.9, 2), strict=True)
            )
            if number == 0:
                width, height = (min(pair) for pair in zip(picture.size, LARGEST, strict=True))
            left = int(rng.integers(picture.width - width + 1))
            top = int(rng.integers(picture.height - height + 1))
            options: dict[str, Any] = {} if picture.mode == "L" else {"subsampling": next(samplings)}
            restart = int(rng.integers(1, 40)) if rng.random() < 0.2 else 0
            picture.crop((left, top, left + width, top + height)).save(
                folder / name / f"{number}.jpg",
                quality=int(rng.integers(60, 98)),
                restart_marker_blocks=restart,
                **options,
            )
    return folder
