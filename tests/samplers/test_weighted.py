"""WeightedRandomSampler and DistributedWeightedSampler: frequencies, exactness, arguments."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ArgumentError
from penstock.samplers import DistributedWeightedSampler, WeightedRandomSampler, class_weights, weighted
from penstock.samplers.weighted import _log

CHI2_999 = {3: 16.3, 5: 20.5, 11: 31.3, 15: 37.7}
"""Quantile 0.999 of chi-squared by degrees of freedom."""


def chi2(counts: Any, expected: Any) -> float:
    """Pearson's statistic."""
    return float(((np.asarray(counts) - expected) ** 2 / expected).sum())


def test_frequencies_are_the_weights() -> None:
    """With replacement an item comes in proportion to its weight, and one of weight zero never."""
    weights = np.array([0.0, 1, 0, 2, 0.5, 4, 0, 2.5, 10, 0])

    order = WeightedRandomSampler(weights, 100_000, seed=1).order(0, 100_000)
    counts = np.bincount(order, minlength=len(weights))

    present = weights > 0
    assert counts[~present].sum() == 0
    assert chi2(counts[present], weights[present] / weights.sum() * 100_000) < CHI2_999[5]


def test_draws_are_independent() -> None:
    """With replacement a draw does not depend on the one before (pairs have the product of frequencies)."""
    weights = np.array([1.0, 2, 3, 4])
    order = WeightedRandomSampler(weights, 160_000, seed=2).order(0, 160_000)

    pairs = np.bincount(order[0::2] * 4 + order[1::2], minlength=16)

    expected = np.outer(weights, weights).ravel() / 100 * 80_000
    assert chi2(pairs, expected) < CHI2_999[15]


def test_without_replacement_is_drawing_one_after_the_other() -> None:
    """Each ordered outcome is as likely as successive draws by weight among those left make it (12 outcomes)."""
    weights, epochs = np.array([1.0, 2, 3, 6]), 10_000
    sampler = WeightedRandomSampler(weights, 2, replacement=False, seed=3)

    found = np.array([sampler.order(0, 2, epoch) for epoch in range(epochs)])
    counts = [
        int(((found[:, 0] == a) & (found[:, 1] == b)).sum()) for a, b in itertools.permutations(range(len(weights)), 2)
    ]

    total = weights.sum()
    chances = [
        weights[a] / total * weights[b] / (total - weights[a])
        for a, b in itertools.permutations(range(len(weights)), 2)
    ]
    assert sum(counts) == epochs
    assert chi2(counts, np.array(chances) * epochs) < CHI2_999[11]


@pytest.mark.parametrize("num_samples", [1, 500, 700])
def test_without_replacement_nothing_comes_twice(num_samples: int) -> None:
    """No item twice, none of weight zero, and fewer samples are the head of more."""
    weights = np.arange(1000) % 10 * (np.arange(1000) < 778)

    order = WeightedRandomSampler(weights, num_samples, replacement=False, seed=4).order(0, 1000).tolist()

    assert len(set(order)) == len(order) == num_samples
    assert all(weights[index] > 0 for index in order)
    assert order == WeightedRandomSampler(weights, 700, replacement=False, seed=4).order(0, num_samples).tolist()


def test_chunks_do_not_show() -> None:
    """Computing exponentials in chunks gives heavy items of all chunks their place."""
    weights = np.full(300_000, 1e-9)
    heavy = [0, 131_071, 131_072, 262_144, 299_999]
    weights[heavy] = 1

    order = WeightedRandomSampler(weights, 5, replacement=False, seed=5).order(0, 5)

    assert sorted(order.tolist()) == heavy


