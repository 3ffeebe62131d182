"""Which records a filter and an order give.

Results are kept, up to 32 MB, until the scan has new facts that they depend on.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.viewer.compare.sets import order_by_set
from penstock.viewer.find.columns import Mask
from penstock.viewer.find.finder import Finder, finder_of
from penstock.viewer.find.language import Condition, Operand, QueryError
from penstock.viewer.session import Session

__all__ = ["find_mask", "find_order", "list_order", "parse_sort", "start_scan"]

_KEPT_NBYTES: Final = 32_000_000


def find_order(session: Session, query: str, sort: str) -> NDArray[np.int64] | None:
    """Indices of the records that match ``query``, in the order of ``sort``; None: all records as they are stored.

    Parameters
    ----------
    session : Session
        What is viewed.
    query : str
        A filter: see :mod:`.language`. Where it needs what the scan measures, the scan is started, and the result is
        that of the records that were measured.
    sort : str
        A name; with a minus before it, the largest first; ``random:SEED``. Records without a value come last.
        ``set:NAME``: only those of a set of predictions or of a comparison, in its order.

    Returns
    -------
    ndarray, shape (n,), int64, or None
        Read-only, shared.

    Raises
    ------
    ArgumentError
        If the filter or the order cannot be read; names the place.
    """
    if sort.startswith("set:"):
        return order_by_set(session, sort.removeprefix("set:"), find_order(session, query, ""))
    return list_order(finder_of(session), query, sort)


def list_order(finder: Finder, query: str, sort: str) -> NDArray[np.int64] | None:
    """:func:`find_order`, for a finder."""
    query, sort = query.strip(), sort.strip()
    if not query and not sort:
        return None
    node, level = start_scan(finder, query, sort)
    with finder.lock:
        kept, asked = finder.kept, (query, sort, finder.scan.generation if level else 0)
        if asked not in kept:
            indices = np.arange(finder.total) if node is None else np.flatnonzero(finder.evaluate(node))
            kept[asked] = _sort(finder, indices, sort)
            kept[asked].flags.writeable = False
            while len(kept) > 1 and sum(each.nbytes for each in kept.values()) > _KEPT_NBYTES:
                kept.popitem(last=False)
        kept.move_to_end(asked)
        return kept[asked]


def find_mask(finder: Finder, query: str) -> Mask | None:
    """The records that fit a filter, (n,); None: all."""
    indices = list_order(finder, query, "")
    if indices is None:
        return None
    mask = np.zeros(finder.total, np.bool_)
    mask[indices] = True
    return mask


def start_scan(finder: Finder, query: str, sort: str) -> tuple[Condition | None, int]:
    """The tree of a filter, and the level of the scan that it and an order need; the scan is started for it.

    Raises
    ------
    QueryError
        If one of them cannot be read.
    """
    node, level = finder.parse(query)
    level = max(level, parse_sort(finder, sort)[1])
    if level:
        finder.scan.need(level)
    return node, level


def parse_sort(finder: Finder, sort: str) -> tuple[int | None, int]:
    """The seed of ``random:SEED``, else None; and the level of the scan that an order needs.

    Raises
    ------
    QueryError
        If it cannot be read, or the name is not known.
    """
    word, _, seed = sort.partition(":")
    if word == "random":
        if not (seed.isdecimal() and seed.isascii() and len(seed) < 19):
            raise QueryError(f"random must be followed by a seed, as in random:3, got {sort!r:.100}", len(word))
        return int(seed), 0
    if word == "set":
        return None, 0  # find_order reads it
    return None, finder.level_of(Operand(sort.removeprefix("-"))) if sort else 0


def _sort(finder: Finder, indices: NDArray[np.int64], sort: str) -> NDArray[np.int64]:
    seed, _ = parse_sort(finder, sort)
    if not sort:
        return indices
    if seed is not None:
        return indices[np.argsort(np.random.default_rng(seed).permutation(finder.total)[indices])]
    is_descending = sort.startswith("-")
    keys = finder.column(Operand(sort.removeprefix("-"))).sort_keys()
    if isinstance(keys, list):
        return np.array(sorted(indices.tolist(), key=keys.__getitem__, reverse=is_descending), np.int64)
    chosen = keys[indices]
    return indices[np.argsort(-chosen if is_descending else chosen, kind="stable")]
