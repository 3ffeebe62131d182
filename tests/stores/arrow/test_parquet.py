"""Parquet files: any row equals what pyarrow reads, whatever the pages; splits and shards; damaged files."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import os
import pickle
import random
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import (
    ArgumentError,
    CorruptRecordError,
    PenstockError,
    StoreError,
    StoreFormatError,
    StoreNotFoundError,
)
from penstock.stores.arrow import parquet_files, parquet_pages, parquet_reader
from penstock.stores.arrow.parquet_pages import ChunkPages, UnsupportedPageError
from penstock.stores.arrow.thrift_compact import read_struct
from penstock.stores.common.mapped_files import MappedFiles
from tests.stores.arrow.columns import CLASSES, make_contents, make_table

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

CODECS = ["none", "snappy", "gzip", "zstd", "brotli", "lz4"]


def read_images(store: Any, order: Any) -> list[bytes | None]:
    """The images of some records as bytes, by both ways to read them."""
    records, blobs = store.read(order), store.blobs("image", order)
    images = [record.fields["image"] for record in records]
    assert images == blobs
    return [None if image is None else bytes(image) for image in images]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.none() | st.sampled_from([b"", b"\xff\xd8\xffb" * 40]) | st.binary(max_size=90), max_size=50),
    codec=st.sampled_from(CODECS),
    version=st.sampled_from(["1.0", "2.0"]),
    dictionary=st.booleans(),
    checksum=st.booleans(),
    group=st.integers(1, 60),
    page=st.sampled_from([1, 64, 500, 1 << 20]),
    layout=st.sampled_from(["struct", "binary", "required", "fixed"]),
)  # fmt: skip
def test_any_row_is_what_pyarrow_reads(
    tmp_path: Path,
    values: list[bytes | None],
    codec: str,
    version: str,
    dictionary: bool,
    checksum: bool,
    group: int,
    page: int,
    layout: str,
) -> None:
    """The bytes of each row, in any order, equal those that pyarrow decodes: for each codec, page version, encoding."""
    column: Any
    if layout == "struct":
        column = make_table(values).column("image")
    elif layout == "binary":
        column = pa.array(values, pa.binary())
    elif layout == "required":
        column = pa.array([value or b"" for value in values], pa.binary())
    else:
        column = pa.array([None if value is None else value[:3].ljust(3) for value in values], pa.binary(3))
    field = pa.field("image", column.type, nullable=layout != "required")
    table = pa.table({"image": column, "n": list(range(len(values)))}, pa.schema([field, ("n", pa.int64())]))
    path = tmp_path / "x.parquet"
    pq.write_table(
        table, path, row_group_size=group, compression=codec, data_page_version=version, use_dictionary=dictionary,
        data_page_size=page, write_batch_size=3, write_page_checksum=checksum, dictionary_pagesize_limit=200,
    )  # fmt: skip
    expected = [row["bytes"] if isinstance(row, dict) else row for row in column.to_pylist()]
    order = np.random.default_rng(len(values)).permutation(len(values))

    with ps.open(path) as store:
        got = read_images(store, order)
        numbers = store.column("n")

    assert got == [expected[row] for row in order]
    assert numbers.tolist() == list(range(len(values)))


@pytest.mark.parametrize("encoding", ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
def test_other_encodings_are_left_to_pyarrow(tmp_path: Path, encoding: str) -> None:
    """Pages in an encoding that penstock does not read are decoded by pyarrow, a row group at a time."""
    contents = make_contents(30)
    path = tmp_path / "x.parquet"
    pq.write_table(
        make_table([*contents]), path, row_group_size=7, use_dictionary=False, column_encoding={"image.bytes": encoding}
    )

    with ps.open(path) as store:
        assert read_images(store, range(29, -1, -1)) == contents[::-1]


def test_uncompressed_images_are_views_of_the_file(tmp_path: Path) -> None:
    """A page that is not compressed is not copied: the views lie in one mapped range, in the order of the file."""
    contents = make_contents(12)
    path = tmp_path / "x.parquet"
    pq.write_table(make_table([*contents]), path, compression="none", use_dictionary=False)

    with ps.open(path) as store:
        views = store.blobs("image", range(12))

    begins = [np.frombuffer(view, np.uint8).__array_interface__["data"][0] for view in views]
    assert all(view.readonly for view in views)
    assert [b - a for a, b in itertools.pairwise(begins)] == [len(each) + 4 for each in contents[:-1]]


def test_a_small_cache_gives_the_same_records(tmp_path: Path) -> None:
    """memory_nbytes bounds memory only: with room for nothing, each read unpacks its page again."""
    contents = make_contents(40)
    path = tmp_path / "x.parquet"
    pq.write_table(make_table([*contents]), path, row_group_size=9, compression="snappy", data_page_size=400)

    with ps.open(path, memory_nbytes=0) as store:
        assert read_images(store, [*range(0, 40, 3), *range(39, 0, -2)]) == [
            contents[row] for row in [*range(0, 40, 3), *range(39, 0, -2)]
        ]
    with pytest.raises(ArgumentError, match="memory_nbytes must be at least 0"):
        ps.open(path, memory_nbytes=-1)


def test_large_columns_are_read_by_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small field whose column is large is decoded row group by row group, with the same values."""
    monkeypatch.setattr(parquet_reader, "_MAX_RESIDENT_NBYTES", 0)
    vectors = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
    table = make_table([*make_contents(20)], vector=pa.array(vectors.tolist(), pa.list_(pa.float32(), 5)))
    path = tmp_path / "x.parquet"
    pq.write_table(table, path, row_group_size=6)

    with ps.open(path) as store:
        records = store.read(range(19, -1, -1))
        column, labels = store.column("vector"), store.column("label")

    np.testing.assert_array_equal([record.fields["vector"] for record in records], vectors[::-1])
    np.testing.assert_array_equal(column, vectors)
    assert labels.tolist() == [row % len(CLASSES) for row in range(20)]


