"""Arrays of numbers of several types, with the dtype and values of torch.

::

    [1, 2.5]             float32: torch's default dtype, for a Python float among ints
    [1.5, 2]             float64: if a float is first, all become doubles
    [True, 2]            int64, [1, 2]
    [1, None], [1, "2"]  refused as by torch (NumPy gives nan and 2.0)

Called by :mod:`penstock.collate` for numbers of several types. The rules are those of ``torch.tensor``
(torch/csrc/utils/tensor_new.cpp) and of torch's type promotion (c10/core/ScalarType.cpp).
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.errors import SampleError
from penstock.sample import Array, DType, Sample

__all__ = ["CollateError", "CollateTypeError", "as_array", "as_doubles", "as_dtype", "common_dtype", "stack_scalars"]


class CollateError(SampleError):
    """Samples cannot be stacked; torch raises a RuntimeError."""


class CollateTypeError(CollateError, TypeError):
    """Samples cannot be stacked; torch raises a TypeError."""


class CollateValueError(CollateError, ValueError):
    """Samples cannot be stacked; torch raises a ValueError (before version 2.14 a RuntimeError)."""


class CollateOverflowError(CollateError, OverflowError):
    """Samples cannot be stacked; torch raises an OverflowError."""


_CLASSES: Final = (
    (OverflowError, CollateOverflowError),
    (TypeError, CollateTypeError),
    (ValueError, CollateValueError),
)


T = TypeVar("T")

_BOOL, _INT64, _FLOAT32, _COMPLEX64 = (np.dtype(name) for name in ("bool", "int64", "float32", "complex64"))
_DTYPES: Final = frozenset(np.dtype(code) for code in "?BHILbhilefdFD")
"""Dtypes that torch has."""
_UNPROMOTED: Final = frozenset(map(np.dtype, ("uint16", "uint32", "uint64")))
_ORDER: Final = "biufc"


def stack_scalars(batch: Sequence[object], field: str) -> Array:
    """Return an array of numbers of several types, as ``torch.tensor(batch)``.

    ``batch``: numbers of Python and NumPy, and 0-dimensional arrays. ``field``: position in the sample, for errors.
    Raises CollateError if an entry is not a number or does not fit the common dtype, or there is no common dtype.
    """
    dtype = _BOOL
    for position, value in enumerate(batch):
        refused, own = _infer_dtype(value, field)
        if own is None:
            raise _error_class_for(refused)(
                f"default_collate: not all entries are numbers{field}: entry 0 is {_type_name(batch[0])}, entry "
                f"{position} is {_type_name(value)}; give the loader a collate_fn for other types"
            )
        dtype = common_dtype([dtype, own] if position else [own], field)
        if dtype == np.complex128:
            break  # as in torch, later entries do not change it, and need only be convertible
    if dtype.kind == "f":
        return as_dtype(as_doubles(batch, field), dtype)
    if dtype.kind == "c":
        return np.array(_convert_all(batch, _complex, field), dtype)
    if dtype == _BOOL:
        return np.array(_convert_all(batch, _bool, field), dtype)
    numbers = _convert_all(batch, _int64, field)
    if dtype == np.uint64:
        raise CollateTypeError(f"default_collate: uint64 scalars do not mix{field}; make them int64, or arrays")
    return np.array(numbers, dtype)


def as_doubles(batch: Sequence[Sample], field: str) -> NDArray[np.float64]:
    """Return an array of float64, as ``torch.tensor(batch, dtype=torch.float64)``.

    Raises CollateError if an entry is no number.
    """
    try:
        return np.array(array("d", batch))
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return np.array(_convert_all(batch, lambda value: array("d", (value,))[0], field))


def common_dtype(dtypes: Sequence[DType], field: str) -> DType:
    """Return the dtype to which torch promotes these; raises CollateError if there is none."""
    try:
        return reduce(_promote, dtypes)
    except (TypeError, RuntimeError) as error:
        given = ", ".join(sorted({str(dtype) for dtype in dtypes}))
        raise _error_class_like(error)(f"default_collate: {given} have no common dtype{field}") from error


def as_dtype(values: Array, dtype: DType) -> Array:
    """Return ``values`` converted to the common dtype; values that are too large become infinite."""
    with np.errstate(over="ignore"):
        if dtype == np.float16 and values.dtype != dtype:
            values = values.astype(np.float32)  # as torch: to half precision through single
        return values.astype(dtype, copy=False)


def as_array(value: object, position: int, field: str) -> Array:
    """An entry as an array, as ``torch.as_tensor(value)``: a number, or nested sequences of numbers and arrays."""
    if isinstance(value, (list, tuple)):
        if not value:
            return np.zeros(0, np.float32)
        if all(_scalar_dtype(each) is not None for each in value):
            return stack_scalars(value, f" of entry {position}{field}")
        parts = [as_array(each, position, field) for each in value]
        if len({part.shape for part in parts}) == 1 and parts[0].ndim:
            dtype = common_dtype([part.dtype for part in parts], field)
            return np.stack([as_dtype(part, dtype) for part in parts])
    elif _scalar_dtype(value) is not None:
        return stack_scalars([value], f" of entry {position}{field}")[0:1].reshape(())
    elif hasattr(value, "__array__") and not isinstance(value, np.generic):
        return np.asarray(value)
    refused, own = _infer_dtype(value, field)
    raise (_error_class_for(refused) if own is None else CollateValueError)(
        f"default_collate: entry 0 is an array, entry {position} is {_type_name(value)}, which cannot become one{field}"
    )


def _infer_dtype(value: object, field: str) -> tuple[object, DType | None]:
    """The value and the dtype of a number, or of the values of a sequence or array, which are refused when converted.

    The value that is not a number, and None, if torch finds no dtype.
    """
    if isinstance(value, np.ndarray) and value.dtype in _DTYPES:
        return value, value.dtype
    if not isinstance(value, (list, tuple, range)):
        return value, _scalar_dtype(value)
    dtype = _FLOAT32
    for position, each in enumerate(value):
        refused, own = _infer_dtype(each, field)
        if own is None:
            return refused, None
        dtype = common_dtype([dtype, own], field) if position else own
    return value, dtype


def _error_class_for(value: object) -> type[CollateError]:
    """The class of torch's error for a value that is not a number; a RuntimeError if torch has no dtype for it."""
    return CollateTypeError if isinstance(value, (str, bytes)) or hasattr(value, "__array__") else CollateError


