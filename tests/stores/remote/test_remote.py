"""Stores behind a web server: equal to the same files on this machine, whatever the network does."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import penstock as ps
from penstock import _native
from penstock import transforms as T
from penstock.errors import ArgumentError, PenstockError, StoreError, StoreNotFoundError
from penstock.stores.lmdb_pack.store import LmdbStore
from penstock.stores.remote import cache as cache_folders
from penstock.stores.remote import object_store as places
from penstock.stores.remote import request_queue
from penstock.stores.remote.cache import CacheFolder, parse_size
from penstock.stores.remote.object_store import Place
from penstock.stores.remote.storage_client import StorageOptions
from tests.conformance import lmdb_layouts
from tests.photographs import write_photographs
from tests.servers.web import WebServer, serving
from tests.stores import written
from tests.stores.lmdb_pack.packs import make_pack
from tests.stores.lmdb_pack.patches import make_patches

if TYPE_CHECKING:
    from penstock.stores.base import Store

pytest.importorskip("obstore")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    """A server of the folder ``served``; waits between attempts are short."""
    monkeypatch.setattr(places, "_WAIT", (0.001, 0.002))
    (tmp_path / "served").mkdir()
    with serving(tmp_path / "served") as found:
        make_pack(found.root / "photos.lmdb", 120)
        yield found


def open_remote(server: WebServer, name: str, **options: Any) -> Store:
    """The store at a name on the server, with a cache of the test's own."""
    return ps.open(f"{server.url}/{name}", **{"cache": server.root.parent / "cache", **options})


def wait_until_quiet() -> None:
    """What was announced has come."""
    fetcher, limit = request_queue.get_fetcher(), time.monotonic() + 60
    while fetcher._waiting or fetcher._idle < fetcher._threads:
        assert time.monotonic() < limit, "what was announced has not come"
        time.sleep(0.001)


def content(store: Store, indices: list[int] | None = None) -> list[tuple[str, dict[str, object]]]:
    """Keys and fields of records, by default of all."""
    records = store.read(range(len(store)) if indices is None else indices)
    return [(r.key, {k: bytes(v) if isinstance(v, memoryview) else v for k, v in r.fields.items()}) for r in records]


def test_a_pack_is_read_by_ranges_and_is_equal_to_its_files(server: WebServer) -> None:
    """Records in any order, one or many, keys, columns; of a record's pages alone what was not read before."""
    local = ps.open(server.root / "photos.lmdb")
    with open_remote(server, "photos.lmdb") as store:
        assert store.url == f"{server.url}/photos.lmdb"
        assert (store.digest(), len(store), store.schema) == (local.digest(), len(local), local.schema)
        asked = server.ranges
        order = np.random.default_rng(0).permutation(len(local)).tolist()
        assert content(store, order) == content(local, order)
        assert server.ranges > asked
        asked = server.ranges
        assert content(store) == content(local)
        assert [bytes(blob) for blob in store.blobs("image", order)] == [bytes(b) for b in local.blobs("image", order)]
        assert list(store.keys()) == list(local.keys())
        assert store.column("label").tolist() == local.column("label").tolist()
    assert server.ranges - asked <= 4  # keys and columns


def test_what_was_fetched_once_is_not_fetched_again(server: WebServer) -> None:
    """By another store, as in another process or run; the place is asked whether the pack is still the same."""
    with open_remote(server, "photos.lmdb") as store:
        expected = content(store)
    wait_until_quiet()
    before = server.ranges
    with open_remote(server, "photos.lmdb") as store:
        asked = server.ranges
        assert content(store) == expected
    assert server.ranges == asked
    assert asked - before == 7  # whether there are a file, a pack, its hashes, with their ends; or a manifest
    assert (server.root.parent / "cache").stat().st_mode & 0o777 == 0o700


