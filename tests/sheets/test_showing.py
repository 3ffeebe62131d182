"""Sheets of annotated samples: what is drawn stands where the annotation says, in the colour of its class."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageDraw

import penstock as ps
from penstock import transforms as T
from penstock.bfloat16 import to_floats
from penstock.errors import ArgumentError, PenstockError
from penstock.ragged import Ragged
from penstock.sample import Array, Field
from penstock.sheets.annotated import Annotated, Role, find_annotations
from penstock.sheets.canvas import GAP, PALETTE, color_of
from penstock.sheets.sheet import contact_sheet, pick_by_objects
from penstock.sheets.shown_pixels import PixelForm, to_rgb
from penstock.sheets.tile_sheet import HEADER
from penstock.sheets.tiles import decode_instance, draw_tile
from tests.pack.images import make_photos
from tests.sheets.annotated_packs import GRAY, encode, gray, write_pack

DETECTION = {
    "image": Field("image"),
    "boxes": Field("boxes"),
    "labels": Field("int64[*]", ("cat", "dog")),
}
BOX = (20, 30, 80, 70)


def detection(tmp_path: Path, *boxes: tuple[float, ...], labels: list[int] | None = None) -> Path:
    """A pack of one gray image of 200 x 100 with boxes; the class of each is dog."""
    numbers = np.array([1] * len(boxes) if labels is None else labels, np.int64)
    record = {"image": gray(), "boxes": np.array(boxes, np.float32).reshape(-1, 4), "labels": numbers}
    return write_pack(tmp_path / "d.lmdb", DETECTION, [record])


def draws(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text that is drawn from now on."""
    drawn: list[str] = []
    real = ImageDraw.ImageDraw.text

    def text(self: ImageDraw.ImageDraw, place: Any, words: str, *arguments: Any, **options: Any) -> None:
        drawn.append(words)
        real(self, place, words, *arguments, **options)

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", text)
    return drawn


def tile_of(sheet: Image.Image, number: int = 0, *, side: int = 200, legend: bool = True) -> Array:
    """Pixels of a tile of the first sample: 0 is before, 1 after."""
    top = HEADER + (30 if legend else 0)
    left = GAP + number * (side + 4)
    return np.asarray(sheet)[top : top + side, left : left + side]


def frame_of(tile: Array, color: tuple[int, int, int], box: tuple[int, int, int, int]) -> Array:
    """Whether the pixels of a frame have a colour: those of the four outermost lines of a box."""
    x0, y0, x1, y1 = box
    inside = (tile[y0:y1, x0:x1] == color).all(axis=2)
    return np.concatenate([inside[0], inside[-1], inside[:, 0], inside[:, -1]])


def test_a_box_is_drawn_in_the_color_of_its_class(tmp_path: Path) -> None:
    """Its frame has the colour on all sides, inside is the image, and nothing else is in the place."""
    sheet = ps.show(detection(tmp_path, BOX), tile=200)

    tile = tile_of(sheet)  # the image is 200 x 100, 50 rows below the top
    assert frame_of(tile, color_of(1), (20, 80, 80, 120)).all()
    assert (tile[83:117, 23:77] == GRAY).all()
    assert (tile[50:150, 100:] == GRAY).all()


def test_a_box_moves_with_the_augmentation(tmp_path: Path) -> None:
    """Beside the record, the flipped sample has its box at the mirrored place."""
    sheet = ps.show(detection(tmp_path, BOX), augment=[T.Decode(), T.HorizontalFlip(p=1)], tile=200)

    assert frame_of(tile_of(sheet, 0), color_of(1), (20, 80, 80, 120)).all()
    assert frame_of(tile_of(sheet, 1), color_of(1), (120, 80, 180, 120)).all()


@pytest.mark.parametrize(("tile", "ratio"), [(100, 0.5), (200, 1), (400, 2), (600, 3)])
def test_boxes_are_scaled_with_the_image(tmp_path: Path, tile: int, ratio: float) -> None:
    """The frame has the size of the box in the scaled image; the image keeps its shape."""
    sheet = ps.show(detection(tmp_path, (20, 30, 80, 90)), tile=tile)

    x0, y0, x1, y1 = (int(value * ratio) for value in (20, 30 + 50, 80, 90 + 50))
    assert frame_of(tile_of(sheet, side=tile), color_of(1), (x0, y0, x1, y1)).all()


