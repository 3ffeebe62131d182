"""albumentations' common transforms as native ops: with the same drawn numbers, its own result."""

from __future__ import annotations

import copy
import io
import logging
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # it would ask the network for a newer version
torch = pytest.importorskip("torch")
A: Any = pytest.importorskip("albumentations", minversion="2.0")

import penstock as ps  # noqa: E402  # behind the skip
import penstock.torch as pt  # noqa: E402  # as above
from penstock import transforms as T  # noqa: E402  # as above
from penstock.datasets.albumentations import ops as own  # noqa: E402  # as above
from penstock.datasets.albumentations.recognise import CalledTransform  # noqa: E402  # as above
from penstock.datasets.base import fetch  # noqa: E402  # as above
from penstock.errors import SampleError  # noqa: E402  # as above
from penstock.sample import SampleKeys  # noqa: E402  # as above

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

COUNT = 40
FIELDS = {"image": "image", "boxes": "boxes", "labels": "labels", "score": "score"}
LINEAR, NEAREST, AREA = 1, 0, 3


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of several sizes, at least 48 x 48, with 0 to 9 boxes inside, and a mask.

    No edge of a box is that of a pixel: where a crop touches a box, albumentations keeps slivers of its rounding.
    """
    rng = np.random.default_rng(7)

    def records() -> Any:
        for i in range(COUNT):
            height, width = (int(side) for side in rng.integers(48, 140, 2))
            corners = np.floor(rng.uniform(0, 1, (i % 10, 2, 2)) * [width - 4, height - 4]) + rng.uniform(0.1, 0.9)
            boxes = np.concatenate([corners.min(axis=1), corners.max(axis=1) + 2], axis=1).astype(np.float32)
            yield {
                "image": encode(rng.integers(0, 255, (height // 4 + 1, width // 4 + 1, 3), np.uint8), (width, height)),
                "mask": encode(rng.integers(0, 3, (height, width), np.uint8)),
                "boxes": boxes,
                "labels": np.arange(1, len(boxes) + 1),
                "score": i / 4,
            }

    path = tmp_path_factory.mktemp("boxes") / "boxes.lmdb"
    ps.pack(records(), path, schema={"boxes": "boxes", "labels": "int64[*]", "mask": "mask", "score": "float"})
    return path


def encode(pixels: Any, size: tuple[int, int] | None = None) -> bytes:
    """A PNG, enlarged."""
    file = io.BytesIO()
    image = Image.fromarray(pixels)
    (image if size is None else image.resize(size, Image.Resampling.BICUBIC)).save(file, "PNG")
    return file.getvalue()


def params(form: str = "pascal_voc", **more: Any) -> Any:
    """Parameters of boxes whose labels move with them."""
    return A.BboxParams(format=form, label_fields=["labels"], **more)


# ------------------------------------------------------------------------------------------------ the oracle


OPS = {
    "HorizontalFlip": T.HorizontalFlip, "VerticalFlip": T.VerticalFlip, "InvertImg": T.Invert, "ToGray": T.Grayscale,
    "RandomCrop": own.PlacedCrop, "CenterCrop": own.InnerCrop, "RandomResizedCrop": own.PlacedResizedCrop,
    "RandomBrightnessContrast": own.ScaleValues, **dict.fromkeys(["CLAHE", "GaussNoise", "OneOf"], CalledTransform),
}  # fmt: skip
"""By albumentations' names: the ops whose numbers are given to a transform."""


def fixed(transform: Any, ops: Any, key: SampleKeys, size: tuple[int, int]) -> Any:
    """A copy of the Compose that draws nothing: each transform gets what its op drew for this key."""
    sizes, drawn = np.array([size], np.int32), []
    for stream, op in enumerate(ops):
        numbers = op.draw(key, sizes, stream)
        sizes = op.size(numbers, sizes) if stream else sizes
        if isinstance(op, tuple(OPS.values())):
            drawn.append((op, numbers[0]))
    copied = copy.deepcopy(transform)
    for step in copied.transforms:
        kind = OPS.get(type(step).__name__)
        if kind is None:
            continue
        op, numbers = drawn.pop(0)
        assert type(op) is kind
        if isinstance(op, CalledTransform):
            step.set_random_seed(int(numbers[0]))
            continue
        if isinstance(op, own.ScaleValues):
            step.p, chosen = float(numbers[0]), {"alpha": numbers[1], "beta": numbers[2]}
        elif isinstance(op, own.PlacedCrop | own.PlacedResizedCrop | own.InnerCrop):
            left, top, width, height = numbers.tolist()
            chosen = {"crop_coords": (left, top, left + width, top + height), "pad_params": None}
        else:
            step.p = float(numbers)
            continue
        step.get_params_dependent_on_data = lambda params, data, chosen=chosen: chosen  # its signature
    assert not drawn
    return copied