def _error_class_like(error: Exception) -> type[CollateError]:
    return next((mine for builtin, mine in _CLASSES if isinstance(error, builtin)), CollateError)


def _scalar_dtype(value: object) -> DType | None:
    """Return the dtype that torch gives a number; None for other values."""
    if isinstance(value, (np.generic, np.ndarray)) or (
        hasattr(value, "__array__") and not isinstance(value, (int, float, complex))
    ):
        made = np.asarray(value)
        return made.dtype if made.ndim == 0 and made.dtype in _DTYPES else None
    for kind, dtype in ((bool, _BOOL), (int, _INT64), (float, _FLOAT32), (complex, _COMPLEX64)):
        if isinstance(value, kind):
            return dtype
    return None


def _promote(one: DType, other: DType) -> DType:
    one, other = one.newbyteorder("="), other.newbyteorder("=")
    if one == other:
        return one
    if not {one, other} <= _DTYPES:
        raise TypeError
    low, high = sorted((one, other), key=lambda dtype: _ORDER.index("i" if dtype.kind == "u" else dtype.kind))
    if low in _UNPROMOTED or high in _UNPROMOTED:
        if high.kind == "f":
            return high
        raise RuntimeError
    if low.kind == high.kind or {low.kind, high.kind} <= set("iu") or {low.kind, high.kind} <= set("fc"):
        return np.promote_types(one, other)
    return high


def _convert_all(batch: Sequence[object], convert: Callable[[Sample], T], field: str) -> list[T]:
    converted = []
    for position, value in enumerate(batch):
        try:
            converted.append(convert(value))
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            raise _error_class_like(error)(
                f"default_collate: not all entries are numbers that fit{field}: entry 0 is {_type_name(batch[0])}, "
                f"entry {position} is {_type_name(value)}: {error}"
            ) from error
    return converted


def _bool(value: object) -> bool:
    return bool(value if isinstance(value, (bool, np.bool_)) else _index(value))


def _index(value: Sample) -> int:
    return operator.index(np.asarray(value).item() if _is_foreign(value) else value)


def _int64(value: object) -> int:
    number = _index(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"Overflow when unpacking long: {number:#x} does not fit int64"[:200])
    return number


def _is_foreign(value: object) -> bool:
    """Return whether ``value`` is an array of another library.

    A tensor of one bool converts to int, NumPy's does not.
    """
    return hasattr(value, "__array__") and not isinstance(value, (np.ndarray, np.generic))


def _complex(value: Sample) -> complex:
    if isinstance(value, str):
        raise TypeError("must be a number, not str")
    return complex(value)


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
