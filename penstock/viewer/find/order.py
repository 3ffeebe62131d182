"""Which records a filter and an order give. Results are kept, up to 32 MB, until the scan has new facts of theirs."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.viewer.compare.predictions import Predictions
from penstock.viewer.compare.two_stores import KINDS_OF_PAIRS, TwoStores
from penstock.viewer.find.finder import Finder, finder_of
from penstock.viewer.find.language import QueryError, QueryToken
from penstock.viewer.picks.kept import kept_picks_of
from penstock.viewer.session import Session

__all__ = ["check_sort", "find_order", "list_order", "order_by_set"]

_KEPT_NBYTES: Final = 32_000_000
_KEYS_WAIT_S: Final = 10.0


def find_order(session: Session, query: str, sort: str) -> NDArray[np.int64] | None:
    """Indices of the records that match a filter, in an order; read-only. None: all records as they are stored.

    Where the filter (see :mod:`.language`) needs what the scan measures, the scan is started, and the result is that of
    the records that were measured. An order is a name; with a minus before it, the largest first; ``random:SEED``; or
    ``set:NAME``: only the records of a set (:func:`order_by_set`). Records without a value come last.
    ArgumentError if one of them cannot be read; it names the place.
    """
    if sort.startswith("set:"):
        return order_by_set(session, sort.removeprefix("set:"), find_order(session, query, ""))
    return list_order(finder_of(session), query, sort)


def list_order(finder: Finder, query: str, sort: str) -> NDArray[np.int64] | None:
    """:func:`find_order` for a finder, which knows no sets."""
    query, sort = query.strip(), sort.strip()
    node, scans = finder.parse(query)
    scans = check_sort(finder, sort) or scans
    if not query and not sort:
        return None
    if scans:
        finder.scan.start(after_stop=False)
    with finder.lock:
        kept, asked = finder.kept, (query, sort, finder.scan.generation if scans else 0)
        if asked not in kept:
            indices = np.arange(finder.total) if node is None else np.flatnonzero(finder.evaluate(node))
            kept[asked] = _sort(finder, indices, sort)
            kept[asked].flags.writeable = False
            while len(kept) > 1 and sum(each.nbytes for each in kept.values()) > _KEPT_NBYTES:
                kept.popitem(last=False)
        kept.move_to_end(asked)
        return kept[asked]


def check_sort(finder: Finder, sort: str) -> bool:
    """Return whether an order needs the scan; QueryError if it cannot be read."""
    word, _, seed = sort.partition(":")
    if word == "random" and not (seed.isdecimal() and seed.isascii() and len(seed) < 19):
        raise QueryError(f"random must be followed by a seed, as in random:3, got {sort!r:.100}", len(word))
    return word not in {"", "random", "set"} and finder.needs_scan(QueryToken(sort.removeprefix("-")))


def _sort(finder: Finder, indices: NDArray[np.int64], sort: str) -> NDArray[np.int64]:
    word, _, seed = sort.partition(":")
    if not word:
        return indices
    if word == "random":
        return indices[np.argsort(np.random.default_rng(int(seed)).permutation(finder.total)[indices])]
    is_descending = sort.startswith("-")
    keys = finder.column(QueryToken(sort.removeprefix("-"))).sort_keys()
    if isinstance(keys, list):
        return np.array(sorted(indices.tolist(), key=keys.__getitem__, reverse=is_descending), np.int64)
    chosen = keys[indices]
    return indices[np.argsort(-chosen if is_descending else chosen, kind="stable")]


def order_by_set(session: Session, name: str, matching: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """The records of the viewer's store that a set has, in its order; of these those that match a filter, if given.

    A set is one of predictions (``missed@0.5,0.3``, see :data:`~.predictions.SETS`), or of a comparison: ``changed``,
    ``relabelled``, ``removed``, ``unreadable``, ``unchanged``; or ``picked``.

    Raises ArgumentError if there is no such set.
    """
    predictions, compared = session.parts.get("predictions"), session.parts.get("compare")
    if isinstance(predictions, Predictions) and "@" in name:
        found = predictions.find_set(name)[1]
    elif isinstance(compared, TwoStores) and name in KINDS_OF_PAIRS and name != "added":
        compared.start(_KEYS_WAIT_S)
        found = compared.find(name)[0]
    elif name == "picked":
        found = np.flatnonzero(kept_picks_of(session).load()[0])
    else:
        raise ArgumentError(f"there is no set {name!r:.100} in this viewer")
    return found if matching is None else found[np.isin(found, matching)]
