"""Train with Lightning: the trainer takes the loader as it is, and its checkpoints
resume in the middle of an epoch.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.types import STEP_OUTPUT, OptimizerLRScheduler
from torch import Tensor, nn

import penstock as ps
from penstock import transforms as T
from penstock.demo.photographs import write_photographs
from penstock.torch import DataLoader

DATA = write_photographs(
    Path("photographs"), train=24, held_out=8, sides=(100, 160)
)  # yours: Path("your/folder")
FINISH = [T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout("CHW", "float32")]
AUGMENT = [
    T.Decode(),
    T.RandomResizedCrop(64, scale=(0.3, 1.0)),
    T.HorizontalFlip(),
    *FINISH,
]
EVALUATE = [T.Decode(), T.Resize(72), T.CenterCrop(64), *FINISH]
Batch = tuple[Tensor, Tensor]


class Classifier(pl.LightningModule):
    """A small network, and the sums of the batches that it was trained on."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(3, 16, 5, 2), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2), nn.BatchNorm2d(32),
            nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, classes),
        )  # fmt: skip
        self.seen: list[float] = []
        self.correct = self.total = 0

    def training_step(self, batch: Batch, batch_idx: int) -> STEP_OUTPUT:
        """The loss of a batch."""
        images, labels = batch
        self.seen.append(float(images.double().sum()))
        return nn.functional.cross_entropy(self.network(images), labels)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Count what is right."""
        images, labels = batch
        self.correct += int((self.network(images).argmax(1) == labels).sum())
        self.total += len(labels)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class SaveAt(pl.Callback):
    """Write a checkpoint after some step, also in the middle of an epoch."""

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: STEP_OUTPUT,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        """Called by the trainer."""
        if trainer.global_step == 20:
            trainer.save_checkpoint("step-20.ckpt")


def fit(checkpoint: str | None = None) -> Classifier:
    """Train for six epochs, from the beginning or from a checkpoint."""
    train = ps.StoreDataset(ps.open(DATA / "train"), ("image", "label"), AUGMENT)
    val = ps.StoreDataset(ps.open(DATA / "held-out"), ("image", "label"), EVALUATE)
    pl.seed_everything(0, verbose=False)
    model = Classifier(classes=11)
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=6, callbacks=[SaveAt()], logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        check_val_every_n_epoch=6,
    )  # fmt: skip
    loader = DataLoader(train, batch_size=32, shuffle=True, num_workers=2, seed=0)
    trainer.fit(
        model,
        loader,
        DataLoader(val, batch_size=64),
        ckpt_path=checkpoint,
        weights_only=False,
    )
    return model


if __name__ == "__main__":
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    whole = fit()
    print(
        f"trained on {len(whole.seen)} batches, {whole.correct} of {whole.total} "
        f"held-out images correct"
    )
    resumed = fit("step-20.ckpt")
    same = sum(
        one == other for one, other in zip(resumed.seen, whole.seen[20:], strict=True)
    )
    print(f"resumed after step 20: {same} of {len(resumed.seen)} batches are the same")
    print(f"{resumed.correct} of {resumed.total} held-out images correct")
