"""Rule sample: load a few samples in this process, if the caller passed ``samples``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import Final

import numpy as np

from penstock.datasets.base import fetch
from penstock.datasets.object_graph import find_objects
from penstock.datasets.store.ragged_collate import with_ragged
from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.pickling import try_pickling
from penstock.doctor.checks.subject import Loader, Subject
from penstock.sample import Sample, SampleKeys
from penstock.system.control_group import count_usable_cores

__all__ = ["find"]

_SLOW_S: Final = 0.005


def find(subject: Subject) -> Iterator[Finding]:
    """Find samples that fail, that a worker cannot send, or that are so slow that workers would help."""
    if not subject.samples:
        return
    loaded: list[Sample] = []
    times_s: list[float] = []
    samples = _load_samples(subject)
    while True:
        start_s = time.perf_counter()
        try:
            loaded.append(next(samples))
        except StopIteration:
            break
        except Exception as error:  # noqa: BLE001  # the user's code may raise anything: that is the finding
            text = f"Loading a sample raises {type(error).__name__}: {error}"
            yield Finding(
                "sample", "error", "dataset", text, "Correct the dataset, or leave the sample out with a sampler."
            )
            return
        times_s.append(time.perf_counter() - start_s)
    yield from _find_slow_samples(subject, times_s[1:])  # the first sample also opens files and fills caches
    if not loaded or subject.loader is None:
        return
    found = []
    if subject.settings.kind == "processes":
        found = list(_find_unsendable(subject, subject.loader, loaded[0]))
        yield from found
    if not found:
        yield from _find_unbatchable(subject, subject.loader, loaded)


def _load_samples(subject: Subject) -> Iterator[Sample]:
    """Load ``subject.samples`` samples, evenly spread over the dataset, each with its own random key."""
    dataset = subject.dataset
    if subject.is_stream:
        yield from islice(iter(dataset), subject.samples)
        return
    count = len(dataset)
    for index in range(0, count, max(1, -(-count // subject.samples))):
        yield fetch(dataset, [index], SampleKeys(0, 0, np.array([index], np.int64)))[0]


def _find_slow_samples(subject: Subject, times_s: list[float]) -> Iterator[Finding]:
    cores = count_usable_cores()
    if subject.settings.num_workers != 0 or cores < 2 or not times_s:
        return
    median_s = float(np.median(times_s))
    if median_s >= _SLOW_S:
        text = f"A sample takes {median_s * 1e3:.0f} ms (median of {len(times_s)}), and the training step waits for it."
        yield Finding("sample", "warning", "num_workers=0", text, f"Pass num_workers=1 to {cores}.")


def _find_unbatchable(subject: Subject, loader: Loader, samples: list[Sample]) -> Iterator[Finding]:
    """Find samples that cannot be joined to a batch, as a rule because their shapes differ."""
    batch_size = subject.argument("batch_size")
    if not isinstance(batch_size, int) or min(batch_size, len(samples)) < 2:
        return  # a batch sampler may choose samples of one shape
    if with_ragged(loader.collate_fn, subject.dataset) is not loader.collate_fn:
        return
    try:
        loader.collate_fn(samples)
    except Exception as error:  # noqa: BLE001  # the user's code may raise anything: that is the finding
        text = f"{len(samples)} samples do not make a batch: {type(error).__name__}: {error}"
        advice = "Give all samples one shape, by a crop or resize of fixed size, or pass a collate_fn that joins them."
        yield Finding("sample", "error", "collate_fn", text, advice)


def _find_unsendable(subject: Subject, loader: Loader, sample: Sample) -> Iterator[Finding]:
    """Find what a worker process cannot send in a batch."""
    is_unbatched = subject.argument("batch_size") is None and subject.argument("batch_sampler") is None
    try:
        batch = loader.collate_fn(sample if is_unbatched else [sample])
    except Exception as error:  # noqa: BLE001  # the user's code may raise anything: that is the finding
        text = f"collate_fn raises for a sample of type {type(sample).__name__}: {type(error).__name__}: {error}"
        yield Finding("sample", "error", "collate_fn", text, "Pass a collate_fn that accepts these samples.")
        return
    for failed in try_pickling([("batch", batch)]).unpicklable:
        where = find_objects([("batch", batch)]).path_of(failed.value) or "batch"
        text = f"A worker cannot send this object ({failed.message}), and torch's loader then waits forever."
        yield Finding("sample", "error", where, text, "Return arrays, tensors, numbers, text, or containers of these.")
