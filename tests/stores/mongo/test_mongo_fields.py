"""Layouts that are found in documents, and values of any type: converted, or refused as values."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ArgumentError, PenstockError, StoreFormatError
from penstock.fields.roles import Stated
from penstock.sample import Field, Schema
from penstock.stores.mongo.fields import DocumentLayout, find_layout, get_value
from penstock.stores.mongo.listing import DocumentIds
from penstock.stores.mongo.values import DocumentReader, count_bytes, make_projection, to_text

bson = pytest.importorskip("bson")

JPEG = b"\xff\xd8\xff\xe0 and so on"
NAMES = st.sampled_from(
    ["image", "label", "boxes", "cls", "mask", "key", "name", "a", "b", "shape", "values", "0", "_id"]
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.just(JPEG)
    | st.just(bson.ObjectId("0123456789abcdef01234567"))
    | st.just(bson.Decimal128("1.5"))
    | st.just(dt.datetime(2024, 1, 2, tzinfo=dt.UTC))
    | st.just(bson.Int64(5))
)
VALUES = st.recursive(
    LEAVES, lambda each: st.lists(each, max_size=4) | st.dictionaries(NAMES, each, max_size=3), max_leaves=8
)
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=5)
KINDS = [
    "image",
    "mask",
    "bytes",
    "label",
    "int",
    "float",
    "text",
    "json",
    "boxes",
    "int64[*]",
    "bool[2,2]",
    "pixels:uint8[*,2,1]",
]


@given(documents=st.lists(DOCUMENTS, min_size=1, max_size=4))
def test_any_documents_have_a_layout_or_none(documents: list[dict[str, Any]]) -> None:
    """Whatever documents are like, a layout is found that reads them, or refused; nothing else is raised."""
    try:
        layout = find_layout(documents, Stated())
    except (ArgumentError, StoreFormatError):
        return
    assert set(layout.schema.fields) == set(layout.paths)
    reader = DocumentReader(layout)
    for document in documents:
        try:
            assert set(reader.read(document)) == set(layout.paths)
        except (ValueError, TypeError) as error:
            assert not isinstance(error, PenstockError)  # noqa: PT017  # any document may be refused, or not


def test_boxes_are_stated_or_called_so() -> None:
    """Rows of four numbers are boxes if they are called boxes and look like corners, or if their form is stated."""
    corners, sizes = [[10, 20, 30, 40]], [[10, 20, 3, 4]]

    assert find_layout([{"boxes": corners}], Stated()).schema["boxes"].kind == "boxes"
    assert find_layout([{"boxes": sizes}], Stated()).schema["boxes"].kind == "int64[1,4]"
    bbox = find_layout([{"bbox": sizes}], Stated())
    assert bbox.schema["bbox"].kind == "int64[1,4]"
    assert "'bbox' may hold boxes: state boxes=" in bbox.describe()
    stated = find_layout([{"bbox": sizes}], Stated(boxes="xywh"))
    assert stated.schema["bbox"].kind == "boxes"
    assert DocumentReader(stated).read({"bbox": sizes})["bbox"].tolist() == [[10, 20, 13, 24]]


def test_no_column_is_lost_to_a_role() -> None:
    """A value that has the name of a role, and not the role, is read under another name."""
    layout = find_layout([{"image": 7, "photo": JPEG, "Label": 5, "label": 1}], Stated())

    assert layout.paths == {"image_": "image", "image": "photo", "Label": "Label", "label": "label"}


@given(kind=st.sampled_from(KINDS), value=VALUES)
def test_any_value_is_of_its_kind_or_refused(kind: str, value: Any) -> None:
    """A value of any type gives a value of the field's kind, None, or a ValueError that names the field."""
    reader = DocumentReader(DocumentLayout(Schema({"x": Field(kind)}), {"x": "x"}))
    try:
        found = reader.read({"x": value})["x"]
    except (ValueError, TypeError) as error:
        assert "'x'" in str(error) or kind == "json"  # noqa: PT017  # any value may be
        return
    array = Field(kind).array or Field(kind).pixels
    if found is None:
        assert value is None
    elif array is not None:
        assert array.allows(found.shape)
        assert found.dtype == array.dtype
        assert not found.flags.writeable
    elif kind != "json":
        assert type(found) is {"label": int, "int": int, "float": float, "text": str}.get(kind, bytes)


