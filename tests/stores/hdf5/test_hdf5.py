"""HDF5 files of other programs: what is found in them, and that every way of reading gives what h5py gives."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import ArgumentError, CorruptRecordError, PenstockError, StoreError, StoreFormatError
from penstock.stores.hdf5.store import Hdf5Store
from tests.effort import choose_tries

h5py = pytest.importorskip("h5py")

COUNT = 11


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is written."""
    return tmp_path / "set.h5"


def random_pixels(*shape: int, dtype: str = "uint8") -> np.ndarray[Any, Any]:
    """Pixels of some shape, each another one."""
    rng = np.random.default_rng(3)
    if np.dtype(dtype).kind == "f":
        return rng.random(shape).astype(dtype)
    return rng.integers(0, 1 << 8 * np.dtype(dtype).itemsize, shape).astype(dtype)


def random_blobs(count: int = COUNT) -> list[np.ndarray[Any, Any]]:
    """What begins as encoded images do: bytes of different lengths, one of them empty."""
    rng = np.random.default_rng(4)
    found = [rng.integers(0, 256, 0 if row == 4 else int(rng.integers(3, 6000)), np.uint8) for row in range(count)]
    for blob in found:
        blob[:3] = [0xFF, 0xD8, 0xFF][: len(blob)]
    return found


def write_blobs(file: Any, name: str = "jpeg", **options: Any) -> list[np.ndarray[Any, Any]]:
    """A dataset of variable-length bytes."""
    blobs = random_blobs()
    dataset = file.create_dataset(name, (len(blobs),), h5py.vlen_dtype(np.uint8), **options)
    for row, blob in enumerate(blobs):
        dataset[row] = blob
    return blobs


LAYOUTS: dict[str, tuple[dict[str, Any], bool]] = {
    "contiguous": ({}, True),
    "one record a chunk": ({"chunks": (1, 6, 5, 3)}, True),
    "several records a chunk": ({"chunks": (4, 6, 5, 3)}, True),
    "parts of records": ({"chunks": (4, 4, 2, 1)}, True),
    "gzip": ({"chunks": (1, 6, 5, 3), "compression": "gzip"}, True),
    "gzip, several records": ({"chunks": (4, 6, 5, 3), "compression": "gzip"}, True),
    "gzip, parts of records": ({"chunks": (3, 4, 4, 2), "compression": "gzip"}, True),
    "shuffle": ({"chunks": (2, 6, 5, 3), "compression": "gzip", "shuffle": True}, True),
    "shuffle alone": ({"chunks": (2, 6, 5, 3), "shuffle": True}, True),
    "lzf": ({"chunks": (2, 6, 5, 3), "compression": "lzf"}, False),
    "checksums": ({"chunks": (2, 6, 5, 3), "fletcher32": True}, False),
}


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", ">u2"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_pixels_of_every_layout_are_those_of_h5py(path: Path, layout: str, dtype: str) -> None:
    """Contiguous, chunked and filtered datasets give the same pixels, one by one and in batches, read-only."""
    options, is_direct = LAYOUTS[layout]
    pixels = random_pixels(COUNT, 6, 5, 3, dtype=dtype)
    with h5py.File(path, "w") as file:
        file.create_dataset("image", data=pixels, **options)

    with ps.open(path, channels="RGB") as store:
        assert isinstance(store, Hdf5Store)
        assert store.schema["image"].kind == f"pixels:{np.dtype(dtype).newbyteorder('=')}[6,5,3]"
        order = [7, 0, 3, 3, 10, 1]
        for index, record in zip(order, store.read(order), strict=True):
            image = record.fields["image"]
            np.testing.assert_array_equal(image, pixels[index])
            assert image.dtype == np.dtype(dtype).newbyteorder("=")
            assert not image.flags.writeable
        for index in range(COUNT):
            np.testing.assert_array_equal(store.blobs("image", [index])[0], pixels[index])
        assert bool(store._opened.get()._datasets) != is_direct  # those that h5py reads


