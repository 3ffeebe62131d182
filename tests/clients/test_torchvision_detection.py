"""torchvision's detection script: a Faster R-CNN on VOCDetection and CocoDetection, with only the loader changed.

The scripts are no part of the package. What stands here is written after ``references/detection/{train,engine,utils,
group_by_aspect_ratio}.py`` of torchvision 0.29 (BSD 3-Clause licence, Copyright (c) Soumith Chintala 2016), on one
device, with pycocotools for the evaluation. The network is small; its parts are torchvision's.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.transforms import v2

import penstock as ps
import penstock.torch as pt
from tests.clients.cells import SPLITS, write_voc
from tests.clients.harness import (
    EPOCHS,
    LOADINGS,
    OURS,
    TORCH,
    Loading,
    Recording,
    assert_same,
    record,
    seed,
)  # fmt: skip
from tests.clients.test_torchvision_references import GroupedBatchSampler, collate_fn

NAMES = {"RBC": "person", "WBC": "dog", "Platelets": "cat"}
"""The classes of the pictures, as classes that torchvision's wrapper of VOC numbers."""
TRAIN_BATCHES, TEST_BATCHES = 3, 5


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """15 photographs of cells: ``VOCdevkit/VOC2012``, ``coco/``, and packs ``train.lmdb`` and ``val.lmdb``."""
    folder = tmp_path_factory.mktemp("cells")
    voc = folder / "VOCdevkit" / "VOC2012"
    write_voc(voc, NAMES)
    ps.pack(None, folder / "voc.lmdb", annotations=voc, format="voc", on_error="skip")
    ps.convert(folder / "voc.lmdb", folder / "coco", to_layout="coco")
    classes = ["__background__", *sorted(NAMES.values())]  # torchvision's models number objects from 1
    for split in SPLITS:
        target = folder / f"{split}.lmdb"
        ps.pack(None, target, annotations=folder / "coco", format="coco", split=split, classes=classes)
    return folder


# ------------------------------------------------------------------------------------------------ the scripts


