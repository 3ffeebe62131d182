"""The packs of a sharded pack that a process has open: a bounded number, each opened when it is first needed.

::

    get(7) ──> open? ──> being opened by a thread? ──> opened here
    open_ahead([7, 8, 9]) ──> threads open those that are not open

A shard whose content is not the one in the manifest is refused: it was replaced. A shard that is left out stays open
for those that still read it. Used by :mod:`.pack.sharded`; thread-safe.
"""

from __future__ import annotations

import functools
import logging
import resource
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Final

from penstock import system
from penstock.errors import PenstockError, StoreError
from penstock.stores.common.per_process import PerProcess
from penstock.stores.location import Location
from penstock.stores.pack.manifest import PackManifest
from penstock.stores.pack.store import LmdbStore
from penstock.stores.remote.request_queue import Fetcher
from penstock.stores.writing import MANIFEST

__all__ = ["OpenShards", "name_shard"]

_logger = logging.getLogger(__name__)
_MOST_OPEN: Final = 1024
"""Of 10,000 records each, they take some 460 MB (``benches/sharded.py``)."""
_DESCRIPTORS: Final = 3
"""Files that an open shard has open, its seek tables counted."""


class OpenShards:
    """The open packs of one sharded pack.

    ``location``: of the sharded pack. ``manifest``: what it says. ``check``: whether checksums of blobs are verified.
    """

    def __init__(self, location: Location, manifest: PackManifest, *, check: bool) -> None:
        self._location, self._manifest, self._check = location, manifest, check
        self._lock = threading.Lock()
        self._open: OrderedDict[str, LmdbStore] = OrderedDict()
        self._opening: dict[str, Future[LmdbStore]] = {}
        self._opener = PerProcess(Fetcher)
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.most = _MOST_OPEN if allowed < 0 else min(_MOST_OPEN, max(allowed // (2 * _DESCRIPTORS), 1))
        """How many stay open."""
        names = len(set(manifest.shards.names))
        if self.most < min(names, _MOST_OPEN):
            _logger.warning(
                "%s: %d of its %d shards stay open, since this process may open %d files (ulimit -n); others are "
                "opened again when they are read",
                location, self.most, names, allowed,
            )  # fmt: skip
        system.watch(self)

    def __len__(self) -> int:
        """Number of open shards."""
        return len(self._open)

    def get(self, number: int) -> LmdbStore:
        """One of the shards, open.

        Raises StoreError if it cannot be opened, or is not the one that the manifest names.
        """
        name = self._manifest.shards.names[number]
        with self._lock:
            shard = self._open.get(name)
            if shard is not None:
                self._open.move_to_end(name)
                return shard
            opening = self._opening.get(name)
        return self._open_shard(number) if opening is None else opening.result()

    def open_ahead(self, numbers: Sequence[int]) -> list[Future[LmdbStore]]:
        """Begin to open shards in other threads; returns those that are not open yet."""
        opening = []
        with self._lock:
            for number in numbers:
                name = self._manifest.shards.names[number]
                if name in self._open:
                    continue
                if name not in self._opening:
                    self._opening[name] = self._opener.get().submit(functools.partial(self._open_shard, number), 0)
                opening.append(self._opening[name])
        return opening

    def locate(self, name: str) -> Location:
        """Where a shard is; StoreError if a remote place cannot be asked."""
        if self._location.remote is None:
            return Location(LmdbStore.kind, f"{self._location.path}/{name}")
        from penstock.stores.remote.opening import find_below  # stores on this machine do not need it

        return find_below(self._location, name, LmdbStore)

    def close(self) -> None:
        """Close the shards."""
        with self._lock:
            shards, self._open = self._open, OrderedDict()
        for shard in shards.values():
            shard.close()

    def renew_in_child(self) -> None:
        """In a forked child: there are no threads that open shards."""
        self._lock, self._opening = threading.Lock(), {}

    def _open_shard(self, number: int) -> LmdbStore:
        shards = self._manifest.shards
        name = shards.names[number]
        try:
            shard = LmdbStore(self.locate(name), check=self._check)
            named = shards.contents[number], shards.counts[number], self._manifest.schema
            if (shard.meta.content, len(shard), shard.schema) != named:
                raise StoreError(f"it is not the one that {MANIFEST} names: it was replaced; open the pack again")
            with self._lock:
                self._open[name] = shard
                while len(self._open) > self.most:
                    self._open.popitem(last=False)
        except PenstockError as error:
            error.where["store"] = str(self._location)
            raise name_shard(error, name)  # noqa: B904  # the same error
        finally:
            with self._lock:
                self._opening.pop(name, None)
        return shard


def name_shard(error: PenstockError, name: str) -> PenstockError:
    """An error of a shard, with the name of the shard in its message; the same object."""
    error.message = f"shard {name}: {error.message}"
    return error
