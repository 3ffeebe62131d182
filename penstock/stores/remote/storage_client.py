"""Clients of the libraries that read objects, and their options.

obstore has threads of its own and does not work in a process that was forked from one that used it; workers are then
started by forkserver (:mod:`penstock.system`).
"""

from __future__ import annotations

import functools
import html
import json
import logging
import os
import re
from collections.abc import Mapping
from datetime import timedelta
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, quote_plus, urlsplit

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
_SHOWN: Final = re.compile(
    "(?i)region|endpoint|bucket|container|account_?name|host|port|^user(name)?$|^("
    f"{'|'.join(each for each in CLIENT_OPTIONS if each not in {'default_headers', 'proxy_url'})})$"
)
"""Names of options whose values may stand in messages."""
_SECRET_VARIABLE: Final = re.compile("(AWS|AZURE|GOOGLE|HF)_.*(SECRET|TOKEN|PASSWORD|KEY|CREDENTIAL)(?!.*_ID$)")
_LONG: Final = 8
"""Characters of a secret that is found inside of words, too."""
_OF_URL: Final = re.compile(
    r"([a-z][a-z0-9+.-]*://)(?:[^\s/@'\"<>]*:[^\s/@'\"<>]*@)?([^\s?'\"<>]*)(\?[^\s'\"<>)]*)?", re.IGNORECASE
)
_BODY: Final = re.compile(r"(status code: \d{3}[^:\n]*|error response):.*", re.DOTALL)
_ELEMENTS: Final = (
    re.compile("<Code>([^<]*)</Code>"),
    re.compile("<Message>([^<]*)</Message>"),
    re.compile(r'"code"\s*:\s*"?([\w.]+)'),
    re.compile(r'"message"\s*:\s*"([^"\\]*)'),
)
"""What is quoted of the body of an answer, in XML or JSON. The rest may repeat what was sent."""


class StorageOptions:
    """Options of a client, such as keys: shown nowhere, and pickled only for a worker that is being started.

    ``dropped``: they were not pickled, so that no client can be made. ``has_answered``: a place was read with them.
    """

    def __init__(
        self, options: Mapping[str, object] | None = None, dropped: bool = False, has_answered: bool = False
    ) -> None:
        self.options, self.dropped, self.has_answered = dict(options or {}), dropped, has_answered
        self.has_warned = False
        self.clients: dict[tuple[object, ...], ObjectStore] = {}
        """Those that were made with them, by process, place and settings."""

    @classmethod
    def check(cls, given: object) -> StorageOptions:
        """Check options that a person gave; ArgumentError for what is no mapping of names."""
        if isinstance(given, StorageOptions):
            return given
        if given is None or (isinstance(given, Mapping) and all(isinstance(name, str) for name in given)):
            return cls(given)
        raise ArgumentError(f"storage_options must be a mapping of names to values, got {type(given).__name__}")

    def get(self, url: str) -> Mapping[str, object]:
        """Return the options; StoreError if they were not pickled."""
        if self.dropped:
            raise StoreError("its storage_options= are not in its pickle; open the store again with them", store=url)
        return self.options

    def describe(self, error: BaseException) -> str:
        """Return what a library says, in one line: of an answer's body code and message alone, and no secret."""
        text = str(error)
        if (body := _BODY.search(text)) is not None:
            said = [found[1].strip()[:200] for each in _ELEMENTS if (found := each.search(body[0])) is not None]
            text = text[: body.end(1)] + (f" ({': '.join(said)})" if said else "")
        text = re.sub(r"\s+", " ", self.strike(text.partition("\n\n")[0])).strip()
        return text[:300] or type(error).__name__

    def strike(self, text: str) -> str:
        """Return a text without the options that are secret, those of the environment, and what signs a URL in it."""
        text = _OF_URL.sub(r"\1\2", text)
        for secret in sorted(self._list_secrets(), key=len, reverse=True):
            parts = (re.escape(secret),) if len(secret) >= _LONG else (r"(?<!\w)", re.escape(secret), r"(?!\w)")
            text = re.sub("".join(parts), "***", text)
        return text

    def clean(self, error: BaseException | None) -> Exception | None:
        """Return an error that says the same without secrets: the cause of one of ours."""
        if error is None:
            return None
        text = self.describe(error)
        try:
            made = type(error)(text)
        except Exception:  # noqa: BLE001  # its class is made of something else
            made = OSError(text)
        return made.with_traceback(error.__traceback__) if isinstance(made, Exception) else OSError(text)

    def _list_secrets(self) -> set[str]:
        """Secrets, and words of them, in the forms in which servers and libraries repeat them."""
        given = [value for name, value in self.options.items() if not _SHOWN.search(name)]
        given += [value for name, value in os.environ.items() if _SECRET_VARIABLE.fullmatch(name)]
        found: set[str] = set()
        while given:
            value = given.pop()
            if isinstance(value, Mapping):
                given.extend(value.values())
            elif isinstance(value, list | tuple):
                given.extend(value)
            elif isinstance(value, bytes):
                given.append(value.decode(errors="replace"))
            elif isinstance(value, str | int) and not isinstance(value, bool) and not os.path.exists(value):  # noqa: PTH110  # a number, too
                words = (*str(value).split(), *re.split(r"[\s\"'&=;,{}\\]+", str(value)))
                found |= {str(value), *(word for word in words if len(word) >= _LONG)}
        forms = (str, quote, functools.partial(quote, safe=""), quote_plus, html.escape, lambda text: repr(text)[1:-1])
        return {form(each) for each in found for form in (*forms, lambda text: json.dumps(text)[1:-1])} - {""}

    def __repr__(self) -> str:
        return f"StorageOptions({', '.join(self.options)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorageOptions) and self.options == other.options

    def __hash__(self) -> int:
        return hash(tuple(self.options))

    def __reduce__(self) -> tuple[object, ...]:
        # as multiprocessing's own keys: otherwise a file would have them
        kept = self.options if get_spawning_popen() is not None else {}
        return StorageOptions, (kept, self.dropped or kept != self.options, self.has_answered)


def load_library(*, by_fsspec: bool) -> Any:
    """obstore, or what has its functions."""
    if by_fsspec:
        return require("penstock.stores.remote.fsspec_library")
    return require(_LIBRARY, extra="remote", purpose="to read from object storage")


def make_client(
    root: str, options: StorageOptions, url: str, *, retries: int, timeout: timedelta, waits: tuple[float, float]
) -> ObjectStore:
    """Make a client of a place, for this process; the same for all shards of a store, which share its connections.

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
