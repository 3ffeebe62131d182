"""Opens stores at URLs: which objects are there, which kind is it, and copies of them in the cache.

A copy is at the place that a file of this machine would have, so that a kind finds what is beside it by name. Nothing
but its first pages is fetched before records are read, unless the kind reads files as a whole.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, Protocol, TypeVar

from penstock.errors import StoreError, StoreFormatError, StoreNotFoundError
from penstock.stores.common.mirrors import register_mirror
from penstock.stores.common.record_index import INDEX_FILE
from penstock.stores.lmdb.entry_keys import LAYOUT_FILE
from penstock.stores.lmdb.pages import FILE, HASHES
from penstock.stores.location import Location
from penstock.stores.pack.page_hashes import PageHashFile
from penstock.stores.remote.cache import CacheFolder, check_folder, parse_size
from penstock.stores.remote.mirror import Mirror
from penstock.stores.remote.object_store import ObjectInfo, Place, RefusedError, StorageOptions
from penstock.stores.remote.request_queue import get_fetcher

__all__ = ["RemoteObjects", "find_remote"]

_ENDS_NBYTES: Final = 1 << 17
"""Bytes at both ends of an object that are fetched when it is opened: there is what says where the rest is."""
_MAX_OBJECTS: Final = 200
"""Each has two open files; 1024 is what many systems allow a process."""
_MAX_ATTEMPTS: Final = 4
_INDEXED: Final = re.compile(r"\.(rec|tar)$|\.tfrec[^%]*$", re.IGNORECASE)
"""Names of containers that have an index beside them."""


class Kind(Protocol):
    """What is asked of a kind of store."""

    kind: ClassVar[str]
    reads_ranges: ClassVar[bool]


K = TypeVar("K", bound=Kind)


def find_remote(url: str, choose: Callable[[str], type[K]], given: Mapping[str, object]) -> tuple[type[K], Location]:
    """The kind of the store at a URL, and its location.

    Parameters
    ----------
    url : str
        ``s3://bucket/photos.lmdb``; see :class:`~penstock.stores.remote.object_store.Place`.
    choose : callable
        Returns the kind of a store at a path of this machine.
    given : mapping
        ``storage_options``, ``cache`` and ``cache_size``, as for :func:`penstock.open`.

    Raises
    ------
    StoreNotFoundError
        If there is neither an object at the URL, nor objects below it.
    StoreError
        If the place cannot be asked, or the cache folder cannot be written.
    """
    options = StorageOptions.check(given.get("storage_options"))
    folder = CacheFolder(check_folder(given.get("cache")), parse_size(given.get("cache_size")))
    place = Place(url, options)
    objects = _find_objects(place)
    objects |= _find_beside(place, objects)
    version = "\0".join(f"{name}\0{info.nbytes}\0{info.version}" for name, info in objects.items())
    path = folder.make_folder(place.url, version) / place.url.rpartition("/")[2]
    source = RemoteObjects(place.url, tuple((n, *info) for n, info in objects.items()), options, folder.max_nbytes)
    source.attach(path)
    for mirror in source.mirrors[:2]:
        _fetch_ends(mirror)
    try:
        kind = choose(str(path))
    except StoreFormatError as error:  # it names the copy
        raise StoreFormatError(error.message, store=place.url) from None
    source.is_whole = not kind.reads_ranges
    source.require()
    return kind, Location(kind.kind, str(path), remote=source)


@dataclass
class RemoteObjects:
    """The objects of a store; see :class:`~penstock.stores.location.RemoteSource`.

    Parameters
    ----------
    url : str
        Where they are.
    objects : tuple of (str, int, str)
        Name below the URL, number of bytes and version of each.
    options : StorageOptions
        Options of the client.
    cache_nbytes : int
        The limit of the cache folder.
    is_whole : bool
        Whether copies have all bytes before they are read, since a library may read them.
    """

    url: str
    objects: tuple[tuple[str, int, str], ...]
    options: StorageOptions
    cache_nbytes: int
    is_whole: bool = False
    mirrors: list[Mirror] = field(default_factory=list, repr=False, compare=False)
    """The copies in this process."""

    def __reduce__(self) -> tuple[object, ...]:
        return RemoteObjects, (self.url, self.objects, self.options, self.cache_nbytes, self.is_whole)

    def __hash__(self) -> int:
        return hash((self.url, self.objects))

    @property
    def client_options(self) -> Mapping[str, object]:
        """See :class:`~penstock.stores.location.RemoteSource`."""
        return self.options.get(self.url)

    def attach(self, path: Path) -> None:
        """See :class:`~penstock.stores.location.RemoteSource`."""
        if not self.mirrors:  # threads that do so at once make two copies of one file
            self.mirrors = self._make_mirrors(path)
            self.require()

    def require(self) -> None:
        """Fetch all bytes, if they are read as a whole."""
        for mirror in self.mirrors if self.is_whole else ():
            mirror.require()

    def _make_mirrors(self, path: Path) -> list[Mirror]:
        cache = CacheFolder(path.parent.parent, self.cache_nbytes)
        place = Place(self.url, self.options)
        mirrors = []
        for name, nbytes, version in self.objects:
            file = Path(os.path.normpath(path / name))  # beside it, of an index
            try:
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(
                    f"the cache folder {cache.path} cannot be written ({error.strerror}); cache= names another",
                    store=self.url,
                ) from error
            mirrors.append(Mirror(place, name, ObjectInfo(nbytes, version), file, cache))
        if [name for name, _, _ in self.objects] == [FILE, HASHES]:
            register_mirror(path / HASHES, mirrors[1])
            mirrors[0].hashes = _load_hashes(path / HASHES, mirrors[1], place)
        for (name, _, _), mirror in zip(self.objects, mirrors, strict=True):
            register_mirror(os.path.normpath(path / name), mirror)
        return mirrors


def _load_hashes(path: Path, mirror: Mirror, place: Place) -> PageHashFile:
    """The hashes of the pages of a pack, which are used before any page of it is kept."""
    for attempt in range(1, _MAX_ATTEMPTS + 1):
        try:
            return PageHashFile(path)
        except ValueError as error:
            if attempt == _MAX_ATTEMPTS:
                raise StoreFormatError(
                    f"{HASHES} is damaged: {error}; copy the pack there again", store=place.url
                ) from error
            mirror.forget(0, mirror.nbytes)
    raise AssertionError("the last attempt returns or raises")


def _find_objects(place: Place) -> dict[str, ObjectInfo]:
    """The objects of a store by name: one at the URL, or those of an LMDB environment, or all below it."""
    names = "", FILE, HASHES
    asked = [get_fetcher().submit(functools.partial(place.find, name), 0) for name in names]
    found, refused = {}, None
    for name, future in zip(names, asked, strict=True):
        try:
            if (info := future.result()) is not None:
                found[name] = info
        except RefusedError as error:  # of what is absent too, where listing is not allowed; of a folder's web page
            refused = error
    if FILE in found:
        return {name: info for name, info in found.items() if name}
    if "" in found:
        return {"": found[""]}
    if refused is not None:
        raise refused
    listed = place.list(_MAX_OBJECTS)
    if not listed:
        raise StoreNotFoundError("there is no object at this URL, and none below it", store=place.url)
    return listed


def _find_beside(place: Place, objects: Collection[str]) -> dict[str, ObjectInfo]:
    """The objects that say where records are: our index of a container, that of RecordIO, a layout of LMDB."""
    name = place.url.rpartition("/")[2]
    if [*objects] == [FILE]:
        beside = [f".{LAYOUT_FILE}"]
    elif [*objects] == [""] and _INDEXED.search(name):
        beside = [f"../{name}.{INDEX_FILE}", *([f"../{name[:-4]}.idx"] if name.endswith(".rec") else [])]
    else:
        return {}
    asked = [get_fetcher().submit(functools.partial(place.find, each), 0) for each in beside]
    found = {}
    for each, future in zip(beside, asked, strict=True):
        with contextlib.suppress(RefusedError):  # of what is absent too, where listing is not allowed
            if (info := future.result()) is not None:
                found[each] = info
    return found


def _fetch_ends(mirror: Mirror) -> None:
    last = max(mirror.nbytes - _ENDS_NBYTES, 0)
    end = get_fetcher().submit(lambda: mirror.read(last, mirror.nbytes - last, keep=True), 0)
    mirror.read(0, min(_ENDS_NBYTES, mirror.nbytes), keep=True)
    end.result()