class SmoothedValue:
    """The values of a meter: their mean, and the median of the last ones."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def update(self, value: float) -> None:
        """One more."""
        self.values.append(value)

    def __str__(self) -> str:
        return f"{np.median(self.values[-20:]):.4f} ({np.mean(self.values):.4f})"


class MetricLogger:
    """Meters by name. ``log_every`` asks the loader for its length, and gives what it gives."""

    def __init__(self) -> None:
        self.meters: dict[str, SmoothedValue] = defaultdict(SmoothedValue)
        self.lines: list[str] = []

    def update(self, **values: Any) -> None:
        """One more value for each of these meters."""
        for name, value in values.items():
            self.meters[name].update(value.item() if isinstance(value, torch.Tensor) else value)

    def log_every(self, iterable: Any, print_freq: int, header: str) -> Iterator[Any]:
        """The batches, and a line after some of them."""
        for number, batch in enumerate(iterable):
            yield batch
            if number % print_freq == 0 or number == len(iterable) - 1:
                meters = "  ".join(f"{name}: {meter}" for name, meter in self.meters.items())
                self.lines.append(f"{header}  [{number:{len(str(len(iterable)))}d}/{len(iterable)}]  {meters}")


def train_one_epoch(model: Any, optimizer: Any, data_loader: Any, epoch: int, recording: Recording) -> None:
    """The one of ``engine.py``."""
    model.train()
    metric_logger = MetricLogger()
    warmup = None
    if epoch == 0:
        iterations = min(1000, len(data_loader) - 1)
        warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1 / 1000, total_iters=iterations)
    for images, targets in metric_logger.log_every(data_loader, 2, f"Epoch: [{epoch}]"):
        recording.note("batch", [images, targets])
        moved = [
            {name: value.to("cpu") if isinstance(value, torch.Tensor) else value for name, value in target.items()}
            for target in targets
        ]
        loss_dict = model([image.to("cpu") for image in images], moved)
        losses: Any = sum(loss for loss in loss_dict.values())
        assert math.isfinite(losses.item())
        optimizer.zero_grad()
        losses.backward()
        optimizer.step()
        if warmup is not None:
            warmup.step()
        metric_logger.update(**{name: loss.detach() for name, loss in loss_dict.items()})
        metric_logger.update(lr=optimizer.param_groups[0]["lr"])
        recording.note("loss", losses)
    recording.note("lines", metric_logger.lines)


@torch.inference_mode()
def evaluate(model: Any, data_loader: Any, coco: Any, recording: Recording) -> None:
    """The one of ``engine.py``: detections by ``image_id``, judged by pycocotools."""
    model.eval()
    metric_logger = MetricLogger()
    found: list[list[float]] = []
    for images, targets in metric_logger.log_every(data_loader, 100, "Test:"):
        recording.note("batch", [images, targets])
        for target, output in zip(targets, model(list(images)), strict=True):
            sides = output["boxes"][:, 2:] - output["boxes"][:, :2]
            boxes = torch.cat([output["boxes"][:, :2], sides], dim=1)
            rows = zip(boxes.tolist(), output["scores"].tolist(), output["labels"].tolist(), strict=True)
            found += [[target["image_id"], *box, score, label] for box, score, label in rows]
    judge = COCOeval(coco, coco.loadRes(np.array(found)), "bbox")
    judge.evaluate()
    judge.accumulate()
    judge.summarize()
    recording.note("stats", judge.stats)


def aspect_ratio_groups(kind: Any, dataset: Any, num_workers: int) -> list[int]:
    """The one of ``group_by_aspect_ratio.py``: a loader without batches, whose ``collate_fn`` is a lambda."""
    loader = kind(
        dataset, batch_size=1, sampler=torch.utils.data.SequentialSampler(dataset), num_workers=num_workers,
        collate_fn=lambda batch: batch[0],
    )  # fmt: skip
    return [int(image.shape[-1] > image.shape[-2]) for image, _ in loader]


def detector() -> Any:
    """A Faster R-CNN of few channels on the beginning of a MobileNet."""
    backbone: Any = torchvision.models.mobilenet_v3_small(weights=None).features[:9]
    backbone.out_channels = 48
    return FasterRCNN(
        backbone, min_size=64, max_size=96, rpn_anchor_generator=AnchorGenerator(((8, 16, 32),), ((0.5, 1.0, 2.0),)),
        rpn_pre_nms_top_n_train=200, rpn_post_nms_top_n_train=60, rpn_post_nms_top_n_test=60,
        box_roi_pool=torchvision.ops.MultiScaleRoIAlign(["0"], 3, 2), box_head=TwoMLPHead(48 * 9, 32),
        box_predictor=FastRCNNPredictor(32, 21), box_batch_size_per_image=32,
    )  # fmt: skip


def train(
    loader: Any, test_loader: Any, coco: Any, recording: Recording, epochs: int = EPOCHS, lr: float = 0.02
) -> None:
    """The main function of ``train.py``."""
    model = detector()
    optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1], gamma=0.1)
    for epoch in range(epochs):
        train_one_epoch(model, optimizer, loader, epoch, recording)
        scheduler.step()
        if coco is not None:
            evaluate(model, test_loader, coco, recording)


TRAIN = v2.Compose(
    [
        v2.ToImage(),
        v2.RandomPhotometricDistort(p=1),
        v2.RandomZoomOut(fill=[123, 117, 104], side_range=(1, 1.5)),
        v2.RandomIoUCrop(),
        v2.RandomHorizontalFlip(),
        v2.SanitizeBoundingBoxes(),
        v2.RandomShortestSize([56, 64, 72], 96),
        v2.ToDtype(torch.float32, scale=True),
        v2.ToPureTensor(),
    ]
)
"""``DetectionPresetTrain("ssd")``, and the sizes that fit here."""
EVAL = v2.Compose([v2.ToImage(), v2.Resize(64), v2.ToDtype(torch.float32, scale=True), v2.ToPureTensor()])


# ------------------------------------------------------------------------------------------------ its datasets


def of_coco(folder: Path, split: str, transforms: Any) -> Any:
    """A wrapped CocoDetection."""
    annotations = folder / "coco" / "annotations" / f"instances_{split}.json"
    plain = torchvision.datasets.CocoDetection(str(folder / "coco" / split), str(annotations), transforms=transforms)
    return torchvision.datasets.wrap_dataset_for_transforms_v2(plain, target_keys=("image_id", "boxes", "labels"))


def of_voc(folder: Path, split: str, transforms: Any) -> Any:
    """A wrapped VOCDetection."""
    plain = torchvision.datasets.VOCDetection(str(folder), "2012", split, download=False, transforms=transforms)
    return torchvision.datasets.wrap_dataset_for_transforms_v2(plain)


def run_coco(folder: Path, loading: Loading, kind: Any, recording: Recording) -> None:
    """Grouped batches of a Subset of images with objects; a loader of single images to test, and ``loader.dataset``."""
    dataset = of_coco(folder, "train", TRAIN)
    dataset = torch.utils.data.Subset(
        dataset, [i for i, name in enumerate(dataset.ids) if dataset.coco.getAnnIds(name)]
    )
    test = of_coco(folder, "val", EVAL)
    groups = aspect_ratio_groups(kind, dataset, loading.num_workers)
    sampler = GroupedBatchSampler(torch.utils.data.RandomSampler(dataset), groups, 3)
    loader = kind(dataset, batch_sampler=sampler, collate_fn=collate_fn, **loading.arguments())
    test_loader = kind(
        test, batch_size=1, sampler=torch.utils.data.SequentialSampler(test), collate_fn=collate_fn,
        **loading.arguments(),
    )  # fmt: skip
    train(loader, test_loader, test_loader.dataset.coco, recording)


def run_voc(folder: Path, loading: Loading, kind: Any, recording: Recording) -> None:
    """Shuffled batches of images and targets."""
    dataset = of_voc(folder, "train", TRAIN)
    sampler = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(dataset), 3, drop_last=True)
    loader = kind(dataset, batch_sampler=sampler, collate_fn=collate_fn, **loading.arguments())
    train(loader, None, None, recording)


RUNS: dict[str, tuple[Callable[..., None], int]] = {
    "coco": (run_coco, EPOCHS * (TRAIN_BATCHES + TEST_BATCHES)),
    "voc": (run_voc, EPOCHS * TRAIN_BATCHES),
}


@functools.cache
def of_torch(name: str, folder: Path, loading: Loading) -> Recording:
    """The run with torch's loader."""
    return record(TORCH, functools.partial(RUNS[name][0], folder, loading), "torchvision")


