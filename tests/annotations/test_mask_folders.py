"""Folders of images and masks: the layouts that people have, names of classes, masks that do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from penstock.annotations import Annotations, read
from penstock.errors import AnnotationError, ArgumentError
from tests.annotations.sets import HEIGHT, WIDTH, write_image, write_text

ADE_TABLE = (
    "Idx\tRatio\tTrain\tVal\tStuff\tName\n1\t0.1576\t11664\t1172\t1\twall\n2\t0.1072\t6046\t612\t1\tbuilding, edifice\n"
)


def write_mask(path: Path, mode: str = "L", size: tuple[int, int] = (WIDTH, HEIGHT)) -> Path:
    """A mask; in a palette its numbers are places."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new(mode, size, 1)
    if mode == "P":
        image.putpalette([0, 0, 0, 128, 0, 0])
    image.save(path)
    return path


def write_pair(folder: Path, image: str, mask: str, mode: str = "L") -> None:
    """An image and its mask."""
    write_image(folder / image)
    write_mask(folder / mask, mode)


def rows_of(found: Annotations) -> list[tuple[str, str, str | None]]:
    """Image, mask and split of the records."""
    return [(record["image"], record["mask"], record.get("split")) for record in found]


def test_cityscapes(tmp_path: Path) -> None:
    """Masks of class ids, by split and city; other PNGs and JSON files beside them are not masks."""
    rows = []
    for split, city in (("train", "ulm"), ("val", "bonn")):
        stem = f"{city}_000000_000019"
        image, mask = (
            f"leftImg8bit/{split}/{city}/{stem}_leftImg8bit.png",
            f"gtFine/{split}/{city}/{stem}_gtFine_labelIds.png",
        )
        write_pair(tmp_path, image, mask)
        write_mask(tmp_path / f"gtFine/{split}/{city}/{stem}_gtFine_instanceIds.png")
        write_mask(tmp_path / f"gtFine/{split}/{city}/{stem}_gtFine_color.png", "RGB")
        write_text(tmp_path / f"gtFine/{split}/{city}/{stem}_gtFine_polygons.json", "{}")
        rows.append((image, mask, split))

    found, val = read(tmp_path, "mask_folders"), read(tmp_path, "mask_folders", split="val")

    assert rows_of(found) == rows
    assert rows_of(val) == rows[1:]
    assert len(found.classes) == 34
    assert [found.classes[number] for number in (0, 7, 26, 33)] == ["unlabeled", "road", "car", "bicycle"]
    assert found[0]["boxes"].shape == (0, 4)
    assert found[0]["labels"].shape == (0,)


def test_cityscapes_with_training_ids(tmp_path: Path) -> None:
    """Where there are only masks of training ids, the classes are those 19."""
    write_pair(tmp_path, "leftImg8bit/train/ulm/a_leftImg8bit.png", "gtFine/train/ulm/a_gtFine_labelTrainIds.png")

    found = read(tmp_path, "mask_folders")

    assert len(found) == 1
    assert (found.classes[0], found.classes[13], len(found.classes)) == ("road", "car", 19)


def test_cityscapes_lists_what_lacks_a_mask(tmp_path: Path) -> None:
    """Images without masks and masks without images are problems."""
    write_image(tmp_path / "leftImg8bit/test/ulm/a_leftImg8bit.png")
    write_mask(tmp_path / "gtFine/train/ulm/b_gtFine_labelIds.png")

    found = read(tmp_path, "mask_folders", on_error="skip")

    assert found.records == []
    assert [problem.reason for problem in found.problems] == [
        "there is no mask of this image",
        "there is no image of this mask",
    ]


def test_ade20k(tmp_path: Path) -> None:
    """The table numbers classes from 1; the value 0 is everything else."""
    write_pair(tmp_path, "images/training/ADE_train_1.jpg", "annotations/training/ADE_train_1.png")
    write_pair(tmp_path, "images/validation/ADE_val_1.jpg", "annotations/validation/ADE_val_1.png")
    write_text(tmp_path / "objectInfo150.txt", ADE_TABLE)

    found = read(tmp_path, "mask_folders")

    assert found.classes == ("other", "wall", "building, edifice")
    assert rows_of(found) == [
        ("images/training/ADE_train_1.jpg", "annotations/training/ADE_train_1.png", "training"),
        ("images/validation/ADE_val_1.jpg", "annotations/validation/ADE_val_1.png", "validation"),
    ]
    assert rows_of(read(tmp_path, "mask_folders", split="validation")) == rows_of(found)[1:]


def write_voc(folder: Path) -> None:
    """Three images, two of them with masks, in two splits."""
    for name in ("2007_000001", "2007_000002", "2007_000003"):
        write_image(folder / "JPEGImages" / f"{name}.jpg")
    for name in ("2007_000001", "2007_000003"):
        write_mask(folder / "SegmentationClass" / f"{name}.png", "P")
    write_text(folder / "ImageSets/Segmentation/train.txt", "2007_000003\n")
    write_text(folder / "ImageSets/Segmentation/val.txt", "2007_000001\r\n")
    write_text(folder / "ImageSets/Segmentation/trainval.txt", "2007_000003\n2007_000001\n")


