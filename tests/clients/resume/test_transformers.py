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

import penstock as ps
import penstock.torch as pt
from penstock.torch.resume import TransformersResume
from tests.clients.harness import Samples
from tests.clients.resume.lives import Case, Life, Log, run_case, run_elastic


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


def as_samples(inputs: Any) -> list[torch.Tensor]:
    """A batch in the form of ``harness.Samples``: what is drawn, labels, indices."""
    ids = inputs["input_ids"]
    return [ids[:, 2:5].contiguous(), inputs["labels"], ids[:, 1] - 103]


def program(*, elastic: bool = False, **arguments: Any) -> Any:
    """A trainer as its documentation has it, with one more callback."""

    def train(log: Log, folder: Path, case: Case, life: Life) -> None:
        class Noting(Trainer):  # type: ignore[misc]  # Transformers is not there for mypy
            def get_train_dataloader(self) -> Any:
                if not elastic:
                    return super().get_train_dataloader()
                sampler = ps.DistributedSampler(
                    self.train_dataset, case.ranks, self.args.process_index, seed=2, drop_last=case.drop_last
                )
                loader = pt.DataLoader(
                    self.train_dataset, case.batch, sampler=sampler, collate_fn=self.data_collator,
                    num_workers=case.workers, drop_last=case.drop_last,
                )  # fmt: skip
                return pt.adopt(self.accelerator.prepare(loader))

            def training_step(self, model: Any, inputs: Any, *rest: Any) -> Any:
                log.batch(as_samples(inputs) if elastic else dict(inputs))
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
        more: dict[str, Any] = {"seed_per_sample": True, "seed": 6} if elastic else {}
        callbacks = [TransformersResume(**more), Save(log)]
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


def test_saved_after_the_last_batch_of_an_epoch(tmp_path: Path) -> None:
    """The next epoch is a new one, in the order that it would have had."""
    case = Case(ranks=2, workers=2, epochs=3, accumulation=2)
    one = count(case)
    lives = [Life(0, one, one + 1), Life(one, 2 * one, 2 * one + 1), Life(2 * one)]
    run_case(program(), tmp_path, case, lives, 3 * one)


@pytest.mark.parametrize("ranks", [(2, 3, 1), (3, 1, 2)], ids=str)
@pytest.mark.parametrize("case", [Case(batch=12, drop_last=True), Case(batch=12, workers=2, samples=48)], ids=str)
def test_on_other_numbers_of_ranks(case: Case, ranks: tuple[int, ...], tmp_path: Path) -> None:
    """With a sampler of penstock's, each life has another number of ranks; every step has the same samples."""
    run_elastic(program(elastic=True), tmp_path, ranks, case, [Life(0, 2, 3), Life(2, 5, 6), Life(5)])
