"""A small convolutional network, and digests of batches to compare a resumed loader with."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from penstock.sample import Batch

__all__ = ["Learner", "count_correct", "digest", "digest_all"]


@dataclass
class Learner:
    """A network with its optimizer and learning rate schedule."""

    classes: int  # number of classes
    steps: int  # total number of training steps, over which the learning rate follows one cycle

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        widths = (3, 24, 48, 96, 128)
        layers: list[nn.Module] = []
        for stage, (before, after) in enumerate(itertools.pairwise(widths)):
            kernel, stride = (7, 4) if stage == 0 else (3, 2)
            layers += [
                nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False),
                nn.BatchNorm2d(after),
                nn.ReLU(),
            ]
        self.network = nn.Sequential(
            *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], self.classes)
        )
        self.optimizer = torch.optim.AdamW(self.network.parameters(), weight_decay=1e-2)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=4e-3, total_steps=self.steps)

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> float:
        """Train on one batch and return the loss."""
        self.network.train()
        loss = F.cross_entropy(self.network(images), labels)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not type it
        self.optimizer.step()
        self.schedule.step()
        return float(loss.detach())


def count_correct(network: nn.Module, loader: Iterable[Batch]) -> tuple[int, int]:
    """Count the correct predictions and the images of a loader: (correct, total)."""
    right = seen = 0
    network.eval()
    with torch.inference_mode():
        for images, labels in loader:
            right += int((network(images).argmax(1) == labels).sum())
            seen += len(labels)
    return right, seen


def digest(batch: Batch) -> str:
    """A digest of all bytes of a batch."""
    images, labels = batch
    return hashlib.blake2b(images.numpy().tobytes() + labels.numpy().tobytes(), digest_size=16).hexdigest()


def digest_all(loader: Iterable[Batch]) -> list[str]:
    """Digest all remaining batches of a loader or its iterator."""
    return [digest(batch) for batch in loader]
