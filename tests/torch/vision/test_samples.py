"""torchvision's transforms of v2 on stores with boxes, masks and keypoints: ``tv_tensors`` in, and out."""

from __future__ import annotations

import io
import json
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

torch: Any = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from torchvision import tv_tensors  # noqa: E402  # behind the skip
from torchvision.transforms import transforms as v1  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

import penstock as ps  # noqa: E402
import penstock.torch as pt  # noqa: E402
from penstock import transforms as T  # noqa: E402
from penstock.annotations import rle  # noqa: E402
from penstock.datasets.base import fetch  # noqa: E402
from penstock.errors import ArgumentError, SampleError  # noqa: E402
from penstock.rng import sample_scope  # noqa: E402
from penstock.sample import SampleKeys  # noqa: E402

FIELDS = {"image": "image", "boxes": "boxes", "labels": "labels", "image_id": "index"}
FLOAT = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
OTHER = v2.RandomPosterize(3)  # an op that is not recognised
CALLED: dict[str, Any] = {
    "pil": v2.Compose(
        [
            v2.RandomPhotometricDistort(),
            v2.RandomZoomOut(fill=9),
            v2.RandomIoUCrop(),
            v2.RandomHorizontalFlip(),
            v2.ScaleJitter((48, 48), (0.5, 1.5)),
            OTHER,
            *FLOAT,
            v2.SanitizeBoundingBoxes(),
        ]
    ),
    "tensors": v2.Compose(
        [v2.ScaleJitter((48, 48)), OTHER, v2.RandomRotation(20), v2.ClampBoundingBoxes(), v2.SanitizeBoundingBoxes()]
    ),
    "sequential": torch.nn.Sequential(v2.RandomGrayscale(0.5), v2.RandomHorizontalFlip()),
}
COMPILED: dict[str, Any] = {
    "one size": v2.Compose(
        [
            v2.ToImage(),
            v2.RandomZoomOut(fill=(9, 8, 7)),
            v2.RandomIoUCrop(),
            v2.Resize((32, 40)),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.5, 0.4, 0.3], [0.2, 0.2, 0.2]),
            v2.SanitizeBoundingBoxes(),
        ]
    ),
    "sizes": v2.Compose(
        [
            v2.ColorJitter(0.2, 0.2, 0.2, 0.05),
            v2.RandomPhotometricDistort(),
            v2.ScaleJitter((50, 60), (0.5, 1.5)),
            v2.RandomHorizontalFlip(),
            v2.RandomShortestSize([30, 40], 60),
            v2.PILToTensor(),
            v2.ToPureTensor(),
        ]
    ),
}
FIXED: dict[str, Any] = {
    "resize": v2.Resize((33, 47)),
    "shorter": v2.Resize(40, max_size=60),
    "shortest": v2.RandomShortestSize(37, 70),
    "jitter": v2.ScaleJitter((40, 55), (1.3, 1.3)),
    "centre": v2.CenterCrop((40, 50)),
    "larger": v2.CenterCrop((90, 100)),
    "flip": v2.RandomHorizontalFlip(1),
    "vertical": v2.RandomVerticalFlip(1),
    "zoom": v2.Compose([v2.ClampBoundingBoxes(), v2.RandomZoomOut(side_range=(1.0, 1.0), p=1)]),
    "whole": v2.RandomIoUCrop(sampler_options=[1.0]),
    "clamp": v2.Compose([v2.ClampBoundingBoxes(), v2.SanitizeBoundingBoxes(min_size=9, min_area=120)]),
    "removed": v2.SanitizeBoundingBoxes(min_size=9),
    "boxes only": v2.SanitizeBoundingBoxes(min_size=9, labels_getter=None),
    "nested": v2.Compose([v2.Compose([v2.CenterCrop(50), v2.Resize((20, 20))]), v2.SanitizeBoundingBoxes()]),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve images of several sizes, with 0 to 3 boxes, some of which leave the image; a mask; two points for each."""
    rng = np.random.default_rng(7)

    def records() -> Any:
        for i in range(12):
            corners = rng.uniform(-5, 45, (i % 4, 2))
            boxes = np.concatenate([corners, corners + rng.uniform(4, 40, (i % 4, 2))], axis=1).astype(np.float32)
            size = 60 + i, 80 - 2 * i
            shapes = np.random.default_rng(i).random((i % 4, *size)) < 0.3
            yield {
                "image": encode(rng.integers(0, 255, (*size, 3), np.uint8)),
                "mask": encode(rng.integers(0, 3, size, np.uint8)),
                "boxes": boxes,
                "labels": np.arange(1, i % 4 + 1),
                "points": boxes[:, :2],
                "instances": [rle.encode(shape) for shape in shapes],
            }

    path = tmp_path_factory.mktemp("boxes") / "boxes.lmdb"
    kinds = {"boxes": "boxes", "labels": "int64[*]", "points": "float32[*,2]", "mask": "mask"}
    kinds["instances"] = "json"
    ps.pack(records(), path, schema=kinds)
    return path


def encode(pixels: Any) -> bytes:
    """A PNG."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def by_hand(store: Path, index: int, *, is_pil: bool, fields: Any = FIELDS) -> dict[str, Any]:
    """The sample that a script builds for torchvision."""
    record = ps.open(store).read([index])[0]
    image = Image.open(io.BytesIO(bytes(record.fields["image"])))
    boxes = torch.tensor(np.array(record.fields["boxes"]))
    made = {
        "image": image if is_pil else v2.functional.to_image(image),
        "boxes": tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=(image.height, image.width)),
        "labels": torch.tensor(np.array(record.fields["labels"])),
        "mask": tv_tensors.Mask(torch.tensor(np.array(Image.open(io.BytesIO(bytes(record.fields["mask"])))))),
        "points": tv_tensors.KeyPoints(
            torch.tensor(np.array(record.fields["points"])), canvas_size=(image.height, image.width)
        ),
        "image_id": index,
    }
    shapes = [rle.decode(each) for each in record.fields["instances"]]
    size = (len(shapes), image.height, image.width)
    made["masks"] = tv_tensors.Mask(torch.tensor(np.array(shapes, np.uint8).reshape(size)))
    return {name: made[name] for name in fields}


