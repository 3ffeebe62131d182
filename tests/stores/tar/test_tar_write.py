"""Tar files that we write: read by webdataset and tarfile, read back with every field."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from webdataset import tariterators

import penstock as ps
from penstock.errors import ArgumentError, PackError
from penstock.sample import Field, Schema
from penstock.stores import open as open_store
from penstock.stores.location import Location
from penstock.stores.tar.format import split_name
from penstock.stores.tar.store import TarStore
from penstock.stores.tar.stream import TarStream
from penstock.stores.tar.writer import TarWriter, find_free_key, hash_key

JPEG, PNG = b"\xff\xd8\xff\xe0 a picture", b"\x89PNG\r\n\x1a\n a picture"
SCHEMA = Schema(
    {
        "image": Field("image"),
        "label": Field("label", ("cat", "dög")),
        "boxes": Field("boxes"),
        "width": Field("int"),
        "score": Field("float"),
        "caption": Field("text"),
        "json": Field("json"),
        "flags": Field("bool[2]"),
        "Left View": Field("image"),
        "left view": Field("bytes"),
        "mask": Field("mask"),
        "png": Field("bytes"),
        "txt": Field("bytes"),
        "patch": Field("pixels:uint8[*,*,3]"),
    }
)
RECORDS: list[tuple[str, dict[str, Any]]] = [
    (
        "a/x.jpg",
        {
            "image": JPEG,
            "label": 1,
            "boxes": np.arange(8, dtype=np.float32).reshape(2, 4),
            "width": -(2**63),
            "score": float("inf"),
            "caption": "Ä\n\0",
            "json": {"a": [1, None]},
            "flags": np.array([True, False]),
            "Left View": PNG,
            "left view": b"",
            "mask": PNG,
            "png": b"\0",
            "txt": b"\xff",
            "patch": np.arange(2 * 5 * 3, dtype=np.uint8).reshape(2, 5, 3),
        },
    ),
    ("b", dict.fromkeys(SCHEMA.fields) | {"image": PNG}),
    ("c.d.JPEG", dict.fromkeys(SCHEMA.fields) | {"label": 0, "boxes": np.zeros((0, 4), np.float32), "json": []}),
]


def write_store(path: Path, schema: Schema, records: Iterable[tuple[str, dict[str, Any]]], **options: Any) -> Path:
    """A file that our writer makes."""
    writer = TarStore.writer(Location.from_path("tar", path), schema, "test", overwrite=True, **options)
    for key, fields in records:
        writer.append(writer.prepare(key, fields))
    writer.finish()
    return path


def assert_same(found: Any, expected: Any) -> None:
    """Values of any kind are equal, in their types too."""
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert found.tobytes() == expected.tobytes()
    elif isinstance(expected, bytes):
        assert bytes(found) == expected
    else:
        assert found == expected
        assert type(found) is type(expected)


def test_every_kind_of_field_comes_back(tmp_path: Path) -> None:
    """Schema, class names, values and missing values are those that were written, by index and as a stream."""
    path = write_store(tmp_path / "a.tar", SCHEMA, RECORDS)

    with open_store(path) as store:
        assert store.schema == SCHEMA
        assert list(store.keys()) == ["a/x", "b", "c_d"]
        found = [list(store), [record for record, _ in TarStream(path).records()]]
    for records in found:
        for record, (_, fields) in zip(records, RECORDS, strict=True):
            for name, value in fields.items():
                assert_same(record.fields[name], value)


def test_webdataset_reads_what_we_write(tmp_path: Path) -> None:
    """Keys and suffixes are those of its conventions; what declares the fields is left out."""
    path = write_store(tmp_path / "a.tar", SCHEMA, RECORDS)
    source = [{"url": "u", "stream": io.BytesIO(path.read_bytes())}]

    samples = list(tariterators.group_by_keys(tariterators.tar_file_expander(source)))

    assert [sample["__key__"] for sample in samples] == ["a/x", "b", "c_d"]
    assert samples[0]["jpg"] == JPEG
    assert samples[0]["cls"] == b"1"
    assert samples[1]["png"] == PNG
    np.testing.assert_array_equal(np.load(io.BytesIO(samples[0]["boxes.npy"])), RECORDS[0][1]["boxes"])


def test_plain_fields_need_no_declaration(tmp_path: Path) -> None:
    """An archive of images, labels and texts has these files only."""
    schema = Schema({"image": Field("image"), "label": Field("label"), "json": Field("json")})
    path = write_store(tmp_path / "a.tar", schema, [("1.png", {"image": PNG, "label": 3, "json": {"x": 1}})])

    with tarfile.open(path) as tar:
        assert tar.getnames() == ["1.png", "1.cls", "1.json"]
        assert {(member.mtime, member.uid, member.uname, member.mode) for member in tar} == {(0, 0, "", 0o644)}
    assert path.stat().st_size % 10240 == 0
    with open_store(path) as store:
        assert store.schema == schema


KEYS = st.text(st.one_of(st.sampled_from("ab./_\n "), st.characters(codec="utf-8")), max_size=20)


@given(keys=st.lists(KEYS, min_size=1, max_size=5))
def test_any_key_is_read_back_as_one_record(keys: list[str]) -> None:
    """Whatever keys are, the files of a record are found together, and never with those of the next one."""
    used: set[bytes] = set()
    for key in keys:
        stored = find_free_key(key, used)

        assert hash_key(stored) not in used
        for suffix in (b"jpg", b"boxes.npy"):
            assert split_name(stored.encode() + b"." + suffix) == (stored.encode(), suffix)
        assert not stored.startswith("__")
        used.add(hash_key(stored))


def test_records_whose_names_differ_in_their_endings_stay_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2.jpg and 2.png are two records, beside each other or not, and in a file that is resumed."""
    schema = Schema({"image": Field("image")})
    records = [(key, {"image": JPEG + key.encode()}) for key in ("2.jpg", "2.png", "2.gif", "2_2.gif")]

    with open_store(write_store(tmp_path / "a.tar", schema, records)) as store:
        assert [bytes(record.fields["image"]) for record in store] == [fields["image"] for _, fields in records]
        assert list(store.keys()) == ["2", "2_2", "2_3", "2_2_2"]
    location = Location.from_path("tar", tmp_path / "b.tar")
    monkeypatch.setattr("penstock.stores.common.file_writer._COMMIT_RECORDS", 1)
    for part in (records[:2], records[2:]):
        writer = TarWriter(location, schema, "x")
        for key, fields in part:
            writer.append(writer.prepare(key, fields))
        writer.close()
    TarWriter(location, schema, "x").finish()
    assert (tmp_path / "b.tar").read_bytes() == (tmp_path / "a.tar").read_bytes()