CHAINS: dict[str, tuple[Callable[[], list[Any]], int]] = {
    "flips": (lambda: [A.HorizontalFlip(), A.VerticalFlip(p=0.3)], 0),
    "crop": (lambda: [A.RandomCrop(33, 40), A.HorizontalFlip()], 0),
    "center": (lambda: [A.CenterCrop(31, 40), A.VerticalFlip()], 0),
    "resize": (lambda: [A.Resize(40, 56), A.HorizontalFlip()], 1),
    "nearest": (lambda: [A.Resize(99, 56, interpolation=NEAREST), A.RandomCrop(50, 50)], 0),
    "flip first": (lambda: [A.HorizontalFlip(), A.RandomCrop(48, 40), A.VerticalFlip()], 0),
    "small": (lambda: [A.Resize(24, 20, interpolation=AREA), A.HorizontalFlip()], 1),
    "letterbox": (lambda: [A.LongestMaxSize(64), A.PadIfNeeded(64, 64, fill=114), A.HorizontalFlip()], 1),
    "frame": (lambda: [A.LongestMaxSize(max_size_hw=(40, 70)), A.PadIfNeeded(40, 70, fill=(9, 8, 7))], 1),
    "shorter": (lambda: [A.SmallestMaxSize(50), A.RandomCrop(48, 48), A.HorizontalFlip()], 1),
    "longest": (lambda: [A.LongestMaxSize(61), A.VerticalFlip()], 1),
    "pad": (lambda: [A.PadIfNeeded(120, 128), A.RandomCrop(120, 128)], 0),
    "resized crop": (lambda: [A.RandomResizedCrop((48, 40), scale=(0.2, 1)), A.HorizontalFlip()], 1),
    "colours": (lambda: [A.RandomBrightnessContrast(0.3, (-0.4, 0.5), p=0.8), A.InvertImg(), A.HorizontalFlip()], 0),
    "called": (lambda: [A.RandomCrop(40, 40), A.CLAHE(p=0.5), A.HorizontalFlip(), A.GaussNoise(p=0.7)], 0),
    "chosen": (lambda: [A.OneOf([A.Blur(p=1), A.HueSaturationValue(p=1)], p=0.8), A.CenterCrop(40, 40)], 0),
    "gray": (lambda: [A.RandomCrop(40, 40), A.ToGray(p=0.5)], 1),
    "tensor": (lambda: [A.RandomCrop(40, 40), A.HorizontalFlip(), A.Normalize(), A.ToTensorV2()], 0),
    "units": (lambda: [A.CenterCrop(40, 44), A.NoOp(), A.Normalize(0.5, 0.25, 128.0)], 0),
    "float": (lambda: [A.CenterCrop(40, 44), A.ToFloat(255), A.ToTensorV2()], 0),
}
"""Transforms, and the largest difference of their pixels in levels."""

