"""Sharded packs: the records of a plain pack, whatever shard they are in; shards are opened when they are needed."""

from __future__ import annotations

import json
import pickle
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import penstock as ps
from penstock.errors import CorruptRecordError, StoreError, StoreFormatError, StoreNotFoundError
from penstock.pixel_rows import EncodedRows, PixelRows
from penstock.sample import Field, Schema
from penstock.stores.base import Store
from penstock.stores.lmdb_pack.manifest import PackManifest, ShardColumns
from penstock.stores.lmdb_pack.sharded import ShardedPack
from penstock.stores.lmdb_pack.sharded_writer import ShardedWriter
from penstock.stores.lmdb_pack.store import LmdbStore
from penstock.stores.lmdb_pack.writer import LmdbWriter
from penstock.stores.location import Location
from tests.servers import s3_server
from tests.servers.web import WebServer, serving
from tests.stores.lmdb_pack.packs import SCHEMA, fields, key, make_pack

COUNT = 60
BLOCKS = Schema({"image": Field("pixels:uint8[30,24,3]"), "box": Field("float32[4]"), "label": Field("label")})
"""Records of one size, which are stored in blocks."""


def block_fields(index: int) -> dict[str, Any]:
    """The fields of record ``index`` of blocks."""
    rng = np.random.default_rng(index)
    return {"image": rng.integers(0, 256, (30, 24, 3), np.uint8), "box": rng.random(4, np.float32), "label": index % 5}


def make_sharded(
    path: Path,
    count: int = COUNT,
    *,
    shard_nbytes: int = 40_000,
    schema: Schema = SCHEMA,
    make_fields: Callable[[int], dict[str, Any]] = fields,
) -> Path:
    """A finished sharded pack."""
    writer = ShardedWriter(Location("sharded", str(path)), schema, "source", shard_nbytes=shard_nbytes)
    for index in range(count):
        writer.append(writer.prepare(key(index), make_fields(index)))
    writer.finish()
    return path


