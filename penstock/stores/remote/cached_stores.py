"""What is in a cache folder: which stores, how much of each; and how they get there, and away.

Called by the commands ``penstock cache``. The folder belongs to :mod:`penstock.stores.remote.cache`. Only :func:`warm`
asks a remote place.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from penstock.stores.base import Store
from penstock.stores.common.regular_file import read_json
from penstock.stores.lmdb_pack.sharded import ShardedPack
from penstock.stores.remote.cache import FREE_NBYTES, IN_USE_SECONDS, CacheFolder, delete_copies, list_copies
from penstock.stores.writing import MANIFEST
from penstock.trace import Trace

__all__ = ["CachedStore", "Warmed", "clear", "count_room", "count_store_nbytes", "fold_shards", "list_cached", "warm"]

_NAME: Final = re.compile("[0-9a-f]{32}")
_BATCH: Final = 256
_AHEAD: Final = 8
"""Records that are read at once, in the order of the store, and so many batches are announced."""


class CachedStore(NamedTuple):
    """One version of a store, of which copies are in a cache folder.

    Parameters
    ----------
    url : str
        Of the store; without credentials, which no URL of a store has. Empty if the folder does not say it.
    version : str
        Eight characters that differ between versions of the store.
    nbytes, store_nbytes : int
        Bytes that its copies take on the disk, and bytes of its objects.
    used_s : float
        When it was last opened, in seconds since 1970.
    path : Path
        The folder of the copies.
    """

    url: str
    version: str
    nbytes: int
    store_nbytes: int
    used_s: float
    path: Path

    @property
    def share(self) -> float:
        """Part of the store that is there, 0..1."""
        return min(self.nbytes / self.store_nbytes, 1.0) if self.store_nbytes else 0.0


class Warmed(NamedTuple):
    """Records that are in the cache now, of all; bytes that were fetched for it."""

    records: int
    total: int
    nbytes: int


def list_cached(folder: Path) -> list[CachedStore]:
    """The stores of which copies are in a cache folder, the one that was opened last first.

    A folder that does not exist has none. Other files and folders in it are left out.
    """
    found = []
    for used_s, path in list_copies(folder):
        with contextlib.suppress(OSError):  # deleted in between
            if _NAME.fullmatch(path.name) and not path.is_symlink():
                url = _read_url(path / "about.json")
                found.append(CachedStore(url, path.name[:8], *_count_nbytes(path), used_s, path))
    return sorted(found, key=lambda each: -each.used_s)


def fold_shards(stores: Iterable[CachedStore]) -> list[CachedStore]:
    """The stores, with the shards of a sharded pack counted as part of it; its size is that which the manifest says."""
    folded: dict[str, CachedStore] = {}
    shards = []
    for each in stores:
        manifest = next(each.path.glob(f"*/{MANIFEST}"), None)
        if manifest is None:
            shards.append(each)
            continue
        try:
            store_nbytes = sum(read_json(manifest)["shards"]["nbytes"])
        except (OSError, ValueError, KeyError, TypeError):  # it is not there as a whole
            store_nbytes = each.store_nbytes
        folded.setdefault(each.url, each._replace(store_nbytes=store_nbytes))
    others = []
    for each in shards:
        url = next((url for url in folded if each.url.startswith(f"{url}/")), None)
        if url is None:
            others.append(each)
        else:
            whole = folded[url]
            used_s = max(whole.used_s, each.used_s)
            folded[url] = whole._replace(nbytes=whole.nbytes + each.nbytes, used_s=used_s)
    return sorted([*folded.values(), *others], key=lambda each: -each.used_s)


def clear(folder: Path, url: str | None = None, *, older_than_s: float = 0.0) -> list[CachedStore]:
    """Delete copies from a cache folder.

    Parameters
    ----------
    folder : Path
        The cache folder.
    url : str, optional
        Delete those of the store at this URL, and of stores below it; by default those of all stores.
    older_than_s : float
        Delete those that nobody has opened for so many seconds.

    Returns
    -------
    list of CachedStore
        What was deleted.

    Notes
    -----
    A process that has a store open keeps the bytes that it has, as their files live as long as they are mapped. What it
    reads beyond them is fetched and not kept.
    """
    wanted = None if url is None else url.rstrip("/")
    now, deleted = time.time(), []
    for each in list_cached(folder):
        is_named = wanted is None or each.url == wanted or each.url.startswith(f"{wanted}/")
        if is_named and now - each.used_s >= older_than_s:
            delete_copies(each.path)
            if not each.path.exists():
                deleted.append(each)
    return deleted


def count_store_nbytes(store: Store) -> int:
    """Bytes of the objects of a remote store; of a sharded pack, those of the records of its shards."""
    if isinstance(store, ShardedPack):
        return store.manifest.committed.nbytes
    return 0 if store.location.remote is None else store.location.remote.nbytes


def count_room(cache: CacheFolder) -> int:
    """Bytes that may be added, as copies of stores that nobody has opened for long are deleted for them."""
    stores = list_cached(cache.path)
    used = sum(each.nbytes for each in stores)
    old = sum(each.nbytes for each in stores if time.time() - each.used_s >= IN_USE_SECONDS)
    free = shutil.disk_usage(cache.path).free - FREE_NBYTES
    return min(cache.max_nbytes - used, free) + old


def warm(store: Store, cache: CacheFolder, report: Callable[[int, int, int], object]) -> Warmed:
    """Fetch the records of a remote store in their order, as far as the cache has room for them.

    Parameters
    ----------
    store : Store
        Opened with this cache folder. Records that are there are not fetched: what was interrupted goes on.
    cache : CacheFolder
        The cache folder, with its limit.
    report : callable
        ``report(done, total, nbytes)``: number of records done, of all records, bytes fetched so far.

    Returns
    -------
    Warmed
        Fewer records than the store has, if the cache is full.

    Raises
    ------
    StoreError
        If a record cannot be read.
    """
    room, total, nbytes = count_room(cache), len(store), 0
    batches = [range(at, min(at + _BATCH, total)) for at in range(0, total, _BATCH)]
    trace = Trace()
    trace.activate()
    try:
        for number, batch in enumerate(batches):
            if nbytes >= room:
                return Warmed(batch.start, total, nbytes)
            for following in batches[number + _AHEAD - 1 if number else 0 : number + _AHEAD]:
                store.prefetch(following)
            store.read(batch)
            nbytes = trace.remote().get("nbytes", 0)
            report(batch.stop, total, nbytes)
    finally:
        trace.deactivate()
    return Warmed(total, total, nbytes)


def _read_url(about: Path) -> str:
    try:
        url = json.loads(about.read_bytes())["url"]
    except (ValueError, KeyError, TypeError):
        return ""
    return url if isinstance(url, str) else ""


def _count_nbytes(folder: Path) -> tuple[int, int]:
    """Bytes that the copies below a folder take on the disk, and bytes of the objects of which they are."""
    taken = whole = 0
    for root, _, files in os.walk(folder):
        names = set(files)
        for name in names:
            try:
                about = os.stat(os.path.join(root, name))  # noqa: PTH116, PTH118  # thousands of them
            except FileNotFoundError:
                continue  # it has another name now
            taken += about.st_blocks * 512
            whole += about.st_size if f"{name}.pages" in names else 0  # a sparse file has the size of its object
    return taken, whole
