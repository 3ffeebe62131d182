"""What a sample of a dataset is in its source: the record of a store, or a file. No sample is loaded.

Called by the doctor and by what shows a running loader, which both know a sample by its index in the dataset alone.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Sequence
from typing import Final

from penstock.datasets.mixture.maps import MapMixture
from penstock.stores.base import Store

__all__ = ["find_record", "name_sample"]

_LISTS: Final = (
    "samples", "imgs", "files", "paths", "filenames", "file_names", "image_paths", "image_files", "img_paths", "images",
    "keys", "ids", "names", "file_list", "filepaths", "fnames", "data",
)  # fmt: skip
_MAX_DEPTH: Final = 8


def name_sample(dataset: object, index: int) -> str:
    """The name of one sample, its key in a store or its file; empty if it has none."""
    try:
        return _find_name(dataset, index, _MAX_DEPTH)
    except Exception:  # noqa: BLE001  # the user's own attributes may raise anything; a name is not worth an error
        return ""


def find_record(dataset: object, index: int) -> tuple[Store, int] | None:
    """The store that a sample is read from and the number of its record there; None if there is none."""
    try:
        for _ in range(_MAX_DEPTH):
            store = getattr(dataset, "store", None)
            if isinstance(store, Store):
                return store, index + len(store) if index < 0 else index
            inner, index = _step_inside(dataset, index) or (getattr(dataset, "dataset", None), index)
            if inner is None:
                return None
            dataset = inner
    except Exception:  # noqa: BLE001  # as above
        return None
    return None


def _step_inside(dataset: object, index: int) -> tuple[object, int] | None:
    """Return the dataset within a subset, a concatenation or a mixture, and the index there; None if it is none."""
    inner, indices, parts = (getattr(dataset, name, None) for name in ("dataset", "indices", "datasets"))
    if inner is not None and indices is not None:  # a subset
        return inner, int(indices[index])
    if isinstance(parts, (list, tuple)) and hasattr(dataset, "cumulative_sizes"):  # a concatenation
        number = bisect.bisect_right(dataset.cumulative_sizes, index)
        return parts[number], index - (dataset.cumulative_sizes[number - 1] if number else 0)
    if isinstance(dataset, MapMixture):
        return dataset.dataset, int(dataset.locate([index])[0])
    return None


def _find_name(dataset: object, index: int, depth: int) -> str:
    if depth == 0 or index < 0:
        return ""
    inside = _step_inside(dataset, index)
    if inside is not None:
        return _find_name(*inside, depth - 1)
    keys = getattr(getattr(dataset, "store", None), "keys", None)
    if callable(keys):
        return str(keys()[index])
    inner = getattr(dataset, "dataset", None)
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
