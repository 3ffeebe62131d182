"""Reading packs: what is read, by whom, and what is refused before anything is mapped."""

from __future__ import annotations

import gc
import os
import shutil
import struct
import subprocess
import sys
import weakref
from pathlib import Path

import lmdb
import numpy as np
import pytest
from PIL import Image

from penstock.errors import (
    CorruptRecordError,
    IncompleteStoreError,
    StoreError,
    StoreFormatError,
    StoreNotFoundError,
)
from penstock.sample import Field, Schema
from penstock.stores import find
from penstock.stores import open as open_store
from penstock.stores.common.lmdb.pages import PageFile
from penstock.stores.lmdb_pack.meta import PackMeta
from penstock.stores.lmdb_pack.store import LmdbStore
from penstock.stores.lmdb_pack.writer import LmdbWriter
from penstock.stores.location import Location
from tests.stores.lmdb_pack.packs import SMALL_COMMITS, fields, key, make_pack, write


def flip(file: Path, byte: int, bit: int = 0) -> None:
    """Flip one bit of a file, as a new file (the old one may be mapped)."""
    content = bytearray(file.read_bytes())
    content[byte] ^= 1 << bit
    file.unlink()
    file.write_bytes(content)


def find_blob(pack: Path, index: int) -> int:
    """The offset of a record's blob in data.mdb."""
    return (pack / "data.mdb").read_bytes().index(fields(index)["image"])


def test_reads_what_was_written(tmp_path: Path) -> None:
    """Every record comes back to the byte, those inside a leaf page and those of several pages."""
    pack = make_pack(tmp_path / "p.lmdb", 300, SMALL_COMMITS)

    with LmdbStore(pack) as store:
        records = store.read(range(300))

    assert [record.key for record in records] == [key(index) for index in range(300)]
    assert [bytes(record.fields["image"]) for record in records] == [fields(i)["image"] for i in range(300)]
    assert [record.fields["label"] for record in records] == [index % 2 for index in range(300)]


def test_pack_is_an_ordinary_lmdb_environment(tmp_path: Path) -> None:
    """LMDB's own library finds the same values under big-endian numbers, and keys, in named databases."""
    pack = make_pack(tmp_path / "p.lmdb", 60, SMALL_COMMITS)
    with lmdb.open(str(pack), readonly=True, lock=False, max_dbs=8) as environment, environment.begin() as transaction:
        records = dict(transaction.cursor(environment.open_db(b"records", transaction, create=False)))
        keys = dict(transaction.cursor(environment.open_db(b"keys", transaction, create=False)))

    assert sorted(records) == [struct.pack(">Q", index) for index in range(60)]
    assert all(records[struct.pack(">Q", index)].endswith(fields(index)["image"]) for index in range(60))
    assert keys == {key(index).encode(): struct.pack(">Q", index) for index in range(60)}


def test_every_kind_of_field_comes_back(tmp_path: Path) -> None:
    """Numbers, text, small arrays of free length and several blobs survive the way through a pack."""
    schema = Schema(
        {
            "image": Field("image"),
            "mask": Field("mask"),
            "boxes": Field("boxes"),
            "points": Field("float64[*,3]"),
            "count": Field("int"),
            "weight": Field("float"),
            "caption": Field("text"),
        }
    )
    given = {
        "image": b"\xff\xd8 not really",
        "mask": b"",
        "boxes": np.array([[1, 2, 3, 4], [5, 6, 7, 8.5]], np.float32),
        "points": np.zeros((0, 3)),
        "count": -(2**62),
        "weight": 0.1,
        "caption": "Grüße, 世界",
    }
    writer = LmdbWriter(str(tmp_path / "p.lmdb"), schema, "source")
    writer.append(writer.prepare("one", given))
    writer.finish()

    with LmdbStore(tmp_path / "p.lmdb") as store:
        got = store.read([0])[0].fields
        columns = {name: store.column(name).tolist() for name in ("count", "weight", "caption")}

    assert list(got["boxes"].shape) == [2, 4]
    assert got["boxes"].dtype == np.float32
    np.testing.assert_array_equal(got["boxes"], given["boxes"])
    assert got["points"].shape == (0, 3)
    assert {name: got[name] for name in ("count", "weight", "caption")} == {
        name: given[name] for name in ("count", "weight", "caption")
    }
    assert (bytes(got["image"]), bytes(got["mask"])) == (given["image"], given["mask"])
    assert columns == {"count": [-(2**62)], "weight": [0.1], "caption": ["Grüße, 世界"]}


