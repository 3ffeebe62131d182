"""Reads by the library fsspec what obstore has no client for, such as ``hf://``, ``ftp://`` and ``sftp://``.

The functions have the names and answers of those of obstore that :class:`~penstock.stores.remote.object_store.Place`
calls, so that repetition, comparison of versions and errors are the same. Nothing else calls them. fsspec is not used
for S3, Google Cloud, Azure and web servers.
"""

from __future__ import annotations

import contextlib
import ftplib
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol, TypedDict

from penstock.errors import OptionalPackageError, StoreError
from penstock.registry import require

__all__ = ["FileSystems", "Range", "get", "head", "list", "list_with_delimiter"]

_MAX_CONNECTIONS: Final = 8
"""Servers of FTP and SFTP allow few at once."""
_VERSIONS: Final = (
    *("ETag", "etag", "e_tag", "blob_id", "md5", "content_md5", "checksum"),
    *("mtime", "modified", "LastModified", "last_modified", "modificationTime", "modify", "created"),
)
"""Where file systems say which version a file is, the most reliable first."""
_NO_TIME: Final = datetime.fromtimestamp(0, UTC)
Info = Mapping[str, object]
"""What a file system says of a file or folder."""


class FileSystem(Protocol):
    """What is asked of a file system of fsspec."""

    def info(self, path: str) -> Info: ...  # as in fsspec
    def ls(self, path: str, *, detail: bool) -> Sequence[Info]: ...
    def find(self, path: str, *, detail: bool) -> Mapping[str, Info]: ...
    def cat_file(self, path: str, start: int, end: int | None) -> bytes: ...
    def invalidate_cache(self) -> None: ...


class Meta(TypedDict):
    """What obstore calls ``ObjectMeta``."""

    path: str
    size: int
    e_tag: str
    version: None
    last_modified: datetime


class Level(TypedDict):
    """What obstore calls ``ListResult``."""

    objects: Sequence[Meta]
    common_prefixes: Sequence[str]


class FileSystems:
    """Connections to one place, each used by one thread at a time: many of fsspec's clients are not thread-safe.

    Parameters
    ----------
    root : str
        ``sftp://host``.
    options : mapping
        Those of fsspec's class for this scheme.
    """

    def __init__(self, root: str, options: Mapping[str, object]) -> None:
        self._root, self._options = root, options
        self._limit = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        self._idle: deque[tuple[FileSystem, str]] = deque()

    @contextlib.contextmanager
    def borrow(self) -> Iterator[tuple[FileSystem, str]]:
        """Yield a file system, and the path of the root in it; after an error the connection is not used again."""
        with self._limit:
            try:
                try:
                    borrowed = self._idle.pop()
                except IndexError:
                    borrowed = self._connect()
                yield borrowed
            except (EOFError, ftplib.error_temp) as error:  # a connection that was closed, a server that is busy
                raise OSError(str(error) or "the connection was closed") from error
            self._idle.append(borrowed)

    def _connect(self) -> tuple[FileSystem, str]:
        scheme = self._root.partition(":")[0]
        fsspec = require("fsspec", purpose=f"to read {scheme}://")
        try:
            system, path = fsspec.core.url_to_fs(
                self._root, **{"skip_instance_cache": True, "use_listings_cache": False, **self._options}
            )
        except ImportError as error:
            raise OptionalPackageError(f"a package is needed to read {scheme}:// by fsspec: {error}") from error
        return system, path.rstrip("/")


@dataclass(frozen=True)
class Range:
    """Bytes of a file, and its version after they were read."""

    meta: Meta
    content: bytes

    def bytes(self) -> bytes:
        """Return the bytes."""
        return self.content


def head(client: FileSystems, path: str) -> Meta:
    """Return size and version of a file.

    Raises
    ------
    FileNotFoundError
        If there is none.
    """
    with client.borrow() as (system, root):
        return _describe_file(system, root, path)


def get(client: FileSystems, path: str, *, options: Mapping[str, tuple[int, int | None]]) -> Range:
    """Return a range of bytes, ``options["range"]``, fewer if the file is smaller; by default all."""
    begin, end = options.get("range", (0, None))
    with client.borrow() as (system, root):
        content = system.cat_file(f"{root}/{path}", begin, end)
        return Range(_describe_file(system, root, path), content)  # a file that was replaced before has another version


def list(  # noqa: A001  # obstore's name
    client: FileSystems, prefix: str | None = None, *, offset: str | None = None, chunk_size: int = 0
) -> Iterator[Sequence[Meta]]:
    """Yield all files below a folder behind ``offset``, sorted by path."""
    del chunk_size
    with client.borrow() as (system, root):
        found: Mapping[str, Info] = {}
        with contextlib.suppress(FileNotFoundError):  # no folder: no file in it
            found = system.find(f"{root}/{prefix or ''}".rstrip("/"), detail=True)
    metas = [_make_meta(info, root) for info in found.values()]
    yield sorted((each for each in metas if each["path"] > (offset or "")), key=lambda each: each["path"])


def list_with_delimiter(client: FileSystems, prefix: str | None = None) -> Level:
    """Return the files directly in a folder, and its folders."""
    with client.borrow() as (system, root):
        found: Sequence[Info] = ()
        with contextlib.suppress(FileNotFoundError):
            found = system.ls(f"{root}/{prefix or ''}".rstrip("/"), detail=True)
    return {
        "objects": [_make_meta(info, root) for info in found if info["type"] == "file"],
        "common_prefixes": [_strip(info["name"], root) for info in found if info["type"] == "directory"],
    }


def _describe_file(system: FileSystem, root: str, path: str) -> Meta:
    system.invalidate_cache()
    info = system.info(f"{root}/{path}")
    if info["type"] != "file":
        raise FileNotFoundError(path)
    return _make_meta(info, root)


def _make_meta(info: Info, root: str) -> Meta:
    version = next((info[name] for name in _VERSIONS if info.get(name)), None)
    nbytes = info.get("size")
    if version is None or not isinstance(nbytes, int):
        what = "size" if version is not None else "version or time of change"
        raise StoreError(f"the place states no {what} of its files, by which changes are noticed", store=info["name"])
    stated = version.timestamp() if isinstance(version, datetime) else version
    path = _strip(info["name"], root)
    return {"path": path, "size": nbytes, "e_tag": str(stated), "version": None, "last_modified": _NO_TIME}


def _strip(name: object, root: str) -> str:
    return str(name).removeprefix(root).strip("/")