def test_threads_read_packed_pages_at_once(tmp_path: Path) -> None:
    """Several threads share the cache of unpacked pages, also where it holds one page."""
    contents = make_contents(60)
    path = tmp_path / "x.parquet"
    pq.write_table(make_table([*contents]), path, row_group_size=20, compression="zstd", data_page_size=300)
    wrong: list[int] = []

    with ps.open(path, memory_nbytes=3000) as store:

        def read(seed: int) -> None:
            rows = np.random.default_rng(seed).integers(0, 60, 200).tolist()
            wrong.extend(row for row in rows if bytes(store.blobs("image", [row])[0]) != contents[row])

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert wrong == []


def test_a_closed_store_keeps_no_pages(tmp_path: Path) -> None:
    """Closing lets go of unpacked pages and of the maps of files at once; a view that was read stays readable."""
    contents = make_contents(20)
    path = tmp_path / "x.parquet"
    pq.write_table(make_table([*contents]), path, row_group_size=8, compression="zstd")
    store = ps.open(path)
    opened = store._opened.get()  # type: ignore[attr-defined]  # what a process holds
    image = store.read([3])[0].fields["image"]
    held = weakref.ref(opened)

    gc.disable()
    try:
        store.close()
        del opened
        assert held() is None
    finally:
        gc.enable()
    assert bytes(image) == contents[3]


def test_prefetching_changes_nothing(tmp_path: Path) -> None:
    """prefetch() is a hint: before and after the first read, for indices inside and outside."""
    contents = make_contents(20)
    path = tmp_path / "x.parquet"
    pq.write_table(make_table([*contents]), path, row_group_size=8)

    with ps.open(path) as store:
        store.prefetch([0, 3])
        assert read_images(store, [3]) == [contents[3]]
        store.prefetch(np.array([3, 19, -1, 20, 1 << 40]))
        assert read_images(store, [19]) == [contents[19]]
    store.prefetch([1])