def test_pack_may_be_empty(tmp_path: Path) -> None:
    """A pack of no records opens, has no keys and an empty column."""
    pack = make_pack(tmp_path / "p.lmdb", 0)

    with LmdbStore(pack) as store:
        assert (len(store), list(store.keys()), store.column("label").tolist()) == (0, [], [])


@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.5, 0.9, 0.9999])
def test_truncated_file_is_refused_before_it_is_mapped(tmp_path: Path, share: float) -> None:
    """A file cut short is an error that names the sizes, not a killed process."""
    pack = make_pack(tmp_path / "p.lmdb")
    size = (pack / "data.mdb").stat().st_size
    os.truncate(pack / "data.mdb", int(size * share))

    with pytest.raises(StoreFormatError, match=str(int(size * share))) as caught:
        LmdbStore(pack)
    assert "data.mdb" in str(caught.value)


def test_truncated_file_without_seals_is_refused_as_well(tmp_path: Path) -> None:
    """LMDB's own meta page tells how long the file must be, where the seals are missing."""
    pack = make_pack(tmp_path / "p.lmdb")
    (pack / "pages.xxh3").unlink()
    size = (pack / "data.mdb").stat().st_size
    os.truncate(pack / "data.mdb", size - 1)

    with pytest.raises(StoreFormatError, match=f"{size - 1} bytes of {size}"):
        LmdbStore(pack)


def test_pack_without_seals_is_read(tmp_path: Path) -> None:
    """A copy that lost its seals is read all the same: each record has its own checksum."""
    pack = make_pack(tmp_path / "p.lmdb")
    (pack / "pages.xxh3").unlink()

    with LmdbStore(pack) as store:
        assert bytes(store.read([11])[0].fields["image"]) == fields(11)["image"]


def test_file_cut_while_open_is_noticed(tmp_path: Path) -> None:
    """A file that is shortened under the map is refused at the next read; touching it would kill the process."""
    pack = make_pack(tmp_path / "p.lmdb")
    with LmdbStore(pack) as store:
        os.truncate(pack / "data.mdb", 8192)

        with pytest.raises(StoreError, match="changed while this store was open"):
            store.read([30])


def test_file_replaced_while_open_is_noticed(tmp_path: Path) -> None:
    """Another pack put in the place of an open one is refused, not half read."""
    pack = make_pack(tmp_path / "p.lmdb")
    other = make_pack(tmp_path / "other.lmdb", 41)
    with LmdbStore(pack) as store:
        shutil.copy(other / "data.mdb", pack / "new")
        (pack / "new").replace(pack / "data.mdb")

        with pytest.raises(StoreError, match="replaced"):
            store.read([0])


def test_unfinished_pack_is_refused(tmp_path: Path) -> None:
    """A pack that was never finished is not opened; the message says what to do."""
    write(tmp_path / "p.lmdb", range(30), limits=SMALL_COMMITS).close()

    with pytest.raises(IncompleteStoreError, match="pack the same source again"):
        LmdbStore(tmp_path / "p.lmdb")


def test_foreign_environment_is_refused(tmp_path: Path) -> None:
    """An LMDB environment of someone else is recognised as LMDB, and refused as no pack of ours."""
    with (
        lmdb.open(str(tmp_path / "theirs"), map_size=1 << 20) as environment,
        environment.begin(write=True) as transaction,
    ):
        transaction.put(b"sample/0", b"something")

    with pytest.raises(StoreFormatError, match=r"not a pack, and no layout fits.*pickle-index.*sample/0"):
        open_store(tmp_path / "theirs")


def test_foreign_single_file_is_refused(tmp_path: Path) -> None:
    """An LMDB file without a folder is recognised, and refused with what it is."""
    with lmdb.open(str(tmp_path / "theirs.bin"), subdir=False, map_size=1 << 20):
        pass

    with pytest.raises(StoreFormatError, match=r"must be a folder .*, got an LMDB file"):
        open_store(tmp_path / "theirs.bin")


@pytest.mark.parametrize("content", [b"", b"x" * 100, bytes(20_000)], ids=["empty", "text", "zeros"])
def test_file_that_is_not_lmdb_is_refused(tmp_path: Path, content: bytes) -> None:
    """A data.mdb of anything else is refused with its size."""
    (tmp_path / "p.lmdb").mkdir()
    (tmp_path / "p.lmdb" / "data.mdb").write_bytes(content)

    with pytest.raises(StoreFormatError, match=f"{len(content)} bytes"):
        open_store(tmp_path / "p.lmdb")


