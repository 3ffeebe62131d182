"""The example's average precision is that of pycocotools."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from tests.examples.example_scripts import import_example

precision: Any = import_example("average_precision")

EXPECTED: Final = [0.254813558623, 0.311563233528, 0.340509687682]
"""By pycocotools 2.0.11, of `_make_sets()`."""


def _make_sets() -> tuple[list[Any], list[Any]]:
    """Found and true rows of 30 images: boxes moved, missing or twice, equal scores, more than 100 of a class."""
    generator = np.random.default_rng(7)
    found, true = [], []
    for number in range(30):
        corner = generator.integers(0, 200, (int(generator.integers(0, 12)), 2)).astype(np.float64)
        boxes = np.concatenate([corner, corner + generator.integers(8, 80, corner.shape)], 1)
        labels = generator.integers(0, 3, len(boxes))
        true.append(np.concatenate([boxes, labels[:, None]], 1))
        chosen = generator.integers(0, max(1, len(boxes)), 240 if number == 3 and len(boxes) else len(boxes))
        moved = boxes[chosen] + generator.normal(0, 5, (len(chosen), 4)).round(2)
        moved[:, 2:] = np.maximum(moved[:, 2:], moved[:, :2] + 1)
        guessed = np.where(generator.random(len(chosen)) < 0.9, labels[chosen], 1)
        scores = generator.integers(0, 50, len(chosen)) / 50
        found.append(np.concatenate([moved, guessed[:, None], scores[:, None]], 1))
    return found, true


def test_equals_pycocotools() -> None:
    """On random sets the average precision of each class is that of pycocotools."""
    found, true = _make_sets()

    assert precision.average_precisions(found, true, 3) == pytest.approx(EXPECTED, abs=1e-9)


def test_equals_the_installed_pycocotools() -> None:
    """The same, where it is installed; a class without objects is NaN, and nothing found is 0."""
    pytest.importorskip("pycocotools")
    found, true = _make_sets()

    for each in (found, [rows[:0] for rows in found]):
        other = precision.average_precisions_of_pycocotools(each, true, 4)
        np.testing.assert_allclose(precision.average_precisions(each, true, 4), other, atol=1e-9)
    assert precision.average_precisions_of_pycocotools(found, true, 3) == pytest.approx(EXPECTED, abs=1e-9)


def test_counts_by_hand() -> None:
    """Of two objects one is found, before and after a wrong box: precision is 1 up to a recall of a half, then 0."""
    true = [np.array([[0, 0, 10, 10, 0], [50, 50, 60, 60, 0]], np.float32)]
    right, wrong = [0, 0, 10, 9, 0, 0.9], [80, 80, 90, 90, 0, 0.5]

    assert precision.average_precisions([np.array([right, wrong])], true, 2)[0] == pytest.approx(51 / 101)
    wrong[5] = 0.95
    assert precision.average_precisions([np.array([right, wrong])], true, 2)[0] == pytest.approx(51 / 101 / 2)
    assert np.isnan(precision.average_precisions([np.zeros((0, 6))], true, 2)[1])
