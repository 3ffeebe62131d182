"""Indices in ascending order."""

from __future__ import annotations

from collections.abc import Sized

import numpy as np
from numpy.typing import NDArray

from penstock.samplers.base import IndexSampler

__all__ = ["SequentialSampler"]


class SequentialSampler(IndexSampler):
    """The indices 0, 1, 2, ... of a dataset, whose length is read at each use.

    Parameters
    ----------
    data_source : sized
        An object with a length.
    """

    def __init__(self, data_source: Sized) -> None:
        super().__init__()
        self.data_source = data_source

    def __len__(self) -> int:
        return len(self.data_source)

    def order(self, start: int, stop: int, epoch: int | None = None) -> NDArray[np.int64]:  # noqa: ARG002  # the same in each
        """Positions are indices."""
        return np.arange(start, min(stop, len(self)), dtype=np.int64)

    def signature(self) -> dict[str, object]:
        """Type and length."""
        return {"type": "SequentialSampler", "length": len(self)}
