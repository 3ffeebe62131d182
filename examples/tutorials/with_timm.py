"""Train a model of timm with timm's augmentation and timm's optimizer, and penstock's
store and loader.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import timm
import torch
from timm.data import create_transform, resolve_data_config
from timm.optim import create_optimizer_v2
from torch import nn

import penstock as ps
from penstock.demo.photographs import write_photographs
from penstock.torch import DataLoader

DATA = write_photographs(
    Path("photographs"), train=24, held_out=8, sides=(100, 160)
)  # yours: Path("your/folder")


def main() -> None:
    """Make the model and its transforms, pack, train, evaluate."""
    torch.manual_seed(0)
    ps.pack(DATA / "train", "train.lmdb")
    train = ps.open("train.lmdb")
    classes = train.schema["label"].classes
    model = timm.create_model("test_resnet", num_classes=len(classes))
    config = resolve_data_config({"input_size": (3, 64, 64)}, model=model)
    augment = create_transform(
        **config, is_training=True, auto_augment="rand-m5-mstd0.5", scale=(0.3, 1.0)
    )
    evaluate = create_transform(**config)

    dataset = ps.StoreDataset(train, ("image", "label"), augment)
    print("training:", dataset.why_not_filled() or "native")
    loader = DataLoader(
        dataset,
        batch_size=32,
        shuffle=True,
        num_workers=2,
        seed=0,
        seed_per_sample=True,
    )
    optimizer = create_optimizer_v2(model, opt="adamw", lr=5e-3)
    for epoch in range(6):
        losses: list[float] = []
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}")

    held_out = ps.StoreDataset(
        ps.open(DATA / "held-out", classes=classes), ("image", "label"), evaluate
    )
    print(
        "evaluation:",
        held_out.why_not_filled() or "native: the native core decodes and resizes",
    )
    model.eval()
    correct = 0
    with torch.inference_mode():
        for images, labels in DataLoader(held_out, batch_size=44):
            correct += int((model(images).argmax(1) == labels).sum())
    print(f"{correct} of {len(held_out)} held-out images correct")


if __name__ == "__main__":
    main()
