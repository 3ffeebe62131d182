"""Writes COCO: a JSON file for each split.

::

    train/1.jpg   annotations/instances_train.json

All numbers are exact: a box is x, y, width, height in float64, which hold sums and differences of float32. Ids of
images and of objects are those of the fields ``id`` and ``annotation_id`` where they differ from one another, else
numbers from 1; categories have numbers from 1, in the order of the labels. Other fields are values of their names.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from penstock.annotations.writing import AnnotationWriter, WrittenImage
from penstock.sample import Value

__all__ = ["CocoWriter"]


class CocoWriter(AnnotationWriter):
    """Writes COCO instances and keypoints; what it writes is kept in memory until the end."""

    name = "coco"
    crowds = "kept"

    def __init__(self, folder: Path, classes: tuple[str, ...]) -> None:
        super().__init__(folder, classes)
        self._images: list[tuple[str, dict[str, Value], list[dict[str, Value]]]] = []
        self._ids: list[Value] = []
        self._points = 0

    def locate_image(self, name: str, split: str) -> str:
        """Return the path of the image in the folder of the split."""
        return f"{split}/{name}"

    def add(self, image: WrittenImage) -> None:
        """Keep the image and its objects."""
        self._ids.append(image.fields.get("id"))
        extra = {name: _to_plain(value) for name, value in image.fields.items() if name != "id" and value is not None}
        entry = {**extra, "file_name": image.name, "width": image.width, "height": image.height}
        objects = [self._describe_object(image, row) for row in range(len(image.labels))]
        self._images.append((image.split, entry, objects))

    def finish(self) -> None:
        """Write the JSON files."""
        has_ids = all(isinstance(each, int) and each >= 0 for each in self._ids) and len({*self._ids}) == len(self._ids)
        ids = self._ids if has_ids else range(1, len(self._ids) + 1)
        object_ids = [each.get("annotation_id") for _, _, objects in self._images for each in objects]
        keeps_ids = None not in object_ids and len({*object_ids}) == len(object_ids)
        names = [f"point{number}" for number in range(1, self._points + 1)]
        points = {"keypoints": names, "skeleton": []} if names else {}
        categories = [{"id": number, "name": name, **points} for number, name in enumerate(self.classes, 1)]
        content: dict[str, dict[str, list[Value]]] = {}
        count = 0
        for number, (split, image, objects) in zip(ids, self._images, strict=True):
            made = content.setdefault(split, {"images": [], "annotations": [], "categories": categories})
            made["images"].append({"id": number, **image})
            for each in objects:
                count += 1
                given = each.pop("annotation_id", None)
                made["annotations"].append({"id": given if keeps_ids else count, "image_id": number, **each})
        for split, made in content.items():
            self.write_text(f"annotations/instances_{split}.json", json.dumps(made, ensure_ascii=False))

    def _describe_object(self, image: WrittenImage, row: int) -> dict[str, Value]:
        x0, y0, x1, y1 = map(float, image.boxes[row])
        width, height = x1 - x0, y1 - y0
        other = {name: values[row] for name, values in image.objects.items()}
        instance, area = other.pop("instances", None), other.pop("area", None)
        made = {
            **{name: _to_plain(value) for name, value in other.items() if name not in {"id", "image_id", "crowd"}},
            "category_id": int(image.labels[row]) + 1,
            "bbox": [x0, y0, width, height],
            "area": width * height if area is None else float(area),
            "iscrowd": int(other.get("crowd", 0)),
            "segmentation": [] if instance is None else instance,
        }
        if image.keypoints is not None:
            points = image.keypoints[row]
            self._points = max(self._points, len(points))
            made["keypoints"] = points.astype(np.float64).ravel().tolist()
            made["num_keypoints"] = int((points[:, 2] > 0).sum())
        return made


def _to_plain(value: object) -> Value:
    """Return a value that JSON holds."""
    plain = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    return None if isinstance(plain, float) and not np.isfinite(plain) else plain
