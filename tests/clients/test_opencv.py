"""OpenCV's resize, by its own library: what the filters named after it give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock import transforms as T
from penstock.sample import SampleKeys

cv2: Any = pytest.importorskip("cv2")

FILTERS = {"cv2-linear": cv2.INTER_LINEAR, "cv2-area": cv2.INTER_AREA, "cv2-nearest": cv2.INTER_NEAREST}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", FILTERS)
def test_resizes_are_opencv_s(name: str, channels: int) -> None:
    """300 sizes, larger and smaller, of noise and of black and white: within one level, and equal for the nearest."""
    draw = np.random.default_rng(0)
    differing = 0
    for number in range(300):
        height, width, to_height, to_width = (int(side) for side in draw.integers(1, [200, 200, 300, 300]))
        noise = draw.integers(0, 256, (height, width, channels), np.uint8)
        image = noise if number % 2 else (noise // 128) * np.uint8(255)
        op = T.Resize((to_height, to_width), name)
        params = op.draw(SampleKeys(0, 0, np.zeros(1, np.int64)), np.array([[width, height]], np.int32), 0)[0]

        found = op.native(image, params)

        expected = cv2.resize(image, (to_width, to_height), interpolation=FILTERS[name]).reshape(found.shape)
        difference = np.abs(found.astype(int) - expected.astype(int))
        assert difference.max() <= (name != "cv2-nearest"), (image.shape, found.shape)
        differing += int((difference > 0).sum())
    assert (differing == 0) == (name == "cv2-nearest")
