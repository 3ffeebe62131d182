"""Ultralytics with our loader in the place of its own: its datasets, and a trainer that overrides ``get_dataloader``.

Its loaders over ours are in ``test_ultralytics.py``. Here penstock's class is given by the user.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import ultralytics.data.build
from ultralytics.cfg import get_cfg
from ultralytics.data.utils import check_det_dataset
from ultralytics.models.yolo.detect import DetectionTrainer
from ultralytics.utils.torch_utils import init_seeds

import penstock as ps
import penstock.torch as pt
from penstock import transforms as T
from tests.clients.cells import SPLITS, write_voc
from tests.clients.harness import EPOCHS, GIVEN, LOADINGS, OURS, TORCH, Loading, Recording, assert_same, record, seed

SIZE = 96
FIELDS = {"img": "image", "boxes": "boxes", "cls": "labels", "height": "height", "width": "width"}


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """15 photographs of cells: ``yolo/data.yaml``, and packs ``train.lmdb`` and ``val.lmdb`` of the same."""
    folder = tmp_path_factory.mktemp("cells")
    write_voc(folder / "voc")
    ps.pack(None, folder / "all.lmdb", annotations=folder / "voc", format="voc", on_error="skip")
    ps.convert(folder / "all.lmdb", folder / "yolo", to_layout="yolo")
    for split in SPLITS:
        ps.pack(None, folder / f"{split}.lmdb", annotations=folder / "yolo", format="yolo", split=split)
    return folder


def yolo_dataset(folder: Path, mode: str, **overrides: Any) -> Any:
    """A YOLODataset, augmented to train."""
    cfg = get_cfg(overrides={"imgsz": SIZE, "task": "detect", **overrides})
    described = check_det_dataset(str(folder / "yolo" / "data.yaml"))
    return ultralytics.data.build.build_yolo_dataset(cfg, described[mode], 4, described, mode=mode)


@OURS
@LOADINGS
def test_a_yolo_dataset_with_its_own_collate_fn(way: str, loading: Loading, cells: Path) -> None:
    """Two epochs of mosaics, affine warps and changes of colour, in batches of ``batch_idx``."""

    def run(kind: Any, recording: Recording) -> None:
        init_seeds(3)
        dataset = yolo_dataset(cells, "train", mixup=0.5, degrees=10.0)
        loader = kind(
            dataset, batch_size=4, shuffle=True, collate_fn=dataset.collate_fn,
            worker_init_fn=ultralytics.data.build.seed_worker, **loading.arguments(),
        )  # fmt: skip
        for _ in range(EPOCHS):
            for batch in loader:
                recording.note("batch", batch)

    theirs = record(TORCH, run, "ultralytics")
    assert_same(record(way, run, "ultralytics"), theirs, batches=EPOCHS * 3)
    assert len(set(theirs.all("batch"))) == EPOCHS * 3


# ------------------------------------------------------------------------------------------------ a trainer


def train(folder: Path, output: Path, recording: Recording, make: Callable[[Any, str, str, int], Any]) -> None:
    """Train a detector; ``make(trainer, path, mode, batch_size)`` gives the loaders.

    Batches, losses and the fitness of each epoch are noted.
    """

    class Trainer(DetectionTrainer):  # type: ignore[misc]  # Ultralytics is not there for mypy
        def get_dataloader(self, dataset_path: str, batch_size: int = 16, rank: int = 0, mode: str = "train") -> Any:
            return make(self, dataset_path, mode, batch_size)

        def preprocess_batch(self, batch: Any) -> Any:
            recording.note("batch", batch)
            return super().preprocess_batch(batch)

        def optimizer_step(self) -> None:
            recording.note("loss", self.loss)
            super().optimizer_step()

        def validate(self) -> Any:
            metrics, fitness = super().validate()
            recording.note("fitness", sorted((name, float(value)) for name, value in metrics.items()))
            return metrics, fitness

    settings = {
        "model": "yolov8n.yaml", "data": str(folder / "yolo" / "data.yaml"), "epochs": EPOCHS, "imgsz": SIZE,
        "batch": 4, "workers": 0, "device": "cpu", "amp": False, "plots": False, "close_mosaic": 0,
        "project": str(output), "name": "run", "warmup_epochs": 1, "nbs": 4, "verbose": False, "seed": 3,
        "pretrained": False, "optimizer": "SGD",
    }  # fmt: skip
    Trainer(overrides=settings).train()


@LOADINGS
def test_a_trainer_with_our_loader(loading: Loading, cells: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Only ``get_dataloader`` is overridden: batches, losses, and what the validation measures are torch's."""

    def run(kind: Any, recording: Recording) -> None:
        def make(trainer: Any, path: str, mode: str, batch_size: int) -> Any:
            dataset = trainer.build_dataset(path, mode, batch_size)
            return kind(
                dataset, batch_size, shuffle=mode == "train", collate_fn=dataset.collate_fn,
                worker_init_fn=ultralytics.data.build.seed_worker, **loading.arguments(),
            )  # fmt: skip

        train(cells, tmp_path_factory.mktemp("run"), recording, make)

    theirs = record(TORCH, run)
    assert_same(record(GIVEN, run), theirs, batches=EPOCHS * 3)
    assert len(theirs.all("loss")) == len(set(theirs.all("loss"))) > 1
    assert len(theirs.all("fitness")) == EPOCHS


