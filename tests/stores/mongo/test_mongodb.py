"""Documents of other programs, read as they lie: fields, keys, order, what is missing, number of queries."""

from __future__ import annotations

import datetime as dt
import gc
import json
import pickle
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

import penstock as ps
from penstock import transforms as T
from penstock.errors import (
    ArgumentError,
    CorruptRecordError,
    OptionalPackageError,
    PenstockError,
    StoreError,
    StoreFormatError,
    StoreNotFoundError,
)
from penstock.stores.mongo.store import MongoStore
from penstock.testing.lifetime import in_child
from tests.stores.mongo.collections_of_documents import Documents, make_jpeg, open_database

bson = pytest.importorskip("bson")


@pytest.fixture
def documents() -> Iterator[Documents]:
    """A database of its own."""
    with open_database() as opened:
        yield opened


def insert_photos(documents: Documents, count: int = 6) -> list[Any]:
    """Documents as a crawler writes them; gives their ids."""
    return documents.insert(
        [
            {"img_name": f"n{i}.jpg", "img": {"data": make_jpeg(i), "w": 8}, "cls": i % 3, "score": i / 2}
            for i in range(count)
        ]
    )


def count_queries(documents: Documents, name: str, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The filters and projections of the queries that stores send from now on."""
    from pymongo.collection import Collection

    seen: list[dict[str, Any]] = []
    find = Collection.find

    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.name == name:
            seen.append({"filter": args[0], "projection": args[1] if len(args) > 1 else None})
        return find(self, *args, **kwargs)

    monkeypatch.setattr(Collection, "find", noted)
    return seen


def test_fields_are_found(documents: Documents) -> None:
    """Bytes that begin as an image are the image, `cls` is the label, `img_name` the key; other values keep names."""
    insert_photos(documents)

    with ps.open(documents.url()) as store:
        assert store.schema.to_json() == {
            "image": {"kind": "image"},
            "w": {"kind": "int"},
            "label": {"kind": "label"},
            "score": {"kind": "float"},
        }
        assert store.description == "6 documents: key = img_name; image = img.data, w = img.w, label = cls, score"
        records = store.read([4, 0, 4])

    assert [record.key for record in records] == ["n4.jpg", "n0.jpg", "n4.jpg"]
    assert dict(records[0].fields) == {"image": make_jpeg(4), "w": 8, "label": 1, "score": 2.0}
    assert dict(records[1].fields) == {"image": make_jpeg(0), "w": 8, "label": 0, "score": 0.0}


def test_every_type_of_bson_has_a_kind(documents: Documents) -> None:
    """Values become the fields' types: texts for ids, times and decimals, arrays, boxes, JSON for what is nested."""
    object_id = bson.ObjectId()
    now = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.UTC)
    documents.insert(
        [
            {
                "_id": 7,
                "image": make_jpeg(1),
                "owner": object_id,
                "at": now,
                "tokens": [1, 2, 3],
                "ratios": [0.5, 1],
                "flag": True,
                "tags": ["a", "b"],
                "nested": {"at": now, "list": [1, "x"], "raw": {"deep": object_id}},
                "extra": b"\1\2",
                "big": bson.Int64(2**40),
                "nothing": None,
            },
            {"_id": 8, "image": make_jpeg(2), "tokens": [], "ratios": [1.5, 2], "flag": False, "big": 3},
        ]
    )

    with ps.open(documents.url()) as store:
        kinds = {name: field.kind for name, field in store.schema.fields.items()}
        first, second = store.read([0, 1])

    assert kinds == {
        "image": "image",
        "owner": "text",
        "at": "text",
        "tokens": "int64[*]",
        "ratios": "float64[2]",
        "flag": "int",
        "tags": "json",
        "nested": "json",
        "extra": "bytes",
        "big": "int",
    }
    assert first.key == "7"
    assert first.fields["owner"] == str(object_id)
    assert first.fields["at"] == now.isoformat()
    assert first.fields["tokens"].tolist() == [1, 2, 3]
    assert first.fields["ratios"].tolist() == [0.5, 1.0]
    assert first.fields["flag"] == 1
    assert first.fields["tags"] == ["a", "b"]
    assert json.dumps(first.fields["nested"])
    assert first.fields["nested"]["raw"] == {"deep": str(object_id)}
    assert first.fields["extra"] == b"\1\2"
    assert first.fields["big"] == 2**40
    assert second.fields["tokens"].shape == (0,)
    assert second.fields["owner"] is None
    assert second.fields["extra"] is None


