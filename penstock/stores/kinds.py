"""The table of the kinds of stores: one row says all that must be known of a kind before its module is imported.

::

    path ──signs──> may it be there? ──import──> Store.recognises decides
    name of a file that is written, of an object, of what is copied ──endings, files beside──> the kind

:mod:`penstock.stores` finds kinds here; remote folders, remote stores and copies ask which files belong to one. A row
excludes only where ``recognises`` of the kind would say no, which the conformance suite compares. This module imports
no kind, and nothing that a kind needs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from penstock.registry import Registry

__all__ = [
    "FILE",
    "HASHES",
    "INDEX",
    "INDEX_BESIDE",
    "INDEX_FILE",
    "LOCK",
    "MANIFEST",
    "MANIFEST_MAGIC",
    "SPLITS",
    "STORES",
    "UNFINISHED",
    "KindTable",
    "Sign",
    "StoreKind",
]

FILE: Final = "data.mdb"
LOCK: Final = "pack.lock"
"""The lock file in the folder of an unfinished pack; it contains the text of the origin."""
HASHES: Final = "pages.xxh3"
"""The hashes of the pages of a finished pack."""
UNFINISHED: Final = ".unfinished.json"
"""The journal in a folder that is being written file by file; the folder cannot be opened before it is removed."""
MANIFEST: Final = "manifest.json"
"""The file of a sharded pack that names its shards; written last."""
MANIFEST_MAGIC: Final = b'{"format": "penstock sharded pack"'
"""The first bytes of the manifest of a sharded pack."""
INDEX: Final = "index.json"
"""The file of a folder of MDS or LitData shards that names them."""
SPLITS: Final = ("train", "training", "val", "valid", "validation", "test", "testing", "eval")
"""Usual names of the folders of a data set in parts; each has an index of its own."""
INDEX_FILE: Final = "index.npz"
INDEX_BESIDE: Final = f".{INDEX_FILE}"
"""Our index of a container of another program, after its name; it is made again where it is absent."""
_LMDB_MAGIC: Final = bytes.fromhex("dec0efbe")
_RECORDIO_MAGIC: Final = bytes.fromhex("0a23d7ce")


class Sign(NamedTuple):
    """What a store may be known by: a file or folder in it, perhaps with some bytes."""

    name: str = ""
    """Its path below that of the store; empty: the store is one file."""
    magic: bytes = b""
    offset: int = 0

    def is_at(self, path: str) -> bool:
        """Return whether it is there, for the store at ``path``."""
        place = os.path.join(path, self.name) if self.name else path  # noqa: PTH118  # texts
        if self.magic:
            from penstock.stores.common.regular_file import has_magic  # the table alone needs no more

            return has_magic(place, self.magic, (self.offset,))
        return os.path.lexists(place) if self.name else os.path.isfile(place)  # noqa: PTH113  # of a text


@dataclass(frozen=True, slots=True)
class StoreKind:
    """What is known of a kind of stores without its module; of what is None, the class is asked."""

    name: str
    """The scheme of its URLs."""
    target: str
    """Its class, as ``"module:Class"``."""
    suffixes: tuple[str, ...] = ()
    """Endings of the names of its files, in lower case; patterns, as :mod:`fnmatch` has them."""
    writes: tuple[str, ...] | None = ()
    """Those that choose the kind for a store that is to be written."""
    signs: tuple[Sign, ...] | None = None
    """A store has one of these, or a name with one of the endings; empty: no path is such a store."""
    without: str = ""
    """A file that is in no such store."""
    shards: tuple[str, ...] = ()
    """Endings of the files in a store that is a folder."""
    beside: tuple[str, ...] = ()
    """Files that lie beside a store that is one file, after its name; ``~`` stands for the name without its ending."""

    def is_named(self, name: str, others: tuple[str, ...] = ()) -> bool:
        """Return whether a file of this name may be such a store, by its endings and ``others``."""
        return any(fnmatchcase(name.lower(), f"*{suffix}") for suffix in (*self.suffixes, *others))

    def has_sign(self, path: str) -> bool:
        """Return whether one of the signs is at a path."""
        return any(sign.is_at(path) for sign in self.signs or ())

    def may_be_at(self, path: str) -> bool:
        """Return whether such a store may be at a path, which exists."""
        if self.signs is None:
            return True
        if self.without and Sign(self.without).is_at(path):
            return False
        return self.is_named(path) or self.has_sign(path)


class KindTable(Registry):
    """The kinds by name, in the order in which they are asked: the most specific first, folders of images last."""

    def __init__(self, *rows: StoreKind) -> None:
        super().__init__("store", "penstock.stores", "penstock.stores.base:Store")
        self._rows = {row.name: row for row in rows}
        for row in rows:
            self.register(row.name, row.target)

    def row(self, name: str) -> StoreKind:
        """Return what is known of a kind."""
        if name in self._rows:
            return self._rows[name]
        return StoreKind(name, self._entries.get(name) or self.plugins[name].value, writes=None)

    def rows(self) -> Iterator[StoreKind]:
        """Return what is known of each kind that penstock or this program registers."""
        return map(self.row, self._entries)

    def list_written(self, name: str) -> tuple[str, ...]:
        """Return the endings that choose a kind for a store that is to be written."""
        writes = self.row(name).writes
        return tuple(getattr(self.try_get(name), "suffixes", ())) if writes is None else writes


_ENVIRONMENT: Final = (Sign("", _LMDB_MAGIC, 16), Sign(FILE, _LMDB_MAGIC, 16))
_INDEXES: Final = tuple(Sign(os.path.join(part, INDEX)) for part in ("", *SPLITS))  # noqa: PTH118  # texts
_IS_FILE: Final = Sign()


def _make_layout(name: str, target: str) -> StoreKind:
    """Return a kind of LMDB environments of other programs: without hashes of pages, which every finished pack has."""
    return StoreKind(f"lmdb-{name}", f"penstock.stores.lmdb.{target}", signs=_ENVIRONMENT, without=HASHES)


STORES: Final = KindTable(
    _make_layout("pickle-index", "pickle_index:LmdbPickleIndexStore"),
    _make_layout("pairs", "pairs:LmdbPairsStore"),
    _make_layout("names", "names:LmdbNamesStore"),
    _make_layout("words", "word_images:LmdbWordsStore"),
    _make_layout("datum", "datum:LmdbDatumStore"),
    StoreKind(
        "sharded",
        "penstock.stores.lmdb_pack.sharded:ShardedPack",
        signs=(Sign(MANIFEST, MANIFEST_MAGIC), Sign(UNFINISHED)),
    ),
    StoreKind(
        "lmdb",
        "penstock.stores.lmdb_pack.store:LmdbStore",
        suffixes=(".lmdb", ".mdb"),
        writes=(".lmdb", ".mdb"),
        # The magic first: a process that has read of a remote pack is one that reads it, and reads ahead.
        signs=(*reversed(_ENVIRONMENT), Sign(FILE), Sign(LOCK), Sign(HASHES)),
    ),
    StoreKind(
        "recordio",
        "penstock.stores.recordio.store:RecordioStore",
        suffixes=(".rec", ".idx"),
        signs=(Sign("", _RECORDIO_MAGIC),),
        beside=(INDEX_BESIDE, "~.idx"),
    ),
    StoreKind(
        "hdf5",
        "penstock.stores.hdf5.store:Hdf5Store",
        suffixes=(".h5", ".hdf5"),
        writes=(".h5", ".hdf5"),
        signs=(_IS_FILE,),
    ),
    StoreKind(
        "tar",
        "penstock.stores.tar.store:TarStore",
        suffixes=(".tar", ".tar.gz", ".tar.zst", ".tgz"),
        writes=(".tar",),
        beside=(INDEX_BESIDE,),
    ),
    StoreKind("mongodb", "penstock.stores.mongo.store:MongoStore", signs=()),
    StoreKind("gridfs", "penstock.stores.mongo.gridfs:GridFsStore", signs=()),
    StoreKind(
        "tfrecord",
        "penstock.stores.tfrecord.store:TFRecordStore",
        suffixes=(".tfrecord", ".tfrecords", ".tfrec*"),
        beside=(INDEX_BESIDE,),
    ),
    StoreKind("beton", "penstock.stores.foreign_shards.beton:BetonStore", suffixes=(".beton",), signs=(_IS_FILE,)),
    StoreKind("mds", "penstock.stores.foreign_shards.mds:MdsStore", signs=_INDEXES, shards=(".mds",)),
    StoreKind("litdata-arrow", "penstock.stores.foreign_shards.litdata_arrow:LitDataArrowStore", signs=_INDEXES),
    StoreKind("litdata", "penstock.stores.foreign_shards.litdata:LitDataStore", signs=_INDEXES, shards=(".bin",)),
    StoreKind("parquet", "penstock.stores.arrow.parquet:ParquetStore", suffixes=(".parquet",), writes=(".parquet",)),
    StoreKind(
        "arrow",
        "penstock.stores.arrow.files:ArrowStore",
        suffixes=(".arrow",),
        signs=(_IS_FILE, Sign("state.json"), Sign("dataset_dict.json")),
    ),
    StoreKind("lance", "penstock.stores.arrow.lance:LanceStore", suffixes=(".lance",), signs=(Sign("_versions"),)),
    StoreKind("files", "penstock.stores.images.store:FilesStore", signs=(Sign("."),)),
)
