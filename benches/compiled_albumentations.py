"""Claim: a Compose of albumentations that is compiled gives batches at 1.5 times the rate of a called one, or more.

Ten pipelines as albumentations' README, guides and notebooks have them, for classes, boxes and masks; the claim is
about the median of their ratios. A Compose with a ``seed`` is never compiled: it is called with decoded samples. Both
run in one thread (``workers="serial"``), over a pack of JPEGs and over one of their pixels, which need no decoding.
That a compiled Compose gives albumentations' result is tested in ``tests/clients/test_albumentations_compiled.py``.
Needs albumentations: ``.venv-clients/bin/python benches/compiled_albumentations.py``.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness import arguments, images_folder, in_turns, jpegs, machine, ratio, versions
from PIL import Image

import penstock as ps

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # it would ask the network for a newer version

COUNT, BATCH = 96, 32
SIDES = range(256, 641)
CLASSES, BOXES, MASKS = (
    {"image": "image", "label": "label"},
    {"image": "image", "boxes": "boxes", "labels": "labels"},
    {"image": "image", "mask": "mask"},
)


def pipelines(a: Any) -> list[tuple[dict[str, str], list[Any]]]:
    """Fields of a sample, and transforms of albumentations."""
    end = [a.Normalize(), a.ToTensorV2()]
    return [
        (CLASSES, [a.RandomResizedCrop((224, 224)), a.HorizontalFlip(), *end]),
        (CLASSES, [a.Resize(224, 224), *end]),
        (CLASSES, [a.SmallestMaxSize(256), a.CenterCrop(224, 224), *end]),
        (CLASSES, [a.RandomCrop(256, 256), a.HorizontalFlip(), a.RandomBrightnessContrast(p=0.2)]),
        (CLASSES, [a.SmallestMaxSize(160), a.ShiftScaleRotate(0.05, 0.05, 15), a.RandomCrop(128, 128), a.RGBShift(),
                   a.RandomBrightnessContrast(), *end]),
        (CLASSES, [a.RandomResizedCrop((224, 224)), a.HorizontalFlip(), a.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
                   *end]),
        (CLASSES, [a.SmallestMaxSize(256), a.RandomCrop(224, 224), a.HorizontalFlip(), a.CoarseDropout(), *end]),
        (CLASSES, [a.Resize(224, 224), a.HorizontalFlip(), a.VerticalFlip(), a.RandomBrightnessContrast(),
                   a.HueSaturationValue(), *end]),
        (BOXES, [a.LongestMaxSize(640), a.PadIfNeeded(640, 640), a.HorizontalFlip(), a.RandomBrightnessContrast(),
                 a.ToTensorV2()]),
        (MASKS, [a.Resize(256, 256), a.HorizontalFlip(), a.ShiftScaleRotate(), a.RandomBrightnessContrast(), *end]),
    ]  # fmt: skip


def records(paths: list[Path], *, decoded: bool) -> Iterator[dict[str, Any]]:
    """Photographs with five boxes and a mask of squares each."""
    rng = np.random.default_rng(0)
    for label, path in enumerate(paths):
        pixels = np.array(Image.open(path))
        height, width, _ = pixels.shape
        corners = rng.uniform(0, 0.7, (5, 2))
        boxes = np.concatenate([corners, corners + rng.uniform(0.1, 0.3, (5, 2))], axis=1)
        yield {
            "image": pixels if decoded else path.read_bytes(),
            "boxes": (boxes * [width, height, width, height]).astype(np.float32),
            "labels": np.arange(1, 6),
            "mask": Image.fromarray((np.indices((height, width)).sum(axis=0) // 64 % 5).astype(np.uint8)),
            "label": label,
        }


def epoch(pack: Path, fields: dict[str, str], transform: Any) -> Callable[[], float]:
    """One epoch of a loader without workers."""
    form = "torchvision" if fields is BOXES else "nested"
    loader = ps.DataLoader(ps.StoreDataset(pack, fields, transform, batch_form=form), BATCH, workers="serial")
    return lambda: BATCH * sum(1 for _ in loader)


def main() -> None:
    """Pack, then time each pipeline, called and compiled."""
    given = arguments(__doc__, rounds=9)
    try:
        import albumentations  # an optional package
        import cv2  # albumentations' own
        import torch  # of ToTensorV2
    except ImportError as error:
        print(f"not measured: {error}")
        return
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "ShiftScaleRotate is a special case")
    photographs = []
    for path in jpegs(images_folder(given.images)):
        with Image.open(path) as image:
            if image.mode == "RGB" and all(side in SIDES for side in image.size):
                photographs.append(path)
    photographs = photographs[:COUNT]
    print(f"{machine()}\n{versions('albumentations', 'opencv-python-headless', 'numpy', 'torch')}")
    print(f"{len(photographs)} photographs with sides of {SIDES[0]} to {SIDES[-1]} pixels, {given.rounds} rounds\n")
    print("| pipeline | | JPEGs: called, compiled, images/s | ratio | pixels: called, compiled, images/s | ratio |")
    print("|---|---|---|---|---|---|")
    ratios: dict[str, list[float]] = {"jpegs": [], "pixels": []}
    with tempfile.TemporaryDirectory() as folder:
        kinds = {"mask": "mask", "boxes": "boxes", "labels": "int64[*]", "label": "label"}
        for form in ratios:
            stated = {"image": "pixels:uint8[*,*,3]"} if form == "pixels" else {}
            decoded = form == "pixels"
            ps.pack(records(photographs, decoded=decoded), Path(folder) / f"{form}.lmdb", schema=kinds | stated)
        for fields, steps in pipelines(albumentations):
            more = {}
            if fields is BOXES:
                more["bbox_params"] = albumentations.BboxParams("pascal_voc", label_fields=["labels"])
            composed = {
                name: albumentations.Compose(steps, seed=seed, **more)
                for name, seed in (("called", 0), ("compiled", None))
            }
            cells = []
            for form, found in ratios.items():
                pack = Path(folder) / f"{form}.lmdb"
                timings = in_turns(
                    {name: epoch(pack, fields, transform) for name, transform in composed.items()},
                    rounds=given.rounds, unit="images/s",
                )  # fmt: skip
                middle, low, high = ratio(timings["compiled"], timings["called"])
                found.append(middle)
                rates = ", ".join(f"{timing.median:,.0f}" for timing in timings.values())
                cells.append(f"{rates} | {middle:.2f} ({low:.2f} - {high:.2f})")
            why = ps.StoreDataset(pack, fields, composed["compiled"]).why_not_filled()
            how = "called" if "is called with decoded samples" in why else "compiled"
            names = ", ".join(type(step).__name__ for step in steps)
            print(f"| {names} | {how} | {' | '.join(cells)} |", flush=True)
    for form, found in ratios.items():
        print(f"\n{form}: the median ratio of the ten is {statistics.median(found):.2f}")


if __name__ == "__main__":
    main()
