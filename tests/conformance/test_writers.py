"""Every kind of store that can be written: a writer that is killed at any moment is resumed, and nothing is lost."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock.errors import ArgumentError
from penstock.pack.conversion.report import ConvertReport
from penstock.sample import Field, Schema
from penstock.stores import STORES
from penstock.stores.base import Store
from penstock.stores.common import file_writer
from penstock.stores.common.lmdb import environment_writer
from penstock.stores.common.lmdb.environment_writer import CommitLimits
from penstock.stores.common.lmdb.pages import LOCK
from penstock.stores.lmdb_pack import blocks
from penstock.stores.lmdb_pack.store import LmdbStore
from penstock.stores.writing import Skipped
from tests.conformance.kills import Folder, Run, run_after_each_kill
from tests.pack.images import make_photos
from tests.pack.test_converting import SCHEMA, WRITABLE, destination, make_fields, write_pack

ROOT: Final = Path(__file__).resolve().parents[2]
COUNT: Final = 11
"""Records of a source."""
BAD: Final = (2, 5)
"""Those that are left out."""
PIXELS: Final = Schema({"image": Field("pixels:uint8[8,9,3]"), "label": Field("label")})
SHARDS: Final[Mapping[str, dict[str, Any]]] = {
    "tar": {"shard_records": 4},
    "parquet": {"shard_records": 4},
    "sharded": {"shard_size": 25_000},
}
"""How a kind is told to write several shards, where it can."""


def make_pixels(number: int) -> dict[str, Any]:
    """The fields of a record of a kind that stores pixels."""
    rng = np.random.default_rng(number)
    return {"image": rng.integers(0, 256, (8, 9, 3), np.uint8), "label": number % 3}


def list_writers() -> Iterator[Any]:
    """Each kind, with what it can store and in how many shards; what is written as another one is slow."""
    for kind in WRITABLE:
        seen = 0
        for name, schema in (("images", SCHEMA), ("pixels", PIXELS)):
            with contextlib.suppress(ArgumentError):  # it has no place for these
                storable = STORES.get(kind).storable(schema)
                for options in ({}, SHARDS[kind]) if kind in SHARDS else ({},):
                    is_other = seen == 0 or (name, options) == ("images", SHARDS.get(kind)) or kind == "lmdb"
                    marks = () if is_other else pytest.mark.slow
                    yield pytest.param(kind, storable, options, id=" ".join([kind, name, *options]), marks=marks)
                    seen += 1


@pytest.fixture
def _commits_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits every four records, or blocks of two; nothing waits for a disk, as a kill of a process does not."""
    monkeypatch.setattr(file_writer, "_COMMIT_RECORDS", 4)
    monkeypatch.setattr(environment_writer, "CommitLimits", functools.partial(CommitLimits, records=4))
    monkeypatch.setattr(blocks, "_BLOCK_NBYTES", 500)
    for name in ("fsync", "sync"):
        monkeypatch.setattr(os, name, lambda *_: None)


@pytest.mark.usefixtures("_commits_often")
@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["once", "again"])
@pytest.mark.parametrize(("kind", "schema", "options"), [*list_writers()])
def test_a_writer_that_is_killed_at_any_moment_is_resumed(
    kind: str, schema: Schema, options: dict[str, Any], again: bool, tmp_path: Path
) -> None:
    """Each record that was committed stays; what is there in the end, to the byte, is what one run leaves."""
    store: type[Store] = STORES.get(kind)
    make = make_pixels if schema["image"].pixels else make_fields

    def run(this: Run) -> int:
        if store.finished(store.locate_written(location, **options), schema, "source") is not None:
            return COUNT
        writer = store.writer(location, schema, "source", **options)
        this.safe = found = min(writer.committed.consumed, COUNT)  # some count also what is no record
        for number in range(found, COUNT):
            key = f"{number:04}.jpg"
            if number in BAD:
                writer.skip(Skipped(key, "it is damaged"))
            else:
                fields = make(number)
                writer.append(writer.prepare(key, {name: fields[name] for name in schema.fields}))
            this.safe = writer.committed.consumed
        writer.finish([Skipped("README", "it is no image")])
        writer.close()
        return found

    folder = tmp_path / "world"
    folder.mkdir()
    location = store.locate(destination(kind, folder).removeprefix(f"{kind}://"))
    found = run_after_each_kill(Folder(folder), run, only_once=not again)

    assert len(set(found)) > 2


def make_sample(number: int) -> dict[str, Any]:
    """A picture, a label and a vector."""
    pixels = np.random.default_rng(number).integers(0, 256, (6, 5, 3), np.uint8)
    return {"image": Image.fromarray(pixels), "label": number % 3, "vector": np.full(4, number, np.float32)}


