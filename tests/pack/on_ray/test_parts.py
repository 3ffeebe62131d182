"""``pack``, ``convert`` and ``index`` with ``on="ray"``: what is written, with tasks that run in this process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock.cli import app
from penstock.errors import ArgumentError, CorruptRecordError, PackError, StoreError
from penstock.pack.on_ray.parts import Parts
from penstock.paths import COEFFICIENTS
from penstock.stores.lmdb_pack.sharded import ShardedPack
from penstock.stores.location import Location
from tests.pack.images import make_photos, picture
from tests.pack.on_ray.inline_tasks import run_inline
from tests.servers.objects import ObjectServer
from tests.servers.web import running

COUNT = 40
ON: dict[str, Any] = {"on": "ray", "shard_size": "20 kB"}


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Tasks run in this process; those that have run."""
    return run_inline(monkeypatch)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of small pictures of two classes."""
    return make_photos(tmp_path / "photos", COUNT)


def read_folder(path: Path) -> dict[str, bytes]:
    """The bytes of all files below a folder."""
    return {str(each.relative_to(path)): each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file()}


def read_records(path: str | Path, **options: Any) -> list[Any]:
    """Key and fields of each record."""
    with ps.open(path, **options) as store:
        return [
            (record.key, {name: bytes(v) if isinstance(v, memoryview) else v for name, v in record.fields.items()})
            for record in store
        ]


def stop_at(count: int) -> Any:
    """A callback that stops the program after some records."""

    def stop(now: Any) -> None:
        if now.done >= count:
            raise KeyboardInterrupt

    return stop


def test_a_pack_has_the_records_of_one_process(done: list[Any], photos: Path, tmp_path: Path) -> None:
    """In the same order, with the same fields, indices and report; each shard is the pack of its records."""
    plain = ps.pack(photos, tmp_path / "plain.lmdb")

    report = ps.pack(photos, tmp_path / "parts.lmdb", **ON)

    assert (report.records, report.nbytes, report.schema) == (plain.records, plain.nbytes, plain.schema)
    assert report.indexed is not None
    assert report.indexed.indexed == COUNT
    assert read_records(tmp_path / "parts.lmdb") == read_records(tmp_path / "plain.lmdb")
    assert ps.verify(tmp_path / "parts.lmdb", photos).ok
    with ps.open(tmp_path / "parts.lmdb") as store, ps.open(photos) as source:
        assert isinstance(store, ShardedPack)
        assert store.manifest.shards.counts == [8] * 5
        keys = list(store.keys())[8:16]
        rows = [{"__key__": record.key, **record.fields} for record in source if record.key in keys]
    assert done == [0, 1, 2, 3, 4]
    ps.pack(rows, tmp_path / "second.lmdb", classes=["cats", "dogs"])
    second = (tmp_path / "parts.lmdb" / "00001.lmdb" / "data.mdb").read_bytes()
    assert second == (tmp_path / "second.lmdb" / "data.mdb").read_bytes()


def test_an_interrupted_pack_is_resumed_to_the_same_bytes(done: list[Any], photos: Path, tmp_path: Path) -> None:
    """Finished parts are kept, one that was begun is resumed, and a finished pack is used as it is."""
    ps.pack(photos, tmp_path / "whole.lmdb", **ON)
    with pytest.raises(KeyboardInterrupt):
        ps.pack(photos, tmp_path / "parts.lmdb", progress=stop_at(16), **ON)
    first = (tmp_path / "parts.lmdb" / "00000.lmdb" / "data.mdb").stat()
    with pytest.raises(StoreError):
        ps.open(tmp_path / "parts.lmdb")

    report = ps.pack(photos, tmp_path / "parts.lmdb", **ON)

    assert report.resumed == 16
    assert (tmp_path / "parts.lmdb" / "00000.lmdb" / "data.mdb").stat().st_mtime_ns == first.st_mtime_ns
    assert read_folder(tmp_path / "parts.lmdb") == read_folder(tmp_path / "whole.lmdb")
    done.clear()
    assert ps.pack(photos, tmp_path / "parts.lmdb", **ON).reused
    assert not done
    with pytest.raises(ArgumentError, match=r"packed with on='ray' \(--on ray\); overwrite=True"):
        ps.pack(photos, tmp_path / "parts.lmdb", shard_size="20 kB")
    ps.pack(photos, tmp_path / "parts.lmdb", overwrite=True, **ON)
    assert read_folder(tmp_path / "parts.lmdb") == read_folder(tmp_path / "whole.lmdb")


def test_what_cannot_be_packed_is_refused_or_left_out(done: list[Any], photos: Path, tmp_path: Path) -> None:
    """As in one process: all bad images of all parts are named, also where a part has no other."""
    names = sorted((photos / "cats").iterdir(), key=lambda path: int(path.stem))
    for path in names[:9]:
        path.write_bytes(path.read_bytes()[:40])

    with pytest.raises(PackError, match="9 of the source's files cannot be packed; nothing was written"):
        ps.pack(photos, tmp_path / "parts.lmdb", **ON)

    assert not (tmp_path / "parts.lmdb").exists()
    report = ps.pack(photos, tmp_path / "parts.lmdb", on_error="skip", **ON)
    assert report.skipped == ps.pack(photos, tmp_path / "plain.lmdb", on_error="skip").skipped
    assert read_records(tmp_path / "parts.lmdb") == read_records(tmp_path / "plain.lmdb")
    assert not (tmp_path / "parts.lmdb" / "00000.lmdb").exists()
    for path in names:
        path.write_bytes(b"\xff\xd8")
    for path in (photos / "dogs").iterdir():
        path.write_bytes(b"\xff\xd8")
    with pytest.raises(PackError, match="nothing can be packed"):
        ps.pack(photos, tmp_path / "none.lmdb", on_error="skip", **ON)
    assert not (tmp_path / "none.lmdb").exists()


class Named:
    """Samples that bring their keys along."""

    def __init__(self, keys: list[str]) -> None:
        self.given = keys

    def __len__(self) -> int:
        return len(self.given)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"__key__": self.given[index], "x": np.full(500, index, np.float64)}


def test_equal_keys_are_found_within_parts_and_between_them(done: list[Any], photos: Path, tmp_path: Path) -> None:
    """Keys that are known are compared first; others when all parts are written."""
    keys = [f"key{number}" for number in range(24)]
    ps.pack(Named(keys), tmp_path / "named.lmdb", **ON)
    assert [key for key, _ in read_records(tmp_path / "named.lmdb")] == keys
    assert len(done) == 6

    with pytest.raises(PackError, match="1 record in different parts have the name of an earlier one, such as 'KEY3'"):
        ps.pack(Named([*keys[:20], "KEY3", *keys[21:]]), tmp_path / "between.lmdb", **ON)
    with pytest.raises(PackError, match=r"KEY16: its name equals that of an earlier record"):
        ps.pack(Named([*keys[:18], "KEY16", *keys[19:]]), tmp_path / "within.lmdb", **ON)
    shutil.copy(photos / "cats" / "0.jpg", photos / "cats" / "38.JPG")
    done.clear()
    with pytest.raises(PackError, match=r"its name equals that of 'cats/38.JPG', except for case"):
        ps.pack(photos, tmp_path / "known.lmdb", **ON)
    assert not done
    report = ps.pack(photos, tmp_path / "known.lmdb", on_error="skip", **ON)
    assert [entry.key for entry in report.skipped] == ["cats/38.jpg"]
    assert report.records == COUNT


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"on": "spark"}, "on must be 'ray', or None for this process, got 'spark'"),
        ({"on": "ray", "jobs": 2}, "jobs must be 0 with on='ray', whose tasks are processes, got 2"),
    ],
)
def test_other_options_are_refused(
    done: list[Any], photos: Path, tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    """Before anything is read or written."""
    with pytest.raises(ArgumentError, match=said):
        ps.pack(photos, tmp_path / "parts.lmdb", **options)
    assert not done
    assert not (tmp_path / "parts.lmdb").exists()


def test_sources_and_destinations_that_do_not_fit_are_refused(done: list[Any], photos: Path, tmp_path: Path) -> None:
    """An iterator, another kind of store, a folder that another node does not have, threads for ``index``."""
    with pytest.raises(ArgumentError, match=r"on='ray' needs a source that is read by index; .* is read in order"):
        ps.pack(({"x": n} for n in range(3)), tmp_path / "stream.lmdb", source_id="a", **ON)
    with pytest.raises(ArgumentError, match=r"needs a pack \(.lmdb\) as the destination, and so does on='ray'"):
        ps.pack(photos, tmp_path / "photos.tar", on="ray")
    with pytest.raises(
        ArgumentError, match=r"on='ray' writes packs \(.lmdb\) without options, got a destination of ki"
    ):
        ps.convert(photos, tmp_path / "photos.tar", on="ray")
    with pytest.raises(ArgumentError, match=r"on='ray' writes packs .*, got to_layout='coco'"):
        ps.convert(photos, tmp_path / "photos", on="ray", to_layout="coco")
    with pytest.raises(ArgumentError, match="shard_size must be given with on='ray', or to pack"):
        ps.convert(photos, tmp_path / "photos.lmdb", shard_size="1MB")
    with pytest.raises(ArgumentError, match="workers must be None with on='ray'"):
        ps.index(photos, on="ray", workers=2)
    with pytest.raises(ArgumentError, match="the destination must be outside the source"):
        ps.pack(photos, photos / "inside.lmdb", **ON)
    assert not done
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos"]


def test_a_folder_of_one_node_is_refused(monkeypatch: pytest.MonkeyPatch, photos: Path, tmp_path: Path) -> None:
    """Before a task runs; nothing stays there."""
    done = run_inline(monkeypatch, lambda path: ["10.0.0.7 (3fa2bc)"] if path.exists() else [])

    with pytest.raises(
        ArgumentError, match=r"that all nodes .* share, or a URL .* is not on node 10\.0\.0\.7 \(3fa2bc\)"
    ):
        ps.pack(photos, tmp_path / "parts.lmdb", **ON)

    assert not done
    assert not (tmp_path / "parts.lmdb").exists()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """A server with an empty bucket ``b``."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "served" / "b").mkdir(parents=True)
    with running(ObjectServer(tmp_path / "served")) as found:
        yield found


