"""Indices of records: what stores and datasets take, the check of one, and those of a few records to look at."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError

__all__ = ["Indices", "check_index", "list_indices", "spread_indices"]

Indices = Iterable[int] | NDArray[np.int64]
"""Indices of records, as a sampler gives them."""

_PROBED: Final = 16


def check_index(index: object, what: str) -> int:
    """Return ``index`` as an int.

    Raises
    ------
    ArgumentError
        If it is no integer; ``what`` names the object that is indexed.
    """
    try:
        return operator.index(index)  # type: ignore[arg-type]  # any object: its own TypeError is the answer
    except TypeError as error:
        raise ArgumentError(
            f"{what} is indexed by an int or a slice, got {type(index).__name__} {index!r:.80}"
        ) from error


def list_indices(indices: Indices) -> list[int]:
    """Indices as a list of ints."""
    return indices.tolist() if isinstance(indices, np.ndarray) else [int(index) for index in indices]


def spread_indices(count: int) -> list[int]:
    """Indices of up to 16 of ``count`` records, evenly spread: those whose values say what a field holds."""
    return sorted({*np.linspace(0, count - 1, min(count, _PROBED), dtype=np.int64).tolist()})
