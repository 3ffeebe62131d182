"""Train with Accelerate: one more line after ``prepare``; ``load_state`` resumes in the
middle of an epoch.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

import penstock as ps
from penstock import transforms as T
from penstock.demo.photographs import write_photographs
from penstock.torch import DataLoader, adopt

DATA = write_photographs(
    Path("photographs"), train=24, held_out=0, sides=(100, 160)
)  # yours: Path("your/folder")
AUGMENT = [
    T.Decode(), T.RandomResizedCrop(64, scale=(0.3, 1.0)), T.HorizontalFlip(),
    T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout("CHW", "float32"),
]  # fmt: skip


def main() -> None:
    """Prepare, train, resume."""
    accelerator = Accelerator(cpu=True)
    dataset = ps.StoreDataset(ps.open(DATA / "train"), ("image", "label"), AUGMENT)
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 16, 5, 2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2),
        nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 11),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=2, seed=0)
    network, optimizer, loader = accelerator.prepare(network, optimizer, loader)
    loader = adopt(
        loader
    )  # prepare made a loader of torch: adopt puts penstock's into it
    rest: list[Tensor] = []
    for epoch in range(6):
        losses: list[float] = []
        for images, labels in loader:
            loss = nn.functional.cross_entropy(network(images), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            losses.append(loss.item())
            if epoch == 5 and len(losses) > 3:
                rest.append(images.clone())
            if epoch == 5 and len(losses) == 3:
                accelerator.save_state("checkpoint")
        print(f"epoch {epoch + 1}: {len(losses)} batches, loss {np.mean(losses):.3f}")

    accelerator.load_state(
        "checkpoint"
    )  # a new process does this after prepare and adopt
    same = sum(
        torch.equal(images, one) for (images, _), one in zip(loader, rest, strict=True)
    )
    print(
        f"resumed after batch 3 of {len(loader)}: {same} of {len(rest)} batches are "
        f"the same"
    )
    accelerator.end_training()


if __name__ == "__main__":
    main()
