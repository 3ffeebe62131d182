"""Claim: a torchvision training script reads images at least three times as fast if only its import changes.

The script below is the data part of torchvision's reference script for classification: ImageFolder, the v2 presets
for training and evaluation, DataLoader with 2 workers, batch 64. It runs twice in one process, unchanged: with the
imports of torch and torchvision, and with those of penstock, epoch by epoch in turns. First, all evaluation images
are compared. Each photograph is linked five times, so that an epoch is long enough.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from harness import arguments, images_folder, in_turns, jpegs, machine, ratio, table, versions

BATCH, WORKERS, REPEATS = 64, 2, 5

THEIRS: Final = """
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
"""

OURS: Final = """
from penstock.torch import DataLoader, ImageFolder
"""

SCRIPT: Final = """
import torch
from torchvision.transforms import v2

normalize = [
    v2.PILToTensor(),
    v2.ToDtype(torch.float32, scale=True),
    v2.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    v2.ToPureTensor(),
]
preset_train = v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(0.5), *normalize])
preset_eval = v2.Compose([v2.Resize(256, antialias=True), v2.CenterCrop(224), *normalize])

dataset = ImageFolder(data_path, preset_train)
dataset_test = ImageFolder(data_path, preset_eval)

train = DataLoader(
    dataset, batch_size=batch_size, shuffle=True, num_workers=workers, persistent_workers=True, drop_last=True
)
test = DataLoader(dataset_test, batch_size=batch_size, shuffle=False, num_workers=workers, persistent_workers=True)
"""


def run_script(imports: str, folder: Path) -> dict[str, Any]:
    """The names of the script after it runs with these imports."""
    names = {"data_path": str(folder), "batch_size": BATCH, "workers": WORKERS}
    exec(compile(imports + SCRIPT, "<the script>", "exec"), names)
    return names


def linked(folder: Path, scratch: Path) -> Path:
    """Link every class of the folder several times under different names."""
    for repeat in range(REPEATS):
        for kind in sorted(path for path in folder.iterdir() if path.is_dir()):
            (scratch / f"{kind.name}-{repeat}").symlink_to(kind.resolve(), target_is_directory=True)
    return scratch


def check(theirs: dict[str, Any], ours: dict[str, Any]) -> str:
    """Compare the evaluation images, in levels from 0 to 255, and their labels."""
    import torch

    deviation = torch.tensor((0.229, 0.224, 0.225)).view(1, 3, 1, 1) * 255
    worst, total, count = 0.0, 0.0, 0
    for (want, labels), (images, same) in zip(theirs["test"], ours["test"], strict=True):
        if not torch.equal(labels, same):
            raise SystemExit("the two sides disagree on a label")
        difference = (images - want).abs() * deviation
        worst = max(worst, difference.max().item())
        total, count = total + difference.mean().item() * len(labels), count + len(labels)
    if worst > 1.05:
        raise SystemExit(f"evaluation pictures differ by up to {worst:.2f} levels")
    return f"evaluation pictures agree: at most {worst:.2f}, on average {total / count:.3f} of 255 levels"


def epoch(loader: Any) -> Callable[[], float]:
    """A candidate: count the images of one epoch."""

    def run() -> float:
        return sum(len(images) for images, _ in loader)

    return run


def main() -> None:
    """Check, measure training and evaluation, and print."""
    options = arguments(__doc__, rounds=5)
    folder = images_folder(options.images)
    warnings.filterwarnings("ignore", message=".*excessive worker creation.*")
    with tempfile.TemporaryDirectory() as scratch:
        root = linked(folder, Path(scratch))
        theirs, ours = run_script(THEIRS, root), run_script(OURS, root)
        print("### A torchvision script, with only its import changed, 2 workers\n")
        print(f"{len(jpegs(folder))} JPEGs x {REPEATS} an epoch, batch {BATCH}, float32 CHW 224; {machine()}; ", end="")
        print(versions("penstock-data", "torch", "torchvision", "Pillow", "numpy") + ".")
        print(f"Same pixels: {check(theirs, ours)}.\n")
        for part, title in (("train", "training"), ("test", "evaluation")):
            candidates = {
                "torch.utils.data, torchvision.datasets": epoch(theirs[part]),
                "penstock.torch": epoch(ours[part]),
            }
            timings = in_turns(candidates, rounds=options.rounds, unit="images/s")
            middle, low, high = ratio(*reversed(timings.values()))
            print(f"#### {title}\n\n{table(timings, against='torch.utils.data, torchvision.datasets')}\n")
            print(f"The import alone makes {title} input {middle:.2f} ({low:.2f} - {high:.2f}) times as fast.\n")


if __name__ == "__main__":
    main()
