"""Tar shards by index: the records of webdataset, in every form of header; damage is an error."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import io
import itertools
import json
import lzma
import pickle
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from webdataset import tariterators

import penstock as ps
from penstock.errors import ArgumentError, CorruptRecordError, PenstockError, StoreError, StoreFormatError
from penstock.sample import Field
from penstock.stores import open as open_store
from penstock.stores.tar.fields import FieldPlan, StoredField
from penstock.stores.tar.format import MemberScan, encode_header, is_metadata, split_name
from penstock.stores.tar.index import scan_shards
from penstock.stores.tar.store import TarStore
from penstock.stores.tar.stream import TarStream

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


def make_tar(files: Iterable[tuple[str, bytes]], form: int = tarfile.PAX_FORMAT, **attributes: Any) -> bytes:
    """An archive that the standard library writes."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as tar:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for attribute, value in attributes.items():
                setattr(member, attribute, value)
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


def write(path: Path, files: Iterable[tuple[str, bytes]], form: int = tarfile.PAX_FORMAT) -> Path:
    """The same, in a file."""
    path.write_bytes(make_tar(files, form))
    return path


def read_webdataset(*contents: bytes) -> list[dict[str, Any]] | None:
    """The samples that webdataset yields, without its own values; None where it raises."""
    sources = [{"url": "u", "stream": io.BytesIO(content)} for content in contents]
    try:
        samples = list(tariterators.group_by_keys(tariterators.tar_file_expander(sources)))
    except (ValueError, tarfile.TarError):
        return None
    return [{name: value for name, value in sample.items() if name != "__url__"} for sample in samples]


