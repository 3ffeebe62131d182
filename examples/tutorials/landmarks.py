"""Train a network for landmarks on COCO's keypoints: points follow their images, a
mirror exchanges left and right.
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
    Path("shapes"), train=200, val=40
)  # yours: Path("your/folder"), annotated as in COCO
HEIGHT, WIDTH, STRIDE = (
    96,
    128,
    4,
)  # of the network's input, and pixels of a cell of its output
MIRRORED = [(1, 3)]  # the numbers of the points "left" and "right"
FINISH = [T.Letterbox((HEIGHT, WIDTH)), T.ToLayout("CHW", "uint8")]
AUGMENT = [
    T.Decode(), T.RandomAffine(15, translate=(0.1, 0.1), scale=(0.8, 1.2)),
    T.HorizontalFlip(keypoint_pairs=MIRRORED),
    T.ColorJitter(0.2, 0.2, 0.2), *FINISH,
]  # fmt: skip
X, Y = torch.meshgrid(
    torch.arange(WIDTH // STRIDE), torch.arange(HEIGHT // STRIDE), indexing="xy"
)
CENTRES = (torch.stack([X.flatten(), Y.flatten()], 1) + 0.5) * STRIDE


def load(
    store: ps.Store, transform: Sequence[T.Op], *, shuffle: bool
) -> DataLoader[tuple[Tensor, list[Tensor]]]:
    """Batches of images uint8 (n, 3, HEIGHT, WIDTH), and for each image float32
    (objects, points, 3): x, y, flag.
    """
    dataset = ps.StoreDataset(store, ("image", "keypoints"), transform, ragged="list")
    return DataLoader(dataset, batch_size=16, shuffle=shuffle, num_workers=2, seed=0)


def find(network: nn.Module, images: Tensor) -> Tensor:
    """The points (n, points, 2) in pixels: means of the centres of all cells, weighted
    by the network's maps.
    """
    return network(images / 255 - 0.5).flatten(2).softmax(2) @ CENTRES


def main() -> None:
    """Pack, look, train, evaluate, draw."""
    for split in ("train", "val"):
        source = DATA / "annotations" / f"person_keypoints_{split}.json"
        ps.pack(
            None,
            f"{split}.lmdb",
            annotations={"annotations": source, "images": DATA / "images"},
            format="coco",
        )
    train, val = ps.open("train.lmdb"), ps.open("val.lmdb")
    print(f"{len(train)} images to train, {len(val)} to evaluate")
    ps.show(
        train,
        6,
        augment=AUGMENT,
        fields=("image", "keypoints"),
        output="landmarks.jpg",
        tile=260,
        overwrite=True,
    )
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 32, 5, 4, 2), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, 2, 1), nn.BatchNorm2d(64),
        nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.Upsample(None, 2),
        nn.Conv2d(64, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 4, 3, 1, 1),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(network.parameters(), lr=5e-3)
    loader = load(train, AUGMENT, shuffle=True)
    for epoch in range(8):
        losses: list[float] = []
        for images, rows in loader:
            points = torch.stack([row[0] for row in rows])  # one object an image
            loss = (
                (find(network, images) - points[:, :, :2]).abs()
                * (points[:, :, 2:] > 0)
            ).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}")

    network.eval()
    distances: list[Tensor] = []
    results: list[dict[str, object]] = []
    with torch.inference_mode():
        for images, rows in load(val, [T.Decode(), *FINISH], shuffle=False):
            found = find(network, images)
            distances.append(
                (found - torch.stack([row[0, :, :2] for row in rows])).norm(dim=2)
            )
            for image, points in zip(images, found, strict=True):
                results.append(
                    {
                        "image": image.permute(1, 2, 0).numpy(),
                        "keypoints": points.numpy(),
                    }
                )
    print(f"mean distance on other images: {torch.cat(distances).mean():.2f} pixels")
    ps.pack(results, "found.lmdb", schema={"keypoints": "keypoints"}, overwrite=True)
    ps.show("found.lmdb", 8, output="landmarks-found.jpg", tile=260, overwrite=True)


if __name__ == "__main__":
    main()