def test_the_sample_is_the_one_of_the_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same seed and epoch, the tile is drawn from the pixels and boxes that a loader gives."""
    rng = np.random.default_rng(0)
    records = [
        {
            "image": encode(rng.integers(0, 256, (60, 80, 3), np.uint8)),
            "boxes": np.array([[10, 10, 50, 40]], np.float32),
            "labels": np.array([number % 2]),
        }
        for number in range(5)
    ]
    path = write_pack(tmp_path / "d.lmdb", DETECTION, records)
    augment = T.Pipeline([T.Decode(), T.RandomResizedCrop(64), T.HorizontalFlip(), T.ColorJitter(0.4, 0.4, 0.4)])
    given: list[Annotated] = []

    def record_sample(sample: Annotated, *arguments: Any, **options: Any) -> Any:
        given.append(sample)
        return draw_tile(sample, *arguments, **options)

    monkeypatch.setattr(sys.modules["penstock.sheets.showing"], "draw_tile", record_sample)
    ps.show(path, 5, augment=augment, seed=7, epoch=2)

    dataset = ps.StoreDataset(path, transform=augment, ragged="list")
    loader = ps.DataLoader(dataset, batch_size=5, seed=7)
    for _ in range(2):
        list(loader)
    batch = next(iter(loader))
    for index in range(5):
        np.testing.assert_array_equal(given[2 * index + 1].image, batch["image"][index])
        np.testing.assert_array_equal(given[2 * index + 1].boxes, batch["boxes"][index])


def test_random_numbers_of_other_libraries_are_seeded(tmp_path: Path) -> None:
    """A callable that draws from `random` gives the same sheet twice, another one with another seed."""
    import random

    def shift(sample: dict[str, Any]) -> dict[str, Any]:
        return {**sample, "image": np.full((9, 9, 3), random.randrange(256), np.uint8)}

    path = detection(tmp_path, BOX)
    one, two, other = (np.asarray(ps.show(path, augment=shift, seed=seed)) for seed in (1, 1, 2))

    assert (one == two).all()
    assert (one != other).any()


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_normalised_pixels_are_shown_as_they_were(tmp_path: Path, layout: str) -> None:
    """Normalize and ToLayout change nothing that a person sees."""
    augment = [T.Decode(), T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout(layout, "float32")]
    sheet = ps.show(detection(tmp_path, BOX), augment=augment, tile=200)

    assert (tile_of(sheet, 0)[50:150] == tile_of(sheet, 1)[50:150]).all()


def test_a_mask_tints_what_is_inside_it(tmp_path: Path) -> None:
    """Each value has its colour, mixed half and half, its edge in full; 0 leaves the image as it is."""
    mask = np.zeros((100, 200), np.uint8)
    mask[20:60, 40:90] = 3
    fields = {"image": Field("image"), "mask": Field("mask", ("ground", "a", "b", "sky"))}
    path = write_pack(tmp_path / "m.lmdb", fields, [{"image": gray(), "mask": encode(mask)}])

    sheet = ps.show(path, augment=[T.Decode(), T.HorizontalFlip(p=1)], tile=200)

    mixed = tuple((GRAY[0] + value + 1) // 2 for value in color_of(3))
    for number, shown in enumerate((mask, mask[:, ::-1])):
        tile = tile_of(sheet, number)[50:150]
        inside = np.zeros((100, 200), bool)
        inside[1:-1, 1:-1] = (
            (shown[:-2, 1:-1] == 3) & (shown[2:, 1:-1] == 3) & (shown[1:-1, :-2] == 3) & (shown[1:-1, 2:] == 3)
        )
        assert (tile[inside & (shown == 3)] == mixed).all()
        assert (tile[~inside & (shown == 3)] == color_of(3)).all()
        assert (tile[shown == 0] == GRAY).all()


def test_every_class_has_a_color_of_its_own() -> None:
    """The first are those that people with any colour vision can tell apart; no two of a thousand are the same."""
    colors = [color_of(number) for number in range(1000)]

    assert tuple(colors[: len(PALETTE)]) == PALETTE
    assert len(set(colors)) == 1000
    assert color_of(-1) != color_of(-2)


def test_values_of_masks_have_the_names_of_their_set() -> None:
    """A set of masks alone has them in the field of the classes of its objects, of which there are none."""
    roles = {"mask": Role("mask", "mask"), "labels": Role("labels", "int64[*]", ("ground", "sky"))}
    mask = np.ones((2, 2), np.uint8)

    alone = find_annotations({"mask": mask, "labels": np.zeros(0, np.int64)}, roles)
    beside = find_annotations({"mask": mask, "labels": np.zeros(1, np.int64)}, roles)

    assert alone.mask_classes == ("ground", "sky")
    assert beside.mask_classes == ()


PYCOCOTOOLS: Final = "lo0b1b1" + "0" * 57 + "Yg:S1dWE" + "0" * 17 + "gi3\\MmXL"
"""What pycocotools writes for :func:`three_objects`."""


def three_objects() -> NDArray[np.bool_]:
    """A mask of 200 x 100 with two rectangles and the pixel at the upper right."""
    mask = np.zeros((100, 200), bool)
    mask[20:70, 10:40] = mask[5:90, 150:160] = mask[0, 199] = True
    return mask


def test_run_lengths_are_those_of_pycocotools() -> None:
    """As text, as bytes or as a list of lengths, down the columns, background first."""
    mask = three_objects()
    changes = np.flatnonzero(np.diff(mask.ravel(order="F"), prepend=False))
    lengths = np.diff(changes, prepend=0, append=mask.size).tolist()

    for counts in (PYCOCOTOOLS, PYCOCOTOOLS.encode(), lengths):
        decoded = decode_instance({"size": [100, 200], "counts": counts}, 200, 100)
        assert decoded is not None
        assert (decoded == mask).all()


@pytest.mark.parametrize("counts", ["", "lo0", "\x00", "\ud800", [20000, 1], [-1, 20001], [2.0], None, "o" * 99])
def test_broken_run_lengths_are_not_drawn(counts: Any) -> None:
    """Lengths that do not add up to the image, and what is no text or list of lengths, are no mask."""
    assert decode_instance({"size": [100, 200], "counts": counts}, 200, 100) is None


def test_instances_are_tinted_by_the_class_of_their_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their pixels have its colour, the others none; an instance of another size is a problem that is said."""
    fields = {**DETECTION, "instances": Field("json")}
    record = {
        "image": gray(),
        "boxes": np.zeros((2, 4), np.float32),
        "labels": np.array([1, 0]),
        "instances": [{"size": [100, 200], "counts": PYCOCOTOOLS}, {"size": [50, 50], "counts": [2500]}],
    }
    drawn = draws(monkeypatch)

    path = write_pack(tmp_path / "i.lmdb", fields, [record])
    tile = tile_of(ps.show(path, tile=200), legend=False)[50:150]

    mask = three_objects()
    assert ((tile == GRAY).all(axis=2) == ~mask).all()
    assert (tile[20, 10:40] == color_of(1)).all()
    assert any("1 instance of another size not drawn" in text for text in drawn)


