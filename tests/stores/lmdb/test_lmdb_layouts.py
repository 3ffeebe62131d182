"""LMDB environments in the layouts of other programs: what each is read as, and what is refused and why."""

from __future__ import annotations

import contextlib
import io
import pickle
import random
import struct
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock.errors import ArgumentError, CorruptRecordError, PackError, PenstockError, StoreError, StoreFormatError
from tests.conformance.lmdb_layouts import varint, write

PATCH = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
PAIRS: dict[str, Any] = {"shape": (4, 5, 3), "channels": "RGB"}
TABLE: dict[str, Any] = {"shape": (-1, 5), "dtype": "float64"}


def jpeg(width: int = 20, height: int = 10, kind: str = "JPEG") -> bytes:
    """An encoded image."""
    file = io.BytesIO()
    Image.new("RGB", (width, height), (width, 3, height)).save(file, kind)
    return file.getvalue()


def index(path: Path, values: list[Any], *, keys: Any = None, count: Any = None, protocol: int = 4) -> str:
    """A pickle-index of these values."""
    entries = [(b"%d" % number, pickle.dumps(value, protocol)) for number, value in enumerate(values)]
    entries += [(b"__keys__", pickle.dumps(keys, protocol))] if keys is not None else []
    entries += [(b"__len__", pickle.dumps(count, protocol))] if count is not None else []
    return write(path, entries)


def patches(path: Path, texts: dict[Any, bytes], without: tuple[bytes, ...] = ()) -> str:
    """Pairs with these texts, less some keys."""
    entries = [(f"{number}".encode(), (PATCH + int(number)).tobytes()) for number in texts]
    entries += [(f"{number}_".encode(), text) for number, text in texts.items()]
    return write(path, [entry for entry in entries if entry[0] not in without])


def test_the_order_is_that_of_keys(tmp_path: Path) -> None:
    """`__keys__` is the order, whatever the numbers; text keys are bytes of UTF-8."""
    path = index(tmp_path / "set", [(b"a", 0), (b"b", 1), (b"c", 2)], keys=["2", "0", "1"], count=3)

    with ps.open(path) as store:
        assert [(record.key, bytes(record.fields["image"])) for record in store] == [
            ("2", b"c"),
            ("0", b"a"),
            ("1", b"b"),
        ]
        assert store.column("label").tolist() == [2, 0, 1]
        assert "__keys__" in store.description


def test_without_keys_numbers_are_the_order(tmp_path: Path) -> None:
    """`__len__` alone, or neither: by number, never by the order of bytes."""
    values = [(b"%d" % number, number) for number in range(12)]
    for name, count in (("a", 12), ("b", None)):
        with ps.open(index(tmp_path / name, values, count=count)) as store:
            assert [record.fields["label"] for record in store] == list(range(12))
            assert list(store.keys()) == [str(number) for number in range(12)]


@pytest.mark.parametrize("keys", [None, [b"0", b"1", b"2", b"3"], [b"0", b"1", b"x", b"y"]])
def test_missing_entries_are_named(tmp_path: Path, keys: Any) -> None:
    """A record without an entry refuses the environment by name, or is left out and listed."""
    path = index(tmp_path / "set", [(b"a", 0), (b"b", 1)], keys=keys, count=4)
    missing = ["x", "y"] if keys and b"x" in keys else ["2", "3"]

    with pytest.raises(StoreFormatError, match=f"2 records .* no entry: '{missing[0]}', '{missing[1]}'"):
        ps.open(path)
    with ps.open(path, missing="skip") as store:
        assert len(store) == 2
        assert [problem.key for problem in store.problems] == missing


def test_counts_that_differ_are_refused(tmp_path: Path) -> None:
    """`__len__` and `__keys__` must agree; a key must not be there twice; entries besides them are problems."""
    with pytest.raises(StoreFormatError, match=r"__len__ says 3"):
        ps.open(index(tmp_path / "a", [(b"a", 0)], keys=[b"0"], count=3))
    with pytest.raises(StoreFormatError, match=r"twice"):
        ps.open(index(tmp_path / "b", [(b"a", 0)], keys=[b"0", b"0"]))
    with ps.open(index(tmp_path / "c", [(b"a", 0), (b"b", 1)], keys=[b"1"])) as store:
        assert [problem.key for problem in store.problems] == ["0"]
    with pytest.raises(StoreFormatError, match=r"must have 1,000,000,000 records|has 1"):
        ps.open(index(tmp_path / "d", [(b"a", 0)], count=10**9))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_arrays_are_pixels(tmp_path: Path, protocol: int) -> None:
    """Arrays of any memory order, shape and byte order; BGR becomes RGB; one channel needs no order."""
    arrays = [np.asfortranarray(PATCH), PATCH[:, ::2], PATCH]
    path = index(tmp_path / "set", [(array, number) for number, array in enumerate(arrays)], protocol=protocol)

    with ps.open(path, channels="BGR") as store:
        assert store.schema["image"].kind == "pixels:uint8[*,*,3]"
        for record, array in zip(store, arrays, strict=True):
            assert np.array_equal(record.fields["image"], array[:, :, ::-1])
            assert record.fields["image"].flags.c_contiguous
            assert not record.fields["image"].flags.writeable
    with ps.open(index(tmp_path / "grey", [PATCH[:, :, 0].astype(">u2")], protocol=protocol)) as store:
        pixels = store[0].fields["image"]
        assert pixels.dtype == np.uint16
        assert pixels.dtype.isnative
        assert np.array_equal(pixels[:, :, 0], PATCH[:, :, 0])
    with ps.open(index(tmp_path / "chw", [PATCH.transpose(2, 0, 1).astype("f4")]), channels="RGB", axes="CHW") as store:
        assert np.array_equal(store[0].fields["image"], PATCH)


