"""Which picture boxes, masks and points of a pack are of: stated, kept, turned with the picture, refused if unknown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock import transforms as T
from penstock.cli import app
from penstock.errors import ArgumentError, PackError
from penstock.pack.upright_fields import turn_record
from penstock.sample import Field, Schema
from tests.turned_pictures import BOX, SIZE, box_of, is_beside, photograph, write_coco, write_masks, write_yolo

MIXED = {1: True, 2: True, 3: True, 4: True, 5: False, 6: False, 7: True, 8: True}
TURN = T.Decode(orient=True)


def samples(store: Path, decode: T.Decode = TURN) -> list[dict[str, Any]]:
    """All samples, of which each has its object."""
    with ps.open(store) as opened:
        dataset = ps.StoreDataset(opened, transform=[decode])
        return [dataset[index] for index in range(len(dataset))]


def pack_mixed(folder: Path, **options: Any) -> Path:
    """A pack of photographs in all orientations; some annotations are of stored pictures."""
    ps.pack(None, folder / "mixed.lmdb", annotations=write_coco(folder / "coco", MIXED), format="coco", **options)
    return folder / "mixed.lmdb"


def write_table(folder: Path, *, upright: bool) -> Path:
    """A table of photographs, whose boxes are of upright pictures, or of stored ones."""
    folder.mkdir(parents=True)
    rows = []
    for number in range(1, 9):
        (folder / f"{number}.jpg").write_bytes(photograph(number))
        rows.append({"image": f"{number}.jpg", "boxes": [BOX if upright else box_of(number)]})
    (folder / "table.json").write_text(json.dumps(rows))
    return folder / "table.json"


UNSAID = pytest.mark.filterwarnings("ignore:images are stored turned:UserWarning")


def pack_table(table: Path, store: Path, upright: bool | None, **options: Any) -> ps.PackReport:
    """A pack of a table."""
    return ps.pack(table, store, schema={"boxes": "boxes"}, upright=upright, **options)


def test_a_pack_of_annotations_keeps_that_they_are_of_upright_pictures(tmp_path: Path) -> None:
    """Its sizes are those of the upright pictures as well."""
    with ps.open(pack_mixed(tmp_path)) as store:
        schema = store.schema
        sizes = {tuple(record.fields[side] for side in ("width", "height")) for record in store.read(range(8))}

    assert {name for name, field in schema.fields.items() if field.upright} == {"boxes", "keypoints", "instances"}
    assert Schema.from_json(schema.to_json()) == schema
    assert schema.upright is True
    assert sizes == {SIZE}
    assert not any(map(is_beside, samples(tmp_path / "mixed.lmdb")))


def test_without_a_turned_picture_nothing_is_said(tmp_path: Path) -> None:
    """Such a pack has the schema that it always had, and Decode looks for no orientation."""
    ps.pack(None, tmp_path / "a.lmdb", annotations=write_yolo(tmp_path / "yolo", 1), format="yolo")

    with ps.open(tmp_path / "a.lmdb") as store:
        assert store.schema.upright is None


@pytest.mark.parametrize("size", [30, 1000])
def test_resize_turns_what_is_in_a_picture_with_it(tmp_path: Path, size: int) -> None:
    """What is stored then is upright, so that nothing is said any more; a second pass is verified."""
    mixed = pack_mixed(tmp_path)

    ps.pack(None, tmp_path / "of_files.lmdb", annotations=tmp_path / "coco", format="coco", resize=size)
    ps.pack(mixed, tmp_path / "of_pack.lmdb", resize=size)

    for name in ("of_files", "of_pack"):
        assert not any(map(is_beside, samples(tmp_path / f"{name}.lmdb", T.Decode())))
        with ps.open(tmp_path / f"{name}.lmdb") as store:
            assert store.schema.upright is None
    assert ps.verify(tmp_path / "of_pack.lmdb", mixed).ok


@pytest.mark.parametrize("layout", ["coco", "yolo", "voc"])
def test_written_annotations_are_of_upright_pictures(tmp_path: Path, layout: str) -> None:
    """They are read back, and the proof of the conversion holds."""
    report = ps.convert(pack_mixed(tmp_path), tmp_path / "written", to_layout=layout)

    ps.pack(None, tmp_path / "again.lmdb", annotations=tmp_path / "written", format=layout)
    assert report.ok
    assert not any(map(is_beside, samples(tmp_path / "again.lmdb")))


@pytest.mark.parametrize("ending", ["tar", "parquet", "h5", "lmdb"])
def test_conversions_keep_what_is_said(tmp_path: Path, ending: str) -> None:
    """In the container where it has a place for it, else beside it."""
    ps.convert(pack_mixed(tmp_path), tmp_path / f"to.{ending}")

    with ps.open(tmp_path / f"to.{ending}") as store:
        assert store.schema.upright is True
    assert not any(map(is_beside, samples(tmp_path / f"to.{ending}")))


def test_copies_and_datasets_keep_what_is_said(tmp_path: Path) -> None:
    """A dataset without a transform is packed with the statement of its store."""
    mixed = pack_mixed(tmp_path)

    ps.copy(mixed, tmp_path / "copy.lmdb")
    ps.pack(ps.Subset(ps.StoreDataset(mixed), [5, 6]), tmp_path / "dataset.lmdb")

    for name, count in (("copy", 8), ("dataset", 2)):
        found = samples(tmp_path / f"{name}.lmdb")
        assert len(found) == count
        assert not any(map(is_beside, found))


@pytest.mark.parametrize("is_upright", [True, False])
@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
def test_masks_are_those_of_the_upright_picture(tmp_path: Path, orientation: int, *, is_upright: bool) -> None:
    """One that is of the stored picture is turned when it is packed."""
    source = write_masks(tmp_path / "set", orientation, is_upright=is_upright)

    ps.pack(None, tmp_path / "a.lmdb", annotations=source, format="mask_folders")

    assert not any(map(is_beside, samples(tmp_path / "a.lmdb")))


@pytest.mark.parametrize("upright", [True, False])
def test_a_table_says_by_an_option_which_picture_its_boxes_are_of(tmp_path: Path, *, upright: bool) -> None:
    """Decode, resize and verify do as it says."""
    table = write_table(tmp_path / "set", upright=upright)

    pack_table(table, tmp_path / "a.lmdb", upright)
    pack_table(table, tmp_path / "small.lmdb", upright, resize=30)

    for name in ("a", "small"):
        decode = T.Decode(orient=upright) if name == "a" else T.Decode()
        assert not any(map(is_beside, samples(tmp_path / f"{name}.lmdb", decode)))
    assert ps.verify(tmp_path / "small.lmdb", tmp_path / "a.lmdb").ok


@UNSAID
@pytest.mark.parametrize("upright", [True, False])
def test_a_store_that_says_nothing_is_verified_as_it_was_packed(tmp_path: Path, *, upright: bool) -> None:
    """The origin of the pack has what was said then."""
    pack_table(write_table(tmp_path / "set", upright=upright), tmp_path / "a.lmdb", None)

    ps.pack(tmp_path / "a.lmdb", tmp_path / "small.lmdb", upright=upright, resize=30)

    assert not any(map(is_beside, samples(tmp_path / "small.lmdb")))
    assert ps.verify(tmp_path / "small.lmdb", tmp_path / "a.lmdb").problems == ()


def test_a_table_that_does_not_say_it_is_packed_with_a_warning(tmp_path: Path) -> None:
    """It is packed as it was, of the stored pictures for Decode; without turned pictures, nothing is said."""
    table = write_table(tmp_path / "set", upright=False)

    with pytest.warns(UserWarning, match="not said whether their boxes are of the upright picture"):
        pack_table(table, tmp_path / "a.lmdb", None)
    pack_table(table, tmp_path / "straight.lmdb", None, keys=["1.jpg"])

    with ps.open(tmp_path / "a.lmdb") as store:
        assert store.schema.upright is None
    assert not any(map(is_beside, samples(tmp_path / "a.lmdb", T.Decode())))


def test_turned_pictures_are_not_resized_if_it_is_unknown_what_their_boxes_are_of(tmp_path: Path) -> None:
    """Neither guess is right for all tables; other pictures are resized."""
    table = write_table(tmp_path / "set", upright=True)

    with pytest.raises(PackError, match="not said whether boxes are of the upright picture or of the one that is stor"):
        pack_table(table, tmp_path / "a.lmdb", None, resize=30)
    report = pack_table(table, tmp_path / "a.lmdb", None, resize=30, on_error="skip")

    assert report.records == 1


@UNSAID
@pytest.mark.parametrize("upright", [True, False, None])
def test_boxes_of_a_table_are_written_as_those_of_upright_pictures(tmp_path: Path, *, upright: bool | None) -> None:
    """As for resize, what is not known is refused."""
    rows = [
        {"image": photograph(n), "boxes": np.array([BOX if upright else box_of(n)], np.float32), "labels": np.zeros(1)}
        for n in range(1, 9)
    ]
    schema = {"boxes": Field("boxes"), "labels": Field("int64[*]", ("cell",))}
    ps.pack(
        [{**row, "labels": np.zeros(1, np.int64)} for row in rows], tmp_path / "a.lmdb", schema=schema, upright=upright
    )

    if upright is None:
        with pytest.raises(PackError, match="7 records cannot be written"):
            ps.convert(tmp_path / "a.lmdb", tmp_path / "yolo", to_layout="yolo")
        return
    ps.convert(tmp_path / "a.lmdb", tmp_path / "yolo", to_layout="yolo")
    ps.pack(None, tmp_path / "b.lmdb", annotations=tmp_path / "yolo", format="yolo")

    assert not any(map(is_beside, samples(tmp_path / "b.lmdb")))


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        (Field("json"), [[10, 12, 30, 28], [10, 12]], None),
        (Field("json"), [], []),
        (Field("float32[*,3]"), np.zeros((1, 3), np.float32), None),
    ],
)
def test_values_that_are_no_boxes_end_in_an_error(field: Field, value: Any, expected: Any) -> None:
    """What is empty stays."""
    schema = Schema({"image": Field("image"), "boxes": replace(field, upright=False)})

    if expected is not None:
        assert turn_record(schema, photograph(6), {"boxes": value})["boxes"] == expected
        return
    with pytest.raises(PackError, match="its boxes cannot be turned with its picture"):
        turn_record(schema, photograph(6), {"boxes": value})


def test_corners_in_json_are_turned() -> None:
    """In one list for each object, or in pairs; what an object lacks stays None."""
    schema = Schema({"image": Field("image"), "polygon": Field("json", upright=False)})
    x0, y0, x1, y1 = box_of(6)
    flat, pairs = [x0, y0, x1, y0, x1, y1, x0, y1], [[x0, y0], [x1, y0], [x1, y1], [x0, y1]]

    turned = turn_record(schema, photograph(6), {"polygon": [flat, None, pairs]})["polygon"]

    assert turned[1] is None
    for corners in (turned[0], np.ravel(turned[2]).tolist()):
        assert (min(corners[::2]), min(corners[1::2]), max(corners[::2]), max(corners[1::2])) == BOX


@UNSAID
def test_packs_of_both_pictures_are_not_merged(tmp_path: Path) -> None:
    """One that says nothing is merged if none of its pictures is turned."""
    for name, upright in (("upright", True), ("stored", False), ("unsaid", None)):
        table = write_table(tmp_path / name, upright=upright is not False)
        pack_table(table, tmp_path / f"{name}.lmdb", upright)
    ps.pack(tmp_path / "unsaid.lmdb", tmp_path / "straight.lmdb", keys=["1.jpg"])

    for other in ("stored", "unsaid"):
        with pytest.raises(ArgumentError, match="must be of one kind of picture"):
            ps.merge([tmp_path / "upright.lmdb", tmp_path / f"{other}.lmdb"], tmp_path / "all.lmdb", prefix=True)
    ps.merge([tmp_path / "straight.lmdb", tmp_path / "upright.lmdb"], tmp_path / "all.lmdb", prefix=True)

    found = samples(tmp_path / "all.lmdb")
    assert len(found) == 9
    assert not any(map(is_beside, found))


def test_what_has_no_boxes_cannot_say_what_they_are_of(tmp_path: Path) -> None:
    """Nor may a pack that says it be packed as the other."""
    (tmp_path / "set" / "a").mkdir(parents=True)
    (tmp_path / "set" / "a" / "1.jpg").write_bytes(photograph(6))

    with pytest.raises(ArgumentError, match="there are none"):
        ps.pack(tmp_path / "set", tmp_path / "a.lmdb", upright=True)
    with pytest.raises(ArgumentError, match="say upright=True"):
        ps.pack(pack_mixed(tmp_path), tmp_path / "a.lmdb", upright=False)


def test_the_command_line_says_it_and_shows_it(tmp_path: Path) -> None:
    """``pack --upright``, and the fields that ``info`` prints."""
    table = write_table(tmp_path / "set", upright=True)
    arguments = ["pack", str(table), str(tmp_path / "a.lmdb"), "--schema", "boxes=boxes", "--upright"]

    packed = CliRunner().invoke(app, arguments)
    shown = CliRunner().invoke(app, ["info", str(tmp_path / "a.lmdb")])

    assert packed.exit_code == 0
    assert "boxes: boxes, of upright pictures" in " ".join(shown.output.split())
