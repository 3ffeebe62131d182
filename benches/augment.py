"""Claim: augmentation ops are several times faster than their NumPy and Pillow specifications, and than torchvision's.

One photograph as uint8 of 224 x 224 and of 500 x 375, one thread. Each op is measured in turns: penstock's native op,
its specification (``Op.image``), and torchvision's v2 function on a uint8 CPU tensor, channels first. First, all pixels
of the native op are compared with the specification's. torchvision's functions for tensors round in another way; tests
compare the specification with its functions for PIL images. Batches of 64 float32 images are mixed as NumPy arrays, and
by torchvision as tensors. Then whole pipelines run from JPEG files in memory to float32, channels first: penstock's
compiled, torchvision's on PIL images. Times are CPU times of the thread per call.
"""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from harness import arguments, images_folder, jpegs, machine, versions
from PIL import Image
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional as F  # the name in torchvision's documentation

from penstock import transforms as T
from penstock.sample import SampleKeys

Call = Callable[[], Any]
BATCH = 64
DRAWN = 28
CHUNK = 8
FILES = 64


@dataclass(frozen=True)
class Case:
    """The three versions of an op; the specification or torchvision's may be missing."""

    name: str
    native: Call
    specified: Call | None
    theirs: Call | None


def op_case(name: str, op: T.Op, params: Any, image: np.ndarray, theirs: Call | None) -> Case:
    """One op with fixed parameters on one image, after its pixels are compared."""
    drawn = np.asarray(params)
    native, specified = partial(op.native, image, drawn), partial(op.image, image, drawn)
    if not np.array_equal(native(), specified()):
        raise SystemExit(f"{name}: the native pixels are not the specification's")
    return Case(name, native, specified, theirs)


def value_cases(image: np.ndarray, tensor: torch.Tensor) -> list[Case]:
    """Ops that change values."""

    def jitter(hue: bool) -> torch.Tensor:
        steps = F.adjust_contrast(F.adjust_brightness(tensor, 1.3), 0.7)
        return F.adjust_hue(F.adjust_saturation(steps, 1.2), 0.08) if hue else F.adjust_saturation(steps, 1.2)

    numbers, yes = [1.3, 0.7, 1.2, 0.08, 0, 1, 2, 3], np.array(True)
    case = partial(op_case, image=image)
    return [
        case("brightness", T.ColorJitter(0.4), numbers, theirs=lambda: F.adjust_brightness(tensor, 1.3)),
        case("contrast", T.ColorJitter(0, 0.4), numbers, theirs=lambda: F.adjust_contrast(tensor, 0.7)),
        case("saturation", T.ColorJitter(0, 0, 0.4), numbers, theirs=lambda: F.adjust_saturation(tensor, 1.2)),
        case("hue", T.ColorJitter(hue=0.1), numbers, theirs=lambda: F.adjust_hue(tensor, 0.08)),
        case("ColorJitter, without hue", T.ColorJitter(0.4, 0.4, 0.4), numbers, theirs=lambda: jitter(False)),
        case("ColorJitter, with hue", T.ColorJitter(0.4, 0.4, 0.4, 0.1), numbers, theirs=lambda: jitter(True)),
        case("RandomHSV", T.RandomHSV(), [0.01, 1.3, 0.8], theirs=None),
        case("Grayscale", T.Grayscale(), yes, theirs=lambda: F.rgb_to_grayscale(tensor, 3)),
        case("Posterize", T.Posterize(3), yes, theirs=lambda: F.posterize(tensor, 3)),
        case("Solarize", T.Solarize(), yes, theirs=lambda: F.solarize(tensor, 128)),
        case("Invert", T.Invert(), yes, theirs=lambda: F.invert(tensor)),
        case("Equalize", T.Equalize(), yes, theirs=lambda: F.equalize(tensor)),
        case("AutoContrast", T.AutoContrast(), yes, theirs=lambda: F.autocontrast(tensor)),
        case("Sharpness", T.Sharpness(1.5), yes, theirs=lambda: F.adjust_sharpness(tensor, 1.5)),
        case("GaussianBlur 9, sigma 2", T.GaussianBlur(9), [2.0], theirs=lambda: F.gaussian_blur(tensor, 9, 2.0)),
        case("GaussianBlur 23, sigma 1.5", T.GaussianBlur(23), [1.5], theirs=lambda: F.gaussian_blur(tensor, 23, 1.5)),
    ]


