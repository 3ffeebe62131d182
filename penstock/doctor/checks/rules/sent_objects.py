"""Rules about what workers inherit, or are sent: open-handle, forked-lock, not-picklable, pickled-arrays."""

from __future__ import annotations

import inspect
import io
import sys
import threading
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from penstock.datasets.object_graph import HeldObject
from penstock.datasets.user_code import is_user_code
from penstock.doctor.checks.findings import Finding, Severity
from penstock.doctor.checks.subject import Subject
from penstock.wording import counted

__all__ = ["find_forked_locks", "find_open_handles", "find_pickled_arrays", "find_unpicklable"]


@dataclass(frozen=True, slots=True)
class Handle:
    """A kind of open resource, such as a file or a lock, and what happens if processes share it."""

    name: str  # what it is, with its article
    fork_effect: str  # what happens if forked processes share it
    is_thread_safe: bool = False  # whether threads of one process may share it
    severity: Severity = "error"  # of a finding about forked processes


_POSITION: Final = "all processes share its position, so one reads bytes that another expected"
_CONNECTION: Final = "all processes share one connection, so one may receive the answer for another"
_FORKED_DATABASE: Final = "its library forbids use after fork, which causes errors or a damaged database"
_NO_THREADS: Final = "fork does not copy its threads, so a worker that waits for them waits forever"

_FILE: Final = Handle("A file", _POSITION)
_SQLITE: Final = Handle("An SQLite connection", _FORKED_DATABASE)
_LMDB: Final = Handle("An LMDB environment", _FORKED_DATABASE, is_thread_safe=True)
_HDF5: Final = Handle("An HDF5 file", "fork copies only a part of the library's state", is_thread_safe=True)
_CLIENT: Final = Handle("A connection", _CONNECTION, is_thread_safe=True)
_VIDEO: Final = Handle("A video stream", _POSITION)
_POOL: Final = Handle("A pool of workers", _NO_THREADS, is_thread_safe=True)
_ARCHIVE: Final = Handle("An archive", _POSITION, is_thread_safe=True)
_MAP: Final = Handle(
    "A memory map", "processes can read it, but spawn and forkserver (the default since Python 3.14) cannot pickle it",
    is_thread_safe=True, severity="note",
)  # fmt: skip

# "module:Class". A class is looked up only if its module is imported; subclasses count.
_KNOWN: Final = {
    "socket:socket": Handle("A socket", _CONNECTION), "sqlite3:Connection": _SQLITE, "sqlite3:Cursor": _SQLITE,
    "zipfile:ZipFile": _ARCHIVE, "tarfile:TarFile": Handle("An archive", _POSITION), "mmap:mmap": _MAP,
    "lmdb:Environment": _LMDB, "lmdb:Transaction": _LMDB, "lmdb:Cursor": _LMDB,
    "h5py:File": _HDF5, "h5py:Group": _HDF5, "h5py:Dataset": _HDF5, "tables:File": _HDF5, "netCDF4:Dataset": _HDF5,
    "pymongo:MongoClient": _CLIENT, "redis:Redis": _CLIENT, "psycopg:Connection": _CLIENT,
    "psycopg2.extensions:connection": _CLIENT, "pymysql.connections:Connection": _CLIENT,
    "mysql.connector.abstracts:MySQLConnectionAbstract": _CLIENT, "sqlalchemy.engine:Engine": _CLIENT,
    "botocore.client:BaseClient": _CLIENT, "requests:Session": _CLIENT, "httpx:Client": _CLIENT,
    "urllib3:PoolManager": _CLIENT, "http.client:HTTPConnection": Handle("A connection", _CONNECTION),
    "cv2:VideoCapture": _VIDEO, "decord:VideoReader": _VIDEO, "av.container:Container": _VIDEO,
    "rasterio.io:DatasetReaderBase": Handle("A raster file", _POSITION),
    "concurrent.futures.thread:ThreadPoolExecutor": _POOL, "concurrent.futures.process:ProcessPoolExecutor": _POOL,
    "multiprocessing.pool:Pool": _POOL, "subprocess:Popen": Handle("A child process", _CONNECTION),
}  # fmt: skip
_HANDLE_ADVICE: Final = (
    "Store the path. Open the handle on first use in __getitem__, open it again if os.getpid() has changed, and remove "
    "it in __getstate__. penstock's stores do this themselves."
)
_HANDLE_ADVICE_THREADS: Final = (
    "Use one handle for each thread (threading.local), or a function that takes the position (os.pread)."
)