def test_orders_are_stated_never_guessed(tmp_path: Path) -> None:
    """Channels, axes and shape that are missing or wrong are refused, with the option to give."""
    path = index(tmp_path / "set", [(PATCH, 1), (PATCH, 2)])

    with pytest.raises(ArgumentError, match=r'channels must say .*"RGB" or "BGR"'):
        ps.open(path)
    with pytest.raises(ArgumentError, match=r"channels must be one of RGB, BGR"):
        ps.open(path, channels="GBR")
    with pytest.raises(ArgumentError, match=r"axes must be .* has 9 channels"):
        ps.open(index(tmp_path / "nine", [np.zeros((9, 5, 3), np.uint8)]), channels="RGB", axes="CHW")
    with ps.open(path, channels="RGB", shape=(4, 5, 3)) as store:
        assert store.schema["image"].kind == "pixels:uint8[4,5,3]"
    with ps.open(path, channels="RGB", shape=(5, 4, 3)) as store, pytest.raises(CorruptRecordError, match=r"shape"):
        store.read([0])


@pytest.mark.parametrize(
    ("label", "kind", "read"),
    [
        (3, "label", 3), (None, "label", None), (True, "label", 1), (0.5, "float", 0.5), ("cat", "text", "cat"),
        (np.int64(4), "label", 4), (np.array(5), "label", 5), (np.arange(3), "int64[3]", [0, 1, 2]),
        ([1.5, 2.5], "float64[2]", [1.5, 2.5]),
    ],
)  # fmt: skip
def test_labels_of_any_kind_are_read(tmp_path: Path, label: Any, kind: str, read: Any) -> None:
    """Numbers, text and arrays of one axis; None is None, and -1 in a column."""
    with ps.open(index(tmp_path / "set", [(b"x", label)] * 2)) as store:
        value = store[0].fields["label"]
        assert store.schema["label"].kind == kind
        assert (value.tolist() if isinstance(value, np.ndarray) else value) == read
        if kind == "label":
            assert store.column("label").tolist() == [-1 if read is None else read] * 2


def test_other_forms_of_values_are_read(tmp_path: Path) -> None:
    """Bytes or arrays alone, dicts, longer tuples with and without names, and a label that comes late."""
    with ps.open(index(tmp_path / "a", [jpeg(), jpeg(5)], count=2)) as store:
        assert list(store.schema.fields) == ["image"]
        assert bytes(store[1].fields["image"]) == jpeg(5)
    with ps.open(index(tmp_path / "b", [{"img": b"x", "target": 3, "boxes": np.zeros((2, 4))}], count=1)) as store:
        assert store[0].fields["label"] == 3
        assert store[0].fields["boxes"].shape == (2, 4)
    triples = index(tmp_path / "c", [(b"x", 1, "first"), (b"y", 2, None)])
    with ps.open(triples) as store:
        assert [*store.schema.fields] == ["image", "label", "2"]
    with pytest.raises(ArgumentError, match=r"fields must name the 3 items"):
        ps.open(triples, fields=("image", "label"))
    with ps.open(triples, fields=("image", "label", "caption")) as store:
        assert [record.fields["caption"] for record in store] == ["first", None]
    with ps.open(index(tmp_path / "d", [(b"x", None)] * 30 + [(b"x", 7)])) as store:
        assert store.column("label").tolist() == [-1] * 30 + [7]
    with ps.open(index(tmp_path / "e", [(b"x", 1)] * 20 + [(b"x", "late")] + [(b"x", 1)] * 30)) as store:
        with pytest.raises(CorruptRecordError, match=r"whole number.*got str") as caught:
            store.read([20])
        assert caught.value.where["key"] == "20"


@pytest.mark.parametrize(
    ("usual", "other"),
    [
        (np.zeros(2, np.int8), np.array([1000, -5])),
        (np.zeros(2, np.int32), np.array([2**40, 1])),
        (np.zeros(2, np.uint16), np.array([70000, 1], np.uint64)),
        (np.zeros(2, np.int64), np.array([2**64 - 1, 1], np.uint64)),
        (np.zeros(2, np.float16), np.array([70000, 1], np.float32)),
        (np.zeros(2, np.float32), np.array([0.1, 1])),
        (np.zeros(2), np.array([2**53 + 1, 1])),
        (np.zeros(2, np.int64), np.array([np.nan, 1])),
        ([0.5, 1], [0.5, 2**53 + 1]),
        (1, 2.5),
        (1, np.float32(2.5)),
        (1, np.array(2.5)),
        (0.5, 2**53 + 1),
    ],
)
def test_a_record_whose_numbers_do_not_fit_is_damaged(tmp_path: Path, usual: Any, other: Any) -> None:
    """Kinds follow from some records; a number of another one that they cannot hold is an error with its key."""
    values = [{"image": b"x", "v": other if number == 27 else usual} for number in range(40)]
    with ps.open(index(tmp_path / "set", values)) as store:
        for read in (lambda: store.read([27]), lambda: store.column("v")):
            with pytest.raises(CorruptRecordError, match=r"does not hold|must be a whole number|would be rounded"):
                read()
        assert np.array_equal(store[26].fields["v"], usual)


def test_numbers_of_another_dtype_that_fit_are_read(tmp_path: Path) -> None:
    """Arrays that NumPy made on another system, and lists of whole floats."""
    others: list[Any] = [np.array([5, -5]), np.array([3], ">i2").repeat(2), [1.0, 2.0], np.array([True, False])]
    values = [{"image": b"x", "v": np.zeros(2, np.int8)} for number in range(40)]
    for number, other in enumerate(others):
        values[21 + number]["v"] = other
    with ps.open(index(tmp_path / "set", values)) as store:
        for number, other in enumerate(others):
            found = store[21 + number].fields["v"]
            assert found.dtype == np.int8
            np.testing.assert_array_equal(found, other)


