"""Train on the images of a CSV table, with a class and a number for each image; some
classes are rare.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import torch
from torch import nn

import penstock as ps
from penstock import transforms as T
from penstock.demo.photographs import write_photographs
from penstock.torch import DataLoader

TABLE = Path(
    "table.csv"
)  # yours: a column of paths, relative to the table, and any other columns
FINISH = [T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout("CHW", "float32")]
AUGMENT = [
    T.Decode(),
    T.RandomResizedCrop(64, scale=(0.5, 1.0)),
    T.HorizontalFlip(),
    *FINISH,
]
EVALUATE = [T.Decode(), T.Resize((64, 64)), *FINISH]
FIELDS = ("image", "label", "brightness")


def write_table() -> None:
    """Write a table of photographs, as a spreadsheet exports it; remove it if you have
    one.
    """
    folder = write_photographs(
        Path("photographs"), train=40, held_out=0, sides=(100, 160)
    )
    with TABLE.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "label", "brightness"])
        for path in sorted(folder.glob("train/*/*.jpg")):
            if (
                path.parent.name < "d" or int(path.stem) < 8
            ):  # classes from "galaxies" on have 8 images
                brightness = float(ps.decode(path.read_bytes()).mean()) / 255
                writer.writerow([path, path.parent.name, f"{brightness:.4f}"])


def make_network(outputs: int) -> nn.Module:
    """A small convolutional network."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, 2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2),
        nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, 2), nn.BatchNorm2d(64), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(64, outputs),
    )  # fmt: skip


def main() -> None:
    """Pack the rows, split them, train, evaluate."""
    write_table()
    ps.pack(TABLE, "table.lmdb")
    store = ps.open("table.lmdb")
    ps.show(store, 8, output="table.jpg", tile=160, overwrite=True)
    classes = store.schema["label"].classes
    counts = np.bincount(store.column("label"))
    print(
        f"{len(store)} rows: "
        + ", ".join(
            f"{count} {name}" for name, count in zip(classes, counts, strict=True)
        )
    )
    parts = ps.split(store, {"train": 0.75, "val": 0.25}, by="label")
    balanced = ps.ClassBalancedSampler(
        store.column("label")[parts["train"]], 320, seed=0
    )
    dataset = ps.StoreDataset(store, FIELDS, AUGMENT)
    loader = DataLoader(
        ps.Subset(dataset, parts["train"]),
        batch_size=32,
        sampler=balanced,
        num_workers=2,
        seed=0,
    )
    network = make_network(
        len(classes) + 1
    )  # a score for each class, and the brightness
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    for epoch in range(6):
        losses: list[float] = []
        for images, labels, brightness in loader:
            found = network(images)
            loss = nn.functional.cross_entropy(found[:, :-1], labels)
            loss += 10 * nn.functional.mse_loss(found[:, -1], brightness.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}")

    network.eval()
    dataset, count = ps.StoreDataset(store, FIELDS, EVALUATE), len(parts["val"])
    with torch.inference_mode():
        images, labels, brightness = next(
            iter(DataLoader(ps.Subset(dataset, parts["val"]), batch_size=count))
        )
        found = network(images)
    error = (found[:, -1] - brightness).abs().mean()
    correct = int((found[:, :-1].argmax(1) == labels).sum())
    print(f"{correct} of {count} classes correct, brightness within {error:.3f}")


if __name__ == "__main__":
    main()
