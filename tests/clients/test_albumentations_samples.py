"""albumentations 2 on stores: a Compose with boxes, labels, masks and keypoints, seeded by sample."""

from __future__ import annotations

import io
import os
import pickle
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
from penstock.datasets.base import fetch  # noqa: E402  # as above
from penstock.errors import ArgumentError, SampleError  # noqa: E402  # as above
from penstock.sample import SampleKeys  # noqa: E402  # as above

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

FIELDS = {"image": "image", "boxes": "boxes", "labels": "labels", "name": "key"}
KEYS = SampleKeys(5, 1, np.arange(12, dtype=np.int64))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve images with 0 to 3 boxes inside, a mask, and three points with visibility for each box."""
    rng = np.random.default_rng(7)

    def records() -> Any:
        for i in range(12):
            corners = rng.uniform(0, 30, (i % 4, 2))
            boxes = np.concatenate([corners, corners + rng.uniform(4, 20, (i % 4, 2))], axis=1).astype(np.float32)
            size = 60 + i, 80 - 2 * i
            points = rng.uniform(5, 50, (i % 4, 3, 3)).astype(np.float32)
            yield {
                "image": encode(rng.integers(0, 255, (*size, 3), np.uint8)),
                "mask": encode(rng.integers(0, 3, size, np.uint8)),
                "boxes": boxes,
                "labels": np.arange(1, i % 4 + 1),
                "keypoints": points,
            }

    path = tmp_path_factory.mktemp("boxes") / "boxes.lmdb"
    kinds = {"boxes": "boxes", "labels": "int64[*]", "keypoints": "float32[*,3,3]", "mask": "mask"}
    ps.pack(records(), path, schema=kinds)
    return path


def encode(pixels: Any) -> bytes:
    """A PNG."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def compose(form: str = "pascal_voc", **more: Any) -> Any:
    """A crop that removes boxes, a flip, a change of colours."""
    steps = [A.RandomCrop(40, 40), A.HorizontalFlip(p=0.5), A.RandomBrightnessContrast(p=0.5), A.ToTensorV2()]
    boxes = A.BboxParams(format=form, label_fields=["labels"], min_visibility=0.2)
    return A.Compose(steps, bbox_params=boxes, **more)


def test_it_is_albumentations_own_result(store: Path) -> None:
    """Outside a loader, with a seed: image, boxes and labels are equal to those of a script."""
    dataset = ps.StoreDataset(store, FIELDS, compose(seed=3))
    by_hand = compose(seed=3)

    for index, record in enumerate(ps.open(store).read(range(12))):
        found = dataset[index]
        pixels = np.array(Image.open(io.BytesIO(bytes(record.fields["image"]))))
        expected = by_hand(image=pixels, bboxes=record.fields["boxes"].copy(), labels=record.fields["labels"].copy())
        assert torch.equal(found["image"], expected["image"])
        assert found["name"] == record.key
        np.testing.assert_allclose(found["boxes"], np.array(expected["bboxes"]).reshape(-1, 4), atol=1e-3)
        assert found["labels"].tolist() == list(expected["labels"])
        assert (found["boxes"].dtype, found["labels"].dtype) == (np.float32, np.int64)


@pytest.mark.parametrize("form", ["coco", "albumentations", "yolo"])
def test_boxes_are_corners_in_every_format(store: Path, form: str) -> None:
    """The format of the Compose is that of what it sees; the sample's boxes are x0, y0, x1, y1 in pixels."""
    samples = [list(fetch(ps.StoreDataset(store, FIELDS, compose(f)), range(12), KEYS)) for f in (form, "pascal_voc")]

    assert sum(len(sample["boxes"]) for sample in samples[1]) > 5
    for found, expected in zip(*samples, strict=True):
        np.testing.assert_allclose(found["boxes"], expected["boxes"], atol=1e-3)
        assert found["labels"].tolist() == expected["labels"].tolist()


def test_masks_and_keypoints_move_too(store: Path) -> None:
    """A flip: masks by their pixels, points (n, 3, 3) by x, with their visibility."""
    params = A.KeypointParams(format="xy", remove_invisible=False)
    flip = A.Compose([A.HorizontalFlip(p=1)], keypoint_params=params)
    fields = ("image", "mask", "keypoints")
    plain = ps.StoreDataset(store, fields, lambda sample: sample)

    for index in range(12):
        image, mask, points = ps.StoreDataset(store, fields, flip)[index]
        before, mask_before, points_before = plain[index]
        pixels = np.array(Image.open(io.BytesIO(before)))
        assert np.array_equal(image, pixels[:, ::-1])
        assert np.array_equal(mask, np.array(Image.open(io.BytesIO(mask_before)))[:, ::-1])
        assert image.flags.c_contiguous
        expected = points_before.copy()
        expected[..., 0] = pixels.shape[1] - 1 - expected[..., 0]
        np.testing.assert_allclose(points, expected, atol=1e-3)


