"""The ``files`` store: a folder of images as it is, a class per sub-folder.

::

    photos/cats/img2.jpg    key "cats/img2.jpg"   label 0 (cats)      natural order: img2 before img10
    photos/cats/img10.jpg   key "cats/img10.jpg"  label 0
    photos/dogs/a/7.png     key "dogs/a/7.png"    label 1 (dogs)      folders below a class belong to it

A folder without sub-folders is one class named like the folder. The folder is listed once, when the store is opened
(:mod:`.images.listing`); files are read anew each time. Only regular files are ever opened, also through symbolic
links, since people link data sets together. A file that is no image is never dropped silently: it is in
:attr:`FilesStore.problems` (names that begin with a dot are the exception). No image is decoded here: a file is an
image by its suffix, until packing checks it.

A folder in object storage is listed by the same rules. Each image is an object there, which is fetched when it is read
or announced, and kept in the cache (:mod:`penstock.stores.remote.folder`).
"""

from __future__ import annotations

import errno
import os
import pickle
import stat
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, IncompleteStoreError, StoreError, StoreNotFoundError
from penstock.sample import Array, Field, Record, Schema
from penstock.stores.base import Indices, PathLike, Store
from penstock.stores.fields.record_names import check_classes
from penstock.stores.images.listing import Listing, describe_file_type, list_folder
from penstock.stores.images.trees import LocalTree
from penstock.stores.indices import list_indices
from penstock.stores.location import Location
from penstock.stores.origin import Origin, read_finished
from penstock.stores.writing import UNFINISHED, CommittedRecords

if TYPE_CHECKING:
    from penstock.stores.images.writer import FilesWriter
    from penstock.stores.remote.folder import FolderImages, RemoteImages

__all__ = ["FilesStore"]

_LOOK_AHEAD: Final = 1024


