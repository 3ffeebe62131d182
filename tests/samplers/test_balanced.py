"""ClassBalancedSampler: equal classes, fair within each, labels from a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import penstock as ps
from penstock.errors import ArgumentError
from penstock.samplers import ClassBalancedSampler

LABELS = np.repeat([0, 1, 2, 7], [1000, 100, 9, 1])


@given(
    labels=st.lists(st.integers(-2, 5), min_size=1, max_size=60),
    num_samples=st.integers(1, 80) | st.none(),
    epoch=st.integers(0, 3),
)
def test_classes_come_equally_often(labels: list[int], num_samples: int | None, epoch: int) -> None:
    """Counts of any two classes differ by one at most, and not at all by default; within a class, samples' likewise."""
    sampler = ClassBalancedSampler(labels, num_samples, seed=1)

    order = sampler.order(0, len(sampler), epoch)

    counts = [int((np.array(labels)[order] == label).sum()) for label in set(labels)]
    assert max(counts) - min(counts) <= (num_samples is not None)
    for label in set(labels):
        members = [int((order == index).sum()) for index, given_label in enumerate(labels) if given_label == label]
        assert max(members) - min(members) <= 1


def test_the_default_length_is_the_data_rounded_up() -> None:
    """As many samples as labels, up to the next multiple of the number of classes."""
    sampler = ClassBalancedSampler(LABELS, seed=1)

    counts = {int(label): int((LABELS[list(sampler)] == label).sum()) for label in sampler.classes}

    assert len(sampler) == 1112
    assert counts == {0: 278, 1: 278, 2: 278, 7: 278}


def test_a_large_class_is_gone_through_over_epochs() -> None:
    """No sample of a class comes again, in whichever epoch, before all of it has come."""
    sampler = ClassBalancedSampler(LABELS, 400, seed=2)

    taken = np.concatenate([sampler.order(0, 400, epoch) for epoch in range(10)])

    assert sorted(taken[LABELS[taken] == 0].tolist()) == list(range(1000))
    assert np.all(np.bincount(taken[LABELS[taken] == 1] - 1000) == 10)


def test_odd_slots_go_to_other_classes_each_epoch() -> None:
    """Where classes do not divide the epoch, each class has its turn to come once more (chi-squared)."""
    sampler = ClassBalancedSampler([0, 1, 2, 3, 4], 11, seed=3)

    orders = [sampler.order(0, 11, epoch) for epoch in range(2000)]

    more = np.array([int(np.bincount(order, minlength=5).argmax()) for order in orders])
    assert all(sorted(np.bincount(order, minlength=5)) == [2, 2, 2, 2, 3] for order in orders)
    assert ((np.bincount(more, minlength=5) - 400) ** 2 / 400).sum() < 18.5  # p = 0.001 with 4 degrees of freedom


def test_classes_are_mixed_evenly_over_the_epoch() -> None:
    """Any class is as likely in any part of an epoch (chi-squared over four quarters)."""
    labels = np.arange(4000) % 4
    sampler = ClassBalancedSampler(labels, seed=4)

    order = labels[sampler.order(0, 4000)].reshape(4, 1000)

    table = np.array([np.bincount(quarter, minlength=4) for quarter in order])
    assert ((table - 250) ** 2 / 250).sum() < 27.9  # p = 0.001 with 9 degrees of freedom


def test_neighbours_are_of_independent_classes() -> None:
    """Classes do not take turns: the next sample's class is as likely the same as chance has it."""
    labels = np.arange(4000) % 4

    order = labels[ClassBalancedSampler(labels, seed=4).order(0, 4000)]

    assert 880 < (order[1:] == order[:-1]).sum() < 1120  # 1000 on average, standard deviation 27


def test_what_an_epoch_takes_of_a_class_is_spread_over_it() -> None:
    """Part of a large class is a random part, and not neighbours as they are stored; another seed's is another one."""
    parts = [
        set(ClassBalancedSampler([0] * 1000 + [1] * 10, 200, seed=seed)) - set(range(1000, 1010)) for seed in (1, 2)
    ]

    for part in parts:
        beside = sum(index + 1 in part for index in part)
        assert len(part) == 100
        assert beside < 25  # 10 on average
    assert len(parts[0] & parts[1]) < 30


def test_labels_come_from_a_store_without_reading_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store is asked for its column alone, and gives the order that the array gives."""
    for name, count in (("cat", 5), ("dog", 2)):
        (tmp_path / name).mkdir()
        for number in range(count):
            Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / name / f"{number}.jpg")
    with ps.open(str(tmp_path)) as store:
        monkeypatch.setattr(type(store), "read", lambda *_: pytest.fail("an image was read"))

        sampler = ps.ClassBalancedSampler(store, seed=5)

        assert list(sampler) == list(ps.ClassBalancedSampler([0] * 5 + [1] * 2, seed=5))
        with pytest.raises(ArgumentError, match="breed"):
            ps.ClassBalancedSampler(store, field="breed")


def test_a_state_of_other_labels_is_refused() -> None:
    """The signature tells labels apart."""
    state = ClassBalancedSampler([0, 1, 1, 0]).state_dict()

    with pytest.raises(ps.StateError, match="labels="):
        ClassBalancedSampler([0, 1, 0, 1]).load_state_dict(state)


@pytest.mark.parametrize("labels", [[], [0.5, 1.0], [[], []], [[0.5], [1]], 5, ["cat"], [True, False]])
def test_labels_are_integers(labels: Any) -> None:
    """Anything else is refused, with what it is; so are samples of which none has a class."""
    with pytest.raises(ArgumentError, match="labels should"):
        ClassBalancedSampler(labels)


@given(
    labels=st.lists(st.lists(st.integers(0, 4), max_size=4), min_size=1, max_size=40).filter(any),
    epoch=st.integers(0, 3),
)
def test_samples_of_several_classes_are_drawn_for_each_of_them(labels: list[list[int]], epoch: int) -> None:
    """Each class is drawn for equally often, only by samples that have it; a sample without a class is never drawn."""
    sampler = ClassBalancedSampler(labels, seed=3)

    order = sampler.order(0, len(sampler), epoch).tolist()

    classes = sorted({label for each in labels for label in each})
    turns = len(order) // len(classes)
    assert len(order) == turns * len(classes)
    assert turns == -(-len(labels) // len(classes))
    members = {label: [index for index, each in enumerate(labels) if label in each] for label in classes}
    expected = {  # of each class, a run of its ring: every member floor or ceil of the mean
        index: sum(turns // len(members[label]) for label in classes if index in members[label])
        for index in range(len(labels))
    }
    most = {
        index: sum(-(-turns // len(members[label])) for label in classes if index in members[label])
        for index in range(len(labels))
    }
    counts = np.bincount(order, minlength=len(labels))
    assert all(expected[index] <= counts[index] <= most[index] for index in range(len(labels)))


def test_lists_of_one_class_are_labels() -> None:
    """The order is that of one label for each sample, and so is the state."""
    single = [0, 1, 1, 2, 0, 1]
    one, other = ClassBalancedSampler(single, seed=5), ClassBalancedSampler([[label] for label in single], seed=5)

    assert np.array_equal(one.order(0, len(one), 2), other.order(0, len(other), 2))
    other.load_state_dict(one.state_dict())


def test_a_number_of_samples_is_a_positive_integer() -> None:
    """Anything else is refused."""
    with pytest.raises(ArgumentError, match="num_samples should be a positive integer value"):
        ClassBalancedSampler([0, 1], 0)
