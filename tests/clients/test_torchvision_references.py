"""The loops of torchvision's reference scripts, as they load data: classification and detection.

The scripts are no part of the package. What stands here is written after ``references/classification/{train,sampler,
utils}.py`` and ``references/detection/{engine,group_by_aspect_ratio,utils}.py`` of torchvision 0.29 (BSD 3-Clause
licence, Copyright (c) Soumith Chintala 2016), without devices, logging and checkpoints.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from torch.utils.data.dataloader import default_collate
from torch.utils.data.sampler import BatchSampler, Sampler
from torchvision.transforms import v2

from tests.clients.harness import EPOCHS, LOADINGS, OURS, TORCH, Loading, Recording, assert_same, record

CLASSES = 3


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """26 small JPEG files in 3 classes."""
    folder = tmp_path_factory.mktemp("photographs")
    draw = np.random.default_rng(0)
    for number in range(26):
        (folder / f"class{number % CLASSES}").mkdir(exist_ok=True)
        pixels = draw.integers(0, 255, size=(int(draw.integers(24, 48)), int(draw.integers(24, 48)), 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"class{number % CLASSES}" / f"{number}.jpg")
    return folder


class RASampler(Sampler[int]):
    """Repeated augmentation for one of several processes: each sample ``repetitions`` times, shared out over them."""

    def __init__(self, dataset: Any, num_replicas: int = 2, rank: int = 0, seed: int = 0, repetitions: int = 3) -> None:
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.epoch, self.seed, self.repetitions = 0, seed, repetitions
        self.num_samples = math.ceil(len(dataset) * float(repetitions) / num_replicas)
        self.total_size = self.num_samples * num_replicas
        self.num_selected_samples = math.floor(len(dataset) // 8 * 8 / num_replicas)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(self.dataset), generator=generator).tolist()
        indices = [index for index in order for _ in range(self.repetitions)]
        indices += indices[: self.total_size - len(indices)]
        indices = indices[self.rank : self.total_size : self.num_replicas]
        return iter(indices[: self.num_selected_samples])

    def __len__(self) -> int:
        return self.num_selected_samples

    def set_epoch(self, epoch: int) -> None:
        """Another order."""
        self.epoch = epoch


class GroupedBatchSampler(BatchSampler):
    """Batches of samples of one group, in the order of the sampler; what is left is filled up with repetitions."""

    def __init__(self, sampler: Any, group_ids: list[int], batch_size: int) -> None:
        self.sampler: Any = sampler
        self.group_ids, self.batch_size = group_ids, batch_size

    def __iter__(self) -> Iterator[list[int]]:
        buffers: dict[int, list[int]] = defaultdict(list)
        seen: dict[int, list[int]] = defaultdict(list)
        count = 0
        for index in self.sampler:
            group = self.group_ids[index]
            buffers[group].append(index)
            seen[group].append(index)
            if len(buffers[group]) == self.batch_size:
                yield buffers[group]
                count += 1
                del buffers[group]
        remaining = len(self) - count
        for group, _ in sorted(buffers.items(), key=lambda item: len(item[1]), reverse=True)[:remaining]:
            missing = self.batch_size - len(buffers[group])
            buffers[group].extend((seen[group] * math.ceil(missing / len(seen[group])))[:missing])
            yield buffers[group]

    def __len__(self) -> int:
        return len(self.sampler) // self.batch_size


def train_one_epoch(
    model: Any, criterion: Any, optimizer: Any, data_loader: Any, recording: Recording, scheduler: Any = None
) -> None:
    """One epoch of ``references/classification/train.py``."""
    model.train()
    for image, target in data_loader:
        recording.note("batch", [image, target])
        output = model(image)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        recording.note("loss", loss)
    if scheduler is not None:
        scheduler.step()


def evaluate(model: Any, criterion: Any, data_loader: Any, recording: Recording) -> None:
    """One evaluation of the same script."""
    model.eval()
    with torch.inference_mode():
        for image, target in data_loader:
            recording.note("batch", [image, target])
            recording.note("loss", criterion(model(image), target))


def classifier() -> Any:
    """A convolution with dropout."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, stride=4), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Dropout(0.2), torch.nn.Linear(4, CLASSES),
    )  # fmt: skip


