"""A few thousand JPEG files in classes, cut from the photographs inside scikit-image.

Each photograph is a class. It is divided once: held-out crops come from its left part, training crops from its right
part, so that no pixel is in both and accuracy means something. Crops differ in place, scale, shape, JPEG quality and
chroma subsampling, as files in a real folder do; gray photographs stay gray. The same files on every machine.
Needs no network, and writes below the one folder it is given.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.registry import require

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["CLASSES", "write_photographs"]

CLASSES: Final = {
    "astronaut": "astronaut.png",
    "brick": "brick.png",
    "cat": "chelsea.png",
    "coffee": "coffee.png",
    "galaxies": "hubble_deep_field.jpg",
    "grass": "grass.png",
    "gravel": "gravel.png",
    "motorcycle": "motorcycle_left.png",
    "retina": "retina.jpg",
    "rocket": "rocket.jpg",
    "tissue": "ihc.png",
}
"""Class name to the photograph's file in ``skimage/data``; ``skimage.data`` documents each one's author and licence."""

_SPLIT: Final = 0.3  # share of a photograph's width that held-out crops come from


@dataclass(frozen=True, slots=True)
class _Crop:
    """One file to be: a box of a photograph, the size it is saved at, and how."""

    path: Path
    box: tuple[int, int, int, int]
    size: tuple[int, int]
    quality: int
    subsampling: int


def write_photographs(folder: Path, *, train: int, held_out: int) -> None:
    """Write ``folder/train/<class>/*.jpg`` and ``folder/held-out/<class>/*.jpg``; does nothing where they are.

    Parameters
    ----------
    folder : Path
        Created whole or not at all: a run that is interrupted leaves no half of it behind.
    train, held_out : int
        Files per class.
    """
    made_of = f"{train} + {held_out}, {_SPLIT}"
    marker = folder / "made-of.txt"
    if marker.is_file() and marker.read_text() == made_of:
        return
    partial = folder.with_name(folder.name + ".partial")
    for stale in (partial, folder):
        shutil.rmtree(stale, ignore_errors=True)
    with ThreadPoolExecutor(4) as pool:
        for name, file in CLASSES.items():
            photograph = _photograph(file)
            for part in ("train", "held-out"):
                (partial / part / name).mkdir(parents=True)
            crops = [*_crops(partial / "train" / name, photograph.size, train, (_SPLIT, 1))]
            crops += _crops(partial / "held-out" / name, photograph.size, held_out, (0, _SPLIT))
            for _ in pool.map(lambda crop, source=photograph: _save(source, crop), crops):
                pass  # pool.map raises here what a thread raised there
    (partial / marker.name).write_text(made_of)
    partial.rename(folder)


def _photograph(file: str) -> Image.Image:
    from PIL import Image

    package = require("skimage", extra="demo", purpose="for its photographs")
    with Image.open(Path(package.__file__).parent / "data" / file) as image:
        return image.convert("L" if image.mode in {"L", "I;16"} else "RGB")


def _crops(folder: Path, size: tuple[int, int], count: int, span: tuple[float, float]) -> Iterator[_Crop]:
    """``count`` crops out of the columns ``span`` (shares of the width) of a photograph."""
    draw = np.random.default_rng([*size, round(span[0] * 100)])
    left, right, height = round(size[0] * span[0]), round(size[0] * span[1]), size[1]
    for number in range(count):
        # A box of 15 to 80 percent of the part's shorter side squared, between 3:4 and 4:3, ...
        side = min(right - left, height) * np.sqrt(draw.uniform(0.15, 0.8))
        stretch = np.sqrt(draw.uniform(3 / 4, 4 / 3))
        w, h = min(int(side * stretch), right - left), min(int(side / stretch), height)
        x, y = int(draw.integers(left, right - w + 1)), int(draw.integers(height - h + 1))
        # ... saved with a longer side of 280 to 500 pixels: the sizes in which photographs are published.
        scale = draw.integers(280, 501) / max(w, h)
        yield _Crop(
            path=folder / f"{number}.jpg",
            box=(x, y, x + w, y + h),
            size=(max(1, round(w * scale)), max(1, round(h * scale))),
            quality=int(draw.integers(70, 96)),
            subsampling=int(draw.choice([0, 2], p=[0.2, 0.8])),  # 4:4:4 or, mostly, 4:2:0
        )


def _save(photograph: Image.Image, crop: _Crop) -> None:
    from PIL import Image

    # Cropped first: with `box=` the filter would reach a few pixels past the box, perhaps into the other part.
    image = photograph.crop(crop.box).resize(crop.size, Image.Resampling.BICUBIC)
    image.save(crop.path, quality=crop.quality, subsampling=crop.subsampling)
