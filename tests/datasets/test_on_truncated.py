"""Truncated and damaged images: decoded as libjpeg decodes them, counted and named; or left out; or an error."""

from __future__ import annotations

import io
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import penstock as ps
from penstock import transforms as T
from penstock.errors import (
    ArgumentError,
    BrokenImageError,
    DecodeError,
    ImageTooLargeError,
    SampleError,
    UnsupportedImageError,
)

COUNT = 12
BROKEN = (3, 7)
KEYS = [f"a/{row:02}.jpg" for row in range(COUNT)]


def make_pixels(width: int, height: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """A picture with smooth parts and noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    pixels = np.stack([np.sin(x / 9) * 60 + np.cos(y / 13) * 60 + 128, x * 255 / width, x * y % 256], 2)
    pixels[height // 4 : height // 2, width // 4 : width // 2] = rng.integers(0, 256, 3)
    return (pixels + rng.integers(0, 9, pixels.shape)).clip(0, 255).astype(np.uint8)


def encode(width: int = 100, height: int = 76, seed: int = 0, **options: Any) -> bytes:
    """A JPEG."""
    file = io.BytesIO()
    image = Image.fromarray(make_pixels(width, height, seed))
    image.convert(options.pop("mode", "RGB")).save(file, "JPEG", **options)
    return file.getvalue()


def oracle(damaged: bytes) -> np.ndarray[Any, Any] | None:
    """What libjpeg-turbo decodes; None where it gives up, and leaves a part of the buffer as it was."""
    try:
        height, width = simplejpeg.decode_jpeg_header(damaged)[:2]
        buffers = [np.full((height, width, 3), value, np.uint8) for value in (0, 255)]
        for buffer in buffers:
            simplejpeg.decode_jpeg(damaged, "RGB", strict=False, buffer=buffer)
    except ValueError:
        return None
    return buffers[0] if np.array_equal(buffers[0], buffers[1]) else None


FILES = {
    "4:4:4": encode(subsampling=0),
    "4:2:2": encode(subsampling=1),
    "4:2:0": encode(subsampling=2),
    "gray": encode(mode="L"),
    "restarts": encode(subsampling=2, restart_marker_blocks=4),
    "progressive": encode(progressive=True, subsampling=0),
    "progressive 4:2:0": encode(progressive=True, subsampling=2, quality=90),
    "progressive gray": encode(progressive=True, mode="L"),
    "progressive, restarts": encode(progressive=True, restart_marker_blocks=3),
    "progressive, narrow": encode(25, 133, progressive=True, subsampling=2),
}


def damage(content: bytes, kind: str, draw: random.Random) -> bytes:
    """Cut, or with flipped bits, or with bytes replaced or missing; the header is whole."""
    begin = content.index(b"\xff\xda") + 14
    damaged = bytearray(content)
    at = draw.randrange(begin, len(content))
    if kind == "cut":
        return content[:at]
    if kind == "flipped":
        for _ in range(draw.choice([1, 3, 10])):
            damaged[draw.randrange(begin, len(content))] ^= 1 << draw.randrange(8)
    elif kind == "replaced":
        damaged[at : at + 40] = draw.randbytes(min(40, len(content) - at))
    else:
        del damaged[at : at + draw.randrange(1, 300)]
    return bytes(damaged)


@pytest.mark.parametrize("kind", ["cut", "flipped", "replaced", "missing"])
@pytest.mark.parametrize("name", FILES)
def test_what_is_repaired_has_the_pixels_of_libjpeg(name: str, kind: str) -> None:
    """Cut anywhere, with wrong bits and bytes, every pixel is that of libjpeg-turbo where it decodes the file."""
    draw = random.Random(f"{name} {kind}")
    compared = 0

    for _ in range(25):
        damaged = damage(FILES[name], kind, draw)
        expected = oracle(damaged)
        if expected is None:
            continue
        try:
            found = ps.decode(damaged, on_truncated="repair")
        except DecodeError as error:
            assert "spectral selection" in str(error.__notes__)  # noqa: PT017  # libjpeg ignores these bytes
            continue
        np.testing.assert_array_equal(found, expected)
        compared += 1

    assert compared > 5


@given(st.binary(max_size=400), st.integers(0, 3000), st.sampled_from(sorted(FILES)))
def test_no_bytes_do_more_than_fail(inserted: bytes, at: int, name: str) -> None:
    """Whatever is in a file, it gives pixels of the size in its header, or an error of penstock."""
    content = FILES[name]
    hostile = content[: at % len(content)] + inserted + content[at % len(content) :]

    try:
        pixels = ps.decode(hostile, on_truncated="repair", max_pixels=1 << 20)
    except ps.PenstockError:
        return
    assert pixels.dtype == np.uint8


@pytest.mark.parametrize("scale", [1, 2, 8])
def test_a_region_is_a_part_of_the_whole(scale: int) -> None:
    """Regions and reduced sizes of a cut picture are those of all of it."""
    for name in ("4:2:0", "progressive 4:2:0"):
        cut = FILES[name][: len(FILES[name]) * 2 // 3]
        whole = ps.decode(cut, scale=scale, on_truncated="repair")
        region = ps.decode(cut, (16, 24, 80, 72), scale, on_truncated="repair")

        np.testing.assert_array_equal(region, whole[24 // scale : 72 // scale, 16 // scale : 80 // scale])


def test_orientation_is_applied_to_what_is_repaired() -> None:
    """A cut picture is turned as a whole one."""
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    Image.fromarray(make_pixels(40, 24)).save(file, "JPEG", exif=exif)
    cut = file.getvalue()[:-200]

    turned = ps.decode(cut, orient=True, on_truncated="repair")

    np.testing.assert_array_equal(turned, np.rot90(ps.decode(cut, on_truncated="repair"), -1))


def test_what_cannot_be_repaired_is_an_error() -> None:
    """A cut header, a cut PNG, a picture that is nearly all missing, and limits raise what they raise otherwise."""
    file = io.BytesIO()
    Image.fromarray(make_pixels(60, 60)).save(file, "PNG")
    jpeg = FILES["4:2:0"]
    header = jpeg[: jpeg.index(b"\xff\xda") + 14]
    huge = bytearray(header)
    frame = huge.index(b"\xff\xc0")
    huge[frame + 5 : frame + 9] = b"\x20\x00\x20\x00"

    for content in (jpeg[:300], file.getvalue()[:-500], bytes(huge), b"no image"):
        with pytest.raises(DecodeError):
            ps.decode(content, on_truncated="repair")
    with pytest.raises(ImageTooLargeError):
        ps.decode(jpeg[:-99], on_truncated="repair", max_nbytes=1000)
    with pytest.raises(ArgumentError, match="on_truncated must be one of raise, repair, skip, got 'mend'"):
        ps.decode(jpeg, on_truncated="mend")
    with pytest.raises(ArgumentError, match="on_truncated"):
        T.Decode(on_truncated="mend")


def test_whole_images_are_not_changed() -> None:
    """A picture that is whole is decoded as before, and is not counted."""
    for content in FILES.values():
        np.testing.assert_array_equal(ps.decode(content, on_truncated="repair"), ps.decode(content))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Pictures of one class, two of which are cut."""
    (tmp_path / "a").mkdir()
    for row, key in enumerate(KEYS):
        content = encode(64, 48, row, progressive=row == 7)
        (tmp_path / key).write_bytes(content[: len(content) * 3 // 5] if row in BROKEN else content)
    return tmp_path


def make_dataset(folder: Path, on_truncated: str) -> ps.StoreDataset:
    """Pictures in rows of batches."""
    return ps.StoreDataset(
        folder,
        fields=("image", "label", "index"),
        transform=T.Pipeline([T.Decode(), T.Resize((32, 32))]),
        on_truncated=on_truncated,
    )


WORKERS = [("serial", 0), ("threads", 2), ("processes", 2)]


@pytest.mark.parametrize(("workers", "count"), WORKERS)
def test_repaired_images_are_in_their_batches_and_named(folder: Path, workers: str, count: int) -> None:
    """Filled rows equal samples; the loader counts and names what was repaired, whatever its workers are."""
    dataset = make_dataset(folder, "repair")
    assert dataset.why_not_filled() == ""
    loader = ps.DataLoader(dataset, batch_size=5, workers=workers, num_workers=count)

    images = np.concatenate([batch[0] for batch in loader])

    np.testing.assert_array_equal(images, np.stack([sample[0] for sample in dataset[:]]))
    assert sorted(one.key for one in loader.repaired if one.key) == [KEYS[row] for row in BROKEN]
    assert sorted(one.index for one in loader.repaired if one.index is not None) == list(BROKEN)
    assert all(one.store == dataset.store.url and "truncated" in one.reason for one in loader.repaired)
    assert loader.stats().repaired == 2
    assert "(2 repaired)" in str(loader.stats())
    assert loader.stats().left_out == 0
    assert {one.index for one in dataset.repaired} == set(BROKEN)


@pytest.mark.parametrize(("workers", "count"), WORKERS)
@pytest.mark.parametrize("is_filled", [True, False])
def test_skipped_images_are_left_out(folder: Path, workers: str, count: int, is_filled: bool) -> None:
    """With "skip", batches come without them, also where other errors raise; the loader lists them."""
    dataset = make_dataset(folder, "skip")
    if not is_filled:
        dataset.transform = T.Pipeline([T.Decode(), T.Resize((32, 32)), T.Lambda(lambda image: image)])
    assert (dataset.why_not_filled() == "") == is_filled
    loader = ps.DataLoader(dataset, batch_size=5, workers=workers, num_workers=count)

    batches = list(loader)

    assert np.concatenate([batch[2] for batch in batches]).tolist() == [r for r in range(COUNT) if r not in BROKEN]
    assert [batch[0].shape[0] for batch in batches] == [4, 4, 2]
    assert sorted((one.index, one.key, one.type) for one in loader.left_out) == [
        (row, KEYS[row], "BrokenImageError") for row in BROKEN
    ]
    assert loader.stats().left_out == 2
    assert loader.stats().samples == COUNT - 2
    with pytest.raises(BrokenImageError, match="truncated") as caught:
        dataset[3]
    assert caught.value.where["key"] == KEYS[3]


def test_other_errors_still_raise_beside_skipped_images(folder: Path) -> None:
    """Only broken images are left out: an error of the transform ends the epoch."""

    def fail(sample: Any) -> Any:
        if sample[2] == 4:
            raise RuntimeError("mine")
        return ps.decode(sample[0])[:8, :8]

    dataset = ps.StoreDataset(folder, fields=("image", "label", "index"), transform=fail, on_truncated="skip")

    with pytest.raises(RuntimeError, match="mine"):
        list(ps.DataLoader(dataset, batch_size=6, num_workers=0))


def test_an_epoch_of_broken_images_is_an_error(folder: Path) -> None:
    """Nothing but broken images is no epoch."""
    dataset: ps.Subset[Any] = ps.Subset(make_dataset(folder, "skip"), list(BROKEN))

    with pytest.raises(SampleError, match="every one of the 2 samples drawn was left out"):
        list(ps.DataLoader(dataset, batch_size=1, num_workers=0))


def test_raise_is_what_it_was(folder: Path) -> None:
    """By default a broken image ends the epoch with its name."""
    pipeline = T.Pipeline([T.Decode(), T.Resize((32, 32))])
    datasets: list[ps.StoreDataset] = [
        ps.StoreDataset(folder, "image", transform=pipeline),
        ps.StoreDataset(folder, "image", transform=pipeline, on_truncated="raise"),
    ]

    for dataset in datasets:
        with pytest.raises(DecodeError, match="truncated") as caught:
            list(ps.DataLoader(dataset, batch_size=5, num_workers=0))
        assert caught.value.where["key"] == KEYS[3]
        assert not isinstance(caught.value, BrokenImageError)
    with pytest.raises(ArgumentError, match="on_truncated"):
        ps.StoreDataset(folder, on_truncated="mend")


def test_the_op_decides_before_the_dataset(folder: Path) -> None:
    """``Decode(on_truncated=...)`` holds for its pipeline, with and without a store."""
    pipeline = T.Pipeline([T.Decode(on_truncated="repair"), T.Resize((32, 32))])
    dataset = ps.StoreDataset(folder, ("image", "index"), transform=pipeline)
    loader = ps.DataLoader(dataset, batch_size=4, num_workers=2, workers="threads")

    images = np.concatenate([batch[0] for batch in loader])

    assert len(images) == COUNT
    assert sorted(one.key or "" for one in loader.repaired) == [KEYS[row] for row in BROKEN]
    np.testing.assert_array_equal(pipeline((folder / KEYS[3]).read_bytes()), images[3])


def test_a_stream_leaves_out_and_counts(folder: Path) -> None:
    """Streams are treated as map-style datasets are."""

    class Stream(ps.IterableDataset[Any]):
        def __init__(self, policy: str) -> None:
            self.policy, self.rows = policy, iter(range(COUNT))

        def __iter__(self) -> Stream:
            self.rows = iter(range(COUNT))
            return self

        def __next__(self) -> Any:
            return ps.decode((folder / KEYS[next(self.rows)]).read_bytes(), on_truncated=self.policy)

    repairing = ps.DataLoader(Stream("repair"), batch_size=4, num_workers=0)
    skipping = ps.DataLoader(Stream("skip"), batch_size=4, num_workers=0)

    assert sum(len(batch) for batch in repairing) == COUNT
    assert repairing.stats().repaired == 2
    assert sum(len(batch) for batch in skipping) == COUNT - 2
    assert [one.index for one in skipping.left_out] == list(BROKEN)


class Followed(ps.Store):
    """Pictures with a mask and another picture each, in memory; of a field in ``broken``, that record is cut."""

    kind = "followed"

    def __init__(self, broken: Mapping[str, int]) -> None:
        super().__init__("followed")
        self.broken = broken

    def __len__(self) -> int:
        return 6

    @property
    def schema(self) -> ps.Schema:
        """As the interface has it."""
        return ps.Schema({"image": ps.Field("image"), "mask": ps.Field("mask"), "other": ps.Field("image")})

    def read(self, indices: Iterable[int] | np.ndarray[Any, Any]) -> list[ps.Record]:
        """As the interface has it."""
        return [ps.Record(int(index), f"{index}", self.make_fields(int(index))) for index in indices]

    def make_fields(self, index: int) -> dict[str, bytes]:
        """The files of a record."""
        fields = {"image": encode(64, 48), "mask": encode(64, 48, mode="L"), "other": encode(64, 48, 1)}
        return {
            field: file[: len(file) * 4 // 5] if self.broken.get(field) == index else file
            for field, file in fields.items()
        }

    def column(self, field: str) -> np.ndarray[Any, Any]:
        """As the interface has it."""
        raise ArgumentError(field)

    def keys(self) -> Sequence[str]:
        """As the interface has it."""
        return [f"{index}" for index in range(6)]

    def digest(self) -> str:
        """As the interface has it."""
        return "followed"

    @classmethod
    def recognises(cls, path: str) -> bool:
        """As the interface has it."""
        return False


@pytest.mark.parametrize("by_op", [False, True])
def test_a_broken_mask_is_left_out_or_raises(by_op: bool) -> None:
    """With "skip" its sample is left out; with "repair" it raises and says why; the op and the dataset may say it."""

    def make(policy: str) -> ps.DataLoader:
        pipeline = [T.Decode(on_truncated=policy if by_op else None), T.Resize((16, 16))]
        fields = ("image", "mask", "index")
        dataset = ps.StoreDataset(
            Followed({"mask": 3, "image": 1}), fields, pipeline, on_truncated="raise" if by_op else policy
        )
        return ps.DataLoader(dataset, batch_size=2, num_workers=0)

    skipping, repairing = make("skip"), make("repair")

    assert np.concatenate([batch[2] for batch in skipping]).tolist() == [0, 2, 4, 5]
    assert sorted(one.index for one in skipping.left_out) == [1, 3]
    with pytest.raises(DecodeError, match="truncated") as caught:
        list(repairing)
    assert caught.value.where["key"] == "3"
    assert any("this is a mask" in note for note in caught.value.__notes__)
    assert [one.index for one in repairing.repaired] == [1]


@pytest.mark.parametrize("to_srgb", [False, True])
def test_repairs_are_named_by_their_records(to_srgb: bool) -> None:
    """Of several equal images in a chunk, those that were repaired: with the ops in one native call, and without."""

    class Equal(Followed):
        def make_fields(self, index: int) -> dict[str, bytes]:
            return super().make_fields(self.broken["image"] if index % 2 else 0)

    pipeline = [T.Decode(to_srgb=to_srgb), T.Resize((16, 16))]
    dataset = ps.StoreDataset(Equal({"image": 1}), ("image", "index"), pipeline, on_truncated="repair")
    loader = ps.DataLoader(ps.Subset(dataset, [3, 0, 5, 5]), batch_size=4, num_workers=0)

    (batch,) = loader

    assert dataset.why_not_filled() == ""
    assert batch[1].tolist() == [3, 0, 5, 5]
    assert [(one.key, one.index) for one in loader.repaired] == [("3", 3), ("5", 5), ("5", 5)]


def test_a_failed_record_is_not_read_again() -> None:
    """Its key is known without its content, which may lie on a server."""
    read: list[int] = []

    class Counted(Followed):
        def read(self, indices: Iterable[int] | np.ndarray[Any, Any]) -> list[ps.Record]:
            read.extend(map(int, indices))
            return super().read(indices)

    dataset = ps.StoreDataset(Counted({"image": 3}), ("image", "index"), [T.Decode(), T.Resize((16, 16))])

    with pytest.raises(DecodeError, match="truncated") as caught:
        list(ps.DataLoader(dataset, batch_size=6, num_workers=0))
    assert (caught.value.where["key"], caught.value.where["index"]) == ("3", 3)
    assert sorted(read) == list(range(6))


def test_several_images_of_a_sample_are_repaired_under_its_name() -> None:
    """Each broken image of a sample is one repair, named by the sample's record."""
    pipeline = [T.Decode(), T.Resize((16, 16))]
    store = Followed({"image": 2, "other": 2})
    loader = ps.DataLoader(
        ps.StoreDataset(store, ("image", "other", "index"), pipeline, on_truncated="repair"),
        batch_size=3,
        num_workers=0,
    )

    assert np.concatenate([batch[2] for batch in loader]).tolist() == list(range(6))
    assert [(one.key, one.index) for one in loader.repaired] == [("2", 2), ("2", 2)]


def test_the_op_that_raises_decides_before_a_dataset_that_skips(folder: Path) -> None:
    """``Decode(on_truncated="raise")`` ends the epoch, also of a dataset that would leave broken images out."""
    pipeline = [T.Decode(on_truncated="raise"), T.Resize((32, 32))]
    dataset = ps.StoreDataset(folder, "image", pipeline, on_truncated="skip")

    with pytest.raises(DecodeError, match="truncated"):
        list(ps.DataLoader(dataset, batch_size=4, num_workers=0))


@pytest.mark.parametrize("orient", [False, True])
@pytest.mark.parametrize("by_op", [False, True])
def test_an_image_without_a_header_is_left_out(tmp_path: Path, by_op: bool, orient: bool) -> None:
    """What is broken before its size is known is skipped as what is cut later, with orientation and without."""
    for row in range(3):
        whole = encode(30, 24)
        (tmp_path / f"{row}.jpg").write_bytes(whole if row != 1 else whole[:40])
    pipeline = [T.Decode(orient=orient, on_truncated="skip" if by_op else None), T.Resize((16, 16))]
    dataset = ps.StoreDataset(tmp_path, ("image", "index"), pipeline, on_truncated="raise" if by_op else "skip")
    assert dataset.why_not_filled() == ""
    loader = ps.DataLoader(dataset, batch_size=3, num_workers=0)

    assert np.concatenate([batch[1] for batch in loader]).tolist() == [0, 2]
    with pytest.raises(BrokenImageError):
        dataset[1]


def test_a_mask_of_three_channels_is_not_broken() -> None:
    """A mask of the wrong kind raises, also where broken ones are left out: else every sample would be missing."""
    dataset = ps.StoreDataset(
        Followed({}), {"image": "image", "mask": "other"}, [T.Decode()], kinds={"other": "mask"}, on_truncated="skip"
    )

    with pytest.raises(UnsupportedImageError, match="a mask must have one channel"):
        dataset[0]


@pytest.mark.parametrize("is_native", [False, True])
def test_torchvision_transforms_get_what_is_repaired(folder: Path, is_native: bool) -> None:
    """Also where Pillow opens images for a transform that is not native."""
    vision = pytest.importorskip("torchvision.transforms")
    steps = [vision.Resize((32, 32)), vision.ToTensor()]
    transform = vision.Compose(steps if is_native else [vision.Lambda(lambda image: image), *steps])

    def make(policy: str) -> ps.DataLoader:
        dataset = ps.StoreDataset(folder, ("image", "index"), transform, on_truncated=policy)
        return ps.DataLoader(dataset, batch_size=5, num_workers=0)

    repairing, skipping = make("repair"), make("skip")

    assert sum(len(batch[1]) for batch in repairing) == COUNT
    assert sorted(one.key or "" for one in repairing.repaired) == [KEYS[row] for row in BROKEN]
    assert np.concatenate([batch[1] for batch in skipping]).tolist() == [r for r in range(COUNT) if r not in BROKEN]
    with pytest.raises((OSError, DecodeError), match="truncated"):
        list(make("raise"))


def test_asking_for_repairs_changes_nothing(folder: Path) -> None:
    """``repaired`` is a copy, and asking for it or for ``stats()`` takes nothing away."""
    dataset = make_dataset(folder, "repair")
    loader = ps.DataLoader(dataset, batch_size=5, num_workers=0)
    list(loader)
    before = loader.repaired, dataset.repaired, loader.stats().repaired

    loader.repaired.clear()
    dataset.repaired.clear()

    assert (loader.repaired, dataset.repaired, loader.stats().repaired) == before
    assert before[2] == 2
