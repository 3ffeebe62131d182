"""The computed permutation: a bijection, uniform enough, at any size, in constant memory."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.samplers.permutation import SMALL, permute


@given(
    st.one_of(st.integers(1, 300), st.integers(SMALL - 3, SMALL + 300), st.integers(1, 300_000)),
    st.integers(0, 2**64 - 1),
)
def test_it_is_a_bijection(n: int, seed: int) -> None:
    """Every element of [0, n) comes exactly once, below and above the size that is sorted."""
    order = permute(np.arange(n, dtype=np.int64), n, (seed, 0, 0))

    assert np.array_equal(np.bincount(order, minlength=n), np.ones(n))


@given(st.integers(1, 2**62), st.integers(0, 2**64 - 1), st.lists(st.integers(0, 2**62), min_size=1, max_size=20))
def test_any_position_can_be_asked_for_alone(n: int, seed: int, places: list[int]) -> None:
    """An element does not depend on which others are asked for with it."""
    positions = np.array([place % n for place in places], np.int64) if n > SMALL else np.arange(n, dtype=np.int64)

    together = permute(positions, n, (seed, 3, 1))
    alone = [permute(positions[i : i + 1], n, (seed, 3, 1))[0] for i in range(min(20, len(positions)))]

    assert together[:20].tolist() == alone
    assert together.min() >= 0
    assert together.max() < n


def test_small_sets_see_each_permutation_equally_often() -> None:
    """Over 24000 seeds the 24 orders of four elements come up as a fair draw would have them (chi-squared)."""
    counts = dict.fromkeys(itertools.permutations(range(4)), 0)
    for seed in range(24_000):
        counts[tuple(permute(np.arange(4), 4, (seed, 0, 0)).tolist())] += 1

    chi_squared = sum((count - 1000) ** 2 / 1000 for count in counts.values())

    assert chi_squared < 49.7  # p = 0.001 with 23 degrees of freedom


@pytest.mark.parametrize("n", [SMALL + 1, 100_003, (1 << 17) + 5, 10**9])
def test_large_sets_spread_evenly(n: int) -> None:
    """Where the first 65536 positions go is uniform over 256 equal parts of the set (chi-squared)."""
    sample = permute(np.arange(65_536), n, (7, 0, 0))

    counts = np.bincount(sample * 256 // n, minlength=256)
    chi_squared = ((counts - 256) ** 2 / 256).sum()

    assert chi_squared < 330.5  # p = 0.001 with 255 degrees of freedom; drawing without replacement only lowers it


@pytest.mark.parametrize("n", [SMALL, SMALL + 1, 10**6])
def test_neighbours_do_not_stay_neighbours(n: int) -> None:
    """Positions next to each other are no more alike than any two: the serial correlation is noise."""
    order = permute(np.arange(min(n, 200_000)), n, (11, 2, 0)).astype(float)

    correlation = np.corrcoef(order[:-1], order[1:])[0, 1]

    assert abs(correlation) < 4 / np.sqrt(len(order))


@pytest.mark.parametrize("n", [1000, SMALL + 1000])
def test_epochs_and_seeds_are_unrelated(n: int) -> None:
    """Another epoch, or another seed, is another order: about one fixed point in common, as chance has it."""
    positions = np.arange(n, dtype=np.int64)
    orders = [permute(positions, n, (seed, epoch, 0)) for seed in range(5) for epoch in range(5)]

    common = [int((a == b).sum()) for a, b in itertools.combinations(orders, 2)]

    assert np.mean(common) == pytest.approx(1.0, abs=0.35)


def test_the_order_is_frozen() -> None:
    """Orders are part of saved states: these numbers must never change."""
    small = permute(np.arange(8), 8, (1, 2, 0)).tolist()
    large = permute(np.array([0, 1, 2, 10**9 - 1]), 10**9, (1, 2, 0)).tolist()

    assert small == [7, 1, 3, 0, 4, 2, 6, 5]
    assert large == [630748940, 143070875, 669661982, 690229970]


def test_memory_is_constant() -> None:
    """A thousand positions in the middle of 10**15 cost kilobytes."""
    tracemalloc.start()
    permute(np.arange(10**14, 10**14 + 1000), 10**15, (0, 0, 0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 200_000
