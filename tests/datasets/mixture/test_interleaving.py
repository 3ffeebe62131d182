"""The arithmetic of mixtures: sources of draws, counts of draws, blocks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.datasets.mixture.interleaving import BLOCK, MAX_POSITION, Interleaving, permute_blocks
from penstock.datasets.mixture.shares import Stage
from penstock.errors import ArgumentError

_WEIGHTS = st.lists(st.floats(1e-4, 1.0), min_size=1, max_size=60)


def stages_of(schedule: list[tuple[int, list[float]]]) -> list[Stage]:
    """Stages whose shares have the sum one."""
    return [Stage(start, tuple(np.array(weights) / np.sum(weights))) for start, weights in schedule]


def interleave(*weights: float) -> Interleaving:
    """One stage."""
    return Interleaving(stages_of([(0, list(weights))]))


@given(_WEIGHTS, st.integers(0, 1 << 40))
def test_draws_are_counted_exactly(weights: list[float], start: int) -> None:
    """The number of each draw is how many draws its source had before it, from any position on."""
    interleaving = interleave(*weights)
    sources, numbers = interleaving.draw(np.arange(start, start + 300))

    before = interleaving.counts(start)
    for source in range(len(weights)):
        own = numbers[sources == source]
        assert own.tolist() == list(range(before[source], before[source] + len(own)))
    assert (before + np.bincount(sources, minlength=len(weights)) == interleaving.counts(start + 300)).all()
    assert before.sum() == start


@given(_WEIGHTS, st.integers(0, 1 << 40))
def test_counts_differ_from_shares_by_less_than_two(weights: list[float], position: int) -> None:
    """No source is ahead of its share, or behind it, by two samples, at any position."""
    shares = np.array(weights) / np.sum(weights)

    counts = interleave(*weights).counts(position)

    assert np.abs(counts - shares * position).max() < 2 + position * 2.0**-44  # of rounding


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=5, unique=True), st.data())
def test_stages_follow_each_other(starts: list[int], data: st.DataObject) -> None:
    """A stage continues the counts of those before it, also where a source has no share."""
    starts = [0, *sorted(set(starts) - {0})]
    weights = st.lists(st.floats(0.01, 1) | st.just(0.0), min_size=4, max_size=4).filter(any)
    schedule = [(start, data.draw(weights)) for start in starts]
    interleaving = Interleaving(stages_of(schedule))

    sources, numbers = interleaving.draw(np.arange(6000))

    for source in range(4):
        assert numbers[sources == source].tolist() == list(range((sources == source).sum()))
    for (start, now), (stop, _) in pairwise([*schedule, (6000, [])]):
        shares = np.array(now) / np.sum(now)
        drawn = np.bincount(sources[start:stop], minlength=4)
        assert np.abs(drawn - shares * (stop - start)).max() < 2
        assert (interleaving.counts(stop) - interleaving.counts(start) == drawn).all()


@given(_WEIGHTS, st.integers(1, 2000), st.integers(0, 1 << 30), st.integers(0, 1 << 63))
def test_permuted_blocks_have_the_same_draws(weights: list[float], length: int, first: int, seed: int) -> None:
    """Each block has its draws in another order, in which those of each source are ascending."""
    interleaving, key = interleave(*weights), (seed, 3)

    sources, numbers = permute_blocks(interleaving, np.arange(length), key, first, length)

    plain = np.stack(interleaving.draw(np.arange(first, first + length)))
    mixed = np.stack([sources, numbers])
    for begin in range(0, length, BLOCK):
        block = mixed[:, begin : begin + BLOCK]
        assert sorted(block.T.tolist()) == sorted(plain[:, begin : begin + BLOCK].T.tolist())
        for source in np.unique(block[0]):
            assert (np.diff(block[1][block[0] == source]) == 1).all()


def test_any_positions_are_asked_for_in_any_order() -> None:
    """What is drawn at a position depends on no other position that is asked for."""
    interleaving, length = interleave(3, 2, 1), 300 * BLOCK + 17
    whole = permute_blocks(interleaving, np.arange(length), (1, 2), 99, length)
    some = np.random.default_rng(0).integers(0, length, 1000)

    sources, numbers = permute_blocks(interleaving, some, (1, 2), 99, length)

    assert (sources == whole[0][some]).all()
    assert (numbers == whole[1][some]).all()


@pytest.mark.parametrize("ranks", [2, 4, 8, 256])
def test_each_rank_gets_each_source(ranks: int) -> None:
    """The regular order of sources does not fit the number of ranks: no rank has one source alone."""
    sources, _ = permute_blocks(interleave(1, 1), np.arange(ranks * 400), (0, 0), 0, ranks * 400)

    shares = sources.reshape(400, ranks).mean(axis=0)

    assert shares.min() > 0.3
    assert shares.max() < 0.7


def test_an_epoch_ends_with_the_first_or_last_source() -> None:
    """With "first", no source is drawn from more often than it has samples; with "all", each was used up."""
    interleaving, sizes = interleave(0.5, 0.3, 0.2), np.array([1000, 1000, 1000])

    first, every = interleaving.find_length(sizes, "first"), interleaving.find_length(sizes, "all")

    assert (interleaving.counts(first) <= sizes).all()
    assert not (interleaving.counts(first + 1) <= sizes).all()
    assert (interleaving.counts(every) >= sizes).all()
    assert not (interleaving.counts(every - 1) >= sizes).all()
    with pytest.raises(ArgumentError, match="until must be a number of samples"):
        interleave(1, 1e-11).find_length(np.array([10, 10**9]), "all")
    with pytest.raises(ArgumentError, match="must begin before"):
        Interleaving(stages_of([(0, [1.0]), (MAX_POSITION, [1.0])]))
