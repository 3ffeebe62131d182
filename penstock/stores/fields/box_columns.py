"""Arrays of which some columns are boxes, made boxes in absolute pixels and numbers of classes.

::

    "class cx cy w h", relative    rows of (n, 5)  ──> boxes (n, 4) xyxy float32, classes (n,) int64

Called for containers that store annotations as bare numbers.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.errors import ArgumentError
from penstock.sample import Array, Field
from penstock.stores.fields.box_corners import find_image_size, to_corners

__all__ = ["BoxColumns"]

_FORMS: Final = {
    ("cx", "cy", "w", "h"): "centre and size",
    ("x1", "y1", "w", "h"): "corner and size",
    ("x1", "y1", "x2", "y2"): "corners",
}
_NAMES: Final = dict(zip(_FORMS, ("cxcywh", "xywh", "xyxy"), strict=True))
_UNITS: Final = ("relative", "pixels")
_CLASS: Final = "class"


class BoxColumns:
    """What the columns of an array are.

    Parameters
    ----------
    columns : str
        A name for each column, between spaces: the box is ``cx cy w h`` (centre and size), ``x1 y1 w h`` (first corner
        and size) or ``x1 y1 x2 y2`` (corners), in any order; ``class`` is the number of the class. Another name becomes
        a field of its own, ``float64[*]``.
    units : {"relative", "pixels"}
        The unit of the box: fractions of the width and height of the image, or pixels.
    count : int
        The number of columns of the array; -1 if the array varies in it.
    classes : tuple of str
        Names of the classes.

    Raises
    ------
    ArgumentError
        If they are none of these.
    """

    def __init__(self, columns: object, units: object, count: int, classes: tuple[str, ...] = ()) -> None:
        names = columns.split() if isinstance(columns, str) else []
        self._form = next((form for form in _FORMS if set(form) <= set(names)), None)
        if self._form is None or len(set(names)) < len(names):
            forms = " or ".join(f"{' '.join(form)} ({text})" for form, text in _FORMS.items())
            raise ArgumentError(
                f'columns must name each column once, with a box as {forms}, such as "class cx cy w h", got {columns!r}'
            )
        if len(names) != count:
            raise ArgumentError(f"columns must name the {count} columns of shape, got {len(names)}: {columns!r}")
        if units not in _UNITS:
            raise ArgumentError(f"units must be one of {', '.join(_UNITS)} with columns, got {units!r}")
        self._corners = _NAMES[self._form]
        self._is_relative = units == "relative"
        self._box = [names.index(name) for name in self._form]
        self._class = names.index(_CLASS) if _CLASS in names else -1
        self._others = {name: at for at, name in enumerate(names) if name not in self._form and name != _CLASS}
        self.fields = {"boxes": Field("boxes")}
        if self._class >= 0:
            self.fields["classes"] = Field("int64[*]", classes)
        self.fields |= {name: Field("float64[*]") for name in self._others}

    def convert(self, rows: Array | None, image: memoryview) -> dict[str, object]:
        """The fields of one record.

        Parameters
        ----------
        rows : ndarray, (n, columns), or None
            The array; None gives None in each field.
        image : memoryview
            The encoded image, of which the header is read if the boxes are relative.

        Raises
        ------
        ValueError
            If the size of the image is needed and cannot be read.
        """
        if rows is None:
            return dict.fromkeys(self.fields)
        table = rows.astype(np.float64, copy=False)
        size = find_image_size(image) if self._is_relative and len(table) else None
        found: dict[str, object] = {"boxes": to_corners(table[:, self._box], self._corners, size)}
        if self._class >= 0:
            found["classes"] = _to_whole(table[:, self._class])
        return found | {name: np.ascontiguousarray(table[:, at]) for name, at in self._others.items()}


def _to_whole(numbers: Array) -> Array:
    with np.errstate(invalid="ignore"):
        whole: Array = numbers.astype(np.int64)
    if (whole != numbers).any():
        raise ValueError(f"its classes must be whole numbers, got {numbers[whole != numbers][0]}")
    return whole
