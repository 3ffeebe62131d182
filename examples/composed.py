"""Pictures composed of photographs, with exact masks and points: for want of a set of one's own.

::

    segmentation   classes.txt, images/<split>/*.jpg, masks/<split>/*.png    a mask's values are lines of classes.txt
    landmarks      annotations/person_keypoints_<split>.json, <split>/*.jpg  COCO's keypoints

The photographs are those in scikit-image. Figures are cut out of one and pasted on another, in a random place, size,
angle and perspective; those of segmentation have a shape and a material by their class. What is drawn is decided at the
centre of each pixel by the inverse of a projective map, so masks and points have no error but that of rounding.
Pictures of "val" show the left part of each photograph, those of "train" the right part: no pixel is in both. The files
are the same on every machine with the same versions of NumPy and Pillow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from penstock.demo.photographs import CLASSES, HELD_OUT, open_photograph, write_once

__all__ = [
    "MATERIALS",
    "POINTS",
    "SHAPES",
    "SPANS",
    "Photographs",
    "Placement",
    "draw_background",
    "draw_figure",
    "write_landmarks",
    "write_segmentation",
]

Array = NDArray[Any]
Inside = Callable[[Array, Array], Array]
"""Whether points (x, y) of a figure's own plane belong to it, which reaches from -1 to 1."""

SPANS: Final = {"train": (HELD_OUT, 1.0), "val": (0.0, HELD_OUT)}
"""The columns of each photograph that a split shows."""
POINTS: Final = ("left_eye", "right_eye", "nose", "left_mouth", "right_mouth")


def _ellipse(x: Array, y: Array) -> Array:
    return np.asarray(x**2 + y**2 < 1)


def _star(x: Array, y: Array) -> Array:
    """Five triangles around a pentagon: between a far and a near corner, the edge is a line."""
    turn = 2 * np.pi / 10
    angle = np.arctan2(x, -y) % (2 * turn)
    angle = np.minimum(angle, 2 * turn - angle)  # from the far corner, at 0, to the near one
    far, near = np.array([1.0, 0.0]), 0.42 * np.array([np.cos(turn), np.sin(turn)])
    along, across = np.hypot(x, y) * np.cos(angle), np.hypot(x, y) * np.sin(angle)
    edge = near - far
    return np.asarray(edge[0] * (across - far[1]) - edge[1] * (along - far[0]) > 0)


def _triangle(x: Array, y: Array) -> Array:
    return np.asarray((y < 0.5) & (np.abs(x) * np.sqrt(3) < y + 1))


def _cross(x: Array, y: Array) -> Array:
    near, far = np.minimum(np.abs(x), np.abs(y)), np.maximum(np.abs(x), np.abs(y))
    return np.asarray((near < 0.33) & (far < 1))


MATERIALS: Final = {"ellipse": "brick", "star": "tissue", "triangle": "gravel", "cross": "galaxies"}
"""The photograph that the figures of each class of segmentation are cut from; it is in no background."""
SHAPES: Final[Mapping[str, Inside]] = {"ellipse": _ellipse, "star": _star, "triangle": _triangle, "cross": _cross}
"""The classes of segmentation, whose values in masks are 1, 2, 3 and 4."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A map from the plane of a figure to a picture: 3 x 3, on homogeneous coordinates."""

    matrix: Array

    @classmethod
    def draw(cls, draw: np.random.Generator, centre: Array, radius: float, angle: float) -> Placement:
        """A random turn of up to ``angle`` in radians, stretch and perspective."""
        turn, stretch = draw.uniform(-angle, angle), np.sqrt(draw.uniform(3 / 4, 4 / 3))
        cos, sin = np.cos(turn), np.sin(turn)
        similar = radius * np.array([[cos, -sin], [sin, cos]]) @ np.diag([stretch, 1 / stretch])
        matrix = np.eye(3)
        matrix[:2, :2], matrix[:2, 2] = similar, centre
        tilt = np.eye(3)
        tilt[2, :2] = draw.uniform(-0.25, 0.25, 2)
        return cls(matrix @ tilt)

    def place(self, points: Array) -> Array:
        """Points (n, 2) of the figure's plane in the picture."""
        placed = np.column_stack([points, np.ones(len(points))]) @ self.matrix.T
        return np.asarray(placed[:, :2] / placed[:, 2:])

    def unplace(self, size: tuple[int, int]) -> tuple[Array, Array]:
        """The points x and y, (height, width), of the figure's plane at the centres of all pixels."""
        x, y = np.meshgrid(np.arange(size[0]) + 0.5, np.arange(size[1]) + 0.5)
        back = np.linalg.inv(self.matrix)
        planes = [row[0] * x + row[1] * y + row[2] for row in back]
        # Points behind the eye, whose third coordinate is negative, belong to no figure.
        depth = np.where(planes[2] > 1e-9, planes[2], np.nan)
        return np.nan_to_num(planes[0] / depth, nan=9.0), np.nan_to_num(planes[1] / depth, nan=9.0)


