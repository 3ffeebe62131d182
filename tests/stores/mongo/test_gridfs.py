"""GridFS files of other programs: content, metadata, several files of one name, and whatever may be missing."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import ArgumentError, CorruptRecordError, StoreError, StoreFormatError, StoreNotFoundError
from tests.stores.mongo.collections_of_documents import Documents, make_jpeg, new_id, open_database

gridfs = pytest.importorskip("gridfs")


@pytest.fixture
def documents() -> Iterator[Documents]:
    """A database of its own."""
    with open_database() as opened:
        yield opened


def upload(documents: Documents, count: int = 6, chunk: int = 100, bucket: str = "fs") -> list[Any]:
    """Files as pymongo writes them, in small chunks; gives their ids."""
    files = gridfs.GridFSBucket(documents.database, bucket, chunk_size_bytes=chunk)
    ids = [new_id() for _ in range(count)]
    for i, each in enumerate(ids):
        metadata = {"cls": i % 3, "who": {"name": f"p{i}"}}
        files.upload_from_stream_with_id(each, f"n{i}.jpg", make_jpeg(i), metadata=metadata)
    return ids


def test_files_are_records(documents: Documents) -> None:
    """The content is the image, the name the key, metadata are fields; a batch is two queries."""
    upload(documents)

    with ps.open(documents.url("fs", "gridfs")) as store:
        assert {name: field.kind for name, field in store.schema.fields.items()} == {
            "label": "label",
            "who": "json",
            "image": "image",
        }
        assert store.description == "6 files: key = filename; label = metadata.cls, who = metadata.who"
        records = pickle.loads(pickle.dumps(store)).read([4, 0, 4])
        assert store.blobs("image", [5, 1]) == [make_jpeg(5), make_jpeg(1)]
        assert store.column("label").tolist() == [0, 1, 2, 0, 1, 2]

    assert [record.key for record in records] == ["n4.jpg", "n0.jpg", "n4.jpg"]
    assert dict(records[0].fields) == {"image": make_jpeg(4), "label": 1, "who": {"name": "p4"}}


def test_fields_may_be_named(documents: Documents) -> None:
    """fields= names paths in a file's document beside the image, which is its content."""
    ids = upload(documents)

    with ps.open(documents.url("fs", "gridfs"), fields={"name": "metadata.who.name"}, key="_id") as store:
        assert list(store.keys()) == list(map(str, ids))
        assert dict(store[3].fields) == {"image": make_jpeg(3), "name": "p3"}
    with pytest.raises(ArgumentError, match="fields must not name the image"):
        ps.open(documents.url("fs", "gridfs"), fields={"image": "metadata.cls"})


def test_files_of_one_name_are_several_records(documents: Documents) -> None:
    """Revisions of a file are records of one key, each with its own content."""
    files = gridfs.GridFSBucket(documents.database)
    for number in range(3):
        files.upload_from_stream_with_id(new_id(), "same.jpg", make_jpeg(number))

    with ps.open(documents.url("fs", "gridfs")) as store:
        assert [(record.key, record.fields["image"]) for record in store] == [
            ("same.jpg", make_jpeg(number)) for number in range(3)
        ]


def test_files_that_are_no_images_are_bytes(documents: Documents) -> None:
    """Content that begins as no image is a field of bytes."""
    gridfs.GridFSBucket(documents.database).upload_from_stream("a.txt", b"text", metadata={"n": 1})

    with ps.open(documents.url("fs", "gridfs")) as store:
        assert {name: field.kind for name, field in store.schema.fields.items()} == {"n": "int", "content": "bytes"}
        assert store[0].fields["content"] == b"text"


def test_a_manifest_is_joined_by_name(documents: Documents, tmp_path: Path) -> None:
    """Rows name files; GridFS has an index on names."""
    upload(documents)
    table = tmp_path / "labels.csv"
    table.write_text("filename,label\nn3.jpg,30\nn1.jpg,10\n")

    with ps.open(documents.url("fs", "gridfs"), manifest=table, join="filename") as store:
        assert [(r.key, r.fields["label"], r.fields["image"]) for r in store] == [
            ("n3.jpg", 30, make_jpeg(3)),
            ("n1.jpg", 10, make_jpeg(1)),
        ]


