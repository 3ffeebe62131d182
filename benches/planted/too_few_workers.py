"""Trains with one worker, though a core is idle while the device computes."""

from __future__ import annotations

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset[torch.Tensor]):
    """Images that are resized and normalised."""

    def __init__(self) -> None:
        self.images = torch.randint(0, 256, (64, 3, 96, 96), dtype=torch.uint8)

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> torch.Tensor:
        image = self.images[index % 64].float()[None] / 255
        for size in (224, 192, 256, 224, 192, 64):
            image = torch.nn.functional.interpolate(image, (size, size), mode="bilinear", antialias=True)
        return (image[0] - 0.5) / 0.25


def main() -> None:
    """Train; the device is a clock."""
    for _ in DataLoader(Images(), batch_size=8, shuffle=True, num_workers=1):
        time.sleep(0.01)


if __name__ == "__main__":
    main()
