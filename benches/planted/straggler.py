"""Trains on a dataset in which one sample of 1,000 takes very long to read."""

from __future__ import annotations

import time

import torch
from torch.utils.data import DataLoader, Dataset


def read_row(index: int) -> torch.Tensor:
    """Read a row; one lies on a bad block."""
    if index % 1000 == 421:
        time.sleep(0.8)
    return torch.full((1000,), float(index))


class Rows(Dataset[torch.Tensor]):
    """Rows that are read one by one."""

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return read_row(index)


def main() -> None:
    """Train; the device is a clock."""
    for _ in DataLoader(Rows(), batch_size=16, num_workers=2):
        time.sleep(0.005)


if __name__ == "__main__":
    main()
