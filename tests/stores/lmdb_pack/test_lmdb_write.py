"""Writing packs: commits, resuming to the same bytes, locks, full disks, and what is refused."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import verify
from penstock.errors import ArgumentError, IncompleteStoreError, PackError, StoreError, StoreFormatError
from penstock.pack.conversion.comparison import is_equal
from penstock.sample import Field, Schema
from penstock.stores import open as open_store
from penstock.stores.base import Skipped
from penstock.stores.common.lmdb.environment_writer import CommitLimits
from penstock.stores.common.mapped_files import open_source
from penstock.stores.lmdb_pack.format import RecordCodec
from penstock.stores.lmdb_pack.store import LmdbStore
from penstock.stores.lmdb_pack.writer import LmdbWriter
from penstock.stores.origin import ORIGIN_FILE
from tests.stores.lmdb_pack.packs import SCHEMA, SMALL_COMMITS, fields, key, make_pack, write

COUNT = 120


def contents(pack: Path) -> dict[str, bytes]:
    """The bytes of each file of a pack, but for the note that says what it was made from."""
    return {entry.name: entry.read_bytes() for entry in pack.iterdir() if entry.name != ORIGIN_FILE}


def test_finished_pack_is_two_files_and_a_note(tmp_path: Path) -> None:
    """Nothing but the data, its seals and the note of its source is left: no lock, no temporary file."""
    pack = make_pack(tmp_path / "p.lmdb")

    assert {entry.name for entry in pack.iterdir()} == {"data.mdb", "pages.xxh3", ORIGIN_FILE}


def test_equal_records_make_equal_bytes(tmp_path: Path) -> None:
    """Two packs of the same records are the same files, whatever their sources were called."""
    one, two = tmp_path / "one.lmdb", tmp_path / "two.lmdb"
    write(one, range(COUNT), source="monday").finish()
    write(two, range(COUNT), source="tuesday").finish()

    assert contents(one) == contents(two)


@settings(max_examples=settings().max_examples // 8)
@given(stops=st.lists(st.integers(0, COUNT), max_size=4).map(sorted))
def test_interrupted_pack_resumes_to_the_same_bytes(tmp_path_factory: pytest.TempPathFactory, stops: list[int]) -> None:
    """A pack given up after any records, any number of times, ends with the bytes of one that never stopped."""
    folder = tmp_path_factory.mktemp("packs")
    whole = make_pack(folder / "whole.lmdb", COUNT, SMALL_COMMITS)
    for stop in stops:
        write(folder / "p.lmdb", range(stop), limits=SMALL_COMMITS).close()

    write(folder / "p.lmdb", range(COUNT), limits=SMALL_COMMITS).finish()

    assert contents(folder / "p.lmdb") == contents(whole)


def test_a_resumed_writer_that_is_killed_at_once_leaves_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock file has the source of a complete pack until its seals are there, also while another run opens it."""
    with monkeypatch.context() as patch:
        patch.setattr(LmdbWriter, "_complete", LmdbWriter.close)
        make_pack(tmp_path / "p.lmdb")
    for name in ("ftruncate", "pwrite"):
        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            patch.setattr(os, name, interrupt)
            LmdbWriter(tmp_path / "p.lmdb", SCHEMA, "source").close()
    make_pack(tmp_path / "whole.lmdb")

    LmdbWriter(tmp_path / "p.lmdb", SCHEMA, "source").finish()

    assert contents(tmp_path / "p.lmdb") == contents(tmp_path / "whole.lmdb")


def interrupt(*_: object) -> None:
    """As a signal at this moment."""
    raise KeyboardInterrupt


