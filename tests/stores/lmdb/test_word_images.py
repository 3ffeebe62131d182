"""Environments of text recognition: images and texts from number 1 to num-samples; the rest is said."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import lmdb
import numpy as np
import pytest

import penstock as ps
from penstock.errors import CorruptRecordError, StoreFormatError

IMAGE = bytes(ps.encode(np.full((8, 20, 3), 7, np.uint8), "png"))


def write(path: Path, entries: Mapping[str, bytes]) -> Path:
    """An environment of some entries."""
    with lmdb.open(str(path), map_size=1 << 24) as environment, environment.begin(write=True) as transaction:
        for key, value in entries.items():
            transaction.put(key.encode(), value)
    return path


def make(count: int, width: int = 9) -> dict[str, bytes]:
    """The entries of so many records."""
    numbers = range(1, count + 1)
    images = {f"image-{number:0{width}d}": IMAGE + b"%d" % number for number in numbers}
    texts = {f"label-{number:0{width}d}": f"{number} w\u00f6rd".encode() for number in numbers}
    return images | texts | {"num-samples": b"%d" % count}


@pytest.mark.parametrize("width", [9, 1])
def test_images_and_texts_are_records_by_number(tmp_path: Path, width: int) -> None:
    """The order is that of the numbers, whether these have leading zeros or not, over many pages."""
    with ps.open(write(tmp_path / "a", make(1200, width))) as store:
        assert store.kind == "lmdb-words"
        assert store.description == "words: 1,200 records by number, with texts"
        assert [field.kind for field in store.schema.fields.values()] == ["image", "text"]
        assert list(store.keys()) == [f"{number:0{width}d}" for number in range(1, 1201)]
        assert store[1199].fields == {"image": IMAGE + b"1200", "label": "1200 w\u00f6rd"}
        assert list(store.column("label"))[9:11] == ["10 w\u00f6rd", "11 w\u00f6rd"]
        assert [bytes(image) for image in store.blobs("image", [2, 0])] == [IMAGE + b"3", IMAGE + b"1"]
        assert store.problems == ()


def test_digits_are_texts_and_classes_numbers(tmp_path: Path) -> None:
    """A text such as 042 stays one; names of classes that are given become labels, and another one is damage."""
    texts = {"label-000000001": b"042", "label-000000002": b"cat", "label-000000003": b"dog"}
    path = write(tmp_path / "a", make(3) | texts)

    assert ps.open(path)[0].fields["label"] == "042"
    with ps.open(path, classes=["dog", "cat"]) as store:
        assert [record.fields["label"] for record in store.read([1, 2])] == [1, 0]
        with pytest.raises(CorruptRecordError, match="is none of the 2 classes"):
            store.read([0])


def test_texts_that_are_no_text_are_damage(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 are an error of their record."""
    with ps.open(write(tmp_path / "a", make(2) | {"label-000000002": b"\xff"})) as store:
        assert store[0].fields["label"] == "1 w\u00f6rd"
        with pytest.raises(CorruptRecordError, match="record 1"):
            store.read([1])


def test_images_alone_are_records(tmp_path: Path) -> None:
    """Sets without texts have the field image only."""
    entries = {key: value for key, value in make(3).items() if not key.startswith("label")}

    with ps.open(write(tmp_path / "a", entries)) as store:
        assert list(store.schema.fields) == ["image"]
        assert len(store) == 3


@pytest.mark.parametrize(
    ("changes", "reason", "left"),
    [
        ({"image-000000002": None}, "1 key of the records 1 to 4 missing: 'image-000000002'", [1, 3, 4]),
        ({"label-000000002": None, "image-000000003": None}, "2 keys of the records 1 to 4 missing", [1, 4]),
        ({"num-samples": b"6"}, "num-samples is 6, and the last record that is there is 4", [1, 2, 3, 4]),
    ],
)
def test_what_is_missing_is_refused_or_left_out(
    tmp_path: Path, changes: dict[str, bytes | None], reason: str, left: list[int]
) -> None:
    """An entry that num-samples promises is named; missing="skip" leaves its record out and lists it."""
    entries = {key: value for key, value in (make(4) | changes).items() if value is not None}
    path = write(tmp_path / "a", entries)

    with pytest.raises(StoreFormatError, match=reason):
        ps.open(path)
    with ps.open(path, missing="skip") as store:
        assert list(map(int, store.keys())) == left
        assert len(store.problems) == len(changes)
        assert [record.fields["label"] for record in store] == [f"{number} w\u00f6rd" for number in left]


def test_what_is_besides_is_listed(tmp_path: Path) -> None:
    """Records behind num-samples, number 0 and other keys are problems; without num-samples all numbers count."""
    others = {"image-000000000": IMAGE, "note": b"x", "num-samples": b"3"}
    path = write(tmp_path / "a", make(4) | others)
    counted = write(tmp_path / "b", {key: value for key, value in make(4).items() if key != "num-samples"})

    with ps.open(path) as store:
        assert len(store) == 3
        assert sorted(each.key for each in store.problems) == [
            "image-000000000", "image-000000004", "label-000000004", "note",
        ]  # fmt: skip
    with ps.open(counted) as store:
        assert len(store) == 4


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num-samples": b"many"}, "num-samples must be the number of records, got b'many'"),
        ({"num-samples": b"9" * 30}, "num-samples must be"),
        ({"image-999999999999999999": IMAGE, "num-samples": b"9" * 18}, "its keys must be those of the records 1, 2"),
        ({"image-0002": IMAGE}, "two keys have the number of"),
    ],
)
def test_damaged_numbers_are_refused(tmp_path: Path, changes: dict[str, bytes], reason: str) -> None:
    """A count that is none, numbers that would take all memory, and a number that occurs twice."""
    path = write(tmp_path / "a", make(4) | changes)

    for missing in ("raise", "skip"):
        with pytest.raises(StoreFormatError, match=reason):
            ps.open(path, missing=missing)
