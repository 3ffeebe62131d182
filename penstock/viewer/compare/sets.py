"""What a session is compared with, and the sets of records that this gives: ``sort=set:NAME`` of the grid."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock import stores
from penstock.errors import ArgumentError
from penstock.stores.base import Store
from penstock.viewer.browse.collection import Collection
from penstock.viewer.compare.predictions import Predictions
from penstock.viewer.compare.two_stores import KINDS_OF_PAIRS, TwoStores
from penstock.viewer.session import Session

__all__ = ["add_to_session", "order_by_set"]

_KEYS_WAIT_S: Final = 10.0


def add_to_session(
    session: Session, compare: str | os.PathLike[str] | Store | None, predictions: str | os.PathLike[str] | None
) -> None:
    """Open what is to be compared with the records of a session.

    See :func:`penstock.view`, also for what is raised.
    """
    if predictions is not None:
        found = Predictions(session.collection, Path(predictions))
        session.parts["predictions"] = found
        session.layer_sources.append(found)
    if compare is not None:
        owns = not isinstance(compare, Store)
        other = compare if isinstance(compare, Store) else stores.open(compare)
        session.parts["compare"] = TwoStores(session.collection, Collection(other, owns_store=owns))


def order_by_set(session: Session, name: str, matching: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """The records of the viewer's store that a set has, in its order; of these those that match a filter, if given.

    A set is one of predictions (``missed@0.5,0.3``, see :data:`~.predictions.SETS`), or of a comparison: ``changed``,
    ``relabelled``, ``removed``, ``unreadable``, ``unchanged``.

    Raises
    ------
    ArgumentError
        If there is no such set.
    """
    predictions, compared = session.parts.get("predictions"), session.parts.get("compare")
    if isinstance(predictions, Predictions) and "@" in name:
        found = predictions.find_set(name)[1]
    elif isinstance(compared, TwoStores) and name in KINDS_OF_PAIRS and name != "added":
        compared.start(_KEYS_WAIT_S)
        found = compared.find(name)[0]
    else:
        raise ArgumentError(f"there is no set {name!r:.100} in this viewer")
    return found if matching is None else found[np.isin(found, matching)]