def test_kill_before_the_first_commit_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    """Whatever stub of a file LMDB had made, packing begins anew."""
    for stub in (b"", b"\0" * 4096, (make_pack(tmp_path / "whole.lmdb") / "data.mdb").read_bytes()[:4096]):
        shutil.rmtree(tmp_path / "p.lmdb", ignore_errors=True)
        write(tmp_path / "p.lmdb", range(1)).close()
        (tmp_path / "p.lmdb" / "data.mdb").write_bytes(stub)
        with pytest.raises(IncompleteStoreError, match="it has no record yet"):
            open_store(tmp_path / "p.lmdb")

        write(tmp_path / "p.lmdb", range(40)).finish()

        assert contents(tmp_path / "p.lmdb") == contents(tmp_path / "whole.lmdb")


def test_changed_source_is_not_resumed(tmp_path: Path) -> None:
    """An unfinished pack of another source is refused, and kept, until overwriting is asked for."""
    write(tmp_path / "p.lmdb", range(30), limits=SMALL_COMMITS).close()

    with pytest.raises(StoreError, match="source was changed"):
        LmdbWriter(str(tmp_path / "p.lmdb"), SCHEMA, "another source")
    with pytest.raises(IncompleteStoreError):
        LmdbStore(tmp_path / "p.lmdb")
    writer = LmdbWriter(str(tmp_path / "p.lmdb"), SCHEMA, "another source", overwrite=True)

    assert writer.committed.records == 0
    writer.discard()


def test_damaged_unfinished_pack_is_not_resumed(tmp_path: Path) -> None:
    """What was committed is checked before it is built on."""
    write(tmp_path / "p.lmdb", range(60), limits=SMALL_COMMITS).close()
    data = tmp_path / "p.lmdb" / "data.mdb"
    content = bytearray(data.read_bytes())
    content[content.index(fields(9)["image"]) + 7] ^= 1
    data.write_bytes(content)

    with pytest.raises(StoreError, match=r"damaged .*overwrite"):
        LmdbWriter(str(tmp_path / "p.lmdb"), SCHEMA, "source", limits=SMALL_COMMITS)


def test_unfinished_pack_with_damaged_structure_says_what_to_do(tmp_path: Path) -> None:
    """What a power failure may leave of an unfinished pack is refused with the way out, and the way out works."""
    write(tmp_path / "p.lmdb", range(200), limits=SMALL_COMMITS).close()
    os.truncate(tmp_path / "p.lmdb" / "data.mdb", 200_000)

    with pytest.raises(StoreFormatError, match=r"truncated.*--overwrite"):
        LmdbWriter(str(tmp_path / "p.lmdb"), SCHEMA, "source", limits=SMALL_COMMITS)
    LmdbWriter(str(tmp_path / "p.lmdb"), SCHEMA, "source", overwrite=True).discard()

    assert list(tmp_path.iterdir()) == []


def test_finished_pack_is_not_touched(tmp_path: Path) -> None:
    """A finished pack is refused unless overwriting is asked for, and stays as it is, without a lock left behind."""
    pack = make_pack(tmp_path / "p.lmdb")
    before = contents(pack)

    with pytest.raises(ArgumentError, match="finished pack of 40 records"):
        LmdbWriter(str(pack), SCHEMA, "source")

    assert contents(pack) == before


def test_overwriting_leaves_readers_their_pack(tmp_path: Path) -> None:
    """Whoever had the old pack open keeps the bytes it has seen: the new one is another file."""
    pack = make_pack(tmp_path / "p.lmdb")
    with LmdbStore(pack) as store:
        blob = store.read([7])[0].fields["image"]
        writer = LmdbWriter(str(pack), SCHEMA, "source", overwrite=True)
        writer.append(writer.prepare("other", {"image": b"other", "label": 0}))
        writer.finish()

        assert bytes(blob) == fields(7)["image"]
    with LmdbStore(pack) as store:
        assert list(store.keys()) == ["other"]


def test_folder_of_others_is_not_touched(tmp_path: Path) -> None:
    """A folder with any other file in it is refused, also with overwrite, and nothing in it changes."""
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter1.tex").write_text("precious")

    with pytest.raises(StoreFormatError, match=r"chapter1.tex.*nothing was changed"):
        LmdbWriter(str(folder), SCHEMA, "source", overwrite=True)

    assert contents(folder) == {"chapter1.tex": b"precious"}


