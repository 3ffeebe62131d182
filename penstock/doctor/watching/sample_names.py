"""Names of samples: the key in a store, or the file, where a dataset has one. No sample is loaded."""

from __future__ import annotations

import bisect
import os
from collections.abc import Sequence
from typing import Final

import numpy as np

from penstock.doctor.watching.recording import SAMPLE, Events

__all__ = ["name_sample", "name_slowest"]

_SLOWEST: Final = 50
_LISTS: Final = (
    "samples", "imgs", "files", "paths", "filenames", "file_names", "image_paths", "image_files", "img_paths", "images",
    "keys", "ids", "names", "file_list", "filepaths", "fnames", "data",
)  # fmt: skip
_MAX_DEPTH: Final = 8


def name_slowest(dataset: object, events: Events) -> dict[int, str]:
    """The names of the slowest samples, by index, the slowest first; those without a name are left out."""
    single = events[(events["stage"] == SAMPLE) & (events["index"] >= 0)]
    order = np.argsort(single["start"] - single["end"], kind="stable")[:_SLOWEST]
    named = {index: name_sample(dataset, index) for index in single["index"][order].tolist()}
    return {index: name for index, name in named.items() if name}


def name_sample(dataset: object, index: int) -> str:
    """The name of one sample; empty if it has none."""
    try:
        return _find_name(dataset, index, _MAX_DEPTH)
    except Exception:  # noqa: BLE001  # the user's own attributes may raise anything; a name is not worth an error
        return ""


def _find_name(dataset: object, index: int, depth: int) -> str:
    if depth == 0 or index < 0:
        return ""
    inner, indices, parts = (getattr(dataset, name, None) for name in ("dataset", "indices", "datasets"))
    if inner is not None and indices is not None:  # a subset
        return _find_name(inner, int(indices[index]), depth - 1)
    if isinstance(parts, (list, tuple)) and hasattr(dataset, "cumulative_sizes"):  # a concatenation
        number = bisect.bisect_right(dataset.cumulative_sizes, index)
        before = dataset.cumulative_sizes[number - 1] if number else 0
        return _find_name(parts[number], index - before, depth - 1)
    keys = getattr(getattr(dataset, "store", None), "keys", None)
    if callable(keys):
        return str(keys()[index])
    return _find_in_lists(dataset, index) or ("" if inner is None else _find_name(inner, index, depth - 1))


def _find_in_lists(dataset: object, index: int) -> str:
    for name in _LISTS:
        values = getattr(dataset, name, None)
        if isinstance(values, Sequence) and not isinstance(values, (str, bytes)) and index < len(values):
            value = values[index]
            first = value[0] if isinstance(value, (tuple, list)) and value else value
            if isinstance(first, (str, os.PathLike)):
                return os.fspath(first)
    return ""
