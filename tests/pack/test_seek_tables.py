"""`penstock index` and `penstock pack --index`: what is made, what is left out, what is resumed."""

from __future__ import annotations

import errno
import fcntl
import io
import os
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

import penstock as ps
from penstock import _native
from penstock.cli import app
from penstock.errors import ArgumentError, StoreError, StoreFormatError
from penstock.stores.common import seek_table_file
from penstock.stores.common.seek_table_file import SeekTableFile, seek_table_path
from penstock.stores.images.store import FilesStore
from tests.faulty import refusing
from tests.pack.images import make_photos, picture
from tests.stores.lmdb_pack.crafted import Crafted


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twelve JPEGs, a PNG and a CMYK one."""
    folder = make_photos(tmp_path / "photos")
    (folder / "dogs" / "x.png").write_bytes(picture(50, "PNG"))
    file = io.BytesIO()
    Image.new("CMYK", (30, 30)).save(file, "JPEG")
    (folder / "dogs" / "y.jpg").write_bytes(file.getvalue())
    return folder


def entries(url: str | Path, count: int = 14) -> list[bytes | None]:
    """All indices beside a store."""
    return SeekTableFile(seek_table_path(FilesStore.locate(url), "image"), ps.open(url).fingerprint(), count).get(
        range(count)
    )


def test_each_image_has_the_index_of_its_own_bytes(photos: Path, tmp_path: Path) -> None:
    """The same whether made while packing or later, in a pack or in a folder; what cannot have one is listed."""
    report = ps.pack(photos, tmp_path / "a.lmdb", index="tiles")
    ps.pack(photos, tmp_path / "b.lmdb", index="none")
    ps.index(tmp_path / "b.lmdb", kind="tiles", workers=3)
    later = ps.index(photos, kind="tiles")

    images = ps.open(photos).blobs("image", range(14))
    natively = [i for i, image in enumerate(images) if bytes(image[:2]) == b"\xff\xd8" and _native.sizes([image])[0, 0]]
    expected = [_native.build_index(images[i], "tiles") if i in natively else None for i in range(14)]
    assert len(natively) == 12
    assert entries(photos) == entries(tmp_path / "a.lmdb") == entries(tmp_path / "b.lmdb") == expected
    assert report.indexed is not None
    for said in (report.indexed, later):
        assert said.indexed == 12
        assert dict(said.left_out)["dogs/x.png"] == "PNG, not JPEG: only JPEGs have a decode index"
        assert "components" in dict(said.left_out)["dogs/y.jpg"]
        assert len(said.left_out) == 2
        assert said.nbytes == Path(said.path).stat().st_size


def test_an_interrupted_run_is_resumed(photos: Path) -> None:
    """Entries that are there are not made again, those that are missing are."""
    ps.index(photos)
    whole = entries(photos)
    seek_table_path(FilesStore.locate(photos), "image").unlink()
    with SeekTableFile(
        seek_table_path(FilesStore.locate(photos), "image"), ps.open(photos).fingerprint(), 14, "tiles"
    ) as file:
        for index in (0, 5):
            entry = whole[index]
            assert entry is not None
            file.put(index, entry)

    report = ps.index(photos)

    assert report.resumed == 2
    assert report.indexed == 12
    assert entries(photos) == whole


def test_tiles_are_made_where_there_are_no_rows(photos: Path, tmp_path: Path) -> None:
    """By default tiles; indices by rows are kept, and completed by rows."""
    packed = ps.pack(photos, tmp_path / "a.lmdb")
    ps.pack(photos, tmp_path / "b.lmdb", index="none")
    with ps.open(tmp_path / "b.lmdb") as store:
        SeekTableFile(seek_table_path(store.location, "image"), store.fingerprint(), len(store), "rows").close()

    again = ps.pack(photos, tmp_path / "b.lmdb")

    assert packed.indexed is not None
    assert packed.indexed.kind == "tiles"
    assert again.indexed is not None
    assert (again.indexed.kind, again.indexed.indexed) == ("rows", 12)
    assert ps.index(tmp_path / "b.lmdb").kind == "rows"
    assert ps.index(tmp_path / "b.lmdb", overwrite=True).kind == "tiles"


def test_a_new_pack_has_no_index_of_the_old_one(photos: Path, tmp_path: Path) -> None:
    """`overwrite` removes it with the pack."""
    ps.pack(photos, tmp_path / "a.lmdb", index="rows")
    ps.pack(photos, tmp_path / "a.lmdb", overwrite=True, index="none")

    assert not seek_table_path(FilesStore.locate(tmp_path / "a.lmdb"), "image").exists()
    assert ps.verify(tmp_path / "a.lmdb").ok


def test_what_is_wrong_is_said_before_anything_is_done(photos: Path, tmp_path: Path) -> None:
    """Kinds, fields."""
    with pytest.raises(ArgumentError, match="index must be one of auto, none, rows, tiles, got 'columns'"):
        ps.pack(photos, tmp_path / "a.lmdb", index="columns")
    with pytest.raises(ArgumentError, match="kind must be one of auto, rows, tiles, got 'none'"):
        ps.index(photos, kind="none")
    with pytest.raises(ArgumentError, match="field must be one of the fields of images \\(image\\), got 'label'"):
        ps.index(photos, field="label")

    assert not (tmp_path / "a.lmdb").exists()


def test_the_command_says_what_it_did(photos: Path, tmp_path: Path) -> None:
    """Counts, size and what is left out, for people."""
    run = CliRunner()
    packed = run.invoke(app, ["pack", str(photos), str(tmp_path / "a.lmdb"), "--index", "rows"])
    again = run.invoke(app, ["index", str(tmp_path / "a.lmdb")])
    other = run.invoke(app, ["index", str(tmp_path / "a.lmdb"), "--kind", "tiles", "--overwrite"])

    assert packed.exit_code == again.exit_code == other.exit_code == 0
    assert "12 images indexed by rows," in packed.output
    assert "dogs/x.png" in packed.output
    assert "12 images indexed by rows (12 of them earlier)" in again.output
    assert "12 images indexed by tiles," in other.output


def test_an_image_that_is_none_is_said_to_be_none(photos: Path) -> None:
    """What is no image at all is left out with that reason, and a damaged JPEG as damaged."""
    (photos / "cats" / "0.jpg").write_bytes(b"<html>")
    (photos / "cats" / "2.jpg").write_bytes(picture(2)[:200])

    left_out = dict(ps.index(photos).left_out)

    assert left_out["cats/0.jpg"].startswith("not an image")
    assert left_out["cats/2.jpg"].startswith("corrupt image")


@pytest.mark.parametrize("stale", ["kind", "records", "header"])
def test_an_index_that_does_not_fit_names_the_way_out(photos: Path, tmp_path: Path, stale: str) -> None:
    """Another kind, other records, a damaged header: the error says overwrite=True and --overwrite, which works."""
    path = seek_table_path(FilesStore.locate(photos), "image")
    ps.index(photos, kind="rows" if stale == "kind" else "tiles")
    if stale == "records":
        (photos / "cats" / "0.jpg").unlink()
    elif stale == "header":
        path.write_bytes(bytes(64) + path.read_bytes()[64:])
    before = path.read_bytes()

    with pytest.raises(StoreError, match=r"overwrite=True \(--overwrite\)"):
        ps.index(photos, kind="tiles")

    assert path.read_bytes() == before
    assert ps.index(photos, kind="tiles", overwrite=True).resumed == 0


def test_the_command_counts_what_has_no_index(tmp_path: Path) -> None:
    """One image is one image, and images without an index are told by reason with examples, not all by name."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(picture(0))
    for number in range(40):
        (tmp_path / "photos" / f"{number}.png").write_bytes(picture(number, "PNG"))

    done = CliRunner().invoke(app, ["pack", str(tmp_path / "photos"), str(tmp_path / "p.lmdb"), "--index", "rows"])

    assert done.exit_code == 0
    assert "1 image indexed by rows" in done.output
    named = ", ".join(repr(f"{number}.png") for number in range(10))
    lines = done.output.splitlines()
    assert lines[2].startswith("all records have the class 'photos': images that are in no sub-folder have their")
    assert lines[4:] == [
        "40 images without an index, always decoded from the beginning:",
        f"  PNG, not JPEG: only JPEGs have a decode index (40 entries: {named} and 30 more)",
    ]


