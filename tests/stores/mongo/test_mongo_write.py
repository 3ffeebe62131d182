"""Collections and buckets that penstock writes: what is read back, resumption, what is not replaced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import (
    ArgumentError,
    CorruptRecordError,
    IncompleteStoreError,
    PackError,
    StoreError,
    StoreFormatError,
)
from penstock.sample import Field, Schema
from penstock.stores import STORES
from penstock.stores.base import Store
from penstock.stores.location import Location
from penstock.stores.mongo.writer import DocumentWriter
from penstock.stores.writing import Skipped, Writer
from tests.stores.mongo.collections_of_documents import Documents, make_jpeg, open_database

pytest.importorskip("pymongo")

SCHEMA = Schema({"image": Field("image"), "label": Field("label", ("cat", "dog"))})
EVERYTHING = Schema(
    {
        "image": Field("image"),
        "mask": Field("mask"),
        "raw": Field("bytes"),
        "label": Field("label", ("cat", "dog")),
        "count": Field("int"),
        "score": Field("float"),
        "caption": Field("text"),
        "boxes": Field("boxes"),
        "keypoints": Field("keypoints"),
        "tokens": Field("int64[*]"),
        "grid": Field("float16[2,3]"),
        "bits": Field("bool[*,2]"),
        "extra": Field("json"),
        "with.dot": Field("int"),
        "$cash": Field("int"),
        "_id": Field("int"),
        "key": Field("text"),
        "metadata": Field("text"),
    }
)


@pytest.fixture
def documents() -> Iterator[Documents]:
    """A database of its own."""
    with open_database() as opened:
        yield opened


@pytest.fixture(params=["mongodb", "gridfs"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind that is written to a server."""
    return str(request.param)


def fields(number: int) -> dict[str, Any]:
    """The fields of a record of SCHEMA: images of different lengths."""
    return {"image": make_jpeg(number) + b"\0" * (number * 37 % 900), "label": number % 2}


def begin(url: str, schema: Schema = SCHEMA, source: str = "source", *, overwrite: bool = False) -> Writer[Any]:
    """A writer at a URL."""
    location = Location.from_url(url)
    store: type[Store] = STORES.get(location.scheme)
    return store.writer(location, schema, source, overwrite=overwrite)


