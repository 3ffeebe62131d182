"""Environments written in the layouts of other programs: read as those programs read them, and by the store."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock.errors import ArgumentError, PackError, StoreError, StoreFormatError
from penstock.sample import Field, Schema
from penstock.stores import STORES
from penstock.stores.common.lmdb.environment_writer import CommitLimits
from penstock.stores.lmdb.layout_writer import LmdbLayoutWriter
from penstock.stores.lmdb.written_entries import NamesWriter, PairsWriter, PickleIndexWriter
from penstock.stores.location import Location
from penstock.stores.writing import Skipped
from tests.stores.lmdb.test_lmdb_layouts import jpeg

SMALL = CommitLimits(records=3, nbytes=4000, map_nbytes=1 << 15)
COUNT = 40
WRITERS = {"pickle-index": PickleIndexWriter, "pairs": PairsWriter, "names": NamesWriter}
SCHEMAS = {
    "pickle-index": Schema({"image": Field("image"), "label": Field("label", ("cat", "dog"))}),
    "pairs": Schema(
        {
            "image": Field("pixels:uint8[4,5,3]"),
            "label": Field("label"),
            "box": Field("float32[*]"),
            "landmarks": Field("float32[*]"),
        }
    ),
    "names": Schema({"image": Field("image"), "boxes": Field("boxes"), "classes": Field("int64[*]", ("cat", "dog"))}),
}


def fields(layout: str, number: int) -> dict[str, Any]:
    """A record of a layout: every number another one, some without values."""
    rng = np.random.default_rng(number)
    if layout == "pickle-index":
        return {"image": rng.bytes(int(rng.integers(0, 6000))), "label": None if number == 3 else number % 2}
    if layout == "pairs":
        box = rng.normal(size=4 * int(number % 3 > 0)).astype(np.float32)
        points = rng.normal(size=10 * int(number % 2)).astype(np.float32)
        pixels = rng.integers(0, 256, (4, 5, 3), np.uint8)
        return {"image": pixels, "label": number - 5, "box": box, "landmarks": points}
    if number == 3:
        return {"image": jpeg(number + 5), "boxes": None, "classes": None}
    boxes = rng.uniform(0, 9, (number % 4, 4)).astype(np.float32)
    boxes[:, 2:] += boxes[:, :2]
    return {"image": jpeg(number + 5, 30), "boxes": boxes, "classes": rng.integers(0, 2, number % 4)}


def begin(layout: str, path: Path, **options: Any) -> LmdbLayoutWriter:
    """A writer of a layout."""
    kind: Any = WRITERS[layout]
    schema = options.pop("schema", SCHEMAS[layout])
    writer: LmdbLayoutWriter = kind(
        Location.from_path(f"lmdb-{layout}", path), schema, "origin", limits=SMALL, **options
    )
    return writer


def append(writer: LmdbLayoutWriter, layout: str, count: int = COUNT) -> None:
    """Append what is not committed yet."""
    for number in range(writer.committed.consumed, count):
        writer.append(writer.prepare(f"picture {number:03d}", fields(layout, number)))


def write(layout: str, path: Path, **options: Any) -> Path:
    """A finished environment."""
    writer = begin(layout, path, **options)
    append(writer, layout)
    writer.finish()
    writer.close()
    return path


def entries(path: Path) -> dict[bytes, bytes]:
    """What py-lmdb finds, as old readers open it."""
    with (
        lmdb.open(str(path), readonly=True, lock=False, readahead=False) as environment,
        environment.begin() as reading,
    ):
        return {bytes(key): bytes(value) for key, value in reading.cursor()}


def equals(record: ps.Record, wanted: dict[str, Any]) -> bool:
    """Whether a record has these values."""
    for name, value in wanted.items():
        held = record.fields[name]
        if value is None or held is None:
            same = held is value
        elif name == "image" and isinstance(value, bytes):
            same = bytes(held) == value
        else:
            same = np.array_equal(np.asarray(held).reshape(np.shape(value)), value)
        if not same:
            return False
    return True


def test_an_old_reader_of_pickle_index(tmp_path: Path) -> None:
    """A script reads `__keys__`, `__len__` and each (bytes, label) with `pickle.loads`."""
    held = entries(write("pickle-index", tmp_path / "set"))

    keys = pickle.loads(held[b"__keys__"])
    assert keys == [b"%d" % number for number in range(COUNT)]
    assert pickle.loads(held[b"__len__"]) == COUNT
    assert len(held) == COUNT + 2
    for number, key in enumerate(keys):
        image, label = pickle.loads(held[key])
        assert {"image": image, "label": label} == fields("pickle-index", number)


def test_an_old_reader_of_pixels(tmp_path: Path) -> None:
    """Arrays are pickled alone where there are no labels, and name the module that every NumPy has."""
    path, schema = tmp_path / "set", Schema({"image": Field("pixels:uint8[*,*,3]")})
    writer = begin("pickle-index", path, schema=schema)
    images = [np.random.default_rng(n).integers(0, 256, (5 + 60 * n, 70, 3), np.uint8) for n in range(6)]
    for image in images:
        writer.append(writer.prepare("x", {"image": image}))
    writer.finish()

    held = entries(path)
    assert b"numpy._core" not in b"".join(held.values())
    assert all(np.array_equal(pickle.loads(held[b"%d" % n]), image) for n, image in enumerate(images))
    with ps.open(path) as store:
        assert store.schema == schema
        assert all(np.array_equal(record.fields["image"], image) for record, image in zip(store, images, strict=True))


@pytest.mark.parametrize("channels", ["BGR", "RGB"])
def test_an_old_reader_of_pairs(tmp_path: Path, channels: str) -> None:
    """A script reads pixels without a header, and splits the text at its commas."""
    held = entries(write("pairs", tmp_path / "set", channels=channels))

    assert len(held) == 2 * COUNT
    for number in range(COUNT):
        wanted = fields("pairs", number)
        pixels = np.frombuffer(held[b"%d" % number], np.uint8).reshape(4, 5, 3)
        label, box, landmarks = held[b"%d_" % number].decode().split(",")
        assert np.array_equal(pixels[:, :, ::-1] if channels == "BGR" else pixels, wanted["image"])
        assert int(label) == wanted["label"]
        assert np.array_equal(np.array(box.split(), np.float32), wanted["box"])
        assert np.array_equal(np.array(landmarks.split(), np.float32), wanted["landmarks"])


def test_an_old_reader_of_names(tmp_path: Path) -> None:
    """A script reads `NAME.jpg`, and rows of float64 from `NAME.txt`."""
    held = entries(write("names", tmp_path / "set"))

    assert len(held) == 2 * COUNT - 1
    for number in range(COUNT):
        wanted = fields("names", number)
        assert held[f"picture {number:03d}.jpg".encode()] == wanted["image"]
        if wanted["boxes"] is None:
            assert f"picture {number:03d}.txt".encode() not in held
            continue
        rows = np.frombuffer(held[f"picture {number:03d}.txt".encode()]).reshape(-1, 5)
        size = np.array([number + 5, 30] * 2)
        corners = np.concatenate([rows[:, 1:3] - rows[:, 3:] / 2, rows[:, 1:3] + rows[:, 3:] / 2], 1) * size
        np.testing.assert_allclose(corners, wanted["boxes"], atol=1e-5)
        assert rows[:, 0].tolist() == wanted["classes"].tolist()


@pytest.mark.parametrize("layout", WRITERS)
def test_what_is_written_is_read_without_options(tmp_path: Path, layout: str) -> None:
    """Shape, channels, columns and classes are kept beside the environment; options that are given win."""
    path = write(layout, tmp_path / "set")

    with ps.open(path) as store:
        assert store.layout == layout
        assert store.schema == STORES.get(f"lmdb-{layout}").storable(SCHEMAS[layout])
        assert all(equals(record, fields(layout, number)) for number, record in enumerate(store))
        assert len(store) == COUNT
    assert {entry.name for entry in path.iterdir()} == {"data.mdb", ".layout", ".source"}
    if layout == "pairs":
        with ps.open(path, channels="RGB") as store:
            assert np.array_equal(store[0].fields["image"], fields("pairs", 0)["image"][:, :, ::-1])
    (path / ".layout").write_text((path / ".layout").read_text().replace('"content": "', '"content": "0'))
    if layout != "pickle-index":
        with pytest.raises(ArgumentError):
            ps.open(path)


def test_skipped_entries_are_kept(tmp_path: Path) -> None:
    """What was left out is listed by the store, also after an interruption."""
    writer = begin("pickle-index", tmp_path / "set")
    for number in range(9):
        writer.append(writer.prepare("x", fields("pickle-index", number)))
        writer.skip(Skipped(f"bad {number}", "it is damaged"))
    writer.close()

    writer = begin("pickle-index", tmp_path / "set")
    committed = writer.committed
    writer.finish([Skipped("README", "no image")])

    assert committed.records == committed.consumed - len(committed.skipped)
    with ps.open(tmp_path / "set") as store:
        assert len(store) == committed.records
        assert [entry.key for entry in store.skipped] == [
            *(f"bad {number}" for number in range(len(committed.skipped))),
            "README",
        ]


def test_another_source_is_not_resumed(tmp_path: Path) -> None:
    """An unfinished environment of another source, or with other options, is refused until it is overwritten."""
    writer = begin("pairs", tmp_path / "set")
    append(writer, "pairs", 10)
    with pytest.raises(StoreError, match=r"another process"):
        begin("pairs", tmp_path / "set")
    writer.close()

    with pytest.raises(StoreError, match=r"unfinished environment of .* overwrite=True"):
        begin("pairs", tmp_path / "set", channels="RGB")
    write("pairs", tmp_path / "set", channels="RGB", overwrite=True)

    assert len(entries(tmp_path / "set")) == 2 * COUNT


def test_existing_content_is_kept(tmp_path: Path) -> None:
    """An environment is replaced with overwrite=True alone, anything else never."""
    path = write("pickle-index", tmp_path / "set")
    with pytest.raises(ArgumentError, match=r"exists.*overwrite"):
        begin("names", path)
    write("names", path, overwrite=True)
    assert b"picture 000.jpg" in entries(path)
    with ps.open(path) as store:
        assert store.layout == "names"

    (path / "thesis.tex").write_text("years of work")
    with pytest.raises(StoreFormatError, match=r"other content \(thesis.tex\)"):
        begin("names", path, overwrite=True)
    (tmp_path / "notes").write_text("more work")
    with pytest.raises(StoreFormatError, match=r"no LMDB environment"):
        begin("names", tmp_path / "notes", overwrite=True)
    assert (path / "thesis.tex").exists()


def test_a_discarded_writer_leaves_nothing(tmp_path: Path) -> None:
    """What was written is removed."""
    writer = begin("names", tmp_path / "set")
    append(writer, "names", 10)

    writer.discard()

    assert list(tmp_path.iterdir()) == []


def test_names_are_unique(tmp_path: Path) -> None:
    """Two records of one name are refused, and so are names that LMDB has no place for."""
    writer = begin("names", tmp_path / "set")
    for _ in range(2):
        writer.append(writer.prepare("same.jpg", fields("names", 1)))
    with pytest.raises(PackError, match=r"keys must be unique"):
        writer.finish()
    with pytest.raises(PackError, match=r"at most 511 bytes"):
        writer.prepare("x" * 600, fields("names", 1))
    writer.close()


def test_labels_are_named_arrays_without_boxes(tmp_path: Path) -> None:
    """Where the schema has no boxes, the label is the array."""
    schema = Schema({"image": Field("image"), "label": Field("label", ("cat", "dog")), "width": Field("int")})
    writer = begin("names", tmp_path / "set", schema=schema)
    for number, label in enumerate([1, None, 0]):
        writer.append(writer.prepare(f"{number}.png", {"image": jpeg(9, 9, "PNG"), "label": label, "width": 9}))
    writer.finish()

    with ps.open(tmp_path / "set") as store:
        assert store.schema["label"].classes == ("cat", "dog")
        assert [record.fields["label"] for record in store] == [1, None, 0]
        assert store.column("label").tolist() == [1, -1, 0]


def test_fields_without_a_place_are_known_before(tmp_path: Path) -> None:
    """storable() keeps what a layout has a place for; images that it cannot store are refused with the reason."""
    schema = Schema({"image": Field("image"), "label": Field("int"), "caption": Field("text"), "boxes": Field("boxes")})
    pixels = Schema({"image": Field("pixels:uint8[*,*,3]")})

    assert list(STORES.get("lmdb-pickle-index").storable(schema).fields) == ["image", "label"]
    assert list(STORES.get("lmdb-names").storable(schema).fields) == ["image", "boxes"]
    with pytest.raises(ArgumentError, match=r"stores pixels of one shape"):
        STORES.get("lmdb-pairs").storable(schema)
    with pytest.raises(ArgumentError, match=r"stores pixels of one shape"):
        STORES.get("lmdb-pairs").storable(pixels)
    with pytest.raises(ArgumentError, match=r"stores encoded images"):
        STORES.get("lmdb-names").storable(pixels)
    with pytest.raises(ArgumentError, match=r"field 'image'"):
        STORES.get("lmdb-names").storable(Schema({"label": Field("label")}))
    with pytest.raises(ArgumentError, match=r"cannot be written"):
        ps.pack(make_photos(tmp_path), f"lmdb-datum://{tmp_path / 'set'}")


def make_photos(folder: Path) -> Path:
    """A folder of images in two classes."""
    for number in range(12):
        path = folder / "photos" / ("cat" if number % 2 else "dog") / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9 + number, 8), (number, 0, 99)).save(path)
    return folder / "photos"


@pytest.mark.parametrize("layout", ["pickle-index", "names"])
def test_a_folder_is_packed_into_a_layout(tmp_path: Path, layout: str) -> None:
    """pack() writes it; packing again uses the finished one; the images and labels are those of the folder."""
    photos = make_photos(tmp_path)
    url = f"lmdb-{layout}://{tmp_path / 'set'}"

    report = ps.pack(photos, url)
    again = ps.pack(photos, url)

    assert report.records == again.records == 12
    assert again.reused
    with ps.open(photos) as source, ps.open(tmp_path / "set") as store:
        by_image = {bytes(record.fields["image"]): record for record in store}
        assert len(by_image) == 12
        for record in source:
            found = by_image[bytes(record.fields["image"])]
            assert found.fields["label"] == record.fields["label"]
            assert layout != "names" or found.key == record.key
        assert store.schema["label"].classes == ("cat", "dog")
    finished = STORES.get(f"lmdb-{layout}").finished(Location.from_path("x", tmp_path / "no"), SCHEMAS["names"], "x")
    assert finished is None


def test_a_record_without_an_image_keeps_its_place_or_is_refused(tmp_path: Path) -> None:
    """A pickled tuple has a place for None; an environment of names has none, and a number is no image."""
    writer = begin("pickle-index", tmp_path / "set")
    for image in (jpeg(), None, bytearray(jpeg(9))):
        writer.append(writer.prepare("x", {"image": image, "label": 1}))
    writer.finish()
    with ps.open(tmp_path / "set") as store:
        images = [record.fields["image"] for record in store]
    assert [None if image is None else bytes(image) for image in images] == [jpeg(), None, jpeg(9)]

    names = begin("names", tmp_path / "names")
    refused: tuple[Any, ...] = (None, 3)
    for value in refused:
        with pytest.raises(PackError, match=f"'image' must hold encoded bytes, got {type(value).__name__}"):
            names.prepare("x", {"image": value, "boxes": None, "classes": None})


@pytest.mark.parametrize("target", ["set.lmdb", "files", "names"])
def test_a_record_without_an_image_is_refused_where_it_has_no_place(tmp_path: Path, target: str) -> None:
    """The conversion names the record, and writes nothing."""
    writer = begin("pickle-index", tmp_path / "source")
    for number, image in enumerate((jpeg(), None)):
        writer.append(writer.prepare(f"{number}", {"image": image, "label": 1}))
    writer.finish()
    scheme = {"files": "files://", "names": "lmdb-names://"}.get(target, "")

    with pytest.raises(PackError, match=r"1: field 'image' must hold encoded bytes"):
        ps.convert(tmp_path / "source", f"{scheme}{tmp_path / target}")
    assert not (tmp_path / target).exists()