def test_h5py_keeps_chunks_for_other_records(tmp_path: Path) -> None:
    """h5py keeps 64 MiB of the chunks of a dataset, in all files of a store together: chunks hold several records."""
    for number in range(4):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file.create_dataset("image", data=random_pixels(COUNT, 6, 5), chunks=(4, 6, 5), compression="lzf")

    with ps.open([tmp_path / f"{number}.h5" for number in range(4)]) as store:
        store.read([COUNT + 1])
        (dataset,) = store._opened.get()._datasets.values()  # type: ignore[attr-defined]  # what h5py has opened

        assert dataset.file.id.get_access_plist().get_cache()[2] == 16 << 20


def test_a_userblock_is_read_by_h5py(path: Path) -> None:
    """A file with a block of the user's before it (MATLAB writes such) is recognised and read."""
    pixels = random_pixels(COUNT, 6, 5, 3)
    with h5py.File(path, "w", userblock_size=1024) as file:
        file["image"] = pixels
        blobs = write_blobs(file)

    with ps.open(path, image="image", channels="RGB") as store:
        np.testing.assert_array_equal(store[2].fields["image"], pixels[2])
        assert isinstance(store[2].fields["jpeg"], memoryview)
        assert bytes(store[2].fields["jpeg"]) == blobs[2].tobytes()


def test_records_that_were_never_written_have_the_fill_value(path: Path) -> None:
    """Chunks that are not in the file give what h5py gives."""
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("image", (COUNT, 4, 4, 3), np.uint8, chunks=(1, 4, 4, 3), fillvalue=9)
        dataset[3] = random_pixels(4, 4, 3)
        file.create_dataset("gray", (COUNT, 4, 4), np.uint8, fillvalue=7)

    with ps.open(path, channels="RGB") as store:
        np.testing.assert_array_equal(store[3].fields["image"], random_pixels(4, 4, 3))
        assert (store[5].fields["image"] == 9).all()
        assert (store[5].fields["gray"] == 7).all()


@pytest.mark.parametrize(
    "options", [{}, {"chunks": (4,)}, {"chunks": (4,), "compression": "gzip"}, {"maxshape": (None,)}]
)
def test_encoded_images_are_the_bytes_that_went_in(path: Path, options: dict[str, Any]) -> None:
    """Bytes of variable length are views of the file, whatever the layout of their references."""
    with h5py.File(path, "w") as file:
        blobs = write_blobs(file, **options)

    with ps.open(path) as store:
        assert store.schema["image"].kind == "image"
        images = [record.fields["image"] for record in store]
        assert [bytes(image) for image in images] == [blob.tobytes() for blob in blobs]
        assert all(isinstance(image, memoryview) and image.readonly for image in images)


@pytest.mark.parametrize("stored", ["variable length", "opaque", "byte strings"])
def test_images_are_found_by_their_bytes(path: Path, stored: str) -> None:
    """Whatever their name and type: bytes that are no images are not the image, and two images are refused."""
    images = [(b"\xff\xd8\xff%d" % row).ljust(40, b"!") for row in range(4)]
    with h5py.File(path, "w") as file:
        for name, values in (("image", [b"-" * 40] * 4), ("left", images), ("right", images), ("seg", images)):
            if stored == "variable length":
                dataset = file.create_dataset(name, (4,), h5py.vlen_dtype(np.uint8))
                for row, value in enumerate(values):
                    dataset[row] = np.frombuffer(value, np.uint8)
            else:
                file[name] = np.array(values).view("V40" if stored == "opaque" else "S40")

    with pytest.raises(ArgumentError, match=r"each of 'left' .*'right' .* may be the image; say image='left'"):
        ps.open(path)
    with ps.open(path, image="left") as store:
        kinds = {name: field.kind for name, field in store.schema.fields.items()}
        assert [bytes(record.fields["image"]) for record in store] == images
    other = "text" if stored == "byte strings" else "bytes"
    assert kinds == {"image": "image", "image_": other, "seg": "mask", "right": "image"}
    with pytest.raises(ArgumentError, match="image must hold images, got 'image'"):
        ps.open(path, image="image")


def test_many_small_values_share_a_heap(path: Path) -> None:
    """Values that HDF5 puts into one collection are told apart by their numbers, also after some were replaced."""
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("jpeg", (500,), h5py.vlen_dtype(np.uint8))
        for row in range(500):
            dataset[row] = np.full(row % 23, row % 256, np.uint8)
        for row in range(0, 500, 3):
            dataset[row] = np.full(40, 1, np.uint8)
        expected = [dataset[row].tobytes() for row in range(500)]

    with ps.open(path) as store:
        assert [bytes(record.fields["jpeg"]) for record in store] == expected


