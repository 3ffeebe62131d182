"""PyTorch-Ignite: supervised trainers and evaluators, ``auto_dataloader``, and its deterministic engine with resume."""

from __future__ import annotations

from typing import Any

import ignite.distributed as idist
import pytest
import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.engine.deterministic import DeterministicEngine
from ignite.metrics import Accuracy

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


def prepared(recording: Recording) -> Any:
    """A function for ``prepare_batch`` that notes what the loader gave."""

    def prepare(batch: Any, device: Any = None, non_blocking: bool = False) -> Any:
        recording.note("batch", batch)
        return batch[0], batch[1]

    return prepare


def trainer_of(recording: Recording) -> Any:
    """A supervised trainer whose losses are noted."""
    model = Net()
    trainer = create_supervised_trainer(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        torch.nn.functional.cross_entropy,
        prepare_batch=prepared(recording),
    )
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: recording.note("loss", engine.state.output))
    return trainer, model


@OURS
@LOADINGS
def test_a_supervised_trainer(way: str, loading: Loading) -> None:
    """Two epochs, and an evaluator on another loader after each."""

    def run(kind: Any, recording: Recording) -> None:
        trainer, model = trainer_of(recording)
        loader = kind(Samples(), 4, shuffle=True, **loading.arguments())
        validation = kind(Samples(9), 4, **loading.arguments())
        evaluator = create_supervised_evaluator(model, {"accuracy": Accuracy()}, prepare_batch=prepared(recording))

        @trainer.on(Events.EPOCH_COMPLETED)  # type: ignore[untyped-decorator]  # Ignite is not there for mypy
        def validate(engine: Any) -> None:
            evaluator.run(validation)
            recording.note("accuracy", evaluator.state.metrics["accuracy"])

        trainer.run(loader, max_epochs=EPOCHS)

    assert_same(record(way, run, "ignite"), record(TORCH, run), batches=EPOCHS * (7 + 3))


@LOADINGS
@pytest.mark.parametrize("epoch_length", [5, 9])
def test_epochs_of_another_length(loading: Loading, epoch_length: int) -> None:
    """Epochs shorter and longer than the loader: its iterator goes on from one to the next."""

    def run(kind: Any, recording: Recording) -> None:
        trainer, _ = trainer_of(recording)
        loader = kind(Samples(), 4, shuffle=True, **loading.arguments())
        trainer.run(loader, max_epochs=3, epoch_length=epoch_length)

    assert_same(record(GIVEN, run), record(TORCH, run), batches=3 * epoch_length)


@OURS
@LOADINGS
def test_a_loader_from_auto_dataloader(way: str, loading: Loading) -> None:
    """``idist.auto_dataloader`` makes the loader itself: of our class where the name is replaced."""

    def run(kind: Any, recording: Recording) -> None:
        trainer, _ = trainer_of(recording)
        if way == GIVEN:
            loader = kind(Samples(), batch_size=4, shuffle=True, pin_memory=False, **loading.arguments())
        else:
            loader = idist.auto_dataloader(Samples(), batch_size=4, shuffle=True, **loading.arguments())
        trainer.run(loader, max_epochs=EPOCHS)

    assert_same(record(way, run, "ignite"), record(TORCH, run), batches=EPOCHS * 7)


@OURS
@LOADINGS
@pytest.mark.parametrize("stop", [4, 7])
def test_a_deterministic_engine_resumes(way: str, loading: Loading, stop: int) -> None:
    """It makes the loader again with a batch sampler of its own; a run that stopped goes on from its ``state_dict``."""

    def engine_of(recording: Recording) -> Any:
        def step(engine: Any, batch: Any) -> None:
            recording.note("batch", batch)
            recording.note("draw", torch.rand(()))

        return DeterministicEngine(step)

    def run(kind: Any, recording: Recording) -> None:
        def loader() -> Any:
            return kind(Samples(), 4, shuffle=True, **loading.arguments())

        first = engine_of(recording)
        first.add_event_handler(Events.ITERATION_COMPLETED(once=stop), lambda engine: engine.terminate())
        first.run(loader(), max_epochs=EPOCHS)
        saved = first.state_dict()
        again = engine_of(recording)
        again.load_state_dict(saved)
        torch.manual_seed(0)
        again.run(loader())

    assert_same(record(way, run, "ignite"), record(TORCH, run), batches=EPOCHS * 7)