def make_blocks(folder: Path) -> tuple[Path, Path]:
    """A sharded pack of blocks, and a plain one of the same records."""
    sharded = make_sharded(folder / "sharded.lmdb", 200, shard_nbytes=100_000, schema=BLOCKS, make_fields=block_fields)
    writer = LmdbWriter(folder / "plain.lmdb", BLOCKS, "source")
    for index in range(200):
        writer.append(writer.prepare(key(index), block_fields(index)))
    writer.finish()
    return sharded, folder / "plain.lmdb"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A sharded pack of several shards."""
    return make_sharded(tmp_path / "sharded.lmdb")


def content(store: Store, indices: Any) -> list[tuple[int, str, dict[str, object]]]:
    """Indices, keys and fields of records, with bytes in place of views."""

    def plain(value: object) -> object:
        if isinstance(value, np.ndarray):
            return value.tolist()
        return bytes(value) if isinstance(value, memoryview) else value

    return [(r.index, r.key, {k: plain(v) for k, v in r.fields.items()}) for r in store.read(indices)]


def test_records_are_those_of_a_plain_pack(path: Path, tmp_path: Path) -> None:
    """In any order, repeated or not, of one shard or of several: records, blobs, columns, rows, keys."""
    plain = LmdbStore(make_pack(tmp_path / "plain.lmdb", COUNT))
    rng = np.random.default_rng(0)
    with ps.open(path) as store:
        assert isinstance(store, ShardedPack)
        assert len(store.manifest.shards.names) > 4
        assert (len(store), store.schema, list(store.keys())) == (COUNT, plain.schema, list(plain.keys()))
        first = store.manifest.shards.counts[0]
        for indices in (rng.permutation(COUNT), rng.integers(0, COUNT, 64), np.arange(first), [COUNT - 1], []):
            assert content(store, indices) == content(plain, indices)
            assert [bytes(each) for each in store.blobs("image", indices)] == [
                bytes(each) for each in plain.blobs("image", indices)
            ]
        assert isinstance(store.blobs("image", np.arange(first)), EncodedRows)
        assert store.column("label").tolist() == plain.column("label").tolist()
        found = store.rows("label", np.array([COUNT - 1, 0, 0]))
        assert found is not None
        assert found.tolist() == plain.column("label")[[COUNT - 1, 0, 0]].tolist()
        assert store.rows("image", [0]) is None


def test_blocks_are_those_of_a_plain_pack(tmp_path: Path) -> None:
    """Records of one size: pixels of one shard are views, of several one buffer; a batch is divided among shards."""
    sharded, unsharded = make_blocks(tmp_path)
    order = np.random.default_rng(1).permutation(200)
    with ps.open(sharded) as store, ps.open(unsharded) as plain:
        assert isinstance(store, ShardedPack)
        assert len(store.manifest.shards.names) > 2
        assert content(store, order) == content(plain, order)
        for indices in (order, np.arange(3)):
            pixels, wanted = store.pixels("image", indices), plain.pixels("image", indices)
            assert isinstance(pixels, PixelRows)
            assert all(np.array_equal(a, b) for a, b in zip(pixels, wanted, strict=True))
            assert not np.asarray(pixels[0]).flags.writeable
            for field in ("box", "label"):
                found = store.rows(field, indices)
                assert found is not None
                assert found.tolist() == plain.column(field)[indices].tolist()
        assert store.column("box").tolist() == plain.column("box").tolist()


def test_shards_are_opened_when_they_are_read(path: Path) -> None:
    """Length, schema and fingerprint need none; as many stay open as the limit says, and those that are read work."""
    with ShardedPack(path) as store:
        assert (len(store), bool(store.fingerprint()), repr(store) != "", len(store.opened)) == (COUNT, True, True, 0)
        store.read([0])
        assert len(store.opened) == 1
        store.opened.most = 2
        blob = store.read([0])[0].fields["image"]
        assert content(store, range(COUNT)) == content(store, range(COUNT))
        assert len(store.opened) == 2
        assert bytes(blob) == fields(0)["image"]


def test_a_loader_gives_the_batches_of_a_plain_pack(path: Path, tmp_path: Path) -> None:
    """Shuffled, by threads and processes, with labels that are read shard by shard."""
    plain = make_pack(tmp_path / "plain.lmdb", COUNT)

    def load(where: Path, workers: str) -> list[tuple[list[bytes], list[int]]]:
        dataset = ps.StoreDataset(where, fields=("image", "label"))
        loader = ps.DataLoader(dataset, 16, shuffle=True, seed=3, num_workers=2, workers=workers)
        return [([bytes(image) for image in images], labels.tolist()) for images, labels in loader]

    for workers in ("threads", "processes"):
        assert load(path, workers) == load(plain, workers)


def test_records_that_are_read_ahead_are_opened_in_threads(path: Path) -> None:
    """``prefetch`` does not wait for shards, and raises nothing; reading finds them, or raises what is wrong."""
    shutil.rmtree(path / "00001.lmdb")
    with ShardedPack(path) as store:
        begin = store.manifest.shards.counts[0]
        last = store.opened.open_ahead([len(store.manifest.shards.names) - 1])
        assert store.prefetch([0, begin, COUNT - 1]) is True
        last[0].result(60)
        assert content(store, [0, COUNT - 1])[1][:2] == (COUNT - 1, key(COUNT - 1))
        with pytest.raises(StoreNotFoundError, match=r"shard 00001\.lmdb: there is no pack"):
            store.read([begin])


def test_a_shard_of_another_pack_is_refused(path: Path, tmp_path: Path) -> None:
    """A shard that was replaced by one of other records is never read; other shards are."""
    begin = ShardedPack(path).manifest.shards.counts[0]
    shutil.rmtree(path / "00001.lmdb")
    make_pack(path / "00001.lmdb", 20)

    with ShardedPack(path) as store:
        store.read([0])
        with pytest.raises(
            StoreError, match=r"shard 00001\.lmdb: it is not the one that manifest\.json names"
        ) as raised:
            store.read([0, begin])
        assert raised.value.where["store"] == store.url
    report = ps.verify(path)
    assert [str(each) for each in report.problems] == [
        "shard 00001.lmdb: it is not the one that manifest.json names: it was replaced; open the pack again"
    ]


def test_a_damaged_record_is_named_by_its_index_in_the_whole(path: Path) -> None:
    """Reading and verifying name the shard, the key, and the index among all records."""
    with ShardedPack(path) as store:
        begin = store.manifest.shards.counts[0]
    file = path / "00001.lmdb" / "data.mdb"
    whole = bytearray(file.read_bytes())
    at = whole.index(fields(begin + 1)["image"][:64])
    whole[at] ^= 1
    file.write_bytes(whole)

    with ShardedPack(path) as store, pytest.raises(CorruptRecordError, match=r"shard 00001\.lmdb: record 1 ") as raised:
        store.read([0, begin + 1])

    assert raised.value.where == {"store": store.url, "key": key(begin + 1), "index": begin + 1}
    assert {(each.index, each.key) for each in ps.verify(path).problems} == {(begin + 1, key(begin + 1))}


def test_a_pack_that_was_replaced_is_refused_when_it_is_unpickled(path: Path) -> None:
    """A worker that opens another pack under the same path says so."""
    with ShardedPack(path) as store:
        pickled = pickle.dumps(store)
    shutil.rmtree(path)
    make_sharded(path, COUNT - 1)

    with pytest.raises(StoreError, match="changed since it was pickled"):
        pickle.loads(pickled)


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "version": (lambda entry: entry.update(version=2), "the version of manifest.json must be 1, got 2"),
    "lengths": (lambda entry: entry["shards"]["counts"].pop(), "four lists of one length"),
    "no list": (lambda entry: entry["shards"].update(counts=5), "four lists of one length"),
    "none": (lambda entry: entry["shards"].update(names=[], counts=[], contents=[], nbytes=[]), "its shards are not"),
    "text": (lambda entry: entry["shards"]["counts"].__setitem__(0, "5"), "the counts of its shards must be int"),
    "bool": (lambda entry: entry["shards"]["nbytes"].__setitem__(0, True), "the nbytes of its shards must be int"),
    "negative": (lambda entry: entry["shards"]["counts"].__setitem__(0, -5), "counts of its shards must be numbers"),
    "huge": (lambda entry: entry["shards"]["counts"].__setitem__(0, 1 << 70), "counts of its shards must be numbers"),
    "above": (lambda entry: entry["shards"]["names"].__setitem__(0, "../other.lmdb"), "must be a path below"),
    "absolute": (lambda entry: entry["shards"]["names"].__setitem__(0, "/etc"), "must be a path below"),
    "empty": (lambda entry: entry["shards"]["names"].__setitem__(0, ""), "must be a path below"),
    "zero": (lambda entry: entry["shards"]["names"].__setitem__(0, "a\0b"), "must be a path below"),
    "twice": (lambda entry: entry["shards"]["names"].__setitem__(0, "00001.lmdb"), "same content wherever"),
    "surrogate": (lambda entry: entry["shards"]["names"].__setitem__(0, "\ud800"), "codec can't encode"),
    "records": (lambda entry: entry.update(records=1), "its shards are not those of its records"),
    "content": (lambda entry: entry.update(content="0"), "its shards are not those of its records"),
    "schema": (lambda entry: entry.update(schema=[]), "schema"),
    "skipped": (lambda entry: entry.update(skipped=[1]), "skipped must be a list of pairs"),
    "source": (lambda entry: entry.update(source=None), "source must be a text"),
    "absent": (lambda entry: entry.pop("shards"), "shards"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_wrong_manifest_is_refused(path: Path, name: str) -> None:
    """Whatever is wrong in it, with a checksum that fits: one error that names the file, when the pack is opened."""
    change, message = CHANGES[name]
    entry = json.loads((path / "manifest.json").read_text())
    del entry["checksum"]
    change(entry)
    entry["checksum"] = xxhash.xxh3_128_hexdigest(json.dumps(entry).encode())
    (path / "manifest.json").write_text(json.dumps(entry))

    with pytest.raises(StoreFormatError, match=message) as raised:
        ps.open(path)

    assert "manifest.json" in raised.value.message
    assert "\n" not in raised.value.message
    assert not ps.verify(path).ok


def test_the_checksum_of_the_manifest_is_compared(path: Path) -> None:
    """A class of another name is not read."""
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text.replace('"dog"', '"cow"'))

    with pytest.raises(StoreFormatError, match=r"manifest\.json is damaged: its checksum does not match"):
        ps.open(path)


def test_a_manifest_of_another_program_is_no_sharded_pack(tmp_path: Path) -> None:
    """A folder of images may have a file of that name."""
    folder = tmp_path / "photos" / "cat"
    folder.mkdir(parents=True)
    (folder / "a.jpg").write_bytes(b"\xff\xd8\xff\xd9")
    (tmp_path / "photos" / "manifest.json").write_text("{}")

    with ps.open(tmp_path / "photos") as store:
        assert (store.kind, len(store)) == ("files", 1)


@pytest.fixture
def simulated(tmp_path: Path) -> Path:
    """A manifest of 10^9 records: 100,000 names of one small pack of 10,000 records, without blobs to speak of."""
    folder = tmp_path / "simulated.lmdb"
    schema = Schema({"image": Field("bytes"), "label": Field("label")})
    writer = LmdbWriter(folder / "part.lmdb", schema, "source")
    names = [str(index) for index in range(10_000)]
    writer.append_batch(writer.prepare_batch(names, {"image": [b"x"] * 10_000, "label": list(range(10_000))}))
    writer.finish()
    with LmdbStore(folder / "part.lmdb") as part:
        meta = part.meta
    shards = ShardColumns()
    for _ in range(100_000):
        shards.append("part.lmdb", meta.count, meta.content, meta.nbytes)
    PackManifest(schema, shards).write(folder / "manifest.json")
    return folder


def test_a_run_is_resumed_at_the_end_of_a_billion_records(simulated: Path) -> None:
    """The order is computed, labels are read shard by shard, and one pack is opened: nothing grows with the records."""

    def make_loader() -> tuple[ShardedPack, ps.DataLoader]:
        store = ShardedPack(simulated)
        dataset = ps.StoreDataset(store, fields=("image", "label"))
        return store, ps.DataLoader(dataset, 100, shuffle=True, seed=5, num_workers=0)

    store, loader = make_loader()
    assert len(store) == 10**9
    order = ps.RandomSampler(range(10**9), seed=5).order(10**9 - 1000, 10**9)
    state = loader.state_dict()
    loader.load_state_dict({**state, "batches": 10**7 - 10, "samples": 10**9 - 1000})

    labels = np.concatenate([labels for _, labels in loader])

    assert labels.tolist() == (order % 10_000).tolist()
    assert len(store.opened) == 1
    assert store._columns == {}


def read_folder(path: Path) -> dict[str, bytes]:
    """The bytes of all files below a folder."""
    return {str(each.relative_to(path)): each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file()}


def begin_writer(path: Path, **options: Any) -> ShardedWriter:
    """A writer as :func:`make_sharded` has."""
    given = {"shard_nbytes": 40_000, **options}
    return ShardedWriter(Location("sharded", str(path)), SCHEMA, "source", **given)


@pytest.mark.parametrize("stops", [[0], [13], [1, 13, 14, 27, 59], list(range(COUNT))])
def test_a_pack_that_was_interrupted_has_the_same_bytes(path: Path, tmp_path: Path, stops: list[int]) -> None:
    """Wherever its writer ends, and however often; records that were left out are in the manifest."""
    again = tmp_path / "again.lmdb"
    for stop in [*stops, COUNT]:
        writer = begin_writer(again)
        for index in range(writer.committed.consumed, stop):
            writer.append(writer.prepare(key(index), fields(index)))
        if stop == COUNT:
            writer.finish()
        else:
            writer.close()
            with pytest.raises(ps.IncompleteStoreError, match="never finished"):
                ps.open(again)

    assert read_folder(again) == read_folder(path)


class Killed(BaseException):
    """Ends a writer in the middle of a step, as a kill does."""


def test_shards_are_sent_as_they_are_finished(path: Path, tmp_path: Path) -> None:
    """Each once, then its folder is removed; the manifest is the last. A resumed writer sends what was not sent."""
    sent: dict[str, bytes] = {}
    names: list[str] = []

    def send(each: Path, name: str) -> None:
        names.append(name)
        if name == "00002.lmdb" and names.count(name) == 1:
            raise Killed
        sent.update(
            {name: each.read_bytes()} if each.is_file() else {f"{name}/{k}": v for k, v in read_folder(each).items()}
        )

    again = tmp_path / "again.lmdb"
    for _ in range(2):
        writer = begin_writer(again, send=send)
        try:
            for index in range(writer.committed.consumed, COUNT):
                writer.append(writer.prepare(key(index), fields(index)))
            writer.finish()
        except Killed:
            writer.close()
            assert [each.name for each in again.glob("*.lmdb")] == ["00002.lmdb"]

    shards = ShardedPack(path).manifest.shards.names
    assert names == [*shards[:3], *shards[2:], "manifest.json"]
    assert sent == read_folder(path)
    assert [each.name for each in again.iterdir()] == ["manifest.json"]


def test_records_that_are_left_out_are_in_the_manifest(tmp_path: Path) -> None:
    """Those of each shard, and those after the last record, in order."""
    path = tmp_path / "sharded.lmdb"
    writer = begin_writer(path)
    counts = ShardedPack(make_sharded(tmp_path / "other.lmdb")).manifest.shards.counts
    end = counts[0] + counts[1]
    for index in range(end):
        if index in (0, counts[0]):
            writer.skip(ps.stores.base.Skipped(f"before {index}", "no image"))
        writer.append(writer.prepare(key(index), fields(index)))
    writer.skip(ps.stores.base.Skipped("last", "no image"))
    writer.finish([ps.stores.base.Skipped("README", "no image")])

    with ShardedPack(path) as store:
        assert [each.key for each in store.skipped] == ["before 0", f"before {counts[0]}", "last", "README"]
        assert store.manifest.shards.counts == counts[:2]


def test_what_is_there_is_not_replaced_without_overwrite(path: Path, tmp_path: Path) -> None:
    """A finished pack, an unfinished one of another source or shard size, other files; two writers at once."""
    with pytest.raises(ps.ArgumentError, match=r"finished pack of 60 records; overwrite=True"):
        begin_writer(path)
    unfinished = tmp_path / "unfinished.lmdb"
    writer = begin_writer(unfinished)
    with pytest.raises(StoreError, match="another process is writing here"):
        begin_writer(unfinished)
    writer.close()
    with pytest.raises(StoreError, match=r"it was written with the options \{'shard_nbytes': 40000\}"):
        begin_writer(unfinished, shard_nbytes=5)
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    (other / "00000.lmdb").mkdir()
    (other / "00000.lmdb" / "notes.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(StoreFormatError, match=r"other files \(00000\.lmdb, notes\.txt\)"):
            begin_writer(other, overwrite=overwrite)
    assert [str(each.relative_to(other)) for each in sorted(other.rglob("*"))] == [
        "00000.lmdb",
        "00000.lmdb/notes.txt",
        "notes.txt",
    ]

    writer = begin_writer(path, overwrite=True, shard_nbytes=10**6)
    assert not (path / "manifest.json").exists()
    writer.append(writer.prepare(key(0), fields(0)))
    writer.finish()
    assert sorted(each.name for each in path.iterdir()) == ["00000.lmdb", "manifest.json"]


def test_discarding_removes_what_was_written(tmp_path: Path) -> None:
    """Nothing stays of a pack that is refused."""
    path = tmp_path / "sharded.lmdb"
    writer = begin_writer(path)
    for index in range(40):
        writer.append(writer.prepare(key(index), fields(index)))

    writer.discard()

    assert not path.exists()


pytest.importorskip("obstore")


@pytest.fixture
def server(tmp_path: Path, path: Path) -> Iterator[WebServer]:
    """A server of the folder of the sharded pack."""
    with serving(path.parent) as found:
        yield found


def test_a_remote_pack_is_that_of_its_files(server: WebServer, path: Path, tmp_path: Path) -> None:
    """Opening asks for the manifest alone; each shard is asked for when it is read, some at once."""
    local = ShardedPack(path)
    with ps.open(f"{server.url}/{path.name}", cache=tmp_path / "cache") as store:
        assert isinstance(store, ShardedPack)
        assert (store.url, store.digest(), len(store)) == (f"{server.url}/{path.name}", local.digest(), COUNT)
        assert not any(".lmdb/0" in asked for _, asked, _ in server.asked)
        store.read([0])
        assert {asked.split("/")[2] for _, asked, _ in server.asked if ".lmdb/0" in asked} == {"00000.lmdb"}
        order = np.random.default_rng(0).permutation(COUNT)
        assert store.prefetch(order[:20])
        assert content(store, order) == content(local, order)
        assert list(store.keys()) == list(local.keys())
        with pickle.loads(pickle.dumps(store)) as again:
            assert content(again, order) == content(local, order)
    assert ps.verify(f"{server.url}/{path.name}").ok


def test_a_remote_shard_that_is_missing_or_replaced_is_named(server: WebServer, path: Path, tmp_path: Path) -> None:
    """One error with the place and the shard; the records of other shards are read."""
    begin, count = ShardedPack(path).manifest.shards.counts[:2]
    shutil.rmtree(path / "00001.lmdb")
    shutil.rmtree(path / "00002.lmdb")
    make_pack(path / "00002.lmdb", 20)

    with ps.open(f"{server.url}/{path.name}", cache=tmp_path / "cache") as store:
        store.read([0, COUNT - 1])
        with pytest.raises(StoreNotFoundError, match=r"shard 00001\.lmdb: there is no object at this URL") as raised:
            store.read([0, begin])
        assert raised.value.where["store"] == store.url
        with pytest.raises(StoreError, match=r"shard 00002\.lmdb: it is not the one"):
            store.read([begin + count])


def test_a_remote_manifest_of_another_program_is_not_ours(server: WebServer, tmp_path: Path) -> None:
    """Such a folder is what else is there."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_text(json.dumps({"format": "something else, of the same length"}))

    with pytest.raises(StoreNotFoundError):
        ps.open(f"{server.url}/other", cache=tmp_path / "cache")


