"""Lightning (``pytorch_lightning``): ``Trainer.fit`` with validation, data modules, combined loaders, checkpoints.

``tests/torch/loader/test_lightning.py`` holds what Lightning does to a loader; here whole runs are compared.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import CombinedLoader

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
from tests.clients.ranks import record_ranks

pytestmark = [
    # Lightning's own, about the torch it runs on.
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
    # Its advice on speed, for the few workers that a test starts.
    pytest.mark.filterwarnings("ignore:The '[a-z_]*dataloader[a-z0-9_]*' does not have many workers:UserWarning"),
    pytest.mark.filterwarnings("ignore:Consider setting `persistent_workers=True`:UserWarning"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`:UserWarning"),
    # Its warning about loaders without a state, which torch's are.
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch:UserWarning"),
]


class Model(pl.LightningModule):
    """The net; notes what it was given."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self.net, self.recording = Net(), recording

    def training_step(self, batch: Any, _: int) -> Any:
        """A loss."""
        self.recording.note("batch", batch)
        first = batch["one"] if isinstance(batch, dict) else batch
        loss = torch.nn.functional.cross_entropy(self.net(first[0]), first[1])
        self.recording.note("loss", loss)
        return loss

    def validation_step(self, batch: Any, _: int, dataloader_idx: int = 0) -> None:
        """Notes the batch."""
        self.recording.note("batch", [dataloader_idx, *batch])

    def configure_optimizers(self) -> Any:
        """With momentum."""
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


class Module(pl.LightningDataModule):
    """Makes its loaders when it is asked: for every epoch, if the trainer reloads."""

    def __init__(self, kind: Any, loading: Loading) -> None:
        super().__init__()
        self.kind, self.loading = kind, loading

    def train_dataloader(self) -> Any:
        """Shuffled."""
        return self.kind(Samples(), batch_size=4, shuffle=True, **self.loading.arguments())

    def val_dataloader(self) -> Any:
        """Two of them."""
        return [self.kind(Samples(9), batch_size=4, **self.loading.arguments()) for _ in range(2)]


def trainer(**more: Any) -> Any:
    """One that writes nothing."""
    return pl.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, **{"max_epochs": EPOCHS, **more},
    )  # fmt: skip


@OURS
@LOADINGS
@pytest.mark.parametrize("reload", [0, 1])
def test_a_fit_with_validation(way: str, loading: Loading, reload: int) -> None:
    """A sanity check, two epochs, validation on two loaders after each; loaders kept, or made anew."""

    def run(kind: Any, recording: Recording) -> None:
        pl.seed_everything(3, workers=True, verbose=False)
        trainer(reload_dataloaders_every_n_epochs=reload).fit(Model(recording), datamodule=Module(kind, loading))

    # the sanity check: two batches of each of the validation's loaders
    assert_same(record(way, run, "pytorch_lightning"), record(TORCH, run), batches=4 + EPOCHS * (7 + 6))


@LOADINGS
def test_epochs_that_are_cut_short(loading: Loading) -> None:
    """``limit_train_batches`` and a validation in the middle of an epoch."""

    def run(kind: Any, recording: Recording) -> None:
        trainer(limit_train_batches=5, val_check_interval=2, num_sanity_val_steps=0, max_epochs=3).fit(
            Model(recording), datamodule=Module(kind, loading)
        )

    assert_same(record(GIVEN, run), record(TORCH, run), batches=3 * (5 + 2 * 6))


@LOADINGS
@pytest.mark.parametrize("mode", ["max_size_cycle", "min_size"])
def test_combined_loaders(loading: Loading, mode: Any) -> None:
    """Two loaders side by side; the shorter begins again within an epoch, or ends it."""

    def run(kind: Any, recording: Recording) -> None:
        loaders = {
            "one": kind(Samples(), batch_size=4, shuffle=True, **loading.arguments()),
            "two": kind(Samples(9), batch_size=3, shuffle=True, **loading.arguments()),
        }
        trainer(limit_val_batches=0).fit(Model(recording), train_dataloaders=CombinedLoader(loaders, mode))

    assert_same(record(GIVEN, run), record(TORCH, run), batches=EPOCHS * (7 if mode == "max_size_cycle" else 3))


class Save(pl.Callback):
    """Saves a checkpoint after so many batches."""

    def __init__(self, path: Path, after: int) -> None:
        self.path, self.after = path, after

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """After each batch."""
        if trainer.global_step == self.after:
            trainer.save_checkpoint(self.path)


@LOADINGS
def test_a_run_resumes_at_the_end_of_an_epoch(loading: Loading, tmp_path_factory: pytest.TempPathFactory) -> None:
    """From a checkpoint of the first of two epochs, as with torch's loader."""

    def run(kind: Any, recording: Recording) -> None:
        path = tmp_path_factory.mktemp("checkpoint") / "end.ckpt"
        first = trainer(max_epochs=1, num_sanity_val_steps=0)
        first.fit(Model(recording), datamodule=Module(kind, loading))
        first.save_checkpoint(path)
        torch.manual_seed(11)
        again = trainer(max_epochs=EPOCHS, num_sanity_val_steps=0)
        again.fit(Model(recording), datamodule=Module(kind, loading), ckpt_path=path, weights_only=False)

    assert_same(record(GIVEN, run), record(TORCH, run), batches=EPOCHS * (7 + 6))


@LOADINGS
@pytest.mark.parametrize("stop", [3, 10])
def test_a_run_resumes_within_an_epoch(loading: Loading, stop: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Ours goes on with the batches that torch's loader gives to a run that never stopped.

    torch's loader begins the epoch anew there. Order and samples are compared, not losses: Lightning restores no
    generator, from which dropout draws.
    """

    def whole(kind: Any, recording: Recording) -> None:
        trainer(limit_val_batches=0).fit(Model(recording), datamodule=Module(kind, loading))

    def run(kind: Any, recording: Recording) -> None:
        path = tmp_path_factory.mktemp("checkpoint") / "middle.ckpt"
        first = trainer(limit_val_batches=0, max_epochs=-1, max_steps=stop, callbacks=[Save(path, stop)])
        first.fit(Model(recording), datamodule=Module(kind, loading))
        torch.manual_seed(11)
        again = trainer(limit_val_batches=0)
        again.fit(Model(recording), datamodule=Module(kind, loading), ckpt_path=path, weights_only=False)

    theirs, ours = record(TORCH, whole).all("batch"), record(GIVEN, run).all("batch")

    assert len(theirs) == EPOCHS * 7
    assert [batch[1][2] for batch in ours] == [batch[1][2] for batch in theirs]
    if loading.num_workers:
        assert ours == theirs


@OURS
@pytest.mark.parametrize("num_workers", [0, 2])
def test_two_processes(way: str, num_workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under ``torchrun`` Lightning makes each rank's loader again, with a distributed sampler."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    monkeypatch.setenv("GROUP_RANK", "0")

    def run(kind: Any, recording: Recording) -> None:
        trainer(strategy="ddp", devices=2, limit_val_batches=0).fit(
            Model(recording), datamodule=Module(kind, Loading(num_workers))
        )

    theirs, ours = record_ranks(TORCH, run), record_ranks(way, run, "pytorch_lightning")

    for own, other in zip(ours, theirs, strict=True):
        assert_same(own, other, batches=EPOCHS * 4)
