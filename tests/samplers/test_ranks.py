"""RankPartition and RecentResults: whose turn it is, and what is kept."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.samplers import DistributedSampler
from penstock.samplers.ranks import DropLast, RankPartition, RecentResults

POLICIES = st.sampled_from([False, True, "uneven"])


@given(total=st.integers(0, 60), consumed=st.integers(0, 80), num_replicas=st.integers(1, 9), drop_last=POLICIES)
def test_whatever_was_consumed_the_rest_is_dealt_out(
    total: int, consumed: int, num_replicas: int, drop_last: DropLast
) -> None:
    """Ranks in turn have what is left, once each; then the order's head, which is marked, or not the last few."""
    deals = [RankPartition(num_replicas, rank, drop_last) for rank in range(num_replicas)]

    dealt = [deal.positions(0, 1000, total, consumed) for deal in deals]
    marked = [deal.find_repeats(0, 1000, total, consumed) for deal in deals]
    turns = [position for turn in itertools.zip_longest(*dealt) for position in turn if position is not None]

    left = list(range(consumed, total))
    surplus = -len(left) % num_replicas
    if drop_last is True:
        assert turns == left[: len(left) // num_replicas * num_replicas]
    elif drop_last == "uneven":
        assert turns == left
    else:
        assert turns == left + [position % total for position in range(total, total + surplus)]
    assert [len(positions) for positions in dealt] == [deal.count(total, consumed) for deal in deals]
    assert max(map(len, dealt)) - min(map(len, dealt)) <= (drop_last == "uneven" and len(left) % num_replicas > 0)
    unmarked = [
        position for positions, repeats in zip(dealt, marked, strict=True) for position in positions[~repeats].tolist()
    ]
    assert sorted(unmarked) == sorted(set(turns) & set(left))
    assert sum(map(sum, marked)) == (0 if drop_last else surplus)


@given(total=st.integers(1, 60), num_replicas=st.integers(1, 9), drop_last=st.booleans(), start=st.integers(0, 70))
def test_a_stretch_is_cut_from_the_whole(total: int, num_replicas: int, drop_last: bool, start: int) -> None:
    """positions(start, stop) is that part of all of them."""
    deal = RankPartition(num_replicas, num_replicas - 1, drop_last)

    assert np.array_equal(deal.positions(start, start + 5, total), deal.positions(0, 1000, total)[start : start + 5])


def test_what_remains_has_random_access_and_says_where_it_begins() -> None:
    """remaining() is a sampler of the rest, to be asked for any stretch."""
    sampler = DistributedSampler(range(20), 2, 1, shuffle=False)

    rest = sampler.remaining(7)

    assert len(rest) == 7
    assert rest.order(0, 7).tolist() == [8, 10, 12, 14, 16, 18, 0]
    assert rest.order(2, 4).tolist() == [12, 14]
    assert rest.order(7, 9).tolist() == []
    assert rest.find_repeats(5, 9).tolist() == [False, True]
    assert rest.signature() == {**sampler.signature(), "consumed": 7}
    assert len(sampler.remaining(21)) == 0


def test_the_newest_results_are_kept() -> None:
    """A result is computed once while it is among the newest, and no more than those are kept."""
    calls: list[int] = []

    def make(key: int) -> str:
        calls.append(key)
        return str(key)

    for size, expected in ((1, [1, 2, 1, 2]), (2, [1, 2]), (3, [1, 2])):
        calls.clear()
        recent: RecentResults[str] = RecentResults(size)
        found = [recent.get((key,), lambda key=key: make(key)) for key in (1, 1, 2, 1, 2)]  # type: ignore[misc]  # mypy cannot infer a lambda with a default

        assert found == ["1", "1", "2", "1", "2"]
        assert calls == expected


def test_what_is_kept_does_not_travel() -> None:
    """It pickles empty: a worker computes what it needs."""
    recent: RecentResults[list[int]] = RecentResults(1)
    recent.get((1,), lambda: list(range(100_000)))

    copy = pickle.loads(pickle.dumps(recent))

    assert len(pickle.dumps(recent)) < 200
    assert copy.get((1,), lambda: [5]) == [5]