def find_open_handles(subject: Subject) -> Iterator[Finding]:
    """Find handles that workers inherit, share or cannot pickle."""
    found: list[HeldObject] = []
    for place in subject.graph.objects:
        handle = _find_handle(place)
        if handle is None or any(place.path.startswith(f"{outer.path}.") for outer in found):
            continue
        found.append(place)
        yield from _check_handle(subject, place, handle)


def _find_handle(place: HeldObject) -> Handle | None:
    """Return the kind of handle that ``place`` holds; None if it is closed or no handle."""
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


def _check_handle(subject: Subject, place: HeldObject, handle: Handle) -> Iterator[Finding]:
    settings, named = subject.settings, f"{handle.name} ({place.kind.__name__})"
    if settings.kind == "threads":
        if not handle.is_thread_safe:
            text = (
                f"{named} is shared by {settings.num_workers} threads: one can move its position between another's "
                "seek and read."
            )
            yield Finding("open-handle", "warning", place.path, text, _HANDLE_ADVICE_THREADS)
    elif settings.kind == "serial":
        if handle.severity == "error" and not _reopens_after_fork(place):
            text = f"{named} is open. This has no effect with num_workers=0, but worker processes cannot share it."
            yield Finding("open-handle", "note", place.path, text, _HANDLE_ADVICE)
    elif subject.pickling is not None:
        failed = [each for each in subject.pickling.unpicklable if _is_inside(subject, each.value, place)]
        if failed or (id(place.value) in subject.pickling.reached and handle.name == "A socket"):
            why = failed[0].message if failed else _CONNECTION
            text = f"{named} is open, and start method {settings.start_method} has to pickle it ({why})."
            yield Finding("open-handle", "error", place.path, text, _HANDLE_ADVICE)
    elif not _reopens_after_fork(place):
        text = f"{named} is open, and {settings.each_worker} inherits it by fork: {handle.fork_effect}."
        yield Finding("open-handle", handle.severity, place.path, text, _HANDLE_ADVICE)


def _is_inside(subject: Subject, value: object, place: HeldObject) -> bool:
    path = subject.graph.path_of(value)
    return value is place.value or (path is not None and path.startswith(f"{place.path}."))


def _is_closed(value: Any) -> bool:
    """Return whether a handle is closed, by the attributes that libraries use for it."""
    try:
        if type(value).__module__.partition(".")[0] == "h5py":
            return not value
        if hasattr(value, "fileno") and type(value).__name__ in {"socket", "SSLSocket"}:
            return bool(value.fileno() == -1)
        if type(value).__name__ == "ZipFile":
            return value.fp is None
        return getattr(value, "closed", False) is True
    except Exception:  # noqa: BLE001  # unknown: it counts as open
        return False


def _is_standard(value: object) -> bool:
    standard = (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)
    return any(value is stream for stream in standard)


def _reopens_after_fork(place: HeldObject) -> bool:
    """Return whether the class that holds the handle reads the process id: then it is assumed to reopen the handle."""
    owner = type(place.owner)
    if place.owner is None or not is_user_code(owner):
        return False
    try:
        source = inspect.getsource(owner)
    except (OSError, TypeError):  # no source
        return False
    return "getpid" in source or "register_at_fork" in source


_LARGE_NBYTES: Final = 64 << 20
_LOCKS: Final = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Semaphore)
_LOCK_ADVICE: Final = (
    "Create the lock on first use in each process, or replace it in a function registered with os.register_at_fork. "
    'workers="threads" and the start methods spawn and forkserver do not fork.'
)


