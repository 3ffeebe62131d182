"""Composer: a run that is loaded in the middle of an epoch goes on without reading what it has had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from composer import Callback, Trainer
from composer.models import ComposerClassifier
from composer.utils import dist

import penstock as ps
import penstock.torch as pt
from penstock.torch.resume import ComposerResume
from tests.clients.harness import Net, Samples
from tests.clients.resume.lives import Case, Life, Log, run_case, run_elastic

pytestmark = [
    # The last batch of an epoch is short.
    pytest.mark.filterwarnings("ignore:Cannot split tensor of length:UserWarning"),
    # A run that resumes at the end of an epoch finds nothing more in it.
    pytest.mark.filterwarnings("ignore:No batches were trained for global rank 0:UserWarning"),
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

    def __init__(self, log: Log) -> None:
        self.log = log

    def batch_start(self, state: Any, logger: Any) -> None:
        """A batch that is trained on."""
        x, y = state.batch
        self.log.batch([x[:, :3].contiguous(), y, x[:, 3].long()])  # as ``harness.Samples``

    def after_loss(self, state: Any, logger: Any) -> None:
        """The loss."""
        self.log.loss(state.loss)

    def batch_checkpoint(self, state: Any, logger: Any) -> None:
        """After a step."""
        self.log.may_die()


TORCHS: Any = torch.utils.data.DistributedSampler


class RankSampler(ps.DistributedSampler, TORCHS):  # type: ignore[misc]  # their attributes have other types
    """penstock's, which Composer takes for torch's: it asks for that class on several ranks."""


def program(*, elastic: bool = False, part: int = -1) -> Any:
    """A trainer as its documentation has it, with one more callback."""

    def train(log: Log, folder: Path, case: Case, life: Life) -> None:
        dataset = Pairs(case.samples)
        more: dict[str, Any] = {"shuffle": True, "seed": 4}
        if elastic:
            sampler = RankSampler(dataset, case.ranks, dist.get_global_rank(), seed=2, drop_last=case.drop_last)
            more = {"sampler": sampler, "seed_per_sample": True, "seed": 6}
        elif case.ranks > 1:
            more = {"sampler": dist.get_sampler(dataset, shuffle=True)}
        torch.manual_seed(1)
        model = ComposerClassifier(Net(), num_classes=2)
        saved = {"save_folder": str(folder), "save_interval": f"{life.save}ba", "save_filename": "ba{batch}.pt"}
        trainer = Trainer(
            model=model, optimizers=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), device="cpu", seed=5,
            train_dataloader=pt.DataLoader(
                dataset, case.batch, num_workers=case.workers, drop_last=case.drop_last, **more
            ),
            max_duration=f"{case.epochs}ep", progress_bar=False, callbacks=[ComposerResume(), Note(log)],
            device_train_microbatch_size=case.batch // case.accumulation, train_subset_num_batches=part,
            load_path=str(folder / f"ba{life.resume}.pt") if life.resume else None, **(saved if life.save else {}),
        )  # fmt: skip
        read = Pairs.read
        trainer.fit()
        trainer.close()
        if not case.workers and not elastic and part < 0:
            rest = case.epochs * count(case) - life.resume
            assert Pairs.read - read <= rest * case.batch, "samples were read again"
        log.note("step", int(trainer.state.timestamp.batch.value))
        log.end(model)

    return train


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
    run_case(program(), tmp_path, case, lives, case.epochs * one)


@pytest.mark.parametrize("part", [-1, 5], ids=["whole", "part"])
def test_saved_after_the_last_batch_of_an_epoch(tmp_path: Path, part: int) -> None:
    """The next epoch is a new one, in the order that it would have had; also where an epoch is a part of the loader."""
    case = Case(epochs=3)
    one = count(case) if part < 0 else part
    lives = [Life(0, one, one + 1), Life(one, 2 * one, 2 * one + 1), Life(2 * one)]
    run_case(program(part=part), tmp_path, case, lives, 3 * one)


@pytest.mark.parametrize("case", [Case(batch=12, drop_last=True), Case(batch=12, workers=2, samples=48)], ids=str)
def test_on_other_numbers_of_ranks(case: Case, tmp_path: Path) -> None:
    """With a sampler of penstock's, each life has another number of ranks; every step has the same samples."""
    run_elastic(program(elastic=True), tmp_path, (2, 3, 1), case, [Life(0, 2, 3), Life(2, 5, 6), Life(5)])
