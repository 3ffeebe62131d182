"""NumPy's arrays, dtypes and scalars as pickles describe them, made without NumPy's own unpickling functions.

::

    numpy.dtype("u1", False, True)  BUILD (3, "<", None, ...)        ──> PickledDtype
    _reconstruct(ndarray, (0,), b"b")  BUILD (1, shape, dtype, ...)   ──> PickledArray.get_array() ──> view
    _frombuffer(bytes, dtype, shape, "C")                             ──> view
    scalar(dtype, bytes)                                              ──> bool, int, float, str

:mod:`.pickles.unpickler` calls these. They take numbers, booleans and strings; dtypes of objects, records and dates are
refused. No array has more bytes than the pickle gives.
"""

from __future__ import annotations

import math
import re
from typing import ClassVar, Final

import numpy as np

from penstock.sample import Array, DType

__all__ = ["PickledArray", "PickledDtype", "make_array", "make_scalar"]

_DTYPE: Final = re.compile(r"[|<>=]?([?]|b1|[iu][1248]|f[248]|[SU][0-9]{1,6})")
_MAX_AXES: Final = 32


class PickledDtype:
    """A dtype in a pickle: its code, then its byte order.

    Parameters
    ----------
    code : object
        The first argument of ``numpy.dtype``.

    Raises
    ------
    ValueError
        If it is no dtype of numbers, booleans or strings.
    """

    __slots__ = ("dtype",)
    name: ClassVar[str] = "numpy.dtype"

    def __init__(self, code: object, align: object = False, copy: object = True) -> None:
        text = code.decode("ascii", "replace") if isinstance(code, bytes) else code
        match = _DTYPE.fullmatch(text) if type(text) is str else None
        if match is None or type(align) not in {bool, int} or type(copy) not in {bool, int}:
            raise ValueError(f"the dtype {_show(code)} is refused; only numbers, booleans and strings are read")
        self.dtype: DType = np.dtype(match[1])

    def __setstate__(self, state: object) -> None:
        """Set the byte order, from the state that NumPy pickles."""
        if type(state) is not tuple or not 3 <= len(state) <= 9:
            raise ValueError("the state of a dtype must be a tuple of 3 to 9 values")
        order, shape, names = state[1], state[2], state[3:5]
        order = order.decode("ascii", "replace") if type(order) is bytes else order
        if shape is not None or any(each is not None for each in names):
            raise ValueError("dtypes with fields or of arrays are refused; only numbers, booleans and strings are read")
        if type(order) is not str or order not in {"<", ">", "=", "|"}:
            raise ValueError(f"the byte order of a dtype must be one of < > = |, got {_show(order)}")
        self.dtype = self.dtype.newbyteorder(">" if order == ">" else "<")


class PickledArray:
    """An array in a pickle: without shape and bytes, until the pickle gives them."""

    __slots__ = ("_array",)

    def __init__(self) -> None:
        self._array: Array | None = None

    def __setstate__(self, state: object) -> None:
        """Make the array, from the state that NumPy pickles: version, shape, dtype, Fortran order, bytes."""
        if type(state) is not tuple or len(state) not in {4, 5}:
            raise ValueError("the state of an array must be a tuple of 4 or 5 values")
        shape, dtype, is_fortran, content = state[-4:]
        if type(is_fortran) not in {bool, int}:
            raise ValueError(f"the order of an array must be true or false, got {_show(is_fortran)}")
        self._array = make_array(content, dtype, shape, "F" if is_fortran else "C")

    def get_array(self) -> Array:
        """The array; ValueError if the pickle did not give it."""
        if self._array is None:
            raise ValueError("an array has no shape and no bytes")
        return self._array


def make_array(content: object, dtype: object, shape: object, order: object) -> Array:
    """An array of these bytes: a read-only view of them.

    Raises
    ------
    ValueError
        If the bytes are not those of an array of this shape.
    """
    if not isinstance(content, bytes | bytearray):
        raise ValueError(f"the content of an array must be bytes, got {type(content).__name__}")  # noqa: TRY004  # damage
    if type(dtype) is not PickledDtype:
        raise ValueError(f"an array must have a dtype, got {_show(dtype)}")
    axes = (shape,) if isinstance(shape, int) else shape if isinstance(shape, tuple) else (None,)
    if len(axes) > _MAX_AXES or not all(type(length) is int and 0 <= length < 1 << 40 for length in axes):
        raise ValueError(f"the shape of an array must be a tuple of lengths, got {_show(shape)}")
    if order not in {"C", "F"}:
        raise ValueError(f"the order of an array must be C or F, got {_show(order)}")
    if math.prod(axes) * dtype.dtype.itemsize != len(content):
        raise ValueError(f"the {len(content)} bytes of an array are not those of shape {axes} and {dtype.dtype}")
    if not len(content):
        array = np.empty(axes, dtype.dtype)
        array.flags.writeable = False
        return array
    flat = np.frombuffer(content, dtype.dtype)
    flat.flags.writeable = False
    return flat.reshape(axes, order="F" if order == "F" else "C")


def make_scalar(dtype: object, content: object) -> object:
    """A NumPy scalar as Python's own: bool, int, float, str or bytes."""
    return make_array(content, dtype, (1,), "C")[0].item()


def _show(value: object) -> str:
    return ascii(value)[:80] if isinstance(value, str | bytes | bool | float) or value is None else type(value).__name__
