"""The contact sheet: which records are shown, and that their pixels stand where they belong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

import penstock as ps
from penstock.errors import ArgumentError
from penstock.sample import Field, Schema
from penstock.sheets import contact_sheet
from penstock.sheets.sheet import pick
from penstock.sheets.tile_sheet import HEADER
from penstock.stores.lmdb_pack.writer import LmdbWriter
from tests.pack.images import make_photos

COLORS = {"blue": (0, 0, 255), "green": (0, 128, 0), "red": (255, 0, 0)}


@pytest.fixture
def colors(tmp_path: Path) -> Path:
    """Classes blue, green and red, of pictures in just that color."""
    for name, color in COLORS.items():
        (tmp_path / "colors" / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (64, 40), color).save(tmp_path / "colors" / name / f"{number}.png")
    return tmp_path / "colors"


@pytest.mark.parametrize(
    ("classes", "said"), [(("cats",), "1 of 1 record, 1 class"), (("cats", "dogs"), "2 of 2 records, 2 classes")]
)
def test_counts_have_their_plurals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, classes: tuple[str, ...], said: str
) -> None:
    """One record is "1 record"."""
    drawn = draws(monkeypatch)

    contact_sheet(make_photos(tmp_path / "photos", len(classes), classes), tmp_path / "sheet.png")

    assert said in drawn


def test_captions_are_one_line_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newline in a class's name is drawn as it is written in a string."""
    drawn = draws(monkeypatch)

    contact_sheet(make_photos(tmp_path / "photos", 1, ("a\nb",)), tmp_path / "sheet.png")

    assert any(text.startswith(r"a\nb,") for text in drawn)


def draws(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text that is drawn from now on."""
    drawn: list[str] = []
    real = ImageDraw.ImageDraw.text

    def text(self: ImageDraw.ImageDraw, place: Any, words: str, *arguments: Any, **options: Any) -> None:
        drawn.append(words)
        real(self, place, words, *arguments, **options)

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", text)
    return drawn


def test_each_picture_stands_in_its_tile(colors: Path, tmp_path: Path) -> None:
    """Tiles hold the pictures of the records that are said to be shown, in order."""
    shown = contact_sheet(colors, tmp_path / "sheet.png", samples=9, columns=3, tile=100)

    with Image.open(tmp_path / "sheet.png") as sheet, ps.open(colors) as store:
        assert sheet.format == "PNG"
        for place, index in enumerate(shown):
            center = 14 + place % 3 * 114 + 50, HEADER + place // 3 * 152 + 50
            name = store.schema["label"].classes[store.column("label")[index]]
            assert sheet.getpixel(center) == COLORS[name]


@pytest.mark.parametrize(
    ("name", "form"), [("s.png", "PNG"), ("s.jpg", "JPEG"), ("s.JPEG", "JPEG"), ("s.webp", "WEBP")]
)
def test_the_ending_chooses_the_format(colors: Path, tmp_path: Path, name: str, form: str) -> None:
    """A file that is called .jpg is a JPEG."""
    contact_sheet(colors, tmp_path / name)

    with Image.open(tmp_path / name) as sheet:
        assert sheet.format == form


@pytest.mark.parametrize("name", ["sheet", "sheet.txt", "sheet.gif", "", "photos"])
def test_other_endings_are_refused(colors: Path, tmp_path: Path, name: str) -> None:
    """Also a folder's name; the error lists the endings."""
    (tmp_path / "photos").mkdir()

    with pytest.raises(ArgumentError, match=r"\.png, \.jpg"):
        contact_sheet(colors, tmp_path / name)
    assert not (tmp_path / "sheet").exists()


def test_a_folder_that_is_not_there_is_said(colors: Path, tmp_path: Path) -> None:
    """Before anything is drawn."""
    with pytest.raises(ArgumentError, match=r"nodir.*does not exist"):
        contact_sheet(colors, tmp_path / "nodir" / "x.png")


def test_a_place_that_cannot_be_written_to_is_said(colors: Path, tmp_path: Path) -> None:
    """A folder that is called like a picture, say; the system's reason stands in the error."""
    (tmp_path / "x.png").mkdir()

    with pytest.raises(ArgumentError, match=r"x\.png.*cannot be written.*directory"):
        contact_sheet(colors, tmp_path / "x.png")


def test_every_class_shows_one_before_any_shows_two(colors: Path, tmp_path: Path) -> None:
    """Four samples of three classes show each class, and one of them twice."""
    shown = contact_sheet(colors, tmp_path / "sheet.png", samples=4)

    with ps.open(colors) as store:
        assert sorted(store.column("label")[shown].tolist()) == [0, 0, 1, 2]


def test_sheet_is_the_same_every_time(colors: Path, tmp_path: Path) -> None:
    """The same store makes the same file."""
    for name in ("one.png", "two.png"):
        contact_sheet(colors, tmp_path / name)

    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


@given(st.lists(st.integers(-2, 6), min_size=1, max_size=40), st.integers(1, 50))
def test_pick_is_fair(labels: list[int], samples: int) -> None:
    """As many as fit, none twice, and no class has two more than a class that still has some left."""
    array = np.array(labels)

    picked = pick(array, samples)

    assert len(picked) == len(set(picked)) == min(samples, len(labels))
    if len(set(labels)) <= samples:
        shown = {label: sum(array[picked] == label) for label in set(labels)}
        left = [count for label, count in shown.items() if count < labels.count(label)]
        assert not left or max(shown.values()) <= min(left) + 1


def test_undecodable_picture_is_marked(tmp_path: Path) -> None:
    """A record that is no image gets a tile that says so; the sheet is made."""
    photos = make_photos(tmp_path / "photos", 4)
    (photos / "cats" / "0.jpg").write_bytes(b"no image")

    assert len(contact_sheet(photos, tmp_path / "sheet.png")) == 4


def test_store_without_labels_is_shown_by_key(tmp_path: Path) -> None:
    """Records without labels are shown under their keys."""
    writer = LmdbWriter(str(tmp_path / "p.lmdb"), Schema({"image": Field("image")}), "source")
    for number in range(3):
        path = make_photos(tmp_path / "photos", 4) / "cats" / "0.jpg"
        writer.append(writer.prepare(f"a rather long name that does not fit {number}", {"image": path.read_bytes()}))
    writer.finish()

    assert contact_sheet(tmp_path / "p.lmdb", tmp_path / "sheet.png", samples=2) == [0, 1]


def test_nothing_to_show_is_refused(tmp_path: Path) -> None:
    """A store without images has no sheet."""
    writer = LmdbWriter(str(tmp_path / "p.lmdb"), Schema({"count": Field("int")}), "source")
    writer.append(writer.prepare("a", {"count": 3}))
    writer.finish()

    with pytest.raises(ArgumentError, match="at least one image"):
        contact_sheet(tmp_path / "p.lmdb", tmp_path / "sheet.png")


def test_sizes_must_be_positive(colors: Path, tmp_path: Path) -> None:
    """Zero samples, columns or pixels mean nothing."""
    with pytest.raises(ArgumentError, match="at least 1"):
        contact_sheet(colors, tmp_path / "sheet.png", samples=0)
