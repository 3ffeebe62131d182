"""RecordIO files: frames, parts, labels, indexes; damage is an error."""

from __future__ import annotations

import contextlib
import pickle
import shutil
import struct
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import PenstockError, StoreFormatError
from penstock.sample import Field
from penstock.stores import open as open_store
from penstock.stores.recordio.format import MAGIC_BYTES, join_parts, scan_frames
from penstock.stores.recordio.store import RecordioStore
from tests.stores.written import recordio_frame as frame
from tests.stores.written import recordio_frames as frames
from tests.stores.written import recordio_image as pack_image
from tests.stores.written import write_recordio

JPEG = b"\xff\xd8\xff\xe0 a picture "
FOREIGN = ["recordio-scalar", "recordio-split", "recordio-multilabel", "recordio-detection", "recordio-no-index"]


def write_records(path: Path, payloads: Iterable[bytes]) -> Path:
    """A file of records without an index."""
    return write_recordio(path, payloads, has_index=False)


def read_all(path: Path, **options: Any) -> list[ps.Record]:
    """Every record."""
    with open_store(path, **options) as store:
        return list(store)


# ---------------------------------------------------------------- frames


@given(pieces=st.lists(st.one_of(st.binary(max_size=9), st.just(MAGIC_BYTES)), max_size=9))
def test_a_payload_comes_back(pieces: list[bytes]) -> None:
    """Whatever a payload contains, the magic number at any place, its frames give it back."""
    payload = b"".join(pieces)

    content = frames(payload)
    rows = scan_frames(memoryview(content))

    assert rows["nbytes"].tolist() == [len(payload)]
    assert rows["is_split"][0] == (MAGIC_BYTES in {payload[at : at + 4] for at in range(0, len(payload), 4)})
    if rows["is_split"][0]:
        assert join_parts(memoryview(content), 0) == payload
    else:
        assert content == frame(payload)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([1], "record 0 must be a first"),
        ([0, 2, 3], "record 1 must be a first"),
        ([1, 0], "record 1 must be a first"),
        ([1, 3, 3], "record 1 must be a first"),
        ([1, 2], "record 0 must be a first"),
        ([4], "record 0 must be a first"),
    ],
)
def test_parts_out_of_order_are_refused(tmp_path: Path, parts: list[int], reason: str) -> None:
    """A record is one whole frame, or a first, middle ones and a last one."""
    (tmp_path / "a.rec").write_bytes(b"".join(frame(pack_image(JPEG), part) for part in parts))

    with pytest.raises(StoreFormatError, match=reason):
        open_store(f"recordio://{tmp_path / 'a.rec'}")


def test_a_part_may_end_inside_the_header(tmp_path: Path) -> None:
    """The magic number may be the label, the id, or a number of an array of labels."""
    magic = int.from_bytes(MAGIC_BYTES, "little")
    label = struct.unpack("<f", MAGIC_BYTES)[0]
    array, image = [1.0, label, 2.0], JPEG + MAGIC_BYTES * 3
    payloads = [pack_image(image, array[number:], magic, magic << 32) for number in range(3)]
    (tmp_path / "a.rec").write_bytes(b"".join(map(frames, payloads)))

    found = read_all(tmp_path / "a.rec")

    assert len(found) == 3
    for number, record in enumerate(found):
        assert bytes(record.fields["image"]) == image
        assert record.fields["label"].tobytes() == np.array(array[number:], np.float32).tobytes()
        assert (record.fields["id"], record.fields["id2"] % 2**64) == (magic, magic << 32)  # numbers have a sign


@pytest.mark.parametrize("name", ["recordio-scalar", "recordio-split"])
def test_truncation_is_an_error_wherever_it_is(name: str, data_dir: Path, tmp_path: Path) -> None:
    """A file that was cut is refused, unless the cut is between two records: nothing in the format shows that."""
    source = data_dir / "foreign" / name / "set.rec"
    if not source.is_file():
        pytest.skip("no containers")
    content = source.read_bytes()[:60_000]
    cuts = sorted({1, 7, 8, 9, 31, 32, *range(4000, len(content), 1711), *range(4700, 4780)})
    path = tmp_path / "a.rec"
    refused = 0

    for cut in cuts:
        path.write_bytes(content[:cut])
        try:
            records = read_all(path)
        except PenstockError:
            refused += 1
        else:
            assert records
            assert len(scan_frames(memoryview(content[:cut]))) == len(records)

    assert refused > len(cuts) * 0.8


