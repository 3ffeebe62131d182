"""Trains on large volumes of float64 that cost nothing to make, and much to send."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset

Sample = tuple[npt.NDArray[np.float64], int]


class Volumes(Dataset[Sample]):
    """The same few volumes again and again."""

    def __init__(self) -> None:
        self.volumes = np.random.default_rng(0).standard_normal((8, 64, 64, 96))

    def __len__(self) -> int:
        return 8000

    def __getitem__(self, index: int) -> Sample:
        return self.volumes[index % len(self.volumes)], index % 3


def main() -> None:
    """Train a linear model on one line of each volume."""
    head = torch.nn.Linear(96, 3).double()
    optimizer = torch.optim.SGD(head.parameters(), 0.001)
    for volumes, labels in DataLoader(Volumes(), batch_size=16, num_workers=2):
        loss = torch.nn.functional.cross_entropy(head(volumes[:, 0, 0]), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
