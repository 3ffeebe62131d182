"""Trains on a device whose bus is slow."""

from __future__ import annotations

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset[torch.Tensor]):
    """Images in memory."""

    def __init__(self) -> None:
        self.images = torch.rand(64, 3, 64, 64)

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.images[index % 64]


def copy_to_device(images: torch.Tensor) -> torch.Tensor:
    """Copy a batch; the bus is simulated."""
    time.sleep(0.03)
    return images.clone()


def main() -> None:
    """Train; the device is a clock."""
    for images in DataLoader(Images(), batch_size=16, shuffle=True, num_workers=2):
        copied = copy_to_device(images)
        time.sleep(0.01)
        del copied


if __name__ == "__main__":
    main()
