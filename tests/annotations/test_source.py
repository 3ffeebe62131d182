"""The files of a source: what counts as an empty line, and paths below its root."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from penstock.annotations import read
from penstock.annotations.source import AnnotationSource
from tests.annotations.sets import FULL_SETS, write_text


@pytest.mark.parametrize("mark", ["\x1c", "\x1d", "\x1e", "\x1f", "\x00", "\ufeff", " \t", "\u2003"])
def test_lines_without_words_are_empty(tmp_path: Path, mark: str) -> None:
    """Separators by which words are split make no word: neither a name in a list of VOC, nor an error."""
    path = write_text(tmp_path / "lines.txt", f"{mark}\na b\n{mark}{mark}\n\nc\n")

    assert list(AnnotationSource.open(tmp_path, None).read_lines(path)) == [(2, "a b"), (5, "c")]
    FULL_SETS["voc"](tmp_path / "voc")
    write_text(tmp_path / "voc/ImageSets/Main/train.txt", f"{mark}\na\n")
    assert len(read(tmp_path / "voc", "voc")) == 1


def test_paths_are_shown_below_the_root(tmp_path: Path) -> None:
    """With slashes; a folder whose name begins alike is beside the root."""
    source = AnnotationSource.open(tmp_path, None)

    assert source.relative(tmp_path / "a" / "b.xml") == "a/b.xml"
    assert source.relative(tmp_path) == "."
    assert source.relative(tmp_path.with_name(f"{tmp_path.name}2") / "b.xml") == f"../{tmp_path.name}2/b.xml"


def test_starts_of_files_that_cannot_be_read_are_empty(tmp_path: Path) -> None:
    """A folder, and a file that is missing, are recognised as nothing."""
    source = AnnotationSource.open(tmp_path, None)

    assert source.read_start(write_text(tmp_path / "a.txt", "abc"), 2) == b"ab"
    assert source.read_start(tmp_path, 2) == b""
    assert source.read_start(tmp_path / "b.txt", 2) == b""


@pytest.mark.parametrize("suffix", [".avif", ".heic", ".jxl", ".dib"])
def test_images_of_every_ending_that_is_decoded_are_found(tmp_path: Path, suffix: str) -> None:
    """Annotated images are those that a folder without annotations has."""
    (tmp_path / f"a{suffix}").write_bytes(b"")

    assert list(AnnotationSource.open(tmp_path, None).image_files) == ["a"]


def test_an_ending_in_the_other_case_is_the_same_image(tmp_path: Path) -> None:
    """A camera writes JPG, and an annotation names jpg."""
    (tmp_path / "images").mkdir()
    for name in ("1.JPG", "2.jpg"):
        (tmp_path / "images" / name).touch()
    source = AnnotationSource.open(tmp_path, None)

    assert source.find_image("images\\1.jpg") == tmp_path / "images/1.JPG"
    assert source.find_image("2.JPG", tmp_path / "images") == tmp_path / "images/2.jpg"


@pytest.mark.parametrize(
    ("name", "folder", "split", "found"),
    [
        ("1.jpg", "", "val2017", None),
        ("1.jpg", "valid", None, None),
        ("/x/set/test/1.jpg", "", None, None),
        ("train/images/1.jpg", "", "val", "train/images/1.jpg"),
        ("1.jpg", "", "training", "train/images/1.jpg"),
        ("1.jpg", "", "trainval", "train/images/1.jpg"),
        ("1.jpg", "labels", None, "train/images/1.jpg"),
        ("/y/valid/2.jpg", "", None, "val2017/2.jpg"),
    ],
)
def test_no_image_of_another_split_is_found_by_its_end(
    tmp_path: Path, name: str, folder: str, split: str | None, found: str | None
) -> None:
    """The split is that which is stated, or that of the name, or that of the folder of the annotation."""
    for each in ("train/images/1.jpg", "val2017/2.jpg", "test/2.jpg"):
        write_text(tmp_path / each, "")
    source = AnnotationSource.open(tmp_path, None)

    path = source.find_image(name, tmp_path / folder, split=split)

    assert (None if path is None else source.relative(path)) == found


@pytest.mark.parametrize("kind", ["coco", "voc", "labelme", "path_list", "mask_folders", "open_images", "cvat"])
def test_an_annotation_of_one_split_has_no_image_of_another(tmp_path: Path, kind: str) -> None:
    """Where its image is missing, it is a problem; that of the same name in another split is not taken."""
    picture = Image.new("L", (100, 80))
    for name in ("images/train/1.png", *(["masks/val/1.png"] if kind == "mask_folders" else [])):
        (tmp_path / name).parent.mkdir(parents=True)
        picture.save(tmp_path / name)
    size = '"width": 100, "height": 80'
    boxes = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax\n1,x,/m/1,1,0,1,0,1\n"
    texts = {
        "instances_val.json": f'{{"images": [{{"id": 1, "file_name": "1.png", {size}}}], "categories": []}}',
        "val/1.xml": "<annotation><size><width>100</width><height>80</height></size></annotation>",
        "val/1.json": '{"shapes": [], "imagePath": "1.png"}',
        "list.txt": "/set/val/1.png 2\n",
        "": "",
        "val-annotations-bbox.csv": boxes,
        "all.xml": '<annotations><image name="1.png" width="100" height="80" subset="val"></image></annotations>',
    }
    kinds = ["coco", "voc", "labelme", "path_list", "mask_folders", "open_images", "cvat"]
    if name := list(texts)[kinds.index(kind)]:
        write_text(tmp_path / name, texts[name])

    found = read(tmp_path, kind, on_error="skip")

    assert not found.records
    assert "there is no" in found.problems[0].reason