def test_what_cannot_be_stored_is_refused_by_name(tmp_path: Path) -> None:
    """A record without a value, a value of another kind, and keys that are no text."""
    schema = Schema({"image": Field("image"), "boxes": Field("boxes"), "text": Field("text")})
    writer = TarWriter(Location.from_path("tar", tmp_path / "a.tar"), schema, "x")
    fields: dict[str, Any] = {"image": JPEG, "boxes": None, "text": "a"}
    wrong: dict[str, Any]

    for wrong, reason in (
        ({"boxes": np.zeros((2, 3))}, "'boxes' must be of kind boxes"),
        ({"text": "\ud800"}, "'text' must be valid UTF-8"),
    ):
        with pytest.raises(PackError, match=reason) as caught:
            writer.prepare("k", fields | wrong)
        assert caught.value.where["key"] == "k"
    with pytest.raises(PackError, match="a key must be valid Unicode"):
        writer.prepare("\ud800", fields)
    writer.discard()
    plain = TarWriter(Location.from_path("tar", tmp_path / "a.tar"), Schema({"image": Field("image")}), "x")
    with pytest.raises(PackError, match="must have a value"):
        plain.prepare("k", {"image": None})
    plain.discard()
    assert list(tmp_path.iterdir()) == []


def test_long_names_are_stored(tmp_path: Path) -> None:
    """Names of any length, in ustar where they fit."""
    schema = Schema({"image": Field("image")})
    keys = ["x" * 90, "x" * 100, "d" * 100 + "/" + "x" * 90, "é" * 300, "d/" * 200 + "x"]

    with open_store(write_store(tmp_path / "a.tar", schema, [(key, {"image": JPEG}) for key in keys])) as store:
        assert list(store.keys()) == keys


