"""``pack(shard_size=)``, and ``merge`` of packs that lie in the folder of the destination: one sharded pack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock import transforms as T
from penstock.cli import app
from penstock.errors import ArgumentError, PackError, StoreError
from penstock.sheets.info import info
from penstock.stores.lmdb_pack.sharded import ShardedPack
from tests.pack.images import make_photos
from tests.photographs import write_photographs

COUNT = 40


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of small pictures of two classes."""
    return make_photos(tmp_path / "photos", COUNT)


def read_folder(path: Path) -> dict[str, bytes]:
    """The bytes of all files below a folder."""
    return {str(each.relative_to(path)): each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file()}


def read_records(path: Path) -> list[Any]:
    """Key, label and image of each record."""
    with ps.open(path) as store:
        return [(record.key, record.fields["label"], bytes(record.fields["image"])) for record in store]


def test_a_sharded_pack_holds_what_a_plain_one_does(photos: Path, tmp_path: Path) -> None:
    """Records, report, summary, verification with the source; the same command again does nothing."""
    plain = ps.pack(photos, tmp_path / "plain.lmdb")

    report = ps.pack(photos, tmp_path / "sharded.lmdb", shard_size="20 kB")

    assert (report.records, report.nbytes, report.schema) == (plain.records, plain.nbytes, plain.schema)
    with ps.open(tmp_path / "sharded.lmdb") as store:
        assert isinstance(store, ShardedPack)
        shards = store.manifest.shards
        assert len(shards.names) > 2
        assert all(
            nbytes + 500 * count >= 20_000 for nbytes, count in zip(shards.nbytes[:-1], shards.counts[:-1], strict=True)
        )
    assert read_records(tmp_path / "sharded.lmdb") == read_records(tmp_path / "plain.lmdb")
    assert ps.verify(tmp_path / "sharded.lmdb", photos).ok
    there, here = info(tmp_path / "sharded.lmdb").to_json(), info(tmp_path / "plain.lmdb").to_json()
    differ = {name for name in there if there[name] != here[name]}
    assert differ == {"url", "description"}
    again = ps.pack(photos, tmp_path / "sharded.lmdb", shard_size=20_000)
    assert (again.reused, again.records) == (True, COUNT)


def test_resized_and_left_out_images_are_known(photos: Path, tmp_path: Path) -> None:
    """Options of the pack, and what was left out, are in the manifest, for ``verify`` and the next run."""
    (photos / "cats" / "broken.jpg").write_bytes(b"\xff\xd8")
    path = tmp_path / "sharded.lmdb"

    report = ps.pack(photos, path, shard_size=10_000, on_error="skip", resize=16)

    assert [entry.key for entry in report.skipped] == ["cats/broken.jpg"]
    with ps.open(path) as store:
        assert [entry.key for entry in store.skipped] == ["cats/broken.jpg"]
    assert info(path).skipped == 1
    assert ps.verify(path, photos).ok
    with pytest.raises(PackError, match=r"an earlier run.*left out 1 file"):
        ps.pack(photos, path, shard_size=10_000, resize=16)
    (photos / "cats" / "broken.jpg").unlink()
    with pytest.raises(ArgumentError, match="finished pack of 40 records, and its source was changed"):
        ps.pack(photos, path, shard_size=10_000, on_error="skip", resize=16)


def test_wrong_sizes_and_destinations_are_refused(photos: Path, tmp_path: Path) -> None:
    """A size that is none, a kind without shards, a plain pack where a sharded one is, another size of shards."""
    for size in ("a lot", -1, True):
        with pytest.raises(ArgumentError, match="shard_size must be a number of bytes"):
            ps.pack(photos, tmp_path / "x.lmdb", shard_size=size)
    with pytest.raises(ArgumentError, match="shard_size must be at least 1 byte, got 0"):
        ps.pack(photos, tmp_path / "x.lmdb", shard_size=0)
    with pytest.raises(ArgumentError, match=r"shard_size needs a pack \(\.lmdb\)"):
        ps.pack(photos, tmp_path / "x.tar", shard_size="1MB")
    assert [each.name for each in tmp_path.iterdir()] == ["photos"]

    ps.pack(photos, tmp_path / "sharded.lmdb", shard_size="20kB")
    with pytest.raises(ArgumentError, match=r"a sharded pack is at .*--shard-size"):
        ps.pack(photos, tmp_path / "sharded.lmdb")
    with pytest.raises(ArgumentError, match=r"it was packed with shard_size='20000' \(--shard-size 20000\)"):
        ps.pack(photos, tmp_path / "sharded.lmdb", shard_size="30kB")
    ps.pack(photos, tmp_path / "plain.lmdb")
    with pytest.raises(StoreError, match=r"this folder contains other files \(\.image\.index"):
        ps.pack(photos, tmp_path / "plain.lmdb", shard_size="30kB")


