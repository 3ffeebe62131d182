"""Train a classifier on a folder with one sub-folder per class; stop in the middle of
an epoch, and resume exactly.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

import penstock as ps
from penstock import transforms as T
from penstock.demo.photographs import write_photographs
from penstock.torch import DataLoader

DATA = write_photographs(
    Path("photographs"), train=40, held_out=10, sides=(100, 160)
)  # yours: Path("your/folder")
EPOCHS, SIZE = 6, 64
FINISH = [T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout("CHW", "float32")]
AUGMENT = [
    T.Decode(),
    T.RandomResizedCrop(SIZE, scale=(0.3, 1.0)),
    T.HorizontalFlip(),
    *FINISH,
]
EVALUATE = [T.Decode(), T.Resize(72), T.CenterCrop(SIZE), *FINISH]
CHECKPOINT = Path("checkpoint.pt")


def make_network(classes: int) -> nn.Module:
    """A small convolutional network with the same random weights in each run."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, 2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2),
        nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, 2), nn.BatchNorm2d(64), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(64, classes),
    )  # fmt: skip


def count_correct(network: nn.Module, store: ps.Store) -> str:
    """How many of the images the network classifies correctly."""
    loader = DataLoader(
        ps.StoreDataset(store, ("image", "label"), EVALUATE), batch_size=64
    )
    network.eval()
    with torch.inference_mode():
        correct = sum(
            int((network(images).argmax(1) == labels).sum())
            for images, labels in loader
        )
    network.train()
    return f"{correct} of {len(store)} held-out images correct"


def train(stop_at: tuple[int, int] | None = None) -> None:
    """Train from the checkpoint, if there is one, to the end, or to a batch (epoch,
    number) and write a checkpoint.
    """
    store = ps.open("train.lmdb")
    held_out = ps.open(DATA / "held-out", classes=store.schema["label"].classes)
    dataset = ps.StoreDataset(store, ("image", "label"), AUGMENT)
    loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=2, seed=0)
    network = make_network(len(store.schema["label"].classes))
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    parts: dict[str, Any] = {
        "loader": loader,
        "network": network,
        "optimizer": optimizer,
    }
    first = 0
    if CHECKPOINT.exists():
        saved = torch.load(CHECKPOINT)
        first = saved.pop("epoch")
        for name, part in parts.items():
            part.load_state_dict(saved[name])
    for epoch in range(first, EPOCHS):
        losses: list[float] = []
        for images, labels in loader:
            loss = nn.functional.cross_entropy(network(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if (epoch, len(losses)) == stop_at:
                torch.save(
                    {name: part.state_dict() for name, part in parts.items()}
                    | {"epoch": epoch},
                    CHECKPOINT,
                )
                print(
                    f"epoch {epoch + 1}: stopped after batch {len(losses)} of "
                    f"{len(loader)}"
                )
                return
        mean = sum(losses) / len(losses)
        print(
            f"epoch {epoch + 1}: {len(losses)} batches, loss {mean:.3f}, "
            f"{count_correct(network, held_out)}"
        )


if __name__ == "__main__":
    print(f"packed {ps.pack(DATA / 'train', 'train.lmdb').records} images")
    ps.show(
        ps.StoreDataset("train.lmdb", ("image", "label"), AUGMENT),
        6,
        output="classification.jpg",
        overwrite=True,
    )
    CHECKPOINT.unlink(missing_ok=True)
    train(stop_at=(3, 5))
    train()