@pytest.mark.parametrize("label", [3, np.int64(3), "three"])
@pytest.mark.parametrize("image", [jpeg(), PATCH[:, :, 0]])
def test_an_image_behind_its_label_is_found(tmp_path: Path, label: Any, image: Any) -> None:
    """Of two items of which only the second one can be an image, it is the image; names that are given decide."""
    path = index(tmp_path / "set", [(label, image), (label, image)])
    with ps.open(path) as store:
        assert [*store.schema.fields] == ["label", "image"]
        assert store[1].fields["label"] == label
        held = store[1].fields["image"]
        assert bytes(held) == image if isinstance(image, bytes) else np.array_equal(held[:, :, 0], image)
        assert len(store.blobs("image", [0, 1])) == 2
        assert store.schema["image"].kind.startswith("image" if isinstance(image, bytes) else "pixels")


@pytest.mark.parametrize("second", [np.zeros((2, 4)), [[1, 2], [3]], [1.0, 2.0]])
def test_what_is_behind_an_image_is_no_image(tmp_path: Path, second: Any) -> None:
    """Boxes and lists behind bytes, of whatever format, do not change places with them."""
    with ps.open(index(tmp_path / "set", [(b"a format of tomorrow", second)] * 2)) as store:
        assert "image" in store.schema.fields
        assert bytes(store[1].fields["image"]) == b"a format of tomorrow"


def test_two_images_of_a_tuple_are_refused(tmp_path: Path) -> None:
    """Items have no names: which of two images is the image is stated, by number or by names for all items."""
    path = index(tmp_path / "set", [(jpeg(), jpeg(9), 1)] * 2)

    with pytest.raises(ArgumentError, match=r"each of '0', '1' may be the image; say image='0'"):
        ps.open(path)
    with ps.open(path, image="1") as store:
        assert [*store.schema.fields] == ["0", "image", "label"]
        assert bytes(store[0].fields["image"]) == jpeg(9)
    numbered: dict[str, Any] = {"image": 1, "label": 2}  # as the command line reads --option image=1
    with ps.open(path, **numbered) as store:
        assert [*store.schema.fields] == ["0", "image", "label"]
    with ps.open(path, fields=("image", "mask", "label")) as store:
        assert [field.kind for field in store.schema.fields.values()] == ["image", "mask", "label"]


def test_images_beside_pickled_keys_are_read(tmp_path: Path) -> None:
    """Values that are encoded images, not pickles, where keys and count are pickled."""
    entries = [(b"%d" % number, jpeg(number + 1)) for number in range(12)]
    end = [(b"__keys__", pickle.dumps([key for key, _ in entries])), (b"__len__", pickle.dumps(12))]
    with ps.open(write(tmp_path / "set", [*entries, *end])) as store:
        assert [bytes(record.fields["image"]) for record in store] == [value for _, value in entries]
        assert [bytes(value) for value in store.blobs("image", [11, 2])] == [entries[11][1], entries[2][1]]


def test_a_tuple_without_an_image_is_a_record_without_one(tmp_path: Path) -> None:
    """A pickled None in the place of an image is None."""
    path = index(tmp_path / "set", [(jpeg(), 1), (None, 1), (jpeg(9), None)])

    with ps.open(path) as store:
        records = list(store)
    images = [record.fields["image"] for record in records]
    assert [None if image is None else bytes(image) for image in images] == [jpeg(), None, jpeg(9)]
    assert [record.fields["label"] for record in records] == [1, 1, None]


@pytest.mark.parametrize("target", ["set.lmdb", "files"])
def test_a_record_without_an_image_is_refused_where_it_has_no_place(tmp_path: Path, target: str) -> None:
    """The conversion names the record, and writes nothing."""
    path = index(tmp_path / "source", [(jpeg(), 1), (None, 1)])

    with pytest.raises(PackError, match=r"1: field 'image' must hold encoded bytes"):
        ps.convert(path, f"{'files://' if target == 'files' else ''}{tmp_path / target}")
    assert not (tmp_path / target).exists()


@pytest.mark.parametrize("form", [">I", ">Q"])
@pytest.mark.parametrize("count", [None, 300])
def test_keys_of_big_endian_numbers_are_their_order(tmp_path: Path, form: str, count: int | None) -> None:
    """Numbers of 4 or 8 bytes from 0 on, with a count or without; a gap is refused."""
    entries = [(struct.pack(form, number), pickle.dumps((jpeg(), number))) for number in range(300)]
    end = [] if count is None else [(b"__len__", pickle.dumps(count))]
    with ps.open(write(tmp_path / "set", [*entries, *end])) as store:
        assert store.column("label").tolist() == list(range(300))
        assert len(set(store.keys())) == 300
    with pytest.raises(StoreFormatError, match="number"):
        ps.open(write(tmp_path / "gap", [*entries[:200], *entries[201:], *end]))


def test_numbers_and_counts_of_other_forms_are_read(tmp_path: Path) -> None:
    """Numbers from 1 on; a count in decimal, without pickles; keys in an array; a count of another form is refused."""
    values = [(b"%d" % (number + 1), pickle.dumps((jpeg(), number))) for number in range(12)]
    for name, end in (("a", []), ("b", [(b"__len__", b"12\n")]), ("c", [(b"__len__", pickle.dumps(12))])):
        with ps.open(write(tmp_path / name, [*values, *end])) as store:
            assert store.column("label").tolist() == list(range(12))
            assert [*store.keys()] == [str(number) for number in range(1, 13)]
    with ps.open(index(tmp_path / "d", [(jpeg(), 0), (jpeg(), 1)], keys=np.array([b"1", b"0"]))) as store:
        assert [*store.keys()] == ["1", "0"]
    with pytest.raises(StoreFormatError, match="1 record of number up to __len__ has no entry: '0'"):
        ps.open(write(tmp_path / "e", [*values, (b"__len__", pickle.dumps(13))]))
    with pytest.raises(StoreFormatError, match="pickled or in decimal"):
        ps.open(write(tmp_path / "f", [*values, (b"__len__", bytes(8))]))


