"""A pack of pictures with everything that follows them, which the tests of instances and of all targets share."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image, ImageDraw

import penstock as ps
from penstock.annotations import rle
from penstock.sample import Array
from tests.loader.annotated_pictures import draw_picture

__all__ = ["COUNT", "POINTS", "pack_shapes", "shape_of"]

COUNT: Final = 16
POINTS: Final = 2
"""Keypoints of each object."""


def shape_of(width: int, height: int, box: Array) -> Array:
    """The mask of an ellipse in a box."""
    canvas = Image.new("L", (width, height))
    ImageDraw.Draw(canvas).ellipse([float(each) for each in box], fill=1)
    return np.asarray(canvas)


def fields(index: int) -> dict[str, Any]:
    """A picture of its own size with ellipses; every fourth has none, and some ellipses have no mask."""
    image, width, height, corners, classes, random = draw_picture(index)
    boxes = corners.reshape(-1, 4)
    masks = [shape_of(width, height, box) for box in boxes]
    file = io.BytesIO()
    Image.fromarray(random.integers(0, 5, (height, width), np.uint8)).save(file, "PNG")
    return {
        "image": image,
        "mask": file.getvalue(),
        "boxes": boxes,
        "labels": classes,
        "keypoints": random.random((len(boxes), POINTS, 3), np.float32) * np.array([width, height, 1], np.float32),
        "instances": [None if row == 2 else rle.encode(mask) for row, mask in enumerate(masks)],
        "score": random.random(len(boxes)),
    }


def pack_shapes(path: Path) -> Path:
    """A pack of :data:`COUNT` pictures."""
    schema = {
        "image": "image",
        "mask": "mask",
        "boxes": "boxes",
        "labels": "int64[*]",
        "keypoints": f"float32[*,{POINTS},3]",
        "instances": "json",
        "score": "float64[*]",
    }
    ps.pack((fields(index) for index in range(COUNT)), path, schema=schema)
    return path
