"""Claim: training input is at least three times as fast as with torch's DataLoader, Pillow and torchvision.

Two tasks, batch 64, float32 CHW, ImageNet's mean and deviation, 2 workers each: RandomResizedCrop 224 (scale 0.08-1),
flip, shuffled ("train"), and Resize 256, CenterCrop 224 ("eval"). The candidates run in turns: torch's DataLoader (2
persistent processes, fork), penstock from a pack (2 threads), penstock from the plain folder, and a plain loop of two
threads that only call the native fill on bytes in memory with crops drawn in advance. First, the evaluation images of
all files are compared. penstock's datasets create decode indices in the first round, which is not counted; the plain
loop has no index.
"""

from __future__ import annotations

import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torchvision
from harness import arguments, images_folder, in_turns, jpegs, machine, ratio, table, versions

import penstock as ps
from penstock import _native
from penstock import transforms as T
from penstock.sample import SampleKeys

BATCH, WORKERS, REPEATS = 64, 2, 5


def torch_transform(task: str) -> Callable[..., torch.Tensor]:
    """The augmentation with torchvision's transforms."""
    t = torchvision.transforms
    geometry = (
        [t.RandomResizedCrop(224), t.RandomHorizontalFlip()] if task == "train" else [t.Resize(256), t.CenterCrop(224)]
    )
    return t.Compose([*geometry, t.ToTensor(), t.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD)])


def torch_loader(folder: Path, task: str) -> torch.utils.data.DataLoader:
    """A usual PyTorch dataset."""
    photographs = torchvision.datasets.ImageFolder(str(folder), torch_transform(task))
    return torch.utils.data.DataLoader(
        torch.utils.data.ConcatDataset([photographs] * REPEATS),
        BATCH,
        shuffle=task == "train",
        num_workers=WORKERS,
        persistent_workers=True,
        drop_last=True,
        multiprocessing_context="fork",
    )


def pipeline(task: str) -> T.Pipeline:
    """The augmentation with penstock's ops."""
    geometry = [T.RandomResizedCrop(224), T.HorizontalFlip()] if task == "train" else [T.Resize(256), T.CenterCrop(224)]
    normalise = [T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout("CHW", "float32")]
    return T.Pipeline([T.Decode(), *geometry, *normalise])


def penstock_loader(source: Path, task: str) -> ps.DataLoader:
    """penstock's loader."""
    photographs = ps.StoreDataset(ps.open(str(source)), fields=("image", "label"), transform=pipeline(task))
    return ps.DataLoader(
        ps.ConcatDataset([photographs] * REPEATS),
        BATCH,
        shuffle=task == "train",
        num_workers=WORKERS,
        drop_last=True,
        seed=0,
    )


def epoch(loader: object) -> Callable[[], float]:
    """A candidate: count the images of one epoch."""

    def run() -> float:
        return sum(len(images) for images, _ in loader)  # type: ignore[attr-defined]  # both kinds of loader iterate

    return run


def bare(images: list[bytes], task: str) -> Callable[[], float]:
    """Two threads that only call the native fill, with bytes in memory and geometry drawn in advance."""
    encoded = images * REPEATS
    keys = SampleKeys(0, 0, np.arange(len(encoded)))
    geometry = pipeline(task).compile("image").plan(keys, np.tile(_native.sizes(images), (REPEATS, 1))).geometry
    normalise = T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD)
    chunks = [range(i, i + 8) for i in range(0, len(encoded) // 8 * 8, 8)]

    def work(mine: list[range]) -> None:
        out = np.empty((8, 3, 224, 224), np.float32)
        rows = np.arange(8)
        for chunk in mine:
            failures, _, _ = _native.fill(
                encoded[chunk.start : chunk.stop],
                geometry[chunk.start : chunk.stop],
                out,
                rows,
                layout="CHW",
                filter="bilinear",
                scale=normalise.scale,
                offset=normalise.offset,
            )
            if failures:
                raise SystemExit(f"the bare loop met pictures that it cannot fill: {failures}")

    def run() -> float:
        threads = [threading.Thread(target=work, args=(chunks[i::WORKERS],)) for i in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(chunks) * 8

    return run


def check(folder: Path, pack: Path) -> str:
    """Compare all evaluation images with torchvision's on PIL images, in levels from 0 to 255."""
    theirs = torchvision.datasets.ImageFolder(str(folder), torch_transform("eval"))
    ours = ps.StoreDataset(ps.open(str(pack)), fields=("image", "label"), transform=pipeline("eval"))
    deviation = np.array(T.IMAGENET_STD, np.float32).reshape(3, 1, 1) * 255
    worst, total = 0.0, 0.0
    loader = ps.DataLoader(ours, 1, num_workers=WORKERS)
    for (want, label), (images, labels) in zip(theirs, loader, strict=True):
        if label != labels[0]:
            raise SystemExit("the two sides disagree on a label")
        difference = np.abs(images[0] - want.numpy()) * deviation
        worst, total = max(worst, float(difference.max())), total + float(difference.mean())
    if worst > 1.01:
        raise SystemExit(f"evaluation pictures differ by up to {worst:.2f} levels")
    return f"at most {worst:.2f}, on average {total / len(ours):.3f} of 255 levels from torchvision's on Pillow"


def main() -> None:
    """Pack, check, measure both tasks and print."""
    options = arguments(__doc__, rounds=5)
    folder = images_folder(options.images)
    warnings.filterwarnings("ignore", message=".*excessive worker creation.*")
    with tempfile.TemporaryDirectory() as scratch:
        pack = Path(scratch) / "photographs.lmdb"
        ps.pack(str(folder), str(pack), index="none")
        agreement = check(folder, pack)
        encoded = [path.read_bytes() for path in jpegs(folder)]
        print("### Training and evaluation input, 2 workers\n")
        print(f"{len(encoded)} JPEGs x {REPEATS} an epoch, batch {BATCH}, float32 CHW 224; {machine()}; ", end="")
        print(versions("penstock-data", "torch", "torchvision", "Pillow", "numpy") + ".")
        print(f"Same evaluation images: {agreement}.\n")
        for task in ("train", "eval"):
            loaders = {
                "torch DataLoader + Pillow + torchvision": torch_loader(folder, task),
                "penstock, packed (LMDB)": penstock_loader(pack, task),
                "penstock, plain folder": penstock_loader(folder, task),
            }
            candidates = {name: epoch(loader) for name, loader in loaders.items()}
            candidates["bare loop over the native fill"] = bare(encoded, task)
            timings = in_turns(candidates, rounds=options.rounds, unit="images/s")
            of_bare = ratio(timings["penstock, packed (LMDB)"], timings["bare loop over the native fill"])
            print(f"#### {task}\n\n{table(timings, against='torch DataLoader + Pillow + torchvision')}\n")
            print(
                f"The packed loader reaches {of_bare[0]:.2f} ({of_bare[1]:.2f} - {of_bare[2]:.2f}) of the bare loop.\n"
            )


if __name__ == "__main__":
    main()
