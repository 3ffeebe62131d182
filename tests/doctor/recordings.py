"""Small recordings for tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from penstock.doctor.watching.recording import EVENT, LoaderSettings, Recording, StepTimes

EventRow = tuple[int, int, int, int, int, int, int, int, int]
"""Stage, worker, batch, index, start, end, cpu, nbytes, samples."""


def make_steps(
    starts: Sequence[int], *, wait: int = 10, step: int = 50, ready: int = -1, device: int = -1, replayed: int = 0
) -> StepTimes:
    """Steps that begin at these times; the last ``replayed`` have the batch before once more."""
    count = len(starts)

    def column(value: int) -> Any:
        return np.full(count, value, np.int64)

    is_replayed = np.arange(count) >= count - replayed
    return StepTimes(
        wait_ns=column(wait), step_ns=column(step), copy_ns=column(5), cpu_ns=column(20), samples=column(4),
        start_ns=np.array(starts, np.int64), ready=column(ready), replayed=is_replayed, device_ns=column(device),
    )  # fmt: skip


def make_recording(events: Iterable[EventRow] = (), steps: StepTimes | None = None, **more: Any) -> Recording:
    """A recording of two worker processes of torch's loader."""
    settings = LoaderSettings("torch", "processes", num_workers=2, prefetch_factor=2, batch_size=4, dataset="Photos")
    return Recording(settings, steps or make_steps([]), np.array(list(events), EVENT), **more)
