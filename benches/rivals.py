"""Claim: training input is several times faster than with the fastest other loaders, on the same files.

Tasks, batch 64 (T4: 32), two workers or threads each. T1: ImageNet photographs, RandomResizedCrop 224, flip, normalise,
float32. T2: the same on 1920 x 1080 photographs (those of T1 enlarged, with noise, quality 90). T3: Resize 256 and
CenterCrop 224. T4: 640 x 480 to a letterbox of 640, uint8. Every candidate is a program that runs one epoch in each of
its turns. Pixels differ between libraries, because they resize in different ways; only penstock's are tested here.

``RIVALS=folder`` contains the other environments: ``dali/bin/python`` (nvidia-dali-cuda120), ``ffcv/bin/python`` (ffcv,
torch) and ``torch/bin/python`` (torch, torchvision, torchcodec, simplejpeg). Missing environments are reported and not
measured.
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
    "T1": ("plain", "rows", "tiles", "coefficients", "folder", "bare loop"),
    "T2": (
        *("plain", "rows", "tiles", "coefficients", "plain, scaled", "tiles, scaled", "tiles, scaled, late colour"),
        "coefficients, scaled, late colour",
    ),
    "T3": ("plain", "rows", "coefficients"),
    "T4": ("plain",),
}
TASKS = {
    "T1": ("ImageNet, RandomResizedCrop 224", 5),
    "T2": ("1920 x 1080, RandomResizedCrop 224", 2),
    "T3": ("ImageNet, Resize 256, CenterCrop 224", 3),
    "T4": ("640 x 480, letterbox 640, uint8", 2),
}
"""The work, and how often the files are repeated in an epoch."""


class Peer:
    """A program that runs an epoch on request."""

    def __init__(self, python: str, script: str, *given: str) -> None:
        command = [python, str(HERE / "peers" / script), *given]
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # open as long as the program runs
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

    def ask(self, line: str) -> str:
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.reply()

    def __call__(self) -> float:
        return int(self.ask("epoch"))

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def large(source: Path, target: Path, size: tuple[int, int], sigma: float) -> None:
    """The photographs, cropped to the shape of ``size``, enlarged, with noise."""
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
    """The running programs, and the names of missing environments."""
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
    """One table, with ratios to the fastest other library."""
    rivals = [timing for name, timing in timings.items() if not name.startswith("penstock")]
    print(f"### {task}: {TASKS[task][0]}\n")
    if absent:
        print(f"Not installed: {', '.join(absent)}.\n")
    best = max(rivals, key=lambda timing: timing.median) if rivals else timings["penstock, plain"]
    print(f"| candidate | images/s | spread | against {best.name} (lowest - highest) |\n|---|---|---|---|")
    for name, timing in timings.items():
        middle, low, high = ratio(timing, best)
        print(f"| {name} | {timing.median:,.0f} | ±{timing.spread:.0%} | {middle:.2f} ({low:.2f} - {high:.2f}) |")
    print()


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=5, tasks=tuple(TASKS))
    images = images_folder(options.images)
    print(f"{machine()}; {versions('penstock-data', 'numpy')}; two workers or threads each.\n")
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
