"""A column of a store that datasets may need, or may not: read at its first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from penstock.sample import Array
    from penstock.stores.base import Store

__all__ = ["LazyColumn"]


class LazyColumn:
    """A column of a store that is read when its first value is needed.

    It is pickled without its values: a worker process reads them from its own store.
    """

    def __init__(self, store: Store, field: str) -> None:
        self._store, self._field = store, field
        self._values: Array | None = None

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> Array:
        values = self._values
        if values is None:
            values = self._values = self._store.column(self._field)
        return values[rows]

    def __reduce__(self) -> tuple[object, ...]:
        return LazyColumn, (self._store, self._field)
