"""Stores: containers of records, found by scheme, suffix or content.

A new store is one file here with a :class:`~penstock.stores.base.Store` in it, and one registration line below,
which also enrols it in ``tests/conformance/test_stores.py``. Order matters: the first store that recognises a
path opens it, so the most particular come first.
"""

from __future__ import annotations

import inspect
import os
import re
from typing import TYPE_CHECKING, Any

from penstock.errors import ArgumentError, StoreFormatError, StoreNotFoundError
from penstock.registry import Registry

if TYPE_CHECKING:
    from penstock.stores.base import Store

__all__ = ["STORES", "find", "open"]

STORES = Registry("store")
STORES.register("lmdb", "penstock.stores.lmdb:LmdbStore")
STORES.register("files", "penstock.stores.files:FilesStore")

_SCHEME = re.compile(r"^([a-z][a-z0-9+.-]*)://(.*)$", re.DOTALL)


def open(url: str | os.PathLike[str], **options: Any) -> Store:  # noqa: A001  # `ps.open` is the promised name
    """Open a store for reading.

    Parameters
    ----------
    url : str or path
        ``"photos.lmdb"``, ``"photos/"``, or with the kind said: ``"lmdb://photos.lmdb"``, ``"files:///data/photos"``.
    **options
        Of the kind: ``classes=[...]`` for a folder fixes names and numbers of the classes
        (:class:`~penstock.stores.files.FilesStore`); ``check=False`` for a pack leaves checksums unverified
        (:class:`~penstock.stores.lmdb.LmdbStore`).

    Returns
    -------
    Store
        To be closed by the caller, or used in a ``with`` statement.

    Raises
    ------
    StoreNotFoundError
        If nothing is there.
    StoreFormatError
        If something is there that no store recognises.
    IncompleteStoreError
        If it is a pack that was never finished.
    ArgumentError
        If the kind has no such option.
    """
    kind, path = find(url)
    allowed = list(inspect.signature(kind).parameters)[1:]
    for name in options:
        if name not in allowed:
            raise ArgumentError(f"a store of kind {kind.kind!r} has no option {name!r}; it has: {', '.join(allowed)}")
    store: Store = kind(path, **options)
    return store


def find(url: str | os.PathLike[str], *, to_write: bool = False) -> tuple[type[Store], str]:
    """The class that opens ``url``, and the path in it.

    Parameters
    ----------
    url : str or path
        As for :func:`open`.
    to_write : bool
        Whether a store is to be written there: then scheme and suffix choose, whatever lies there, and LMDB by default.
    """
    if not isinstance(url, str | bytes | os.PathLike):
        raise ArgumentError(
            f"a store is a path or a URL, got {type(url).__name__}; put pictures into a folder, one "
            "sub-folder a class, and give its path"
        )
    text = os.fsdecode(url)
    if not text:
        raise ArgumentError("an empty path is no store")
    if said := _SCHEME.match(text):
        return STORES.get(said[1]), said[2]
    kinds: list[type[Store]] = [STORES.get(name) for name in STORES]
    if to_write:
        return next((kind for kind in kinds if text.rstrip("/").endswith(kind.suffixes)), kinds[0]), text
    if not os.path.lexists(text):
        raise StoreNotFoundError("there is no store at this path", store=text)
    for kind in kinds:
        if kind.recognises(text):
            return kind, text
    raise StoreFormatError(
        f"this is neither a folder of images nor a pack (kinds of stores: {', '.join(STORES)})", store=text
    )
