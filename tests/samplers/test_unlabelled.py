"""Records of a store without a label, in the samplers that go by labels and in batches."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.datasets.store import record_arrays
from penstock.errors import ArgumentError
from penstock.samplers.labels import class_weights
from penstock.samplers.repeat_factor import repeat_factors

LABELS = [*range(3)] * 13


@pytest.fixture
def store(tmp_path: Path) -> ps.Store:
    """40 records of three classes, of which the last one has no label."""
    rows = [{"value": index, "label": label} for index, label in enumerate([*LABELS, None])]
    ps.pack(rows, tmp_path / "rows.lmdb", schema={"value": "int", "label": "label"})
    return ps.open(tmp_path / "rows.lmdb")


def test_a_balanced_epoch_has_no_unlabelled_record(store: ps.Store) -> None:
    """Its classes are those that occur; one warning gives the number of records that are left out."""
    with pytest.warns(UserWarning, match="1 of 40 records have no value in field 'label'.*index 39") as said:
        sampler = ps.ClassBalancedSampler(store, seed=0)

    assert sampler.classes.tolist() == [0, 1, 2]
    assert len(sampler) == 39
    assert 39 not in list(sampler)
    assert len(said) == 1
    assert said[0].filename == __file__


def test_a_missing_label_is_no_rare_class(store: ps.Store) -> None:
    """The repeat factors of the others are those without the record; its own is 0."""
    with pytest.warns(UserWarning, match="1 of 40"):
        sampler = ps.RepeatFactorSampler(store, 0.5, seed=0)

    assert sampler.factors.tolist() == [*repeat_factors(LABELS, 0.5), 0.0]
    assert all(39 not in sampler.order(0, len(sampler), epoch) for epoch in range(5))


@pytest.mark.parametrize("replacement", [True, False])
def test_weights_of_classes_exclude_unlabelled_records(store: ps.Store, replacement: bool) -> None:
    """Their weight is 0, not the default of other classes."""
    with pytest.warns(UserWarning, match="1 of 40"):
        sampler = ps.WeightedRandomSampler({1: 2.0}, 30, replacement, labels=store, seed=0)

    assert 39 not in np.concatenate([sampler.order(0, 30, epoch) for epoch in range(20)])


def test_unlabelled_records_are_drawn_on_request(store: ps.Store) -> None:
    """As a class of their own, without a warning."""
    sampler = ps.ClassBalancedSampler(store, unlabelled="draw", seed=0)
    factors = repeat_factors(store, 0.5, unlabelled="draw")

    drawn = Counter([*LABELS, -1][index] for index in sampler)
    assert drawn == {-1: 10, 0: 10, 1: 10, 2: 10}
    assert factors[39] > factors[0]


def test_unlabelled_records_are_refused_on_request(store: ps.Store) -> None:
    """The error says how many there are, and where the first is."""
    for make in (ps.ClassBalancedSampler, ps.RepeatFactorSampler):
        with pytest.raises(ArgumentError, match=r"1 of 40 records .* index 39"):
            make(store, unlabelled="raise")
    with pytest.raises(ArgumentError, match="unlabelled must be one of draw, skip, raise, got 'drop'"):
        ps.ClassBalancedSampler(store, unlabelled="drop")  # type: ignore[arg-type]  # a mistake


def test_a_store_without_any_label_is_refused(tmp_path: Path) -> None:
    """Nothing could be drawn."""
    ps.pack([{"label": None}] * 3, tmp_path / "none.lmdb", schema={"label": "label"})
    store = ps.open(tmp_path / "none.lmdb")

    for make in (ps.ClassBalancedSampler, ps.RepeatFactorSampler):
        with pytest.raises(ArgumentError, match="at least one"):
            make(store, seed=0)


@pytest.fixture
def with_class(tmp_path: Path) -> ps.Store:
    """12 records of the classes 1, 0, -1 and -2, and two that have none."""
    rows = [{"value": index, "label": label} for index, label in enumerate([*[1, 0, -1, -2] * 3, None, None])]
    ps.pack(rows, tmp_path / "rows.lmdb", schema={"value": "int", "label": "label"})
    return ps.open(tmp_path / "rows.lmdb")


def test_a_class_of_the_number_minus_one_is_drawn(with_class: ps.Store) -> None:
    """MTCNN calls parts of faces -1: they are no missing labels, which the store tells apart."""
    with pytest.warns(UserWarning, match="2 of 14 records have no value in field 'label'.*index 12"):
        sampler = ps.ClassBalancedSampler(with_class, num_samples=40, seed=0)
    with pytest.warns(UserWarning, match="2 of 14"):
        weights = class_weights(with_class, {-1: 5.0})
    both = ps.ClassBalancedSampler(with_class, num_samples=40, unlabelled="draw", seed=0)

    assert Counter([1, 0, -1, -2][index % 4] for index in sampler) == {1: 10, 0: 10, -1: 10, -2: 10}
    assert weights.tolist() == [1, 1, 5, 1] * 3 + [0, 0]
    assert both.classes.tolist() == [-3, -2, -1, 0, 1]
    assert sum(index >= 12 for index in both) == 8


def test_a_batch_with_a_class_of_the_number_minus_one_is_not_reported(
    with_class: ps.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One warning comes with the first batch that has a record without a label, and none before."""
    monkeypatch.setattr(record_arrays, "_warned", set())
    loader = ps.DataLoader(ps.StoreDataset(with_class, fields=("value", "label")), batch_size=4, workers="serial")

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        seen = [(batch[1].tolist(), len(said)) for batch in loader]

    assert [labels for labels, _ in seen] == [[1, 0, -1, -2]] * 3 + [[-1, -1]]
    assert len(said) == 1


def test_a_path_is_no_labels(tmp_path: Path) -> None:
    """The error says what to write."""
    for path in ("p.lmdb", tmp_path):
        with pytest.raises(ArgumentError, match=r"labels should be a store, such as penstock\.open\('.*but got a path"):
            ps.ClassBalancedSampler(path, seed=0)  # type: ignore[arg-type]  # a mistake


def test_every_value_of_an_array_is_a_class() -> None:
    """-1 and 1 may be the labels of an array; only a store says that a value is missing."""
    assert ps.ClassBalancedSampler([-1, 1, 1], seed=0).classes.tolist() == [-1, 1]


@pytest.mark.parametrize("is_filled", [True, False])
def test_a_batch_with_a_missing_label_is_reported_once(
    store: ps.Store, monkeypatch: pytest.MonkeyPatch, is_filled: bool
) -> None:
    """Filled and collated batches hold -1, and one warning says so."""
    monkeypatch.setattr(record_arrays, "_warned", set())
    transform = None if is_filled else lambda sample: sample
    dataset = ps.StoreDataset(store, fields=("value", "label"), transform=transform)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        labels = np.concatenate([batch[1] for _ in range(2) for batch in ps.DataLoader(dataset, batch_size=8)])

    assert labels.tolist() == [*LABELS, -1] * 2
    assert [str(each.message).partition(": ")[2][:45] for each in said] == [
        "some records have no value in field 'label', "[:45]
    ]


def test_nothing_is_said_where_unlabelled_records_are_left_out(
    store: ps.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subset without them has no batch with -1."""
    monkeypatch.setattr(record_arrays, "_warned", set())
    dataset: ps.Subset[Any] = ps.Subset(ps.StoreDataset(store, fields=("value", "label")), range(39))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        labels = np.concatenate([batch[1] for batch in ps.DataLoader(dataset, batch_size=8)])

    assert labels.tolist() == LABELS