def test_voc(tmp_path: Path) -> None:
    """Most images of VOC have no mask: those that have one are read; the names of its own classes are known."""
    write_voc(tmp_path)

    found, val = read(tmp_path, "mask_folders"), read(tmp_path, "mask_folders", split="val")

    assert [(record["image"], record["split"]) for record in found] == [
        ("JPEGImages/2007_000001.jpg", "val"),
        ("JPEGImages/2007_000003.jpg", "train"),
    ]
    assert [record["mask"] for record in val] == ["SegmentationClass/2007_000001.png"]
    assert (found.classes[0], found.classes[15], len(found.classes)) == ("background", "person", 21)


def test_voc_lists_names_without_files(tmp_path: Path) -> None:
    """What a split names and is not there is a problem."""
    write_voc(tmp_path)
    write_text(tmp_path / "ImageSets/Segmentation/val.txt", "2007_000001\n2007_000002\n2007_000009\n")

    found = read(tmp_path, "mask_folders", split="val", on_error="skip")

    assert len(found) == 1
    assert [problem.reason for problem in found.problems] == ["there is no mask of this image"] * 2


def test_names_of_voc_are_not_given_to_others(tmp_path: Path) -> None:
    """Folders of VOC's layout with other names of images have classes of their own."""
    write_pair(tmp_path, "JPEGImages/mine.jpg", "SegmentationClass/mine.png", "P")

    assert read(tmp_path, "mask_folders").classes == ()
    assert read(tmp_path, "mask_folders", classes=["background", "cell"]).classes == ("background", "cell")


@pytest.mark.parametrize(
    ("image", "mask"),
    [
        ("images/a.jpg", "masks/a.png"),
        ("images/a.jpg", "masks/a_mask.png"),
        ("images/a.JPG", "masks/a.PNG"),
        ("imgs/a.jpg", "masks/a.jpg.png"),
        ("images/x/y/a.jpg", "masks/x/y/a.png"),
        ("images/a.jpg", "annotations/trimaps/a.png"),
        ("images/a b é.jpg", "labels/a b é_label.png"),
        ("JPEGImages/a.jpg", "mask/a_seg.png"),
    ],
)
def test_masks_are_found_by_the_names_of_images(tmp_path: Path, image: str, mask: str) -> None:
    """The same path below the folder, with or without a usual ending; else the only mask of that name."""
    write_pair(tmp_path, image, mask)

    found = read(tmp_path, "mask_folders")

    assert [(record["image"], record["mask"]) for record in found] == [(image, mask)]


def test_splits_are_folders_above_or_below(tmp_path: Path) -> None:
    """``images/train`` and ``train/images`` both make a split."""
    for split in ("train", "val"):
        write_pair(tmp_path / "below", f"images/{split}/a.jpg", f"masks/{split}/a.png")
        write_pair(tmp_path / "above", f"{split}/images/a.jpg", f"{split}/masks/a.png")

    for layout in ("below", "above"):
        found = read(tmp_path / layout, "mask_folders")
        assert [record["split"] for record in found] == ["train", "val"]
        assert len(read(tmp_path / layout, "mask_folders", split="val")) == 1
        with pytest.raises(ArgumentError, match="split must be one of train, val, got 'test'"):
            read(tmp_path / layout, "mask_folders", split="test")


def test_folders_of_other_names(tmp_path: Path) -> None:
    """A mapping, or ``images=``, says where both are; ``mask_suffix`` what names end with."""
    write_pair(tmp_path, "in/a.jpg", "out/a-labels.png")

    found = read({"images": tmp_path / "in", "annotations": tmp_path / "out"}, "mask_folders", mask_suffix="-labels")
    other = read(tmp_path / "out", "mask_folders", tmp_path / "in", mask_suffix="-labels")

    assert rows_of(found) == rows_of(other) == [("in/a.jpg", "out/a-labels.png", None)]


def test_mask_of_another_size_is_listed(tmp_path: Path) -> None:
    """A mask has the size of its image; the problem names the mask."""
    write_image(tmp_path / "images/a.jpg")
    write_mask(tmp_path / "masks/a.png", size=(WIDTH, HEIGHT + 1))

    found = read(tmp_path, "mask_folders", on_error="skip")

    assert found.records == []
    assert [(problem.file, problem.image) for problem in found.problems] == [("masks/a.png", "images/a.jpg")]
    assert "image of 40 x 33, the image has 40 x 32" in found.problems[0].reason


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the mask is no image"),
        (b"\x89PNG\r\n\x1a\n", "the mask is no image"),
        (b"\xff\xd8 no picture", "the mask is no image"),
    ],
)
def test_damaged_mask_is_listed(tmp_path: Path, content: bytes, reason: str) -> None:
    """A mask without a header is left out with its image."""
    write_image(tmp_path / "images/a.jpg")
    write_text(tmp_path / "masks/a.png", content)

    found = read(tmp_path, "mask_folders", on_error="skip")

    assert found.records == []
    assert reason in found.problems[0].reason


