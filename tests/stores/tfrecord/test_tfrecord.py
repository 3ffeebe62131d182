"""TFRecord files: conventions of features, boxes, shards, compression, damage; the parser against a slow one."""

from __future__ import annotations

import contextlib
import io
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import penstock as ps
from penstock import _native
from penstock.errors import ArgumentError, CorruptRecordError, PenstockError, StoreFormatError
from tests.stores import written
from tests.stores.written import Value, example, frame, write_tfrecord


def jpeg(seed: int = 0, width: int = 20, height: int = 10) -> bytes:
    """A small picture."""
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(pixels).save(file, "JPEG")
    return file.getvalue()


def classify(index: int) -> dict[str, Sequence[Value]]:
    """The features of a picture with a class."""
    return {
        "image/encoded": [jpeg(index)],
        "image/class/label": [index % 3],
        "image/class/text": [f"class {index % 3}".encode()],
        "image/filename": [f"{index}.jpg".encode()],
        "image/height": [10],
        "image/width": [20],
    }


def write_records(path: Path, features: Sequence[Mapping[str, Sequence[Value]]], compression: str = "") -> Path:
    """A file of examples."""
    return write_tfrecord(path, [example(each) for each in features], compression)


# ------------------------------------------------------------------------------------------------ features


def test_features_of_a_classification_set_have_their_usual_meaning(tmp_path: Path) -> None:
    """Image, label, text and key are those of the conventions; other features keep their names, with dots."""
    path = write_records(tmp_path / "a.tfrecord", [classify(i) for i in range(5)])

    with ps.open(path) as store:
        record = store[4]
        kinds = {name: each.kind for name, each in store.schema.fields.items()}

    assert kinds == {
        "image": "image",
        "label": "label",
        "text": "text",
        "image.filename": "text",
        "image.height": "int",
        "image.width": "int",
    }
    assert record.key == "4.jpg"
    assert bytes(record.fields["image"]) == jpeg(4)
    assert [record.fields[name] for name in list(kinds)[1:]] == [1, "class 1", "4.jpg", 10, 20]


@pytest.mark.parametrize("packed", [True, False])
def test_lists_are_scalars_or_arrays_by_their_lengths(tmp_path: Path, packed: bool) -> None:
    """A feature with one value in every record is a number; others are arrays, of a fixed length if it never varies."""
    features: list[dict[str, Sequence[Value]]] = [
        {"image": [jpeg()], "n": [-7], "x": [0.5], "three": [1, 2, 3], "some": [1.5] * i, "words": [b"a"] * (i + 1)}
        for i in range(3)
    ]
    path = write_tfrecord(tmp_path / "a.tfrecord", [example(each, packed=packed) for each in features])

    with ps.open(path) as store:
        kinds = {name: each.kind for name, each in store.schema.fields.items()}
        record = store[2]
        first = store[0].fields["some"]

    assert kinds == {
        "image": "image",
        "n": "int",
        "x": "float",
        "three": "int64[3]",
        "some": "float32[*]",
        "words": "json",
    }
    assert record.fields["n"] == -7
    assert record.fields["x"] == 0.5
    assert record.fields["three"].tolist() == [1, 2, 3]
    assert record.fields["some"].tolist() == [1.5, 1.5]
    assert record.fields["words"] == ["a", "a", "a"]
    assert first.shape == (0,)


def test_a_feature_that_only_the_last_record_has_is_a_field(tmp_path: Path) -> None:
    """All records are scanned: a rare feature is a field, None where it is not there, and -1 in the column."""
    features: list[dict[str, Sequence[Value]]] = [{"image": [jpeg()]} for _ in range(50)]
    features[49] = {**features[49], "label": [3], "weight": [0.25], "note": [b"rare"]}
    path = write_records(tmp_path / "a.tfrecord", features)

    with ps.open(path) as store:
        assert store[0].fields == {**store[0].fields, "label": None, "weight": None, "note": None}
        assert store[49].fields["note"] == "rare"
        assert store.column("label").tolist() == [-1] * 49 + [3]
        assert np.isnan(store.column("weight")[0])
        assert store.column("note").tolist()[48:] == ["", "rare"]


