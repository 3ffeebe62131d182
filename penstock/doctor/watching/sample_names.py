"""Names of samples: the key in a store, or the file, where a dataset has one. No sample is loaded."""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterable, Sequence
from typing import Any, Final

__all__ = ["name_sample", "name_samples"]

_LISTS: Final = (
    "samples", "imgs", "files", "paths", "filenames", "file_names", "image_paths", "image_files", "img_paths", "images",
    "keys", "ids", "names", "file_list", "filepaths", "fnames", "data",
)  # fmt: skip
_MAX_DEPTH: Final = 8


def name_samples(dataset: Any, indices: Iterable[int]) -> dict[int, str]:
    """The names of samples, by index; those without a name are left out."""
    named = {index: name_sample(dataset, index) for index in indices}
    return {index: name for index, name in named.items() if name}


def name_sample(dataset: Any, index: int) -> str:
    """The name of one sample; empty if it has none."""
    try:
        return _find_name(dataset, index, _MAX_DEPTH)
    except Exception:  # noqa: BLE001  # the user's own attributes may raise anything; a name is not worth an error
        return ""


def _find_name(dataset: Any, index: int, depth: int) -> str:
    if depth == 0 or index < 0:
        return ""
    inner, indices, parts = (getattr(dataset, name, None) for name in ("dataset", "indices", "datasets"))
    if inner is not None and indices is not None:  # a subset
        return _find_name(inner, int(indices[index]), depth - 1)
    if isinstance(parts, (list, tuple)) and hasattr(dataset, "cumulative_sizes"):  # a concatenation
        number = bisect.bisect_right(dataset.cumulative_sizes, index)
        before = dataset.cumulative_sizes[number - 1] if number else 0
        return _find_name(parts[number], index - before, depth - 1)
    store: Any = getattr(dataset, "store", None)
    if callable(getattr(store, "keys", None)):
        return str(store.keys()[index])
    return _find_in_lists(dataset, index) or ("" if inner is None else _find_name(inner, index, depth - 1))


def _find_in_lists(dataset: Any, index: int) -> str:
    for name in _LISTS:
        values = getattr(dataset, name, None)
        if isinstance(values, Sequence) and not isinstance(values, (str, bytes)) and index < len(values):
            value = values[index]
            first = value[0] if isinstance(value, (tuple, list)) and value else value
            if isinstance(first, (str, os.PathLike)):
                return os.fspath(first)
    return ""