@pytest.mark.parametrize("name", ["/../../victim", "/../victim", "{tmp}/victim"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_pack_names_no_file_outside(tmp_path: Path, name: str, *, overwrite: bool) -> None:
    """A field of a pack is never a path: nothing outside is made, and with `--overwrite` nothing is removed."""
    name = name.format(tmp=tmp_path)
    crafted = Crafted({name: {"kind": "image"}})
    crafted.small = [small[:1] for small in crafted.small]
    (tmp_path / "inside").mkdir()
    pack = crafted.write(tmp_path / "inside" / "hostile.lmdb")
    for place in (tmp_path, tmp_path / "inside", pack):
        (place / "victim.index").write_bytes(b"precious")
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(StoreFormatError, match="field name must be"):
        ps.index(pack, field=name, overwrite=overwrite)
    done = CliRunner().invoke(app, ["index", str(pack), *(["--overwrite"] if overwrite else [])])

    assert isinstance(done.exception, StoreFormatError)
    assert sorted(tmp_path.rglob("*")) == before
    assert all(path.read_bytes() == b"precious" for path in tmp_path.rglob("victim.index"))


def test_overwriting_a_link_removes_the_link(photos: Path, tmp_path: Path) -> None:
    """And not what it leads to."""
    (tmp_path / "victim").write_bytes(b"precious")
    seek_table_path(FilesStore.locate(photos), "image").symlink_to(tmp_path / "victim")

    with pytest.raises(StoreError, match="symbolic link"):
        ps.index(photos)
    ps.index(photos, overwrite=True)

    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert not seek_table_path(FilesStore.locate(photos), "image").is_symlink()


def test_what_cannot_be_removed_is_a_store_error(photos: Path) -> None:
    """A folder in the place of the indices is named."""
    seek_table_path(FilesStore.locate(photos), "image").mkdir()

    for overwrite in (False, True):
        with pytest.raises(StoreError, match=r"\.image\.index"):
            ps.index(photos, overwrite=overwrite)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSPC, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("call", ["fcntl.flock", "os.ftruncate", "os.pwrite"])
def test_indexing_fails_where_the_file_cannot_be_written(
    photos: Path, call: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command was asked for a file: whatever the system refuses is its error, with exit code 1."""
    monkeypatch.setattr(call, refusing(number))
    with pytest.raises(StoreError, match=os.strerror(number)) as caught:
        ps.index(photos)
    monkeypatch.undo()

    assert caught.value.where["store"] == str(seek_table_path(FilesStore.locate(photos), "image"))


def test_indexing_does_not_wait_for_ever(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process that keeps the file locked is named as the reason."""
    ps.index(photos)
    seek_table_path(FilesStore.locate(photos), "image").write_bytes(
        seek_table_path(FilesStore.locate(photos), "image").read_bytes()[:64]
    )
    monkeypatch.setattr(seek_table_file, "LOCK_WAIT_S", 0.05)
    with seek_table_path(FilesStore.locate(photos), "image").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        with pytest.raises(StoreError, match="another process held their lock"):
            ps.index(photos)