def test_decode_indices_of_the_shards_are_used(tmp_path: Path) -> None:
    """Each shard has its own; crops of a batch of several shards are those of a plain pack; a damaged one is found."""
    photos = write_photographs(tmp_path / "photographs", 2)
    sharded, plain = tmp_path / "sharded.lmdb", tmp_path / "plain.lmdb"
    report = ps.pack(photos, sharded, shard_size="300kB")
    ps.pack(photos, plain)

    def fill(path: Path, index: str | None) -> Any:
        transform = [T.Decode(), T.RandomResizedCrop(48, scale=(0.05, 0.2)), T.ToLayout("CHW", "uint8")]
        dataset = ps.StoreDataset(path, fields=("image", "label"), transform=transform, index=index)
        return dataset, [images for images, _ in ps.DataLoader(dataset, 8, shuffle=True, seed=1, num_workers=0)]

    dataset, batches = fill(sharded, "auto")
    assert report.indexed is not None
    assert report.indexed.indexed == len(dataset) == len(dataset._seek_tables)
    assert all(map(np.array_equal, batches, fill(plain, "auto")[1]))
    assert all(map(np.array_equal, batches, fill(sharded, None)[1]))
    assert not dataset._seek_tables._found  # none is made again
    again = ps.index(sharded)
    assert (again.indexed, again.resumed) == (len(dataset), len(dataset))

    file = sharded / "00001.lmdb" / ".image.index"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    (problem,) = ps.verify(sharded).problems
    first = ShardedPack(sharded).manifest.shards.counts[0]
    assert problem.index is not None
    assert problem.index >= first
    assert problem.key == ps.open(sharded).keys()[problem.index]


def test_packs_in_the_destination_are_joined_without_a_copy(photos: Path, tmp_path: Path) -> None:
    """As several machines write them, plain or sharded, in folders below: a manifest is written, and no other byte."""
    root = tmp_path / "all.lmdb"
    parts = [root / "a.lmdb", root / "machines" / "b.lmdb"]
    for number, part in enumerate(parts):
        own = {f"{number}/{path.name}": path for path in sorted(photos.glob("*/*.jpg"))[number::2]}
        rows = [{"__key__": key, "image": path, "label": path.parent.name} for key, path in own.items()]
        ps.pack(rows, part, classes=["cats", "dogs"], shard_size="20kB" if number else None)
    before = read_folder(root)

    report = ps.merge(parts, root)

    after = read_folder(root)
    assert {name: each for name, each in after.items() if name in before} == before
    assert after.keys() - before.keys() == {"manifest.json"}
    assert (report.records, report.reused) == (COUNT, False)
    assert read_records(root) == read_records(parts[0]) + read_records(parts[1])
    assert ps.verify(root).ok
    assert ps.merge(parts, root).reused
    with pytest.raises(ArgumentError, match=r"manifest\.json exists; overwrite=True"):
        ps.merge(parts[:1], root)
    assert ps.merge(parts[:1], root, overwrite=True).records == len(read_records(parts[0]))


def test_packs_that_differ_are_not_joined(photos: Path, tmp_path: Path) -> None:
    """Equal keys, classes in another order, prefixes: refused, and no manifest is written."""
    root = tmp_path / "all.lmdb"
    for name, classes in {"a": ["cats", "dogs"], "b": ["cats", "dogs"], "c": ["dogs", "cats"]}.items():
        ps.pack(photos, root / f"{name}.lmdb", classes=classes)

    with pytest.raises(
        PackError, match=r"(?s)40 records of the stores have the name of another.*merge them to another"
    ):
        ps.merge([root / "a.lmdb", root / "b.lmdb"], root)
    with pytest.raises(ArgumentError, match=r"same fields and classes in the same order.*c\.lmdb"):
        ps.merge([root / "a.lmdb", root / "c.lmdb"], root)
    with pytest.raises(ArgumentError, match="keep their keys and classes"):
        ps.merge([root / "a.lmdb", root / "b.lmdb"], root, prefix=True)
    ps.pack(photos, tmp_path / "d.lmdb")
    with pytest.raises(ArgumentError, match="the destination must be none of the sources"):
        ps.merge([root / "a.lmdb", tmp_path / "d.lmdb"], root)

    assert not (root / "manifest.json").exists()


def test_a_sharded_pack_is_a_source_as_any_store_is(photos: Path, tmp_path: Path) -> None:
    """It is packed, merged and converted, and a store is converted to one, with proof."""
    sharded = tmp_path / "sharded.lmdb"
    ps.pack(photos, sharded, shard_size="20kB")

    ps.pack(sharded, tmp_path / "plain.lmdb")
    ps.merge([sharded], tmp_path / "merged.lmdb")
    ps.convert(sharded, tmp_path / "set.tar")
    report = ps.convert(tmp_path / "set.tar", f"sharded://{tmp_path / 'back.lmdb'}", to_options={"shard_size": "9kB"})

    assert read_records(tmp_path / "plain.lmdb") == read_records(tmp_path / "merged.lmdb") == read_records(sharded)
    assert report.ok
    assert len(ShardedPack(tmp_path / "back.lmdb").manifest.shards.names) > 4
    assert ps.convert(tmp_path / "set.tar", f"sharded://{tmp_path / 'back.lmdb'}", to_options={"shard_size": "9kB"}).ok


def test_commands_write_sharded_packs(photos: Path, tmp_path: Path) -> None:
    """``pack --shard-size``, ``merge`` in place, ``info``, ``verify`` and ``index``."""
    parts = [str(tmp_path / "all.lmdb" / name) for name in ("cats.lmdb", "dogs.lmdb")]
    run = CliRunner()
    for part, name in zip(parts, ("cats", "dogs"), strict=True):
        done = run.invoke(app, ["pack", str(photos / name), part, "--shard-size", "8kB", "--classes", f"{name},"])
        assert done.exit_code == 0, done.output

    refused = run.invoke(app, ["merge", *parts, str(tmp_path / "all.lmdb")])
    assert isinstance(refused.exception, ArgumentError)
    done = run.invoke(app, ["merge", parts[0], str(tmp_path / "all.lmdb")])

    assert done.exit_code == 0, done.output
    assert "20 records" in done.output
    for command in ("info", "verify", "index"):
        done = run.invoke(app, [command, str(tmp_path / "all.lmdb")])
        assert done.exit_code == 0, done.output
        assert "20" in done.output
