"""PASCAL VOC: an XML file for each image.

::

    dataset/Annotations/1.xml          <annotation> filename, size, object: name, bndbox, difficult, pose, ...
    dataset/JPEGImages/1.jpg           or beside the XML file, as labelImg writes it
    dataset/ImageSets/Main/train.txt   names of images, one a line: a split

Coordinates are taken as they are: VOC's own tools count pixels from 1, labelImg and most others from 0.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from penstock.annotations.base import AnnotationFormat, refuse_unknown_split
from penstock.annotations.numbers import parse_int, parse_number
from penstock.annotations.polygons import MAX_COORDINATE
from penstock.annotations.records import ImageObjects, RecordBuilder
from penstock.annotations.source import AnnotationSource
from penstock.annotations.xml import XmlElement, parse_xml
from penstock.errors import AnnotationError, ArgumentError
from penstock.sample import Array, Value

__all__ = ["VocFormat"]

_ELEMENTS: Final = {
    "object": "object",
    "name": "name",
    "filename": "filename",
    "width": "size/width",
    "height": "size/height",
    "xmin": "bndbox/xmin",
    "ymin": "bndbox/ymin",
    "xmax": "bndbox/xmax",
    "ymax": "bndbox/ymax",
}
_FLAGS: Final = ("difficult", "truncated", "occluded")
_POINTS: Final = frozenset({"landmarks", "landmark", "keypoints", "lm"})
_POLYGON: Final = "polygon"
_MIN_NUMBERS: Final = 6
"""Of a polygon: three corners."""
_VISIBLE: Final = 2.0
"""The flag of points that have none: COCO's for a visible point."""


class VocFormat(AnnotationFormat):
    """Reads PASCAL VOC.

    Parameters
    ----------
    elements : mapping of str to str, optional
        Where a file has other names than VOC: the path of an element below its image or object by VOC's name, such as
        ``{"bndbox/xmin": "box/left"}`` or ``{"name": "category"}``.
    """

    name = "voc"

    def __init__(self, *, elements: Mapping[str, str] | None = None) -> None:
        self._paths = _name_elements(elements)

    @classmethod
    def recognises(cls, source: AnnotationSource) -> bool:
        """XML files whose root is ``<annotation>``."""
        path = source.path if source.path.is_file() else next(iter(source.list_files(None, ".xml")), None)
        if path is None or path.suffix.lower() != ".xml":
            return False
        try:
            root = parse_xml(source.read_bytes(path))
        except (AnnotationError, ValueError):
            return (source.folder / "Annotations").is_dir()
        return root.tag == "annotation"

    def read(self, source: AnnotationSource, builder: RecordBuilder, split: str | None) -> None:
        """Add all images; see :meth:`AnnotationFormat.read`."""
        for path, part in _list_files(source, builder, split):
            try:
                root = parse_xml(source.read_bytes(path))
            except (AnnotationError, ValueError) as error:
                builder.note(path, getattr(error, "message", None) or str(error))
                continue
            _read_image(source, builder, root, path, self._paths, part)


def _name_elements(elements: Mapping[str, str] | None) -> dict[str, str]:
    known = {**{name: name for name in _ELEMENTS}, **{path: name for name, path in _ELEMENTS.items()}}
    paths = dict(_ELEMENTS)
    for name, path in (elements or {}).items():
        if name not in known:
            raise ArgumentError(f"elements must name one of {', '.join(_ELEMENTS.values())}, got {name!r}")
        paths[known[name]] = path
    return paths


def _list_files(
    source: AnnotationSource, builder: RecordBuilder, split: str | None
) -> Iterator[tuple[Path, str | None]]:
    """Yield the XML files, each with the name of its split, in the order of the only split, then of names."""
    if source.path.is_file() and source.path.suffix.lower() == ".xml":
        yield source.path, None
        return
    folder = source.folder
    found = source.list_files(folder, ".xml")
    lists = {path.stem: path for path in sorted((folder / "ImageSets" / "Main").glob("*.txt"))}
    refuse_unknown_split(split, lists)
    if split is None and len(lists) != 1:
        names = {
            name: part
            for part in ("trainval", "test", "val", "train")
            if part in lists
            for _, name in _read_names(source, lists[part])
        }
        yield from ((path, names.get(path.stem)) for path in found)
        return
    part = split or next(iter(lists))
    by_name = {path.stem: path for path in found}
    listed: set[str] = set()
    for number, name in _read_names(source, lists[part]):
        path = by_name.get(name)
        if name in listed:
            builder.note(lists[part], f"the image {name!r:.300} is listed already", number, image=name)
        elif path is not None or os.path.lexists(f"{folder}/Annotations/{name}.xml"):
            yield path or folder / "Annotations" / f"{name}.xml", part
        else:
            reason = f"there is no Annotations/{name:.300}.xml of the image that it lists"
            builder.note(lists[part], reason, number, image=name)
        listed.add(name)
    if split is None:
        yield from ((path, None) for path in found if path.stem not in listed)


def _read_names(source: AnnotationSource, path: Path) -> Iterator[tuple[int, str]]:
    """The lines and names of a split; a list for one class has a second column, -1 for images without it."""
    return ((number, line.split(maxsplit=1)[0]) for number, line in source.read_lines(path))


