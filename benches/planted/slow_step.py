"""Trains a model that is large for the machine."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset[torch.Tensor]):
    """Rows in memory."""

    def __init__(self) -> None:
        self.rows = torch.rand(1000, 1024)

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index % 1000]


def main() -> None:
    """Train."""
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(12)))
    optimizer = torch.optim.Adam(model.parameters())
    for rows in DataLoader(Rows(), batch_size=32, shuffle=True, num_workers=1):
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
