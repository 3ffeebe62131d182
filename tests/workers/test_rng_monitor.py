"""Whether a worker's generators have moved, and that they can be put back."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from penstock.workers import info

DRAWS: dict[str, Callable[[], Any]] = {
    "random": random.random,
    "random.gauss": lambda: random.gauss(0, 1),
    "numpy": np.random.random,
    "numpy, one of a pair": np.random.standard_normal,
    "numpy, many": lambda: np.random.permutation(2000).sum(),  # noqa: NPY002  # the global one is the subject
    "torch": lambda: torch.rand(()).item(),
}


@pytest.fixture(autouse=True)
def _as_before() -> Any:
    state = info.rng_state()
    yield
    info.restore_rng(state)


@pytest.mark.parametrize("name", DRAWS)
def test_every_draw_is_noticed_and_can_be_repeated(name: str) -> None:
    """After each draw the state is told; restoring it gives the same numbers again."""
    draw = DRAWS[name]
    watch = info.RngMonitor()
    for _ in range(7):
        draw()
        state = watch.changed()

        assert state is not None
        after = draw(), draw(), draw()
        info.restore_rng(state)
        assert (draw(), draw(), draw()) == after
        info.restore_rng(state)


def test_what_does_not_move_is_not_told() -> None:
    """Without a draw there is nothing to send."""
    np.random.standard_normal()  # noqa: NPY002  # the global one is the subject
    watch = info.RngMonitor()

    assert [watch.changed() for _ in range(3)] == [None] * 3


def test_a_seed_is_noticed() -> None:
    """Seeding moves a generator as drawing does."""
    watch = info.RngMonitor()
    np.random.seed(5)  # noqa: NPY002  # the global one is the subject

    assert watch.changed() is not None


def test_seeds_are_those_of_torch() -> None:
    """NumPy's seed mixes worker and base seed as torch's workers do."""
    from torch.utils.data._utils.worker import _generate_state

    for base_seed in (0, 1, 2**31, 2**63 - 1, 0x1234_5678_9ABC_DEF0):
        for worker in (0, 1, 7, 300):
            assert info._numpy_seed(base_seed, worker).tolist() == _generate_state(base_seed, worker)  # type: ignore[no-untyped-call]  # torch's