def test_arrays_that_differ_in_memory_order_alone_are_told_apart(tmp_path: Path) -> None:
    """A pickle of protocol 5 says the order behind the bytes; what was learned of one is not used for another."""
    arrays = [PATCH, np.asfortranarray(PATCH), PATCH + 1, np.asfortranarray(PATCH + 1)]
    with ps.open(index(tmp_path / "set", [(array, 1) for array in arrays], protocol=5), channels="RGB") as store:
        for _ in range(3):
            for record, array in zip(store, arrays, strict=True):
                assert np.array_equal(record.fields["image"], array)


def test_gray_and_colour_pictures_are_read_side_by_side(tmp_path: Path) -> None:
    """Each as it is, and the schema says that the channels vary; where it says three, all have three."""
    gray, colour = PATCH[:, :, 0], PATCH
    arrays = [gray, colour, colour[:3], gray[:, :, None], np.dstack([colour, gray])]
    with ps.open(index(tmp_path / "set", [(array, n) for n, array in enumerate(arrays)]), channels="BGR") as store:
        images = [record.fields["image"] for record in store]
        blobs = store.blobs("image", range(len(store)))
    late = index(tmp_path / "late", [(PATCH, 1)] * 20 + [(gray, 1)] + [(PATCH, 1)] * 40)
    with ps.open(late, channels="RGB") as rest:
        last = rest[20].fields["image"]

    assert store.schema["image"].kind == "pixels:uint8[*,*,*]"
    assert [image.shape for image in images] == [(4, 5, 1), (4, 5, 3), (3, 5, 3), (4, 5, 1), (4, 5, 4)]
    assert np.array_equal(images[0][:, :, 0], gray)
    assert np.array_equal(images[1], colour[:, :, ::-1])
    assert all(np.array_equal(one, other) for one, other in zip(images, blobs, strict=True))
    assert rest.schema["image"].kind == "pixels:uint8[*,*,3]"
    assert np.array_equal(last, np.dstack([gray] * 3))
    assert not last.flags.writeable
    with pytest.raises(StoreFormatError, match=r"pixels of one dtype, got pixels:uint16.*pixels:uint8"):
        ps.open(index(tmp_path / "dtypes", [gray, gray.astype(np.uint16)]))


def test_a_record_of_another_form_is_damaged(tmp_path: Path) -> None:
    """Bytes among arrays, arrays among bytes, another dtype or number of channels: the record is named."""
    odd: list[Any] = [
        (b"x", 1),
        (PATCH.astype("u2"), 1),
        (PATCH[:, :, [0, 1, 2, 0]], 1),
        (PATCH[0, 0], 1),
        3,
        (PATCH, [2]),
    ]
    for number, value in enumerate(odd):
        path = index(tmp_path / str(number), [(PATCH, 1)] * 20 + [value] + [(PATCH, 1)] * 40)
        with ps.open(path, channels="RGB") as store, pytest.raises(CorruptRecordError, match=r"record 20 is damaged"):
            list(store)
    with ps.open(index(tmp_path / "bytes", [(b"x", 1)] * 20 + [(PATCH, 1)] + [(b"x", 1)] * 40)) as store:
        with pytest.raises(CorruptRecordError, match=r"must be bytes, got uint8 array"):
            store.blobs("image", range(len(store)))
        assert len(store.read([19, 21])) == 2


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path) -> None:
    """The first record, a later one, and `__keys__`: named, with the record, and nothing runs."""
    canary = tmp_path / "canary"

    class Runs:
        def __reduce__(self) -> Any:
            return Path.touch, (canary,)

    with pytest.raises(StoreFormatError, match=r"pathlib.*refused"):
        ps.open(index(tmp_path / "a", [(b"x", Runs())]))
    with pytest.raises(StoreFormatError, match=r"pathlib.*refused"):
        ps.open(index(tmp_path / "b", [(b"x", 1)], keys=Runs()))
    with ps.open(index(tmp_path / "c", [(b"x", 1)] * 20 + [(b"x", Runs())] + [(b"x", 1)] * 30)) as store:
        with pytest.raises(StoreFormatError, match=r"pathlib.*refused") as caught:
            store.read([20])
        with pytest.raises(StoreFormatError, match=r"pathlib.*refused"):
            store.blobs("image", [3, 20])
    assert caught.value.where["index"] == 20
    assert not canary.exists()


def test_pairs_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """Never in that of bytes; the texts may have two, three or four fields, empty ones too."""
    texts = {
        0: b"-2,,", 2: b"1,0.5 -0.25 1 2,", 10: b"0,,0.5 1.5", 9: b" 3 , 1 2 3 4 , 5 6 ", 1: b"7",
        3: b"1,1 2 3 4,", 4: b"1,,,", 5: b"", 6: b",1 2 3 4", 7: b"1,,,\n", 8: b"+5,,",
    }  # fmt: skip
    with ps.open(patches(tmp_path / "set", texts), channels="BGR", shape=(4, 5, 3)) as store:
        records = list(store)
        labels = store.column("label").tolist()
        blobs = store.blobs("image", [10, 2, 2])

    assert [record.key for record in records] == [str(number) for number in range(11)]
    assert [record.fields["label"] for record in records] == [-2, 7, 1, 1, 1, None, None, 1, 5, 3, 0]
    assert labels == [-2, 7, 1, 1, 1, -1, -1, 1, 5, 3, 0]
    assert records[9].fields["box"].tolist() == [1, 2, 3, 4]
    assert records[9].fields["landmarks"].tolist() == [5, 6]
    assert records[0].fields["box"].shape == (0,)
    assert records[2].fields["box"].dtype == np.float32
    assert all(
        np.array_equal(record.fields["image"], (PATCH + number)[:, :, ::-1]) for number, record in enumerate(records)
    )
    assert np.array_equal(blobs[0], records[10].fields["image"])
    assert np.array_equal(blobs[2], records[2].fields["image"])
    assert not blobs[0].flags.writeable


