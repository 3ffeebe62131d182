"""Shards at several URLs: patterns in URLs, stores of several objects, and streams of shards.

A pattern means what it means in a path: braces give names in their order, ``*`` and ``[...]`` those that are there,
sorted. Each shard has a copy of its own in the cache, so that a set that grows does not fetch its shards again.
"""

from __future__ import annotations

import fnmatch
import functools
import glob
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from penstock.errors import ArgumentError, StoreFormatError, StoreNotFoundError
from penstock.stores.common.mirrors import read_mended, register_mirror
from penstock.stores.fields.record_names import make_natural_key
from penstock.stores.location import Location, make_pattern
from penstock.stores.patterns import expand_braces, is_own_file
from penstock.stores.remote.cache import CacheFolder, check_folder, parse_size
from penstock.stores.remote.mirror import Mirror
from penstock.stores.remote.object_store import ObjectInfo, Place, RefusedError
from penstock.stores.remote.opening import K, fetch_ends
from penstock.stores.remote.request_queue import get_fetcher
from penstock.stores.remote.storage_client import StorageOptions

__all__ = ["RemoteShards", "find_remote_shards", "is_url_pattern", "locate_shards"]


@dataclass(frozen=True, slots=True)
class Shard:
    """An object: the URL of its bucket, its name there, bytes and version."""

    root: str
    name: str
    info: ObjectInfo

    @property
    def url(self) -> str:
        """Where it is."""
        return f"{self.root}/{self.name}"

    @property
    def version(self) -> str:
        """Differs when it is replaced, also by one of another size in the same second, where only a time is stated."""
        return f"{self.info.version}\0{self.info.nbytes}"


def is_url_pattern(url: str) -> bool:
    """Return whether a URL has braces or wildcards."""
    return any(sign in url for sign in "{*[")


def find_remote_shards(
    urls: Sequence[str], choose: Callable[[str], type[K]], given: Mapping[str, object]
) -> tuple[type[K], Location]:
    """The kind of a store at several URLs, and its location.

    Parameters
    ----------
    urls : sequence of str
        The objects in order, or patterns that give them.
    choose, given
        As for :func:`~penstock.stores.remote.opening.find_remote`.

    Raises
    ------
    StoreNotFoundError
        If there is no object at a URL, or none that fits a pattern.
    ArgumentError
        If stores of this kind consist of one object.
    StoreError
        As for :func:`~penstock.stores.remote.opening.find_remote`.
    """
    located = locate_shards("", urls, given)
    sources = [each.remote for each in located if isinstance(each.remote, RemoteShards)]
    paths = tuple(each.path for each in located)
    source = replace(
        sources[0],
        url=make_pattern([each.url for each in sources]) if len(sources) > 1 else sources[0].url,
        shards=tuple(shard for each in sources for shard in each.shards),
        paths=paths,
        mirrors=[],
    )
    source.attach(Path(paths[0]))
    fetch_ends(source.mirrors[:1])
    try:
        kind = read_mended(lambda: choose(paths[0]))
    except StoreFormatError as error:  # it names the copy
        raise StoreFormatError(error.message, store=sources[0].url) from None
    if len(paths) > 1 and not kind.takes_shards:
        raise ArgumentError(f"a store of kind {kind.kind!r} must be one URL, got {len(paths)}: {source.url}")
    source.is_whole = not kind.reads_ranges
    source.require()
    if len(paths) == 1:
        return kind, Location(kind.kind, paths[0], remote=source)
    return kind, Location(kind.kind, make_pattern(paths), shards=paths, remote=source)


def locate_shards(kind: str, urls: Sequence[str], given: Mapping[str, object]) -> list[Location]:
    """Return the location of each shard; nothing is fetched and nothing written.

    Parameters
    ----------
    kind : str
        The scheme of the locations.
    urls : sequence of str
        As for :func:`find_remote_shards`.
    given : mapping
        ``storage_options``, ``cache`` and ``cache_size``.

    Raises
    ------
    StoreNotFoundError
        If there is no object at a URL, or none that fits a pattern.
    """
    options = StorageOptions.check(given.get("storage_options"))
    cache = CacheFolder(check_folder(given.get("cache")), parse_size(given.get("cache_size")))
    located = []
    for shard in _find_shards(urls, options):
        path = str(cache.locate_folder(shard.url, shard.version) / shard.name.rpartition("/")[2])
        source = RemoteShards(shard.url, (shard,), (path,), options, cache.max_nbytes)
        located.append(Location(kind, path, remote=source))
    return located


