"""A store as a source of records: read by index, in threads or processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from penstock import stores
from penstock.annotations import FORMATS
from penstock.annotations.source import AnnotationSource
from penstock.errors import ArgumentError
from penstock.pack.sources.base import Source, SourceOptions
from penstock.paths import IMAGE_SUFFIXES
from penstock.sample import DatasetLike, Index, Value
from penstock.stores.base import Store
from penstock.stores.fields.image_signatures import refuse_array
from penstock.stores.fields.record_names import check_classes, describe_class_difference
from penstock.stores.images.annotation_files import find_annotations
from penstock.stores.images.folder_checks import advise_classes
from penstock.stores.location import Location

__all__ = ["StoreSource", "refuse_annotations"]


class StoreSource(Source):
    """The records of a store.

    Parameters
    ----------
    store : Store
        An open store.
    is_owned : bool
        Whether :meth:`close` closes it.
    """

    def __init__(self, store: Store, *, is_owned: bool) -> None:
        self.store, self._is_owned = store, is_owned
        self.url, self.schema, self.location = store.url, store.schema, store.location
        self._encoded = [name for name in store.schema.blobs if store.schema[name].pixels is None]
        self.total, self.keys = len(store), store.keys()  # once: a pack reads all of them at the first iteration
        self.problems, self.unreadable = store.problems, store.unreadable

    @classmethod
    def recognises(cls, src: object) -> bool:
        """An open store, or anything that :func:`penstock.open` takes."""
        return isinstance(src, Store | str | bytes | os.PathLike | Location) or (
            isinstance(src, list) and bool(src) and all(isinstance(each, str | os.PathLike) for each in src)
        )

    @classmethod
    def open(cls, src: DatasetLike, options: SourceOptions) -> Self:
        """Open a store; see :func:`penstock.open`."""
        if isinstance(src, str | os.PathLike) and Path(src).is_file():
            stores.find(src)  # what is wrong with a file that is no store, rather than with its options
        options.refuse_others(["classes"], "a store, whose records have their fields")
        classes = options.classes
        if not isinstance(src, Store):
            if classes is None and isinstance(src, str | os.PathLike):
                refuse_annotations(Path(src))
            return cls(stores.open(src) if classes is None else _open_with_classes(src, classes), is_owned=True)
        held = src.schema["label"].classes if "label" in src.schema else ()
        if classes is not None and check_classes(classes) != held:
            raise ArgumentError(
                "classes must be those of the source, which is open already; its classes "
                f"{describe_class_difference(held, tuple(classes))}; open the source with "
                "classes=[...]",
                store=src.url,
            )
        return cls(src, is_owned=False)

    def open_upright(self, src: object, *, upright: bool) -> Self | None:
        """The store opened with ``upright`` instead; None if its kind has no boxes whose values depend on it."""
        if not self._is_owned:
            return None
        with contextlib.suppress(ArgumentError):
            store = stores.open(src, layout=None, upright=upright, **self.store.options)
            turned = type(self)(store, is_owned=True)
            self.close()
            return turned
        return None

    def load(self, token: Index) -> Mapping[str, Value]:
        """Read a record."""
        fields = self.store.read([token])[0].fields
        self._refuse_arrays([fields])
        return fields

    def load_records(self, tokens: Sequence[Value]) -> Sequence[Mapping[str, Value]]:
        """Read some records at once: a server is asked once."""
        found = [record.fields for record in self.store.read(tokens)]
        self._refuse_arrays(found)
        return found

    def load_batch(self, tokens: Sequence[Value]) -> Mapping[str, Value]:
        """Read some records at once, by field."""
        records = self.load_records(tokens)
        return {name: [fields[name] for fields in records] for name in self.schema.fields}

    def _refuse_arrays(self, found: Iterable[Mapping[str, Value]]) -> None:
        for name in self._encoded:
            for fields in found:
                refuse_array(name, fields[name])

    def digest(self) -> str:
        """Return that of the store."""
        return self.store.digest()

    def __reduce__(self) -> tuple[object, ...]:
        return _make_owned, (self.store,)

    def close(self) -> None:
        """Close the store, if it was opened for this source."""
        if self._is_owned:
            self.store.close()


def _open_with_classes(src: DatasetLike, classes: Sequence[str]) -> Store:
    """The store; if its kind takes no names of classes, the error says how its records are packed with them."""
    try:
        return stores.open(src, classes=classes)
    except ArgumentError as error:
        if "has no option 'classes'" not in error.message:
            raise
        raise ArgumentError(
            "the labels of this store are numbers, to which classes cannot be given; pack its records, with the names "
            "in a schema: penstock.pack((record.fields for record in penstock.open(src)), dst, "
            'schema={"label": penstock.Field("label", tuple(classes))}), where "label" is the field of the numbers',
            store=str(src),
        ) from error


def refuse_annotations(folder: Path) -> None:
    """Refuse a folder of images and their masks or annotations, whose sub-folders are no classes."""
    if not folder.is_dir():
        return
    source = AnnotationSource.open(folder, None)
    if FORMATS.get("mask_folders").recognises(source):
        raise ArgumentError(
            "this folder has images and their masks, which are no classes: give format='mask_folders' (--format "
            "mask_folders) to pack each image with its mask, or name the classes: classes=[...] (--classes)",
            store=str(folder),
        )
    images: list[str] = []
    others: list[str] = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        below = Path(parent).relative_to(folder).as_posix()
        for name in sorted(names):
            suffix = os.path.splitext(name)[1].lower()  # noqa: PTH122  # of a text
            if not name.startswith("."):
                (images if suffix in IMAGE_SUFFIXES else others).append(name if below == "." else f"{below}/{name}")
    found = find_annotations(folder.absolute(), images, others, "") if images else None
    if found is not None:
        classes = sorted({name.partition("/")[0] if "/" in name else folder.resolve().name for name in images})
        raise ArgumentError(
            f"{found}, which would be lost: {found.advise()}; {advise_classes(classes)} packs the images alone, each "
            "folder as a class",
            store=str(folder),
        )


def _make_owned(store: Store) -> StoreSource:
    """Return the source in a worker process, with a store of its own."""
    return StoreSource(store, is_owned=True)
