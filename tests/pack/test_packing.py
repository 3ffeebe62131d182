"""``pack``: what gets in, what is listed, and what is left behind."""

from __future__ import annotations

import os
import shutil
import unicodedata
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import ArgumentError, IncompleteStoreError, PackError, StoreError, StoreFormatError
from penstock.pack import PackProgress
from penstock.sample import Record
from penstock.stores.base import Indices
from penstock.stores.common.lmdb.environment_writer import CommitLimits
from penstock.stores.images.store import FilesStore
from penstock.stores.lmdb_pack.writer import LmdbWriter
from penstock.stores.origin import ORIGIN_FILE
from tests.pack.images import make_photos, picture


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twelve pictures in two classes."""
    return make_photos(tmp_path / "photos")


def contents(pack: Path) -> dict[str, bytes]:
    """The bytes of each file of a pack, but for the note of its source, and its seek tables, whose order varies."""
    others = {ORIGIN_FILE, ".image.index"}
    return {entry.name: entry.read_bytes() for entry in pack.iterdir() if entry.name not in others}


def test_every_file_becomes_a_record(photos: Path, tmp_path: Path) -> None:
    """Keys, bytes, labels and classes are those of the folder; the sizes of the images are added."""
    report = ps.pack(photos, tmp_path / "p.lmdb")

    with ps.open(photos) as source, ps.open(tmp_path / "p.lmdb") as store:
        assert list(store.keys()) == list(source.keys())
        for index in range(len(source)):
            given, got = source.read([index])[0].fields, store.read([index])[0].fields
            assert (bytes(got["image"]), got["label"]) == (given["image"], given["label"])
            height, width, _ = ps.decode(given["image"]).shape
            assert (got["width"], got["height"]) == (width, height)
        assert store.schema["label"] == source.schema["label"]
        nbytes = sum(len(source.read([index])[0].fields["image"]) for index in range(12))
    assert (report.records, report.nbytes, report.resumed, report.skipped) == (12, nbytes, 0, ())
    assert report.store == f"lmdb://{tmp_path / 'p.lmdb'}"


@pytest.mark.parametrize(
    ("images", "masks"),
    [("images", "masks"), ("JPEGImages", "SegmentationClass"), ("leftImg8bit/val/ulm", "gtFine/val/ulm")],
)
def test_images_and_masks_are_not_packed_as_classes(tmp_path: Path, images: str, masks: str) -> None:
    """The root of a segmentation set is refused with its format; classes that are named are packed."""
    for name, ending in ((images, "_leftImg8bit.png"), (masks, "_gtFine_labelIds.png")):
        path = tmp_path / "set" / name / f"a{ending if '/' in name else '.png'}"
        path.parent.mkdir(parents=True)
        path.write_bytes(picture(1, "PNG"))
    classes = sorted(name.split("/")[0] for name in (images, masks))

    with pytest.raises(ArgumentError, match="format='mask_folders'"):
        ps.pack(tmp_path / "set", tmp_path / "p.lmdb")

    assert ps.pack(tmp_path / "set", tmp_path / "p.lmdb", classes=classes).records == 2


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_bytes_do_not_depend_on_workers(photos: Path, tmp_path: Path, workers: int) -> None:
    """However many threads read, the pack is the same, to the byte."""
    ps.pack(photos, tmp_path / "one.lmdb", workers=3)

    ps.pack(photos, tmp_path / "p.lmdb", workers=workers)

    assert contents(tmp_path / "p.lmdb") == contents(tmp_path / "one.lmdb")


def test_bytes_do_not_depend_on_the_folder_s_name_or_times(photos: Path, tmp_path: Path) -> None:
    """A copy of the folder makes the same pack, to the byte."""
    shutil.copytree(photos, tmp_path / "copy", copy_function=shutil.copy)

    ps.pack(photos, tmp_path / "one.lmdb")
    ps.pack(tmp_path / "copy", tmp_path / "two.lmdb")

    assert contents(tmp_path / "one.lmdb") == contents(tmp_path / "two.lmdb")


def test_pack_of_a_pack_is_the_same_pack(photos: Path, tmp_path: Path) -> None:
    """Any store is a source: a pack packed again is the same, to the byte."""
    ps.pack(photos, tmp_path / "one.lmdb")

    ps.pack(tmp_path / "one.lmdb", tmp_path / "two.lmdb")

    assert contents(tmp_path / "one.lmdb") == contents(tmp_path / "two.lmdb")


@pytest.mark.parametrize("form", ["PNG", "WebP", "GIF", "BMP", "TIFF"])
def test_formats_are_told_by_content(photos: Path, tmp_path: Path, form: str) -> None:
    """An image of another format under the name .jpg is packed as what it is, with its size."""
    (photos / "cats" / "0.jpg").write_bytes(picture(99, form))

    ps.pack(photos, tmp_path / "p.lmdb", check="decode")

    with ps.open(tmp_path / "p.lmdb") as store:
        height, width, _ = ps.decode(picture(99, form)).shape
        assert (store.column("width")[0], store.column("height")[0]) == (width, height)


def spoil_names(photos: Path) -> dict[str, str]:
    """Put files into the folder that cannot be packed, as their names tell; gives a word of each reason."""
    (photos / "dogs" / "1.JPG").write_bytes(picture(54))
    (photos / "dogs" / unicodedata.normalize("NFC", "é.jpg")).write_bytes(picture(55))
    (photos / "dogs" / unicodedata.normalize("NFD", "é.jpg")).write_bytes(picture(56))
    (photos / "dogs" / "gone.jpg").symlink_to("nowhere")
    (photos / "dogs" / "scan.jp2").write_bytes(b"\x00\x00\x00\x0cjP  ")
    return {
        "dogs/1.jpg": "equals that of 'dogs/1.JPG'",
        unicodedata.normalize("NFC", "dogs/é.jpg"): "equals that of",
        "dogs/gone.jpg": "broken symbolic link",
        "dogs/scan.jp2": "cannot be decoded",
    }


def spoil_images(photos: Path) -> dict[str, str]:
    """Put images into the folder that cannot be packed, as reading them tells; gives a word of each reason."""
    whole = picture(50)
    (photos / "cats" / "empty.jpg").write_bytes(b"")
    (photos / "cats" / "text.jpg").write_bytes(b"<html>404 Not Found</html>")
    (photos / "cats" / "half.jpg").write_bytes(whole[: len(whole) // 2])
    (photos / "cats" / "head.jpg").write_bytes(whole[:100])
    (photos / "cats" / "half.png").write_bytes(picture(51, "PNG")[:-20])
    (photos / "cats" / "half.webp").write_bytes(picture(52, "WebP")[:-20])
    (photos / "cats" / "half.gif").write_bytes(picture(53, "GIF")[:-300])
    (photos / "dogs" / ("x" * 240)).mkdir()
    (photos / "dogs" / ("x" * 240) / ("y" * 240)).mkdir()
    (photos / "dogs" / ("x" * 240) / ("y" * 240) / ("z" * 40 + ".jpg")).write_bytes(picture(57))
    return {
        "cats/empty.jpg": "empty",
        "cats/text.jpg": "not an image",
        "cats/half.jpg": "truncated JPEG",
        "cats/head.jpg": "truncated JPEG",
        "cats/half.png": "truncated PNG",
        "cats/half.webp": "truncated WebP",
        "cats/half.gif": "truncated GIF",
        "dogs/" + "x" * 240 + "/" + "y" * 240 + "/" + "z" * 40 + ".jpg": "1 to 511 bytes",
    }


def put_other_files(photos: Path) -> dict[str, str]:
    """Put into the folder what people and their systems keep beside images; gives a word of each reason."""
    for name in ("README.md", "labels.csv", "Thumbs.db", "desktop.ini", "cats/notes.txt", ".DS_Store", "dogs/.x.swp"):
        (photos / name).write_bytes(b"no image")
    (photos / "__MACOSX" / "cats").mkdir(parents=True)
    (photos / "__MACOSX" / "cats" / "._0.jpg").write_bytes(b"Mac OS X")
    by_name = ("README.md", "labels.csv", "Thumbs.db", "desktop.ini", "cats/notes.txt")
    return {**dict.fromkeys(by_name, "not an image by its name"), "__MACOSX/": "operating system"}


def test_what_lies_beside_images_is_listed_and_refuses_nothing(photos: Path, tmp_path: Path) -> None:
    """A README, a table of labels and what Windows and macOS leave are in report and pack, and in nobody's way."""
    reasons = put_other_files(photos)

    report = ps.pack(photos, tmp_path / "p.lmdb")

    assert report.records == 12
    assert {entry.key for entry in report.skipped} == set(reasons)
    assert all(reasons[entry.key] in entry.reason for entry in report.skipped)
    assert ps.verify(tmp_path / "p.lmdb", photos).ok