def test_boxes_are_pixels_in_the_order_xyxy(tmp_path: Path) -> None:
    """Fractions become pixels by the size that is stored, or that of the image; no boxes are an empty array."""
    edges: dict[str, Sequence[Value]] = {
        "image/object/bbox/xmin": [0.1, 0.5],
        "image/object/bbox/xmax": [0.2, 1.0],
        "image/object/bbox/ymin": [0.3, 0.0],
        "image/object/bbox/ymax": [0.4, 0.5],
        "image/object/class/label": [2, 1],
    }
    features: list[dict[str, Sequence[Value]]] = [
        {"image/encoded": [jpeg(0, 200, 100)], **edges},
        {"image/encoded": [jpeg(1, 20, 10)], "image/height": [1000], "image/width": [2000], **edges},
        {"image/encoded": [jpeg(2)]},
    ]
    path = write_records(tmp_path / "a.tfrecord", features)

    with ps.open(path) as store:
        records = list(store)
        kinds = store.schema["boxes"].kind, store.schema["classes"].kind

    assert kinds == ("boxes", "int64[*]")
    np.testing.assert_allclose(records[0].fields["boxes"], [[20, 30, 40, 40], [100, 0, 200, 50]], rtol=1e-6)
    np.testing.assert_allclose(records[1].fields["boxes"], [[200, 300, 400, 400], [1000, 0, 2000, 500]], rtol=1e-6)
    assert records[0].fields["boxes"].dtype == np.float32
    assert records[0].fields["classes"].tolist() == [2, 1]
    assert records[2].fields["boxes"].shape == (0, 4)
    assert records[2].fields["classes"].shape == (0,)


def test_boxes_of_tensorflow_datasets_have_rows_of_y_before_x(tmp_path: Path) -> None:
    """`objects/bbox` has ymin, xmin, ymax, xmax of each box."""
    features: dict[str, Sequence[Value]] = {
        "image": [jpeg(0, 200, 100)],
        "objects/bbox": [0.3, 0.1, 0.4, 0.2],
        "objects/label": [5],
    }
    path = write_records(tmp_path / "a.tfrecord", [features])

    with ps.open(path) as store:
        fields = store[0].fields

    np.testing.assert_allclose(fields["boxes"], [[20, 30, 40, 40]], rtol=1e-6)
    assert fields["classes"].tolist() == [5]


def test_one_record_without_an_image_does_not_change_the_others(tmp_path: Path) -> None:
    """Images stay images where a record has empty bytes, or damaged ones."""
    images = [jpeg(0), b"", jpeg(1), b"\x80damaged", jpeg(2)]
    path = write_records(tmp_path / "a.tfrecord", [{"image/encoded": [image], "label": [1]} for image in images])

    with ps.open(path) as store:
        assert store.schema["image"].kind == "image"
        assert [bytes(record.fields["image"]) for record in store] == images


def test_a_mask_is_not_the_image(tmp_path: Path) -> None:
    """Of two features with images, one named as a mask is the mask."""
    path = write_records(tmp_path / "a.tfrecord", [{"image_raw": [jpeg(0)], "seg_mask": [jpeg(1)]}])

    with ps.open(path) as store:
        assert list(store.schema.fields) == ["image", "seg_mask"]


def test_boxes_in_pixels_are_stated(tmp_path: Path) -> None:
    """Edges that cannot be fractions are refused until the unit is stated."""
    edges: dict[str, Sequence[Value]] = {f"image/object/bbox/{e}": [30.0] for e in ("xmin", "xmax", "ymin", "ymax")}
    path = write_records(tmp_path / "a.tfrecord", [{"image/encoded": [jpeg()], **edges}])

    with pytest.raises(ArgumentError, match="units='pixels'"):
        ps.open(path)
    with ps.open(path, units="pixels") as store:
        assert store.description.startswith("tfrecord: 1 file of tf.train.Example with ")
        assert store[0].fields["boxes"].tolist() == [[30.0] * 4]
    with pytest.raises(ArgumentError, match="units must be one of"):
        ps.open(path, units="cm")


def test_edges_that_are_whole_numbers_are_pixels(tmp_path: Path) -> None:
    """Integers cannot be fractions: nothing must be stated."""
    edges: dict[str, Sequence[Value]] = {"xmin": [1, 3], "ymin": [2, 4], "xmax": [10, 12], "ymax": [9, 8]}
    path = write_records(tmp_path / "a.tfrecord", [{"image": [jpeg()], **edges}, {"image": [jpeg()]}])

    with ps.open(path) as store:
        assert store.schema["boxes"].kind == "boxes"
        assert store[0].fields["boxes"].tolist() == [[1, 2, 10, 9], [3, 4, 12, 8]]
        assert store[1].fields["boxes"].shape == (0, 4)


