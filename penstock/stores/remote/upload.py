"""Writes the files of a store to object storage: in parallel parts, each read back and compared, and once only.

::

    file, or object of another place ──parts──> Place.put ──> object, whole or not at all
                                                                │ read back by parts
    hash of each part that was sent  <──────── equal? ──────────┘
                                                └─> sent.jsonl: size and version there; it is not sent again

What makes a store visible is sent last. Called by :mod:`penstock.pack`; nothing is removed but what a caller names.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import posixpath
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import xxhash

from penstock import _native
from penstock.errors import ArgumentError, CorruptRecordError, StoreError
from penstock.stores.common.lmdb.pages import FILE, LOCK
from penstock.stores.common.mirrors import PageHashes
from penstock.stores.common.regular_file import identify, open_regular
from penstock.stores.location import cache_folder
from penstock.stores.remote.object_store import ObjectInfo, Place, RefusedError
from penstock.stores.remote.request_queue import get_fetcher
from penstock.stores.remote.storage_client import StorageOptions
from penstock.stores.remote.writable_place import WritablePlace
from penstock.stores.writing import MANIFEST, UNFINISHED

__all__ = ["NOTES", "Content", "FileTarget", "StoreObjects", "Upload", "add_suffix", "find_rank", "list_files"]

NOTES: Final = "sent.jsonl"
_PART_NBYTES: Final = 8 << 20
_PARTS_AHEAD: Final = 8
_FILES_AT_ONCE: Final = 8
_MAX_ATTEMPTS: Final = 4
_NOT_SENT: Final = frozenset({LOCK, "lock.mdb", NOTES, UNFINISHED})


@dataclass
class Content:
    """The bytes of a file, or of an object of another place.

    Parameters
    ----------
    nbytes : int
        Their number.
    version : str
        Differs when they change.
    read : callable
        ``read(begin, end)``: some of them; thread-safe.
    """

    nbytes: int
    version: str
    read: Callable[[int, int], bytes | memoryview]
    hashes: dict[int, int] = field(default_factory=dict)
    """xxh3_64 of the parts that were read, by their first byte."""
    report: Callable[[int], object] = lambda _nbytes: None
    """Called with the number of bytes of each part that is read."""

    @classmethod
    def of_file(cls, path: Path) -> Content:
        """Return the content of a file of this machine; OSError if there is none."""
        found = identify(path)
        return cls(found.nbytes, f"{found.nbytes}-{found.changed_ns}", functools.partial(_read_file, path))

    @classmethod
    def of_object(
        cls, place: Place, name: str, info: ObjectInfo, find_hashes: Callable[[], PageHashes | None] | None = None
    ) -> Content:
        """Return the content of an object.

        ``find_hashes`` returns the hashes of its pages, with which they are compared. Where it returns None, bytes are
        fetched until they come twice the same; without it, they are taken as they come.
        """

        def read(begin: int, end: int) -> memoryview:
            hashes = None if find_hashes is None else find_hashes()
            seen = None
            for attempt in range(_MAX_ATTEMPTS):
                part = place.get(name, begin, end, info)
                if find_hashes is None:
                    return part
                if hashes is None:
                    seen, before = xxhash.xxh3_64_intdigest(part), seen
                    if seen == before:
                        return part
                    continue
                found = _native.hash_pages(part, hashes.page_nbytes)
                if hashes.fit(found, begin // hashes.page_nbytes, again=attempt > 1):
                    return part
            raise CorruptRecordError(
                f"bytes {begin} to {end} are not those that were written, {_MAX_ATTEMPTS} times", store=place.name(name)
            )

        return cls(info.nbytes, info.version, read)

    def parts(self, begins: Iterable[int] | None = None) -> Iterator[tuple[int, bytes | memoryview]]:
        """Parts and their first bytes, by default all, in order; some of them are read ahead."""
        pending: deque[tuple[int, Future[bytes | memoryview]]] = deque()
        begins = iter(self.list_parts() if begins is None else begins)
        while True:
            for begin in begins:
                end = self.end_of(begin)
                pending.append((begin, get_fetcher().submit(functools.partial(self.read, begin, end), end - begin)))
                if len(pending) >= _PARTS_AHEAD:
                    break
            if not pending:
                return
            begin, future = pending.popleft()
            part = future.result()
            self.hashes[begin] = xxhash.xxh3_64_intdigest(part)
            yield begin, part
            self.report(len(part))

    def list_parts(self) -> range:
        """Return the first byte of each part."""
        return range(0, self.nbytes, _PART_NBYTES)

    def end_of(self, begin: int) -> int:
        """The end of the part that begins there."""
        return min(begin + _PART_NBYTES, self.nbytes)

    def is_same(self, get: Callable[[int, int], bytes | memoryview]) -> bool:
        """Return whether ``get(begin, end)`` gives the same bytes.

        A part that differs is asked for again before it counts.
        """

        def compare(begin: int) -> bool:
            end = self.end_of(begin)
            if begin not in self.hashes:
                self.hashes[begin] = xxhash.xxh3_64_intdigest(self.read(begin, end))
            return any(self.hashes[begin] == xxhash.xxh3_64_intdigest(get(begin, end)) for _ in range(_MAX_ATTEMPTS))

        pending = [get_fetcher().submit(functools.partial(compare, at), _PART_NBYTES) for at in self.list_parts()]
        try:
            return all(future.result() for future in pending)
        finally:
            for future in pending:
                future.cancel()


class StoreObjects:
    """The objects of a store, and those beside it, by their suffixes; see :func:`add_suffix`.

    Parameters
    ----------
    url : str
        The URL of the store.
    options : StorageOptions
        See :class:`~penstock.stores.remote.object_store.Place`.
    """

    def __init__(self, url: str, options: StorageOptions) -> None:
        self.url = WritablePlace(url, options).url
        above, _, last = self.url.rpartition("/")
        self._is_root = above.endswith("/")  # of a bucket
        self.place = WritablePlace(self.url if self._is_root else above, options)
        self._base = unquote(last) if url.lower().startswith("http") else last

    def name(self, suffix: str) -> str:
        """The name of an object below :attr:`place`."""
        return suffix.removeprefix("/") if self._is_root else add_suffix(self._base, suffix)

    def suffix(self, name: str) -> str:
        """The suffix of an object by its name below the URL, or beside it (``"../photos.tar.source"``)."""
        if not name.startswith("../"):
            return f"/{name}" if name else ""
        beside = name[3:]
        if beside.startswith(self._base):
            return beside.removeprefix(self._base)
        return f"~{beside.removeprefix(posixpath.splitext(self._base)[0])}"

    def find(self, suffix: str) -> ObjectInfo | None:
        """Return the object; None if there is none, or none that may be read."""
        try:
            return self.place.find(self.name(suffix))
        except RefusedError:  # of what is absent too, where listing is not allowed
            return None

    def open(
        self, suffix: str, info: ObjectInfo, find_hashes: Callable[[], PageHashes | None] | None = None
    ) -> Content:
        """Return its content; see :meth:`Content.of_object`."""
        return Content.of_object(self.place, self.name(suffix), info, find_hashes)


class FileTarget(ABC):
    """Where the files of a store are written, by what follows its URL or path. What was written is noted in ``folder``.

    Parameters
    ----------
    folder : Path
        A folder of this machine; made when the first file is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes: dict[str, object] = {}
        with contextlib.suppress(FileNotFoundError):
            for line in (folder / NOTES).read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(ValueError):  # the line that was being written when a process was killed
                    name, entry = json.loads(line)
                    self.notes[name] = entry

    @abstractmethod
    def write(self, suffix: str, content: Content) -> int:
        """Write one file, read it back and compare it; the number of bytes that were written, 0 if it is there."""

    def write_all(
        self,
        contents: Mapping[str, Content],
        report: Callable[[int], object] = lambda _nbytes: None,
        *,
        replaces: bool = False,
    ) -> int:
        """Write files, what makes the store visible last; the number of bytes that were written now.

        Parameters
        ----------
        contents : mapping of str to Content
            What is written.
        report : callable, optional
            Called with the number of bytes that are written, or found there, of all files together.
        replaces : bool
            Whether a store is there. What makes it visible is then written first, so that readers of the one that is
            there notice it soon, and nobody who opens it has the old one with new files for long.
        """
        ranks: dict[int, list[str]] = {}
        for suffix in contents:
            ranks.setdefault(find_rank(suffix, replaces=replaces), []).append(suffix)
        total, done = 0, dict.fromkeys(contents, 0)
        lock = threading.Lock()

        def count(suffix: str, nbytes: int) -> None:
            with lock:  # a part may be sent twice
                done[suffix] = min(done[suffix] + nbytes, contents[suffix].nbytes)
                report(sum(done.values()))

        with ThreadPoolExecutor(_FILES_AT_ONCE, "penstock-write") as pool:
            for rank in sorted(ranks):
                for each in ranks[rank]:
                    contents[each].report = functools.partial(count, each)
                pending = {each: pool.submit(self.write, each, contents[each]) for each in ranks[rank]}
                try:
                    for suffix, future in pending.items():
                        total += future.result()
                        count(suffix, contents[suffix].nbytes)
                finally:
                    for future in pending.values():
                        future.cancel()
        return total

    def forget(self) -> None:
        """Forget what was noted, and remove the folder if nothing else is there."""
        self.notes.clear()
        with contextlib.suppress(FileNotFoundError):
            (self.folder / NOTES).unlink()
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def note(self, name: str, entry: object) -> None:
        """Note what is written."""
        if self.notes.get(name) != entry:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.notes[name] = entry
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            with os.fdopen(open_regular(self.folder / NOTES, flags), "w") as file:
                file.write(f"{json.dumps([name, entry])}\n")


