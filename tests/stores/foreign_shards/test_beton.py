"""FFCV's beton files: fields, JPEG and raw images, damage, any bytes."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import penstock as ps
from penstock import transforms as T
from penstock.errors import ArgumentError, CorruptRecordError, PenstockError, StoreFormatError
from tests.stores.written import (
    ARRAY,
    BYTES,
    CUSTOM,
    FLOAT,
    IMAGE,
    INT,
    JSON,
    TENSOR,
    array_arguments,
    write_anew,
    write_beton,
    write_many,
)

JPEG = b"\xff\xd8\xff" + bytes(30)
FIELDS = {"image": (IMAGE, b""), "label": (INT, b"")}


def raw(seed: int, height: int = 3, width: int = 5) -> np.ndarray[Any, Any]:
    """Pixels."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def write_set(path: Path, count: int = 7) -> Path:
    """A file of JPEGs with their numbers."""
    return write_beton(path, FIELDS, [{"image": JPEG + b"%d" % i, "label": i} for i in range(count)])


def test_every_type_of_field_is_read(tmp_path: Path) -> None:
    """Numbers, JPEGs, bytes, arrays, JSON and tensors, in any order, with the padding between them."""
    fields = {
        "weight": (FLOAT, b""),
        "photo": (IMAGE, b""),
        "label": (INT, b""),
        "blob": (BYTES, b""),
        "points": (ARRAY, array_arguments("<f4", (2, 3))),
        "meta": (JSON, b""),
        "mask": (TENSOR, array_arguments("|u1", (4,))),
    }
    points = np.arange(6, dtype=np.float32).reshape(2, 3)
    samples = [
        {
            "weight": i / 4,
            "photo": JPEG + b"%d" % i,
            "label": i - 1,
            "blob": b"blob %d" % i,
            "points": points + i,
            "meta": json.dumps({"i": i}).encode() + b"\0",
            "mask": np.full(4, i, np.uint8),
        }
        for i in range(3)
    ]
    path = write_beton(tmp_path / "a.beton", fields, samples)

    with ps.open(path) as store:
        kinds = [field.kind for field in store.schema.fields.values()]
        record = store[2]
        weights = store.column("weight").tolist(), store.column("label").tolist()
        column = store.column("points")

    assert list(record.fields) == ["weight", "image", "label", "blob", "points", "meta", "mask"]
    assert kinds == ["float", "image", "label", "bytes", "float32[2,3]", "json", "uint8[4]"]
    assert weights == ([0.0, 0.25, 0.5], [-1, 0, 1])
    assert bytes(record.fields["image"]) == JPEG + b"2"
    assert bytes(record.fields["blob"]) == b"blob 2"
    assert record.fields["meta"] == {"i": 2}
    np.testing.assert_array_equal(record.fields["points"], points + 2)
    np.testing.assert_array_equal(record.fields["mask"], [2] * 4)
    np.testing.assert_array_equal(column, [points, points + 1, points + 2])
    assert (record.key, record.fields["weight"], record.fields["label"]) == ("2", 0.5, 1)


def test_raw_images_are_pixels(tmp_path: Path) -> None:
    """Raw images are read-only views, HWC; sizes that are all the same are in the kind."""
    same = write_beton(tmp_path / "a.beton", FIELDS, [{"image": raw(i), "label": i} for i in range(3)])
    differ = write_beton(tmp_path / "b.beton", FIELDS, [{"image": raw(i, 3, 4 + i), "label": i} for i in range(3)])

    with ps.open(same) as store:
        assert store.schema["image"].kind == "pixels:uint8[3,5,3]"
        np.testing.assert_array_equal(store[2].fields["image"], raw(2))
        assert not store[2].fields["image"].flags.writeable
    with ps.open(differ) as store:
        assert store.schema["image"].kind == "pixels:uint8[3,*,3]"
        np.testing.assert_array_equal(store[2].fields["image"], raw(2, 3, 6))


def test_a_file_may_have_jpegs_and_raw_images(tmp_path: Path) -> None:
    """Where both are stored, each record gives what it has."""
    samples = [{"image": JPEG, "label": 0}, {"image": raw(1), "label": 1}]

    with ps.open(write_beton(tmp_path / "a.beton", FIELDS, samples)) as store:
        assert store.schema["image"].kind == "image"
        assert bytes(store[0].fields["image"]) == JPEG
        np.testing.assert_array_equal(store[1].fields["image"], raw(1))


