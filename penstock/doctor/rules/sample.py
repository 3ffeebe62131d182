"""Rule sample: a few samples, made here and now because the caller asked for them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import numpy as np

from penstock.datasets.base import fetch
from penstock.datasets.walk import walk
from penstock.doctor.findings import Finding
from penstock.doctor.pickled import try_pickling
from penstock.doctor.subject import Subject, usable_cores
from penstock.sample import SampleKeys

__all__ = ["find"]

_COSTLY_S: Final = 0.005


def find(subject: Subject) -> Iterator[Finding]:
    """Samples that fail, that cannot come back from a worker, or that are slow enough to deserve workers."""
    if not subject.samples:
        return
    made: list[Any] = []
    times_s: list[float] = []
    samples = _samples(subject)
    while True:
        start_s = time.perf_counter()
        try:
            made.append(next(samples))
        except StopIteration:
            break
        except Exception as error:  # noqa: BLE001  # the user's code may raise anything: that is the finding
            text = f"A sample fails: {type(error).__name__}: {error}"
            yield Finding("sample", "error", "dataset", text, "Mend it, or leave it out by the sampler.")
            return
        times_s.append(time.perf_counter() - start_s)
    yield from _slow(subject, times_s[1:])  # the first one opens files and warms caches
    if made and subject.loader is not None and subject.setting.workers == "processes":
        yield from _returning(subject, made[0])


def _samples(subject: Subject) -> Iterator[Any]:
    """As many as were asked for, evenly spread over the dataset, each under a key of its own."""
    dataset = subject.dataset
    if subject.is_stream:
        yield from islice(iter(dataset), subject.samples)
        return
    count = len(dataset)
    for index in range(0, count, max(1, -(-count // subject.samples))):
        yield fetch(dataset, [index], SampleKeys(0, 0, np.array([index], np.int64)))[0]


def _slow(subject: Subject, times_s: list[float]) -> Iterator[Finding]:
    cores = usable_cores()
    if subject.setting.num_workers != 0 or cores < 2 or not times_s:
        return
    middle_s = float(np.median(times_s))
    if middle_s >= _COSTLY_S:
        text = (
            f"A sample takes {middle_s * 1e3:.0f} ms (median of {len(times_s)}), and the training step waits for each."
        )
        yield Finding("sample", "warning", "num_workers=0", text, f"Give num_workers=1 to {cores}.")


def _returning(subject: Subject, sample: Any) -> Iterator[Finding]:
    """Whether a batch can be sent back from a worker process."""
    alone = subject.given("batch_size") is None and subject.given("batch_sampler") is None
    try:
        batch = subject.loader.collate_fn(sample if alone else [sample])
    except Exception as error:  # noqa: BLE001  # the user's code may raise anything: that is the finding
        text = f"collate_fn fails on a sample of type {type(sample).__name__}: {type(error).__name__}: {error}"
        yield Finding("sample", "error", "collate_fn", text, "Give a collate_fn that knows these samples.")
        return
    for failure in try_pickling([("batch", batch)]).failures:
        where = walk([("batch", batch)]).path_of(failure.value) or "batch"
        text = f"A worker cannot send this back ({failure.text}): torch's loader then waits for ever."
        yield Finding("sample", "error", where, text, "Return arrays, tensors, numbers, text, and containers of them.")
