"""Where a store is: a path on this machine, or a URL that names a server.

::

    photos/                                 scheme "files"    path "/data/photos"
    lmdb://photos.lmdb                      scheme "lmdb"     path "/data/photos.lmdb"    relative paths are allowed
    mongodb://ann:pw@db:27017/pets?ssl=1    scheme "mongodb"  host "db:27017"  path "pets"  query "ssl=1"

Stores are opened from locations, and errors name them. Text that is made of a location never holds a password. A
location opens no connection.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from penstock.errors import ArgumentError

__all__ = ["Location"]

_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)", re.DOTALL)
_SECRET_NAME: Final = re.compile(r"(?i)pass|pwd|secret|token|credential|signature|\bsig\b|api_?key|access_?key")


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

    @classmethod
    def from_path(cls, scheme: str, path: str | os.PathLike[str]) -> Location:
        """The location of a file or folder; a relative path is made absolute."""
        return cls(scheme, str(Path(os.fsdecode(path)).absolute()))

    @classmethod
    def from_url(cls, url: str) -> Location:
        """The location that the URL of a server gives.

        Raises
        ------
        ArgumentError
            If the URL names no host.
        """
        parts = urlsplit(url)
        credentials, _, host = parts.netloc.rpartition("@")
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
        return Path(self.path)

    def __fspath__(self) -> str:
        return str(self.local_path)

    @property
    def parameters(self) -> Mapping[str, str]:
        """The query by name, decoded; of a name that occurs twice, the last value."""
        return dict(parse_qsl(self.query, keep_blank_values=True))

    def exists(self) -> bool:
        """Whether something is at the path, a broken symbolic link included. A server is not asked: True."""
        return not self.is_local or os.path.lexists(self.path)

    def sidecar(self, name: str) -> Path:
        """The path of a file that belongs to the store and is no part of it, such as its seek tables.

        Parameters
        ----------
        name : str
            The file's purpose, without separators.

        Returns
        -------
        Path
            ``.name`` in the folder of the store, or ``file.name`` beside its file. For a store on a server, a file of
            the user's cache folder. Nothing is created, neither the file nor its folder.
        """
        assert name == Path(name).name, "the name of a file has no separators"
        if not self.is_local:
            return _cache_folder() / hashlib.blake2b(str(self).encode(), digest_size=16).hexdigest() / name
        path = self.local_path
        return path / f".{name}" if path.is_dir() else path.with_name(f"{path.name}.{name}")

    def overlaps(self, other: Location) -> bool:
        """Whether one of the two lies inside the other, or both are the same."""
        if not (self.is_local and other.is_local):
            return (self.host, self.path) == (other.host, other.path)
        first, second = self.local_path.resolve(), other.local_path.resolve()
        return first.is_relative_to(second) or second.is_relative_to(first)

    def to_url(self) -> str:
        """The URL with its credentials, for the library that opens the connection. Never for a message."""
        return self._format(f"{self.credentials}@" if self.credentials else "", self.query)

    def __str__(self) -> str:
        """The URL without user, password, and secret values of the query: for messages."""
        return self._format("", "&".join(map(_hide_secret, self.query.split("&"))))

    def __repr__(self) -> str:
        return f"Location({str(self)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickle, (self.scheme, self.path, self.host, _encode(self.query), _encode(self.credentials))

    def _format(self, user: str, query: str) -> str:
        if self.is_local:
            return f"{self.scheme}://{self.path}"
        return f"{self.scheme}://{user}{self.host}/{self.path}{'?' if query else ''}{query}"


def _hide_secret(parameter: str) -> str:
    """A parameter of a query, its value replaced where its name says that it is secret."""
    name, separator, _ = parameter.partition("=")
    return f"{name}=***" if separator and _SECRET_NAME.search(name) else parameter


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "penstock"


def _encode(text: str) -> bytes:
    return base64.b85encode(text.encode())


def _unpickle(scheme: str, path: str, host: str, query: bytes, credentials: bytes) -> Location:
    return Location(scheme, path, host, base64.b85decode(query).decode(), base64.b85decode(credentials).decode())
