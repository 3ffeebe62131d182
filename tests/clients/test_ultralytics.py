"""Ultralytics: ``build_dataloader`` and its InfiniteDataLoader over ours, YOLO's trainer with validation and resume."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import ultralytics.data.build
import ultralytics.models.yolo.detect.train
import ultralytics.models.yolo.detect.val
from PIL import Image
from ultralytics.cfg import get_cfg
from ultralytics.data.utils import check_det_dataset
from ultralytics.models.yolo.detect import DetectionTrainer
from ultralytics.utils.torch_utils import init_seeds

from tests.clients.harness import EPOCHS, REPLACED, TORCH, Recording, assert_same, modules_over, record

WORKERS = pytest.mark.parametrize("workers", [0, 2])
"""An infinite loader keeps its workers: whether they are persistent makes no difference."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """26 small pictures with boxes of 3 classes, as YOLO has them on disk; 9 of them to validate with."""
    folder = tmp_path_factory.mktemp("yolo")
    draw = np.random.default_rng(0)
    for part, count in ("train", 26), ("val", 9):
        for what in "images", "labels":
            (folder / what / part).mkdir(parents=True)
        for number in range(count):
            height, width = (int(side) for side in draw.integers(30, 60, 2))
            pixels = draw.integers(0, 255, (height, width, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "images" / part / f"{number}.jpg")
            lines = [
                f"{draw.integers(0, 3)} {x:.4f} {y:.4f} 0.2 0.3" for x, y in draw.uniform(0.2, 0.8, (1 + number % 3, 2))
            ]
            (folder / "labels" / part / f"{number}.txt").write_text("\n".join(lines) + "\n")
    path = folder / "data.yaml"
    path.write_text(f"path: {folder}\ntrain: images/train\nval: images/val\nnames: {{0: a, 1: b, 2: c}}\n")
    return path


@contextlib.contextmanager
def build_over(way: str) -> Iterator[Any]:
    """``ultralytics.data.build`` over torch's class or over ours, also for its trainer and validator."""
    if way == TORCH:
        yield ultralytics.data.build
        return
    with modules_over("ultralytics.data.build") as (build,), pytest.MonkeyPatch.context() as patch:
        for module in ultralytics.models.yolo.detect.train, ultralytics.models.yolo.detect.val:
            patch.setattr(module, "build_dataloader", build.build_dataloader)
        yield build


def compared(run: Callable[[Any, Recording], None], batches: int) -> None:
    """The run with its loader over ours, and over torch's."""

    def once(way: str) -> Recording:
        with build_over(way) as build:
            return record(way, lambda _, recording: run(build, recording), "ultralytics")

    theirs = once(TORCH)
    assert_same(once(REPLACED), theirs, batches=batches)


@WORKERS
def test_an_infinite_loader(workers: int, data: Path) -> None:
    """Three epochs of augmented pictures from one iterator, a break in the fourth, and a reset after it."""

    def run(build: Any, recording: Recording) -> None:
        init_seeds(3)
        cfg = get_cfg(overrides={"imgsz": 32, "task": "detect"})
        dataset = build.build_yolo_dataset(cfg, str(data.parent / "images" / "train"), 4, check_det_dataset(str(data)))
        loader = build.build_dataloader(dataset, 4, workers, shuffle=True, device="cpu")
        for _ in range(3):
            for batch in loader:
                recording.note("batch", batch)
                recording.note("draw", torch.rand(()))
        for _, batch in zip(range(2), loader, strict=False):
            recording.note("batch", batch)
        for batch in loader:
            recording.note("batch", batch)
        dataset.close_mosaic(cfg)
        loader.reset()
        for batch in loader:
            recording.note("batch", batch)
        loader.close()

    compared(run, 3 * 7 + 2 + 7 + 7)


def trainer_of(recording: Recording) -> Any:
    """A trainer that notes batches and losses."""

    class Trainer(DetectionTrainer):  # type: ignore[misc]  # Ultralytics is not there for mypy
        def preprocess_batch(self, batch: Any) -> Any:
            recording.note("batch", batch)
            return super().preprocess_batch(batch)

        def optimizer_step(self) -> None:
            recording.note("loss", self.loss)
            super().optimizer_step()

        def validate(self) -> Any:
            metrics, fitness = super().validate()
            recording.note("fitness", float(fitness))
            return metrics, fitness

    return Trainer


@WORKERS
def test_a_detector_is_trained_and_resumed(workers: int, data: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Three epochs, the last without mosaics; the checkpoint of the first is resumed."""

    def run(build: Any, recording: Recording) -> None:
        folder = tmp_path_factory.mktemp("run")
        overrides = {
            "model": "yolov8n.yaml", "data": str(data), "epochs": EPOCHS + 1, "imgsz": 32, "batch": 8,
            "workers": workers, "device": "cpu", "amp": False, "plots": False, "close_mosaic": 1,
            "project": str(folder), "name": "run", "warmup_epochs": 1, "verbose": False, "seed": 3,
            "pretrained": False, "optimizer": "SGD",
        }  # fmt: skip
        first = trainer_of(recording)(overrides=overrides)

        def keep(trainer: Any) -> None:
            if trainer.epoch == 0:
                shutil.copy(trainer.last, folder / "kept.pt")

        first.add_callback("on_model_save", keep)
        first.train()
        again = trainer_of(recording)(overrides={**overrides, "resume": str(folder / "kept.pt")})
        again.train()

    compared(run, (EPOCHS + 1 + EPOCHS) * 4)