def test_a_fourth_field_of_numbers_is_read(tmp_path: Path) -> None:
    """It is a field of its own."""
    with ps.open(patches(tmp_path / "set", {0: b"1,,,3 4", 1: b"1,,"}), **PAIRS) as store:
        assert store[0].fields["more"].tolist() == [3, 4]
        assert store[1].fields["more"].tolist() == []


def test_texts_with_other_separators_are_read(tmp_path: Path) -> None:
    """Semicolons for commas, or one separator between all numbers; other counts of numbers are refused."""
    box, points = [0.5, -0.25, 1.0, 2.0], [float(number) for number in range(10)]
    numbers = [str(number) for number in (*box, *points)]
    texts = {
        0: f"3;{' '.join(numbers[:4])};{' '.join(numbers[4:])}",
        1: ",".join(["3", *numbers]), 2: " ".join(["3", *numbers]),
        3: "3\t" + "\t".join(numbers) + "\r\n", 4: f"3,{' '.join(numbers[:4])},{' '.join(numbers[4:])}\r\n",
        5: "3 1 2", 6: "3,1,2,3,4,5",
    }  # fmt: skip
    with ps.open(patches(tmp_path / "set", {key: text.encode() for key, text in texts.items()}), **PAIRS) as store:
        for record in store.read(range(5)):
            assert record.fields["label"] == 3
            assert record.fields["box"].tolist() == box
            assert record.fields["landmarks"].tolist() == points
        for index_, count in ((5, 3), (6, 6)):
            with pytest.raises(CorruptRecordError, match=f"LABEL,BOX,LANDMARKS.*{count} numbers"):
                store.read([index_])
    with ps.open(patches(tmp_path / "five", {0: b"1 1 2 3 4", 1: b"1,1,2,3,4"}), **PAIRS) as store:
        assert [record.fields["box"].tolist() for record in store] == [[1, 2, 3, 4]] * 2
        assert store.column("label").tolist() == [1, 1]


def test_other_keys_do_not_hide_the_layout(tmp_path: Path) -> None:
    """A count or a note beside pairs, or beside numbered pickles, is a problem, and the records are read."""
    entries = [(b"%d" % number, PATCH.tobytes()) for number in range(9)]
    entries += [(b"%d_" % number, b"1,,") for number in range(9)]
    with ps.open(
        write(tmp_path / "pairs", [*entries, (b"__len__", b"9"), (b"note", b"of somebody")]), **PAIRS
    ) as store:
        assert len(store) == 9
        assert [problem.key for problem in store.problems] == ["__len__", "note"]
    values = [(b"%d" % number, pickle.dumps((jpeg(), number))) for number in range(12)]
    with ps.open(write(tmp_path / "index", [*values, (b"num-samples", b"12")])) as store:
        assert store.column("label").tolist() == list(range(12))
        assert [problem.key for problem in store.problems] == ["num-samples"]


@pytest.mark.parametrize("without", [b"17", b"17_"])
def test_a_missing_partner_is_named(tmp_path: Path, without: bytes) -> None:
    """Pixels without a text, or a text without pixels."""
    path = patches(tmp_path / "set", dict.fromkeys(range(30), b"1,,"), (without,))

    with pytest.raises(StoreFormatError, match=f"1 key is missing.*'{without.decode()}'"):
        ps.open(path, **PAIRS)
    with ps.open(path, missing="skip", **PAIRS) as store:
        assert len(store) == 29
        assert [record.key for record in store] == [str(number) for number in range(30) if number != 17]
        assert store.problems[0].key == without.decode()


def test_gaps_and_counts_are_reported(tmp_path: Path) -> None:
    """Numbers that are left out are problems; another count than expected says what may have happened."""
    path = patches(tmp_path / "set", dict.fromkeys((1, 2, 5, 9, 10), b"1,,"))

    with ps.open(path, **PAIRS, expected_count=5) as store:
        assert [problem.key for problem in store.problems] == ["3 .. 4", "6 .. 8"]
        assert "5 numbers left out" in store.description
    with pytest.raises(
        StoreFormatError, match=r"5 records, expected_count is 12, the last one is '10'.*last transaction"
    ):
        ps.open(path, **PAIRS, expected_count=12)
    with ps.open(patches(tmp_path / "padded", {"007": b"1,,", "008": b"2,,"}), **PAIRS) as store:
        assert list(store.keys()) == ["007", "008"]
    with pytest.raises(StoreFormatError, match=r"'07' and '7' are the same number|'7' and '07'"):
        ps.open(patches(tmp_path / "twice", {"07": b"1,,", "7": b"2,,"}), **PAIRS)


def test_units_make_boxes_and_keypoints(tmp_path: Path) -> None:
    """In pixels of the patch, from fractions, pixels or offsets of the corners."""
    path = patches(tmp_path / "set", {0: b"1,0.2 0.5 0.4 1,0.2 0.5 1 1", 1: b"0,,"})
    wanted: dict[str, list[float]] = {"relative": [1, 2, 2, 4], "pixels": [0.2, 0.5, 0.4, 1], "offsets": [1, 2, 7, 8]}

    for units, box in wanted.items():
        with ps.open(path, units=units, **PAIRS) as store:
            first, second = store
        np.testing.assert_allclose(first.fields["boxes"], [box], rtol=1e-6)
        points: Any = [[0.2, 0.5], [1, 1]] if units == "pixels" else [[1, 2], [5, 4]]
        np.testing.assert_allclose(first.fields["keypoints"], points, rtol=1e-6)
        assert second.fields["boxes"].shape == (0, 4)
        assert second.fields["keypoints"].shape == (0, 2)