def test_boxes_are_arrays(documents: Documents) -> None:
    """Boxes in a list of four numbers each, or as shape and values, are float32 (n, 4)."""
    documents.insert(
        [
            {"image": make_jpeg(1), "boxes": {"shape": [2, 4], "values": [1.0, 2, 3, 4, 5, 6, 7, 8]}, "flat": [1, 2]},
            {"image": make_jpeg(2), "boxes": {"shape": [0, 4], "values": []}, "flat": [3, 4]},
        ]
    )
    layout = {"image": "image", "boxes": "boxes"}

    with ps.open(documents.url(), fields=layout) as store:
        kind, boxes = store.schema["boxes"].kind, [record.fields["boxes"] for record in store]

    assert kind == "boxes"
    assert [each.tolist() for each in boxes] == [[[1, 2, 3, 4], [5, 6, 7, 8]], []]
    assert [(each.dtype, each.shape[1]) for each in boxes] == [(np.float32, 4), (np.float32, 4)]


def test_fields_are_those_that_are_named(documents: Documents) -> None:
    """With fields=, a record has exactly those, at their paths, also in a list; key= is the key."""
    documents.insert([{"a": [{"b": make_jpeg(i)}], "t": {"class": i}, "k": f"name {i}"} for i in range(3)])

    with ps.open(documents.url(), fields={"image": "a.0.b", "target": "t.class"}, key="k") as store:
        records = list(store)
        column = store.column("target")

    assert [record.key for record in records] == ["name 0", "name 1", "name 2"]
    assert [dict(record.fields) for record in records] == [{"image": make_jpeg(i), "target": i} for i in range(3)]
    assert column.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fields": {"image": "img.dta"}}, "fields must name paths in the documents, got 'img.dta'.*img.data"),
        ({"fields": {}}, "fields must map names to paths"),
        ({"key": "nme"}, "key must name paths in the documents, got 'nme'"),
        ({"ids": []}, "ids must name at least one document"),
        ({"ids": "abc"}, "ids must be a sequence"),
        ({"ids": [1], "query": {}}, "only one of ids, query and manifest may be given, got ids and query"),
        ({"ids": [1], "sort": "cls"}, "sort is for documents of a query"),
        ({"ids": ["nothing"]}, "selected by query= or ids="),
        ({"query": "cls"}, "query must be a filter"),
        ({"query": {"cls": 99}}, "no document of the collection 'photos' is selected"),
        ({"sort": [("cls", 2)]}, "sort must be a path, or pairs"),
        ({"join": "img_name"}, "join is the column of a manifest"),
        ({"manifest": "labels.txt"}, "manifest must be a file .csv"),
        ({"reconnect_timeout": -1}, "reconnect_timeout must be a number of seconds"),
        ({"fieds": {}}, "has no option 'fieds'; it has: fields, image, label, key, boxes, ids, query"),
    ],
)
def test_invalid_options_are_refused(documents: Documents, options: dict[str, Any], message: str) -> None:
    """An option that is wrong, or names nothing, is an error that says what is allowed."""
    insert_photos(documents, 2)

    with pytest.raises(ArgumentError, match=message):
        ps.open(documents.url(), **options)


def test_several_images_are_not_guessed(documents: Documents) -> None:
    """Where several values may be the image, the user says which."""
    documents.insert([{"left": make_jpeg(1), "right": make_jpeg(2)}])

    with pytest.raises(ArgumentError, match=r"'left', 'right' may be the image; say image='left'"):
        ps.open(documents.url())
    with ps.open(documents.url(), image="right") as store:
        assert store[0].fields == {"left": make_jpeg(1), "image": make_jpeg(2)}
    with ps.open(documents.url(), fields={"image": "right", "other": "left"}) as store:
        assert store[0].fields["image"] == make_jpeg(2)
        assert store.schema["other"].kind == "image"