@pytest.mark.parametrize("mode", ["1", "L", "P", "I;16"])
def test_masks_of_numbers_are_read(tmp_path: Path, mode: str) -> None:
    """Gray values of 1, 8 and 16 bits and palettes hold numbers; the file is not touched."""
    write_pair(tmp_path, "images/a.jpg", "masks/a.png", mode)
    before = (tmp_path / "masks/a.png").read_bytes()

    found = read(tmp_path, "mask_folders")

    assert found[0]["mask"] == "masks/a.png"
    assert (tmp_path / "masks/a.png").read_bytes() == before


def test_masks_of_colors_need_a_label_map(tmp_path: Path) -> None:
    """Three channels are no numbers: they are refused, unless CVAT's label map says what the colors are."""
    write_pair(tmp_path, "JPEGImages/a.jpg", "SegmentationClass/a.png", "RGB")

    without = read(tmp_path, "mask_folders", on_error="skip")
    write_text(
        tmp_path / "labelmap.txt",
        "# label:color_rgb:parts:actions\nbackground:0,0,0::\ncell:128,0,0::\nbig cell:0,128,0::\n",
    )
    found = read(tmp_path, "mask_folders")

    assert "the pixels of the mask must be numbers of classes" in without.problems[0].reason
    assert found.classes == ("background", "cell", "big cell")
    assert found.details["mask_colors"] == [(0, 0, 0), (128, 0, 0), (0, 128, 0)]
    assert len(found) == 1


def test_other_pictures_are_no_masks(tmp_path: Path) -> None:
    """A JPEG or GIF as a mask is a problem: labels are changed by its compression, or by its palette."""
    write_pair(tmp_path, "images/a.jpg", "masks/a.png")
    write_image(tmp_path / "images/b.jpg")
    write_image(tmp_path / "masks/b.jpg")
    Image.new("P", (WIDTH, HEIGHT)).save(write_image(tmp_path / "images/c.jpg").parent.parent / "masks/c_mask.gif")

    found = read(tmp_path, "mask_folders", on_error="skip")

    assert [record["image"] for record in found] == ["images/a.jpg"]
    assert [problem.reason for problem in found.problems] == [
        "the mask must be a PNG, got JPEG",
        "the mask must be a PNG, got GIF",
    ]


def test_masks_of_no_image_are_listed(tmp_path: Path) -> None:
    """Each mask is used once; others are counted."""
    write_pair(tmp_path, "images/a.jpg", "masks/a.png")
    write_mask(tmp_path / "masks/a_mask.png")
    write_mask(tmp_path / "masks/z.png")

    found = read(tmp_path, "mask_folders", on_error="skip")

    assert len(found) == 1
    assert [(problem.file, problem.effect) for problem in found.problems] == [
        ("masks/a_mask.png", "mask left out"),
        ("masks/z.png", "mask left out"),
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("a\nb\na\n", "different names, got 'a' twice"),
        ("1\tx\twall\n3\ty\ttree\n", r"classes.txt:2: the class must have the number 2, got '3'"),
        ("a:0,0,0::\nb:0,0::\n", "classes.txt:2: a color must be red, green and blue"),
        ("a:0,0,999::\n", r"a color must be in \[0, 255\]"),
        (b"\xff\xff", "must be text"),
        (b"a\xc3(\n", "must be text in UTF-8"),
    ],
)
def test_damaged_list_of_classes_is_an_error(tmp_path: Path, content: str | bytes, reason: str) -> None:
    """Names are read in full or not at all."""
    write_pair(tmp_path, "images/a.jpg", "masks/a.png")
    write_text(tmp_path / "classes.txt", content)

    with pytest.raises(AnnotationError, match=reason):
        read(tmp_path, "mask_folders", on_error="skip")


def test_classes_may_be_elsewhere(tmp_path: Path) -> None:
    """The mapping names the list; ``classes=`` wins."""
    write_pair(tmp_path, "images/a.jpg", "masks/a.png")
    path = write_text(tmp_path / "names.lst", "background\ncell\n")
    source = {"annotations": tmp_path / "masks", "images": tmp_path / "images", "classes": path}

    assert read(source, "mask_folders").classes == ("background", "cell")
    assert read(source, "mask_folders", classes=["0", "1"]).classes == ("0", "1")


def test_folder_without_masks_is_an_error(tmp_path: Path) -> None:
    """The error lists the names of folders that are looked for."""
    write_image(tmp_path / "pictures/a.jpg")

    with pytest.raises(AnnotationError, match=r"images, image, imgs.*masks, mask, annotations"):
        read(tmp_path, "mask_folders")


def test_number_of_pixels_is_not_limited_by_masks(tmp_path: Path) -> None:
    """Only headers are read: a mask whose pixels are missing is taken as it lies."""
    write_image(tmp_path / "images/a.jpg")
    path = write_mask(tmp_path / "masks/a.png")
    path.write_bytes(path.read_bytes()[:45])

    assert np.array_equal([record["width"] for record in read(tmp_path, "mask_folders")], [WIDTH])