class Upload(FileTarget):
    """A place in object storage to which the files of a store are written.

    Parameters
    ----------
    url : str
        The URL of the store.
    options : StorageOptions
        See :class:`~penstock.stores.remote.object_store.Place`.

    Raises
    ------
    ArgumentError
        If it is the URL of a web server, to which nothing is written.
    """

    def __init__(self, url: str, options: StorageOptions) -> None:
        self.objects = StoreObjects(url, options)
        self.url = self.objects.url
        if self.url.lower().startswith("http"):
            raise ArgumentError(
                f"nothing is written to web servers; write to a path, or to s3://, gs:// or az://, got {self.url}"
            )
        super().__init__(cache_folder() / "uploads" / hashlib.blake2b(self.url.encode(), digest_size=16).hexdigest())

    def send(self, path: Path, name: str = "") -> int:
        """Write a file, or all files of a folder, to ``name`` below the URL; the number of bytes that were sent now.

        Raises
        ------
        StoreError
            If it cannot be read, or not be written (:meth:`WritablePlace.put`), or if other bytes are there afterwards.
        """
        suffix = f"/{name}" if name else ""
        if not path.is_dir():
            return self.write_all({suffix: Content.of_file(path)})
        return self.write_all({f"{suffix}/{each}": Content.of_file(path / each) for each in list_files(path)})

    def check(self) -> None:
        """Raise StoreError if nothing can be written there: an empty object is, and is removed."""
        name = self.objects.name(".upload")
        try:
            self.objects.find(".upload")  # reading says at once what is wrong with the place, writing after minutes
            self.objects.place.put(name, list, 0)
        except StoreError as error:
            error.where["store"] = self.url  # which a person gave
            raise
        with contextlib.suppress(StoreError):  # who may write need not be allowed to remove
            self.objects.place.remove(name)

    def read(self, suffix: str) -> bytes | None:
        """Return the bytes of a small object; None if it is not there."""
        info = self.objects.find(suffix)
        return None if info is None else b"".join(part for _, part in self.objects.open(suffix, info).parts())

    def remove(self, suffix: str) -> None:
        """Remove an object, if it is there."""
        self.objects.place.remove(self.objects.name(suffix))

    def write(self, suffix: str, content: Content) -> int:
        """Send one file, unless it is there. See :meth:`FileTarget.write`."""
        place, name = self.objects.place, self.objects.name(suffix)

        def is_there(info: ObjectInfo) -> bool:
            entry = [content.version, *info]
            is_same = self.notes.get(name) == entry or content.is_same(lambda at, end: place.get(name, at, end, info))
            if is_same:
                self.note(name, entry)
            return is_same

        info = self.objects.find(suffix)
        if info is not None and info.nbytes == content.nbytes and is_there(info):
            return 0
        for _ in range(_MAX_ATTEMPTS):
            if is_there(place.put(name, lambda: (part for _, part in content.parts()), content.nbytes)):
                return content.nbytes
        raise StoreError(f"what is there is not what was sent, {_MAX_ATTEMPTS} times", store=place.name(name))


