"""RandomIoUCrop chooses torchvision's windows, by the sample's key and its boxes, and always returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock import transforms as T
from penstock.errors import ArgumentError
from penstock.sample import SampleKeys
from penstock.transforms.base import uniforms
from penstock.transforms.ops.iou_crop import RandomIoUCrop

KEYS = SampleKeys(3, 1, np.arange(400))


def random_boxes(seed: int, count: int, width: int, height: int) -> NDArray[np.float32]:
    """Boxes inside an image."""
    corners = np.sort(np.random.default_rng(seed).random((count, 2, 2)), axis=1) * (width, height)
    return corners.reshape(-1, 4).astype(np.float32)


def drawn(op: T.Op, boxes: NDArray[np.float32], size: tuple[int, int], keys: SampleKeys = KEYS) -> Any:
    """Windows for images of one size with the same boxes."""
    return op.draw_by_boxes(keys, np.full((len(keys), 2), size, np.int32), 4, [boxes] * len(keys))


def specified(op: RandomIoUCrop, numbers: Any, boxes: Any, size: tuple[int, int]) -> tuple[int, ...] | None:
    """torchvision's loop, one window after another; None where the numbers end."""
    width, height = size
    for row in numbers:
        least = op.options[int(row[0] * len(op.options))]
        if least >= 1:
            return 0, 0, width, height, 0
        for of_width, of_height, at_x, at_y in row[1:].reshape(-1, 4).tolist():
            low, high = op.scale
            w, h = int(width * (low + (high - low) * of_width)), int(height * (low + (high - low) * of_height))
            if not w or not h or not op.ratio[0] <= w / h <= op.ratio[1]:
                continue
            left, top = int((width - w) * at_x), int((height - h) * at_y)
            best = -1.0
            for x0, y0, x1, y1 in boxes.tolist():
                if left < (x0 + x1) / 2 < left + w and top < (y0 + y1) / 2 < top + h:
                    wide = max(min(x1, left + w) - max(x0, left), 0)
                    high_ = max(min(y1, top + h) - max(y0, top), 0)
                    union = w * h + (x1 - x0) * (y1 - y0) - wide * high_
                    best = max(best, wide * high_ / union)
            if best >= least:
                return left, top, w, h, 1
    return None


@given(
    seed=st.integers(0, 9999),
    size=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    count=st.integers(1, 5),
    scale=st.tuples(st.floats(0, 0.9), st.floats(0.9, 1)),
    options=st.sampled_from([None, (0.3,), (0.0, 0.5, 1.0), (0.9,)]),
)
def test_the_window_is_the_first_that_fits(
    seed: int, size: tuple[int, int], count: int, scale: tuple[float, float], options: Any
) -> None:
    """All windows of a round are compared at once, and the result is that of torchvision's loop over them."""
    op = T.RandomIoUCrop(*scale, sampler_options=options, trials=7)
    boxes, keys = random_boxes(seed, count, *size), SampleKeys(seed, 0, np.arange(3))

    found = drawn(op, boxes, size, keys)

    for i in range(3):
        numbers = uniforms(keys[i : i + 1], 4, 64 * 29).reshape(64, 29)
        assert tuple(found[i]) == (specified(op, numbers, boxes, size) or (0, 0, *size, 0))