def place_cases(image: np.ndarray, tensor: torch.Tensor) -> list[Case]:
    """Geometric ops, and the last ops of a pipeline."""
    height, width = image.shape[:2]
    affine, linear = [15.0, 9, -12, 1.1, 6, 0], InterpolationMode.BILINEAR
    tilt = T.RandomPerspective(0.5, 1)
    tilted = tilt.draw(SampleKeys(0, 0, np.arange(1)), np.array([[width, height]], np.int32), 0)[0]
    corners = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
    ends = tilted[1:].reshape(4, 2).astype(int).tolist()
    black = torch.zeros(3, 1, 1, dtype=torch.uint8)
    mean, std = list(T.IMAGENET_MEAN), list(T.IMAGENET_STD)
    case = partial(op_case, image=image)
    return [
        case("RandomRotation, nearest", T.RandomRotation(30), [17.0], theirs=lambda: F.rotate(tensor, 17.0)),
        case(
            "RandomRotation, bilinear",
            T.RandomRotation(30, "bilinear"),
            [17.0],
            theirs=lambda: F.rotate(tensor, 17.0, linear),
        ),
        case(
            "RandomAffine, nearest",
            T.RandomAffine(30),
            affine,
            theirs=lambda: F.affine(tensor, 15.0, [9, -12], 1.1, [6.0, 0.0]),
        ),
        case(
            "RandomAffine, bilinear",
            T.RandomAffine(30, filter="bilinear"),
            affine,
            theirs=lambda: F.affine(tensor, 15.0, [9, -12], 1.1, [6.0, 0.0], linear),
        ),
        case(
            "RandomPerspective, bilinear",
            tilt,
            tilted,
            theirs=lambda: F.perspective(tensor, corners, ends, linear),
        ),
        case(
            "RandomErasing",
            T.RandomErasing(1),
            [20, 30, 80, 90, 0.3],
            theirs=lambda: F.erase(tensor, 30, 20, 90, 80, black),
        ),
        case("Pad 16", T.Pad(16), [], theirs=lambda: F.pad(tensor, [16] * 4)),
        case(
            "Normalize",
            T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD),
            [],
            theirs=lambda: F.normalize(F.to_dtype(tensor, torch.float32, scale=True), mean, std),
        ),
    ]


def drawn_cases(image: np.ndarray, tensor: torch.Tensor) -> list[Case]:
    """Many draws of an augmentation; the time per call is for one image on average."""
    keys = SampleKeys(0, 0, np.arange(DRAWN))
    sizes = np.array([image.shape[1::-1]] * DRAWN, np.int32)

    def case(name: str, op: T.Op, theirs: torch.nn.Module) -> Case:
        rows = op.draw(keys, sizes, 0)
        if not all(np.array_equal(op.native(image, row), op.image(image, row)) for row in rows):
            raise SystemExit(f"{name}: the native pixels are not the specification's")
        return Case(
            f"{name}, {DRAWN} draws",
            lambda: [op.native(image, row) for row in rows],
            lambda: [op.image(image, row) for row in rows],
            lambda: [theirs(tensor) for _ in rows],
        )

    return [
        case("RandAugment", T.RandAugment(), v2.RandAugment()),
        case("TrivialAugmentWide", T.TrivialAugmentWide(), v2.TrivialAugmentWide()),
    ]


def batch_cases() -> list[Case]:
    """Whole batches, after the native result is compared with that of NumPy's operators."""
    images = np.random.default_rng(0).random((BATCH, 3, 224, 224), np.float32)
    labels = np.arange(BATCH) % 10
    tensors, targets = torch.from_numpy(images), torch.from_numpy(labels)
    mix, cut = T.MixUp(1.0, 10), T.CutMix(1.0, 10)
    by_operators = np.asfortranarray(images)
    if not np.array_equal(mix(images, labels, batch=3)[0], mix(by_operators, labels, batch=3)[0]):
        raise SystemExit("MixUp: the native values are not the operators'")
    return [
        Case(
            f"MixUp, {BATCH} float32",
            lambda: mix(images, labels, batch=3),
            lambda: images[[(i - 1) % BATCH for i in range(BATCH)]] * 0.7 + images * 0.3,
            lambda: v2.MixUp(num_classes=10)(tensors, targets),
        ),
        Case(
            f"CutMix, {BATCH} float32",
            lambda: cut(images, labels, batch=3),
            None,
            lambda: v2.CutMix(num_classes=10)(tensors, targets),
        ),
    ]