def test_bytes_of_one_length_are_encoded_images(path: Path) -> None:
    """Opaque values are given as they are stored."""
    blobs = [blob.tobytes().ljust(6000, b"\1") for blob in random_blobs()]
    with h5py.File(path, "w") as file:
        file["image"] = np.array([np.void(blob) for blob in blobs])

    with ps.open(path) as store:
        assert [bytes(record.fields["image"]) for record in store] == blobs


def test_other_axes_and_orders_become_hwc_rgb(path: Path) -> None:
    """NCHW, gray and BGR are converted as they were stated."""
    pixels = random_pixels(COUNT, 6, 5, 3)
    with h5py.File(path, "w") as file:
        file["a/image"] = pixels.transpose(0, 3, 1, 2)
        file["b/image"] = pixels[..., ::-1]
        file["c/image"] = pixels[..., 0]
        file["d/image"] = np.concatenate([pixels[..., ::-1], pixels[..., :1]], axis=3)

    def read(**options: Any) -> np.ndarray[Any, Any]:
        with ps.open(path, **options) as store:
            return np.stack([record.fields["image"] for record in store])

    np.testing.assert_array_equal(read(group="a", axes="NCHW", channels="RGB"), pixels)
    np.testing.assert_array_equal(read(group="b", channels="BGR"), pixels)
    np.testing.assert_array_equal(read(group="c"), pixels[..., :1])
    np.testing.assert_array_equal(read(group="d", channels="BGR"), np.concatenate([pixels, pixels[..., :1]], axis=3))


def test_the_order_of_channels_and_axes_is_not_guessed(path: Path) -> None:
    """Three channels without a stated order, or a second axis that may be that of the channels, are refused."""
    with h5py.File(path, "w") as file:
        file["image"] = random_pixels(COUNT, 3, 6, 5)
        file["other/image"] = random_pixels(COUNT, 6, 5, 3)

    with pytest.raises(ArgumentError, match="axes='NCHW'"):
        ps.open(path, image="image")
    with pytest.raises(ArgumentError, match="channels='RGB'"):
        ps.open(path, image="image", axes="NCHW")
    with pytest.raises(ArgumentError, match="channels='RGB'"):
        ps.open(path, image="other/image")
    with pytest.raises(ArgumentError, match="channels must be one of RGB, BGR, got 'GBR'"):
        ps.open(path, image="other/image", channels="GBR")
    with pytest.raises(ArgumentError, match="must be NHWC, NCHW, NCWH, got 'NHW'"):
        ps.open(path, image="image", axes="NHW")


def test_an_attribute_may_say_the_order_of_channels(path: Path) -> None:
    """A dataset that says RGB or BGR needs no option."""
    pixels = random_pixels(COUNT, 6, 5, 3)
    with h5py.File(path, "w") as file:
        file["image"] = pixels
        file["image"].attrs["channels"] = "BGR"

    with ps.open(path) as store:
        np.testing.assert_array_equal(store[1].fields["image"], pixels[1][..., ::-1])


def test_fields_are_found_by_their_names(path: Path) -> None:
    """Image, label and key are found by names at any depth; other datasets of as many records are fields."""
    with h5py.File(path, "w") as file:
        group = file.create_group("sets/train")
        blobs = write_blobs(group)
        group["label"] = np.arange(COUNT, dtype=np.uint8)
        group["label"].attrs["class_names"] = ["a", "b", "c"]
        group["filename"] = [f"{row}.jpg" for row in range(COUNT)]
        group["id"] = np.arange(100, 100 + COUNT)
        group["caption"] = np.array([f"picture {row}".encode() for row in range(COUNT)])
        group["meta/score"] = np.linspace(0, 1, COUNT, dtype=np.float32)
        group["box"] = random_pixels(COUNT, 4, dtype="float32")
        group.create_dataset("tokens", (COUNT,), h5py.vlen_dtype(np.int32))
        group["tokens"][3] = [1, 2, 3]
        group["mean"] = np.zeros(3)
        file["sets/test/label"] = np.arange(5)

    with ps.open(path) as store:
        assert {name: field.kind for name, field in store.schema.fields.items()} == {
            "image": "image", "label": "label", "box": "float32[4]", "caption": "text", "id": "int",
            "meta.score": "float", "tokens": "int32[*]",
        }  # fmt: skip
        assert store.schema["label"].classes == ("a", "b", "c")
        record = store[3]
        assert record.key == "3.jpg"
        assert bytes(record.fields["image"]) == blobs[3].tobytes()
        assert (record.fields["label"], record.fields["id"], record.fields["caption"]) == (3, 103, "picture 3")
        assert record.fields["meta.score"] == np.float32(0.3)
        assert record.fields["tokens"].tolist() == [1, 2, 3]
        np.testing.assert_array_equal(store.column("box"), random_pixels(COUNT, 4, dtype="float32"))
        assert store.column("caption").tolist() == [f"picture {row}" for row in range(COUNT)]
        assert "sets/train/mean" in store.description
        assert "'sets/train/jpeg'" in store.description


