"""Claim: a torchvision training script reads images at least 1.5 times as fast if only its import changes.

The scripts are the data part of torchvision's reference script for classification: a folder of images, the v2 presets
for training and evaluation, DataLoader with 2 workers, batch 64. There is one for each library that reads and converts
the images: Pillow (torchvision's default), torchvision's decoder, TorchCodec and OpenCV, as the loader of an
ImageFolder; and one with a dataset of its own, which OpenCV reads, and which ``compile`` takes. Each runs twice in one
process, unchanged: with the imports of torch and torchvision, and with those of penstock, epoch by epoch in turns.
First, all evaluation images are compared. Each photograph is linked five times, so that an epoch is long enough.
Libraries that are not installed are named as skipped. ``--tasks Pillow OpenCV`` runs some of them.
"""

from __future__ import annotations

import importlib
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
compile = lambda dataset: dataset
"""

OURS: Final = """
from penstock.torch import DataLoader, ImageFolder, compile
"""

SCRIPT: Final = """
import functools
import torch
from torchvision.transforms import v2

{reading}

last = [
    v2.ToDtype(torch.float32, scale=True),
    v2.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    v2.ToPureTensor(),
]
random = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(0.5)]
preset_train = v2.Compose([*BEFORE, *random, *AFTER, *last])
preset_eval = v2.Compose([*BEFORE, v2.Resize(256, antialias=True), v2.CenterCrop(224), *AFTER, *last])

dataset = make_dataset(data_path, preset_train)
dataset_test = make_dataset(data_path, preset_eval)

train = DataLoader(
    dataset, batch_size=batch_size, shuffle=True, num_workers=workers, persistent_workers=True, drop_last=True
)
test = DataLoader(dataset_test, batch_size=batch_size, shuffle=False, num_workers=workers, persistent_workers=True)
"""

WITH_LOADER: Final = """
def make_dataset(path, transform):
    return ImageFolder(path, transform, loader=load)
"""

READINGS: Final = {
    "Pillow": """
BEFORE, AFTER = [], [v2.PILToTensor()]

def make_dataset(path, transform):
    return ImageFolder(path, transform)
""",
    "torchvision": """
from torchvision.io import decode_image

BEFORE, AFTER = [], []
load = functools.partial(decode_image, mode="RGB")
"""
    + WITH_LOADER,
    "TorchCodec": """
from torchcodec.decoders import decode_image as load

BEFORE, AFTER = [], []
"""
    + WITH_LOADER,
    "OpenCV": """
import cv2

BEFORE, AFTER = [v2.ToImage()], []

def load(path):
    image = cv2.imread(path)
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
"""
    + WITH_LOADER,
    "OpenCV, own __getitem__": """
import cv2
from torch.utils.data import Dataset

BEFORE, AFTER = [v2.ToImage()], []

class Photos(Dataset):
    def __init__(self, path, transform):
        self.samples = ImageFolder(path).samples
        self.transform = transform

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        image = cv2.imread(path)
        if image is None:
            raise FileNotFoundError(path)
        image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
        if self.transform is not None:
            image = self.transform(image)
        return image, label

def make_dataset(path, transform):
    return compile(Photos(path, transform))
""",
}
"""By library: how the script reads an image, and what comes before and after the transforms of its size."""

MODULES: Final = {"Pillow": "PIL", "torchvision": "torchvision", "TorchCodec": "torchcodec.decoders", "OpenCV": "cv2"}


def run_script(imports: str, reading: str, folder: Path, scratch: Path) -> dict[str, Any]:
    """The names of a script after it runs with these imports; it is a file, as the compiler reads its lines."""
    path = scratch / f"script{len(list(scratch.glob('script*')))}.py"
    path.write_text(imports + SCRIPT.format(reading=reading))
    names = {"data_path": str(folder), "batch_size": BATCH, "workers": WORKERS}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names


def linked(folder: Path, scratch: Path) -> Path:
    """Link every class of the folder several times under different names."""
    scratch.mkdir()
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


def why_skipped(name: str) -> str:
    """Why a library cannot be measured here; empty if it can."""
    try:
        importlib.import_module(MODULES[name.partition(",")[0]])
    except (ImportError, RuntimeError) as error:  # RuntimeError: TorchCodec without FFmpeg
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    return ""


def measure(name: str, root: Path, scratch: Path, rounds: int) -> None:
    """Check one script, and measure training and evaluation."""
    theirs, ours = (run_script(imports, READINGS[name], root, scratch) for imports in (THEIRS, OURS))
    if not hasattr(ours["train"].dataset, "spec") or ours["train"].dataset.spec() is None:
        raise SystemExit(f"the script with {name} is not compiled")
    print(f"#### {name}\n\nSame pixels: {check(theirs, ours)}.\n")
    for part, title in (("train", "training"), ("test", "evaluation")):
        candidates = {
            "torch.utils.data, torchvision.datasets": epoch(theirs[part]),
            "penstock.torch": epoch(ours[part]),
        }
        timings = in_turns(candidates, rounds=rounds, unit="images/s")
        middle, low, high = ratio(*reversed(timings.values()))
        print(f"{title}:\n\n{table(timings, against='torch.utils.data, torchvision.datasets')}\n")
        change = "The import, and compile(dataset), make" if "own" in name else "The import alone makes"
        print(f"{change} {title} input {middle:.2f} ({low:.2f} - {high:.2f}) times as fast.\n")


def main() -> None:
    """Check, measure and print."""
    options = arguments(__doc__, rounds=5, tasks=list(READINGS))
    folder = images_folder(options.images)
    warnings.filterwarnings("ignore", message=".*excessive worker creation.*")
    warnings.filterwarnings("ignore", message="The image decoding and encoding", category=DeprecationWarning)
    print("### Torchvision scripts, with only the import changed, 2 workers\n")
    print(f"{len(jpegs(folder))} JPEGs x {REPEATS} an epoch, batch {BATCH}, float32 CHW 224; {machine()}; ", end="")
    libraries = "Pillow", "torchcodec", "opencv-python-headless"
    print(versions("penstock-data", "torch", "torchvision", *libraries, "numpy") + ".\n")
    with tempfile.TemporaryDirectory() as scratch:
        root = linked(folder, Path(scratch, "photographs"))
        for name in options.tasks:
            if reason := why_skipped(name):
                print(f"#### {name}\n\nSkipped: {reason}\n")
            else:
                measure(name, root, Path(scratch), options.rounds)


if __name__ == "__main__":
    main()
