"""Patterns of shards, and what a tar shard may hold."""

from __future__ import annotations

import io
import itertools
import os
import tarfile
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import ArgumentError, CorruptRecordError, StoreError, StoreFormatError, StoreNotFoundError
from penstock.stores.patterns import expand_shards
from penstock.stores.tar.stream import TarStream


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("a.tar", ["a.tar"]),
        ("a-{8..11}.tar", ["a-8.tar", "a-9.tar", "a-10.tar", "a-11.tar"]),
        ("a-{08..10}.tar", ["a-08.tar", "a-09.tar", "a-10.tar"]),
        ("a-{000..001}.tar", ["a-000.tar", "a-001.tar"]),
        ("{b,a}/{1..2}", ["b/1", "b/2", "a/1", "a/2"]),
        ("{3..1}", ["3", "2", "1"]),
        ("{a}-{}", ["{a}-{}"]),
    ],
)
def test_braces_are_expanded(pattern: str, paths: list[str]) -> None:
    """As a shell does: ranges with leading zeros, and alternatives, in their order."""
    assert expand_shards(pattern) == paths


def test_wildcards_are_sorted(tmp_path: Path) -> None:
    """Files that match, in natural order; a file whose name has brackets is that file."""
    for name in ("b-1", "a-2", "a-10", "a[1]"):
        (tmp_path / name).touch()

    assert expand_shards(str(tmp_path / "a-*")) == [str(tmp_path / "a-2"), str(tmp_path / "a-10")]
    assert expand_shards(str(tmp_path / "a[1]")) == [str(tmp_path / "a[1]")]
    with pytest.raises(StoreNotFoundError, match="there is no shard"):
        TarStream(str(tmp_path / "c-*"))


def test_a_folder_and_a_pattern_give_files_in_one_order(tmp_path: Path) -> None:
    """The shards of a folder are in natural order, and so are those that fit a wildcard."""
    for number in (10, 9, 100):
        write(tmp_path / "tar" / f"p-{number}.tar", {f"{number}.jpg": b"\xff\xd8\xff"})
        (tmp_path / "parquet").mkdir(exist_ok=True)
        pq.write_table(pa.table({"key": [str(number)], "n": [number]}), tmp_path / "parquet" / f"p-{number}.parquet")

    for kind in ("tar", "parquet"):
        with ps.open(tmp_path / kind) as folder, ps.open(f"{tmp_path}/{kind}/p-*.{kind}") as pattern:
            assert list(folder.keys()) == list(pattern.keys()) == ["9", "10", "100"]
    assert [*map(os.path.basename, expand_shards(f"{tmp_path}/tar/*"))] == ["p-9.tar", "p-10.tar", "p-100.tar"]


@pytest.mark.parametrize("pattern", ["{0..1000000}", "{0..9999}{0..9999}", "{1..99999999999999}"])
def test_too_many_shards_are_refused(pattern: str) -> None:
    """A pattern of more than a million paths is refused before memory is taken for them."""
    with pytest.raises(ArgumentError, match="at most 1000000 shards"):
        expand_shards(pattern)


def write(path: Path, files: dict[str, bytes], **attributes: object) -> Path:
    """Write a tar file with these files in this order."""
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for attribute, value in attributes.items():
                setattr(member, attribute, value)
            tar.addfile(member, io.BytesIO(content))
    return path


def test_suffixes_name_the_fields(tmp_path: Path) -> None:
    """Text and numbers are parsed, other fields are bytes; the key ends at the first dot of the file's name."""
    names = {
        "d.x/a.PNG": b"1",
        "d.x/a.seg.png": b"2",
        "d.x/a.txt": "é".encode(),
        "d.x/a.cls": b"7",
        "d.x/a.json": b"{}",
    }
    stream = TarStream(write(tmp_path / "a.tar", names | {"README": b"", "d.x/.hidden": b"", "d.x/b": b""}))

    record = next(stream.records())[0]

    assert record.key == "d.x/a"
    assert record.fields == {"image": b"1", "seg.png": b"2", "txt": "é", "label": 7, "json": {}}
    assert [field.kind for field in stream.schema.fields.values()] == ["image", "mask", "text", "label", "json"]


