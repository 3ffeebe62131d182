"""Rule open-handle: files, sockets, databases and threads that were opened before the workers are there."""

from __future__ import annotations

import inspect
import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from penstock.datasets.user_code import is_user_code
from penstock.datasets.walk import Place
from penstock.doctor.findings import Finding, Severity
from penstock.doctor.subject import Subject

__all__ = ["find", "handle_at"]


@dataclass(frozen=True, slots=True)
class Handle:
    """A kind of handle: what it is, what a fork does to it, and whether threads of one process may share it."""

    what: str
    forked: str
    for_threads: bool = False
    severity: Severity = "error"


_POSITION: Final = "whoever reads moves the position for all, who then get the wrong bytes"
_CONVERSATION: Final = "all talk over one connection, and whoever asks may get another's answer"
_FORKED_DATABASE: Final = "its library forbids use after a fork: errors, or damaged pages"
_NO_THREADS: Final = "its threads do not come along, and whoever waits for them waits for ever"

_FILE: Final = Handle("An open file", _POSITION)
_SQLITE: Final = Handle("An SQLite connection", _FORKED_DATABASE)
_LMDB: Final = Handle("An LMDB environment", _FORKED_DATABASE, for_threads=True)
_HDF5: Final = Handle("An HDF5 file", "the library's state and position are copied half-way", for_threads=True)
_CLIENT: Final = Handle("A connection", _CONVERSATION, for_threads=True)
_VIDEO: Final = Handle("A video stream", _POSITION)
_POOL: Final = Handle("A pool of workers", _NO_THREADS, for_threads=True)
_ARCHIVE: Final = Handle("An archive", _POSITION, for_threads=True)
_MAP: Final = Handle(
    "A memory map", "reading is safe there, but spawn and forkserver, Python's default from 3.14 on, cannot pickle it",
    for_threads=True, severity="note",
)  # fmt: skip

# "module:Class" of what is looked for where the module is imported; subclasses count.
_KNOWN: Final = {
    "socket:socket": Handle("A socket", _CONVERSATION), "sqlite3:Connection": _SQLITE, "sqlite3:Cursor": _SQLITE,
    "zipfile:ZipFile": _ARCHIVE, "tarfile:TarFile": Handle("An archive", _POSITION), "mmap:mmap": _MAP,
    "lmdb:Environment": _LMDB, "lmdb:Transaction": _LMDB, "lmdb:Cursor": _LMDB,
    "h5py:File": _HDF5, "h5py:Group": _HDF5, "h5py:Dataset": _HDF5, "tables:File": _HDF5, "netCDF4:Dataset": _HDF5,
    "pymongo:MongoClient": _CLIENT, "redis:Redis": _CLIENT, "psycopg:Connection": _CLIENT,
    "psycopg2.extensions:connection": _CLIENT, "pymysql.connections:Connection": _CLIENT,
    "mysql.connector.abstracts:MySQLConnectionAbstract": _CLIENT, "sqlalchemy.engine:Engine": _CLIENT,
    "botocore.client:BaseClient": _CLIENT, "requests:Session": _CLIENT, "httpx:Client": _CLIENT,
    "urllib3:PoolManager": _CLIENT, "http.client:HTTPConnection": Handle("A connection", _CONVERSATION),
    "cv2:VideoCapture": _VIDEO, "decord:VideoReader": _VIDEO, "av.container:Container": _VIDEO,
    "rasterio.io:DatasetReaderBase": Handle("A raster file", _POSITION),
    "concurrent.futures.thread:ThreadPoolExecutor": _POOL, "concurrent.futures.process:ProcessPoolExecutor": _POOL,
    "multiprocessing.pool:Pool": _POOL, "subprocess:Popen": Handle("A child process", _CONVERSATION),
}  # fmt: skip
_ADVICE: Final = (
    "Keep the path and open it in the process that reads: on first use in __getitem__, again if os.getpid() has "
    "changed, and leave it behind in __getstate__. penstock's stores do that by themselves."
)
_ADVICE_THREADS: Final = (
    "Give each thread its own (threading.local), or read by a call that takes the position (os.pread)."
)


def find(subject: Subject) -> Iterator[Finding]:
    """A handle that workers would inherit, share or fail to pickle."""
    found: list[Place] = []
    for place in subject.graph.places:
        handle = handle_at(place)
        if handle is None or any(place.path.startswith(f"{outer.path}.") for outer in found):
            continue
        found.append(place)
        yield from _judged(subject, place, handle)


def handle_at(place: Place) -> Handle | None:
    """What kind of handle stands there, open; None for anything else."""
    kind = place.kind
    if issubclass(kind, io.IOBase):
        in_memory = issubclass(kind, (io.BytesIO, io.StringIO))
        return None if in_memory or _is_closed(place.value) or _is_standard(place.value) else _FILE
    for name, handle in _KNOWN.items():
        module, _, attribute = name.partition(":")
        cls = getattr(sys.modules.get(module), attribute, None)
        if isinstance(cls, type) and issubclass(kind, cls):
            return None if _is_closed(place.value) else handle
    return None


def _judged(subject: Subject, place: Place, handle: Handle) -> Iterator[Finding]:
    setting, named = subject.setting, f"{handle.what} ({place.kind.__name__})"
    if setting.workers == "threads":
        if not handle.for_threads:
            text = (
                f"{named}, shared by {setting.num_workers} threads: between one's seek and its read another moves it."
            )
            yield Finding("open-handle", "warning", place.path, text, _ADVICE_THREADS)
    elif setting.workers == "serial":
        if handle.severity == "error" and not _minds_forks(place):
            text = f"{named}: harmless while num_workers=0, wrong as soon as there are worker processes."
            yield Finding("open-handle", "note", place.path, text, _ADVICE)
    elif subject.pickled is not None:
        failed = [failure for failure in subject.pickled.failures if _lies_in(subject, failure.value, place)]
        if failed or (id(place.value) in subject.pickled.reached and handle.what == "A socket"):
            why = failed[0].text if failed else _CONVERSATION
            text = f"{named}: start method {setting.start_method} has to pickle it ({why})."
            yield Finding("open-handle", "error", place.path, text, _ADVICE)
    elif not _minds_forks(place):
        text = f"{named}, inherited through fork by {setting.each}: {handle.forked}."
        yield Finding("open-handle", handle.severity, place.path, text, _ADVICE)


def _lies_in(subject: Subject, value: Any, place: Place) -> bool:
    path = subject.graph.path_of(value)
    return value is place.value or (path is not None and path.startswith(f"{place.path}."))


def _is_closed(value: Any) -> bool:
    """Whether a handle says that it is closed; most do by one of these words."""
    try:
        if type(value).__module__.partition(".")[0] == "h5py":
            return not value
        if hasattr(value, "fileno") and type(value).__name__ in {"socket", "SSLSocket"}:
            return bool(value.fileno() == -1)
        if type(value).__name__ == "ZipFile":
            return value.fp is None
        return getattr(value, "closed", False) is True
    except Exception:  # noqa: BLE001  # it does not say: then it is taken to be open
        return False


def _is_standard(value: Any) -> bool:
    standard = (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)
    return any(value is stream for stream in standard)


def _minds_forks(place: Place) -> bool:
    """Whether the class that holds the handle looks at the process id: then it opens it anew by itself."""
    owner = type(place.owner)
    if place.owner is None or not is_user_code(owner):
        return False
    try:
        source = inspect.getsource(owner)
    except (OSError, TypeError):  # no source: nothing is known
        return False
    return "getpid" in source or "register_at_fork" in source