class Photographs:
    """The part of each photograph that a split may show."""

    def __init__(self, split: str) -> None:
        self._span = SPANS[split]
        self.parts: dict[str, Any] = {}
        for name, file in CLASSES.items():
            photograph = open_photograph(file).convert("RGB")
            left, right = (round(photograph.width * side) for side in self._span)
            self.parts[name] = photograph.crop((left, 0, right, photograph.height))

    def cut(self, draw: np.random.Generator, size: tuple[int, int], names: Sequence[str]) -> Array:
        """A random rectangle of one of the photographs, resized: uint8 (height, width, 3)."""
        part = self.parts[names[int(draw.integers(len(names)))]]
        # The narrowest part limits the pieces of all splits: textures have the same scale in "train" and "val".
        narrowest = part.width * min(map(_width, SPANS.values())) / _width(self._span)
        most = min(narrowest / size[0], part.height / size[1])
        width, height = (max(2, int(side * most * draw.uniform(0.5, 1))) for side in size)
        x, y = int(draw.integers(part.width - width + 1)), int(draw.integers(part.height - height + 1))
        # Crop first: with `box=`, the filter reads a few pixels beyond it, which may be in the other part.
        return np.asarray(part.crop((x, y, x + width, y + height)).resize(size, Image.Resampling.BICUBIC))


def _width(span: tuple[float, float]) -> float:
    return span[1] - span[0]


def write_segmentation(folder: Path, counts: Mapping[str, int]) -> None:
    """Write pictures of one to three figures, each with a mask of classes, unless they exist.

    Parameters
    ----------
    folder : Path
        It is created complete or not at all.
    counts : mapping of str to int
        Number of pictures by split: "train", "val".
    """

    def write(partial: Path) -> None:
        (partial / "classes.txt").write_text("\n".join(["background", *SHAPES]) + "\n")
        palette = [0, 0, 0, 220, 60, 60, 60, 200, 60, 80, 120, 255, 240, 200, 40]
        for split, count in counts.items():
            for path, picture, mask in _draw_scenes(Photographs(split), partial / "images" / split, count):
                _save(picture, path)
                target = partial / "masks" / split / f"{path.stem}.png"
                target.parent.mkdir(parents=True, exist_ok=True)
                values = Image.fromarray(mask)
                values.putpalette(palette)
                values.save(target)

    write_once(folder, f"segmentation, 5: {dict(counts)}", write)


def write_landmarks(folder: Path, counts: Mapping[str, int]) -> None:
    """Write pictures of a face with five points, unless they exist; parameters as of :func:`write_segmentation`."""

    def write(partial: Path) -> None:
        (partial / "annotations").mkdir(parents=True)
        category = {"id": 1, "name": "face", "keypoints": POINTS, "skeleton": [[1, 3], [2, 3], [3, 4], [3, 5]]}
        for split, count in counts.items():
            images, annotations = [], []
            drawn = _draw_faces(Photographs(split), partial / split, count)
            for number, (path, picture, box, points) in enumerate(drawn, 1):
                _save(picture, path)
                height, width = picture.shape[:2]
                images.append({"id": number, "file_name": path.name, "width": width, "height": height})
                flags = np.full(len(points), 2)
                keypoints = np.column_stack([points.round(2), flags]).ravel().tolist()
                sides = [*box[:2], box[2] - box[0], box[3] - box[1]]
                common = {"id": number, "image_id": number, "category_id": 1, "iscrowd": 0}
                area = sides[2] * sides[3]
                annotations.append(
                    common | {"bbox": sides, "area": area, "keypoints": keypoints, "num_keypoints": len(points)}
                )
            content = {"images": images, "annotations": annotations, "categories": [category]}
            (partial / "annotations" / f"person_keypoints_{split}.json").write_text(json.dumps(content))

    write_once(folder, f"landmarks, 3: {dict(counts)}", write)


def _save(picture: Array, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).save(path, quality=90)


def _draw_scenes(photographs: Photographs, folder: Path, count: int) -> Iterator[tuple[Path, Array, Array]]:
    for number in range(count):
        draw = np.random.default_rng([1, *folder.name.encode(), number])
        picture, mask = draw_background(photographs, draw, [name for name in CLASSES if name not in MATERIALS.values()])
        for _ in range(draw.integers(1, 4)):
            label = int(draw.integers(len(SHAPES)))
            shape = list(SHAPES)[label]
            inside = draw_figure(photographs, draw, picture, shape, (0.18, 0.34), [MATERIALS[shape]], tint=0.1)
            mask[inside] = label + 1
        yield folder / f"{number:04}.jpg", picture, mask


