"""Conversion between kinds of stores: every record is the same afterwards, and a mistake of a writer is found."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet as pq
from typer.testing import CliRunner

import penstock as ps
from penstock.cli import app
from penstock.errors import ArgumentError, CorruptRecordError, IncompleteStoreError, PackError, StoreError
from penstock.pack.conversion.comparison import hash_value, is_equal
from penstock.sample import Field, Schema
from penstock.stores import STORES, joined
from penstock.stores.base import Store
from penstock.stores.images.store import FilesStore
from penstock.stores.lmdb_pack.store import LmdbStore
from penstock.stores.location import Location
from tests.pack.images import make_photos

WRITABLE = [name for name in STORES if getattr(STORES.get(name).writer, "__func__", None) is not Store.writer.__func__]  # type: ignore[attr-defined]  # a class method
"""Kinds that can be written."""

SCHEMA = Schema(
    {
        "image": Field("image"),
        "label": Field("label", ("zebra", "ant", "bee")),
        "weight": Field("float"),
        "caption": Field("text"),
        "extra": Field("json"),
        "boxes": Field("boxes"),
        "tokens": Field("int64[*]"),
    }
)
KEYS = ["b/10.jpg", "b/2.jpg", "a/ä ö.jpg", "no_suffix", "a/2.jpg", "z.png", "b/x.y.jpg"]


def make_image(number: int, suffix: str = "JPEG") -> bytes:
    """A small picture, another one for each number."""
    file = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 256, (10 + number, 12, 3), np.uint8)
    Image.fromarray(pixels).save(file, suffix)
    return file.getvalue()


def make_fields(number: int) -> dict[str, Any]:
    """The fields of one record."""
    return {
        "image": make_image(number, "PNG" if KEYS[number % len(KEYS)].endswith("png") else "JPEG"),
        "label": number % 3,
        "weight": number / 7,
        "caption": f"picture {number}, ünï",
        "extra": {"number": number, "tags": ["x"] * (number % 3)},
        "boxes": np.arange(4 * (number % 3), dtype=np.float32).reshape(-1, 4),
        "tokens": np.arange(number % 4, dtype=np.int64),
    }


def write_pack(path: Path, keys: list[str] | None = None, schema: Schema = SCHEMA) -> LmdbStore:
    """A pack with fields of many kinds, keys in no order, and classes that are not in the order of the alphabet."""
    writer = LmdbStore.writer(Location.from_path("lmdb", path), schema, "test")
    for number, key in enumerate(KEYS if keys is None else keys):
        fields = make_fields(number)
        writer.append(writer.prepare(key, {name: fields[name] for name in schema.fields}))
    writer.finish()
    return LmdbStore(path)


def destination(kind: str, folder: Path) -> str:
    """Where a store of a kind is written."""
    suffixes = STORES.list_written(kind)
    return f"{kind}://{folder / 'written'}{suffixes[0] if suffixes else ''}"


@pytest.mark.parametrize("kind", WRITABLE)
def test_there_and_back_everything_is_equal(kind: str, tmp_path: Path) -> None:
    """Encoded bytes, every field, classes, keys and order survive the way to a kind and back."""
    source = write_pack(tmp_path / "source.lmdb")

    there = ps.convert(source, destination(kind, tmp_path))
    back = ps.convert(destination(kind, tmp_path), tmp_path / "back.lmdb")

    assert there.ok
    assert back.ok
    assert there.records == len(KEYS)
    assert back.store_digest == there.source_digest
    again = LmdbStore(tmp_path / "back.lmdb")
    assert again.schema == source.schema
    assert list(again.keys()) == KEYS
    assert again.fingerprint() == source.fingerprint()


def turn_round(kinds: list[str]) -> list[tuple[str, str]]:
    """Each kind with the next of them: each one is converted from another and to another."""
    return list(zip(kinds, [*kinds[1:], kinds[0]], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), turn_round(WRITABLE))
def test_from_each_kind_to_another_everything_is_equal(first: str, second: str, tmp_path: Path) -> None:
    """A store of one kind, converted to another one and back, gives the same records."""
    convert_round(write_pack(tmp_path / "source.lmdb"), first, second, tmp_path)


def convert_round(source: Store, first: str, second: str, folder: Path) -> None:
    """Convert a store to one kind, to another, and back; the digests are the same."""
    places = {name: folder / name for name in ("one", "two", "three")}
    for place in places.values():
        place.mkdir()
    one = ps.convert(source, destination(first, places["one"]))

    two = ps.convert(destination(first, places["one"]), destination(second, places["two"]))
    three = ps.convert(destination(second, places["two"]), destination(first, places["three"]))

    assert one.source_digest == two.store_digest == three.store_digest


def storing_pixels() -> list[str]:
    """Kinds that can be written with pixels of one shape."""
    schema = Schema({"image": Field("pixels:uint8[8,9,3]"), "label": Field("label")})
    found = []
    for name in WRITABLE:
        try:
            STORES.get(name).storable(schema)
        except ArgumentError:
            continue
        found.append(name)
    return found


def write_pixels(path: Path) -> LmdbStore:
    """A pack of pixels, labels, boxes and landmarks, some of them empty."""
    rng = np.random.default_rng(3)
    schema = Schema(
        {
            "image": Field("pixels:uint8[8,9,3]"),
            "label": Field("label"),
            "box": Field("float32[*]"),
            "landmarks": Field("float32[*]"),
        }
    )
    writer = LmdbStore.writer(Location.from_path("lmdb", path), schema, "test")
    for number in range(40):
        fields = {
            "image": rng.integers(0, 256, (8, 9, 3), np.uint8),
            "label": number % 7 - 2,
            "box": rng.random(4 * (number % 2), np.float32),
            "landmarks": rng.random(10 * (number % 3 == 0), np.float32),
        }
        writer.append(writer.prepare(str(number), fields))
    writer.finish()
    return LmdbStore(path)


@pytest.mark.parametrize("kind", storing_pixels())
def test_pixels_are_equal_there_and_back(kind: str, tmp_path: Path) -> None:
    """Where pixels are stored, each of them is the same afterwards."""
    source = write_pixels(tmp_path / "source.lmdb")

    there = ps.convert(source, destination(kind, tmp_path))
    back = ps.convert(destination(kind, tmp_path), tmp_path / "back.lmdb")

    assert there.source_digest == back.store_digest
    assert LmdbStore(tmp_path / "back.lmdb").fingerprint() == source.fingerprint()


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), turn_round(storing_pixels()))
def test_pixels_of_each_kind_are_equal_in_another(first: str, second: str, tmp_path: Path) -> None:
    """A store of pixels of one kind, converted to another one and back, gives the same pixels."""
    convert_round(write_pixels(tmp_path / "source.lmdb"), first, second, tmp_path)


@pytest.mark.parametrize("kind", storing_pixels())
def test_gray_and_colour_pixels_are_converted_as_they_are(kind: str, tmp_path: Path) -> None:
    """Pixels of one, three and four channels are equal after the way there and back."""
    schema = Schema({"image": Field("pixels:uint8[*,*,*]"), "label": Field("label")})
    writer = LmdbStore.writer(Location.from_path("lmdb", tmp_path / "source.lmdb"), schema, "test")
    shapes = [(4, 5, 1), (5, 4, 3), (3, 3, 4)]
    for number, shape in enumerate(shapes):
        writer.append(writer.prepare(str(number), {"image": np.full(shape, number, np.uint8), "label": number}))
    writer.finish()

    ps.convert(LmdbStore(tmp_path / "source.lmdb"), destination(kind, tmp_path))
    ps.convert(destination(kind, tmp_path), tmp_path / "back.lmdb")

    with ps.open(tmp_path / "back.lmdb") as back:
        assert back.schema["image"] == schema["image"]
        assert [record.fields["image"].shape for record in back] == shapes
        assert all((record.fields["image"] == record.index).all() for record in back)


@pytest.mark.parametrize("kind", WRITABLE)
def test_images_without_labels_are_converted(kind: str, tmp_path: Path) -> None:
    """A source without labels has none after the way there and back, whatever the format needs."""
    source = write_pack(tmp_path / "source.lmdb", schema=Schema({"image": Field("image"), "boxes": Field("boxes")}))

    ps.convert(source, destination(kind, tmp_path))
    back = ps.convert(destination(kind, tmp_path), tmp_path / "back.lmdb")

    assert back.ok
    assert LmdbStore(tmp_path / "back.lmdb").schema == source.schema


@pytest.mark.parametrize("kind", WRITABLE)
def test_the_container_alone_has_the_labels_of_its_images(kind: str, tmp_path: Path) -> None:
    """A program that reads the container without the sidecar finds each image with the name or number of its class."""
    schema = Schema({name: SCHEMA[name] for name in ("image", "label", "caption")})
    source = write_pack(tmp_path / "source.lmdb", schema=schema)

    ps.convert(source, destination(kind, tmp_path))

    written = ps.open(destination(kind, tmp_path))
    alone = written.container if isinstance(written, joined.JoinedStore) else written
    expected = {make_fields(number)["image"]: number % 3 for number in range(len(KEYS))}
    classes = alone.schema["label"].classes
    for record in alone:
        label = expected[bytes(record.fields["image"])]
        if classes:
            assert classes[record.fields["label"]] == SCHEMA["label"].classes[label]
        else:
            assert float(record.fields["label"]) == label


@pytest.mark.parametrize("kind", WRITABLE)
def test_an_interrupted_conversion_is_resumed(kind: str, tmp_path: Path) -> None:
    """After an interruption, the destination cannot be opened, and the same call ends as if there had been none."""
    schema = Schema({name: SCHEMA[name] for name in ("image", "label")})
    source = write_pack(tmp_path / "source.lmdb", [f"{number:04}.jpg" for number in range(300)], schema)

    def stop(step: str, done: int, total: int, nbytes: int) -> None:
        if done > 150:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ps.convert(source, destination(kind, tmp_path), progress=stop)
    with pytest.raises((StoreError, IncompleteStoreError)):
        ps.open(destination(kind, tmp_path))

    report = ps.convert(source, destination(kind, tmp_path))

    assert report.ok
    assert report.records == 300


def write_tar(path: Path, keys: list[str], labels: list[int]) -> Store:
    """A tar of small pictures, with keys that may occur several times."""
    with tarfile.open(path, "w") as archive:
        for key, label in zip(keys, labels, strict=True):
            for suffix, content in (("jpg", make_image(label % 7)), ("cls", str(label).encode())):
                member = tarfile.TarInfo(f"{key}.{suffix}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return ps.open(path)


@pytest.mark.parametrize("kind", sorted({*WRITABLE} - {"files"}))
def test_equal_keys_are_kept_and_reported(kind: str, tmp_path: Path) -> None:
    """Records of shards that number alike keep their keys and their own labels, there and back."""
    keys, labels = ["000", "001", "000", "001", "000"], [4, 1, 9, 2, 0]
    source = write_tar(tmp_path / "source.tar", keys, labels)

    there = ps.convert(source, destination(kind, tmp_path))
    back = ps.convert(destination(kind, tmp_path), tmp_path / "back.lmdb")

    assert set(there.duplicates) == {"000", "001"}
    assert there.source_digest == back.store_digest
    again = LmdbStore(tmp_path / "back.lmdb")
    assert list(again.keys()) == keys
    assert again.column("label").tolist() == labels
    assert ps.verify(again, source).ok


def test_a_resumed_conversion_knows_which_of_two_records_was_left_out(tmp_path: Path) -> None:
    """Of two records with one key and class, the second is left out; a resumed run and one that compares know it."""
    keys, labels = [f"{number:04}" for number in range(300)], list(range(300))
    keys[200], labels[200] = keys[5], labels[5]
    source, target = write_tar(tmp_path / "source.tar", keys, labels), f"files://{tmp_path / 'written'}"

    def stop(step: str, done: int, total: int, nbytes: int) -> None:
        if done > 220:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ps.convert(source, target, on_error="skip", progress=stop)

    for _ in range(2):
        report = ps.convert(source, target, on_error="skip")
        assert report.ok
        assert report.records == 299
        assert [entry.key for entry in report.left_out] == [keys[5]]
    assert np.array_equal(ps.open(target).column("label"), np.delete(source.column("label"), 200))


@pytest.mark.parametrize("kind", WRITABLE)
def test_a_finished_conversion_is_proved_again(kind: str, tmp_path: Path) -> None:
    """The same call once more copies nothing, and compares both sides again."""
    source = write_pack(tmp_path / "source.lmdb")
    first = ps.convert(source, destination(kind, tmp_path))
    steps: set[str] = set()

    again = ps.convert(source, destination(kind, tmp_path), progress=lambda step, *_: steps.add(step))

    assert steps == {"comparing"}
    assert again.ok
    assert (again.store_digest, again.beside) == (first.store_digest, first.beside)


class SwappingStore(FilesStore):
    """A kind whose writer gives every record the label of another one."""

    @classmethod
    def writer(cls, *args: Any, **kwargs: Any) -> Any:
        """The writer of a folder, with the mistake."""
        writer = super().writer(*args, **kwargs)
        prepare = writer.prepare

        def swapped(key: str, fields: Mapping[str, object]) -> Any:
            label = fields["label"]
            assert isinstance(label, int)
            return prepare(key, {**fields, "label": (label + 1) % 3})

        writer.prepare = swapped  # type: ignore[method-assign]  # the mistake under test
        return writer

    @classmethod
    def stored_key(cls, key: str, fields: Mapping[str, Any], schema: Schema) -> str:
        """As the writer has it."""
        return super().stored_key(key, {**fields, "label": (fields["label"] + 1) % 3}, schema)


def test_a_label_with_the_wrong_image_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that mixes labels up is refused by the proof, even where a sidecar has the right ones."""
    source = write_pack(tmp_path / "source.lmdb")
    entries = dict(STORES._entries) | {"files": f"{__name__}:SwappingStore"}
    monkeypatch.setattr(STORES, "_entries", entries)

    with pytest.raises(CorruptRecordError, match="its label in the container is"):
        ps.convert(source, f"files://{tmp_path / 'written'}")
    report = json.loads((tmp_path / "written" / ".convert.json").read_text())
    assert not report["ok"]
    assert len(report["problems"]) == len(KEYS)


