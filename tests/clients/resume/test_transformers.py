"""Transformers: ``Trainer.train(resume_from_checkpoint=...)`` in the middle of an epoch, after ranks were killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import accelerate
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, PrinterCallback, Trainer, TrainingArguments
from transformers import TrainerCallback as Callback
from transformers.trainer_utils import get_last_checkpoint

from penstock.torch.resume import TransformersResume
from tests.clients.harness import Samples
from tests.clients.resume.lives import Case, Life, Log, run_case


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Accelerate keeps its state in classes: each test ends without."""
    yield
    for shared in (accelerate.state.AcceleratorState, accelerate.state.GradientState, accelerate.state.PartialState):
        shared._reset_state()


class Texts(Samples):
    """Short texts as numbers, with three that are drawn by whoever reads the sample."""

    def __getitem__(self, index: int) -> Any:
        drawn = [3 + int(100 * value) for value in super().__getitem__(index)[0][:3]]
        return {"input_ids": [1, 103 + index, *drawn, 2], "attention_mask": [1] * 6, "labels": index % 2}


def model() -> Any:
    """One layer, with dropout."""
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=160, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        max_position_embeddings=8, num_labels=2,
    )  # fmt: skip
    return BertForSequenceClassification(config)


class Save(Callback):  # type: ignore[misc]  # Transformers is not there for mypy
    """Has the trainer save when the life says so."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """After each update."""
        control.should_save = self.log.saves()
        return control


def program(**arguments: Any) -> Any:
    """A trainer as its documentation has it, with one more callback."""

    def train(log: Log, folder: Path, case: Case, life: Life) -> None:
        class Noting(Trainer):  # type: ignore[misc]  # Transformers is not there for mypy
            def training_step(self, model: Any, inputs: Any, *rest: Any) -> Any:
                log.batch(dict(inputs))
                loss = super().training_step(model, inputs, *rest)
                log.loss(loss)
                log.may_die()
                return loss

        settings = TrainingArguments(
            output_dir=str(folder), num_train_epochs=case.epochs, per_device_train_batch_size=case.batch, use_cpu=True,
            report_to=[], disable_tqdm=True, save_strategy="no", logging_strategy="no", seed=3,
            dataloader_num_workers=case.workers, dataloader_pin_memory=False, dataloader_drop_last=case.drop_last,
            ddp_backend="gloo" if case.ranks > 1 else None, gradient_accumulation_steps=case.accumulation, **arguments,
        )  # fmt: skip
        callbacks = [TransformersResume(), Save(log)]
        trainer = Noting(model(), settings, train_dataset=Texts(case.samples), callbacks=callbacks)
        trainer.remove_callback(PrinterCallback)
        trainer.train(resume_from_checkpoint=get_last_checkpoint(str(folder)) if life.resume else None)
        log.end(trainer.model)

    return train


CASES = [
    Case(accumulation=3),
    Case(workers=2, drop_last=True),
    Case(ranks=2, drop_last=True, accumulation=2),
    Case(ranks=2, workers=2, accumulation=2),
    Case(ranks=3),
    Case(ranks=3, workers=2, drop_last=True, accumulation=3),
]


def count(case: Case) -> int:
    """Batches of a rank in an epoch."""
    whole = case.samples // case.batch if case.drop_last else -(-case.samples // case.batch)
    return whole // case.ranks if case.drop_last else -(-whole // case.ranks)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_killed_twice(case: Case, tmp_path: Path) -> None:
    """Killed within the first epoch, and again within the second: batches, losses and weights are the same."""
    one, first = count(case), case.accumulation
    lives = [Life(0, first, first + 1), Life(first, one + first, one + first + 1), Life(one + first)]
    run_case(program(), tmp_path, case, lives, case.epochs * one)
