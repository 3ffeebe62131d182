"""Trains on crops of large PNG images in a zip file; batches are drawn by weights."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import BatchSampler, DataLoader, Dataset, WeightedRandomSampler

Sample = tuple[torch.Tensor, int]


class ZippedImages(Dataset[Sample]):
    """A corner of each image."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.archive: zipfile.ZipFile | None = None
        with zipfile.ZipFile(path) as archive:
            self.names = sorted(archive.namelist())

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Sample:
        if self.archive is None:
            self.archive = zipfile.ZipFile(self.path)
        image = Image.open(io.BytesIO(self.archive.read(self.names[index]))).convert("RGB")
        return torch.from_numpy(np.array(image.crop((0, 0, 64, 64)))).permute(2, 0, 1) / 255, index % 2


def write_images(path: Path) -> None:
    """Smooth images of 500 x 500 pixels."""
    rng = np.random.default_rng(0)
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(64):
            content = io.BytesIO()
            coarse = Image.fromarray(rng.integers(0, 255, (50, 50, 3), dtype=np.uint8))
            coarse.resize((500, 500)).save(content, "PNG")
            archive.writestr(f"{number:03}.png", content.getvalue())


def repeat(loader: Any) -> Iterator[Any]:
    """Epoch after epoch."""
    while True:
        yield from loader


def main() -> None:
    """Train a convolution."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "images.zip"
        write_images(path)
        sampler = BatchSampler(WeightedRandomSampler([3.0, 1.0] * 32, 4000), 16, drop_last=True)
        batches = repeat(DataLoader(ZippedImages(path), batch_sampler=sampler, num_workers=2))
        layers = [torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveMaxPool2d(1), torch.nn.Flatten(), torch.nn.Linear(4, 2)]
        model = torch.nn.Sequential(*layers)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(1000):
            images, labels = next(batches)
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
