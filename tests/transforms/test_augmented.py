"""Whole pipelines of augmentation: filled rows are the general path's, in any chunk; annotations stay together."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import pytest
from PIL import Image

from penstock import transforms as T
from penstock.sample import SampleKeys
from tests.transforms.pictures import pictures

NORMALIZE = T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD)

PIPELINES = [
    [T.Decode(), T.RandomResizedCrop(48), T.HorizontalFlip(0.5, []), T.TrivialAugmentWide(), NORMALIZE,
     T.RandomErasing(0.5, value="random"), T.ToLayout()],
    [T.Decode(), T.RandomResizedCrop((40, 56)), T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.Grayscale(p=0.2),
     T.GaussianBlur(9), T.Solarize(p=0.2), T.HorizontalFlip(0.5, []), NORMALIZE, T.ToLayout("CHW", "float16")],
    [T.Decode(), T.Letterbox(64), T.RandAugment(3), T.Pad(4, mode="reflect"), T.RandomCrop(64),
     T.ToLayout("CHW", "uint8")],
    [T.Decode(), T.Letterbox(50), T.RandomAffine(20, (0.1, 0.1), (0.8, 1.2), 5, "bilinear"), T.RandomPerspective(),
     NORMALIZE, T.GaussianBlur(5), T.Pad(3, 0.5), T.ToLayout("HWC")],
]  # fmt: skip
"""As people train: TrivialAugment's recipe, SimCLR's, RandAugment's on letterboxed images, a detector's."""


def files() -> list[bytes]:
    """Every picture as a file, JPEG and PNG in turn."""
    encoded = []
    for i, picture in enumerate(pictures()):
        file = io.BytesIO()
        Image.fromarray(picture).save(file, ("JPEG", "PNG")[i % 2])
        encoded.append(file.getvalue())
    return encoded


@pytest.mark.parametrize("ops", PIPELINES, ids=["trivial", "simclr", "randaugment", "detector"])
@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_filled_rows_are_the_general_path(ops: list[T.Op], chunk: int) -> None:
    """Rows of a batch, filled in chunks of any length by a copy of the pipeline, are what single samples become."""
    images, keys = files(), SampleKeys(5, 3, np.arange(100, 100 + len(files())))
    pipeline = T.Pipeline(ops)
    program = pickle.loads(pickle.dumps(pipeline)).compile("image")
    spec = program.spec()
    assert spec is not None
    out = np.empty((len(images), *spec.shape), spec.dtype)

    for start in range(0, len(images), chunk):
        rows = np.arange(start, min(start + chunk, len(images)))
        program.fill(images[start : start + chunk], out, keys[rows], rows)

    for i, image in enumerate(images):
        np.testing.assert_array_equal(out[i], pipeline(image, keys=keys[i : i + 1]))


@pytest.mark.parametrize("seed", range(12))
def test_annotations_stay_with_the_picture(seed: int) -> None:
    """Through a detector's pipeline, box, points and mask of a bright block still lie on the bright block."""
    image = np.zeros((150, 210, 3), np.uint8)
    image[60:90, 80:130] = 255
    sample: dict[str, Any] = {
        "image": image,
        "boxes": np.array([(80, 60, 130, 90)], np.float32),
        "keypoints": np.array([(105, 75, 2)], np.float32),
        "mask": image[:, :, 0],
    }
    ops = [T.HorizontalFlip(0.5, []), T.Letterbox(120, 0), T.RandomAffine(10, (0.1, 0.1), (0.9, 1.2), 5),
           T.RandomPerspective(0.2, p=0.5), T.Pad((5, 9)), T.TrivialAugmentWide()]  # fmt: skip

    moved = T.Pipeline(ops)(sample, keys=SampleKeys(seed, 0, np.array([7])))

    assert moved["image"].shape[:2] == moved["mask"].shape == (138, 130)
    rows, columns = np.nonzero(moved["mask"])
    if len(rows):
        x0, y0, x1, y1 = moved["boxes"][0]
        assert x0 - 2 <= columns.min()
        assert y0 - 2 <= rows.min()
        assert columns.max() + 1 <= x1 + 2
        assert rows.max() + 1 <= y1 + 2
        if rows.min() > 0 and rows.max() < 137 and columns.min() > 0 and columns.max() < 129:
            np.testing.assert_allclose(moved["keypoints"][0, :2], (columns.mean() + 0.5, rows.mean() + 0.5), atol=1.5)
