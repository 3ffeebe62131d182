"""Indices of records: what stores and datasets take, and the check of one."""

from __future__ import annotations

import operator
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError

__all__ = ["Indices", "check_index", "list_indices"]

Indices = Iterable[int] | NDArray[np.int64]
"""Indices of records, as a sampler gives them."""


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
