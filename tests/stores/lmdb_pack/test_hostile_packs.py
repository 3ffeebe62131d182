"""Packs made to harm whoever reads them: every checksum holds, and what is behind it is anything at all.

Each pack is opened, read in every way, described, indexed and verified. What comes of it is a record as it was stored,
or an error of ours that names the store; never another exception, never more memory than the pack's size explains.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]  # ships no types
import numpy as np
import pytest
import xxhash

import penstock as ps
from penstock.errors import (
    ArgumentError,
    CorruptRecordError,
    StoreError,
    StoreFormatError,
    StoreNotFoundError,
)
from penstock.sample import SampleKeys
from penstock.sheets import info
from penstock.stores.lmdb_pack.format import encode_column
from penstock.stores.lmdb_pack.store import LmdbStore
from tests.stores.lmdb_pack.crafted import COUNT, SCHEMA, Crafted, array, fill, seal, use


def npy(header: str, content: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    """A ``.npy`` file of any header."""
    text = header.encode("latin-1") + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H" if version[0] == 1 else "<I", len(text)) + text + content


def zipped() -> bytes:
    """A ``.npz`` archive."""
    file = io.BytesIO()
    np.savez(file, np.arange(COUNT))
    return file.getvalue()


def bomb() -> bytes:
    """A zip archive that unpacks to much more."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("arr_0.npy", bytes(1 << 22))
    return file.getvalue()


def objects() -> bytes:
    """An array of objects, whose reading would run what is pickled in it."""
    file = io.BytesIO()
    np.save(file, np.array([print] * COUNT, object), allow_pickle=True)
    return file.getvalue()


GOOD = "{'descr': '<i8', 'fortran_order': False, 'shape': (5,), }"
COLUMN_BYTES: dict[str, bytes] = {
    "empty": b"",
    "magic alone": b"\x93NUMPY\x01\x00",
    "zip": zipped(),
    "zip bomb": bomb(),
    "broken zip": b"PK\x03\x04" + bytes(40),
    "pickle": pickle.dumps(np.arange(COUNT)),
    "objects": objects(),
    "huge shape": npy(GOOD.replace("(5,)", f"({1 << 40},)"), bytes(40)),
    "shape beyond int64": npy(GOOD.replace("(5,)", f"({10**30},)"), bytes(40)),
    "shape whose product wraps": npy(GOOD.replace("(5,)", f"({1 << 62}, 8, 5)"), bytes(40)),
    "negative shape": npy(GOOD.replace("(5,)", "(-5,)"), bytes(40)),
    "two axes": npy(GOOD.replace("(5,)", "(5, 1)"), bytes(40)),
    "no axis": npy(GOOD.replace("(5,)", "()"), bytes(8)),
    "true as a shape": npy(GOOD.replace("(5,)", "(True,)"), bytes(8)),
    "other count": encode_column(np.arange(COUNT + 1)),
    "other dtype": encode_column(np.arange(COUNT, dtype=np.int32)),
    "text": encode_column(np.array(["a"] * COUNT)),
    "structured": encode_column(np.zeros(COUNT, [("a", "<i8")])),
    "subarrays": npy("{'descr': ('<i8', (1,)), 'fortran_order': False, 'shape': (5,), }", bytes(40)),
    "cut": encode_column(np.arange(COUNT))[:-1],
    "longer": encode_column(np.arange(COUNT)) + b"\0",
    "deep header": npy("(" * 3000 + ")" * 3000),
    "deeper header": npy("[" * 60_000),
    "deep signs": npy("-" * 9000 + "1"),
    "no closing": npy("{'descr': '<i8'"),
    "indented": npy("  \n 1\n2"),
    "unhashable": npy("{[]: 1}"),
    "not a dict": npy("[]"),
    "code": npy("__import__('os').getpid()"),
    "version 9": npy(GOOD, bytes(40), b"\x09\x09"),
    "header beyond the end": b"\x93NUMPY\x02\x00\xff\xff\xff\x7f{",
    "old Python": npy(GOOD.replace("(5,)", "(5L,)"), bytes(40)),
}


MOST_NBYTES = 128 << 20
"""Far more than any of these packs should take, far less than what they ask for."""


