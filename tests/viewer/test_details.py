"""One record: all fields as text, the structure of its picture, where its bytes lie."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock.sample import Field, Schema
from penstock.stores.lmdb_pack.writer import LmdbWriter
from penstock.transforms.decoding.jpeg_structure import describe_jpeg, estimate_quality
from penstock.viewer.browse.details import MAX_SHOWN
from tests.pack.images import make_photos, picture
from tests.viewer.asking import App

HOSTILE = ("<script>alert(1)</script>", "\x1b[31m\x00\u202egnp.exe", "a\u2028b\ud800", "x" * 10_000_000)


def save(quality: int, **options: Any) -> bytes:
    """A JPEG of noise."""
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (40, 48, 3), np.uint8)
    Image.fromarray(pixels).save(file, "JPEG", quality=quality, **options)
    return file.getvalue()


@pytest.mark.parametrize("quality", [1, 10, 37, 50, 75, 92, 100])
def test_the_quality_of_a_jpeg_is_found_by_its_tables(quality: int) -> None:
    """As it was given to libjpeg."""
    assert estimate_quality(save(quality)) == (quality, True)


def test_tables_of_another_encoder_have_a_nearest_quality() -> None:
    """And it is said that libjpeg would make others; a file without tables has none."""
    flat = save(50, qtables=[[7] * 64, [9] * 64])

    quality, is_standard = estimate_quality(flat)

    assert quality is not None
    assert not is_standard
    assert estimate_quality(b"\xff\xd8\xff\xd9") == (None, False)
    assert estimate_quality(b"\xff\xd8\xff\xdb\x00\x43\x00" + bytes(5)) == (None, False)


def test_the_structure_of_a_jpeg() -> None:
    """Sampling, process, scans, restart markers, and what is missing."""
    file = save(80, progressive=True, subsampling=2)
    restarts = save(80, restart_marker_blocks=2, subsampling=0)

    progressive, sequential = describe_jpeg(file), describe_jpeg(restarts)

    assert (progressive.process, progressive.sampling, progressive.scans) == ("progressive", "4:2:0", 10)
    assert (sequential.process, sequential.sampling, sequential.restart_interval) == ("sequential", "4:4:4", 2)
    assert (sequential.scans, sequential.quality, sequential.is_truncated) == (1, 80, False)
    assert describe_jpeg(restarts[:-40]).is_truncated
    assert describe_jpeg(b"\xff\xd8\xff\xe0").decoder != "native"


def test_hostile_captions_are_text_and_cut(tmp_path: Path) -> None:
    """HTML, control characters, right to left, a lone surrogate, 10 MB: what is sent is short, and says the length."""
    schema = Schema({"image": Field("image"), "caption": Field("text"), "more": Field("json")})
    writer = LmdbWriter(tmp_path / "texts.lmdb", schema, "test")
    captions = [text.replace("\ud800", "") for text in HOSTILE]
    for number, text in enumerate(captions):
        fields = {"image": picture(number), "caption": text, "more": {"text": text}}
        writer.append(writer.prepare(f"{number}<b>\u202e.jpg", fields))
    writer.finish()
    writer.close()
    with ps.open(tmp_path / "texts.lmdb") as store:
        app = App(store)
        answers = [app.ask(f"api/record/{index}") for index in range(len(captions))]
        rows = app.ask("api/rows")
        app.close()

    for text, shown in zip(captions, answers, strict=True):
        caption = next(field for field in shown.json["fields"] if field["name"] == "caption")
        assert caption["text"] == text[:MAX_SHOWN]
        assert caption["length"] == len(text)
        assert caption["is_cut"] == (len(text) > MAX_SHOWN)
        assert shown.headers["content-type"] == "application/json"
        assert len(shown.body) < 100_000
        assert shown.body.isascii()
    assert [row["key"] for row in rows.json["rows"]] == [f"{number}<b>\u202e.jpg" for number in range(len(captions))]


def test_the_exif_of_a_photograph_is_text(tmp_path: Path) -> None:
    """By the names of its tags; bytes are written as hexadecimal digits."""
    exif = Image.Exif()
    exif[0x0110], exif[0x0112] = "<b>Camera</b>", 6
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.jpg").write_bytes(save(80, exif=exif))
    with ps.open(tmp_path) as store:
        app = App(store)
        shown = app.ask("api/record/0").json["picture"]
        app.close()

    tags = {tag["name"]: tag["text"] for tag in shown["exif"]}
    assert tags == {"Model": "<b>Camera</b>", "Orientation": "6"}
    assert (shown["width"], shown["height"]) == (40, 48)


@pytest.mark.parametrize("packed", [False, True])
def test_the_place_of_the_bytes_is_told(tmp_path: Path, *, packed: bool) -> None:
    """The bytes of the file at that place are those of the picture: of a folder, and of a pack that is mapped."""
    path = make_photos(tmp_path / "photos", 3)
    if packed:
        ps.pack(path, tmp_path / "photos.lmdb")
        path = tmp_path / "photos.lmdb"
    with ps.open(path) as store:
        app = App(store)
        shown, content = app.ask("api/record/2").json, bytes(store.read([2])[0].fields["image"])
        app.close()

    place = shown["places"]["image"]
    with Path(place["path"]).open("rb") as file:
        file.seek(place["offset"])
        assert file.read(place["nbytes"]) == content


def test_a_damaged_picture_has_its_problem_and_its_fields(tmp_path: Path) -> None:
    """The record is shown as far as it can be read; its thumbnail says why there is none."""
    path = make_photos(tmp_path / "photos", 2)
    (path / "cats" / "0.jpg").write_bytes(b"\xff\xd8\xff\xe0no picture")
    with ps.open(path) as store:
        app = App(store)
        record, thumbnail = app.ask("api/record/0").json, app.ask("api/thumb/0")
        layers = app.ask("api/layers", "indices=0,1").json
        app.close()

    assert record["picture"]["problem"]
    assert record["fields"][1]["class"] == "cats"
    assert thumbnail.status == 422
    assert thumbnail.json["error"]
    assert "error" in layers["0"]
    assert layers["1"]["layers"] == []


def test_records_without_a_picture_are_shown(tmp_path: Path) -> None:
    """Their fields are; a thumbnail is refused."""
    writer = LmdbWriter(tmp_path / "numbers.lmdb", Schema({"age": Field("int"), "blob": Field("bytes")}), "test")
    writer.append(writer.prepare("first", {"age": 3, "blob": b"\x00\x01"}))
    writer.finish()
    writer.close()
    with ps.open(tmp_path / "numbers.lmdb") as store:
        app = App(store)
        record, thumbnail, session = app.ask("api/record/0").json, app.ask("api/thumb/0"), app.ask("api/session").json
        app.close()

    assert session["image"] == ""
    assert {field["name"]: field["text"] for field in record["fields"]} == {"age": "3", "blob": "00 01"}
    assert thumbnail.status == 400
    assert "no image" in thumbnail.json["error"]


def test_neighbours_of_a_record(tmp_path: Path) -> None:
    """In the order of the store; the ends have one."""
    with ps.open(make_photos(tmp_path / "photos", 3)) as store:
        app = App(store)
        found = [app.ask(f"api/near/{index}").json for index in range(3)]
        app.close()

    assert [(each["before"], each["position"], each["after"]) for each in found] == [
        (None, 0, 1),
        (0, 1, 2),
        (1, 2, None),
    ]


def test_the_seek_table_beside_a_store_is_told(tmp_path: Path) -> None:
    """Its kind, and how many places it holds; a folder that has none, and a pack that is made with one."""
    path = make_photos(tmp_path / "photos", 2)
    ps.pack(path, tmp_path / "photos.lmdb")
    tables = []
    for each in (path, tmp_path / "photos.lmdb"):
        with ps.open(each) as store:
            app = App(store)
            tables.append(app.ask("api/record/1").json["picture"]["jpeg"]["seek_table"])
            app.close()

    assert tables == [None, "tiles, 3 of 3 places"]


def test_a_damaged_record_says_so_and_the_others_are_shown(tmp_path: Path) -> None:
    """A bit of a pack that changed: the record is refused with its key, its row is listed."""
    path = make_photos(tmp_path / "photos", 12)
    content = (path / "dogs" / "1.jpg").read_bytes()
    ps.pack(path, tmp_path / "photos.lmdb")
    (file,) = (each for each in (tmp_path / "photos.lmdb").iterdir() if content in each.read_bytes())
    stored = bytearray(file.read_bytes())
    stored[stored.index(content) + 100] ^= 1
    file.write_bytes(stored)
    with ps.open(tmp_path / "photos.lmdb") as store:
        app = App(store)
        rows = app.ask("api/rows").json["rows"]
        (damaged,) = [row["index"] for row in rows if row["key"] == "dogs/1.jpg"]
        statuses = [app.ask(f"api/{what}/{damaged}").status for what in ("record", "thumb", "picture")]
        said = app.ask(f"api/record/{damaged}").json["error"]
        key = app.ask(f"api/near/{damaged}").json["key"]
        others = [app.ask(f"api/thumb/{row['index']}").status for row in rows if row["index"] != damaged]
        app.close()

    assert statuses == [422, 422, 422]
    assert "dogs/1.jpg" in said
    assert key == "dogs/1.jpg"
    assert others.count(200) > 4  # a page of the pack holds several small pictures
