"""Packs of small records of fixed size: their bytes, reading, damage, resuming, and what other versions say of them."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import (
    ArgumentError,
    CorruptRecordError,
    PackError,
    PenstockError,
    RecordIndexError,
    StoreFormatError,
)
from penstock.pixel_rows import PixelRows
from penstock.sample import Field, Schema
from penstock.stores.base import Skipped
from penstock.stores.common.lmdb.pages import HASHES
from penstock.stores.lmdb_pack.blocks import MAX_ROW_NBYTES, BlockLayout, ParsedBlock, pack_block
from penstock.stores.lmdb_pack.meta import PackMeta
from penstock.stores.lmdb_pack.page_hashes import PageHashFile
from penstock.stores.lmdb_pack.store import LmdbStore
from penstock.stores.lmdb_pack.writer import LmdbWriter
from penstock.stores.origin import ORIGIN_FILE
from tests.effort import choose_tries
from tests.stores.lmdb_pack.patches import (
    COUNT,
    OFTEN,
    SCHEMA,
    make_fields,
    make_patches,
    names,
    number_keys,
    write_batches,
)


def contents(pack: Path) -> dict[str, bytes]:
    """The bytes of each file of a pack, but for the note that says what it was made from."""
    return {entry.name: entry.read_bytes() for entry in pack.iterdir() if entry.name != ORIGIN_FILE}


def assert_holds(store: LmdbStore, fields: dict[str, Any], keys: list[str]) -> None:
    """The store holds these records and no others, however it is read."""
    assert len(store) == len(keys)
    assert list(store.keys()) == keys
    order = np.random.default_rng(1).permutation(len(keys))
    for record in store.read(order):
        assert record.key == keys[record.index]
        for name in store.schema.fields:
            np.testing.assert_array_equal(record.fields[name], fields[name][record.index])
            assert np.asarray(record.fields[name]).dtype == fields[name].dtype
    for name in store.schema.fields:
        if store.schema[name].pixels is not None:
            np.testing.assert_array_equal(np.stack(list(store.pixels(name, order))), fields[name][order])
            np.testing.assert_array_equal(np.stack(store.blobs(name, order)), fields[name][order])
        else:
            np.testing.assert_array_equal(store.column(name), fields[name])
            assert not store.column(name).flags.writeable


@pytest.mark.parametrize("make_keys", [number_keys, names])
@pytest.mark.parametrize("count", [1, 2, 271, COUNT])
def test_what_is_packed_is_read(tmp_path: Path, count: int, make_keys: Callable[[int], list[str]]) -> None:
    """Every field, key and number, in any order, one by one, at once and as a column."""
    pack = make_patches(tmp_path / "p.lmdb", count, make_keys)

    with LmdbStore(pack) as store:
        assert_holds(store, make_fields(count), make_keys(count))
    report = ps.verify(pack)
    assert report.ok
    assert report.records == count


@pytest.mark.parametrize("kind", ["uint8[1,1,1]", "uint8[5,7,4]", "uint16[3,2,1]", "float32[4,4,2]", "float32[1,1,3]"])
@pytest.mark.parametrize("small", [{}, {"label": "label"}, {"a": "int8[3]", "b": "float64[2]"}])
def test_any_fixed_kinds_are_aligned(tmp_path: Path, kind: str, small: dict[str, str]) -> None:
    """Arrays of records are aligned, wherever their record is, as libraries assume."""
    schema = Schema({"image": Field(f"pixels:{kind}"), **{name: Field(each) for name, each in small.items()}})
    writer = LmdbWriter(tmp_path / "p.lmdb", schema, "source")
    rng = np.random.default_rng(3)
    fields: dict[str, Any] = {}
    for name, field in schema.fields.items():
        array = field.pixels or field.array
        if array is None:
            fields[name] = np.arange(9)
        else:
            assert array.shape is not None
            fields[name] = rng.integers(0, 100, (9, *array.shape)).astype(array.dtype)
    writer.append_batch(writer.prepare_batch(number_keys(9), fields))
    writer.finish()

    with LmdbStore(tmp_path / "p.lmdb") as store:
        assert store.meta.block_records
        assert_holds(store, fields, number_keys(9))
        for record in store.read(range(9)):
            assert all(value.flags.aligned for value in record.fields.values() if isinstance(value, np.ndarray))
        assert all(image.flags.aligned for image in store.pixels("image", range(9)))


def test_tiny_records_take_little_more_than_their_bytes(tmp_path: Path) -> None:
    """At most 1.1 times the bytes of 12 x 12 x 3 pixels and a label, columns, checksums and page hashes included."""
    schema = Schema({"image": Field("pixels:uint8[12,12,3]"), "label": Field("label")})
    pack = make_patches(tmp_path / "p.lmdb", 20_000, schema=schema)

    nbytes = sum(entry.stat().st_size for entry in pack.iterdir())

    assert nbytes <= 1.1 * 20_000 * (432 + 8)


def test_pixels_are_places_in_the_map(tmp_path: Path) -> None:
    """No object for each image is made: buffer, offsets and a shape; slices and single images are views of it."""
    with LmdbStore(make_patches(tmp_path / "p.lmdb")) as store:
        rows = store.pixels("image", np.array([5, 600, 5]))

    assert isinstance(rows, PixelRows)
    assert len(rows) == 3
    images = make_fields()["image"]
    np.testing.assert_array_equal(rows[1], images[600])
    np.testing.assert_array_equal(rows[1:][1], images[5])
    np.testing.assert_array_equal(rows.take(np.array([2]))[0], images[5])
    assert not rows[0].flags.writeable


def test_rows_of_small_arrays_are_read_at_once(tmp_path: Path) -> None:
    """rows() gives the arrays of many records as one; numbers have columns, and pixels are no small arrays."""
    fields = make_fields()
    with LmdbStore(make_patches(tmp_path / "p.lmdb")) as store:
        indices = np.array([699, 0, 300, 0])

        np.testing.assert_array_equal(store.rows("box", indices), fields["box"][indices])
        np.testing.assert_array_equal(store.rows("flags", indices), fields["flags"][indices])
        assert store.rows("label", indices) is None
        with pytest.raises(ArgumentError, match="must hold pixels"):
            store.pixels("box", indices)


@pytest.mark.parametrize("index", [-1, COUNT, 2**40, -(2**62)])
def test_index_outside_is_refused(tmp_path: Path, index: int) -> None:
    """By every way of reading, as a list and as an array."""
    with LmdbStore(make_patches(tmp_path / "p.lmdb")) as store:
        for indices in ([0, index], np.array([0, index])):
            for read in (store.read, lambda i: store.pixels("image", i), lambda i: store.rows("box", i)):
                with pytest.raises(RecordIndexError, match=f"index {index} is outside"):
                    read(indices)


def test_batches_and_single_records_make_the_same_bytes(tmp_path: Path) -> None:
    """However records are appended, the pack is the same."""
    fields, keys = make_fields(), names(COUNT)
    write_batches(tmp_path / "one.lmdb", fields, keys, batch=1000).finish()
    write_batches(tmp_path / "two.lmdb", fields, keys, batch=7).finish()
    writer = LmdbWriter(tmp_path / "three.lmdb", SCHEMA, "source", limits=OFTEN)
    for at, key in enumerate(keys):
        values: dict[str, Any] = {name: each[at] for name, each in fields.items()}
        values["label"], values["score"] = int(values["label"]), float(values["score"])
        writer.append(writer.prepare(key, values))
    writer.finish()

    assert contents(tmp_path / "one.lmdb") == contents(tmp_path / "two.lmdb") == contents(tmp_path / "three.lmdb")


@settings(max_examples=settings().max_examples // 8)
@given(stops=st.lists(st.integers(0, COUNT), max_size=4).map(sorted), batch=st.integers(1, 400))
def test_interrupted_pack_resumes_to_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, stops: list[int], batch: int
) -> None:
    """A pack given up after any records, any number of times, ends with the bytes of one that never stopped."""
    folder = tmp_path_factory.mktemp("packs")
    fields, keys = make_fields(), names(COUNT)
    write_batches(folder / "whole.lmdb", fields, keys).finish()
    for stop in stops:
        write_batches(folder / "p.lmdb", fields, keys, stop=stop, batch=batch).close()

    write_batches(folder / "p.lmdb", fields, keys, batch=batch).finish()

    assert contents(folder / "p.lmdb") == contents(folder / "whole.lmdb")


def test_skipped_entries_are_counted_when_a_pack_is_resumed(tmp_path: Path) -> None:
    """Source records that were left out are not read again, and those after the last block are."""
    fields, keys = make_fields(), number_keys(COUNT)

    def write(stop: int) -> LmdbWriter:
        writer = LmdbWriter(tmp_path / "p.lmdb", SCHEMA, "source", limits=OFTEN)
        for at in range(writer.committed.consumed, stop):
            if at % 100 == 7:
                writer.skip(Skipped(keys[at], "it is bad"))
            else:
                part = {name: values[at : at + 1] for name, values in fields.items()}
                writer.append_batch(writer.prepare_batch([keys[at]], part))
        return writer

    write(330).close()
    resumed = write(COUNT)
    resumed.finish()

    kept = [at for at in range(COUNT) if at % 100 != 7]
    with LmdbStore(tmp_path / "p.lmdb") as store:
        assert_holds(store, {name: values[kept] for name, values in fields.items()}, [keys[at] for at in kept])
        assert [entry.key for entry in store.skipped] == [keys[at] for at in range(7, COUNT, 100)]


def test_equal_keys_are_kept(tmp_path: Path) -> None:
    """Also where one of them is the number of a record in another block."""
    for wrong in ("3.jpg", "650"):
        keys = names(COUNT) if wrong == "3.jpg" else number_keys(COUNT)
        keys[10] = wrong
        keys[3] = "3.jpg"
        write_batches(tmp_path / f"{wrong}.lmdb", make_fields(), keys).finish()

        with LmdbStore(tmp_path / f"{wrong}.lmdb") as store:
            assert_holds(store, make_fields(), keys)
        assert ps.verify(tmp_path / f"{wrong}.lmdb").ok


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("image", np.zeros((2, 12, 12, 3), np.uint16)), ("image", np.zeros((2, 12, 13, 3), np.uint8)),
        ("image", [np.zeros((12, 12, 3), np.uint8), np.zeros((12, 12, 1), np.uint8)]),
        ("image", [b"jpeg", b"jpeg"]), ("image", [np.zeros((12, 12, 3), np.uint8), None]),
        ("label", np.array([0.5, 1])), ("label", ["a", "b"]), ("label", np.array([1 << 63, 0], np.uint64)),
        ("label", np.zeros((2, 1), np.int64)), ("label", [1, 1 << 70]), ("score", np.array(["x", "y"])),
        ("box", np.zeros((2, 5), np.float32)), ("box", np.zeros((2, 4), np.complex64)), ("flags", [None, [1, 0, 0]]),
        ("flags", np.zeros((2, 3), np.float32)), ("box", np.zeros((3, 4), np.float32)),
        ("box", np.full((2, 4), 1e300)), ("box", np.full((2, 4), 2**24 + 1)), ("label", [1, 2.5]),
        ("score", np.array([2**53 + 1, 0])), ("score", [0.5, 2**53 + 1]), ("score", [0.5, "1.5"]),
    ],
)  # fmt: skip
def test_values_of_another_kind_are_refused(tmp_path: Path, field: str, values: Any) -> None:
    """With the field; nothing is converted silently, and nothing is written."""
    writer = LmdbWriter(tmp_path / "p.lmdb", SCHEMA, "source")

    with pytest.raises(PackError, match=f"field '{field}'"):
        writer.prepare_batch(["a", "b"], {**make_fields(2), field: values})


def test_missing_fields_and_wrong_keys_are_refused(tmp_path: Path) -> None:
    """A batch has every field, and keys that LMDB could hold."""
    writer = LmdbWriter(tmp_path / "p.lmdb", SCHEMA, "source")
    fields = make_fields(1)

    with pytest.raises(PackError, match="no field 'box'"):
        writer.prepare_batch(["a"], {name: values for name, values in fields.items() if name != "box"})
    with pytest.raises(PackError, match="no field 'image'"):
        writer.prepare("a", {})
    for key in ("", "a" * 512, "\udc80"):
        with pytest.raises(PackError, match="key"):
            writer.prepare_batch([key], fields)


def test_a_record_without_a_value_is_read_as_it_was(tmp_path: Path) -> None:
    """None in a record; -1 or NaN in a column and among rows; records beside it are not changed."""
    fields = make_fields(300)
    listed = {name: list(values) for name, values in fields.items()}
    listed["label"][17] = listed["score"][17] = listed["box"][280] = None
    writer = LmdbWriter(tmp_path / "p.lmdb", SCHEMA, "source")
    writer.append_batch(writer.prepare_batch(names(300), listed))
    writer.finish()

    with LmdbStore(tmp_path / "p.lmdb") as store:
        record = store[17]
        assert record.fields["label"] is None
        assert record.fields["score"] is None
        np.testing.assert_array_equal(record.fields["box"], fields["box"][17])
        assert store[280].fields["box"] is None
        assert store[16].fields["label"] == fields["label"][16]
        assert store.column("label")[17] == -1
        assert np.isnan(store.column("score")[17])
        rows = store.rows("box", np.array([280, 281]))
        assert rows is not None
        assert np.isnan(rows[0]).all()
        np.testing.assert_array_equal(rows[1], fields["box"][281])
    assert ps.verify(tmp_path / "p.lmdb").ok


def test_larger_or_varying_records_are_entries_of_their_own(tmp_path: Path) -> None:
    """Blocks are for small records of fixed size."""
    assert BlockLayout.of(Schema({"image": Field("pixels:uint8[64,64,1]")})) is not None
    for fields in (
        {"image": "pixels:uint8[64,65,1]"},
        {"image": "pixels:uint8[*,12,3]"},
        {"image": "pixels:uint8[12,12,3]", "caption": "text"},
        {"image": "pixels:uint8[12,12,3]", "boxes": "boxes"},
        {"image": "pixels:uint8[12,12,3]", "photo": "image"},
        {"label": "label"},
    ):
        assert BlockLayout.of(Schema({name: Field(kind) for name, kind in fields.items()})) is None
    assert MAX_ROW_NBYTES == 4096


@pytest.mark.parametrize("kind", ["pixels:uint8[*,*,3]", "pixels:uint16[*,5,1]", "pixels:float32[70,70,4]"])
def test_pixels_of_any_size_are_read(tmp_path: Path, kind: str) -> None:
    """Height and width are stored with each image where they vary; arrays are read-only and aligned."""
    schema = Schema({"caption": Field("text"), "image": Field(kind)})
    pixels = schema["image"].pixels
    assert pixels is not None
    rng = np.random.default_rng(4)
    shapes = [[each[0] if each else 1 + i * 3 for each in pixels.axes] for i in range(7)]
    images = [rng.integers(0, 255, shape).astype(pixels.dtype) for shape in shapes]
    writer = LmdbWriter(tmp_path / "p.lmdb", schema, "source")
    for i, image in enumerate(images):
        writer.append(writer.prepare(f"{i}", {"image": image, "caption": "x" * i}))
    writer.finish()

    with LmdbStore(tmp_path / "p.lmdb") as store:
        for image, record, blob in zip(images, store, store.blobs("image", range(7)), strict=True):
            for value in (record.fields["image"], blob):
                np.testing.assert_array_equal(value, image)
                assert value.dtype == image.dtype
                assert not value.flags.writeable
                assert value.flags.aligned
    assert ps.verify(tmp_path / "p.lmdb").ok


def test_stored_sizes_that_lie_are_damage(tmp_path: Path) -> None:
    """The lengths of pixels are compared with the number of bytes and the kind, whatever the checksums say."""
    image = np.zeros((3, 4, 3), np.uint8)
    for wrong in (
        b"\xff\xff\xff\xff\x04\0\0\0",
        b"\x03\0\0\0\x05\0\0\0",
        b"\0\0\0\0\x04\0\0\0",
        b"\x02\0\0\0\x04\0\0\0",
        b"",
        b"\x03\0\0\0\x04\0\0\0\0\0\0\0",
        b"\x03\0\0\0\x04\0\0\0\xff\xff\xff\xff",
    ):
        schema = Schema({"image": Field(f"pixels:uint8[*,4,{'*' if len(wrong) == 12 else 3}]")})
        pack = tmp_path / f"{wrong.hex() or 'short'}.lmdb"
        writer = LmdbWriter(pack, schema, "source")
        prepared: Any = writer.prepare("a", {"image": image})
        [(key, value, small)] = prepared
        codec = writer._entries._codec  # type: ignore[attr-defined]  # to write what no writer writes
        stored = wrong + bytes(value.begin[-36:]) if wrong else b"\0"
        fake = {"image": stored}
        codec._pack_blob = lambda name, given: given  # as above
        writer.append([(key, codec.encode("a", fake), small)])
        writer.finish()

        with LmdbStore(pack) as store, pytest.raises(CorruptRecordError, match="field 'image'"):
            store.read([0])


def test_version_1_is_still_written_and_read(tmp_path: Path) -> None:
    """Packs of encoded images keep the version that older readers know; these refuse those of blocks and more."""
    old = PackMeta(Schema({"image": Field("image"), "label": Field("label")}))
    new = PackMeta(SCHEMA, block_records=10)
    mixed = PackMeta(Schema({"image": Field("pixels:uint8[*,*,*]")}))

    assert b'"version": 1' in old.to_bytes()
    assert b"block_records" not in old.to_bytes()
    assert b'"version": 2' in new.to_bytes()
    assert b'"version": 3' in mixed.to_bytes()
    content = new.to_bytes().replace(b'"version": 2', b'"version": 4')
    with pytest.raises(StoreFormatError, match="must be one of 1, 2, 3, got 4: install the version"):
        PackMeta.from_bytes(content, xxhash.xxh3_64_digest(content))


def rewrite(pack: Path, change: Callable[[bytearray], None]) -> None:
    """Change the bytes of a pack, as a new file (the old one may be mapped)."""
    file = pack / "data.mdb"
    content = bytearray(file.read_bytes())
    change(content)
    file.unlink()
    file.write_bytes(content)


def flip(pack: Path, byte: int, bit: int = 0) -> None:
    """Flip one bit."""

    def change(content: bytearray) -> None:
        content[byte] ^= 1 << bit

    rewrite(pack, change)


def find(pack: Path, content: bytes) -> int:
    """The place of some bytes that are in the file once."""
    data = (pack / "data.mdb").read_bytes()
    assert data.count(content) == 1
    return data.index(content)


@pytest.mark.parametrize("make_keys", [number_keys, names])
def test_a_flipped_bit_names_its_record_alone(tmp_path: Path, make_keys: Callable[[int], list[str]]) -> None:
    """Other records of the block are read; `verify` names the record and its page."""
    pack = make_patches(tmp_path / "p.lmdb", make_keys=make_keys)
    fields, keys = make_fields(), make_keys(COUNT)
    flip(pack, find(pack, fields["image"][300].tobytes()) + 7, 3)

    with LmdbStore(pack) as store:
        for read in (store.read, lambda i: store.pixels("image", i), lambda i: store.rows("box", i)):
            with pytest.raises(
                CorruptRecordError, match="record 300 is damaged: its checksum does not match"
            ) as caught:
                read([299, 300])
            assert caught.value.where["index"] == 300
            assert caught.value.where["key"] == keys[300]
        np.testing.assert_array_equal(store[301].fields["image"], fields["image"][301])
        np.testing.assert_array_equal(store.column("label"), fields["label"])
        with pytest.raises(CorruptRecordError, match="record 300"):
            store.column("box")
    problems = ps.verify(pack).problems
    assert [(problem.index, problem.key) for problem in problems] == [(300, keys[300])]
    with LmdbStore(pack, check=False) as store:
        assert (store[300].fields["image"] != fields["image"][300]).sum() == 1


def test_a_flipped_bit_in_a_key_names_its_record(tmp_path: Path) -> None:
    """Keys are under the checksum of their record."""
    pack = make_patches(tmp_path / "p.lmdb", make_keys=names)
    flip(pack, find(pack, b"291.jpg"))

    with LmdbStore(pack) as store, pytest.raises(CorruptRecordError, match="record 291"):
        store.read(range(280, COUNT))
    assert [problem.index for problem in ps.verify(pack).problems] == [291]


@pytest.mark.tries
def test_every_flipped_bit_is_an_error_or_harmless(tmp_path: Path) -> None:
    """At places all over the file: what is read is right, or an error of ours; `verify` finds each of them."""
    pack = make_patches(tmp_path / "whole.lmdb", make_keys=names)
    fields = make_fields()
    nbytes = (pack / "data.mdb").stat().st_size
    draw = random.Random(7)
    places = [*range(0, 8192, 97), *(draw.randrange(nbytes) for _ in range(60))]
    draw.shuffle(places)
    places = places[: choose_tries(len(places))]
    for byte in places:
        shutil.rmtree(tmp_path / "p.lmdb", ignore_errors=True)
        shutil.copytree(pack, tmp_path / "p.lmdb")
        flip(tmp_path / "p.lmdb", byte, draw.randrange(8))
        with contextlib.suppress(PenstockError), LmdbStore(tmp_path / "p.lmdb") as store:
            for index in range(0, COUNT, 5):
                np.testing.assert_array_equal(store[index].fields["image"], fields["image"][index])
        assert not ps.verify(tmp_path / "p.lmdb").ok


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    """Of a sealed pack at once when it is opened."""
    pack = make_patches(tmp_path / "p.lmdb")
    content = (pack / "data.mdb").read_bytes()
    for length in (0, 100, 4096, len(content) // 2, len(content) - 4096, len(content) - 1):
        (pack / "data.mdb").unlink()
        (pack / "data.mdb").write_bytes(content[:length])

        with pytest.raises(PenstockError):
            LmdbStore(pack)


def reseal(pack: Path) -> None:
    """Make the hashes of the pages those of the file as it is."""
    PageHashFile.write(pack, "data.mdb").replace(pack / HASHES)


LAYOUT = BlockLayout.of(SCHEMA)
assert LAYOUT is not None
ROWS = np.zeros((3, LAYOUT.nbytes), np.uint8)
HASHES_OF_ROWS = np.zeros(3, np.uint64)
BLOCK, _ = pack_block(0, ROWS, HASHES_OF_ROWS, [b"a", b"bb", b"c"], np.zeros((3, 1), np.uint8))


@given(st.data())
def test_any_bytes_are_a_block_or_a_value_error(data: st.DataObject) -> None:
    """The parser of blocks trusts no length: it gives a block or a ValueError, and so do keys and none bits."""
    assert LAYOUT is not None
    content = bytearray(BLOCK)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, 60) | st.integers(0, len(content) - 1))
        content[at : at + 4] = data.draw(st.binary(min_size=0, max_size=6))
    count = data.draw(st.sampled_from([3, 1, 2**31]))

    try:
        block = ParsedBlock.parse(LAYOUT, memoryview(bytes(content)), 0, count)
        assert len(block.rows()) == 3
        block.is_intact()
        for position in range(3):
            block.is_row_intact(position)
            block.nones(position)
            block.key(position)
    except ValueError:
        pass


def test_a_damaged_block_under_valid_seals_is_refused(tmp_path: Path) -> None:
    """Whoever wrote the hashes of the pages anew: a block whose header lies is an error that names its first record."""
    pack = make_patches(tmp_path / "p.lmdb")
    at = find(pack, make_fields()["image"][0].tobytes())
    begin = (pack / "data.mdb").read_bytes().rindex(b"PSB\x01", 0, at)
    for offset, wrong in ((0, b"XXXX"), (4, b"\xff\xff\xff\xff"), (8, b"\xff\xff\xff\x7f"), (12, b"\x01\0\0\0")):
        changed = tmp_path / f"{offset}.lmdb"
        shutil.copytree(pack, changed)

        def change(content: bytearray, offset: int = offset, wrong: bytes = wrong) -> None:
            content[begin + offset : begin + offset + 4] = wrong

        rewrite(changed, change)
        reseal(changed)

        with LmdbStore(changed) as store:
            with pytest.raises(CorruptRecordError, match=r"record 5 is damaged: .*block") as caught:
                store.read([COUNT - 1, 5])
            assert caught.value.where["index"] == 5
        assert not ps.verify(changed).ok


@pytest.mark.parametrize("wrong", [-1, 0, 1, 3, 10**9, 2.5, None, "270"])
def test_a_description_that_lies_about_blocks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: Any
) -> None:
    """No number of records in a block is trusted: opening or reading is an error of ours, in bounded memory."""
    as_written = PackMeta.to_bytes

    def lie(self: PackMeta) -> bytes:
        value = {None: "null", "270": '"270"'}.get(wrong, wrong)
        text = as_written(self).decode()
        at = text.index('"block_records": ')
        return (text[:at] + f'"block_records": {value}' + text[text.index("}", at) :]).encode()

    monkeypatch.setattr(PackMeta, "to_bytes", lie)
    pack = make_patches(tmp_path / "p.lmdb")
    monkeypatch.undo()

    with pytest.raises(PenstockError), LmdbStore(pack) as store:
        store.read(range(COUNT))
    assert not ps.verify(pack).ok


def test_bools_that_are_none_are_damage(tmp_path: Path) -> None:
    """A byte other than 0 and 1 in a bool array is refused, since NumPy's results would be undefined."""
    pack = make_patches(tmp_path / "p.lmdb")
    fields = make_fields()
    with LmdbStore(pack, check=False) as store:
        layout = BlockLayout.of(store.schema)
        assert layout is not None
        at = find(pack, fields["image"][4].tobytes()) - layout.offset("image") + layout.offset("flags")
    flip(pack, at, 6)

    with LmdbStore(pack, check=False) as store:
        for read in (store.read, lambda i: store.rows("flags", i)):
            with pytest.raises(CorruptRecordError, match=r"record 4 .*bool"):
                read([3, 4])


def test_a_pickled_store_and_a_forked_child_read_the_same(tmp_path: Path) -> None:
    """The offsets that a process has found are its own."""
    fields = make_fields()
    with LmdbStore(make_patches(tmp_path / "p.lmdb")) as store:
        store.read([0])
        with pickle.loads(pickle.dumps(store)) as again:
            np.testing.assert_array_equal(again[650].fields["image"], fields["image"][650])
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(send, bytes(store[650].fields["image"][0, 0]))
            os._exit(0)
        os.close(send)
        with io.FileIO(receive) as pipe:
            assert pipe.read() == bytes(fields["image"][650][0, 0])
        os.waitpid(child, 0)
