"""Packing with ``transcode="baseline"``: what is rewritten, what is kept, and what still agrees with the source."""

from __future__ import annotations

import io
import random
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import penstock as ps
from penstock import _native
from penstock.cli import app
from penstock.errors import ArgumentError, StoreError
from penstock.pack import PackProgress
from penstock.stores.common.lmdb.environment_writer import CommitLimits
from penstock.stores.lmdb_pack.writer import LmdbWriter
from tests.native.progressive_writer import Picture
from tests.native.sequential_writer import write_sequential
from tests.pack.images import picture


def progressive(seed: int, mode: str = "RGB") -> bytes:
    """A small progressive picture."""
    file = io.BytesIO()
    with Image.open(io.BytesIO(picture(seed))) as image:
        image.convert(mode).save(file, "JPEG", progressive=True)
    return file.getvalue()


def three_scans() -> bytes:
    """A sequential picture with a scan for each component."""
    rng = random.Random(1)
    picture = Picture.noise(50, 40, [(2, 2), (1, 1), (1, 1)], rng)
    return write_sequential(picture, [(0,), (1,), (2,)], rng)


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Baseline in one scan and in three, progressive, progressive CMYK and PNG."""
    folder = tmp_path / "mixed" / "all"
    folder.mkdir(parents=True)
    for name, content in {
        "0.jpg": picture(0),
        "1.jpg": progressive(1),
        "2.jpg": progressive(2, "L"),
        "3.jpg": progressive(3, "CMYK"),
        "4.png": picture(4, "PNG"),
        "a.jpg": three_scans(),
    }.items():
        (folder / name).write_bytes(content)
    return folder.parent


def images(store: Path) -> dict[str, bytes]:
    """Image bytes by key."""
    with ps.open(store) as opened:
        records = opened.read(range(len(opened)))
        return {record.key: bytes(record.fields["image"]) for record in records}


def test_progressive_pictures_are_rewritten_and_others_kept(mixed: Path, tmp_path: Path) -> None:
    """What has several scans becomes baseline in one, of the same pixels; everything else keeps its bytes."""
    report = ps.pack(mixed, tmp_path / "pack.lmdb", transcode="baseline")

    stored = images(tmp_path / "pack.lmdb")
    assert (report.records, report.transcoded, report.kept) == (6, 3, 3)
    for key, content in stored.items():
        original = (mixed / key).read_bytes()
        np.testing.assert_array_equal(ps.decode(content), ps.decode(original))
        rewritten = key in {"all/1.jpg", "all/2.jpg", "all/a.jpg"}
        assert (content != original) == rewritten
        if rewritten:
            assert _native.inspect(content)["process"] == "sequential"
            assert content.count(b"\xff\xda") == 1


def test_by_default_nothing_is_rewritten(mixed: Path, tmp_path: Path) -> None:
    """Without being asked for, a pack holds the source's bytes."""
    report = ps.pack(mixed, tmp_path / "pack.lmdb")

    assert (report.transcoded, report.kept) == (0, 6)
    assert all(content == (mixed / key).read_bytes() for key, content in images(tmp_path / "pack.lmdb").items())


def test_a_transcoded_pack_agrees_with_its_source(mixed: Path, tmp_path: Path) -> None:
    """Verifying knows the transcoding for what it is, and any other difference for a problem."""
    ps.pack(mixed, tmp_path / "pack.lmdb", transcode="baseline")

    assert ps.verify(tmp_path / "pack.lmdb", mixed).ok
    (mixed / "all" / "1.jpg").write_bytes(progressive(9))
    problems = ps.verify(tmp_path / "pack.lmdb", mixed).problems
    assert any("bytes of its image" in str(problem) and "1.jpg" in str(problem) for problem in problems)


def test_a_picture_without_all_scans_is_kept(mixed: Path, tmp_path: Path) -> None:
    """What libjpeg completes by guesses has no baseline twin: it is stored as it is."""
    file = progressive(7)
    scans = [at for at in range(len(file)) if file[at : at + 2] == b"\xff\xda"]
    (mixed / "all" / "5.jpg").write_bytes(file[: file.rindex(b"\xff\xc4", 0, scans[2])] + b"\xff\xd9")

    report = ps.pack(mixed, tmp_path / "pack.lmdb", transcode="baseline")

    assert (report.transcoded, report.kept) == (3, 4)
    assert images(tmp_path / "pack.lmdb")["all/5.jpg"] == (mixed / "all" / "5.jpg").read_bytes()


def test_an_unfinished_pack_is_not_resumed_with_another_transcoding(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a pack in one form and half in another is refused; the same form goes on to the bytes of a whole run."""
    for number in range(5, 40):
        (mixed / "all" / f"{number}.jpg").write_bytes(progressive(number))
    real = LmdbWriter.__init__
    with monkeypatch.context() as patch:
        patch.setattr(
            LmdbWriter, "__init__", lambda self, *a, **k: real(self, *a, **{**k, "limits": CommitLimits(records=3)})
        )
        with pytest.raises(KeyboardInterrupt):
            ps.pack(mixed, tmp_path / "pack.lmdb", transcode="baseline", progress=_stop)

    with pytest.raises(StoreError, match="--overwrite"):
        ps.pack(mixed, tmp_path / "pack.lmdb")
    report = ps.pack(mixed, tmp_path / "pack.lmdb", transcode="baseline")
    ps.pack(mixed, tmp_path / "whole.lmdb", transcode="baseline")
    assert report.resumed > 0
    assert images(tmp_path / "pack.lmdb") == images(tmp_path / "whole.lmdb")


def _stop(at: PackProgress) -> None:
    if at.done >= 16:
        raise KeyboardInterrupt


def test_unknown_transcoding_is_refused(mixed: Path, tmp_path: Path) -> None:
    """The words that are allowed are in the message."""
    with pytest.raises(ArgumentError, match="none, baseline"):
        ps.pack(mixed, tmp_path / "pack.lmdb", transcode="webp")


def test_the_command_says_how_many(mixed: Path, tmp_path: Path) -> None:
    """``penstock pack --transcode baseline`` counts what it rewrote and what it kept."""
    result = CliRunner().invoke(app, ["pack", str(mixed), str(tmp_path / "pack.lmdb"), "--transcode", "baseline"])

    assert result.exit_code == 0
    assert "3 images transcoded to baseline, 3 unchanged" in result.output