def test_raw_images_beside_jpegs_are_encoded_if_that_is_stated(tmp_path: Path) -> None:
    """With raw="ppm" they are encoded images, which data sets and packs take; as arrays, these name the option."""
    file = io.BytesIO()
    Image.fromarray(raw(0)).save(file, "JPEG")
    jpeg = file.getvalue()
    path = write_beton(tmp_path / "a.beton", FIELDS, [{"image": jpeg, "label": 0}, {"image": raw(1), "label": 1}])

    with ps.open(path, raw="ppm") as store, pickle.loads(pickle.dumps(store)) as again:
        for opened in (store, again):
            assert bytes(opened[0].fields["image"]) == jpeg
            np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(opened[1].fields["image"]))), raw(1))
        decoded = ps.StoreDataset(store, "image", [T.Decode()])[1]
        np.testing.assert_array_equal(decoded, raw(1))
    assert ps.convert(path, tmp_path / "b.lmdb", options={"raw": "ppm"}).ok
    for kind in ("lmdb", "tar"):
        with pytest.raises(ArgumentError, match="raw='ppm'"):
            ps.convert(path, tmp_path / f"c.{kind}")
        with pytest.raises(ArgumentError, match="raw='ppm'"):
            ps.pack(path, tmp_path / f"d.{kind}")
    with ps.open(path) as store:
        dataset = ps.StoreDataset(store, "image", [T.Decode(), T.Resize(4), T.CenterCrop(4), T.ToLayout("CHW")])
        with pytest.raises(ArgumentError, match="raw='ppm'"):
            dataset[1]
        with pytest.raises(ArgumentError, match="raw='ppm'"):
            next(iter(ps.DataLoader(dataset, batch_size=2)))
    with pytest.raises(ArgumentError, match="raw must be one of pixels, ppm"):
        ps.open(path, raw="png")


def test_raw_images_alone_are_pixels_always(tmp_path: Path) -> None:
    """The option changes only fields that have JPEGs, too."""
    with ps.open(write_beton(tmp_path / "a.beton", FIELDS, [{"image": raw(1), "label": 1}]), raw="ppm") as store:
        np.testing.assert_array_equal(store[0].fields["image"], raw(1))


def test_fields_are_chosen(tmp_path: Path) -> None:
    """Options name image, label and key; other fields may be left out."""
    fields = {"a": (IMAGE, b""), "b": (IMAGE, b""), "n": (INT, b"")}
    path = write_beton(tmp_path / "a.beton", fields, [{"a": JPEG, "b": JPEG + b"b", "n": 70 + i} for i in range(2)])

    with pytest.raises(ArgumentError, match="'a', 'b' may be the image; say image='a' to choose one"):
        ps.open(path)
    with ps.open(path, image="") as store:
        assert list(store.schema.fields) == ["a", "b", "n"]
    with ps.open(path, fields={"right": "b", "left": "a"}, key="n") as store:
        assert list(store.schema.fields) == ["right", "left"]
        assert bytes(store[1].fields["left"]) == JPEG
        assert store[1].key == store.keys()[1] == "71"
    with ps.open(path, image="b", label="n", key="n", fields=["b"]) as store:
        assert list(store.schema.fields) == ["image", "label"]
        assert bytes(store[1].fields["image"]) == JPEG + b"b"
        assert store[1].key == store.keys()[1] == "71"
    with pytest.raises(ArgumentError, match="image must name columns"):
        ps.open(path, image="c")


def test_bytes_that_are_images_are_images(tmp_path: Path) -> None:
    """A field of bytes holds images if some records, evenly spread, all do."""
    path = write_beton(tmp_path / "a.beton", {"png": (BYTES, b"")}, [{"png": JPEG + b"%d" % i} for i in range(40)])

    with ps.open(path) as store:
        assert store.schema["image"].kind == "image"
        assert bytes(store[39].fields["image"]) == JPEG + b"39"


def test_custom_fields_and_versions_are_refused(tmp_path: Path) -> None:
    """What the file does not describe is named."""
    custom = write_beton(tmp_path / "a.beton", {"x": (CUSTOM, b"")}, [{"x": b"1"}])
    later = write_set(tmp_path / "b.beton")
    write_anew(later, b"\x03" + later.read_bytes()[1:])

    with pytest.raises(ArgumentError, match="'x' is of a custom type"):
        ps.open(custom)
    with pytest.raises(StoreFormatError, match=r"version of a \.beton file must be 2, got 3"):
        ps.open(f"beton://{later}")


