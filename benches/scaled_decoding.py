"""Claim: ``Decode(scale="auto")`` is faster on large images; and how far its pixels differ from those of a full decode.

Two sets: photographs, and some of them enlarged to 1920 x 1080 with noise (as in ``rivals.py``; smoother than a
camera's). Error: each image in full and in two crops as drawn by RandomResizedCrop, resized to a square, at full size
and at each quality. Only results whose decode was reduced count. For comparison, the same error for "bicubic" instead
of "bilinear". "late": with late colour, of all images that become smaller, against a full decode; "late for early":
against a decode at the same scale. Speed: one thread, bytes in memory, float32 CHW rows of 224 x 224, in turns in one
run. ``--images DIR`` replaces the first set.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from harness import arguments, images_folder, in_turns, jpegs, machine, table, versions
from numpy.typing import NDArray
from PIL import Image

from penstock import _native
from penstock import transforms as T
from penstock.sample import SampleKeys

QUALITIES = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
FILTERS = ("bilinear", "bicubic", "lanczos", "box")
CONVEX = ("bilinear", "box")
TARGETS = {"photographs": (64, 112, 224), "1920 x 1080": (224, 320, 640)}

Region = tuple[int, int, int, int]


@dataclass
class Tally:
    """Accumulated differences in levels."""

    results: int = 0
    reduced: int = 0
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(256, np.int64))

    def add(self, difference: NDArray[np.int16]) -> None:
        """Add one result."""
        self.reduced += 1
        self.counts += np.bincount(difference.ravel(), minlength=256)

    def line(self) -> str:
        """The cells of a table row."""
        levels, total = np.arange(256), self.counts.sum()
        psnr = 10 * np.log10(255**2 * total / (self.counts * levels**2).sum())
        cells = [f"{self.reduced / self.results:.0%}", f"{psnr:.1f}", f"{(self.counts * levels).sum() / total:.2f}"]
        cells.append(str(np.flatnonzero(self.counts).max()))
        cells += [f"{self.counts[level + 1 :].sum() / total:.2%}" for level in (1, 2, 4)]
        return " | ".join(cells)


def enlarged(encoded: bytes, seed: int) -> bytes:
    """The middle of an image as 1920 x 1080, 4:2:0, quality 90."""
    image = Image.open(io.BytesIO(encoded)).convert("RGB")
    width, height = image.size
    w, h = (width, width * 9 // 16) if width * 9 <= height * 16 else (height * 16 // 9, height)
    x, y = (width - w) // 2, (height - h) // 2
    large = image.resize((1920, 1080), Image.Resampling.LANCZOS, box=(x, y, x + w, y + h))
    noise = np.random.default_rng(seed).normal(0, 2.5, (1080, 1920, 3)).round()
    file = io.BytesIO()
    pixels = (np.asarray(large) + noise).clip(0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(file, "JPEG", quality=90, subsampling="4:2:0")
    return file.getvalue()


def regions(width: int, height: int, rng: np.random.Generator) -> list[Region]:
    """The whole image and two crops."""
    found: list[Region] = [(0, 0, width, height)]
    while len(found) < 3:
        area, ratio = width * height * rng.uniform(0.08, 1), np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
        w, h = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if 0 < w <= width and 0 < h <= height:
            x, y = int(rng.integers(0, width - w + 1)), int(rng.integers(0, height - h + 1))
            found.append((x, y, x + w, y + h))
    return found


def resized(
    encoded: bytes, region: Region, target: int, name: str, quality: float | None, late_color: bool = False
) -> NDArray[np.int16]:
    """A region, resized to a square."""
    out = np.zeros((1, target, target, 3), np.uint8)
    plan = np.array([[*region, target, target, 0, 0, 0]], np.int32)
    options = {"layout": "HWC", "filter": name, "quality": quality, "late_color": late_color}
    failures, *_ = _native.fill([encoded], plan, out, np.zeros(1, np.int64), **options)
    if failures:
        raise SystemExit(f"not decoded: {failures}")
    pixels: NDArray[np.int16] = out[0].astype(np.int16)
    return pixels


def measure(encoded: bytes, target: int, rng: np.random.Generator, tallies: dict[tuple[int, str, str], Tally]) -> None:
    """Add the differences of one image."""
    width, height = (int(side) for side in _native.sizes([encoded])[0])
    for region in regions(width, height, rng):
        full = {name: resized(encoded, region, target, name, None) for name in FILTERS}
        side = min(region[2] - region[0], region[3] - region[1])
        for quality in QUALITIES:
            for name in FILTERS:
                tally = tallies[target, name, f"{quality:g}"]
                tally.results += 1
                if side < 2 * quality * target:
                    continue
                scaled = resized(encoded, region, target, name, quality)
                tally.add(abs(scaled - full[name]))
                if name in CONVEX:
                    late = resized(encoded, region, target, name, quality, late_color=True)
                    add(tallies[target, name, f"{quality:g}, late"], late - full[name])
                    add(tallies[target, name, f"{quality:g}, late for early"], late - scaled)
        for name in CONVEX if side >= target else ():
            late = resized(encoded, region, target, name, None, late_color=True)
            add(tallies[target, name, "full, late"], late - full[name])
        yardstick = tallies[target, "bilinear", "full, bicubic"]
        yardstick.results += 1
        yardstick.add(abs(full["bicubic"] - full["bilinear"]))


def add(tally: Tally, difference: NDArray[np.int16]) -> None:
    """Add a result that counts in any case."""
    tally.results += 1
    tally.add(abs(difference))


def errors(images: Sequence[bytes], targets: Sequence[int]) -> str:
    """A Markdown table."""
    rng = np.random.default_rng(0)
    tallies: dict[tuple[int, str, str], Tally] = defaultdict(Tally)
    for encoded in images:
        for target in targets:
            measure(encoded, target, rng, tallies)
    lines = ["| to | filter | quality | reduced | PSNR | mean | max | > 1 | > 2 | > 4 |", "|" + "---|" * 10]
    for (target, name, quality), tally in sorted(tallies.items()):
        if tally.reduced:
            lines.append(f"| {target} | {name} | {quality} | {tally.line()} |")
    return "\n".join(lines)


def filling(
    images: Sequence[bytes], ops: Sequence[T.Op], quality: float | None, late_color: bool = False
) -> Callable[[], float]:
    """A candidate: fill a row with every image; crops are the same in every round."""
    end = [T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout("CHW", "float32")]
    decode = T.Decode() if quality is None else T.Decode(scale="auto", quality=quality, late_color=late_color)
    program = T.Pipeline([decode, *ops, *end]).compile("image")
    keys, out = SampleKeys(0, 0, np.arange(len(images))), np.empty((len(images), 3, 224, 224), np.float32)

    def run() -> float:
        program.fill(images, out, keys)
        return len(images)

    return run


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=7)
    photographs = [path.read_bytes() for path in jpegs(images_folder(options.images))]
    photographs = [encoded for encoded in photographs if _native.sizes([encoded])[0, 0]]
    large = [enlarged(encoded, seed) for seed, encoded in enumerate(photographs[::8])]
    sets = {"photographs": photographs, "1920 x 1080": large}
    print(f"{machine()}; {versions('penstock-data', 'numpy', 'pillow')}.")
    for name, images in sets.items():
        print(f"\n### Error: {len(images)} {name}\n\n{errors(images, TARGETS[name])}")
    crops: dict[str, list[T.Op]] = {
        "RandomResizedCrop 224": [T.RandomResizedCrop(224), T.HorizontalFlip()],
        "Resize 256, CenterCrop 224": [T.Resize(256), T.CenterCrop(224)],
    }
    for name, images in sets.items():
        for task, ops in crops.items():
            candidates = {"full": filling(images, ops, None)}
            for quality in (1.0, 1.5, 2.0, 3.0):
                candidates[f"auto, quality {quality:g}"] = filling(images, ops, quality)
            candidates["auto, quality 2, late colour"] = filling(images, ops, 2.0, late_color=True)
            timings = in_turns(candidates, rounds=options.rounds, unit="images/s")
            print(f"\n### Speed: {name}, {task}\n\n{table(timings, against='full')}")


if __name__ == "__main__":
    main()
