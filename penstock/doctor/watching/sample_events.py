"""Events of samples, and of their parts: a sample's time is measured, and divided by what was seen of it.

::

    few samples     divide_sample ──────────────────────────────> file of events
    many            pack_samples: samples and shares ──> file ──> unpack_samples

:mod:`.work_recorder` writes them in the process that builds batches. To divide many samples there would
cost it more than to time them, so :mod:`penstock.doctor.watching.watcher` divides them when it reads the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.doctor.watching.event_file import EventRow, make_row
from penstock.doctor.watching.recording import EVENT, SAMPLE, STAGES, WORK_STAGES

__all__ = ["SampleTime", "divide_sample", "pack_samples", "unpack_samples"]

_PARTS: Final = WORK_STAGES[:3]
_SHARES: Final = 102
"""Stage of an event that is none: its start, end and cpu are the shares of the next ``samples`` events."""
_WHOLE: Final = 1_000_000_000

SampleTime = tuple[int, int, int, int, int]
"""Index (-1: several, or none), start, end, processor time (-1: not measured), and number of samples."""


def divide_sample(worker: int, batch: int, sample: SampleTime, shares: tuple[float, ...]) -> list[EventRow]:
    """The event of one sample, and those of its parts, one part after the other.

    Parameters
    ----------
    worker, batch : int
        Of the events.
    sample : SampleTime
        Its time.
    shares : tuple of float
        Parts of its time in read, decode and augment; their sum is 1.

    Returns
    -------
    list of EventRow
        Parts without a time are left out.
    """
    index, start, end, cpu, count = sample
    rows = [make_row(SAMPLE, worker, batch, start, end, cpu=cpu, samples=count, index=index)]
    shares = tuple(round(_WHOLE * share) / _WHOLE for share in shares)
    # What computes is decoding and augmenting; reading mostly waits.
    computing = (end - start) - round(shares[0] * (end - start))
    used, at, share = min(cpu, computing), start, 0.0
    for stage, own in zip(_PARTS, shares, strict=True):
        share += own
        until = start + round(share * (end - start))
        if until > at:
            part = cpu - used if stage == "read" else round(used * ((until - at) / max(computing, 1)))
            part = part if cpu >= 0 else -1
            rows.append(make_row(stage, worker, batch, at, until, cpu=part, samples=count, index=index))
        at = until
    return rows


def pack_samples(
    worker: int,
    batch: int,
    indices: Sequence[int],
    clocks: Sequence[int],
    cpu: Sequence[int],
    shares: tuple[float, ...],
) -> npt.NDArray[Any]:
    """The events of many samples that follow one another, without their parts: :func:`unpack_samples` adds these.

    Parameters
    ----------
    worker, batch : int
        Of the events.
    indices : sequence of int
        Of n samples.
    clocks : sequence of int
        When they were begun, and when the last one was ended: n + 1 numbers.
    cpu : sequence of int
        Processor times of the thread at these moments; empty if they were not read.
    shares : tuple of float
        Parts of the time of each sample, as in :func:`divide_sample`.

    Returns
    -------
    array of EVENT
        An event with the shares, and one for each sample.
    """
    count = len(indices)
    events = np.empty(1 + count, EVENT)
    events["stage"], events["worker"], events["batch"] = SAMPLE, worker, batch
    events["nbytes"], events["samples"] = -1, 1
    clock = np.array(clocks, np.int64)
    events["index"][1:], events["start"][1:], events["end"][1:] = indices, clock[:-1], clock[1:]
    events["cpu"][1:] = np.diff(np.array(cpu, np.int64)) if cpu else -1
    events[0] = (_SHARES, worker, batch, -1, *(round(_WHOLE * share) for share in shares), -1, count)
    return events


def unpack_samples(events: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Add the parts of samples that :func:`pack_samples` has left out.

    Parameters
    ----------
    events : array of EVENT
        In the order in which they were written.

    Returns
    -------
    array of EVENT
        All events as :func:`divide_sample` makes them, in another order.
    """
    (heads,) = np.nonzero(events["stage"] == _SHARES)
    if not len(heads):
        return events
    counts = np.minimum(events["samples"][heads], len(events) - 1 - heads)
    own = np.repeat(heads + 1, counts) + np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    shares = np.stack([events[name][heads] for name in ("start", "end", "cpu")], axis=1) / _WHOLE
    others = np.ones(len(events), bool)
    others[heads] = others[own] = False
    divided = _divide_samples(events[own], np.repeat(shares, counts, axis=0))
    return np.concatenate([events[others], divided])


def _divide_samples(samples: npt.NDArray[Any], shares: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
    """What :func:`divide_sample` gives for each of n events of samples, with shares of shape (n, 3)."""
    start, end, cpu = samples["start"], samples["end"], samples["cpu"]
    events = np.repeat(samples[:, None], 1 + len(_PARTS), axis=1)
    events["stage"] = (SAMPLE, *(STAGES.index(stage) for stage in _PARTS))
    bounds = np.concatenate([np.zeros((len(samples), 1)), np.cumsum(shares, axis=1)], axis=1)
    bounds = start[:, None] + np.rint(bounds * (end - start)[:, None]).astype(np.int64)
    events["start"][:, 1:], events["end"][:, 1:] = bounds[:, :-1], bounds[:, 1:]
    computing = (end - start) - (bounds[:, 1] - bounds[:, 0])
    used = np.minimum(cpu, computing)
    events["cpu"][:, 1] = cpu - used
    for column in (2, 3):
        part = (bounds[:, column] - bounds[:, column - 1]) / np.maximum(computing, 1)
        events["cpu"][:, column] = np.rint(used * part)
    events["cpu"][cpu < 0] = -1
    flat = events.reshape(-1)
    kept: npt.NDArray[Any] = flat[(flat["stage"] == SAMPLE) | (flat["end"] > flat["start"])]
    return kept
