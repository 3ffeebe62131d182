"""Indices of records: what stores and datasets take, the check of one, and those of a few records to look at."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError

__all__ = ["Indices", "check_index", "check_indices", "list_indices", "spread_indices"]

Indices = Iterable[int] | NDArray[np.int64]
"""Indices of records, as a sampler gives them."""

_PROBED: Final = 16
_MASK: Final = "indices must be numbers of records, got bools; of a mask, give numpy.flatnonzero(mask)"


def check_index(index: object, what: str) -> int:
    """Return ``index`` as an int.

    Raises ArgumentError if it is no integer; ``what`` names the object that is indexed.
    """
    try:
        return operator.index(index)  # type: ignore[arg-type]  # any object: its own TypeError is the answer
    except TypeError as error:
        raise ArgumentError(
            f"{what} is indexed by an int or a slice, got {type(index).__name__} {index!r:.80}"
        ) from error


def check_indices(indices: Iterable[object], what: str) -> NDArray[np.int64]:
    """Return ``indices`` as an array: that of ints, or what a sampler gave otherwise; see :func:`check_index`.

    Raises ArgumentError if they are a mask of bools, of which each True would be the index 1.
    """
    if isinstance(indices, np.ndarray):
        if indices.dtype.kind == "b":
            raise ArgumentError(_MASK)
        return indices
    numbers = list_indices(indices, what)
    return np.array(numbers) if numbers else np.empty(0, np.int64)  # of Python's ints, where one is beyond int64


def list_indices(indices: Iterable[object], what: str = "a store") -> list[int]:
    """Indices as a list of ints; see :func:`check_indices`."""
    if isinstance(indices, np.ndarray):
        numbers: list[int] = check_indices(indices, what).tolist()
        return numbers
    given = list(indices)
    if bool in map(type, given) or str(getattr(indices, "dtype", "")) == "torch.bool":
        raise ArgumentError(_MASK)
    return [check_index(each, what) for each in given]


def spread_indices(count: int) -> list[int]:
    """Indices of up to 16 of ``count`` records, evenly spread: those whose values say what a field holds."""
    return sorted({*np.linspace(0, count - 1, min(count, _PROBED), dtype=np.int64).tolist()})
