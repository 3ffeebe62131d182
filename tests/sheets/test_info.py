"""``info``: the numbers of a store, exact from columns and sampled from images."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner

import penstock as ps
from penstock.cli import app
from penstock.sample import Field, Schema
from penstock.sheets import SizeRange, info
from penstock.stores.lmdb_pack.writer import LmdbWriter
from tests.pack.images import make_photos, picture


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Seven pictures, four of cats and three of dogs, one of them a PNG by its bytes."""
    photos = make_photos(tmp_path / "photos", 7)
    (photos / "cats" / "0.jpg").write_bytes(picture(40, "PNG"))
    return photos


def test_pack_and_folder_say_the_same(photos: Path, tmp_path: Path) -> None:
    """Sizes from the pack's columns are those that the files' headers declare."""
    ps.pack(photos, tmp_path / "p.lmdb")

    packed, loose = info(tmp_path / "p.lmdb"), info(photos)

    assert (packed.width, packed.height, packed.nbytes) == (loose.width, loose.height, loose.nbytes)
    assert (packed.records, packed.classes, packed.formats) == (loose.records, loose.classes, loose.formats)


def test_numbers_are_right(photos: Path) -> None:
    """Counts, classes, formats, smallest, median and largest are those of the files."""
    files = [picture(40, "PNG"), *(picture(number) for number in range(1, 7))]
    widths = sorted(ps.decode(file).shape[1] for file in files)

    said = info(photos)

    assert said.records == said.measured == said.sizes_measured == 7
    assert said.classes == {"cats": 4, "dogs": 3}
    assert said.formats == {"JPEG": 6, "PNG": 1}
    assert said.width == SizeRange(widths[0], widths[3], widths[-1])
    assert said.nbytes == SizeRange(*(float(sorted(map(len, files))[at]) for at in (0, 3, 6)))


def test_json_is_plain(photos: Path) -> None:
    """to_json() survives json and keeps every number."""
    said = info(photos)

    plain = json.loads(json.dumps(said.to_json()))

    assert plain["classes"] == {"cats": 4, "dogs": 3}
    assert plain["width"]["median"] == said.width.median if said.width else False
    assert plain["schema"]["label"]["classes"] == ["cats", "dogs"]


def test_skipped_files_are_counted(photos: Path, tmp_path: Path) -> None:
    """What packing left out is counted, as are a folder's files that are no images."""
    (photos / "cats" / "empty.jpg").write_bytes(b"")
    (photos / "cats" / "notes.txt").write_bytes(b"")
    ps.pack(photos, tmp_path / "p.lmdb", on_error="skip")

    assert info(tmp_path / "p.lmdb").skipped == 2
    assert info(photos).skipped == 1


def test_store_without_images_or_labels(tmp_path: Path) -> None:
    """A store of numbers alone has no classes, sizes or formats."""
    writer = LmdbWriter(str(tmp_path / "p.lmdb"), Schema({"count": Field("int")}), "source")
    writer.append(writer.prepare("a", {"count": 3}))
    writer.finish()

    said = info(tmp_path / "p.lmdb")

    assert (said.records, said.classes, said.width, said.nbytes, said.formats) == (1, {}, None, None, {})


def test_unreadable_images_are_counted_as_such(tmp_path: Path) -> None:
    """Bytes that are no image count as unreadable, once, and stop nothing."""
    photos = make_photos(tmp_path / "photos", 4)
    (photos / "cats" / "0.jpg").write_bytes(b"no image")
    (photos / "cats" / "2.jpg").write_bytes(b"\xff\xd8\xff no image")

    found = info(photos)

    assert found.formats == {"JPEG": 2, "unreadable": 2}
    assert sum(found.stored_nbytes.values()) == sum(path.stat().st_size for path in photos.rglob("*.jpg"))


def test_records_without_an_image_are_counted_as_such(tmp_path: Path) -> None:
    """A container of another program may have none in a record."""
    rows = [{"image": {"bytes": picture(0), "path": None}, "label": 0}, {"image": None, "label": 1}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p.parquet")

    said = info(tmp_path / "p.parquet")

    assert said.formats == {"JPEG": 1, "no image": 1}
    assert said.measured == said.records == 2


@pytest.mark.parametrize(
    ("labels", "counted"),
    [
        ([0, 5, 5], {"cat": 1, "dog": 0, "5": 2}),
        ([-1, 0, -2, None, None], {"cat": 1, "dog": 0, "no value": 2, "-1": 1, "-2": 1}),
    ],
)
def test_labels_beyond_the_named_classes_are_counted(
    tmp_path: Path, labels: list[int | None], counted: dict[str, int]
) -> None:
    """Labels without a name, also negative ones, are counted under their number; what is missing is no label."""
    writer = LmdbWriter(str(tmp_path / "p.lmdb"), Schema({"label": Field("label", ("cat", "dog"))}), "source")
    for number, label in enumerate(labels):
        writer.append(writer.prepare(str(number), {"label": label}))
    writer.finish()

    said = info(tmp_path / "p.lmdb")

    assert {name: count for name, count in said.classes.items() if count or name == "dog"} == counted


@pytest.mark.parametrize("has_names", [True, False])
def test_of_masks_pixels_are_counted_by_class(tmp_path: Path, has_names: bool) -> None:
    """They are the objects of a set of masks: a value without a name has its number, a mask of colours is left out."""
    names = ("ground", "tree", "sky")
    schema = Schema({
        "mask": Field("mask", names if has_names else ()), "labels": Field("int64[*]", () if has_names else names)
    })  # fmt: skip
    writer = LmdbWriter(str(tmp_path / "p.lmdb"), schema, "source")
    masks = [np.array([[0, 1, 1], [1, 255, 0]]), np.full((4, 5), 1), np.zeros((2, 2, 3))]
    for number, mask in enumerate(masks):
        file = io.BytesIO()
        Image.fromarray(mask.astype(np.uint8)).save(file, "PNG")
        labels = np.zeros(0, np.int64)
        writer.append(writer.prepare(str(number), {"mask": file.getvalue(), "labels": labels}))
    writer.finish()

    said = info(tmp_path / "p.lmdb")

    assert (said.counted, said.masks_measured) == ("pixel", 2)
    assert dict(said.classes) == {"ground": 2, "tree": 23, "sky": 0, "255": 1}
    done = CliRunner().invoke(app, ["info", str(tmp_path / "p.lmdb")])
    assert "4 classes of 0 to 23 pixels, in 2 masks" in done.output
