"""Trains on large JPEGs, of which it uses 64 by 64 pixels."""

from __future__ import annotations

import io
import time

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


def encode() -> bytes:
    """A JPEG of 1.2 megapixels."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (60, 80, 3), np.uint8).repeat(15, 0).repeat(15, 1)
    file = io.BytesIO()
    Image.fromarray(pixels + rng.integers(0, 20, pixels.shape, np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


class Photographs(Dataset[torch.Tensor]):
    """The same photograph for each index."""

    def __init__(self) -> None:
        self.encoded = encode()

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> torch.Tensor:
        image = Image.open(io.BytesIO(self.encoded)).convert("RGB")
        image = image.crop((index % 64, 0, index % 64 + 64, 64))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255


def main() -> None:
    """Train; the device is a clock."""
    for _ in DataLoader(Photographs(), batch_size=8, shuffle=True, num_workers=2):
        time.sleep(0.005)


if __name__ == "__main__":
    main()
