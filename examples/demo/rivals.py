"""The same augmentation with two loaders, measured in turns: torch's with Pillow and torchvision, and penstock's.

Both read the same bytes, use two persistent workers and the same batch size, and return float32 CHW tensors. Before
speed is measured, :func:`measure_largest_difference` compares their images.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Final

import torch
from PIL import Image

from penstock import transforms as T
from penstock.registry import require
from penstock.sample import Batch

__all__ = [
    "WORKERS",
    "FileDataset",
    "Rate",
    "create_pipeline",
    "create_torch_loader",
    "create_torchvision_transform",
    "create_unshuffled_loader",
    "estimate_round_images",
    "measure_in_turns",
    "measure_largest_difference",
]

WORKERS = 2
SIZE = 224


def create_pipeline(*, augment: bool) -> T.Pipeline:
    """Penstock's pipeline for training (with augmentation) or evaluation."""
    geometry: list[T.Op] = (
        [T.RandomResizedCrop(SIZE), T.HorizontalFlip()] if augment else [T.Resize(256), T.CenterCrop(SIZE)]
    )
    return T.Pipeline(
        [
            T.Decode(),
            *geometry,
            T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD),
            T.ToLayout("CHW", "float32"),
        ]
    )


def create_torchvision_transform(*, augment: bool) -> Callable[[Image.Image], torch.Tensor]:
    """The same pipeline of torchvision's transforms."""
    tv = _import_transforms()
    geometry = (
        [tv.RandomResizedCrop(SIZE), tv.RandomHorizontalFlip()] if augment else [tv.Resize(256), tv.CenterCrop(SIZE)]
    )
    compose: Callable[[Image.Image], torch.Tensor] = tv.Compose(
        [
            *geometry,
            tv.ToTensor(),
            tv.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD),
        ]
    )
    return compose


class FileDataset(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """A usual PyTorch dataset: paths, Pillow, and a transform."""

    def __init__(self, files: Sequence[tuple[Path, int]], transform: Callable[[Image.Image], torch.Tensor]) -> None:
        self.files = list(files)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self.files[index]
        with Image.open(path) as image:
            return self.transform(image.convert("RGB")), label


def create_torch_loader(dataset: FileDataset, batch_size: int) -> Iterable[Batch]:
    """torch's DataLoader with persistent workers, as its documentation recommends."""
    return torch.utils.data.DataLoader(
        dataset,
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=WORKERS,
        persistent_workers=True,
        multiprocessing_context="fork",
    )


def create_unshuffled_loader(dataset: FileDataset, batch_size: int) -> Iterable[Batch]:
    """torch's DataLoader without shuffling and without workers, to compare images."""
    return torch.utils.data.DataLoader(dataset, batch_size=batch_size)


def measure_largest_difference(ours: Iterable[Batch], theirs: Iterable[Batch]) -> float:
    """The largest difference between the images of two loaders, in levels from 0 to 255."""
    largest = 0.0
    deviation = torch.tensor(T.IMAGENET_STD)[:, None, None] * 255
    for (mine, _), (other, _) in zip(ours, theirs, strict=True):
        largest = max(largest, float(((mine - other).abs() * deviation).max()))
    return largest


@dataclass
class Rate:
    """Images per second of one loader, a number for each round."""

    name: str
    rounds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median over the rounds."""
        return statistics.median(self.rounds)

    @property
    def spread(self) -> float:
        """Half of the difference between the fastest and the slowest round, divided by the median."""
        return (max(self.rounds) - min(self.rounds)) / 2 / self.median


def estimate_round_images(dataset: FileDataset, seconds: float, *, least: int) -> int:
    """Estimate how many images torch's loader loads in ``seconds``, from a few images."""
    few = range(min(16, len(dataset)))
    start = time.perf_counter()
    for index in few:
        dataset[index]
    rate = WORKERS * len(few) / (time.perf_counter() - start)
    return min(len(dataset), max(least, round(rate * seconds)))


def measure_in_turns(
    candidates: dict[str, Iterable[Batch]], rounds: int, report: Callable[[str, int, float], None]
) -> dict[str, Rate]:
    """Load an epoch from each loader in turn, A B A B ..., after one epoch of each that is not counted.

    ``candidates``: name to loader. ``rounds``: number of counted epochs of each. ``report``: called with (name, round,
    images/s) after each counted epoch.
    """
    rates = {name: Rate(name) for name in candidates}
    for number in range(rounds + 1):
        for name, loader in candidates.items():
            start = time.perf_counter()
            images = sum(len(pictures) for pictures, _ in loader)
            rate = images / (time.perf_counter() - start)
            if number:
                rates[name].rounds.append(rate)
                report(name, number, rate)
    return rates


def _import_transforms() -> ModuleType:
    """Import ``torchvision.transforms``, even if torchvision's compiled operators were built for another torch.

    The transforms of the demo use Pillow and torch only. If the operators do not load, the import fails where
    torchvision registers shapes for two of them, so this defines these two.
    """
    try:
        transforms: ModuleType = require("torchvision.transforms", extra="demo", purpose="for the demo")
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]  # torch does not type it
        for name in ("nms", "qnms"):
            schema = f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            library.define(schema)  # type: ignore[no-untyped-call]  # as above
        _LIBRARIES.append(library)
        transforms = require("torchvision.transforms")
    return transforms


_LIBRARIES: Final[list[object]] = []  # an operator exists as long as the library that defines it