@pytest.fixture
def small_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits every fifty records."""
    monkeypatch.setattr(DocumentWriter, "commit_records", 50)


def write(url: str, count: int, begin_at: int = 0) -> None:
    """A finished store of some records."""
    writer = begin(url)
    for number in range(begin_at, count):
        writer.append(writer.prepare(f"k{number}", fields(number)))
    writer.finish()
    writer.close()


def look(url: str) -> tuple[list[tuple[str, bytes, int]], str]:
    """All records of a store, and its fingerprint."""
    with ps.open(url) as store:
        return [
            (r.key, r.fields["image"], r.fields["label"]) for r in store.read(range(len(store)))
        ], store.fingerprint()


def everything(number: int) -> dict[str, Any]:
    """A value of each kind."""
    rng = np.random.default_rng(number)
    return {
        "image": make_jpeg(number),
        "mask": make_jpeg(number + 50),
        "raw": rng.bytes(number * 100),
        "label": number % 2,
        "count": [-(2**63), 2**63 - 1, 0, 5][number % 4],
        "score": [1e300, -0.1, 0.0][number % 3],
        "caption": ["", "ü\0x", "a" * 5000][number % 3],
        "boxes": rng.random((number % 3, 4), np.float32),
        "keypoints": rng.random((number % 2, 3), np.float32),
        "tokens": rng.integers(-(2**62), 2**62, number),
        "grid": rng.random((2, 3)).astype(np.float16),
        "bits": rng.integers(0, 2, (number, 2)).astype(bool),
        "extra": {"a": [1, 2.5, None, "x", {"b": True}], "c": {}},
        "with.dot": number,
        "$cash": -number,
        "_id": 7,
        "key": "another",
        "metadata": "text",
    }


def test_every_kind_is_read_back(documents: Documents, kind: str) -> None:
    """Each field of each kind is what went in: values, dtypes, shapes; with the same schema and classes."""
    url = documents.url("all", kind)
    writer = begin(url, EVERYTHING)
    for number in range(5):
        writer.append(writer.prepare(f"dir/{number}.jpg", everything(number)))
    writer.finish()
    writer.close()

    with ps.open(url) as store:
        assert store.schema == EVERYTHING
        records = store.read(range(5))
        assert store.column("count").tolist() == [everything(i)["count"] for i in range(5)]

    for number, record in enumerate(records):
        assert record.key == f"dir/{number}.jpg"
        for name, expected in everything(number).items():
            found = record.fields[name]
            if isinstance(expected, np.ndarray):
                assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
                np.testing.assert_array_equal(found, expected)
            else:
                assert found == expected
                assert type(found) is type(expected)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_pixels_are_read_back(documents: Documents, kind: str, dtype: str) -> None:
    """Pixels of any shape come back as read-only arrays."""
    url = documents.url("pixels", kind)
    writer = begin(url, Schema({"image": Field(f"pixels:{dtype}[*,*,3]"), "label": Field("label")}))
    images = [np.random.default_rng(i).integers(0, 255, (i + 1, 5, 3)).astype(dtype) for i in range(4)]
    for number, image in enumerate(images):
        writer.append(writer.prepare(str(number), {"image": image, "label": None}))
    writer.finish()
    writer.close()

    with ps.open(url) as store:
        for found, expected in zip(store.blobs("image", range(4)), images, strict=True):
            np.testing.assert_array_equal(found, expected, strict=True)
            assert not found.flags.writeable
        assert store.column("label").tolist() == [-1] * 4


def test_files_of_many_chunks_are_read_back(documents: Documents) -> None:
    """A file of several chunks, also of whole ones exactly, or of no byte, is what went in, and pymongo reads it."""
    import gridfs

    url = documents.url("fs", "gridfs")
    contents = [np.random.default_rng(n).bytes(n) for n in (0, 1, 255 << 10, (255 << 10) + 1, 3 * (255 << 10), 1 << 20)]
    writer = begin(url, Schema({"image": Field("image")}))
    for number, content in enumerate(contents):
        writer.append(writer.prepare(str(number), {"image": content}))
    writer.finish()
    writer.close()

    with ps.open(url) as store:
        assert store.blobs("image", range(len(contents))) == contents
    bucket = gridfs.GridFSBucket(documents.database, "fs")
    for number, content in enumerate(contents):
        assert bucket.open_download_stream(number).read() == content


def test_documents_that_are_too_large_are_refused(documents: Documents) -> None:
    """A record of more than 16 MiB cannot be a document; the error advises GridFS."""
    writer = begin(documents.url())

    with pytest.raises(PackError, match=r"at most 16,777,216 bytes \(MongoDB\), got .*; write to gridfs://") as caught:
        writer.prepare("big", {"image": b"\0" * (16 << 20), "label": 1})

    assert caught.value.where["key"] == "big"
    writer.discard()


@pytest.mark.parametrize(
    ("key", "values", "message"),
    [
        ("", {}, "a key must be text"),
        ("a\0b", {}, "a key must be text"),
        ("a\ud800", {}, "no document"),
        ("a", {"label": "x"}, "field 'label' must be of kind label"),
        ("a", {"label": 2**70}, "number of 64 bits"),
        ("a", {"image": "text"}, "no document"),
    ],
)
def test_values_that_cannot_be_stored_are_refused(
    documents: Documents, kind: str, key: str, values: dict[str, Any], message: str
) -> None:
    """A key or value that BSON has no place for, or that is of another kind, is an error of the record."""
    writer = begin(documents.url("c", kind))

    with pytest.raises(PackError, match=message):
        writer.prepare(key, {**fields(1), **values})
    with pytest.raises(PackError, match="the record has no field 'label'"):
        writer.prepare("a", {"image": b"x"})
    writer.discard()
    assert documents.database.list_collection_names() == []


def test_bucket_needs_content(documents: Documents) -> None:
    """Records without an encoded field are no files; a file is never None."""
    with pytest.raises(ArgumentError, match=r"a GridFS file must have content.*write to mongodb://"):
        begin(documents.url("c", "gridfs"), Schema({"label": Field("label")}))
    writer = begin(documents.url("c", "gridfs"))
    with pytest.raises(PackError, match="field 'image' is the content of a file, got none"):
        writer.prepare("a", {"image": None, "label": 1})
    writer.discard()


@pytest.mark.usefixtures("small_commits")
@pytest.mark.parametrize("stops", [[0], [1], [100, 99, 110]])
def test_an_interrupted_writer_is_resumed(documents: Documents, kind: str, stops: list[int]) -> None:
    """A store that was given up, also several times, ends as one that was written at once."""
    count = 120
    write(documents.url("whole", kind), count)
    url = documents.url("parts", kind)
    for stop in stops:
        writer = begin(url)
        for number in range(writer.committed.consumed, stop):
            writer.append(writer.prepare(f"k{number}", fields(number)))
        writer.close()
        with pytest.raises(IncompleteStoreError, match="is not finished"):
            ps.open(url)

    write(url, count, begin(url).committed.consumed)

    assert look(url) == look(documents.url("whole", kind))


def test_a_call_that_was_cut_short_is_repeated(
    documents: Documents, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the server goes away after it stored some of the records that were sent, none is there twice."""
    from pymongo.errors import AutoReconnect

    url = documents.url("c", kind)
    writer = begin(url)
    insert, calls = type(writer).insert, 0  # type: ignore[attr-defined]  # of a writer to a server

    def cut(self: Any, database: Any, first: int, records: Any) -> None:
        nonlocal calls
        calls += 1
        insert(self, database, first, records[:3] if calls == 1 else records)
        if calls == 1:
            raise AutoReconnect("connection closed")

    monkeypatch.setattr(type(writer), "insert", cut)
    for number in range(7):
        writer.append(writer.prepare(f"k{number}", fields(number)))
    writer.finish()
    writer.close()

    assert calls == 2
    assert [record[0] for record in look(url)[0]] == [f"k{number}" for number in range(7)]
    assert documents.database["c" if kind == "mongodb" else "c.files"].count_documents({}) == 7


