"""Trains on a small dataset, for many epochs of eight steps, each of which starts its workers."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, Dataset

Sample = tuple[torch.Tensor, torch.Tensor]


class Vectors(Dataset[Sample]):
    """Vectors, and their sums."""

    def __init__(self) -> None:
        self.vectors = torch.randn(128, 20)

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, index: int) -> Sample:
        return self.vectors[index], self.vectors[index].sum()


if __name__ == "__main__":
    loader = DataLoader(Vectors(), batch_size=16, shuffle=True, num_workers=4)
    model = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(200):
        for vectors, sums in loader:
            loss = (model(vectors)[:, 0] - sums).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
