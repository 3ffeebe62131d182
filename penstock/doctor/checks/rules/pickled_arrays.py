"""Rule pickled-arrays: large arrays that spawn and forkserver copy into every worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.subject import Subject

__all__ = ["find"]

_LEAST_NBYTES: Final = 64 << 20


def find(subject: Subject) -> Iterator[Finding]:
    """Find arrays, in memory or mapped from a file, that are pickled with their contents."""
    settings = subject.settings
    for array in subject.pickling.arrays if subject.pickling is not None else ():
        if array.nbytes * (settings.num_workers or 1) < _LEAST_NBYTES or array.dtype.hasobject:
            continue
        is_mapped = isinstance(array, np.memmap)
        kind = "memory-mapped array is read in full, pickled" if is_mapped else "array is pickled"
        repeated = "" if subject.argument("persistent_workers", False) or subject.loader is None else ", at each epoch"
        text = f"This {kind} and copied into {settings.each_worker}{repeated}: {array.nbytes / 1e6:.0f} MB each time."
        advice = (
            "Store the path, and map the file on first use in each worker."
            if is_mapped
            else "Store it as a tensor, which is sent through shared memory, or as a file that each worker maps."
        )
        if repeated:
            advice += " With persistent_workers=True it is copied once."
        where = subject.graph.path_of(array) or "dataset"
        yield Finding("pickled-arrays", "warning", where, text, advice)