def test_equally_good_datasets_are_an_error_that_lists_them(path: Path) -> None:
    """Which of two image datasets is meant is asked for; path or group answers it."""
    with h5py.File(path, "w") as file:
        file["train/images"] = random_pixels(COUNT, 4, 4)
        file["train/labels"] = np.arange(COUNT)
        file["test/images"] = random_pixels(5, 4, 4)
        file["test/labels"] = np.arange(5) + 50

    with pytest.raises(ArgumentError, match=r"'test/images' \(uint8, \(5, 4, 4\)\), 'train/images'"):
        ps.open(path)
    for options in ({"group": "test"}, {"image": "test/images"}, {"group": "test", "image": "images"}):
        with ps.open(path, **options) as store:
            assert store.column("label").tolist() == [50, 51, 52, 53, 54]
            assert store.description.count("train/") == 2
    with pytest.raises(ArgumentError, match="label must be a dataset of 5 records"):
        ps.open(path, image="test/images", label="train/labels")
    with pytest.raises(ArgumentError, match=r"image must be one of .*'train/images'"):
        ps.open(path, image="val/images")


def test_of_two_labels_the_better_name_counts(path: Path) -> None:
    """The name label is the label; another one is stated; with '' there is none."""
    with h5py.File(path, "w") as file:
        file["image"] = random_pixels(COUNT, 4, 4)
        file["label"] = np.arange(COUNT)
        file["target"] = np.arange(COUNT) * 2

    with ps.open(path) as store:
        assert store[2].fields["label"] == 2
    with ps.open(path, label="target") as store:
        assert store[2].fields["label"] == 4
        assert store[2].fields["label_"] == 2
    with ps.open(path, fields=["image", "target"]) as store:
        assert [*store.schema.fields] == ["image", "label"]
    with ps.open(path, label="") as store:
        assert {name: field.kind for name, field in store.schema.fields.items()} == {
            "image": "pixels:uint8[4,4,1]",
            "label": "int",
            "target": "int",
        }


def test_fields_may_be_stated(path: Path) -> None:
    """With ``fields`` there are those, and no others."""
    with h5py.File(path, "w") as file:
        file["a/b"] = random_pixels(COUNT, 4, 4)
        file["c"] = np.arange(COUNT)
        file["d"] = np.arange(COUNT) + 0.5
        file["label"] = np.arange(COUNT)

    with ps.open(path, fields={"image": "a/b", "number": "c"}) as store:
        assert {name: field.kind for name, field in store.schema.fields.items()} == {
            "image": "pixels:uint8[4,4,1]",
            "number": "int",
        }
        assert store[4].fields["number"] == 4
    with ps.open(path, fields={"label": "d", "number": "c"}) as store:
        assert store[4].fields == {"label": 4.5, "number": 4}
    with pytest.raises(ArgumentError, match="number must be one of"):
        ps.open(path, fields={"image": "a/b", "number": "nothing"})


def test_labels_of_shape_n_1_1_1_are_numbers_and_a_stated_number_is_none(path: Path) -> None:
    """Axes of one are dropped; ``missing_label`` is None in records and -1 in the column."""
    with h5py.File(path, "w") as file:
        file["x"] = random_pixels(COUNT, 4, 4)
        file["y"] = np.arange(COUNT, dtype=np.uint8).reshape(-1, 1, 1, 1)

    with ps.open(path, missing_label=3) as store:
        assert [record.fields["label"] for record in store] == [None if row == 3 else row for row in range(COUNT)]
        assert store.column("label").tolist() == [-1 if row == 3 else row for row in range(COUNT)]


