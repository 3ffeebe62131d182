"""How many bytes a batch holds in arrays, text and bytes."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

__all__ = ["count_nbytes"]

_MOST: Final = 256
"""Most values that are looked at: a batch may be a list of many small objects."""

_LIBRARIES: Final = frozenset({"numpy", "torch", "torchvision", "penstock"})
"""Whose ``nbytes`` is asked for: a property of a user's own class may do anything."""


def count_nbytes(batch: Any) -> int:
    """Bytes of the arrays, text and bytes in a batch's dicts, lists and tuples; of the first 256 values."""
    total, looked_at, waiting = 0, 0, [batch]
    while waiting and looked_at < _MOST:
        value = waiting.pop()
        looked_at += 1
        kind = type(value)
        if kind is np.ndarray:  # the usual kinds first: this is called while an epoch is under way
            total += value.nbytes
        elif kind is dict or (kind is not list and kind is not tuple and isinstance(value, Mapping)):
            waiting.extend(itertools.islice(value.values(), _MOST))
        elif isinstance(value, (list, tuple)):
            waiting.extend(value[:_MOST])
        elif isinstance(value, (str, bytes, bytearray)):
            total += len(value)
        else:
            total += _read_nbytes(value)
    return total


def _read_nbytes(value: Any) -> int:
    if type(value).__module__.partition(".")[0] not in _LIBRARIES:
        return 0
    with contextlib.suppress(Exception):  # sparse tensors have none, and say so in several ways
        if isinstance(nbytes := getattr(value, "nbytes", 0), int):
            return nbytes
    return 0
