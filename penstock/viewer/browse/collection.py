"""The records of a viewer: a store, the annotations of a record, its picture and its thumbnail."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Generic, TypeVar

from penstock.datasets.store.dataset import StoreDataset
from penstock.datasets.store.seek_tables import SeekTables
from penstock.errors import ArgumentError, DecodeError, PenstockError
from penstock.pack.upright_fields import turn_record
from penstock.sample import Array, Blob, Record, Schema, Value
from penstock.sheets.annotated import find_annotations, make_roles
from penstock.stores.base import Store
from penstock.stores.common.kept_objects import KeptObjects
from penstock.viewer.browse.annotations_beside import AnnotationsBeside
from penstock.viewer.browse.layers import JsonObject, make_layers
from penstock.viewer.browse.pictures import PictureForm, find_size, make_picture

__all__ = ["Collection", "NewestFirst"]

T = TypeVar("T")
_REQUESTS_AT_ONCE: Final = 8
"""Threads that make pictures where records come from a server, for which they wait."""
_COLUMN_WAIT_S: Final = 0.3
"""How long rows wait for a column that is read for the first time."""
_KEPT_NBYTES: Final = 64 << 20
_KEPT_SIDE: Final = 1024
"""Larger pictures are not kept: the browser does."""


class NewestFirst(Generic[T]):
    """Threads that run calls, the newest first; a call that is cancelled before it begins never runs.

    By default there are as many as the process has processors, at most 8. They are started by the first calls.
    """

    def __init__(self, threads: int | None = None) -> None:
        count = threads or min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 4)
        self._pool = ThreadPoolExecutor(count, "penstock-view-thumbnails")
        self._calls: list[tuple[Future[T], Callable[[], T]]] = []

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Have a thread run ``call``; RuntimeError after :meth:`close`."""
        future: Future[T] = Future()
        self._calls.append((future, call))
        self._pool.submit(self._run_newest)
        return future

    def close(self) -> None:
        """Cancel what has not begun, and wait for what has."""
        self._pool.shutdown(cancel_futures=True)
        for future, _ in self._calls:
            future.cancel()

    def _run_newest(self) -> None:
        future, call = self._calls.pop()
        if future.set_running_or_notify_cancel():
            _settle(future, call)


def _settle(future: Future[T], call: Callable[[], T]) -> None:
    """Give a future the result of a call, or the error, which is raised where it is awaited."""
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001  # as said
        future.set_exception(error)


class Collection:
    """A store as the viewer asks it, with annotations beside it; every method may be called by several threads."""

    def __init__(self, store: Store, *, owns_store: bool = False, annotations: AnnotationsBeside | None = None) -> None:
        self.store, self._owns_store, self._beside = store, owns_store, annotations
        self.total = len(store)
        self.name = store.url.rstrip("/").rpartition("/")[2] or store.url
        beside = {} if annotations is None else annotations.schema.fields
        self.schema = Schema({**beside, **store.schema.fields})
        """Fields of the store, and those of the annotations beside it."""
        self.image_field = next((name for name, each in self.schema.fields.items() if each.is_image), "")
        own = {name: name for name in store.schema.fields}
        kinds = StoreDataset(store, fields=own).kinds if own else {}
        names = {name: name for name in self.schema.fields}
        self._roles = make_roles(self.schema, names, {**dict.fromkeys(names), **kinds})
        self._columns: dict[str, Future[Array]] = {}
        self._lock = threading.Lock()
        self._kept = KeptObjects(_KEPT_NBYTES)
        is_far = store.is_remote or store.location.remote is not None
        self.workers: NewestFirst[bytes] = NewestFirst(_REQUESTS_AT_ONCE if is_far else None)
        """Make pictures."""

    @functools.cached_property
    def version(self) -> str:
        """A text that differs where the records of the store do."""
        return self.store.digest()

    @functools.cached_property
    def _keys(self) -> Sequence[str]:
        return self.store.keys()

    @functools.cached_property
    def seek_tables(self) -> SeekTables:
        """The seek tables of the images, in the file beside the store."""
        return SeekTables(self.store, self.image_field, "auto", 0)

    def key(self, index: int) -> str:
        """The key of a record; the record itself is not read where the store can avoid it."""
        try:
            return self._keys[index]
        except (PenstockError, OSError):  # damaged; a picture of it says what is wrong
            return self.store.get_key(index) or str(index)

    def record(self, index: int) -> Record:
        """A record with all fields, and those of the annotations beside it."""
        record = self.store.read([index])[0]
        if self._beside is None:
            return record
        return Record(record.index, record.key, {**self._beside.find(record.key), **record.fields})

    def iter_beside(self) -> Iterator[dict[str, Value]]:
        """The annotations beside the store of each record, by its key."""
        if self._beside is not None:
            yield from map(self._beside.find, self.store.keys())

    def image(self, index: int) -> Blob:
        """The image of a record: encoded, or its pixels; other fields are not read where the store can avoid it."""
        if not self.image_field:
            raise ArgumentError("the records of this store have no image; their fields are shown as text")
        is_stored = self.schema[self.image_field].pixels is not None
        read = self.store.pixels if is_stored else self.store.blobs
        image = read(self.image_field, [index])[0]
        if image is None or len(image) == 0:
            raise DecodeError(f"record {index} has no image")
        return image

    def is_kept(self, index: int, form: PictureForm) -> bool:
        """Return whether :meth:`picture` gives what was made before."""
        return self._kept.find((index, form)) is not None

    def picture(self, index: int, form: PictureForm) -> bytes:
        """The picture of a record, or a part of it, encoded for a browser; small ones are kept in memory."""

        def make() -> tuple[bytes, int]:
            content = make_picture(self.image(index), form)
            return content, len(content)

        is_kept = form.region is None and form.side <= _KEPT_SIDE
        return self._kept.get((index, form), make) if is_kept else make()[0]

    def thumbnail(self, index: int, side: int = 256) -> bytes:
        """The picture of a record as WebP whose longer side has at most ``side`` pixels."""
        return self.picture(index, PictureForm(side))

    def layers(self, index: int) -> JsonObject:
        """The annotations of a record as they are drawn: ``{width, height, layers}``, of the picture as it is shown."""
        fields = dict(self.record(index).fields)
        image = fields.get(self.image_field)
        width, height = (0, 0) if image is None or len(image) == 0 else find_size(image)
        if self.image_field and width:
            fields = turn_record(self.schema, image, fields)
        layers = make_layers(find_annotations(fields, self._roles), fields, (width, height))
        return {"width": width, "height": height, "layers": layers}

    def column(self, field: str, wait_s: float = _COLUMN_WAIT_S) -> Array | None:
        """A small field of all records, read by a thread at the first call; None while it is not there, or cannot be.

        It is waited for at most ``wait_s`` seconds.
        """
        with self._lock:
            if field not in self._columns:
                self._columns[field] = Future()
                call = functools.partial(self.store.column, field)
                threading.Thread(target=_settle, args=(self._columns[field], call), daemon=True).start()
        try:
            return self._columns[field].result(wait_s)
        except (TimeoutError, PenstockError, OSError, ValueError):
            return None

    def is_reading(self, field: str) -> bool:
        """Return whether a thread is reading this column."""
        return field in self._columns and not self._columns[field].done()

    def close(self) -> None:
        """End the threads, and close the store, if it was opened for this."""
        self.workers.close()
        if self._owns_store:
            self.store.close()
