"""Writes YOLO: a text file for each image, and ``data.yaml``.

::

    images/train/1.jpg   labels/train/1.txt   data.yaml

A line has the class, and centre, width and height of the box as parts of the image; with keypoints, x, y and flag of
each. Numbers have all digits of float64 by default, from which the float32 of coordinates are computed exactly (but for
those within a billionth of a pixel of 0); with ``decimals=6``, as most programs write them, to 1e-6 of the image's
side.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from penstock.annotations.writing import AnnotationWriter, WrittenImage, format_float32
from penstock.errors import ArgumentError
from penstock.sample import Array

__all__ = ["YoloWriter"]


class YoloWriter(AnnotationWriter):
    """Writes YOLO detections, or poses where there are keypoints.

    Parameters
    ----------
    folder, classes
        As for every writer.
    decimals : int, optional
        Decimals of each number; by default as many as it needs.

    Raises
    ------
    ArgumentError
        If ``decimals`` is not in 1 .. 17.
    """

    name = "yolo"

    def __init__(self, folder: Path, classes: tuple[str, ...], *, decimals: int | None = None) -> None:
        super().__init__(folder, classes)
        if decimals is not None and (type(decimals) is not int or not 1 <= decimals <= 17):
            raise ArgumentError(f"decimals must be a number from 1 to 17, got {decimals!r}")
        self._decimals = decimals
        self.relative_error = 1e-12 if decimals is None else 10.0**-decimals
        self._splits: dict[str, None] = {}
        self._points = 0

    def locate_image(self, name: str, split: str) -> str:
        """Return the path of the image in the folder of the split."""
        return f"images/{split}/{name}"

    def add(self, image: WrittenImage) -> None:
        """Write the text file; without objects, it is empty."""
        self._splits[image.split] = None
        size = np.array([image.width, image.height], np.float64)
        boxes = image.boxes.astype(np.float64)
        rows = np.concatenate([(boxes[:, :2] + boxes[:, 2:]) / 2 / size, (boxes[:, 2:] - boxes[:, :2]) / size], axis=1)
        lines = []
        for row, label in enumerate(image.labels.tolist()):
            parts = [str(label), *map(self._format, rows[row].tolist())]
            if image.keypoints is not None:
                parts += self._describe_points(image.keypoints[row], size)
            lines.append(" ".join(parts) + "\n")
        self.write_text(f"labels/{image.split}/{image.stem}.txt", "".join(lines))

    def finish(self) -> None:
        """Write ``data.yaml``; its texts are JSON, which is YAML."""
        lines = [f"{json.dumps(split, ensure_ascii=False)}: images/{split}" for split in self._splits]
        lines += [f"nc: {len(self.classes)}", "names:" if self.classes else "names: []"]
        lines += [f"  {number}: {json.dumps(name, ensure_ascii=False)}" for number, name in enumerate(self.classes)]
        if self._points:
            lines.append(f"kpt_shape: [{self._points}, 3]")
        self.write_text("data.yaml", "\n".join([*lines, ""]))

    def _describe_points(self, points: Array, size: Array) -> list[str]:
        self._points = max(self._points, len(points))
        return [
            text
            for x, y, flag in points.astype(np.float64).tolist()
            for text in (self._format(x / size[0]), self._format(y / size[1]), format_float32(flag))
        ]

    def _format(self, number: float) -> str:
        return repr(float(number)) if self._decimals is None else f"{number:.{self._decimals}f}"
