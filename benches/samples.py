"""The datasets of ``transport.py``, in a module that does not import torch, because workers import it."""

from __future__ import annotations

import numpy as np


class Photographs:
    """Samples like normalised photographs, float32 (3, 224, 224), created in advance: only transport is measured."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.pixels = np.random.default_rng(0).random((16, 3, 224, 224), np.float32)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> np.ndarray:
        return self.pixels[index % 16]


class Numbers:
    """Python ints, to measure the loader itself."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return index
