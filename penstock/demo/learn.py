"""A small convolutional network that learns classes, and proof that a loader resumes to the byte.

The network is there to show that batches are worth training on; it is no model of anyone's. This module draws
nothing on the screen.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

__all__ = ["Learner", "accuracy", "digest", "digests"]


@dataclass
class Learner:
    """A network, its optimizer, and where it stands.

    Parameters
    ----------
    classes : int
        Number of classes.
    steps : int
        Training steps in all; the learning rate follows one cycle over them.
    """

    classes: int
    steps: int

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
        """One step of training; returns the loss."""
        self.network.train()
        loss = F.cross_entropy(self.network(images), labels)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.optimizer.step()
        self.schedule.step()
        return float(loss.detach())


def accuracy(network: nn.Module, loader: Iterable[Any]) -> tuple[int, int]:
    """(right, all) over a loader."""
    right = seen = 0
    network.eval()
    with torch.inference_mode():
        for images, labels in loader:
            right += int((network(images).argmax(1) == labels).sum())
            seen += len(labels)
    return right, seen


def digest(batch: Any) -> str:
    """A digest of every byte of a batch."""
    images, labels = batch
    return hashlib.blake2b(images.numpy().tobytes() + labels.numpy().tobytes(), digest_size=16).hexdigest()


def digests(loader: Iterable[Any]) -> list[str]:
    """The digest of each batch that a loader, or an iterator of one, still has to give."""
    return [digest(batch) for batch in loader]