def test_the_report_is_kept_and_printed(tmp_path: Path) -> None:
    """`penstock convert` prints the report, as text or JSON, and keeps it beside the store."""
    folder = make_photos(tmp_path / "photos")
    run = CliRunner().invoke

    text = run(app, ["convert", str(folder), str(tmp_path / "a.lmdb")])
    as_json = run(app, ["convert", str(tmp_path / "a.lmdb"), f"files://{tmp_path / 'b'}", "--report", "json"])

    assert text.exit_code == as_json.exit_code == 0, text.output + as_json.output
    assert "all fields equal, digest " in text.output
    entry = json.loads(as_json.stdout)
    assert entry["ok"]
    assert entry == json.loads((tmp_path / "b" / ".convert.json").read_text())


def test_records_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """With on_error="raise", nothing is written; with "skip", they are in the report, and the others are converted."""
    folder = make_photos(tmp_path / "photos")
    with ps.open(folder) as source:
        first = source.keys()[0]
        (folder / first).unlink()

        with pytest.raises(PackError, match=first):
            ps.convert(source, tmp_path / "a.lmdb")
        assert not (tmp_path / "a.lmdb").exists()
        report = ps.convert(source, tmp_path / "b.lmdb", on_error="skip")

    assert [entry.key for entry in report.left_out] == [first]
    assert report.ok


