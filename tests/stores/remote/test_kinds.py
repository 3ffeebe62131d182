"""Containers of other programs in object storage: only the bytes of the records that are asked for are fetched."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import penstock as ps
from penstock import _native
from penstock.errors import CorruptRecordError, StoreError
from penstock.stores.base import Store
from penstock.stores.remote import object_store as places
from penstock.stores.remote.opening import RemoteObjects
from penstock.stores.remote.sparse_file import PAGE_NBYTES, Pages
from penstock.stores.tfrecord.store import TFRecordStore
from tests.conformance import lmdb_layouts
from tests.conformance.store_makers import write_many
from tests.photographs import write_photographs
from tests.servers.web import WebServer, serving
from tests.stores import written
from tests.stores.remote.test_remote import content

pytest.importorskip("obstore")

COUNT, NBYTES = 1000, 16 << 10
SUFFIXES: Final = {
    "hdf5": ".h5", "tar": ".tar", "parquet": ".parquet",
}  # fmt: skip
"""Of the kinds that are written by their own writer."""
LAYOUTS: Final = {
    "lmdb-pickle-index": lmdb_layouts.make_many_pickles,
    "lmdb-names": lmdb_layouts.make_many_names,
}
KINDS: Final = [*SUFFIXES, *LAYOUTS, "recordio", "tfrecord", "mds", "litdata", "beton"]
UNCHECKED: Final = {"hdf5", "beton", "lmdb-names"}
"""Kinds whose images have no checksum, and are in the first bytes that are fetched."""
SHARES: Final = {"parquet": 0.6}
"""The most that may be fetched for five records: a page of Parquet has a megabyte, of 16."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    """A server with a bucket; waits between attempts are short."""
    monkeypatch.setattr(places, "_WAIT", (0.001, 0.002))
    (tmp_path / "served" / "bucket").mkdir(parents=True)
    with serving(tmp_path / "served") as found:
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)
        yield found


def write(server: WebServer, kind: str, count: int = COUNT, nbytes: int = NBYTES) -> Path:
    """A store of large records in the bucket; with the index that is made when it is opened there."""
    folder = server.root / "bucket"
    if kind in SUFFIXES:
        path = write_many(kind, folder / f"many{SUFFIXES[kind]}", count, nbytes)
    elif kind in LAYOUTS:
        path = LAYOUTS[kind](folder, count, nbytes)
    else:
        path = written.write_many(kind, folder, count, nbytes)
    return Path(path)


def options_of(path: Path) -> Mapping[str, Any]:
    """How a store is opened: only names need to be told what their arrays are."""
    return lmdb_layouts.NAMES if path.name.endswith(".names.lmdb") else {}


def open_remote(server: WebServer, path: Path, **options: Any) -> Store:
    """The store in the bucket, with a cache of the test's own."""
    return ps.open(f"s3://bucket/{path.name}", **{"cache": server.root.parent / "cache", **options_of(path), **options})


def count_bytes(path: Path) -> int:
    """The bytes of a file, or of all files in a folder."""
    return sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())


@pytest.mark.parametrize("kind", KINDS)
def test_five_records_of_a_thousand_are_few_bytes(server: WebServer, kind: str) -> None:
    """Opening included; one record after another, or several at once."""
    path = write(server, kind)
    local = ps.open(path, **options_of(path))
    with open_remote(server, path) as store:
        assert store.kind == local.kind == kind
        assert content(store, [3, 999]) == content(local, [3, 999])
        assert content(store, [500]) == content(local, [500])
        assert [bytes(b) for b in store.blobs("image", [250, 777])] == [
            bytes(b) for b in local.blobs("image", [250, 777])
        ]
    assert server.sent_nbytes < SHARES.get(kind, 0.15) * count_bytes(path)


@pytest.mark.parametrize(
    ("kind", "cache_size"), [*((kind, "1GB" if n % 2 else 0) for n, kind in enumerate(KINDS)), ("parquet", 0)]
)
def test_records_that_are_announced_are_fetched_once(server: WebServer, kind: str, cache_size: int | str) -> None:
    """In any order, with and without a cache; what says where they are is fetched, too."""
    path = write(server, kind, 200)
    local = ps.open(path, **options_of(path))
    order = np.random.default_rng(0).permutation(200)
    with open_remote(server, path, cache_size=cache_size) as store:
        assert store.prefetches
        server.latency = 0.005
        for first in range(0, 200, 50):
            store.prefetch(order[first : first + 50])
        for index in order.tolist():
            assert content(store, [index]) == content(local, [index])
    assert server.sent_nbytes < 2 * count_bytes(path) or (kind == "parquet" and not cache_size)