def test_the_shape_of_pixels_is_stated(tmp_path: Path) -> None:
    """Shape and channels that are missing or wrong are refused; a record of another size is damaged."""
    path = Path(patches(tmp_path / "set", {0: b"1,,", 1: b"1,,"}))

    with pytest.raises(ArgumentError, match=r"shape must be the height.*have 60 bytes"):
        ps.open(path)
    with pytest.raises(ArgumentError, match=r"channels must say"):
        ps.open(path, shape=(4, 5, 3))
    with pytest.raises(ArgumentError, match=r"shape must be that of the pixels.*has 60"):
        ps.open(path, shape=(4, 4, 3), channels="RGB")
    with pytest.raises(ArgumentError, match=r"units must be one of"):
        ps.open(path, units="feet", **PAIRS)
    with ps.open(path, shape=(4, 5, 3), channels="RGB") as store:
        assert store.schema["image"].kind == "pixels:uint8[4,5,3]"
    with ps.open(path, shape=(5, 6), dtype="uint16") as store:
        assert np.array_equal(store[0].fields["image"].ravel(), PATCH.ravel().view("<u2"))
    short = write(tmp_path / "short", [(b"0", bytes(60)), (b"0_", b"1,,"), (b"1", bytes(59)), (b"1_", b"1,,x")])
    with ps.open(short, **PAIRS) as store:
        store.read([0])
        with pytest.raises(CorruptRecordError, match=r"record 1"):
            store.blobs("image", [0, 1])
        with pytest.raises(CorruptRecordError, match=r"LABEL,BOX,LANDMARKS"):
            store.read([1])


def test_names_are_read_as_stated(tmp_path: Path) -> None:
    """Boxes from rows; an empty value is no boxes, a missing one None; any ending of an image."""
    rows = np.array([[1, 0.5, 0.5, 0.2, 0.4], [0, 0.25, 0.25, 0.5, 0.5]])
    path = write(
        tmp_path / "set",
        [(b"a.jpg", jpeg()), (b"a.txt", rows.tobytes()), (b"b.PNG", jpeg(40, 20, "PNG")), (b"b.txt", rows.tobytes()),
         (b"c.jpeg", jpeg()), (b"c.txt", b""), (b"d.jpg", jpeg()), (b"e.txt", b""), (b"readme", b"x")],
    )  # fmt: skip

    with ps.open(path, columns="class cx cy w h", units="relative", classes=["red", "white"], **TABLE) as store:
        assert [record.key for record in store] == ["a.jpg", "b.PNG", "c.jpeg", "d.jpg"]
        assert store.schema["classes"].classes == ("red", "white")
        np.testing.assert_allclose(store[0].fields["boxes"], [[8, 3, 12, 7], [0, 0, 10, 5]], atol=1e-5)
        np.testing.assert_allclose(store[1].fields["boxes"], [[16, 6, 24, 14], [0, 0, 20, 10]], atol=1e-5)
        assert store[0].fields["boxes"].dtype == np.float32
        assert store[0].fields["classes"].tolist() == [1, 0]
        assert store[2].fields["boxes"].shape == (0, 4)
        assert store[2].fields["classes"].shape == (0,)
        assert store[3].fields["boxes"] is None
        assert [problem.key for problem in store.problems] == ["e.txt", "readme"]
    with ps.open(path, **TABLE) as store:
        assert store.schema["array"].kind == "float64[*,5]"
        assert np.array_equal(store[0].fields["array"], rows)
        assert store[3].fields["array"] is None
    with ps.open(path, columns="score x1 y1 w h", units="pixels", **TABLE) as store:
        np.testing.assert_allclose(store[0].fields["boxes"][1], [0.25, 0.25, 0.75, 0.75])
        assert store[0].fields["score"].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("image", "array", "pair"),
    [
        ("images/{:02}.jpg", "labels/{:02}.txt", "images/* labels/*.txt"),
        ("{:02}.jpg", "{:02}_label", "* *_label"),
        ("set/img_{:02}.png", "set/lbl_{:02}", "set/img_* set/lbl_*"),
    ],
)
def test_arrays_under_other_names_are_refused_with_the_pair_to_give(
    tmp_path: Path, image: str, array: str, pair: str
) -> None:
    """Labels are not lost: two keys of each kind are shown, and the pair that is offered reads them."""
    entries = [(image.format(number).encode(), jpeg(number + 1)) for number in range(12)]
    labels = [(array.format(number).encode(), np.int64(number).tobytes()) for number in range(12)]
    path = write(tmp_path / "set", [*entries, *labels])
    options: dict[str, Any] = {"shape": (), "dtype": "int64"}

    with pytest.raises(ArgumentError, match=r"none of the 12 entries beside the images") as caught:
        ps.open(path, **options)
    for key in (image.format(0), image.format(1), array.format(0), array.format(1), f'pair="{pair}"'):
        assert key in str(caught.value)
    with ps.open(path, pair=pair, **options) as store:
        assert [image.format(label) for label in store.column("label").tolist()] == list(store.keys())
        assert not store.problems
    with pytest.raises(StoreFormatError, match=r"no images whose keys fit pair='other/\* \*.txt'"):
        ps.open(path, pair="other/* *.txt", **options)
    with pytest.raises(ArgumentError, match=r"pair must be the keys of an image and of its array"):
        ps.open(path, pair="labels/*.txt", **options)


def test_arrays_that_are_texts_are_named_and_read(tmp_path: Path) -> None:
    """A text is not taken for the bytes of numbers; `dtype="text"` reads it."""
    images = [(b"%d.jpg" % number, jpeg()) for number in range(4)]
    boxes = write(tmp_path / "boxes", [*images, *((b"%d.txt" % n, b"%d 0.5 0.5 0.2 0.4\n" % n) for n in range(4))])
    numbers = write(tmp_path / "numbers", [*images, *((b"%d.txt" % n, b"%d" % n) for n in range(4))])
    names = write(tmp_path / "names", [*images, (b"0.txt", b"cat\n"), (b"1.txt", b""), (b"2.txt", b"3")])

    for path, shape, dtype in ((boxes, (-1, 5), "float64"), (numbers, (), "uint8"), (names, (), "int64")):
        with pytest.raises(ArgumentError, match=r'dtype must be "text" where the arrays are texts, such as b\'[0c]'):
            ps.open(path, shape=shape, dtype=dtype)
    with ps.open(boxes, shape=(-1, 5), dtype="text", columns="class cx cy w h", units="relative") as store:
        np.testing.assert_allclose(store[3].fields["boxes"], [[8, 3, 12, 7]], atol=1e-5)
        assert store[3].fields["classes"].tolist() == [3]
    with ps.open(numbers, shape=(), dtype="text") as store:
        assert store.column("label").tolist() == [0, 1, 2, 3]
    with ps.open(names, shape=(), dtype="text") as store:
        assert [record.fields["label"] for record in store] == ["cat", None, "3", None]
    with ps.open(names, shape=(), dtype="text", classes=["dog", "cat"]) as store:
        assert store[0].fields["label"] == 1
        with pytest.raises(CorruptRecordError, match=r"label b'3' is none of the 2 classes"):
            store.read([2])


