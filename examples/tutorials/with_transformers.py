"""Train with the Trainer of Transformers: one method gives it penstock's loader;
checkpoints resume in mid-epoch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import (
    PrinterCallback,
    ResNetConfig,
    ResNetForImageClassification,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)  # fmt: skip

import penstock as ps
from penstock import transforms as T
from penstock.demo.photographs import write_photographs
from penstock.torch import DataLoader, StoreDataset, adopt

DATA = write_photographs(
    Path("photographs"), train=24, held_out=8, sides=(100, 160)
)  # yours: Path("your/folder")
FIELDS = {
    "pixel_values": "image",
    "labels": "label",
}  # the names of the model's arguments
FINISH = [T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout("CHW", "float32")]
AUGMENT = [
    T.Decode(),
    T.RandomResizedCrop(64, scale=(0.3, 1.0)),
    T.HorizontalFlip(),
    *FINISH,
]
EVALUATE = [T.Decode(), T.Resize(72), T.CenterCrop(64), *FINISH]


class PenstockTrainer(Trainer):
    """The Trainer with penstock's loader, and the sums of the batches that it was
    trained on.
    """

    checkpoint: Path | None = None

    def get_train_dataloader(self) -> DataLoader[dict[str, Tensor]]:
        """Called once for each training; Accelerate divides the batches among the
        ranks.
        """
        self.seen: list[float] = []
        loader = DataLoader(
            self.train_dataset,
            self.args.train_batch_size,
            shuffle=True,
            num_workers=2,
            seed=0,
        )
        loader = adopt(self.accelerator.prepare(loader))
        if self.checkpoint:
            loader.load_state_dict(torch.load(self.checkpoint / "loader.pt"))
        return loader

    def training_step(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        num_items_in_batch: Any = None,
    ) -> Tensor:
        """Note the batch, and train on it."""
        self.seen.append(float(inputs["pixel_values"].double().sum()))
        return super().training_step(model, inputs, num_items_in_batch)


class SaveLoader(TrainerCallback):
    """Write the state of the loader into each checkpoint."""

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **objects: Any,
    ) -> None:
        """Called after each checkpoint."""
        folder = Path(args.output_dir or ".") / f"checkpoint-{state.global_step}"
        torch.save(objects["train_dataloader"].state_dict(), folder / "loader.pt")


def train(checkpoint: Path | None = None) -> PenstockTrainer:
    """Train for six epochs, from the beginning or from a checkpoint."""
    torch.manual_seed(0)
    config = ResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 32],
        depths=[1, 1],
        layer_type="basic",
        num_labels=11,
    )
    arguments = TrainingArguments(
        output_dir="output", num_train_epochs=6, per_device_train_batch_size=32,
        learning_rate=1e-2, use_cpu=True,
        save_steps=20, report_to=[], disable_tqdm=True, logging_strategy="no",
        ignore_data_skip=True,  # the loader goes on by itself
    )  # fmt: skip
    dataset = StoreDataset(ps.open(DATA / "train"), FIELDS, AUGMENT)
    model = ResNetForImageClassification(config)
    trainer = PenstockTrainer(
        model, arguments, train_dataset=dataset, callbacks=[SaveLoader()]
    )
    trainer.remove_callback(PrinterCallback)
    trainer.checkpoint = checkpoint
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    return trainer


def count_correct(model: nn.Module) -> str:
    """How many of the held-out images the model classifies correctly."""
    dataset = StoreDataset(ps.open(DATA / "held-out"), FIELDS, EVALUATE)
    model.eval()
    with torch.inference_mode():
        [batch] = DataLoader(dataset, batch_size=len(dataset))
        correct = int(
            (model(batch["pixel_values"]).logits.argmax(1) == batch["labels"]).sum()
        )
    return f"{correct} of {len(dataset)} held-out images correct"


if __name__ == "__main__":
    whole = train()
    print(f"trained on {len(whole.seen)} batches, {count_correct(whole.model)}")
    resumed = train(Path("output/checkpoint-20"))
    same = np.equal(resumed.seen, whole.seen[20:]).sum()
    print(f"resumed after step 20: {same} of {len(resumed.seen)} batches are the same")
    print(count_correct(resumed.model))