def test_newer_version_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pack of another version of the format names both versions."""
    as_written = PackMeta.to_bytes
    monkeypatch.setattr(PackMeta, "to_bytes", lambda self: as_written(self).replace(b'"version": 1', b'"version": 9'))
    pack = make_pack(tmp_path / "p.lmdb")

    with pytest.raises(StoreFormatError, match=r"version of the pack's format must be one of 1, 2, 3, got 9"):
        LmdbStore(pack)


def test_flipped_bit_in_a_blob_names_the_record(tmp_path: Path) -> None:
    """A flipped bit in an image's bytes is an error with store, key and index; other records are still read."""
    pack = make_pack(tmp_path / "p.lmdb")
    flip(pack / "data.mdb", find_blob(pack, 9) + 1234)

    with LmdbStore(pack) as store:
        with pytest.raises(CorruptRecordError, match="checksum of its field 'image'") as caught:
            store.read([8, 9])
        assert bytes(store.read([10])[0].fields["image"]) == fields(10)["image"]

    assert caught.value.where == {"store": store.url, "key": key(9), "index": 9}


def test_blob_checksums_can_be_left_out(tmp_path: Path) -> None:
    """With check=False a blob is given as it is; small fields and structure are still checked."""
    pack = make_pack(tmp_path / "p.lmdb")
    flip(pack / "data.mdb", find_blob(pack, 9) + 1234)

    with LmdbStore(pack, check=False) as store:
        assert bytes(store.read([9])[0].fields["image"]) != fields(9)["image"]


def test_flipped_bit_in_a_column_is_found(tmp_path: Path) -> None:
    """Labels come from a column, and a damaged column is refused."""
    pack = make_pack(tmp_path / "p.lmdb", 400)
    column = np.array([index % 2 for index in range(400)], "<i8").tobytes()
    flip(pack / "data.mdb", (pack / "data.mdb").read_bytes().index(column) + 800)

    with LmdbStore(pack) as store, pytest.raises(CorruptRecordError, match="column of field 'label' is damaged"):
        store.column("label")


def test_damaged_structure_never_crashes_and_never_lies(tmp_path: Path) -> None:
    """Any bit flipped in a page of the trees gives an error of ours or the right records: no crash, no wrong record."""
    original = make_pack(tmp_path / "p.lmdb", 60, SMALL_COMMITS)
    content = (original / "data.mdb").read_bytes()
    structure = [at for at in range(0, len(content), 4096) if content[at + 10] & 0b1111 in {1, 2, 8}]
    rng = np.random.default_rng(5)
    victim = tmp_path / "victim.lmdb"
    shutil.copytree(original, victim)
    outcomes = []

    for _ in range(200):
        (victim / "data.mdb").unlink()
        (victim / "data.mdb").write_bytes(content)
        flip(victim / "data.mdb", int(rng.choice(structure)) + int(rng.integers(4096)), int(rng.integers(8)))
        try:
            with LmdbStore(victim) as store:
                got = [(record.key, bytes(record.fields["image"])) for record in store.read(range(len(store)))]
            assert got == [(key(index), fields(index)["image"]) for index in range(60)]
            outcomes.append("right")
        except StoreError:
            outcomes.append("refused")

    assert outcomes.count("refused") > 50


def test_records_exchanged_are_found(tmp_path: Path) -> None:
    """A record that the file gives out under another number does not pass: its checksums are bound to its number."""
    pack = make_pack(tmp_path / "p.lmdb")
    (pack / "pages.xxh3").unlink()
    content = bytearray((pack / "data.mdb").read_bytes())
    with PageFile(pack / "data.mdb", "pack") as pages:
        leaf = next(number for number, _ in pages.nodes(pages.trees()[b"records"]))
    first, second = (content.index(struct.pack(">Q", index), leaf * 4096) + 8 for index in (8, 9))
    content[first : first + 8], content[second : second + 8] = content[second : second + 8], content[first : first + 8]
    (pack / "data.mdb").write_bytes(content)

    with LmdbStore(pack) as store, pytest.raises(CorruptRecordError, match="record 8 is damaged"):
        store.read([8])


def test_missing_folder_is_not_found(tmp_path: Path) -> None:
    """Nothing there is a FileNotFoundError, a folder without data.mdb too when LMDB was asked for."""
    with pytest.raises(StoreNotFoundError):
        open_store(tmp_path / "nothing.lmdb")
    with pytest.raises(StoreNotFoundError):
        open_store(f"lmdb://{tmp_path}")


