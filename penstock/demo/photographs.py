"""Create JPEG files in classes from the photographs in scikit-image.

Each photograph is a class. Crops for training come from its right part, held-out crops from its left part, so no pixel
is in both. Crops differ in position, scale, shape, JPEG quality and chroma subsampling, as files in a real folder do.
Gray photographs stay gray. The files are the same on every machine. No network is used.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.errors import ArgumentError
from penstock.registry import require

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["CLASSES", "HELD_OUT", "open_photograph", "write_once", "write_photographs"]

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
"""Class name to file in ``skimage/data``; ``skimage.data`` documents the author and the licence of each photograph."""

HELD_OUT: Final = 0.3
"""The share of a photograph's width, from the left, for held-out crops."""


@dataclass(frozen=True, slots=True)
class _CropFile:
    """A file to write: the box of the photograph, the size in pixels, and how it is encoded."""

    path: Path
    box: tuple[int, int, int, int]
    size: tuple[int, int]
    quality: int
    subsampling: int


def write_photographs(folder: Path, *, train: int, held_out: int, sides: tuple[int, int] = (280, 500)) -> Path:
    """Write ``folder/train/<class>/*.jpg`` and ``folder/held-out/<class>/*.jpg``, unless they exist.

    Parameters
    ----------
    folder : Path
        It is created complete or not at all, also if the run is interrupted.
    train, held_out : int
        Number of files per class.
    sides : tuple of int
        Smallest and largest length of the longer side of a file, in pixels.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ArgumentError
        If the folder exists and holds something else.
    OptionalPackageError
        If scikit-image is not installed.
    """

    def write(partial: Path) -> None:
        with ThreadPoolExecutor(4) as pool:
            for name, file in CLASSES.items():
                photograph = open_photograph(file)
                for part in ("train", "held-out"):
                    (partial / part / name).mkdir(parents=True)
                crops = [*_draw_crops(partial / "train" / name, photograph.size, train, (HELD_OUT, 1), sides)]
                crops += _draw_crops(partial / "held-out" / name, photograph.size, held_out, (0, HELD_OUT), sides)
                for _ in pool.map(lambda crop, source=photograph: _save(source, crop), crops):
                    pass  # the iteration raises the threads' errors

    return write_once(folder, f"{train} + {held_out}, {HELD_OUT}, {sides}", write)


def write_once(folder: Path, made_of: str, write: Callable[[Path], None]) -> Path:
    """Create a folder complete or not at all, unless it was made of the same; one made of other things is replaced.

    ``write`` is called with an empty folder, which is renamed afterwards. What its content depends on, ``made_of``, is
    written to ``made-of.txt``. A folder without that file raises an ``ArgumentError``, and nothing in it is deleted.
    """
    marker = folder / "made-of.txt"
    if marker.is_file() and marker.read_text() == made_of:
        return folder
    if folder.exists() and not marker.is_file():
        raise ArgumentError(f"{str(folder)!r:.500} exists and was not made here; give a folder that does not exist")
    partial = folder.with_name(folder.name + ".partial")
    for stale in (partial, folder):
        shutil.rmtree(stale, ignore_errors=True)
    partial.mkdir(parents=True)
    write(partial)
    (partial / marker.name).write_text(made_of)
    partial.rename(folder)
    return folder


def open_photograph(file: str) -> Image.Image:
    """Return a photograph of scikit-image, by its file in :data:`CLASSES`: gray (L) or RGB."""
    from PIL import Image

    package = require("skimage", extra="demo", purpose="for its photographs")
    with Image.open(Path(package.__file__).parent / "data" / file) as image:
        return image.convert("L" if image.mode in {"L", "I;16"} else "RGB")


def _draw_crops(
    folder: Path, size: tuple[int, int], count: int, span: tuple[float, float], sides: tuple[int, int] = (280, 500)
) -> Iterator[_CropFile]:
    """Draw ``count`` crops from the columns ``span`` (fractions of the width) of a photograph."""
    draw = np.random.default_rng([*size, round(span[0] * 100)])
    left, right, height = round(size[0] * span[0]), round(size[0] * span[1]), size[1]
    for number in range(count):
        # The area is 15 to 80 percent of the square of the part's shorter side; the shape is between 3:4 and 4:3.
        side = min(right - left, height) * np.sqrt(draw.uniform(0.15, 0.8))
        stretch = np.sqrt(draw.uniform(3 / 4, 4 / 3))
        w, h = min(int(side * stretch), right - left), min(int(side / stretch), height)
        x, y = int(draw.integers(left, right - w + 1)), int(draw.integers(height - h + 1))
        scale = draw.integers(sides[0], sides[1] + 1) / max(w, h)
        yield _CropFile(
            path=folder / f"{number}.jpg",
            box=(x, y, x + w, y + h),
            size=(max(1, round(w * scale)), max(1, round(h * scale))),
            quality=int(draw.integers(70, 96)),
            subsampling=int(draw.choice([0, 2], p=[0.2, 0.8])),  # 4:4:4 or, mostly, 4:2:0
        )


def _save(photograph: Image.Image, crop: _CropFile) -> None:
    from PIL import Image

    # Crop first: with `box=`, the filter reads a few pixels beyond the box, which may be in the other part.
    image = photograph.crop(crop.box).resize(crop.size, Image.Resampling.BICUBIC)
    image.save(crop.path, quality=crop.quality, subsampling=crop.subsampling)