def test_images_of_known_pages_are_read_ahead_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a row group that was not read, the whole chunk; later the bytes of the images, however large their page is."""
    told: list[bytes] = []
    contents = [None if number == 9 else each for number, each in enumerate(make_contents(20))]
    path = tmp_path / "x.parquet"
    pq.write_table(make_table(contents), path, row_group_size=10, compression="none", use_dictionary=False)
    whole = path.read_bytes()

    def announce(_: object, ranges: Any) -> int:
        told.extend(whole[at : at + nbytes] for _, at, nbytes in ranges)
        return 1

    monkeypatch.setattr(MappedFiles, "announce", announce)
    with ps.open(path) as store:
        store.prefetch([3, 5])
        assert len(told) == 1
        assert all(each in told[0] for each in contents[:9] if each is not None)
        store.read([3, 17])
        del told[:]
        store.prefetch([17, 3, 9, 3])

    assert sorted(told) == sorted([b"", contents[3] or b"", contents[17] or b""])


def write_shards(folder: Path, names: list[str], count: int = 3) -> list[bytes]:
    """Write a file of some records for each name; gives all images, in the order of the names."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = make_contents(count * len(names))
    for number, name in enumerate(names):
        part = contents[number * count : (number + 1) * count]
        pq.write_table(make_table([*part]), folder / name, row_group_size=2)
    return contents


def test_shards_of_a_folder_are_in_order(tmp_path: Path) -> None:
    """A folder is its shards by name in natural order, in the folder or in data/; a list and a pattern are as given."""
    names = [f"train-{number:05d}-of-00011.parquet" for number in range(11)]
    contents = write_shards(tmp_path / "a" / "data", names)
    other = write_shards(tmp_path / "b", ["part-2.parquet", "part-10.parquet"])
    (tmp_path / "a" / "README.md").write_text("a page")

    with ps.open(tmp_path / "a") as store:
        assert read_images(store, range(33)) == contents
        with pickle.loads(pickle.dumps(store)) as again:
            assert read_images(again, [32]) == contents[32:]
    with ps.open(tmp_path / "b") as store:
        assert read_images(store, range(6)) == other
    with ps.open([tmp_path / "b" / "part-10.parquet", tmp_path / "b" / "part-2.parquet"]) as store:
        assert read_images(store, [0, 3]) == [other[3], other[0]]
    with ps.open(str(tmp_path / "a" / "data" / "train-{00001..00002}-of-00011.parquet")) as store:
        assert read_images(store, range(6)) == contents[3:9]


def test_splits_are_stated(tmp_path: Path) -> None:
    """A folder with several splits is refused with their names until one is stated."""
    names = [
        "test-00000-of-00001.parquet",
        "train-00000-of-00002.parquet",
        "train-00001-of-00002.parquet",
        "val.parquet",
    ]
    contents = write_shards(tmp_path / "data", names)

    with ps.open(tmp_path, split="train") as store:
        assert read_images(store, range(6)) == contents[3:9]
        assert store.options["split"] == "train"
    with ps.open(tmp_path, split="validation") as store:
        assert read_images(store, range(3)) == contents[9:]
    for split in (None, "dev"):
        with pytest.raises(ArgumentError, match="'test', 'train', 'validation'"):
            ps.open(tmp_path, split=split)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    """The names of shards say how many there are; one that is missing is an error."""
    write_shards(tmp_path, ["train-00000-of-00003.parquet", "train-00002-of-00003.parquet"])

    with pytest.raises(StoreFormatError, match="1 of 3 shards 'train' are missing, the first one is number 1"):
        ps.open(tmp_path)