LIMITS: dict[str, dict[str, Any]] = {
    "none": {},
    "share": {"min_visibility": 0.413},
    "sides": {"min_area": 120.3, "min_width": 9.1, "min_height": 7.6},
    "ratio": {"max_accept_ratio": 2.47, "min_visibility": 0.1, "clip": True, "filter_invalid_bboxes": True},
}


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("name", CHAINS)
def test_it_is_albumentations_own_result(store: Path, name: str, limits: str) -> None:
    """The image within the chain's tolerance, boxes within a thousandth of a pixel, and the labels that are left."""
    make, tolerance = CHAINS[name]
    forms = ("pascal_voc", "coco", "yolo", "albumentations")
    transform = A.Compose(make(), bbox_params=params(forms[len(name + limits) % 4], **LIMITS[limits]))
    by_hand = A.Compose(make(), bbox_params=params(**LIMITS[limits]))
    dataset = ps.StoreDataset(store, FIELDS, transform)
    samples = dataset._plan._samples
    assert samples is not None
    assert samples.pipeline is not None, samples.what
    keys = SampleKeys(5, 1, np.arange(COUNT, dtype=np.int64))
    kept = total = 0

    for index, (found, record) in enumerate(zip(fetch(dataset, range(COUNT), keys), ps.open(store), strict=True)):
        pixels = np.array(Image.open(io.BytesIO(bytes(record.fields["image"]))))
        size = pixels.shape[1], pixels.shape[0]
        replay = fixed(by_hand, samples.pipeline.ops, keys[index : index + 1], size)
        expected = replay(image=pixels, bboxes=record.fields["boxes"].copy(), labels=record.fields["labels"].copy())
        assert type(found["image"]) is type(expected["image"])
        image, wanted = np.asarray(found["image"]), np.asarray(expected["image"])
        assert (image.dtype, image.shape) == (wanted.dtype, wanted.shape)
        most = tolerance if image.dtype == np.uint8 else 2e-6
        assert np.abs(image.astype(np.float64) - wanted).max() <= most
        assert found["labels"].tolist() == list(expected["labels"])
        assert (found["boxes"].dtype, found["labels"].dtype) == (np.float32, np.int64)
        np.testing.assert_allclose(found["boxes"], np.array(expected["bboxes"]).reshape(-1, 4), atol=2e-3)
        assert found["score"] == record.fields["score"]
        kept, total = kept + len(found["labels"]), total + len(record.fields["labels"])
    assert 0 < kept <= total
    if limits == "sides":
        assert kept < total


def test_masks_move_too(store: Path) -> None:
    """Flips and crops of masks, which are tensors where images are."""
    by_hand = A.Compose([A.RandomCrop(40, 40), A.HorizontalFlip(), A.ToTensorV2()])
    dataset = ps.StoreDataset(store, ("image", "mask"), copy.deepcopy(by_hand))
    samples = dataset._plan._samples
    assert samples is not None
    assert samples.pipeline is not None, samples.what
    keys = SampleKeys(5, 1, np.arange(COUNT, dtype=np.int64))

    for index, (found, record) in enumerate(zip(fetch(dataset, range(COUNT), keys), ps.open(store), strict=True)):
        pixels, mask = (np.array(Image.open(io.BytesIO(bytes(record.fields[name])))) for name in ("image", "mask"))
        replay = fixed(by_hand, samples.pipeline.ops, keys[index : index + 1], pixels.shape[1::-1])
        expected = replay(image=pixels, mask=mask)
        assert torch.equal(found[0], expected["image"])
        assert torch.equal(found[1], expected["mask"])


@pytest.mark.parametrize("module", [ps, pt])
def test_batches_are_filled(store: Path, module: Any) -> None:
    """A chain of one size fills the batches of a form; any workers, and a resume, give the same."""
    colours = [A.RandomBrightnessContrast(), A.GaussNoise(), A.CLAHE(p=0.3)]
    chain = [A.RandomResizedCrop((48, 40)), A.HorizontalFlip(), *colours, A.ToTensorV2()]
    transform = A.Compose(chain, bbox_params=params(min_visibility=0.2))
    dataset = ps.StoreDataset(store, FIELDS, transform, batch_form="torchvision")
    given: dict[str, Any] = {"batch_size": 7, "shuffle": True, "seed": 3}

    def numbers(loader: Any) -> Any:
        return [
            [np.asarray(image).tobytes() for image in images]
            + [np.asarray(target[name]).tobytes() for target in targets for name in ("boxes", "labels")]
            for images, targets in loader
        ]

    assert dataset.spec() is not None, dataset.why_not_filled()
    loader = module.DataLoader(dataset, **given)
    expected = [numbers(loader) for _ in range(2)]
    assert expected[0] != expected[1]
    alone = module.DataLoader(dataset, **given, collate_fn=lambda samples: samples)
    own_images = [np.asarray(sample["image"]).tobytes() for batch in alone for sample in batch]
    assert own_images == [image for batch in expected[0] for image in batch[: len(batch) // 3]]
    for workers in ({"num_workers": 2, "workers": "threads"}, {"num_workers": 2, "workers": "processes"}):
        other = module.DataLoader(pickle.loads(pickle.dumps(dataset)), **given, **workers)
        assert [numbers(other) for _ in range(2)] == expected
    stopped, resumed = module.DataLoader(dataset, **given), module.DataLoader(dataset, **given)
    next(iter(stopped))
    resumed.load_state_dict(stopped.state_dict())
    assert numbers(resumed) == expected[0][1:]


@pytest.mark.parametrize("channels", [3, 1])
def test_stored_pixels(tmp_path: Path, channels: int) -> None:
    """RGB is compiled, and filled without boxes, too; gray is left to albumentations. Both give its result."""
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (40, 50, channels), np.uint8) for _ in range(12)]
    schema = {"image": f"pixels:uint8[40,50,{channels}]", "label": "label"}
    ps.pack(({"image": image, "label": i} for i, image in enumerate(images)), tmp_path / "pixels", schema=schema)
    transform = A.Compose([A.Resize(30, 30), A.VerticalFlip(p=1), A.Normalize(0.5, 0.25)])
    dataset = ps.StoreDataset(tmp_path / "pixels", ("image", "label"), transform)

    [(found, labels)] = ps.DataLoader(dataset, 12)

    expected = np.stack([transform(image=image)["image"].reshape(30, 30, channels) for image in images])
    assert (dataset.spec() is not None) == (channels == 3), dataset.why_not_filled()
    assert found.dtype == np.float32
    assert np.abs(found.reshape(expected.shape) - expected).max() <= 4 / 255 * 1.0001
    assert labels.tolist() == list(range(12))


