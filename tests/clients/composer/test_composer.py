"""MosaicML's composer: ``Trainer.fit`` with evaluation, distributed samplers, and resume within an epoch.

It runs in an environment of its own (see requirements/composer.in), with the torch of the others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from composer import Callback, Trainer
from composer.models import ComposerClassifier
from composer.utils import dist

from tests.clients.harness import (
    EPOCHS,
    GIVEN,
    LOADINGS,
    OURS,
    TORCH,
    Loading,
    Net,
    Recording,
    Samples,
    assert_same,
    record,
)

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
    """Without the index: composer splits pairs."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)[:2]


class Note(Callback):  # type: ignore[misc]  # composer is not there for mypy
    """Notes batches and losses."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    def after_dataloader(self, state: Any, logger: Any) -> None:
        """A training batch."""
        self.recording.note("batch", state.batch)

    def eval_batch_start(self, state: Any, logger: Any) -> None:
        """A validation batch."""
        self.recording.note("batch", state.batch)

    def after_loss(self, state: Any, logger: Any) -> None:
        """The loss."""
        self.recording.note("loss", state.loss)


def trainer_of(kind: Any, recording: Recording, loading: Loading, *, sampler: bool = False, **more: Any) -> Any:
    """A trainer that prints nothing."""
    dataset = Pairs()
    order: dict[str, Any] = {"shuffle": True}
    if sampler:
        order = {"sampler": dist.get_sampler(dataset, shuffle=True)}
    torch.manual_seed(1)
    model = ComposerClassifier(Net(), num_classes=2)
    arguments: dict[str, Any] = {"max_duration": f"{EPOCHS}ep", "eval_interval": "1ep", **more}
    return Trainer(
        model=model,
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        train_dataloader=kind(dataset, batch_size=4, **order, **loading.arguments()),
        eval_dataloader=kind(Pairs(9), batch_size=4, **loading.arguments()),
        device="cpu", seed=5, progress_bar=False, callbacks=[Note(recording)], **arguments,
    )  # fmt: skip


@OURS
@LOADINGS
@pytest.mark.parametrize("sampler", [False, True], ids=["shuffled", "sampler"])
def test_a_fit(way: str, loading: Loading, *, sampler: bool) -> None:
    """Two epochs with an evaluation after each."""

    def run(kind: Any, recording: Recording) -> None:
        trainer = trainer_of(kind, recording, loading, sampler=sampler)
        trainer.fit()
        trainer.close()

    assert_same(record(way, run, "composer"), record(TORCH, run), batches=EPOCHS * (7 + 3))


@LOADINGS
def test_microbatches_and_a_length_in_batches(loading: Loading) -> None:
    """Batches are split in the step, the run ends within an epoch, and an epoch is a subset of the loader."""

    def run(kind: Any, recording: Recording) -> None:
        trainer = trainer_of(
            kind, recording, loading, max_duration="12ba", train_subset_num_batches=5, device_train_microbatch_size=2,
            eval_interval=0,
        )  # fmt: skip
        trainer.fit()
        trainer.close()

    assert_same(record(GIVEN, run), record(TORCH, run), batches=12)


@LOADINGS
@pytest.mark.parametrize("step", [3, 7, 9])
@pytest.mark.parametrize("sampler", [False, True], ids=["shuffled", "sampler"])
def test_a_run_resumes(loading: Loading, step: int, tmp_path_factory: pytest.TempPathFactory, *, sampler: bool) -> None:
    """From a checkpoint within an epoch or at its end: composer reads past the batches it has seen."""

    def run(kind: Any, recording: Recording) -> None:
        folder: Path = tmp_path_factory.mktemp("checkpoints")
        first = trainer_of(
            kind, recording, loading, sampler=sampler, save_folder=str(folder), save_interval=f"{step}ba",
            save_filename="ba{batch}.pt", eval_interval=0,
        )  # fmt: skip
        first.fit()
        first.close()
        again = trainer_of(
            kind, recording, loading, sampler=sampler, load_path=str(folder / f"ba{step}.pt"), eval_interval=0,
        )  # fmt: skip
        again.fit()
        recording.note("step", int(again.state.timestamp.batch.value))
        again.close()

    theirs = record(TORCH, run)

    assert theirs.all("step") == [("int", str(EPOCHS * 7))]
    assert_same(record(GIVEN, run), theirs, batches=theirs.seen())