def test_pairs_in_another_order_are_refused_with_what_to_give(tmp_path: Path) -> None:
    """Texts under the keys of pixels, labels behind boxes, and names of items that are exchanged."""
    texts = [(b"%d" % number, b"%d,0.1 0.2 0.3 0.4," % number) for number in range(3)]
    path = write(tmp_path / "keys", [*texts, *((b"%d_" % number, PATCH.tobytes()) for number in range(3))])

    with pytest.raises(ArgumentError, match=r"pair must be '\*_ \*'.*the text b'0,0.1"):
        ps.open(path, **PAIRS)
    with ps.open(path, pair="*_ *", **PAIRS) as store:
        assert store.column("label").tolist() == [0, 1, 2]
        assert np.array_equal(store[2].fields["image"], PATCH)
    with pytest.raises(StoreFormatError, match=r"b'1 2 3 4,0,' is not LABEL,BOX,LANDMARKS.*label must be first"):
        ps.open(patches(tmp_path / "text", {number: b"1 2 3 4,%d," % number for number in range(3)}), **PAIRS)
    with pytest.raises(ArgumentError, match=r"image must hold images, got '1', which is int"):
        ps.open(index(tmp_path / "items", [(jpeg(), 3)] * 3), fields=("label", "image"))


def test_an_option_of_another_layout_names_the_layouts(tmp_path: Path) -> None:
    """And a layout that the content does not have names that of the content."""
    path = write(tmp_path / "set", [(b"a.jpg", jpeg()), (b"b.jpg", jpeg())])

    with pytest.raises(ArgumentError, match=r"'lmdb-names' has no option 'channels'.*are pickle-index, pairs, datum"):
        ps.open(path, channels="RGB")
    with pytest.raises(StoreFormatError, match=r"not a container of layout 'pairs'; its content is that of 'names'"):
        ps.open(path, layout="pairs")


def test_an_array_of_two_images_is_a_problem(tmp_path: Path) -> None:
    """Which of them it was written for cannot be known: it is given with both, and listed."""
    rows = np.zeros((1, 5))
    path = write(tmp_path / "set", [(b"a.jpg", jpeg()), (b"a.png", jpeg(8, 8, "PNG")), (b"a.txt", rows.tobytes())])

    with ps.open(path, **TABLE) as store:
        assert [(problem.key, problem.reason) for problem in store.problems] == [
            ("a.txt", "several images have it: a.jpg, a.png")
        ]
        assert all(np.array_equal(record.fields["array"], rows) for record in store)


def test_what_arrays_are_is_stated(tmp_path: Path) -> None:
    """Shape, dtype, columns and units that are missing or wrong are refused, with what to give."""
    path = write(tmp_path / "set", [(b"a.jpg", jpeg()), (b"a.txt", np.zeros(10).tobytes())])

    with pytest.raises(ArgumentError, match=r"shape and dtype must be those of the arrays.*80 bytes"):
        ps.open(path)
    with pytest.raises(ArgumentError, match=r"units must be one of relative, pixels"):
        ps.open(path, columns="class cx cy w h", **TABLE)
    with pytest.raises(ArgumentError, match=r"columns must name each column once"):
        ps.open(path, columns="class x y w h", units="relative", **TABLE)
    with pytest.raises(ArgumentError, match=r"columns must name the 5 columns"):
        ps.open(path, columns="cx cy w h", units="relative", **TABLE)
    with pytest.raises(ArgumentError, match=r"dtype must be one of"):
        ps.open(path, shape=(-1, 5), dtype="object")
    with pytest.raises(ArgumentError, match=r"at most one -1"):
        ps.open(path, shape=(-1, -1), dtype="float64")
    with ps.open(path, shape=(-1, 4), dtype="float64") as store, pytest.raises(CorruptRecordError, match=r"80 bytes"):
        store.read([0])


def test_images_alone_are_names(tmp_path: Path) -> None:
    """Also under keys without an ending."""
    with ps.open(write(tmp_path / "set", [(b"ab12", jpeg()), (b"ff00", jpeg(7))])) as store:
        assert list(store.schema.fields) == ["image"]
        assert [record.key for record in store] == ["ab12", "ff00"]
        assert "no arrays" in store.description


def test_raw_messages_of_caffe_are_bgr(tmp_path: Path) -> None:
    """Unless it is stated that they are RGB; the description says which; floats are pixels too."""
    chw = PATCH.transpose(2, 0, 1)
    head = b"\x08\x03\x10\x04\x18\x05"
    raw = head + b"\x22" + varint(60) + chw.tobytes() + b"\x28" + varint(-1)
    path = write(tmp_path / "set", [(b"b", raw), (b"a", raw)])
    floats = head + b"".join(b"\x35" + struct.pack("<f", each) for each in chw.ravel().tolist())

    with ps.open(path) as store:
        assert [record.key for record in store] == ["a", "b"]
        assert np.array_equal(store[0].fields["image"], PATCH[:, :, ::-1])
        assert store.column("label").tolist() == [-1, -1]
        assert "BGR (Caffe's convention)" in store.description
    with ps.open(path, channels="RGB", layout="datum") as store:
        assert np.array_equal(store[0].fields["image"], PATCH)
        assert "RGB (stated)" in store.description
    with ps.open(write(tmp_path / "floats", [(b"0", floats)]), channels="RGB") as store:
        assert store[0].fields["image"].dtype == np.float32
        assert np.array_equal(store[0].fields["image"], PATCH)
        assert store[0].fields["label"] is None