def test_another_source_is_not_resumed(documents: Documents, kind: str) -> None:
    """An unfinished store is resumed for the same source and fields only; overwrite=True starts anew."""
    url = documents.url("c", kind)
    writer = begin(url)
    writer.append(writer.prepare("old", fields(1)))
    writer.close()

    with pytest.raises(StoreError, match=r"its source was changed since .* or is another one"):
        begin(url, source="other")
    with pytest.raises(StoreError, match="its fields are"):
        begin(url, Schema({"image": Field("image")}))
    writer = begin(url, source="other", overwrite=True)
    writer.append(writer.prepare("new", fields(2)))
    writer.finish()
    writer.close()
    assert [key for key, _, _ in look(url)[0]] == ["new"]


def test_a_finished_store_is_not_replaced(documents: Documents, kind: str) -> None:
    """A finished store stays unless overwrite=True is given; finished() finds it for the same source."""
    url = documents.url("c", kind)
    write(url, 3)
    location = Location.from_url(url)
    store: type[Store] = STORES.get(kind)

    with pytest.raises(ArgumentError, match=r"is a finished collection of 3 records.*overwrite=True"):
        begin(url)
    held = store.finished(location, SCHEMA, "source")

    assert held is not None
    assert (held.records, held.nbytes) == (3, sum(len(fields(i)["image"]) for i in range(3)))
    assert store.finished(location, SCHEMA, "other") is None
    assert store.finished(Location.from_url(documents.url("absent", kind)), SCHEMA, "source") is None


def test_documents_of_others_are_not_touched(documents: Documents, kind: str) -> None:
    """A collection that penstock did not write is refused, and stays as it is."""
    name = "c" if kind == "mongodb" else "c.files"
    documents.insert([{"_id": 0, "precious": 1}], name)

    with pytest.raises(StoreFormatError, match="has documents that penstock did not write; nothing was changed"):
        begin(documents.url("c", kind))

    assert list(documents.database[name].find()) == [{"_id": 0, "precious": 1}]
    assert documents.database.list_collection_names() == [name]


def test_a_changed_image_is_found(documents: Documents, kind: str) -> None:
    """An image that another program replaces, in a store that penstock wrote, does not match its checksum."""
    url = documents.url("c", kind)
    write(url, 4)
    collection, query = ("c", {"_id": 2}) if kind == "mongodb" else ("c.chunks", {"files_id": 2})
    name = "image" if kind == "mongodb" else "data"
    content = fields(2)["image"]

    with ps.open(url) as store:
        store.read([2])
        documents.database[collection].update_one(query, {"$set": {name: b"\1" + content[1:]}})
        for read in (lambda: store.read([1, 2]), lambda: store.blobs("image", [2])):
            with pytest.raises(CorruptRecordError, match="the checksum of its field 'image' does not match") as caught:
                read()
            assert caught.value.where == {"store": url, "key": "k2", "index": 2}
        assert store.read([3])[0].fields["image"] == fields(3)["image"]


