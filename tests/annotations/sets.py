"""A small valid set of each format, written for a test: two images, three objects where the format has objects."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image

__all__ = [
    "FULL_SETS",
    "HEIGHT",
    "MAKERS",
    "OBJECTS",
    "WIDTH",
    "SetMaker",
    "make_cvat",
    "make_labelme",
    "write_image",
    "write_text",
]

WIDTH: Final = 40
HEIGHT: Final = 32
OBJECTS: Final[Mapping[str, Sequence[tuple[str, tuple[int, int, int, int]]]]] = {
    "a": (("dog", (2, 4, 12, 20)), ("cat", (10, 6, 30, 22))),
    "b": (("dog", (0, 8, 40, 32)),),
}
"""Class and box (x0, y0, x1, y1) of the objects of each image."""
_CLASSES: Final = ("cat", "dog")


@dataclass(frozen=True, slots=True)
class SetMaker:
    """How the set of a format is written, and what is read from it.

    Parameters
    ----------
    write : callable
        Writes the set into a folder.
    has_boxes : bool
        Whether its objects are OBJECTS; else it has none.
    classes : tuple of str
        Names that are read.
    """

    write: Callable[[Path], None]
    has_boxes: bool = True
    classes: tuple[str, ...] = _CLASSES


def write_image(path: Path, size: tuple[int, int] = (WIDTH, HEIGHT)) -> Path:
    """A gray picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (90, 120, 60)).save(path)
    return path