@pytest.mark.parametrize("shape", [[10**9, 10**9], [2**40, 1], [-1, 4], [True], ["4"], None, [0, 10**12]])
def test_shapes_from_a_document_are_not_trusted(shape: Any) -> None:
    """A shape is compared with the number of values before anything is allocated."""
    reader = DocumentReader(DocumentLayout(Schema({"x": Field("float32[*,*]")}), {"x": "x"}))

    for values in ([], [1.0, 2.0]):
        if shape == [0, 10**12] and not values:
            assert reader.read({"x": {"shape": shape, "values": values}})["x"].nbytes == 0
            continue
        with pytest.raises(ValueError, match="'x'"):
            reader.read({"x": {"shape": shape, "values": values}})


def test_projections_have_no_path_inside_another() -> None:
    """A projection asks for each path once, for the whole where a part is asked for too, and for lists as a whole."""
    assert make_projection(["a.b", "a", "c.0.d", "c.e", "_id"]) == {"a": 1, "c": 1, "_id": 1}
    assert make_projection(["a.b", "a.c", "ab"]) == {"a.b": 1, "a.c": 1, "ab": 1, "_id": 1}
    assert make_projection(["_id"]) == {"_id": 1}


def test_paths_go_through_documents_and_lists() -> None:
    """A number in a path is a place in a list, or a name in a document."""
    document = {"a": [{"b": 1}, {"b": 2}], "0": {"x": 3}}

    assert get_value(document, ["a", "1", "b"]) == 2
    assert get_value(document, ["0", "x"]) == 3
    for path in ("a.2.b", "a.b", "a.-1", "0.x.y", "z", "a.٣"):
        assert get_value(document, path.split(".")) is None


def test_bytes_are_counted_at_any_depth() -> None:
    """The memory of documents that are read ahead is that of their bytes, nested ones too."""
    assert count_bytes({"a": b"123", "b": {"c": [b"4", {"d": b"56"}], "e": "text"}, "f": 7}) == 6


def test_texts_of_values() -> None:
    """Values that are no text have one: a decimal number, an id, a time."""
    assert to_text(bson.Decimal128("1.50")) == "1.50"
    assert to_text(bson.ObjectId("0123456789abcdef01234567")) == "0123456789abcdef01234567"
    assert to_text(dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)) == "2024-01-02T03:04:05+00:00"


@given(
    ids=st.lists(
        st.integers(-(2**63), 2**63 - 1) | st.text(max_size=4) | st.binary(min_size=12, max_size=12).map(bson.ObjectId)
    )
    | st.lists(st.binary(min_size=12, max_size=12).map(bson.ObjectId))
    | st.lists(st.integers(-(2**63), 2**63 - 1))
    | st.lists(st.text(max_size=4))
)
def test_ids_are_kept(ids: list[Any]) -> None:
    """A list of ids gives what went in, by index and slice, and its bytes differ for other lists."""
    import pickle

    kept = pickle.loads(pickle.dumps(DocumentIds(ids)))

    assert len(kept) == len(ids)
    assert list(kept) == kept[:] == ids
    assert [type(each) for each in kept] == [type(each) for each in ids]
    assert kept.to_bytes() == DocumentIds(ids).to_bytes()
    assert DocumentIds([*ids, 7]).to_bytes() != kept.to_bytes()


def test_a_million_ids_are_small() -> None:
    """An ObjectId takes 12 bytes, whatever the number of ids; ids of several types after many of one are kept."""
    base = bytes(8)
    many = DocumentIds(bson.ObjectId(base + number.to_bytes(4, "big")) for number in range(20_000))

    assert len(many.to_bytes()) == 12 * 20_000
    assert many[19_999] == bson.ObjectId(base + (19_999).to_bytes(4, "big"))
    mixed = DocumentIds([*range(12_000), "text"])
    assert (mixed[11_999], mixed[12_000]) == (11_999, "text")