@OURS
@LOADINGS
@pytest.mark.parametrize("name", RUNS)
def test_faster_rcnn_is_trained(way: str, loading: Loading, name: str, cells: Path) -> None:
    """Batches, losses, printed meters and average precisions are torch's, to the bit."""
    run, batches = RUNS[name]

    ours = record(way, functools.partial(run, cells, loading), "torchvision")

    assert_same(ours, of_torch(name, cells, loading), batches=batches)
    assert len(ours.all("loss")) == EPOCHS * TRAIN_BATCHES
    assert len(set(ours.all("loss"))) == EPOCHS * TRAIN_BATCHES


# ------------------------------------------------------------------------------------------------ packs


FIELDS = {"image": "image", "boxes": "boxes", "labels": "labels", "image_id": "id"}


def packed(folder: Path, split: str, transform: Any) -> ps.StoreDataset:
    """The pack of the split, in the form of torchvision's models."""
    return ps.StoreDataset(folder / f"{split}.lmdb", FIELDS, transform, batch_form="torchvision")


def test_a_pack_gives_the_samples_of_coco(cells: Path) -> None:
    """The same images within one level of 255, the same boxes, labels and ids."""
    theirs = torch.utils.data.DataLoader(of_coco(cells, "train", EVAL), 4, collate_fn=collate_fn)
    ours = pt.DataLoader(packed(cells, "train", EVAL), 4)
    seen = 0

    for (images, targets), (own_images, own_targets) in zip(theirs, ours, strict=True):
        for image, target, own_image, own_target in zip(images, targets, own_images, own_targets, strict=True):
            assert own_image.shape == image.shape
            assert (own_image - image).abs().max() <= 1.001 / 255
            assert list(own_target) == ["boxes", "labels", "image_id"]
            assert own_target["image_id"] == target["image_id"]
            assert torch.equal(own_target["labels"], target["labels"])
            torch.testing.assert_close(own_target["boxes"], target["boxes"], rtol=0, atol=1e-3)
            seen += 1
    assert seen == SPLITS["train"]


@pytest.mark.parametrize("persistent", [False, True], ids=["", "persistent"])
def test_the_script_trains_on_packs(*, persistent: bool, cells: Path) -> None:
    """The transform and the loops of the script, without ``collate_fn``: losses are the same for any workers.

    A second epoch with persistent workers is one of its own, as torch draws it.
    """
    coco = COCO(str(cells / "coco" / "annotations" / "instances_val.json"))

    def run(num_workers: int) -> list[tuple[str, Any]]:
        seed()
        recording, given = Recording(), Loading(num_workers, persistent).arguments()
        dataset, test = packed(cells, "train", TRAIN), packed(cells, "val", EVAL)
        loader = pt.DataLoader(dataset, 3, shuffle=True, drop_last=True, **given)
        train(loader, pt.DataLoader(test, 1, **given), coco, recording)
        assert recording.seen() == EPOCHS * (TRAIN_BATCHES + TEST_BATCHES)
        assert len(set(recording.all("loss"))) == EPOCHS * TRAIN_BATCHES
        return recording.entries

    is_same = run(2) == run(1 if persistent else 0)

    assert is_same, "batches or losses differ"
