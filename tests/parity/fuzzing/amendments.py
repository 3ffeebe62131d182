"""Changes of torch's loader to what penstock documents, by name, each with its reason.

Where a difference is more than two events that differ, torch's loader is changed to do as penstock's does, and the
program runs with it once more: all of it has to be the same then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import dataloader
from torch.utils.data._utils import collate, fetch

from penstock.errors import SampleError
from tests.parity.fuzzing.rules import Difference, is_own, is_raised

__all__ = ["AMENDMENTS", "Amendment"]


@dataclass(frozen=True)
class Amendment:
    """A change of torch's loader to what penstock documents.

    Parameters
    ----------
    name, reason : str
        As for a rule.
    concerns : callable
        ``concerns(program, difference)``: whether the difference may have to do with it.
    patch : callable
        A context in which torch's loader does as penstock's.
    told : str
        What docs/from-torch.md says of it.
    """

    name: str
    reason: str
    concerns: Callable[[dict[str, Any], Difference], bool]
    patch: Callable[[], Any]
    told: str


def _fails_with(node: Any, name: str) -> bool:
    """Whether some part of a program raises an error of this name."""
    if isinstance(node, dict):
        return bool(node.get("error") == name) or any(_fails_with(value, name) for value in node.values())
    return isinstance(node, list) and any(_fails_with(value, name) for value in node)


def _stops(program: dict[str, Any], difference: Difference) -> bool:
    ours = difference.ours
    stops: bool = program.get("loader", {}).get("collate_fn") == "stops" or _fails_with(program, "StopIteration")
    stops = stops or any(op.get("value") == "stops" for op in program.get("ops", ()))
    return bool(stops) and is_own(ours) and "StopIteration was raised" in ours[3]


def _stream_fails(program: dict[str, Any], _: Difference) -> bool:
    return _fails_in_stream(program.get("dataset", {}))


def _fails_in_stream(node: dict[str, Any]) -> bool:
    if node.get("kind") == "stream":
        return "fails" in node
    return any(_fails_in_stream(child) for child in node.get("parts", ()))


def _goes_on_after_end(_: dict[str, Any], difference: Difference) -> bool:
    return bool(difference.ours[0] == "ended" and difference.theirs[0] != "ended")


@contextmanager
def _end_is_final() -> Iterator[None]:
    """What has ended stays so."""
    of_torch = dataloader._BaseDataLoaderIter.__next__

    def advance(self: Any) -> Any:
        if getattr(self, "_has_ended", False):
            raise StopIteration
        try:
            return of_torch(self)
        except StopIteration:
            self._has_ended = True
            raise

    def reset(self: Any, *args: Any, **kwargs: Any) -> None:
        self._has_ended = False
        of_reset(self, *args, **kwargs)

    of_reset = dataloader._MultiProcessingDataLoaderIter._reset
    with (
        mock.patch.object(dataloader._BaseDataLoaderIter, "__next__", advance),
        mock.patch.object(dataloader._MultiProcessingDataLoaderIter, "_reset", reset),
    ):
        yield


@contextmanager
def _errors_for_stops() -> Iterator[None]:
    """``StopIteration`` out of a map-style dataset, or a ``collate_fn``, is an error."""
    of_map: Any = fetch._MapDatasetFetcher.fetch
    of_stream: Any = fetch._IterableDatasetFetcher.fetch

    def map_fetch(self: Any, index: Any) -> Any:
        try:
            return of_map(self, index)
        except StopIteration as error:
            raise SampleError(f"StopIteration was raised: {error}") from error

    def stream_fetch(self: Any, index: Any) -> Any:
        own = self.collate_fn

        def checked(samples: Any) -> Any:
            try:
                return own(samples)
            except StopIteration as error:
                raise SampleError(f"StopIteration was raised: {error}") from error

        with mock.patch.object(self, "collate_fn", checked):
            return of_stream(self, index)

    with (
        mock.patch.object(fetch._MapDatasetFetcher, "fetch", map_fetch),
        mock.patch.object(fetch._IterableDatasetFetcher, "fetch", stream_fetch),
    ):
        yield


@contextmanager
def _samples_kept() -> Iterator[None]:
    """What a stream gave before it raised is in the next batch."""

    def stream_fetch(self: Any, index: Any) -> Any:
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.dataset_iter))
        samples = self.__dict__.setdefault("pending", [])
        while len(samples) < len(index) and not self.ended:
            try:
                samples.append(next(self.dataset_iter))
            except StopIteration:
                self.ended = True
        self.pending = []
        if not samples or (self.drop_last and len(samples) < len(index)):
            raise StopIteration
        return self.collate_fn(samples)

    with mock.patch.object(fetch._IterableDatasetFetcher, "fetch", stream_fetch):
        yield


def _prefetches(program: dict[str, Any], _: Difference) -> bool:
    return bool(program.get("loader", {}).get("num_workers"))


class _Raising(ExceptionWrapper):
    """An error in the place of a batch."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def reraise(self) -> None:
        """Raise it."""
        raise self.error


@contextmanager
def _errors_in_turn() -> Iterator[None]:
    """An error of the sampler is raised where the batch would be; torch raises it at once, and loses a batch."""
    of_torch = dataloader._MultiProcessingDataLoaderIter._try_put_index

    def put(self: Any) -> None:
        try:
            of_torch(self)
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001  # raised later
            self._task_info[self._send_idx] = (0, _Raising(error))
            self._workers_num_tasks[0] += 1
            self._send_idx += 1

    with mock.patch.object(dataloader._MultiProcessingDataLoaderIter, "_try_put_index", put):
        yield


def _mixed_in_worker(program: dict[str, Any], difference: Difference) -> bool:
    theirs = difference.theirs
    text = json.dumps(program)
    mixed = '"types"' in text or '"concat"' in text or '"chain"' in text
    return mixed and is_raised(theirs) and theirs[3].startswith("Caught TypeError") and not theirs[4]


@contextmanager
def _stacked_alike() -> Iterator[None]:
    """Tensors are stacked in workers as elsewhere."""

    def stack(batch: Any, *, collate_fn_map: Any = None) -> Any:
        del collate_fn_map
        return torch.stack(batch)

    with mock.patch.dict(collate.default_collate_fn_map, {torch.Tensor: stack}):
        yield


AMENDMENTS: Final = (
    Amendment(
        "sampler-errors-in-their-turn",
        "what a sampler raises comes where its batch would, behind the good ones; torch raises it while it prefetches",
        _prefetches,
        _errors_in_turn,
        "a sampler's error takes good batches with it",
    ),
    Amendment(
        "mixed-dtypes-in-a-worker",
        "tensors of several dtypes are stacked in a worker as in the main process; torch raises a TypeError there",
        _mixed_in_worker,
        _stacked_alike,
        "**Tensors of several dtypes** are stacked in a worker",
    ),
    Amendment(
        "an-end-is-final",
        "next() after the end is StopIteration, whatever the dataset's or sampler's iterator would do",
        _goes_on_after_end,
        _end_is_final,
        "**The end of an epoch is final**",
    ),
    Amendment(
        "samples-of-a-stream-are-kept",
        "what a stream gave before an error is delivered with its next batch; torch drops it",
        _stream_fails,
        _samples_kept,
        "what a stream gave before an error is delivered",
    ),
    Amendment(
        "stop-iteration-is-an-error",
        "StopIteration out of dataset[index] or collate_fn is an error; torch takes it for the end of the epoch",
        _stops,
        _errors_for_stops,
        "escapes from `__getitem__` or `collate_fn` is an error",
    ),
)
