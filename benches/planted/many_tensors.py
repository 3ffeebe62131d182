"""Trains on samples that are dicts of many small tensors."""

from __future__ import annotations

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Features(Dataset[dict[str, torch.Tensor]]):
    """1,000 features of four numbers each."""

    def __init__(self) -> None:
        self.features = {f"feature {number}": torch.rand(4) for number in range(1000)}

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return dict(self.features)


def collate(samples: list[dict[str, torch.Tensor]]) -> torch.Tensor:
    """Stack feature by feature, and join them."""
    stacked = {name: torch.stack([sample[name] for sample in samples]) for name in samples[0]}
    return torch.cat(list(stacked.values()), 1)


def main() -> None:
    """Train; the device is a clock."""
    for _ in DataLoader(Features(), batch_size=64, shuffle=True, num_workers=2, collate_fn=collate):
        time.sleep(0.005)


if __name__ == "__main__":
    main()