@given(
    flips=st.lists(st.tuples(st.integers(0, 700), st.integers(0, 255)), max_size=6),
    cut=st.integers(0, 400),
    detection=st.booleans(),
)
def test_damaged_files_give_penstock_errors(flips: list[tuple[int, int]], cut: int, detection: bool) -> None:
    """Any bytes give records or a PenstockError, in bounded time."""
    label: list[float] = [2, 5, 1, 0.1, 0.1, 0.5, 0.5] if detection else [1, 2]
    payloads = [pack_image(JPEG * 3, label, number) for number in range(4)]
    first, rest = payloads[1][:24], payloads[1][24:]
    content = bytearray(frame(payloads[0]) + frame(first, 1) + frame(b"", 2) + frame(rest, 3))
    content += frame(payloads[2]) + frame(payloads[3])
    for at, value in flips:
        content[at % len(content)] = value
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.rec"
        path.write_bytes(content[: len(content) - cut])
        try:
            with RecordioStore(path, label_format="auto") as store:
                for index in range(len(store)):
                    try:
                        store.read([index])
                    except PenstockError as error:
                        assert error.where["index"] == index  # noqa: PT017  # records are right as well
                for name in store.schema.small:
                    with contextlib.suppress(PenstockError):
                        store.column(name)
        except PenstockError as error:
            assert error.where["store"]  # noqa: PT017


@given(text=st.text("0123456789\t\n ax\0é", max_size=60))
def test_any_index_file_is_read_or_refused(text: str) -> None:
    """An index of any text is that of the file, or a StoreFormatError that names it."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_records(Path(folder) / "a.rec", [pack_image(JPEG, number) for number in range(3)])
        path.with_suffix(".idx").write_text(text, newline="")
        try:
            with open_store(path) as store:
                assert len(store) == 3
        except StoreFormatError as error:
            assert "a.idx" in error.message  # noqa: PT017


# ---------------------------------------------------------------- labels


def test_whole_numbers_are_classes_and_nan_is_none(tmp_path: Path) -> None:
    """Labels that are whole numbers are class numbers; NaN is no label; in the column it is -1."""
    path = write_records(tmp_path / "a.rec", [pack_image(JPEG, label) for label in (3.0, float("nan"), 0.0)])

    with open_store(path) as store:
        assert [record.fields["label"] for record in store] == [3, None, 0]
        assert store.schema["label"] == Field("label")
        assert store.column("label").tolist() == [3, -1, 0]


def test_other_numbers_are_floats(tmp_path: Path) -> None:
    """One label with a fraction makes all of them floats."""
    path = write_records(tmp_path / "a.rec", [pack_image(JPEG, label) for label in (3.0, 0.5)])

    with open_store(path) as store:
        assert store.schema["label"] == Field("float")
        assert store.column("label").tolist() == [3.0, 0.5]


def test_no_label_is_no_field(tmp_path: Path) -> None:
    """Where every label is NaN, there is no field."""
    path = write_records(tmp_path / "a.rec", [pack_image(JPEG, float("nan"))])

    assert set(read_all(path)[0].fields) == {"image"}


def test_arrays_of_other_lengths_are_ragged(tmp_path: Path) -> None:
    """Lengths that differ give float32[*]; a single number among arrays is an array of one."""
    path = write_records(tmp_path / "a.rec", [pack_image(JPEG, [1, 2, 0.5]), pack_image(JPEG, 7.0)])

    with open_store(path) as store:
        assert store.schema["label"] == Field("float32[*]")
        assert [record.fields["label"].tolist() for record in store] == [[1, 2, 0.5], [7]]


def test_multi_label_vectors_are_no_boxes(tmp_path: Path) -> None:
    """A structure that one record does not have is not taken for detection; asked for, the record is an error."""
    box = [2.0, 5.0, 1.0, 0.1, 0.2, 0.3, 0.4]
    path = write_records(tmp_path / "a.rec", [pack_image(JPEG, box), pack_image(JPEG, [2.0, 5.0, 1.5, 0.1, 0.2, 3, 4])])

    with open_store(path) as store:
        assert "boxes" not in store.schema
    with open_store(path, label_format="array") as store:
        assert "boxes" not in store.schema
    with open_store(path, label_format="detection") as store, pytest.raises(PenstockError, match="size of its image"):
        store.read([0])


def test_what_is_no_image_is_bytes(tmp_path: Path) -> None:
    """Payloads that no image format begins are a field of bytes; without a header, the whole payload is."""
    path = write_records(tmp_path / "a.rec", [pack_image(b"text", 1.0)])
    bare = write_records(tmp_path / "b.rec", [b"abc", b"", b"abcd" * 9])

    assert bytes(read_all(path)[0].fields["bytes"]) == b"text"
    with pytest.raises(StoreFormatError, match="image_header=False"):
        open_store(bare)
    assert [bytes(record.fields["bytes"]) for record in read_all(bare, image_header=False)] == [
        b"abc",
        b"",
        b"abcd" * 9,
    ]


def test_records_of_identities_are_left_out(data_dir: Path, tmp_path: Path) -> None:
    """InsightFace's records without an image are no samples, and said to be left out; asked for, they are records."""
    source = data_dir / "foreign" / "recordio-insightface"
    if not source.is_dir():
        pytest.skip("no containers")
    shutil.copytree(source, tmp_path / "faces", copy_function=shutil.copyfile)
    (tmp_path / "faces").chmod(0o755)
    path = tmp_path / "faces" / "set.rec"

    with open_store(path) as store, open_store(path, empty_records=True) as everything:
        assert "11 records of identities without an image left out" in store.description
        assert (len(store), len(everything)) == (24, 35)
        assert everything[0].fields["image"] is None
        assert everything[0].fields["label"].tolist() == [25, 35]
        assert everything[5].key == store[4].key


