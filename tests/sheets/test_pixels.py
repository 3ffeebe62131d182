"""``penstock check --pixels``: a user's pictures beside other decoders."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import penstock as ps
from penstock.sheets import pixels
from penstock.sheets.pixels import compare_pixels
from tests.test_cli import run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two JPEGs, a PNG, and a JPEG that is cut."""
    photos = tmp_path / "photos"
    photos.mkdir()
    gradient = Image.linear_gradient("L").resize((40, 30))
    colours = Image.merge("RGB", (gradient, gradient.rotate(90), gradient.rotate(180)))
    for name in ("a.jpg", "b.jpg", "c.png"):
        colours.save(photos / name)
    (photos / "cut.jpg").write_bytes((photos / "a.jpg").read_bytes()[:400])
    return photos


def only_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other decoders as if they were not installed."""
    for name in ("cv2", "torchcodec"):
        monkeypatch.setitem(sys.modules, name, None)


def test_equal_pictures_and_damaged_ones_are_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row for each format and mode; a damaged file is named with its reason, and is no failure."""
    only_pillow(monkeypatch)

    with ps.open(folder) as store:
        found = compare_pixels(store)

    assert found.ok
    assert [(row.format, row.mode, row.files, row.equal, row.largest, row.refused) for row in found.rows] == [
        *(("JPEG", mode, 3, 2, 0, 1) for mode in ("RGB", "L", "RGBA")),
        *(("PNG", mode, 1, 1, 0, 0) for mode in ("RGB", "L", "RGBA")),
    ]
    assert list(found.damaged) == ["cut.jpg"]
    assert "Truncated" in found.damaged["cut.jpg"]
    assert [each.split(",")[0] for each in found.absent] == ["TorchCodec", "OpenCV"]


def test_a_difference_has_its_size_and_its_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By decoder, mode and format; then the report is not ok."""
    only_pillow(monkeypatch)

    def decode(encoded: bytes, mode: str) -> Any:
        found = ps.decode(encoded, mode=mode).copy()
        if mode == "L" and encoded.startswith(b"\x89PNG"):
            found[3, 4] ^= 4
        return found[:-1] if mode == "RGBA" else found

    monkeypatch.setattr(pixels, "decode", decode)
    with ps.open(folder) as store:
        found = compare_pixels(store)

    assert not found.ok
    differing = {(row.format, row.mode): (row.largest, row.differing) for row in found.rows if row.largest}
    assert differing == {("PNG", "L"): (4, "c.png"), ("JPEG", "RGBA"): (255, "a.jpg"), ("PNG", "RGBA"): (255, "c.png")}


def test_what_only_penstock_refuses_is_a_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted apart from what both refuse."""
    only_pillow(monkeypatch)

    def refuse(*_: Any, **__: Any) -> None:
        raise ps.DecodeError("no")

    monkeypatch.setattr(pixels, "decode", refuse)
    with ps.open(folder) as store:
        found = compare_pixels(store, limit=1)

    assert (found.pictures, found.ok) == (1, False)
    assert {row.refused_here for row in found.rows} == {1}


def test_the_command_prints_a_table_or_json(folder: Path) -> None:
    """Progress goes to standard error; the exit code is 0 if nothing differs."""
    text, plain = run("check", "--pixels", folder), run("check", "--pixels", folder, "--limit", 2, "--json")

    assert text.returncode == 0, text.stderr
    head, titles, first, *_ = text.stdout.splitlines()
    assert head.endswith("photos: 4 pictures")
    assert titles.split()[:4] == ["format", "decoder", "mode", "files"]
    assert first.split()[0] == "JPEG"
    assert "penstock does not decode 1 file:\n  cut.jpg: " in text.stdout
    assert json.loads(plain.stdout)["pictures"] == 2


def test_the_command_fails_where_pixels_differ(tmp_path: Path) -> None:
    """16 bits of gray become 8 by their upper byte here, and Pillow clips them: a difference that is known."""
    photos = tmp_path / "photos"
    photos.mkdir()
    Image.new("I;16", (4, 4), 1000).save(photos / "deep.png")

    done = run("check", "--pixels", photos)

    assert done.returncode == 1
    assert "deep.png" in done.stdout


def test_a_store_without_images_is_refused(tmp_path: Path) -> None:
    """With the name of the option."""
    (tmp_path / "numbers.csv").write_text("x\n1\n")

    done = run("check", "--pixels", tmp_path / "numbers.csv")

    assert done.returncode in {1, 2}
    assert done.stdout == ""