@pytest.mark.parametrize("module", [ps, pt])
@pytest.mark.parametrize("seeded", [False, True], ids=["", "seed_per_sample"])
def test_any_workers_draw_the_same(store: Path, module: Any, seeded: bool) -> None:
    """Two epochs in the form of torchvision's models, with a Compose whose own state differs; and after a resume."""
    given: dict[str, Any] = {"batch_size": 5, "shuffle": True, "seed": 3, "seed_per_sample": seeded}

    def load(**workers: Any) -> Any:
        dataset = ps.StoreDataset(store, FIELDS, compose(), batch_form="torchvision")
        return module.DataLoader(dataset, **given, **workers)

    def numbers(loader: Any) -> Any:
        return [
            [np.asarray(image).tobytes() for image in images]
            + [np.asarray(target[name]).tobytes() for target in targets for name in ("boxes", "labels")]
            for images, targets in loader
        ]

    loader = load()
    expected = [numbers(loader) for _ in range(2)]
    assert expected[0] != expected[1]
    for workers in ({"num_workers": 2, "workers": "threads"}, {"num_workers": 2, "workers": "processes"}):
        other = load(**workers)
        assert [numbers(other) for _ in range(2)] == expected
    stopped, resumed = load(), load()
    next(iter(stopped))
    resumed.load_state_dict(stopped.state_dict())
    assert numbers(resumed) == expected[0][1:]


def test_it_pickles(store: Path) -> None:
    """A copy draws the same."""
    dataset = ps.StoreDataset(store, FIELDS, compose())
    fetched = [list(fetch(each, range(12), KEYS)) for each in (dataset, pickle.loads(pickle.dumps(dataset)))]

    for one, other in zip(*fetched, strict=True):
        assert torch.equal(one["image"], other["image"])
        assert np.array_equal(one["boxes"], other["boxes"])


@pytest.mark.parametrize(
    ("transform", "fields", "words"),
    [
        (lambda: A.Compose([A.HorizontalFlip()]), FIELDS, "no bbox_params"),
        (A.HorizontalFlip, FIELDS, "no bbox_params"),
        (compose, {"image": "image", "boxes": "boxes"}, "label_fields must name.*'labels'"),
        (lambda: A.Compose([A.HorizontalFlip()]), ("image", "keypoints"), "keypoint_params"),
        (lambda: A.Compose([A.HorizontalFlip()]), ("image", "image"), "one field of kind image"),
    ],
)
def test_what_does_not_fit_is_refused(store: Path, transform: Any, fields: Any, words: str) -> None:
    """When the dataset is made."""
    with pytest.raises(ArgumentError, match=words):
        ps.StoreDataset(store, fields, transform())


def test_instances_are_refused(tmp_path: Path) -> None:
    """They would stay in place; kinds= leaves them on purpose."""
    masks = [{"size": [8, 8], "counts": "0"}]
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "PNG")
    record = {"image": file.getvalue(), "instances": masks}
    ps.pack([record], tmp_path / "masks.lmdb", schema={"image": "image", "instances": "json"})
    flip = A.Compose([A.HorizontalFlip(p=1)])

    with pytest.raises(ArgumentError, match="instances, 'instances', do not follow"):
        ps.StoreDataset(tmp_path / "masks.lmdb", None, flip)
    kept = ps.StoreDataset(tmp_path / "masks.lmdb", ("image", "instances"), flip, kinds={"instances": None})
    assert kept[0][1] == masks


def test_rows_left_behind_are_refused(store: Path) -> None:
    """Labels that label_fields do not name would belong to other boxes."""
    crop = A.Compose([A.RandomCrop(8, 8)], bbox_params=A.BboxParams(format="pascal_voc"))

    with pytest.raises(SampleError, match=r"'labels' has a row for each.*label_fields"):
        list(fetch(ps.StoreDataset(store, FIELDS, crop), range(12), KEYS))


def test_points_that_vanish_need_their_shape(store: Path) -> None:
    """Points (n, 3, 3) keep their number."""
    crop = A.Compose([A.RandomCrop(8, 8)], keypoint_params=A.KeypointParams(format="xy"))

    with pytest.raises(ArgumentError, match="remove_invisible=False"):
        ps.StoreDataset(store, ("image", "keypoints"), crop)[3]
