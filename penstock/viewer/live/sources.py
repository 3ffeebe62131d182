"""What running loaders have written, as a viewer shows it: speeds over time, and the slowest samples.

::

    files of penstock.loader.live ──> LiveSources.poll ──> LiveLoader: points, slow samples ──> routes

Files are read when the page asks, not in between. They are text of the viewer's own user: numbers and names are taken
from them, nothing else.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock import stores
from penstock.errors import ArgumentError, PenstockError
from penstock.loader.live.live_file import KEPT_LINES, find_folder, list_files, read_from
from penstock.stores.base import Store
from penstock.viewer.browse.collection import Collection
from penstock.viewer.model.dataset_store import DatasetStore
from penstock.viewer.model.source import open_source
from penstock.wording import counted, escape_unprintable

__all__ = [
    "LiveLoader", "LiveSources", "describe_running", "find_store", "list_sources", "make_point", "parse_which",
    "read_number",
]  # fmt: skip

_MOST_LOADERS: Final = 64
_LEAST_S: Final = 0.5
"""Seconds of a point: shorter ones, at the ends of epochs, would show a batch and its neighbours."""
_PAUSE_S: Final = 2.0
_SLOW_KEPT: Final = 24
_SLOW_S: Final = 600.0
_TEXT: Final = 400
_STAGES: Final = ("read", "decode", "augment", "collate", "transport")
_HEADER_TEXTS: Final = ("host", "script", "dataset", "workers", "store")
_HEADER_NUMBERS: Final = ("pid", "rank", "world_size", "num_workers", "limit", "started")
_PLACE: Final = ("epoch", "batch", "total", "batches", "samples", "left_out", "repaired")


def read_number(values: Mapping[str, object], name: str) -> float:
    """Return a finite number of what was read; 0 if it is none."""
    value = values.get(name)
    return value if isinstance(value, int | float) and math.isfinite(value) else 0


def _read_text(values: Mapping[str, object], name: str) -> str:
    value = values.get(name)
    return value[:_TEXT] if isinstance(value, str) else ""


def _read_mapping(values: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = values.get(name)
    return value if isinstance(value, Mapping) else {}


def _read_mappings(values: Mapping[str, object], name: str, most: int) -> list[Mapping[str, object]]:
    value = values.get(name)
    return [each for each in value[:most] if isinstance(each, Mapping)] if isinstance(value, list) else []


def _read_pair(value: object, at: int) -> float:
    return read_number({"": value[at]}, "") if isinstance(value, list) and len(value) > at else 0


def list_sources(which: str | int) -> list[Path]:
    """The files of loaders: "all" of this user, those of a process by its number, a file, or a folder of files."""
    if isinstance(which, int):
        return [path for path in list_files(find_folder()) if f"-{which}-" in path.name]
    if which == "all":
        return list_files(find_folder())
    path = Path(which)
    return list_files(path) if path.is_dir() else [path] if path.exists() else []


def make_point(before: Mapping[str, object], line: Mapping[str, object]) -> dict[str, object] | None:
    """Return what has happened between two lines of sums; None if too little was delivered, or they do not fit.

    Times of stages are microseconds of work for a delivered sample; ``busy`` is the part of the time in which each
    worker worked, 0 to 1; ``ready``, ``under_way`` and ``limit`` are the batches at the end.
    """

    def grown(name: str, of: str = "") -> float:
        then, now = (_read_mapping(each, of) if of else each for each in (before, line))
        return max(0.0, read_number(now, name) - read_number(then, name))

    seconds, batches = grown("t"), grown("batches")
    if seconds < _LEAST_S or not batches:
        return None
    samples = max(grown("samples"), 1)
    wait_ms = min(grown("wait_ns") / 1e6 / batches, seconds * 1e3 / batches)
    queue = line.get("queue")
    earlier = _read_mapping(before, "workers")
    busy = {
        name[:8]: min(1.0, max(0.0, _read_pair(times, 0) - _read_pair(earlier.get(name), 0)) / 1e9 / seconds)
        for name, times in list(_read_mapping(line, "workers").items())[:256]
        if name != "-1"
    }
    stages = {name: grown(name, "stages") / 1e3 / samples for name in _STAGES}
    return {
        "t": read_number(line, "t"), "seconds": seconds,
        "samples_per_s": grown("samples") / seconds, "nbytes_per_s": grown("nbytes") / seconds,
        "wait_ms": wait_ms, "step_ms": seconds * 1e3 / batches - wait_ms, "stages": stages, "busy": busy,
        **{name: int(_read_pair(queue, at)) for at, name in enumerate(("ready", "under_way", "limit"))},
        "fetched_per_s": grown("nbytes", "remote") / seconds,
    }  # fmt: skip


@dataclass
class LiveLoader:
    """What is known of one loader.

    Attributes
    ----------
    state : str
        "running"; "ended": its file was removed; "killed": it was not, and no process writes it.
    """

    path: Path  # its file
    number: int  # of the loader, in this viewer
    state: str = "running"
    header: dict[str, object] = field(default_factory=dict)
    points: deque[dict[str, object]] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    slow: list[dict[str, object]] = field(default_factory=list)
    last: dict[str, object] = field(default_factory=dict)
    _before: dict[str, object] = field(default_factory=dict)
    _offset: int = 0
    _read_until: float = 0.0

    def poll(self) -> None:
        """Read what the loader has published since the last call."""
        if self.state != "running":
            return
        try:
            part = read_from(self.path, self._offset)
        except FileNotFoundError:
            self.state = "ended"
            return
        self.state = "running" if part.is_alive else "killed"
        self.header, self._offset = part.header, part.offset
        for line in part.lines:
            t = read_number(line, "t")
            if t > self._read_until:  # a file whose old lines were removed is read from its beginning
                self._read_until = t
                self._take(line, t)
        self._keep_slowest()

    def _take(self, line: dict[str, object], t: float) -> None:
        self.slow += [{**sample, "t": t} for sample in _read_mappings(line, "slow", 64)]
        if not _read_pair(line.get("queue"), 2):  # the epoch has just ended
            line = {**line, "queue": self.last.get("queue")}
        self.last = line
        begun = read_number(line, "begun")
        if self._before and begun - read_number(self._before, "t") > _PAUSE_S:
            self._before = {**self._before, "t": begun}  # a pause between two epochs is no time of either
        point = make_point(self._before, line) if self._before else None
        if point is not None:
            self.points.append(point)
        if point is not None or not self._before:
            self._before = line

    def _keep_slowest(self) -> None:
        until = read_number(self.last, "t") - _SLOW_S
        recent = [each for each in self.slow if read_number(each, "t") >= until]
        recent.sort(key=lambda each: -read_number(each, "ms") / max(read_number(each, "count"), 1))
        seen: set[object] = set()
        self.slow = []
        for each in recent:  # an index once, its slowest time
            name = str(each.get("indices")) if each.get("indices") else (each.get("batch"), each.get("t"))
            if name not in seen and len(seen) < _SLOW_KEPT:
                seen.add(name)
                self.slow.append(each)

    def describe(self, since: float) -> dict[str, object]:
        """Return the loader as JSON, with the points after ``since``."""
        last = self.last
        errors = {
            str(each.get("index"))[:99]: {"key": _read_text(each, "key"), "reason": _read_text(each, "reason")}
            for each in _read_mappings(last, "errors", 16)
        }
        return {
            "number": self.number, "state": self.state, "file": self.path.name,
            **{name: _read_text(self.header, name) for name in _HEADER_TEXTS},
            **{name: read_number(self.header, name) for name in _HEADER_NUMBERS},
            **{name: read_number(last, name) for name in _PLACE}, "t": read_number(last, "t"),
            "verdict": _read_text(last, "verdict"),
            "changed": _read_text(last, "changed"),
            "errors": [{"index": index, **error} for index, error in errors.items()],
            "points": [point for point in self.points if read_number(point, "t") > since],
        }  # fmt: skip


class LiveSources:
    """The loaders that one viewer shows.

    ``which``: "all" of this user; those of a process, by its number; a file, or a folder of files. ``collection``: what
    the viewer shows besides.
    """

    def __init__(self, which: str | int, collection: Collection) -> None:
        self._which, self._collection = which, collection
        self._loaders: dict[Path, LiveLoader] = {}
        self._stores: dict[str, Collection | None] = {}
        self._urls: list[str] = []
        self._lock = threading.RLock()

    def poll(self) -> list[LiveLoader]:
        """Return all loaders, with what is new."""
        with self._lock:
            for path in list_sources(self._which):
                if path not in self._loaders and len(self._loaders) < _MOST_LOADERS:
                    self._loaders[path] = LiveLoader(path, len(self._loaders))
            for loader in self._loaders.values():
                with contextlib.suppress(ArgumentError, OSError):  # it is no file of a loader
                    loader.poll()
            return [each for each in self._loaders.values() if each.header]

    def find_record(self, url: str, record: int) -> tuple[str, str | None]:
        """The key of a record of a store, and where the page gets its picture from; None if it has none here."""
        with self._lock:
            found = self._open(url)
            if found is None or not 0 <= record < found.total:
                return f"record {record}", None
            if url not in self._urls:
                self._urls.append(url)
            picture = f"api/live/thumb/{self._urls.index(url)}/{record}" if found.image_field else None
            return found.key(record), picture

    def shows(self, url: str) -> bool:
        """Return whether the viewer's records are those of this store."""
        return url == self._collection.store.url

    def collection(self, number: int) -> Collection:
        """The records of a store that :meth:`find_record` has named.

        Raises ArgumentError if there is no such store.
        """
        with self._lock:
            found = self._open(self._urls[number]) if 0 <= number < len(self._urls) else None
        if found is None:
            raise ArgumentError(f"store must be in [0, {len(self._urls)}), got {number}")
        return found

    def _open(self, url: str) -> Collection | None:
        if self.shows(url):
            return self._collection
        if url not in self._stores and len(self._stores) < _MOST_LOADERS:
            try:
                self._stores[url] = Collection(stores.open(url), owns_store=True)
            except (PenstockError, OSError):  # it needs options, or is gone: samples are shown without pictures
                self._stores[url] = None
        return self._stores.get(url)

    def close(self) -> None:
        """Close the stores that were opened for pictures."""
        for each in self._stores.values():
            if each is not None:
                each.close()