def test_an_image_without_allocation_names_itself(tmp_path: Path) -> None:
    """A JPEG's size is in the table of allocations; without its entry, the record is damaged."""
    path = write_set(tmp_path / "a.beton")
    content = bytearray(path.read_bytes())
    struct.pack_into("<Q", content, len(content) - 16, 1)  # the place of record 0, which is the last of the table
    write_anew(path, bytes(content))

    with ps.open(path) as store:
        assert store[1].fields["label"] == 1
        with pytest.raises(CorruptRecordError, match="no allocation") as caught:
            store.read([0])
    assert caught.value.where["key"] == "0"


def read_whole(path: Path) -> list[ps.Record]:
    """All records."""
    with ps.open(f"beton://{path}") as store:
        return list(store)


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    """A file that ends early is refused: its table is at the end."""
    path = write_set(tmp_path / "a.beton", 2)
    content = path.read_bytes()

    for end in [*range(0, 2200, 7), *range(2200, len(content), 97), *range(len(content) - 60, len(content))]:
        write_anew(path, content[:end])
        with pytest.raises(PenstockError):
            read_whole(path)


def test_every_flipped_bit_is_read_or_refused(tmp_path: Path) -> None:
    """Without checksums, a flipped bit changes a value or is an error of ours."""
    fields = {**FIELDS, "a": (ARRAY, array_arguments("<f4", (2,))), "j": (JSON, b"")}
    samples = [{"image": JPEG, "label": i, "a": np.zeros(2, np.float32), "j": b"[1]\0"} for i in range(2)]
    path = write_beton(tmp_path / "a.beton", fields, samples, page_nbytes=256)
    content = bytearray(path.read_bytes())
    used = [at for at in range(len(content)) if content[at] or content[max(at - 8, 0)]]

    for at in used:
        for bit in (0, 3, 7):
            content[at] ^= 1 << bit
            write_anew(path, bytes(content))
            content[at] ^= 1 << bit
            with contextlib.suppress(PenstockError):
                read_whole(path)


def test_many_records_open_and_read(tmp_path: Path) -> None:
    """A hundred thousand records, any of them."""
    with ps.open(write_many("beton", tmp_path, 100_000)) as store:
        assert len(store) == 100_000
        np.testing.assert_array_equal(store.column("label"), np.arange(100_000) % 1000)
        assert [bytes(r.fields["image"])[3:] for r in store.read([99_999, 0, 777])] == [b"99999", b"0", b"777"]


@given(
    version=st.just(2) | st.integers(0, 65535),
    count=st.integers(0, 3) | st.integers(0, 2**64 - 1),
    table=st.integers(0, 4000) | st.integers(0, 2**64 - 1),
    fields=st.lists(
        st.tuples(st.integers(0, 7) | st.just(255), st.binary(max_size=16), st.binary(max_size=300)), max_size=3
    ),
    rest=st.binary(max_size=400),
)
def test_any_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    version: int,
    count: int,
    table: int,
    fields: list[tuple[int, bytes, bytes]],
    rest: bytes,
) -> None:
    """Any header, fields and bytes give records, or an error of ours."""
    head = struct.pack("<HHIQQ", version, len(fields), 4096, count, table)
    path = tmp_path_factory.getbasetemp() / "any.beton"
    write_anew(path, head + b"".join(struct.pack("<B16s1024s", *field) for field in fields) + rest)

    with contextlib.suppress(PenstockError):
        read_whole(path)


@given(
    shape=st.lists(st.integers(0, 3) | st.integers(0, 2**64 - 1), max_size=32),
    described=st.binary(max_size=20) | st.sampled_from([b'[["", "<f4"]]', b'[["", "|O"]]', b'[["a","<i8"]]', b'["x"]']),
)
def test_any_array_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, shape: list[int], described: bytes
) -> None:
    """Any shape and dtype of a field of arrays give arrays, or an error of ours; objects are never made."""
    arguments = struct.pack("<33Q", *shape, *[0] * (32 - len(shape)), len(described)) + described
    path = tmp_path_factory.getbasetemp() / "any-array.beton"
    write_beton(path, {"a": (ARRAY, arguments)}, [{"a": bytes(64)}], page_nbytes=64)

    with contextlib.suppress(PenstockError):
        read_whole(path)
