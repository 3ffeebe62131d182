"""The records of a viewer: a store, the annotations of a record, its picture and its thumbnail."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from penstock.datasets.store.dataset import StoreDataset
from penstock.datasets.store.seek_tables import SeekTables
from penstock.errors import ArgumentError, DecodeError, PenstockError
from penstock.sample import Array, Blob, Record, Schema, Value
from penstock.stores.base import Store
from penstock.view.annotated import Annotated, find_annotations, make_roles
from penstock.viewer.browse.annotations_beside import AnnotationsBeside
from penstock.viewer.browse.layers import JsonObject, make_layers
from penstock.viewer.browse.pictures import PictureForm, ShownPicture, find_size, make_picture
from penstock.viewer.browse.thumbnails import KeptResults, NewestFirst

__all__ = ["Collection", "ShownLayers"]

_NO_IMAGE: Final = ""
_REQUESTS_AT_ONCE: Final = 8
"""Threads that make thumbnails where records come from a server, for which they wait."""
_COLUMN_WAIT_S: Final = 0.3
"""How long rows wait for a column that is read for the first time."""


@dataclass(frozen=True, slots=True)
class ShownLayers:
    """What is drawn over a picture.

    Parameters
    ----------
    width, height : int
        Of the picture as it is shown.
    layers : list of dict
        See :mod:`.layers`.
    """

    width: int
    height: int
    layers: list[JsonObject]


class Collection:
    """A store as the viewer asks it; every method may be called by several threads.

    Parameters
    ----------
    store : Store
        Read, never written.
    owns_store : bool
        Whether :meth:`close` closes it.
    annotations : AnnotationsBeside, optional
        Annotations of its pictures that are no fields of it.
    """

    def __init__(self, store: Store, *, owns_store: bool = False, annotations: AnnotationsBeside | None = None) -> None:
        self.store, self._owns_store, self._beside = store, owns_store, annotations
        self.total = len(store)
        self.name = store.url.rstrip("/").rpartition("/")[2] or store.url
        self.schema: Schema = store.schema
        """Fields of the store, and those of the annotations beside it."""
        if annotations is not None:
            self.schema = Schema({**annotations.schema.fields, **store.schema.fields})
        self.image_field = next((name for name, each in self.schema.fields.items() if each.is_image), _NO_IMAGE)
        fields = {name: name for name in store.schema.fields}
        kinds = StoreDataset(store, fields=fields).kinds if fields else {}
        more = {name: name for name in self.schema.fields if name not in fields}
        self._roles = make_roles(self.schema, {**fields, **more}, {**kinds, **dict.fromkeys(more)})
        self._columns: dict[str, Future[Array]] = {}
        self._version = ""
        self._tables: SeekTables | None = None
        self._keys: Sequence[str] | None = None
        self._lock = threading.Lock()
        self._kept = KeptResults()
        is_far = store.is_remote or store.location.remote is not None
        self.workers: NewestFirst[bytes] = NewestFirst(_REQUESTS_AT_ONCE if is_far else None)
        """Make thumbnails."""

    def key(self, index: int) -> str:
        """The key of a record; the record itself is not read where the store can avoid it."""
        if self._keys is None:
            self._keys = self.store.keys()
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

    def annotated(self, index: int) -> Annotated:
        """The image and the annotations of a record."""
        return self._annotate(dict(self.record(index).fields))

    def image(self, index: int) -> Blob:
        """The image of a record: encoded, or its pixels; other fields are not read where the store can avoid it.

        Raises
        ------
        ArgumentError
            If records have no image.
        DecodeError
            If this one has none.
        """
        if not self.image_field:
            raise ArgumentError("the records of this store have no image; their fields are shown as text")
        is_stored = self.schema[self.image_field].pixels is not None
        read = self.store.pixels if is_stored else self.store.blobs
        image = read(self.image_field, [index])[0]
        if image is None or (not is_stored and len(image) == 0):
            raise DecodeError(f"record {index} has no image")
        return image

    def picture(self, index: int, form: PictureForm) -> ShownPicture:
        """The picture of a record, or a part of it, encoded for a browser."""
        return make_picture(self.image(index), form)

    def find_kept(self, index: int, form: PictureForm) -> bytes | None:
        """A thumbnail that was made before."""
        return self._kept.get((index, form))

    def thumbnail(self, index: int, side: int = 256, *, form: PictureForm | None = None) -> bytes:
        """The picture of a record as WebP whose longer side has at most ``side`` pixels; kept in memory.

        Raises
        ------
        ArgumentError, DecodeError, StoreError
            If there is no image, or it cannot be read or decoded.
        """
        form = PictureForm(side) if form is None else form
        content = self._kept.get((index, form))
        if content is None:
            content = self.picture(index, form).content
            self._kept.keep((index, form), content)
        return content

    def layers(self, index: int) -> ShownLayers:
        """The annotations of a record as they are drawn."""
        record = self.record(index)
        fields = dict(record.fields)
        image = fields.get(self.image_field)
        width, height = (0, 0) if image is None or len(image) == 0 else find_size(image)
        return ShownLayers(width, height, make_layers(self._annotate(fields), fields, (width, height)))

    def seek_table(self, index: int) -> bytes | None:
        """The seek table of a record's image in the file beside the store; None if there is none."""
        with self._lock:
            if self._tables is None:
                self._tables = SeekTables(self.store, self.image_field, "auto", 0)
        return next(iter(self._tables.get([index]).entries))

    def column(self, field: str, wait_s: float = _COLUMN_WAIT_S) -> Array | None:
        """A small field of all records, read by a thread at the first call; None while it is not there, or cannot be.

        Parameters
        ----------
        field : str
            A field of the store of one number for each record.
        wait_s : float
            How long it is waited for.
        """
        with self._lock:
            future = self._columns.get(field)
            if future is None:
                future = self._columns[field] = Future()
                threading.Thread(target=self._read_column, args=(field, future), daemon=True).start()
        try:
            return future.result(wait_s)
        except TimeoutError:
            return None
        except (PenstockError, OSError, ValueError):
            return None

    def is_reading(self, field: str) -> bool:
        """Whether a thread is reading this column."""
        future = self._columns.get(field)
        return future is not None and not future.done()

    @property
    def version(self) -> str:
        """A text that differs where the records of the store do."""
        if not self._version:
            self._version = self.store.digest()
        return self._version

    def close(self) -> None:
        """End the threads, and close the store, if it was opened for this."""
        self.workers.close()
        if self._owns_store:
            self.store.close()

    def _annotate(self, fields: dict[str, Value]) -> Annotated:
        return find_annotations(fields, self._roles)

    def _read_column(self, field: str, future: Future[Array]) -> None:
        try:
            future.set_result(self.store.column(field))
        except BaseException as error:  # noqa: BLE001  # raised where the column is asked for
            future.set_exception(error)
