"""torch.distributed.checkpoint: a loader among what all ranks save together, and load on as many ranks or others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save, save

from penstock.torch.resume import JobLoader
from tests.clients.harness import Net
from tests.clients.resume.lives import Case, Life, Log, Program, live, run_case
from tests.clients.resume.ranked import count, end, join, make_loader, order_of_job

Save = Callable[[dict[str, Any], Path], None]


def save_now(state: dict[str, Any], place: Path) -> None:
    """As training waits."""
    save(state, checkpoint_id=place)


def save_beside(state: dict[str, Any], place: Path) -> None:
    """As training goes on; here it is awaited, since the ranks are about to be killed."""
    async_save(state, checkpoint_id=place).result()  # type: ignore[union-attr]  # a future, by default


def program(keep: Save = save_now, **more: Any) -> Program:
    """A loop with gradients averaged over ranks."""

    def train(log: Log, folder: Path, case: Case, life: Life) -> None:
        join(case)
        loader, model = JobLoader(make_loader(case, **more)), Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        state = {"model": model, "loader": loader}
        if life.resume:
            load(state, checkpoint_id=folder / f"at-{life.resume}")
        for _ in range(case.epochs - life.resume // len(loader)):
            for batch in loader:
                log.batch(batch)
                loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
                log.note("loss", loss)
                (loss / case.accumulation).backward()  # type: ignore[no-untyped-call]  # torch's
                if log.batches % case.accumulation == 0:
                    for parameter in model.parameters():
                        assert parameter.grad is not None
                        dist.all_reduce(parameter.grad)
                    optimizer.step()
                    optimizer.zero_grad()
                if log.saves():
                    keep(state, folder / f"at-{log.batches}")
                log.may_die()
        end(log, model)

    return train


CASES = [
    Case(),
    Case(workers=2, drop_last=True, accumulation=2),
    Case(ranks=2, accumulation=2),
    Case(ranks=2, workers=2),
    Case(ranks=3, drop_last=True),
    Case(ranks=3, workers=2, accumulation=2),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_killed_twice(case: Case, tmp_path: Path) -> None:
    """Within the first epoch, and within the second: batches, losses, weights and random states are the same."""
    one, first = count(case), 2
    second = (one + 2) // 2 * 2  # where no gradients wait for the next batch
    lives = [Life(0, first, first + 1), Life(first, second, second + 1), Life(second)]
    run_case(program(), tmp_path, case, lives, case.epochs * one)


def test_saved_beside_the_training(tmp_path: Path) -> None:
    """``async_save`` asks for the state in the thread that calls it."""
    case = Case(ranks=2, workers=2, epochs=1)
    run_case(program(save_beside), tmp_path, case, [Life(0, 3, 4), Life(3)], count(case))


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2)])
@pytest.mark.parametrize(("workers", "drop_last"), [(2, False), (0, True)])
def test_another_number_of_ranks(before: int, after: int, workers: int, drop_last: bool, tmp_path: Path) -> None:
    """What is left of the epoch is divided among the ranks that there are now, in the same order, and none is lost.

    Each sample is the same to the bit: its random numbers are drawn from its own key.
    """
    train = program(seed=7, seed_per_sample=True)
    order = order_of_job(live(train, tmp_path, Case(epochs=1), Life()))
    case = Case(before, workers, drop_last, epochs=1)
    begun = live(train, tmp_path, case, Life(0, 2, 2))
    ended = live(train, tmp_path, Case(after, workers, drop_last, epochs=1), Life(2))

    first, rest = order_of_job(begun), order_of_job(ended)
    left = order[len(first) :]
    turns = len(left) // after // case.batch * case.batch if drop_last else len(left)  # a short batch is left out
    kept = left[: turns * after]
    assert len(first) == 2 * case.batch * before
    assert first == order[: len(first)]
    assert rest[: len(kept)] == kept