def _read_image(
    source: AnnotationSource,
    builder: RecordBuilder,
    root: XmlElement,
    path: Path,
    paths: Mapping[str, str],
    split: str | None,
) -> None:
    if root.tag != "annotation":
        builder.note(path, f"its root must be <annotation>, got <{root.tag:.100}>", root.line)
        return
    try:
        size = tuple(_read_side(root, paths[name], name) for name in ("width", "height"))
    except ValueError as error:
        builder.note(path, str(error), root.line)
        return
    name = root.find_text(paths["filename"]) or ""
    folders = (path.parent, path.parent.parent / "JPEGImages", path.parent.parent / "images")
    found = source.find_image(name, *folders) if name else None
    if found is None:  # the name of the picture is often an old one; that of the XML file is the pair's
        found = _find_partner(source, path, folders)
    image = builder.image(name or path.stem, found, file=path, size=(size[0], size[1]), split=split)
    if image is not None:
        for each in root.find_all(paths["object"]):
            _read_object(image, each, paths)


def _find_partner(source: AnnotationSource, path: Path, folders: tuple[Path, ...]) -> Path | None:
    partners = source.image_files.get(path.stem, [])
    partners = [each for each in partners if source.is_of_split(each.parent, source.relative(path.parent))]
    near = [each for each in partners if each.parent in folders]
    chosen = near or partners
    return chosen[0] if len(chosen) == 1 else None


def _read_side(root: XmlElement, path: str, what: str) -> int:
    text = root.find_text(path)
    return 0 if text is None else parse_int(text, what)


def _read_object(image: ImageObjects, element: XmlElement, paths: Mapping[str, str]) -> None:
    try:
        label = element.find_text(paths["name"])
        if label is None:
            raise ValueError(f"it has no <{paths['name']}>")  # noqa: TRY301  # one handler
        used = {path.partition("/")[0] for path in paths.values()} | {_POLYGON}
        polygon = _read_polygon(element)
        if polygon is not None and element.find(paths["xmin"].rpartition("/")[0] or paths["xmin"]) is None:
            box = [min(polygon[::2]), min(polygon[1::2]), max(polygon[::2]), max(polygon[1::2])]
        else:
            box = [_read_corner(element, paths[name]) for name in ("xmin", "ymin", "xmax", "ymax")]
        fields, keypoints = _read_fields(element, used)
    except ValueError as error:
        image.note(str(error), element.line)
        return
    image.add(label, box, line=element.line, keypoints=keypoints, polygon=polygon, attributes=fields)


def _read_polygon(element: XmlElement) -> list[float] | None:
    """Read x, y of the corners of its polygon, pixels; None without one. They are written as those of landmarks are."""
    found = element.find(_POLYGON)
    if found is None or not (found.children or found.text.strip()):
        return None
    points = _read_pairs(found)[0]
    if len(points) < _MIN_NUMBERS or not all(abs(number) <= MAX_COORDINATE for number in points):
        raise ValueError(
            f"its <{_POLYGON}> must have three or more points with numbers of at most 2**24, got {points!r:.100}"
        )
    return points


def _read_corner(element: XmlElement, path: str) -> float:
    text = element.find_text(path)
    if text is None:
        raise ValueError(f"it has no <{path}>")
    return parse_number(text, path)


def _read_fields(element: XmlElement, used: set[str]) -> tuple[dict[str, Value], Array | None]:
    """Everything else that an object has: flags as integers, other values as numbers or texts, points as keypoints."""
    fields: dict[str, Value] = {}
    keypoints = None
    for child in element.children:
        if child.tag in _FLAGS:
            fields[child.tag] = parse_int(child.text.strip() or 0, child.tag)
        elif child.tag in _POINTS and keypoints is None:
            keypoints = _read_points(child)
        elif child.tag == "attributes":
            for each in child.find_all("attribute"):
                fields[each.find_text("name") or "attribute"] = _read_value(each.find("value"))
        elif child.tag not in used:
            value = _read_value(child)
            held = fields.get(child.tag)
            if child.tag not in fields:
                fields[child.tag] = value
            else:  # as <part>, several times
                if not isinstance(held, list):
                    held = fields[child.tag] = [held]
                held.append(value)
    return fields, keypoints


def _read_value(element: XmlElement | None) -> Value:
    if element is None:
        return ""
    if element.children:
        return {child.tag: _read_value(child) for child in element.children}
    text = element.text.strip()
    try:
        return int(text) if text.lstrip("+-").isdecimal() and len(text) < 16 else float(text)
    except ValueError:
        return text


def _read_points(element: XmlElement) -> Array:
    """Return points with their flags, as float32."""
    numbers, flags = _read_pairs(element)
    points = np.full((len(numbers) // 2, 3), _VISIBLE, np.float32)
    with np.errstate(over="ignore"):
        points[:, :2] = np.array(numbers).reshape(-1, 2)
    if flags is not None:
        points[:, 2] = flags
    return points


def _read_pairs(element: XmlElement) -> tuple[list[float], list[float] | None]:
    """Read points as ``<x1>, <y1>, <x2>, ...``, as ``<point><x>, <y>, <visible>``, or as the text "x,y x,y"."""
    if not element.children:
        numbers = [parse_number(text, element.tag) for text in element.text.replace(",", " ").replace(";", " ").split()]
        flags = None
    elif any(child.children for child in element.children):
        groups = [child for child in element.children if child.children]
        numbers = [_read_corner(each, axis) for each in groups for axis in ("x", "y")]
        flags = [parse_number(each.find_text("visible") or _VISIBLE, "visible") for each in groups]
    else:
        numbers = [
            parse_number(child.text.strip(), child.tag)
            for child in element.children
            if child.tag.lower().startswith(("x", "y")) or child.tag.lower().endswith(("_x", "_y"))
        ]
        flags = None
    if not numbers or len(numbers) % 2:
        raise ValueError(f"its <{element.tag}> must have pairs of x and y, got {len(numbers)} numbers")
    return numbers, flags
