"""``convert`` to folders of images and annotations: read back, every value is the same."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import penstock as ps
from penstock.annotations import WRITERS, read
from penstock.annotations.writing import WrittenImage, format_float32
from penstock.errors import ArgumentError, CorruptRecordError, PackError
from penstock.pack.export.exporting import name_images

FORMATS = tuple(WRITERS)
CLASSES = ("zebra", "a cat & <dog>", "é")


def needs_reader(format: str) -> str:  # noqa: A002  # as the argument of `read`
    """The format, if it can be read."""
    pytest.importorskip(f"penstock.annotations.{format}")
    if format == "yolo":
        pytest.importorskip("yaml")
    return format


def encode(seed: int, form: str = "PNG") -> bytes:
    """A picture of 40 x 30."""
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (30, 40, 3), np.uint8)).save(file, form)
    return file.getvalue()


def make_samples(count: int = 4) -> list[dict[str, Any]]:
    """Pictures with 0, 1, 2, ... objects, whose coordinates need all digits."""
    rng = np.random.default_rng(7)
    samples = []
    for number in range(count):
        corners = rng.random((number, 2, 2)).astype(np.float32)
        low, high = corners.min(1) * np.float32(15), np.float32(16) + corners.max(1) * np.float32(13)
        points = rng.random((number, 2, 3)).astype(np.float32) * np.float32(29)
        points[..., 2] = 2
        samples.append(
            {
                "__key__": f"folder {number}/a.png",
                "image": encode(number),
                "boxes": np.concatenate([low, high], 1).reshape(-1, 4),
                "labels": np.arange(number, dtype=np.int64) % 3,
                "keypoints": points,
                "difficult": np.arange(number, dtype=np.int64) % 2,
                "split": "val" if number % 2 else "train",
            }
        )
    return samples


SCHEMA = {
    "image": "image",
    "boxes": "boxes",
    "labels": ps.Field("int64[*]", CLASSES),
    "keypoints": "float32[*,2,3]",
    "difficult": "int64[*]",
    "split": "text",
}


def pack(path: Path, samples: list[dict[str, Any]], **schema: Any) -> Path:
    """A pack of samples; fields that the samples lack are not in it."""
    kinds = {**SCHEMA, **schema}
    ps.pack(samples, path, schema={name: kinds[name] for name in samples[0] if name != "__key__"})
    return path


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_read_back_is_what_was_written(tmp_path: Path, format: str) -> None:  # noqa: A002
    """Bytes of the images, boxes to the bit, names of the classes, points."""
    samples = make_samples()

    report = ps.convert(pack(tmp_path / "p.lmdb", samples), tmp_path / "set", to_layout=needs_reader(format))

    assert (report.ok, report.records) == (True, 4)
    found = read(tmp_path / "set", format)
    by_hash = {hashlib.sha256((found.root / each["image"]).read_bytes()).digest(): each for each in found.records}
    assert len(by_hash) == 4
    for sample in samples:
        got = by_hash[hashlib.sha256(sample["image"]).digest()]
        assert np.array_equal(got["boxes"], sample["boxes"])
        assert np.array_equal(got["keypoints"], sample["keypoints"])
        assert [found.classes[label] for label in got["labels"]] == [CLASSES[label] for label in sample["labels"]]
        assert got["split"].removesuffix("2017") == sample["split"]
    left = {entry.key for entry in report.left_out}
    assert left == ({"field difficult"} if format == "yolo" else set())


@settings(max_examples=settings().max_examples // 2)
@given(
    points=st.lists(st.tuples(*[st.floats(0, 1, width=32)] * 4), max_size=5),
    size=st.tuples(st.integers(1, 5000), st.integers(1, 5000)),
    format=st.sampled_from(FORMATS),
)
def test_coordinates_are_exact(
    tmp_path_factory: pytest.TempPathFactory,
    points: list[tuple[float, ...]],
    size: tuple[int, int],
    format: str,  # noqa: A002
) -> None:
    """A plain parser of each format computes the same float32, but for YOLO numbers next to 0."""
    folder = tmp_path_factory.mktemp("set")
    corners = np.array(points, np.float32).reshape(-1, 2, 2) * np.array(size, np.float32)
    boxes = np.concatenate([corners.min(1), corners.max(1)], axis=1)
    writer = WRITERS.get(format)(folder, CLASSES)
    labels = np.arange(len(boxes)) % 3

    writer.add(WrittenImage("1.jpg", "train", *size, boxes, labels))
    writer.finish()

    got, got_labels = parse(folder, format, size)
    assert got_labels == labels.tolist()
    if format == "yolo":
        assert np.array_equal(np.where(np.abs(boxes) < 1e-6, 0, boxes), np.where(np.abs(got) < 1e-6, 0, got))
    else:
        assert np.array_equal(got, boxes)


def parse(folder: Path, format: str, size: tuple[int, int]) -> tuple[Any, list[int]]:  # noqa: A002
    """Boxes and labels of the picture 1.jpg, read as the format says."""
    if format == "coco":
        content = json.loads((folder / "annotations" / "instances_train.json").read_text())
        names = {each["id"]: CLASSES.index(each["name"]) for each in content["categories"]}
        rows = [each["bbox"] for each in content["annotations"]]
        labels = [names[each["category_id"]] for each in content["annotations"]]
        boxes = [[x, y, x + width, y + height] for x, y, width, height in rows]
    elif format == "yolo":
        lines = (folder / "labels" / "train" / "1.txt").read_text().splitlines()
        labels = [int(line.split()[0]) for line in lines]
        boxes = []
        for line in lines:
            x, y, width, height = map(float, line.split()[1:])
            corners = x - width / 2, y - height / 2, x + width / 2, y + height / 2
            boxes.append([number * side for number, side in zip(corners, size * 2, strict=True)])
    else:
        from xml.etree import ElementTree as ET

        objects = ET.parse(folder / "Annotations" / "1.xml").findall("object")
        labels = [CLASSES.index(each.findtext("name") or "") for each in objects]
        boxes = [
            [float(each.findtext(f"bndbox/{tag}") or "") for tag in ("xmin", "ymin", "xmax", "ymax")]
            for each in objects
        ]
    return np.array(boxes, np.float32).reshape(-1, 4), labels


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_texts_of_numbers_give_the_number_back(number: float) -> None:
    """The text is no longer than that of float64, and whole numbers have no point."""
    text = format_float32(number)

    assert np.float32(float(text)) == np.float32(number)
    assert len(text) <= 60
    assert "." not in text or not number.is_integer()


@pytest.mark.parametrize("format", FORMATS)
def test_stores_without_names_of_classes_have_numbers(tmp_path: Path, format: str) -> None:  # noqa: A002
    """The names are the numbers; a record without a value has no objects."""
    samples: list[dict[str, Any]] = [
        {"image": encode(0), "boxes": np.array([[1, 2, 3, 4]], np.float32), "labels": np.array([3])},
        {"image": encode(1), "boxes": None, "labels": None},
    ]
    store = pack(tmp_path / "p.lmdb", samples, labels="int64[*]")

    report = ps.convert(store, tmp_path / "set", to_layout=needs_reader(format))

    assert report.ok
    assert read(tmp_path / "set", format).classes in {("0", "1", "2", "3"), ("3",)}


def test_yolo_may_have_six_decimals(tmp_path: Path) -> None:
    """``decimals`` is what most programs write; the proof allows for it."""
    store = pack(tmp_path / "p.lmdb", make_samples())

    report = ps.convert(store, tmp_path / "set", to_layout=needs_reader("yolo"), to_options={"decimals": 6})

    assert report.ok
    lines = [line for path in (tmp_path / "set" / "labels").rglob("*.txt") for line in path.read_text().splitlines()]
    assert lines
    assert all(len(each.partition(".")[2]) == 6 for line in lines for each in line.split()[1:5])


def test_fields_of_objects_are_elements_of_voc(tmp_path: Path) -> None:
    """Numbers and texts come back; what XML cannot hold, and masks, are listed."""
    samples = [
        {**sample, "pose": ["Left"] * len(sample["labels"]), "mask": encode(number)}
        for number, sample in enumerate(make_samples(3))
    ]

    report = ps.convert(pack(tmp_path / "p.lmdb", samples, pose="json", mask="mask"), tmp_path / "set", to_layout="voc")

    assert [entry.key for entry in report.left_out] == ["field mask"]
    found = read(tmp_path / "set", "voc", split="train")
    assert [record["pose"] for record in found.records] == [[], ["Left", "Left"]]
    assert [record["difficult"].tolist() for record in found.records] == [[], [0, 1]]


@pytest.mark.parametrize("format", FORMATS)
def test_a_crowd_is_never_written_as_an_ordinary_object(tmp_path: Path, format: str) -> None:  # noqa: A002
    """It stays one, is difficult, or is left out with all its values; the report says which."""
    samples = make_samples(4)
    for sample in samples:
        count = len(sample["labels"])
        sample.update(crowd=(np.arange(count) == 1).astype(np.int64), pose=[f"pose {row}" for row in range(count)])
    store = pack(tmp_path / "p.lmdb", samples, crowd="int64[*]", pose="json")

    report = ps.convert(store, tmp_path / "set", to_layout=needs_reader(format))

    record = read(tmp_path / "set", format).records[-1]
    reasons = [entry.reason for entry in report.left_out if entry.key == "field crowd"]
    assert report.ok
    kept = [0, 2] if format == "yolo" else [0, 1, 2]
    assert np.array_equal(record["boxes"], samples[3]["boxes"][kept])
    assert np.array_equal(record["keypoints"], samples[3]["keypoints"][kept])
    if format == "coco":
        assert (record["crowd"].tolist(), reasons) == ([0, 1, 0], [])
    elif format == "voc":
        assert (record["difficult"].tolist(), record["pose"]) == ([0, 1, 0], ["pose 0", "pose 1", "pose 2"])
        assert reasons == ["voc has no crowds; written as difficult: 2 objects"]
    else:
        assert reasons == ["yolo has no crowds; left out: 2 objects"]


def test_boxes_that_reading_refuses_are_differences(tmp_path: Path) -> None:
    """An empty box cannot be read back: an error that names the record, or it is listed."""
    samples = make_samples(3)
    samples[1]["boxes"] = np.array([[5, 5, 5, 9]], np.float32)
    store = pack(tmp_path / "p.lmdb", samples)

    with pytest.raises(CorruptRecordError, match=r"folder 1/a.png.*which is empty"):
        ps.convert(store, tmp_path / "set", to_layout="voc")
    report = ps.convert(store, tmp_path / "set", to_layout="voc", on_error="skip", overwrite=True)

    assert report.ok
    assert [entry.key for entry in report.left_out] == ["folder 1/a.png"]


def test_records_that_cannot_be_written_are_refused_or_listed(tmp_path: Path) -> None:
    """Other numbers of boxes than of classes: all such records are named, and nothing is left behind."""
    samples = make_samples(3)
    samples[2]["labels"] = np.array([0])
    samples[0]["split"] = "../x"
    store = pack(tmp_path / "p.lmdb", samples)

    with pytest.raises(PackError, match=r"(?s)folder 0/a.png: its split.*folder 2/a.png: it has 2 boxes and 1 classes"):
        ps.convert(store, tmp_path / "set", to_layout="voc")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.lmdb"]
    report = ps.convert(store, tmp_path / "set", to_layout="voc", on_error="skip")

    assert (report.records, [entry.key for entry in report.left_out]) == (1, ["folder 0/a.png", "folder 2/a.png"])


def test_only_what_a_conversion_wrote_is_replaced(tmp_path: Path) -> None:
    """A folder of somebody's files stays, whatever the options."""
    store = pack(tmp_path / "p.lmdb", make_samples(2))
    (tmp_path / "set").mkdir()
    ps.convert(store, tmp_path / "set", to_layout="voc")

    with pytest.raises(ArgumentError, match="overwrite=True"):
        ps.convert(store, tmp_path / "set", to_layout="voc")
    ps.convert(store, tmp_path / "set", to_layout="voc", overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.txt").touch()
    with pytest.raises(ArgumentError, match="is not replaced"):
        ps.convert(store, tmp_path / "mine", to_layout="voc", overwrite=True)
    with pytest.raises(ArgumentError, match="outside the source"):
        ps.convert(store, store / "set", to_layout="voc")


def test_wrong_stores_and_options_are_refused(tmp_path: Path) -> None:
    """A store without boxes; an option that a format does not have; decimals that are none."""
    ps.pack([{"image": encode(0), "label": 1}], tmp_path / "q.lmdb")
    store = pack(tmp_path / "p.lmdb", make_samples(2))

    with pytest.raises(ArgumentError, match="one of boxes"):
        ps.convert(tmp_path / "q.lmdb", tmp_path / "set", to_layout="voc")
    with pytest.raises(ArgumentError, match="the options none, got 'depth'"):
        ps.convert(store, tmp_path / "set", to_layout="voc", to_options={"depth": 1})
    with pytest.raises(ArgumentError, match="decimals must be a number from 1 to 17"):
        ps.convert(store, tmp_path / "set", to_layout="yolo", to_options={"decimals": 0})
    assert not (tmp_path / "set").exists()


def test_pixels_are_written_as_png(tmp_path: Path) -> None:
    """Images that are stored as pixels keep every one of them."""
    pixels = np.random.default_rng(1).integers(0, 256, (30, 40, 3), np.uint8)
    samples = [{"image": pixels, "boxes": np.array([[1, 2, 3, 4]], np.float32), "labels": np.array([2])}]

    ps.convert(pack(tmp_path / "p.lmdb", samples, image="pixels:uint8[30,40,3]"), tmp_path / "set", to_layout="voc")

    with Image.open(next((tmp_path / "set" / "JPEGImages").iterdir())) as image:
        assert np.array_equal(np.asarray(image), pixels)


def test_names_of_images_differ() -> None:
    """Equal names get the folders before them, or a number; what file systems or lists cannot hold is replaced."""
    assert name_images(["x/1.jpg", "y/2.jpg"]) == ["1", "2"]
    assert name_images(["x/1.jpg", "y/1.JPG"]) == ["x_1", "y_1"]
    assert name_images(["x/1.jpg", "x/1.png", "x/1.jpg"]) == ["x_1", "x_1_1", "x_1_2"]
    assert name_images(["a b.jpg", "..", "", "0.5", "é" * 200]) == ["a_b", "_", "2", "0.5", "é" * 75]


@pytest.mark.parametrize("name", ["pascal", "pairs"])
def test_an_unknown_layout_to_write_is_named_with_all_that_are_known(tmp_path: Path, name: str) -> None:
    """Formats of annotations alone: a layout that is only read is none of them."""
    ps.pack([{"label": 1}], tmp_path / "p.lmdb")

    with pytest.raises(ArgumentError, match=f"must be one of coco, voc, yolo, got '{name}'"):
        ps.convert(tmp_path / "p.lmdb", tmp_path / "x", to_layout=name)
