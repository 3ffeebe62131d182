"""The same augmentation twice: torch's DataLoader with Pillow and torchvision, and penstock's; measured in turns.

Both sides read the same files' bytes, use two workers kept alive between rounds, batches of the same size, and
give float32 CHW tensors. Before any clock runs, :func:`largest_difference` compares what they make of
the same pictures.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from penstock import transforms as T
from penstock.registry import require

__all__ = [
    "WORKERS",
    "FileDataset",
    "Rate",
    "enough_images",
    "in_order",
    "in_turns",
    "largest_difference",
    "pipeline",
    "torch_loader",
    "torchvision",
]

WORKERS = 2
SIZE = 224


def pipeline(*, augment: bool) -> T.Pipeline:
    """Penstock's side: the usual training augmentation, or the usual evaluation."""
    geometry: list[Any] = (
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


def torchvision(*, augment: bool) -> Callable[[Image.Image], torch.Tensor]:
    """The other side: the same, in torchvision's words."""
    tv = _torchvision_transforms()
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
    """What most PyTorch code has: paths, Pillow, a transform."""

    def __init__(self, files: Sequence[tuple[Path, int]], transform: Callable[[Image.Image], torch.Tensor]) -> None:
        self.files = list(files)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self.files[index]
        with Image.open(path) as image:
            return self.transform(image.convert("RGB")), label


def torch_loader(dataset: FileDataset, batch_size: int) -> Iterable[Any]:
    """The DataLoader of torch as its documentation recommends it: workers are forked once, and stay."""
    return torch.utils.data.DataLoader(
        dataset,
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=WORKERS,
        persistent_workers=True,
        multiprocessing_context="fork",
    )


def in_order(dataset: FileDataset, batch_size: int) -> Iterable[Any]:
    """The same without shuffling or workers, to compare pictures with."""
    return torch.utils.data.DataLoader(dataset, batch_size=batch_size)


def largest_difference(ours: Iterable[Any], theirs: Iterable[Any]) -> float:
    """Largest difference between two loaders' pictures, in levels of 0..255."""
    largest = 0.0
    deviation = torch.tensor(T.IMAGENET_STD)[:, None, None] * 255
    for (mine, _), (other, _) in zip(ours, theirs, strict=True):
        largest = max(largest, float(((mine - other).abs() * deviation).max()))
    return largest


@dataclass
class Rate:
    """Images per second of one candidate, a figure for each round."""

    name: str
    rounds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Median over the rounds."""
        return statistics.median(self.rounds)

    @property
    def spread(self) -> float:
        """Half of what lies between the fastest and the slowest round, as a share of the median."""
        return (max(self.rounds) - min(self.rounds)) / 2 / self.median


def enough_images(dataset: FileDataset, seconds: float, *, least: int) -> int:
    """How many images make a round of about ``seconds`` for torch's side, estimated on a few."""
    few = range(min(16, len(dataset)))
    start = time.perf_counter()
    for index in few:
        dataset[index]
    rate = WORKERS * len(few) / (time.perf_counter() - start)
    return min(len(dataset), max(least, round(rate * seconds)))


def in_turns(
    candidates: dict[str, Iterable[Any]], rounds: int, told: Callable[[str, int, float], None]
) -> dict[str, Rate]:
    """Load a whole epoch from each candidate in turn, A B A B ..., after one uncounted epoch of each.

    Parameters
    ----------
    candidates : dict
        Name to loader.
    rounds : int
        Counted epochs of each.
    told : callable
        Called with (name, round, images/s) after each counted epoch.
    """
    rates = {name: Rate(name) for name in candidates}
    for number in range(rounds + 1):
        for name, loader in candidates.items():
            start = time.perf_counter()
            images = sum(len(pictures) for pictures, _ in loader)
            rate = images / (time.perf_counter() - start)
            if number:
                rates[name].rounds.append(rate)
                told(name, number, rate)
    return rates


def _torchvision_transforms() -> Any:
    """``torchvision.transforms``, also beside a torch that torchvision's compiled operators were not built for.

    The transforms used here are Python over Pillow and torch. Where the operators do not load, torchvision stops at
    registering shapes for two of them; naming those two is enough.
    """
    try:
        return require("torchvision.transforms", extra="demo", purpose="for the demo")
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        operators: Any = torch.library
        library = operators.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _libraries.append(library)
        return require("torchvision.transforms")


_libraries: list[Any] = []  # an operator lives as long as the library that defined it