def find_forked_locks(subject: Subject) -> Iterator[Finding]:
    """Find locks in the user's objects if workers are forked."""
    if not subject.settings.uses_fork:
        return
    others = threading.active_count() - 1
    for place in subject.graph.objects:
        if not issubclass(place.kind, _LOCKS) or (place.owner is not None and not is_user_code(type(place.owner))):
            continue
        is_held = _is_locked(place.value)
        now = "It is held now." if is_held else f"{counted(others, 'other thread')} may hold it now." if others else ""
        severity: Severity = "error" if is_held else "warning" if others else "note"
        text = (
            f"fork copies this {place.kind.__name__} in its present state. If a thread holds it at that moment, "
            f"{subject.settings.each_worker} waits for it forever. {now}"
        )
        yield Finding("forked-lock", severity, place.path, text.strip(), _LOCK_ADVICE)


def _is_locked(lock: object) -> bool:
    """Return whether a thread holds the lock. Before Python 3.14 an RLock shows this only in its repr."""
    locked = getattr(lock, "locked", None)
    return bool(locked()) if locked is not None else repr(lock).startswith("<locked")


def find_unpicklable(subject: Subject) -> Iterator[Finding]:
    """Find objects that cannot be pickled, and classes that a worker cannot import."""
    result, method = subject.pickling, subject.settings.start_method
    if result is None:
        return
    handles = [place for place in subject.graph.objects if _find_handle(place) is not None]
    for failed in result.unpicklable:
        path = subject.graph.path_of(failed.value)
        if path is not None and any(path == each.path or path.startswith(f"{each.path}.") for each in handles):
            continue  # the rule open-handle reports it
        where = path or f"{failed.root} (the result of its __getstate__ or __reduce__)"
        text = f"{_name_value(failed.value)} cannot be pickled, as start method {method} requires ({failed.message})."
        yield Finding("not-picklable", "error", where, text, _advice(failed.value))
    main = sys.modules.get("__main__")
    if main is None or hasattr(main, "__file__") or getattr(main, "__spec__", None) is not None:
        return
    for value in result.reached.values():
        if isinstance(value, (type, types.FunctionType)) and value.__module__ == "__main__":
            text = (
                f"{_name_value(value)} is defined at a prompt or in a notebook: a worker ({method}) cannot import it."
            )
            where = subject.graph.path_of(value) or value.__qualname__
            yield Finding("not-picklable", "error", where, text, "Move it to a module, and import it from there.")


def _name_value(value: object) -> str:
    if isinstance(value, types.FunctionType):
        return "A lambda" if value.__name__ == "<lambda>" else f"The function {value.__qualname__}"
    if isinstance(value, type):
        return f"An instance of the class {value.__qualname__}"
    return f"An object of type {type(value).__module__}.{type(value).__qualname__}"


def _advice(value: object) -> str:
    if isinstance(value, (type, types.FunctionType)):
        return "Define it at the top level of a module. For a function with bound arguments, use functools.partial."
    return "Leave it out in __getstate__ and create it on first use, or pass multiprocessing_context='fork'."


def find_pickled_arrays(subject: Subject) -> Iterator[Finding]:
    """Find arrays, in memory or mapped from a file, that are pickled with their contents."""
    settings = subject.settings
    for array in subject.pickling.arrays if subject.pickling is not None else ():
        if array.nbytes * (settings.num_workers or 1) < _LARGE_NBYTES or array.dtype.hasobject:
            continue
        is_mapped = isinstance(array, np.memmap)
        kind = "memory-mapped array is read in full, pickled" if is_mapped else "array is pickled"
        repeated = "" if subject.argument("persistent_workers", False) or subject.loader is None else ", at each epoch"
        text = f"This {kind} and copied into {settings.each_worker}{repeated}: {array.nbytes / 1e6:.0f} MB each time."
        advice = (
            "Store the path, and map the file on first use in each worker."
            if is_mapped
            else "Store it as a tensor, which is sent through shared memory, or as a file that each worker maps."
        )
        if repeated:
            advice += " With persistent_workers=True it is copied once."
        where = subject.graph.path_of(array) or "dataset"
        yield Finding("pickled-arrays", "warning", where, text, advice)
