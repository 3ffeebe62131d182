"""albumentations 2: its transforms draw from generators of their own, which no global seed reaches.

Without ``seed_per_sample`` a dataset that augments by it gives what it gives under torch's loader, to the bit; with it,
the same for any kind and number of workers, epoch by epoch, and after a resume.
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import pytest

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # it would ask the network for a newer version
torch = pytest.importorskip("torch")
A: Any = pytest.importorskip("albumentations", minversion="2.0")

from torch.utils import data  # noqa: E402  # behind the skip

import penstock as ps  # noqa: E402  # as above
import penstock.torch as pt  # noqa: E402  # as above

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

WORKERS: list[dict[str, Any]] = [
    {},
    {"num_workers": 2, "workers": "threads"},
    {"num_workers": 1, "workers": "processes"},
    {"num_workers": 3, "workers": "processes"},
]


def compose(seed: int | None = None) -> Any:
    """Flips, one of two colour changes, and a crop."""
    chosen = A.OneOf([A.RandomBrightnessContrast(p=1), A.HueSaturationValue(p=1)], p=0.7)
    return A.Compose([A.RandomCrop(24, 24), A.HorizontalFlip(p=0.5), A.VerticalFlip(p=0.5), chosen], seed=seed)


class Augmented(data.Dataset[Any]):
    """Pictures of noise through a Compose, and one more number from a transform that stands alone."""

    def __init__(self, seed: int | None = None) -> None:
        self.compose, self.alone = compose(seed), A.HorizontalFlip(p=0.5)

    def __len__(self) -> int:
        return 22

    def __getitem__(self, index: int) -> Any:
        image = np.random.default_rng(index).integers(0, 256, (32, 40, 3), np.uint8)
        ramp = np.arange(6, dtype=np.uint8).reshape(1, 2, 3)
        return self.compose(image=image)["image"].transpose(2, 0, 1).copy(), self.alone(image=ramp)["image"].copy()


def frozen(batches: Any) -> list[list[bytes]]:
    """Batches by their bytes."""
    return [[np.asarray(part).tobytes() for part in batch] for batch in batches]


@pytest.mark.parametrize("num_workers", [0, 1, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_by_default_batches_are_torch_s(num_workers: int, persistent: bool) -> None:
    """Two shuffled epochs of a seeded Compose, whose state workers copy, or seed anew, as its version has it."""
    if persistent and not num_workers:
        pytest.skip("nothing persists without workers")
    runs = []
    for module in (data, pt):
        torch.manual_seed(5)
        loader = module.DataLoader(
            Augmented(seed=3), 4, shuffle=True, num_workers=num_workers, persistent_workers=persistent,
            multiprocessing_context="fork" if num_workers else None,
        )  # fmt: skip
        runs.append([frozen(loader) for _ in range(2)])
        del loader

    assert [[batch[0] for batch in epoch] for epoch in runs[1]] == [[batch[0] for batch in epoch] for epoch in runs[0]]


@pytest.mark.parametrize("module", [ps, pt])
@pytest.mark.parametrize("workers", WORKERS, ids=str)
def test_seeded_by_sample_any_workers_draw_the_same(module: Any, workers: dict[str, Any]) -> None:
    """Two shuffled epochs; each run has a Compose of its own, with a state of its own."""
    given: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 5, "seed_per_sample": True}
    expected, found = (module.DataLoader(Augmented(), **given, **more) for more in ({}, workers))

    for _ in range(2):
        assert frozen(found) == frozen(expected)


def test_epochs_and_transforms_draw_apart() -> None:
    """A second epoch augments otherwise, and transforms of a Compose are independent: two flips in four ways."""
    loader = ps.DataLoader(Augmented(), 22, seed=5, seed_per_sample=True)
    flips = Flips()

    assert frozen(loader) != frozen(loader)
    ways = {way for batch in ps.DataLoader(flips, 64, seed=5, seed_per_sample=True) for way in map(bytes, batch)}
    assert len(ways) == 4


class Flips(data.Dataset[Any]):
    """A picture of four different pixels, flipped."""

    def __init__(self) -> None:
        self.compose = A.Compose([A.HorizontalFlip(p=0.5), A.VerticalFlip(p=0.5)])

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return self.compose(image=np.arange(12, dtype=np.uint8).reshape(2, 2, 3))["image"].copy()


@pytest.mark.parametrize("workers", WORKERS, ids=str)
def test_a_resumed_run_draws_the_same(workers: dict[str, Any]) -> None:
    """From the middle of an epoch, in another process as it were."""
    given: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 5, "seed_per_sample": True}
    straight = frozen(ps.DataLoader(Augmented(), **given))
    loader = ps.DataLoader(Augmented(), **given, **workers)
    walk = iter(loader)
    next(walk), next(walk)
    resumed = ps.DataLoader(Augmented(), **given)
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))

    assert frozen(resumed) == straight[2:]


def test_check_knows_it() -> None:
    """Its generators are seeded, so nothing is said of them."""
    loader = pt.DataLoader(Augmented(), 4, num_workers=2, seed_per_sample=True)

    assert "shared-generator" not in {finding.rule for finding in pt.check(loader)}