TRAIN = v2.Compose(
    [
        v2.RandomResizedCrop(24),
        v2.RandomHorizontalFlip(),
        v2.TrivialAugmentWide(),
        v2.PILToTensor(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        v2.RandomErasing(0.5),
    ]
)
EVAL = v2.Compose([v2.Resize(28), v2.CenterCrop(24), v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)])
MIX = v2.RandomChoice([v2.MixUp(alpha=0.2, num_classes=CLASSES), v2.CutMix(alpha=1.0, num_classes=CLASSES)])


def mixed(batch: list[Any]) -> Any:
    """The ``collate_fn`` of the script, which draws random numbers where it runs."""
    return MIX(*default_collate(batch))


@OURS
@LOADINGS
@pytest.mark.parametrize("repeated", [False, True])
def test_classification(way: str, loading: Loading, photographs: Path, *, repeated: bool) -> None:
    """Augmentations, mix-up in the collation, a sampler with ``set_epoch``, and an evaluation after each epoch."""
    batches = 3 if repeated else 6

    def run(kind: Any, recording: Recording) -> None:
        dataset = torchvision.datasets.ImageFolder(str(photographs), TRAIN)
        test = torchvision.datasets.ImageFolder(str(photographs), EVAL)
        sampler: Any = RASampler(dataset) if repeated else torch.utils.data.RandomSampler(dataset)
        loader = kind(
            dataset, batch_size=4, sampler=sampler, pin_memory=False, collate_fn=mixed, drop_last=True,
            **loading.arguments(),
        )  # fmt: skip
        test_loader = kind(test, batch_size=8, sampler=torch.utils.data.SequentialSampler(test), **loading.arguments())
        model = classifier()
        criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        for epoch in range(EPOCHS):
            if repeated:
                sampler.set_epoch(epoch)
            train_one_epoch(model, criterion, optimizer, loader, recording, scheduler)
            evaluate(model, criterion, test_loader, recording)

    assert_same(record(way, run, "torchvision"), record(TORCH, run), batches=EPOCHS * (batches + 4))


class Boxes(torch.utils.data.Dataset[Any]):
    """Pictures of two shapes with some boxes: each sample's target has another length."""

    def __len__(self) -> int:
        return 26

    def __getitem__(self, index: int) -> Any:
        high = index % 3 == 0
        image = torch.rand(3, 32 if high else 24, 24 if high else 32)
        boxes = torch.rand(1 + index % 4, 4) * 10 + torch.tensor([0.0, 0.0, 10.0, 10.0])
        return image, {"boxes": boxes, "labels": torch.ones(len(boxes), dtype=torch.int64), "image_id": index}


def collate_fn(batch: list[Any]) -> Any:
    """The one of ``references/detection/utils.py``."""
    return tuple(zip(*batch, strict=True))


@OURS
@LOADINGS
def test_detection(way: str, loading: Loading) -> None:
    """Batches by aspect ratio over a random sampler, tuples of tensors of different shapes."""

    def run(kind: Any, recording: Recording) -> None:
        dataset = Boxes()
        sampler = torch.utils.data.RandomSampler(dataset)
        groups = [int(index % 3 == 0) for index in range(len(dataset))]
        loader = kind(
            dataset, batch_sampler=GroupedBatchSampler(sampler, groups, 4), collate_fn=collate_fn, **loading.arguments()
        )
        weight = torch.zeros((), requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.01)
        for _ in range(EPOCHS):
            for images, targets in loader:
                recording.note("batch", [images, targets])
                loss: Any = torch.stack(
                    [(image.mean() * weight - target["boxes"].mean()) ** 2
                     for image, target in zip(images, targets, strict=True)]
                ).sum()  # fmt: skip
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                recording.note("loss", loss)

    assert_same(record(way, run, "torchvision"), record(TORCH, run), batches=EPOCHS * 6)