def check_same(found: Any, expected: Any, tolerance: float = 0.0, levels: float = 0.0) -> None:
    """Names, types, shapes, dtypes and sizes of the canvas are equal; values up to a tolerance."""
    assert list(found) == list(expected)
    for name, want in expected.items():
        got = found[name]
        assert type(got) is type(want), name
        if not isinstance(want, torch.Tensor):
            assert got == want
            continue
        assert (got.shape, got.dtype) == (want.shape, want.dtype), name
        assert getattr(got, "canvas_size", None) == getattr(want, "canvas_size", None)
        difference = (got.to(torch.float64) - want.to(torch.float64)).abs()
        assert not difference.numel() or float(difference.max()) <= (levels if name == "image" else tolerance), name


# what is not compiled: torchvision's own code


@pytest.mark.parametrize("name", CALLED)
@pytest.mark.parametrize(
    "fields",
    [FIELDS, {**FIELDS, "mask": "mask"}, {**FIELDS, "masks": "instances"}],
    ids=["boxes", "and mask", "and instances"],
)
def test_a_transform_that_is_not_recognised_is_torchvision_s(store: Path, name: str, fields: Any) -> None:
    """Outside a loader torch.manual_seed determines it; all values are equal to those of the script."""
    dataset = ps.StoreDataset(store, fields, CALLED[name])

    assert "nothing is native" in dataset.why_not_filled()
    for index in range(12):
        torch.manual_seed(index)
        found = dataset[index]
        torch.manual_seed(index)
        check_same(found, CALLED[name](by_hand(store, index, is_pil=name == "pil", fields=fields)))


