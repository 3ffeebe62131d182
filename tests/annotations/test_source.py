"""The files of a source: what counts as an empty line, and paths below its root."""

from __future__ import annotations

from pathlib import Path

import pytest

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
