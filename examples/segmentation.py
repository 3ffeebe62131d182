"""Train a network for segmentation: folders of masks, a pack, masks that follow their pictures, exact resume.

::

    python examples/segmentation.py                                    # composed pictures: minutes of one core
    python examples/segmentation.py --data DIR --format mask_folders   # your own, with the splits "train" and "val"

It needs torch, and scikit-image for its photographs (``penstock-data[demo]``). In the middle of an epoch the run is
saved, and then continued from what was saved; it prints how many batches and losses are the same. At the end it prints
the intersection over union of each class on other pictures, and draws what was found in ``predictions.png``.
"""

from __future__ import annotations

import argparse
import io
from typing import Any

import numpy as np
import torch
from composed import write_segmentation
from numpy.typing import NDArray
from PIL import Image
from pixel_network import PixelNetwork
from torch.nn import functional as F
from training import Run, make_parser, pack, parse_options, report_counts, save_sheet, start_run, to_picture, train

import penstock as ps
from penstock import transforms as T
from penstock.torch import DataLoader

SIZE = (128, 128)  # height and width of the network's input; multiples of 16
FIELDS = ("image", "mask")
IGNORED = 255  # the value of pixels without a class, as in VOC
_BACKGROUND = 0.5
_DRAWN = 12
COLOURS = ((0, 0, 0), (0, 200, 255), (255, 64, 64), (64, 255, 64), (255, 208, 0), (255, 64, 255), (255, 255, 255))


def segmentation_loss(network: Any, batch: Any) -> torch.Tensor:
    """The mean cross entropy of all pixels that have a class; those of the first one, the background, count less."""
    images, masks = batch
    found = _predict(network, images)
    weights = torch.ones(found.shape[1])
    weights[0] = _BACKGROUND
    return F.cross_entropy(found, masks.long(), weights, ignore_index=IGNORED)


def _predict(network: Any, images: torch.Tensor) -> torch.Tensor:
    return F.interpolate(network(images), size=images.shape[2:], mode="bilinear", align_corners=False)


def name_classes(store: ps.Store) -> tuple[str, ...]:
    """The names of classes, by their values in masks; numbers, where the annotations have no names."""
    if names := store.schema["labels"].classes:
        return tuple(names)
    most = 0
    for index in range(len(store)):
        with Image.open(io.BytesIO(store[index].fields["mask"])) as mask:
            values = np.asarray(mask)
        most = max(most, int(values[values != IGNORED].max(initial=0)))
    return tuple(map(str, range(most + 1)))


def start(store: ps.Store, classes: int, options: argparse.Namespace) -> Run:
    """A run at its beginning."""
    augment = [
        T.Decode(),
        T.Letterbox(SIZE, mask_fill=IGNORED),
        T.RandomAffine(
            30, translate=(0.1, 0.1), scale=(0.8, 1.25), filter="bilinear", fill=114, mask_fill=IGNORED
        ),
        T.HorizontalFlip(),
        T.VerticalFlip(),
        T.ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2, hue=0.05),
        T.ToLayout("CHW", "uint8"),
    ]  # fmt: skip
    dataset = ps.StoreDataset(store, FIELDS, augment)
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
    return start_run(loader, lambda: PixelNetwork(classes), segmentation_loss, options)


def count_pairs(found: NDArray[Any], true: NDArray[Any], classes: int) -> NDArray[np.int64]:
    """How many pixels have each pair of true class (row) and found one (column); those without a class do not count."""
    known = true != IGNORED
    pairs = true[known].astype(np.int64) * classes + found[known]
    return np.bincount(pairs, minlength=classes**2).reshape(classes, classes)


def intersections_over_unions(pairs: NDArray[np.int64]) -> NDArray[np.float64]:
    """The intersection over union of each class, in [0, 1]; NaN for a class that is neither there nor found."""
    both = np.diagonal(pairs)
    union = pairs.sum(0) + pairs.sum(1) - both
    return np.where(union > 0, both / np.maximum(union, 1), np.nan)


def evaluate(network: Any, store: ps.Store, names: tuple[str, ...], options: argparse.Namespace) -> float:
    """Print the intersections over unions, draw what was found, and return the mean of all classes."""
    prepare = [T.Decode(), T.Letterbox(SIZE, mask_fill=IGNORED), T.ToLayout("CHW", "uint8")]
    dataset = ps.StoreDataset(store, FIELDS, prepare)
    pairs = np.zeros((len(names), len(names)), np.int64)
    pictures: list[Any] = []
    network.eval()
    with torch.inference_mode():
        for images, masks in DataLoader(dataset, options.batch_size):
            found = _predict(network, images).argmax(1).numpy()
            pairs += count_pairs(found, masks.numpy(), len(names))
            if len(pictures) < _DRAWN:
                pictures += map(draw, images, masks, found)
    shares = intersections_over_unions(pairs)
    for name, share, count in zip(names, shares, pairs.sum(1), strict=True):
        print(f"  {name:12} IoU {share:.3f}, {count} pixels")
    mean = float(np.nanmean(shares))
    print(f"mIoU {mean:.3f} ({np.nanmean(shares[1:]):.3f} without {names[0]}) on {len(store)} images")
    save_sheet(pictures[:_DRAWN], options.output / "predictions.png")
    return mean


def draw(image: torch.Tensor, mask: torch.Tensor, found: NDArray[Any]) -> Any:
    """A picture, beside it in colours the mask that was found, and the true one."""
    colours = np.array(COLOURS, np.uint8)
    masks = [colours[np.where(each == IGNORED, 0, each) % len(COLOURS)] for each in (found, mask.numpy())]
    return Image.fromarray(np.hstack([np.asarray(to_picture(image)), *masks]))


def main() -> None:
    """Compose pictures, if none are given; pack, train, resume, evaluate."""
    options = parse_options(make_parser("segmentation", epochs=25, batch_size=8, lr=3e-3))
    source, form = options.data, options.format
    if source is None:
        source, form = options.output / "pictures", "mask_folders"
        write_segmentation(source, {"train": 24, "val": 12} if options.quick else {"train": 600, "val": 150})
    learn, check = (pack(options, part, source, form) for part in ("train", "val"))
    report_counts(learn, check)
    names = name_classes(learn)
    run = train(lambda: start(learn, len(names), options), options)
    evaluate(run.network, check, names, options)


if __name__ == "__main__":
    main()
