"""A folder of images in object storage: lists its objects, and fetches each image as one object.

::

    s3://bucket/train/cats/1.jpg  18,000 bytes     copy    ┌ 1.jpg ──────┬ 2.jpg ─┬ 3.jpg ─────────┬ ...
    s3://bucket/train/cats/2.jpg   9,000 bytes             0             20480    32768              page by page

The copies of all images are one :class:`~penstock.stores.remote.mirror.Mirror`, in which each begins at a page: a
million images are two files in the cache, with the checks, limits and requests of every other copy.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import time
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from penstock.errors import StoreError
from penstock.paths import IMAGE_SUFFIXES
from penstock.stores.common.keys import KeyList
from penstock.stores.images.trees import ObjectTree
from penstock.stores.kinds import STORES
from penstock.stores.remote.cache import CacheFolder, delete_older
from penstock.stores.remote.mirror import Mirror
from penstock.stores.remote.object_store import ObjectInfo, Place
from penstock.stores.remote.request_queue import get_fetcher
from penstock.stores.remote.storage_client import StorageOptions

__all__ = ["IMAGES", "FolderImages", "RemoteImages", "holds_images", "list_objects"]

_logger = logging.getLogger(__name__)
IMAGES: Final = "images"
"""The version of the folder in the cache: it has the copies of all lists of these images."""
_PAGE: Final = 4096
_MAX_NAMES: Final = 2_000_000
_FOLDERS_AT_ONCE: Final = 256
_REPORT_SECONDS: Final = 5.0


def list_objects(place: Place) -> ObjectTree:
    """Return all objects below a URL: the folders in it at once, since one list gives 1,000 names an answer.

    Raises
    ------
    StoreError
        If there are more than two million, or the place cannot list them.
    """
    names: list[str] = []
    sizes, versions = array("q"), list[str]()
    reported = time.monotonic()

    def add(page: Mapping[str, ObjectInfo]) -> None:
        nonlocal reported
        names.extend(page)
        sizes.extend(info.nbytes for info in page.values())
        versions.extend(info.version for info in page.values())
        if len(names) > _MAX_NAMES:
            raise StoreError(
                f"below this URL are more than {_MAX_NAMES} objects; pack them (penstock pack), and read the pack",
                store=place.url,
            )
        if time.monotonic() - reported > _REPORT_SECONDS:
            reported = time.monotonic()
            _logger.info("%s: %d objects are listed so far", place.url, len(names))

    pages = place.iter_pages()
    first = next(pages, {})
    if not any("/" in name for name in first):
        for page in itertools.chain([first], pages):
            add(page)
    else:
        objects, folders = place.list_level()
        add(objects)
        for begin in range(0, len(folders), _FOLDERS_AT_ONCE):
            pending = [
                get_fetcher().submit(functools.partial(_list_folder, place, folder), 0)
                for folder in folders[begin : begin + _FOLDERS_AT_ONCE]
            ]
            for future in pending:
                for page in future.result():
                    add(page)
    return ObjectTree(place.url.rpartition("/")[2], names, sizes, versions)


def _list_folder(place: Place, folder: str) -> Sequence[Mapping[str, ObjectInfo]]:
    return list(place.iter_pages(folder))


def holds_images(tree: ObjectTree) -> bool:
    """Return whether a tree is a folder of images, by the names in it: there are images, and no other kind of store."""
    signs = {sign.name for row in STORES.rows() for sign in row.signs or () if sign.name}
    if any(tree.has(name) for name in signs if not name.startswith(".") and "/" not in name):  # notes, and parts
        return False
    suffixes = Counter(os.path.splitext(name)[1].lower() for name in tree.iter_names(""))  # noqa: PTH122  # a text
    images = sum(suffixes[suffix] for suffix in IMAGE_SUFFIXES)
    return images > sum(
        count for suffix, count in suffixes.items() if any(row.is_named(suffix, row.shards) for row in STORES.rows())
    )


@dataclass
class RemoteImages:
    """A folder of images below a URL: what :attr:`.Location.remote` of such a folder is.

    Parameters
    ----------
    url : str
        Where it is.
    options : StorageOptions
        Options of the client.
    cache_nbytes : int
        The limit of the cache folder.
    tree : ObjectTree, optional
        What is there, if it was listed; it is given away once, and not pickled.
    """

    url: str
    options: StorageOptions
    cache_nbytes: int
    tree: ObjectTree | None = field(default=None, repr=False, compare=False)
    mirrors: list[Mirror] = field(default_factory=list, repr=False, compare=False)
    """The copy in this process."""

    def __reduce__(self) -> tuple[object, ...]:
        return RemoteImages, (self.url, self.options, self.cache_nbytes)

    def __hash__(self) -> int:
        return hash(self.url)

    @property
    def nbytes(self) -> int:
        """Bytes of the copy, if it was made."""
        return sum(mirror.nbytes for mirror in self.mirrors)

    def attach(self, path: Path) -> None:
        """Make the folder, which contains nothing: images are found by :meth:`open_images`."""
        CacheFolder.share(path.parent.parent, self.cache_nbytes).make_folder(self.url, IMAGES)
        path.mkdir(mode=0o700, exist_ok=True)

    def renew(self) -> RemoteImages:
        """Return the same folder, without copies."""
        return RemoteImages(self.url, self.options, self.cache_nbytes)

    def list_tree(self) -> ObjectTree:
        """Return the objects below the URL; StoreError if they cannot be listed."""
        tree, self.tree = self.tree, None
        return list_objects(Place(self.url, self.options)) if tree is None else tree

    def open_images(self, path: Path, keys: KeyList, sizes: NDArray[np.int64], versions: KeyList) -> FolderImages:
        """The images of these names, sizes and versions, of which copies are kept beside ``path``."""
        offsets = np.append(0, np.cumsum(-(-sizes // _PAGE) * _PAGE))
        place = _ImagePlace(self.url, self.options, keys, sizes, versions, offsets)
        state = xxhash.xxh3_128(keys.joined)
        state.update(versions.joined)
        state.update(sizes.astype("<i8").tobytes())
        cache = CacheFolder.share(path.parent.parent, self.cache_nbytes)
        file = path.parent / f"images-{state.hexdigest()}"
        mirror = Mirror(place, "", ObjectInfo(int(offsets[-1]), state.hexdigest()), file, cache)
        self.mirrors = [mirror]
        delete_older(file, "images-*")  # of lists that these ones have superseded
        return FolderImages(mirror, offsets, sizes)


class _ImagePlace(Place):
    """Gives the images of a folder as the bytes of one object."""

    joins_neighbours = False

    def __init__(
        self,
        url: str,
        options: StorageOptions,
        keys: KeyList,
        sizes: NDArray[np.int64],
        versions: KeyList,
        offsets: NDArray[np.int64],
    ) -> None:
        super().__init__(url, options)
        self._keys, self._sizes, self._versions, self._begins = keys, sizes.data, versions, offsets.data

    def get(self, name: str, begin: int, end: int, info: ObjectInfo) -> memoryview:
        """Bytes of the images that lie there, zeros between them; each image is compared with its own version."""
        del name, info
        number = bisect_right(self._begins, begin) - 1
        if end <= self._begins[number + 1]:
            return self._get_one(number, begin, end)
        parts = []
        while begin < end:
            stop = min(end, self._begins[number + 1])
            if begin < stop:
                parts.append(self._get_one(number, begin, stop))
            begin, number = stop, number + 1
        return memoryview(b"".join(parts))

    def _get_one(self, number: int, begin: int, end: int) -> memoryview:
        """Return a part of one image, and of the zeros behind it."""
        at, nbytes = self._begins[number], self._sizes[number]
        info = ObjectInfo(nbytes, self._versions.get(number))
        stop = min(end - at, nbytes)
        if begin - at >= stop:
            return memoryview(bytes(end - begin))
        content = super().get(self._keys.get(number), begin - at, stop, info)
        return memoryview(b"".join((content, bytes(end - at - stop)))) if end - at > stop else content


class FolderImages:
    """The images of a folder, by number. Thread-safe."""

    def __init__(self, mirror: Mirror, offsets: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        self._mirror, self._offsets, self._sizes = mirror, offsets.data, sizes.data

    def read(self, number: int) -> memoryview:
        """Return the bytes of an image; StoreError if they cannot be read."""
        return self._mirror.read(self._offsets[number], self._sizes[number])

    def announce(self, numbers: Iterable[int]) -> int:
        """Begin to fetch images that are read soon; how many bytes are asked for."""
        return self._mirror.announce([(self._offsets[number], self._sizes[number]) for number in numbers])