def test_data_file_of_others_is_not_touched(tmp_path: Path) -> None:
    """A data.mdb that is no pack of ours is refused, also with overwrite."""
    folder = tmp_path / "p.lmdb"
    folder.mkdir()
    (folder / "data.mdb").write_bytes(b"someone's database" * 10_000)

    with pytest.raises(StoreFormatError, match="nothing was changed"):
        LmdbWriter(str(folder), SCHEMA, "source", overwrite=True)

    assert contents(folder) == {"data.mdb": b"someone's database" * 10_000}


def test_second_writer_is_refused(tmp_path: Path) -> None:
    """Two writers on one pack: the second is refused, the first goes on."""
    first = write(tmp_path / "p.lmdb", range(20))

    with pytest.raises(StoreError, match="another process is writing here"):
        LmdbWriter(str(tmp_path / "p.lmdb"), SCHEMA, "source")

    first.finish()
    with LmdbStore(tmp_path / "p.lmdb") as store:
        assert len(store) == 20


def test_full_disk_is_said_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the next commit does not fit, the error says so and what is safe; with room, packing goes on."""
    whole = contents(make_pack(tmp_path / "whole.lmdb", 60, SMALL_COMMITS))
    writer = write(tmp_path / "p.lmdb", range(30), limits=SMALL_COMMITS)
    committed = writer.committed.records
    usage = namedtuple("usage", "total used free")  # noqa: PYI024  # the shape of shutil's own
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 5, 5))

    with pytest.raises(StoreError, match=rf"disk is full.* 5 are free; {committed} records"):
        writer.finish()
    writer.close()
    monkeypatch.undo()
    write(tmp_path / "p.lmdb", range(60), limits=SMALL_COMMITS).finish()

    assert contents(tmp_path / "p.lmdb") == whole


def test_write_error_of_the_system_is_named(tmp_path: Path) -> None:
    """A write that the system refuses (here: a limit on file sizes) is an error, and what was committed stays."""
    program = """
import resource, signal, sys
from pathlib import Path
from penstock.errors import StoreError
from tests.stores.lmdb_pack.packs import SMALL_COMMITS, write
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
try:
    write(Path(sys.argv[1]), range(120), limits=SMALL_COMMITS)
except StoreError as error:
    print(error.message)
"""
    root = Path(__file__).resolve().parents[3]

    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "p.lmdb"], cwd=root, capture_output=True, text=True, check=True
    )
    write(tmp_path / "p.lmdb", range(120), limits=SMALL_COMMITS).finish()

    assert "could not write" in done.stdout
    assert contents(tmp_path / "p.lmdb") == contents(make_pack(tmp_path / "whole.lmdb", 120, SMALL_COMMITS))


def test_map_grows_as_needed(tmp_path: Path) -> None:
    """A map that is too small is doubled until the commit fits, without losing or repeating a record."""
    limits = CommitLimits(records=1000, nbytes=1 << 30, map_nbytes=1 << 16)

    pack = make_pack(tmp_path / "p.lmdb", 200, limits)

    with LmdbStore(pack) as store:
        assert [record.key for record in store.read(range(200))] == [key(index) for index in range(200)]


@pytest.mark.parametrize("bad", ["", "x" * 512, "é" * 256, "\udcff"])
def test_key_that_lmdb_cannot_hold_is_refused(tmp_path: Path, bad: str) -> None:
    """An empty key, one of more than 511 bytes, or one that is not Unicode is refused when it is prepared."""
    writer = LmdbWriter(str(tmp_path / "p.lmdb"), SCHEMA, "source")

    with pytest.raises(PackError, match=r"1 to 511 bytes|must be valid UTF-8"):
        writer.prepare(bad, fields(0))
    writer.discard()


@pytest.mark.parametrize("given", [{"image": b""}, {"label": 1}, {}])
def test_missing_field_is_refused(tmp_path: Path, given: dict[str, Any]) -> None:
    """A record that lacks a field of the schema is refused, the field named."""
    writer = LmdbWriter(str(tmp_path / "p.lmdb"), SCHEMA, "source")

    with pytest.raises(PackError, match=r"no field '(label|image)'"):
        writer.prepare("key", given)
    writer.discard()


def test_array_of_another_kind_is_refused(tmp_path: Path) -> None:
    """An array that cannot become the field's kind without loss of meaning is refused."""
    schema = Schema({"ids": Field("int32[*]")})
    writer = LmdbWriter(str(tmp_path / "p.lmdb"), schema, "source")

    with pytest.raises(PackError, match="'ids' must be of kind int32"):
        writer.prepare("key", {"ids": [0.5]})
    writer.discard()