def test_announced_records_are_fetched_at_once(server: WebServer) -> None:
    """``prefetch`` returns before the answers, and reading waits for them."""
    local = ps.open(server.root / "photos.lmdb")
    with open_remote(server, "photos.lmdb") as store:
        server.latency = 0.05
        order = np.random.default_rng(0).permutation(len(local))
        assert store.prefetches
        store.prefetch(order)
        assert content(store, order.tolist()) == content(local, order.tolist())


def test_few_requests_wait_for_one_another(server: WebServer) -> None:
    """Four rounds to the first records: the objects with their ends, the tree of records, its leaves, the records."""
    make_pack(server.root / "large.lmdb", 3000)
    server.latency = 0.25
    with open_remote(server, "large.lmdb") as store:
        order = np.random.default_rng(0).permutation(len(store))
        store.prefetch(order[:64])
        assert len(store.blobs("image", order[:64])) == 64
    assert server.count_rounds() <= 6  # two more where processors are busy


def test_blocks_of_small_records_are_fetched_at_once(server: WebServer) -> None:
    """Not one after the other; they are announced by loaders, too."""
    make_patches(server.root / "patches.lmdb", 6000)
    local = ps.open(server.root / "patches.lmdb")
    with open_remote(server, "patches.lmdb") as store:
        assert isinstance(store, LmdbStore)
        numbers = np.arange(0, 6000, 90)
        is_even = numbers // store.meta.block_records % 2 == 0  # neighbours would be one request
        first, rest = numbers[is_even], numbers[~is_even]
        assert store.prefetch(first)
        assert np.array_equal(list(store.pixels("image", first)), list(local.pixels("image", first)))
        assert not store.prefetch(first)
        server.held = len(server.asked) + 8
        assert np.array_equal(list(store.pixels("image", rest)), list(local.pixels("image", rest)))
    assert server.held > 0  # or fewer came before one was answered


@pytest.mark.parametrize("cache_size", [0, "500KB"])
def test_a_full_cache_is_done_without(server: WebServer, cache_size: int | str) -> None:
    """Bytes that have no place in the folder are fetched again; nothing above the limit is written."""
    local = ps.open(server.root / "photos.lmdb")
    with open_remote(server, "photos.lmdb", cache_size=cache_size) as store:
        for _ in range(2):
            store.prefetch(np.arange(len(local)))
            assert content(store) == content(local)
    used = sum(path.stat().st_blocks * 512 for path in (server.root.parent / "cache").rglob("*") if path.is_file())
    assert used <= parse_size(cache_size) + (400 << 10)  # where the records are, which is kept whatever the limit


