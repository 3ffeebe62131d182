"""bfloat16 in NumPy, which has no such dtype: that of the package ml_dtypes, or a stand-in.

::

                          ml_dtypes installed            not installed
    arrays of rows        ml_dtypes.bfloat16             STAND_IN: a record dtype of one uint16
    penstock.DataLoader   delivers these                 refuses: the error says what to install
    penstock.torch        torch.bfloat16 tensors over the same memory, in both cases

The stand-in holds the same bits, and NumPy refuses to compute with it: bits are never taken for numbers. Rounding and
conversion are here; what a batch delivers is decided by the loaders and by :mod:`penstock.collate`.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import OptionalPackageError
from penstock.registry import require
from penstock.sample import Array, DType

__all__ = ["NAME", "STAND_IN", "array_dtype", "as_words", "from_floats", "is_bfloat16", "refuse_stand_in", "to_floats"]

NAME: Final = "bfloat16"
"""The name in :class:`~penstock.transforms.ToLayout`, in ml_dtypes and in torch."""

STAND_IN: Final[DType] = np.dtype([(NAME, np.uint16)])
"""The dtype of arrays of bfloat16 without ml_dtypes."""


def array_dtype(name: str) -> DType:
    """Return the dtype of arrays that a pipeline calls ``name``: NumPy's, or that of bfloat16."""
    return _bfloat16() if name == NAME else np.dtype(name)


def is_bfloat16(dtype: DType) -> bool:
    """Return whether an array of ``dtype`` has bfloat16 numbers."""
    # NumPy's numbers are neither of the kind V; `name` and comparing are slow, and this is asked for each chunk
    return dtype.kind == "V" and (dtype == STAND_IN or dtype.name == NAME)


def as_words(array: Array) -> Array:
    """Return a view of an array of bfloat16 as uint16, for the native core; any other array itself."""
    return array.view(np.uint16) if is_bfloat16(array.dtype) else array


def from_floats(values: NDArray[np.float32]) -> Array:
    """Return ``values`` rounded to nearest, ties to even; NaN becomes the quiet NaN with its sign."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    upper = bits >> np.uint32(16)
    # Beside NaN, the sum cannot overflow: infinity has no lower bits, and adding less than one upper bit keeps it.
    rounded = (bits + np.uint32(0x7FFF) + (upper & np.uint32(1))) >> np.uint32(16)
    rounded = np.where(np.isnan(values), upper & np.uint32(0x8000) | np.uint32(0x7FC0), rounded)
    return rounded.astype(np.uint16).view(_bfloat16())


def to_floats(array: Array) -> Array:
    """Return an array of bfloat16 as float32, exactly; any other array itself."""
    if not is_bfloat16(array.dtype):
        return array
    return (as_words(array).astype(np.uint32) << np.uint32(16)).view(np.float32)


def refuse_stand_in(dtype: DType) -> None:
    """Raise OptionalPackageError if ``dtype`` is the stand-in, which is not delivered to users of NumPy."""
    if dtype.kind == "V" and dtype == STAND_IN:
        require("ml_dtypes", purpose="for NumPy arrays of bfloat16 (penstock.torch.DataLoader does without)")


@cache
def _bfloat16() -> DType:
    try:
        dtype: DType = np.dtype(require("ml_dtypes").bfloat16)
    except OptionalPackageError:
        return STAND_IN
    return dtype
