"""Accelerate: ``save_state`` and ``load_state`` in the middle of an epoch, by ranks that are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import accelerate
import pytest
import torch
from accelerate.utils import DataLoaderConfiguration

import penstock as ps
import penstock.torch as pt
from penstock.torch.resume import adopt_for_accelerate
from tests.clients.harness import Net, Samples
from tests.clients.resume.lives import Case, Life, Log, run_case, run_elastic


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Accelerate keeps its state in classes: each test ends without."""
    yield
    for shared in (accelerate.state.AcceleratorState, accelerate.state.GradientState, accelerate.state.PartialState):
        shared._reset_state()


def world(case: Case) -> tuple[int, int]:
    """Number of ranks, and the rank."""
    return case.ranks, ps.find_world().rank


def program(*, seedable: bool = False, elastic: bool = False) -> Any:
    """Accelerate's loop as its documentation has it, with a checkpoint."""

    def train(log: Log, folder: Path, case: Case, life: Life) -> None:
        accelerator = accelerate.Accelerator(
            cpu=True, gradient_accumulation_steps=case.accumulation,
            dataloader_config=DataLoaderConfiguration(use_seedable_sampler=seedable),
        )  # fmt: skip
        dataset = Samples(case.samples)
        order: dict[str, Any] = {"shuffle": True}
        if elastic:
            order = {"sampler": ps.DistributedSampler(dataset, *world(case), seed=2, drop_last=case.drop_last)}
        loader = pt.DataLoader(dataset, case.batch, num_workers=case.workers, drop_last=case.drop_last, **order)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        more = {"seed_per_sample": True, "seed": 6} if elastic else {}
        loader = adopt_for_accelerate(accelerator, loader, **more)
        if life.resume:
            accelerator.load_state(str(folder / f"at-{life.resume}"))
        for _ in range(life.resume // len(loader), case.epochs):
            for batch in loader:
                log.batch(batch)
                with accelerator.accumulate(model):
                    loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
                log.loss(loss)
                if log.saves():
                    accelerator.save_state(str(folder / f"at-{log.batches}"))
                log.may_die()
        log.end(model)

    return train


CASES = [
    Case(),
    Case(workers=2, drop_last=True, accumulation=2),
    Case(ranks=2, drop_last=True, accumulation=2),
    Case(ranks=2, workers=2),
    Case(ranks=3, accumulation=2),
    Case(ranks=3, workers=2, drop_last=True),
]


def count(case: Case) -> int:
    """Batches of a rank in an epoch."""
    whole = case.samples // case.batch if case.drop_last else -(-case.samples // case.batch)
    return whole // case.ranks if case.drop_last else -(-whole // case.ranks)


@pytest.mark.parametrize("seedable", [False, True], ids=["unseeded", "seedable"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_killed_twice(case: Case, tmp_path: Path, *, seedable: bool) -> None:
    """Killed within the first epoch, and again within the second: batches, losses and weights are the same."""
    one = count(case)
    lives = [Life(0, 2, 3), Life(2, one + 2, one + 3), Life(one + 2)]
    run_case(program(seedable=seedable), tmp_path, case, lives, case.epochs * one)


@pytest.mark.parametrize("ranks", [(2, 3, 1), (3, 1, 2)], ids=str)
@pytest.mark.parametrize("case", [Case(batch=12, drop_last=True), Case(batch=12, workers=2, samples=48)], ids=str)
def test_on_other_numbers_of_ranks(case: Case, ranks: tuple[int, ...], tmp_path: Path) -> None:
    """With a sampler of penstock's, each life has another number of ranks; every step has the same samples."""
    run_elastic(program(elastic=True), tmp_path, ranks, case, [Life(0, 2, 3), Life(2, 5, 6), Life(5)])


@pytest.mark.parametrize("seedable", [False, True], ids=["unseeded", "seedable"])
def test_saved_after_the_last_batch_of_an_epoch(tmp_path: Path, *, seedable: bool) -> None:
    """The next epoch is a new one, in the order that it would have had."""
    case = Case(ranks=2, workers=2, epochs=3)
    one = count(case)
    lives = [Life(0, one, one + 1), Life(one, 2 * one, 2 * one + 1), Life(2 * one)]
    run_case(program(seedable=seedable), tmp_path, case, lives, 3 * one)