def test_enumerations_and_lists_name_the_classes(tmp_path: Path) -> None:
    """An enumerated label names its classes, and so does a dataset of class names."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["image"] = random_pixels(COUNT, 4, 4)
        kind = h5py.enum_dtype({"cat": 0, "dog": 1}, basetype="i1")
        file.create_dataset("label", data=np.arange(COUNT) % 2, dtype=kind)
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["train_set_x"] = random_pixels(COUNT, 4, 4)
        file["train_set_y"] = np.arange(COUNT) % 2
        file["list_classes"] = np.array([b"non-cat", b"cat"])

    with ps.open(tmp_path / "a.h5") as store:
        assert store.schema["label"].classes == ("cat", "dog")
        assert store.column("label").tolist() == [row % 2 for row in range(COUNT)]
    with ps.open(tmp_path / "b.h5") as store:
        assert store.schema["label"].classes == ("non-cat", "cat")


def test_a_pair_of_files_is_one_store(tmp_path: Path) -> None:
    """Different datasets are read side by side; different lengths are an error that names both."""
    x, y, short = (tmp_path / f"{name}.h5" for name in ("set_x", "set_y", "short_y"))
    pixels = random_pixels(COUNT, 4, 4, 3)
    for path, name, values in ((x, "x", pixels), (y, "y", np.arange(COUNT)), (short, "y", np.arange(5))):
        with h5py.File(path, "w") as file:
            file[name] = values

    with ps.open([x, y], channels="RGB") as store, pickle.loads(pickle.dumps(store)) as again:
        for opened in (store, again):
            assert opened.read([7])[0].fields["label"] == 7
            np.testing.assert_array_equal(opened.read([7])[0].fields["image"], pixels[7])
    with pytest.raises(ArgumentError, match=r"'x' .* in set_x.h5, and the labels 'y' \(int64, \(5,\)\) in short_y.h5"):
        ps.open([x, short], channels="RGB")
    with h5py.File(short, "w") as file:
        file["caption"] = ["a", "b"]
    with pytest.raises(ArgumentError, match=r"equally many records, got 'x' .* set_x.h5, and 'caption' .*short_y.h5"):
        ps.open([x, short], channels="RGB")
    with ps.open([x, short], channels="RGB", fields={"image": "x"}) as store:
        assert len(store) == COUNT


def test_images_in_byte_strings_of_one_length_are_read(tmp_path: Path) -> None:
    """A list of encoded images as NumPy stores it, in strings filled with zeros, gives the images as they went in."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        images = [b"\xff\xd8\xff\0" + bytes(range(1, 20 + row)) for row in range(COUNT)]
        file["image"], file["name"] = np.array(images), np.array([b"n%d" % row for row in range(COUNT)])

    with ps.open(tmp_path / "a.h5") as store:
        assert store.schema["image"].kind == "image"
        assert [bytes(record.fields["image"]) for record in store] == images
        assert store[4].key == "n4"


def test_files_of_matlab_are_read(tmp_path: Path) -> None:
    """MATLAB's axes are in reverse order, and its column vectors are one row."""
    colour, gray = random_pixels(COUNT, 6, 5, 3), random_pixels(COUNT, 6, 5, 1)
    for name, stored in (("a", colour.transpose(0, 3, 2, 1)), ("b", gray[..., 0].transpose(0, 2, 1))):
        with h5py.File(tmp_path / f"{name}.mat", "w", userblock_size=512) as file:
            file["X"], file["y"] = stored, np.arange(COUNT, dtype=np.int32)[None]
            for dataset in file.values():
                dataset.attrs["MATLAB_class"] = np.bytes_(b"x")

    for name, pixels, options in (("a", colour, {"channels": "RGB"}), ("b", gray, {})):
        with ps.open(tmp_path / f"{name}.mat", **options) as store:
            assert store.column("label").tolist() == list(range(COUNT))
            np.testing.assert_array_equal([record.fields["image"] for record in store], pixels)


