"""Events of samples, and of their parts: a sample's time is measured, and divided by what was seen of it.

::

    pack_samples: shares | sample | sample | shares | sample ...  ──> file ──> unpack_samples: samples and their parts

:mod:`.work_recorder` writes them in the process that builds batches. To divide samples there would cost it more than to
time them, so :mod:`penstock.doctor.watching.watcher` divides them when it reads the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.datasets.sample_names import name_sample
from penstock.doctor.watching.event_file import EventRow, make_row
from penstock.doctor.watching.recording import BATCH, SAMPLE, STAGES, WORK_STAGES, Events

__all__ = ["PARTS", "SampleTime", "Shares", "fill_cpu", "name_slowest", "pack_samples", "unpack_samples"]

PARTS: Final = WORK_STAGES[:3]
_SHARES: Final = 102
"""Stage of an event that is none: its start, end and cpu are the shares of the samples up to the next one of these."""
_WHOLE: Final = 1_000_000_000
_SLOWEST: Final = 50

SampleTime = tuple[int, int, int, int, int]
"""Index (-1: several, or none), start, end, processor time (-1: not measured), and number of samples."""

Shares = tuple[float, ...]
"""Parts of a sample's time in read, decode and augment. Their sum is 1, or 0 if the sample is not to be divided."""


def pack_samples(
    worker: int, batch: int, samples: Sequence[SampleTime], shares: Shares, others: Mapping[int, Shares]
) -> list[EventRow]:
    """The events of samples, without their parts: :func:`unpack_samples` adds these.

    Parameters
    ----------
    worker, batch : int
        Of the events.
    samples : sequence of SampleTime
        Their times.
    shares : Shares
        Of the samples,
    others : mapping of int to Shares
        but for those at these positions.

    Returns
    -------
    list of EventRow
        To be written together.
    """
    rows: list[EventRow] = []
    last: Shares | None = None
    for position, (index, start, end, cpu, count) in enumerate(samples):
        own = others.get(position, shares) if others else shares
        if own is not last:
            read, decode, augment = (round(_WHOLE * share) for share in own)
            rows.append((_SHARES, worker, batch, -1, read, decode, augment, -1, 0))
            last = own
        rows.append(make_row(SAMPLE, worker, batch, start, end, cpu=cpu, samples=count, index=index))
    return rows


def unpack_samples(events: Events) -> Events:
    """Add the parts of samples that :func:`pack_samples` has left out.

    Parameters
    ----------
    events : array of EVENT
        In the order in which they were written.

    Returns
    -------
    array of EVENT
        Samples are followed by their parts, one after the other; parts without a time are left out.
    """
    is_head = events["stage"] == _SHARES
    head = np.maximum.accumulate(np.where(is_head, np.arange(len(events)), -1))
    is_sample = (events["stage"] == SAMPLE) & (head >= 0)
    heads = events[head[is_sample]]
    shares = np.stack([heads[name] for name in ("start", "end", "cpu")], axis=1) / _WHOLE
    return np.concatenate([events[~is_head & ~is_sample], _divide_samples(events[is_sample], shares)])


def _divide_samples(samples: Events, shares: npt.NDArray[np.float64]) -> Events:
    """Divide each of n samples into parts, with shares of shape (n, 3)."""
    start, end, cpu = samples["start"], samples["end"], samples["cpu"]
    events = np.repeat(samples[:, None], 1 + len(PARTS), axis=1)
    events["stage"] = (SAMPLE, *(STAGES.index(stage) for stage in PARTS))
    bounds = np.concatenate([np.zeros((len(samples), 1)), np.cumsum(shares, axis=1)], axis=1)
    bounds = start[:, None] + np.rint(bounds * (end - start)[:, None]).astype(np.int64)
    events["start"][:, 1:], events["end"][:, 1:] = bounds[:, :-1], bounds[:, 1:]
    # What computes is decoding and augmenting; reading mostly waits.
    computing = (end - start) - (bounds[:, 1] - bounds[:, 0])
    used = np.minimum(cpu, computing)
    events["cpu"][:, 1] = cpu - used
    for column in (2, 3):
        part = (bounds[:, column] - bounds[:, column - 1]) / np.maximum(computing, 1)
        events["cpu"][:, column] = np.rint(used * part)
    events["cpu"][cpu < 0] = -1
    flat = events.reshape(-1)
    kept: Events = flat[(flat["stage"] == SAMPLE) | (flat["end"] > flat["start"])]
    return kept


def fill_cpu(events: Events) -> Events:
    """Give the batches of a worker that were passed over the processor time that those in detail have had.

    ``events``: of one process; changed in place.
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


def name_slowest(dataset: object, events: Events) -> dict[int, str]:
    """The names of the slowest samples, by index, the slowest first; those without a name are left out."""
    single = events[(events["stage"] == SAMPLE) & (events["index"] >= 0)]
    order = np.argsort(single["start"] - single["end"], kind="stable")[:_SLOWEST]
    named = {index: name_sample(dataset, index) for index in single["index"][order].tolist()}
    return {index: name for index, name in named.items() if name}