def test_very_many_other_files_are_counted(photos: Path, tmp_path: Path) -> None:
    """Of very many files that are no images (a text beside each) some are named, and the others counted by suffix."""
    for number in range(1100):
        (photos / "cats" / f"{number}.txt").write_bytes(b"a cat on a mat")
    (photos / "zoo.xml").write_bytes(b"<>")

    report = ps.pack(photos, tmp_path / "p.lmdb")

    assert len(report.skipped) == 1002
    assert dict(report.skipped)["*.txt"] == "100 more files that are not images by their names"
    assert "zoo.xml" in dict(report.skipped)


def test_what_the_listing_tells_is_refused_before_an_image_is_read(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that clash, links to nowhere and formats that are not read are listed at once; nothing is written."""
    reasons = spoil_names(photos)
    put_other_files(photos)
    (photos / "cats" / "0.jpg").write_bytes(b"")
    ps.pack(make_photos(tmp_path / "others"), tmp_path / "p.lmdb")
    before = contents(tmp_path / "p.lmdb")
    monkeypatch.setattr(FilesStore, "read", None)

    for pack in (tmp_path / "p.lmdb", tmp_path / "new.lmdb"):
        with pytest.raises(PackError, match=r"^4 of the source's files") as caught:
            ps.pack(photos, pack, overwrite=True)
        lines = str(caught.value).splitlines()
        assert len(lines) == 1 + len(reasons)
        for key, reason in reasons.items():
            assert any(key in line and reason in line for line in lines), key

    assert contents(tmp_path / "p.lmdb") == before
    assert not (tmp_path / "new.lmdb").exists()


def test_refused_source_lists_every_image_and_leaves_nothing(photos: Path, tmp_path: Path) -> None:
    """By default all images that cannot be packed are listed by name and reason, and no pack is there."""
    reasons = spoil_images(photos)
    put_other_files(photos)

    with pytest.raises(PackError, match=f"{len(reasons)} of the source's files") as caught:
        ps.pack(photos, tmp_path / "p.lmdb")

    lines = str(caught.value).splitlines()
    assert len(lines) == 1 + len(reasons)
    for key, reason in reasons.items():
        assert any(key in line and reason in line for line in lines), key
    assert not (tmp_path / "p.lmdb").exists()


def test_skipped_files_are_in_report_and_pack(photos: Path, tmp_path: Path) -> None:
    """With on_error="skip" the rest is packed, and both the report and the pack list what was left out."""
    reasons = spoil_names(photos) | spoil_images(photos) | put_other_files(photos)

    report = ps.pack(photos, tmp_path / "p.lmdb", on_error="skip")

    assert {entry.key for entry in report.skipped} == set(reasons)
    assert all(reasons[entry.key] in entry.reason for entry in report.skipped)
    with ps.open(tmp_path / "p.lmdb") as store:
        assert len(store) == report.records == 12 - 1 + 2
        assert not set(store.keys()) & set(reasons)
    assert ps.verify(tmp_path / "p.lmdb", photos).ok


def test_refusal_says_that_the_pack_before_is_gone(photos: Path, tmp_path: Path) -> None:
    """A replaced pack is removed before its successor is written; if that is refused, the error says so."""
    ps.pack(photos, tmp_path / "p.lmdb")
    (photos / "cats" / "empty.jpg").write_bytes(b"")

    with pytest.raises(PackError, match="the existing pack was removed"):
        ps.pack(photos, tmp_path / "p.lmdb", overwrite=True)
    with pytest.raises(PackError, match="nothing was written"):
        ps.pack(photos, tmp_path / "p.lmdb", overwrite=True)

    assert not (tmp_path / "p.lmdb").exists()


def test_nothing_that_can_be_packed_is_an_error(tmp_path: Path) -> None:
    """A source of which every file would be skipped is refused."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"")

    with pytest.raises(PackError, match="nothing can be packed"):
        ps.pack(tmp_path / "photos", tmp_path / "p.lmdb", on_error="skip")

    assert not (tmp_path / "p.lmdb").exists()


def test_long_lists_are_bounded_with_their_count(tmp_path: Path) -> None:
    """Thousands of bad files are counted, five of each kind named."""
    photos = make_photos(tmp_path / "photos", 2)
    for number in range(250):
        (photos / "cats" / f"bad{number}.jpg").write_bytes(b"")

    with pytest.raises(PackError, match="250 of the source's files") as caught:
        ps.pack(photos, tmp_path / "p.lmdb")

    assert len(caught.value.message.splitlines()) == 7
    assert "... and 245 more" in str(caught.value)


def test_damage_that_only_decoding_shows(photos: Path, tmp_path: Path) -> None:
    """A PNG with a damaged stretch of pixels passes the look at its header, and not its decoding."""
    whole = bytearray(picture(60, "PNG"))
    whole[len(whole) // 2] ^= 255
    (photos / "cats" / "0.jpg").write_bytes(whole)

    ps.pack(photos, tmp_path / "header.lmdb", check="header")
    with pytest.raises(PackError, match=r"cats/0.jpg"):
        ps.pack(photos, tmp_path / "decode.lmdb", check="decode")


def test_junk_after_the_end_is_allowed(photos: Path, tmp_path: Path) -> None:
    """Bytes after a JPEG's end (cameras and servers leave some) are packed with it."""
    (photos / "cats" / "0.jpg").write_bytes(picture(0) + b"\r\n<!-- served by -->")

    assert ps.pack(photos, tmp_path / "p.lmdb", check="decode").records == 12


def test_thumbnail_s_end_is_not_the_image_s(photos: Path, tmp_path: Path) -> None:
    """A JPEG cut behind its Exif thumbnail is truncated, though the thumbnail has an end marker."""
    whole, thumbnail = picture(1), picture(2)
    exif = b"\xff\xe1" + (len(thumbnail) + 8).to_bytes(2, "big") + b"Exif\0\0" + thumbnail
    (photos / "cats" / "0.jpg").write_bytes(whole[:2] + exif + whole[2:-40])

    with pytest.raises(PackError, match=r"cats/0.jpg: truncated JPEG"):
        ps.pack(photos, tmp_path / "p.lmdb")


def test_hostile_files_are_packed_or_listed(hostile_dir: Path, tmp_path: Path) -> None:
    """Each of the malformed files is either packed or listed with a reason; none stops the packing."""
    total = len(list(hostile_dir.glob("*.jpg")))

    report = ps.pack(hostile_dir, tmp_path / "p.lmdb", on_error="skip", check="header")

    images = [entry for entry in report.skipped if entry.key.endswith(".jpg")]
    assert report.records + len(images) == total
    assert all(entry.reason for entry in images)


def stamps(pack: Path) -> dict[str, tuple[int, int]]:
    """Number and time of change of each file of a pack."""
    return {entry.name: (entry.stat().st_ino, entry.stat().st_mtime_ns) for entry in pack.iterdir()}


def test_finished_pack_of_an_unchanged_source_is_used(photos: Path, tmp_path: Path) -> None:
    """Packing again writes nothing, and the report says so and what is there."""
    put_other_files(photos)
    first = ps.pack(photos, tmp_path / "p.lmdb", check="decode", classes=["dogs", "ants", "cats"])
    before = stamps(tmp_path / "p.lmdb")
    (photos / "notes.txt").write_bytes(b"a file more")
    (photos / "README.md").unlink()

    again = ps.pack(photos, tmp_path / "p.lmdb", check="decode", classes=["dogs", "ants", "cats"], workers=1)

    assert stamps(tmp_path / "p.lmdb") == before
    assert (first.reused, again.reused) == (False, True)
    assert (again.records, again.nbytes, again.skipped) == (first.records, first.nbytes, first.skipped)
    assert (again.store, again.resumed, again.transcoded, again.kept) == (first.store, 0, 0, 0)


def test_index_of_a_finished_pack_is_added(photos: Path, tmp_path: Path) -> None:
    """A pack that is there gets the decode indices that are asked for, once."""
    ps.pack(photos, tmp_path / "p.lmdb", index="none")

    first = ps.pack(photos, tmp_path / "p.lmdb", index="rows")
    again = ps.pack(photos, tmp_path / "p.lmdb", index="rows")

    assert first.reused
    assert again.reused
    assert first.indexed is not None
    assert again.indexed is not None
    assert (first.indexed.indexed, first.indexed.resumed) == (12, 0)
    assert (again.indexed.indexed, again.indexed.resumed) == (12, 12)


OTHERWISE: dict[str, tuple[dict[str, Any], str]] = {
    "check": ({"check": "decode"}, r"check='header' \(--check header\), not check='decode'"),
    "transcode": ({"transcode": "baseline"}, r"transcode='none' \(--transcode none\), not transcode='baseline'"),
    "classes": ({"classes": ["dogs", "cats"]}, "its classes are 'cats', 'dogs', not 'dogs', 'cats'"),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_finished_pack_of_another_option_says_which(photos: Path, tmp_path: Path, name: str) -> None:
    """Another option than the finished pack was made with is named with both values; the pack stays as it is."""
    options, said = OTHERWISE[name]
    ps.pack(photos, tmp_path / "p.lmdb")
    before = stamps(tmp_path / "p.lmdb")

    with pytest.raises(ArgumentError, match=f"finished pack of 12 records, and .*{said}.*--overwrite"):
        ps.pack(photos, tmp_path / "p.lmdb", **options)

    assert stamps(tmp_path / "p.lmdb") == before
    assert not ps.pack(photos, tmp_path / "p.lmdb", overwrite=True, **options).reused
    assert ps.pack(photos, tmp_path / "p.lmdb", **options).reused


@pytest.mark.parametrize("name", OTHERWISE)
def test_unfinished_pack_of_another_option_says_which(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A pack that was begun with another option is not resumed; the option is named, not the source."""
    options, said = OTHERWISE[name]
    make_photos(photos, 40)
    interrupted(photos, tmp_path / "p.lmdb", monkeypatch)

    with pytest.raises(StoreError, match=f"unfinished pack of [0-9]+ records.*{said}.*--overwrite") as caught:
        ps.pack(photos, tmp_path / "p.lmdb", **options)

    assert "source" not in caught.value.message
    assert ps.pack(photos, tmp_path / "p.lmdb").resumed > 0


def test_finished_pack_of_a_changed_source_is_kept(photos: Path, tmp_path: Path) -> None:
    """A pack whose source changed is refused, kept, and replaced only if told so."""
    ps.pack(photos, tmp_path / "p.lmdb")
    before = contents(tmp_path / "p.lmdb")
    make_photos(photos, 14)

    with pytest.raises(ArgumentError, match=r"finished pack of 12 records, and its source was changed.*--overwrite"):
        ps.pack(photos, tmp_path / "p.lmdb")
    assert contents(tmp_path / "p.lmdb") == before
    assert ps.pack(photos, tmp_path / "p.lmdb", overwrite=True).records == 14


@pytest.mark.parametrize("note", [None, b"", b"{", b'{"content": "another"}', b"[]", b"\xff", b'{"source": 7}'])
def test_finished_pack_that_does_not_say_is_kept(photos: Path, tmp_path: Path, note: bytes | None) -> None:
    """Where the note is missing, damaged or another pack's, the pack is refused with the reason, and is whole."""
    ps.pack(photos, tmp_path / "p.lmdb")
    (tmp_path / "p.lmdb" / ORIGIN_FILE).unlink()
    if note is not None:
        (tmp_path / "p.lmdb" / ORIGIN_FILE).write_bytes(note)

    with pytest.raises(ArgumentError, match=r"finished pack of 12 records without the file .source.*--overwrite"):
        ps.pack(photos, tmp_path / "p.lmdb")

    assert ps.verify(tmp_path / "p.lmdb", photos).ok
    assert ps.pack(photos, tmp_path / "p.lmdb", overwrite=True).records == 12


def test_finished_pack_that_lacks_images_is_not_used_where_none_may_lack(photos: Path, tmp_path: Path) -> None:
    """What was packed with on_error="skip" is used by the same call; with "raise", what it lacks is named."""
    (photos / "cats" / "1.jpg").write_bytes(b"")
    put_other_files(photos)
    ps.pack(photos, tmp_path / "p.lmdb", on_error="skip")

    assert ps.pack(photos, tmp_path / "p.lmdb", on_error="skip").reused
    with pytest.raises(
        PackError, match=r'on_error="skip" left out 1 file [^$]*cats/1.jpg: the file is empty'
    ) as caught:
        ps.pack(photos, tmp_path / "p.lmdb")
    assert "README" not in str(caught.value)


def test_a_whole_pack_is_used_whatever_is_done_with_broken_images(photos: Path, tmp_path: Path) -> None:
    """Where nothing was left out, on_error makes no difference."""
    ps.pack(photos, tmp_path / "p.lmdb")

    assert ps.pack(photos, tmp_path / "p.lmdb", on_error="skip").reused
    assert ps.pack(tmp_path / "p.lmdb", tmp_path / "q.lmdb").records == 12
    assert ps.pack(tmp_path / "p.lmdb", tmp_path / "q.lmdb").reused


def test_a_damaged_pack_is_not_used(photos: Path, tmp_path: Path) -> None:
    """A finished pack that was cut is refused by its own error, not taken for the same."""
    ps.pack(photos, tmp_path / "p.lmdb")
    os.truncate(tmp_path / "p.lmdb" / "data.mdb", 20_000)

    with pytest.raises(StoreFormatError, match=r"truncated.*--overwrite"):
        ps.pack(photos, tmp_path / "p.lmdb")

    assert ps.pack(photos, tmp_path / "p.lmdb", overwrite=True).records == 12


@pytest.mark.parametrize("place", ["photos/p.lmdb", "photos", "."])
def test_source_and_destination_must_lie_apart(photos: Path, tmp_path: Path, place: str) -> None:
    """Packing into the source, onto it, or into a folder around it is refused before anything is written."""
    with pytest.raises(ArgumentError, match="must be outside the source"):
        ps.pack(photos, tmp_path / place, overwrite=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"on_error": "ignore"}, "raise, skip"), ({"check": "md5"}, "header, decode"), ({"workers": 0}, "at least 1")],
)
def test_unknown_arguments_say_what_is_allowed(
    photos: Path, tmp_path: Path, options: dict[str, object], said: str
) -> None:
    """An argument that means nothing is refused with what is allowed."""
    with pytest.raises(ArgumentError, match=said):
        ps.pack(photos, tmp_path / "p.lmdb", **options)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("url", ["mds://w", "recordio://w.rec", "tfrecord://w", "lmdb-pairs://w"])
def test_a_kind_that_is_only_read_cannot_be_packed_to(
    photos: Path, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A destination of such a kind is refused by name, with what is written instead; nothing is made there."""
    monkeypatch.chdir(tmp_path)
    kind = url.partition(":")[0]
    for write in (ps.pack, ps.convert):
        with pytest.raises(
            ArgumentError, match=rf"'{kind}' cannot be written; .*\.lmdb, .*\.tar.*files://FOLDER.*{url}"
        ):
            write(photos, url)
    assert not list(tmp_path.glob("*w*"))


def test_progress_counts_every_record(photos: Path, tmp_path: Path) -> None:
    """The callable hears of growing counts, and of all records at the end."""
    heard: list[PackProgress] = []
    (photos / "cats" / "bad.jpg").write_bytes(b"")

    report = ps.pack(photos, tmp_path / "p.lmdb", on_error="skip", index="none", progress=heard.append)

    assert [at.done for at in heard] == sorted(at.done for at in heard)
    assert heard[-1] == PackProgress(done=13, total=13, nbytes=report.nbytes, skipped=1)


def interrupted(photos: Path, pack: Path, monkeypatch: pytest.MonkeyPatch, on_error: str = "raise") -> None:
    """Pack with commits of three records, and raise KeyboardInterrupt in the middle."""

    def stop(at: PackProgress) -> None:
        if at.done >= 16:
            raise KeyboardInterrupt

    limits = CommitLimits(records=3)
    real = LmdbWriter.__init__
    monkeypatch.setattr(LmdbWriter, "__init__", lambda self, *a, **k: real(self, *a, **{**k, "limits": limits}))
    with pytest.raises(KeyboardInterrupt):
        ps.pack(photos, pack, progress=stop, on_error=on_error)


def test_interrupted_pack_resumes_to_the_same_bytes(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C leaves what was committed; packing again goes on from there, to the same bytes."""
    make_photos(photos, 40)
    interrupted(photos, tmp_path / "p.lmdb", monkeypatch)
    with pytest.raises(IncompleteStoreError):
        ps.open(tmp_path / "p.lmdb")

    report = ps.pack(photos, tmp_path / "p.lmdb")
    ps.pack(photos, tmp_path / "whole.lmdb")

    assert 0 < report.resumed < 40
    assert report.records == 40
    assert contents(tmp_path / "p.lmdb") == contents(tmp_path / "whole.lmdb")


@pytest.mark.parametrize("change", ["add", "remove", "touch", "grow"])
def test_changed_source_is_not_resumed(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A source that changed since the interruption is refused, with what to do; overwriting starts anew."""
    make_photos(photos, 40)
    interrupted(photos, tmp_path / "p.lmdb", monkeypatch)
    file = photos / "cats" / "38.jpg"
    if change == "add":
        (photos / "cats" / "new.jpg").write_bytes(picture(70))
    elif change == "remove":
        file.unlink()
    elif change == "touch":
        file.touch()
    else:
        file.write_bytes(file.read_bytes() + b"\0")

    with pytest.raises(StoreError, match=r"source was changed.*--overwrite"):
        ps.pack(photos, tmp_path / "p.lmdb")
    assert ps.pack(photos, tmp_path / "p.lmdb", overwrite=True).resumed == 0
    assert ps.verify(tmp_path / "p.lmdb", photos).ok


def test_resuming_without_skipping_still_refuses(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an interrupted run skipped is not accepted by a run that raises."""
    make_photos(photos, 40)
    (photos / "cats" / "1.jpg").write_bytes(b"")
    interrupted(photos, tmp_path / "p.lmdb", monkeypatch, on_error="skip")

    before = contents(tmp_path / "p.lmdb")
    monkeypatch.setattr(FilesStore, "read", None)  # it is known at once

    with pytest.raises(PackError, match=r'on_error="skip"[^$]*cats/1.jpg: the file is empty'):
        ps.pack(photos, tmp_path / "p.lmdb")

    monkeypatch.undo()
    assert contents(tmp_path / "p.lmdb") == before
    assert ps.pack(photos, tmp_path / "p.lmdb", on_error="skip").resumed > 0


def test_file_that_vanishes_is_named(photos: Path, tmp_path: Path) -> None:
    """A file that disappears between listing and reading is named like any other that cannot be packed."""
    with ps.open(photos) as source:
        (photos / "dogs" / "11.jpg").unlink()

        with pytest.raises(PackError, match=r"dogs/11.jpg: this file vanished"):
            ps.pack(source, tmp_path / "p.lmdb")


def test_records_of_a_store_are_read_together(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store is asked for several records at once, since a server answers once; a broken one is still named alone."""
    make_photos(photos, 40)
    read, asked = FilesStore.read, []

    def count(self: FilesStore, indices: Indices) -> list[Record]:
        numbers = list(indices)
        asked.append(len(numbers))
        return read(self, numbers)

    monkeypatch.setattr(FilesStore, "read", count)
    whole = ps.pack(photos, tmp_path / "p.lmdb")
    calls = len(asked)
    with ps.open(photos) as source:
        (photos / "dogs" / "11.jpg").unlink()
        report = ps.pack(source, tmp_path / "rest.lmdb", on_error="skip")

    assert calls <= -(-whole.records // 8)
    assert sum(asked[:calls]) == whole.records
    assert [entry.key for entry in report.skipped] == ["dogs/11.jpg"]
    assert report.records == whole.records - 1


@pytest.mark.parametrize("ending", ["tar", "lmdb"])
def test_a_pack_in_place_of_a_converted_store_has_its_own_fields(photos: Path, tmp_path: Path, ending: str) -> None:
    """What a conversion wrote beside a store, its other fields and its report, goes when the store is replaced."""
    ps.convert(photos, tmp_path / f"a.{ending}")
    make_photos(tmp_path / "others", 4, ("birds",))

    ps.pack(tmp_path / "others", tmp_path / f"a.{ending}", overwrite=True)

    with ps.open(tmp_path / f"a.{ending}") as store:
        assert len(store) == 4
        assert bytes(store[0].fields["image"]) == (tmp_path / "others/birds/0.jpg").read_bytes()
    assert not [path for path in tmp_path.rglob("*") if "convert.json" in path.name or ".fields" in path.name]


def test_given_store_stays_open(photos: Path, tmp_path: Path) -> None:
    """A store that was handed in is not closed."""
    with ps.open(photos) as source:
        ps.pack(source, tmp_path / "p.lmdb")

        assert source.read([0])[0].key == "cats/0.jpg"


def test_an_index_of_another_field_is_replaced_with_its_pack(photos: Path, tmp_path: Path) -> None:
    """A pack with other fields takes the place of one with a decode index; without overwrite nothing is changed."""
    target = tmp_path / "p.lmdb"
    ps.pack(photos, target, index="tiles")
    before = sorted(each.name for each in target.iterdir())

    with pytest.raises(ps.ArgumentError, match="is a finished pack"):
        ps.pack([{"x": 1}], target)
    assert sorted(each.name for each in target.iterdir()) == before
    ps.pack([{"x": 1}], target, overwrite=True)

    assert ".image.index" in before
    assert ".image.index" not in {each.name for each in target.iterdir()}