def test_files_of_the_same_datasets_are_shards(tmp_path: Path) -> None:
    """Records of shards follow one another, in every field and in the keys; what differs between them is refused."""
    counts = [3, 1, 4]
    blobs = random_blobs(8)
    begin = 0
    for number, count in enumerate(counts):
        with h5py.File(tmp_path / f"part-{number}.h5", "w") as file:
            dataset = file.create_dataset("jpeg", (count,), h5py.vlen_dtype(np.uint8))
            for row in range(count):
                dataset[row] = blobs[begin + row]
            file["label"] = np.arange(begin, begin + count)
            file["name"] = [f"n{row}" for row in range(begin, begin + count)]
        begin += count
    with h5py.File(tmp_path / "odd.h5", "w") as file:
        file["label"] = np.arange(2)
        file["score"] = np.arange(2)

    with ps.open(str(tmp_path / "part-*.h5")) as store:
        assert len(store) == 8
        assert [record.key for record in store] == [f"n{row}" for row in range(8)]
        assert [record.fields["label"] for record in store] == list(range(8))
        assert [bytes(record.fields["image"]) for record in store] == [blob.tobytes() for blob in blobs]
    with pytest.raises(ArgumentError, match=r"same datasets .* label are in several"):
        ps.open([tmp_path / "part-0.h5", tmp_path / "odd.h5"])


def test_datasets_that_are_not_read_are_problems(tmp_path: Path) -> None:
    """A dataset with another number of records is named, unless fields, or a group, say what is read."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for group in ("train", "test"):
            file[f"{group}/label"], file[f"{group}/extra"] = np.arange(3), np.arange(2)

    with ps.open(tmp_path / "a.h5", group="train", label="label") as store:
        assert [problem.key for problem in store.problems] == ["train/extra"]
    with ps.open(tmp_path / "a.h5", group="train", fields={"label": "label"}) as store:
        assert store.problems == ()


def test_files_that_number_their_classes_in_two_ways_are_refused(tmp_path: Path) -> None:
    """By attributes of the file or of the labels, one file is enough, and all must agree."""
    for place in ("file", "labels"):
        paths = []
        for number, names in enumerate((["cat", "dog"], None, ["dog", "cat"])):
            paths.append(tmp_path / f"{place}-{number}.h5")
            with h5py.File(paths[-1], "w") as file:
                file["label"] = np.arange(2)
                if names:
                    (file if place == "file" else file["label"]).attrs["classes"] = names

        with ps.open(paths[:2]) as store:
            assert store.schema["label"].classes == ("cat", "dog")
        with pytest.raises(ArgumentError, match=r"one way: .* 'dog', 'cat', not 'cat', 'dog', as in .*-0\.h5"):
            ps.open(paths)


def test_files_without_images_are_stores_of_their_values(path: Path) -> None:
    """Features and targets are a store too."""
    with h5py.File(path, "w") as file:
        file["features"] = random_pixels(COUNT, 7, dtype="float32")
        file["target"] = np.arange(COUNT) * 0.5

    with ps.open(path) as store:
        assert {name: field.kind for name, field in store.schema.fields.items()} == {
            "label": "float",
            "features": "float32[7]",
        }
        assert store[4].fields["label"] == 2.0


def test_datasets_that_cannot_be_read_are_listed(path: Path, tmp_path: Path) -> None:
    """Types that are not read, values in other files and absurd sizes are problems with a reason, never opened."""
    (tmp_path / "secret").write_bytes(b"secret" * 100)
    with h5py.File(path, "w") as file:
        file["image"] = random_pixels(COUNT, 4, 4)
        file["table"] = np.zeros(COUNT, [("a", "i4"), ("b", "f4")])
        file.create_dataset("outside", (COUNT,), np.uint8, external=[(str(tmp_path / "secret"), 0, COUNT)])
        file.create_dataset("huge", (COUNT, 1 << 40), np.uint8, chunks=(1, 1 << 20))
        layout = h5py.VirtualLayout((COUNT,), np.uint8)
        layout[:] = h5py.VirtualSource("/etc/other.h5", "x", (COUNT,))
        file.create_virtual_dataset("virtual", layout)
        file["linked"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/x")

    with ps.open(path) as store:
        assert list(store.schema.fields) == ["image"]
        assert [problem.key for problem in store.problems] == ["huge", "outside", "table", "virtual", "linked"]


def test_what_is_no_container_of_records_is_refused(tmp_path: Path) -> None:
    """An empty file, weights of a model, and a file that only has the signature."""
    with h5py.File(tmp_path / "empty.h5", "w"):
        pass
    with h5py.File(tmp_path / "weights.h5", "w") as file:
        file["dense/kernel"] = np.zeros((3, 4))
        file["dense/bias"] = np.zeros(4)
    (tmp_path / "bad.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(500))

    with pytest.raises(StoreFormatError, match="no dataset of records"):
        ps.open(tmp_path / "empty.h5")
    with pytest.raises(ArgumentError, match="must be stated"):
        ps.open(tmp_path / "weights.h5")
    with pytest.raises(StoreFormatError, match=r"bad\.h5 is damaged, or no HDF5 file"):
        ps.open(tmp_path / "bad.h5")
    make_gray(tmp_path / "gray.h5")
    with pytest.raises(ArgumentError, match="count must be in"):
        ps.open(tmp_path / "gray.h5", count=99)


def make_gray(path: Path) -> None:
    """A small file."""
    with h5py.File(path, "w") as file:
        file["image"] = random_pixels(COUNT, 4, 4)
        file["label"] = np.arange(COUNT)


def test_the_missing_package_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without h5py the error says what to install."""
    make_gray(path)
    monkeypatch.setitem(sys.modules, "h5py", None)

    with pytest.raises(ImportError, match=r"penstock-data\[hdf5\]"):
        ps.open(path)