def test_check_names_each_damaged_record(documents: Documents, kind: str) -> None:
    """verify reads in batches and names every record that is damaged, with its reason."""
    url = documents.url("c", kind)
    write(url, 70)
    for number in (3, 66):
        collection, query = ("c", {"_id": number}) if kind == "mongodb" else ("c.chunks", {"files_id": number})
        name = "image" if kind == "mongodb" else "data"
        documents.database[collection].update_one(query, {"$set": {name: b"\1" + fields(number)["image"][1:]}})
    seen: list[tuple[int, int]] = []
    store: type[Store] = STORES.get(kind)

    problems = list(store.check(Location.from_url(url), lambda done, total: seen.append((done, total))))

    assert [(problem.key, problem.index) for problem in problems] == [("k3", 3), ("k66", 66)]
    assert all("the checksum of its field 'image' does not match" in problem.reason for problem in problems)
    assert seen == [(64, 70), (70, 70)]
    absent = list(store.check(Location.from_url(documents.url("absent", kind))))
    assert ["there is no collection" in problem.reason for problem in absent] == [True]


def test_a_document_that_is_removed_is_noticed(documents: Documents, kind: str) -> None:
    """A finished store with fewer documents than were written is refused when it is opened."""
    url = documents.url("c", kind)
    write(url, 4)
    documents.database["c" if kind == "mongodb" else "c.files"].delete_one({"_id": 1})

    with pytest.raises(StoreFormatError, match="penstock wrote 4 documents to this collection, and 3 are there"):
        ps.open(url)


@pytest.mark.usefixtures("small_commits")
def test_a_damaged_unfinished_collection_is_not_resumed(documents: Documents, kind: str) -> None:
    """If documents of an unfinished store are gone, resuming says what to do."""
    url = documents.url("c", kind)
    writer = begin(url)
    for number in range(51):
        writer.append(writer.prepare(f"k{number}", fields(number)))
    writer.close()
    documents.database["c" if kind == "mongodb" else "c.files"].delete_one({"_id": 30})

    with pytest.raises(StoreError, match=r"must have 50 documents, and 49 are there.*overwrite=True"):
        begin(url)


def test_what_is_left_out_is_kept(documents: Documents, kind: str) -> None:
    """Entries that were skipped, and those that are no records, are in the store, also after resumption."""
    url = documents.url("c", kind)
    writer = begin(url)
    writer.append(writer.prepare("a", fields(0)))
    writer.skip(Skipped("bad.jpg", "empty"))
    writer.append(writer.prepare("b", fields(1)))
    writer.finish([Skipped("README", "no image")])
    assert writer.committed.consumed == 4
    writer.close()

    with ps.open(url) as store:
        assert store.skipped == (("bad.jpg", "empty"), ("README", "no image"))
        assert list(store.keys()) == ["a", "b"]


def test_a_collection_is_packed_again_and_back(documents: Documents, kind: str, tmp_path: Path) -> None:
    """A folder packed to the server and from there to a pack has the same records; packing again reuses it."""
    for number in range(5):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_jpeg(number))
    url = documents.url("c", kind)

    report = ps.pack(tmp_path / "photos", url)
    again = ps.pack(tmp_path / "photos", url)
    ps.pack(url, tmp_path / "back.lmdb")

    assert (report.records, report.store, again.reused) == (5, url, True)
    with ps.open(url) as there, ps.open(tmp_path / "back.lmdb") as back:
        assert there.schema == back.schema
        assert list(there.keys()) == list(back.keys())
        for one, other in zip(there, back, strict=True):
            assert {**one.fields} == {**other.fields, "image": bytes(other.fields["image"])}


def test_a_written_collection_is_joined_and_selected(documents: Documents, kind: str, tmp_path: Path) -> None:
    """What penstock wrote has an index on its keys: a manifest, ids and a query select records, with its schema."""
    url = documents.url("c", kind)
    write(url, 6)
    table = tmp_path / "t.csv"
    key = "key" if kind == "mongodb" else "filename"
    table.write_text(f"{key},weight\nk4,2\nk1,3\n")

    with ps.open(url, manifest=table, join=key) as store:
        assert [(r.key, r.fields["label"], r.fields["weight"]) for r in store] == [("k4", 0, 2), ("k1", 1, 3)]
        assert store.schema["label"].classes == ("cat", "dog")
        assert [bytes(r.fields["image"]) for r in store] == [fields(4)["image"], fields(1)["image"]]
    with ps.open(url, ids=[5, 0]) as store:
        assert list(store.keys()) == ["k5", "k0"]
    path = "label" if kind == "mongodb" else "metadata.label"
    with ps.open(url, query={path: 1}, sort=[("_id", -1)]) as store:
        assert list(store.keys()) == ["k5", "k3", "k1"]
        assert store.blobs("image", [1]) == [fields(3)["image"]]
