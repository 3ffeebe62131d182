"""Trains with a loader that keeps pace: the script hardly waits."""

from __future__ import annotations

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset[torch.Tensor]):
    """Images that are resized."""

    def __init__(self) -> None:
        self.images = torch.randint(0, 256, (64, 3, 96, 96), dtype=torch.uint8)

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> torch.Tensor:
        image = self.images[index % 64].float()[None] / 255
        return torch.nn.functional.interpolate(image, (256, 256), mode="bilinear", antialias=True)[0]


def main() -> None:
    """Train; the device is a clock."""
    for _ in DataLoader(Images(), batch_size=8, shuffle=True, num_workers=2):
        time.sleep(0.04)


if __name__ == "__main__":
    main()