def test_a_disk_that_is_full_is_done_without(
    server: WebServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A failing write is said once, and reading goes on."""

    def fail(*_: object) -> int:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(_native, "write_at", fail)
    with open_remote(server, "photos.lmdb") as store:
        assert content(store) == content(ps.open(server.root / "photos.lmdb"))
    assert "read without the cache: No space left" in caplog.text


@pytest.mark.parametrize("fault", ["503", "429", "500", "reset", "short", "html", "wrong"])
def test_faults_that_pass_are_not_noticed(server: WebServer, fault: str) -> None:
    """Each third answer is wrong, and every record is right; so is what is kept."""
    local = ps.open(server.root / "photos.lmdb")
    for _ in range(2):
        server.faults = ["", "", fault] * 400
        with open_remote(server, "photos.lmdb", cache_size=10**6) as store:
            assert content(store) == content(local)
    server.faults = []
    with open_remote(server, "photos.lmdb") as store:
        assert content(store) == content(local)


@pytest.mark.parametrize("damage", ["page", "table", "lost"])
def test_what_is_wrong_in_the_cache_is_fetched_again(server: WebServer, damage: str) -> None:
    """A flipped bit, a wrong hash, and a page that was never written though its hash was, as after a loss of power."""
    with open_remote(server, "photos.lmdb") as store:
        expected = content(store)
    (file,) = (server.root.parent / "cache").rglob("data.mdb")
    path = Path(f"{file}.pages") if damage == "table" else file
    held = bytearray(path.read_bytes())
    for at in range(8192 if damage != "table" else 16, len(held), 4096 if damage != "table" else 8):
        held[at : at + 8] = bytes(8) if damage == "lost" else bytes([held[at] ^ 1]) + held[at + 1 : at + 8]
    path.write_bytes(held)
    with open_remote(server, "photos.lmdb") as store:
        assert content(store) == expected


def test_a_store_that_is_replaced_is_an_error(server: WebServer) -> None:
    """Never are old and new bytes mixed; opened again, it is the new one."""
    with open_remote(server, "photos.lmdb") as store:
        first = store[3].key
        make_pack(server.root / "other.lmdb", 119)
        (server.root / "other.lmdb" / "data.mdb").replace(server.root / "photos.lmdb" / "data.mdb")
        (server.root / "other.lmdb" / "pages.xxh3").replace(server.root / "photos.lmdb" / "pages.xxh3")
        with pytest.raises(StoreError, match=r"replaced while it was open; open it again .*photos\.lmdb"):
            content(store)
        assert store[3].key == first
    with open_remote(server, "photos.lmdb") as store:
        assert content(store) == content(ps.open(server.root / "photos.lmdb"))


def test_a_store_that_stays_damaged_is_an_error(server: WebServer) -> None:
    """In bounded time, with the store."""
    path = server.root / "photos.lmdb" / "data.mdb"
    with open_remote(server, "photos.lmdb") as store:
        held, about = bytearray(path.read_bytes()), path.stat()
        held[4096 * 3 : -4096 * 8 : 512] = bytes(len(held[4096 * 3 : -4096 * 8 : 512]))
        path.write_bytes(held)
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
        with pytest.raises(StoreError, match="are not those that were written"):
            content(store)


@pytest.mark.parametrize("kind", ["tar", "recordio", "parquet", "h5", "tfrecord", "beton", "lmdb-pickle-index"])
def test_containers_of_other_programs_are_equal_to_their_files(server: WebServer, kind: str, tmp_path: Path) -> None:
    """They are fetched as a whole."""
    if kind in {"recordio", "tfrecord", "beton"}:
        path = Path(written.write_many(kind, server.root, 50))
    elif kind == "lmdb-pickle-index":
        path = Path(lmdb_layouts.make_many_pickles(server.root, 50))
    else:
        path = server.root / f"photos.{kind}"
        ps.convert(write_photographs(tmp_path / "photographs", per_class=1), path)
    for beside in (path.with_name(f"{path.name}.fields"), path / ".fields"):
        if beside.exists():
            beside.unlink() if beside.is_file() else shutil.rmtree(beside)
    local = ps.open(path)
    with open_remote(server, path.name) as store:
        assert store.kind == local.kind
        assert len(store) == len(local)
        for mine, theirs in zip(content(store), content(local), strict=True):
            assert repr(mine) == repr(theirs)


@pytest.mark.parametrize("workers", ["serial", "threads", "processes"])
def test_loaders_read_it_in_threads_and_processes(server: WebServer, tmp_path: Path, workers: str) -> None:
    """Worker processes are started by forkserver, since the client does not support fork; batches are equal."""
    ps.pack(write_photographs(tmp_path / "photographs", per_class=2), server.root / "real.lmdb")

    def batches(store: Store, workers: str, num_workers: int) -> list[object]:
        dataset = ps.StoreDataset(store, transform=[T.Decode(), T.Resize((32, 32))])
        loader = ps.DataLoader(dataset, 4, shuffle=True, seed=1, num_workers=num_workers, workers=workers)
        return [batch["image"].tolist() for batch in loader]

    with open_remote(server, "real.lmdb") as store, ps.open(server.root / "real.lmdb") as local:
        assert batches(store, workers, 2 * (workers != "serial")) == batches(local, "serial", 0)


def test_a_forked_process_says_what_to_do(server: WebServer) -> None:
    """It does not wait for threads that it does not have."""
    with open_remote(server, "photos.lmdb") as store:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                store.read(range(120))
            except StoreError as error:
                status = 0 if "forkserver" in str(error) else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0


def test_secrets_are_shown_and_pickled_nowhere(server: WebServer) -> None:
    """Neither by the store nor by its errors."""
    with open_remote(server, "photos.lmdb", storage_options={"default_headers": {"X-Key": "sesame"}}) as store:
        assert "sesame" not in repr(store) + repr(store.location) + str(store.location) + repr(store.options)
        assert b"sesame" not in pickle.dumps(store)
        again = pickle.loads(pickle.dumps(store))  # our own
        assert content(again) == content(store)
    server.faults = ["403"] * 100
    with pytest.raises(StoreError, match="not allowed") as caught:
        open_remote(
            server,
            "photos.lmdb",
            cache=server.root.parent / "other",
            storage_options={"default_headers": {"X-Key": "sesame"}},
        )
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "options", "error", "match"),
    [
        ("{}/none.lmdb", {}, StoreNotFoundError, "there is no object at this URL"),
        ("http://ann:sesame@host/p.lmdb", {}, ArgumentError, "no user and password"),
        ("{}/p.lmdb?token=sesame", {}, ArgumentError, "must have no query"),
        ("s3://", {}, ArgumentError, "scheme://bucket/path"),
        ("{}/photos.lmdb", {"cache_size": "many"}, ArgumentError, "cache_size must be a number of bytes"),
        ("{}/photos.lmdb", {"cache": 7}, ArgumentError, "cache must be the path of a folder, got int"),
        ("{}/photos.lmdb", {"storage_options": ["x"]}, ArgumentError, "must be a mapping"),
        (
            "{}/photos.lmdb",
            {"storage_options": {"region": "x"}},
            ArgumentError,
            "for a web server must be of allow_http",
        ),
        ("{}/photos.lmdb", {"chek": True}, ArgumentError, "has no option 'chek'"),
    ],
)
def test_errors_say_what_to_do(
    server: WebServer, url: str, options: dict[str, Any], error: type[PenstockError], match: str
) -> None:
    """And show no secret."""
    with pytest.raises(error, match=re.escape(match)) as caught:
        ps.open(url.format(server.url), **options)
    assert "sesame" not in str(caught.value)


def test_a_server_that_is_not_there_is_an_error_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """After few attempts, whatever the scheme, with host and port."""
    monkeypatch.setattr(places, "_WAIT", (0.001, 0.002))
    refused = r"after 4 attempts: the connection was refused \(.*http://127\.0\.0\.1:9/"
    with pytest.raises(StoreError, match=refused):
        ps.open("http://127.0.0.1:9/photos.lmdb")
    keys = {"access_key_id": "a-key", "secret_access_key": "a-secret", "region": "us-east-1"}
    with pytest.raises(StoreError, match=refused):
        ps.open("s3://b/photos.lmdb", storage_options={"endpoint": "http://127.0.0.1:9", "allow_http": True, **keys})


def test_an_answer_without_a_version_is_asked_for_again(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be the page of a proxy; a server that never states one is refused at the second answer."""
    (server.root / "data").write_bytes(bytes(10_000))
    place = Place(f"{server.url}/data", StorageOptions())
    info = place.find()
    assert info is not None
    server.has_versions = False
    monkeypatch.setattr(Place, "sleep", staticmethod(lambda _: setattr(server, "has_versions", True)))
    assert bytes(place.get("", 0, 10_000, info)) == bytes(10_000)
    server.has_versions = False
    monkeypatch.setattr(Place, "sleep", staticmethod(lambda _: None))
    before = server.ranges
    with pytest.raises(StoreError, match="neither ETag nor Last-Modified"):
        place.get("", 0, 10_000, info)
    assert server.ranges - before == 2


@pytest.mark.parametrize(("has_answered", "seconds"), [(False, 1), (True, 55), (True, 65)])
def test_a_server_that_restarts_is_waited_for_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, has_answered: bool, seconds: int
) -> None:
    """Where it has answered before: a load balancer is gone for longer than eight attempts take."""
    now, attempts = [0.0], 0

    def pass_time(wait: float) -> None:
        now[0] += wait

    def call(_: object) -> str:
        nonlocal attempts
        attempts += 1
        if now[0] < seconds or not has_answered:
            raise ConnectionRefusedError(111, "Connection refused")
        return "answer"

    monkeypatch.setattr(Place, "clock", staticmethod(lambda: now[0]))
    monkeypatch.setattr(Place, "sleep", staticmethod(pass_time))
    options = pickle.loads(pickle.dumps(StorageOptions(has_answered=has_answered)))  # our own, as for a worker
    place = Place("http://127.0.0.1:9/x", options)
    if has_answered and seconds < 60:
        assert place._repeat("", call) == "answer"
        assert attempts > 8
    else:
        with pytest.raises(StoreError, match=r"after \d+ attempts: .*Connection refused"):
            place._repeat("", call)
        assert (attempts == 4) is not has_answered
        assert (now[0] < 2) is not has_answered
    assert now[0] < 60
    assert caplog.messages == ["http://127.0.0.1:9/x: the connection is refused, and is tried again"]