@pytest.mark.parametrize("number", [0, 2, 4, 5])
def test_a_missing_chunk_is_named(documents: Documents, number: int) -> None:
    """A chunk that is not there is an error with its number, store, key and index; other files are read."""
    ids = upload(documents, chunk=130)
    count = -(-len(make_jpeg(2)) // 130)
    assert count == 6
    documents.database["fs.chunks"].delete_one({"files_id": ids[2], "n": number})

    with ps.open(documents.url("fs", "gridfs")) as store:
        with pytest.raises(CorruptRecordError, match=f"chunk {number} ") as caught:
            store.read([1, 2])
        with pytest.raises(CorruptRecordError, match=f"chunk {number} "):
            store.blobs("image", [2])
        assert store.read([1])[0].fields["image"] == make_jpeg(1)

    assert caught.value.where == {"store": store.url, "key": "n2.jpg", "index": 2}


DAMAGES: dict[str, dict[str, Any]] = {
    "shorter": {"data": b"x"},
    "longer": {"data": b"x" * 131},
    "no bytes": {"data": "text"},
    "none": {"data": None},
    "another number": {"n": 77},
    "a number that is none": {"n": "one"},
    "a negative number": {"n": -1},
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_chunk_is_named(documents: Documents, damage: dict[str, Any]) -> None:
    """Whatever is wrong with a chunk, the file is an error, and no other content."""
    ids = upload(documents, chunk=130)
    documents.database["fs.chunks"].update_one({"files_id": ids[2], "n": 1}, {"$set": damage})

    message = r"the file must have|chunk 1 of the file is missing"
    with ps.open(documents.url("fs", "gridfs")) as store, pytest.raises(CorruptRecordError, match=message) as caught:
        store.read([2])

    assert caught.value.where["key"] == "n2.jpg"


@pytest.mark.parametrize("length", [0, 1, 10**15, -1, "long", None])
def test_a_wrong_length_is_named(documents: Documents, length: object) -> None:
    """The length in a file's document is compared, and never allocated."""
    ids = upload(documents)
    documents.database["fs.files"].update_one({"_id": ids[0]}, {"$set": {"length": length}})

    with (
        ps.open(documents.url("fs", "gridfs")) as store,
        pytest.raises(CorruptRecordError, match=r"must have .* bytes"),
    ):
        store.read([0])


def test_md5_is_compared(documents: Documents) -> None:
    """Where a file has an MD5, as older libraries write it, its content is compared with it."""
    ids = upload(documents)
    for number in (0, 1):
        digest = hashlib.md5(make_jpeg(0)).hexdigest()
        documents.database["fs.files"].update_one({"_id": ids[number]}, {"$set": {"md5": digest}})

    with ps.open(documents.url("fs", "gridfs")) as store:
        assert store.read([0])[0].fields["image"] == make_jpeg(0)
        with pytest.raises(CorruptRecordError, match="the MD5 of the file does not match"):
            store.read([1])


def test_a_file_that_is_deleted_is_an_error(documents: Documents) -> None:
    """A file that is deleted after the opening is named."""
    ids = upload(documents)
    with ps.open(documents.url("fs", "gridfs")) as store:
        gridfs.GridFSBucket(documents.database).delete(ids[3])
        with pytest.raises(StoreError, match="it was deleted") as caught:
            store.read([2, 3])
    assert caught.value.where["key"] == "n3.jpg"


def test_no_bucket_is_not_found(documents: Documents) -> None:
    """A bucket that is not there is not found; one without files is no store."""
    with pytest.raises(StoreNotFoundError, match=r"there is no collection 'fs\.files'"):
        ps.open(documents.url("fs", "gridfs"))
    documents.database.create_collection("fs.files")
    with pytest.raises(StoreFormatError, match=r"'fs\.files' has no documents"):
        ps.open(documents.url("fs", "gridfs"))


def test_files_are_read_ahead(documents: Documents) -> None:
    """prefetch() reads contents too."""
    upload(documents, 12)
    with ps.open(documents.url("fs", "gridfs")) as store:
        for _ in range(3):
            store.prefetch(np.arange(12))
            assert [record.fields["image"] for record in store.read(range(12))] == [make_jpeg(i) for i in range(12)]
