"""Transformers: ``Trainer`` over Accelerate, with evaluation, accumulation, resume from checkpoints, and two processes.

The models are built from configurations in this file, with random weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import accelerate
import datasets
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

import penstock.torch as pt
from tests.clients.harness import EPOCHS, GIVEN, LOADINGS, REPLACED, TORCH, Loading, Recording, assert_same, record
from tests.clients.ranks import record_ranks

ADOPTED = "adopted"
WAYS = pytest.mark.parametrize("way", [REPLACED, ADOPTED])
SEEDABLE = pytest.mark.parametrize("seedable", [False, True], ids=["unseeded", "seedable"])
LIBRARIES = ("transformers", "accelerate")


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Accelerate keeps its state in classes: each test ends without."""
    yield
    for shared in (accelerate.state.AcceleratorState, accelerate.state.GradientState, accelerate.state.PartialState):
        shared._reset_state()


class Texts(torch.utils.data.Dataset[Any]):
    """26 short texts as numbers, one of which is drawn by whoever reads it."""

    def __init__(self, n: int = 26) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        drawn = int(torch.randint(3, 30, ()))
        return {"input_ids": [1, 3 + index, drawn, 2], "attention_mask": [1, 1, 1, 1], "labels": index % 2}


class Lines(torch.utils.data.IterableDataset[Any]):
    """The same as a stream."""

    def __iter__(self) -> Iterator[Any]:
        texts = Texts(24)
        yield from (texts[index] for index in range(len(texts)))


def model() -> Any:
    """One layer, with dropout."""
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=8, num_labels=2,
    )  # fmt: skip
    return BertForSequenceClassification(config)


