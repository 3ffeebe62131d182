"""What copies by ``torch.tensor`` cost where samples are made, measured in a child process.

::

    child   the loader without workers, two batches      torch.tensor is timed: by which line, of which array
"""

from __future__ import annotations

import inspect
import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from penstock.datasets.object_graph import find_objects
from penstock.datasets.user_code import is_user_file
from penstock.doctor.checks.script.known_tensors import find_copied_arrays
from penstock.doctor.trials.changed_loader import Change, apply_change
from penstock.doctor.trials.forked_child import run_in_child

__all__ = ["TensorCopy", "measure_tensor_copies"]

_BATCHES: Final = 2


@dataclass(frozen=True, slots=True)
class TensorCopy:
    """Copies of arrays that one line makes.

    Parameters
    ----------
    file, line, function : str, int, str
        Of the call.
    is_list : bool
        Whether it is of a list of arrays.
    per_batch : float
        Calls for a batch.
    nbytes : float
        Of the arrays of a batch.
    seconds : float
        That the calls take for a batch.
    batch_s : float
        That the batch takes in all, without workers.
    """

    file: str
    line: int
    function: str
    is_list: bool
    per_batch: float
    nbytes: float
    seconds: float
    batch_s: float


def measure_tensor_copies(loader: Any, limit_s: float) -> list[TensorCopy] | None:
    """Find where ``torch.tensor`` copies arrays while batches are made, and what that costs.

    Parameters
    ----------
    loader : DataLoader
        Of torch or penstock. It is iterated in a child process only.
    limit_s : float
        Most seconds.

    Returns
    -------
    list of TensorCopy, optional
        Of the user's code, and of arrays that nobody else holds. None if it could not be tried.
    """
    found = run_in_child(lambda: _watch_copies(loader), limit_s)
    return None if found is None else [TensorCopy(**each) for each in found]


def _watch_copies(loader: Any) -> list[dict[str, Any]]:
    """In the child: make some batches, with ``torch.tensor`` under watch."""
    watch = _CopyWatch(loader.dataset)
    iterator = iter(apply_change(loader, Change({"num_workers": 0})))
    next(iterator)  # files are opened, caches filled
    setattr(torch, "tensor", watch)  # noqa: B010  # in this child only; mypy refuses the assignment
    begun, batches = time.perf_counter(), 0
    while batches < _BATCHES and next(iterator, None) is not None:
        batches += 1
    return watch.describe(batches, time.perf_counter() - begun) if batches else []


class _CopyWatch:
    """Stands in for ``torch.tensor``.

    Parameters
    ----------
    dataset : dataset
        Whose arrays are left out: a copy of them may be meant as one.
    """

    def __init__(self, dataset: Any) -> None:
        self._original = torch.tensor
        self._held = {id(place.value) for place in find_objects([("dataset", dataset)]).objects}
        self._copies: dict[tuple[str, int, str, bool], list[float]] = {}

    def __call__(self, given: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        begun = time.perf_counter()
        tensor = self._original(given, *args, **kwargs)
        seconds = time.perf_counter() - begun
        arrays, is_list = find_copied_arrays(given, tensor), not isinstance(given, np.ndarray)
        frame = inspect.currentframe()
        caller = None if frame is None else frame.f_back
        if caller is None or not arrays or not is_user_file(caller.f_code.co_filename):
            return tensor
        if is_list or not _is_held(given, self._held):
            key = (caller.f_code.co_filename, caller.f_lineno, caller.f_code.co_qualname, is_list)
            entry = self._copies.setdefault(key, [0.0, 0.0, 0.0])
            for at, value in enumerate((1.0, float(sum(array.nbytes for array in arrays)), seconds)):
                entry[at] += value
        return tensor

    def describe(self, batches: int, seconds: float) -> list[dict[str, Any]]:
        """What was seen, for each batch."""
        return [
            {
                "file": file, "line": line, "function": name.replace("<locals>.", ""), "is_list": is_list,
                "per_batch": count / batches, "nbytes": nbytes / batches, "seconds": taken / batches,
                "batch_s": seconds / batches,
            }
            for (file, line, name, is_list), (count, nbytes, taken) in self._copies.items()
        ]  # fmt: skip


def _is_held(array: Any, held: set[int]) -> bool:
    """Whether somebody else may have the array's memory: then a copy may be right."""
    while isinstance(array.base, np.ndarray):
        if id(array) in held:
            return True
        array = array.base
    return id(array) in held or array.base is not None or not array.flags.writeable
