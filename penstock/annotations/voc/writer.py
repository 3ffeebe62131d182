"""Writes PASCAL VOC: an XML file for each image.

::

    JPEGImages/1.jpg   Annotations/1.xml   ImageSets/Main/train.txt

A coordinate is the shortest decimal number that is read as the same float32: whole pixels as VOC has them, others with
decimals. Keypoints are ``<landmarks>`` with a ``<point>`` for each; other fields of objects are elements of their
names.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

import numpy as np

from penstock.annotations.writing import AnnotationWriter, WrittenImage, format_float32

__all__ = ["VocWriter"]

_TAG: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_TAKEN: Final = frozenset({"name", "bndbox", "landmarks", "landmark", "keypoints", "lm", "attributes"})
_NOT_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_CORNERS: Final = ("xmin", "ymin", "xmax", "ymax")


class VocWriter(AnnotationWriter):
    """Writes PASCAL VOC."""

    name = "voc"
    crowds = "difficult"

    def __init__(self, folder: Path, classes: tuple[str, ...]) -> None:
        super().__init__(folder, classes)
        self._splits: dict[str, list[str]] = {}

    def locate_image(self, name: str, split: str) -> str:  # noqa: ARG002  # all splits have one folder
        """Return the path of the image in ``JPEGImages``."""
        return f"JPEGImages/{name}"

    def add(self, image: WrittenImage) -> None:
        """Write the XML file of an image."""
        lines = [
            "<annotation>",
            "  <folder>JPEGImages</folder>",
            f"  <filename>{_to_xml(image.name)}</filename>",
            f"  <size><width>{image.width}</width><height>{image.height}</height><depth>3</depth></size>",
        ]
        for row in range(len(image.labels)):
            lines += self._describe_object(image, row)
        self.write_text(f"Annotations/{image.stem}.xml", "\n".join([*lines, "</annotation>", ""]))
        self._splits.setdefault(image.split, []).append(image.stem)

    def finish(self) -> None:
        """Write the lists of splits."""
        for split, names in self._splits.items():
            self.write_text(f"ImageSets/Main/{split}.txt", "".join(f"{name}\n" for name in names))

    def _describe_object(self, image: WrittenImage, row: int) -> list[str]:
        corners = "".join(
            f"<{tag}>{format_float32(number)}</{tag}>" for tag, number in zip(_CORNERS, image.boxes[row], strict=True)
        )
        lines = [
            "  <object>",
            f"    <name>{_to_xml(self.classes[int(image.labels[row])])}</name>",
            f"    <bndbox>{corners}</bndbox>",
        ]
        if image.keypoints is not None and image.keypoints[row].any():
            points = "".join(
                f"<point><x>{format_float32(x)}</x><y>{format_float32(y)}</y><visible>{format_float32(flag)}</visible>"
                "</point>"
                for x, y, flag in image.keypoints[row]
            )
            lines.append(f"    <landmarks>{points}</landmarks>")
        for name, values in image.objects.items():
            if _TAG.fullmatch(name) and name not in _TAKEN and _is_plain(values[row]):
                lines.append(f"    <{name}>{_to_xml(_to_text(values[row]))}</{name}>")
        return [*lines, "  </object>"]


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float | np.number | np.bool_)


def _to_text(value: object) -> str:
    if isinstance(value, np.bool_ | bool):
        return str(int(value))
    return format_float32(value) if isinstance(value, np.float32) else str(value)


def _to_xml(text: str) -> str:
    """Return a text in XML, without the characters that XML cannot hold."""
    return escape(_NOT_XML.sub("", text))