def test_instances_move_with_the_augmentation(tmp_path: Path) -> None:
    """The mask of each object is tinted at the mirrored place, in the colour of its class."""
    fields = {**DETECTION, "instances": Field("json")}
    masks = [{"size": [100, 200], "counts": PYCOCOTOOLS}, None]
    boxes = np.zeros((2, 4), np.float32)
    record = {"image": gray(), "boxes": boxes, "labels": np.array([1, 0]), "instances": masks}
    path = write_pack(tmp_path / "i.lmdb", fields, [record])

    sheet = ps.show(path, augment=[T.Decode(), T.HorizontalFlip(p=1)], tile=200)

    tile = tile_of(sheet, 1, legend=False)[50:150]
    assert ((tile == GRAY).all(axis=2) == ~three_objects()[:, ::-1]).all()
    assert (tile[20, 160:190] == color_of(1)).all()


def test_keypoints_have_the_color_of_their_position(tmp_path: Path) -> None:
    """The centre of a visible point is filled; one that is not annotated, as COCO has it, is left out."""
    points = np.array([[[30, 40, 2], [100, 50, 1], [0, 0, 0]]], np.float32)
    fields = {"image": Field("image"), "keypoints": Field("float32[*,3,3]")}
    path = write_pack(tmp_path / "k.lmdb", fields, [{"image": gray(), "keypoints": points}])

    tile = tile_of(ps.show(path, tile=200), legend=False)

    assert (tile[50 + 40, 30] == color_of(0)).all()
    assert (tile[50 + 50, 100] == color_of(1)).all()
    assert not (tile == color_of(2)).all(axis=2).any()