class ByHand(torch.utils.data.Dataset[Any]):  # type: ignore[misc]  # torch is Any here
    """What a script without StoreDataset has."""

    def __init__(self, store: Path, transform: Any) -> None:
        self.store, self.transform = store, transform

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return self.transform(by_hand(self.store, index, is_pil=True))


def as_list(batch: Any) -> Any:
    """A batch is the list of its samples."""
    return batch


@pytest.mark.parametrize("seeded", [False, True], ids=["", "seed_per_sample"])
def test_in_a_loader_it_is_seeded_by_sample(store: Path, seeded: bool) -> None:
    """Samples are those of a script whose loader has seed_per_sample, in every epoch."""
    given: dict[str, Any] = {"batch_size": 5, "shuffle": True, "seed": 3, "collate_fn": as_list}
    expected = pt.DataLoader(ByHand(store, CALLED["pil"]), seed_per_sample=True, **given)
    found = pt.DataLoader(ps.StoreDataset(store, FIELDS, CALLED["pil"]), seed_per_sample=seeded, **given)

    for _ in range(2):
        for batch, want in zip(found, expected, strict=True):
            for one, other in zip(batch, want, strict=True):
                check_same(one, other)


def test_the_global_generators_are_as_before(store: Path) -> None:
    """Transforms in a sample's scope are seeded, and the states are restored."""
    dataset = ps.StoreDataset(store, FIELDS, CALLED["pil"])
    states = random.getstate(), torch.get_rng_state()

    with sample_scope(1, 2, 3):
        dataset[3]

    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])


# what is compiled


@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("is_pil", [True, False], ids=["pil", "tensor"])
def test_native_ops_move_boxes_as_torchvision_does(store: Path, name: str, is_pil: bool) -> None:
    """Transforms that draw nothing: boxes to 1e-3, labels equal, pixels to one level.

    A CenterCrop larger than the image is framed; torchvision's boxes are then off by up to one pixel from its pixels.
    """
    steps = [FIXED[name], v2.ToImage()] if is_pil else [FIXED[name]]
    dataset = ps.StoreDataset(store, FIELDS, v2.Compose(steps))

    assert "nothing is native" not in dataset.why_not_filled()
    for index in range(12):
        expected = v2.Compose(steps)(by_hand(store, index, is_pil=is_pil))
        check_same(dataset[index], expected, tolerance=1.001 if name == "larger" else 1e-3, levels=1)


@pytest.mark.parametrize("name", sorted(set(FIXED) - {"whole"}))
def test_masks_move_too(store: Path, name: str) -> None:
    """Values of masks are equal, of those that are resized too, and rows of removed objects are gone."""
    fields = {**FIELDS, "mask": "mask", "masks": "instances"}
    steps = [FIXED[name], v2.ToImage()]
    dataset = ps.StoreDataset(store, fields, v2.Compose(steps))

    assert "nothing is native" not in dataset.why_not_filled()
    for index in range(12):
        expected = v2.Compose(steps)(by_hand(store, index, is_pil=True, fields=fields))
        check_same(dataset[index], expected, tolerance=1.001 if name == "larger" else 1e-3, levels=1)
        for mask in ("mask", "masks"):
            assert torch.equal(dataset[index][mask], expected[mask])


