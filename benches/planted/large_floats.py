"""Trains on large float32 images, which workers send to the main process."""

from __future__ import annotations

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Volumes(Dataset[torch.Tensor]):
    """Volumes of 3 MB in memory."""

    def __init__(self) -> None:
        self.volumes = torch.rand(16, 3, 512, 512)

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.volumes[index % 16]


def main() -> None:
    """Train; the device is a clock."""
    for _ in DataLoader(Volumes(), batch_size=16, num_workers=2):
        time.sleep(0.005)


if __name__ == "__main__":
    main()
