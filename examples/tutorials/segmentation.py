"""Train a network for segmentation on images and masks: masks follow their images, and
found masks are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import penstock as ps
from penstock import transforms as T
from penstock.demo.shapes import write_shapes
from penstock.torch import DataLoader

DATA = write_shapes(
    Path("shapes"), train=160, val=40
)  # yours: Path("your/folder"), with images/ and masks/
SIZE, IGNORED = (
    (96, 128),
    255,
)  # height and width of the network's input; the value of pixels without a class
FINISH = [T.Letterbox(SIZE, mask_fill=IGNORED), T.ToLayout("CHW", "uint8")]
AUGMENT = [
    T.Decode(),
    T.RandomAffine(15, translate=(0.1, 0.1), scale=(0.8, 1.2), mask_fill=IGNORED),
    T.HorizontalFlip(),
    T.ColorJitter(0.2, 0.2, 0.2), *FINISH,
]  # fmt: skip


def load(
    store: ps.Store, transform: Sequence[T.Op], *, shuffle: bool
) -> DataLoader[tuple[Tensor, Tensor]]:
    """Batches of images uint8 (n, 3, height, width) and masks uint8 (n, height,
    width).
    """
    dataset = ps.StoreDataset(store, ("image", "mask"), transform)
    return DataLoader(dataset, batch_size=16, shuffle=shuffle, num_workers=2, seed=0)


class Network(nn.Module):
    """A small network of the form of U-Net: scores of the classes for each pixel."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(3, 16, 5, 2, 2), nn.BatchNorm2d(16), nn.ReLU()
        )
        self.further = nn.Sequential(
            nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU()
        )
        self.deep = nn.Sequential(
            nn.Conv2d(32, 64, 3, 2, 1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.Conv2d(64, 32, 3, 1, 1),
            nn.Upsample(None, 2),
        )
        self.up = nn.Sequential(
            nn.ReLU(), nn.Conv2d(32, 16, 3, 1, 1), nn.Upsample(None, 2)
        )
        self.last = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(16, classes, 3, 1, 1),
            nn.Upsample(None, 2, mode="bilinear"),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Scores (n, classes, height, width) of images uint8."""
        first = self.down(images / 255 - 0.5)
        second = self.further(first)
        return self.last(first + self.up(second + self.deep(second)))


def main() -> None:
    """Pack, look, train, evaluate, draw."""
    for split in ("train", "val"):
        ps.pack(
            None, f"{split}.lmdb", annotations=DATA, format="mask_folders", split=split
        )
    train, val = ps.open("train.lmdb"), ps.open("val.lmdb")
    classes = train.schema["labels"].classes
    print(
        f"{len(train)} images to train, {len(val)} to evaluate, classes: "
        f"{', '.join(classes)}"
    )
    ps.show(
        train,
        6,
        augment=AUGMENT,
        fields=("image", "mask"),
        output="segmentation.jpg",
        tile=260,
        overwrite=True,
    )
    torch.manual_seed(0)
    network = Network(len(classes))
    optimizer = torch.optim.AdamW(network.parameters(), lr=5e-3)
    loader = load(train, AUGMENT, shuffle=True)
    for epoch in range(8):
        losses: list[float] = []
        for images, masks in loader:
            loss = nn.functional.cross_entropy(
                network(images), masks.long(), ignore_index=IGNORED
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}")

    network.eval()
    pairs = torch.zeros(len(classes), len(classes))
    results: list[dict[str, object]] = []
    with torch.inference_mode():
        for images, masks in load(val, [T.Decode(), *FINISH], shuffle=False):
            found = network(images).argmax(1)
            pairs.index_put_(
                (masks.long().flatten(), found.flatten()),
                torch.tensor(1.0),
                accumulate=True,
            )
            for image, mask in zip(images, found.byte(), strict=True):
                results.append(
                    {"image": image.permute(1, 2, 0).numpy(), "mask": mask.numpy()}
                )
    shares = pairs.diag() / (pairs.sum(0) + pairs.sum(1) - pairs.diag())
    print(
        ", ".join(
            f"{name} IoU {share:.2f}"
            for name, share in zip(classes, shares.tolist(), strict=True)
        )
    )
    ps.pack(results, "found.lmdb", schema={"mask": "mask"}, overwrite=True)
    ps.show("found.lmdb", 8, output="segmentation-found.jpg", tile=260, overwrite=True)


if __name__ == "__main__":
    main()
