"""Train a small detector on COCO annotations: boxes follow images, classes are
balanced, found boxes are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

import penstock as ps
from penstock import transforms as T
from penstock.demo.shapes import write_shapes
from penstock.torch import DataLoader

DATA = write_shapes(
    Path("shapes"), train=160, val=40
)  # yours: Path("your/folder"), annotated as in COCO
HEIGHT, WIDTH, STRIDE = (
    96,
    128,
    8,
)  # of the network's input, and pixels of a cell of its output
FINISH = [T.Letterbox((HEIGHT, WIDTH)), T.ToLayout("CHW", "uint8")]
AUGMENT = [
    T.Decode(),
    T.RandomAffine(10, scale=(0.8, 1.2)),
    T.HorizontalFlip(),
    T.SanitizeBoundingBoxes(4),
    *FINISH,
]
Batch = tuple[Tensor, list[Tensor]]
X, Y = torch.meshgrid(
    torch.arange(WIDTH // STRIDE), torch.arange(HEIGHT // STRIDE), indexing="xy"
)
CENTRES = (torch.stack([X, Y, X, Y]) + 0.5) * STRIDE


def load(
    store: ps.Store, transform: Sequence[T.Op], sampler: ps.Sampler[int] | None
) -> DataLoader[Batch]:
    """Batches of images uint8 (n, 3, HEIGHT, WIDTH), and for each image float32
    (objects, 5): box and label.
    """
    dataset = ps.StoreDataset(
        store, ("image", "boxes", "labels"), transform, batch_form="rows"
    )
    return DataLoader(dataset, batch_size=16, sampler=sampler, num_workers=2, seed=0)


def predict(network: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    """For each cell, a box (n, 4, h, w) in pixels, and scores of the classes (n,
    classes, h, w).
    """
    found = network(images / 255 - 0.5)
    return CENTRES + 32 * found[:, :4], found[:, 4:]


def loss_of(boxes: Tensor, scores: Tensor, rows: list[Tensor]) -> Tensor:
    """The cell at the centre of an object must have its class and its box, and other
    cells no class.
    """
    true_boxes, true_scores = torch.zeros_like(boxes), torch.zeros_like(scores)
    for number, row in enumerate(rows):
        x, y = ((row[:, :2] + row[:, 2:4]) / 2 / STRIDE).long().T
        true_boxes[number, :, y, x], true_scores[number, row[:, 4].long(), y, x] = (
            row[:, :4].T,
            1.0,
        )
    centre = true_scores.amax(1, keepdim=True)
    distance = (
        (centre * (boxes - true_boxes).abs()).sum() / centre.sum().clamp(min=1) / 32
    )
    wrong = nn.functional.binary_cross_entropy_with_logits(
        scores, true_scores, pos_weight=torch.tensor(20.0)
    )
    return distance + 20 * wrong


def find(box: Tensor, score: Tensor) -> tuple[Tensor, Tensor]:
    """The boxes (n, 4) and labels (n,) of an image, at the cells whose best score is
    over 0.5 and a local maximum.
    """
    best = score.sigmoid().amax(0)
    peak = (best > 0.5) & (best == nn.functional.max_pool2d(best[None], 5, 1, 2)[0])
    return box[:, peak].T, score[:, peak].argmax(0)


def main() -> None:
    """Pack, look, train, evaluate, draw."""
    for split in ("train", "val"):
        ps.pack(None, f"{split}.lmdb", annotations=DATA, format="coco", split=split)
    train, val = ps.open("train.lmdb"), ps.open("val.lmdb")
    classes = train.schema["labels"].classes
    print(
        f"{len(train)} images to train, {len(val)} to evaluate, classes: "
        f"{', '.join(classes)}"
    )
    ps.show(train, 6, augment=AUGMENT, output="detection.jpg", tile=260, overwrite=True)
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 24, 5, 4, 2), nn.BatchNorm2d(24), nn.ReLU(),
        nn.Conv2d(24, 64, 3, 2, 1), nn.BatchNorm2d(64),
        nn.ReLU(), nn.Conv2d(64, 64, 5, 1, 2), nn.BatchNorm2d(64), nn.ReLU(),
        nn.Conv2d(64, 4 + len(classes), 1),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    loader = load(
        train, AUGMENT, ps.ClassBalancedSampler(train, field="labels", seed=0)
    )
    for epoch in range(12):
        losses: list[float] = []
        for images, rows in loader:
            loss = loss_of(*predict(network, images), rows)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1}: loss {sum(losses) / len(losses):.3f}")

    network.eval()
    hits = objects = count = 0
    drawn: list[dict[str, object]] = []
    with torch.inference_mode():
        for images, rows in load(val, [T.Decode(), *FINISH], None):
            for image, row, box, score in zip(
                images, rows, *predict(network, images), strict=True
            ):
                boxes, labels = find(box, score)
                close = (boxes[:, None] - row[:, :4]).abs().amax(2) < 6
                hits += int((close & (labels[:, None] == row[:, 4])).any(0).sum())
                objects, count = objects + len(row), count + len(boxes)
                drawn.append(
                    {
                        "image": image.movedim(0, 2).numpy(),
                        "boxes": boxes.numpy(),
                        "labels": labels.numpy(),
                    }
                )
    print(f"{hits} of {objects} objects found within 6 pixels, with {count} boxes")
    ps.pack(
        drawn,
        "found.lmdb",
        schema={"boxes": "boxes", "labels": ps.Field("int64[*]", classes)},
        overwrite=True,
    )
    ps.show("found.lmdb", 8, output="detection-found.jpg", tile=260, overwrite=True)


if __name__ == "__main__":
    main()