@pytest.mark.parametrize("old", [1, 2, 3, 7, 50, 97, 128, 333, 1000])
def test_masks_are_resized_by_torchs_corners(old: int) -> None:
    """``mask_filter="nearest"`` takes torch's pixels, for any other size; ops of random size do as well."""
    mask = np.arange(old, dtype=np.int32)[None]

    for new in (*range(1, 140), 200, 333, 499, 500, 640, 1000, 2000):
        found = T.Resize((1, new), mask_filter="nearest").mask(mask, np.array([new, 1]))
        expected = v2.functional.resize_mask(torch.from_numpy(mask), [1, new], v2.InterpolationMode.NEAREST)
        np.testing.assert_array_equal(found, expected.numpy(), strict=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda rule: T.RandomResizedCrop((21, 34), mask_filter=rule),
        lambda rule: T.RandomShortestSize((20, 31), mask_filter=rule),
        lambda rule: T.ScaleJitter(40, mask_filter=rule),
    ],
    ids=["RandomResizedCrop", "RandomShortestSize", "ScaleJitter"],
)
def test_random_ops_take_the_rule_of_masks(make: Any) -> None:
    """The window that was drawn, resized as torchvision resizes it; unknown rules are refused."""
    mask = np.random.default_rng(1).integers(0, 200, (50, 70), np.uint8)
    sizes, keys = np.array([[70, 50]], np.int32), SampleKeys(1, 0, np.arange(9))
    differs = False

    for row in range(9):
        op, exact = make("nearest"), make("nearest-exact")
        params = op.draw(keys[row : row + 1], sizes, 0)
        width, height = op.size(params, sizes)[0].tolist()
        left, top, across, down = params[0].tolist() if len(params[0]) == 4 else (0, 0, 70, 50)
        window = torch.from_numpy(mask[top : top + down, left : left + across].copy())
        found = op.mask(mask, params[0])
        expected = v2.functional.resize_mask(window, [height, width], v2.InterpolationMode.NEAREST)
        np.testing.assert_array_equal(found, expected.numpy(), strict=True)
        differs = differs or (exact.mask(mask, params[0]) != found).any()
    assert differs
    with pytest.raises(ArgumentError, match="mask_filter must be one of nearest-exact, nearest, got 'corner'"):
        make("corner")


@pytest.mark.parametrize("name", COMPILED)
def test_random_ops_leave_boxes_on_their_objects(store: Path, name: str) -> None:
    """Types and sizes are torchvision's; boxes and labels agree in number, and lie in the image."""
    dataset = ps.StoreDataset(store, FIELDS, COMPILED[name], batch_form="torchvision")
    expected = COMPILED[name](by_hand(store, 3, is_pil=True))

    assert (dataset.spec() is not None) == (name == "one size")
    for epoch in range(5):
        for index, sample in enumerate(fetch(dataset, range(12), SampleKeys(7, epoch, np.arange(12)))):
            assert {key: type(value) for key, value in sample.items()} == {k: type(v) for k, v in expected.items()}
            assert sample["image"].dtype == expected["image"].dtype
            assert len(sample["boxes"]) == len(sample["labels"]) <= index % 4
            if name == "one size":
                assert sample["boxes"].canvas_size == (32, 40)
                assert bool((sample["boxes"] >= 0).all())
                assert bool((sample["boxes"] <= torch.tensor([40, 32, 40, 32])).all())


def test_filling_is_getting(store: Path) -> None:
    """Batches of a compiled transform are filled, and hold what the samples hold."""
    dataset = ps.StoreDataset(store, FIELDS, COMPILED["one size"], batch_form="torchvision")
    samples = list(fetch(dataset, range(12), SampleKeys(3, 0, np.arange(12))))

    [(images, targets)] = pt.DataLoader(dataset, 12, seed=3)

    for image, target, sample in zip(images, targets, samples, strict=True):
        assert torch.equal(image, sample["image"].as_subclass(torch.Tensor))
        for field in ("boxes", "labels"):
            assert torch.equal(target[field], sample[field].as_subclass(torch.Tensor))
        assert target["image_id"] == sample["image_id"]