def test_parts_hold_coefficients(done: list[Any], photos: Path, tmp_path: Path) -> None:
    """Each task stores them, the report counts them, and the files come back."""
    report = ps.pack(photos, tmp_path / "parts.lmdb", transcode="coefficients", **ON)

    assert (report.transcoded, report.kept) == (COUNT, 0)
    assert len(done) > 1
    assert ps.verify(tmp_path / "parts.lmdb", photos).ok
    with ps.open(tmp_path / "parts.lmdb") as store:
        assert all(bytes(blob[:4]) == COEFFICIENTS for blob in store.blobs("image", range(COUNT)))


def test_parts_are_written_to_a_url(done: list[Any], server: ObjectServer, photos: Path, tmp_path: Path) -> None:
    """Each by its task, the manifest last; resumed where the driver's notes are lost, to the bytes of a folder."""
    ps.pack(photos, tmp_path / "parts.lmdb", **ON)
    options = {"storage_options": server.options, **ON}
    with pytest.raises(KeyboardInterrupt):
        ps.pack(photos, "s3://b/parts.lmdb", progress=stop_at(16), **options)
    assert not any(name.endswith("manifest.json") for name in server.written)
    shutil.rmtree(tmp_path / "cache")
    sent = [name for name in server.written if "/0000" in name]

    report = ps.pack(photos, "s3://b/parts.lmdb", **options)

    assert report.resumed == 16
    assert report.store == "s3://b/parts.lmdb"
    again = [name for name in server.written if "/0000" in name and not name.endswith(".upload")][len(sent) :]
    assert not {name.split("/")[2] for name in again} & {"00000.lmdb", "00001.lmdb"}
    assert read_folder(server.root / "b" / "parts.lmdb") == read_folder(tmp_path / "parts.lmdb")
    where: dict[str, Any] = {"storage_options": server.options}
    assert read_records("s3://b/parts.lmdb", **where) == read_records(tmp_path / "parts.lmdb")
    assert ps.pack(photos, "s3://b/parts.lmdb", **options).reused
    converted = ps.convert(photos, "s3://b/converted.lmdb", **options)
    assert converted.ok
    assert read_records("s3://b/converted.lmdb", **where) == read_records(photos)


