"""Train a network for landmarks: COCO's keypoints, a pack, points that follow their pictures, exact resume.

::

    python examples/landmarks.py                            # composed faces: minutes of one core
    python examples/landmarks.py --data DIR --format coco   # your own, with the splits "train" and "val"
    python examples/landmarks.py --data DIR --format retinaface --least-flag 0

Of several objects in a picture, the one with the largest box counts. It needs torch, and scikit-image for its
photographs (``penstock-data[demo]``). In the middle of an epoch the run is saved, and then continued from what was
saved; it prints how many batches and losses are the same. At the end it prints the mean distance of points that were
found from the true ones on other pictures, in parts of the box, and draws them in ``predictions.png``.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from composed import write_landmarks
from numpy.typing import NDArray
from PIL import ImageDraw
from pixel_network import STRIDE, PixelNetwork
from training import Run, make_parser, pack, parse_options, report_counts, save_sheet, start_run, to_picture, train

import penstock as ps
from penstock import transforms as T
from penstock.torch import DataLoader

SIZE = (128, 128)  # height and width of the network's input; multiples of 16
FIELDS = ("image", "boxes", "keypoints")
COLOURS = ("#ff4040", "#40ff40", "#00c8ff", "#ffd000", "#ff40ff", "#ffffff")
_DRAWN = 12
_SPREAD = 1.5  # standard deviation of the heat around a point, in cells


def find_points(maps: torch.Tensor) -> torch.Tensor:
    """Points in the image (n, K, 2) of maps (n, K, h, w): the mean of the heat around the warmest cell.

    The window around that cell is moved to the mean of what it shows, several times: it would hold the point back.
    """
    count, number, height, width = maps.shape
    heat = maps.flatten(2).softmax(2)
    cells = torch.stack(_centres(height, width)[::-1], 1)
    points = cells[heat.argmax(2)]
    for _ in range(6):
        far = ((cells - points[:, :, None]) ** 2).sum(3)
        near = heat * (-far / (2 * (2 * _SPREAD * STRIDE) ** 2)).exp()
        points = near @ cells / near.sum(2, keepdim=True)
    return points.reshape(count, number, 2)


def _centres(height: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Coordinates in the image of the cells of a map, y and x, each (h * w,)."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return (y.flatten() + 0.5) * STRIDE, (x.flatten() + 0.5) * STRIDE


def choose_points(
    boxes: list[torch.Tensor], points: list[torch.Tensor], least_flag: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each picture, the points (n, K, 2) of the largest box, and its size: the root of its area (n,).

    Points that are not known, and all of a picture without objects, are NaN.
    """
    chosen, sizes = [], []
    for own, rows in zip(boxes, points, strict=True):
        area = (own[:, 2] - own[:, 0]).clamp(min=0) * (own[:, 3] - own[:, 1]).clamp(min=0)
        if len(area) == 0 or area.max() <= 0:
            chosen.append(torch.full((rows.shape[1], 2), torch.nan))
            sizes.append(torch.tensor(torch.nan))
            continue
        row = rows[area.argmax()]
        chosen.append(torch.where(row[:, 2:] >= least_flag, row[:, :2], torch.nan))
        sizes.append(area.max().sqrt())
    return torch.stack(chosen), torch.stack(sizes)


def landmark_loss(network: Any, batch: Any, least_flag: float = 1) -> torch.Tensor:
    """The cross entropy of the heat with a bell around each point; those outside the picture do not count."""
    images, boxes, rows = batch
    points, _ = choose_points(boxes, rows, least_flag)
    maps = network(images)
    height, width = maps.shape[2:]
    limit = torch.tensor([width, height]) * STRIDE
    known = ((points >= 0) & (points < limit)).all(2)  # False for NaN
    y, x = _centres(height, width)
    place = torch.where(known[..., None], points, 0.0)
    far = (x - place[..., :1]) ** 2 + (y - place[..., 1:]) ** 2
    expected = (-far / (2 * (_SPREAD * STRIDE) ** 2)).softmax(2)
    each = -(expected * maps.flatten(2).log_softmax(2)).sum(2)
    return torch.as_tensor((each * known).sum()) / known.sum().clamp(min=1)


