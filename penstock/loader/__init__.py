"""The DataLoader: from a dataset and a sampler to batches in order, and to a state that resumes them."""

from __future__ import annotations

from penstock.loader.loader import DataLoader
from penstock.loader.state import merge_states
from penstock.loader.stats import StageStats, Stats
from penstock.workers.left_out import LeftOut

__all__ = ["DataLoader", "LeftOut", "StageStats", "Stats", "merge_states"]
