"""Writes a store to a URL: into a folder of this machine first, from which its files are sent.

::

    pack, convert, merge ──> ~/.cache/penstock/uploads/<hash of URL>/photos.lmdb ──Upload──> s3://bucket/photos.lmdb
                                                                           what makes it visible last; the folder goes

The store has the location of that folder, with the URL as its name in messages. A process that is killed leaves the
folder, and a later run of the same source resumes: what is packed, and what is sent, is not done again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from penstock import stores
from penstock.errors import ArgumentError, StoreFormatError, StoreNotFoundError
from penstock.sample import Schema
from penstock.stores import StoreLike
from penstock.stores.base import Store
from penstock.stores.common.lmdb.pages import FILE
from penstock.stores.location import Location, is_remote_url
from penstock.stores.writing import MANIFEST, CommittedRecords

if TYPE_CHECKING:
    from penstock.stores.remote.storage_client import StorageOptions
    from penstock.stores.remote.upload import Upload

__all__ = ["Staging", "find_finished", "staged"]

_SOURCE = "source"


@dataclass(unsafe_hash=True)
class Staging:
    """The URL to which what is written in a folder is sent; see :class:`~penstock.stores.location.RemoteSource`."""

    url: str  # the URL of the store
    options: StorageOptions  # of the client

    nbytes: ClassVar[int] = 0
    """No objects are read."""

    def attach(self, path: Path) -> None:
        """Files there are no copies: they are written."""

    def renew(self) -> Staging:
        """Return itself: nothing is attached."""
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return Staging, (self.url, self.options)

    @cached_property
    def upload(self) -> Upload:
        """Where files are sent."""
        from penstock.stores.remote.upload import Upload  # stores on this machine do not need it

        return Upload(self.url, self.options)

    def find_finished(self, kind: type[Store], schema: Schema, source: str) -> tuple[CommittedRecords, Location] | None:
        """Return what the store at the URL holds, if it has this origin, and its location.

        None if there is no store; ArgumentError if there is another one.
        """
        found = [name for name in ("", f"/{FILE}", f"/{MANIFEST}") if self.upload.objects.find(name) is not None]
        if not found:
            return None
        from penstock.stores.remote.opening import find_remote

        advice = "overwrite=True (--overwrite) replaces it"
        try:
            _, there = find_remote(
                self.url, lambda path: stores.find(path)[0], {"storage_options": self.options.options}
            )
        except StoreNotFoundError:
            return None
        except StoreFormatError as error:
            raise ArgumentError(f"{self.url} exists, and {error.message}; {advice}") from error
        origin = self.upload.read(f"/.{_SOURCE}" if found[0] else f".{_SOURCE}")
        if origin is not None:
            there.sidecar(_SOURCE).write_bytes(origin)
        held = kind.finished(there, schema, source) if there.scheme == kind.kind else None
        if held is None:
            raise ArgumentError(f"{self.url} exists, and is not of this source with these options; {advice}")
        return held, there

    def publish(self, location: Location, *, overwrite: bool) -> None:
        """Send the files of the store in the folder, if it was written there."""
        from penstock.stores.remote.upload import Content, list_files

        path = Path(location.path)
        if not location.exists():
            return  # the URL has it
        objects = self.upload.objects
        names = {f"../{name}": path.parent / name for name in list_files(path.parent)}
        files = {objects.suffix(name): each for name, each in names.items()}
        replaces = overwrite and self.upload.objects.find(f"/{FILE}") is not None
        self.upload.write_all({suffix: Content.of_file(each) for suffix, each in files.items()}, replaces=replaces)


@contextlib.contextmanager
def staged(dst: StoreLike, options: Mapping[str, object] | None, *, overwrite: bool) -> Iterator[StoreLike]:
    """Yield where a store is written whose destination a person gave; sent there at the end of the block.

    Yields ``dst`` itself where it is on this machine; else the location of a folder, which says the URL.

    Raises ArgumentError if nothing can be written to such a URL, or not this kind. Raises StoreError if writing is not
    allowed there; at once.
    """
    if not is_remote_url(dst):
        if options is not None:
            raise ArgumentError(f"storage_options are those of a URL such as s3://bucket/photos.lmdb, got {dst!r:.200}")
        yield dst
        return
    from penstock.stores.remote.storage_client import StorageOptions

    place = Staging(str(dst).rstrip("/"), StorageOptions.check(options))
    folder = place.upload.folder
    name = place.url.rpartition("/")[2] or "store"
    _, written = stores.find(str(folder / name), to_write=True)
    place.upload.check()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    location = replace(written, remote=place)
    try:
        yield location
    except BaseException:
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # noqa: PTH106  # only if nothing was written there that can be resumed
        raise
    place.publish(location, overwrite=overwrite)
    shutil.rmtree(folder)


def find_finished(
    kind: type[Store], location: Location, schema: Schema, source: str
) -> tuple[CommittedRecords | None, Location]:
    """What the finished store holds, if it has this schema and origin; else None. And where it is: here, or at the URL.

    Raises ArgumentError if another store is at the URL to which this one is sent.
    """
    if isinstance(location.remote, Staging) and not location.exists():
        return location.remote.find_finished(kind, schema, source) or (None, location)
    return kind.finished(location, schema, source), location