def test_a_store_is_converted_in_parts(done: list[Any], photos: Path, tmp_path: Path) -> None:
    """Records, order and classes stay; both sides of each part are compared, again where they are finished."""
    with pytest.raises(KeyboardInterrupt):
        ps.convert(photos, tmp_path / "parts.lmdb", progress=_stop_converting, **ON)

    report = ps.convert(photos, tmp_path / "parts.lmdb", **ON)

    assert report.ok
    assert (report.records, report.left_out, report.duplicates) == (COUNT, (), ())
    assert read_records(tmp_path / "parts.lmdb") == read_records(photos)
    with ps.open(tmp_path / "parts.lmdb") as store, ps.open(photos) as source:
        assert isinstance(store, ShardedPack)
        assert len(store.manifest.shards.names) > 2
        assert store.schema == source.schema
    assert ps.verify(tmp_path / "parts.lmdb").ok
    done.clear()
    assert ps.convert(photos, tmp_path / "parts.lmdb", **ON).source_digest == report.source_digest
    assert len(done) == 5


def _stop_converting(step: str, done: int, total: int, nbytes: int) -> None:
    assert step == "converting"
    assert total == COUNT
    assert nbytes > 0
    if done >= 16:
        raise KeyboardInterrupt


def test_damage_of_a_conversion_is_found(done: list[Any], photos: Path, tmp_path: Path) -> None:
    """A part that does not hold what the source has is named by the place of its record in the whole."""
    ps.convert(photos, tmp_path / "parts.lmdb", **ON)
    path = tmp_path / "parts.lmdb" / "00002.lmdb" / "data.mdb"
    with ps.open(photos) as store:
        image = bytes(store[17].fields["image"])
    content = path.read_bytes()
    at = content.index(image[-200:])
    path.write_bytes(content[:at] + bytes(8) + content[at + 8 :])

    with pytest.raises(CorruptRecordError, match="record 17"):
        ps.convert(photos, tmp_path / "parts.lmdb", **ON)