@pytest.mark.parametrize("name", COLUMN_BYTES)
def test_columns_that_are_none_are_refused(tmp_path: Path, name: str) -> None:
    """With the field's name; nothing is unpickled, unzipped, evaluated or allocated by what a header says."""
    crafted = Crafted()
    crafted.columns["label"] = COLUMN_BYTES[name]
    pack = crafted.write(tmp_path / "p.lmdb")

    tracemalloc.start()
    try:
        with LmdbStore(pack) as store, pytest.raises(CorruptRecordError, match="column of field 'label' is damaged"):
            store.column("label")
        use(pack)
        assert tracemalloc.get_traced_memory()[1] < MOST_NBYTES
    finally:
        tracemalloc.stop()
    assert any("'label' is damaged" in problem.reason for problem in ps.verify(pack).problems)


@pytest.mark.parametrize(
    "content",
    [
        *(npy(GOOD + " " * 50, np.arange(COUNT).tobytes(), bytes([version, 0])) for version in (1, 2, 3)),
        encode_column(np.arange(COUNT, dtype=">i8")),
    ],
    ids=["version 1", "version 2", "version 3", "big-endian"],
)
def test_a_column_of_numpy_is_read(tmp_path: Path, content: bytes) -> None:
    """What NumPy saves, in its own layout of the header, is what is read; read-only."""
    crafted = Crafted()
    crafted.columns["label"] = content
    with LmdbStore(crafted.write(tmp_path / "p.lmdb")) as store:
        column = store.column("label")

    assert column.tolist() == list(range(COUNT))
    assert not column.flags.writeable


def meta_of(crafted: Crafted, **changes: Any) -> Crafted:
    """A pack whose description says other things."""
    crafted.meta = changes
    return crafted


def field_of(kind: str) -> Crafted:
    """A pack whose field ``vector`` is of another kind than what is stored."""
    return Crafted({**SCHEMA, "vector": {"kind": kind}})


def text_of(content: bytes) -> Crafted:
    """A pack whose description is another text."""
    crafted = Crafted()
    crafted.meta_bytes = lambda _: content
    return crafted


def named_twice() -> Crafted:
    """A pack whose schema has one name twice."""
    crafted = Crafted()
    crafted.meta_bytes = lambda content: content.replace(b'"caption"', b'"label"')
    return crafted


