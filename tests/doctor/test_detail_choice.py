"""Which batches are observed in detail."""

from __future__ import annotations

import pytest

from penstock.doctor.watching.detail_choice import DetailChoice


def passed_over(batch_ns: float, cost_ns: float, count: int) -> list[int]:
    """How many batches are passed over after each of ``count`` batches in detail."""
    choice = DetailChoice()
    passed = []
    for _ in range(count):
        choice.choose(batch_ns, cost_ns)
        passed.append(choice.left)
    return passed


def test_each_long_batch_is_observed() -> None:
    """Where details cost little of a batch's time, none is passed over."""
    assert passed_over(100e6, 200e3, 300) == [0] * 300


def test_the_first_batches_are_observed() -> None:
    """A script with few steps is seen in detail, however short they are."""
    assert passed_over(50e3, 200e3, 39) == [0] * 39


@pytest.mark.parametrize(("batch_ns", "cost_ns"), [(1e6, 100e3), (2e6, 200e3), (20e6, 100e3)])
def test_details_cost_little(batch_ns: float, cost_ns: float) -> None:
    """Of short batches so few are observed that this costs 0.3 % of their time, but not fewer."""
    passed = passed_over(batch_ns, cost_ns, 4000)[100:]

    cost = cost_ns * len(passed) / (batch_ns * (len(passed) + sum(passed)))

    assert 0.0023 < cost < 0.0031


def test_some_are_observed_whatever_they_cost() -> None:
    """Of the shortest batches one of 256 is observed, and never fewer than one of 511."""
    passed = passed_over(1e3, 200e3, 2000)[100:]

    assert max(passed) < 511
    assert 240 < sum(passed) / len(passed) < 270


def test_distances_differ() -> None:
    """A batch that is slow each n-th time is neither always passed over, nor always observed."""
    passed = passed_over(1e6, 30e3, 1000)[100:]

    assert len(set(passed)) == 2 * 11 - 1


def test_a_batch_is_unusual_if_it_is_far_longer_than_others() -> None:
    """Eight times as long, and longer than another program may have the processor."""
    choice = DetailChoice()
    choice.choose(50e6, 1e3)
    long_ns = choice.long_ns
    choice.choose(1e5, 1e3)

    assert long_ns == 400e6
    assert choice.long_ns == 20e6
