"""The connection to a MongoDB server: one client a process, repeated calls, no password in texts.

::

    MongoConnection.run(work) ──PerProcess──> MongoClient ──> work(database) ──> result
         ^        └ the server does not answer: call ``work`` again, up to the limit; pymongo waits for the server
         └ StoreError: host, database and collection, never user and password

A client is made at its first use in a process, also after a fork. Threads share it. The stores of MongoDB
documents and of GridFS call :meth:`MongoConnection.run`.
"""

from __future__ import annotations

import functools
import logging
import os
import time
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import parse_qsl, unquote_plus

from penstock.errors import ArgumentError, StoreError
from penstock.registry import require
from penstock.stores.common.per_process import PerProcess
from penstock.stores.location import Location
from penstock.stores.mongo.fields import Document

if TYPE_CHECKING:
    from pymongo import MongoClient, collection, database

    Client = MongoClient[Document]
    Collection = collection.Collection[Document]
    Database = database.Database[Document]

__all__ = ["RECONNECT_TIMEOUT_S", "MongoConnection", "import_bson"]

T = TypeVar("T")
_logger = logging.getLogger(__name__)

RECONNECT_TIMEOUT_S: Final = 60.0
"""How long calls are repeated, by default, while the server does not answer."""

_PAUSE_S: Final = 0.2  # between attempts
_SELECTION_TIMEOUT_MS: Final = 2000  # for which pymongo waits in one attempt: close() ends the next one
_CONNECT_TIMEOUT_MS: Final = 10_000
_LEAST_SOCKET_TIMEOUT_S: Final = 60.0
_TRANSIENT_CODES: Final = frozenset({6, 7, 43, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436})
"""Answers of a server that restarts or hands over to another one, and of cursors that ended with it."""
_MAX_REASON: Final = 300

_inherited: list[Client] = []  # clients of a parent process: never closed here, and never collected, which would warn


