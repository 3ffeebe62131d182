"""The logical cases of the golden file: columns of four records, as plain values of Python, and what a person states.

A case is written in each kind of container by `golden_kinds`, as far as the kind can hold its values. Values of two
columns differ, so that the column of a field can be told by what the field holds. The names of cases are the keys of
`golden_fields.json`: a renamed case is a new one.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from PIL import Image

__all__ = ["CASES", "COUNT", "PICTURES", "Case", "Column"]

COUNT: Final = 4
HEIGHT, WIDTH = 8, 6
PICTURES: Final = tuple(f"photos/p{number}.jpg" for number in range(COUNT))
"""Paths of pictures that lie beside each container."""

Column = Sequence[Any]


@dataclass(frozen=True)
class Case:
    """Columns of four records, and the options that are given: ``role`` is what the summary shows of each kind."""

    role: str
    name: str
    columns: Mapping[str, Column]
    stated: Mapping[str, Any] = field(default_factory=dict)


def make_pixels(seed: int, shape: tuple[int, ...] = (HEIGHT, WIDTH, 3), dtype: str = "uint8") -> Any:
    """An array of one picture, another one for each seed."""
    drawn = np.random.default_rng(seed).integers(0, 256, shape)
    return drawn.astype(dtype) if np.dtype(dtype).kind != "f" else (drawn / np.float64(255)).astype(dtype)


@functools.cache
def encode(seed: int, suffix: str = "JPEG", shape: tuple[int, ...] = (HEIGHT, WIDTH, 3)) -> bytes:
    """A small picture, another one for each seed."""
    file = io.BytesIO()
    Image.fromarray(make_pixels(seed, shape)).save(file, suffix)
    return file.getvalue()


def images(seed: int = 0) -> list[bytes]:
    """Encoded pictures."""
    return [encode(10 * seed + row) for row in range(COUNT)]


def masks(seed: int = 0) -> list[bytes]:
    """Encoded pictures of one channel."""
    return [encode(10 * seed + row, "PNG", (HEIGHT, WIDTH)) for row in range(COUNT)]


def pixels(*shape: int, dtype: str = "uint8", seed: int = 0) -> list[Any]:
    """Arrays of one shape."""
    return [make_pixels(100 + 10 * seed + row, shape, dtype) for row in range(COUNT)]


def noise(seed: int = 0) -> list[bytes]:
    """Bytes that begin as no image does, and are no text."""
    return [bytes([0, 159, seed, row, 255, 7]) * 5 for row in range(COUNT)]


def texts(word: str = "word") -> list[str]:
    """Different texts."""
    return [f"{word} {row}" for row in range(COUNT)]


CLASS_NUMBERS: Final = [1, 0, 2, 1]
CLASS_NAMES: Final = ["dog", "cat", "owl", "dog"]
PIXEL_BOXES: Final = [
    [[1.0, 2.0, 5.0, 6.0], [0.0, 1.0, 3.0, 7.0]],
    [[2.0, 2.0, 4.0, 6.0]],
    [[1.0, 1.0, 5.0, 7.0]],
    [[0.0, 0.0, 5.0, 6.0]],
]
SHARES: Final = [[[round(edge / 8, 4) for edge in box] for box in boxes] for boxes in PIXEL_BOXES]
EVEN_BOXES: Final = [[[1.0, 2.0, 5.0, 6.0 + row / 2], [0.0, 1.0, 3.0, 7.0]] for row in range(COUNT)]
BOX_CLASSES: Final = [[1, 0], [2], [0], [1]]
POINTS: Final = [[[1.0, 2.0, 2.0], [3.0, 4.0 + row, 1.0]] for row in range(COUNT)]
POLYGONS: Final = [[[1.0, 1.0, 5.0, 1.0, 3.0, 6.0 + row]] + [[0.0, 0.0, 2.0, 2.0]] * (row == 0) for row in range(COUNT)]


def list_image_names() -> Iterator[Case]:
    """One column of encoded images, named as people do, beside a label."""
    usual = "image img jpeg jpg png webp picture photo pixels x data"
    other = "IMG Image images pixel_values frame input image_bytes content left"
    for name in f"{usual} {other}".split():
        yield Case("image", f"image bytes named {name}", {name: images(), "label": CLASS_NUMBERS})


def list_image_choices() -> Iterator[Case]:
    """Several columns that could be the image, or none."""
    two: dict[str, Column] = {"left": images(1), "right": images(2)}
    label = {"label": CLASS_NUMBERS}
    yield Case("image", "two images: left, right", {**two, **label})
    yield Case("image", "two images: left, image", {"left": images(1), "image": images(2), **label})
    yield Case("image", "two images: thumbnail, photo", {"thumbnail": images(1), "photo": images(2), **label})
    yield Case("image", "two images: jpg, image", {"jpg": images(1), "image": images(2), **label})
    yield Case("image", "two images: png, jpg", {"png": images(1), "jpg": images(2), **label})
    yield Case("image", "two images: left, x", {"left": images(1), "x": images(2), **label})
    yield Case("image", "two images: data, x", {"data": images(1), "x": images(2), **label})
    yield Case("image", "two images: left_image, right_image", {"left_image": images(1), "right_image": images(2)})
    yield Case("image", "two images: Image, image", {"Image": images(1), "image": images(2)})
    yield Case("image", "image and mask", {"mask": masks(1), "image": images(2)})
    yield Case("image", "image and segmentation", {"segmentation": masks(1), "photo": images(2)})
    yield Case("image", "left and mask", {"mask": masks(1), "left": images(2)})
    yield Case("image", "left and gt_mask", {"gt_mask": masks(1), "left": images(2)})
    yield Case("image", "left and masks", {"masks": masks(1), "left": images(2)})
    yield Case("image", "image and depth", {"depth": masks(1), "image": images(2)})
    yield Case("image", "left and depth", {"depth": masks(1), "left": images(2)})
    yield Case("image", "mask alone", {"mask": masks(1), **label})
    yield Case("image", "no image", {"label": CLASS_NUMBERS, "score": [0.5, 1.5, 2.5, 3.5]})
    yield Case("image", "a number named image beside photo", {"image": [7, 8, 9, 10], "photo": images(), **label})
    yield Case("image", "a text named image beside photo", {"image": texts("shown"), "photo": images(), **label})
    yield Case("image", "bytes named image beside photo", {"image": noise(), "photo": images(), **label})
    yield Case("image", "image bytes beside pixels", {"photo": images(), "x": pixels(HEIGHT, WIDTH, 3)})
    yield Case("image", "label before image", {"label": CLASS_NUMBERS, "image": images()})
    yield Case("image", "text before image", {"caption": texts(), "image": images()})
    vectors = pixels(16, dtype="float32")
    yield Case("image", "float vectors named x", {"x": vectors, "y": CLASS_NUMBERS})
    yield Case("image", "float vectors named data beside image", {"data": vectors, "image": images()})
    some = images()
    yield Case("image", "image is missing in one record", {"image": [some[0], None, *some[2:]], **label})
    yield Case("image", "image is empty in one record", {"image": [some[0], b"", *some[2:]], **label})
    yield Case("image", "image is damaged in one record", {"image": [some[0], noise()[0], *some[2:]], **label})
    yield Case("image", "first image is damaged, no usual name", {"left": [noise()[0], *some[1:]], **label})


def list_image_values() -> Iterator[Case]:
    """Values other than encoded images that could be the image."""
    label = {"label": CLASS_NUMBERS}
    yield Case("image", "bytes that are no image, named image", {"image": noise(), **label})
    yield Case("image", "bytes that are no image, named blob", {"blob": noise(), **label})
    for name in ("image", "path", "file_name", "img_path", "x"):
        yield Case("image", f"paths of images named {name}", {name: list(PICTURES), **label})
    yield Case("image", "paths of images beside image bytes", {"image": images(), "path": list(PICTURES), **label})
    shapes: dict[str, list[Any]] = {
        "uint8 HWC": pixels(HEIGHT, WIDTH, 3),
        "uint8 CHW": pixels(3, HEIGHT, WIDTH),
        "uint8 HW": pixels(HEIGHT, WIDTH),
        "uint8 HW1": pixels(HEIGHT, WIDTH, 1),
        "uint8 HWC of many sizes": [make_pixels(row, (HEIGHT + row, WIDTH, 3)) for row in range(COUNT)],
        "uint8 in one row": pixels(48),
        "uint16 HW": pixels(HEIGHT, WIDTH, dtype="uint16"),
        "float32 HWC": pixels(HEIGHT, WIDTH, 3, dtype="float32"),
        "float32 CHW": pixels(3, HEIGHT, WIDTH, dtype="float32"),
        "float64 HWC": pixels(HEIGHT, WIDTH, 3, dtype="float64"),
        "int64 HW": pixels(HEIGHT, WIDTH, dtype="int64"),
    }
    for shape, values in shapes.items():
        yield Case("image", f"{shape} named image", {"image": values, **label})
    for name in ("x", "picture", "features"):
        yield Case("image", f"uint8 HWC named {name}", {name: pixels(HEIGHT, WIDTH, 3), **label})
    yield Case("image", "uint8 HW named mask beside image", {"image": images(), "mask": pixels(HEIGHT, WIDTH)})
    yield Case("image", "float32 HWC named features", {"features": pixels(HEIGHT, WIDTH, 3, dtype="float32"), **label})
    yield Case(
        "image", "raw bytes of pixels named image", {"image": [p.tobytes() for p in shapes["uint8 HWC"]], **label}
    )


def list_label_names() -> Iterator[Case]:
    """A column of class numbers beside the image, named as people do; several; none."""
    usual = "label labels class class_id cls target targets y category category_id"
    other = "Label LABEL classes label_id fine_label gt species answer"
    for name in f"{usual} {other}".split():
        yield Case("label", f"class numbers named {name}", {"image": images(), name: CLASS_NUMBERS})
    two = [5, 6, 5, 6]
    yield Case("label", "two labels: target, label", {"image": images(), "target": two, "label": CLASS_NUMBERS})
    yield Case("label", "two labels: y, category", {"image": images(), "y": two, "category": CLASS_NUMBERS})
    yield Case("label", "two labels: Label, label", {"image": images(), "Label": two, "label": CLASS_NUMBERS})
    several: dict[str, Column] = {"image": images(), "labels": BOX_CLASSES, "label": CLASS_NUMBERS}
    yield Case("label", "number label beside labels of lists", several)
    yield Case("label", "text label beside class_id", {"image": images(), "label": CLASS_NAMES, "class_id": two})
    yield Case("label", "number label beside text class", {"image": images(), "class": CLASS_NAMES, "label": two})
    yield Case("label", "text class beside number target", {"image": images(), "class": CLASS_NAMES, "target": two})


def list_label_values() -> Iterator[Case]:
    """Values under a usual name of the label."""
    columns: dict[str, list[Any]] = {
        "floats": [0.5, 1.25, 2.0, -1.0],
        "floats that are whole": [1.0, 0.0, 2.0, 1.0],
        "numbers, some of them floats": [1, 0.5, 2, 1],
        "texts": CLASS_NAMES,
        "texts that are numbers": ["3", "4", "3", "5"],
        "booleans": [True, False, True, True],
        "numbers with one missing": [1, None, 2, 1],
        "texts with one missing": ["dog", None, "cat", "dog"],
        "numbers with -1": [1, -1, 2, 1],
        "large numbers": [1 << 40, 7, 8, 9],
        "bytes": [b"dog", b"cat", b"owl", b"dog"],
        "lists of one length": [[1, 2, 3], [4, 5, 6], [7, 8, 9], [1, 1, 1]],
        "lists of many lengths": [[1], [2, 3], [4, 5, 6], [7]],
        "lists, one of them empty": [[1], [], [4, 5, 6], [7]],
        "lists of texts": [["dog"], ["cat", "owl"], ["dog"], ["owl"]],
        "one-hot floats": [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]],
        "arrays of one number": [np.array([row], np.int64) for row in CLASS_NUMBERS],
        "arrays without axes": [np.array(row, np.int64) for row in CLASS_NUMBERS],
        "dicts": [{"id": row, "name": name} for row, name in zip(CLASS_NUMBERS, CLASS_NAMES, strict=True)],
        "masks": [*masks(3)],
    }
    for title, values in columns.items():
        yield Case("label", f"label of {title}", {"image": images(), "label": values})
    yield Case("label", "target of floats", {"image": images(), "target": columns["floats"]})
    yield Case("label", "target of texts", {"image": images(), "target": CLASS_NAMES})
    yield Case(
        "label", "target of lists of many lengths", {"image": images(), "target": columns["lists of many lengths"]}
    )
    yield Case("label", "label alone", {"label": CLASS_NUMBERS})


def list_keys() -> Iterator[Case]:
    """Columns that could name the records."""
    usual = "__key__ key img_name image_name imgname filename file_name name path file image_id id"
    for name in f"{usual} uuid Filename".split():
        yield Case("key", f"texts named {name}", {"image": images(), name: [f"k{row}" for row in (3, 1, 0, 2)]})
    for name in ("key", "id", "image_id", "name"):
        yield Case("key", f"numbers named {name}", {"image": images(), name: [73, 71, 70, 72]})
    yield Case("key", "texts name beside filename", {"image": images(), "name": texts(), "filename": texts("file")})
    yield Case("key", "numbers id beside texts name", {"image": images(), "id": [73, 71, 70, 72], "name": texts()})
    yield Case("key", "texts key, two equal", {"image": images(), "key": ["a", "b", "a", "c"]})
    yield Case("key", "texts key, one missing", {"image": images(), "key": ["a", None, "b", "c"]})
    yield Case("key", "texts key, one empty", {"image": images(), "key": ["a", "", "b", "c"]})
    yield Case("key", "texts key with slashes", {"image": images(), "key": ["a/b.jpg", "../c", "d e", "\xe9"]})
    yield Case("key", "name without another text", {"image": images(), "label": CLASS_NUMBERS, "name": CLASS_NAMES})


def list_targets() -> Iterator[Case]:
    """Boxes, points, masks, and values inside others."""
    image = {"image": images()}
    for name in ("boxes", "bboxes", "bbox", "box", "Boxes", "gt_boxes", "rois"):
        yield Case("fields", f"boxes in pixels named {name}", {**image, name: PIXEL_BOXES})
    yield Case("fields", "boxes as shares named boxes", {**image, "boxes": SHARES})
    yield Case("fields", "equally many boxes named boxes", {**image, "boxes": EVEN_BOXES})
    yield Case("fields", "one box named bbox", {**image, "bbox": [boxes[0] for boxes in PIXEL_BOXES]})
    arrays = [np.array(boxes, np.float32) for boxes in PIXEL_BOXES]
    yield Case("fields", "float32 arrays named boxes", {**image, "boxes": arrays})
    yield Case("fields", "boxes and labels", {**image, "boxes": PIXEL_BOXES, "labels": BOX_CLASSES})
    yield Case("fields", "boxes and classes", {**image, "boxes": PIXEL_BOXES, "classes": BOX_CLASSES})
    objects = [{"bbox": boxes, "category": names} for boxes, names in zip(PIXEL_BOXES, BOX_CLASSES, strict=True)]
    yield Case("fields", "objects: lists in a dict", {**image, "objects": objects})
    pairs = [[{"bbox": box, "category": 1} for box in boxes] for boxes in PIXEL_BOXES]
    yield Case("fields", "objects: dicts in a list", {**image, "objects": pairs})
    edges = {name: [boxes[0][at] for boxes in PIXEL_BOXES] for at, name in enumerate(("xmin", "ymin", "xmax", "ymax"))}
    yield Case("fields", "edges in columns", {**image, **edges})
    yield Case("fields", "keypoints", {**image, "keypoints": POINTS})
    yield Case("fields", "landmarks", {**image, "landmarks": POINTS})
    yield Case("fields", "polygons", {**image, "polygon": POLYGONS})
    yield Case("fields", "mask of pixels", {**image, "mask": pixels(HEIGHT, WIDTH)})
    yield Case("fields", "mask of path", {**image, "mask": list(PICTURES)})
    yield Case("fields", "lists of texts", {**image, "tags": [["a"], ["b", "c"], ["d"], ["e"]]})
    yield Case(
        "fields", "lists of lists of many lengths", {**image, "parts": [[[row], [1, 2]] for row in range(COUNT)]}
    )
    yield Case("fields", "dict with numbers", {**image, "meta": [{"w": 6, "h": 8 + row} for row in range(COUNT)]})
    yield Case("fields", "a column that is always missing", {**image, "note": [None] * COUNT})
    yield Case("fields", "numbers with one missing", {**image, "age": [31, None, 33, 34]})
    yield Case("fields", "floats with NaN", {**image, "age": [31.5, float("nan"), 33.5, 34.5]})
    yield Case("fields", "booleans", {**image, "crowd": [True, False, True, True]})
    yield Case("fields", "bytes", {**image, "extra": noise(3)})
    yield Case("fields", "name with a slash", {**image, "meta/size": [7, 8, 9, 10]})
    yield Case("fields", "name with a dot", {**image, "meta.size": [7, 8, 9, 10]})
    yield Case("fields", "name with a blank", {**image, "the size": [7, 8, 9, 10]})
    inner = [{"image": picture, "label": row} for picture, row in zip(images(), CLASS_NUMBERS, strict=True)]
    yield Case("fields", "image and label in a dict", {"sample": inner})
    named = [{"bytes": picture, "path": f"k{row}.jpg"} for row, picture in enumerate(images())]
    yield Case("fields", "dict of bytes and path named image", {"image": named, "label": CLASS_NUMBERS})
    yield Case("fields", "dict of bytes and path named left", {"left": named, "label": CLASS_NUMBERS})
    sized = [{"data": picture, "w": WIDTH, "h": HEIGHT} for picture in images()]
    yield Case("fields", "dict of data and size named img", {"img": sized, "label": CLASS_NUMBERS})
    yield Case("fields", "label in a dict", {**image, "annotation": [{"label": row} for row in CLASS_NUMBERS]})


def list_stated() -> Iterator[Case]:
    """Options, each as it is written for the kinds that have it."""
    label: dict[str, Column] = {"label": CLASS_NUMBERS}
    two: dict[str, Column] = {
        "left": images(1),
        "right": images(2),
        "kind": [5, 6, 5, 6],
        "code": ["c3", "c1", "c0", "c2"],
    }
    both: dict[str, Column] = {"image": images(1), "label": CLASS_NUMBERS, "photo": images(2), "kind": [5, 6, 5, 6]}
    mixed: dict[str, Column] = {"image": images(), **label, "extra": noise(3)}
    yield Case("image", "left, right; image='right'", two, {"image": "right"})
    yield Case("image", "image, photo; image='photo'", both, {"image": "photo"})
    yield Case("image", "image='nothing'", two, {"image": "nothing"})
    yield Case("image", "image='kind', a number", two, {"image": "kind"})
    yield Case("image", "image='extra', bytes that are no image", mixed, {"image": "extra"})
    yield Case("image", "left, right; fields={'image': 'right'}", two, {"fields": {"image": "right"}})
    yield Case("image", "left, right; fields=['right', 'kind']", two, {"fields": ["right", "kind"]})
    yield Case("image", "left, right; columns={'image': 'right'}", two, {"columns": {"image": "right"}})
    yield Case("image", "left, right; schema={'right': 'image'}", two, {"schema": {"right": "image"}})
    yield Case("label", "image, label, kind; label='kind'", both, {"label": "kind"})
    yield Case("label", "label='code', a text", {**mixed, "code": two["code"]}, {"label": "code"})
    yield Case("label", "label='extra', bytes", mixed, {"label": "extra"})
    yield Case("label", "label='', for none", mixed, {"label": ""})
    yield Case("label", "label of numbers; classes=", mixed, {"classes": ("cat", "dog", "owl")})
    yield Case("label", "label of texts; classes=", {**mixed, "label": CLASS_NAMES}, {"classes": ("owl", "dog", "cat")})
    yield Case("label", "label of texts; too few classes=", {**mixed, "label": CLASS_NAMES}, {"classes": ("cat",)})
    yield Case("label", "labels of boxes; classes=", {**both, "label": BOX_CLASSES}, {"classes": ("a", "b", "c")})
    yield Case("key", "key='code'", {**mixed, "code": two["code"]}, {"key": "code"})
    yield Case("key", "key='kind', a number", both, {"key": "kind"})
    yield Case("key", "name beside key=''", {**mixed, "name": two["code"]}, {"key": ""})
    yield Case("key", "key='nothing'", both, {"key": "nothing"})
    yield Case("key", "key='extra', bytes", mixed, {"key": "extra"})
    raw = {"uint8 HWC": pixels(HEIGHT, WIDTH, 3), "uint8 CHW": pixels(3, HEIGHT, WIDTH)}
    for shape, values in raw.items():
        for option in ({"channels": "BGR"}, {"channels": "RGB", "axes": shape[-3:]}):
            written = ", ".join(f"{name}={value!r}" for name, value in option.items())
            yield Case("image", f"{shape} named image; {written}", {"image": values, **label}, option)
    flat = [each.tobytes() for each in raw["uint8 HWC"]]
    given = {"shape": (HEIGHT, WIDTH, 3), "dtype": "uint8", "channels": "RGB"}
    yield Case("image", "raw bytes named image; shape=, dtype=, channels=", {"image": flat, **label}, given)
    yield Case(
        "image",
        "raw bytes named image; image=, shape=, dtype=, channels=",
        {"image": flat, **label},
        {"image": "image", **given},
    )
    lists = {"image": [each.ravel() for each in raw["uint8 HWC"]], **label}
    yield Case("image", "uint8 in one row; image=, shape=, dtype=, channels=", lists, {"image": "image", **given})
    for option in ({"boxes_format": "xyxy"}, {"boxes_format": "xywh"}, {"units": "pixels"}, {"units": "relative"}):
        written = ", ".join(f"{name}={value!r}" for name, value in option.items())
        yield Case(
            "fields", f"boxes in pixels named boxes; {written}", {"image": images(), "boxes": PIXEL_BOXES}, option
        )
    yield Case("fields", "fields=['image', 'extra']", mixed, {"fields": ["image", "extra"]})
    yield Case("fields", "fields=['image', 'nothing']", mixed, {"fields": ["image", "nothing"]})


CASES: Final = {
    each.name: each
    for group in (
        list_image_names, list_image_choices, list_image_values, list_label_names, list_label_values, list_keys,
        list_targets, list_stated,
    )
    for each in group()
}  # fmt: skip
