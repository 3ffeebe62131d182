"""Trains with workers that compute with eight threads each."""

from __future__ import annotations

import time

import torch
from torch.utils.data import DataLoader, Dataset


def start_worker(worker: int) -> None:  # noqa: ARG001  # torch gives it
    """More threads must be faster."""
    torch.set_num_threads(8)


class Spectra(Dataset[torch.Tensor]):
    """Signals that are filtered by many small products."""

    def __init__(self) -> None:
        self.filters = torch.rand(160, 160)

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> torch.Tensor:
        signal = self.filters
        for _ in range(8):
            signal = (signal @ self.filters).tanh()
        return signal[0]


def main() -> None:
    """Train; the device is a clock."""
    loader = DataLoader(Spectra(), batch_size=8, shuffle=True, num_workers=2, worker_init_fn=start_worker)
    for _ in loader:
        time.sleep(0.005)


if __name__ == "__main__":
    main()
