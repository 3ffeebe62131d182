"""Opens stores at URLs: which objects are there, which kind is it, and copies of them in the cache.

A copy is at the place that a file of this machine would have, so that a kind finds what is beside it by name. Nothing
but its first pages is fetched before records are read, unless the kind reads files as a whole.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Final, Protocol, TypeVar
from urllib.parse import quote

from penstock.errors import CorruptRecordError, StoreError, StoreFormatError, StoreNotFoundError
from penstock.stores.common.lmdb.pages import FILE, HASHES
from penstock.stores.common.mirrors import read_mended, register_mirror
from penstock.stores.images.trees import ObjectTree
from penstock.stores.kinds import MANIFEST, MANIFEST_MAGIC, STORES
from penstock.stores.lmdb_pack.page_hashes import PageHashFile
from penstock.stores.location import Location
from penstock.stores.remote.cache import CacheFolder, check_folder, parse_size
from penstock.stores.remote.folder import IMAGES, RemoteImages, holds_images, list_objects
from penstock.stores.remote.mirror import Mirror
from penstock.stores.remote.object_store import ObjectInfo, Peeked, Place, RefusedError
from penstock.stores.remote.request_queue import get_fetcher
from penstock.stores.remote.storage_client import StorageOptions
from penstock.stores.remote.upload import add_suffix
from penstock.stores.writing import SIDECAR, SIDECAR_PACK

__all__ = ["K", "RemoteObjects", "fetch_ends", "find_below", "find_remote"]

_ENDS_NBYTES: Final = 1 << 17
"""Bytes at both ends of an object that are fetched when it is opened: there is what says where the rest is."""
_PEEKED_NBYTES: Final = _ENDS_NBYTES + (1 << 16)
"""The same with what is not a whole page."""
_MAX_OBJECTS: Final = 10_000
"""Each has two maps, of which Linux allows a process 65,530."""
_FOLDER: Final = "files"


class _NoKindError(StoreFormatError):
    """What is in a folder is that of no kind that is one, and is perhaps damaged."""


class Kind(Protocol):
    """What is asked of a kind of store."""

    kind: ClassVar[str]
    reads_ranges: ClassVar[bool]
    takes_shards: ClassVar[bool]


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
    objects, parts = _find_objects(place)
    if not objects:
        tree = list_objects(place)
        if not len(tree):
            raise StoreNotFoundError("there is no object at this URL, and none below it", store=place.url)
        if holds_images(tree):
            return _locate_images(tree, place.url, choose, options, folder)
        objects = place.list(_MAX_OBJECTS)
    objects |= _find_beside(place, objects)
    version = "\0".join(f"{name}\0{info.nbytes}\0{info.version}" for name, info in objects.items())
    path = folder.make_folder(place.url, version) / place.url.rpartition("/")[2]
    source = RemoteObjects(place.url, tuple((n, *info) for n, info in objects.items()), options, folder.max_nbytes)
    source.parts = parts
    source.attach(path)
    source.parts.clear()
    fetch_ends(source.mirrors[:2])

    def choose_kind() -> type[K]:
        if (kind := choose(str(path))).kind == _FOLDER:
            raise _NoKindError("this is a folder of images")
        return kind

    try:
        kind = read_mended(choose_kind)
    except _NoKindError:  # without images, which its error says
        return _locate_images(list_objects(place), place.url, choose, options, folder)
    except StoreFormatError as error:  # it names the copy
        raise StoreFormatError(error.message, store=place.url) from None
    source.is_whole = not kind.reads_ranges
    source.require()
    return kind, Location(kind.kind, str(path), remote=source)


def find_below(location: Location, name: str, kind: type[K]) -> Location:
    """The location of a store of a kind whose URL lies below that of a store, with the same options and cache."""
    source = location.remote
    assert isinstance(source, RemoteObjects), "a location that find_remote returned"
    folder = Path(location.path).parent.parent
    given = {"storage_options": source.options, "cache": folder, "cache_size": source.cache_nbytes}
    quoted = quote(name) if source.url.startswith("http") else name
    return find_remote(f"{source.url}/{quoted}", lambda _: kind, given)[1]


def _locate_images(
    tree: ObjectTree, url: str, choose: Callable[[str], type[K]], options: StorageOptions, cache: CacheFolder
) -> tuple[type[K], Location]:
    """Return the kind and the location of a folder of images."""
    path = cache.locate_folder(url, IMAGES) / url.rpartition("/")[2]
    source = RemoteImages(url, options, cache.max_nbytes, tree)
    source.attach(path)
    kind = choose(str(path))  # that of an empty folder
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
    parts: dict[str, list[Peeked]] = field(default_factory=dict, repr=False, compare=False)
    """By name, bytes that came before the copies were made."""

    def __reduce__(self) -> tuple[object, ...]:
        return RemoteObjects, (self.url, self.objects, self.options, self.cache_nbytes, self.is_whole)

    def __hash__(self) -> int:
        return hash((self.url, self.objects))

    @property
    def nbytes(self) -> int:
        """Bytes of all objects."""
        return sum(nbytes for _, nbytes, _ in self.objects)

    def renew(self) -> RemoteObjects:
        """Return the same objects, without copies."""
        return replace(self, mirrors=[])

    def attach(self, path: Path) -> None:
        """Make the copies at ``path``, once, and fetch what is required at the opening."""
        if not self.mirrors:  # threads that do so at once make two copies of one file
            self.mirrors = self._make_mirrors(path)
            self.require()

    def require(self) -> None:
        """Fetch all bytes, if they are read as a whole."""
        for mirror in self.mirrors if self.is_whole else ():
            mirror.require()

    def _make_mirrors(self, path: Path) -> list[Mirror]:
        cache = CacheFolder.share(path.parent.parent, self.cache_nbytes)
        place = Place(self.url, self.options)
        made: dict[str, Mirror] = {}
        for name, nbytes, version in reversed(self.objects):  # hashes come before what they are of
            file = Path(os.path.normpath(path / name))  # beside it, of an index
            try:
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(
                    f"the cache folder {cache.path} cannot be written ({error.strerror}); cache= names another",
                    store=self.url,
                ) from error
            made[name] = mirror = Mirror(place, name, ObjectInfo(nbytes, version), file, cache)
            hashes = name.removesuffix(FILE) + HASHES
            if file.name == FILE and hashes in made:
                mirror.hashes = _load_hashes(file.parent / HASHES, place)
            for part in self.parts.pop(name, ()):
                if part.info == (nbytes, version):
                    mirror.put(part.begin, part.content)
            register_mirror(file, mirror)
        return list(made.values())[::-1]


def _load_hashes(path: Path, place: Place) -> PageHashFile:
    """The hashes of the pages of a pack, which are used before any page of it is kept."""
    try:
        return read_mended(lambda: PageHashFile(path), (ValueError,))
    except ValueError as error:
        raise StoreFormatError(f"{HASHES} is damaged: {error}; copy the pack there again", store=place.url) from error


def _find_objects(place: Place) -> tuple[dict[str, ObjectInfo], dict[str, list[Peeked]]]:
    """The objects of a store by name: one at the URL, those of a pack, a manifest of packs, or all below it.

    Beginning and end of each come with the answer whether it is there: most stores say there where the rest is.
    """
    names = "", FILE, HASHES, MANIFEST
    parts: dict[str, list[Peeked]] = {}
    asked = [(name, end) for name in names for end in ((False,) if name == MANIFEST else (False, True))]
    futures = [
        get_fetcher().submit(functools.partial(place.peek, name, _PEEKED_NBYTES, at_end=end), 0) for name, end in asked
    ]
    refused = None
    for (name, _), future in zip(asked, futures, strict=True):
        try:
            if (part := future.result()) is not None:
                parts.setdefault(name, []).append(part)
        except RefusedError as error:  # of what is absent too, where listing is not allowed; of a folder's web page
            refused = error
    found = {name: part[0].info for name, part in parts.items()}
    if FILE in found:
        return {name: found[name] for name in (FILE, HASHES) if name in found}, parts
    if MANIFEST in found and _has_manifest(place, parts[MANIFEST][0]):
        return {MANIFEST: found[MANIFEST]}, parts
    if "" in found:
        return {"": found[""]}, parts
    if refused is not None:
        raise refused
    return {}, {}


def _has_manifest(place: Place, part: Peeked) -> bool:
    """Return whether the object is the manifest of a sharded pack, and not that of another program."""
    nbytes = len(MANIFEST_MAGIC)
    if part.info.nbytes <= nbytes:
        return False
    return bytes(part.content[:nbytes] or place.get(MANIFEST, 0, nbytes, part.info)) == MANIFEST_MAGIC


def _find_beside(place: Place, objects: Collection[str]) -> dict[str, ObjectInfo]:
    """The objects of this name that belong to a container of another program.

    They say where its records are (our index of it, that of RecordIO), or have its other fields.
    """
    name = place.url.rpartition("/")[2]
    if [*objects] == [FILE]:
        begin, beside = ".", list[str]()
    elif [*objects] == [""]:
        suffixes = {each: None for row in STORES.rows() if row.is_named(name) for each in row.beside}
        begin, beside = f"../{name}.", [f"../{add_suffix(name, each)}" for each in suffixes]
    else:
        return {}
    beside += [f"{begin}{SIDECAR}", f"{begin}{SIDECAR_PACK}/{FILE}", f"{begin}{SIDECAR_PACK}/{HASHES}"]
    asked = [get_fetcher().submit(functools.partial(place.find, each), 0) for each in beside]
    found = {}
    for each, future in zip(beside, asked, strict=True):
        with contextlib.suppress(RefusedError):  # of what is absent too, where listing is not allowed
            if (info := future.result()) is not None:
                found[each] = info
    return found


def fetch_ends(mirrors: Iterable[Mirror]) -> None:
    """Fetch beginning and end of some objects, all at once."""
    ends = [
        (mirror, begin, min(_ENDS_NBYTES, mirror.nbytes - begin))
        for mirror in mirrors
        for begin in {0, max(mirror.nbytes - _ENDS_NBYTES, 0)}
    ]
    futures = [get_fetcher().submit(functools.partial(mirror.read, *end, keep=True), 0) for mirror, *end in ends]
    for future in futures:
        with contextlib.suppress(CorruptRecordError):  # whoever reads that says so
            future.result()