def draw_background(photographs: Photographs, draw: np.random.Generator, names: Sequence[str]) -> tuple[Array, Array]:
    """A picture of a random size from one of the photographs, and a mask of zeros."""
    width, height = (int(side) for side in draw.integers(160, 241, 2))
    return photographs.cut(draw, (width, height), names).copy(), np.zeros((height, width), np.uint8)


def draw_figure(
    photographs: Photographs,
    draw: np.random.Generator,
    picture: Array,
    shape: str,
    radius: tuple[float, float],
    names: Sequence[str],
    tint: float,
) -> Array:
    """Paste a figure, of a radius in shares of the shorter side, cut from one of the photographs; its pixels."""
    size = (picture.shape[1], picture.shape[0])
    centre = np.array(size) * draw.uniform(0.1, 0.9, 2)
    at = Placement.draw(draw, centre, draw.uniform(*radius) * min(size), np.pi)
    inside = SHAPES[shape](*at.unplace(size))
    _paste(picture, inside, photographs.cut(draw, size, names), draw, tint)
    return inside


def _paste(picture: Array, inside: Array, texture: Array, draw: np.random.Generator, tint: float) -> None:
    """Paste a texture with random factors of its colours, and levels added, so that it differs from what it covers."""
    if not inside.any():
        return
    covered, own = picture[inside].mean(0), texture[inside].astype(np.float64)
    tinted = own
    for _ in range(20):
        factors, added = draw.uniform(1 - tint, 1 + tint, 3), draw.uniform(-tint, tint, 3) * 127
        tinted = np.clip(own * factors + added, 0, 255)
        if np.linalg.norm(tinted.mean(0) - covered) > _CONTRAST:
            break
    picture[inside] = tinted.astype(np.uint8)


def _draw_faces(
    photographs: Photographs, folder: Path, count: int
) -> Iterator[tuple[Path, Array, tuple[int, int, int, int], Array]]:
    for number in range(count):
        draw = np.random.default_rng([2, *folder.name.encode(), number])
        picture, _ = draw_background(photographs, draw, list(CLASSES))
        for _ in range(draw.integers(0, 3)):  # what is no face
            shape = list(SHAPES)[draw.integers(len(SHAPES))]
            draw_figure(photographs, draw, picture, shape, (0.1, 0.3), list(CLASSES), tint=0.5)
        box, points = _draw_face(photographs, draw, picture)
        yield folder / f"{number:04}.jpg", picture, box, points


def _draw_face(
    photographs: Photographs, draw: np.random.Generator, picture: Array
) -> tuple[tuple[int, int, int, int], Array]:
    """Paste a face that lies in the picture; its box and its points (5, 2)."""
    size = (picture.shape[1], picture.shape[0])
    radius = min(size) * draw.uniform(0.22, 0.42)
    centre = np.array([draw.uniform(radius, side - radius) for side in size])
    at = Placement.draw(draw, centre, radius, np.pi / 5)
    apart, eyes, nose, mouth, wide = draw.uniform((0.26, -0.4, 0.0, 0.4, 0.2), (0.42, -0.2, 0.15, 0.55, 0.4))
    own = np.array([(-apart, eyes), (apart, eyes), (draw.uniform(-0.08, 0.08), nose), (-wide, mouth), (wide, mouth)])
    x, y = at.unplace(size)
    head = _ellipse(x / 0.8, y)
    _paste(picture, head, photographs.cut(draw, size, list(CLASSES)), draw, tint=0.5)
    shade, radii = draw.uniform(0.1, 0.4), draw.uniform((0.1, 0.07), (0.16, 0.13))
    whole = picture.copy()
    curve = mouth - draw.uniform(-0.1, 0.15) * ((x / wide) ** 2 - 1)
    parts = [_ellipse((x - px) / radii[0], (y - py) / radii[1]) for px, py in own[:2]]
    parts += [_triangle((x - own[2, 0]) / 0.12, (y - nose) / 0.2), (np.abs(x) < wide) & (np.abs(y - curve) < 0.06)]
    for part in parts:
        covered = whole[part].astype(np.float64)
        picture[part] = (covered * shade if covered.mean() > _DARK else 255 - (255 - covered) * shade).astype(np.uint8)
    rows, columns = np.nonzero(head)
    return (int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1), at.place(own)


_DARK: Final = 80.0
"""Below this mean level, eyes and mouth are brighter than the face."""
_CONTRAST: Final = 50.0
"""Distance of the mean colours of a figure and of what it covers, in levels."""