def test_edges_of_different_lengths_are_damage(tmp_path: Path) -> None:
    """A record with more left than right edges names itself."""
    edges: dict[str, Sequence[Value]] = {f"image/object/bbox/{e}": [0.5] for e in ("xmin", "xmax", "ymin", "ymax")}
    features = [{"image/encoded": [jpeg()], **edges}, {"image/encoded": [jpeg()], **edges}]
    features[1]["image/object/bbox/xmin"] = [0.5, 0.6]
    path = write_records(tmp_path / "a.tfrecord", features)

    with ps.open(path) as store:
        assert len(store[0].fields["boxes"]) == 1
        with pytest.raises(CorruptRecordError, match="equally many") as caught:
            store.read([1])
    assert caught.value.where["index"] == 1


def test_raw_pixels_need_their_shape(tmp_path: Path) -> None:
    """Pixels without a header are refused until shape and order are stated; BGR becomes RGB; axes may be features."""
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    features: dict[str, Sequence[Value]] = {"image_raw": [b"\xff" + pixels.tobytes()[1:]], "h": [2], "w": [3]}
    path = write_records(tmp_path / "a.tfrecord", [features])
    pixels[0, 0, 0] = 255

    with pytest.raises(ArgumentError, match="shape="):
        ps.open(path, image="image_raw")
    with pytest.raises(ArgumentError, match="channels must be"):
        ps.open(path, image="image_raw", shape=(2, 3, 3))
    with ps.open(path, image="image_raw", shape=(2, 3, 3), channels="RGB") as store:
        assert store.schema["image"].kind == "pixels:uint8[2,3,3]"
        np.testing.assert_array_equal(store[0].fields["image"], pixels)
    with ps.open(path, image="image_raw", shape=("h", "w", 3), channels="BGR") as store:
        assert store.schema["image"].kind == "pixels:uint8[*,*,3]"
        np.testing.assert_array_equal(store[0].fields["image"], pixels[:, :, ::-1])
    with (
        ps.open(path, image="image_raw", shape=(2, 4, 3), channels="RGB") as store,
        pytest.raises(CorruptRecordError, match="shape"),
    ):
        store.read([0])


def test_features_that_cannot_be_fields_are_refused_with_the_remedy(tmp_path: Path) -> None:
    """Values of two kinds, and several binary values, name the feature; without it, the rest is read."""
    path = write_records(tmp_path / "a.tfrecord", [{"image": [jpeg()], "x": [1]}, {"image": [jpeg()], "x": [1.0]}])
    frames = write_records(tmp_path / "b.tfrecord", [{"image": [jpeg()], "frames": [b"\xff\1", b"\xff\2"]}])

    with pytest.raises(ArgumentError, match="float and int64; leave feature 'x' out"):
        ps.open(path)
    with ps.open(path, fields=["image"]) as store:
        assert list(store.schema.fields) == ["image"]
    with pytest.raises(ArgumentError, match="one binary value"):
        ps.open(frames)
    with pytest.raises(ArgumentError, match="label must name features"):
        ps.open(path, label="y")


def test_texts_that_begin_like_images_are_texts(tmp_path: Path) -> None:
    """`BMW` is no bitmap: texts are found first. Binary bytes that begin no image are bytes."""
    features: list[dict[str, Sequence[Value]]] = [
        {"image": [jpeg()], "brand": [b"BMW"], "size": [b"P4"], "blob": [b"a\0b"], "void": [b""]} for _ in range(2)
    ]
    path = write_records(tmp_path / "a.tfrecord", features)

    with ps.open(path) as store:
        assert [field.kind for field in store.schema.fields.values()] == ["image", "text", "text", "bytes", "text"]


