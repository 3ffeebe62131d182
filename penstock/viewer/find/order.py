"""Which records a filter and an order give."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock.viewer.compare.sets import order_by_set
from penstock.viewer.session import Session

__all__ = ["find_order"]


def find_order(session: Session, query: str, sort: str) -> NDArray[np.int64] | None:
    """Indices of the records that match ``query``, in the order of ``sort``; None: all records as they are stored."""
    if sort.startswith("set:"):
        return order_by_set(session, sort.removeprefix("set:"), find_order(session, query, ""))
    return None
