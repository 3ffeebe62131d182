"""Create pictures of shapes with exact boxes, masks and points, in the layouts that annotation tools write.

::

    images/<split>/*.jpg                             "train" and "val"
    masks/<split>/*.png, classes.txt                 the value of a pixel is the number of a line of classes.txt
    annotations/instances_<split>.json               COCO's boxes: disc, square, kite
    annotations/person_keypoints_<split>.json        COCO's keypoints of the one kite of each picture

The backgrounds are parts of scikit-image's photographs, other ones for "val" than for "train". The files are the same
on every machine. No network is used.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.demo.photographs import CLASSES, HELD_OUT, open_photograph, write_once

__all__ = ["POINTS", "SHAPES", "write_shapes"]

SHAPES: Final = {"disc": (205, 70, 60), "square": (60, 150, 75), "kite": (70, 90, 200)}
"""The classes, whose values in masks are 1, 2 and 3, with their mean colours."""
POINTS: Final = ("tip", "left", "tail", "right")
"""The keypoints of a kite; a mirror exchanges ``left`` and ``right``."""

_KITE: Final = np.array([(0.0, -1.0), (-0.6, -0.3), (0.0, 1.0), (0.6, -0.3)])
_SIZE: Final = (192, 144)


def write_shapes(folder: Path, *, train: int, val: int) -> Path:
    """Write pictures of one kite and up to three discs and squares, with annotations, unless they exist.

    ``train`` and ``val`` are the numbers of pictures. The folder, what is returned, and the errors are those of
    :func:`~penstock.demo.photographs.write_photographs`.
    """

    def write(partial: Path) -> None:
        (partial / "annotations").mkdir()
        (partial / "classes.txt").write_text("\n".join(["background", *SHAPES]) + "\n")
        for split, count in {"train": train, "val": val}.items():
            _write_split(partial, split, count)

    return write_once(folder, f"shapes 1: {train} + {val}", write)


def _write_split(folder: Path, split: str, count: int) -> None:
    from PIL import Image

    left, right = (HELD_OUT, 1.0) if split == "train" else (0.0, HELD_OUT)
    photographs = [open_photograph(file).convert("RGB") for file in CLASSES.values()]
    categories = [{"id": number, "name": name} for number, name in enumerate(SHAPES, 1)]
    images, boxes = list[dict[str, object]](), list[dict[str, object]]()
    for part in ("images", "masks"):
        (folder / part / split).mkdir(parents=True)
    for number in range(count):
        draw = np.random.default_rng([number, len(split)])
        source = photographs[int(draw.integers(len(photographs)))]
        side = int(min(source.width * (right - left), source.height) * draw.uniform(0.6, 1))
        x = int(draw.integers(round(source.width * left), round(source.width * right) - side + 1))
        y = int(draw.integers(source.height - side + 1))
        picture = np.array(source.crop((x, y, x + side, y + side * 3 // 4)).resize(_SIZE, Image.Resampling.BICUBIC))
        mask = np.zeros(picture.shape[:2], np.uint8)
        for label in (3, *draw.integers(1, 3, draw.integers(1, 4)).tolist()):
            box = {"id": len(boxes) + 1, "image_id": number, "category_id": label, "iscrowd": 0}
            boxes += [box | placed for placed in _draw_shape(draw, picture, mask, label)]
        images.append({"id": number, "file_name": f"{number}.jpg", "width": _SIZE[0], "height": _SIZE[1]})
        Image.fromarray(picture).save(folder / "images" / split / f"{number}.jpg", quality=90)
        Image.fromarray(mask).save(folder / "masks" / split / f"{number}.png")
    kites = [box | {"category_id": 1} for box in boxes if box["category_id"] == 3]
    plain = [{name: value for name, value in box.items() if "keypoints" not in name} for box in boxes]
    kite = {"id": 1, "name": "kite", "keypoints": POINTS, "skeleton": [[1, 2], [2, 3], [3, 4], [4, 1]]}
    for name, objects, kinds in (("instances", plain, categories), ("person_keypoints", kites, [kite])):
        content = {"images": images, "annotations": objects, "categories": kinds}
        (folder / "annotations" / f"{name}_{split}.json").write_text(json.dumps(content))


def _draw_shape(
    draw: np.random.Generator, picture: NDArray[np.uint8], mask: NDArray[np.uint8], label: int
) -> list[dict[str, object]]:
    """Draw a shape where no other one is; what COCO says of it, or nothing if there is no place."""
    y, x = np.mgrid[: mask.shape[0], : mask.shape[1]] + 0.5
    for _ in range(20):
        radius, turn = draw.uniform(16, 34), draw.uniform(-0.9, 0.9)
        centre = np.array([draw.uniform(radius + 2, side - radius - 2) for side in _SIZE])
        turned = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
        points = _KITE @ turned.T * radius + centre
        own_x, own_y = np.tensordot(turned.T, np.stack([x - centre[0], y - centre[1]]), 1) / radius
        disc, square = own_x**2 + own_y**2 < 1, np.maximum(np.abs(own_x), np.abs(own_y)) < 0.72
        kite = np.abs(own_x) < 0.6 * np.minimum((own_y + 1) / 0.7, (1 - own_y) / 1.3)
        inside = (disc, square, kite)[label - 1]
        if not mask[inside].any():
            break
    else:
        return []
    colour = np.array(list(SHAPES.values())[label - 1]) + draw.normal(0, 22, 3)
    shade = 1 + 0.25 * draw.uniform(-1, 1) * own_x[inside, None] + draw.normal(0, 0.05, (int(inside.sum()), 1))
    picture[inside] = np.clip(0.85 * colour * shade + 0.15 * picture[inside], 0, 255).astype(np.uint8)
    mask[inside] = label
    rows, columns = np.nonzero(inside)
    low, high = (int(columns.min()), int(rows.min())), (int(columns.max()) + 1, int(rows.max()) + 1)
    keypoints = np.column_stack([points.round(2), np.full(len(points), 2)]).ravel().tolist()
    sides = [*low, high[0] - low[0], high[1] - low[1]]
    return [{"bbox": sides, "area": len(rows), "keypoints": keypoints, "num_keypoints": len(points)}]