def join_parts(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The samples of a shard, where one without a suffix of the last sample of its key is added to that."""
    last: dict[str, dict[str, Any]] = {}
    joined = []
    for sample in samples:
        before = last.get(sample["__key__"])
        if before is None or len(before.keys() & sample.keys()) > 1:
            before = last[sample["__key__"]] = {}
            joined.append(before)
        before.update(sample)
    return joined


def read_index(*contents: bytes) -> list[dict[str, Any]] | None:
    """What our index finds, in the same form; None where it is refused."""
    try:
        index = scan_shards([""] * len(contents), lambda number: memoryview(contents[number]))
    except ValueError:
        return None
    samples: list[dict[str, Any]] = []
    for row, key in enumerate(index.keys):
        sample: dict[str, Any] = {"__key__": key}
        group, shard = index.records[row]
        for suffix, file in zip(index.suffixes[group], range(*index.begins[row : row + 2]), strict=True):
            begin, nbytes = index.files[file]
            sample[suffix] = contents[shard][begin : begin + nbytes]
        samples.append(sample)
    return samples


# ---------------------------------------------------------------- names and headers

NAMES = st.text(st.sampled_from("aB/._é\n0"), max_size=12)
PARTS = st.sampled_from(["a", "b", "A", "__m__", "x.y", "", ".", "é", "0001", "__"])
SUFFIXES = st.sampled_from(["jpg", "JPG", "cls", "seg.png", "json", "", "é", "É", "a.b"])
PATHS = st.builds(
    lambda folders, name, suffix: "/".join([*folders, f"{name}.{suffix}" if suffix is not None else name]),
    st.lists(PARTS, max_size=3),
    PARTS,
    st.one_of(st.none(), SUFFIXES),
)


@given(name=st.one_of(NAMES, PATHS))
@example("a\n.b/c.d")
@example("a/.b.c")
@example("//.x")
@example("/.x")
def test_names_are_split_as_webdataset_does(name: str) -> None:
    """Key and suffix are those of its pattern, and the names that it leaves out are left out."""
    match = re.match(r"^((?:.*/|)[^.]+)[.]([^/]*)$", name)
    left_out = ("/" not in name and name.startswith("__") and name.endswith("__")) or re.match(
        r"__[^/]*__($|/)", name
    ) is not None

    assert split_name(name.encode()) == (None if match is None else (match[1].encode(), match[2].encode()))
    assert is_metadata(name.encode()) == left_out


def test_a_name_of_slashes_is_split_in_bounded_time() -> None:
    """The longest name that is allowed does not take quadratic time."""
    assert split_name(b"/" * 65_000 + b".") == (b"/" * 65_000, b"")
    assert split_name(b"./" * 32_000) is None


@given(
    shards=st.lists(st.lists(st.tuples(PATHS, st.binary(max_size=3)), max_size=7), min_size=1, max_size=2),
    form=st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
@example(shards=[[("0.jpg", b"a"), ("1.jpg", b"b"), ("0.cls", b"0"), ("1.cls", b"1")]], form=tarfile.PAX_FORMAT)
@example(shards=[[("0.jpg", b"a"), ("1.jpg", b"b")], [("0.cls", b"0")]], form=tarfile.PAX_FORMAT)
def test_records_are_those_of_webdataset(shards: list[list[tuple[str, bytes]]], form: int) -> None:
    """Keys, suffixes, bytes, order, and what is refused: as the package has it, but files that lie apart are joined."""
    contents = [make_tar(files, form) for files in shards]
    expected = [read_webdataset(content) for content in contents]

    joined = None if None in expected else [sample for shard in expected for sample in join_parts(shard or [])]
    assert read_index(*contents) == joined


LONG = "d" * 60 + "/" + "é" * 40 + "/"


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_all_headers_of_the_standard_library_are_read(form: int, tmp_path: Path) -> None:
    """Long names, links, folders, devices, global headers: the members are those that tarfile finds."""
    file = io.BytesIO()
    headers = {"comment": "x", "GNU.volume": "y"} if form == tarfile.PAX_FORMAT else None
    with tarfile.open(fileobj=file, mode="w", format=form, pax_headers=headers) as tar:
        for number, (name, kind) in enumerate(
            [
                *(("a.jpg", b"0"), ("a.lnk", b"1"), ("a.sym", b"2"), ("d", b"5"), ("a.dev", b"3"), ("a.fifo", b"6")),
                *((f"{LONG}b.jpg", b"0"), (f"{LONG}b.cls", b"7"), (f"{'x' * 96}.txt", b"0"), ("c.txt", b"\0")),
            ]
        ):
            member = tarfile.TarInfo(name)
            member.type, member.size = kind, number if kind in b"07\0" else 0
            member.linkname = "e" * 150 if form != tarfile.USTAR_FORMAT else "e"
            tar.addfile(member, io.BytesIO(bytes(number)))
    content = file.getvalue()
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        expected = [(member.name, member.offset_data, member.size) for member in tar if member.isreg()]

    scan = MemberScan(lambda at, nbytes: content[at : at + nbytes], len(content))
    found = [(each.name.decode(), each.offset, each.nbytes) for each in scan if not each.problem]

    assert found == expected
    assert scan.has_end


def test_sizes_in_base_256_are_read() -> None:
    """GNU tar writes sizes of 8 GiB and more so."""
    block = bytearray(encode_header(b"a.jpg", 5))
    block[124:136] = b"\x80" + (5).to_bytes(11, "big")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    content = bytes(block) + b"12345".ljust(512, b"\0") + bytes(1024)

    found = list(MemberScan(lambda at, nbytes: content[at : at + nbytes], len(content)))

    assert [(each.name, each.nbytes) for each in found] == [(b"a.jpg", 5)]


@given(
    name=st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=300),
    size=st.one_of(st.integers(0, 5), st.sampled_from([8**11 - 1, 8**11, 2**40])),
)
def test_our_headers_are_read_by_the_standard_library(name: str, size: int) -> None:
    """Name and size of every header that we write, of any length."""
    header = encode_header(name.encode(), size)

    with tarfile.open(fileobj=io.BytesIO(header + bytes(1024)), mode="r:") as tar:
        member = tar.next()
    found = next(iter(MemberScan(lambda at, nbytes: header[at : at + nbytes])))

    assert member is not None
    assert (member.name.rstrip("/"), member.size) == (name.rstrip("/"), size)
    assert (found.name.rstrip(b"/"), found.nbytes) == (name.encode().rstrip(b"/"), size)
    assert found.offset == len(header)


def fix_checksums(content: bytearray) -> None:
    """Make the checksum of each block right that could be a header, so that what it declares is believed."""
    for at in range(0, len(content) - 511, 512):
        if content[at + 257 : at + 262] == b"ustar":
            content[at + 148 : at + 156] = b" " * 8
            content[at + 148 : at + 156] = b"%06o\0 " % sum(content[at : at + 512])


@given(
    changes=st.lists(
        st.tuples(st.integers(0, 511), st.integers(0, 14), st.binary(min_size=1, max_size=12)), max_size=5
    ),
    cut=st.integers(0, 9000),
    form=st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
def test_damaged_shards_give_penstock_errors(changes: list[tuple[int, int, bytes]], cut: int, form: int) -> None:
    """Whatever headers and files say, the store and the stream give records or a PenstockError."""
    array = io.BytesIO()
    np.save(array, np.arange(6, dtype=np.float32).reshape(2, 3))
    files = [
        ("a.jpg", b"1"),
        ("a.npy", array.getvalue()),
        ("a.json", b'{"x": 1}'),
        ("b" * 110 + ".cls", b"1"),
        ("b.txt", b""),
    ]
    content = bytearray(make_tar(files, form))
    for at, block, change in changes:
        content[512 * block + at : 512 * block + at + len(change)] = change
    fix_checksums(content)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.tar"
        path.write_bytes(content[: len(content) - cut])
        with contextlib.suppress(PenstockError), TarStore(path) as store:
            for index in range(len(store)):
                with contextlib.suppress(PenstockError):
                    store.read([index])
            for name in store.schema.small:
                with contextlib.suppress(PenstockError):
                    store.column(name)
        with contextlib.suppress(StoreError):
            list(TarStream(path).records())


def test_truncation_is_an_error_wherever_it_is(tmp_path: Path) -> None:
    """A cut inside a header, a long name or a file is refused; one behind a file is listed, as nothing follows it."""
    content = make_tar([(f"{number:03d}{'x' * 100}.jpg", bytes([number]) * 700) for number in range(3)])
    path = tmp_path / "a.tar"
    ends = {number * 5 * 512 for number in (1, 2, 3)}

    for cut in {*range(1, 9000, 97), *ends, *(end - 324 for end in ends)}:
        path.write_bytes(content[:cut])
        inside = not any(end - 324 <= cut <= end for end in ends)
        if inside and cut < max(ends):
            with pytest.raises(StoreFormatError):
                TarStore(path)
        elif cut in ends:
            with TarStore(path) as store:
                assert len(store) == sorted(ends).index(cut) + 1
                assert "has no end" in store.unreadable[0].reason


def test_a_wrong_checksum_is_an_error_not_the_end(tmp_path: Path) -> None:
    """A flipped bit in a header does not silently end the archive."""
    content = bytearray(make_tar([(f"{number}.jpg", b"1") for number in range(3)], tarfile.USTAR_FORMAT))
    content[1024 + 3] ^= 4
    (tmp_path / "a.tar").write_bytes(content)

    with pytest.raises(StoreFormatError, match="no header of a file at byte 1024: its checksum is wrong"):
        TarStore(tmp_path / "a.tar")
    with pytest.raises(StoreFormatError, match="checksum"):
        list(TarStream(tmp_path / "a.tar").records())


def test_archives_that_follow_one_another_are_reported(tmp_path: Path) -> None:
    """What stands behind the end of an archive is not read, as webdataset does not, and is listed."""
    one = make_tar([("a.jpg", b"1")])
    (tmp_path / "a.tar").write_bytes(one + one)

    with TarStore(tmp_path / "a.tar") as store:
        assert len(store) == 1
        assert "follow the end of the archive" in store.unreadable[0].reason


def test_names_that_are_no_utf_8_have_keys(tmp_path: Path) -> None:
    """Bytes of another encoding are shown by their numbers; records stay apart."""
    blocks = [encode_header(name, 1) + b"1".ljust(512, b"\0") for name in (b"\xe9.jpg", b"\xe8.jpg", b"\xe8.\xe9")]
    (tmp_path / "a.tar").write_bytes(b"".join(blocks) + bytes(1024))

    with open_store(tmp_path / "a.tar") as store:
        assert list(store.keys()) == ["\\xe9", "\\xe8"]
        assert set(store.schema.fields) == {"image"}
        assert "names no field" in store.problems[0].reason
    assert [record.key for record, _ in TarStream(tmp_path / "a.tar").records()] == ["\\xe9", "\\xe8"]


@pytest.mark.parametrize("name", ["webdataset-shards", "webdataset-gnu-tar", "webdataset-gz"])
def test_every_file_of_a_container_is_found(name: str, data_dir: Path, tmp_path: Path) -> None:
    """All fields of archives of webdataset and GNU tar, by index and as a stream: the bytes that went in."""
    folder = data_dir / "foreign" / name
    if not folder.is_dir():
        pytest.skip("no containers")
    expected = json.loads((folder / "expected.json").read_text())
    paths = [str(shutil.copyfile(folder / shard, tmp_path / shard)) for shard in expected["container"]]

    with open_store(paths, cache=tmp_path / "cache") as store:
        records = list(store)
    streamed = [record for record, _ in TarStream(paths).records()]

    assert len(records) == len(streamed) == expected["count"]
    for record, other, entry in zip(records, streamed, expected["records"], strict=True):
        assert record.key == other.key == entry["key"]
        assert record.fields == other.fields
        assert hashlib.sha256(record.fields["image"]).hexdigest() == entry["fields"]["jpg"]
        assert hashlib.sha256(str(record.fields["label"]).encode()).hexdigest() == entry["fields"]["cls"]
        assert hashlib.sha256(json.dumps(record.fields["json"]).encode()).hexdigest() == entry["fields"]["json"]


# ---------------------------------------------------------------- fields


def test_the_image_has_any_suffix(tmp_path: Path) -> None:
    """Records with other formats have one field; a second image of a record keeps its suffix."""
    path = write(tmp_path / "a.tar", [("a.jpg", b"1"), ("b.PNG", b"2"), ("c.webp", b"3"), ("c.seg.png", b"4")])
    pairs = write(tmp_path / "b.tar", [("a.jpg", b"1"), ("a.png", b"2"), ("b.jpg", b"3")])

    with open_store(path) as store:
        assert [bytes(record.fields["image"]) for record in store] == [b"1", b"2", b"3"]
        assert [record.fields["seg.png"] for record in store] == [None, None, b"4"]
        assert list(map(bytes, store.blobs("image", [2, 0]))) == [b"3", b"1"]
        assert store.blobs("seg.png", [0, 2]) == [None, b"4"]
    with open_store(pairs) as store:
        assert [(each.fields["image"], each.fields["png"]) for each in store] == [(b"1", b"2"), (b"3", None)]


def test_fields_are_the_union_of_all_records(tmp_path: Path) -> None:
    """A record that lacks a field has None; in the column, -1."""
    path = write(tmp_path / "a.tar", [("a.jpg", b"1"), ("b.jpg", b"2"), ("b.cls", b" 7\n"), ("c.txt", "é".encode())])

    with open_store(path) as store:
        assert [record.fields["label"] for record in store] == [None, 7, None]
        assert store.column("label").tolist() == [-1, 7, -1]
        assert store.column("txt").tolist() == ["", "", "é"]
        assert store[2].fields["image"] is None


def test_arrays_are_read_without_pickle(tmp_path: Path) -> None:
    """Numbers of one dtype are a field of arrays, of any order in memory; objects stay bytes and are never loaded."""

    def save(array: Any, **options: Any) -> bytes:
        file = io.BytesIO()
        np.save(file, array, **options)
        return file.getvalue()

    arrays = [
        np.arange(6, dtype=">f4").reshape(2, 3),
        np.asfortranarray(np.ones((4, 3), ">f4")),
        np.zeros((0, 3), ">f4"),
    ]
    path = write(
        tmp_path / "a.tar",
        [
            file
            for number, array in enumerate(arrays)
            for file in (
                (f"{number}.npy", save(array)),
                (f"{number}.o.npy", save(np.array([{}], object), allow_pickle=True)),
            )
        ],
    )

    with open_store(path) as store:
        assert store.schema["npy"] == Field("float32[*,3]")
        assert store.schema["o.npy"] == Field("bytes")
        for record, array in zip(store, arrays, strict=True):
            np.testing.assert_array_equal(record.fields["npy"], array)
            assert record.fields["npy"].dtype.isnative
            assert not record.fields["npy"].flags.writeable


@pytest.mark.parametrize(
    ("suffix", "content", "reason"),
    [
        ("cls", b"cat", "invalid literal"),
        ("cls", b"9" * 30, "64 bits"),
        ("txt", b"\xff", "decode"),
        ("json", b"{", "Expecting"),
        ("json", b"[" * 100_000, "nested too deeply"),
    ],
)
def test_values_that_are_none_are_errors_of_their_record(
    suffix: str, content: bytes, reason: str, tmp_path: Path
) -> None:
    """Store, key and index are named; other records can be read."""
    path = write(tmp_path / "a.tar", [(f"a.{suffix}", b"1"), (f"b.{suffix}", content)])

    with open_store(path) as store:
        store.read([0])
        with pytest.raises(CorruptRecordError, match=reason) as caught:
            store.read([1])
    assert caught.value.where == {"store": store.url, "key": "b", "index": 1}


def test_two_files_of_a_suffix_are_an_error(tmp_path: Path) -> None:
    """As in webdataset; the key is named."""
    path = write(tmp_path / "a.tar", [("a.jpg", b"1"), ("b.jpg", b"1"), ("b.JPG", b"2")])

    with pytest.raises(CorruptRecordError, match="got 'jpg' twice") as caught:
        open_store(path)
    assert caught.value.where == {"key": "b", "index": 1, "store": f"tar://{path}"}


def test_names_with_dots_are_told(tmp_path: Path) -> None:
    """Thousands of suffixes are file names with dots: they are no records, and refused with the option that helps."""
    path = write(tmp_path / "a.tar", [(f"photo.{number}.jpg", b"1") for number in range(1100)])
    other = write(tmp_path / "b.tar", [(f"{number}.{number}.jpg", b"1") for number in range(1100)])

    for shards in (path, other):
        with pytest.raises(StoreError, match=r"1000 (files|suffixes), .* dotted_keys=True"):
            open_store(shards)
    with pytest.raises(StoreError, match=r"1000 files, .* dotted_keys=True"):
        TarStream(path).schema  # noqa: B018
    with open_store(path, dotted_keys=True) as store:
        assert (len(store), store[7].key) == (1100, "photo.7")


DAYS = [(f"2024.05.{day:02}.{suffix}", b"%d" % day) for day in range(1, 29) for suffix in ("jpg", "cls")]


@pytest.mark.parametrize(
    "files",
    [
        [("1.jpg", b"1"), ("1.2.jpg", b"1")],
        [("a.jpg", b"1"), ("a.cls", b"1"), ("b.v2.jpg", b"1"), ("b.v2.cls", b"1")],
        [("trip.jpg", b"1"), *((f"trip.{name}.jpg", b"1") for name in "abcdefghi")],
        [("1.jpg", b"1"), *((f"1.2024.{day}.jpg", b"1") for day in range(28))],
    ],
)
def test_a_record_of_several_names_with_dots_is_warned_of(tmp_path: Path, files: list[tuple[str, bytes]]) -> None:
    """What looks like several files whose names have dots is said, with the options that settle it."""
    path = write(tmp_path / "a.tar", files)

    with pytest.warns(UserWarning, match="dotted_keys=True") as caught:
        count = len(open_store(path))
    assert caught[0].filename == __file__
    with open_store(path, dotted_keys=False) as store:
        assert len(store) == count
    with open_store(path, dotted_keys=True) as store:
        names = [name.rpartition(".")[0] for name, _ in files]
        assert list(store.keys()) == list(dict.fromkeys(names))
        assert [record.key for record, _ in TarStream(path, dotted_keys=True).records()] == list(store.keys())


@pytest.mark.parametrize("files", [DAYS, DAYS[::2], [(f"trip.{name}.jpg", b"1") for name in "abcdefghi"]])
def test_images_that_fit_equally_are_refused_with_the_options(tmp_path: Path, files: list[tuple[str, bytes]]) -> None:
    """Of names with dots, each of which may be the image: the name of one, none, or keys up to the last dot."""
    path = write(tmp_path / "a.tar", files)
    names = [name.rpartition(".")[0] for name, _ in files]

    for opening in (open_store, lambda path: TarStream(path).schema):
        with pytest.raises(ArgumentError, match=r"may be the image; say image='.*dotted_keys=True"):
            opening(path)
    with open_store(path, dotted_keys=True) as store:
        assert list(store.keys()) == list(dict.fromkeys(names))
        assert [record.key for record, _ in TarStream(path, dotted_keys=True).records()] == list(store.keys())
    with open_store(path, dotted_keys=False, image="") as store:
        assert "image" not in store.schema


def test_one_of_several_images_is_stated(tmp_path: Path) -> None:
    """By its name, with or without its type; "" is none; a mask is one if it is stated."""
    views = ["1.left.jpg", "1.right.jpg", "1.mask.png", "2.left.png", "2.right.jpg"]
    path = write(tmp_path / "a.tar", [(name, name.encode()) for name in views])

    for image, first, others in (
        ("left", views[0], {"right.jpg": "image", "mask.png": "mask"}),
        ("right.jpg", views[1], {"left.jpg": "image", "mask.png": "mask", "left.png": "image"}),
        ("mask", views[2], {"left.jpg": "image", "right.jpg": "image", "left.png": "image"}),
        ("", "", {"left.jpg": "image", "right.jpg": "image", "mask.png": "mask", "left.png": "image"}),
    ):
        with open_store(path, image=image) as store:
            kinds = {name: field.kind for name, field in store.schema.fields.items()}
            assert kinds == ({"image": "image"} if image else {}) | others
            assert [bytes(each or b"") for each in store.blobs("image", [0])] == [first.encode()] if image else True
    with pytest.raises(ArgumentError, match=r"image must name one of 'left', 'right', 'mask', got 'top'"):
        open_store(path, image="top")
    stream = TarStream(path, image="right")
    assert next(pickle.loads(pickle.dumps(stream)).records())[0].fields["image"] == b"1.right.jpg"
    assert stream.fingerprint() != TarStream(path).fingerprint()


@pytest.mark.parametrize(
    "files",
    [
        ["1.jpg", "1.left.jpg", "1.right.jpg", "2.jpg", "2.left.jpg", "2.right.jpg"],
        ["1.jpg", "1.seg.png", "2.seg.png", "2.boxes.npy"],
        ["1.jpg", "1.2", "2.jpg"],
    ],
)
def test_usual_suffixes_with_dots_are_not_warned_of(tmp_path: Path, files: list[str]) -> None:
    """Several views, masks and arrays of a sample are what such suffixes are for."""
    with open_store(write(tmp_path / "a.tar", [(name, b"1") for name in files])) as store:
        assert len(store) == 2


def test_a_stream_of_names_with_dots_is_the_same_in_workers(tmp_path: Path) -> None:
    """The option goes to other processes, and tells a stream from one without it; without it, it is warned of."""
    path = write(tmp_path / "a.tar", DAYS)
    stream = TarStream(path, dotted_keys=True)
    copy = pickle.loads(pickle.dumps(stream))

    assert [record.fields["label"] for record, _ in copy.records()] == list(range(1, 29))
    assert copy.fingerprint() == stream.fingerprint() != TarStream(path).fingerprint()
    with pytest.warns(UserWarning, match="dotted_keys=True"):
        assert len(TarStream(path, image="").schema.fields) == 56


APART = [("0.jpg", b"a"), ("1.jpg", b"b"), ("2.jpg", b"c"), ("0.cls", b"0"), ("2.cls", b"2"), ("1.cls", b"1")]


def test_files_of_a_record_that_lie_apart_are_joined(tmp_path: Path) -> None:
    """A record is where its first file is, in each shard; columns, images and a kept index are the same."""
    for number in range(2):
        write(tmp_path / f"s-{number}.tar", [(name, content + b"%d" % number) for name, content in APART])

    for _ in range(2):
        with open_store(tmp_path) as store:
            assert list(store.keys()) == ["0", "1", "2"] * 2
            assert store.column("label").tolist() == [0, 10, 20, 1, 11, 21]
            assert [bytes(image) for image in store.blobs("image", range(6))] == [
                b"a0",
                b"b0",
                b"c0",
                b"a1",
                b"b1",
                b"c1",
            ]
            assert store[4].fields == {"image": b"b1", "label": 11}


def test_a_stream_refuses_files_that_lie_apart(tmp_path: Path) -> None:
    """The file is named, also where reading begins behind the other files, or where fields are declared."""
    declaration = FieldPlan(
        [StoredField("image", Field("image"), ""), StoredField("label", Field("label"), "cls")]
    ).to_declaration()
    declared = write(tmp_path / "b.tar", [("__penstock__", declaration), *APART])
    stream = TarStream([write(tmp_path / "a.tar", APART), declared])

    for shard, first in itertools.product((0, 1), (0, 3)):
        with pytest.raises(CorruptRecordError, match=r"'0\.cls' must follow .*penstock\.open joins them") as caught:
            list(TarStream(stream.shards[shard]).read_shard(stream.shards[shard], first))
        assert caught.value.where == {"key": "0", "index": 3, "store": str(stream.shards[shard])}
    with open_store(declared) as store:
        assert store.column("label").tolist() == [0, 1, 2]


def test_what_is_left_out_is_listed(tmp_path: Path) -> None:
    """Links, names without a suffix, sparse files; the sparse file may be a record."""
    content = make_tar([("a.jpg", b"1"), ("README", b""), ("__meta__/x.json", b"")])
    link = make_tar([("b.jpg", b"")], type=tarfile.SYMTYPE, linkname="/etc/passwd")
    sparse = make_tar([("c.jpg", b"1")], pax_headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0"})
    (tmp_path / "a.tar").write_bytes(content[:2048] + link[:512] + sparse)

    with open_store(tmp_path / "a.tar") as store:
        assert len(store) == 1
        assert [entry.key for entry in store.problems] == ["README", "b.jpg", "c.jpg"]
        assert [entry.key for entry in store.unreadable] == ["c.jpg"]


# ---------------------------------------------------------------- shards, folders, copies


def test_a_folder_of_shards_is_one_store(tmp_path: Path) -> None:
    """In the order of names; a folder with images, or other folders, is not taken."""
    folder = tmp_path / "set"
    folder.mkdir()
    for number in (1, 0):
        write(folder / f"s-{number}.tar", [("a.jpg", b"%d" % number), ("b.jpg", b"%d" % (number + 5))])
    (folder / "README.md").write_text("x")

    with open_store(folder) as store:
        assert isinstance(store, TarStore)
        assert [bytes(record.fields["image"]) for record in store] == [b"0", b"5", b"1", b"6"]
        assert list(store.keys()) == ["a", "b", "a", "b"]
    with open_store(folder, shard_keys=True) as store:
        assert [record.key for record in store] == ["s-0/a", "s-0/b", "s-1/a", "s-1/b"]
        assert pickle.loads(pickle.dumps(store))[3].key == "s-1/b"
    for name in ("s-0.tar.source", "s-0.tar.index.npz", "s-0.tar.convert.json"):
        (folder / name).write_bytes(b"")
    (folder / "s-0.tar.fields.lmdb").mkdir()
    assert TarStore.recognises(str(folder))
    (folder / "x.jpg").write_bytes(b"")
    assert not TarStore.recognises(str(folder))


@pytest.mark.parametrize(
    ("texts", "kind", "values"),
    [
        ([b"3", b"-1\n", b" 7 "], "label", [3, -1, 7]),
        ([b"3", b"", b"\n"], "label", [3, None, None]),
        ([b"0.5", b"2", b""], "float", [0.5, 2.0, None]),
        ([b"cat", "d\u00f6g".encode(), b"1 2"], "text", ["cat", "d\u00f6g", "1 2"]),
    ],
)
def test_labels_are_what_their_files_hold(tmp_path: Path, texts: list[bytes], kind: str, values: list[object]) -> None:
    """Labels may be class numbers, numbers or texts; an empty file is no label. The stream reads the same."""
    files = [file for i, text in enumerate(texts) for file in ((f"{i}.jpg", b"x"), (f"{i}.cls", text))]
    path = write(tmp_path / "a.tar", files)

    store, stream = TarStore(path), TarStream(path)
    assert store.schema["label"].kind == stream.schema["label"].kind == kind
    for records in (store, stream.read_shard(stream.shards[0])):
        assert [record.fields["label"] for record in records] == values


def test_one_damaged_label_does_not_change_the_others(tmp_path: Path) -> None:
    """Where other labels are class numbers, a text is damage of its record."""
    files = [(f"{i}.{suffix}", b"%d" % i) for i in range(4) for suffix in ("jpg", "cls")]
    files[5] = ("2.cls", b"q")

    with TarStore(write(tmp_path / "a.tar", files)) as store:
        assert store[3].fields["label"] == 3
        with pytest.raises(CorruptRecordError, match="record 2"):
            store.read([2])


def test_shards_of_a_folder_are_in_natural_order(tmp_path: Path) -> None:
    """Shards whose numbers have no leading zeros are in the order of the numbers: s-2 before s-10."""
    for number in (10, 2, 1):
        write(tmp_path / f"s-{number}.tar", [("a.jpg", b"%d" % number)])

    with open_store(tmp_path) as store:
        assert [bytes(record.fields["image"]) for record in store] == [b"1", b"2", b"10"]


@pytest.mark.parametrize("ending", list(COMPRESSORS))
def test_compressed_shards_have_random_access(ending: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Through a copy that is made once, again when the shard changes, and the stream reads without one."""
    path, cache = tmp_path / f"a.tar{ending}", tmp_path / "cache"
    files = [(f"{number}.jpg", bytes([number]) * 3000) for number in range(5)]
    path.write_bytes(COMPRESSORS[ending](make_tar(files)))

    with open_store(path, cache=cache) as store:
        assert [bytes(record.fields["image"]) for record in store] == [content for _, content in files]
        assert "decompressed copies" in store.description
        copies = list(cache.iterdir())
        with pickle.loads(pickle.dumps(store)) as again:
            assert again[4].fields["image"] == files[4][1]
        assert list(cache.iterdir()) == copies
    assert [record.fields["image"] for record, _ in TarStream(path).records()] == [content for _, content in files]
    path.write_bytes(COMPRESSORS[ending](make_tar(files[:2])))
    with open_store(path, cache=cache) as store:
        assert len(store) == 2
    assert len(list(cache.iterdir())) == 1


def test_copies_are_bounded(tmp_path: Path) -> None:
    """A few compressed bytes do not fill the disk: the limit is an error that says what to do, and leaves nothing."""
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(make_tar([("a.jpg", bytes(10**7))])))

    with pytest.raises(StoreError, match="cache_nbytes="):
        open_store(path, cache=tmp_path / "cache", cache_nbytes=10**6)
    assert list((tmp_path / "cache").iterdir()) == []
    with pytest.raises(ArgumentError, match="cache_nbytes must be at least 1"):
        open_store(path, cache_nbytes=0)