def pipeline_cases(encoded: list[bytes]) -> list[Case]:
    """From files to training input; each call is for the next image."""
    keys, mean, std = SampleKeys(0, 0, np.arange(len(encoded))), T.IMAGENET_MEAN, T.IMAGENET_STD
    out = np.empty((CHUNK, 3, 224, 224), np.float32)
    ours = {
        "crop, flip": [],
        "crop, flip, TrivialAugmentWide": [T.TrivialAugmentWide()],
        "crop, flip, RandAugment": [T.RandAugment()],
        "crop, flip, ColorJitter, Grayscale, GaussianBlur": [
            T.ColorJitter(0.8, 0.8, 0.8, 0.2),
            T.Grayscale(p=0.2),
            T.GaussianBlur(23),
        ],
    }
    theirs = [
        [],
        [v2.TrivialAugmentWide()],
        [v2.RandAugment()],
        [v2.ColorJitter(0.8, 0.8, 0.8, 0.2), v2.RandomGrayscale(0.2), v2.GaussianBlur(23, (0.1, 2.0))],
    ]

    def case(name: str, mine: list[T.Op], other: list[torch.nn.Module]) -> Case:
        crop = [T.Decode(), T.RandomResizedCrop(224), T.HorizontalFlip()]
        last = [T.Normalize(mean, std), T.RandomErasing(0.25), T.ToLayout()]
        program = T.Pipeline([*crop, *mine, *last]).compile("image")
        before = [v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), *other]
        behind = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std), v2.RandomErasing(0.25)]
        transform = v2.Compose([*before, *behind])

        def fill() -> None:
            for start in range(0, len(encoded), CHUNK):
                program.fill(encoded[start : start + CHUNK], out, keys[start : start + CHUNK])

        def transformed() -> None:
            for image in encoded:
                transform(Image.open(io.BytesIO(image)).convert("RGB"))

        return Case(f"{name}; {len(encoded)} pictures", fill, None, transformed)

    return [case(name, mine, other) for (name, mine), other in zip(ours.items(), theirs, strict=True)]


def measured(cases: list[Case], rounds: int) -> str:
    """A Markdown table: medians in microseconds of CPU time, and ratios for each round."""
    lines = ["| op | native, us | spread | specification | torchvision v2 | its ratio (lowest - highest) |"]
    lines.append("|---|---|---|---|---|---|")
    for case in cases:
        calls = [case.native, case.specified, case.theirs]
        times: list[list[float]] = [[], [], []]
        for _ in range(rounds + 1):
            for call, spent in zip(calls, times, strict=True):
                if call is not None:
                    spent.append(_microseconds(call))
        native, specified, theirs = (statistics.median(spent[1:]) if spent else None for spent in times)
        assert native is not None
        spread = (max(times[0][1:]) - min(times[0][1:])) / 2 / native
        row = f"| {case.name} | {native:,.0f} | ±{spread:.0%} | "
        row += "| " if specified is None else f"{specified:,.0f} ({specified / native:.1f} x) | "
        if theirs is not None:
            ratios = [b / a for a, b in zip(times[0][1:], times[2][1:], strict=True)]
            row += f"{theirs:,.0f} | {statistics.median(ratios):.1f} ({min(ratios):.1f} - {max(ratios):.1f}) |"
        lines.append(row)
    return "\n".join(lines)


def _microseconds(call: Call) -> float:
    """The time of one call, measured over some milliseconds of calls."""
    start = time.thread_time()
    call()
    count = max(1, int(0.005 / max(time.thread_time() - start, 1e-6)))
    start = time.thread_time()
    for _ in range(count):
        call()
    return (time.thread_time() - start) / count * 1e6


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=9)
    torch.set_num_threads(1)
    files = jpegs(images_folder(options.images))
    photograph = Image.open(files[0]).convert("RGB")
    known = versions("penstock-data", "numpy", "pillow", "torch", "torchvision")
    print(f"### Augmentation, one thread\n\n{machine()}; {known}.\n")
    for width, height in ((224, 224), (500, 375)):
        image = np.asarray(photograph.resize((width, height))).copy()
        tensor = torch.from_numpy(image).permute(2, 0, 1).contiguous()
        cases = [*value_cases(image, tensor), *place_cases(image, tensor), *drawn_cases(image, tensor)]
        print(f"{width} x {height}:\n\n{measured(cases, options.rounds)}\n")
    print(f"Batches:\n\n{measured(batch_cases(), options.rounds)}\n")
    encoded = [path.read_bytes() for path in files[:FILES]]
    print(f"Pipelines:\n\n{measured(pipeline_cases(encoded), options.rounds)}")


if __name__ == "__main__":
    main()