def start(store: ps.Store, options: argparse.Namespace) -> Run:
    """A run at its beginning."""
    augment = [
        T.Decode(),
        T.Letterbox(SIZE),
        T.RandomAffine(15, translate=(0.1, 0.1), scale=(0.8, 1.2), filter="bilinear", fill=114),
        T.RandomPerspective(0.2, p=0.5, fill=114),
        T.HorizontalFlip(keypoint_pairs=options.pairs),
        T.ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2, hue=0.1),
        T.ToLayout("CHW", "uint8"),
    ]
    dataset = ps.StoreDataset(store, FIELDS, augment, ragged="list")
    chosen = ps.Subset(dataset, range(min(len(store), 3 * options.batch_size))) if options.quick else dataset
    loader = DataLoader(
        chosen,
        options.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=1,
        workers="threads",
        seed=options.seed,
    )
    count = store[0].fields["keypoints"].shape[1]

    def loss(network: Any, batch: Any) -> torch.Tensor:
        return landmark_loss(network, batch, options.least_flag)

    return start_run(loader, lambda: PixelNetwork(count), loss, options)


def evaluate(network: Any, store: ps.Store, options: argparse.Namespace) -> float:
    """Print the mean error of each point, draw what was found, and return the mean of all."""
    prepare = [T.Decode(), T.Letterbox(SIZE), T.ToLayout("CHW", "uint8")]
    dataset = ps.StoreDataset(store, FIELDS, prepare, ragged="list")
    errors: list[NDArray[Any]] = []
    pictures: list[Any] = []
    network.eval()
    with torch.inference_mode():
        for images, boxes, rows in DataLoader(dataset, options.batch_size):
            true, sizes = choose_points(boxes, rows, options.least_flag)
            found = find_points(network(images))
            errors.append(((found - true).norm(dim=2) / sizes[:, None]).numpy())
            if len(pictures) < _DRAWN:
                pictures += map(draw, images, found, true)
    parts = np.concatenate(errors)  # NaN where there is no point
    for number, column in enumerate(parts.T):
        print(f"  point {number:<6} mean error {_percent(column)} of the box, {np.isfinite(column).sum()} points")
    known = parts[np.isfinite(parts)]
    close = (known <= 0.05).mean() if len(known) else np.nan
    print(f"mean error {_percent(known)} of the box, {close:.0%} of points within 5 %, on {len(store)} images")
    save_sheet(pictures[:_DRAWN], options.output / "predictions.png", columns=4)
    return float(known.mean())


def _percent(errors: NDArray[Any]) -> str:
    known = errors[np.isfinite(errors)]
    return f"{100 * known.mean():.2f} %" if len(known) else "unknown"


def draw(image: torch.Tensor, found: torch.Tensor, true: torch.Tensor) -> Any:
    """A picture with the points that were found, in the colour of their number, and white crosses that are true."""
    picture = to_picture(image)
    pen = ImageDraw.Draw(picture)
    for x, y in true[true.isfinite().all(1)].tolist():
        pen.line((x - 3, y, x + 3, y), fill="white")
        pen.line((x, y - 3, x, y + 3), fill="white")
    for number, (x, y) in enumerate(found.tolist()):
        pen.ellipse((x - 3, y - 3, x + 3, y + 3), outline=COLOURS[number % len(COLOURS)])
    return picture


def parse_pairs(text: str) -> list[tuple[int, int]]:
    """The pairs of "0-1,3-4"; none of an empty text."""
    pairs = []
    for part in text.split(",") if text else []:
        left, right = part.split("-")
        pairs.append((int(left), int(right)))
    return pairs


def main() -> None:
    """Compose pictures, if none are given; pack, train, resume, evaluate."""
    parser = make_parser("landmarks", epochs=12, batch_size=8, lr=4e-3)
    parser.add_argument("--pairs", type=parse_pairs, default="0-1,3-4", help="points that a mirror exchanges")
    parser.add_argument("--least-flag", type=float, default=1, help="points with a smaller flag are not known")
    options = parse_options(parser)
    source, form = options.data, options.format
    if source is None:
        source, form = options.output / "pictures", "coco"
        write_landmarks(source, {"train": 24, "val": 12} if options.quick else {"train": 600, "val": 150})
    learn, check = (pack(options, part, source, form) for part in ("train", "val"))
    report_counts(learn, check)
    run = train(lambda: start(learn, options), options)
    evaluate(run.network, check, options)


if __name__ == "__main__":
    main()
