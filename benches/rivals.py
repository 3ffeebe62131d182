"""Claim: training input is several times faster than with the fastest loaders there are, on the same files.

Tasks, batch 64 (T4: 32), two workers or threads each: T1, ImageNet photographs, RandomResizedCrop 224, flip, normalise,
float32; T2, the same on 1920 x 1080 photographs (made of the former: enlarged, with noise, quality 90); T3, Resize 256
and CenterCrop 224; T4, 640 x 480 to a letterbox of 640, uint8. Every candidate is a program of its own that stays and
does one epoch when it is its turn. Pictures are not the same across rivals (their resizing differs); how far each is
from Pillow's is their own affair, ours is tested.

The rivals' environments are not ours to set up in passing: ``RIVALS=folder`` names one with ``dali/bin/python``
(nvidia-dali-cuda120), ``ffcv/bin/python`` (ffcv, torch) and ``torch/bin/python`` (torch, torchvision, torchcodec,
simplejpeg). Those that are not there are left out, and said to be.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from harness import Timing, arguments, images_folder, in_turns, machine, ratio, versions
from PIL import Image

HERE = Path(__file__).resolve().parent
RIVALS = (
    ("DALI", "dali", "dali.py", "", {"T1", "T2", "T3", "T4"}),
    ("FFCV", "ffcv", "ffcv_jpeg.py", "", {"T1", "T2", "T3"}),
    ("torch + TorchCodec", "torch", "torch_loader.py", "torchcodec", {"T1", "T2", "T3", "T4"}),
    ("torch + simplejpeg", "torch", "torch_loader.py", "simplejpeg", {"T1", "T2", "T3", "T4"}),
    ("torch + Pillow", "torch", "torch_loader.py", "pillow", {"T1", "T3"}),
)
OURS = {
    "T1": ("plain", "rows", "tiles", "folder", "bare loop"),
    "T2": ("plain", "rows", "tiles", "plain, scaled", "tiles, scaled"),
    "T3": ("plain", "rows"),
    "T4": ("plain",),
}
TASKS = {
    "T1": ("ImageNet, RandomResizedCrop 224", 5),
    "T2": ("1920 x 1080, RandomResizedCrop 224", 2),
    "T3": ("ImageNet, Resize 256, CenterCrop 224", 3),
    "T4": ("640 x 480, letterbox 640, uint8", 2),
}
"""What is done, and how often the files are repeated in an epoch."""


class Peer:
    """A program that runs an epoch when it is told to."""

    def __init__(self, python: str, script: str, *given: str) -> None:
        command = [python, str(HERE / "peers" / script), *given]
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # as long as the program
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        self.reply()

    def reply(self) -> str:
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            sys.exit(f"{self.process.args} ended: {self.log.read()[-2000:]}")
        return line

    def __call__(self) -> float:
        self.process.stdin.write("epoch\n")
        self.process.stdin.flush()
        return int(self.reply())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def large(source: Path, target: Path, size: tuple[int, int], sigma: float) -> None:
    """The photographs, cut to the shape of ``size``, enlarged to it, with noise as a camera's."""
    target.mkdir()
    width, height = size
    for number, path in enumerate(sorted(source.rglob("*.jpg"))):
        image = Image.open(path).convert("RGB")
        across, down = image.size
        across, down = min(across, down * width // height), min(down, across * height // width)
        left, top = (image.width - across) // 2, (image.height - down) // 2
        image = image.resize(size, Image.LANCZOS, box=(left, top, left + across, top + down))
        if sigma:
            noise = np.random.default_rng(number).normal(0, sigma, (height, width, 3)).round()
            image = Image.fromarray((np.asarray(image, np.int16) + noise).clip(0, 255).astype(np.uint8))
        image.save(target / f"{number:04d}.jpg", quality=90, subsampling="4:2:0")


def candidates(task: str, folder: Path) -> tuple[dict[str, Callable[[], float]], list[str]]:
    """Programs that are ready, and the rivals that are not there."""
    environments, given = Path(os.environ.get("RIVALS", "rivals")), (str(folder), str(TASKS[task][1]))
    found: dict[str, Callable[[], float]] = {}
    absent = []
    for name, environment, script, candidate, tasks in RIVALS:
        python = environments / environment / "bin" / "python"
        if task in tasks and python.exists():
            found[name] = Peer(str(python), script, task, candidate, *given)
        elif task in tasks:
            absent.append(name)
    for candidate in OURS[task]:
        found[f"penstock, {candidate}"] = Peer(sys.executable, "penstock_loader.py", task, candidate, *given)
    return found, absent


def report(task: str, timings: dict[str, Timing], absent: list[str]) -> None:
    """One table, against the best rival."""
    rivals = [timing for name, timing in timings.items() if not name.startswith("penstock")]
    print(f"### {task}: {TASKS[task][0]}\n")
    if absent:
        print(f"Not there: {', '.join(absent)}.\n")
    best = max(rivals, key=lambda timing: timing.median) if rivals else timings["penstock, plain"]
    print(f"| candidate | images/s | spread | against {best.name} (lowest - highest) |\n|---|---|---|---|")
    for name, timing in timings.items():
        middle, low, high = ratio(timing, best)
        print(f"| {name} | {timing.median:,.0f} | ±{timing.spread:.0%} | {middle:.2f} ({low:.2f} - {high:.2f}) |")
    print()


def main() -> None:
    """Measure, print."""
    options = arguments(__doc__, rounds=5, tasks=tuple(TASKS))
    images = images_folder(options.images)
    print(f"{machine()}; {versions('penstock', 'numpy')}; two workers or threads each.\n")
    with tempfile.TemporaryDirectory() as folder:
        large(images, Path(folder) / "T2", (1920, 1080), 2.5)
        large(images, Path(folder) / "T4", (640, 480), 0)
        for task in options.tasks:
            found, absent = candidates(task, Path(folder) / task if task in {"T2", "T4"} else images)
            report(task, in_turns(found, rounds=options.rounds, unit="images/s"), absent)
            for peer in found.values():
                peer.close()


if __name__ == "__main__":
    main()
