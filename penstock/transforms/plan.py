"""The plan of a chunk, which says where the pixels of its rows come from, and rows that failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError, SampleError
from penstock.sample import Array
from penstock.transforms.base import Op, Params, Sizes

__all__ = ["Failure", "Plan", "raise_first"]


@dataclass(frozen=True, slots=True)
class Failure:
    """A row that could not be filled: its position in the chunk, and why."""

    position: int
    error: Exception


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the pixels of a chunk's rows come from.

    Parameters
    ----------
    geometry : ndarray, shape (n, 9), int32
        As ``penstock._native.fill`` takes it.
    size : ndarray, shape (n, 2)
        Width and height of each image behind the fused ops.
    general : ndarray, shape (n,), bool, or None
        Rows that no geometry expresses (padding, Exif orientation) or whose file was cut off; None: there are none.
    drawn : list of (Op, ndarray, ndarray)
        Each fused op that moves pixels, what it drew for each image, and the images' sizes before it.
    """

    geometry: NDArray[np.int32]
    size: Array
    general: NDArray[np.bool_] | None
    drawn: list[tuple[Op, Params, Sizes]]


def raise_first(failed: Sequence[Failure]) -> None:
    """Raise the failure of the lowest position, with the position in it."""
    first = min(failed, key=lambda failure: failure.position)
    if isinstance(first.error, PenstockError):
        first.error.where["position"] = first.position
        raise first.error
    raise SampleError(
        f"a transform raised {type(first.error).__name__}: {first.error}", position=first.position
    ) from first.error