def test_equal_keys_are_kept(tmp_path: Path) -> None:
    """Shards of a dataset may number their records alike: each keeps its key, its number and its fields."""
    writer = LmdbWriter(str(tmp_path / "p.lmdb"), SCHEMA, "source")
    keys = ["same" if index % 2 else f"key {index}" for index in range(2000)]
    for index, name in enumerate(keys):
        writer.append(writer.prepare(name, fields(index)))
    writer.finish()

    with LmdbStore(tmp_path / "p.lmdb") as store:
        assert list(store.keys()) == keys
        assert [store.read([index])[0].key for index in (0, 1, 777, 1999)] == [keys[0], "same", "same", "same"]
        assert all(
            is_equal(record.fields[name], fields(index)[name])
            for index, record in enumerate(store.read(range(len(keys))))
            for name in SCHEMA.fields
        )
    assert verify(tmp_path / "p.lmdb").ok


def test_skipped_records_are_kept_in_the_pack(tmp_path: Path) -> None:
    """What was left out is written down, in the order of the source, also over a resume."""
    pack = tmp_path / "p.lmdb"
    writer = LmdbWriter(str(pack), SCHEMA, "source", limits=CommitLimits(records=2))
    writer.append(writer.prepare("a", fields(1)))
    writer.skip(Skipped("b", "empty"))
    writer.append(writer.prepare("c", fields(2)))
    writer.close()

    writer = LmdbWriter(str(pack), SCHEMA, "source", limits=CommitLimits(records=2))
    assert writer.committed.consumed == 3
    writer.finish([Skipped("notes.txt", "no image")])

    with LmdbStore(pack) as store:
        assert list(store.meta.skipped) == [Skipped("b", "empty"), Skipped("notes.txt", "no image")]


def test_discarding_removes_everything(tmp_path: Path) -> None:
    """A pack that is given up for good leaves not even its folder."""
    write(tmp_path / "p.lmdb", range(30), limits=SMALL_COMMITS).discard()

    assert list(tmp_path.iterdir()) == []


def test_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A destination below a file is an error that names it."""
    (tmp_path / "file").write_bytes(b"")

    for name in ("file", "file/p.lmdb", "file/a/p.lmdb"):
        with pytest.raises(StoreError, match=r"cannot write here: .*/file is a file, and must be a folder") as caught:
            LmdbWriter(str(tmp_path / name), SCHEMA, "source")
        assert caught.value.where["store"].endswith(name)


@pytest.mark.parametrize("name", ["pack.lock", "data.mdb", "pages.xxh3", "pages.xxh3.tmp", "lock.mdb"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_links_are_not_followed_to_write(tmp_path: Path, name: str, *, overwrite: bool) -> None:
    """A folder that came from elsewhere has nothing written where its links lead; overwriting removes the links."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    write(tmp_path / "p.lmdb", range(30), limits=SMALL_COMMITS).close()
    if name == "data.mdb":
        shutil.copy(tmp_path / "p.lmdb" / name, victim)
    before = victim.read_bytes()
    (tmp_path / "p.lmdb" / name).unlink(missing_ok=True)
    (tmp_path / "p.lmdb" / name).symlink_to(victim)

    if overwrite and name != "pack.lock":
        writer = LmdbWriter(str(tmp_path / "p.lmdb"), SCHEMA, "source", overwrite=True)
        writer.append(writer.prepare(key(0), fields(0)))
        writer.finish()
        assert not any(entry.is_symlink() for entry in (tmp_path / "p.lmdb").iterdir())
    else:
        with pytest.raises(StoreError, match="symbolic link"):
            LmdbWriter(str(tmp_path / "p.lmdb"), SCHEMA, "source", overwrite=overwrite)

    assert victim.read_bytes() == before


