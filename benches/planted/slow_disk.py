"""Trains on files of a disk that is slow: each read waits for it."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset


class Files(Dataset[torch.Tensor]):
    """One file for each sample."""

    def __init__(self, folder: Path) -> None:
        self.paths = []
        for number in range(256):
            self.paths.append(folder / f"{number:04}.bin")
            self.paths[-1].write_bytes(bytes(3 * 64 * 64))

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> torch.Tensor:
        content = bytearray()
        with self.paths[index % len(self.paths)].open("rb") as file:
            while piece := file.read(4096):
                content += piece
                time.sleep(0.002)
        return torch.frombuffer(content, dtype=torch.uint8).reshape(3, 64, 64).float() / 255


def main() -> None:
    """Train; the device is a clock."""
    with tempfile.TemporaryDirectory() as folder:
        for _ in DataLoader(Files(Path(folder)), batch_size=16, shuffle=True, num_workers=2):
            time.sleep(0.005)


if __name__ == "__main__":
    main()
