"""The recording notices what it is there to notice: otherwise no test here could fail."""

from __future__ import annotations

import importlib
import random
from typing import Any

import numpy as np
import pytest
import torch

import penstock.torch as pt
from tests.clients.harness import GIVEN, REPLACED, TORCH, Recording, Samples, assert_same, modules_over, record


def epoch(kind: Any, recording: Recording, **arguments: Any) -> None:
    """Note each batch of an epoch."""
    for batch in kind(Samples(), **{"batch_size": 4, "shuffle": True, "num_workers": 1, **arguments}):
        recording.note("batch", batch)


def test_equal_runs_are_equal() -> None:
    """The same loader twice is the same recording, and 26 samples are 7 batches."""
    assert_same(record(GIVEN, epoch), record(TORCH, epoch), batches=7)


@pytest.mark.parametrize(
    "other",
    [
        {"shuffle": False},
        {"num_workers": 0},  # the same order and other random numbers in the samples
        {"worker_init_fn": torch.manual_seed},
        {"worker_init_fn": random.seed},
        {"worker_init_fn": np.random.seed},  # the global one is meant
        {"batch_size": 13},
        {"drop_last": True},
    ],
    ids="-".join,
)
def test_another_order_or_seed_is_a_difference(other: dict[str, Any]) -> None:
    """One argument that changes the batches is enough."""
    theirs = record(TORCH, epoch)

    ours = record(GIVEN, lambda kind, recording: epoch(kind, recording, **other))

    with pytest.raises(AssertionError, match=r"differs|instead of"):
        assert_same(ours, theirs, batches=7)


@pytest.mark.parametrize(
    "draw",
    [lambda: torch.rand(()), random.random, np.random.random],  # the global one is meant
    ids=["torch", "random", "numpy"],
)
def test_one_more_draw_is_a_difference(draw: Any) -> None:
    """A number more, drawn from a global generator after the last batch, is seen."""

    def longer(kind: Any, recording: Recording) -> None:
        epoch(kind, recording)
        draw()

    theirs = record(TORCH, epoch)

    with pytest.raises(AssertionError, match="generators"):
        assert_same(record(GIVEN, longer), theirs, batches=7)


def test_a_run_that_did_not_use_our_loader_is_found() -> None:
    """Equal recordings of which neither used our loader compare nothing."""
    theirs = record(TORCH, epoch)

    with pytest.raises(AssertionError, match="iterated 0 times"):
        assert_same(record(TORCH, epoch), theirs, batches=7)


def test_names_are_ours_while_they_are_replaced() -> None:
    """``torch.utils.data.DataLoader`` is ours within the run and torch's after it; modules are made anew."""
    kinds = []

    def run(kind: Any, recording: Recording) -> None:
        kinds.extend([kind, torch.utils.data.DataLoader, torch.utils.data.dataloader.DataLoader])

    record(REPLACED, run)
    before = importlib.import_module("torch.utils.data.graph")
    with modules_over("torch.utils.data.graph") as (fresh,):
        pass

    assert kinds == 3 * [pt.DataLoader]
    assert torch.utils.data.DataLoader is not pt.DataLoader
    assert fresh is not before
    assert importlib.import_module("torch.utils.data.graph") is before
