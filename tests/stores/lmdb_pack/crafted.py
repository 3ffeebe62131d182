"""Packs whose content is not what a writer of ours makes, under checksums and seals that all hold.

A :class:`Crafted` is a whole pack, decoded: change any part of it, then :meth:`~Crafted.write` it. Checksums only find
accidents; whoever makes a pack on purpose computes them as we do, so that readers must not trust what is behind them.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import msgpack  # type: ignore[import-untyped]  # ships no types
import numpy as np
import xxhash

import penstock as ps
from penstock.errors import ArgumentError, PenstockError
from penstock.sample import SampleKeys, Schema
from penstock.sheets import info
from penstock.stores.common.lmdb.pages import HASHES
from penstock.stores.fields.columns import get_column_dtype
from penstock.stores.lmdb_pack.format import (
    COLUMNS,
    KEYS,
    RECORDS,
    encode_column,
)
from penstock.stores.lmdb_pack.meta import META, META_ENTRY, META_HASH
from penstock.stores.lmdb_pack.page_hashes import PageHashFile
from penstock.stores.lmdb_pack.store import LmdbStore

COUNT = 5
SCHEMA = {
    "image": {"kind": "image"},
    "label": {"kind": "label", "classes": ["cat", "dog"]},
    "weight": {"kind": "float"},
    "caption": {"kind": "text"},
    "vector": {"kind": "float32[4]"},
    "boxes": {"kind": "boxes"},
    "flags": {"kind": "bool[*]"},
}
"""A field of each way to be stored."""


def array(values: Any, dtype: str = "<f4") -> list[Any]:
    """An array as the small fields hold it."""
    made = np.asarray(values, dtype)
    return [list(made.shape), made.tobytes()]


class Crafted:
    """A pack of some records, as plain objects; what is set is what is stored."""

    def __init__(self, schema: dict[str, Any] | None = None) -> None:
        self.schema: Any = dict(SCHEMA) if schema is None else schema
        self.count: Any = COUNT
        self.blobs: list[list[bytes]] = [[bytes(range(10 * i + 10))] for i in range(COUNT)]
        self.small: list[Any] = [
            [f"{i}.jpg", i % 2, i / 2, f"no. {i}", array(np.arange(4) + i), array([[0, 0, i, i]]), array([1, 0], "?")]
            for i in range(COUNT)
        ]
        """What each record's small fields decode to; ``bytes`` are stored as they are."""
        self.columns: dict[str, bytes] = {}
        if schema is None:
            for name, at in (("label", 1), ("weight", 2)):
                dtype = get_column_dtype(Schema.from_json(SCHEMA)[name])
                self.columns[name] = encode_column(np.array([small[at] for small in self.small], dtype))
        self.keys: list[tuple[bytes, bytes]] = [(f"{i}.jpg".encode(), struct.pack(">Q", i)) for i in range(COUNT)]
        self.meta: dict[str, Any] = {}
        """Entries of the description that are to be others than the true ones."""
        self.meta_bytes: Callable[[bytes], bytes] = lambda content: content
        """Changes the description's text."""

    def write(self, path: Path) -> Path:
        """Store it, with right checksums and seals; gives the path."""
        values = [self._value(index) for index in range(len(self.small))]
        heads = b""
        for value, blobs in zip(values, self.blobs, strict=True):
            heads = xxhash.xxh3_128_digest(heads + value[: 8 + 16 * (1 + len(blobs))])
        content = self.meta_bytes(json.dumps(self._described(heads.hex())).encode())
        path.mkdir()
        with (
            lmdb.open(str(path), map_size=1 << 26, max_dbs=8, lock=False, sync=False) as environment,
            environment.begin(write=True) as transaction,
        ):
            names = (RECORDS, COLUMNS, KEYS, META)
            databases = {name: environment.open_db(name, transaction) for name in names}
            for index, value in enumerate(values):
                transaction.put(struct.pack(">Q", index), value, db=databases[RECORDS])
            for name, column in self.columns.items():
                transaction.put(name.encode(errors="surrogatepass"), column, db=databases[COLUMNS])
            for key, number in self.keys:
                transaction.put(key, number, db=databases[KEYS])
            transaction.put(META_ENTRY, content, db=databases[META])
            transaction.put(META_HASH, xxhash.xxh3_64_digest(content), db=databases[META])
        return seal(path)

    def _described(self, content: str) -> dict[str, Any]:
        columns = {name: xxhash.xxh3_64_hexdigest(column) for name, column in self.columns.items()}
        nbytes = sum(len(blob) for blobs in self.blobs for blob in blobs)
        return {
            "format": "penstock-lmdb",
            "version": 1,
            "complete": True,
            "count": self.count,
            "nbytes": nbytes,
            "content": content,
            "schema": self.schema,
            "columns": columns,
            "skipped": [["notes.txt", "not an image by its name"]],
            "source": "",
            **self.meta,
        }

    def _value(self, index: int) -> bytes:
        small, salt = self.small[index], index * 0x9E3779B97F4A7C15 % 2**64
        parts = [small if isinstance(small, bytes) else msgpack.packb(small), *self.blobs[index]]
        table = [number for part in parts for number in (len(part), xxhash.xxh3_64_intdigest(part) ^ salt)]
        head = struct.pack(f"<4sHH{len(table)}Q", b"PSR\x01", len(parts) - 1, 0, *table)
        return b"".join((head, *parts))


def seal(path: Path) -> Path:
    """Seal the pages of a pack as they are."""
    PageHashFile.write(path, "data.mdb").replace(path / HASHES)
    return path


def use(pack: Path) -> list[PenstockError]:
    """Do with a pack whatever one can; gives the errors, which are all ours and name it."""
    errors: list[PenstockError] = []

    @contextlib.contextmanager
    def noted() -> Iterator[None]:
        try:
            yield
        except PenstockError as error:
            errors.append(error)

    with noted(), LmdbStore(pack) as store:
        some = range(min(len(store), 2 * COUNT))
        for index in some:
            with noted():
                store.read([index])
        for name in store.schema.fields:
            with noted():
                store.column(name)
            with noted():
                store.blobs(name, some)
            with noted():
                dataset = ps.StoreDataset(store, name)
                fill(dataset, len(some))
            with noted():
                assert_like_schema(store, name, some)
        with noted():
            list(store.keys())
        with noted():
            info(store).to_json()
        with noted():
            pickle.loads(pickle.dumps(store)).close()
        with noted():
            ps.index(store)
    ps.verify(pack)
    assert all(isinstance(error, ArgumentError) or error.where["store"] == f"lmdb://{pack}" for error in errors)
    "".join(map(str, errors)).encode()
    return errors


def fill(dataset: ps.StoreDataset, count: int) -> Any:
    """The first samples as one array, by the fast path; None if there is none."""
    spec = dataset.spec()
    if spec is None or spec.nbytes > 1000:
        return None
    out, indices = np.zeros((count, *spec.shape), spec.dtype), np.arange(count)
    dataset.fill(indices, out, SampleKeys(0, 0, indices))
    return out


def assert_like_schema(store: LmdbStore, name: str, indices: range) -> None:
    """What is read has the type that the schema says."""
    field = store.schema[name]
    types: dict[str, Any] = {"label": int, "int": int, "float": float, "text": str}
    for index in indices:
        value: Any = store.read([index])[0].fields[name]
        if value is None and not field.is_blob:
            continue
        assert type(value) is types.get(field.kind, memoryview if field.is_blob else np.ndarray)
        if field.kind == "boxes":
            assert value.ndim == 2
            assert value.shape[1] == 4