def add_suffix(path: str, suffix: str) -> str:
    """Return the path, or name, of a file of a store, by that of the store.

    ``""`` is the store, ``"/data.mdb"`` a file in it, ``".source"`` one beside it, and ``"~.idx"`` one that has another
    ending than the store.
    """
    return posixpath.splitext(path)[0] + suffix[1:] if suffix.startswith("~") else path + suffix


def list_files(folder: Path) -> list[str]:
    """Names of the regular files below a folder, of a store that nobody writes; locks and notes apart."""
    names = (each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file())
    return sorted(name for name in names if name.rpartition("/")[2] not in _NOT_SENT)


def find_rank(suffix: str, *, replaces: bool = False) -> int:
    """Return when a file is written, as a number: what makes a store visible after all that is in it."""
    last = suffix.rpartition("/")[2]
    if suffix in {"", f"/{MANIFEST}"}:
        return 3
    if suffix == f"/{FILE}":
        return 0 if replaces else 3
    return 2 if last == FILE else 1


def _read_file(path: Path, begin: int, end: int) -> bytes:
    with os.fdopen(open_regular(path), "rb", buffering=0) as file:
        content = os.pread(file.fileno(), end - begin, begin)
    if len(content) != end - begin:
        raise StoreError(f"the file ends before byte {end}; it was changed", store=str(path))
    return content
