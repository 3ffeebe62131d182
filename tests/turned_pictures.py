"""Photographs that are stored turned, with one white object, and their annotations in several formats."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from penstock.orientation import orient_pixels

__all__ = [
    "BOX", "SIZE", "box_of", "find_box", "is_beside", "photograph", "stored_pixels", "upright_pixels", "write_coco",
    "write_labelme", "write_masks", "write_voc", "write_yolo",
]  # fmt: skip

SIZE: Final = (48, 80)
"""Width and height of the upright picture."""
BOX: Final = (10, 12, 30, 28)
"""The object in the upright picture."""
_UNDO: Final = {6: 8, 8: 6}


def upright_pixels(size: tuple[int, int] = SIZE) -> NDArray[np.uint8]:
    """The picture as a viewer shows it."""
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    pixels[BOX[1] : BOX[3], BOX[0] : BOX[2]] = 255
    return pixels


def stored_pixels(orientation: int, size: tuple[int, int] = SIZE) -> NDArray[np.uint8]:
    """Its rows in a file with an orientation."""
    return orient_pixels(upright_pixels(size), _UNDO.get(orientation, orientation))


def photograph(orientation: int, form: str = "JPEG", size: tuple[int, int] = SIZE) -> bytes:
    """The file."""
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = orientation
    options = {"quality": 95} if form in {"JPEG", "WEBP"} else {}
    Image.fromarray(stored_pixels(orientation, size)).save(file, form, exif=exif, **options)
    return file.getvalue()


def find_box(pixels: NDArray[np.uint8]) -> tuple[int, int, int, int]:
    """The box around what is white, in any picture."""
    white = pixels if pixels.ndim == 2 else pixels.mean(axis=2)
    rows, columns = np.nonzero(white > 128)
    return int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1


def box_of(orientation: int, size: tuple[int, int] = SIZE) -> tuple[int, int, int, int]:
    """The box in the picture as it is stored."""
    return find_box(stored_pixels(orientation, size))


def is_beside(sample: dict[str, Any]) -> bool:
    """Whether the box of a sample is not around the object in its image, or a mask not on it."""
    found = find_box(sample["image"])
    masks = [sample["mask"]] if "mask" in sample else []
    boxes = [sample["boxes"][0]] if len(sample.get("boxes", ())) else []
    boxes += [find_box(mask * np.uint8(255)) for mask in [*masks, *sample.get("instances", ())]]
    return not boxes or any(np.abs(np.subtract(each, found)).max() > 1.5 for each in boxes)


def write_coco(folder: Path, orientations: dict[int, bool], size: tuple[int, int] = SIZE, form: str = "JPEG") -> Path:
    """A set with an image of each orientation; the value says whether its annotation is of the upright picture."""
    folder.mkdir(parents=True)
    images, objects = [], []
    for number, is_upright in orientations.items():
        (folder / f"{number}.{form.lower()}").write_bytes(photograph(number, form, size))
        x0, y0, x1, y1 = BOX if is_upright else box_of(number, size)
        width, height = size if is_upright else stored_pixels(number, size).shape[1::-1]
        images.append({"id": number, "file_name": f"{number}.{form.lower()}", "width": width, "height": height})
        objects.append({
            "id": number, "image_id": number, "category_id": 1, "bbox": [x0, y0, x1 - x0, y1 - y0], "area": 320,
            "iscrowd": 0, "segmentation": [[x0, y0, x1, y0, x1, y1, x0, y1]], "keypoints": [x0, y0, 2, 0, 0, 0],
            "num_keypoints": 1,
        })  # fmt: skip
    categories = [{"id": 1, "name": "cell", "keypoints": ["corner", "other"], "skeleton": []}]
    content = {"images": images, "annotations": objects, "categories": categories}
    (folder / "set.json").write_text(json.dumps(content))
    return folder


def write_yolo(folder: Path, orientation: int) -> Path:
    """Fractions of the upright picture."""
    (folder / "images").mkdir(parents=True)
    (folder / "labels").mkdir()
    (folder / "images" / "a.jpg").write_bytes(photograph(orientation))
    x0, y0, x1, y1 = BOX
    parts = (x0 + x1) / 2 / SIZE[0], (y0 + y1) / 2 / SIZE[1], (x1 - x0) / SIZE[0], (y1 - y0) / SIZE[1]
    (folder / "labels" / "a.txt").write_text(f"0 {' '.join(map(str, parts))}\n")
    (folder / "data.yaml").write_text("train: images\nval: images\nnames: [cell]\n")
    return folder


def write_labelme(folder: Path, orientation: int) -> Path:
    """A rectangle of the upright picture."""
    folder.mkdir(parents=True)
    (folder / "a.jpg").write_bytes(photograph(orientation))
    shape: dict[str, Any] = {
        "label": "cell",
        "points": [BOX[:2], BOX[2:]],
        "shape_type": "rectangle",
        "group_id": None,
        "flags": {},
    }
    content = {"version": "5.0", "shapes": [shape], "imagePath": "a.jpg", "imageWidth": SIZE[0], "imageHeight": SIZE[1]}
    (folder / "a.json").write_text(json.dumps(content))
    return folder


def write_voc(folder: Path, orientation: int) -> Path:
    """A box of the upright picture."""
    folder.mkdir(parents=True)
    (folder / "a.jpg").write_bytes(photograph(orientation))
    corners = "".join(f"<{tag}>{n}</{tag}>" for tag, n in zip(("xmin", "ymin", "xmax", "ymax"), BOX, strict=True))
    (folder / "a.xml").write_text(
        f"<annotation><filename>a.jpg</filename><size><width>{SIZE[0]}</width><height>{SIZE[1]}</height></size>"
        f"<object><name>cell</name><bndbox>{corners}</bndbox></object></annotation>"
    )
    return folder


def write_masks(folder: Path, orientation: int, *, is_upright: bool) -> Path:
    """A mask of the upright picture, or of the one that is stored."""
    (folder / "images").mkdir(parents=True)
    (folder / "masks").mkdir()
    (folder / "images" / "a.jpg").write_bytes(photograph(orientation))
    pixels = upright_pixels() if is_upright else stored_pixels(orientation)
    Image.fromarray((pixels[:, :, 0] > 0).astype(np.uint8)).save(folder / "masks" / "a.png")
    return folder
