"""Packs in a store of S3's protocol, behind a network that fails at random, and in processes that are killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import penstock as ps
from penstock.errors import StoreError, StoreNotFoundError
from penstock.stores.remote import mirror as mirrors
from penstock.stores.remote import object_store as places
from penstock.stores.remote import opening as openings
from tests.photographs import write_photographs
from tests.servers.s3_server import S3Server, build, serving
from tests.stores.lmdb_pack.packs import make_pack

pytest.importorskip("obstore")
pytestmark = pytest.mark.slow

FAULTS = {"503": 0.05, "429": 0.05, "reset": 0.05, "short": 0.05, "wrong": 0.05, "repeat": 0.03, "html": 0.02}

READER = """
import json, sys
import numpy as np, xxhash
import penstock as ps
from penstock.stores.remote import object_store as place
place._WAIT = (0.001, 0.01)
place._MAX_ATTEMPTS = 40
url, cache, size, options, seed = sys.argv[1:]
store = ps.open(url, cache=cache, cache_size=size, storage_options=json.loads(options))
order = np.random.default_rng(int(seed)).permutation(len(store))
for begin in range(0, len(order), 16):
    store.prefetch(order[begin + 16 : begin + 32])
    for record in store.read(order[begin : begin + 16]):
        print(record.key, xxhash.xxh3_64_hexdigest(record.fields["image"]), flush=True)
"""

WRITER = """
import json, sys
import penstock as ps
from penstock.stores.remote import object_store, upload, writable_place
object_store._WAIT = (0.001, 0.01)
object_store._MAX_ATTEMPTS = upload._MAX_ATTEMPTS = 40
upload._PART_NBYTES = writable_place._PART_NBYTES = 1 << 14
what, src, dst, options = sys.argv[1:]
options = json.loads(options)
if what == "pack":
    ps.pack(src, dst, shard_size="200KB", workers=1, storage_options=options)
else:
    ps.copy(src, dst, storage_options=options)
"""


@pytest.fixture(scope="module")
def program() -> Path:
    """The server's program."""
    found = build()
    if found is None:
        pytest.skip("the server cannot be built here")
    return found


@pytest.fixture
def server(program: Path, tmp_path: Path) -> Iterator[S3Server]:
    """A server with one pack of 400 records in one bucket."""
    make_pack(tmp_path / "buckets" / "bucket" / "photos.lmdb", 400)
    with serving(program, tmp_path / "buckets") as found:
        yield found


def hashes(path: Path) -> dict[str, str]:
    """The hash of the picture of each record, by key."""
    with ps.open(path) as store:
        return {record.key: xxhash.xxh3_64_hexdigest(record.fields["image"]) for record in store}