@pytest.mark.parametrize("ending", list(COMPRESSORS))
def test_damaged_compressed_shards_are_errors(ending: str, tmp_path: Path) -> None:
    """Cut or with a flipped bit: nothing of it is kept."""
    rng = np.random.default_rng(1)
    content = COMPRESSORS[ending](make_tar([(f"{number}.jpg", rng.bytes(3000)) for number in range(5)]))
    path = tmp_path / f"a.tar{ending}"

    for damaged in (content[:-9], content[: len(content) // 2], content[:9000] + b"\x55\xaa" + content[9002:]):
        path.write_bytes(damaged)
        with pytest.raises(StoreError):
            open_store(f"tar://{path}", cache=tmp_path / "cache")
        with pytest.raises(StoreError):
            list(TarStream(path).records())
        assert list((tmp_path / "cache").iterdir()) == []


def test_a_stream_takes_other_images_and_missing_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The image may have another suffix in each record; a shard without its end is logged."""
    path = write(tmp_path / "a.tar", [("a.jpg", b"1"), ("a.cls", b"1"), ("b.png", b"2"), ("b.cls", b"2")])
    path.write_bytes(path.read_bytes()[:4096])

    found = [(record.fields["image"], record.fields["label"]) for record, _ in TarStream(path).records()]

    assert found == [(b"1", 1), (b"2", 2)]
    assert "has no end of archive" in caplog.text


def test_many_records_are_indexed(tmp_path: Path) -> None:
    """A hundred thousand records open and read by index, and the index is kept."""
    count = 100_000
    member = np.frombuffer(encode_header(b"%08d.jpg" % 0, 1) + b"x".ljust(512, b"\0"), np.uint8)
    blocks = np.tile(member, (count, 1))
    digits = (np.arange(count)[:, None] // 10 ** np.arange(7, -1, -1)) % 10
    blocks[:, :8] = digits + ord("0")
    blocks[:, 512] = np.arange(count) % 251
    total = blocks[:, :148].sum(1, np.int64) + 8 * 32 + blocks[:, 156:512].sum(1, np.int64)
    blocks[:, 148:154] = (total[:, None] // 8 ** np.arange(5, -1, -1)) % 8 + ord("0")
    (tmp_path / "a.tar").write_bytes(blocks.tobytes() + bytes(1024))

    for _ in range(2):
        with open_store(tmp_path / "a.tar") as store:
            assert len(store) == count
            rows = [99_999, 5, 70_000]
            assert [each.key for each in store.read(rows)] == ["00099999", "00000005", "00070000"]
            assert [each[0] for each in store.blobs("image", np.array(rows))] == [row % 251 for row in rows]
    assert (tmp_path / "a.tar.index.npz").exists()


def test_a_damaged_index_is_made_again(tmp_path: Path) -> None:
    """A kept index with other arrays is not used."""
    path = write(tmp_path / "a.tar", [("a.jpg", b"1"), ("b.jpg", b"2")])
    with open_store(path):
        pass
    kept = tmp_path / "a.tar.index.npz"
    with np.load(kept) as archive:
        arrays = {name: archive[name] for name in archive.files}

    other_group, elsewhere = arrays["records"].copy(), arrays["members"].copy()
    other_group["group"] += 7
    elsewhere["offset"] += 10**9

    for name, wrong in (
        ("members", arrays["members"][:1]),
        ("members", arrays["members"]["offset"]),
        ("records", other_group),
        ("texts", arrays["keys"]),
    ):
        np.savez(kept, **(arrays | {name: wrong}))
        with open_store(path) as store:
            assert [bytes(record.fields["image"]) for record in store] == [b"1", b"2"]
    np.savez(kept, **(arrays | {"members": elsewhere}))
    with open_store(path) as store, pytest.raises(CorruptRecordError, match=r"must be inside a\.tar"):
        store.read([0])


def test_an_index_is_kept_in_the_cache_folder_where_the_container_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read-only data sets are scanned once, too; the container's folder is left as it is."""
    path = write(tmp_path / "a.tar", [("a.jpg", b"1"), ("b.jpg", b"2")])
    (tmp_path / "a.tar.index.npz").mkdir()  # nothing can be written there, whoever asks
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    with open_store(path) as store:
        first = list(store.keys())
    (kept,) = (tmp_path / "cache" / "penstock" / "indexes").iterdir()
    written = kept.stat().st_mtime_ns
    with open_store(path) as store:
        assert list(store.keys()) == first

    assert kept.stat().st_mtime_ns == written
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.tar", "a.tar.index.npz", "cache"]


def test_a_store_of_shards_is_a_dataset(tmp_path: Path) -> None:
    """Shuffled and resumed like any other: the point of an index."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for shard in range(3):
        files = []
        for number in range(7):
            file = io.BytesIO()
            Image.fromarray(rng.integers(0, 256, (16, 16, 3), np.uint8)).save(file, "JPEG")
            files += [(f"{number}.jpg", file.getvalue()), (f"{number}.cls", b"%d" % (10 * shard + number))]
        write(tmp_path / f"s-{shard:03d}.tar", files)

    dataset = ps.StoreDataset(str(tmp_path / "s-{000..002}.tar"))
    loader = ps.DataLoader(dataset, batch_size=4, shuffle=True, seed=3, num_workers=0)
    whole = [batch["label"].tolist() for batch in loader]
    resumed = ps.DataLoader(dataset, batch_size=4, shuffle=True, seed=3, num_workers=0)
    first = iter(loader)
    next(first)

    assert sorted(itertools.chain.from_iterable(whole)) == sorted(
        10 * shard + number for shard in range(3) for number in range(7)
    )
    assert json.dumps(loader.state_dict())
    assert len(list(resumed)) == len(whole)