def test_names_that_collide_are_refused(tmp_path: Path) -> None:
    """Two records that would be one file are an error that names the file; nothing replaces anything."""
    source = write_pack(tmp_path / "source.lmdb", ["x/./1.jpg", "x/1.jpg"], Schema({"image": SCHEMA["image"]}))

    with pytest.raises(PackError, match=r"another record is the file 'images/x/1\.jpg'"):
        ps.convert(source, f"files://{tmp_path / 'written'}")


@pytest.mark.parametrize("key", ["../up.jpg", "a/../../up.jpg", "nul\0.jpg", "x" * 300 + ".jpg"])
def test_keys_that_are_no_file_names_are_refused(key: str, tmp_path: Path) -> None:
    """A key never leads out of the folder that is written."""
    source = write_pack(tmp_path / "source.lmdb", [key], Schema({"image": SCHEMA["image"]}))

    with pytest.raises(PackError, match="file name"):
        ps.convert(source, f"files://{tmp_path / 'written'}")
    assert not (tmp_path / "up.jpg").exists()


@pytest.mark.parametrize("kind", [kind for kind in WRITABLE if kind != "files"])
def test_a_record_without_a_value_is_told_from_one_with_minus_one(kind: str, tmp_path: Path) -> None:
    """Numbers -1, NaN and empty texts are values; each kind of store knows which records have none, in any order."""
    values: list[tuple[Any, ...]] = [
        (1, 0.5, "a"),
        (-1, np.nan, ""),
        (None, None, None),
        (-2, -1.0, "b"),
        (-1, None, ""),
    ]
    rows = [
        {"image": make_image(number), "label": label, "weight": weight, "caption": caption}
        for number, (label, weight, caption) in enumerate(values * 3)
    ]
    schema = {"label": "label", "weight": "float", "caption": "text"}
    ps.pack(rows, tmp_path / "source.lmdb", schema=schema)
    ps.convert(tmp_path / "source.lmdb", destination(kind, tmp_path))

    with ps.open(destination(kind, tmp_path)) as store:
        for position, name in enumerate(schema):
            missing = [number for number, row in enumerate(values * 3) if row[position] is None]
            assert store.find_missing(name).tolist() == missing
            flags = store.lacks_value(name, np.array([4, 1, 2, 2]))
            assert flags.tolist() == [number in missing for number in (4, 1, 2, 2)]


