"""Annotations that lie with images are said where the images are opened, and refused where they would be lost."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import ArgumentError, StoreFormatError
from tests.pack.images import picture

LABELME = json.dumps({"version": "5.0", "shapes": []})
VOC = "<annotation><filename>0.jpg</filename></annotation>"
YOLO = "0 0.5 0.5 0.2 0.2\n"
COCO = json.dumps({"images": [{"id": 1, "file_name": "0.jpg"}], "annotations": []})
OPEN_IMAGES = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax\n0,x,/m/1,1,0,1,0,1\n"
BESIDE = {
    "labelme": ("{}.json", LABELME), "voc": ("{}.XML", VOC), "yolo": ("{}.txt", YOLO), "coco": ("train.json", COCO),
    "cvat": ("annotations.xml", "<?xml version='1.0'?>\n<annotations>\n</annotations>"),
    "open_images": ("train-annotations-bbox.csv", OPEN_IMAGES), "auto": ("list.txt", "0.jpg 3\n1.jpg 2\n"),
}  # fmt: skip


def write(folder: Path, name: str, text: str, images: str = "{}.jpg") -> Path:
    """Three images, and a file for each or for all of them."""
    for number in range(3):
        for path, content in ((images, picture(number)), (name, text.encode())):
            (folder / path.format(number)).parent.mkdir(parents=True, exist_ok=True)
            (folder / path.format(number)).write_bytes(content)
    return folder


@pytest.mark.parametrize("kind", BESIDE)
def test_annotations_beside_images_are_said_and_not_lost(tmp_path: Path, kind: str) -> None:
    """Opened, a folder warns; packed or converted, it is refused with the call; classes= packs the images alone."""
    folder = write(tmp_path / "set", *BESIDE[kind])
    call = re.escape(f"penstock.pack({str(folder)!r}, dst, format={kind!r})")

    with pytest.warns(UserWarning, match=call):
        ps.open(folder).close()
    with pytest.raises(ArgumentError, match=rf"would be lost: {call} .*classes=\['set'\] \(--classes set\)"):
        ps.pack(folder, tmp_path / "p.lmdb")
    with pytest.raises(ArgumentError, match=call):
        ps.convert(folder, tmp_path / "p.tar")
    assert ps.pack(folder, tmp_path / "p.lmdb", classes=["set"]).records == 3


@pytest.mark.parametrize(
    ("name", "images"), [("labels/{}.txt", "images/{}.jpg"), ("a/{}.txt", "a/{}.jpg"), ("t/{}.txt", "b{0}/{0}.jpg")]
)
def test_annotations_in_other_folders_are_paired_by_name(tmp_path: Path, name: str, images: str) -> None:
    """A label file may lie in a folder beside that of the images, and inside the folders of classes."""
    folder = write(tmp_path / "set", name, YOLO, images)

    with pytest.raises(ArgumentError, match="format 'yolo', such as"):
        ps.pack(folder, tmp_path / "p.lmdb")


def test_a_folder_without_images_is_what_its_annotations_are(tmp_path: Path) -> None:
    """The refusal of a folder that is no class names the format and the call, not only how to leave the folder out."""
    folder = write(tmp_path, "Annotations/{}.xml", VOC, "JPEGImages/{}.jpg")

    with pytest.raises(StoreFormatError, match=r"'Annotations', and the folder has annotations of the format 'voc'"):
        ps.open(folder)

    assert len(ps.open(folder, classes=["JPEGImages"])) == 3


def test_annotations_in_a_folder_beside_that_of_the_images_are_a_warning(tmp_path: Path) -> None:
    """They lie outside of what was given, and are no part of it: packed, the images are alone."""
    write(tmp_path, "labels/train/{}.txt", YOLO, "images/train/{}.jpg")

    with pytest.warns(UserWarning, match=rf"'labels/train/0.txt', .*{re.escape(repr(str(tmp_path)))}, dst, format"):
        assert ps.pack(tmp_path / "images" / "train", tmp_path / "p.lmdb").records == 3


def test_a_table_of_the_images_of_one_class_is_the_source(tmp_path: Path) -> None:
    """The call that is named packs its columns. In folders of several classes a table is in nobody's way."""
    folder = write(tmp_path / "set", "labels.csv", "image,age\n0.jpg,3\n1.jpg,4\n2.jpg,5\n")
    two = write(tmp_path / "two", "labels.csv", "image,age\na0/0.jpg,3\n", "a{0}/{0}.jpg")

    with pytest.raises(ArgumentError, match=re.escape(f"penstock.pack('{folder}/labels.csv', dst)")):
        ps.pack(folder, tmp_path / "p.lmdb")

    assert set(ps.open(ps.pack(folder / "labels.csv", tmp_path / "p.lmdb").store).schema.fields) >= {"image", "age"}
    assert ps.pack(two, tmp_path / "two.lmdb").records == 3


@pytest.mark.parametrize(
    ("name", "text"),
    [("{}.txt", "3 cats on 2 mats"), ("{}.json", '{"url": "x", "categories": ["a"]}'), ("1.txt", YOLO)],
)
def test_other_texts_beside_images_are_nobodys_annotations(tmp_path: Path, name: str, text: str) -> None:
    """Captions and metadata, and the label file of fewer than half of the images, say nothing."""
    folder = write(tmp_path / "set", name, text)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ps.pack(folder, tmp_path / "p.lmdb").records == 3