@pytest.mark.parametrize(
    ("step", "read"),
    [
        (lambda: A.RandomCrop(30, 30), lambda p: p["crop_coords"][0]),
        (lambda: A.RandomResizedCrop((8, 8)), lambda p: p["crop_coords"][2] - p["crop_coords"][0]),
        (lambda: A.RandomResizedCrop((8, 8)), lambda p: p["crop_coords"][1]),
        (lambda: A.RandomBrightnessContrast((-0.1, 0.3), (-0.4, 0), p=1), lambda p: p["alpha"]),
        (lambda: A.RandomBrightnessContrast((-0.1, 0.3), (-0.4, 0), p=1), lambda p: p["beta"]),
    ],
)
def test_numbers_have_the_distribution(store: Path, step: Any, read: Any) -> None:
    """4,000 draws of each library: the largest distance of their distributions is what chance allows."""
    count = 4000
    transform = step()
    transform.set_random_seed(1)
    image = np.zeros((50, 80, 3), np.uint8)
    shape = {"shape": image.shape}
    theirs = [read(transform.get_params_dependent_on_data(shape, {"image": image})) for _ in range(count)]
    samples = ps.StoreDataset(store, {"image": "image"}, step())._plan._samples
    assert samples is not None
    assert samples.pipeline is not None
    op = samples.pipeline.ops[1]
    drawn = op.draw(SampleKeys(1, 0, np.arange(count)), np.tile(np.array([[80, 50]], np.int32), (count, 1)), 1)
    if isinstance(op, own.ScaleValues):
        ours = [read({"alpha": row[1], "beta": row[2]}) for row in drawn]
    else:
        ours = [read({"crop_coords": (x, y, x + width, y + height)}) for x, y, width, height in drawn.tolist()]

    points = np.unique(np.concatenate([theirs, ours]))
    shares = [np.searchsorted(np.sort(each), points, side="right") / count for each in (theirs, ours)]
    assert np.abs(shares[0] - shares[1]).max() < 1.63 * np.sqrt(2 / count)  # 1 % of Kolmogorov and Smirnov


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: A.Compose([A.Affine()]), "Affine: penstock has no op for it"),
        (lambda: A.Compose([A.FromFloat("uint8")]), "and it changes the dtype"),
        (lambda: A.Compose([A.Normalize(), A.CLAHE()]), "CLAHE: the image before it is float32"),
        (lambda: A.Compose([A.HorizontalFlip()], seed=3), "its seed asks"),
        (lambda: A.Compose([A.HorizontalFlip()], p=0.5), "Compose: p"),
        (lambda: A.Compose([A.Resize(8, 8, p=0.5)]), "several sizes"),
        (lambda: A.Compose([A.Resize(8, 8, interpolation=2)]), "interpolation=2"),
        (lambda: A.Compose([A.Resize(8, 8, area_for_downscale="image")]), "area_for_downscale"),
        (lambda: A.Compose([A.RandomCrop(8, 8, pad_if_needed=True)]), "pad_if_needed"),
        (lambda: A.Compose([A.Normalize(), A.HorizontalFlip()]), "float32"),
        (lambda: A.Compose([A.ToTensorV2(), A.Normalize()]), "follows ToTensorV2"),
        (lambda: A.Compose([A.ToGray(method="average")]), "method='average'"),
        (lambda: A.Compose([A.Normalize(normalization="image")]), "normalization='image'"),
        (lambda: A.Compose([A.OneOf([A.HorizontalFlip(), A.VerticalFlip()])]), "OneOf"),
        (lambda: A.Compose([type("Mine", (A.HorizontalFlip,), {})()]), "Mine: penstock has no op"),
        (lambda: A.Compose([type("Mine", (A.CLAHE,), {})()]), "Mine: penstock has no op"),
        (lambda: changed(A.Compose([A.HorizontalFlip()])), "a method of its own"),
    ],
)
def test_what_is_not_recognised_runs_as_it_is(store: Path, make: Any, words: str, caplog: Any) -> None:
    """All of it is albumentations' then; the dataset and the log say why."""
    caplog.set_level(logging.INFO)
    dataset = ps.StoreDataset(store, {"image": "image"}, make())

    assert words in dataset.why_not_filled()
    assert words in caplog.text
    if words not in REFUSED:
        assert isinstance(dataset[0]["image"], np.ndarray)