def test_keypoints_move_with_the_augmentation(tmp_path: Path) -> None:
    """A point is drawn at the mirrored place."""
    fields = {"image": Field("image"), "keypoints": Field("keypoints")}
    path = write_pack(tmp_path / "k.lmdb", fields, [{"image": gray(), "keypoints": np.array([[30, 40]], np.float32)}])

    sheet = ps.show(path, augment=[T.Decode(), T.HorizontalFlip(1, [])], tile=200)

    assert (tile_of(sheet, 1, legend=False)[50 + 40, 170] == color_of(0)).all()


def test_hidden_points_are_hollow() -> None:
    """Visibility 0 with a place is a ring; below 0, nothing is drawn."""
    sample = Annotated(np.full((100, 100, 3), GRAY[0], np.uint8), keypoints=np.array([[30, 40, 0], [70, 70, -1]]))

    tile = np.asarray(draw_tile(sample, 100, PixelForm()).picture)

    assert (tile[40, 30] == GRAY).all()
    assert (tile == color_of(0)).all(axis=2).any()
    assert not (tile == color_of(1)).all(axis=2).any()


def test_names_legend_and_captions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sheet names classes at boxes and in the legend, and says index, key, size and number of boxes."""
    drawn = draws(monkeypatch)

    ps.show(detection(tmp_path, BOX, (100, 20, 150, 60)))

    assert drawn.count("dog") == 3
    assert "cat" not in drawn
    assert "#0 a" in drawn
    assert "200 x 100, 2 boxes" in drawn
    assert "1 of 1 record" in drawn


def test_names_of_objects_that_a_store_has_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of names beside the numbers, as TFRecords have it, names boxes whose classes have no names."""
    fields = {
        "image": Field("image"),
        "boxes": Field("boxes"),
        "classes": Field("int64[*]"),
        "image.object.class.text": Field("json"),
    }
    record = {"image": gray(), "boxes": np.array([BOX], np.float32), "classes": np.array([3])}
    path = write_pack(tmp_path / "t.lmdb", fields, [{**record, "image.object.class.text": ["platelet"]}])
    drawn = draws(monkeypatch)

    ps.show(path)

    assert drawn.count("platelet") == 2


def test_the_label_of_the_image_is_in_its_caption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of classes without boxes shows each class, by name."""
    photos = make_photos(tmp_path / "photos", 12)
    drawn = draws(monkeypatch)

    ps.show(photos, 2)

    assert "#0 cats/0.jpg" in drawn
    assert [text.partition(",")[0] for text in drawn if " x " in text] == ["cats", "dogs"]


def test_what_cannot_be_drawn_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Boxes without area and classes that are not as many as boxes are problems; the sheet is made."""
    drawn = draws(monkeypatch)

    ps.show(detection(tmp_path, BOX, (50, 50, 50, 60), (np.nan, 0, 1, 1), labels=[1, 1]), tile=600)

    assert "2 classes for 3 boxes; 2 boxes without area" in drawn


