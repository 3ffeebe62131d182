"""The datasets of ``transport.py``, in a module of their own that knows no torch: a worker imports this alone."""

from __future__ import annotations

import numpy as np


class Photographs:
    """Samples like normalised photographs: float32 (3, 224, 224); ready made, so that transport alone counts."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.pixels = np.random.default_rng(0).random((16, 3, 224, 224), np.float32)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> np.ndarray:
        return self.pixels[index % 16]


class Numbers:
    """Python ints: nothing but what a loader itself costs."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return index