REFUSED: dict[str, Callable[[], Crafted]] = {
    "deep nesting": lambda: text_of(b"[" * 200_000),
    "deep nesting of objects": lambda: text_of(b'{"a":' * 200_000),
    "a number of ten thousand digits": lambda: text_of(
        b'{"format": "penstock-lmdb", "version": 1, "count": ' + b"9" * 10_000
    ),
    "a list": lambda: text_of(b"[]"),
    "nothing": lambda: text_of(b""),
    "no text": lambda: text_of(b"\xff\xfe\x00\xd8"),
    "count is NaN": lambda: meta_of(Crafted(), count=float("nan")),
    "count is infinite": lambda: meta_of(Crafted(), count=float("inf")),
    "count is negative": lambda: meta_of(Crafted(), count=-1),
    "count is a text": lambda: meta_of(Crafted(), count=str(COUNT)),
    "count is true": lambda: meta_of(Crafted(), count=True),
    "count is a fraction": lambda: meta_of(Crafted(), count=COUNT + 0.5),
    "count is huge": lambda: meta_of(Crafted(), count=1 << 62),
    "nbytes is negative": lambda: meta_of(Crafted(), nbytes=-1),
    "nbytes is no number": lambda: meta_of(Crafted(), nbytes=[]),
    "columns is a list": lambda: meta_of(Crafted(), columns=[]),
    "a column of no field": lambda: meta_of(Crafted(), columns={"more": "00"}),
    "a column of images": lambda: meta_of(Crafted(), columns={"image": "00"}),
    "skipped of one": lambda: meta_of(Crafted(), skipped=[["a"]]),
    "skipped of three": lambda: meta_of(Crafted(), skipped=[["a", "b", "c"]]),
    "skipped of numbers": lambda: meta_of(Crafted(), skipped=[[1, 2]]),
    "skipped of texts": lambda: meta_of(Crafted(), skipped=["ab"]),
    "skipped of half characters": lambda: meta_of(Crafted(), skipped=[["\ud800", "b"]]),
    "no schema": lambda: meta_of(Crafted(), schema=None),
    "an empty schema": lambda: meta_of(Crafted(), schema={}),
    "a schema of lists": lambda: meta_of(Crafted(), schema={"image": []}),
    "a kind that is no text": lambda: meta_of(Crafted(), schema={"image": {"kind": 5}}),
    "classes that are a text": lambda: meta_of(Crafted(), schema={"label": {"kind": "label", "classes": "abc"}}),
    "classes that are numbers": lambda: meta_of(Crafted(), schema={"label": {"kind": "label", "classes": [1]}}),
    "classes of half characters": lambda: meta_of(
        Crafted(), schema={"label": {"kind": "label", "classes": ["\ud800"]}}
    ),
    "a name twice": named_twice,
    "seventy thousand fields": lambda: meta_of(Crafted(), schema={f"f{i}": {"kind": "image"} for i in range(70_000)}),
    "an array of more bytes than a record": lambda: field_of("float64[100000,100000]"),
    "an array whose size wraps": lambda: field_of(f"float32[{1 << 32},{1 << 32}]"),
    "an array of endless digits": lambda: field_of(f"float32[{'9' * 5000}]"),
    "an array of many axes": lambda: field_of(f"float32[{','.join('1' * 100)}]"),
    "an array of other digits": lambda: field_of("float32[٣]"),
    "a kind with a line behind it": lambda: field_of("float32[4]\n"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_descriptions_that_mean_nothing_are_refused(tmp_path: Path, name: str) -> None:
    """When the pack is opened, with the store's name, and in bounded memory."""
    pack = REFUSED[name]().write(tmp_path / "p.lmdb")

    tracemalloc.start()
    try:
        with pytest.raises(StoreError) as caught:
            LmdbStore(pack)
        assert caught.value.where["store"] == f"lmdb://{pack}"
        assert use(pack)
        assert tracemalloc.get_traced_memory()[1] < MOST_NBYTES
    finally:
        tracemalloc.stop()
    assert not ps.verify(pack).ok


def with_small(at: int, value: Any) -> Crafted:
    """A pack whose record 3 has another value in one place of its small fields."""
    crafted = Crafted()
    crafted.small[3][at] = value
    return crafted


def raw_small(content: bytes) -> Crafted:
    """A pack whose record 3 has other bytes as its small fields."""
    crafted = Crafted()
    crafted.small[3] = content
    return crafted


WRONG_RECORDS: dict[str, Callable[[], Crafted]] = {
    "a number": lambda: raw_small(msgpack.packb(5)),
    "a mapping": lambda: raw_small(msgpack.packb({"a": 1})),
    "nil": lambda: raw_small(msgpack.packb(None)),
    "a text": lambda: raw_small(msgpack.packb("1234567")),
    "no field": lambda: raw_small(msgpack.packb([])),
    "a field too few": lambda: raw_small(msgpack.packb(Crafted().small[3][:-1])),
    "a field too many": lambda: raw_small(msgpack.packb([*Crafted().small[3], 1])),
    "bytes behind it": lambda: raw_small(msgpack.packb(Crafted().small[3]) + b"\0"),
    "deep nesting": lambda: raw_small(b"\x91" * 100_000),
    "nested lists of claimed lengths": lambda: raw_small(b"\xdd\x00\x10\x00\x00" * 400_000),
    "a length beyond the end": lambda: raw_small(b"\xdd\xff\xff\xff\xff"),
    "bytes of a length beyond the end": lambda: raw_small(b"\xc6\xff\xff\xff\xff"),
    "a timestamp": lambda: with_small(1, msgpack.Timestamp(5)),
    "a key that is a number": lambda: with_small(0, 5),
    "a key that is a list": lambda: with_small(0, [1]),
    "a label that is a text": lambda: with_small(1, "1"),
    "a label that is true": lambda: with_small(1, True),
    "a label that is a fraction": lambda: with_small(1, 1.0),
    "a label that is a list": lambda: with_small(1, [1]),
    "a weight that is a number": lambda: with_small(2, 1),
    "a caption that is bytes": lambda: with_small(3, b"a"),
    "a vector of one": lambda: with_small(4, array([1])),
    "a vector of no axis": lambda: with_small(4, array(1)),
    "a vector of two axes": lambda: with_small(4, array([[1, 2, 3, 4]])),
    "a vector of five": lambda: with_small(4, array([1, 2, 3, 4, 5])),
    "a vector of doubles": lambda: with_small(4, array([1, 2, 3, 4], "<f8")),
    "a vector of any length": lambda: with_small(4, [[-1], bytes(16)]),
    "a vector without a shape": lambda: with_small(4, [None, bytes(16)]),
    "a vector of a text as shape": lambda: with_small(4, ["4", bytes(16)]),
    "a vector of text": lambda: with_small(4, [[4], "0123456789abcdef"]),
    "a vector of nothing": lambda: with_small(4, [[4], None]),
    "a vector of one part": lambda: with_small(4, [[4]]),
    "a vector of three parts": lambda: with_small(4, [[4], bytes(16), 0]),
    "a vector cut short": lambda: with_small(4, [[4], bytes(15)]),
    "boxes of five numbers": lambda: with_small(5, array([[0, 0, 1, 1, 9]])),
    "boxes of one axis": lambda: with_small(5, array([0, 0, 1, 1])),
    "boxes of a negative number": lambda: with_small(5, [[-1, 4], bytes(16)]),
    "boxes of a fraction": lambda: with_small(5, [[1.0, 4], bytes(16)]),
    "boxes of true": lambda: with_small(5, [[True, 4], bytes(16)]),
    "boxes of endless number": lambda: with_small(5, [[2**63, 4], b""]),
    "boxes of more than there are": lambda: with_small(5, [[2**40, 4], bytes(16)]),
    "booleans that are others": lambda: with_small(6, [[2], b"\x02\xff"]),
}


@pytest.mark.parametrize("name", WRONG_RECORDS)
def test_records_that_are_not_of_their_schema_are_refused(tmp_path: Path, name: str) -> None:
    """Each by its index and key, whichever way it is read; the other records are read."""
    pack = WRONG_RECORDS[name]().write(tmp_path / "p.lmdb")

    tracemalloc.start()
    try:
        with LmdbStore(pack) as store:
            with pytest.raises(CorruptRecordError, match="record 3 is damaged") as caught:
                store.read(range(COUNT))
            assert [record.fields["label"] for record in store.read([0, 1, 2, 4])] == [0, 1, 0, 0]
        use(pack)
        assert tracemalloc.get_traced_memory()[1] < MOST_NBYTES
    finally:
        tracemalloc.stop()
    assert caught.value.where == {"store": f"lmdb://{pack}", "key": "3.jpg", "index": 3}
    assert [problem.index for problem in ps.verify(pack).problems] == [3]


@pytest.mark.parametrize("value", [array([7]), array([[1, 2, 3, 4]])])
def test_a_small_array_is_never_broadcast(tmp_path: Path, value: list[Any]) -> None:
    """Filling rows and building samples refuse the same record with the same error."""
    dataset = ps.StoreDataset(LmdbStore(with_small(4, value).write(tmp_path / "p.lmdb")), "vector")
    keys = SampleKeys(0, 0, np.arange(COUNT))

    with pytest.raises(CorruptRecordError, match=r"field 'vector' has shape .*float32 of shape \(4,\)") as filled:
        fill(dataset, COUNT)
    with pytest.raises(CorruptRecordError) as built:
        list(dataset.load_samples(range(COUNT), keys))

    assert str(filled.value) == str(built.value)


def test_legitimate_oddities_are_read(tmp_path: Path) -> None:
    """NaN, infinities, the ends of int64, empty arrays and texts, labels without a class: nothing is wrong."""
    crafted = Crafted()
    odd = [
        "3.jpg",
        -(2**63),
        float("nan"),
        "",
        array([np.nan, np.inf, -0.0, 1]),
        array(np.zeros((0, 4))),
        array([], "?"),
    ]
    crafted.small[3] = odd
    crafted.columns["label"] = encode_column(np.array([0, 1, 0, -(2**63), 0]))
    crafted.columns["weight"] = encode_column(np.array([0, 0.5, 1, np.nan, 2]))
    pack = crafted.write(tmp_path / "p.lmdb")

    assert all(isinstance(error, ArgumentError) for error in use(pack))
    assert ps.verify(pack).problems == ()


def tree(pack: Path) -> bytearray:
    """The file's bytes."""
    return bytearray((pack / "data.mdb").read_bytes())


def test_boxes_stored_as_an_empty_list_are_read(tmp_path: Path) -> None:
    """Writers of before stored shape (0,) for an image without objects."""
    with LmdbStore(with_small(5, [[0], b""]).write(tmp_path / "p.lmdb")) as store:
        assert store.read([3])[0].fields["boxes"].shape == (0, 4)


def test_labels_of_any_size_are_counted_in_bounded_memory(tmp_path: Path) -> None:
    """A label need not be near the number of classes."""
    crafted = Crafted()
    crafted.small[3][1] = 2**40
    crafted.columns["label"] = encode_column(np.array([0, 1, 0, 2**40, 0]))

    assert info(crafted.write(tmp_path / "p.lmdb")).classes == {"cat": 3, "dog": 1, str(2**40): 1}


def test_one_long_text_is_no_column_of_long_texts(tmp_path: Path) -> None:
    """A column of text takes the longest text's room for each record: one that would be too large is refused."""
    crafted = Crafted()
    crafted.small[3][3] = "x" * (1 << 20)
    with LmdbStore(crafted.write(tmp_path / "p.lmdb")) as store:
        assert len(store.column("caption")[3]) == 1 << 20
    many = [f"{i}" for i in range(3000)]
    crafted = Crafted({"caption": {"kind": "text"}})
    crafted.count, crafted.blobs = len(many), [[] for _ in many]
    crafted.small = [[f"{i}", "x" * (1 << 20) if i == 7 else "x"] for i in range(len(many))]
    crafted.keys = [(text.encode(), struct.pack(">Q", i)) for i, text in enumerate(many)]

    with (
        LmdbStore(crafted.write(tmp_path / "q.lmdb")) as store,
        pytest.raises(StoreError, match="texts of up to 1048576"),
    ):
        store.column("caption")


@pytest.mark.parametrize("name", ["data.mdb", "pages.xxh3"])
@pytest.mark.parametrize("what", ["fifo", "folder", "device", "loop"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, name: str, what: str) -> None:
    """A FIFO in a pack does not block its readers; without seals a pack is read."""
    pack = Crafted().write(tmp_path / "p.lmdb")
    (pack / name).unlink()
    if what == "fifo":
        os.mkfifo(pack / name)
    elif what == "folder":
        (pack / name).mkdir()
    else:
        (pack / name).symlink_to("/dev/zero" if what == "device" else name)

    errors = use_or_refuse(pack)

    assert (name == "pages.xxh3") == (not errors)
    with contextlib.suppress(StoreNotFoundError):
        assert not ps.verify(pack).ok


def use_or_refuse(pack: Path) -> list[StoreError]:
    """The error of opening, if there is one."""
    try:
        with LmdbStore(pack) as store:
            store.read(range(COUNT))
    except StoreError as error:
        return [error]
    return []


@pytest.mark.parametrize("page_nbytes", [0, 1, 100, 1 << 31, 0xFFFFFFFF])
@pytest.mark.parametrize("count", [0, 1, 13])
def test_seals_of_other_pages_are_refused(tmp_path: Path, page_nbytes: int, count: int) -> None:
    """A page size that no file has is not computed with."""
    pack = Crafted().write(tmp_path / "p.lmdb")
    head = struct.pack("<8sIIQ", b"PSSEAL\x01\n", page_nbytes, 0, count)
    (pack / "pages.xxh3").write_bytes(head + xxhash.xxh3_64_digest(head + bytes(8 * count)) + bytes(8 * count))

    assert all(isinstance(error, ArgumentError) for error in use(pack))
    assert any("pages.xxh3 is damaged" in problem.reason for problem in ps.verify(pack).problems)


def test_a_page_that_many_entries_share_is_read_once(tmp_path: Path) -> None:
    """A value of many pages cannot be given to every record, to be read as often."""
    crafted = Crafted()
    crafted.blobs = [[bytes(50_000)] for _ in range(COUNT)]
    pack = crafted.write(tmp_path / "p.lmdb")
    content = tree(pack)
    with_first = [at for at in range(len(content) - 8) if content[at : at + 8] == struct.pack(">Q", 1)]
    assert with_first
    places = []
    for index in range(COUNT):
        at = next(
            spot for spot in range(len(content) - 16)
            if content[spot : spot + 8] == struct.pack(">Q", index)
            and 2 <= struct.unpack_from("<Q", content, spot + 8)[0] < len(content) // 4096
            and struct.unpack_from("<HHHH", content, spot - 8)[2:] == (1, 8)
        )  # fmt: skip
        places.append(at + 8)
    for place in places[1:]:
        content[place : place + 8] = content[places[0] : places[0] + 8]
    (pack / "data.mdb").write_bytes(content)
    seal(pack)

    report = ps.verify(pack)

    assert any("used twice" in problem.reason for problem in report.problems)


def test_a_folder_in_a_packs_place_is_a_store_error(tmp_path: Path) -> None:
    """Whatever the system says."""
    with pytest.raises(StoreFormatError):
        LmdbStore(_file(tmp_path / "file"))


def _file(path: Path) -> Path:
    path.touch()
    return path
