"""Stores: containers of records, chosen by scheme, suffix or content.

A new store is one file here with a subclass of :class:`~penstock.stores.base.Store`, and one registration line below,
which also enrols it in ``tests/conformance/test_stores.py``. The first store that recognises a path opens it: the most
specific are registered first. A container without random access is a
:class:`~penstock.stores.shards.ShardStream`, registered in :data:`STREAMS`.
"""

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING

from penstock.errors import ArgumentError, StoreFormatError, StoreNotFoundError
from penstock.registry import Registry
from penstock.stores.location import Location

if TYPE_CHECKING:
    from penstock.stores.base import Store

__all__ = ["STORES", "STREAMS", "find", "open"]

STORES = Registry("store")
STORES.register("lmdb", "penstock.stores.lmdb:LmdbStore")
STORES.register("files", "penstock.stores.files:FilesStore")

STREAMS = Registry("stream of shards")
STREAMS.register("tar", "penstock.stores.tar:TarStream")


def open(url: str | os.PathLike[str], **options: object) -> Store:  # noqa: A001  # `ps.open` is the promised name
    """Open a store for reading.

    Parameters
    ----------
    url : str, path or Location
        ``"photos.lmdb"``, ``"photos/"``, or with the kind given: ``"lmdb://photos.lmdb"``, ``"files:///data/photos"``.
    **options
        Options of the kind: ``classes=[...]`` for a folder sets names and numbers of the classes
        (:class:`~penstock.stores.files.FilesStore`); ``check=False`` for a pack leaves checksums unverified
        (:class:`~penstock.stores.lmdb.LmdbStore`).

    Returns
    -------
    Store
        The caller closes it, or uses it in a ``with`` statement.

    Raises
    ------
    StoreNotFoundError
        If nothing is there.
    StoreFormatError
        If something is there that no store recognises.
    IncompleteStoreError
        If it is a pack that was never finished.
    ArgumentError
        If the scheme is unknown, or the kind has no such option.
    """
    kind, location = find(url)
    allowed = list(inspect.signature(kind).parameters)[1:]
    for name in options:
        if name not in allowed:
            raise ArgumentError(f"a store of kind {kind.kind!r} has no option {name!r}; it has: {', '.join(allowed)}")
    store: Store = kind(location, **options)
    return store


def find(url: str | os.PathLike[str], *, to_write: bool = False) -> tuple[type[Store], Location]:
    """The class that opens ``url``, and its location.

    Parameters
    ----------
    url : str, path or Location
        As for :func:`open`.
    to_write : bool
        Whether a store is to be written there. Then scheme and suffix choose the kind, whatever is there, and LMDB is
        the default.

    Raises
    ------
    ArgumentError
        If it is neither text nor a path, or its scheme is unknown.
    StoreNotFoundError
        If it has no scheme, and nothing is at the path.
    StoreFormatError
        If it has no scheme, and no kind of store recognises what is at the path.
    """
    if isinstance(url, Location):
        return STORES.get(url.scheme), url
    if not isinstance(url, str | bytes | os.PathLike):
        raise ArgumentError(
            f"a store must be a path or a URL, got {type(url).__name__}; put images into a folder, one sub-folder a "
            "class, and give its path"
        )
    text = os.fsdecode(url)
    if not text:
        raise ArgumentError("a store must be a path or a URL, got an empty path")
    scheme, path = Location.split_scheme(text)
    if scheme:
        named: type[Store] = STORES.get(scheme)
        return named, named.locate(text if named.is_remote else path)
    kinds: list[type[Store]] = [STORES.get(name) for name in STORES]
    if to_write:
        kind = next((kind for kind in kinds if text.rstrip("/").endswith(kind.suffixes)), kinds[0])
        return kind, kind.locate(path)
    if not os.path.lexists(path):
        raise StoreNotFoundError("there is no store at this path", store=path)
    for kind in kinds:
        if not kind.is_remote and kind.recognises(path):
            return kind, kind.locate(path)
    raise StoreFormatError(
        f"this is neither a folder of images nor a pack (kinds of stores: {', '.join(STORES)})", store=path
    )