@pytest.mark.parametrize(("kind", "cache_size"), [(kind, "1GB" if n % 2 else 0) for n, kind in enumerate(KINDS)])
def test_a_range_that_comes_wrong_once_is_fetched_again(server: WebServer, kind: str, cache_size: int | str) -> None:
    """Whichever it is of those that opening and reading ask for; no error, and right values where the kind checks."""
    path = write(server, kind, 40, 5000)
    with ps.open(path, **options_of(path)) as local:
        expected, keys = content(local), list(local.keys())
    open_remote(server, path, cache=server.root.parent / "first", cache_size=cache_size).close()
    asked = {(path, given) for method, path, given in server.asked if method == "GET"}
    for number, each in enumerate(sorted(asked)):
        server.damaged = {each} if (server.root / each[0][1:]).is_file() else set()
        with open_remote(server, path, cache=server.root.parent / f"{number}", cache_size=cache_size) as store:
            found = content(store)
            assert found == expected or kind in UNCHECKED
            assert list(store.keys()) == keys
        assert not server.damaged


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_earlier_run_kept_wrong_is_fetched_again(server: WebServer, kind: str) -> None:
    """Pages at both ends, which have the hashes of the cache: what says there where the record is, is not believed."""
    path = write(server, kind, 40, 5000)
    with ps.open(path, **options_of(path)) as local:
        expected = content(local, [20])
    with open_remote(server, path) as store:
        store.read(range(len(store)))
        source = store.location.remote
        assert isinstance(source, RemoteObjects)
        for mirror in source.mirrors:
            for begin in {0, (mirror.nbytes - 1) // PAGE_NBYTES * PAGE_NBYTES}:
                wrong = memoryview(
                    bytes(byte ^ 255 for byte in mirror.read(begin, min(PAGE_NBYTES, mirror.nbytes - begin)))
                )
                mirror._file.add([Pages(begin, wrong, _native.hash_pages(wrong, PAGE_NBYTES))])
    with open_remote(server, path) as store:
        assert store.kind == kind
        assert content(store, [20]) == expected


@pytest.mark.parametrize("is_cached", [False, True])
def test_a_record_that_stays_damaged_is_fetched_a_few_times(server: WebServer, is_cached: bool) -> None:
    """Then it is an error each time, and nothing more is fetched; records beside it are read."""
    path = write(server, "tfrecord", 200)
    whole, about = path.read_bytes(), path.stat()
    with ps.open(path) as local:
        expected = content(local, [99, 101])
        assert isinstance(local, TFRecordStore)
        ((_, at, _),) = local.ranges_of(local.get_opened(), [100])
    path.write_bytes(whole[:at] + b"\xff" * 30 + whole[at + 30 :])
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    if is_cached:
        with open_remote(server, path) as store, pytest.raises(CorruptRecordError):
            store.read([100])
    with open_remote(server, path) as store:
        with pytest.raises(CorruptRecordError, match="record 100 is damaged") as caught:
            store.read([99, 100, 101])
        assert caught.value.where["index"] == 100
        asked = len(server.asked)
        with pytest.raises(CorruptRecordError):
            store.read([100])
        assert len(server.asked) == asked
        assert content(store, [99, 101]) == expected


@pytest.mark.parametrize("moment", ["opened", "read", "between"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_that_is_deleted_is_done_without(server: WebServer, kind: str, moment: str) -> None:
    """Before or after the first record is read, or between two runs; another store may make the folder again."""
    path, cache = write(server, kind, 60, 5000), server.root.parent / "cache"
    local = ps.open(path, **options_of(path))
    with open_remote(server, path) as store:
        if moment != "opened":
            assert content(store, [3]) == content(local, [3])
        shutil.rmtree(cache)
        if moment != "between":
            assert content(store) == content(local)
            assert list(store.keys()) == list(local.keys())
            assert store.column("label").tolist() == local.column("label").tolist()
        with open_remote(server, path) as other:
            assert content(other) == content(local)
        assert content(store) == content(local)


@pytest.mark.parametrize("kind", ["tar", "lmdb-names", "images"])
def test_a_cache_on_a_disk_that_is_read_only_is_named(
    server: WebServer, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As what is wrong, and not the store; also where all its bytes are there."""
    path, cache = server.root / "bucket" / "many", server.root.parent / "cache"
    path = write_photographs(path, per_class=2) if kind == "images" else write(server, kind, 20, 5000)
    with open_remote(server, path) as store:
        content(store)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "utime", refuse)
    with pytest.raises(
        StoreError, match=r"cannot be written \(Read-only file system\); cache= names another"
    ) as caught:
        open_remote(server, path)
    assert f"the cache folder {cache}" in caught.value.message


@pytest.mark.parametrize("kind", KINDS)
def test_columns_and_keys_are_those_of_the_files(server: WebServer, kind: str) -> None:
    """Labels are read ahead in blocks of records, where the format has no column of them."""
    path = write(server, kind, 600, 5000)
    local = ps.open(path, **options_of(path))
    with open_remote(server, path) as store:
        assert store.column("label").tolist() == local.column("label").tolist()
        assert list(store.keys()) == list(local.keys())
        assert store.fingerprint() == local.fingerprint()


@pytest.mark.parametrize(
    ("kind", "index"),
    [("tar", "none"), ("tar", "stale"), ("tfrecord", "none"), ("tfrecord", "stale"), ("recordio", "none")],
)
def test_a_container_without_its_index_is_scanned(server: WebServer, kind: str, index: str) -> None:
    """An index of another container is none; for RecordIO, the ``.idx`` file suffices."""
    path = write(server, kind, 200)
    with ps.open(path, **options_of(path)) as local:
        expected = content(local)
    beside = path.with_name(f"{path.name}.index.npz")
    beside.unlink()
    if index == "stale":
        other = path.rename(path.with_name("other"))
        ps.open(write(server, kind, 100)).close()
        other.rename(path)
    with open_remote(server, path) as store:
        assert content(store) == expected
        assert store.digest() == open_remote(server, path).digest()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in {"mds", "litdata"}])
def test_an_object_that_is_cut_is_an_error_that_names_it(server: WebServer, kind: str) -> None:
    """When it is opened, or by its versions when it is read."""
    path = write(server, kind, 200)
    ps.open(path, **options_of(path)).close()  # which makes the index
    file = path / "data.mdb" if path.is_dir() else path
    with open_remote(server, path) as store:
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(StoreError, match=r"replaced while it was open; open it again .*s3://bucket/many"):
            store.read(range(200))
    cache = server.root.parent / "cache"
    with pytest.raises(StoreError, match=r"s3://bucket/many") as caught:
        ps.open(f"s3://bucket/{path.name}", cache=cache).read(range(200))
    assert str(cache) not in str(caught.value)


def test_a_shard_that_is_missing_is_an_error_that_names_it(server: WebServer) -> None:
    """When the store is opened."""
    path = write(server, "mds", 50)
    (path / "shard.00000.mds").unlink()
    with pytest.raises(StoreError, match=r"shard\.00000\.mds .*s3://bucket/many\.mds"):
        open_remote(server, path)


@pytest.mark.parametrize(
    ("context", "kind"), [("forkserver", "mds"), ("forkserver", "parquet"), ("forkserver", "tar"), ("spawn", "mds")]
)
def test_worker_processes_read_them(server: WebServer, kind: str, context: str) -> None:
    """They open the store again, with the cache of the parent."""
    path = write(server, kind, 60)
    with open_remote(server, path) as store, ps.open(path, **options_of(path)) as local:
        expected = sorted(len(bytes(record.fields["image"])) for record in local)
        dataset = ps.StoreDataset(store)
        loader = ps.DataLoader(
            dataset, 10, num_workers=2, workers="processes", multiprocessing_context=context, collate_fn=list
        )
        assert sorted(len(bytes(sample["image"])) for batch in loader for sample in batch) == expected