# ---------------------------------------------------------------- indexes


def test_a_stale_index_is_an_error_that_says_so(tmp_path: Path) -> None:
    """Offsets at which no record begins, records that are not listed, and keys that occur twice are refused."""
    path = write_records(tmp_path / "a.rec", [pack_image(JPEG, number) for number in range(3)])
    size = len(frame(pack_image(JPEG)))
    index = path.with_suffix(".idx")

    for text, reason in (
        (f"0\t0\n1\t{size + 4}\n2\t{2 * size}\n", "a.idx is stale: no record begins at byte"),
        ("0\t999999\n", "a.idx is stale"),
        (f"0\t0\n1\t{size}\n", "a.idx lists 2 records of 3"),
        (f"0\t0\n0\t{size}\n2\t{2 * size}\n", "twice"),
        ("0 0\n", "line 1 must be a key, a tab and an offset"),
    ):
        index.write_text(text)
        with pytest.raises(StoreFormatError, match=reason):
            open_store(path)
    with open_store(path, index=False) as store:
        assert list(store.keys()) == ["0", "1", "2"]


def test_a_given_index_chooses_records(tmp_path: Path) -> None:
    """An index that is given by name may list a part of the file; records stay in the order of the file."""
    path = write_records(tmp_path / "a.rec", [pack_image(JPEG, number) for number in range(4)])
    size = len(frame(pack_image(JPEG)))
    (tmp_path / "part.idx").write_text(f"9\t{3 * size}\nx y\t{size}\n")

    for paths in ([path, tmp_path / "part.idx"], [str(tmp_path / "part.idx"), str(tmp_path / "a.rec")]):
        with open_store(paths) as store:
            assert list(store.keys()) == ["x y", "9"]
            assert [record.fields["label"] for record in store] == [1, 3]


def test_several_files_are_one_store(tmp_path: Path) -> None:
    """Files given by a pattern are read one after the other; keys that occur twice get the name of their file."""
    for name in ("a", "b"):
        write_records(tmp_path / f"{name}.rec", [pack_image(JPEG, ord(name) + number) for number in range(2)])

    with open_store(str(tmp_path / "{a,b}.rec")) as store:
        assert [record.fields["label"] for record in store] == [97, 98, 98, 99]
        assert list(store.keys()) == ["0", "1", "2", "3"]
    size = len(frame(pack_image(JPEG)))
    for name in ("a", "b"):
        (tmp_path / f"{name}.idx").write_text(f"0\t0\n1\t{size}\n")
    with open_store([tmp_path / "a.rec", tmp_path / "b.rec"]) as store:
        assert list(store.keys()) == ["a/0", "a/1", "b/0", "b/1"]
        assert pickle.loads(pickle.dumps(store))[3].fields["label"] == 99


def test_the_scan_is_kept_and_used_while_the_file_is_the_same(tmp_path: Path) -> None:
    """The second opening reads the kept index; a damaged one, or one of another file, is made again."""
    path = write_records(tmp_path / "a.rec", [pack_image(JPEG, number) for number in range(3)])
    with open_store(path) as store:
        first = [record.fields["label"] for record in store]
    kept = tmp_path / "a.rec.index.npz"
    content = kept.read_bytes()

    kept.write_bytes(content[: len(content) // 2])
    with open_store(path) as store:
        assert [record.fields["label"] for record in store] == first
    write_records(path, [pack_image(JPEG, number) for number in range(5)])
    with open_store(path) as store:
        assert len(store) == 5


def test_many_records_are_indexed(tmp_path: Path) -> None:
    """A hundred thousand records open and read by index."""
    count = 100_000
    numbers = np.arange(count)
    record = np.zeros(
        count, [("frame", "<u4", 2), ("flag", "<u4"), ("label", "<f4"), ("id", "<u8", 2), ("image", "S4")]
    )
    record["frame"] = int.from_bytes(MAGIC_BYTES, "little"), 28
    record["label"], record["id"][:, 0], record["image"] = numbers % 1000, numbers, b"\xff\xd8\xff\xe0"
    (tmp_path / "a.rec").write_bytes(record.tobytes())

    with open_store(tmp_path / "a.rec") as store:
        assert len(store) == count
        assert store.column("label").tolist() == (numbers % 1000).tolist()
        assert [each.key for each in store.read([99_999, 5])] == ["99999", "5"]
        assert set(store.schema.fields) == {"image", "label"}
