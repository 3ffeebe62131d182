"""Trains for short epochs with 16 workers, each of which reads an index when it starts."""

from __future__ import annotations

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Indexed(Dataset[torch.Tensor]):
    """Rows that are found by an index, which each process builds for itself."""

    def __init__(self) -> None:
        self.index: dict[str, int] | None = None

    def __len__(self) -> int:
        return 16 * 8

    def __getitem__(self, number: int) -> torch.Tensor:
        if self.index is None:
            self.index = {f"row {row}": row for row in range(50_000)}
        return torch.full((1000,), float(self.index[f"row {number}"]))


def main() -> None:
    """Train."""
    loader = DataLoader(Indexed(), batch_size=8, shuffle=True, num_workers=16)
    for _ in range(20):
        for _rows in loader:
            time.sleep(0.01)


if __name__ == "__main__":
    main()
