"""Folders of real pictures for tests, each picture another one."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image


def picture(seed: int, form: str = "JPEG") -> bytes:
    """A small picture as a file, of 20 to 60 pixels a side."""
    rng = np.random.default_rng(seed)
    height, width = (int(side) for side in rng.integers(20, 60, 2))
    file = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)).save(file, form)
    return file.getvalue()


def make_photos(folder: Path, count: int = 12, classes: tuple[str, ...] = ("cats", "dogs")) -> Path:
    """``count`` pictures in class folders."""
    for number in range(count):
        path = folder / classes[number % len(classes)] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number))
    return folder