def test_labels_that_are_texts_are_numbered(documents: Documents) -> None:
    """Texts are classes in alphabetical order, or in that of classes=; an unknown one is an error that names it."""
    documents.insert([{"image": make_jpeg(i), "label": ["dog", "cat", "ape"][i % 3]} for i in range(6)])

    with ps.open(documents.url()) as store:
        assert store.schema["label"].classes == ("ape", "cat", "dog")
        assert store.column("label").tolist() == [2, 1, 0, 2, 1, 0]
    with ps.open(documents.url(), classes=["dog", "cat"]) as store:
        assert [store[0].fields["label"], store[1].fields["label"]] == [0, 1]
        with pytest.raises(CorruptRecordError, match=r"must be one of the 2 classes.*'ape'") as caught:
            store.read([2])
        assert caught.value.where["index"] == 2


def test_a_label_that_is_absent_is_none(documents: Documents) -> None:
    """A document without a label gives None, and -1 in the column."""
    documents.insert(
        [{"image": make_jpeg(0), "label": 4}, {"image": make_jpeg(1)}, {"image": make_jpeg(2), "label": None}]
    )

    with ps.open(documents.url()) as store:
        assert [record.fields["label"] for record in store] == [4, None, None]
        assert store.column("label").tolist() == [4, -1, -1]


@pytest.mark.parametrize("value", [None, "text", 7, [b"x"], {"a": 1}])
def test_an_image_that_is_none_is_named(documents: Documents, value: object) -> None:
    """A document whose image is absent or no bytes is an error with store, key and index."""
    documents.insert([{"img_name": "a", "image": make_jpeg(0)}, {"img_name": "b", "image": value}])

    with ps.open(documents.url(), fields={"image": "image"}, key="img_name") as store:
        store.read([0])
        with pytest.raises(CorruptRecordError, match="its field 'image' must be bytes") as caught:
            store.read([0, 1])

    assert caught.value.where == {"store": store.url, "key": "b", "index": 1}


def test_values_of_other_types_are_named(documents: Documents) -> None:
    """Whatever type stands where the first documents had another one, the error names the field."""
    good = {
        "image": make_jpeg(0),
        "label": 1,
        "score": 0.5,
        "text": "a",
        "tokens": [1, 2],
        "boxes": {"shape": [1, 4], "values": [1.0, 2, 3, 4]},
    }
    wrong: dict[str, list[Any]] = {
        "label": ["x", 1.5, [1], {}],
        "score": ["x", [1]],
        "text": [b"x", [1]],
        "tokens": [5, ["x"], [1.5], {"shape": [1], "values": [1, 2]}, {"shape": [-1], "values": [1, 2]}],
        "boxes": [[1.0, 2], {"shape": [1, 4], "values": [1]}, {"shape": "no", "values": []}, {"values": 3}],
    }
    bad = [{**good, name: value} for name, values in wrong.items() for value in values]
    documents.insert([{"_id": i, **each} for i, each in enumerate([*[good] * 40, *bad])])
    fields = {name: name for name in good}

    with ps.open(documents.url(), fields=fields) as store:
        assert store.schema["boxes"].kind == "boxes"
        for number, each in enumerate(bad, 40):
            name = next(name for name in good if each[name] is not good[name])
            with pytest.raises(CorruptRecordError, match=name) as caught:
                store.read([number])
            assert caught.value.where["index"] == number


def test_order_is_that_of_ids(documents: Documents) -> None:
    """Documents are in the order of _id, whatever the order of insertion."""
    documents.insert([{"_id": name, "image": make_jpeg(0)} for name in ("b", "c", "a")])

    with ps.open(documents.url()) as store:
        assert list(store.keys()) == ["a", "b", "c"]


def test_order_may_be_given(documents: Documents) -> None:
    """sort= orders by values, and equal ones by _id; query= selects."""
    documents.insert([{"_id": i, "image": make_jpeg(i), "n": [3, 1, 3, 2, 1][i]} for i in range(5)])

    with ps.open(documents.url(), sort=[("n", -1)]) as store:
        assert list(store.keys()) == ["0", "2", "3", "1", "4"]
    with ps.open(documents.url(), sort="n", query={"n": {"$gt": 1}}) as store:
        assert list(store.keys()) == ["3", "0", "2"]
        assert [record.fields["n"] for record in pickle.loads(pickle.dumps(store))] == [2, 3, 3]


