"""Where a store is: a path on this machine, or a URL that names a server.

::

    photos/                                 scheme "files"    path "/data/photos"
    lmdb://photos.lmdb                      scheme "lmdb"     path "/data/photos.lmdb"    relative paths are allowed
    tar:///data/{a,b}.tar                   scheme "tar"      shards "/data/a.tar", "/data/b.tar"
    mongodb://ann:pw@db:27017/pets?ssl=1    scheme "mongodb"  host "db:27017"  path "pets"  query "ssl=1"

Stores are opened from locations, and errors name them. Text that is made of a location never holds a password. A
location opens no connection.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from penstock.errors import ArgumentError, PenstockError, StoreError

__all__ = [
    "FSSPEC_SCHEMES",
    "REMOTE_SCHEMES",
    "Location",
    "RemoteSource",
    "cache_folder",
    "is_remote_url",
    "make_pattern",
    "read_file_url",
    "state_folder",
]

REMOTE_SCHEMES: Final = ("s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "http", "https")
"""Schemes of the URLs of object storage and of web servers, which obstore reads."""
FSSPEC_SCHEMES: Final = (
    *("hf", "ftp", "sftp", "ssh", "webdav", "hdfs", "webhdfs", "smb", "oci", "oss", "adl", "dbfs", "lakefs"),
    *("gdrive", "dropbox", "box", "memory"),
)
"""Schemes that fsspec reads, with a package for most of them."""
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)", re.DOTALL)
_SECRET_NAME: Final = re.compile(
    r"(?i)pass|pwd|secret|token|credential|mechanism_?properties|signature|\bsig\b|api_?key|access_?key"
)


class ClientOptions(Protocol):
    """Options of a client, such as keys."""

    def get(self, url: str) -> Mapping[str, object]:
        """Return their values, for a client of the place at ``url``; StoreError if they were not pickled."""
        ...

    def describe(self, error: BaseException) -> str:
        """Return what an error says, in one line without secrets."""
        ...


class RemoteSource(Protocol):
    """What the files of a store are copies of."""

    url: str
    """Where the objects are, as the store is named in messages."""

    @property
    def options(self) -> ClientOptions:
        """The options of a client."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of all objects."""
        ...

    def attach(self, path: Path) -> None:
        """Have the copies at ``path``, or in it, be found in this process, as long as this object is referenced."""
        ...

    def renew(self) -> RemoteSource:
        """Return the source of the same objects, of which nothing is attached."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class Location:
    """Where a store is.

    Parameters
    ----------
    scheme : str
        What stands before ``://``: the kind of the store.
    path : str
        The absolute path of a file or folder; behind a host, the path of the URL without its first ``/``.
    host : str
        The server, with its port if there is one; empty for a path on this machine.
    query : str
        What stands behind ``?`` in the URL of a server. A path on this machine has none: its name may contain ``?``.
    credentials : str
        User and password for the server, as the URL has them (``"user:password"``).
    shards : tuple of str
        Absolute paths of the files of a store that has several, in order; ``path`` is then the pattern that gives them.
    remote : RemoteSource, optional
        What is copied to ``path``, for a store in object storage.

    Notes
    -----
    A local location is also a path (``os.PathLike``): ``open`` and ``Path`` take it. A location is pickled with its
    credentials, since a worker process needs them. They are encoded, not encrypted.
    """

    scheme: str
    path: str
    host: str = ""
    query: str = ""
    credentials: str = ""
    shards: tuple[str, ...] = ()
    remote: RemoteSource | None = None

    @classmethod
    def from_paths(cls, scheme: str, paths: Sequence[str | os.PathLike[str]]) -> Location:
        """The location of the files of one store, in order; relative paths are made absolute."""
        absolute = [str(Path(os.fsdecode(path)).absolute()) for path in paths]
        if len(absolute) == 1:
            return cls(scheme, absolute[0])
        return cls(scheme, make_pattern(absolute), shards=tuple(absolute))

    @classmethod
    def from_path(cls, scheme: str, path: str | os.PathLike[str]) -> Location:
        """Return the location of a file or folder; a relative path is made absolute."""
        return cls(scheme, str(Path(os.fsdecode(path)).absolute()))

    @classmethod
    def from_url(cls, url: str) -> Location:
        """Return the location that the URL of a server gives.

        Raises
        ------
        ArgumentError
            If the URL names no host.
        """
        parts = urlsplit(url)
        credentials, _, host = parts.netloc.rpartition("@")
        database = parts.path.removeprefix("/").partition("/")[0]
        if not credentials and "@" in url and ("@" in database or re.search(":(?![0-9]+(,|$))", host)):
            # what is before the "@" is the second half of a password, and the port is the first one
            raise ArgumentError(
                f"user and password in the URL of a server ({parts.scheme}://user:password@host/path) must be escaped "
                "by urllib.parse.quote_plus"
            )
        location = cls(parts.scheme, parts.path.removeprefix("/"), host, parts.query, credentials)
        if not host:
            raise ArgumentError(f"the URL must name a host ({parts.scheme}://host/path), got {str(location)!r}")
        return location

    @staticmethod
    def split_scheme(text: str) -> tuple[str, str]:
        """Split ``scheme://rest``; the scheme is empty where the text is a plain path."""
        match = _SCHEME.fullmatch(text)
        return (match[1], match[2]) if match else ("", text)

    @property
    def is_local(self) -> bool:
        """Whether it is a path on this machine."""
        return not self.host

    @property
    def local_path(self) -> Path:
        """The path on this machine.

        Raises
        ------
        ArgumentError
            If the location is on a server.
        """
        if not self.is_local:
            raise ArgumentError(f"the store must be a path on this machine, got {str(self)!r}")
        if self.remote is not None:
            self.remote.attach(Path(self.path))
        if self.shards:
            raise ArgumentError(f"the store must be one file or folder, got {len(self.shards)} files: {self}")
        return Path(self.path)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files of the store on this machine; for one file or folder, that one.

        Raises
        ------
        ArgumentError
            If the location is on a server.
        """
        if self.shards and self.remote is not None:
            self.remote.attach(Path(self.path))
        return tuple(map(Path, self.shards)) or (self.local_path,)

    def renew(self) -> Location:
        """Return the same location; the copies of a remote one are let go of with it."""
        return self if self.remote is None else replace(self, remote=self.remote.renew())

    def __fspath__(self) -> str:
        return str(self.local_path)

    @property
    def parameters(self) -> Mapping[str, str]:
        """The query by name, decoded; of a name that occurs twice, the last value."""
        return dict(parse_qsl(self.query, keep_blank_values=True))

    def name_source(self, error: PenstockError) -> None:
        """Have an error name the URL of a store in object storage in place of its copies."""
        error.message = self.name_copy(error.message)
        error.where = {k: self.name_copy(v) if isinstance(v, str) else v for k, v in error.where.items()}

    def name_copy(self, text: str) -> str:
        """A text with the URL of a store in object storage in place of the path of its copies."""
        return text if self.remote is None else text.replace(self.path, self.remote.url)

    def exists(self) -> bool:
        """Return whether something is at the path, a broken symbolic link included. A server is not asked: True."""
        return not self.is_local or any(map(os.path.lexists, self.shards or [self.path]))

    def sidecar(self, name: str) -> Path:
        """Return the path of a file that belongs to the store and is no part of it, such as its seek tables.

        Parameters
        ----------
        name : str
            The file's purpose, without separators.

        Returns
        -------
        Path
            ``.name`` in the folder of the store, or ``file.name`` beside its first file. For a store on a server, a
            file of the user's cache folder. Nothing is created, neither the file nor its folder.
        """
        assert name == Path(name).name, "the name of a file has no separators"
        if not self.is_local:
            return cache_folder() / hashlib.blake2b(str(self).encode(), digest_size=16).hexdigest() / name
        path = self.paths[0]
        return path / f".{name}" if path.is_dir() else path.with_name(f"{path.name}.{name}")

    def overlaps(self, other: Location) -> bool:
        """Return whether one of the two lies inside the other, or both are the same."""
        if not (self.is_local and other.is_local):
            return (self.host, self.path) == (other.host, other.path)
        if self.remote is not None and other.remote is not None:
            one, two = f"{self.remote.url}/", f"{other.remote.url}/"
            return one.startswith(two) or two.startswith(one)
        first, second = ([Path(os.path.realpath(path)) for path in each.paths] for each in (self, other))
        return any(a.is_relative_to(b) or b.is_relative_to(a) for a in first for b in second)

    def to_url(self) -> str:
        """Return the URL with its credentials, for the library that opens the connection. Never for a message."""
        return self._format(f"{self.credentials}@" if self.credentials else "", self.query)

    def __str__(self) -> str:
        """Return the URL without user, password, and secret values of the query: for messages."""
        return self._format("", "&".join(map(_hide_secret, self.query.split("&"))))

    def __repr__(self) -> str:
        return f"Location({str(self)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickle, (
            self.scheme,
            self.path,
            self.host,
            _encode(self.query),
            _encode(self.credentials),
            self.shards,
            self.remote,
        )

    def _format(self, user: str, query: str) -> str:
        if self.remote is not None:
            return self.remote.url
        if self.is_local:
            return f"{self.scheme}://{self.path}"
        return f"{self.scheme}://{user}{self.host}/{self.path}{'?' if query else ''}{query}"


def is_remote_url(given: object) -> bool:
    """Return whether it is a URL of object storage, of a web server, or of a place that fsspec reads."""
    scheme = Location.split_scheme(given.lower())[0] if isinstance(given, str) else ""
    return scheme in REMOTE_SCHEMES or scheme in FSSPEC_SCHEMES


def read_file_url(text: str) -> str:
    """Return the path that a ``file://`` URL names; any other text as it is.

    Raises
    ------
    ArgumentError
        If it names a file of another machine.

    Examples
    --------
    >>> read_file_url("file:///data/my%20photos")
    '/data/my photos'
    """
    if not text.lower().startswith("file://"):
        return text
    host, slash, path = text[len("file://") :].partition("/")
    if host not in {"", "localhost"} or not slash:
        raise ArgumentError(f"a file:// URL must name an absolute path of this machine (file:///data), got {text!r}")
    return unquote(f"/{path}")


def make_pattern(paths: Sequence[str]) -> str:
    """Return the brace pattern that :func:`~penstock.stores.patterns.expand_shards` expands to these paths.

    Examples
    --------
    >>> make_pattern(["/data/train-08.tar", "/data/train-09.tar", "/data/train-10.tar"])
    '/data/train-{08..10}.tar'
    >>> make_pattern(["/data/x.h5", "/data/y.h5"])
    '/data/{x,y}.h5'
    """
    start = _count_common(paths)
    while start and paths[0][start - 1].isdigit():
        start -= 1
    rests = [path[start:] for path in paths]
    end = _count_common([rest[::-1] for rest in rests])
    while end and rests[0][len(rests[0]) - end].isdigit():
        end -= 1
    middles = [rest[: len(rest) - end] for rest in rests]
    head, tail = paths[0][:start], rests[0][len(rests[0]) - end :]
    if all(middle.isascii() and middle.isdigit() for middle in middles):
        first, width = int(middles[0]), len(middles[0])
        if middles == [f"{number:0{width}d}" for number in range(first, first + len(middles))]:
            return f"{head}{{{middles[0]}..{middles[-1]}}}{tail}"
    return f"{head}{{{','.join(middles)}}}{tail}"


def _count_common(texts: Sequence[str]) -> int:
    """Number of characters that all texts begin with."""
    first, last = min(texts), max(texts)
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))


def _hide_secret(parameter: str) -> str:
    """Return a parameter of a query, its value replaced where its name says that it is secret."""
    name, separator, _ = parameter.partition("=")
    return f"{name}=***" if separator and _SECRET_NAME.search(name) else parameter


def cache_folder() -> Path:
    """Return the folder in which penstock keeps what can be made again, ``~/.cache/penstock`` as a rule.

    It may not exist.
    """
    return _find_folder("XDG_CACHE_HOME", ".cache")


def state_folder() -> Path:
    """Return the folder of what its user did, ``~/.local/state/penstock`` as a rule; it may not exist."""
    return _find_folder("XDG_STATE_HOME", ".local/state")


def _find_folder(variable: str, usual: str) -> Path:
    base = Path(os.environ.get(variable, ""))
    try:
        return (base if base.is_absolute() else Path.home() / usual) / "penstock"
    except RuntimeError as error:
        raise StoreError(f"this user has no home folder, name a folder in {variable} instead") from error


def _encode(text: str) -> bytes:
    return base64.b85encode(text.encode())


def _unpickle(
    scheme: str,
    path: str,
    host: str,
    query: bytes,
    credentials: bytes,
    shards: tuple[str, ...] = (),
    remote: RemoteSource | None = None,
) -> Location:
    decoded = base64.b85decode(query).decode(), base64.b85decode(credentials).decode()
    return Location(scheme, path, host, *decoded, shards, remote)