def test_raw_messages_of_caffe_may_be_gray_and_colour(tmp_path: Path) -> None:
    """Each is read as it is."""
    gray = b"\x08\x01\x10\x04\x18\x05\x22" + varint(20) + PATCH[:, :, 0].tobytes()
    colour = b"\x08\x03\x10\x04\x18\x05\x22" + varint(60) + PATCH.transpose(2, 0, 1).tobytes()

    with ps.open(write(tmp_path / "set", [(b"a", gray), (b"b", colour)])) as store:
        assert store.schema["image"].kind == "pixels:uint8[*,*,*]"
        assert [record.fields["image"].shape for record in store] == [(4, 5, 1), (4, 5, 3)]
        assert "BGR" in store.description


def test_the_layout_is_detected_or_stated(tmp_path: Path) -> None:
    """A stated layout that does not fit is refused; an environment that none fits shows what was looked for."""
    path = index(tmp_path / "set", [(b"x", 1)], count=1)

    with ps.open(path, layout="pickle-index") as store:
        assert store.kind == "lmdb-pickle-index"
    with pytest.raises(StoreFormatError, match=r"layout 'pairs'"):
        ps.open(path, layout="pairs", **PAIRS)
    with pytest.raises(StoreError, match=r"missing.*'0_'"):
        ps.open(f"lmdb-pairs://{path}", **PAIRS)
    with pytest.raises(StoreFormatError, match=r"not a pack, and no layout fits.*pairs: keys i.*such as 'what'"):
        ps.open(write(tmp_path / "other", [(b"what", b"is this")]))
    with pytest.raises(StoreFormatError, match=r"not a pack, and it has no entries"):
        ps.open(write(tmp_path / "empty", []))


def test_one_file_is_an_environment_too(tmp_path: Path) -> None:
    """`subdir=False` makes a file; it is read as a folder is."""
    path = tmp_path / "set.lmdb"
    with lmdb.open(str(path), subdir=False, map_size=1 << 20) as environment, environment.begin(write=True) as writing:
        writing.put(b"0", pickle.dumps((b"x", 3)))
        writing.put(b"__len__", pickle.dumps(1))

    with ps.open(path) as store:
        assert store[0].fields["label"] == 3
        assert str(tmp_path) not in store.description


def test_an_environment_cut_anywhere_is_refused_or_read(tmp_path: Path) -> None:
    """No truncated or changed file crashes the process or gives an error that is not ours."""
    path = Path(index(tmp_path / "set", [(np.random.default_rng(n).bytes(n * 400), n) for n in range(30)], count=30))
    file = path / "data.mdb"
    whole = file.read_bytes()
    rng = random.Random(2)
    for nbytes in range(0, len(whole), 4096 * 3):
        (tmp_path / "new").write_bytes(whole[:nbytes])
        (tmp_path / "new").replace(file)
        with pytest.raises(StoreError), ps.open(path) as store:
            list(store)
    for _ in range(150):
        damaged = bytearray(whole)
        damaged[
            rng.choice([rng.randrange(len(whole)), rng.randrange(len(whole) // 4096) * 4096 + rng.randrange(60)])
        ] ^= 4
        (tmp_path / "new").write_bytes(damaged)
        (tmp_path / "new").replace(file)
        with contextlib.suppress(PenstockError), ps.open(path) as store:
            list(store)
            store.column("label")


def test_many_keys_open_and_read(tmp_path: Path) -> None:
    """100,000 records: by number, first and last."""
    count = 100_000
    values = ((b"%d" % number, pickle.dumps((b"%d" % number, number % 7), 4)) for number in range(count))
    path = write(tmp_path / "set", [*values, (b"__keys__", pickle.dumps([b"%d" % number for number in range(count)]))])

    with ps.open(path) as store:
        assert len(store) == count
        assert [bytes(record.fields["image"]) for record in store.read([0, 65_535, count - 1])] == [
            b"0",
            b"65535",
            b"99999",
        ]
        assert store.keys()[-1] == "99999"


def test_a_dict_that_lacks_its_label_has_no_other_value_as_label(tmp_path: Path) -> None:
    """`target` is a field of its own where other records have `label` and `target`."""
    values: list[object] = [{"image": jpeg(), "label": 3, "target": number} for number in range(60)]
    values[37] = {"image": jpeg(), "target": 37}

    with ps.open(index(tmp_path / "set", values)) as store:
        assert store[37].fields["label"] is None
        assert store[37].fields["target"] == 37
        assert store.column("target").tolist() == [*range(60)]


def test_a_dict_of_two_keys_with_one_text_is_damage(tmp_path: Path) -> None:
    """One of the two values would be lost."""
    values: list[object] = [{"image": jpeg(), "label": 3} for _ in range(60)]
    values[37] = {"image": jpeg(), "label": 3, b"label": 4}

    with (
        ps.open(index(tmp_path / "set", values)) as store,
        pytest.raises(CorruptRecordError, match="two keys have the same text"),
    ):
        store.read([37])


def test_named_keys_of_dicts_may_be_missing_in_some_and_not_in_all(tmp_path: Path) -> None:
    """fields= names keys: one that a record lacks is None, one that no record has is refused."""
    values: list[object] = [{"image": jpeg(), "label": 3, "more": 1} for _ in range(60)]
    values[37] = {"label": 3}
    path = index(tmp_path / "set", values)

    with ps.open(path, fields=("image", "label")) as store:
        assert dict(store[37].fields) == {"image": None, "label": 3}
        assert store.blobs("image", [37]) == [None]
    with pytest.raises(ArgumentError, match="fields must name keys of the dicts, got 'lable'"):
        ps.open(path, fields=("image", "lable"))