@pytest.mark.slow
def test_a_pack_in_object_storage_is_that_of_its_files(tmp_path: Path) -> None:
    """In a bucket, behind answers that fail: each record of each epoch; another program's manifest is left alone."""
    program = s3_server.build()
    if program is None:
        pytest.skip("the server cannot be built here")
    bucket = tmp_path / "buckets" / "bucket"
    local = ShardedPack(make_sharded(bucket / "photos.lmdb", 400))
    make_pack(bucket / "other" / "part.lmdb", 3)
    (bucket / "other" / "manifest.json").write_text(json.dumps({"files": ["of another program, which are no packs"]}))
    with s3_server.serving(program, tmp_path / "buckets") as server:
        given: dict[str, Any] = {"storage_options": server.options, "cache": tmp_path / "cache"}
        with ps.open("s3://bucket/photos.lmdb", **given) as store:
            assert isinstance(store, ShardedPack)
            server.set_faults(seed=1, **{"503": 0.05, "reset": 0.05, "short": 0.05, "wrong": 0.05})
            for seed in range(3):
                order = np.random.default_rng(seed).permutation(len(store))
                store.prefetch(order)
                assert content(store, order) == content(local, order)
        server.set_faults()
        with pytest.raises(StoreFormatError, match="there is no image in this folder: 4 other entries"):
            ps.open("s3://bucket/other", **given)


def test_a_process_that_may_open_few_files_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Fewer shards stay open, and everything is read; the log says why, and how to change it."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8, 8))

    with ShardedPack(path) as store:
        assert len(content(store, range(COUNT))) == COUNT
        assert len(store.opened) == 2

    assert f"2 of its {len(store.manifest.shards.names)} shards stay open, since this process may open 8 files" in (
        caplog.text
    )