def test_an_image_that_cannot_be_decoded_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a tile that says so, and is not augmented; the others are drawn."""
    photos = make_photos(tmp_path / "photos", 4)
    (photos / "cats" / "0.jpg").write_bytes(b"no image")
    drawn = draws(monkeypatch)

    ps.show(photos, augment=[T.Decode(), T.Resize(32)])

    assert drawn.count("the image cannot be decoded") == 1
    assert drawn.count("augmented") == 3


def test_a_record_without_an_image_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a tile that says so on either sheet, and is not augmented; the others are drawn."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"image": arrow.array([gray(), None, gray()], arrow.binary()), "number": [0, 1, 2]})
    parquet.write_table(table, tmp_path / "table.parquet")
    drawn = draws(monkeypatch)

    ps.show(tmp_path / "table.parquet", augment=[T.Decode(), T.Resize(32)])
    contact_sheet(tmp_path / "table.parquet", tmp_path / "sheet.png")

    assert drawn.count("the record has no image") == 2
    assert drawn.count("augmented") == 2


def test_other_kinds_are_given(tmp_path: Path) -> None:
    """A field of another kind is drawn and moved as the kind that is given."""
    fields = {"image": Field("image"), "bbox": Field("float32[*,4]")}
    path = write_pack(tmp_path / "b.lmdb", fields, [{"image": gray(), "bbox": np.array([BOX], np.float32)}])

    sheet = ps.show(path, augment=[T.Decode(), T.HorizontalFlip(p=1)], kinds={"bbox": "boxes"}, tile=200)

    assert frame_of(tile_of(sheet, 1, legend=False), color_of(0), (120, 80, 180, 120)).all()


@pytest.mark.parametrize(
    "fields", [("image", "boxes", "labels"), {"x": "image", "y": "boxes", "z": "labels"}], ids=["tuple", "names"]
)
def test_samples_of_any_structure(tmp_path: Path, fields: Any) -> None:
    """A StoreDataset is drawn before and after its transform, whatever its samples are called."""
    dataset = ps.StoreDataset(detection(tmp_path, BOX), fields, T.Pipeline([T.Decode(), T.HorizontalFlip(p=1)]))

    sheet = ps.show(dataset, tile=200)

    assert frame_of(tile_of(sheet, 0), color_of(1), (20, 80, 80, 120)).all()
    assert frame_of(tile_of(sheet, 1), color_of(1), (120, 80, 180, 120)).all()


def test_datasets_of_the_user(tmp_path: Path) -> None:
    """An image and a mapping of targets, as torchvision's detection models take them, in CHW floats."""

    class Detection(ps.Dataset[Any]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            image = np.full((3, 100, 200), GRAY[0] / 255, np.float32)
            masks = np.zeros((1, 100, 200), np.uint8)
            masks[0, 0:10, 100:110] = 1
            return image, {"boxes": np.array([BOX], np.float32), "labels": np.array([4]), "masks": masks}

    tile = tile_of(ps.show(Detection(), 1, tile=200))

    assert frame_of(tile, color_of(4), (20, 80, 80, 120)).all()
    assert (tile[50 + 9, 100:110] == color_of(4)).all()
    assert (tile[50 + 12, 85:200] == GRAY).all()


def test_stored_pixels(tmp_path: Path) -> None:
    """Images that are stored as pixels are drawn, and augmented without Decode."""
    fields = {"image": Field("pixels:uint8[100,200,3]"), "boxes": Field("boxes")}
    record = {"image": np.full((100, 200, 3), GRAY[0], np.uint8), "boxes": np.array([BOX], np.float32)}
    path = write_pack(tmp_path / "p.lmdb", fields, [record])

    sheet = ps.show(path, augment=[T.Decode(), T.HorizontalFlip(p=1)], tile=200)

    assert frame_of(tile_of(sheet, 1, legend=False), color_of(0), (120, 80, 180, 120)).all()


def test_records_are_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By index, the last one also as -1; or each value of a field in turn."""
    fields = {"image": Field("image"), "group": Field("int")}
    path = write_pack(tmp_path / "g.lmdb", fields, [{"image": gray(), "group": n // 5} for n in range(6)])
    drawn = draws(monkeypatch)

    ps.show(path, indices=[3, -1])
    ps.show(path, 2, by="group")

    assert [text for text in drawn if text.startswith("#")] == ["#3 d", "#5 f", "#0 a", "#5 f"]


def test_records_are_chosen_by_the_classes_of_boxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 40 records one has a rare class, and some none: each class in turn, the rare one from its only record."""
    records: list[dict[str, Any]] = [
        {
            "image": gray(),
            "boxes": np.array([BOX] * (n % 4), np.float32).reshape(-1, 4),
            "labels": np.array([0, 0, 7 if n == 19 else 1][: n % 4], np.int64),
        }
        for n in range(40)
    ]
    fields = {"image": Field("image"), "boxes": Field("boxes"), "labels": Field("int64[*]")}
    path = write_pack(tmp_path / "b.lmdb", fields, records)
    drawn = draws(monkeypatch)

    ps.show(path, 4, by="labels")

    found = [int(text[1:].split()[0]) for text in drawn if text.startswith("#")]
    assert len(found) == len(set(found)) == 4
    assert [records[row]["labels"].tolist() for row in found[1:]] == [[0, 0, 1], [0, 0, 7], []]
    assert found[2] == 19


@given(
    st.lists(st.lists(st.integers(0, 6), max_size=4), min_size=1, max_size=60).map(
        lambda rows: Ragged(
            np.array([each for row in rows for each in row], np.int64),
            np.cumsum([0, *(len(row) for row in rows)]),
        )
    ),
    st.integers(1, 70),
)
@example(Ragged(np.array([2, 0, 1]), np.array([0, 0, 1, 3])), 3)  # more classes than are asked for, two in one record
def test_choice_by_objects_takes_each_class_once(labels: Ragged, samples: int) -> None:
    """As many records as asked for, none twice; no class is without a record that some other class needs less."""
    chosen = pick_by_objects(labels, samples)

    sets = [set(each.tolist()) or {-1} for each in labels]
    assert len(chosen) == len(set(chosen)) == min(samples, len(sets))
    groups = set().union(*sets)
    if samples >= len(groups):
        shown = set().union(*(sets[row] for row in chosen))
        alone = {each for each in groups if sum(each in held for held in sets) >= len(groups)}
        assert alone <= shown
    assert pick_by_objects(labels, samples) == chosen


def test_choice_by_objects_is_spread_over_the_store() -> None:
    """Few of many records of a class come from all parts of the store."""
    labels = Ragged(np.zeros(1000, np.int64), np.arange(1001))

    assert pick_by_objects(labels, 4) == [0, 256, 512, 768]


@pytest.mark.parametrize("kind", ["boxes", "float32[*]", "int64[2]", "json"])
def test_choice_by_another_field_is_refused(tmp_path: Path, kind: str) -> None:
    """Only what has a value or a class for each object."""
    values = {"boxes": np.zeros((2, 4), np.float32), "float32[*]": np.zeros(2, np.float32), "json": {}}
    record = {"image": gray(), "other": values.get(kind, np.zeros(2, np.int64))}
    path = write_pack(tmp_path / "o.lmdb", {"image": Field("image"), "other": Field(kind)}, [record])

    with pytest.raises(ArgumentError, match="by must name a field of kind label, int or text, or of the classes"):
        ps.show(path, by="other")


def test_an_error_of_the_augmentation_has_its_place(tmp_path: Path) -> None:
    """Store, key and index are in the notes of the user's own error."""

    def fail(sample: Any) -> Any:
        raise KeyError("depth")

    with pytest.raises(KeyError, match="depth") as caught:
        ps.show(detection(tmp_path, BOX), augment=fail)

    assert "key='a', index=0" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n": 0}, "at least 1"),
        ({"columns": 0}, "at least 1"),
        ({"tile": 31}, "32 to 4096"),
        ({"seed": -1}, "seed and epoch"),
        ({"by": "boxes"}, "label, int or text"),
        ({"by": "nothing"}, "must be one of image, boxes, labels"),
        ({"indices": [1]}, r"in \[0, 1\)"),
        ({"indices": []}, "at least one"),
        ({"indices": [0], "by": "labels"}, "together"),
        ({"indices": [0] * 10_000, "tile": 4096}, "smaller n or tile"),
        ({"fields": ("boxes",)}, "must have an image"),
        ({"augment": 3}, "transform must be"),
        ({"output": "x.gif"}, r"\.png"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    """Each error says what is allowed."""
    with pytest.raises(ArgumentError, match=words):
        ps.show(detection(tmp_path, BOX), **options)


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    """It is replaced only if the caller says so."""
    path, target = detection(tmp_path, BOX), tmp_path / "sheet.png"
    target.write_bytes(b"mine")

    with pytest.raises(ArgumentError, match="exists already"):
        ps.show(path, output=target)
    kept = target.read_bytes()
    sheet = ps.show(path, output=target, overwrite=True)

    assert kept == b"mine"
    with Image.open(target) as written:
        assert (np.asarray(written) == np.asarray(sheet)).all()


def test_options_of_a_dataset_are_its_own(tmp_path: Path) -> None:
    """Beside a dataset, augment is refused; so is a stream, which has no length."""
    dataset = ps.StoreDataset(detection(tmp_path, BOX))

    with pytest.raises(ArgumentError, match="to the dataset itself"):
        ps.show(dataset, augment=[T.Decode()])


def test_colors_of_the_palette_differ_for_everybody() -> None:
    """Also in lightness or hue for people who do not see red or green: no two colours are near in all of it."""
    colors = np.array(PALETTE, np.int64)
    distances = np.abs(colors[:, None] - colors[None]).sum(axis=2)

    assert (distances[~np.eye(len(PALETTE), dtype=bool)] > 60).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint16", "bool"])
@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (5, 7, 3), (1, 5, 7), (3, 5, 7), (5, 7, 4), (5, 7, 2)])
def test_images_of_any_form_are_shown(dtype: str, shape: tuple[int, ...]) -> None:
    """Every dtype and layout that a loader gives becomes uint8 RGB of its height and width."""
    rgb, note = to_rgb((np.random.default_rng(0).random(shape) * 2).astype(dtype), PixelForm())

    assert rgb.shape == (5, 7, 3)
    assert rgb.dtype == np.uint8
    assert dtype == "bool" or dtype in note