class Pictures:
    """A map-style dataset."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index >= COUNT:
            raise IndexError
        return make_sample(index)


def write_table(folder: Path) -> Path:
    """A table of pictures, beside them."""
    lines = ["path,label,note"]
    for number in range(COUNT):
        make_sample(number)["image"].save(folder / f"{number}.png")
        lines.append(f"{number}.png,{number % 3},note {number}")
    (folder / "table.csv").write_text("\n".join(lines))
    return folder / "table.csv"


def write_photos(folder: Path) -> Path:
    """A folder of images, one of them damaged."""
    make_photos(folder / "photos", COUNT)
    (folder / "photos" / "cats" / "2.jpg").write_bytes(b"\xff\xd8\xff damaged")
    return folder / "photos"


PACKS: Final[Mapping[str, tuple[Callable[[Path], object], dict[str, Any]]]] = {
    "photos": (write_photos, {"on_error": "skip"}),
    "shards": (write_photos, {"on_error": "skip", "shard_size": 9000}),
    "resized": (write_photos, {"on_error": "skip", "resize": 20}),
    "generator": (lambda _: map(make_sample, range(COUNT)), {"source_id": "pictures 1"}),
    "dataset": (lambda _: Pictures(), {}),
    "table": (write_table, {}),
}
"""What makes a source in a folder, and the options of its pack."""
SOME: Final = ("photos", "shards", "generator")


@pytest.mark.usefixtures("_commits_often")
@pytest.mark.parametrize(
    "source", [*SOME, *(pytest.param(name, marks=pytest.mark.slow) for name in PACKS if name not in SOME)]
)
def test_packing_that_is_killed_at_any_moment_is_resumed(source: str, tmp_path: Path) -> None:
    """The same call goes on behind what was committed, whatever it reads; nothing half written can be opened."""
    make, options = PACKS[source]
    (tmp_path / "world").mkdir()
    path = tmp_path / "world" / "p.lmdb"
    made = make(tmp_path)

    def run(_: Run) -> int:
        with contextlib.suppress(ps.StoreError), ps.open(path) as opened:
            assert len(opened) == COUNT - ("on_error" in options)
        given = make(tmp_path) if source == "generator" else made
        if source == "dataset" and LmdbStore.recognises(str(path)) and not (path / LOCK).exists():
            with pytest.raises(ArgumentError, match=f"is a finished pack of {COUNT} records"):
                ps.pack(given, path)  # whether a dataset is still the same is not known
            return COUNT
        report = ps.pack(given, path, workers=1, **options)
        return COUNT if report.reused else report.resumed

    found = run_after_each_kill(Folder(tmp_path / "world"), run, only_once=True)

    assert len(set(found)) > 2


@pytest.mark.slow
@pytest.mark.usefixtures("_commits_often")
@pytest.mark.parametrize("kind", WRITABLE)
def test_a_conversion_that_is_killed_at_any_moment_is_resumed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records, what the format has no place for, and the report are what one run leaves."""
    source = write_pack(tmp_path / "source.lmdb", [f"{number:04}.jpg" for number in range(COUNT)])
    (tmp_path / "world").mkdir()
    monkeypatch.setattr(ConvertReport, "with_times", lambda report, *_: report)

    def run(_: Run) -> int:
        steps = set[str]()
        with contextlib.suppress(ps.StoreError), ps.open(destination(kind, tmp_path / "world")) as opened:
            assert [*opened.schema.fields] == [*source.schema.fields]
            assert list(opened.keys()) == list(source.keys())
        report = ps.convert(
            source, destination(kind, tmp_path / "world"), workers=1, progress=lambda step, *_: steps.add(step)
        )
        assert report.ok
        return COUNT * ("copying" not in steps)

    found = run_after_each_kill(Folder(tmp_path / "world"), run, only_once=True)

    assert set(found) == {0, COUNT}


def test_a_process_that_is_killed_is_resumed(tmp_path: Path) -> None:
    """SIGKILL in the middle of `penstock pack`, and the same command again: the bytes of an undisturbed pack."""
    photos, pack, whole = make_photos(tmp_path / "photos", 60), tmp_path / "p.lmdb", tmp_path / "whole.lmdb"
    ps.pack(photos, whole, index="none", shard_size=5000)
    options = ["--index", "none", "--shard-size", "5000"]
    command = [sys.executable, "-m", "penstock", "pack", str(photos), str(pack), *options]
    deadline, is_killed = time.monotonic() + 60, False

    while not is_killed:
        assert time.monotonic() < deadline, "no process was caught at work"
        shutil.rmtree(pack, ignore_errors=True)
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as child:
            while child.poll() is None and not (pack / "00003.lmdb").exists():
                time.sleep(0.001)
            child.kill()
        is_killed = child.returncode == -signal.SIGKILL
    with pytest.raises(ps.IncompleteStoreError):
        ps.open(pack)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "of them earlier)" in done.stdout
    assert read_contents(pack) == read_contents(whole)


def read_contents(folder: Path) -> dict[str, object]:
    """The content of each file below a folder."""
    return {name: held.content for name, held in Folder(folder).read().items()}