def test_ten_thousand_faults_change_nothing(server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every record is right in each epoch, with a cache for a part of the pack; so is what the cache holds."""
    monkeypatch.setattr(places, "_WAIT", (0.0005, 0.002))
    monkeypatch.setattr(places, "_MAX_ATTEMPTS", 40)
    monkeypatch.setattr(mirrors, "_MAX_ATTEMPTS", 40)
    monkeypatch.setattr(openings, "_MAX_ATTEMPTS", 40)
    monkeypatch.setattr(mirrors, "PART_NBYTES", 1)  # one request for each record
    expected = hashes(server.root / "bucket" / "photos.lmdb")
    server.set_faults(seed=1, jitter_ms=2, **{kind: 2 * part for kind, part in FAULTS.items()})
    generator = np.random.default_rng(0)
    with ps.open(
        "s3://bucket/photos.lmdb", storage_options=server.options, cache=tmp_path / "cache", cache_size="600KB"
    ) as store:
        while sum(server.count()["faults"].values()) < 10_000:
            order = generator.permutation(len(store))
            store.prefetch(order)
            for record in store.read(order):
                assert xxhash.xxh3_64_hexdigest(record.fields["image"]) == expected[record.key]
    check_cache(tmp_path / "cache", server.root / "bucket" / "photos.lmdb" / "data.mdb")


def check_cache(cache: Path, original: Path) -> None:
    """Every page that counts as there is the original's."""
    (file,) = cache.rglob("data.mdb")
    held, table = file.read_bytes(), np.frombuffer(Path(f"{file}.pages").read_bytes(), "<u8")
    content, there = original.read_bytes(), 0
    for page in np.flatnonzero(table).tolist():
        part = held[page * 4096 : (page + 1) * 4096]
        if xxhash.xxh3_64_intdigest(part) == table[page]:
            assert part == content[page * 4096 : (page + 1) * 4096], page
            there += 1
    assert there > 0


def test_processes_and_servers_are_killed(server: S3Server, tmp_path: Path) -> None:
    """Three processes share a cache, and one of them, or the server, is killed at random moments; then all is read."""
    expected = hashes(server.root / "bucket" / "photos.lmdb")
    chance = random.Random(0)

    def start(seed: int, faults: dict[str, float]) -> subprocess.Popen[str]:
        server.set_faults(seed=seed, jitter_ms=5, **faults)
        options = json.dumps(server.options)
        command = [
            sys.executable,
            "-c",
            READER,
            "s3://bucket/photos.lmdb",
            str(tmp_path / "cache"),
            "10MB",
            options,
            str(seed),
        ]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    for turn in range(8):
        readers = [start(3 * turn + number, FAULTS) for number in range(3)]
        time.sleep(chance.uniform(0.5, 1.5))
        readers[0].kill()
        if turn % 4 == 3:
            server.kill()
            for reader in readers:
                reader.kill()
            server.start()
        for number, reader in enumerate(readers):
            printed, said = reader.communicate(timeout=120)
            lines = [line.rsplit(" ", 1) for line in printed.splitlines(keepends=True) if line.endswith("\n")]
            assert all(expected[key] == digest.strip() for key, digest in lines), said
            assert number == 0 or turn % 4 == 3 or len(lines) == len(expected), said
        if turn == 5:
            shutil.rmtree(tmp_path / "cache")
    check_cache(tmp_path / "cache", server.root / "bucket" / "photos.lmdb" / "data.mdb")


@pytest.mark.parametrize("what", ["pack", "up", "across", "down"])
def test_writers_are_killed_on_a_faulty_network(server: S3Server, tmp_path: Path, what: str) -> None:
    """After random numbers of requests: in the end, the bytes of one run without faults are there, and no more."""
    photographs = write_photographs(tmp_path / "photographs", per_class=4)
    ps.pack(photographs, tmp_path / "expected.lmdb", shard_size="200KB")
    ps.copy(tmp_path / "expected.lmdb", "s3://bucket/source.lmdb", storage_options=server.options)
    source = {"pack": photographs, "up": tmp_path / "expected.lmdb"}.get(what, "s3://bucket/source.lmdb")
    target = tmp_path / "down.lmdb" if what == "down" else "s3://bucket/target.lmdb"
    arguments = [what, str(source), str(target), json.dumps(server.options)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    chance, kills = random.Random(0), 0

    def start(seed: int) -> subprocess.Popen[bytes]:
        server.set_faults(seed=seed, jitter_ms=20, **FAULTS)
        return subprocess.Popen([sys.executable, "-c", WRITER, *arguments], env=environment)

    for turn in range(12):
        requests = chance.randrange(1, 30)
        writer = start(turn)
        while writer.poll() is None and server.count()["requests"] < requests:
            time.sleep(0.002)
        writer.kill()
        kills += writer.wait() == -signal.SIGKILL
    assert start(100).wait(timeout=300) == 0

    server.set_faults()
    folder = tmp_path / "down.lmdb" if what == "down" else server.root / "bucket" / "target.lmdb"
    assert read_files(folder) == read_files(tmp_path / "expected.lmdb")
    assert kills > 5
    assert not list(tmp_path.glob("*.partial"))
    assert not list((tmp_path / "cache" / "penstock" / "uploads").glob("*"))


def read_files(folder: Path) -> dict[str, bytes]:
    """The bytes of each file below a folder, by name."""
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def test_what_is_wrong_with_a_bucket_is_said_at_once(server: S3Server, tmp_path: Path) -> None:
    """No bucket, no object, wrong keys, no permission: one sentence each, without a secret."""
    options: dict[str, Any] = {"storage_options": server.options, "cache": tmp_path / "cache"}
    with pytest.raises(StoreNotFoundError, match="there is no bucket 'nowhere'"):
        ps.open("s3://nowhere/photos.lmdb", **options)
    with pytest.raises(StoreNotFoundError, match="no object at this URL, and none below it"):
        ps.open("s3://bucket/other.lmdb", **options)
    wrong = {**server.options, "secret_access_key": "sesame"}
    with pytest.raises(StoreError, match="reading is not allowed") as caught:
        ps.open("s3://bucket/photos.lmdb", storage_options=wrong)
    assert "sesame" not in str(caught.value)
    server.set_faults(**{"403": 1.0})
    with pytest.raises(StoreError, match="reading is not allowed"):
        ps.open("s3://bucket/photos.lmdb", **options)