@dataclass
class RemoteShards:
    """Objects that are the shards of a store; see :class:`~penstock.stores.location.RemoteSource`.

    Parameters
    ----------
    url : str
        The pattern of their URLs.
    shards : tuple of Shard
    paths : tuple of str
        The copy of each.
    options, cache_nbytes, is_whole
        As for :class:`~penstock.stores.remote.opening.RemoteObjects`.
    """

    url: str
    shards: tuple[Shard, ...]
    paths: tuple[str, ...]
    options: StorageOptions
    cache_nbytes: int
    is_whole: bool = False
    mirrors: list[Mirror] = field(default_factory=list, repr=False, compare=False)
    """The copies in this process."""

    def __reduce__(self) -> tuple[object, ...]:
        return RemoteShards, (self.url, self.shards, self.paths, self.options, self.cache_nbytes, self.is_whole)

    def __hash__(self) -> int:
        return hash((self.url, self.shards))

    @property
    def nbytes(self) -> int:
        """Bytes of all shards."""
        return sum(shard.info.nbytes for shard in self.shards)

    def attach(self, path: Path) -> None:
        """Make the copies of all shards, once; each copy has a path of its own."""
        del path
        if not self.mirrors:  # threads that do so at once make two copies of one file
            self.mirrors = list(self._make_mirrors())
            self.require()

    def renew(self) -> RemoteShards:
        """Return the same shards, without copies."""
        return replace(self, mirrors=[])

    def require(self) -> None:
        """Fetch all bytes, if they are read as a whole."""
        for mirror in self.mirrors if self.is_whole else ():
            mirror.require()

    def _make_mirrors(self) -> Iterator[Mirror]:
        places = {root: Place(root, self.options) for root in dict.fromkeys(shard.root for shard in self.shards)}
        for shard, path in zip(self.shards, map(Path, self.paths), strict=True):
            cache = CacheFolder.share(path.parent.parent, self.cache_nbytes)
            cache.make_folder(shard.url, shard.version)
            mirror = Mirror(places[shard.root], shard.name, shard.info, path, cache)
            register_mirror(path, mirror)
            yield mirror


def _find_shards(urls: Sequence[str], options: StorageOptions) -> list[Shard]:
    """Return the objects at URLs and of patterns; the place is asked for many at once."""
    places: dict[str, Place] = {}
    expanded = [pair for url in urls for pair in _expand(url, options, places)]
    asked = [
        None if info is not None else get_fetcher().submit(functools.partial(places[root].find, name), 0)
        for root, name, info in expanded
    ]
    found = []
    for (root, name, info), future in zip(expanded, asked, strict=True):
        known = info if future is None else future.result()
        if known is None:
            raise StoreNotFoundError("there is no object at this URL", store=f"{root}/{name}")
        found.append(Shard(root, name, known))
    return found


def _expand(url: str, options: StorageOptions, places: dict[str, Place]) -> list[tuple[str, str, ObjectInfo | None]]:
    """Bucket, name and, where it is known, size and version of each object that a URL gives."""
    root, name = _split(url, options)
    place = places.setdefault(root, Place(root, options))
    if not is_url_pattern(name):
        return [(root, name, None)]
    try:
        if (info := place.find(name)) is not None:  # as a path of an existing file
            return [(root, name, info)]
    except RefusedError:
        pass  # of what is absent too, where listing is not allowed
    found: list[tuple[str, str, ObjectInfo | None]] = []
    for each in expand_braces(name):
        if glob.has_magic(each):
            found.extend((root, *pair) for pair in _match(place, root, each))
        else:
            found.append((root, each, None))
    return found


def _match(place: Place, root: str, pattern: str) -> list[tuple[str, ObjectInfo]]:
    """Return the objects that fit a pattern, in natural order; a wildcard does not stand for ``/``, as in paths."""
    if root.startswith("http"):
        raise ArgumentError(f"a web server lists nothing, so that {pattern!r} gives no URL; name them by {{000..099}}")
    *parents, last = pattern.split("/")
    folders = [""]
    for part in parents:
        if not glob.has_magic(part):
            folders = [f"{folder}/{part}".lstrip("/") for folder in folders]
            continue
        below = (each for folder in folders for each in place.list_level(folder)[1])
        folders = [each for each in below if _fits(each, part)]
    objects = {name: info for folder in folders for name, info in place.list_level(folder)[0].items()}
    fitting = [(name, info) for name, info in objects.items() if _fits(name, last) and not is_own_file(name)]
    found = sorted(fitting, key=lambda each: make_natural_key(each[0]))
    if not found:
        raise StoreNotFoundError("there is no object that fits this pattern", store=f"{root}/{pattern}")
    return found


def _fits(name: str, pattern: str) -> bool:
    """Return whether the last part of a name fits.

    Those that begin with a dot do only if the pattern does, as in paths.
    """
    last = name.rpartition("/")[2]
    return fnmatch.fnmatchcase(last, pattern) and (not last.startswith(".") or pattern.startswith("."))


def _split(url: str, options: StorageOptions) -> tuple[str, str]:
    """Return the URL of a bucket, and a name in it."""
    Place(url, options)  # refuses what is no URL of a place
    parts = urlsplit(url)
    root, name = f"{parts.scheme}://{parts.netloc}", parts.path.strip("/")
    if not name:
        raise ArgumentError(f"the URL of a shard must be scheme://bucket/path, got {url!r}")
    return root, unquote(name) if parts.scheme.lower().startswith("http") else name
