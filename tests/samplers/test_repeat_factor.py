"""RepeatFactorSampler: factors as the paper defines them, repeats as the factors say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ArgumentError
from penstock.samplers import RepeatFactorSampler, repeat_factors
from penstock.samplers.repeat_factor import _RepeatTable

ROWS = st.lists(st.lists(st.integers(0, 6), max_size=4), min_size=1, max_size=30)


def by_the_paper(rows: list[list[int]], threshold: float) -> list[float]:
    """Section 4 of the LVIS paper, word for word."""
    frequency = {c: sum(c in row for row in rows) / len(rows) for row in rows for c in row}
    per_class = {c: max(1.0, float(np.sqrt(threshold / f))) for c, f in frequency.items()}
    return [max([1.0, *(per_class[c] for c in row)]) for row in rows]


@given(rows=ROWS, threshold=st.floats(0.001, 1))
def test_factors_are_those_of_the_paper(rows: list[list[int]], threshold: float) -> None:
    """max over an image's classes of max(1, sqrt(t / f)); a class counts once an image, an empty image is 1."""
    assert np.allclose(repeat_factors(rows, threshold), by_the_paper(rows, threshold), rtol=1e-15)


def test_labels_may_be_given_in_any_form() -> None:
    """Ints, rows of ints, sets, a matrix of booleans, a store's column: the same factors."""
    single = [0, 0, 0, 1]
    several = [[0], [0, 1], [], [2, 0]]
    hot = np.zeros((4, 3), np.bool_)
    for image, row in enumerate(several):
        hot[image, row] = True

    class Store:
        def column(self, field: str) -> Any:
            return {"label": np.array(single), "labels": several}[field]

    from_single = [repeat_factors(given, 0.9) for given in (single, np.array(single), [[i] for i in single], Store())]
    from_several = [
        repeat_factors(given, 0.9, field="labels") for given in (several, hot, [set(row) for row in several], Store())
    ]

    assert all(np.array_equal(factors, by_the_paper([[i] for i in single], 0.9)) for factors in from_single)
    assert all(np.array_equal(factors, by_the_paper(several, 0.9)) for factors in from_several)


@given(rows=ROWS, threshold=st.floats(0.1, 1), epoch=st.integers(0, 5))
def test_an_image_comes_as_often_as_its_factor_says(rows: list[list[int]], threshold: float, epoch: int) -> None:
    """The factor rounded down or up, every epoch the same length; at most one image once more than that."""
    sampler = RepeatFactorSampler(rows, threshold, seed=1)

    counts = np.bincount(sampler.order(0, 10**6, epoch), minlength=len(rows))

    parts = np.rint(sampler.factors * 2**30) / 2**30  # what is resolved of a factor
    assert len(sampler) == counts.sum() == np.ceil(parts.sum())
    assert np.all(counts >= np.floor(parts))
    assert np.maximum(counts - np.ceil(parts), 0).sum() <= 1


def test_fractions_are_right_on_average() -> None:
    """Over epochs each image's mean count is its factor, within four and a half standard errors."""
    labels = np.repeat(np.arange(6), [300, 100, 50, 20, 5, 1])
    sampler, epochs = RepeatFactorSampler(labels, 0.3, seed=2), 3000

    counts = np.zeros(len(labels))
    for epoch in range(epochs):
        counts += np.bincount(sampler.order(0, 10**6, epoch), minlength=len(labels))

    fraction = sampler.factors % 1
    once_more = 1 / len(labels)  # an epoch's one image that fills up its length
    error = 4.5 * np.sqrt((fraction * (1 - fraction) + once_more) / epochs) + once_more
    assert np.all(np.abs(counts / epochs - sampler.factors) <= error)


def test_extras_of_two_images_are_all_but_independent() -> None:
    """Neighbours with equal fractions do not come up together more often than chance has it."""
    labels = [0] * 60 + [1] * 20  # factors 1 and sqrt(2.25) = 1.5 at t = 0.5625
    sampler, epochs = RepeatFactorSampler(labels, 0.5625, seed=3), 4000

    extra = np.array([np.bincount(sampler.order(0, 200, epoch), minlength=80)[60:] > 1 for epoch in range(epochs)])

    together = (extra[:, :-1] & extra[:, 1:]).mean()
    assert sampler.factors[-1] == 1.5
    assert abs(together - 0.25) < 0.02
    assert abs(extra.mean() - 0.5) < 0.01


def test_a_mark_on_a_border_is_of_the_image_that_ends_there() -> None:
    """Marks and borders that coincide lose no image and pass none; past the last mark the first one comes again."""
    layout = _RepeatTable(np.array([5, 7, 9]), np.array([1, 3, 4]) * 2**30, 0)

    assert layout.images_at(np.arange(5)).tolist() == [5, 7, 7, 9, 5]


def test_nothing_rare_is_one_permutation() -> None:
    """Where every class is common, an epoch is each image once."""
    sampler = RepeatFactorSampler([0, 1] * 50, 0.01, seed=4)

    assert sorted(sampler) == list(range(100))


def test_a_state_of_other_labels_is_refused() -> None:
    """The signature tells factors apart."""
    state = RepeatFactorSampler([0, 0, 0, 1], 0.9).state_dict()

    with pytest.raises(ValueError, match="factors="):
        RepeatFactorSampler([1, 0, 0, 0], 0.9).load_state_dict(state)


@pytest.mark.parametrize("threshold", [0, -1, 1.5, float("nan"), True, "0.1"])
def test_a_threshold_is_a_fraction(threshold: Any) -> None:
    """Anything else is refused."""
    with pytest.raises(ArgumentError, match=r"threshold should be a fraction in \(0, 1\]"):
        RepeatFactorSampler([0, 1], threshold)


@pytest.mark.parametrize("labels", [[], [[]] * 0, [0.5], [[0.5]], 5, ["cat"], [["cat"]], [[[1]]], [True, False]])
def test_labels_are_integers(labels: Any) -> None:
    """Anything else is refused, with what it is."""
    with pytest.raises(ArgumentError, match="labels should be"):
        RepeatFactorSampler(labels)