def test_a_file_that_is_being_written_is_an_error_that_says_so(path: Path) -> None:
    """A writer without SWMR keeps readers out; the message says why."""
    make_gray(path)

    with start_writer(path, "pass"), pytest.raises(StoreError, match="open for writing in another process"):
        ps.open(path)


def test_swmr_files_are_read_while_they_grow(path: Path) -> None:
    """The number of records is that at opening, also in a worker that opens the store later; a new store has more."""
    write = """
        file.swmr_mode = True
        def append(count):
            for name, shape in (("image", (4, 4)), ("label", ())):
                dataset = file[name]
                begin = dataset.shape[0]
                dataset.resize(begin + count, axis=0)
                dataset[begin:] = np.arange(begin, begin + count).reshape(-1, *[1 for _ in shape])
                dataset.flush()
        append(5)
        print("ready", flush=True)
        input()
        append(3)
    """
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("image", (0, 4, 4), np.uint8, maxshape=(None, 4, 4), chunks=(2, 4, 4))
        file.create_dataset("label", (0,), np.int64, maxshape=(None,), chunks=(4,))

    with start_writer(path, write) as writer, ps.open(path) as store:
        assert len(store) == 5
        assert "SWMR" in store.description
        pickled = pickle.dumps(store)
        assert store[4].fields["label"] == 4
        writer.stdin.write("\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "done\n"

        assert len(store) == 5
        assert (store[4].fields["image"] == 4).all()
        with pickle.loads(pickled) as again:
            assert len(again) == 5
            assert again.column("label").tolist() == [0, 1, 2, 3, 4]
        with ps.open(path) as more:
            assert len(more) == 8
            assert (more[7].fields["image"] == 7).all()


class start_writer:  # noqa: N801  # used as a function
    """A process that has a file open for writing, and runs some lines."""

    def __init__(self, path: Path, lines: str) -> None:
        script = f"import sys, h5py, numpy as np\nfile = h5py.File({str(path)!r}, 'r+', libver='latest')\n"
        ready = "" if "ready" in lines else "print('ready', flush=True)\n"
        script += textwrap.dedent(lines) + f"\n{ready}print('done', flush=True)\ninput()\n"
        self._process = subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Any:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        return self._process

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()


def write_damageable(path: Path) -> None:
    """Every kind of dataset in a small file."""
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("jpeg", (4,), h5py.vlen_dtype(np.uint8))
        for row in range(4):
            dataset[row] = np.arange(100 + row, dtype=np.uint8)
        file.create_dataset("pixels", data=random_pixels(4, 4, 4, 3), chunks=(2, 4, 4, 3), compression="gzip")
        file.create_dataset("crop", data=random_pixels(4, 4, 4, 3), chunks=(1, 4, 4, 3))
        file["name"] = list("abcd")
        file["label"] = np.arange(4)


def test_a_file_that_is_cut_is_refused(path: Path) -> None:
    """Wherever the end is missing, opening says so."""
    write_damageable(path)
    content = path.read_bytes()

    for end in range(0, len(content), 97):
        path.write_bytes(content[:end])
        with pytest.raises(StoreError):
            Hdf5Store(path)


@pytest.mark.tries
def test_flipped_bits_are_errors_or_other_values(path: Path) -> None:
    """A bit that differs gives an error of penstock, or another value: no crash, no hang, nothing else."""
    write_damageable(path)
    content = path.read_bytes()
    draw = random.Random(5)
    refused = 0

    for _ in range(choose_tries(300)):
        damaged = bytearray(content)
        damaged[draw.randrange(min(len(content), draw.choice([2048, len(content)])))] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        try:
            with Hdf5Store(path, image="jpeg") as store:
                for index in range(min(len(store), 8)):
                    store.read([index])
        except PenstockError:
            refused += 1

    assert refused > choose_tries(10)


def test_damage_in_a_chunk_and_in_the_heap_names_the_record(path: Path) -> None:
    """A chunk that cannot be inflated, and a heap that is none, are errors of their records alone."""
    with h5py.File(path, "w") as file:
        blobs = write_blobs(file)
        gray = file.create_dataset("gray", data=random_pixels(COUNT, 9, 9), chunks=(1, 9, 9), compression="gzip")
        chunk = gray.id.get_chunk_info(6)
    content = bytearray(path.read_bytes())
    content[chunk.byte_offset + 20] ^= 0xFF
    heap = content.index(b"GCOL")
    content[heap + 1] = 0
    path.write_bytes(content)

    with ps.open(path, image="gray") as store, pytest.raises(CorruptRecordError, match="damaged") as caught:
        store.blobs("image", [5, 6])
    assert caught.value.where["index"] == 6
    with ps.open(path, fields={"image": "jpeg"}) as store:
        outcomes: list[tuple[int, bytes | str]] = []
        for index in range(COUNT):
            try:
                outcomes.append((index, bytes(store[index].fields["image"])))
            except CorruptRecordError as error:
                outcomes.append((error.where["index"], "no heap" if "there is no heap" in error.message else ""))
    assert (0, "no heap") in outcomes
    assert all(got in ("no heap", blobs[index].tobytes()) for index, got in outcomes)
    assert [index for index, _ in outcomes] == list(range(COUNT))


def test_forked_children_read_while_a_thread_of_the_parent_does(path: Path) -> None:
    """h5py's lock and handles do not keep a child from reading what h5py must read."""
    pixels = random_pixels(COUNT, 8, 8)
    with h5py.File(path, "w") as file:
        file.create_dataset("image", data=pixels, chunks=(2, 8, 8), compression="lzf")

    script = textwrap.dedent(
        f"""
        import os, threading, numpy as np, penstock as ps
        store = ps.open({str(path)!r})
        expected = [record.fields["image"].sum() for record in store]
        stop = False
        def work():
            while not stop:
                store.read([3])
        threads = [threading.Thread(target=work) for _ in range(2)]
        [thread.start() for thread in threads]
        codes = []
        for _ in range(5):
            child = os.fork()
            if child == 0:
                os._exit(0 if [record.fields["image"].sum() for record in store] == expected else 1)
            codes.append(os.waitpid(child, 0)[1])
        stop = True
        [thread.join() for thread in threads]
        print(codes)
        """
    )
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=60, check=True
    )

    assert json.loads(answer.stdout) == [0] * 5


def test_a_list_of_keys_that_is_damaged_is_read_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library may search long for what is damaged: later errors repeat what was found, and do not search again."""
    with h5py.File(path, "w") as file:
        write_blobs(file)
    store = ps.open(path)
    calls = []

    def fail() -> list[str]:
        calls.append(1)
        raise CorruptRecordError("the heap is damaged", store=store.url)

    monkeypatch.setattr(store, "read_keys", fail)
    for _ in range(3):
        with pytest.raises(CorruptRecordError, match="the heap is damaged"):
            store.keys()

    assert len(calls) == 1
