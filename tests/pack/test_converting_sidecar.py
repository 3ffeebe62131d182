"""The sidecar pack of a converted store: read with its container, checked with it, and bound to it."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

import penstock as ps
from penstock.errors import IncompleteStoreError, StoreError
from penstock.pack.conversion.comparison import is_equal
from penstock.pack.conversion.run import Conversion
from penstock.sample import Field, Schema
from penstock.stores import joined
from penstock.stores.lmdb_pack.store import LmdbStore
from penstock.stores.location import Location
from tests.pack.test_converting import KEYS, SCHEMA, WRITABLE, destination, write_pack


def test_a_changed_container_does_not_take_its_sidecar(tmp_path: Path) -> None:
    """A sidecar pack is used only for the container that it was written for."""
    source = write_pack(tmp_path / "source.lmdb")
    written = tmp_path / "written"
    ps.convert(source, f"files://{written}")
    next(written.rglob("*.jpg")).rename(written / "zebra" / "other.jpg")

    with pytest.raises(StoreError, match="the container was changed"):
        ps.open(written)
    (written / ".fields").unlink()
    assert len(ps.open(written)) == len(KEYS)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, {}) for kind in WRITABLE if kind not in {"lmdb", "sharded"}),
        ("tar", {"shard_records": 3}),
        ("parquet", {"shard_records": 3}),
    ],
)
@pytest.mark.parametrize("is_again", [False, True], ids=["new", "overwritten"])
def test_a_container_without_its_sidecar_does_not_open(
    kind: str, options: dict[str, Any], is_again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conversion that ends behind the container, on a disk that is full, leaves what is refused, and is resumed."""
    source = write_pack(tmp_path / "source.lmdb", [f"{number:04}.jpg" for number in range(7)])
    path = destination(kind, tmp_path)
    if is_again and kind != "files":
        ps.convert(write_pack(tmp_path / "other.lmdb", ["a.jpg"]), path, to_options=options)
    opened = path.replace(".tar", "-*.tar") if kind == "tar" and options else path

    def fail(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Conversion, "_match", fail)
        with pytest.raises(StoreError, match="cannot be written: No space left"):
            ps.convert(source, path, to_options=options, overwrite=is_again and kind != "files")
    with pytest.raises(IncompleteStoreError, match="was not finished, and fields are missing; convert again"):
        ps.open(opened)
    assert not ps.verify(opened).ok

    assert ps.convert(source, path, to_options=options).ok
    with ps.open(opened) as written:
        assert written.column("label").tolist() == source.column("label").tolist()


def test_a_joined_store_gives_what_the_source_gave(tmp_path: Path) -> None:
    """Columns, blobs and batches of a container with a sidecar equal those of the source, in any order."""
    source = write_pack(tmp_path / "source.lmdb")
    ps.convert(source, f"files://{tmp_path / 'written'}")
    order = [3, 0, 6, 3]

    with ps.open(tmp_path / "written") as written:
        assert isinstance(written, joined.JoinedStore)
        for name in ("label", "weight", "caption"):
            assert written.column(name).tolist() == source.column(name).tolist()
        assert [bytes(blob) for blob in written.blobs("image", order)] == [
            bytes(blob) for blob in source.blobs("image", order)
        ]
        for one, other in zip(written.read(order), source.read(order), strict=True):
            assert one.key == other.key
            assert all(is_equal(one.fields[name], other.fields[name]) for name in SCHEMA.fields)


def test_pixels_of_a_joined_store_are_those_of_its_container(tmp_path: Path) -> None:
    """Pixels, and arrays of fixed shape, come from the side that holds them, in any order."""
    schema = Schema({"image": Field("pixels:uint8[4,5,3]"), "offsets": Field("float32[2]"), "caption": Field("text")})
    writer = LmdbStore.writer(Location.from_path("lmdb", tmp_path / "source.lmdb"), schema, "test")
    pixels = np.random.default_rng(0).integers(0, 256, (6, 4, 5, 3), np.uint8)
    for number in range(6):
        fields = {
            "image": pixels[number],
            "offsets": np.asarray([number, -number], np.float32),
            "caption": f"é{number}",
        }
        writer.append(writer.prepare(f"key.{number}", fields))
    writer.finish()
    ps.convert(tmp_path / "source.lmdb", tmp_path / "written.tar")
    order = [4, 1, 4, 0]

    with ps.open(tmp_path / "written.tar") as written:
        assert isinstance(written, joined.JoinedStore)  # a tar has no place for the dots of keys
        assert np.array_equal(np.stack(list(written.pixels("image", order))), pixels[order])
        dataset = ps.StoreDataset(written)
        assert all(np.array_equal(dataset[number]["image"], pixels[number]) for number in order)


def test_damage_of_a_sidecar_pack_is_found(tmp_path: Path) -> None:
    """verify checks the container and its sidecar pack, from a path and from the open store."""
    target = tmp_path / "written"
    ps.convert(write_pack(tmp_path / "source.lmdb"), f"files://{target}")
    with ps.open(target) as written:
        assert ps.verify(written).ok
        assert ps.verify(target).records == len(KEYS)
    held = joined.sidecar_location(Location.from_path("files", target)).local_path / "data.mdb"
    content = bytearray(held.read_bytes())
    at = content.index(b"picture 3")
    content[at] ^= 1
    held.write_bytes(content)

    report = ps.verify(target)

    assert not report.ok
    assert all("sidecar pack" in problem.reason for problem in report.problems)


def test_the_sidecar_of_another_container_is_a_problem(tmp_path: Path) -> None:
    """verify reports it; opening raises it."""
    source = write_pack(tmp_path / "source.lmdb")
    ps.convert(source, f"files://{tmp_path / 'a'}")
    ps.convert(write_pack(tmp_path / "other.lmdb", KEYS[:3]), f"files://{tmp_path / 'b'}")
    (tmp_path / "b" / ".fields").write_bytes((tmp_path / "a" / ".fields").read_bytes())

    with pytest.raises(StoreError, match="the container was changed"):
        ps.open(tmp_path / "b")
    assert ["the container was changed" in problem.reason for problem in ps.verify(tmp_path / "b").problems] == [True]


def test_an_older_sidecar_is_removed_where_none_is_needed(tmp_path: Path) -> None:
    """What is written anew without a sidecar leaves neither its file nor its pack."""
    target = tmp_path / "written.tar"
    ps.convert(write_pack(tmp_path / "source.lmdb"), target)
    assert (tmp_path / "written.tar.fields").exists()
    plain = write_pack(tmp_path / "plain.lmdb", ["a", "b"], Schema({"image": SCHEMA["image"]}))

    ps.convert(plain, target, overwrite=True)

    assert [path.name for path in tmp_path.glob("written.tar.fields*")] == []
    assert len(ps.open(target)) == 2