@pytest.mark.parametrize("suffix", ["tar", "h5", "parquet", "lmdb"])
def test_every_bit_of_an_array_is_kept(suffix: str, tmp_path: Path) -> None:
    """Payload and sign of a NaN that signals, which a processor may change, and the sign of zero."""
    signalling = np.array([0x7FA00001, 0xFFC00001, 0x80000000], np.uint32).view(np.float32)
    values: dict[str, Any] = {
        "a": signalling,
        "b": np.stack([signalling] * 2),
        "c": np.array([0x7D01], np.uint16).view(np.float16),
    }
    ps.pack([{"image": make_image(0), **values}] * 2, tmp_path / "source.lmdb")

    ps.convert(tmp_path / "source.lmdb", tmp_path / f"written.{suffix}")

    with ps.open(tmp_path / f"written.{suffix}") as store:
        for name, value in values.items():
            assert np.asarray(store[1].fields[name]).tobytes() == value.tobytes()


def test_columns_that_are_not_read_are_in_the_report(tmp_path: Path) -> None:
    """A column of lists of images has no field: the copy lacks it, and the report says so, each time."""
    pq.write_table(pa.table({"images": [[make_image(0)] * 2] * 3, "text": ["a", "b", "c"]}), tmp_path / "a.parquet")

    for dst, layout in ((tmp_path / "a.lmdb", None), (tmp_path / "a.lmdb", None), (tmp_path / "a.tar", None)):
        report = ps.convert(tmp_path / "a.parquet", dst, to_layout=layout)
        assert [entry.key for entry in report.left_out] == ["images"]
        assert any("images: the column is left out" in line for line in report.lines())
    shown = CliRunner().invoke(app, ["convert", str(tmp_path / "a.parquet"), str(tmp_path / "b.lmdb")])
    assert "images: the column is left out" in shown.output
    packed = ps.pack(tmp_path / "a.parquet", tmp_path / "c.lmdb")
    assert [entry.key for entry in packed.skipped] == ["images"]


