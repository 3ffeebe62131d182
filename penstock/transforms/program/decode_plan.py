"""The plan of a chunk, and failures of its rows."""

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
    """A row that could not be filled: its position in the chunk, and the error."""

    position: int
    error: Exception


@dataclass(frozen=True, slots=True)
class Plan:
    """The sources of the pixels of each row of a chunk.

    Parameters
    ----------
    geometry : ndarray, shape (n, 9), int32
        As ``penstock._native.fill`` takes it.
    size : ndarray, shape (n, 2), or None
        Width and height of each image after the fused ops; None if all have that of the spec.
    general : ndarray, shape (n,), bool, or None
        Rows that take the general path (padding, Exif orientation, a truncated file); None if there are none.
    drawn : list of (Op, ndarray, ndarray)
        Each fused op that moves pixels, what it drew for each image, and the images' sizes before it; empty if the
        native core drew.
    """

    geometry: NDArray[np.int32]
    size: Array | None
    general: NDArray[np.bool_] | None
    drawn: list[tuple[Op, Params, Sizes]]


def raise_first(failed: Sequence[Failure]) -> None:
    """Raise the error of the failure with the lowest position, with this position noted."""
    first = min(failed, key=lambda failure: failure.position)
    if isinstance(first.error, PenstockError):
        first.error.where["position"] = first.position
        raise first.error
    raise SampleError(
        f"a transform raised {type(first.error).__name__}: {first.error}", position=first.position
    ) from first.error