@pytest.mark.parametrize("transform", [CALLED["tensors"], COMPILED["one size"], FIXED["jitter"]])
@pytest.mark.parametrize("module", [ps, pt])
def test_batches_have_the_masks_of_objects(store: Path, transform: Any, module: Any) -> None:
    """Called, filled and compiled for several sizes: plain arrays or tensors, a mask for each box."""
    fields = {**FIELDS, "instances": "instances"}
    steps = [v2.RandomZoomOut() if isinstance(each, v2.RandomZoomOut) else each for each in _steps(transform)]
    dataset = ps.StoreDataset(store, fields, v2.Compose(steps), batch_form="torchvision")
    assert (dataset.spec() is not None) == (transform is COMPILED["one size"])
    samples = list(fetch(dataset, range(12), SampleKeys(3, 0, np.arange(12))))

    [(images, targets)] = module.DataLoader(dataset, 12, seed=3)

    for image, target, sample in zip(images, targets, samples, strict=True):
        assert type(target["masks"]) is (np.ndarray if module is ps else torch.Tensor)
        assert tuple(target["masks"].shape) == (len(target["boxes"]), *image.shape[1:])
        np.testing.assert_array_equal(np.asarray(target["masks"]), np.asarray(sample["instances"]))


def _steps(transform: Any) -> list[Any]:
    return list(getattr(transform, "transforms", [transform]))