def write_text(path: Path, content: str | bytes) -> Path:
    """A file, in UTF-8 where a text is given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def _write_voc(folder: Path) -> None:
    for name, objects in OBJECTS.items():
        write_image(folder / "JPEGImages" / f"{name}.jpg")
        listed = "\n".join(
            f"<object><name>{label}</name><difficult>0</difficult><bndbox><xmin>{box[0]}</xmin><ymin>{box[1]}</ymin>"
            f"<xmax>{box[2]}</xmax><ymax>{box[3]}</ymax></bndbox></object>"
            for label, box in objects
        )
        write_text(
            folder / "Annotations" / f"{name}.xml",
            f"<annotation><filename>{name}.jpg</filename><size><width>{WIDTH}</width><height>{HEIGHT}</height>"
            f"<depth>3</depth></size>\n{listed}\n</annotation>\n",
        )


def _write_coco(folder: Path) -> None:
    images: list[dict[str, object]] = []
    annotations: list[dict[str, object]] = []
    for number, (name, objects) in enumerate(OBJECTS.items(), 1):
        write_image(folder / "train" / f"{name}.jpg")
        images.append({"id": number, "file_name": f"{name}.jpg", "width": WIDTH, "height": HEIGHT})
        for label, (x0, y0, x1, y1) in objects:
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": _CLASSES.index(label) + 1,
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                    "area": (x1 - x0) * (y1 - y0),
                    "iscrowd": 0,
                    "segmentation": [[x0, y0, x1, y0, x1, y1, x0, y1]],
                }
            )
    categories = [{"id": number, "name": name} for number, name in enumerate(_CLASSES, 1)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    write_text(folder / "annotations" / "instances_train.json", json.dumps(content))


def _write_yolo(folder: Path) -> None:
    write_text(folder / "data.yaml", "path: .\ntrain: images/train\nval: images/train\nnames:\n  0: cat\n  1: dog\n")
    for name, objects in OBJECTS.items():
        write_image(folder / "images" / "train" / f"{name}.jpg")
        rows = [
            f"{_CLASSES.index(label)} {(x0 + x1) / 2 / WIDTH} {(y0 + y1) / 2 / HEIGHT} {(x1 - x0) / WIDTH} "
            f"{(y1 - y0) / HEIGHT}\n"
            for label, (x0, y0, x1, y1) in objects
        ]
        write_text(folder / "labels" / "train" / f"{name}.txt", "".join(rows))


def _write_retinaface(folder: Path) -> None:
    lines = []
    for name, objects in OBJECTS.items():
        write_image(folder / "images" / f"{name}.jpg")
        lines.append(f"# {name}.jpg")
        for _, (x0, y0, x1, y1) in objects:
            points = " ".join(f"{x0 + step} {y0 + step} 0.0" for step in range(1, 6))
            lines.append(f"{x0} {y0} {x1 - x0} {y1 - y0} {points} 0.9")
    write_text(folder / "label.txt", "\n".join(lines) + "\n")


def _write_open_images(folder: Path) -> None:
    lines = ["ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf"]
    for name, objects in OBJECTS.items():
        write_image(folder / "train" / f"{name}.jpg")
        lines += [
            f"{name},xclick,/m/{_CLASSES.index(label)},1,{x0 / WIDTH},{x1 / WIDTH},{y0 / HEIGHT},{y1 / HEIGHT},0,0,0"
            for label, (x0, y0, x1, y1) in objects
        ]
    write_text(folder / "train-annotations-bbox.csv", "\n".join(lines) + "\n")
    write_text(folder / "class-descriptions-boxable.csv", "/m/0,cat\n/m/1,dog\n")


def _write_path_list(folder: Path) -> None:
    lines = [f"images/{name}.jpg {objects[-1][0]}" for name, objects in OBJECTS.items()]
    for name in OBJECTS:
        write_image(folder / "images" / f"{name}.jpg")
    write_text(folder / "train.txt", "\n".join(lines) + "\n")


def make_cvat(images: str, labels: Sequence[str] = ("dog", "cat"), more: str = "") -> str:
    """A document of CVAT with the elements of images, the labels of its task, and more of them as XML."""
    listed = "".join(f"<label><name>{name}</name><attributes></attributes></label>" for name in labels)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n<version>1.1</version>\n'
        f"<meta><task><id>1</id><labels>{listed}{more}</labels></task></meta>\n{images}\n</annotations>\n"
    )


def _write_cvat(folder: Path) -> None:
    images = []
    for number, (name, objects) in enumerate(OBJECTS.items()):
        write_image(folder / "images" / f"{name}.jpg")
        boxes = "".join(
            f'<box label="{label}" source="manual" occluded="0" xtl="{box[0]}" ytl="{box[1]}" xbr="{box[2]}" '
            f'ybr="{box[3]}" z_order="0"><attribute name="colour">red</attribute></box>\n'
            for label, box in objects
        )
        images.append(f'<image id="{number}" name="{name}.jpg" width="{WIDTH}" height="{HEIGHT}">\n{boxes}</image>')
    write_text(folder / "annotations.xml", make_cvat("\n".join(images)))


def make_labelme(name: str, shapes: Sequence[object], **others: object) -> str:
    """A file of labelme."""
    content: dict[str, object] = {
        "version": "5.5.0",
        "flags": {},
        "shapes": shapes,
        "imagePath": name,
        "imageData": None,
    }
    return json.dumps(content | {"imageHeight": HEIGHT, "imageWidth": WIDTH} | others, indent=2)


def _write_labelme(folder: Path) -> None:
    for name, objects in OBJECTS.items():
        write_image(folder / f"{name}.jpg")
        shapes: list[object] = [
            {
                "label": label,
                "points": [[box[0], box[1]], [box[2], box[3]]],
                "group_id": None,
                "shape_type": "rectangle",
                "flags": {},
            }
            for label, box in objects
        ]
        write_text(folder / f"{name}.json", make_labelme(f"{name}.jpg", shapes))


def _write_mask_folders(folder: Path) -> None:
    for name, objects in OBJECTS.items():
        write_image(folder / "images" / f"{name}.jpg")
        mask = np.zeros((HEIGHT, WIDTH), np.uint8)
        for label, (x0, y0, x1, y1) in objects:
            mask[y0:y1, x0:x1] = _CLASSES.index(label) + 1
        path = folder / "masks" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(mask).save(path)
    write_text(folder / "classes.txt", "background\ncat\ndog\n")


MAKERS: Final[dict[str, SetMaker]] = {
    "coco": SetMaker(_write_coco),
    "cvat": SetMaker(_write_cvat, classes=("dog", "cat")),
    "labelme": SetMaker(_write_labelme),
    "mask_folders": SetMaker(_write_mask_folders, has_boxes=False, classes=("background", "cat", "dog")),
    "open_images": SetMaker(_write_open_images),
    "path_list": SetMaker(_write_path_list, has_boxes=False),
    "retinaface": SetMaker(_write_retinaface, classes=("face",)),
    "voc": SetMaker(_write_voc),
    "yolo": SetMaker(_write_yolo),
}
"""Every registered format has one line here."""


def _write_full_voc(folder: Path) -> None:
    box = "<bndbox><xmin>2</xmin><ymin>4</ymin><xmax>12.5</xmax><ymax>20</ymax></bndbox>"
    points = "<landmarks><x1>3</x1><y1>5</y1><x2>4.5</x2><y2>6</y2></landmarks>"
    attributes = "<attributes><attribute><name>age</name><value>3</value></attribute></attributes>"
    polygon = "<polygon><pt><x>2</x><y>4</y></pt><pt><x>12.5</x><y>4</y></pt><pt><x>8</x><y>20</y></pt></polygon>"
    text = (
        f"<annotation><filename>a.jpg</filename><size><width>{WIDTH}</width><height>{HEIGHT}</height></size>\n"
        f"<object><name>dog</name><pose>Left</pose><truncated>1</truncated>{box}{points}{attributes}"
        f"<part><name>head</name>{box}</part></object>\n<object><name>cat</name>{polygon}</object></annotation>"
    )
    write_image(folder / "JPEGImages/a.jpg")
    write_text(folder / "Annotations/a.xml", text)
    write_text(folder / "ImageSets/Main/train.txt", "a\n")


def _write_full_coco(folder: Path) -> None:
    write_image(folder / "train/a.jpg")
    ring = [2, 4, 12.5, 4, 8, 20]
    common = {"image_id": 1, "category_id": 7, "bbox": [2, 4, 10.5, 16]}
    annotations: list[dict[str, object]] = [
        {"id": 1, "segmentation": [ring, [1, 1, 3, 1, 3, 3]], "keypoints": [3, 5, 2, 0, 0, 0], "score": 0.5, **common},
        {"id": 2, "segmentation": {"size": [HEIGHT, WIDTH], "counts": [70, 9, 1201]}, "iscrowd": 1, **common},
        {"id": 3, "segmentation": {"size": [HEIGHT, WIDTH], "counts": "U41P1000hP1"}, "area": 9, **common},
    ]
    categories = [{"id": 7, "name": "dog", "keypoints": ["nose", "tail"], "skeleton": [[1, 2]]}]
    images = [{"id": 1, "file_name": "a.jpg", "width": WIDTH, "height": HEIGHT}]
    content = {"images": images, "annotations": annotations, "categories": categories}
    write_text(folder / "annotations/person_keypoints_train.json", json.dumps(content))


def _write_full_yolo(folder: Path) -> None:
    names = "path: .\ntrain: images\nnames: [cat, dog]\n"
    write_text(folder / "data.yaml", names + "kpt_shape: [2, 3]\nflip_idx: [1, 0]\n")
    write_image(folder / "images/a.jpg")
    write_text(folder / "labels/a.txt", "1 0.5 0.5 0.25 0.5 0.5 0.5 2 0.25 0.75 0\n0 0.25 0.25 0.5 0.5 0 0 0 1 1 1\n")


def _write_full_retinaface(folder: Path) -> None:
    write_image(folder / "images/0--Parade/a.jpg")
    rows = "2 4 10 16 0 0 0 1 2 0 \n10 6 20 16 1 0 1 0 0 0 \n"
    write_text(folder / "wider_face_train_bbx_gt.txt", f"0--Parade/a.jpg\n2\n{rows}")


def _write_full_open_images(folder: Path) -> None:
    write_image(folder / "train/a.jpg")
    head = "XMin,XMax,YMin,YMax,ImageID,LabelName,IsGroupOf,IsOccluded,Confidence,Note"
    row = 'a,"/m/0",1,1,0.25,"x, y"'
    write_text(folder / "train-annotations-bbox.csv", f"{head}\n0.1,0.5,0.25,0.75,{row}\n0,1,0,1,{row}\n")
    write_text(folder / "class-descriptions-boxable.csv", '/m/0,"cat, small"\n/m/1,dog\n')


def _write_full_path_list(folder: Path) -> None:
    write_image(folder / "images/a.jpg")
    write_text(folder / "train.txt", "images/a.jpg 2 4 12 20 dog 10 6 30 22 cat\n")


def _write_full_cvat(folder: Path) -> None:
    shapes = (
        '<box label="dog" occluded="1" z_order="2" group_id="3" xtl="2" ytl="4" xbr="12" ybr="20" rotation="5"/>'
        '<polygon label="cat" points="1,2;10.5,3;4,20"><attribute name="age">3</attribute></polygon>'
        '<mask label="dog" rle="1, 4, 1" left="4" top="5" width="3" height="2"/>'
        '<ellipse label="dog" cx="15" cy="16" rx="10" ry="5" rotation="20"/><tag label="cat"/>'
        '<skeleton label="hand"><points label="thumb" occluded="1" outside="0" points="9,8"/>'
        '<points label="ring" outside="0" points="3,4"/></skeleton>'
    )
    image = f'<image id="0" name="a.jpg" subset="train" width="{WIDTH}" height="{HEIGHT}">{shapes}</image>'
    boxes = "".join(
        f'<box frame="{frame}" outside="{frame // 5}" xtl="{frame}" ytl="4" xbr="12" ybr="20"/>' for frame in (0, 2, 5)
    )
    more = "<label><name>hand</name></label>" + "".join(
        f"<label><name>{name}</name><parent>hand</parent></label>" for name in ("thumb", "ring")
    )
    for name in ("a.jpg", "frame_000000.jpg", "frame_000001.jpg", "frame_000002.jpg", "frame_000005.jpg"):
        write_image(folder / "images" / name)
    track = f'<track id="4" label="dog">{boxes}</track>'
    write_text(folder / "annotations.xml", make_cvat(f"{image}\n{track}", more=more))


def _write_full_labelme(folder: Path) -> None:
    file = io.BytesIO()
    Image.fromarray(np.eye(3, dtype=np.uint8) * 255).save(file, "PNG")
    mask = base64.b64encode(file.getvalue()).decode()
    shapes: list[dict[str, object]] = [
        {"label": "dog", "points": [[2, 4], [12.5, 4], [8, 20]], "shape_type": "polygon", "group_id": 1},
        {"label": "cat", "points": [[15, 16], [20, 16]], "shape_type": "circle", "flags": {"old": True}},
        {"label": "nose", "points": [[3, 5]], "shape_type": "point", "group_id": 1},
        {"label": "cat", "points": [[4, 5], [6, 7]], "shape_type": "mask", "mask": mask},
        {"label": "cat", "points": [[4, 5], [6, 7], [9, 9]], "shape_type": "linestrip"},
    ]
    write_image(folder / "a.jpg")
    write_text(folder / "a.json", make_labelme("a.jpg", shapes, flags={"night": True}))
    write_text(folder / "labels.txt", "__ignore__\ncat\ndog\nnose\n")


def _write_full_mask_folders(folder: Path) -> None:
    write_image(folder / "images/train/a.jpg")
    colours = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    colours[4:20, 2:12] = (128, 0, 0)
    path = folder / "masks/train/a.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(colours).save(path)
    write_text(folder / "labelmap.txt", "# label:color_rgb:parts:actions\nbackground:0,0,0::\ndog:128,0,0::\n")


FULL_SETS: Final[dict[str, Callable[[Path], None]]] = {
    "coco": _write_full_coco,
    "cvat": _write_full_cvat,
    "labelme": _write_full_labelme,
    "mask_folders": _write_full_mask_folders,
    "open_images": _write_full_open_images,
    "path_list": _write_full_path_list,
    "retinaface": _write_full_retinaface,
    "voc": _write_full_voc,
    "yolo": _write_full_yolo,
}
"""For each format, a set of few images with everything that the format may have."""
