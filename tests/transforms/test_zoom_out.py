"""RandomZoomOut frames as torchvision does, and its numbers have torchvision's distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import transforms as T
from penstock.errors import ArgumentError
from tests.transforms.pictures import draws, is_uniform, same


@settings(max_examples=settings().max_examples // 2)
@given(
    size=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    index=st.integers(0, 99),
    fill=st.sampled_from([0, 114, (1, 2, 250)]),
    side_range=st.sampled_from([(1.0, 4.0), (1.5, 1.5), (1.0, 1.0)]),
)
def test_the_frame_is_torchvisions(size: tuple[int, int], index: int, fill: Any, side_range: Any) -> None:
    """Picture, mask, boxes and keypoints are those that v2 pads by the same numbers."""
    functional = pytest.importorskip("torchvision.transforms.v2.functional")
    tv_tensors, torch = pytest.importorskip("torchvision.tv_tensors"), pytest.importorskip("torch")
    op = T.RandomZoomOut(fill, side_range, p=0.8)
    image = np.random.default_rng(index).integers(0, 256, (size[1], size[0], 3), np.uint8)
    boxes = np.array([(0, 0, size[0], size[1]), (0.5, 0.5, 1, 1)], np.float32)
    left, top, width, height = params = draws(op, size, 100)[index]

    padding = [int(side) for side in (left, top, width - size[0] - left, height - size[1] - top)]
    assert min(padding) >= 0
    as_tensor = torch.from_numpy(image).permute(2, 0, 1)
    colour = [float(level) for level in fill] if isinstance(fill, tuple) else fill
    same(op.image(image, params), functional.pad(as_tensor, padding, fill=colour).permute(1, 2, 0).numpy())
    same(op.mask(image[:, :, 1], params), functional.pad(as_tensor[1:2], padding, fill=0)[0].numpy())
    given = tv_tensors.BoundingBoxes(torch.from_numpy(boxes), format="XYXY", canvas_size=size[::-1])
    same(op.boxes(boxes, params, size), functional.pad(given, padding).numpy())
    same(op.keypoints(boxes[:, :2], params, size), op.boxes(boxes, params, size)[:, :2])


def test_numbers_are_uniform() -> None:
    """Half of the images change, by factors of the range, at every place."""
    found = draws(T.RandomZoomOut(), (1000, 1000))

    changed = found[found[:, 2] > 1000]
    assert abs(len(changed) / 20_000 - 0.5) < 0.02
    is_uniform(changed[:, 2] / 1000, 1, 4)
    large = changed[changed[:, 2] > 2000]
    is_uniform(large[:, 0] / (large[:, 2] - 1000), 0, 1)
    is_uniform(large[:, 1] / (large[:, 3] - 1000), 0, 1)


def test_floats_and_gray_images_are_framed() -> None:
    """Any dtype that holds the fill, with the value of masks apart."""
    op = T.RandomZoomOut(0.5, (2, 2), 1, mask_fill=255)
    params = np.array([1, 0, 4, 2])

    assert op.image(np.ones((1, 2), np.float32), params).tolist() == [[0.5, 1, 1, 0.5], [0.5] * 4]
    assert op.mask(np.ones((1, 2), np.uint8), params).tolist() == [[255, 1, 1, 255], [255] * 4]
    with pytest.raises(ArgumentError, match="uint8"):
        op.image(np.ones((1, 2, 3), np.uint8), params)


@pytest.mark.parametrize(
    "arguments", [{"side_range": (0.5, 2)}, {"side_range": (3, 2)}, {"side_range": (1, 1000)}, {"p": 2}, {"fill": "x"}]
)
def test_settings_out_of_range_are_refused(arguments: dict[str, Any]) -> None:
    """The error names the argument."""
    with pytest.raises(ArgumentError, match=next(iter(arguments))):
        T.RandomZoomOut(**arguments)