numbers = st.floats(width=32) | st.integers(-(10**6), 10**6)
values = st.none() | numbers | st.text(max_size=3) | st.lists(numbers, max_size=9) | st.lists(
    st.lists(numbers, max_size=5), max_size=4
)  # fmt: skip
encoded = st.fixed_dictionaries(
    {"size": st.just([8, 9]) | st.lists(st.integers(-1, 99), max_size=3), "counts": st.text(max_size=9) | values}
)


@given(
    boxes=values,
    keypoints=values,
    masks=st.lists(values | st.binary(max_size=20), max_size=2),
    instances=st.none() | st.lists(encoded | values, max_size=3),
)
def test_any_annotation_is_drawn_or_said(boxes: Any, keypoints: Any, masks: list[Any], instances: Any) -> None:
    """Values of wrong shapes, types and sizes never end the sheet with an error of Python."""
    sample = Annotated(np.zeros((8, 9, 3), np.uint8), boxes=boxes, keypoints=keypoints, masks=masks)
    sample.instances, sample.numbers = instances, np.arange(2)

    with contextlib.suppress(PenstockError):
        assert draw_tile(sample, 64, PixelForm()).picture.size == (64, 64)


def test_an_image_of_bfloat16_is_shown_as_its_floats() -> None:
    """What a pipeline rounds to bfloat16 looks like the same values in float32."""
    image = np.random.default_rng(0).integers(0, 256, (6, 7, 3), np.uint8)
    floats = to_floats(T.ToLayout("CHW", "bfloat16").image(image, np.empty(0)))

    shown, _ = to_rgb(T.ToLayout("CHW", "bfloat16").image(image, np.empty(0)), PixelForm())

    expected, _ = to_rgb(floats, PixelForm())
    np.testing.assert_array_equal(shown, expected)
    assert np.abs(shown.astype(int) - image).max() <= 1