@pytest.mark.parametrize("what", ["fifo", "folder", "bytes"])
def test_a_lock_that_is_none_is_a_store_error(tmp_path: Path, what: str) -> None:
    """Whatever lies in the place of the lock's file; bytes that are no text are another source's."""
    write(tmp_path / "p.lmdb", range(30), limits=SMALL_COMMITS).close()
    lock = tmp_path / "p.lmdb" / "pack.lock"
    if what == "bytes":
        lock.write_bytes(b"\xff\xfe")
        write(tmp_path / "p.lmdb", range(40), limits=SMALL_COMMITS).finish()
        return
    lock.unlink()
    if what == "fifo":
        os.mkfifo(lock)
    else:
        lock.mkdir()

    with pytest.raises(StoreError, match="cannot write here"):
        LmdbWriter(str(tmp_path / "p.lmdb"), SCHEMA, "source")


@pytest.mark.parametrize("overwrite", [False, True])
def test_discarding_keeps_what_others_put_there(tmp_path: Path, *, overwrite: bool) -> None:
    """A folder with a file of somebody else's stays, with that file alone, and nothing is raised."""
    writer = LmdbWriter(str(tmp_path / "p.lmdb"), SCHEMA, "source", overwrite=overwrite)
    writer.append(writer.prepare(key(0), fields(0)))
    (tmp_path / "p.lmdb" / "notes.txt").write_text("mine")

    writer.discard()

    assert [entry.name for entry in (tmp_path / "p.lmdb").iterdir()] == ["notes.txt"]
    with pytest.raises(StoreFormatError, match="other files"):  # and the lock was given back
        LmdbWriter(str(tmp_path / "p.lmdb"), SCHEMA, "source")
    (tmp_path / "p.lmdb" / "notes.txt").unlink()
    write(tmp_path / "p.lmdb", range(2)).finish()