def test_a_second_image_keeps_its_suffix(tmp_path: Path) -> None:
    """Two images are two fields."""
    stream = TarStream(write(tmp_path / "a.tar", {"a.jpg": b"1", "a.png": b"2"}))

    assert next(stream.records())[0].fields == {"image": b"1", "png": b"2"}


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"b.jpg": b"3"}, "must have the files jpg, cls, as the first record, got jpg; penstock.open reads"),
        ({"b.jpg": b"3", "b.cls": b"4", "b.txt": b"5"}, "got jpg, cls, txt"),
        ({"b.jpg": b"3", "b.JPG": b"4"}, "got 'jpg' twice"),
        ({"b.jpg": b"3", "b.cls": b"cat"}, "invalid literal for int"),
    ],
)
def test_records_that_differ_are_named(tmp_path: Path, files: dict[str, bytes], reason: str) -> None:
    """A record with other files than the first, or a number that is none, is an error with its shard and key."""
    stream = TarStream(write(tmp_path / "a.tar", {"a.jpg": b"1", "a.cls": b"2"} | files))

    with pytest.raises(CorruptRecordError, match=reason) as caught:
        list(stream.records())

    assert caught.value.where == {"store": str(stream.shards[0]), "key": "b", "index": 1}


def test_links_and_devices_are_never_opened(tmp_path: Path) -> None:
    """Only regular files of a shard are read; a shard that is a FIFO is an error, not a wait."""
    with pytest.raises(StoreFormatError, match="has no records"):
        TarStream(write(tmp_path / "a.tar", {"a.jpg": b""}, type=tarfile.SYMTYPE, linkname="/etc/passwd")).schema  # noqa: B018
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(StoreError, match="cannot be read"):
        TarStream(tmp_path / "fifo").schema  # noqa: B018


@pytest.mark.parametrize("content", [b"", b"not a tar file" * 100, bytes(10240)])
def test_what_is_no_tar_file_is_refused(tmp_path: Path, content: bytes) -> None:
    """An empty file, other bytes, and a tar file of nothing."""
    (tmp_path / "a.tar").write_bytes(content)

    with pytest.raises(StoreFormatError) as caught:
        list(TarStream(tmp_path / "a.tar").records())

    assert caught.value.where["store"] == f"tar://{tmp_path}/a.tar"


def fix_checksums(content: bytearray) -> None:
    """Make the checksum of each block right that could be a header, so that what it declares is believed."""
    for at in range(0, len(content) - 511, 512):
        block = content[at : at + 512]
        if block[257:262] == b"ustar":
            total = sum(block[:148]) + 8 * ord(" ") + sum(block[156:])
            content[at + 148 : at + 156] = b"%06o\0 " % total


CHANGES = st.lists(st.tuples(st.integers(0, 511), st.integers(0, 3), st.binary(min_size=1, max_size=12)), max_size=4)
SIZE_FIELD, TYPE_FIELD = 124, 156


@given(changes=CHANGES, cut=st.integers(0, 2000))
@example([(SIZE_FIELD, 0, b"\xff" * 12)], 0)  # a negative size, which leads back to the header
@example([(SIZE_FIELD, 0, b"77777777777\0")], 0)
@example([(SIZE_FIELD, 1, b"\x80" + bytes(3) + b"\x7f" * 8), (TYPE_FIELD, 1, b"x")], 0)
@example([(TYPE_FIELD, 0, b"S")], 0)
@example([(TYPE_FIELD, 2, b"L")], 0)
def test_damaged_shards_give_store_errors(changes: list[tuple[int, int, bytes]], cut: int) -> None:
    """Whatever headers declare, reading ends, with records or a StoreError that names the shard."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in ("a.jpg", "a.cls", "b.jpg", "b.cls"):
            member = tarfile.TarInfo(name)
            member.size = 1
            tar.addfile(member, io.BytesIO(b"1"))
    content = bytearray(file.getvalue()[: len(file.getvalue()) - cut])
    for at, header, change in changes:
        content[1024 * header + at : 1024 * header + at + len(change)] = change
    fix_checksums(content)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.tar"
        path.write_bytes(content)
        stream = TarStream(path)

        try:
            found = list(itertools.islice(stream.records(), 100))
        except StoreError as error:
            assert error.where["store"] == str(stream.shards[0])  # noqa: PT017  # records are right as well
        else:
            assert len(found) <= 4
