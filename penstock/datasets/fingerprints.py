"""Fingerprints of datasets, by which a loader refuses the state of a loader of another dataset."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from penstock.sample import DatasetLike

__all__ = ["combine_fingerprints", "get_fingerprint"]


def get_fingerprint(dataset: DatasetLike) -> str | None:
    """Return ``dataset.fingerprint()``; None if it has no such method, or the result is no text."""
    fingerprint = getattr(dataset, "fingerprint", None)
    found = fingerprint() if callable(fingerprint) else None
    return found if isinstance(found, str) else None


def combine_fingerprints(datasets: Iterable[DatasetLike], *more: bytes) -> str | None:
    """Return one fingerprint of several datasets, in order, and of ``more``; None if there is none at all."""
    parts = [get_fingerprint(dataset) for dataset in datasets]
    if not more and not any(parts):
        return None
    state = hashlib.blake2b(repr(parts).encode(), digest_size=16)
    for part in more:
        state.update(part)
    return state.hexdigest()
