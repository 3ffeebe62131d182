"""What writes annotations: one subclass of :class:`AnnotationWriter` for each format, in a file of its own.

::

    WrittenImage ──add──> the annotation of one image, in the folder        pack.export.exporting writes the images
    finish       ───────> what all images share: classes, lists of splits

Numbers are written so that reading gives the same float32; see each format.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from penstock.annotations.base import refuse_unknown_options
from penstock.sample import Array, Value

__all__ = ["AnnotationWriter", "WrittenImage", "format_float32"]


@dataclass(frozen=True, slots=True)
class WrittenImage:
    """An image whose annotation is written."""

    name: str  # of its file, with the ending
    split: str  # the part of the set that it is in
    width: int
    height: int
    """``width`` and ``height``: its size in pixels."""
    boxes: Array  # (n, 4) float32: x0, y0, x1, y1 in pixels
    labels: Array  # (n,) int64: positions in the classes
    keypoints: Array | None = None  # (n, k, 3) float32: x, y in pixels, and the flag
    objects: Mapping[str, Value] = field(default_factory=dict)  # other fields with a value for each object
    fields: Mapping[str, Value] = field(default_factory=dict)  # other fields of the image

    @property
    def stem(self) -> str:
        """The name without its ending."""
        return Path(self.name).stem


class AnnotationWriter(ABC):
    """Writes a set of one format; registered in ``penstock.annotations.WRITERS``.

    Options of a format are keyword-only parameters of its constructor.

    ``folder``: an empty folder. ``classes``: names of the classes, by label.
    """

    name: ClassVar[str]
    """As registered."""
    relative_error: float = 0.0
    """By how much a coordinate may differ when it is read back, as a part of the image's width or height."""
    crowds: ClassVar[str] = "left out"
    """What becomes of objects that are crowds: "kept"; "difficult", objects with that flag; or "left out"."""

    def __init__(self, folder: Path, classes: tuple[str, ...]) -> None:
        self.folder, self.classes = folder, classes

    @abstractmethod
    def locate_image(self, name: str, split: str) -> str:
        """Return the path of an image, below the folder, with slashes."""

    @abstractmethod
    def add(self, image: WrittenImage) -> None:
        """Write the annotation of an image."""

    @abstractmethod
    def finish(self) -> None:
        """Write what all images share."""

    @classmethod
    def refuse_unknown_options(cls, options: Mapping[str, object]) -> None:
        """Raise ArgumentError for options that the constructor does not name."""
        refuse_unknown_options(cls, options, f"annotations of format {cls.name!r} are written with")

    def write_text(self, path: str, text: str) -> None:
        """Write a text file below the folder."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", newline="\n")


def format_float32(value: np.float32 | float) -> str:
    """Return the shortest decimal number that is read as this float32; whole numbers have no point."""
    number = np.float32(value)
    if number.is_integer():
        return str(int(number))
    shortest = np.format_float_positional(number, unique=True, trim="-")
    return shortest if np.float32(float(shortest)) == number else repr(float(number))