def test_columns_of_shards_must_agree(tmp_path: Path) -> None:
    """The file whose columns differ is named."""
    write_shards(tmp_path, ["a.parquet"])
    pq.write_table(pa.table({"image": [b"x"]}), tmp_path / "b.parquet")

    with pytest.raises(StoreFormatError, match=r"b\.parquet cannot be read with the others"):
        ps.open([tmp_path / "a.parquet", tmp_path / "b.parquet"])


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_classes_of_shards_must_agree(tmp_path: Path, suffix: str) -> None:
    """A file that numbers the classes otherwise is named; one that names none is read with the others."""
    paths = []
    for number, names in enumerate((["cat", "dog"], None, ["dog", "cat"])):
        feature = {"_type": "ClassLabel", "names": names} if names else {"_type": "Value", "dtype": "int64"}
        metadata = {"huggingface": json.dumps({"info": {"features": {"label": feature}}})}
        table = pa.table({"label": [0, 1]}).replace_schema_metadata(metadata)
        paths.append(tmp_path / f"{number}.{suffix}")
        if suffix == "parquet":
            pq.write_table(table, paths[-1])
        else:
            with pa.ipc.new_file(str(paths[-1]), table.schema) as file:
                file.write_table(table)

    with ps.open(paths[:2]) as store:
        assert store.schema["label"].classes == ("cat", "dog")
        assert len(store) == 4
    with pytest.raises(StoreFormatError, match=rf"2\.{suffix} cannot be read .* 'dog', 'cat', not 'cat', 'dog'"):
        ps.open(paths)


def test_a_column_of_unsigned_integers_beyond_int64_is_refused(tmp_path: Path) -> None:
    """The record has the number; the column, which holds 64 bits with sign, is an error, also that of a batch."""
    pq.write_table(pa.table({"hash": pa.array([2**63 + 5, 1, None], pa.uint64())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"hash": pa.array([2**63 - 1, 1, None], pa.uint64())}), tmp_path / "b.parquet")

    with ps.open(tmp_path / "a.parquet") as store:
        assert store[0].fields["hash"] == 2**63 + 5
        with pytest.raises(
            CorruptRecordError, match=r"field 'hash' cannot be read: int64 does not hold 9223372036854775813"
        ):
            store.column("hash")
        with pytest.raises(CorruptRecordError, match="field 'hash'"):
            next(iter(ps.DataLoader(ps.StoreDataset(store, "hash"), batch_size=3)))
        with pytest.raises(ps.PackError, match="field 'hash'"):
            ps.pack(store, tmp_path / "a.lmdb")
    with ps.open(tmp_path / "b.parquet") as store:
        assert store.column("hash").tolist() == [2**63 - 1, 1, -1]


def test_folders_of_images_stay_folders_of_images(tmp_path: Path) -> None:
    """A Parquet file beside images, such as the metadata of an image folder, does not make it a Parquet container."""
    for name in ("a/x.jpg", "b/y.jpg"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(make_contents(1)[0])
    write_shards(tmp_path, ["metadata.parquet"])

    with ps.open(tmp_path) as store:
        assert store.kind == "files"
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreNotFoundError, match="no Parquet files"):
        ps.open(f"parquet://{tmp_path / 'empty'}")


def test_a_changed_shard_is_refused_and_others_are_read(tmp_path: Path) -> None:
    """Only the files of the records that are read are compared."""
    contents = write_shards(tmp_path, ["a-0.parquet", "a-1.parquet"])

    with ps.open(tmp_path) as store:
        store.read([0, 5])
        os.utime(tmp_path / "a-1.parquet", ns=(1, 1))
        assert bytes(store.blobs("image", [0])[0]) == contents[0]
        with pytest.raises(StoreError, match=r"a-1\.parquet was replaced or changed"):
            store.blobs("image", [5])


def test_a_wrong_checksum_is_found(tmp_path: Path) -> None:
    """A flipped bit in a page with a checksum is an error that names the record; check=False reads it as it is."""
    contents = make_contents(10)
    path = tmp_path / "x.parquet"
    pq.write_table(make_table([*contents]), path, compression="none", use_dictionary=False, write_page_checksum=True)
    whole = bytearray(path.read_bytes())
    whole[whole.index(contents[4]) + 7] ^= 4
    path.write_bytes(whole)

    with ps.open(path) as store, pytest.raises(CorruptRecordError, match="checksum") as caught:
        store.read([4])
    assert (caught.value.where["index"], caught.value.where["key"]) == (4, "4.jpg")
    with ps.open(path, check=False) as store:
        assert read_images(store, [3]) == [contents[3]]