REFUSED = {"follows ToTensorV2", "CLAHE: the image before it is float32", "and it changes the dtype"}
"""Of chains that albumentations does not run either."""


def changed(transform: Any) -> Any:
    """A Compose whose transform has a method of the user's."""
    transform.transforms[0].apply = lambda image, **_: image
    return transform


def test_fields_decide_too(store: Path) -> None:
    """Masks that are resized, and rows of boxes that no label field names, are left to albumentations."""
    resize, flip = A.Compose([A.Resize(8, 8)]), A.Compose([A.HorizontalFlip()], bbox_params=A.BboxParams("coco"))

    assert "mask by its centre" in ps.StoreDataset(store, ("image", "mask"), resize).why_not_filled()
    assert "'labels' may have a row" in ps.StoreDataset(store, FIELDS, flip).why_not_filled()
    assert ps.StoreDataset(store, ("image", "score"), resize).why_not_filled() == ""


def test_errors_are_raised_too(tmp_path: Path) -> None:
    """A crop larger than the image, and a box outside it, are errors in both; clip=True mends the box."""
    image = encode(np.zeros((20, 30, 3), np.uint8))
    boxes = np.array([[5, 5, 40, 15]], np.float32)
    records = [{"image": image, "boxes": boxes, "labels": np.array([1])}]
    ps.pack(iter(records), tmp_path / "one.lmdb", schema={"boxes": "boxes", "labels": "int64[*]"})

    def load(chain: list[Any], **more: Any) -> Any:
        fields = {"image": "image", "boxes": "boxes", "labels": "labels"}
        dataset = ps.StoreDataset(tmp_path / "one.lmdb", fields, A.Compose(chain, bbox_params=params(**more)))
        return next(iter(fetch(dataset, [0], SampleKeys(0, 0, np.zeros(1, np.int64)))))

    for crop in (A.RandomCrop, A.CenterCrop):
        with pytest.raises((SampleError, ValueError), match="at least as large"):
            load([crop(24, 24)], clip=True)
    with pytest.raises((SampleError, ValueError), match="each box must lie inside"):
        load([A.HorizontalFlip()])
    assert load([A.NoOp()], clip=True)["boxes"].tolist() == [[5, 5, 30, 15]]


def test_outside_a_loader_its_own_generator_decides(store: Path) -> None:
    """Two samples differ; after ``set_random_seed``, they are the same again."""
    transform = A.Compose([A.RandomCrop(32, 32)])
    dataset = ps.StoreDataset(store, "image", transform)

    first, second = dataset[0], dataset[0]
    transform.set_random_seed(3)
    third = dataset[0]
    transform.set_random_seed(3)

    assert not np.array_equal(first, second)
    assert np.array_equal(third, dataset[0])


def test_the_ops_are_fused(store: Path) -> None:
    """Decoding, cropping, resizing, flipping and normalising are one native call."""
    chain = [A.RandomResizedCrop((48, 40)), A.HorizontalFlip(), A.Normalize(), A.ToTensorV2()]
    dataset = ps.StoreDataset(store, FIELDS, A.Compose(chain, bbox_params=params()), ragged="list")
    program = dataset._plan.program

    assert program is not None
    assert program.fused == len(program.ops)
    assert isinstance(program.ops[0], T.Decode)
