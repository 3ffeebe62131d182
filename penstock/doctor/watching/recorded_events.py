"""Events of a recording that follow from others, or from the script's steps; used by :mod:`.watcher`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.doctor.watching.brief_steps import ScriptStep
from penstock.doctor.watching.loaders.loader_watch import LoaderWatch
from penstock.doctor.watching.recording import BATCH, EVENT, SAMPLE, STAGES

__all__ = ["fill_cpu", "fill_sizes", "find_slowest", "main_events"]

_SLOWEST: Final = 50


def fill_sizes(events: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Give the transport of a batch in the main process the bytes that its worker has counted."""
    transport = events["stage"] == STAGES.index("transport")
    sent = events[transport & (events["worker"] >= 0)]
    received = np.flatnonzero(transport & (events["worker"] < 0) & (events["nbytes"] < 0))
    if len(sent) and len(received):
        sent = sent[np.argsort(sent["batch"], kind="stable")]
        at = np.searchsorted(sent["batch"], events["batch"][received]).clip(0, len(sent) - 1)
        found = sent["batch"][at] == events["batch"][received]
        events["nbytes"][received[found]] = sent["nbytes"][at[found]]
    return events


def fill_cpu(events: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Give the batches of a worker that were not observed in detail the processor time that those in detail have had.

    Parameters
    ----------
    events : array of EVENT
        Of one process; changed in place.
    """
    whole = events["stage"] == BATCH
    lengths = events["end"] - events["start"]
    for worker in np.unique(events["worker"][whole]):
        own = whole & (events["worker"] == worker)
        known = own & (events["cpu"] >= 0) & (events["nbytes"] >= 0)  # in detail
        missing = own & (events["cpu"] < 0)
        if known.any() and missing.any():
            share = float(events["cpu"][known].sum()) / max(float(lengths[known].sum()), 1.0)
            events["cpu"][missing] = np.rint(min(share, 1.0) * lengths[missing])
    return events


def main_events(watch: LoaderWatch, steps: list[ScriptStep]) -> npt.NDArray[Any]:
    """Waits, steps and copies of the script as events."""
    times = watch.step_times(steps)
    rows: list[tuple[int, ...]] = []
    for at, step in enumerate(steps):
        parts = (
            ("wait", step.start - step.wait, step.start, -1),
            ("copy", step.start, step.start + int(times.copy_ns[at]), -1),
            ("step", step.start, step.start + step.length, step.cpu),
        )
        rows += [
            (STAGES.index(stage), -1, step.number, -1, start, end, cpu, -1, step.samples)
            for stage, start, end, cpu in parts
            if end > start
        ]
    return np.array(rows, EVENT)


def find_slowest(events: npt.NDArray[Any]) -> list[int]:
    """Indices of the slowest samples, the slowest first."""
    single = events[(events["stage"] == SAMPLE) & (events["index"] >= 0)]
    order = np.argsort(single["start"] - single["end"], kind="stable")[:_SLOWEST]
    return list(dict.fromkeys(int(index) for index in single["index"][order]))