class FilesStore(Store):
    """A folder of image files.

    Parameters
    ----------
    path : str, path or Location
        The folder.
    classes : sequence of str, optional
        Names of the classes in the order of their numbers, such as ``store.schema["label"].classes`` of the training
        set. A class without a folder, or without images, keeps its number. By default the names of the sub-folders in
        plain string order ("10" before "2"), which is torchvision's; each must then hold an image.

    Raises
    ------
    StoreNotFoundError
        If there is no such folder.
    StoreFormatError
        If it holds no image, or images both beside and inside its class folders, or a class folder without images and
        ``classes`` is not given.
    ArgumentError
        If ``classes`` does not name a folder that holds images.

    Notes
    -----
    The order of the records does not depend on ``classes``: folders stand in plain string order, files inside one in
    natural order (``2.jpg`` before ``10.jpg``).

    The records are those that the folder held when it was listed. A pickled store carries the listing: a worker that
    opens it does not list again. A file that is missing by then, is no longer a regular file or has another size is an
    error when its record is read. Another time of change alone is no error; nor is another content of the same size,
    which only the checksums of a pack detect. In object storage the version of each object is compared, too.
    """

    kind: ClassVar[str] = "files"
    keeps_order: ClassVar[bool] = False

    def __init__(self, path: PathLike, *, classes: Sequence[str] | None = None) -> None:
        names = None if classes is None else check_classes(classes)
        super().__init__(path, **({} if names is None else {"classes": names}))
        self._refuse_missing()
        remote = self._find_remote()
        tree = LocalTree(self.location.local_path) if remote is None else remote.list_tree()
        if tree.has(UNFINISHED):
            raise IncompleteStoreError(
                "this folder was never finished; write it as before to resume it", store=self.url
            )
        self._set_listing(list_folder(tree, self.url, names))

    @classmethod
    def storable(cls, schema: Schema) -> Schema:
        """``image``, and ``label``, whose classes are read back in plain string order."""
        if "image" not in schema or schema["image"].kind != "image":
            raise ArgumentError(
                f"a folder of images needs a field 'image' of encoded images, got {', '.join(schema.fields)}"
            )
        fields = {"image": schema["image"]}
        if "label" in schema and schema["label"].kind == "label":
            fields["label"] = Field("label", tuple(sorted(schema["label"].classes)))
        return Schema(fields)

    @classmethod
    def stored_key(cls, key: str, fields: Mapping[str, object], schema: Schema) -> str:
        """Return the path of the file: see :func:`penstock.stores.images.writer.file_name`."""
        from penstock.stores.images.writer import file_name  # readers need not load it

        return file_name(key, fields, schema)

    @classmethod
    def writer(  # type: ignore[override]  # it has no options
        cls, location: Location, schema: Schema, source: str, *, overwrite: bool = False
    ) -> FilesWriter:
        """Begin or resume a folder; see :class:`.images.writer.FilesWriter`."""
        from penstock.stores.images.writer import FilesWriter  # readers need not load it

        return FilesWriter(location, schema, source, overwrite=overwrite)

    @classmethod
    def finished(cls, location: Location, schema: Schema, source: str) -> CommittedRecords | None:
        """Return what the finished folder holds, if it was written from ``source``; see :meth:`Store.finished`."""
        del schema
        if not location.sidecar("source").is_file():
            return None
        try:
            with cls(location) as store:
                return read_finished(location, store.fingerprint(), Origin.from_text(source))
        except StoreError:
            return None  # it is unfinished, or no longer a folder of images

    def _set_listing(self, listing: Listing) -> None:
        self._listing = listing
        self._folder = self.location.path
        self._keys, self._labels, self._sizes = listing.keys, listing.labels, listing.sizes.data
        self._schema = listing.schema
        self._problems, self._unreadable = listing.problems, listing.unreadable
        self._compressed: bytes | None = None
        self._fingerprint = ""
        self._objects: FolderImages | None = None
        if (remote := self._find_remote()) is not None and listing.versions is not None:
            path = self.location.local_path
            self._objects = remote.open_images(path, listing.keys, listing.sizes, listing.versions)
            self.look_ahead = _LOOK_AHEAD

    def _find_remote(self) -> RemoteImages | None:
        """Return the folder in object storage that this one is; None on this machine."""
        return cast("RemoteImages | None", self.location.remote)  # of this kind, others are not made

    @property
    def schema(self) -> Schema:
        """``image`` (the file's bytes) and ``label`` (the number of its class folder)."""
        return self._schema

    def __len__(self) -> int:
        return len(self._keys)

    def read(self, indices: Indices) -> list[Record]:
        """Return the files at ``indices``, each read whole from disk; see :meth:`Store.read`."""
        self._refuse_closed()
        return [self._read(index) for index in list_indices(indices)]

    @property
    def prefetches(self) -> bool:
        """Whether the images are in object storage."""
        return self._objects is not None

    def prefetch(self, indices: Indices) -> bool:
        """Begin to fetch images from object storage; see :meth:`Store.prefetch`."""
        return self._objects is not None and self._objects.announce(self._check_indices(indices)) > 0

    def column(self, field: str) -> Array:
        """Return the labels; images have no column."""
        self._refuse_closed()
        if self.schema[field].is_blob:
            raise ArgumentError(f"field {field!r} holds encoded bytes, not a column; the columns are: label")
        return self._labels

    def lacks_value(self, field: str, indices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return False for each image: it lies in the folder of a class; see :meth:`Store.lacks_value`."""
        del field
        return np.zeros(len(indices), np.bool_)

    def keys(self) -> Sequence[str]:
        """Return the paths below the folder, with forward slashes."""
        self._refuse_closed()
        return self._keys

    def digest(self) -> str:
        """A hash of names, labels, sizes and times of change, as they were when the folder was listed."""
        self._refuse_closed()
        return self._listing.digest

    def fingerprint(self) -> str:
        """A hash of names and labels, computed at the first call; the same for a copy of the folder."""
        self._fingerprint = self._fingerprint or self._listing.fingerprint()
        return self._fingerprint

    @classmethod
    def recognises(cls, path: str) -> bool:
        """Recognise every folder."""
        return Path(path).is_dir()

    def __reduce__(self) -> tuple[object, ...]:
        self._refuse_closed()
        if self._compressed is None:  # once, however many workers there are
            self._compressed = zlib.compress(pickle.dumps(self._listing, 5), 1)
        return _reopen, (type(self), self.location, self._options, self._compressed)

    def _refuse_missing(self) -> None:
        if self.location.remote is None and not self.location.local_path.is_dir():
            raise StoreNotFoundError("there is no such folder", store=self.url)

    def _read(self, index: int) -> Record:
        self._refuse_outside(index)
        key = self._keys[index]
        content: bytes | memoryview
        try:
            if self._objects is None:
                content = _read_file(f"{self._folder}/{key}", self._sizes[index])
            else:
                content = self._objects.read(index)
        except FileNotFoundError as error:
            raise StoreNotFoundError(
                "this file vanished after the folder was listed", store=self.url, key=key, index=index
            ) from error
        except StoreError as error:
            error.locate(key=key, index=index)
            raise
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreError(f"this file cannot be read: {reason}", store=self.url, key=key, index=index) from error
        return Record(index, key, {"image": content, "label": int(self._labels[index])})


def _reopen(cls: type[FilesStore], location: Location, options: Mapping[str, Any], compressed: bytes) -> FilesStore:
    """Open a pickled store with the listing that it carries."""
    store = cls.__new__(cls)
    Store.__init__(store, location, **options)
    store._refuse_missing()  # noqa: SLF001  # a constructor of the class
    listing = pickle.loads(zlib.decompress(compressed))  # noqa: S301  # a part of the pickle that is being read
    store._set_listing(listing)  # noqa: SLF001  # a constructor of the class
    return store


def _read_file(path: str, listed: int) -> bytes:
    """Return all bytes of a regular file of the size that was listed; refuses a file that changes while it is read."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO put in the file's place must not block
    try:
        before = os.fstat(file)
        if not stat.S_ISREG(before.st_mode):
            raise OSError(errno.EINVAL, f"it is {describe_file_type(before.st_mode)}, no longer a regular file")
        if before.st_size != listed:
            raise OSError(
                errno.ESTALE,
                f"it was changed after the folder was listed ({listed} bytes then, {before.st_size} now); open the "
                "store again to take it as it is",
            )
        content = os.read(file, before.st_size + 1)  # one byte more: a short read has met the end of the file
        while 0 < len(content) < before.st_size and (part := os.read(file, before.st_size + 1 - len(content))):
            content += part  # one read gives 2 GiB at most
        if len(content) != before.st_size:
            raise OSError(errno.EAGAIN, f"it changed while it was read ({before.st_size} bytes when opened)")
        return content
    finally:
        os.close(file)