def test_a_destination_inside_the_source_is_refused(tmp_path: Path) -> None:
    """Nothing is written over the source, or into it."""
    folder = make_photos(tmp_path / "photos")

    with pytest.raises(ArgumentError, match="outside the source"):
        ps.convert(folder, folder / "a.lmdb")


def test_what_exists_is_not_replaced(tmp_path: Path) -> None:
    """A finished store is replaced with overwrite=True only; a folder with files never."""
    folder = make_photos(tmp_path / "photos")
    ps.convert(folder, tmp_path / "a.lmdb")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").write_text("keep")

    with pytest.raises(ArgumentError, match="overwrite"):
        ps.convert(make_photos(tmp_path / "others", count=5), tmp_path / "a.lmdb")
    with pytest.raises(ArgumentError, match="holds files already"):
        ps.convert(tmp_path / "a.lmdb", f"files://{tmp_path / 'b'}", overwrite=True)
    assert (tmp_path / "b" / "mine.txt").read_text() == "keep"


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True),
        (1, 2, False),
        (float("nan"), float("nan"), True),
        (None, -1, False),
        (b"ab", memoryview(b"ab"), True),
        (b"ab", b"ac", False),
        ("ab", b"ab", False),
        (np.zeros((0, 4), np.float32), np.zeros((0, 4), np.float64), True),
        (np.zeros((0, 4), np.float32), np.zeros(0, np.float32), False),
        (np.array([1.5, np.nan]), np.array([1.5, np.nan], np.float32), True),
        (np.ones((2, 2, 3), np.uint8), np.ones((2, 2, 3), np.uint16), False),
        (np.array([2**64 - 1], np.uint64), np.array([-1]), False),
        (np.array([2**63 - 1], np.uint64), np.array([2**63 - 1]), True),
        (np.array([1], np.uint8), np.array([1], ">i4"), True),
        (np.array([True]), np.array([1]), False),
        (np.array([1.0]), np.array([1]), False),
        (np.array([0.0]), np.array([-0.0]), False),
        (np.ones((1, 1, 1), np.bool_), np.ones((1, 1, 1), np.uint8), False),
        (np.array([0x7FA00001], np.uint32).view(np.float32), np.array([0x7FE00001], np.uint32).view(np.float32), False),
        (np.array([0x7FA00001], np.uint32).view(np.float32), np.array([0x7FA00001], np.uint32).view(np.float32), True),
        (np.array([-np.nan]), np.array([np.nan]), False),
        (np.array([np.nan], np.float16), np.array([np.nan]), True),
        (0.0, -0.0, False),
        (0, 0.0, True),
        (True, 2, False),
        (2**64 - 1, -1, False),
        ({"b": 1, "a": [2]}, {"a": [2], "b": 1}, True),
        ({"a": 1}, {"a": 2}, False),
    ],
)
def test_values_are_compared_by_what_they_mean(one: Any, other: Any, equal: bool) -> None:
    """Numbers by value, arrays by shape and values, bytes by content."""
    assert is_equal(one, other) is equal
    assert (hash_value(one) == hash_value(other)) is equal
