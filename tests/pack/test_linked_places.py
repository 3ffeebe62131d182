"""Symbolic links in place of the files and folders of a store: what they lead to is never written to, nor removed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import PenstockError, StoreError
from penstock.sample import Field, Schema
from penstock.stores.common import file_writer
from penstock.stores.images.writer import FilesWriter
from penstock.stores.location import Location
from penstock.stores.remote.cache import delete_copies
from penstock.testing import write_photos

SHARD_SIZE = 400
ROWS = {"shard_records": 2}


def move_away(path: Path, elsewhere: Path) -> None:
    """Put a file or folder of a store elsewhere, and a link in its place."""
    path.rename(elsewhere / path.name)
    path.symlink_to(elsewhere / path.name)


def contents_of(folder: Path) -> dict[Path, bytes]:
    """All files below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder outside of all stores, with a file."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "notes.txt").write_text("kept")
    return folder


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """A pack of five pictures."""
    write_photos(tmp_path / "photos")
    ps.pack(tmp_path / "photos", tmp_path / "a.lmdb")
    return tmp_path / "a.lmdb"


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """The folder of four of the pictures: what replaces the pack, and what is converted from it."""
    write_photos(tmp_path / "others")
    (tmp_path / "others" / "cats" / "10.jpg").unlink()
    return tmp_path / "others"


@pytest.mark.parametrize("name", ["data.mdb", "pages.xxh3", ".source", ".image.index"])
@pytest.mark.parametrize("write", [ps.pack, ps.copy])
def test_a_link_in_a_pack_is_replaced(
    pack: Path, others: Path, elsewhere: Path, name: str, write: Callable[..., object]
) -> None:
    """overwrite=True removes the link, by packing and by copying."""
    source: Path = others
    if write is ps.copy:
        source = others.with_suffix(".lmdb")
        ps.pack(others, source)
    move_away(pack / name, elsewhere)
    before = contents_of(elsewhere)

    write(source, pack, overwrite=True)

    assert contents_of(elsewhere) == before
    assert not (pack / name).is_symlink()
    assert len(ps.open(pack)) == 4


@pytest.mark.parametrize("write", [ps.pack, ps.copy])
def test_a_link_in_place_of_a_shard_is_refused(
    tmp_path: Path, pack: Path, others: Path, elsewhere: Path, write: Callable[..., object]
) -> None:
    """Files of another shard are neither replaced nor removed."""
    old = tmp_path / "old.lmdb"
    ps.pack(tmp_path / "photos", old, shard_size=SHARD_SIZE)
    source: Path = others
    if write is ps.copy:
        source = tmp_path / "new.lmdb"
        ps.pack(others, source, shard_size=SHARD_SIZE)
    move_away(old / "00000.lmdb", elsewhere)
    before = contents_of(elsewhere)

    with pytest.raises(PenstockError, match=r"00000\.lmdb"):
        write(source, old, overwrite=True, **({"shard_size": SHARD_SIZE} if write is ps.pack else {}))

    assert pack.exists()
    assert contents_of(elsewhere) == before


def test_a_link_in_place_of_a_folder_of_shards_is_replaced(tmp_path: Path, pack: Path, elsewhere: Path) -> None:
    """Of a folder that is converted again, and of what an earlier conversion left; else such a rest is refused."""
    target = f"parquet://{tmp_path / 'rows'}"
    ps.convert(pack, target, to_options=ROWS)
    move_away(tmp_path / "rows", elsewhere)
    (tmp_path / "rows.partial").symlink_to(elsewhere)
    before = contents_of(elsewhere)

    ps.convert(pack, target, to_options=ROWS, overwrite=True)

    assert contents_of(elsewhere) == before
    assert not (tmp_path / "rows").is_symlink()
    (tmp_path / "more.partial").symlink_to(elsewhere)
    with pytest.raises(PenstockError, match="links are not followed"):
        ps.convert(pack, f"parquet://{tmp_path / 'more'}", to_options=ROWS)
    assert contents_of(elsewhere) == before


def test_a_link_in_place_of_a_sidecar_pack_is_replaced(
    tmp_path: Path, pack: Path, others: Path, elsewhere: Path
) -> None:
    """The pack of the fields that a format cannot hold is written anew, beside the container."""
    ps.convert(pack, tmp_path / "x.tar")
    move_away(tmp_path / "x.tar.fields.lmdb", elsewhere)
    before = contents_of(elsewhere)

    ps.convert(others, tmp_path / "x.tar", overwrite=True)

    assert contents_of(elsewhere) == before
    assert not (tmp_path / "x.tar.fields.lmdb").is_symlink()


def test_a_link_in_place_of_a_class_is_refused(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unfinished folder is not continued through a link, and what lies there is not removed with it."""
    monkeypatch.setattr(file_writer, "_COMMIT_RECORDS", 1)
    location = Location.from_path("files", tmp_path / "images")
    schema = Schema({"image": Field("image"), "label": Field("label", ("cats", "dogs"))})
    image = next(iter(write_photos(tmp_path / "photos").values()))
    with contextlib.closing(FilesWriter(location, schema, "photos")) as writer:
        writer.append(writer.prepare("cats/1.jpg", {"image": image, "label": 0}))
    move_away(tmp_path / "images" / "cats", elsewhere)
    (tmp_path / "images" / ".unfinished.image").symlink_to(elsewhere / "notes.txt")
    before = contents_of(elsewhere)

    resumed = FilesWriter(location, schema, "photos")
    resumed.append(resumed.prepare("dogs/1.jpg", {"image": image, "label": 1}))
    with pytest.raises(StoreError, match="cats: it is a symbolic link, and links are not followed"):
        resumed.append(resumed.prepare("cats/2.jpg", {"image": image, "label": 0}))
    resumed.discard()

    assert contents_of(elsewhere) == before


def test_a_link_in_a_cache_is_removed_alone(tmp_path: Path, elsewhere: Path) -> None:
    """The copies that it leads to stay, and nothing is left of the link."""
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "copies").symlink_to(elsewhere)

    delete_copies(cache / "copies")

    assert list(cache.iterdir()) == []
    assert (elsewhere / "notes.txt").read_text() == "kept"
