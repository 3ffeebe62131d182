"""A place on a server that has objects: ``s3://``, ``gs://``, ``az://`` and ``http(s)://``, by the library obstore.

Schemes that obstore has not are read by fsspec (:mod:`penstock.stores.remote.fsspec_library`), by the same class.

A client (:mod:`penstock.stores.remote.storage_client`) is made when it is first used in a process.
"""

from __future__ import annotations

import itertools
import logging
import posixpath
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from penstock.errors import ArgumentError, PenstockError, StoreError, StoreNotFoundError
from penstock.registry import require
from penstock.stores.common.per_process import PerProcess
from penstock.stores.location import FSSPEC_SCHEMES, REMOTE_SCHEMES
from penstock.stores.remote.storage_client import CLIENT_OPTIONS, StorageOptions, load_library, make_client
from penstock.trace import count_remote

if TYPE_CHECKING:
    from obstore import GetResult, ObjectMeta
    from obstore.store import ObjectStore

T = TypeVar("T")
__all__ = ["ObjectInfo", "Peeked", "Place", "RefusedError"]

_logger = logging.getLogger(__name__)
_MAX_ATTEMPTS: Final = 8
_MAX_REFUSED: Final = 4
"""The same where nothing has answered before, and nothing listens: a wrong address, said in less than a second."""
_SAID_AT: Final = 3
"""The attempt at which the log says that a connection is refused."""
_MAX_SECONDS: Final = 60.0
_DOWN: Final = re.compile("(?i)connection ?refused")
"""What is said of a server that restarts: where it has answered before, attempts count only after all seconds."""
_ROLE: Final = re.compile(r"//(169\.254\.16[89]\.|169\.254\.170\.|metadata\.google\.internal)")
"""Servers of clouds that give a machine its credentials, which are asked where nothing else has any."""
_PAGE_NAMES: Final = 1000
"""Names in one answer of S3 to the request for a list."""
_WAIT: Final = (0.1, 5.0)
"""Seconds before the first and before a late repetition; each is between half of it and all of it, at random."""


class ObjectInfo(NamedTuple):
    """An object: its size in bytes, and a text that differs when it is replaced (ETag, version or time of change)."""

    nbytes: int
    version: str


class Peeked(NamedTuple):
    """An object, and bytes of it from an offset on."""

    info: ObjectInfo
    begin: int
    content: memoryview


class RefusedError(StoreError):
    """What is at one URL must not be read, or cannot be; what is below it may be."""


class _UnversionedError(RefusedError):
    """An answer states no version: that of a server that never does, or the page of a proxy."""


