"""The few functions and classes that pickles of plain values name, and what takes their place.

::

    numpy._core.multiarray._reconstruct  ──GLOBALS──> PickledGlobal(make)      no module is imported
    anything else                        ──> StoreFormatError that names it

    numpy.dtype("u1", False, True)  BUILD (3, "<", None, ...)        ──> PickledDtype
    _reconstruct(ndarray, (0,), b"b")  BUILD (1, shape, dtype, ...)   ──> PickledArray.get_array() ──> view
    _frombuffer(bytes, dtype, shape, "C")                             ──> view
    scalar(dtype, bytes)                                              ──> bool, int, float, str

Called by :mod:`.pickles.unpickler`. Arrays hold numbers, booleans and strings; dtypes of objects, records and dates are
refused. No array has more bytes than the pickle gives.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import ClassVar, Final, NoReturn

import numpy as np

from penstock.errors import StoreFormatError
from penstock.sample import Array, DType

__all__ = ["GLOBALS", "PickledArray", "PickledDtype", "PickledGlobal", "check_key", "make_refusal"]

_DTYPE: Final = re.compile(r"[|<>=]?([?]|b1|[iu][1248]|f[248]|[SU][0-9]{1,6})")
_MAX_AXES: Final = 32
_MAX_NAME_NBYTES: Final = 256
_READ: Final = "only NumPy arrays, numbers, text, bytes and containers of them are read"
_PLAIN_KEYS: Final = frozenset({str, bytes, int, float, bool, type(None)})


class PickledGlobal:
    """In place of an allowed function or class of a pickle: calls ``make``, and nothing of the module.

    ``copies``: whether the result has the values of an argument once more.
    """

    __slots__ = ("copies", "make", "name")

    def __init__(self, name: str, make: Callable[..., object] | None, *, copies: bool = False) -> None:
        self.name, self.make, self.copies = name, make, copies

    def __call__(self, *arguments: object) -> object:
        """The value that the function returns for these arguments."""
        if self.make is None:
            raise make_refusal(f"a call of {self.name}")
        try:
            return self.make(*arguments)
        except TypeError as error:
            raise make_refusal(f"{self.name} with {len(arguments)} arguments") from error

    def __setstate__(self, state: object) -> NoReturn:
        raise make_refusal(f"a state for {self.name}")


def make_refusal(what: str) -> StoreFormatError:
    """The error for a pickle that needs something else, which ``what`` names."""
    return StoreFormatError(f"its pickle needs {what[:_MAX_NAME_NBYTES]!a}, which is refused: {_READ}")


def check_key(key: object) -> object:
    """A key of a dict or an element of a set: hashing it is cheap."""
    if type(key) not in _PLAIN_KEYS:
        raise make_refusal(f"a key of type {type(key).__name__}")
    return key


def _encode(text: object, encoding: object) -> bytes:
    """``_codecs.encode``, with which pickles of protocol 2 write bytes."""
    if type(text) is not str or encoding not in {"latin1", "latin-1"}:
        raise make_refusal(f"_codecs.encode to {encoding if type(encoding) is str else type(encoding).__name__}")
    return text.encode("latin-1")


def _make_bytes(content: object = b"", encoding: object = "latin-1") -> object:
    if type(content) is str:
        return _encode(content, encoding)
    if not isinstance(content, bytes | bytearray):
        raise make_refusal(f"bytes of {type(content).__name__}")
    return content


def _make_set(values: object = ()) -> set[object]:
    if type(values) not in {list, tuple, set, frozenset}:
        raise make_refusal(f"a set of {type(values).__name__}")
    return set(map(check_key, values))  # type: ignore[call-overload]  # one of those types


def _make_dict(pairs: object = ()) -> dict[object, object]:
    if type(pairs) not in {list, tuple}:
        raise make_refusal(f"a dict of {type(pairs).__name__}")
    made = {}
    for pair in pairs:  # type: ignore[attr-defined]  # one of those types
        if type(pair) not in {list, tuple} or len(pair) != 2:
            raise make_refusal("a dict of other values than pairs")
        made[check_key(pair[0])] = pair[1]
    return made


class PickledDtype:
    """A dtype in a pickle: its code, then its byte order.

    ``code``: the first argument of ``numpy.dtype``. Raises ValueError if it is no dtype of numbers, booleans or
    strings.
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

    Raises ValueError if the bytes are not those of an array of this shape.
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


def _reconstruct(kind: object, shape: object, code: object) -> PickledArray:
    del shape, code  # always (0,) and b"b"; the state has the true ones
    if kind is not _NDARRAY:
        raise make_refusal(f"an array of class {getattr(kind, 'name', type(kind).__name__)}")
    return PickledArray()


_NDARRAY: Final = PickledGlobal("numpy.ndarray", None)


def _list_globals() -> dict[str, PickledGlobal]:
    makers: dict[str, Callable[..., object]] = {
        "_codecs.encode": _encode,
        "numpy.dtype": PickledDtype,
        "collections.OrderedDict": _make_dict,
    }
    for core in ("numpy.core", "numpy._core"):
        makers[f"{core}.multiarray._reconstruct"] = _reconstruct
        makers[f"{core}.multiarray.scalar"] = make_scalar
        makers[f"{core}.numeric._frombuffer"] = make_array
    for builtins in ("builtins", "__builtin__"):
        makers[f"{builtins}.bytes"] = makers[f"{builtins}.bytearray"] = _make_bytes
        makers[f"{builtins}.set"] = _make_set
        makers[f"{builtins}.frozenset"] = lambda values=(): frozenset(_make_set(values))
    found = {name: PickledGlobal(name, make, copies="numpy" not in name) for name, make in makers.items()}
    found[_NDARRAY.name] = _NDARRAY
    return found


GLOBALS: Final[Mapping[str, PickledGlobal]] = _list_globals()