def test_a_pixel_and_its_box_stay_together(tmp_path: Path) -> None:
    """A white rectangle is found where its box is, whatever the compiled transform draws."""
    pixels = np.zeros((60, 80, 3), np.uint8)
    pixels[20:40, 30:60] = 255
    record = {"image": encode(pixels), "boxes": np.array([[30, 20, 60, 40]], np.float32), "labels": np.ones(1, int)}
    ps.pack([record], tmp_path / "one.lmdb", schema={"boxes": "boxes", "labels": "int64[*]"})
    steps = [v2.RandomZoomOut(p=1), v2.RandomHorizontalFlip(), v2.RandomVerticalFlip(), v2.RandomCrop(60)]
    dataset = ps.StoreDataset(tmp_path / "one.lmdb", FIELDS, v2.Compose([*steps, v2.SanitizeBoundingBoxes()]))
    seen = 0

    for epoch in range(60):
        [sample] = fetch(dataset, [0], SampleKeys(1, epoch, np.zeros(1, np.int64)))
        rows, columns = np.nonzero(sample["image"].numpy()[0])
        for box in sample["boxes"].numpy():
            seen += 1
            assert box.tolist() == [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    assert seen > 10


# loaders


@pytest.mark.parametrize(
    ("module", "transform"), [*((pt, name) for name in [*CALLED, *COMPILED]), (ps, "pil"), (ps, "one size")]
)
def test_any_workers_give_the_same(store: Path, transform: str, module: Any) -> None:
    """With threads, processes or no workers, as NumPy arrays or tensors; and after a resume."""
    dataset = ps.StoreDataset(store, FIELDS, {**CALLED, **COMPILED}[transform], batch_form="torchvision")
    given: dict[str, Any] = {"batch_size": 5, "shuffle": True, "seed": 3}
    workers: list[dict[str, Any]] = [{"num_workers": 2, "workers": kind} for kind in ("threads", "processes")]

    def numbers(loader: Any) -> Any:
        return [
            [[np.asarray(image) for image in images], [np.asarray(t[k]) for t in targets for k in ("boxes", "labels")]]
            for images, targets in loader
        ]

    expected = numbers(module.DataLoader(dataset, **given))
    stopped = module.DataLoader(dataset, **given)
    next(iter(stopped))
    resumed = module.DataLoader(dataset, **given)
    resumed.load_state_dict(json.loads(json.dumps(stopped.state_dict())) if module is ps else stopped.state_dict())
    runs = [numbers(module.DataLoader(dataset, **given, **each)) for each in workers]

    for run, want in [*((run, expected) for run in runs), (numbers(resumed), expected[1:])]:
        for batch, same in zip(run, want, strict=True):
            for parts, others in zip(batch, same, strict=True):
                assert all(np.array_equal(one, other) for one, other in zip(parts, others, strict=True))


def test_it_pickles(store: Path) -> None:
    """A copy gives the same values."""
    dataset = ps.StoreDataset(store, FIELDS, COMPILED["one size"])
    copy = pickle.loads(pickle.dumps(dataset))
    keys = SampleKeys(3, 0, np.arange(3))

    for one, other in zip(fetch(copy, [1, 2, 3], keys), fetch(dataset, [1, 2, 3], keys), strict=True):
        check_same(one, other)


# what is refused, and why something is called as it is


@pytest.mark.parametrize(
    ("transform", "more", "words"),
    [
        (v2.SanitizeBoundingBoxes(labels_getter=lambda sample: sample["labels"]), {}, "labels_getter"),
        (v2.Resize((8, 8), antialias=False), {}, "antialiasing"),
        (v2.RandomZoomOut(fill=5), {"mask": "mask"}, "fills masks"),
        (v2.RandomZoomOut(fill=5), {"masks": "instances"}, "fills masks"),
        (v2.ColorJitter(0.5), {}, "PIL images"),
        (v2.RandomCrop(8, 4, padding_mode="reflect"), {}, "mirror"),
        (v2.CenterCrop(8), {"points": "points"}, "clips keypoints"),
        (v2.ToDtype({tv_tensors.BoundingBoxes: torch.float64, "others": None}), {}, "converts boxes"),
        (v2.Compose([v2.ToPureTensor(), v2.RandomHorizontalFlip()]), {}, "plain tensors"),
        (v2.Compose([v2.RandomApply([v2.ToImage()], 1)]), {}, "RandomApply"),
    ],
    ids=str,
)
def test_the_dataset_says_why_nothing_is_native(store: Path, transform: Any, more: Any, words: str) -> None:
    """The reason is that of the first transform for which torchvision has another rule."""
    kinds = {"points": "keypoints"} if more.get("points") else None
    dataset = ps.StoreDataset(store, {**FIELDS, **more}, transform, kinds=kinds)

    assert words in dataset.why_not_filled()


def test_keypoints_are_torchvision_s(store: Path) -> None:
    """Points (n, 2) are KeyPoints, which a flip moves; with visibility they are refused."""
    fields = {**FIELDS, "points": "points"}
    dataset = ps.StoreDataset(store, fields, v2.RandomHorizontalFlip(1), kinds={"points": "keypoints"})

    for index in range(12):
        expected = v2.RandomHorizontalFlip(1)(by_hand(store, index, is_pil=False, fields=fields))
        check_same(dataset[index], expected, tolerance=1e-3)
    with pytest.raises(SampleError, match="two numbers"):
        ps.StoreDataset(store, ("image", "boxes"), v2.RandomHorizontalFlip(), kinds={"boxes": "keypoints"})[1]


def test_the_structure_of_a_sample_is_that_of_its_fields(store: Path) -> None:
    """A tuple is given as arguments, so that a function of the Compose may take them."""

    def swap(image: Any, boxes: Any) -> Any:
        return boxes, image

    boxes, image = ps.StoreDataset(store, ("image", "boxes"), v2.Compose([v2.RandomHorizontalFlip(1), swap]))[3]

    assert (type(boxes), type(image)) == (tv_tensors.BoundingBoxes, tv_tensors.Image)


def test_transforms_of_v1_are_refused_beside_boxes(store: Path) -> None:
    """They take the image alone."""
    with pytest.raises(ArgumentError, match="image alone"):
        ps.StoreDataset(store, FIELDS, v1.Compose([v1.Resize(8), v1.ToTensor()]))


def test_a_field_that_looks_like_boxes_must_have_a_kind(store: Path) -> None:
    """It would stay in place; with a kind it moves."""
    fields = {"image": "image", "boxes": "boxes", "landmarks": "points"}

    with pytest.raises(ArgumentError, match=r"'points' looks like points.*kinds=\{'points': 'keypoints'\}"):
        ps.StoreDataset(store, fields, v2.RandomHorizontalFlip(1))
    found = ps.StoreDataset(store, fields, v2.RandomHorizontalFlip(1), kinds={"points": "keypoints"})[3]
    assert type(found["landmarks"]) is tv_tensors.KeyPoints
