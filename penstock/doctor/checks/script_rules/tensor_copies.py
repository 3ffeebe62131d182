"""Rule tensor-copies: ``torch.tensor`` of an array, where torch could use the array itself.

::

    the loop                       observed steps
    where samples are made         in a child process: the loader without workers, two batches, torch.tensor is timed

An array is reported only if it is new: a copy of an array that the dataset holds may be meant as one, since the sample
may be changed.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
import torch

from penstock.datasets.object_graph import find_objects
from penstock.datasets.user_code import is_user_file
from penstock.doctor.checks.findings import Finding, Severity
from penstock.doctor.checks.script_subject import ScriptSubject, describe_events, quote_events
from penstock.doctor.checks.subject import Loader
from penstock.doctor.trials.changed_loader import Change, apply_change
from penstock.doctor.trials.forked_child import run_in_child
from penstock.doctor.watching.steps.known_tensors import find_copied_arrays

__all__ = ["TensorCopy", "find", "measure_tensor_copies"]

_MOST_S: Final = 3.0
_BATCHES: Final = 2
_LEAST_NBYTES: Final = 1 << 12
_NOTABLE: Final = 0.05
"""Part of the time of a batch from which copies are worth a warning."""
_ADVICE: Final = "Use torch.from_numpy or torch.as_tensor, which share the array's memory."


def find(subject: ScriptSubject) -> Iterator[Finding]:
    """Find ``torch.tensor`` of new arrays, in the loop and, if there is time for a trial, where samples are made."""
    for events in subject.events("tensor", each_step=True):
        text = f"{quote_events(events)} copies an array that torch could use as it is, in the main process."
        yield describe_events("tensor-copies", "warning", events, text, _ADVICE)
    loader = subject.samples.loader
    copies = None if loader is None else measure_tensor_copies(loader, min(subject.left_s, _MOST_S))
    yield from (_describe_copy(copy) for copy in copies or () if copy.nbytes >= _LEAST_NBYTES)


@dataclass(slots=True)
class TensorCopy:
    """Copies of arrays that one line makes."""

    file: str
    line: int
    function: str
    """``file``, ``line`` and ``function``: of the call."""
    is_list: bool  # whether it is of a list of arrays
    per_batch: float = 0.0  # calls for a batch
    nbytes: float = 0.0  # of the arrays of a batch
    seconds: float = 0.0  # that the calls take for a batch
    batch_s: float = 0.0  # that the batch takes in all, without workers


def measure_tensor_copies(loader: Loader, limit_s: float) -> list[TensorCopy] | None:
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


def _watch_copies(loader: Loader) -> list[dict[str, object]]:
    """Make some batches in the child, with ``torch.tensor`` under watch."""
    watch = _CopyWatch(loader.dataset)
    iterator = iter(apply_change(loader, Change({"num_workers": 0})))
    next(iterator)  # files are opened, caches filled
    setattr(torch, "tensor", watch)  # noqa: B010  # in this child only; mypy refuses the assignment
    begun, batches = time.perf_counter(), 0
    while batches < _BATCHES and next(iterator, None) is not None:
        batches += 1
    batch_s = (time.perf_counter() - begun) / batches
    for copy in watch.copies.values():
        copy.per_batch, copy.nbytes, copy.seconds = (
            value / batches for value in (copy.per_batch, copy.nbytes, copy.seconds)
        )
        copy.batch_s = batch_s
    return [asdict(copy) for copy in watch.copies.values()]


class _CopyWatch:
    """Stands in for ``torch.tensor``, and sums up what each line copies.

    ``dataset``: whose arrays are left out: a copy of them may be meant as one.
    """

    def __init__(self, dataset: object) -> None:
        self._original: Callable[..., torch.Tensor] = torch.tensor
        self._held = {id(place.value) for place in find_objects([("dataset", dataset)]).objects}
        self.copies: dict[tuple[str, int, bool], TensorCopy] = {}

    def __call__(self, given: object, *args: object, **kwargs: object) -> torch.Tensor:
        begun = time.perf_counter()
        tensor = self._original(given, *args, **kwargs)
        seconds = time.perf_counter() - begun
        arrays, frame = find_copied_arrays(given, tensor), inspect.currentframe()
        caller = None if frame is None else frame.f_back
        if caller is None or not arrays or not is_user_file(caller.f_code.co_filename) or self._is_held(given):
            return tensor
        file, line, is_list = caller.f_code.co_filename, caller.f_lineno, not isinstance(given, np.ndarray)
        function = caller.f_code.co_qualname.replace("<locals>.", "")
        copy = self.copies.setdefault((file, line, is_list), TensorCopy(file, line, function, is_list))
        copy.per_batch += 1
        copy.nbytes += sum(array.nbytes for array in arrays)
        copy.seconds += seconds
        return tensor

    def _is_held(self, given: object) -> bool:
        """Return whether it is an array whose memory somebody else may have: then a copy may be right."""
        if not isinstance(given, np.ndarray):
            return False
        chain: list[object] = [given]
        while isinstance(array := chain[-1], np.ndarray):
            chain.append(array.base)
        *arrays, owner = chain
        is_writeable = all(isinstance(array, np.ndarray) and array.flags.writeable for array in arrays)
        return owner is not None or not is_writeable or any(id(array) in self._held for array in arrays)


def _describe_copy(copy: TensorCopy) -> Finding:
    share = copy.seconds / copy.batch_s if copy.batch_s else 0.0
    severity: Severity = "warning" if share >= _NOTABLE else "note"
    nbytes = f"{copy.nbytes / 1e6:.1f} MB"
    what, advice = f"torch.tensor copies new NumPy arrays: {nbytes} a batch.", _ADVICE
    if copy.is_list:
        what = f"torch.tensor converts lists of NumPy arrays one element at a time: {nbytes} a batch."
        advice = "Use torch.from_numpy(np.stack(arrays)), or torch.stack of tensors."
    cost = f"{1e3 * copy.seconds:.2g} ms of the {1e3 * copy.batch_s:.3g} ms in which one worker makes a batch"
    return Finding.at_lines("tensor-copies", severity, copy.function, copy.file, [copy.line], what, advice, cost)