def test_what_cannot_be_discarded_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The error that made a pack be discarded is not replaced by one of discarding it."""
    writer = LmdbWriter(str(tmp_path / "p.lmdb"), SCHEMA, "source")

    def refuse(self: Path, *, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "unlink", refuse)
    writer.discard()
    monkeypatch.undo()

    assert "cannot be removed: Permission denied" in caplog.text
    assert str(tmp_path / "p.lmdb") in caplog.text
    write(tmp_path / "p.lmdb", range(2)).finish()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("label", 2**63), ("label", -(2**63) - 1), ("label", 2**64), ("label", []), ("label", "cat"),
        ("label", float("nan")), ("label", float("inf")), ("weight", "heavy"), ("weight", 10**400), ("weight", []),
        ("vector", [1.0]), ("vector", np.zeros((1, 4))), ("vector", 1.0), ("vector", [[1, 2], [3]]), ("vector", "abcd"),
        ("boxes", np.zeros((2, 5), np.float32)), ("boxes", np.zeros(4, np.float32)),
    ],
)  # fmt: skip
def test_values_of_another_kind_are_refused(tmp_path: Path, field: str, value: Any) -> None:
    """With the field and what was given; a pack is never written that its own readers refuse."""
    kinds = {"label": "label", "weight": "float", "vector": "float32[4]", "boxes": "boxes"}
    schema = Schema({name: Field(kind) for name, kind in kinds.items()})
    given = {"label": 1, "weight": 0.5, "vector": [1, 2, 3, 4.0], "boxes": [], field: value}
    writer = LmdbWriter(str(tmp_path / "p.lmdb"), schema, "source")

    with pytest.raises(PackError, match=f"field '{field}' must be of kind {re.escape(kinds[field])}"):
        writer.prepare("one", given)


def test_an_empty_list_of_boxes_has_no_boxes(tmp_path: Path) -> None:
    """An image without objects has boxes of shape (0, 4), also in packs that were written with shape (0,)."""
    schema = Schema({"boxes": Field("boxes"), "points": Field("keypoints"), "any": Field("int32[*]")})
    writer = LmdbWriter(str(tmp_path / "p.lmdb"), schema, "source")
    writer.append(writer.prepare("one", {"boxes": [], "points": [], "any": np.zeros(0, np.int32)}))
    writer.finish()

    with LmdbStore(tmp_path / "p.lmdb") as store:
        got = store.read([0])[0].fields

    assert [got[name].shape for name in ("boxes", "points", "any")] == [(0, 4), (0, 2), (0,)]


@pytest.mark.parametrize(
    "give", [bytes, memoryview, lambda held: memoryview(held).toreadonly(), np.frombuffer, bytearray]
)
def test_buffer_that_is_filled_anew_does_not_change_what_was_prepared(tmp_path: Path, give: Any) -> None:
    """A large blob is kept uncopied until the commit only where nobody can write to it."""
    images = [bytes([number]) * 20_000 for number in range(3)]
    held = bytearray(20_000)
    writer = LmdbWriter(tmp_path / "p.lmdb", Schema({"image": Field("image")}), "source")
    for number, image in enumerate(images):
        held[:] = image
        value = np.frombuffer(held, np.uint8).data if give is np.frombuffer else give(held)
        writer.append(writer.prepare(str(number), {"image": value}))
    writer.finish()

    with LmdbStore(tmp_path / "p.lmdb") as store:
        assert [bytes(record.fields["image"]) for record in store.read(range(3))] == images


def test_blob_is_kept_uncopied_only_where_little_else_stays_in_memory(tmp_path: Path) -> None:
    """Bytes, most of a byte string, and any part of a mapped file are kept; a small part of a byte string is copied."""
    (tmp_path / "file").write_bytes(bytes(200_000))
    with (tmp_path / "file").open("rb") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    whole = bytes(200_000)
    stored = open_source(tmp_path / "file").read(1000, 20_000)
    codec = RecordCodec(Schema({"image": Field("image")}))

    for image in (whole, memoryview(whole)[:150_000], mapped[:20_000], stored):
        assert codec.encode("key", {"image": image}).blobs[0] is image
    for image in (memoryview(whole)[:20_000], memoryview(bytearray(20_000)).toreadonly()):
        assert type(codec.encode("key", {"image": image}).blobs[0]) is bytes


def test_hashes_of_a_file_of_several_parts_are_those_of_its_pages(tmp_path: Path) -> None:
    """The file is read in parts of 1 MiB; each page has its hash, also at their bounds and in the last part."""
    writer = LmdbWriter(tmp_path / "p.lmdb", Schema({"image": Field("image")}), "source")
    for number in range(30):
        writer.append(writer.prepare(str(number), {"image": np.random.default_rng(number).bytes(100_000)}))
    writer.finish()
    content = (tmp_path / "p.lmdb" / "data.mdb").read_bytes()
    stored = np.frombuffer((tmp_path / "p.lmdb" / "pages.xxh3").read_bytes(), "<u8", offset=32)

    assert len(content) > 2 << 20
    assert stored.tolist() == [xxhash.xxh3_64_intdigest(content[at : at + 4096]) for at in range(0, len(content), 4096)]