def parse_which(text: str) -> str | int:
    """Return which loaders the value of ``--attach`` names: "all", the number of a process, or a path."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 20 else text


def find_store(which: str | int) -> Store:
    """The store that the first of these loaders reads, opened; one without records if none of them reads one.

    Raises ArgumentError if there is no such process or file, or it is no file of a loader. Raises OSError if it cannot
    be read.
    """
    paths = list_sources(which)
    if not paths and which != "all":
        named = f"process {which} writes nothing" if isinstance(which, int) else f"there is no file {which}"
        raise ArgumentError(
            f"{named}; loaders with view=True write to {find_folder()} while they are iterated, and --attach list "
            "shows them"
        )
    for path in paths:
        try:
            url = read_from(path).header.get("store")
        except (ArgumentError, OSError):
            if len(paths) == 1 and which != "all":
                raise
            continue
        if isinstance(url, str):
            with contextlib.suppress(PenstockError, OSError):  # it needs options, or is gone
                return stores.open(url)
    nothing = open_source([])
    nothing.title = "running"
    return DatasetStore(nothing)


def describe_running() -> list[str]:
    """Return one line for each loader of this user that is iterated, or was when its process was killed."""
    lines = []
    for path in list_sources("all"):
        try:
            part = read_from(path)
        except (ArgumentError, OSError) as error:
            lines.append(f"{path}: {error}")
            continue
        header, last = part.header, part.lines[-1] if part.lines else {}
        idle = time.time() - read_number(last, "t")
        state = f"last batch {idle:.0f} s ago" if part.is_alive else "its process was killed"
        lines.append(
            f"{read_number(header, 'pid'):.0f}  rank {read_number(header, 'rank'):.0f}, {header.get('dataset')}, "
            f"{counted(int(read_number(last, 'batches')), 'batch')}, {state}: {escape_unprintable(str(path))}"
        )
    return lines or [f"no loader with view=True is iterated ({find_folder()})"]
