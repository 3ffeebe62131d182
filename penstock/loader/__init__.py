"""The DataLoader: from a dataset and a sampler to batches in order, and to a state that resumes them."""

from __future__ import annotations

from penstock.loader.faults import LeftOut
from penstock.loader.loader import DataLoader
from penstock.loader.stats import StageStats, Stats

__all__ = ["DataLoader", "LeftOut", "StageStats", "Stats"]