class Place:
    """What is at a URL, and below it.

    Parameters
    ----------
    url : str
        ``s3://bucket/folder``; a user and password in it are refused, but for the user of places that fsspec reads.
    options : StorageOptions
        Options of obstore's client, as obstore names them (``access_key_id``, ``region``, ``endpoint``, ...), or of
        fsspec's class for the scheme.
        By default those of the environment; for S3 also, where ``boto3`` is installed, of AWS's profiles.

    Raises
    ------
    ArgumentError
        If the URL is none of these schemes, or has a password or a query; or if a web server has no such option.
    """

    joins_neighbours: ClassVar[bool] = True  # or a request is for one object each
    clock = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    def __init__(self, url: str, options: StorageOptions) -> None:
        parts = urlsplit(url)
        scheme, user = parts.scheme.lower(), parts.netloc.rpartition("@")[0]
        self._by_fsspec = scheme in FSSPEC_SCHEMES
        self.has_ranges = not self._by_fsspec  # whether `get_ranges` can be called
        if (scheme not in REMOTE_SCHEMES and not self._by_fsspec) or not parts.netloc:
            schemes = ", ".join((*REMOTE_SCHEMES, *FSSPEC_SCHEMES))
            raise ArgumentError(f"the URL must be scheme://bucket/path, with one of {schemes}")
        if user and (":" in user or scheme in {"s3", "s3a", "gs", "gcs", "http", "https"}):
            raise ArgumentError("the URL must have no user and password; give them as storage_options")
        if parts.query or parts.fragment or "::" in url:
            raise ArgumentError("the URL must have no query; give what signs a request as storage_options")
        unknown = [name for name in options.options if name not in CLIENT_OPTIONS]
        if unknown and scheme.startswith("http"):
            raise ArgumentError(
                f"storage_options for a web server must be of {', '.join(CLIENT_OPTIONS)}; got {', '.join(unknown)}"
            )
        self.url = url.rstrip("/")
        key = parts.path.strip("/")
        self._key = unquote(key) if parts.scheme.lower().startswith("http") else key
        self._root = f"{parts.scheme}://{parts.netloc}"
        self._options = options
        self._client = PerProcess(self._make_client)
        self._first_byte_part = 1.0
        """Of the time of requests that are sent one by one: a mean in which later ones weigh more."""
        self.requests = 0

    def find(self, name: str = "") -> ObjectInfo | None:
        """The object ``name`` below the URL, or the object at the URL; None if there is none.

        Raises
        ------
        StoreError
            If the place cannot be asked, or does not allow it.
        """
        if not self._path(name):
            return None  # the URL is that of a bucket
        obstore = self._load_library()
        try:
            return self._repeat(name, lambda client: self._describe_object(obstore.head(client, self._path(name))))
        except StoreNotFoundError:
            return None

    def peek(self, name: str, nbytes: int, *, at_end: bool) -> Peeked | None:
        """The object ``name``, as :meth:`find`, with its first or last ``nbytes``, in one request.

        None if there is none; without bytes, if the place does not serve such a range. Raises as :meth:`find`.
        """
        if not self._path(name):
            return None  # the URL is that of a bucket
        obstore, errors = self._load_library(), require("obstore.exceptions")
        part = {"suffix": nbytes} if at_end else (0, nbytes)

        def fetch(client: ObjectStore) -> Peeked | None:
            try:
                result: GetResult = obstore.get(client, self._path(name), options={"range": part})
            except errors.NotSupportedError:
                return None
            except Exception as error:
                if _ends_before(error) or "non-partial response" in str(error):
                    return None
                raise
            info, content = self._describe_object(result.meta), memoryview(result.bytes())
            begin, end = result.range
            if len(content) != end - begin:
                raise OSError(f"{end - begin} bytes were announced, and {len(content)} came")
            return Peeked(info, begin, content)

        try:
            if not self._by_fsspec and (found := self._repeat(name, fetch)) is not None:
                return found
        except StoreNotFoundError:
            return None
        info = self.find(name)
        return None if info is None else Peeked(info, 0, memoryview(b""))

    def get(self, name: str, begin: int, end: int, info: ObjectInfo) -> memoryview:
        """The bytes ``begin`` to ``end`` of an object, which must be the one of ``info``.

        Raises
        ------
        StoreNotFoundError
            If it is not there any more.
        StoreError
            If it was replaced, or cannot be read within the limits of attempts and time.
        """
        obstore = self._load_library()
        # some servers answer a range of all bytes as if it were none, which obstore takes for an error
        part = {} if (begin, end) == (0, info.nbytes) else {"range": (begin, end)}

        def fetch(client: ObjectStore) -> memoryview | None:
            sent = time.monotonic_ns()
            try:
                result: GetResult = obstore.get(client, self._path(name), options=part)
            except Exception as error:
                if _ends_before(error):
                    return None  # it is smaller than it was
                raise
            if self._describe_object(result.meta) != info:
                return None
            first_ns = time.monotonic_ns() - sent
            content = memoryview(result.bytes())
            took_ns = time.monotonic_ns() - sent
            count_remote(responses=1, nbytes=len(content), first_byte_ns=first_ns, transfer_ns=took_ns - first_ns)
            self._first_byte_part += 0.2 * (first_ns / max(took_ns, 1) - self._first_byte_part)
            if len(content) != end - begin:
                raise OSError(f"{end - begin} bytes were asked for, and {len(content)} came")
            return content

        content = self._repeat(name, fetch)
        if content is None and self.find(name) == info:  # the answer was not that of the object
            content = self._repeat(name, fetch)
        if content is None:
            raise StoreError("it was replaced while it was open; open it again", store=self.name(name))
        return content

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> Sequence[memoryview] | None:
        """Several ranges of an object (begin, end) in one call; None after an error that may pass.

        It does not say of which version they are: it is for bytes that are compared with hashes. Raises as :meth:`get`.
        """
        sent, count = time.monotonic_ns(), len(ranges)
        self.requests += count
        count_remote(requests=count)
        begins, ends = zip(*ranges, strict=True)
        contents: list[memoryview] = []
        try:
            get = self._load_library().get_ranges
            found = get(self._client.get(), self._path(name), starts=begins, ends=ends, coalesce=0)
        except Exception as error:  # noqa: BLE001  # translated
            known, cause = self._translate(name, error, "read"), self._clean(error)
        else:
            known, cause, contents = None, None, [memoryview(content) for content in found]
        if known is not None:
            raise known from cause
        if cause is not None:
            count_remote(retries=count, retry_ns=count * (time.monotonic_ns() - sent))
            return None
        nbytes, took_ns = sum(map(len, contents)), count * (time.monotonic_ns() - sent)
        first_ns = int(took_ns * self._first_byte_part)
        count_remote(responses=count, nbytes=nbytes, first_byte_ns=first_ns, transfer_ns=took_ns - first_ns)
        return contents if [*map(len, contents)] == [end - begin for begin, end in ranges] else None

    def list(self, most: int) -> dict[str, ObjectInfo]:
        """The objects below the URL by name.

        Raises
        ------
        StoreError
            If there are more than ``most``, or the place cannot list them.
        """
        found: dict[str, ObjectInfo] = {}
        for page in self.iter_pages():
            found.update(page)
            if len(found) > most:
                break
        for name in found:
            if not {"", ".", ".."}.isdisjoint(name.split("/")) or name.endswith(".pages"):
                raise StoreError(f"the object {name!r:.200} has a name that no copy can have", store=self.url)
        if len(found) > most:
            raise StoreError(
                f"below this URL are more than {most} objects; pack them (penstock pack), and read the pack",
                store=self.url,
            )
        return found

    def iter_pages(self, folder: str = "") -> Iterator[Mapping[str, ObjectInfo]]:
        """Yield the objects below ``folder`` below the URL, by name and in parts; after an error the list is continued.

        Raises
        ------
        StoreError
            If the place cannot list them.
        """
        if self._root.startswith("http"):
            return  # web servers list nothing
        obstore = self._load_library()
        stream: Iterator[Sequence[ObjectMeta]] | None = None
        last: str | None = None

        def read_page(client: ObjectStore) -> Mapping[str, ObjectInfo]:
            nonlocal stream, last
            stream, current = None, stream  # an error leaves none
            if current is None:
                prefix = self._path(folder) or None
                current = iter(obstore.list(client, prefix, offset=last, chunk_size=_PAGE_NAMES))
            metas: Sequence[ObjectMeta] = next(current, ())
            page = self._describe_all(metas)
            stream, last = current, metas[-1]["path"] if metas else None
            return page

        while page := self._repeat(folder, read_page):
            yield page

    def list_level(self, folder: str = "") -> tuple[Mapping[str, ObjectInfo], Sequence[str]]:
        """Return the objects directly in ``folder`` below the URL, and the folders in it, by name below the URL.

        Raises
        ------
        StoreError
            If the place cannot list them.
        """
        if self._root.startswith("http"):
            return {}, ()
        obstore = self._load_library()

        def list_both(client: ObjectStore) -> tuple[Mapping[str, ObjectInfo], Sequence[str]]:
            found = obstore.list_with_delimiter(client, self._path(folder) or None)
            folders = sorted(self._cut(path).rstrip("/") for path in found["common_prefixes"])
            return self._describe_all(found["objects"]), folders

        return self._repeat(folder, list_both)

    def name(self, name: str) -> str:
        """Return the URL of an object, for messages."""
        if name.startswith("../"):
            return f"{self.url.rpartition('/')[0]}/{name[3:]}"
        return f"{self.url}/{name}" if name else self.url

    def _describe_object(self, meta: ObjectMeta) -> ObjectInfo:
        version = (meta.get("e_tag") or meta.get("version") or "").strip('"') or None  # some lists have no quotes
        if version is None and not self._root.startswith("http"):
            raise OSError("the answer is not that of an object store, but of a proxy")
        if version is None and not meta["last_modified"].timestamp():
            raise _UnversionedError(
                "the server states neither ETag nor Last-Modified, by which changes are noticed", store=self.url
            )
        return ObjectInfo(meta["size"], version or meta["last_modified"].isoformat())

    def _describe_all(self, metas: Sequence[ObjectMeta]) -> Mapping[str, ObjectInfo]:
        return {self._cut(meta["path"]): self._describe_object(meta) for meta in metas}

    def _cut(self, path: str) -> str:
        """The name below the URL of what is at a path of the bucket."""
        return path.removeprefix(f"{self._key}/")

    def _path(self, name: str) -> str:
        if name.startswith("../"):  # beside the object at the URL
            return posixpath.join(posixpath.dirname(self._key), name[3:])
        return "/".join(part for part in (self._key, name) if part)

    def _repeat(self, name: str, call: Callable[[ObjectStore], T], writing: PerProcess[ObjectStore] | None = None) -> T:
        """Return what ``call`` returns.

        It is called again after errors that may pass. ``writing``: a client that writes.
        """
        started, wait = self.clock(), _WAIT[0]
        client, what = (self._client, "read") if writing is None else (writing, "written")
        for attempt in itertools.count(1):
            self.requests += 1
            count_remote(requests=1)
            sent = time.monotonic_ns()
            is_refused = is_down = False
            try:
                found = call(client.get())
            except Exception as error:  # noqa: BLE001  # translated
                is_refused = _DOWN.search(str(error)) is not None
                is_down = self._options.has_answered and is_refused
                known, cause, why = (
                    self._translate(name, error, what),
                    self._clean(error),
                    self._options.describe(error),
                )
                if isinstance(error, _UnversionedError) and attempt == 1:
                    known = None  # it is asked again before it is believed
                if writing is not None and _has_ended(str(error)):
                    known = None
            else:
                self._options.has_answered = True
                return found
            passed = self.clock() - started
            is_late = writing is None and passed + wait > _MAX_SECONDS
            most = _MAX_REFUSED if is_refused and not is_down else _MAX_ATTEMPTS
            is_last = attempt >= most and (not is_down or passed > _MAX_SECONDS)
            if known is None and (is_last or is_late):
                if "error sending request" in why and is_refused:
                    why = f"the connection was refused ({why})"
                if "Range request not supported" in why:
                    why = "the answer is not the range that was asked for, but a page of a proxy, or the whole file"
                known = StoreError(f"it cannot be {what}, after {attempt} attempts: {why}", store=self.name(name))
            if known is not None:
                raise known from cause  # not while the library's own error is handled, which may repeat secrets
            if is_refused and attempt == _SAID_AT and not self._options.has_warned:
                self._options.has_warned = True
                _logger.warning("%s: the connection is refused, and is tried again", self.url)
            self.sleep(wait * random.uniform(0.5, 1))
            count_remote(retries=1, retry_ns=time.monotonic_ns() - sent)
            wait = min(2 * wait, _WAIT[1])
        raise AssertionError("the last attempt returns or raises")

    def _translate(self, name: str, error: Exception, what: str) -> PenstockError | None:
        """Return the error for what does not pass; None for what may."""
        errors = require("obstore.exceptions")
        text, url = str(error), self.name(name)
        is_absent = isinstance(error, FileNotFoundError | errors.NotFoundError)
        is_refused = isinstance(error, PermissionError | errors.PermissionDeniedError | errors.UnauthenticatedError)
        region = re.search(r"expecting '([a-z0-9-]+)'|<Region>([a-z0-9-]+)</Region>", text)
        if isinstance(error, PenstockError):
            error.message = self._options.strike(error.message)
            error.args = (error.message,)
            error.__context__ = None
            return error
        if "NoSuchBucket" in text:
            return StoreNotFoundError(f"there is no bucket {urlsplit(self.url).netloc!r}", store=url)
        if is_absent:
            return StoreNotFoundError("there is no object at this URL", store=url)
        if isinstance(error, errors.NotSupportedError):
            return None  # the page of a proxy, as a rule
        if not self._options.has_answered and _ROLE.search(text):
            why = (
                "no credentials were found: not in storage_options=, in the environment or in profiles (those of AWS "
                "are read if boto3 is installed), and asking for the role of this machine failed "
                f"({self._options.describe(error)}); a place that all may read needs "
                "storage_options={'skip_signature': True}"
            )
        elif "RequestTimeTooSkewed" in text:
            why = "the clock of this machine is wrong; set it, and open the store again"
        elif region is not None:
            where = region[1] or region[2]
            why = f"the bucket is in another region; set storage_options={{'region': {where!r}}} or AWS_REGION={where}"
        elif is_refused:
            why = (
                f"{'writing' if what == 'written' else 'reading'} is not allowed ({self._options.describe(error)}); "
                "the credentials are those of the environment, unless storage_options= has others"
            )
        elif isinstance(error, errors.GenericError | OSError) and not _is_refusal(text) and "Config error" not in text:
            return None
        else:
            why = f"it cannot be {what}: {self._options.describe(error)}"
        return (RefusedError if is_refused else StoreError)(why, store=url)

    def _clean(self, error: Exception) -> Exception | None:
        """Return the cause of the error that :meth:`_translate` makes of an error."""
        return self._options.clean(error.__cause__ if isinstance(error, PenstockError) else error)

    def _load_library(self) -> Any:
        return load_library(by_fsspec=self._by_fsspec)

    def _make_client(self, retries: int = 0, timeout: timedelta = timedelta(seconds=30)) -> ObjectStore:
        return make_client(self._root, self._options, self.url, retries=retries, timeout=timeout, waits=_WAIT)


def _has_ended(text: str) -> bool:
    """Whether a multipart upload had ended before: the answer to the request before was lost, and it is sent anew."""
    return re.search("NoSuchUpload|InvalidPart", text) is not None


def _ends_before(error: Exception) -> bool:
    """Return whether a range was asked for that begins behind the end of an object."""
    return re.search(r"status code: 416|object was only", str(error)) is not None


def _is_refusal(text: str) -> bool:
    """Return whether a server says that the request itself is wrong, which does not pass."""
    found = re.search(r"status(?: code)?:? (\d{3})", text)
    return found is not None and (found[1] == "501" or (found[1][0] == "4" and found[1] not in {"408", "425", "429"}))