def test_ids_are_the_records(documents: Documents) -> None:
    """ids= gives records in their order; ObjectIds may be texts; those without a document are named."""
    ids = insert_photos(documents)
    absent = bson.ObjectId()

    with pytest.warns(UserWarning, match=f"1 of 4 names are not records.*{absent}"):
        store = ps.open(documents.url(), ids=[str(ids[3]), ids[1], absent, ids[5]])

    with store, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert list(store.keys()) == ["n3.jpg", "n1.jpg", "n5.jpg"]
        assert [record.fields["image"] for record in store] == [make_jpeg(i) for i in (3, 1, 5)]
        assert store.problems == ((str(absent), "no document has this _id"),)
        assert store.unreadable == store.problems
        assert repr(store.options) == "{'ids': <4 ids>}"
        with ps.open(store.url, ids=store.options["ids"]) as again:
            assert list(again.keys()) == list(store.keys())
    with pytest.raises(ArgumentError, match=f"ids must name each document once, got 1 twice or more: '{ids[0]}'"):
        ps.open(documents.url(), ids=[ids[0], ids[1], str(ids[0])])


@pytest.mark.parametrize(
    "ids",
    [
        [3, 5, 2**40, -1],
        ["a", "b/c", "ü"],
        ["a", 3, 2.5, "b"],
        [{"a": 1, "b": 2}, {"a": 1, "b": 3}],
        ["with\0zero", "plain"],
    ],
)
def test_ids_are_of_any_type(documents: Documents, ids: list[Any]) -> None:
    """Ids may be numbers, texts or documents, also mixed; each record is the one of its id, also in a pickle."""
    documents.insert([{"_id": each, "image": make_jpeg(i), "n": i} for i, each in enumerate(ids)])

    with ps.open(documents.url()) as opened, pickle.loads(pickle.dumps(opened)) as store:
        found = {record.key: record.fields["n"] for record in store.read(range(len(ids)))}

    assert found == {str(each): i for i, each in enumerate(ids)}


def test_ids_may_be_uuids(documents: Documents) -> None:
    """UUIDs, which drivers of other languages store as ids, are keys as their text, also inside a document."""
    uuids = [UUID(int=number) for number in (2, 1)]
    stored = [bson.Binary.from_uuid(each) for each in uuids]
    documents.insert([{"_id": each, "image": make_jpeg(i)} for i, each in enumerate([*stored, {"part": stored[0]}])])

    with ps.open(documents.url()) as opened, pickle.loads(pickle.dumps(opened)) as store:
        rows = [[*store.keys()].index(str(each)) for each in (*uuids, {"part": uuids[0]})]
        assert store.blobs("image", rows) == [make_jpeg(i) for i in range(3)]
        assert store.digest() == opened.digest()


def test_a_manifest_gives_records_and_fields(documents: Documents, tmp_path: Path) -> None:
    """Rows are the records, in order; columns replace fields of the documents; what is missing is listed."""
    insert_photos(documents)
    documents.insert([{"img_name": "n5.jpg", "img": {"data": make_jpeg(9), "w": 8}, "cls": 0, "score": 0.0}])
    documents.database["photos"].create_index("img_name")
    table = tmp_path / "labels.csv"
    table.write_text(
        "label,img_name,weight,note\n7,n2.jpg,0.5,x\n,n0.jpg,,y\n1,gone.jpg,1,z\n2,n5.jpg,1,z\n9,n1.jpg,2,\n"
    )

    with pytest.warns(UserWarning, match="2 of 5 names are not records.*'gone.jpg', 'n5.jpg'"):
        store = ps.open(documents.url(), manifest=table)

    with store:
        assert list(store.keys()) == ["n2.jpg", "n0.jpg", "n1.jpg"]
        assert [record.fields["image"] for record in store] == [make_jpeg(i) for i in (2, 0, 1)]
        assert [record.fields["label"] for record in store] == [7, None, 9]
        assert [record.fields["weight"] for record in store] == [0.5, None, 2.0]
        assert [record.fields["note"] for record in store] == ["x", "y", ""]
        assert [record.fields["score"] for record in store] == [1.0, 0.0, 0.5]
        assert store.column("label").tolist() == [7, -1, 9]
        assert store.problems == (
            ("gone.jpg", "no document has this img_name"),
            ("n5.jpg", "2 documents have this img_name"),
        )