def test_keys_fall_back_to_the_row(tmp_path: Path) -> None:
    """A record whose key is missing, empty, no text or contains a zero has the number of its row, read or listed."""
    names: list[Sequence[Value]] = [[b"a"], [], [b""], [b"\xff\xfe"], [b"x\0y"], [b"b"]]
    path = write_records(tmp_path / "a.tfrecord", [{"image": [jpeg()], "filename": name} for name in names])
    numbered = write_records(tmp_path / "b.tfrecord", [{"image": [jpeg()], "id": [7]}, {"image": [jpeg()], "id": [9]}])

    with ps.open(path, fields=["image"]) as store:
        assert list(store.keys()) == ["a", "1", "2", "3", "4", "b"]
        assert [record.key for record in store] == list(store.keys())
    with ps.open(numbered, key="id") as store:
        assert [record.key for record in store] == list(store.keys()) == ["7", "9"]
    with ps.open(numbered) as store:
        assert [record.key for record in store] == list(store.keys()) == ["0", "1"]


# ------------------------------------------------------------------------------------------------ files


def write_shards(folder: Path, name: str = "train.tfrecord", count: int = 3) -> list[Path]:
    """Shards of two records each."""
    folder.mkdir(exist_ok=True)
    return [
        write_records(folder / f"{name}-{i:05}-of-{count:05}", [classify(2 * i), classify(2 * i + 1)])
        for i in range(count)
    ]


def test_shards_are_one_store(tmp_path: Path) -> None:
    """A list, a pattern and the folder open the same records, in the order of the shards."""
    paths = write_shards(tmp_path / "set")
    keys = [f"{i}.jpg" for i in range(6)]

    for opened in ([str(p) for p in paths], str(tmp_path / "set" / "train*"), str(tmp_path / "set")):
        with ps.open(opened) as store:
            assert [record.key for record in store] == keys
            assert [store.read([i])[0].key for i in (5, 0, 3)] == ["5.jpg", "0.jpg", "3.jpg"]


def test_a_missing_shard_and_two_sets_are_refused(tmp_path: Path) -> None:
    """A folder that lacks a shard, or has several sets, says so; a list of the rest is read."""
    paths = write_shards(tmp_path / "set")
    paths[1].unlink()
    with pytest.raises(StoreFormatError, match="1 of 3 shards are missing"):
        ps.open(tmp_path / "set")
    with ps.open([paths[0], paths[2]]) as store:
        assert [record.key for record in store] == ["0.jpg", "1.jpg", "4.jpg", "5.jpg"]

    write_shards(tmp_path / "both")
    write_shards(tmp_path / "both", "val.tfrecord", 2)
    with pytest.raises(ArgumentError, match="2 sets"):
        ps.open(tmp_path / "both")


def test_a_folder_of_images_is_not_claimed(tmp_path: Path) -> None:
    """A folder of images with a text about TFRecord files is a folder of images."""
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "1.jpg").write_bytes(jpeg())
    (tmp_path / "how-to-make-a-tfrecord").write_text("first of all ...")

    with ps.open(tmp_path) as store:
        assert store.kind == "files"
    folder = tmp_path / "cats"
    write_records(folder / "a.tfrecord", [classify(0)])
    with ps.open(folder) as store:
        assert store.kind == "files"
    with ps.open(f"tfrecord://{folder}") as store:
        assert len(store) == 1


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_compressed_files_are_decompressed_once(tmp_path: Path, compression: str) -> None:
    """The decompressed file is used again while the compressed one is unchanged, and replaced afterwards."""
    path = write_records(tmp_path / "a.tfrecord.gz", [classify(i) for i in range(5)], compression)
    with ps.open(path) as store:
        assert [record.key for record in store] == [f"{i}.jpg" for i in range(5)]
    first = list(tmp_path.glob(".a.tfrecord.gz.*.decompressed"))
    seen = first[0].stat().st_mtime_ns

    with ps.open(path) as store:
        assert len(store) == 5
    assert [each.stat().st_mtime_ns for each in first] == [seen]
    write_records(path, [classify(i) for i in range(7)], compression)
    with ps.open(path) as store:
        assert len(store) == 7

    assert len(list(tmp_path.glob(".a.tfrecord.gz.*.decompressed"))) == 1
    assert not first[0].exists()