@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_a_truncated_file_is_refused(tmp_path: Path, codec: str) -> None:
    """Without its footer a file is no Parquet file, wherever it was cut."""
    path = tmp_path / "x.parquet"
    pq.write_table(make_table([*make_contents(9)]), path, row_group_size=4, compression=codec)
    whole = path.read_bytes()

    for end in [*range(0, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:end])
        with pytest.raises(StoreFormatError):
            ps.open(f"parquet://{path}")


@pytest.mark.parametrize(("codec", "version"), [("none", "1.0"), ("snappy", "1.0"), ("zstd", "2.0")])
def test_flipped_bits_are_errors_or_other_values(tmp_path: Path, codec: str, version: str) -> None:
    """Any flipped bit gives an error of penstock or other values: no crash, no foreign exception, no hang."""
    path = tmp_path / "x.parquet"
    table = make_table([*make_contents(9), None], text=["abc"] * 10, vector=[[1.0]] * 10)
    pq.write_table(table, path, row_group_size=4, compression=codec, data_page_version=version, data_page_size=100)
    whole = path.read_bytes()
    rng = random.Random(codec)

    for _ in range(150):
        damaged = bytearray(whole)
        # the metadata at the end are the smaller part, and the more dangerous one
        at = rng.randrange(len(whole)) if rng.random() < 0.3 else rng.randrange(len(whole) - 2000, len(whole))
        damaged[at] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with contextlib.suppress(PenstockError), ps.open(f"parquet://{path}") as store:
            for index in range(min(len(store), 10)):
                with contextlib.suppress(PenstockError):
                    store.read([index])
            for name in ("label", "text"):
                with contextlib.suppress(PenstockError):
                    store.column(name)


@given(st.binary(max_size=200), st.integers(0, 300), st.integers(0, 3), st.booleans(), st.sampled_from([0, 3]))
def test_any_bytes_are_pages_or_refused(content: bytes, rows: int, maximum: int, packed: bool, size: int) -> None:
    """The reader of pages raises ValueError or IndexError for wrong bytes, and nothing else."""
    decompress = (lambda view, nbytes: memoryview(bytes(view)[:nbytes])) if packed else None

    with contextlib.suppress(ValueError, IndexError, UnsupportedPageError):
        chunk = ChunkPages(memoryview(content), rows, maximum, size, decompress, check=False)
        for row in range(rows):
            page, row_of_page = chunk.find(row)
            chunk.read(page)[0].get(row_of_page)


@given(st.data())
def test_changed_pages_are_pages_or_refused(data: st.DataObject) -> None:
    """The same for the pages of a genuine column chunk with a few bytes changed."""
    contents: list[bytes | None] = [b"abc", None, b"", b"abc" * 30, None, b"x"] * 3
    sink = pa.BufferOutputStream()
    version = data.draw(st.sampled_from(["1.0", "2.0"]))
    dictionary = data.draw(st.booleans())
    table = pa.table({"image": pa.array(contents, pa.binary())})
    pq.write_table(
        table, sink, compression="none", use_dictionary=dictionary, data_page_version=version, data_page_size=50,
        write_batch_size=2,
    )  # fmt: skip
    whole = bytearray(sink.getvalue().to_pybytes())
    chunk = pq.read_metadata(pa.BufferReader(bytes(whole))).row_group(0).column(0)
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    pages = whole[begin : begin + chunk.total_compressed_size]
    for at, byte in data.draw(st.dictionaries(st.integers(0, len(pages) - 1), st.integers(0, 255), max_size=3)).items():
        pages[at] = byte

    with contextlib.suppress(ValueError, IndexError, UnsupportedPageError):
        read = ChunkPages(memoryview(bytes(pages)), len(contents), 1, 0, None, check=False)
        for row in range(len(contents)):
            page, row_of_page = read.find(row)
            read.read(page)[0].get(row_of_page)


