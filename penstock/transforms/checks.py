"""Checks of arguments of several ops: probabilities, ranges, colours, angles, and the dtype and shape of images.

Each function returns the value in one form, or raises an :class:`ArgumentError` with its name. Called by the
constructors of ops; :func:`require_pixels` and :func:`colour_as_dtype` are called for each image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.sample import Array, DType
from penstock.transforms.base import ImageSpec, Op, require_hwc

__all__ = [
    "FLOAT_ADVICE",
    "Colour",
    "as_angles",
    "as_byte_colour",
    "as_colour",
    "as_integer",
    "as_numbers",
    "as_padding",
    "as_probability",
    "as_range",
    "as_shares",
    "as_shears",
    "colour_as_dtype",
    "is_number",
    "require_pixel_spec",
    "require_pixels",
]

FLOAT_ADVICE: Final = (
    "put it before Normalize and ToLayout; images that are stored as floats must be packed as uint8 or uint16"
)
"""What to do where an op gets images of floats: the end of an error."""

Colour = tuple[float, float, float]
"""A value for each of R, G, B."""


def is_number(value: object) -> TypeGuard[float]:
    """Return whether ``value`` is a number of Python or NumPy."""
    return isinstance(value, int | float | np.number)


def as_numbers(values: object, what: str) -> tuple[float, ...]:
    """Return one number or a sequence of numbers, as a tuple."""
    listed = (values,) if is_number(values) else values
    if not isinstance(listed, Sequence | np.ndarray) or not all(map(is_number, listed)):
        raise ArgumentError(f"{what} must be a number or a sequence of numbers, got {values!r}")
    return tuple(listed)


def as_probability(p: float) -> float:
    """``p``, if it is in [0, 1]."""
    if not 0 <= p <= 1:
        raise ArgumentError(f"p must be in [0, 1], got {p!r}")
    return float(p)


def as_range(
    bounds: float | Sequence[float], what: str, low: float = -math.inf, high: float = math.inf
) -> tuple[float, float]:
    """Return ``(least, most)`` of a range within [low, high]; one number is a range of that number alone."""
    values = as_numbers(bounds, what)
    values = values * 2 if is_number(bounds) else values
    if len(values) != 2 or not low <= values[0] <= values[1] <= high or not all(map(math.isfinite, values)):
        raise ArgumentError(f"{what} must be a range (least, most) within [{low}, {high}], got {bounds!r}")
    return float(values[0]), float(values[1])


def as_colour(fill: float | Sequence[float], what: str = "fill") -> Colour:
    """Return one finite number for all channels, or one for each of the three."""
    values = as_numbers(fill, what)
    values = values * 3 if is_number(fill) else values
    if len(values) != 3 or not all(map(math.isfinite, values)):
        raise ArgumentError(f"{what} must be one finite number or three (R, G, B), got {fill!r}")
    return float(values[0]), float(values[1]), float(values[2])


def as_integer(value: object, what: str, least: int, most: int) -> int:
    """``value``, if it is an integer in [least, most]."""
    if not isinstance(value, int | np.integer) or not least <= value <= most:
        raise ArgumentError(f"{what} must be an integer in [{least}, {most}], got {value!r}")
    return int(value)


def as_padding(padding: int | Sequence[int]) -> tuple[int, int, int, int]:
    """Pixels left, above, right and below, of one number for all sides, or left-right and top-bottom, or all four."""
    sides = as_numbers(padding, "padding")
    if len(sides) not in {1, 2, 4} or not all(isinstance(v, int | np.integer) and 0 <= v < 1 << 16 for v in sides):
        raise ArgumentError(f"padding must be one, two or four numbers of pixels of at least 0, got {padding!r}")
    left, top, right, bottom = (int(side) for side in (sides * 4)[:4])
    return left, top, right, bottom


def as_byte_colour(fill: int | Sequence[int]) -> tuple[int, int, int]:
    """Return a colour of integers in [0, 255]."""
    values = as_colour(fill, "fill")
    if any(value % 1 or not 0 <= value <= 255 for value in values):
        raise ArgumentError(f"fill must have integers in [0, 255], as uint8 images do, got {fill!r}")
    return int(values[0]), int(values[1]), int(values[2])


def colour_as_dtype(fill: Sequence[float], shape: tuple[int, ...], dtype: DType, op: Op) -> Array:
    """``fill`` as an array of the dtype of an image, (channels,), or () for HW; refused if the dtype cannot hold it."""
    values = np.array(fill)
    if len(shape) == 2:
        if len(set(fill)) > 1:
            raise ArgumentError(
                f"{op!r} must have one number to fill an image without channels, of shape {shape}, got {fill}"
            )
        values = values[0]
    elif shape[2] != len(fill):
        if len(set(fill)) > 1:
            raise ArgumentError(
                f"{op!r} must have one number to fill an image of {shape[2]} channels, of shape {shape}, got {fill}"
            )
        values = np.full(shape[2], fill[0])
    limits = np.iinfo(dtype) if dtype.kind in "iu" else None
    if limits is not None and (np.any(values < limits.min) or np.any(values > limits.max) or np.any(values % 1)):
        raise ArgumentError(f"{op!r} must have a fill that {dtype} images can hold, got {fill}")
    return values.astype(dtype)


def require_pixel_spec(spec: ImageSpec, op: Op) -> ImageSpec:
    """``spec`` with dtype uint8, if :func:`require_pixels` takes such images."""
    if require_hwc(spec, op).dtype not in {"uint8", None}:
        raise ArgumentError(f"{op!r} needs uint8 images, got {spec.dtype}; {FLOAT_ADVICE}")
    if spec.channels not in {3, None}:
        raise ArgumentError(f"{op!r} needs images of three channels, got {spec.channels}")
    return replace(spec, dtype="uint8")


def require_pixels(image: Array, op: Op | str) -> NDArray[np.uint8]:
    """``image``, if it is uint8 and HWC with three channels or HW."""
    if image.dtype != np.uint8 or not (image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 3)):
        raise ArgumentError(
            f"{op!r} needs uint8 images of shape (H, W, 3) or (H, W), got {image.dtype} of shape {image.shape}; "
            f"{FLOAT_ADVICE}"
        )
    return image


def as_angles(degrees: float | Sequence[float], what: str, limit: float = math.inf) -> tuple[float, float]:
    """A range of angles in degrees within [-limit, limit]; one number ``x`` is the range -x to x."""
    if is_number(degrees):
        if degrees < 0:
            raise ArgumentError(f"{what} must be a number of at least 0, or (least, most), got {degrees!r}")
        degrees = (-degrees, degrees)
    return as_range(degrees, what, -limit, limit)


def as_shares(translate: Sequence[float]) -> tuple[float, float]:
    """Return two fractions of an image's width and height."""
    if len(as_numbers(translate, "translate")) != 2 or not all(0 <= share <= 1 for share in translate):
        raise ArgumentError(f"translate must be two fractions of width and height, each in [0, 1], got {translate!r}")
    return float(translate[0]), float(translate[1])


def as_shears(shear: float | Sequence[float] | None) -> tuple[float, float, float, float]:
    """Return angles of shearing in degrees: least and most along x, least and most along y."""
    if shear is None:
        return 0.0, 0.0, 0.0, 0.0
    given = as_numbers(shear, "shear")
    both = (given[:2], given[2:]) if len(given) == 4 else (shear, (0.0, 0.0))
    (low_x, high_x), (low_y, high_y) = (as_angles(bounds, "shear", 90) for bounds in both)
    if max(abs(low_x), abs(high_x), abs(low_y), abs(high_y)) >= 90:
        raise ArgumentError(f"shear must have angles between -90 and 90 degrees, got {shear!r}")
    return low_x, high_x, low_y, high_y