# ------------------------------------------------------------------------------------------------ packs


AUGMENT = [T.RandomAffine(5, fill=114), T.HorizontalFlip(), T.SanitizeBoundingBoxes(min_size=2)]


def packed(folder: Path, split: str) -> ps.StoreDataset:
    """The pack of the split, in the form of ultralytics: filled to train, with the names of the files to validate."""
    fields = FIELDS if split == "train" else {**FIELDS, "im_file": "key"}
    transform = [T.Decode(), T.Letterbox(SIZE), *(AUGMENT if split == "train" else []), T.ToLayout("CHW", "uint8")]
    dataset = ps.StoreDataset(folder / f"{split}.lmdb", fields, transform, batch_form="ultralytics")
    assert (dataset.spec() is not None) == (split == "train"), dataset.why_not_filled()
    return dataset


def test_a_pack_gives_the_batches_of_a_yolo_dataset(cells: Path) -> None:
    """Without augmentation: the same boxes, classes, indices and shapes, in tensors of the same types."""
    dataset = yolo_dataset(cells, "val")
    theirs = torch.utils.data.DataLoader(dataset, 3, collate_fn=dataset.collate_fn)
    ours = pt.DataLoader(packed(cells, "val"), 3)
    seen = 0

    for batch, own in zip(theirs, ours, strict=True):
        for name in "img", "bboxes", "cls", "batch_idx":
            assert (own[name].dtype, own[name].shape) == (batch[name].dtype, batch[name].shape), name
        assert (own["img"].float() - batch["img"].float()).abs().mean() < 4  # OpenCV's resize has another rule
        torch.testing.assert_close(own["bboxes"], batch["bboxes"], rtol=0, atol=2e-6)
        assert torch.equal(own["cls"], batch["cls"])
        assert torch.equal(own["batch_idx"], batch["batch_idx"])
        assert list(own["ori_shape"]) == list(batch["ori_shape"])
        assert [Path(each).name for each in own["im_file"]] == [Path(each).name for each in batch["im_file"]]
        seen += len(own["img"])
    assert seen == SPLITS["val"]


def test_a_trainer_takes_packs(cells: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Filled batches of packs train and validate; what is measured is the same for any workers."""

    def run(workers: dict[str, Any]) -> Recording:
        def make(_trainer: Any, _path: str, mode: str, batch_size: int) -> Any:
            dataset = packed(cells, mode)
            # The trainer begins an iterator that it does not use: how much of torch's order that draws, workers decide.
            sampler = ps.RandomSampler(dataset, seed=3) if mode == "train" else None
            return pt.DataLoader(dataset, batch_size, sampler=sampler, seed=3, **workers)

        seed()
        recording = Recording()
        train(cells, tmp_path_factory.mktemp("run"), recording, make)
        return recording

    first, *others = [run(each) for each in ({}, {"num_workers": 2}, {"num_workers": 2, "workers": "processes"})]

    assert first.seen() == EPOCHS * 3
    assert len(set(first.all("loss"))) == len(first.all("loss")) > 1
    assert len(first.all("fitness")) == EPOCHS
    for other in others:
        is_same = other.entries == first.entries
        assert is_same, "batches, losses or measures differ"
