"""Stores of pixels as datasets: pipelines take them as images, and filled batches equal collated ones, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import transforms as T
from penstock.errors import ArgumentError, CorruptRecordError, PenstockError
from penstock.pixel_rows import PixelRows
from penstock.sample import Array, ArraySpec, Field, Record, SampleKeys, Schema
from penstock.stores.base import Indices, Store
from penstock.stores.lmdb_pack.store import LmdbStore
from penstock.stores.lmdb_pack.writer import LmdbWriter
from penstock.transforms.program.pixel_program import PixelProgram

DTYPES = {"uint8": np.uint8, "uint16": np.uint16, "float32": np.float32}


class MemoryStore(Store):
    """Records in memory, as a container of another program may give them: any arrays, None where a value is missing."""

    kind = "memory"

    def __init__(self, schema: dict[str, str], fields: dict[str, list[Any]]) -> None:
        super().__init__("memory")
        self._schema = Schema({name: Field(kind) for name, kind in schema.items()})
        self._fields = fields

    @property
    def schema(self) -> Schema:
        """The fields."""
        return self._schema

    def __len__(self) -> int:
        return len(next(iter(self._fields.values())))

    def read(self, indices: Indices) -> list[Record]:
        """The records."""
        names = self._schema.fields
        return [Record(int(i), str(i), {name: self._fields[name][int(i)] for name in names}) for i in indices]

    def column(self, field: str) -> Array:
        """The values, with -1 or NaN for None."""
        missing: Any = -1 if self._schema[field].kind in {"label", "int"} else np.nan
        return np.array([missing if value is None else value for value in self._fields[field]])

    def keys(self) -> Sequence[str]:
        """The numbers."""
        return [str(index) for index in range(len(self))]

    def digest(self) -> str:
        """A constant."""
        return "memory"

    @classmethod
    def recognises(cls, path: str) -> bool:
        """Nothing."""
        return False


def make_images(dtype: str, shapes: list[tuple[int, ...]], seed: int = 0) -> list[Array]:
    """Read-only images of random values, over the whole range of integers."""
    rng = np.random.default_rng(seed)
    images = []
    for shape in shapes:
        if dtype == "float32":
            image: Array = (rng.standard_normal(shape) * 3).astype(np.float32)
        else:
            image = rng.integers(0, np.iinfo(dtype).max, shape, endpoint=True).astype(dtype)
        image.flags.writeable = False
        images.append(image)
    return images


def assert_filled_as_collated(dataset: ps.StoreDataset, seed: int = 3, epoch: int = 1) -> tuple[Any, ...]:
    """Fill a batch, and compare it with the samples one by one, in every bit; gives the batch."""
    spec = dataset.spec()
    assert spec is not None, dataset.why_not_filled()
    indices = np.random.default_rng(seed).permutation(len(dataset)).astype(np.int64)
    rows = np.arange(len(indices))[::-1].copy()
    keys = SampleKeys(seed, epoch, indices)
    out = tuple(np.zeros((len(indices), *leaf.shape), leaf.dtype) for leaf in spec)
    for array in out:
        array.view(np.uint8)[...] = 77
    dataset.fill(indices, out, keys, rows)
    samples = list(dataset.load_samples(indices.tolist(), keys))
    for leaf, array in enumerate(out):
        collated = np.stack([np.asarray(sample[leaf]) for sample in samples])
        assert collated.dtype == array.dtype
        np.testing.assert_array_equal(array[rows], collated, strict=True)
        assert array[rows].tobytes() == collated.tobytes()
    return out


GEOMETRY: dict[str, Any] = {
    "none": [],
    "flip": [T.HorizontalFlip(0.5)],
    "both flips": [T.HorizontalFlip(0.5), T.VerticalFlip(0.5)],
    "central crop": [T.CenterCrop((5, 4))],
    "padded centre": [T.CenterCrop((13, 11)), T.VerticalFlip(0.5)],
    "random crop": [T.RandomCrop((4, 5))],
    "padded crop": [T.RandomCrop((7, 9), padding=(1, 2, 3, 4)), T.HorizontalFlip(0.5)],
    "flip before a padded crop": [T.HorizontalFlip(0.5), T.RandomCrop((7, 9), padding=2)],
    "two crops": [T.RandomCrop((6, 7), padding=2), T.CenterCrop((9, 4)), T.HorizontalFlip(0.5)],
    "padded with gray": [T.RandomCrop((7, 9), padding=3, fill=7)],
    "reflected": [T.RandomCrop((7, 9), padding=3, padding_mode="reflect")],
}
RESIZING: dict[str, Any] = {
    "resize": [T.Resize((6, 5)), T.HorizontalFlip(0.5)],
    "random resized": [T.RandomResizedCrop((8, 7), scale=(0.3, 1.0)), T.HorizontalFlip(0.5)],
    "resize by bicubic": [T.Resize((15, 14), filter="bicubic"), T.CenterCrop(7)],
    "flip, then resize": [T.HorizontalFlip(0.5), T.Resize((6, 5))],
}
ENDS: dict[str, Any] = {
    "nothing": [],
    "floats": [T.ToLayout("CHW", "float32")],
    "halves": [T.ToLayout("HWC", "float16")],
    "bfloat16": [T.ToLayout("HWC", "bfloat16")],
    "normalised bfloat16": [T.Normalize(0.25, 0.3), T.ToLayout("CHW", "bfloat16")],
    "normalised": [T.Normalize(127.5 / 255, 128 / 255), T.ToLayout("CHW", "float32")],
    "normalised halves": [T.Normalize(0.25, 0.3), T.ToLayout("CHW", "float16")],
    "normalised alone": [T.Normalize(0.1, 2.0)],
}


@given(
    dtype=st.sampled_from(list(DTYPES)),
    channels=st.sampled_from([1, 2, 3, 4, 7]),
    geometry=st.sampled_from(list(GEOMETRY)),
    end=st.sampled_from(list(ENDS)),
    decode=st.booleans(),
    varies=st.booleans(),
    seed=st.integers(0, 1 << 20),
)
def test_filled_rows_equal_samples(
    dtype: str, channels: int, geometry: str, end: str, decode: bool, varies: bool, seed: int
) -> None:
    """For every dtype, number of channels, crop, flip, normalisation and layout; with images of one size or of many."""
    ops = [*([T.Decode()] if decode else []), *GEOMETRY[geometry], *ENDS[end]]
    moves = geometry not in {"none", "flip", "both flips"}
    sizes = [(9, 8), (7, 11), (12, 12), (9, 8), (6, 7)] if varies and moves else [(9, 8)] * 5
    kind = f"pixels:{dtype}[{'*,*' if varies and moves else '9,8'},{channels}]"
    images = make_images(dtype, [(*size, channels) for size in sizes], seed)
    store = MemoryStore({"image": kind, "label": "label"}, {"image": images, "label": [1, None, 3, 4, 5]})

    dataset = ps.StoreDataset(store, ("image", "label"), transform=ops)

    assert_filled_as_collated(dataset, seed)


@settings(max_examples=settings().max_examples // 2)
@given(
    channels=st.sampled_from([1, 3]),
    geometry=st.sampled_from(list(RESIZING)),
    end=st.sampled_from(list(ENDS)),
    seed=st.integers(0, 1 << 20),
)
def test_resized_rows_equal_samples(channels: int, geometry: str, end: str, seed: int) -> None:
    """Images of uint8 with one or three channels are resized natively too."""
    images = make_images("uint8", [(9 + i, 14 - i, channels) for i in range(5)], seed)
    store = MemoryStore({"image": f"pixels:uint8[*,*,{channels}]", "label": "int"}, {"image": images, "label": [1] * 5})

    dataset = ps.StoreDataset(store, ("image", "label"), transform=[*RESIZING[geometry], *ENDS[end]])

    assert_filled_as_collated(dataset, seed)


@pytest.mark.parametrize(
    "ops",
    [
        [T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.Normalize(0.5, 0.5), T.ToLayout()],
        [T.HorizontalFlip(), T.RandAugment(), T.ToLayout("CHW", "float16")],
        [T.Normalize(0.5, 0.5), T.RandomErasing(1.0), T.ToLayout("CHW", "bfloat16")],
        [T.RandomCrop(8, padding=2), T.Grayscale(3), T.ToLayout("CHW", "uint8")],
        [T.Normalize((0.1, 0.2, 0.3), (1, 2, 3)), T.RandomErasing(1.0), T.ToLayout()],
        [T.Letterbox((20, 10), fill=(1, 2, 3)), T.ToLayout()],
        [T.Pad(2), T.CenterCrop(8)],
        [T.RandomRotation(30), T.GaussianBlur(3), T.Normalize(0.5, 0.5), T.ToLayout()],
    ],
)
def test_other_ops_follow_one_by_one(ops: list[T.Op]) -> None:
    """An op that the native call does not know is applied to each image; the batch is filled all the same."""
    store = MemoryStore(
        {"image": "pixels:uint8[9,12,3]", "x": "int"}, {"image": make_images("uint8", [(9, 12, 3)] * 4), "x": [0] * 4}
    )

    assert_filled_as_collated(ps.StoreDataset(store, ("image", "x"), transform=ops))


def test_values_are_what_the_ops_say() -> None:
    """(x - 127.5) / 128 exactly; integers from 0 to 1 by ToLayout; floats unchanged, or normalised without a factor."""
    patch = np.arange(432, dtype=np.uint8).reshape(12, 12, 3)
    deep, real = patch.astype(np.uint16) * 100, patch.astype(np.float32) - 50

    def run(image: Array, *ops: T.Op) -> Array:
        kind = f"pixels:{image.dtype}[12,12,3]"
        store = MemoryStore({"image": kind}, {"image": [image]})
        row: Array = assert_filled_as_collated(ps.StoreDataset(store, ("image",), transform=list(ops)))[0][0]
        return row

    centred = run(patch, T.Normalize(127.5 / 255, 128 / 255), T.ToLayout("HWC"))
    np.testing.assert_array_equal(centred, (patch.astype(np.float32) - 127.5) / 128)
    np.testing.assert_array_equal(run(patch, T.ToLayout("HWC")), patch * np.float32(1 / 255))
    np.testing.assert_array_equal(run(deep, T.ToLayout("HWC")), deep * np.float32(1 / 65535))
    np.testing.assert_allclose(
        run(deep, T.Normalize(0.5, 0.25), T.ToLayout("HWC")), (deep / 65535 - 0.5) / 0.25, atol=1e-5
    )
    np.testing.assert_array_equal(run(real, T.ToLayout("CHW")), real.transpose(2, 0, 1))
    np.testing.assert_array_equal(run(real, T.Normalize(10, 4)), (real - np.float32(10)) / np.float32(4))


def test_four_channels_have_four_numbers() -> None:
    """Normalize takes one mean for each of four channels, and refuses images of another number of channels."""
    images = make_images("uint8", [(5, 6, 4)] * 3)
    ops = [T.Normalize((0.1, 0.2, 0.3, 0.4), (1, 2, 3, 4)), T.ToLayout()]
    store = MemoryStore({"image": "pixels:uint8[5,6,4]", "x": "int"}, {"image": images, "x": [0] * 3})
    assert_filled_as_collated(ps.StoreDataset(store, ("image", "x"), transform=ops))

    three = MemoryStore({"image": "pixels:uint8[5,6,3]"}, {"image": make_images("uint8", [(5, 6, 3)])})
    with pytest.raises(ArgumentError, match="needs images of 4 channels, got 3"):
        ps.StoreDataset(three, ("image",), transform=ops)


@pytest.mark.parametrize(
    ("kind", "ops", "why"),
    [
        ("pixels:float32[9,9,3]", [T.RandomResizedCrop(4)], "needs uint8 or uint16 images, got float32"),
        ("pixels:uint8[9,9,5]", [T.Resize((4, 4))], "needs images of 1 to 4 channels, got 5"),
        ("pixels:uint8[9,9,7]", [T.RandomResizedCrop(4)], "needs images of 1 to 4 channels, got 7"),
        ("pixels:uint16[9,9,3]", [T.Letterbox((4, 4))], "needs uint8 images, got uint16"),
        ("pixels:uint8[9,9,4]", [T.ColorJitter(0.5)], "needs images of three channels, got 4"),
        ("pixels:uint16[9,9,3]", [T.ColorJitter(0.5)], "needs uint8 images, got uint16"),
        ("pixels:uint16[9,9,3]", [T.ToLayout("CHW", "uint8")], "needs uint8 images, got uint16"),
    ],
)
def test_what_an_op_does_not_take_is_refused_when_the_dataset_is_made(kind: str, ops: list[T.Op], why: str) -> None:
    """By the schema, before an image is read, with the op and what it needs."""
    pixels = Field(kind).pixels
    assert pixels is not None
    assert pixels.shape is not None
    store = MemoryStore({"image": kind}, {"image": make_images(pixels.dtype.name, [pixels.shape])})

    with pytest.raises(ArgumentError, match=why):
        ps.StoreDataset(store, ("image",), transform=ops)


ALL_OPS = [
    T.CenterCrop(4), T.RandomCrop(4), T.RandomResizedCrop(4), T.Resize((4, 4)), T.HorizontalFlip(1), T.VerticalFlip(1),
    T.Normalize(0.5, 0.5), T.ToLayout(), T.ColorJitter(0.4), T.Grayscale(1), T.Posterize(4, 1.0), T.Solarize(128, 1.0),
    T.Equalize(1.0), T.AutoContrast(1.0), T.Invert(1.0), T.GaussianBlur(3), T.Sharpness(2.0, 1.0), T.RandomRotation(20),
    T.RandomAffine(20), T.RandomPerspective(0.5, 1.0), T.RandomErasing(1.0), T.Pad(2), T.Letterbox(8), T.RandAugment(),
    T.TrivialAugmentWide(),
]  # fmt: skip


@pytest.mark.parametrize("op", ALL_OPS, ids=lambda op: type(op).__name__)
@pytest.mark.parametrize("kind", ["uint8[9,8,1]", "uint8[9,8,4]", "uint16[9,8,3]", "float32[9,8,3]", "float32[9,8,2]"])
def test_every_op_takes_pixels_or_refuses_them(op: T.Op, kind: str) -> None:
    """Never an error of another library, and never a batch that differs from its samples."""
    pixels = Field(f"pixels:{kind}").pixels
    assert pixels is not None
    assert pixels.shape is not None
    images = make_images(pixels.dtype.name, [pixels.shape] * 3)
    store = MemoryStore({"image": f"pixels:{kind}", "x": "int"}, {"image": images, "x": [0] * 3})

    try:
        dataset = ps.StoreDataset(store, ("image", "x"), transform=[op])
        if dataset.spec() is None:
            assert dataset[0][0].ndim in {2, 3}
        else:
            assert_filled_as_collated(dataset)
    except PenstockError as error:
        said = error.message
        assert "needs" in said or "must" in said, said  # an op may also take them


def pack_pixels(path: Path, images: list[Array], kind: str, **small: list[Any]) -> Path:
    """A pack of images, with numbers."""
    kinds = {name: Field("label" if name == "label" else "float32[4]") for name in small}
    writer = LmdbWriter(path, Schema({"image": Field(kind), **kinds}), "source")
    writer.append_batch(writer.prepare_batch([str(i) for i in range(len(images))], {"image": images, **small}))
    writer.finish()
    return path


@pytest.mark.parametrize("ops", [[], *GEOMETRY.values()])
def test_a_pack_of_blocks_fills_as_it_reads(tmp_path: Path, ops: list[T.Op]) -> None:
    """From the map of the pack by offsets, with labels and small arrays, some of which are missing."""
    boxes = [None if i == 3 else np.arange(4, dtype=np.float32) + i for i in range(30)]
    labels = [None if i % 7 == 2 else i % 3 for i in range(30)]
    images = make_images("uint8", [(12, 12, 3)] * 30)
    pack = pack_pixels(tmp_path / "p.lmdb", images, "pixels:uint8[12,12,3]", label=labels, box=boxes)

    with LmdbStore(pack) as store:
        assert isinstance(store.pixels("image", [0]), PixelRows)
        dataset = ps.StoreDataset(
            store, ("image", "label", "box"), transform=[T.Decode(), *ops, T.ToLayout()], kinds={"box": None}
        )
        out = assert_filled_as_collated(dataset)

    assert sorted(out[1].tolist())[:5] == [-1, -1, -1, -1, 0]
    assert np.isnan(out[2]).all(axis=1).sum() == 1


@pytest.mark.parametrize("kind", ["pixels:uint8[5,6,3]", "pixels:uint16[5,6,1]", "pixels:float32[5,6,4]"])
def test_without_a_transform_pixels_are_filled_as_they_are(tmp_path: Path, kind: str) -> None:
    """Images of one shape are rows of a batch, of their own dtype; a sample's array can be written to."""
    pixels = Field(kind).pixels
    assert pixels is not None
    images = make_images(pixels.dtype.name, [(5, 6, pixels.axes[2][0] if pixels.axes[2] else 0)] * 9)
    with LmdbStore(pack_pixels(tmp_path / "p.lmdb", images, kind, label=list(range(9)))) as store:
        dataset = ps.StoreDataset(store, ("image", "label", "image"))
        out = assert_filled_as_collated(dataset)
        batch = next(iter(ps.DataLoader(dataset, 9)))
        dataset[0][0][:] = 0

    assert out[0].dtype == pixels.dtype
    np.testing.assert_array_equal(batch[0], np.stack(images))
    np.testing.assert_array_equal(batch[2], np.stack(images))