def trainer_of(way: str, recording: Recording, folder: Path, loading: Loading, **more: Any) -> Any:
    """A trainer that notes what its steps are given."""

    class Noting(Trainer):  # type: ignore[misc]  # Transformers is not there for mypy
        def training_step(self, model: Any, inputs: Any, *rest: Any) -> Any:
            recording.note("batch", dict(inputs))
            loss = super().training_step(model, inputs, *rest)
            recording.note("loss", loss)
            return loss

        def prediction_step(self, model: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
            recording.note("batch", dict(inputs))
            return super().prediction_step(model, inputs, *rest, **named)

        def get_train_dataloader(self) -> Any:
            loader = super().get_train_dataloader()
            return pt.adopt(loader) if way == ADOPTED else loader

    callbacks = more.pop("callbacks", None)
    train, evaluate = more.pop("train_dataset", Texts()), more.pop("eval_dataset", None)
    arguments: dict[str, Any] = {
        "output_dir": str(folder), "num_train_epochs": EPOCHS, "per_device_train_batch_size": 4, "use_cpu": True,
        "per_device_eval_batch_size": 4, "report_to": [], "disable_tqdm": True, "save_strategy": "no", "seed": 3,
        "logging_strategy": "no", "dataloader_num_workers": loading.num_workers, "dataloader_pin_memory": False,
        "dataloader_persistent_workers": loading.persistent_workers, **more,
    }  # fmt: skip
    return Noting(
        model=model(), args=TrainingArguments(**arguments), train_dataset=train, eval_dataset=evaluate,
        callbacks=callbacks,
    )  # fmt: skip


@WAYS
@SEEDABLE
@LOADINGS
def test_a_training_with_evaluation(
    way: str, loading: Loading, tmp_path_factory: pytest.TempPathFactory, *, seedable: bool
) -> None:
    """Two epochs with an evaluation after each, with and without Accelerate's seeded sampler (the default)."""

    def run(way: str, recording: Recording) -> None:
        trainer = trainer_of(
            way, recording, tmp_path_factory.mktemp("out"), loading, eval_strategy="epoch", eval_dataset=Texts(9),
            accelerator_config={"use_seedable_sampler": seedable},
        )  # fmt: skip
        trainer.train()

    theirs = record(TORCH, lambda _, recording: run(TORCH, recording))
    ours = record(way, lambda _, recording: run(way, recording), *LIBRARIES)

    assert_same(ours, theirs, batches=EPOCHS * (7 + 3))


def test_a_loader_of_the_users_is_rebuilt(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A loader of ours that ``get_train_dataloader`` has Accelerate prepare becomes torch's, with the same batches."""

    def run(kind: Any, recording: Recording) -> None:
        trainer = trainer_of(GIVEN, recording, tmp_path_factory.mktemp("out"), Loading(2))
        loader = kind(Texts(), batch_size=4, shuffle=True, num_workers=2, collate_fn=trainer.data_collator)
        trainer.get_train_dataloader = lambda: trainer.accelerator.prepare(loader)
        trainer.train()

    assert_same(record(GIVEN, run), record(TORCH, run), batches=EPOCHS * 7, used=False)


@WAYS
@SEEDABLE
@LOADINGS
@pytest.mark.parametrize("step", [3, 7])
def test_a_training_resumes(
    way: str, loading: Loading, step: int, tmp_path_factory: pytest.TempPathFactory, *, seedable: bool
) -> None:
    """From a checkpoint within the first epoch and at its end, with a trainer of its own."""

    def run(way: str, recording: Recording) -> None:
        folder = tmp_path_factory.mktemp("out")
        more = {
            "save_strategy": "steps", "save_steps": step, "accelerator_config": {"use_seedable_sampler": seedable},
        }  # fmt: skip
        trainer_of(way, recording, folder, loading, **more).train()
        torch.manual_seed(11)
        checkpoint = str(folder / f"checkpoint-{step}")
        trainer_of(way, recording, folder, loading, **more).train(resume_from_checkpoint=checkpoint)

    theirs = record(TORCH, lambda _, recording: run(TORCH, recording))
    ours = record(way, lambda _, recording: run(way, recording), *LIBRARIES)

    assert_same(ours, theirs, batches=EPOCHS * 7 + EPOCHS * 7 - step)


@WAYS
@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("source", ["stream", "table", "streamed-table"])
def test_other_datasets(way: str, num_workers: int, source: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A stream, a table of Hugging Face datasets (in batches by length), and that as a stream."""
    texts = Texts(24)
    table = datasets.Dataset.from_list([texts[index] for index in range(24)])

    def run(way: str, recording: Recording) -> None:
        train: Any = {"stream": Lines(), "table": table, "streamed-table": table.to_iterable_dataset(num_shards=2)}
        more: dict[str, Any] = {"max_steps": 5}
        if source == "table":
            more["train_sampling_strategy"] = "group_by_length"
        trainer = trainer_of(
            way, recording, tmp_path_factory.mktemp("out"), Loading(num_workers), train_dataset=train[source],
            gradient_accumulation_steps=2, **more,
        )  # fmt: skip
        trainer.train()

    theirs = record(TORCH, lambda _, recording: run(TORCH, recording))
    ours = record(way, lambda _, recording: run(way, recording), *LIBRARIES)

    assert_same(ours, theirs, batches=10)


class Interrupt(TrainerCallback):  # type: ignore[misc]  # Transformers is not there for mypy
    """Stops the training after so many steps."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """At that step."""
        if state.global_step == self.step:
            control.should_training_stop = True
        return control


@WAYS
@SEEDABLE
@pytest.mark.parametrize("num_workers", [0, 2])
def test_two_processes(way: str, num_workers: int, tmp_path_factory: pytest.TempPathFactory, *, seedable: bool) -> None:
    """Two ranks train, stop within the second epoch, and go on from the checkpoint."""
    loading = Loading(num_workers)

    def run(way: str, folder: Path, recording: Recording) -> None:
        more = {
            "save_strategy": "steps", "save_steps": 5, "accelerator_config": {"use_seedable_sampler": seedable},
            "ddp_backend": "gloo",
        }  # fmt: skip
        trainer_of(way, recording, folder, loading, callbacks=[Interrupt(6)], **more).train()
        trainer_of(way, recording, folder, loading, **more).train(resume_from_checkpoint=str(folder / "checkpoint-5"))

    folders = [tmp_path_factory.mktemp("out") for _ in range(2)]
    theirs = record_ranks(TORCH, lambda _, recording: run(TORCH, folders[0], recording))
    ours = record_ranks(way, lambda _, recording: run(way, folders[1], recording), *LIBRARIES)

    for own, other in zip(ours, theirs, strict=True):
        assert_same(own, other, batches=6 + 3)