def test_without_a_writable_folder_the_cache_of_the_user_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the folder cannot be written to, decompressed file and index lie in the user's cache folder."""
    folder = tmp_path / "set"
    folder.mkdir()
    path = write_records(folder / "a.tfrecord", [classify(0)], "gzip")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    written_to: list[str] = []
    real = os.open

    def refuse(given: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        if str(given).endswith(".partial"):
            if Path(given).parent == folder:
                raise PermissionError(13, "Permission denied")
            written_to.append(str(Path(given).parent))
        return real(given, flags, mode, **options)

    monkeypatch.setattr(os, "open", refuse)

    with ps.open(path) as store:
        assert store[0].key == "0.jpg"
    assert written_to == [str(tmp_path / "cache" / "penstock" / name) for name in ("decompressed", "indexes")]
    assert list(folder.iterdir()) == [path]
    with ps.open(path) as store:
        assert store[0].key == "0.jpg"
    assert len(written_to) == 2


# ------------------------------------------------------------------------------------------------ damage


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A file of three records of some hundred bytes."""
    features: list[dict[str, Sequence[Value]]] = [
        {"image": [b"\xff\xd8\xff" + bytes(40)], "label": [i], "name": [b"n%d" % i]} for i in range(3)
    ]
    return write_records(tmp_path / "small.tfrecord", features)


def read_whole(path: Path) -> list[ps.Record]:
    """All records; raises nothing but errors of ours."""
    with ps.open(f"tfrecord://{path}") as store:
        return list(store)


def test_every_truncation_is_an_error_that_says_where(small: Path) -> None:
    """A file that ends inside a frame is refused; one that ends between frames has fewer records."""
    content = small.read_bytes()
    whole = len(read_whole(small))
    ends = {len(content) // 3 * i for i in range(4)}

    for end in range(len(content)):
        written.write_anew(small, content[:end])
        if end in ends and end:
            assert len(read_whole(small)) == whole * end // len(content)
        else:
            with pytest.raises(StoreFormatError) as caught:
                read_whole(small)
            assert "small.tfrecord" in str(caught.value)


def test_every_flipped_bit_is_found(small: Path) -> None:
    """Lengths, records and checksums are covered: no flipped bit is read as a record."""
    content = bytearray(small.read_bytes())

    for bit in range(0, len(content) * 8, 13):
        content[bit // 8] ^= 1 << bit % 8
        written.write_anew(small, bytes(content))
        content[bit // 8] ^= 1 << bit % 8
        with pytest.raises((StoreFormatError, CorruptRecordError)):
            read_whole(small)


def test_a_damaged_record_names_itself_and_leaves_the_others(tmp_path: Path) -> None:
    """The error has store, key and index; other records are read; without checks, the bytes come as they are."""
    path = write_records(tmp_path / "a.tfrecord", [classify(i) for i in range(3)])
    content = bytearray(path.read_bytes())
    content[content.find(jpeg(1)) + 300] ^= 1
    written.write_anew(path, bytes(content))

    with ps.open(path) as store:
        assert [store[0].key, store[2].key] == ["0.jpg", "2.jpg"]
        with pytest.raises(CorruptRecordError, match="checksum") as caught:
            store.read([1])
    assert caught.value.where == {"store": store.url, "key": "1.jpg", "index": 1}
    with ps.open(path, check=False) as store:
        assert bytes(store[1].fields["image"]) != jpeg(1)


def test_records_that_are_no_examples_are_refused(tmp_path: Path) -> None:
    """Frames of other messages are no store of this kind; a file of another format says what it lacks."""
    path = write_tfrecord(tmp_path / "a.tfrecord", [b"\xff\xff\xff", b"not a message"])
    other = tmp_path / "b.tfrecord"
    other.write_bytes(b"hello, this is a text")
    empty = tmp_path / "c.tfrecord"
    empty.write_bytes(b"")

    with pytest.raises(StoreFormatError, match=r"no record is a tf\.train\.Example"):
        ps.open(path)
    with pytest.raises(StoreFormatError, match="no TFRecord file"):
        ps.open(f"tfrecord://{other}")
    with pytest.raises(StoreFormatError, match="no records"):
        ps.open(f"tfrecord://{empty}")


def test_sequence_examples_are_refused(tmp_path: Path) -> None:
    """Records with lists of features are not read as if they had none."""
    context = example({"image": [jpeg()]})
    path = write_tfrecord(tmp_path / "a.tfrecord", [context + written.field(2, written.field(1, b""))])

    with pytest.raises(StoreFormatError, match="SequenceExample"):
        ps.open(path)


def test_a_length_that_is_huge_allocates_nothing(tmp_path: Path) -> None:
    """A frame of 2**62 bytes, with the right checksum, is a truncated file."""
    length = struct.pack("<Q", 1 << 62)
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frame(example(classify(0))) + length + written.mask(length) + bytes(30))

    with pytest.raises(StoreFormatError, match="truncated"):
        ps.open(path)


def test_a_damaged_gzip_file_is_refused(tmp_path: Path) -> None:
    """Truncated and flipped compressed bytes are errors that name the file; nothing half-written stays."""
    path = write_records(tmp_path / "a.tfrecord.gz", [classify(i) for i in range(20)], "gzip")
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], content[:-3], content[:5000] + b"\0\1\2\3" + content[5004:]):
        written.write_anew(path, damaged)

        with pytest.raises((CorruptRecordError, StoreFormatError), match=r"a\.tfrecord\.gz"):
            ps.open(f"tfrecord://{path}")
        assert [each.name for each in tmp_path.iterdir() if "decompressed" in each.name] == []


def test_a_damaged_index_is_made_again(tmp_path: Path) -> None:
    """The file with the index is only a cache: whatever is in it, the records are read or an error is raised."""
    path = write_records(tmp_path / "a.tfrecord", [classify(i) for i in range(4)])
    ps.open(path).close()
    index = tmp_path / "a.tfrecord.index.npz"
    content = index.read_bytes()

    for damaged in (b"", content[:100], content[:-10], b"\0" * len(content)):
        index.write_bytes(damaged)
        with ps.open(path) as store:
            assert [record.key for record in store] == [f"{i}.jpg" for i in range(4)]
    with np.load(index) as archive:
        arrays = {name: archive[name] for name in archive.files}
    for name, wrong in (("counts", arrays["counts"] + 1), ("keys", arrays["keys"][:-3]), ("summaries", arrays["keys"])):
        np.savez(index, **(arrays | {name: wrong}))
        with ps.open(path) as store:
            assert [record.key for record in store] == [f"{i}.jpg" for i in range(4)]


def test_many_records_open_and_read(tmp_path: Path) -> None:
    """Ten thousand records: keys, labels and any record, from the kept index."""
    count = 10_000
    path = written.write_many("tfrecord", tmp_path, count)

    for _ in range(2):
        with ps.open(path) as store:
            assert len(store) == count
            assert store.keys()[9_999] == "009999.jpg"
            assert [record.fields["label"] for record in store.read([9_999, 0, 1234])] == [999, 0, 234]
    with ps.open(path) as store:
        assert store.column("label").sum() == sum(i % 1000 for i in range(count))


# ------------------------------------------------------------------------------------------------ any bytes


class SlowMessage:
    """A parser of the wire format after the description of Protocol Buffers, one byte after another."""

    def __init__(self, content: bytes) -> None:
        self.fields: list[tuple[int, int, Any]] = []
        self.content, self.at = content, 0
        while self.at < len(content):
            number, kind = self.tag()
            self.fields.append((number, kind, self.value(number, kind)))

    def tag(self) -> tuple[int, int]:
        """Number and type of a field."""
        tag = self.varint()
        if tag >> 32 or not tag >> 3:
            raise ValueError
        return tag >> 3, tag & 7

    def varint(self) -> int:
        """A number."""
        value = 0
        for i in range(10):
            if self.at >= len(self.content):
                raise ValueError
            byte = self.content[self.at]
            self.at += 1
            value |= (byte & 127) << 7 * i
            if byte < 128:
                return value & (1 << 64) - 1
        raise ValueError

    def take(self, nbytes: int) -> bytes:
        """Some bytes."""
        if nbytes > len(self.content) - self.at:
            raise ValueError
        self.at += nbytes
        return self.content[self.at - nbytes : self.at]

    def value(self, number: int, kind: int) -> Any:
        """The content of a field."""
        if kind == 0:
            return self.varint()
        if kind == 2:
            return self.take(self.varint())
        if kind in {1, 5}:
            return self.take(8 if kind == 1 else 4)
        if kind == 3:
            while True:
                inner, inner_kind = self.tag()
                if inner_kind == 4:
                    if inner != number:
                        raise ValueError
                    return None
                self.value(inner, inner_kind)
        raise ValueError


def slow_features(record: bytes) -> dict[str, tuple[int, Any]]:
    """Kind and values of each feature of an example; bytes as they are."""
    found: dict[str, tuple[int, Any]] = {}
    for entries in [value for number, kind, value in SlowMessage(record).fields if (number, kind) == (1, 2)]:
        for entry in [value for number, kind, value in SlowMessage(entries).fields if (number, kind) == (1, 2)]:
            name = ""
            state: tuple[int, list[Any]] = (0, [])
            for number, kind, value in SlowMessage(entry).fields:
                if (number, kind) == (1, 2):
                    name = value.decode()
                elif (number, kind) == (2, 2):
                    state = slow_feature(value, state)
            found[name] = state
    return found


def slow_feature(content: bytes, state: tuple[int, list[Any]]) -> tuple[int, list[Any]]:
    """The values of a feature, merged with earlier ones."""
    for number, kind, value in SlowMessage(content).fields:
        if kind != 2 or number not in {1, 2, 3}:
            continue
        if state[0] != number:
            state = (number, [])
        for inner, inner_kind, each in SlowMessage(value).fields:
            if inner != 1:
                continue
            if (number, inner_kind) in {(1, 2), (2, 5)}:
                state[1].append(each)
            elif number == 2 and inner_kind == 2:
                if len(each) % 4:
                    raise ValueError
                state[1].extend(each[at : at + 4] for at in range(0, len(each), 4))
            elif number == 3 and inner_kind == 0:
                state[1].append(each)
            elif number == 3 and inner_kind == 2:
                packed = SlowMessage(b"")
                packed.content = each
                while packed.at < len(each):
                    state[1].append(packed.varint())
    return state


def plain(record: bytes) -> dict[str, tuple[int, Any]]:
    """What the native parser gives, in the form of the slow one."""
    found = {}
    for name, kind, values in _native.example_features(record):
        if kind == 1:
            values = [record[begin:end] for begin, end in values]  # noqa: PLW2901  # the same values, as bytes
        elif kind == 2:
            values = [values[at : at + 4] for at in range(0, len(values), 4)]  # noqa: PLW2901  # as above
        else:
            values = np.frombuffer(values or b"", "<u8").tolist()  # noqa: PLW2901  # as above
        found[name] = (kind, values)
    return found


VALUES = st.one_of(
    st.lists(st.binary(max_size=20), max_size=4),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5),
    st.lists(st.floats(width=32, allow_nan=False), max_size=5),
)
EXAMPLES = st.builds(example, st.dictionaries(st.text(max_size=4), VALUES, max_size=5), packed=st.booleans())
FRAGMENTS = st.recursive(
    st.binary(max_size=6),
    lambda inner: st.lists(
        st.one_of(inner, st.builds(written.field, st.integers(1, 4), inner), st.builds(bytes, st.just(b"\x08\x01"))),
        max_size=4,
    ).map(b"".join),
    max_leaves=12,
)


@given(record=st.one_of(EXAMPLES, FRAGMENTS, FRAGMENTS.map(lambda c: written.field(1, c)), st.binary(max_size=60)))
def test_the_parser_agrees_with_a_slow_one(record: bytes) -> None:
    """Any bytes give the same features as the description of the format, or both refuse them."""
    try:
        expected = slow_features(record)
    except ValueError:
        with pytest.raises(ValueError, match="byte"):
            _native.example_features(record)
        return

    assert plain(record) == expected


@given(
    records=st.lists(EXAMPLES, min_size=1, max_size=3),
    cut=st.integers(0, 400),
    noise=st.binary(max_size=8),
    in_frame=st.booleans(),
)
def test_any_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, records: list[bytes], cut: int, noise: bytes, in_frame: bool
) -> None:
    """Whatever a file holds: records, or an error of ours."""
    folder = tmp_path_factory.getbasetemp()
    if in_frame:  # wrong records whose checksums are right
        damaged = [record[: cut % (len(record) + 1)] + noise for record in records]
        path = write_tfrecord(folder / "any.tfrecord", damaged)
    else:
        content = b"".join(map(frame, records))
        path = folder / "any.tfrecord"
        written.write_anew(path, content[:cut] + noise + content[cut + len(noise) :])
    with contextlib.suppress(PenstockError):
        read_whole(path)
