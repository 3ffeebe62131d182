"""A folder with images of many kinds, and the comparison of torchvision's pixels with penstock's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

SIZES = [(97, 61), (61, 97), (300, 211), (8, 8), (1, 37), (64, 64), (333, 500)]


def picture(width: int, height: int, seed: int) -> Image.Image:
    """An image with gradients, edges and some noise."""
    draw = np.random.default_rng(seed)
    field = Image.fromarray(draw.integers(0, 256, (5, 6, 3), dtype=np.uint8)).resize(
        (width, height), Image.Resampling.BICUBIC
    )
    noise = draw.normal(0, 9, (height, width, 3))
    return Image.fromarray(np.clip(np.asarray(field) + noise, 0, 255).astype(np.uint8))


def gallery(root: Path) -> Path:
    """All modes and formats, in two classes, the second with a sub-folder."""
    for name in ("cats", "dogs/more"):
        (root / name).mkdir(parents=True)
    cats, dogs = root / "cats", root / "dogs"
    for i, size in enumerate(SIZES):
        picture(*size, seed=i).save(cats / f"plain{i}.jpg", quality=90, subsampling=i % 3)
    rgb = picture(83, 59, seed=50)
    rgb.convert("L").save(cats / "gray.jpeg")
    rgb.save(cats / "progressive.JPG", progressive=True)
    rgb.convert("CMYK").save(cats / "cmyk.jpg")
    rgb.save(cats / "colours.png")
    rgba = rgb.convert("RGBA")
    rgba.putalpha(rgb.convert("L"))
    rgba.save(dogs / "alpha.png")
    rgba.save(dogs / "alpha.webp", lossless=True)
    rgba.save(dogs / "alpha.tif")
    rgb.quantize(17).save(dogs / "palette.png")
    rgb.quantize(17).save(dogs / "palette-transparent.png", transparency=3)
    rgb.convert("LA").save(dogs / "gray-alpha.png")
    rgb.convert("1").save(dogs / "bits.png")
    rgb.save(dogs / "more" / "windows.bmp")
    rgb.save(dogs / "more" / "portable.ppm")
    rgb.convert("L").save(dogs / "more" / "portable.pgm")
    (dogs / "notes.txt").write_text("no image")
    return root


def levels(ours: Any, theirs: Any) -> float:
    """The largest difference of two images of equal type, shape and dtype, in levels from 0 to 255."""
    assert type(ours) is type(theirs)
    if isinstance(ours, Image.Image):
        assert ours.mode == theirs.mode
        ours, theirs = (torch.from_numpy(np.array(image)) for image in (ours, theirs))
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    difference = float((ours.double() - theirs.double()).abs().max())
    return difference if ours.dtype == torch.uint8 else difference * 255