@pytest.mark.parametrize("replacement", [True, False])
def test_above_2_to_the_24_items_it_is_exact(replacement: bool) -> None:
    """A few ones behind 2**24 float32 zeros are drawn, equally often, and nothing else; in less than 1 GB."""
    weights = np.zeros((1 << 24) + 1000, np.float32)
    last = np.arange(len(weights) - 4, len(weights))
    weights[last] = 1
    tracemalloc.start()

    sampler = WeightedRandomSampler(weights, 4000 if replacement else 4, replacement, seed=6)
    drawn = sampler.order(0, 4000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    counts = np.bincount(drawn - last[0], minlength=4)
    assert len(counts) == 4
    assert chi2(counts, 1000) < CHI2_999[3] if replacement else counts.tolist() == [1, 1, 1, 1]
    assert peak < 600_000_000


def test_a_large_set_is_drawn_evenly_to_its_end() -> None:
    """With equal weights of 2**24 + 2**20 items, the part beyond 2**24 gets its share: sums in float32 stop there."""
    count = (1 << 24) + (1 << 20)

    drawn = WeightedRandomSampler(np.ones(count, np.float32), 200_000, seed=7).order(0, 200_000)

    share, chance = int((drawn >= 1 << 24).sum()), (1 << 20) / count
    assert abs(share - 200_000 * chance) < 4 * np.sqrt(200_000 * chance * (1 - chance))
    assert len(np.unique(drawn % 2)) == 2


@given(
    weights=st.lists(st.floats(0, 1e300) | st.floats(0, 1e-270), min_size=1, max_size=5).filter(
        lambda weights: sum(weights) >= 2.0**-960
    )
)
def test_the_largest_draw_is_an_item_with_a_weight(weights: list[float]) -> None:
    """The greatest number that uniforms() gives finds the last item that has a weight which sums can see."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weighted, "uniforms", lambda *_: np.full((1, 1), 1 - 2.0**-53))

        found = WeightedRandomSampler(weights, 1).order(0, 1)[0]

    assert found < len(weights)
    assert weights[found] > 0


def test_a_draw_on_a_border_has_a_weight() -> None:
    """A draw that equals a sum of weights is of the next item that has one, also where those between have none."""
    exact = np.array([[0], [0.25], [0.5]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weighted, "uniforms", lambda *_: exact)

        found = WeightedRandomSampler([0, 1, 0, 0, 1, 0, 2, 0], 3).order(0, 3)

    assert found.tolist() == [1, 4, 6]


def test_extreme_weights_stay_in_range() -> None:
    """The largest draw is an item, whatever the weights' scale."""
    for weights in ([5e-324, 2.3e-308, 1e-280], [1e300, 1e308, 1e307], [1e-300, 1e300]):
        order = WeightedRandomSampler(weights, 5000, seed=8).order(0, 5000)
        without = WeightedRandomSampler(weights, len(weights), replacement=False, seed=8).order(0, 9)

        assert 0 <= order.min() <= order.max() < len(weights)
        assert sorted(without.tolist()) == list(range(len(weights)))


def test_the_logarithm_is_the_logarithm() -> None:
    """Our logarithm agrees with NumPy's to a few units in the last place, also next to one."""
    draw = np.random.default_rng(0)
    x = np.concatenate([draw.integers(1, 1 << 53, 100_000) * 2.0**-53, 1 - np.arange(1, 1000) * 2.0**-53, [2.0**-53]])

    ours, theirs = _log(x), np.log(x)

    assert np.all(np.abs(ours - theirs) <= 4 * np.spacing(np.abs(theirs)))
    assert _log(np.ones(1))[0] == 0


@pytest.mark.parametrize("replacement", [True, False])
def test_other_weights_are_another_order(replacement: bool) -> None:
    """The signature tells weights apart, by content and not by type."""
    signatures = [
        WeightedRandomSampler(weights, 2, replacement).signature()
        for weights in ([1, 2, 3], np.array([1, 2, 3], np.float32), [1, 2, 4])
    ]

    assert signatures[0] == signatures[1] != signatures[2]


def test_weights_are_copied() -> None:
    """Changing the array later changes no draw."""
    weights = np.ones(10)
    sampler = WeightedRandomSampler(weights, 5, replacement=False, seed=9)

    weights[:] = np.arange(10)

    assert list(sampler) == list(WeightedRandomSampler(np.ones(10), 5, replacement=False, seed=9))


def test_ranks_draw_one_sequence() -> None:
    """num_samples counts the job's draws, and ranks in turn draw those of a single process."""
    single = WeightedRandomSampler([1, 2, 3], 12, seed=0)

    ranks = [DistributedWeightedSampler([1, 2, 3], 12, num_replicas=4, rank=rank) for rank in range(4)]

    assert [len(rank) for rank in ranks] == [3] * 4
    assert [list(rank) for rank in ranks] == [list(single)[rank::4] for rank in range(4)]
    assert ranks[0].num_samples == 12


@pytest.mark.parametrize(
    ("weights", "num_samples", "replacement", "text"),
    [
        ([1], 0, True, "^num_samples should be a positive integer value, but got num_samples=0"),
        ([1], 1.0, True, "^num_samples should be a positive integer value, but got num_samples=1.0"),
        ([1], True, True, "^num_samples should be a positive integer value, but got num_samples=True"),
        ([1], 1, 1, "^replacement should be a boolean value, but got replacement=1"),
        ([[1]], 1, True, r"^weights should be a 1d sequence but given weights have shape \(1, 1\)"),
        (1, 1, True, r"^weights should be a 1d sequence but given weights have shape \(\)"),
        (["a"], 1, True, "^weights should be a 1d sequence of numbers"),
        ([1, -1], 1, True, r"weights\[1\] is -1"),
        ([1, float("nan")], 1, True, r"weights\[1\] is nan"),
        ([float("inf")], 1, True, r"weights\[0\] is inf"),
        ([0, 0], 1, True, "not all be zero"),
        ([], 1, True, "not all be zero"),
        ([1e308, 1e308], 1, True, "add up to a finite number.*got inf"),
        ([5e-324], 1, True, "add up to"),
        ([1, 0], 2, False, "^cannot sample n_sample > prob_dist.*num_samples=2, but 1 of 2"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(weights: Any, num_samples: Any, replacement: Any, text: str) -> None:
    """Each wrong argument is named with its value, in torch's words where torch has them."""
    with pytest.raises(ArgumentError, match=text):
        WeightedRandomSampler(weights, num_samples, replacement)
    with pytest.raises(ArgumentError, match=text):
        DistributedWeightedSampler(weights, num_samples, replacement, num_replicas=1, rank=0)


@pytest.mark.parametrize(("weights", "num_samples", "replacement"), [([1], 0, True), ([1], 1, 1), ([[1]], 1, True)])
def test_the_words_are_those_of_torch(weights: Any, num_samples: Any, replacement: Any) -> None:
    """Where torch's class of this name refuses arguments, ours does in the same words."""
    theirs = pytest.importorskip("torch.utils.data").WeightedRandomSampler
    with pytest.raises(ValueError, match="should be") as expected:
        theirs(weights, num_samples, replacement)

    with pytest.raises(ValueError, match="should be") as found:
        WeightedRandomSampler(weights, num_samples, replacement)

    assert str(found.value) == str(expected.value)


def test_weights_of_classes_become_those_of_samples() -> None:
    """A sample has the largest weight of its classes; others, and samples without a class, have 1."""
    labels = [[0, 1], [2], [], [1, 1], [0]]

    assert class_weights(labels, {0: 0.5, 1: 3}).tolist() == [3, 1, 1, 3, 0.5]
    one = WeightedRandomSampler({0: 0.5, 1: 3}, 50, seed=1, labels=labels)
    other = WeightedRandomSampler([3, 1, 1, 3, 0.5], 50, seed=1)
    assert list(one) == list(other)
    half = DistributedWeightedSampler({0: 0.5, 1: 3}, 50, num_replicas=2, rank=1, seed=1, labels=labels)
    assert list(half) == list(WeightedRandomSampler([3, 1, 1, 3, 0.5], 50, seed=1))[1::2]


def test_weights_of_classes_need_the_classes() -> None:
    """Weights by class without labels, labels without such weights, and unknown classes are refused."""
    with pytest.raises(ArgumentError, match="give labels=store"):
        WeightedRandomSampler({0: 2}, 5)
    with pytest.raises(ArgumentError, match="labels must be given with weights of classes"):
        WeightedRandomSampler([1, 2], 5, labels=[0, 1])
    with pytest.raises(ArgumentError, match="known by number only"):
        WeightedRandomSampler({"cat": 2}, 5, labels=[0, 1])
