"""Mosaic, SampleMixUp, CopyPaste: their pixels, where objects go, and that the sample's key alone decides."""

from __future__ import annotations

import io
import itertools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

import penstock as ps
from penstock import transforms as T
from penstock.annotations import rle
from penstock.datasets.base import fetch
from penstock.errors import ArgumentError
from penstock.rng import derive_keys
from penstock.sample import SampleKeys

SIDE = 64


def keys_for(indices: Any, seed: int = 1, epoch: int = 2) -> SampleKeys:
    """Keys of some drawn indices."""
    return SampleKeys(seed, epoch, np.asarray(indices, np.int64))


def picture(number: int, longest: int = SIDE, scale: int = 1) -> dict[str, Any]:
    """Noise with rectangles of one colour each, their boxes, and a mask that numbers them; every fourth has none."""
    random = np.random.default_rng(number)
    width, height = longest, int(random.integers(longest // 2, longest + 1))
    if number % 2:
        width, height = height, width
    image = random.integers(0, 100, (height, width, 3), np.uint8)
    mask = np.zeros((height, width), np.uint8)
    boxes = []
    for column in range(number % 4):  # in columns of their own, so that none covers another
        step = width // 3
        x0, x1 = np.sort(random.choice(np.arange(column * step, (column + 1) * step + 1), 2, replace=False)).tolist()
        y0, y1 = np.sort(random.choice(height + 1, 2, replace=False)).tolist()
        boxes.append((x0, y0, x1, y1))
        mask[y0:y1, x0:x1] = len(boxes)
        image[y0:y1, x0:x1] = 100 + 10 * number % 150
    image, mask = (np.repeat(np.repeat(each, scale, axis=0), scale, axis=1) for each in (image, mask))
    rows = np.array(boxes, np.float32).reshape(-1, 4) * scale
    return {
        "image": image,
        "boxes": rows,
        "mask": mask,
        "keypoints": np.concatenate([rows[:, :2], np.full((len(rows), 1), 2, np.float32)], axis=1),
        "labels": 100 * number + np.arange(len(rows)),
        "key": f"picture {number}",
    }


PICTURES = [picture(number) for number in range(12)]

LAST_OPS: list[list[T.Op]] = [
    [],
    [T.RandomHSV(0, 0, 0.4)],
    [T.RandomHSV(0, 0, 0.1), T.ToLayout("CHW", "uint8")],
    [T.ToLayout("CHW", "uint8")],
    [T.ToLayout("HWC", "uint8")],
    [T.Invert(), T.ToLayout("CHW", "uint8")],
    [T.RandomCrop(5), T.RandomHSV(0, 0, 0.1)],
]
"""Ops after a window."""


class Crops(ps.Dataset[Any]):
    """Pictures as large as one another, cut and turned by each sample's own random numbers."""

    def __init__(self) -> None:
        crop = [T.RandomCrop(40, pad_if_needed=True), T.HorizontalFlip(0.5, [])]
        self.pipeline = T.Pipeline(crop)

    def __len__(self) -> int:
        return len(PICTURES)

    def __getitem__(self, index: int) -> Any:
        sample = self.pipeline(PICTURES[index])
        return sample | {"noise": float(ps.rng().random())}


class Untouched(ps.Dataset[Any]):
    """Fails if a sample is asked for."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        raise AssertionError(f"sample {index}")


def collate(samples: list[Any]) -> bytes:
    """Everything that a batch has, in bytes."""
    return pickle.dumps([{name: np.asarray(value).tolist() for name, value in sample.items()} for sample in samples])


def expected_mosaic(samples: list[Any], numbers: NDArray[np.float64], size: int) -> NDArray[np.uint8]:
    """A mosaic, drawn by Pillow onto a canvas on which every picture has room, and cut out."""
    large = Image.new("RGB", (6 * size, 6 * size), (114, 114, 114))
    x, y = (2 * size + size // 2 + int(number * size) for number in numbers)
    for place, sample in enumerate(samples):
        image = Image.fromarray(sample["image"])
        scale = size / max(image.size)
        image = image.resize(tuple(max(round(side * scale), 1) for side in image.size), Image.Resampling.BILINEAR)  # type: ignore[arg-type]  # two of them
        large.paste(image, (x if place % 2 else x - image.width, y if place >= 2 else y - image.height))
    return np.asarray(large)[2 * size : 4 * size, 2 * size : 4 * size]


@given(
    st.lists(st.integers(0, 11), min_size=4, max_size=4), st.floats(0, 0.999), st.floats(0, 0.999), st.integers(9, 80)
)
@settings(max_examples=settings().max_examples // 2)
def test_a_mosaic_has_the_pixels_that_pillow_gives(numbers: list[int], u: float, v: float, size: int) -> None:
    """Every pixel is that of the specification, within one level where pictures are resized."""
    samples, drawn = [PICTURES[number] for number in numbers], np.array([u, v])

    mosaic = ps.Mosaic(PICTURES, size).combine(samples, drawn, keys_for([0]))["image"]

    difference = np.abs(mosaic.astype(int) - expected_mosaic(samples, drawn, size))
    assert mosaic.shape == (2 * size, 2 * size, 3)
    assert difference.max() <= (size != SIDE)


@pytest.mark.parametrize("size", [48, SIDE, 100])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "cut", "mixed"])
def test_encoded_pictures_give_the_mosaic_of_decoded_ones(size: int, kind: str) -> None:
    """Decoding what a mosaic shows gives the pixels of decoding the whole; so do other formats and repaired files."""
    encoded: list[Any] = []
    for sample in PICTURES[:4]:
        file = io.BytesIO()
        Image.fromarray(sample["image"]).save(file, "PNG" if kind == "PNG" else "JPEG")
        encoded.append(file.getvalue()[: -40 if kind == "cut" else None])
    if kind == "mixed":  # one that the native decoder refuses, pixels, and JPEGs before and after these
        file = io.BytesIO()
        Image.fromarray(PICTURES[1]["image"]).convert("CMYK").save(file, "JPEG")
        encoded[1:3] = [file.getvalue(), PICTURES[2]["image"]]
    decode = T.Decode(on_truncated="repair" if kind == "cut" else None)
    numbers = np.array([0.3, 0.8])
    mosaic = ps.Mosaic(PICTURES, size, decode=decode)

    found = mosaic.combine([{"image": image} for image in encoded], numbers, keys_for([0]))
    pixels = [
        ps.decode(image, on_truncated=decode.on_truncated) if isinstance(image, bytes) else image for image in encoded
    ]
    expected = mosaic.combine([{"image": image} for image in pixels], numbers, keys_for([0]))

    np.testing.assert_array_equal(found["image"], expected["image"])


def bounds(mask: NDArray[Any], number: int) -> tuple[int, int, int, int]:
    """The box around the pixels of an object."""
    rows, columns = np.nonzero(mask == number)
    return int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1


@given(
    st.lists(st.integers(0, 40), min_size=4, max_size=4),
    st.floats(0, 0.999),
    st.floats(0, 0.999),
    st.sampled_from([1, 2]),
)
@settings(max_examples=settings().max_examples // 2)
def test_boxes_are_those_of_their_pixels(numbers: list[int], u: float, v: float, scale: int) -> None:
    """Of every object that is left, and of no other, the box is the box around its pixels; rows stay together."""
    samples = [picture(number) for number in numbers]
    size = scale * SIDE

    result = ps.Mosaic(PICTURES, size, instances=True, filter="box").combine(samples, np.array([u, v]), keys_for([0]))

    mask, boxes = result["mask"], result["boxes"]
    colours = {100 * number + row: 100 + 10 * number % 150 for number in numbers for row in range(3)}
    assert sorted(np.unique(mask)) == list(range(len(boxes) + 1)) or (mask > 0).all()
    for number, (box, label) in enumerate(zip(boxes.tolist(), result["labels"].tolist(), strict=True), 1):
        assert tuple(box) == bounds(mask, number)
        assert (result["image"][mask == number] == colours[label]).all()
    assert result["keypoints"].shape == (len(boxes), 3)
    assert (result["keypoints"][:, :2] <= boxes[:, :2]).all()


@given(st.lists(st.integers(0, 40), min_size=4, max_size=4), st.floats(0, 0.999), st.integers(20, 150))
@settings(max_examples=settings().max_examples // 2)
def test_boxes_of_resized_pictures_hold_their_pixels(numbers: list[int], u: float, size: int) -> None:
    """At any scale a box is within half a pixel, the rounding of masks, of the box around its object's pixels."""
    samples = [picture(number) for number in numbers]

    result = ps.Mosaic(PICTURES, size, instances=True).combine(samples, np.array([u, 1 - u / 2 - 0.4]), keys_for([0]))

    for number, box in enumerate(result["boxes"], 1):
        if (result["mask"] == number).any():
            assert np.abs(box - bounds(result["mask"], number)).max() <= 0.5 + 1e-3


@given(
    st.integers(0, 10**6),
    st.floats(0, 45),
    st.floats(0, 0.5),
    st.tuples(st.floats(0.3, 1), st.floats(1, 2)),
    st.integers(8, 2 * SIDE),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from(range(len(LAST_OPS))),
    st.integers(2, 7),
)
def test_what_is_not_seen_need_not_be_drawn(
    seed: int, degrees: float, shift: float, scale: tuple[float, float], crop: int, p: float, last: int, place: int
) -> None:
    """An affine map and CenterCrop of the seen part give the pixels and boxes that the whole canvas gives."""
    samples = [{name: value for name, value in sample.items() if name != "mask"} for sample in PICTURES]
    affine = T.RandomAffine(degrees, (shift, shift), scale, 10, filter="bilinear", fill=7)
    remove = T.SanitizeBoundingBoxes(2, 4, ["keypoints", "labels"], min_visible=0.3)
    ops = [affine, T.CenterCrop(crop), T.HorizontalFlip(0.5, []), T.VerticalFlip(), *LAST_OPS[last]]
    ops.insert(place, remove)

    [fast] = fetch(ps.Mosaic(samples, SIDE, p=p, transform=ops), [3], keys_for([3], seed=seed))
    whole = T.Lambda(lambda sample: sample, on="sample")
    [general] = fetch(ps.Mosaic(samples, SIDE, p=p, transform=[*ops, whole]), [3], keys_for([3], seed=seed))

    difference = np.abs(fast["image"].astype(int) - general["image"])
    assert list(fast) == list(general)
    is_brightened = any(isinstance(op, T.RandomHSV) for op in LAST_OPS[last])
    assert difference.max() <= 1 + is_brightened
    assert np.count_nonzero(difference) <= 3
    assert fast["image"].dtype == general["image"].dtype
    for name in ("boxes", "keypoints", "labels"):
        np.testing.assert_array_equal(fast[name], general[name], strict=True)


def test_pictures_that_are_not_seen_are_not_decoded() -> None:
    """A broken file is found where the window shows it, and only there."""
    file = io.BytesIO()
    Image.fromarray(PICTURES[0]["image"]).save(file, "JPEG")
    good = file.getvalue()
    tables = good.index(b"\xff\xc4") + 5
    broken = good[:tables] + b"\xff" * 16 + good[tables + 16 :]
    samples = [{"image": good}, {"image": good}, {"image": broken}, {"image": broken}]
    shown = [T.RandomAffine(0, filter="bilinear"), T.CenterCrop(SIDE // 2)]

    upper = ps.Mosaic(samples, SIDE, transform=shown).build(samples, np.array([0.5, 0.999]), keys_for([0]))
    whole = ps.Mosaic(samples, SIDE)

    assert upper["image"].shape == (SIDE // 2, SIDE // 2, 3)
    with pytest.raises(ps.DecodeError):
        whole.build(samples, np.array([0.5, 0.5]), keys_for([0]))


def test_other_pictures_lie_in_the_middle() -> None:
    """Without a mosaic, the picture lies in the middle of a canvas of the same size."""
    for dataset in (ps.Mosaic(PICTURES, SIDE, p=0), ps.Mosaic(PICTURES, SIDE, epochs=0)):
        result = dataset[5]
        image, box = PICTURES[5]["image"], PICTURES[5]["boxes"][0]
        top, left = (2 * SIDE - np.array(image.shape[:2])) // 2

        assert (result["image"][top : top + image.shape[0], left : left + image.shape[1]] == image).all()
        assert result["image"].shape == (2 * SIDE, 2 * SIDE, 3)
        assert result["boxes"].tolist() == [(box + np.array([left, top, left, top])).tolist()]
        assert result["key"] == "picture 5"


def test_mixtures_end_after_epochs() -> None:
    """``epochs=2``: epochs 0 and 1 have mosaics, epoch 2 has none."""
    dataset = ps.Mosaic(PICTURES, SIDE, epochs=2)

    counts = [len(np.unique(fetch(dataset, [3], keys_for([3], epoch=epoch))[0]["labels"] // 100)) for epoch in range(3)]

    assert counts[2] == 1
    assert max(counts[:2]) > 1


def chain(transform: Any = None) -> ps.Dataset[Any]:
    """All three over one another, each with random numbers of its own."""
    pasted = ps.CopyPaste(Crops(), p=0.7)
    mosaic = ps.Mosaic(pasted, 32, p=0.8, instances=True, transform=[T.RandomAffine(10, fill=114), T.CenterCrop(32)])
    return ps.SampleMixUp(mosaic, p=0.6, transform=transform)


def flipped(sample: Any) -> Any:
    """A transform that is no pipeline."""
    return sample | {"image": sample["image"][:, :: ps.rng().choice([1, -1])]}


WORKERS: list[dict[str, Any]] = [
    {"num_workers": 1, "workers": "threads"},
    {"num_workers": 2, "workers": "threads", "chunk_size": 1},
    {"num_workers": 7, "workers": "threads", "chunk_size": 2},
    {"num_workers": 2, "workers": "processes"},
]


def loader(kind: str, data: Any, **options: Any) -> Any:
    """A loader in a random order."""
    if kind == "torch":
        import penstock.torch as pt

        return pt.DataLoader(data, batch_size=5, shuffle=True, seed=4, collate_fn=collate, **options)
    return ps.DataLoader(data, batch_size=5, shuffle=True, seed=4, collate_fn=collate, **options)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(
    ("transform", "kind"),
    [([T.HorizontalFlip(0.5, []), T.ColorJitter(0.4)], "numpy"), (flipped, "torch")],
    ids=["pipeline-numpy", "callable-torch"],
)
def test_every_worker_builds_the_same_bytes(kind: str, transform: Any) -> None:
    """Any number and kind of workers, both loaders, a resumed run, and one sample at a time give the same bytes."""
    data = chain(transform)
    straight = loader(kind, data)
    batches = [list(straight), list(straight)]

    assert len(set(itertools.chain(*batches))) == 6
    for options in WORKERS:
        other = loader(kind, data, **options)
        walk = iter(other)
        first = [next(walk), next(walk)]
        state = other.state_dict()
        assert [*first, *walk] == batches[0]
        resumed = loader(kind, data)
        resumed.load_state_dict(state)
        assert [list(resumed), list(resumed)] == [batches[0][2:], batches[1]]


def test_wrappers_inside_and_outside_change_nothing() -> None:
    """A subset of a mixture, and a mixture of a subset of all, give its samples; so does one call each."""
    data, order = chain(), [7, 0, 3]
    whole = fetch(data, order, keys_for([0, 1, 2]))

    outside = fetch(ps.Subset(data, order), [0, 1, 2], keys_for([0, 1, 2]))
    single = [fetch(data, [index], keys_for([row]))[0] for row, index in enumerate(order)]
    inside = fetch(ps.Mosaic(ps.Subset(PICTURES, range(12)), SIDE), order, keys_for([0, 1, 2]))

    assert collate(outside) == collate(whole) == collate(single)
    assert collate(inside) == collate(fetch(ps.Mosaic(PICTURES, SIDE), order, keys_for([0, 1, 2])))


def test_samples_that_are_loaded_at_once_are_those_built_alone(photographs_dir: Path, tmp_path: Path) -> None:
    """Over a store, one call reads the pictures of a batch, and each sample is that of a call for it alone."""
    files = sorted(photographs_dir.glob("*/*.jpg"))[:16]
    ps.pack([{"image": file.read_bytes(), "label": row} for row, file in enumerate(files)], tmp_path / "p.lmdb")
    store = ps.StoreDataset(tmp_path / "p.lmdb", {"image": "image", "label": "label"})
    data = ps.Mosaic(store, 160, transform=[T.RandomAffine(5, scale=(0.5, 1.5)), T.CenterCrop(160)])
    indices = [5, 2, 2, 9]

    together = fetch(data, indices, keys_for([0, 1, 2, 3]))

    alone = [fetch(data, [index], keys_for([row]))[0] for row, index in enumerate(indices)]
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_array_equal(one["image"], other["image"], strict=True)
        assert one["label"] == other["label"]


def test_a_view_of_a_picture_is_drawn_anew_for_each_place() -> None:
    """A dataset of one sample is mixed with itself, and each of the four pictures has random numbers of its own."""

    class Noise(ps.Dataset[Any]):
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> Any:
            value = int(ps.rng().integers(1, 255))
            box = np.array([[0, 0, 8, 8]], np.float32)
            return {"image": np.full((8, 8, 3), value, np.uint8), "boxes": box, "labels": np.array([value])}

    [sample] = fetch(ps.Mosaic(Noise(), 8), [0], keys_for([0]))

    assert len(set(sample["labels"].tolist())) == 4
    assert set(sample["labels"].tolist()) <= set(np.unique(sample["image"]).tolist())


def test_pictures_without_objects_give_empty_rows() -> None:
    """No boxes in any picture: boxes (0, 4), and rows of the dtypes that the samples have."""
    empty = [PICTURES[number] for number in (0, 4, 8)]

    for data in (
        ps.Mosaic(empty, 16),
        ps.SampleMixUp(ps.Mosaic(empty, 16), p=1),
        ps.CopyPaste(ps.Mosaic(empty, 16), p=1),
    ):
        sample = data[1]

        assert sample["boxes"].shape == (0, 4)
        assert sample["boxes"].dtype == np.float32
        assert sample["labels"].shape == (0,)
        assert sample["labels"].dtype == np.int64
        assert sample["keypoints"].shape == (0, 3)


def test_mixed_pictures_are_weighted_means_with_all_objects() -> None:
    """Each pixel is share * own + (1 - share) * other, with one share near a half; objects of both follow."""
    same = [picture(3) | {"image": np.full_like(picture(3)["image"], value)} for value in (200, 100)]

    shares = []
    for seed in range(20):
        [sample] = fetch(ps.SampleMixUp(same, p=1), [0], keys_for([0], seed=seed))
        shares.append((int(sample["image"][0, 0, 0]) - 100) / 100)
        assert len(np.unique(sample["image"])) == 1
        assert sample["boxes"].tolist() == 2 * same[0]["boxes"].tolist()
        assert sample["labels"].tolist() == 2 * same[0]["labels"].tolist()

    both = [share for share in shares if share != 1]  # others are mixed with themselves
    assert len(both) > 4
    assert 0.25 < min(both) < 0.5 < max(both) < 0.75


@given(st.integers(0, 1000))
@settings(max_examples=settings().max_examples // 2)
def test_pasted_objects_replace_pixels(seed: int) -> None:
    """Each pixel is the pasted object's where the mask says so, else the own picture's; rows agree with the mask."""
    random = np.random.default_rng(seed)
    samples: list[dict[str, Any]] = []
    for number in range(2):
        boxes = [
            np.sort(random.choice(41, (2, 2)), axis=0).T.ravel()[[0, 2, 1, 3]] for _ in range(random.integers(0, 5))
        ]
        mask = np.zeros((40, 40), np.uint8)
        for row, (x0, y0, x1, y1) in enumerate(boxes, 1):
            mask[y0:y1, x0:x1] = row
        rows = np.array(boxes, np.float32).reshape(-1, 4)
        pixels = (100 * number + mask)[:, :, None].repeat(3, axis=2).astype(np.uint8)
        samples.append(
            {"image": pixels, "boxes": rows, "mask": mask, "labels": 100 * number + np.arange(1, len(rows) + 1)}
        )

    result = ps.CopyPaste(samples, p=1, share=0.7, overlap=0.6).combine(samples, np.empty(0), keys_for([seed]))

    mask, labels = result["mask"], result["labels"]
    pasted = mask > np.count_nonzero(labels < 100)
    assert mask.max() <= len(labels)
    assert len(result["boxes"]) == len(labels)
    assert (result["image"][pasted][:, 0] == labels[mask[pasted] - 1]).all()
    assert (result["image"][~pasted] == samples[0]["image"][~pasted]).all()
    for label, box in zip(labels.tolist(), result["boxes"].tolist(), strict=True):
        assert box == samples[label // 100]["boxes"][label % 100 - 1].tolist()
    visible = {int(label) for label in np.unique(samples[0]["mask"][~pasted]) if label}
    assert visible <= set(labels.tolist())
    hidden = set(np.unique(samples[0]["mask"]).tolist()) - visible - {0}
    assert not hidden & set(labels.tolist())


def test_an_object_that_would_cover_another_is_not_pasted() -> None:
    """``overlap=0`` lets boxes touch, and no more."""
    one, other = picture(3), picture(3)

    unchanged = ps.CopyPaste([one], p=1, share=1, overlap=0).combine([one, other], np.empty(0), keys_for([0]))
    pasted = ps.CopyPaste([one], p=1, share=1, overlap=1).combine([one, other], np.empty(0), keys_for([0]))

    assert len(unchanged["boxes"]) == 3
    np.testing.assert_array_equal(unchanged["image"], one["image"])
    assert len(pasted["boxes"]) == 3  # the first three are covered, and left out
    np.testing.assert_array_equal(pasted["mask"], one["mask"])


@pytest.mark.parametrize("make", [ps.Mosaic, ps.SampleMixUp, ps.CopyPaste])
def test_asking_builds_nothing(make: Callable[..., Any]) -> None:
    """len(), repr(), pickling and fingerprint() ask for no sample, and draw no number."""
    data = make(Untouched(), transform=[T.HorizontalFlip(0.5, [])])

    assert len(data) == 3
    assert "Untouched" in repr(data)
    assert repr(data).startswith(make.__name__)
    assert type(pickle.loads(pickle.dumps(data))) is type(data)
    assert data.fingerprint() is None
    data.prefetch([0, 1])


def test_ragged_fields_keep_their_form(tmp_path: Any) -> None:
    """Batches hold boxes in the form that the store's dataset says."""
    from penstock.stores.lmdb_pack.writer import LmdbWriter

    schema = ps.Schema({"image": ps.Field("image"), "boxes": ps.Field("boxes"), "labels": ps.Field("int64[*]")})
    writer = LmdbWriter(str(tmp_path / "boxes.lmdb"), schema, "source")
    for number, sample in enumerate(PICTURES):
        file = io.BytesIO()
        Image.fromarray(sample["image"]).save(file, "JPEG")
        values = {"image": file.getvalue(), "boxes": sample["boxes"], "labels": sample["labels"]}
        writer.append(writer.prepare(str(number), values))
    writer.finish()
    store = ps.StoreDataset(
        tmp_path / "boxes.lmdb", {name: name for name in ("image", "boxes", "labels")}, ragged="flat"
    )

    batch = next(iter(ps.DataLoader(ps.Mosaic(store, 32), batch_size=6, seed=0)))

    assert batch["image"].shape == (6, 64, 64, 3)
    assert isinstance(batch["boxes"], ps.Ragged)
    assert batch["boxes"].offsets.tolist() == batch["labels"].offsets.tolist()
    assert batch["boxes"].values.shape == (batch["boxes"].offsets[-1], 4)


ODD: dict[str, tuple[Callable[[], Any], str]] = {
    "empty": (lambda: ps.Mosaic([]), "at least one sample"),
    "size": (lambda: ps.Mosaic(PICTURES, 0), r"size must be an integer in \[2"),
    "p": (lambda: ps.Mosaic(PICTURES, p=2), r"p must be in \[0, 1\]"),
    "alpha": (lambda: ps.SampleMixUp(PICTURES, alpha=0), "alpha must be a positive number"),
    "overlap": (lambda: ps.CopyPaste(PICTURES, overlap=2), "overlap must be a range"),
    "one name": (lambda: ps.Mosaic(PICTURES, objects="labels"), "list of names"),
    "tuples": (lambda: ps.Mosaic([(PICTURES[0]["image"], 3)])[0], "mappings with an image, got tuple"),
    "no image": (lambda: ps.Mosaic([{"photo": 3}])[0], "an image, got the fields photo"),
    "another name": (lambda: ps.Mosaic([picture(1) | {"bbox": [[0, 0, 1, 1]]}])[0], "looks like boxes"),
    "rows": (lambda: ps.Mosaic([picture(1) | {"size": np.array([3, 4])}])[0], "'size' must have one row for each of 1"),
    "objects": (lambda: ps.Mosaic(PICTURES, objects=["name"])[0], "objects must name fields"),
    "points": (lambda: ps.Mosaic([picture(2) | {"keypoints": np.zeros((3, 2))}])[0], "k rows for each of n boxes"),
    "floats": (lambda: ps.Mosaic([{"image": np.zeros((4, 4, 3), np.float32)}])[0], "uint8 pixels .* got float32"),
    "mask": (lambda: ps.Mosaic([picture(1) | {"mask": np.zeros((2, 2))}], 8)[0], "the size of its image"),
    "numbers": (
        lambda: ps.Mosaic([picture(1) | {"mask": picture(1)["mask"] * 7}], 8, instances=True)[0],
        "from 0 to the number of boxes, 1",
    ),
    "sizes": (lambda: [ps.SampleMixUp(PICTURES, p=1)[0] for _ in range(9)], "images of one size"),
    "no masks": (
        lambda: ps.CopyPaste([{"image": PICTURES[0]["image"]}], p=1)[0],
        "boxes, and instances or a mask of objects",
    ),
    "fields": (
        lambda: [ps.Mosaic([PICTURES[1], {"image": PICTURES[1]["image"]}])[0] for _ in range(9)],
        "the same fields, got one without boxes",
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_what_cannot_be_mixed_is_refused(name: str) -> None:
    """The error says what was given, and what to do."""
    call, text = ODD[name]

    with pytest.raises(ArgumentError, match=text):
        call()


def test_named_objects_are_mixed_and_others_are_not() -> None:
    """``objects`` names what has rows; another array is that of the first sample."""
    samples = [picture(1) | {"size": np.array([3, 4])}]

    sample = ps.Mosaic(samples, SIDE, objects=["labels"])[0]

    assert sample["size"].tolist() == [3, 4]
    assert len(sample["labels"]) == len(sample["boxes"])


def test_an_error_names_the_sample() -> None:
    """An error of an inner dataset passes, and has the index of the sample that failed."""

    def broken(sample: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as found:
        fetch(ps.Mosaic(PICTURES, 16, transform=broken), [7], keys_for([7]))

    assert any("7" in note for note in found.value.__notes__)


def test_derived_keys_depend_on_the_sample_and_the_part() -> None:
    """Chunks do not matter, and no two parts, nor parts of parts, have one key."""
    keys = derive_keys(keys_for(range(-50, 1000)), 6)
    again = derive_keys(keys_for([7, -3]), 6)
    inner = derive_keys(keys, 6)

    assert keys.indices.reshape(-1, 6)[[57, 47]].ravel().tolist() == again.indices.tolist()
    assert derive_keys(keys_for([7]), 2).indices.tolist() == again.indices[:2].tolist()
    assert len(np.unique(np.concatenate([keys.indices, inner.indices]))) == len(keys) + len(inner)
    assert keys.indices.min() >= 0


def with_instances(sample: dict[str, Any]) -> dict[str, Any]:
    """A picture whose mask of numbers is also a mask for each object."""
    numbers = np.arange(1, len(sample["boxes"]) + 1)[:, None, None]
    return sample | {"instances": [rle.encode(mask) for mask in sample["mask"] == numbers]}


@pytest.mark.parametrize(
    "make",
    [
        lambda inner: ps.Mosaic(inner, 40, instances=True),
        lambda inner: ps.CopyPaste(ps.Mosaic(inner, 40, instances=True), p=0.8, share=0.8, overlap=0.7),
    ],
    ids=["Mosaic", "CopyPaste"],
)
@pytest.mark.parametrize("transform", [None, [T.HorizontalFlip(0.5, []), T.RandomAffine(20, (0.1, 0.1), (0.5, 1.5))]])
def test_instances_are_the_objects_of_the_mask(make: Callable[[Any], ps.Dataset[Any]], transform: Any) -> None:
    """A mixture of pictures with both has both: instance k is where the mask says k + 1."""
    mixture = make([with_instances(sample) for sample in PICTURES])
    mixture.transform = None if transform is None else T.Pipeline(transform)  # type: ignore[attr-defined]  # of the outer
    found = 0
    for sample in fetch(mixture, list(range(12)), keys_for(np.arange(12))):
        count = len(sample["boxes"])
        numbers = np.arange(1, count + 1)[:, None, None]
        assert len(sample["labels"]) == count
        np.testing.assert_array_equal(sample["instances"], sample["mask"] == numbers)
        found += count
    assert found > 20


def test_copy_paste_needs_instances_or_a_mask() -> None:
    """With instances alone, objects are pasted as with the mask that has the same objects."""
    squares = [with_instances(picture(number) | {"mask": picture(number)["mask"]}) for number in range(12)]
    boxed = T.Pipeline([T.Letterbox(40)])
    samples = [boxed(sample) for sample in squares]
    bare = [{name: value for name, value in sample.items() if name != "mask"} for sample in samples]
    options: Any = {"p": 1, "share": 0.7, "overlap": 0.6}

    for seed in range(20):
        drawn = list(np.random.default_rng(seed).choice(12, 2, replace=False))
        both, alone = (
            ps.CopyPaste(given, **options).combine([given[row] for row in drawn], np.empty(0), keys_for([seed]))
            for given in (samples, bare)
        )
        assert set(both) == {*alone, "mask"}
        np.testing.assert_array_equal(both["image"], alone["image"])
        np.testing.assert_array_equal(both["boxes"], alone["boxes"])
        np.testing.assert_array_equal(both["labels"], alone["labels"])
        np.testing.assert_array_equal(both["instances"].dense(), alone["instances"].dense())


def test_mixed_up_samples_have_the_instances_of_both() -> None:
    """Masks stay where they are, first those of the own picture, without those of boxes without an area."""
    samples = [T.Pipeline([T.Letterbox(40)])(with_instances(sample)) for sample in PICTURES]

    mixed = ps.SampleMixUp(samples, p=1).combine([samples[3], samples[7]], np.empty(0), keys_for([0]))

    masks = [samples[row]["instances"][_has_area(samples[row]["boxes"])] for row in (3, 7)]
    np.testing.assert_array_equal(mixed["instances"].dense(), np.concatenate(masks))
    assert len(mixed["boxes"]) == len(mixed["instances"]) > 0


def _has_area(boxes: NDArray[np.float32]) -> NDArray[np.bool_]:
    wide: NDArray[np.bool_] = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
    return wide
