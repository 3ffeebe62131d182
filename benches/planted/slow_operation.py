"""Trains with an augmentation that is a loop in Python."""

from __future__ import annotations

import random
import time

import torch
from torch.utils.data import DataLoader, Dataset


def jitter(values: list[int]) -> list[float]:
    """Change each value a little, one by one."""
    result = []
    for value in values:
        changed = value * random.uniform(0.9, 1.1) + random.gauss(0.0, 1.0)
        result.append(min(max(changed, 0.0), 255.0))
    return result


class Images(Dataset[torch.Tensor]):
    """Small images in memory."""

    def __init__(self) -> None:
        self.images = torch.randint(0, 256, (100, 3, 32, 32), dtype=torch.uint8)

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> torch.Tensor:
        values = jitter(self.images[index % 100].flatten().tolist())
        return torch.tensor(values).reshape(3, 32, 32)


def main() -> None:
    """Train; the device is a clock."""
    for _ in DataLoader(Images(), batch_size=16, shuffle=True, num_workers=2):
        time.sleep(0.005)


if __name__ == "__main__":
    main()
