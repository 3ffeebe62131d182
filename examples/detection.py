"""Train a detector on photographs of blood cells: annotations, packs, balanced classes, augmented boxes, exact resume.

::

    python examples/detection.py                            # examples/data/blood-cells: minutes of one core
    python examples/detection.py --convert yolo             # the same from a YOLO copy: identical batches
    python examples/detection.py --data DIR --format coco   # your own, with the splits "train" and "val"

It needs torch; ``--convert yolo`` and ``--format yolo`` need ``penstock-data[yolo]``. In the middle of an epoch the run
is saved, and then continued from what was saved; it prints how many batches and losses are the same. At the end it
prints the mean average precision at an IoU of 0.5, and draws the boxes that were found in ``predictions.png``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from average_precision import average_precisions, average_precisions_of_pycocotools
from detector import Detector, detection_loss, find_boxes
from PIL import ImageDraw
from training import Run, make_parser, pack, parse_options, save_sheet, start_run, to_picture, train

import penstock as ps
from penstock import transforms as T
from penstock.torch import DataLoader

SIZE = (240, 320)  # height and width of the network's input; multiples of 16
FIELDS = ("image", "boxes", "labels")
COLOURS = ("#00c8ff", "#ff4040", "#40ff40", "#ffd000", "#ff40ff", "#ffffff")


def loss(network: Any, batch: Any) -> torch.Tensor:
    """The loss of the detector on a batch of the form "rows"."""
    images, rows = batch
    heat, sides = network(images)
    return detection_loss(heat, sides, rows)


def convert(options: argparse.Namespace) -> tuple[Path, str]:
    """Write the set in another format."""
    target = options.output / options.convert
    ps.convert(pack(options, None, options.data, options.format), target, to_layout=options.convert, overwrite=True)
    return target, options.convert


def start(store: ps.Store, options: argparse.Namespace) -> Run:
    """A run at its beginning."""
    augment = [
        T.Decode(),
        T.Letterbox(SIZE),
        T.RandomAffine(10, translate=(0.1, 0.1), scale=(0.8, 1.25), filter="bilinear", fill=114),
        T.HorizontalFlip(),
        T.VerticalFlip(),
        T.ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2),
        T.SanitizeBoundingBoxes(min_size=4, min_visible=0.3),
        T.ToLayout("CHW", "uint8"),
    ]
    dataset = ps.StoreDataset(store, FIELDS, augment, batch_form="rows")
    length = len(store) if not options.quick else 3 * options.batch_size
    balanced = ps.ClassBalancedSampler(store, length, field="labels", seed=options.seed)
    loader = DataLoader(
        dataset,
        options.batch_size,
        sampler=balanced,
        drop_last=True,
        num_workers=1,
        workers="threads",
        seed=options.seed,
    )
    classes = len(store.schema["labels"].classes)
    return start_run(loader, lambda: Detector(classes), loss, options)


def evaluate(network: Any, store: ps.Store, options: argparse.Namespace) -> float:
    """Print the average precisions, draw what was found, and return the mean."""
    prepare = [T.Decode(), T.Letterbox(SIZE), T.ToLayout("CHW", "uint8")]
    dataset = ps.StoreDataset(store, FIELDS, prepare, batch_form="rows")
    found: list[Any] = []
    true: list[Any] = []
    pictures: list[Any] = []
    network.eval()
    with torch.inference_mode():
        for images, rows in DataLoader(dataset, options.batch_size):
            found += [each.numpy() for each in find_boxes(*network(images))]
            true += [each.numpy().copy() for each in rows]
            pictures += [each.clone() for each in images] if len(pictures) < 9 else []
    classes = store.schema["labels"].classes
    precisions = average_precisions(found, true, len(classes))
    for name, precision, label in zip(classes, precisions, range(len(classes)), strict=True):
        print(f"  {name:12} AP {precision:.3f}, {sum((each[:, 4] == label).sum() for each in true)} objects")
    other = average_precisions_of_pycocotools(found, true, len(classes))
    also = "" if other is None else f" (pycocotools: {np.nanmean(other):.3f})"
    mean = float(np.nanmean(precisions))
    print(f"mAP@0.5 {mean:.3f}{also} on {len(store)} images")
    draw(pictures[:9], found, true, options.output / "predictions.png")
    return mean


def draw(pictures: list[Any], found: list[Any], true: list[Any], path: Path) -> None:
    """A sheet of images with the objects found, in the colour of their class, and thin white boxes that are true."""
    drawn = []
    for number, pixels in enumerate(pictures):
        picture = to_picture(pixels)
        pen = ImageDraw.Draw(picture)
        for row in true[number]:
            pen.rectangle(row[:4].tolist(), outline="white")
        for row in found[number][found[number][:, 5] > 0.3]:
            pen.rectangle(row[:4].tolist(), outline=COLOURS[int(row[4]) % len(COLOURS)], width=2)
        drawn.append(picture)
    save_sheet(drawn, path)


def parse() -> argparse.Namespace:
    """The options of the command line."""
    parser = make_parser("detection", epochs=100, batch_size=8, lr=3e-3)
    parser.set_defaults(data=Path(__file__).resolve().parent / "data" / "blood-cells")
    parser.add_argument("--convert", choices=("voc", "yolo", "coco"), help="write the set in this format, and use that")
    return parse_options(parser)


def main() -> None:
    """Pack, train, resume, evaluate."""
    options = parse()
    source, form = convert(options) if options.convert else (options.data, options.format)
    learn, check = (pack(options, part, source, form) for part in ("train", "val"))
    counts = np.bincount(learn.ragged_column("labels").values)
    print(
        f"{len(learn)} images to train: "
        + ", ".join(
            f"{count} {name}" for name, count in zip(learn.schema["labels"].classes, counts.tolist(), strict=False)
        )
    )
    run = train(lambda: start(learn, options), options)
    evaluate(run.network, check, options)


if __name__ == "__main__":
    main()
