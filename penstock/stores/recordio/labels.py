"""What the labels of RecordIO images mean: class numbers, other numbers, arrays, or boxes.

::

    A │ B │ ... A - 2 numbers │ class, xmin, ymin, xmax, ymax, ... B numbers │ the next object │ ...

The last is MXNet's label of detection: A numbers of header (with A = 4 they are A, B, width, height), then B numbers
for each object, the corners divided by the size of the image. Called by
:class:`~penstock.stores.recordio.store.RecordioStore`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.sample import Field
from penstock.stores.fields.box_corners import find_image_size, to_corners

__all__ = ["find_boxes", "find_label_field", "is_detection_label"]

_LEAST_HEADER, _LEAST_OBJECT, _SIZED_HEADER = 2, 5, 4
_MAX_CLASS: Final = 1 << 24  # float32 holds the whole numbers up to here
_OUTSIDE: Final = 0.5  # how far a corner may lie outside the image, as a share of its size


def find_label_field(flags: NDArray[np.uint32], labels: NDArray[np.float32]) -> Field | None:
    """The field of the labels; None if no record has one.

    ``flags``: how many numbers the label of each record has; 0: one, in ``labels``. ``labels``: the labels of one
    number; NaN: the record has none.
    """
    if flags.any():
        least, most = int(flags.min()), int(flags.max())
        return Field(f"float32[{least}]" if least == most else "float32[*]")
    numbers = labels[~np.isnan(labels)]
    if not len(numbers):
        return None
    is_class = (np.abs(numbers) <= _MAX_CLASS).all() and (numbers == np.trunc(numbers)).all()
    return Field("label" if is_class else "float")


def is_detection_label(labels: Iterable[NDArray[np.float32]]) -> bool:
    """Whether every label has the structure of a label of detection, and at least one has an object."""
    objects = 0
    for label in labels:
        try:
            table = _read_objects(label)
        except ValueError:
            return False
        corners = table[:, 1:5]
        if (
            (table[:, 0] < 0).any()
            or (table[:, 0] != np.trunc(table[:, 0])).any()
            or not ((corners >= -_OUTSIDE) & (corners <= 1 + _OUTSIDE)).all()
            or (corners[:, :2] > corners[:, 2:]).any()
        ):
            return False
        objects += len(table)
    return objects > 0


def find_boxes(label: NDArray[np.float32], image: memoryview) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Boxes and classes in the label of an image.

    Returns
    -------
    boxes : ndarray, shape (n, 4), float32
        Corners xyxy in pixels.
    classes : ndarray, shape (n,), int64

    Raises
    ------
    ValueError
        If the label is not one of detection, or the size of the image is neither in the label nor in the image.
    """
    table = _read_objects(label)
    size = label[2:4] if label[0] >= _SIZED_HEADER else np.array([])
    if size.shape != (2,) or not (size > 0).all():
        size = np.array(find_image_size(image), np.float32)
    return to_corners(table[:, 1:5], size=size.tolist()), table[:, 0].astype(np.int64)


def _read_objects(label: NDArray[np.float32]) -> NDArray[np.float32]:
    """One row for each object."""
    header, width = (float(number) for number in label[:2]) if len(label) >= 2 else (0.0, 0.0)
    if not (
        _LEAST_HEADER <= header <= len(label)
        and _LEAST_OBJECT <= width <= _MAX_CLASS
        and header.is_integer()
        and width.is_integer()
        and (len(label) - int(header)) % int(width) == 0
    ):
        raise ValueError(f"its label of {len(label)} numbers is not one of detection: {label[:6].tolist()}")
    return label[int(header) :].reshape(-1, int(width))