def test_records_that_cannot_be_converted_are_refused_or_left_out(done: list[Any], tmp_path: Path) -> None:
    """As in one process."""
    folder = make_photos(tmp_path / "photos", 12)
    store = ps.open(folder)
    (folder / "cats" / "4.jpg").write_bytes(picture(99))

    with pytest.raises(PackError, match="1 of the source's records cannot be converted; nothing was written"):
        ps.convert(store, tmp_path / "parts.lmdb", on="ray", shard_size="4kB")

    assert not (tmp_path / "parts.lmdb").exists()
    report = ps.convert(store, tmp_path / "parts.lmdb", on="ray", shard_size="4kB", on_error="skip")
    assert [entry.key for entry in report.left_out] == ["cats/4.jpg"]
    assert report.records == 11


@pytest.mark.parametrize("kind", ["folder", "sharded"])
def test_an_index_is_the_file_of_one_process(done: list[Any], photos: Path, tmp_path: Path, kind: str) -> None:
    """Byte for byte, resumed too; of a sharded pack, shard by shard."""
    source = photos
    if kind == "sharded":
        source = tmp_path / "sharded.lmdb"
        ps.pack(photos, source, shard_size="20 kB", index="none")
    (photos / "cats" / "0.jpg").with_suffix(".png").write_bytes(picture(7, "PNG"))
    shutil.copytree(source, tmp_path / "copy")
    here = ps.index(tmp_path / "copy", workers=2)

    there = ps.index(source, on="ray")

    assert done
    assert (there.indexed, there.kind, len(there.left_out)) == (here.indexed, here.kind, len(here.left_out))
    assert read_folder(source) == read_folder(tmp_path / "copy")
    done.clear()
    assert ps.index(source, on="ray").resumed == there.indexed


def test_the_length_of_parts_is_a_power_of_two_below_the_size() -> None:
    """By the mean size of some records; at least one record."""
    place = Location.from_path("sharded", "/nowhere/a.lmdb")
    lengths = [Parts.divide(place, 1000, sizes, 10_000).records for sizes in ([900, 1100], [1250], [1251], [10**6], [])]

    assert lengths == [8, 8, 4, 1, 8192]
    parts = Parts.divide(place, 20, [1250], 10_000)
    assert [list(parts.get_range(number)) for number in range(parts.count)] == [
        list(range(8)), list(range(8, 16)), list(range(16, 20)),
    ]  # fmt: skip


def test_commands_take_on_ray(done: list[Any], photos: Path, tmp_path: Path) -> None:
    """``penstock pack``, ``index`` and ``convert``; another word is refused."""
    parts, copy = str(tmp_path / "parts.lmdb"), str(tmp_path / "copy.lmdb")
    run = CliRunner().invoke

    packed = run(app, ["pack", str(photos), parts, "--on", "ray", "--shard-size", "20kB", "--index", "none"])
    assert packed.exit_code == 0, packed.output
    assert "40 records" in packed.output
    assert done == [0, 1, 2, 3, 4]
    indexed = run(app, ["index", parts, "--on", "ray"])
    assert indexed.exit_code == 0, indexed.output
    assert "40 images indexed by tiles" in indexed.output
    converted = run(app, ["convert", parts, copy, "--on", "ray", "--shard-size", "20kB"])
    assert converted.exit_code == 0, converted.output
    assert "40 records, all fields equal" in converted.output
    assert read_records(copy) == read_records(parts)
    assert run(app, ["pack", str(photos), parts, "--on", "spark"]).exit_code == 2


def test_a_node_without_the_source_is_an_error(done: list[Any], photos: Path, tmp_path: Path) -> None:
    """It is no folder of bad images, which ``on_error="skip"`` would leave out."""
    with ps.open(photos) as store:
        shutil.move(photos, tmp_path / "moved")

        with pytest.raises(StoreError, match="there is no such folder"):
            ps.pack(store, tmp_path / "parts.lmdb", on_error="skip", **ON)

    assert not done