@pytest.mark.parametrize("host", ["169.254.169.254", "metadata.google.internal"])
def test_a_place_without_credentials_is_said_at_the_first_attempt(host: str) -> None:
    """Where the library finds none it asks the machine's role, whose server does not exist elsewhere."""
    place = Place("http://127.0.0.1:9/x", StorageOptions())

    def call(_: object) -> None:
        raise OSError(f"Error performing PUT http://{host}/latest/api/token in 10s - HTTP error: error sending request")

    asked = re.escape(f"PUT http://{host}/latest/api/token in 10s - HTTP error: error sending request")
    with pytest.raises(StoreError, match=rf"no credentials were found: not in storage_options=.* failed \(.*{asked}\)"):
        place._repeat("", call)
    assert place.requests == 1


def test_options_of_places_are_for_urls(tmp_path: Path) -> None:
    """Of a store on this machine they are unknown."""
    make_pack(tmp_path / "p.lmdb", 3)
    with pytest.raises(ArgumentError, match="has no option 'cache'"):
        ps.open(tmp_path / "p.lmdb", cache="x")


def test_old_copies_of_other_stores_make_room(tmp_path: Path) -> None:
    """Those that nobody has opened for a day; no others."""
    cache = CacheFolder(tmp_path / "cache", 100_000)
    old, new = cache.make_folder("http://a", "1"), cache.make_folder("http://b", "1")
    mine = cache.make_folder("http://c", "1")
    for folder in (old, new):
        (folder / "data").write_bytes(bytes(40_000))
    os.utime(old / "about.json", (0, 0))
    assert cache.admit(30_000, mine)
    assert not old.exists()
    assert new.exists()
    assert not cache.admit(90_000, mine)


def test_shards_count_their_cache_folder_once(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is measured for all of them together, so that they have one limit; not again for each."""
    photographs = write_photographs(server.root.parent / "photographs", per_class=4)
    ps.pack(photographs, server.root / "sharded.lmdb", shard_size="200KB")
    measured: list[Path] = []

    def measure(folder: Path) -> int:
        measured.append(folder)
        return 0

    monkeypatch.setattr(cache_folders, "_measure", measure)
    monkeypatch.setattr(cache_folders, "_COUNT_SECONDS", 1e9)
    with open_remote(server, "sharded.lmdb") as store:
        content(store)
        assert len(list((server.root / "sharded.lmdb").glob("*.lmdb"))) > 3
    assert len(measured) == 1


def test_opening_a_store_of_this_machine_imports_nothing_remote(tmp_path: Path) -> None:
    """Neither the client nor our modules."""
    make_pack(tmp_path / "p.lmdb", 3)
    modules = ["obstore", "penstock.stores.remote"]
    code = f"import sys, penstock; penstock.open(sys.argv[1]); print([m in sys.modules for m in {modules}])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "p.lmdb")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[False, False]"
