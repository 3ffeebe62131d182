"""``copy``: copies a store as it is, between this machine and object storage, and proves that the copy is equal.

::

    files, or objects ──parts──> files below DST.partial, or objects of a URL        each read back and compared
                                   │ all there                                       noted: not copied again
                                   v
                                 DST: opened, and compared in count, fields and fingerprint

No record is parsed: what is copied is files, with those that lie beside a store and belong to it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import xxhash

from penstock import stores
from penstock.errors import ArgumentError, CorruptRecordError, StoreError, StoreNotFoundError
from penstock.paths import refuse_remote
from penstock.progress import make_reporter
from penstock.stores.base import Store
from penstock.stores.common.journal import open_locked, writing_at
from penstock.stores.common.lmdb.pages import FILE, HASHES, fsync_path
from penstock.stores.common.mirrors import PageHashes
from penstock.stores.common.regular_file import open_regular, refuse_links
from penstock.stores.joined import JoinedStore
from penstock.stores.kinds import INDEX_BESIDE, MANIFEST
from penstock.stores.lmdb_pack.mapping import load_page_hashes
from penstock.stores.lmdb_pack.sharded import ShardedPack
from penstock.stores.lmdb_pack.store import LmdbStore
from penstock.stores.location import Location, is_remote_url
from penstock.stores.origin import ORIGIN_FILE
from penstock.stores.remote.object_store import ObjectInfo
from penstock.stores.remote.opening import RemoteObjects
from penstock.stores.remote.storage_client import StorageOptions
from penstock.stores.remote.upload import Content, FileTarget, StoreObjects, Upload, add_suffix, find_rank, list_files
from penstock.wording import counted, format_bytes

__all__ = ["CopyReport", "Copying", "copy"]

_PACK: Final = (FILE, HASHES, ORIGIN_FILE)
_BESIDE: Final = (".source", ".convert.json", ".fields", *(f".fields.lmdb/{name}" for name in _PACK))
"""What may lie beside a store, after its name or in its folder, and belongs to it; seek tables apart."""
_OF: Final = "copy of"
"""The note that says of which records the files are, and which files of another store are removed at the end."""
_MB: Final = 10**6
_PROBES_AT_ONCE: Final = 32


@dataclass(frozen=True, slots=True)
class CopyReport:
    """The result of :func:`copy`.

    Parameters
    ----------
    source, store : str
        URLs of the source and of the copy.
    records, files, nbytes : int
        Numbers of records, files, and bytes of these in the copy.
    copied_nbytes : int
        Bytes that this run copied; the others were there.
    fingerprint : str
        Of the records of both.
    elapsed_s : float
        Duration.
    """

    source: str
    store: str
    records: int
    files: int
    nbytes: int
    copied_nbytes: int
    fingerprint: str
    elapsed_s: float

    def lines(self) -> Iterator[str]:
        """The report as text, line by line."""
        what = f"{counted(self.files, 'file')}, {format_bytes(self.nbytes)}"
        there = self.nbytes - self.copied_nbytes
        yield f"{self.store}: {counted(self.records, 'record')} from {self.source}, in {self.elapsed_s:.1f} s"
        yield f"  copied     {what}{f' ({format_bytes(there)} of them earlier)' if there else ''}"
        yield f"  compared   every byte as it was read back, fingerprint {self.fingerprint}"


def copy(
    src: str | os.PathLike[str] | Store,
    dst: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, object] | None = None,
    progress: bool | Callable[[int, int], None] | None = None,
) -> CopyReport:
    """Copy a store as it is, between this machine and object storage or within one of them, and compare the copy.

    Parameters
    ----------
    src : str, path or Store
        The store: a pack, or a file or folder of another kind; a path, or a URL as for :func:`penstock.open`.
    dst : str or path
        The path or URL of the copy (not of the folder above it). If the same store is there, files that are missing or
        differ are copied. What an interrupted run copied is not copied again.
    overwrite : bool
        Whether to replace another store at ``dst``. Readers of the old one get an error when they read on.
    storage_options : mapping, optional
        Of the URLs; see :func:`penstock.open`. Where those of source and copy differ, ``src`` is an open store, and
        these are those of ``dst``.
    progress : bool or callable, optional
        True: a bar on the terminal. A callable gets the bytes done and of all files.

    Returns
    -------
    CopyReport
        Counts of records, files and bytes.

    Raises
    ------
    ArgumentError
        If another store is at ``dst`` and is not to be replaced, it is a web server, or ``src`` is a database or a
        pattern of several files.
    CorruptRecordError
        If the copy is not equal to the source.
    StoreError
        If a file cannot be read, written, or read back as it was written.
    """
    with Copying(src, dst, storage_options, overwrite=overwrite) as copying:
        return copying.run(progress)


class Copying:
    """A copy that is to be made; see :func:`copy` for the arguments, and for what is raised.

    Attributes
    ----------
    source : Store
        What is copied.
    contents : mapping of str to Content
        Its files, by what follows its URL or path.
    """

    def __init__(
        self,
        src: str | os.PathLike[str] | Store,
        dst: str | os.PathLike[str],
        storage_options: Mapping[str, object] | None = None,
        *,
        overwrite: bool = False,
    ) -> None:
        options = StorageOptions.check(storage_options)
        self._of_place = {} if storage_options is None else {"storage_options": storage_options}
        self._overwrite, self._stale = overwrite, set[str]()
        with ExitStack() as stack:
            if isinstance(src, Store):
                found = src
            else:
                found = stack.enter_context(
                    stores.open(src, layout=None, **self._of_place if is_remote_url(src) else {})
                )
            self.source = found.container if isinstance(found, JoinedStore) else found
            if storage_options is not None and self.source.location.remote is None and not is_remote_url(dst):
                raise ArgumentError("storage_options are those of a URL, and neither source nor copy has one")
            self.contents = find_contents(self.source)
            self._fingerprint = self.source.fingerprint()
            self._target = self._find_target(dst, options)
            noted = self._target.notes.get(_OF)
            if isinstance(noted, list) and noted[0] == self._fingerprint:
                self._stale.update(noted[1])
            else:  # of no run, or of another source
                self._target.forget()
                self._compare_existing()
            self._opened = stack.pop_all()

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(content.nbytes for content in self.contents.values())

    def run(self, progress: bool | Callable[[int, int], None] | None = None) -> CopyReport:
        """Make the copy."""
        start, total, target = time.monotonic(), self.nbytes, self._target
        with ExitStack() as stack:
            bar = make_reporter(not callable(progress) and progress, "copying", stack, unit="MB")
            show = progress if callable(progress) else lambda done, total: bar(done // _MB, total // _MB, done)
            stack.enter_context(writing_at("the copy cannot be made", target.url))
            stack.enter_context(target.writing())
            target.note(_OF, [self._fingerprint, sorted(self._stale)])
            copied = target.write_all(self.contents, lambda done: show(done, total), replaces=self._overwrite)
            target.place(self.contents, self._stale)
        if isinstance(target, PathTarget) or self.source.reads_ranges:  # or all would be fetched again, to be opened
            with self._open_copy() as there:
                if (there.fingerprint(), there.schema) != (self._fingerprint, self.source.schema):
                    raise CorruptRecordError("the copy is not equal to its source; it was not removed", store=there.url)
        return CopyReport(
            source=self.source.url,
            store=target.url,
            records=len(self.source),
            files=len(self.contents),
            nbytes=total,
            copied_nbytes=copied,
            fingerprint=self._fingerprint,
            elapsed_s=time.monotonic() - start,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._opened.close()

    def _find_target(self, dst: str | os.PathLike[str], options: StorageOptions) -> UrlTarget | PathTarget:
        place = self.source.location
        if is_remote_url(dst):
            target = UrlTarget(str(dst), options)
            if place.remote is not None and place.remote.url == target.url:
                raise ArgumentError(f"the copy must be elsewhere than its source, got {target.url}")
            target.check()
            return target
        refuse_remote(dst, "written")
        scheme, path = Location.split_scheme(os.fsdecode(dst))
        if scheme not in {"", self.source.kind}:
            raise ArgumentError(f"a copy is of the kind of its source ({self.source.kind}), got {scheme}://")
        location = Location.from_path(self.source.kind, path)
        if place.remote is None and place.overlaps(location):
            raise ArgumentError(f"the copy must be outside its source, got {self.source.url} and {location}")
        return PathTarget(location)

    def _compare_existing(self) -> None:
        """Raise ArgumentError if another store is at the destination that is not to be replaced."""
        target, advice = self._target, "overwrite=True (--overwrite) replaces it"
        if not target.exists(self.contents):
            return
        try:
            with self._open_copy() as there:
                if self._overwrite:
                    self._stale = set(find_contents(there)) - set(self.contents)
                elif there.fingerprint() != self._fingerprint:
                    raise ArgumentError(f"{target.url} exists, and its records are others; {advice}")
        except StoreError as error:
            if isinstance(target, PathTarget):
                advice = "remove it"
            elif self._overwrite:
                return
            raise ArgumentError(f"{target.url} exists, and cannot be opened ({error.message}); {advice}") from error

    def _open_copy(self) -> Store:
        of_place = self._of_place if isinstance(self._target, UrlTarget) else {}
        found = stores.open(self._target.url, layout=None, **of_place, **self.source.options)
        return found.container if isinstance(found, JoinedStore) else found


class UrlTarget(Upload):
    """A URL to which a store is copied."""

    def exists(self, suffixes: Iterable[str]) -> bool:
        """Return whether one of these files is there, or what makes another store visible."""
        some = {"", f"/{FILE}", f"/{MANIFEST}", *itertools.islice(suffixes, _PROBES_AT_ONCE)}
        return any(self.objects.find(suffix) is not None for suffix in some)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Several processes may write; the last one stays."""
        yield

    def place(self, contents: Iterable[str], stale: Iterable[str]) -> None:  # noqa: ARG002  # as PathTarget has it
        """Remove what a store that was replaced had, and this one has not."""
        for suffix in stale:
            self.remove(suffix)
        self.forget()