def test_a_page_without_room_for_its_levels_is_refused() -> None:
    """A page of version 1 begins with the length of its levels: a page of fewer than four bytes is damaged."""
    header = bytes((0x15, 0, 0x15, 4, 0x15, 4, 0x2C, 0x15, 2, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0))

    for nbytes in (2, 1, 0):
        sized = header[:3] + bytes((2 * nbytes,)) + header[4:5] + bytes((2 * nbytes,)) + header[6:]
        pages = ChunkPages(memoryview(sized + b"\0" * nbytes), 1, 1, 0, None, check=False)
        with pytest.raises(ValueError, match=f"the page has {nbytes}"):
            pages.read(0)


def test_large_dictionaries_are_left_to_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dictionary of more values than a page may have is decoded by pyarrow, with the same values."""
    contents = make_contents(6)
    path = tmp_path / "x.parquet"
    pq.write_table(
        make_table([*contents]), path, use_dictionary=True, compression="none", data_page_size=1, write_batch_size=1
    )
    monkeypatch.setattr(parquet_pages, "_MAX_VALUES", 3)
    refused: list[int] = []
    decode = parquet_reader.ParquetChunks.decode

    def note_group(chunks: Any, column: str, path: Any, group: Any = None) -> Any:
        refused.extend([] if group is None else [group])
        return decode(chunks, column, path, group)

    monkeypatch.setattr(parquet_reader.ParquetChunks, "decode", note_group)
    with ps.open(path) as store:
        assert read_images(store, [*range(6)]) == contents
    assert set(refused) == {0}


def test_the_rows_of_all_row_groups_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Footers that say more rows than there may be, in all row groups together, are refused."""
    path = tmp_path / "x.parquet"
    pq.write_table(make_table([*make_contents(8)]), path, row_group_size=4)
    monkeypatch.setattr(parquet_files, "_MAX_ROWS", 7)

    with pytest.raises(StoreFormatError, match="have 8 rows; there may be 7"):
        ps.open(path)


def test_numbers_of_more_than_64_bits_are_refused() -> None:
    """A number that fits no integer of Thrift is damage: it does not become an index or a size."""
    content = b"\x16" + b"\xff" * 9 + b"%c\0"

    assert read_struct(content % 1, 0)[0] == {1: -(1 << 63)}
    with pytest.raises(ValueError, match="64 bits"):
        read_struct(content % 2, 0)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_struct_or_refused(content: bytes) -> None:
    """The reader of Thrift raises ValueError or IndexError for wrong bytes, and ends."""
    with contextlib.suppress(ValueError, IndexError):
        read_struct(content, 0)


def test_nested_structs_are_limited() -> None:
    """Bytes that nest structs or lists without end are refused before Python's own limit."""
    for content in (b"\x1c" * 5000, b"\x19" + b"\x19" * 5000, b"\x4c" + b"\x1c" * 5000):
        with pytest.raises(ValueError, match="nested too deeply"):
            read_struct(content, 0)


def test_100000_records_open_and_read(tmp_path: Path) -> None:
    """Many records open and read; keys and labels are columns without an object for each record."""
    count = 100_000
    images = pa.array([b"\xff\xd8\xff" + number.to_bytes(4, "little") for number in range(count)])
    table = pa.table({"image": images, "label": np.arange(count) % 10, "name": [f"{n}.jpg" for n in range(count)]})
    path = tmp_path / "x.parquet"
    pq.write_table(table, path, row_group_size=5000)
    order = np.random.default_rng(0).permutation(count)

    with ps.open(path) as store:
        blobs = store.blobs("image", order)
        labels, keys = store.column("label"), store.keys()

    assert [int.from_bytes(blob[3:], "little") for blob in blobs] == order.tolist()
    np.testing.assert_array_equal(labels, np.arange(count) % 10)
    assert keys[99_999] == "99999.jpg"