def test_a_manifest_is_joined_by_any_field(documents: Documents, tmp_path: Path) -> None:
    """join= names the column and the path, of texts or numbers; without an index a warning says so."""
    documents.insert([{"image": make_jpeg(i), "meta": {"number": i}} for i in range(4)])
    table = tmp_path / "labels.jsonl"
    table.write_text(
        "".join(json.dumps({"n": n, "label": name, "box": [n, 1]}) + "\n" for n, name in ((3, "b"), (1, "a")))
    )

    with pytest.warns(UserWarning, match="no index on 'meta.number', by which the manifest is joined"):
        store = ps.open(documents.url(), manifest=table, join={"n": "meta.number"})

    with store:
        assert list(store.keys()) == ["3", "1"]
        assert store.schema["label"].classes == ("a", "b")
        assert [record.fields["label"] for record in store] == [1, 0]
        assert [record.fields["box"] for record in store] == [[3, 1], [1, 1]]
        assert [record.fields["image"] for record in store] == [make_jpeg(3), make_jpeg(1)]
    documents.database["photos"].create_index("meta.number")
    with ps.open(documents.url(), manifest=table, join={"n": "meta.number"}) as store:
        assert [record.fields["image"] for record in store] == [make_jpeg(3), make_jpeg(1)]


def test_a_name_twice_in_a_manifest_is_refused(documents: Documents, tmp_path: Path) -> None:
    """Two rows for one document are an error that names it: labels must not be mixed up."""
    insert_photos(documents)
    table = tmp_path / "labels.csv"
    table.write_text("img_name,label\nn1.jpg,1\nn2.jpg,2\nn1.jpg,3\n")

    with (
        pytest.warns(UserWarning, match="no index"),
        pytest.raises(ArgumentError, match=r"the manifest must name each document once, got 1 twice or more: 'n1.jpg'"),
    ):
        ps.open(documents.url(), manifest=table)


def test_a_manifest_without_any_document_is_refused(documents: Documents, tmp_path: Path) -> None:
    """Where no name is a document, the join is wrong: an error shows a name."""
    insert_photos(documents)
    table = tmp_path / "labels.csv"
    table.write_text("img_name,label\nx.jpg,1\n")

    with (
        pytest.warns(UserWarning, match="no index"),
        pytest.raises(ArgumentError, match=r"none of 1 names is a document: 'x.jpg'"),
    ):
        ps.open(documents.url(), manifest=table)