def test_windows_are_distributed_as_torchvisions() -> None:
    """How often an image is left as it is, and the mean size and place of windows, agree within chance."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    tv_tensors, torch = pytest.importorskip("torchvision.tv_tensors"), pytest.importorskip("torch")
    boxes = np.array([(10, 20, 60, 70), (70, 5, 95, 40)], np.float32)
    of_torch = tv_tensors.BoundingBoxes(torch.from_numpy(boxes), format="XYXY", canvas_size=(80, 100))
    image = tv_tensors.Image(torch.zeros((3, 80, 100), dtype=torch.uint8))
    theirs = v2.RandomIoUCrop()

    found = drawn(T.RandomIoUCrop(), boxes, (100, 80))

    with torch.random.fork_rng():
        torch.manual_seed(0)
        windows = [theirs.make_params([image, of_torch]) for _ in range(400)]
    cropped = np.array([[own[side] for side in ("left", "top", "width", "height")] for own in windows if own])
    own = found[found[:, 4] == 1, :4]
    share, expected = len(own) / 400, len(cropped) / 400
    assert abs(share - expected) < 5 * np.sqrt(0.25 / 200)
    error = np.sqrt(own.var(axis=0) / len(own) + cropped.var(axis=0) / len(cropped))
    assert (np.abs(own.mean(axis=0) - cropped.mean(axis=0)) < 5 * error).all()


@settings(max_examples=settings().max_examples // 2)
@given(seed=st.integers(0, 9999), count=st.integers(0, 6))
def test_image_boxes_and_mask_are_torchvisions(seed: int, count: int) -> None:
    """With the same window, v2 gives the same picture, mask and boxes, those outside as zeros."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    tv_tensors, torch = pytest.importorskip("torchvision.tv_tensors"), pytest.importorskip("torch")
    op, boxes = T.RandomIoUCrop(0.2), random_boxes(seed, count, 50, 40)
    image = np.random.default_rng(seed).integers(0, 256, (40, 50, 3), np.uint8)
    params = drawn(op, boxes, (50, 40), KEYS[seed % 400 : seed % 400 + 1])[0]
    left, top, width, height, cropped = params.tolist()
    theirs: dict[str, Any] = {"left": left, "top": top, "width": width, "height": height}
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    inside = np.all((centres > (left, top)) & (centres < (left + width, top + height)), axis=1)
    theirs["is_within_crop_area"] = torch.from_numpy(inside)
    given = tv_tensors.BoundingBoxes(torch.from_numpy(boxes), format="XYXY", canvas_size=(40, 50))

    expected = [
        v2.RandomIoUCrop().transform(value, theirs if cropped else {})
        for value in (tv_tensors.Image(torch.from_numpy(image).permute(2, 0, 1)), given)
    ]

    np.testing.assert_array_equal(op.image(image, params), expected[0].permute(1, 2, 0).numpy())
    np.testing.assert_array_equal(op.mask(image[:, :, 0], params), expected[0][0].numpy())
    np.testing.assert_array_equal(op.boxes(boxes, params, (50, 40)), expected[1].numpy())


def test_an_image_without_boxes_is_left_as_it_is() -> None:
    """There is nothing that a window could show."""
    found = drawn(T.RandomIoUCrop(sampler_options=(0.1,)), np.empty((0, 4), np.float32), (30, 20))

    assert (found == (0, 0, 30, 20, 0)).all()


@pytest.mark.parametrize("box", [(0, 0, 0.01, 0.01), (-9, -9, -5, -5), (3, 3, 3, 3), (9, 9, 1, 1), (np.nan,) * 4])
def test_boxes_that_no_window_can_show_end(box: Any) -> None:
    """Where torchvision's op would loop without end, the image is left as it is."""
    found = drawn(T.RandomIoUCrop(sampler_options=(0.9,)), np.array([box], np.float32), (30, 20), KEYS[:3])

    assert (found == (0, 0, 30, 20, 0)).all()


def test_the_pipeline_gives_boxes_as_they_are_before_the_op() -> None:
    """Behind a flip the op reads the flipped boxes; labels and boxes are cut alike."""
    image = np.zeros((40, 60, 3), np.uint8)
    image[5:25, 5:20] = 255
    augment = T.Pipeline(
        [T.HorizontalFlip(p=1), T.RandomIoUCrop(sampler_options=(0.5,)), T.SanitizeBoundingBoxes(min_visible=0.2)]
    )
    found = 0
    for i in range(30):
        given = {"image": image, "boxes": [[5, 5, 20, 25], [50, 30, 60, 40]], "labels": np.array([1, 2])}

        result = augment(given, keys=KEYS[i : i + 1])

        assert 1 in result["labels"] or image.shape == result["image"].shape
        if result["image"].shape != image.shape:
            found += 1
            rows, columns = np.nonzero(result["image"][:, :, 0])
            box = result["boxes"][result["labels"].tolist().index(1)].tolist()
            assert box == [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    assert found > 15


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"min_scale": 0.9, "max_scale": 0.5}, "min_scale"),
        ({"max_scale": 1.5}, "max_scale"),
        ({"min_aspect_ratio": -1}, "aspect_ratio"),
        ({"sampler_options": ()}, "sampler_options"),
        ({"sampler_options": (-0.5,)}, "sampler_options"),
        ({"sampler_options": "abc"}, "sampler_options"),
        ({"trials": 0}, "trials"),
    ],
)
def test_settings_out_of_range_are_refused(arguments: dict[str, Any], words: str) -> None:
    """The error names the argument."""
    with pytest.raises(ArgumentError, match=words):
        T.RandomIoUCrop(**arguments)