def test_pixels_of_many_sizes_are_not_filled_without_a_crop() -> None:
    """The reason says so; samples are arrays."""
    images = make_images("uint8", [(5, 6, 3), (7, 6, 3)])
    store = MemoryStore({"image": "pixels:uint8[*,6,3]"}, {"image": images})
    dataset = ps.StoreDataset(store, "image")

    assert dataset.spec() is None
    assert "no fixed shape" in dataset.why_not_filled()
    np.testing.assert_array_equal(dataset[1], images[1])


def test_one_pipeline_serves_encoded_images_and_pixels(tmp_path: Path) -> None:
    """Decode at its beginning is left out for pixels; random numbers are the same, so that batches are."""
    from PIL import Image

    images = make_images("uint8", [(14, 13, 3)] * 6)
    for i, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / f"{i}.png")
    ops = T.Pipeline([T.Decode(), T.RandomCrop(9), T.HorizontalFlip(), T.Normalize(0.5, 0.5), T.ToLayout()])
    pack = pack_pixels(tmp_path / "p.lmdb", images, "pixels:uint8[14,13,3]")

    encoded = ps.DataLoader(ps.StoreDataset(tmp_path, "image", transform=ops), 6, shuffle=True, seed=4)
    stored = ps.DataLoader(ps.StoreDataset(pack, "image", transform=ops), 6, shuffle=True, seed=4)

    for one, other in zip(encoded, stored, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_gray_and_colour_pictures_become_rgb_where_they_are_decoded(tmp_path: Path, dtype: str) -> None:
    """A pack holds each as it is; Decode gives three channels, one by one and filled, and "unchanged" leaves them."""
    images = make_images(dtype, [(12, 9, 1), (10, 11, 3), (9, 12, 4), (15, 9, 1)])
    with ps.open(pack_pixels(tmp_path / "pack", images, f"pixels:{dtype}[*,*,*]")) as store:
        samples = ps.StoreDataset(store, fields="image")
        cropped = ps.StoreDataset(store, fields=("image",), transform=[T.Decode(), T.RandomCrop(8), T.ToLayout()])
        colours = ps.StoreDataset(store, fields="image", transform=[T.Decode(), T.VerticalFlip(0)])
        kept = ps.StoreDataset(store, fields="image", transform=[T.Decode(mode="unchanged"), T.CenterCrop(8)])
        plain = ps.StoreDataset(store, fields="image", transform=[T.CenterCrop(8)])

        for position, image in enumerate(images):
            expected = image[:, :, [0, 0, 0]] if image.shape[2] == 1 else image[:, :, :3]
            assert np.array_equal(samples[position], image)
            assert np.array_equal(colours[position], expected)
            assert kept[position].shape == plain[position].shape == (8, 8, image.shape[2])
        (batch,) = assert_filled_as_collated(cropped)
        assert batch.shape == (4, 3, 8, 8)
        assert kept.spec() is None
        assert plain.spec() is None
        assert "T.Decode() as the first op gives RGB" in str(plain.why_not_filled())


@pytest.mark.parametrize("workers", ["serial", "threads", "processes"])
def test_a_loader_delivers_the_same_batches_from_any_worker(tmp_path: Path, workers: str) -> None:
    """Chunks are larger where nothing is decoded; batches do not depend on that."""
    images = make_images("uint8", [(12, 12, 3)] * 700)
    pack = pack_pixels(tmp_path / "p.lmdb", images, "pixels:uint8[12,12,3]", label=list(range(700)))
    ops = [T.HorizontalFlip(), T.Normalize(127.5 / 255, 128 / 255), T.ToLayout()]
    dataset = ps.StoreDataset(pack, ("image", "label"), transform=ops)
    loader = ps.DataLoader(dataset, 300, shuffle=True, num_workers=2 * (workers != "serial"), workers=workers, seed=9)
    assert dataset.rows_per_fill > 100

    batches = [(images.copy(), labels.copy()) for images, labels in loader]

    sizes = [len(labels) for _, labels in batches]
    assert sizes == [300, 300, 100]
    filled, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    assert sorted(labels.tolist()) == list(range(700))
    want = [(images[label].transpose(2, 0, 1).astype(np.float32) - 127.5) / 128 for label in labels]
    flipped = [np.array_equal(got, each[:, :, ::-1]) for got, each in zip(filled, want, strict=True)]
    kept = [np.array_equal(got, each) for got, each in zip(filled, want, strict=True)]
    assert all(one or other for one, other in zip(flipped, kept, strict=True))
    assert 200 < sum(flipped) < 500


def test_boxes_follow_pixels(tmp_path: Path) -> None:
    """Targets move with an image that is stored as its pixels, in samples and in filled batches."""
    images = make_images("uint8", [(10, 12, 3)] * 4)
    boxes = [np.array([[1, 2, 5, 6], [0, 0, i + 1, 3]], np.float32) for i in range(4)]
    store = MemoryStore({"image": "pixels:uint8[10,12,3]", "boxes": "boxes"}, {"image": images, "boxes": boxes})
    ops = [T.Decode(), T.HorizontalFlip(1.0), T.RandomCrop((6, 6), padding=2), T.ToLayout()]

    dataset = ps.StoreDataset(store, ("image", "boxes"), transform=ops, ragged="list")

    batch = next(iter(ps.DataLoader(dataset, 4, seed=2)))
    keys = SampleKeys(2, 0, np.arange(4))
    for i, (image, moved) in enumerate(dataset.load_samples(range(4), keys)):
        np.testing.assert_array_equal(batch[0][i], image)
        np.testing.assert_array_equal(batch[1][i], moved)
    assert not np.array_equal(batch[1][0], boxes[0])


def test_samples_with_an_encoded_image_and_pixels_are_made_one_by_one(tmp_path: Path) -> None:
    """Each image is taken as it is stored; both get the same random numbers."""
    import io

    from PIL import Image

    pixels = make_images("uint8", [(8, 9, 3)] * 2)
    encoded = []
    for image in pixels:
        file = io.BytesIO()
        Image.fromarray(image).save(file, "PNG")
        encoded.append(file.getvalue())
    store = MemoryStore({"a": "image", "b": "pixels:uint8[8,9,3]"}, {"a": encoded, "b": pixels})
    dataset = ps.StoreDataset(store, ("a", "b"), transform=[T.Decode(), T.RandomCrop(5), T.ToLayout()])

    first, second = dataset[0]

    np.testing.assert_array_equal(first, second)
    with pytest.raises(ArgumentError, match=r"put T.Decode\(\) first"):
        ps.StoreDataset(store, ("a", "b"), transform=[T.RandomCrop(5)])


def test_an_image_that_is_not_of_its_kind_names_its_record() -> None:
    """A store that gives another dtype or shape than its schema says is refused, not converted."""
    good = make_images("uint8", [(8, 9, 3)])[0]
    for wrong in (good.astype(np.uint16), good[:5], good[:, :, :1], good.reshape(-1)):
        store = MemoryStore({"image": "pixels:uint8[8,9,3]", "x": "int"}, {"image": [good, wrong], "x": [0, 1]})
        dataset = ps.StoreDataset(store, ("image", "x"), transform=[T.ToLayout()])
        out = (np.zeros((2, 3, 8, 9), np.float32), np.zeros(2, np.int64))

        with pytest.raises(CorruptRecordError, match="as the schema of the store says") as caught:
            dataset.fill(np.arange(2), out, SampleKeys(0, 0, np.arange(2)))
        assert caught.value.where["index"] == 1


@pytest.mark.parametrize(("kind", "value"), [("label", -1), ("int", -1), ("float", np.nan)])
def test_missing_numbers_are_minus_one_or_nan(kind: str, value: float) -> None:
    """In samples, and in batches that are filled."""
    store = MemoryStore(
        {"image": "pixels:uint8[2,2,1]", "y": kind}, {"image": make_images("uint8", [(2, 2, 1)] * 3), "y": [1, None, 2]}
    )
    dataset = ps.StoreDataset(store, ("image", "y"))

    np.testing.assert_equal(dataset[1][1], value)
    out = assert_filled_as_collated(dataset)
    assert np.sum(np.isnan(out[1]) if np.isnan(value) else out[1] == value) == 1


def test_torchvisions_transforms_get_pil_images() -> None:
    """A transform of torchvision's is called with stored pixels as it is with decoded ones."""
    transforms = pytest.importorskip("torchvision.transforms")
    images = make_images("uint8", [(8, 9, 3), (8, 9, 3)])
    store = MemoryStore({"image": "pixels:uint8[8,9,3]"}, {"image": images})

    tensor = ps.StoreDataset(store, "image", transform=transforms.ToTensor())[1]

    np.testing.assert_array_equal(tensor.numpy(), images[1].transpose(2, 0, 1) / np.float32(255))
    deep = MemoryStore({"image": "pixels:uint16[8,9,3]"}, {"image": make_images("uint16", [(8, 9, 3)])})
    with pytest.raises(ArgumentError, match="uint8 pixels of 1 or 3 channels"):
        ps.StoreDataset(deep, "image", transform=transforms.ToTensor())[0]


def test_other_libraries_get_gray_and_colour_pictures_in_rgb() -> None:
    """Transforms of torchvision for images alone and for samples; without a transform each is as it is."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    images = make_images("uint8", [(8, 9, 1), (8, 9, 3), (8, 9, 4)])
    boxes = [np.array([[0, 0, 2, 2]], np.float32)] * 3
    store = MemoryStore({"image": "pixels:uint8[*,*,*]", "boxes": "boxes"}, {"image": images, "boxes": boxes})

    tensors = ps.StoreDataset(store, "image", transform=v2.Compose([v2.ToImage(), v2.Resize((4, 4))]))
    samples = ps.StoreDataset(store, ("image", "boxes"), transform=v2.Compose([v2.ToImage(), v2.Resize((4, 4))]))

    assert [tuple(tensors[position].shape) for position in range(3)] == [(3, 4, 4)] * 3
    assert [tuple(samples[position][0].shape) for position in range(3)] == [(3, 4, 4)] * 3
    plain = ps.StoreDataset(store, "image")
    assert [plain[position].shape[2] for position in range(3)] == [1, 3, 4]


def test_programs_of_pixels_are_copying_only_without_other_ops() -> None:
    """Chunks are large only where every op is native."""
    pixels = Field("pixels:uint8[8,8,3]").pixels
    assert pixels is not None

    assert PixelProgram([T.HorizontalFlip(), T.ToLayout()], ["image"], pixels).is_copying
    assert not PixelProgram([T.ColorJitter(0.5), T.ToLayout()], ["image"], pixels).is_copying


def test_descriptors_do_not_leak(tmp_path: Path) -> None:
    """A thousand batches leave as many descriptors open as one."""
    pack = pack_pixels(tmp_path / "p.lmdb", make_images("uint8", [(4, 4, 3)] * 8), "pixels:uint8[4,4,3]")
    dataset = ps.StoreDataset(pack, ("image",))
    out, indices = (np.zeros((8, 4, 4, 3), np.uint8),), np.arange(8)
    dataset.fill(indices, out, SampleKeys(0, 0, indices))
    before = len(list(Path("/proc/self/fd").iterdir()))

    for _ in range(1000):
        dataset.fill(indices, out, SampleKeys(0, 0, indices))

    assert len(list(Path("/proc/self/fd").iterdir())) == before


class Counted(ps.Dataset[Any]):
    """A dataset that fills rows with their index, and keeps how many rows each call has got."""

    def __init__(self, rows_per_fill: Any) -> None:
        self.rows_per_fill, self.calls = rows_per_fill, list[int]()

    def __len__(self) -> int:
        return 300

    def __getitem__(self, index: Any) -> Array:
        return np.full(2, index, np.float32)

    def spec(self) -> ArraySpec:
        """As the interface has it."""
        return ArraySpec((2,), np.dtype(np.float32))

    def fill(self, indices: Array, out: Any, keys: SampleKeys, rows: Array | None = None) -> None:
        """As the interface has it."""
        self.calls.append(len(indices))
        out[np.arange(len(indices)) if rows is None else rows] = indices[:, None]


def test_calls_of_fill_get_as_many_rows_as_the_dataset_says() -> None:
    """Also behind wrappers, whose inner datasets' least number holds; the batches are the same."""
    large, small = Counted(200), Counted(16)

    for dataset, inner in ((large, large), (ps.Subset(large, range(300)), large), (large + small, small)):
        large.calls.clear()
        [batch, *_] = ps.DataLoader(dataset, 300, num_workers=0)
        assert batch[:, 0].tolist() == list(range(300))
        assert max(large.calls) == (200 if inner is large else 16)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "8"])
def test_a_wrong_number_of_rows_is_an_error(wrong: Any) -> None:
    """Zero rows a call would never end."""
    with pytest.raises(ArgumentError, match="rows_per_fill of Counted must be an int of at least 1"):
        list(ps.DataLoader(Counted(wrong), 10, num_workers=0))


@pytest.mark.parametrize("kind", ["pixels:uint8[8,8,3]", "pixels:uint8[*,*,3]"])
def test_a_record_without_its_pixels_is_named(kind: str) -> None:
    """A store whose record has no image gives an error with key and index, where rows are filled."""
    store = MemoryStore({"image": kind}, {"image": [*make_images("uint8", [(8, 8, 3)] * 2), None]})
    dataset = ps.StoreDataset(store, ("image", "index"), [T.CenterCrop(8)])
    assert dataset.why_not_filled() == ""

    with pytest.raises(CorruptRecordError, match=r"its image must be pixels .* got None") as caught:
        list(ps.DataLoader(dataset, 3, num_workers=0))
    assert (caught.value.where["key"], caught.value.where["index"]) == ("2", 2)
