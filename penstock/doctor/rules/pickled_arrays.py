"""Rule pickled-arrays: large arrays that spawn and forkserver copy into every worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from penstock.doctor.findings import Finding
from penstock.doctor.subject import Subject

__all__ = ["find"]

_LEAST_NBYTES: Final = 64 << 20


def find(subject: Subject) -> Iterator[Finding]:
    """An array, in memory or mapped from a file, that is pickled by value."""
    setting = subject.setting
    for array in subject.pickled.arrays if subject.pickled is not None else ():
        if array.nbytes * (setting.num_workers or 1) < _LEAST_NBYTES or array.dtype.hasobject:
            continue
        is_mapped = isinstance(array, np.memmap)
        kind = "memory-mapped array is read whole, pickled" if is_mapped else "array is pickled"
        often = "" if subject.given("persistent_workers", False) or subject.loader is None else ", at each epoch"
        text = f"A {kind} and copied into {setting.each}{often}: {array.nbytes / 1e6:.0f} MB a time."
        advice = (
            "Keep the path and map the file on first use in each worker."
            if is_mapped
            else "Hold it as a tensor, which travels through shared memory; or as a file that each worker maps."
        )
        if often:
            advice += " persistent_workers=True sends it once."
        where = subject.graph.path_of(array) or "dataset"
        yield Finding("pickled-arrays", "warning", where, text, advice)