def test_packs_become_archives_and_packs_again(tmp_path: Path) -> None:
    """A folder packed to tar, and that to LMDB and to tar: the same bytes, labels, class names and sizes."""
    from PIL import Image

    rng = np.random.default_rng(3)
    for name in ("cats/1.jpg", "cats/2.png", "dogs/1.jpg"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 9, 3), np.uint8)).save(tmp_path / "photos" / name)

    ps.pack(tmp_path / "photos", tmp_path / "a.tar")
    ps.pack(tmp_path / "a.tar", tmp_path / "a.lmdb")
    ps.pack(tmp_path / "a.lmdb", tmp_path / "b.tar")

    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    assert ps.pack(tmp_path / "photos", tmp_path / "a.tar").reused
    with open_store(tmp_path / "b.tar") as store:
        assert store.schema["label"].classes == ("cats", "dogs")
        assert store[1].fields["width"] == 9
        assert bytes(store[1].fields["image"]) == (tmp_path / "photos" / "cats" / "2.png").read_bytes()


# ---------------------------------------------------------------- shards


def test_shards_have_bounded_sizes(tmp_path: Path) -> None:
    """By records, or by bytes; each is an archive of its own, and together they are the store."""
    schema = Schema({"image": Field("image"), "label": Field("label", ("a", "b"))})
    records = [(f"{number}.jpg", {"image": JPEG * 100, "label": number % 2}) for number in range(10)]

    write_store(tmp_path / "r.tar", schema, records, shard_records=4)
    write_store(tmp_path / "n.tar", schema, records, shard_nbytes=10_000)

    assert sorted(path.name for path in tmp_path.glob("r*.tar")) == [f"r-{number:06d}.tar" for number in range(3)]
    for pattern, count in (("r", 3), ("n", None)):
        with open_store(str(tmp_path / f"{pattern}-*.tar")) as store:
            assert store.schema == schema
            assert [record.fields["label"] for record in store] == [fields["label"] for _, fields in records]
            assert count is None or store.description.startswith(f"tar (WebDataset): 10 records in {count} shards")
    assert all(path.stat().st_size <= 20_480 for path in tmp_path.glob("n-*.tar"))
    assert not list(tmp_path.glob("*.partial*"))


def test_shards_that_are_there_are_not_replaced(tmp_path: Path) -> None:
    """Without overwrite, what is there stays; with it, shards of an earlier run are removed."""
    schema = Schema({"image": Field("image")})
    records = [(f"{number}.jpg", {"image": JPEG}) for number in range(6)]
    write_store(tmp_path / "a.tar", schema, records, shard_records=2)

    with pytest.raises(ArgumentError, match="exists"):
        TarStore.writer(Location.from_path("tar", tmp_path / "a.tar"), schema, "x", shard_records=2)
    write_store(tmp_path / "a.tar", schema, records[:3], shard_records=2)

    assert len(list(tmp_path.glob("a-*.tar"))) == 2
    with pytest.raises(ArgumentError, match="shard_records must be at least 1, got 0"):
        TarStore.writer(Location.from_path("tar", tmp_path / "b.tar"), schema, "x", shard_records=0)
    with pytest.raises(ArgumentError, match="shard_nbytes must be at least 1, got -1"):
        TarStore.writer(Location.from_path("tar", tmp_path / "b.tar"), schema, "x", shard_nbytes=-1)


def test_shards_are_converted_proved_and_found_finished(tmp_path: Path) -> None:
    """`ps.convert` to shards compares them with the source, keeps keys beside the first, and does not write twice."""
    from PIL import Image

    source = tmp_path / "source.lmdb"
    ps.pack(
        ({"image": Image.fromarray(np.full((8, 9, 3), number, np.uint8)), "label": number % 2} for number in range(10)),
        source,
        classes=["a", "b"],
    )
    limits = {"shard_records": 4}

    first = ps.convert(source, tmp_path / "t.tar", to_options=limits)
    steps: set[str] = set()
    again = ps.convert(source, tmp_path / "t.tar", to_options=limits, progress=lambda step, *_: steps.add(step))

    assert first.ok
    assert (again.store_digest, steps) == (first.store_digest, {"comparing"})
    assert sorted(path.name for path in tmp_path.glob("t-*.tar")) == [f"t-{number:06d}.tar" for number in range(3)]
    assert (tmp_path / "t-000000.tar.convert.json").is_file()
    with open_store(str(tmp_path / "t-*.tar")) as store, open_store(source) as held:
        assert list(store.keys()) == list(held.keys())
        assert [bytes(record.fields["image"]) for record in store] == [bytes(each.fields["image"]) for each in held]
    with pytest.raises(ArgumentError, match="exists"):
        ps.convert(source, tmp_path / "t.tar", to_options={"shard_records": 5})
    replaced = ps.convert(source, tmp_path / "t.tar", to_options={"shard_records": 5}, overwrite=True)
    assert replaced.ok
    assert len(list(tmp_path.glob("t-*.tar"))) == 2