def test_a_batch_is_one_query(documents: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    """read() sends one query for all records, blobs() one that asks for the image alone, column() one for its field.

    Only the fields that the user named are sent; whole documents where all values are fields.
    """
    insert_photos(documents)
    fields = {"image": "img.data", "w": "img.w", "label": "cls", "score": "score"}
    with ps.open(documents.url(), fields=fields, key="img_name") as store:
        seen = count_queries(documents, "photos", monkeypatch)
        store.read([5, 1, 1, 3])
        store.blobs("image", np.array([2, 0]))
        store.column("label")
        store.column("label")

    assert [len(each["filter"]["_id"]["$in"]) for each in seen] == [3, 2, 6]
    assert seen[0]["projection"] == {"img_name": 1, "img.data": 1, "img.w": 1, "cls": 1, "score": 1, "_id": 1}
    assert seen[1]["projection"] == {"img_name": 1, "img.data": 1, "_id": 1}
    assert seen[2]["projection"] == {"img_name": 1, "cls": 1, "_id": 1}
    with ps.open(documents.url()) as store:
        store.read([2])
        store.blobs("image", [2])
    assert [each["projection"] for each in seen[-2:]] == [None, seen[1]["projection"]]


def test_asking_sends_no_query_and_starts_no_thread(documents: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    """len, repr, schema, keys, digest and pickling, also unpickling, use what was found at opening."""
    insert_photos(documents)
    with ps.open(documents.url()) as store:
        seen = count_queries(documents, "photos", monkeypatch)
        before = threading.active_count()
        len(store), repr(store), store.schema, list(store.keys()), store.digest(), store.description, store.problems
        again = pickle.loads(pickle.dumps(store))
        assert again.digest() == store.digest()
        again.close()

        assert threading.active_count() == before
    assert seen == []


def test_documents_that_come_later_are_not_seen(documents: Documents) -> None:
    """The records are those of the opening, also in a pickle; one that is deleted is an error that names it."""
    ids = insert_photos(documents)
    with ps.open(documents.url()) as store:
        documents.insert(
            [{"_id": 0, "img_name": "new", "img": {"data": make_jpeg(50), "w": 8}, "cls": 0, "score": 1.0}]
        )
        documents.database["photos"].delete_one({"_id": ids[2]})

        for each in (store, pickle.loads(pickle.dumps(store))):
            assert len(each) == 6
            assert each.read([5])[0].fields["image"] == make_jpeg(5)
            with pytest.raises(StoreError, match="is not there; it was deleted") as caught:
                each.read([5, 2])
            assert caught.value.where == {"store": store.url, "key": "n2.jpg", "index": 2}
        each.close()


def test_a_document_that_becomes_another_is_an_error(documents: Documents) -> None:
    """Where the key of a document changes, its record is refused: the label may be that of another image."""
    ids = insert_photos(documents)
    with ps.open(documents.url()) as store:
        documents.database["photos"].update_one({"_id": ids[1]}, {"$set": {"img_name": "other.jpg"}})

        with pytest.raises(CorruptRecordError, match=r"its img_name is now 'other.jpg'") as caught:
            store.read([1])
    assert caught.value.where["key"] == "n1.jpg"


def test_prefetched_records_are_read_once(documents: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    """prefetch() reads in a thread of this process; read() then gives the same records without a query."""
    insert_photos(documents, 20)
    with ps.open(documents.url()) as store:
        expected = store.read(range(20))
        seen = count_queries(documents, "photos", monkeypatch)
        store.prefetch([3, 4, 5])
        store.prefetch(np.arange(10, 20))
        deadline = time.monotonic() + 60
        while len(seen) < 2 or any(t.name == "penstock-read-ahead" for t in threading.enumerate()):
            assert time.monotonic() < deadline, "what was announced was not read"
            time.sleep(0.01)

        records = [*store.read([5, 4, 3]), *store.read(range(10, 20))]
        sent = len(seen)
        again = store.read([3])

    assert sent == 2
    assert len(seen) == 3
    assert [dict(r.fields) for r in records] == [dict(expected[i].fields) for i in (5, 4, 3, *range(10, 20))]
    assert dict(again[0].fields) == dict(expected[3].fields)


def test_prefetch_serves_blobs(documents: Documents) -> None:
    """What is read ahead is what was asked for last: images after blobs(), records after read()."""
    insert_photos(documents, 12)
    with ps.open(documents.url()) as store:
        for _ in range(2):
            assert store.blobs("image", [0, 1]) == [make_jpeg(0), make_jpeg(1)]
            store.prefetch(range(2, 12))
            assert store.read([3])[0].fields["label"] == 0
            assert store.blobs("image", range(2, 12)) == [make_jpeg(i) for i in range(2, 12)]


def test_no_collection_is_not_found(documents: Documents) -> None:
    """A collection or database that is not there is not found; an empty one is no store."""
    with pytest.raises(StoreNotFoundError, match="there is no collection 'photos'"):
        ps.open(documents.url())
    documents.database.create_collection("photos")
    with pytest.raises(StoreFormatError, match="the collection 'photos' has no documents"):
        ps.open(documents.url())


@pytest.mark.parametrize("path", ["", "/", "/pets", "/pets/"])
def test_the_url_names_database_and_collection(path: str) -> None:
    """A URL without database or collection says how it is written."""
    with pytest.raises(ArgumentError, match="must name database and collection"):
        ps.open(f"mongodb://127.0.0.1:1{path}")


def test_names_in_urls_are_decoded(documents: Documents) -> None:
    """Names with spaces and slashes are written with %."""
    documents.insert([{"image": make_jpeg(1)}], "my photos")

    with ps.open(documents.url("my%20photos")) as store:
        assert store[0].fields["image"] == make_jpeg(1)


def test_absent_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pymongo, the error says which command installs it."""
    monkeypatch.setitem(__import__("sys").modules, "pymongo", None)

    with pytest.raises(OptionalPackageError, match=r"pip install 'penstock-data\[mongo\]'"):
        ps.open("mongodb://127.0.0.1:1/pets/photos")


def test_a_child_has_a_client_of_its_own(documents: Documents) -> None:
    """After a fork the child connects by itself, nothing warns, and the parent goes on."""
    insert_photos(documents)
    store = ps.open(documents.url())
    store.read([0])
    store.prefetch([1, 2])

    def look() -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            store.prefetch([3])
            right = bool(store.read([4, 3])[0].fields["image"] == make_jpeg(4))
            store.close()
            gc.collect()
        return right

    assert in_child(look) == b"True"
    assert store.read([1, 5])[1].fields["image"] == make_jpeg(5)
    store.close()


@pytest.mark.parametrize("method", [None, "fork", "spawn"])
def test_workers_read_documents(documents: Documents, method: str | None, caplog: pytest.LogCaptureFixture) -> None:
    """Worker processes of each start read every record; the threads of pymongo's clients are no reason not to fork."""
    documents.insert([{"image": make_jpeg(i), "label": i} for i in range(30)])
    with ps.open(documents.url()) as store, caplog.at_level("INFO", "penstock"):
        assert store[0].fields["label"] == 0
        dataset = ps.StoreDataset(store, transform=[T.Decode(), T.Resize((8, 8))])
        loader = ps.DataLoader(
            dataset, batch_size=4, num_workers=2, workers="processes", multiprocessing_context=method, shuffle=True
        )

        labels = [label for batch in loader for label in batch["label"].tolist()]

    assert sorted(labels) == list(range(30))
    assert "forkserver" not in caplog.text


def test_a_store_that_is_forgotten_closes_its_client(documents: Documents) -> None:
    """A store that nobody closed leaves no connection and no warning."""
    insert_photos(documents)
    store = ps.open(documents.url())
    store.prefetch([1])
    assert store.read([1])[0].fields["image"] == make_jpeg(1)
    for thread in threading.enumerate():
        if thread.name == "penstock-read-ahead":
            thread.join()
    client = store._connection._clients.get()  # type: ignore[attr-defined]  # of the kind under test
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del store
        gc.collect()

    assert client._closed


def test_threads_share_one_client(documents: Documents) -> None:
    """Threads that read at once get the right records, with one client."""
    insert_photos(documents, 30)
    failures: list[object] = []
    with ps.open(documents.url()) as store:

        def read(seed: int) -> None:
            rng = np.random.default_rng(seed)
            for _ in range(20):
                indices = rng.integers(0, 30, 5).tolist()
                store.prefetch(rng.integers(0, 30, 5))
                try:
                    for index, record in zip(indices, store.read(indices), strict=True):
                        if record.fields["image"] != make_jpeg(index):
                            failures.append(index)
                except PenstockError as error:
                    failures.append(error)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert failures == []
    assert isinstance(store, MongoStore)


def test_values_that_later_documents_gain_are_said(documents: Documents) -> None:
    """A value that none of the first documents has is no field; reading says so once, and fields= has it read."""
    insert_photos(documents, 40)
    wanted = {"img_name": "late.jpg", "img": {"data": make_jpeg(1), "w": 8, "h": 9}, "cls": 1, "score": 1.0}
    documents.insert([wanted | {"box": [1, 2, 3, 4], "none": None}, wanted | {"img_name": "later.jpg"}])

    with ps.open(documents.url()) as store:
        store.read([39])
        with pytest.warns(UserWarning, match=r"'late.jpg' of .* not read: 'img.h', 'box'; fields= names") as caught:
            store.read([40, 41])
        assert [each.filename for each in caught] == [__file__]
    with ps.open(documents.url(), fields={"image": "img.data", "label": "cls"}, key="img_name") as store:
        assert set(store[40].fields) == {"image", "label"}
