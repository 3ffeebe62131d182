"""Claim: training input for detection, boxes included, is at least 2.5 times as fast as with the fastest other loaders.

Photographs of blood cells, 640 x 480, with 13 boxes each, batch 32, two workers or threads each. "boxes": a letterbox
of 640, uint8 CHW, with the boxes. "mosaic": the recipe of the YOLO detectors: four pictures around a random point, an
affine map (scale 0.5 to 1.5, shift), its middle of 640 x 640, boxes of which little is left removed, flip, hue,
saturation and value. Every candidate is a program that runs one epoch in each of its turns. First their boxes are
compared: those of 32 pictures, without anything random, differ by at most 0.5 pixels. Pixels are not compared:
libraries decode, resize and change colours in different ways.

Of the four pictures of a mosaic, Ultralytics takes three from a buffer of decoded ones, and DALI from the same batch:
they decode one picture for each sample, and the others four (penstock: what is seen of them).

``RIVALS=folder`` contains the other environments: ``dali/bin/python`` (nvidia-dali-cuda120) and
``detection/bin/python`` (torch, opencv-python-headless, albumentations, ultralytics). Missing environments are reported
and not measured. ``--images DIR`` is a folder with VOC annotations of pictures of 640 x 480.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import Timing, arguments, in_turns, machine, ratio, versions
from rivals import Peer

from penstock import annotations

RIVALS = (
    ("DALI", "dali", "detection_dali.py"),
    ("torch + OpenCV + albumentations", "detection", "detection_torch.py"),
    ("Ultralytics", "detection", "detection_ultralytics.py"),
)
OURS = "penstock"
TASKS = {
    "boxes": ("640 x 480 with boxes, letterbox 640, uint8", 2),
    "mosaic": ("mosaic, affine map, flip, hue, saturation and value, 640 x 640", 1),
}
"""The work, and how often the pictures are repeated in an epoch."""

COMPARED, TOLERANCE = 32, 0.5
Peers = dict[str, Peer]


def pictures(given: Path | None) -> Path:
    """The folder of VOC annotations: the given one, that of ``$PENSTOCK_DATA``, or that of the examples."""
    root = Path(__file__).resolve().parent.parent
    data = Path(os.environ.get("PENSTOCK_DATA", root.parent / "shared" / "data"))
    shared = data / "bccd"
    return given or (shared if shared.is_dir() else root / "examples" / "data" / "blood-cells")


def prepare(source: Path, target: Path) -> tuple[int, int]:
    """The same pictures and boxes as files of YOLO and of COCO; returns how many of both there are."""
    found = annotations.read(source, format="voc", on_error="skip")
    (target / "images").mkdir(parents=True)
    (target / "labels").mkdir()
    coco: dict[str, list[dict[str, Any]]] = {"images": [], "annotations": [], "categories": []}
    coco["categories"] = [{"id": number, "name": name} for number, name in enumerate(found.classes)]
    (target / "data.yaml").write_text(json.dumps({"path": ".", "train": "images", "names": [*found.classes]}))
    for number, record in enumerate(sorted(found.records, key=lambda record: record["image"])):
        width, height = record["width"], record["height"]
        if (width, height) != (640, 480):
            sys.exit(f"pictures must have 640 x 480 pixels, got {width} x {height}: {record['image']}")
        name = Path(record["image"]).name
        shutil.copy(source / record["image"], target / "images" / name)
        rows = np.concatenate([record["boxes"].astype(np.float64), record["labels"][:, None]], 1).clip(0, 640)
        rows[:, :4] = rows[:, :4].clip(0, [640, 480, 640, 480])
        rows = np.unique(rows, axis=0)  # Ultralytics leaves out objects that are there twice, and sorts them
        sides, centres = rows[:, 2:4] - rows[:, :2], (rows[:, :2] + rows[:, 2:4]) / 2
        lines = np.concatenate([centres / [width, height], sides / [width, height]], 1)
        text = "".join(
            f"{label:.0f} {' '.join(f'{each:.9f}' for each in line)}\n"
            for label, line in zip(rows[:, 4], lines, strict=True)
        )
        (target / "labels" / name).with_suffix(".txt").write_text(text)
        coco["images"].append({"id": number, "file_name": name, "width": width, "height": height})
        coco["annotations"] += [
            {"id": len(coco["annotations"]) + k, "image_id": number, "category_id": int(row[4]), "iscrowd": 0,
             "bbox": [*row[:2].tolist(), *side.tolist()], "area": float(side.prod())}
            for k, (row, side) in enumerate(zip(rows, sides, strict=True))
        ]  # fmt: skip
    (target / "boxes.json").write_text(json.dumps(coco))
    return len(coco["images"]), len(coco["annotations"])


def candidates(task: str, folder: Path) -> tuple[Peers, list[str]]:
    """The running programs, and the names of missing environments."""
    environments, given = Path(os.environ.get("RIVALS", "rivals")), (str(folder / "images"), str(TASKS[task][1]))
    found: Peers = {}
    absent = []
    for name, environment, script in RIVALS:
        python = environments / environment / "bin" / "python"
        if python.exists():
            found[name] = Peer(str(python), script, task, name, *given)
        else:
            absent.append(name)
    found[OURS] = Peer(sys.executable, "detection_penstock.py", task, OURS, *given)
    return found, absent


def compare(task: str, peers: Peers) -> float:
    """The largest difference, in pixels, of a box from ours; ends the program if it is more than the tolerance."""
    every = {name: json.loads(peer.ask(f"targets {COMPARED}")) for name, peer in peers.items()}
    largest = 0.0
    for name, pictures in every.items():
        for number, (own, other) in enumerate(zip(every[OURS], pictures, strict=True)):
            wanted, found = (in_order(np.array(rows).reshape(-1, 5)) for rows in (own, other))
            if wanted.shape != found.shape or (wanted[:, 4] != found[:, 4]).any():
                sys.exit(f"{task}: picture {number} must have the objects\n{wanted}\nbut {name} has\n{found}")
            largest = max(largest, float(np.abs(wanted - found).max(initial=0)))
            if largest > TOLERANCE:
                sys.exit(f"{task}: picture {number} must have the boxes\n{wanted}\nbut {name} has\n{found}")
    return largest


def in_order(rows: np.ndarray) -> np.ndarray:
    """Rows by class and position, whatever their order: positions are whole pixels, or halves."""
    return rows[np.lexsort((*rows[:, :4].round(2).T, rows[:, 4]))]


def report(task: str, timings: dict[str, Timing], absent: list[str], largest: float) -> None:
    """One table, with ratios to the fastest other library."""
    print(f"### {TASKS[task][0]}\n")
    if absent:
        print(f"Not installed: {', '.join(absent)}.\n")
    rivals = [timing for name, timing in timings.items() if name != OURS]
    best = max(rivals, key=lambda timing: timing.median) if rivals else timings[OURS]
    if rivals:
        print(f"Same boxes: those of {COMPARED} pictures differ by at most {largest:.3f} pixels.\n")
    print(f"| candidate | images/s | spread | against {best.name} (lowest - highest) |\n|---|---|---|---|")
    for name, timing in timings.items():
        middle, low, high = ratio(timing, best)
        print(f"| {name} | {timing.median:,.0f} | ±{timing.spread:.0%} | {middle:.2f} ({low:.2f} - {high:.2f}) |")
    print()


def main() -> None:
    """Compare, measure and print."""
    options = arguments(__doc__, rounds=5, tasks=tuple(TASKS))
    with tempfile.TemporaryDirectory() as folder:
        count, boxes = prepare(pictures(options.images), Path(folder) / "set")
        print(
            f"{count} pictures, {boxes} boxes; {machine()}; {versions('penstock-data', 'numpy')}; two workers each.\n"
        )
        for task in options.tasks:
            peers, absent = candidates(task, Path(folder) / "set")
            largest = compare(task, peers)
            runs: dict[str, Callable[[], float]] = {**peers}
            report(task, in_turns(runs, rounds=options.rounds, unit="images/s"), absent, largest)
            for peer in peers.values():
                peer.close()


if __name__ == "__main__":
    main()
