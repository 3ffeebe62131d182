"""Composer: a run that is loaded in the middle of an epoch goes on without reading what it has had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from composer import Callback, Trainer
from composer.models import ComposerClassifier
from composer.utils import dist

import penstock.torch as pt
from penstock.torch.resume import ComposerResume
from tests.clients.harness import Net, Samples
from tests.clients.resume.lives import Case, Life, Log, run_case

pytestmark = [
    # The last batch of an epoch is short.
    pytest.mark.filterwarnings("ignore:Cannot split tensor of length:UserWarning"),
    pytest.mark.filterwarnings("ignore:The ``compute`` method of metric:UserWarning"),
    # composer's own temporary folders, which it leaves to the collector.
    pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning"),
]


class Pairs(Samples):
    """Without the index: composer splits pairs. Counts what is read in this process."""

    read = 0

    def __getitem__(self, index: int) -> Any:
        Pairs.read += 1
        return super().__getitem__(index)[:2]


class Note(Callback):  # type: ignore[misc]  # composer is not there for mypy
    """Notes batches and losses, saves and dies as the life says."""

    def __init__(self, log: Log, folder: Path) -> None:
        self.log, self.folder = log, folder

    def batch_start(self, state: Any, logger: Any) -> None:
        """A batch that is trained on."""
        self.log.batch(state.batch)

    def after_loss(self, state: Any, logger: Any) -> None:
        """The loss."""
        self.log.loss(state.loss)

    def batch_checkpoint(self, state: Any, logger: Any) -> None:
        """After a step."""
        self.log.may_die()


def program(log: Log, folder: Path, case: Case, life: Life) -> None:
    """A trainer as its documentation has it, with one more callback."""
    dataset = Pairs(case.samples)
    order: dict[str, Any] = {"shuffle": True}
    if case.ranks > 1:
        order = {"sampler": dist.get_sampler(dataset, shuffle=True)}
    torch.manual_seed(1)
    model = ComposerClassifier(Net(), num_classes=2)
    saved = {"save_folder": str(folder), "save_interval": f"{life.save}ba", "save_filename": "ba{batch}.pt"}
    trainer = Trainer(
        model=model, optimizers=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), device="cpu", seed=5,
        train_dataloader=pt.DataLoader(
            dataset, case.batch, num_workers=case.workers, drop_last=case.drop_last, **order
        ),
        max_duration=f"{case.epochs}ep", progress_bar=False, callbacks=[ComposerResume(), Note(log, folder)],
        device_train_microbatch_size=case.batch // case.accumulation,
        load_path=str(folder / f"ba{life.resume}.pt") if life.resume else None, **(saved if life.save else {}),
    )  # fmt: skip
    trainer.fit()
    trainer.close()
    log.note("step", int(trainer.state.timestamp.batch.value))
    log.end(model)


CASES = [
    Case(accumulation=2),
    Case(workers=2, drop_last=True),
    Case(ranks=2, drop_last=True),
    Case(ranks=2, workers=2, accumulation=2),
    Case(ranks=3, workers=2, accumulation=2, drop_last=True),
    Case(ranks=3),
]


def count(case: Case) -> int:
    """Batches of a rank in an epoch: the sampler repeats samples at the end, or leaves some out."""
    own = -(-case.samples // case.ranks)
    return own // case.batch if case.drop_last else -(-own // case.batch)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_killed_twice(case: Case, tmp_path: Path) -> None:
    """Killed within the first epoch, and again within the second: batches, losses and weights are the same."""
    one = count(case)
    lives = [Life(0, 2, 3), Life(2, one + 2, one + 3), Life(one + 2)]
    run_case(program, tmp_path, case, lives, case.epochs * one)
