"""Clients of the libraries that read objects, and their options.

obstore has threads of its own and does not work in a process that was forked from one that used it; workers are then
started by forkserver (:mod:`penstock.system`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from datetime import timedelta
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from penstock import system
from penstock.errors import ArgumentError, StoreError
from penstock.registry import require
from penstock.stores.location import FSSPEC_SCHEMES

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["CLIENT_OPTIONS", "StorageOptions", "load_library", "make_client"]

_logger = logging.getLogger(__name__)
_LIBRARY: Final = "obstore"
CLIENT_OPTIONS: Final = (
    "allow_http", "allow_invalid_certificates", "connect_timeout", "default_headers", "http1_only", "http2_only",
    "pool_idle_timeout", "pool_max_idle_per_host", "proxy_ca_certificate", "proxy_excludes", "proxy_url", "timeout",
    "user_agent",
)  # fmt: skip
"""Options of obstore's connections; all others are those of the kind of place."""


class StorageOptions:
    """Options of a client, such as keys: shown nowhere, and pickled only for a worker that is being started.

    ``dropped``: they were not pickled, so that no client can be made.
    """

    def __init__(self, options: Mapping[str, object] | None = None, dropped: bool = False) -> None:
        self.options, self.dropped = dict(options or {}), dropped
        self.clients: dict[tuple[object, ...], ObjectStore] = {}
        """Those that were made with them, by process, place and settings."""

    @classmethod
    def check(cls, given: object) -> StorageOptions:
        """Options that a person gave; ArgumentError for what is no mapping of names."""
        if isinstance(given, StorageOptions):
            return given
        if given is None or (isinstance(given, Mapping) and all(isinstance(name, str) for name in given)):
            return cls(given)
        raise ArgumentError(f"storage_options must be a mapping of names to values, got {type(given).__name__}")

    def get(self, url: str) -> Mapping[str, object]:
        """The options; StoreError if they were not pickled."""
        if self.dropped:
            raise StoreError("its storage_options= are not in its pickle; open the store again with them", store=url)
        return self.options

    def __repr__(self) -> str:
        return f"StorageOptions({', '.join(self.options)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorageOptions) and self.options == other.options

    def __hash__(self) -> int:
        return hash(tuple(self.options))

    def __reduce__(self) -> tuple[object, ...]:
        # as multiprocessing's own keys: otherwise a file would have them
        kept = self.options if get_spawning_popen() is not None else {}
        return StorageOptions, (kept, self.dropped or kept != self.options)


def load_library(*, by_fsspec: bool) -> Any:
    """obstore, or what has its functions."""
    if by_fsspec:
        return require("penstock.stores.remote.fsspec_library")
    return require(_LIBRARY, extra="remote", purpose="to read from object storage")


def make_client(
    root: str, options: StorageOptions, url: str, *, retries: int, timeout: timedelta, waits: tuple[float, float]
) -> ObjectStore:
    """A client of a place, for this process; the same for all shards of a store, which then share its connections.

    Parameters
    ----------
    root, url : str
        ``s3://bucket``; the URL that a person gave, for errors.
    options : StorageOptions
        Of the client.
    retries, timeout, waits : int, timedelta, tuple of float
        How often obstore itself repeats a request, for how long, and the seconds between.

    Raises
    ------
    StoreError
        If this process was forked from one that used the library, or the options were not pickled.
    """
    key = os.getpid(), root, retries, timeout, waits
    if key not in options.clients:
        options.clients[key] = _make_client(root, options, url, retries, timeout, waits)
    return options.clients[key]


def _make_client(
    root: str, options: StorageOptions, url: str, retries: int, timeout: timedelta, waits: tuple[float, float]
) -> ObjectStore:
    by_fsspec = urlsplit(root).scheme.lower() in FSSPEC_SCHEMES
    library = "fsspec" if by_fsspec else _LIBRARY
    if system.used_before_fork(library):
        raise StoreError(
            f"{library} was used before this process was forked, and does not support that; start processes with "
            "the method 'forkserver' or 'spawn'",
            store=url,
        )
    given, loaded = options.get(url), load_library(by_fsspec=by_fsspec)
    system.note_use(library)
    if by_fsspec:
        systems: ObjectStore = loaded.FileSystems(root, given)
        return systems
    client = {"timeout": timeout, "connect_timeout": timedelta(seconds=10), "http1_only": True}
    client.update({key: value for key, value in given.items() if key in CLIENT_OPTIONS})
    config = {key: value for key, value in given.items() if key not in CLIENT_OPTIONS}
    endpoint = str(config.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL", ""))
    if root.startswith("http://") or (root.startswith("s3") and endpoint.startswith("http://")):
        client.setdefault("allow_http", True)
    # requests are repeated by `Place`, where errors that do not pass are known; parts of an object by obstore alone
    backoff = dict(zip(("init_backoff", "max_backoff"), map(timedelta, (0, 0), waits), strict=True))
    if root.startswith("s3"):
        config = _add_profile(config)
    made: ObjectStore = require("obstore.store").from_url(
        root.replace("gcs://", "gs://", 1),
        client_options=client,
        retry_config={"max_retries": retries, "backoff": backoff},
        **config,
    )
    return made


def _add_profile(config: dict[str, object]) -> dict[str, object]:
    """Options of S3 with the keys that AWS's own tools would find in their files, if boto3 is installed."""
    if "access_key_id" in config or "AWS_ACCESS_KEY_ID" in os.environ:
        return config
    try:
        provider = require("obstore.auth.boto3").Boto3CredentialProvider()
    except (ImportError, ValueError) as error:  # no profile has keys: obstore asks the machine's own role
        _logger.debug("no keys of AWS's profiles: %s", error)
        return config
    return {**config, "credential_provider": provider}
