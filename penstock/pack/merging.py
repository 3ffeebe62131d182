"""``merge``: one pack of several, such as shards that several machines packed at the same time.

::

    a.lmdb ──┐
    b.lmdb ──┼──> MergeSource: keys compared, classes by name ──> pack_source: read, check, write ──> all.lmdb
    c.lmdb ──┘                                                    seek tables: copied where they fit

Records are copied: no image is encoded again. One process writes; two never write one pack. Packs that lie in the
folder of the destination are not copied: a manifest makes them one sharded pack.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Final

import numpy as np
import xxhash

from penstock import _native, stores
from penstock.errors import ArgumentError, PackError, StoreError
from penstock.pack.pipeline.pack_source import PackReport, PackSettings, pack_source
from penstock.pack.pipeline.record_checks import find_new_numbers, renumber
from penstock.pack.pipeline.run import ClashFinder, PackProgress, list_skipped
from penstock.pack.seek_tables import make_seek_tables
from penstock.pack.sources.base import Source
from penstock.pack.staging import find_finished, staged
from penstock.sample import Field, Index, Schema, Value
from penstock.stores.base import Skipped, Store
from penstock.stores.common.keys import KeyList
from penstock.stores.common.lmdb.pages import LOCK
from penstock.stores.common.seek_table_file import SeekTableFile, seek_table_path
from penstock.stores.fields.record_names import check_classes, describe_class_difference
from penstock.stores.lmdb_pack.manifest import PackManifest, ShardColumns
from penstock.stores.lmdb_pack.sharded import ShardedPack
from penstock.stores.lmdb_pack.store import LmdbStore
from penstock.stores.location import Location
from penstock.stores.origin import Origin
from penstock.stores.writing import MANIFEST
from penstock.transforms.decoding.decode import MAX_PIXELS, read_orientations

__all__ = ["MergeSource", "merge"]

_READ_AT_ONCE: Final = 256
_PICTURES: Final = {True: "upright pictures", False: "stored ones", None: "turned ones, and it is not said which,"}


class MergeSource(Source):
    """The records of several stores, one store after the other.

    Parameters
    ----------
    opened : sequence of Store
        The stores.
    prefixes : sequence of str
        What is put before the keys of each.
    classes : sequence of str, optional
        The classes of the field ``label``.

    Raises
    ------
    ArgumentError
        If the stores have different fields, or different classes.
    """

    def __init__(self, opened: Sequence[Store], prefixes: Sequence[str], classes: Sequence[str] | None) -> None:
        self.stores, self._prefixes, self._classes = tuple(opened), tuple(prefixes), classes
        self.url = ", ".join(store.url for store in opened)
        self.schema = _merge_schemas(opened, None if classes is None else check_classes(classes))
        self._begins = np.cumsum([0, *(len(store) for store in opened)])
        self.total = int(self._begins[-1])
        self.keys: Sequence[str] = KeyList.from_names(
            prefix + key
            for store, prefix in zip(opened, prefixes, strict=True)
            for key in store.keys()  # noqa: SIM118  # a store is no mapping
        )
        self._numbers = [find_new_numbers(store.schema, self.schema) for store in opened]
        self.problems = tuple(
            Skipped(prefix + entry.key, entry.reason)
            for store, prefix in zip(opened, prefixes, strict=True)
            for entry in (*store.skipped, *store.problems)
        )

    def locate(self, position: int) -> tuple[int, int]:
        """The number of the store of a record, and its index there."""
        number = int(np.searchsorted(self._begins, position, side="right")) - 1
        return number, position - int(self._begins[number])

    def load(self, token: Index) -> Mapping[str, Value]:
        """Read a record, and number its classes as the merged pack does."""
        number, index = self.locate(token)
        fields = self.stores[number].read_stored([index])[0].fields
        numbers = self._numbers[number]
        return {**fields, **{name: renumber(fields[name], places) for name, places in numbers.items()}}

    def digest(self) -> str:
        """Hash the digests of the stores, in order, and prefixes and classes."""
        parts = [store.digest() for store in self.stores]
        return xxhash.xxh3_128(repr((parts, self._prefixes, self.schema.to_json())).encode()).hexdigest()

    def __reduce__(self) -> tuple[object, ...]:
        return MergeSource, (self.stores, self._prefixes, self._classes)


def merge(
    srcs: Sequence[str | os.PathLike[str] | Store],
    dst: str | os.PathLike[str],
    *,
    prefix: bool | Sequence[str] = False,
    classes: Sequence[str] | None = None,
    on_error: str = "raise",
    workers: int | None = None,
    overwrite: bool = False,
    check: str = "header",
    index: str = "auto",
    progress: bool | Callable[[PackProgress], None] | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> PackReport:
    """Merge several packs into one.

    Parameters
    ----------
    srcs : sequence of str, path or Store
        At least one store; they have the same fields. Their records follow one another in this order.
    dst : str or path
        The store to write. If it is an unfinished merge of the same stores, it is resumed; a finished one is used as it
        is. If all stores are packs in this folder, or in folders below it, nothing is copied: ``manifest.json``, which
        names them, is written there, and the folder is a sharded pack. They must then have the same fields and classes,
        in the same order.
    prefix : bool or sequence of str
        What is put before the keys, so that equal keys of two stores differ: True for the name of each store
        (``a.lmdb``: ``a/``), or a text for each store.
    classes : sequence of str, optional
        The classes of the field ``label``, if the stores do not have the same ones: all classes of all stores. By
        default stores have the same classes; where their order differs, that of the first is used.
    on_error, workers, overwrite, check, index, progress, storage_options
        As for :func:`pack`. Seek tables beside the stores are copied where they fit; missing ones are made.

    Returns
    -------
    PackReport
        Counts, and the entries that were left out, now or when a store was packed.

    Raises
    ------
    ArgumentError
        If the stores have different fields or classes, or one of them is the destination.
    PackError
        If keys are equal, or a record cannot be read; each is named.
    StoreError
        As :func:`pack`.
    """
    settings = PackSettings(
        on_error=on_error,
        workers=workers,
        overwrite=overwrite,
        check=check,
        index=index,
        options={"merged": str(len(srcs))},
    )
    if isinstance(srcs, str | os.PathLike | Store) or not len(srcs):
        raise ArgumentError(f"merge needs a list of stores, got {srcs!r:.80}")
    with ExitStack() as stack:
        opened = [each if isinstance(each, Store) else stack.enter_context(stores.open(each)) for each in srcs]
        target = stack.enter_context(staged(dst, storage_options, overwrite=overwrite))
        _, location = stores.find(target, to_write=True)
        if (names := _name_parts(opened, location)) is not None:
            if prefix is not False or classes is not None:
                raise ArgumentError(
                    "packs in the folder of the destination keep their keys and classes, got prefix or classes"
                )
            place = replace(location, scheme=ShardedPack.kind)
            report = _join_parts(opened, names, place, overwrite=overwrite)
            has_shards = place.remote is None
            indexed = (
                None if index == "none" or not has_shards else make_seek_tables(place, index, workers, bool(progress))
            )
            return replace(report, indexed=indexed)
        for store in opened:
            if store.location.overlaps(location):
                raise ArgumentError(f"the destination must be none of the sources, got {store.url} and {location}")
        source = MergeSource(opened, _choose_prefixes(opened, prefix), classes)
        if on_error == "raise":
            _refuse_equal_keys(
                source,
                "Give prefix=True (--prefix) to put the name of its store before each, or "
                'on_error="skip" to leave them out',
            )
        report = pack_source(source, location, replace(settings, index="none"), progress)
        if index == "none" or not location.exists():
            return report
        _copy_seek_tables(source, location, index)
        return replace(report, indexed=make_seek_tables(location, index, workers, bool(progress)))


def _name_parts(opened: Sequence[Store], location: Location) -> list[str] | None:
    """The names of packs below a folder; None if one is no pack, or lies elsewhere."""
    if not location.is_local:
        return None
    root, names = _find_place(location), []
    for store in opened:
        if not isinstance(store, LmdbStore | ShardedPack):
            return None
        path = _find_place(store.location)
        if root not in path.parents:
            return None
        names.append(path.relative_to(root).as_posix())
    return names


def _find_place(location: Location) -> PurePath:
    """The path of a store on this machine, or its URL, as something that has parents."""
    return Path(os.path.realpath(location.path)) if location.remote is None else PurePath(location.remote.url)


def _join_parts(opened: Sequence[Store], names: Sequence[str], location: Location, *, overwrite: bool) -> PackReport:
    """Write the manifest of packs that lie below a folder."""
    start = time.monotonic()
    source = MergeSource(opened, [""] * len(opened), None)
    for store in opened:
        if store.schema != opened[0].schema:
            raise ArgumentError(
                "packs in the folder of the destination must have the same fields and classes in the same order, and "
                f"those of {store.url} are not those of {opened[0].url}; merge them to another folder"
            )
    _refuse_equal_keys(source, "Pack them with other keys, or merge them to another folder")
    shards = ShardColumns()
    for store, name in zip(opened, names, strict=True):
        if isinstance(store, ShardedPack):
            shards.extend(store.manifest.shards, name)
        elif isinstance(store, LmdbStore):
            shards.append(name, len(store), store.meta.content, store.meta.nbytes)
    origin = Origin(shards.content, {"merged": str(len(opened))}).to_text()
    manifest = PackManifest(opened[0].schema, shards, origin, source.problems)
    path = location.local_path / MANIFEST
    looks = location.remote is None or not overwrite
    reused = looks and find_finished(ShardedPack, location, manifest.schema, origin)[0] is not None
    if not reused:
        if (location.local_path / LOCK).exists():
            raise StoreError("another pack is written here, or was never finished", store=str(location))
        if path.exists() and not overwrite:
            raise ArgumentError(f"{path} exists; overwrite=True (--overwrite) replaces it")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            manifest.write(path)
        except OSError as error:
            raise StoreError(f"{MANIFEST} cannot be written: {error.strerror}", store=str(location)) from error
    held = manifest.committed
    elapsed_s = time.monotonic() - start
    return PackReport(
        str(location), held.records, held.nbytes, 0, held.skipped, elapsed_s, reused=reused, schema=manifest.schema
    )


def _choose_prefixes(opened: Sequence[Store], prefix: bool | Sequence[str]) -> list[str]:
    if prefix is False:
        return [""] * len(opened)
    names = [f"{Path(store.location.path).stem}/" for store in opened] if prefix is True else list(prefix)
    if len(names) != len(opened) or len(set(names)) < len(names):
        raise ArgumentError(f"prefix must be a different text for each of {len(opened)} stores, got {names}")
    return names


def _refuse_equal_keys(source: MergeSource, advice: str) -> None:
    known = ClashFinder(source).known
    if known:
        entries = [Skipped(source.keys[position], reason) for position, reason in known.items()]
        raise PackError(
            f"{len(known):,} records of the stores have the name of another; nothing was written. {advice}:\n"
            f"{list_skipped(entries)}"
        )


def _merge_schemas(opened: Sequence[Store], classes: tuple[str, ...] | None) -> Schema:
    merged = dict(opened[0].schema.fields)
    if classes is not None and "label" in merged:
        merged["label"] = replace(merged["label"], classes=classes)
    for store in opened:
        if list(store.schema.fields) != list(merged) and set(store.schema.fields) != set(merged):
            raise ArgumentError(
                f"the stores must have the same fields: {opened[0].url} has {', '.join(merged)}, and {store.url} has "
                f"{', '.join(store.schema.fields)}"
            )
        for name, field in merged.items():
            merged[name] = _merge_fields(name, field, store, is_given=classes is not None and name == "label")
    said = {name: {store.schema[name].upright for store in opened} for name in merged}
    if any(len(each) > 1 for each in said.values()):
        _refuse_other_pictures(opened)
    return Schema({
        name: replace(field, upright=next(iter(said[name] - {None}), None)) for name, field in merged.items()
    })  # fmt: skip


def _refuse_other_pictures(opened: Sequence[Store]) -> None:
    """Refuse stores whose boxes are of upright pictures beside others; those that say nothing may have none turned."""
    unsaid = [store for store in opened if store.schema.upright is None and _has_turned_images(store)]
    said = {each.schema.upright: each.url for each in opened if each.schema.upright is not None or each in unsaid}
    if len(said) > 1:
        places = " and ".join(f"{_PICTURES[upright]} in {url}" for upright, url in said.items())
        raise ArgumentError(
            f"boxes, keypoints, masks and instances of the stores must be of one kind of picture: they are of "
            f"{places}; pack anew from the annotations, or with upright=True or upright=False (--upright, --no-upright)"
        )


def _has_turned_images(store: Store) -> bool:
    """Return whether an Exif orientation turns an image of a store."""
    names = [name for name in store.schema.blobs if store.schema[name].kind == "image"]
    for first in range(0, len(store), _READ_AT_ONCE):
        indices = range(first, min(first + _READ_AT_ONCE, len(store)))
        for name in names:
            images = [image for image in store.blobs(name, indices) if image is not None]
            if (read_orientations(images, MAX_PIXELS) != 1).any():
                return True
    return False


def _merge_fields(name: str, field: Field, store: Store, *, is_given: bool) -> Field:
    other = store.schema[name]
    kind = field.kind if field.kind == other.kind else _unite_shapes(field, other)
    if kind is None:
        raise ArgumentError(f"field {name!r} must be of one kind: it is {field.kind}, and {other.kind} in {store.url}")
    if is_given and (unknown := [each for each in other.classes if each not in field.classes]):
        raise ArgumentError(
            f"classes must hold every class of the stores, and {unknown[0]!r} of {store.url} is missing"
        )
    if not is_given and set(field.classes) != set(other.classes):
        raise ArgumentError(
            f"the stores must have the same classes of {name!r}: those of {store.url} "
            f"{describe_class_difference(other.classes, field.classes)}; give classes=[...] with all of them"
        )
    return replace(field, kind=kind)


def _unite_shapes(field: Field, other: Field) -> str | None:
    """Return the kind of arrays, or pixels, of both shapes."""
    a, b, prefix = field.pixels, other.pixels, "pixels:"
    if a is None or b is None:
        a, b, prefix = field.array, other.array, ""
    if (
        a is None
        or b is None
        or a.dtype != b.dtype
        or len(a.axes) != len(b.axes)
        or field.kind in {"boxes", "keypoints"}
    ):
        return None
    axes = ("*" if x != y or x is None else str(x[0]) for x, y in zip(a.axes, b.axes, strict=True))
    return f"{prefix}{a.dtype}[{','.join(axes)}]"


def _copy_seek_tables(source: MergeSource, location: Location, index: str) -> None:
    """Copy the seek tables of the stores, of one kind, for the images that they fit."""
    with stores.open(location) as merged, ExitStack() as stack:
        positions = {key: position for position, key in enumerate(merged.keys())}
        for field in [name for name in merged.schema.blobs if merged.schema[name].kind == "image"]:
            files = [_open_tables(store, field, stack) for store in source.stores]
            kind = index if index != "auto" else next((file.kind for file in files if file is not None), None)
            if kind is None:
                continue
            path = seek_table_path(location, field)
            with suppress(StoreError), SeekTableFile(path, merged.fingerprint(), len(merged), kind) as target:
                _copy_tables(source, files, merged, field, target, positions)


def _open_tables(store: Store, field: str, stack: ExitStack) -> SeekTableFile | None:
    try:
        path = seek_table_path(store.location, field)
        return stack.enter_context(SeekTableFile(path, store.fingerprint(), len(store)))
    except StoreError:
        return None  # none, or of other records


def _copy_tables(
    source: MergeSource,
    files: Sequence[SeekTableFile | None],
    merged: Store,
    field: str,
    target: SeekTableFile,
    positions: Mapping[str, int],
) -> None:
    missing = set(target.missing().tolist())
    for position, key in enumerate(source.keys):
        number, index = source.locate(position)
        file, place = files[number], positions.get(key)
        if file is None or file.kind != target.kind or place is None or place not in missing:
            continue
        table = file.get([index])[0]
        if table is not None and _native.inspect_index(merged.blobs(field, [place])[0], table) is not None:
            target.put(place, table)