class MongoConnection:
    """A database on a server.

    ``location``: ``scheme://host/database/collection?options``. The options are those of MongoDB's connection strings.
    ``reconnect_timeout``: seconds for which a call is repeated while the server does not answer. Raises ArgumentError
    if the location does not name database and collection, or the timeout is negative.
    """

    def __init__(self, location: Location, reconnect_timeout: float = RECONNECT_TIMEOUT_S) -> None:
        self.location, self.url = location, str(location)
        database, _, collection = location.path.strip("/").partition("/")
        if not database or not collection:
            raise ArgumentError(
                f"the URL must name database and collection ({location.scheme}://host/database/collection), "
                f"got {self.url!r}"
            )
        if not 0 <= reconnect_timeout < float("inf"):
            raise ArgumentError(f"reconnect_timeout must be a number of seconds from 0 on, got {reconnect_timeout!r}")
        self.database, self.collection = unquote_plus(database), unquote_plus(collection)
        self._timeout_s = float(reconnect_timeout)
        self._clients: PerProcess[Client] = PerProcess(self._open_client, lambda client: client.close())
        self._is_closed = self._is_away = False

    def run(self, work: Callable[[Database], T]) -> T:
        """The result of ``work(database)``, which is called again if the server does not answer.

        Parameters
        ----------
        work : callable
            Called with pymongo's database; calling it twice must have the effect of calling it once.

        Raises
        ------
        StoreError
            If the server does not answer within the limit, or refuses; the message names the host and the reason.
        """
        errors = require("pymongo.errors", extra="mongo", purpose="to read MongoDB")
        deadline = time.monotonic() + self._timeout_s
        while True:
            self._refuse_closed()
            try:
                result = work(self._clients.get()[self.database])
            except errors.PyMongoError as error:
                caught = error
            else:
                if self._is_away:
                    self._is_away = False
                    _logger.warning("%s answers again", self.location.host)
                return result
            self._refuse_closed()
            left_s = deadline - time.monotonic()
            if not _is_transient(caught, errors) or left_s <= 0:
                raise self._make_error(caught, errors) from self._without_secrets(caught)
            if not self._is_away:
                self._is_away = True
                _logger.warning(
                    "%s does not answer; trying again for %.0f s: %s",
                    self.location.host,
                    self._timeout_s,
                    self._describe_error(caught),
                )
            time.sleep(min(left_s, _PAUSE_S))

    def close(self) -> None:
        """Close the client of this process; calls that wait for the server end with an error."""
        self._is_closed = True
        self._clients.close()

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise StoreError("this store is closed; open it again", store=self.url)

    def _open_client(self) -> Client:
        pymongo = require("pymongo", extra="mongo", purpose="to read MongoDB")
        where = self.location
        scheme = "mongodb+srv" if where.scheme.endswith("+srv") else "mongodb"
        user = f"{where.credentials}@" if where.credentials else ""
        given = {name.lower() for name, _ in parse_qsl(where.query, keep_blank_values=True)}
        defaults = {
            "serverSelectionTimeoutMS": min(_SELECTION_TIMEOUT_MS, max(50, int(1000 * self._timeout_s))),
            "connectTimeoutMS": _CONNECT_TIMEOUT_MS,
            "socketTimeoutMS": int(1000 * max(self._timeout_s, _LEAST_SOCKET_TIMEOUT_S)),
            "uuidRepresentation": "standard",
            "appname": "penstock",
        }
        options = {name: value for name, value in defaults.items() if name.lower() not in given}
        path = where.path.strip("/").partition("/")[0]  # also the database of the user, unless `authSource` is given
        url = f"{scheme}://{user}{where.host}/{path}{'?' if where.query else ''}{where.query}"
        try:
            client: Client = pymongo.MongoClient(url, connect=False, tz_aware=True, **options)
        except (ValueError, TypeError) as error:  # pymongo's errors in URLs and options are, or are not, PyMongoErrors
            if isinstance(error, pymongo.errors.PyMongoError):
                raise
            failure = StoreError(f"the options of the URL are refused: {self._describe_error(error)}", store=self.url)
            cause = self._without_secrets(error)
        else:
            weakref.finalize(self, _close_in_process, client, os.getpid())
            return client
        raise failure from cause

    def _make_error(self, error: Exception, errors: ModuleType) -> StoreError:
        what = (
            f"{self.location.host} did not answer for {self._timeout_s:g} s"
            if _is_transient(error, errors)
            else f"{self.location.host} refused"
        )
        return StoreError(f"{what}: {self._describe_error(error)}", store=self.url)

    def _describe_error(self, error: Exception) -> str:
        """Return the reason that pymongo gives, short and without secrets."""
        details = getattr(error, "details", None)
        reasons = details.get("writeErrors") if isinstance(details, dict) else None
        text = str(reasons[0].get("errmsg", "")) if reasons else str(error).partition(", full error:")[0]
        text = self._hide_secrets(text.partition(", Timeout:")[0].partition(" (configured timeouts:")[0])
        return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}..."

    def _without_secrets(self, error: Exception) -> Exception | None:
        """Return the error, as the cause of ours; None if its text, or that of its own cause, holds a secret."""
        seen: BaseException | None = error
        while seen is not None:
            text = f"{seen!s} {seen!r}"
            if self._hide_secrets(text) != text:
                return None
            seen = seen.__cause__ or seen.__context__
        return error

    def _hide_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    @functools.cached_property
    def _secrets(self) -> list[str]:
        """Passwords and tokens of the URL, encoded and decoded; the longest first."""
        _, _, password = self.location.credentials.partition(":")
        shown = set(Location.from_url(str(self.location)).query.split("&"))
        hidden = [each.partition("=")[2] for each in self.location.query.split("&") if each not in shown]
        found = {text for secret in (password, *hidden) for text in (secret, unquote_plus(secret)) if text}
        return sorted(found, key=len, reverse=True)


def import_bson() -> ModuleType:
    """Return the package ``bson``, which is a part of pymongo."""
    bson: ModuleType = require("bson", extra="mongo", purpose="to read MongoDB")
    return bson


def _is_transient(error: Exception, errors: ModuleType) -> bool:
    """Return whether the same call may succeed later."""
    if isinstance(error, errors.ConnectionFailure | errors.CursorNotFound):
        return True
    if isinstance(error, errors.BulkWriteError | errors.WriteError):
        return False
    return isinstance(error, errors.OperationFailure) and error.code in _TRANSIENT_CODES


def _close_in_process(client: Client, process: int) -> None:
    """Close a client whose connection object is gone, if this process opened it; an inherited one is left alone."""
    if process == os.getpid():
        client.close()
    else:
        _inherited.append(client)