def test_ending_chooses_the_kind_of_a_new_store(tmp_path: Path) -> None:
    """A store that is not there yet is LMDB, by its ending or by default."""
    assert find(tmp_path / "new.lmdb", to_write=True) == (LmdbStore, Location("lmdb", str(tmp_path / "new.lmdb")))
    assert find(tmp_path / "new", to_write=True)[0] is LmdbStore


def test_a_store_that_is_dropped_is_unmapped_at_once(tmp_path: Path) -> None:
    """No circle of references keeps a map until garbage is collected."""
    store = LmdbStore(make_pack(tmp_path / "p.lmdb"))
    list(store.keys())
    store.read([0])
    held = weakref.ref(store.get_opened().map)

    gc.disable()
    try:
        del store
        assert held() is None
    finally:
        gc.enable()


def test_two_stores_share_one_map(tmp_path: Path) -> None:
    """However often a pack is opened in a process, also through another path, it is mapped once."""
    pack = make_pack(tmp_path / "p.lmdb")
    (tmp_path / "alias.lmdb").symlink_to(pack)

    with LmdbStore(pack) as first, LmdbStore(tmp_path / "alias.lmdb") as second:
        first.read([0])
        second.read([0])
        maps = Path("/proc/self/maps").read_text().count(str(pack / "data.mdb"))

    assert maps == 1


def test_reading_imports_neither_lmdb_nor_torch(tmp_path: Path) -> None:
    """A worker that reads a pack loads no LMDB, no Pillow and no torch."""
    pack = make_pack(tmp_path / "p.lmdb")
    program = (
        "import sys; from penstock.stores import open; open(sys.argv[1]).read([0]);"
        "print([name for name in ('lmdb', 'PIL', 'torch', 'rich') if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", program, str(pack)], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_a_finished_pack_is_used_again_without_lmdb(tmp_path: Path) -> None:
    """`lmdb` is imported where something is written, not before: free-threaded CPython turns its lock on for it."""
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "a.jpg")
    program = (
        "import sys; import penstock as ps; ps.pack(*sys.argv[1:]);"
        "print(len(ps.open(sys.argv[2])), 'lmdb' in sys.modules)"
    )

    command = [sys.executable, "-c", program, str(tmp_path / "photos"), str(tmp_path / "p.lmdb")]
    said = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)]

    assert said == ["1 True\n", "1 False\n"]


def test_read_only_media_are_enough(tmp_path: Path) -> None:
    """Opening and reading write nothing: files that nobody may write, in a folder that nobody may write."""
    pack = make_pack(tmp_path / "p.lmdb")
    before = {entry.name: entry.stat().st_mtime_ns for entry in pack.iterdir()}
    for entry in pack.iterdir():
        entry.chmod(0o444)
    pack.chmod(0o555)

    with LmdbStore(pack) as store:
        store.read([0])

    assert {entry.name: entry.stat().st_mtime_ns for entry in pack.iterdir()} == before


def test_prefetch_reads_nothing_wrong_and_raises_nothing(tmp_path: Path) -> None:
    """Records are the same after they were announced; one in a damaged page is refused where it is read."""
    pack = make_pack(tmp_path / "p.lmdb", 40, SMALL_COMMITS)
    with LmdbStore(pack) as store:
        expected = [bytes(record.fields["image"]) for record in store.read(range(40))]
        leaf = store.get_opened().map._leaves[0]
    damaged = tmp_path / "damaged.lmdb"
    shutil.copytree(pack, damaged)
    flip(damaged / "data.mdb", 4096 * leaf + 20)

    with LmdbStore(pack) as store, LmdbStore(damaged) as broken:
        store.prefetch(np.array([3, 39, 3]))
        store.prefetch([])
        broken.prefetch(range(40))

        assert [bytes(record.fields["image"]) for record in store.read(range(40))] == expected
        with pytest.raises(CorruptRecordError):
            broken.read([0])


@pytest.mark.parametrize(("nbytes", "is_announced"), [(100, False), (20_000, True)])
def test_records_are_read_ahead_if_they_are_large(tmp_path: Path, nbytes: int, *, is_announced: bool) -> None:
    """Records that share their pages with others are not announced one by one."""
    schema = Schema({"image": Field("image")})
    writer = LmdbWriter(str(tmp_path / "p.lmdb"), schema, "test")
    for index in range(8):
        writer.append(writer.prepare(str(index), {"image": bytes(nbytes)}))
    writer.finish()

    with LmdbStore(tmp_path / "p.lmdb") as store:
        assert store.prefetches == is_announced
