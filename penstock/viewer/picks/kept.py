"""Picked records as they are kept for the next viewer of a store: by key, in a file in the user's state folder.

::

    ~/.local/state/penstock/picks/HASH.json     {"store": "lmdb:///photos.lmdb", "picked": [["cats/4.jpg", 17], ...]}

Nothing is written before something is picked, and never to a store or beside it. The number after a key is the index:
it tells records with the same key apart, as long as the store does not change. Called by the requests of this folder,
and by :mod:`penstock.viewer.find.order`, where the picked records are a set.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path

import numpy as np

from penstock.errors import StoreError
from penstock.stores.common.regular_file import FileIdentity, identify, read_json, replacing_file
from penstock.stores.location import state_folder
from penstock.viewer.browse.collection import Collection
from penstock.viewer.find.columns import Mask
from penstock.viewer.model.dataset_store import DatasetStore
from penstock.viewer.session import Session

__all__ = ["KeptPicks", "kept_picks_of"]


def kept_picks_of(session: Session) -> KeptPicks:
    """The kept picks of a viewer, made at the first call."""
    return session.part("picks", lambda: KeptPicks(session.collection))


class KeptPicks:
    """The picks of one store; several threads, and several viewers of the store, may change them.

    ``path`` is the file; None for samples of a dataset without a store, which have no name that stays: their picks last
    as long as the viewer.
    """

    def __init__(self, collection: Collection) -> None:
        self._collection, self._lock = collection, threading.Lock()
        name = hashlib.blake2b(os.fsencode(collection.store.url), digest_size=16).hexdigest()
        is_named = not isinstance(collection.store, DatasetStore)
        self.path = state_folder() / "picks" / f"{name}.json" if is_named else None
        self._picked = np.zeros(collection.total, bool)
        self._gone: list[tuple[str, int]] = []
        """Picks whose keys the store does not have."""
        self._seen: FileIdentity | None = None

    def load(self) -> tuple[Mask, int]:
        """Return which records are picked, (n,), and how many picked keys the store does not have.

        Raises StoreError if the file cannot be read.
        """
        with self._lock:
            self._refresh()
            return self._picked, len({key for key, _ in self._gone})

    def change(self, picked: Mask, dropped: Mask, *, forgets: bool = False) -> None:
        """Pick some records, and others no longer. ``forgets``: also the keys that the store does not have.

        Raises OSError if the file cannot be written.
        """
        with self._lock:
            self._refresh()
            self._picked = self._picked & ~dropped | picked
            self._gone = [] if forgets else self._gone
            if self.path is not None:
                self._write(self.path)

    def _write(self, path: Path) -> None:
        pairs = [*self._gone, *((self._collection.key(at), at) for at in np.flatnonzero(self._picked).tolist())]
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing_file(path) as file:
            file.write(json.dumps({"store": self._collection.store.url, "picked": pairs}).encode())
        self._seen = identify(path)

    def _refresh(self) -> None:
        """Read the file, if another viewer has changed it."""
        if self.path is None or not self.path.exists() or (seen := identify(self.path)) == self._seen:
            return
        try:
            pairs = {(key, index) for key, index in read_json(self.path)["picked"]}
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise StoreError(
                f"the picks that are kept in {self.path} cannot be read ({error}); remove this file to begin anew",
                store=self._collection.store.url,
            ) from error
        wanted = {key for key, _ in pairs}
        all_pairs = zip(self._collection.store.keys() if pairs else (), range(self._collection.total), strict=False)
        found = [pair for pair in all_pairs if pair[0] in wanted]
        unmoved = {key for key, _ in pairs.intersection(found)}
        self._picked = np.zeros(self._collection.total, bool)
        self._picked[[pair[1] for pair in found if pair in pairs or pair[0] not in unmoved]] = True
        there = {key for key, _ in found}
        self._gone = [pair for pair in pairs if pair[0] not in there]
        self._seen = seen