class PathTarget(FileTarget):
    """A path of this machine to which a store is copied; its files lie in ``path.partial`` until all are there."""

    def __init__(self, location: Location) -> None:
        self._path, self.url = location.path, str(location)
        super().__init__(Path(f"{self._path}.partial"))
        self._partial = self.folder / "files" / "store"

    def exists(self, suffixes: Iterable[str]) -> bool:  # noqa: ARG002  # as UrlTarget has it
        """Return whether something is at the path."""
        return os.path.lexists(self._path)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Let one process at a time write."""
        refuse_links(self.folder.parent, self.folder)
        lock = open_locked(self.folder / "lock", self.url)
        try:
            yield
        finally:
            os.close(lock)

    def write(self, suffix: str, content: Content) -> int:
        """Copy the parts of one file that are not there yet; see :meth:`FileTarget.write`."""
        final, path = self._locate_final(suffix), Path(add_suffix(str(self._partial), suffix))
        if final.is_file() and final.stat().st_size == content.nbytes and content.is_same(Content.of_file(final).read):
            return 0
        refuse_links(self.folder, path)
        path.parent.mkdir(parents=True, exist_ok=True)
        copied = 0
        with os.fdopen(open_regular(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW), "r+b") as file:
            file.truncate(content.nbytes)
            read = Content.of_file(path).read
            name = f"{suffix}\0{content.version}\0"
            missing = []
            for begin in content.list_parts():
                noted = self.notes.get(f"{name}{begin}")
                if noted == xxhash.xxh3_64_intdigest(read(begin, content.end_of(begin))):
                    content.hashes[begin] = noted
                else:
                    missing.append(begin)
            for begin, part in content.parts(missing):
                file.seek(begin)
                file.write(part)
                file.flush()
                self.note(f"{name}{begin}", content.hashes[begin])
                copied += len(part)
            os.fsync(file.fileno())
        if not content.is_same(read):
            raise StoreError("its bytes are not those that were written", store=str(path))
        return copied

    def place(self, contents: Iterable[str], stale: Iterable[str]) -> None:
        """Move the files to their places, what makes the store visible last; remove those of one that was replaced."""
        for suffix in stale:
            self._locate_final(suffix).unlink(missing_ok=True)
        for suffix in sorted(contents, key=find_rank):
            written, final = Path(add_suffix(str(self._partial), suffix)), self._locate_final(suffix)
            if written.exists():
                final.parent.mkdir(parents=True, exist_ok=True)
                written.replace(final)
        fsync_path(Path(self._path).parent)
        shutil.rmtree(self.folder)

    def _locate_final(self, suffix: str) -> Path:
        """Return the place of a file; OSError if it is in a folder of the store that is a symbolic link."""
        store, final = Path(self._path), Path(add_suffix(self._path, suffix))
        refuse_links(store if suffix.startswith("/") else store.parent, final.parent)
        return final


def find_contents(store: Store) -> dict[str, Content]:
    """The files of a store, and those that belong to it and lie beside it, by what follows its URL or path.

    Raises ArgumentError if it is not in files, or is a list of several.
    """
    location = store.location
    if not location.is_local or location.shards:
        raise ArgumentError(f"copy takes a store in one file or folder, got {store.url}; convert or pack it instead")
    path, remote = location.local_path, location.remote
    tables = [f".{field}.index" for field in store.schema.blobs]
    above = "/" if path.is_dir() else ""
    names = {f"{above}{name}" for name in (*_BESIDE, *tables)}
    names.update(each for each in stores.STORES.row(store.kind).beside if each != INDEX_BESIDE)  # which is made again
    shards = dict.fromkeys(store.manifest.shards.names) if isinstance(store, ShardedPack) else ()
    names.update(f"/{shard}/{name}" for shard in shards for name in (*_PACK, *tables))
    if remote is None:
        names.update([""] if not above else [f"/{MANIFEST}"] if shards else [f"/{name}" for name in list_files(path)])
        files = {name: Path(add_suffix(str(path), name)) for name in names}
        found = {name: Content.of_file(each) for name, each in files.items() if each.is_file()}
    else:
        assert isinstance(remote, RemoteObjects), "a store that is read"
        found = _open_objects(store, remote, names)
    for shard in shards:
        if f"/{shard}/{FILE}" not in found:
            raise StoreNotFoundError(f"the shard {shard}, which its manifest names, is missing", store=store.url)
    return found


def _open_objects(store: Store, remote: RemoteObjects, names: set[str]) -> dict[str, Content]:
    """The objects of a store, and those of some names that are there."""
    objects = StoreObjects(remote.url, remote.options)
    infos = {objects.suffix(name): ObjectInfo(nbytes, version) for name, nbytes, version in remote.objects}
    with ThreadPoolExecutor(_PROBES_AT_ONCE, "penstock-find") as pool:
        more = sorted(names - set(infos))
        infos |= {name: info for name, info in zip(more, pool.map(objects.find, more), strict=True) if info is not None}
    return {name: objects.open(name, info, _find_hashes(store, name)) for name, info in infos.items()}


def _find_hashes(store: Store, suffix: str) -> Callable[[], PageHashes | None] | None:
    """Return what returns the hashes of the pages of a file, where it has them.

    It is None for files of other kinds than packs.
    """
    if not isinstance(store, LmdbStore | ShardedPack):
        return None
    shard, _, last = suffix.removeprefix("/").rpartition("/")

    def find() -> PageHashes | None:
        if last != FILE:
            return None
        pack = store.shard(store.manifest.shards.names.index(shard)) if isinstance(store, ShardedPack) else store
        return load_page_hashes(pack.location.local_path, pack.url)

    return find
