"""Many samples as one batch of NumPy arrays: the general path, with torch's rules.

The first sample decides the structure. Arrays are stacked; bools, ints and floats become bool, int64 and float64
arrays; NumPy scalars keep their dtype; strings and bytes stay lists; mappings and named tuples keep their type,
other tuples become lists, as in torch. A dataset that fills rows never comes here, and gives the same batches.
"""

from __future__ import annotations

import copy
import importlib
import logging
import sys
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from penstock import _native
from penstock.errors import SampleError

__all__ = [
    "TorchCollate",
    "Untorched",
    "allocate_by",
    "allocated",
    "default_collate",
    "default_convert",
    "rebuilt_mapping",
    "rebuilt_sequence",
    "stack_into",
]

_logger = logging.getLogger(__name__)

_allocate: Callable[[tuple[int, ...], DTypeLike], NDArray[Any]] = np.empty


def allocate_by(allocate: Callable[[tuple[int, ...], DTypeLike], NDArray[Any]]) -> None:
    """Have batches of this process stacked into arrays from ``allocate(shape, dtype)`` instead of ``numpy.empty``."""
    global _allocate  # noqa: PLW0603  # a worker process collates for one loader
    _allocate = allocate


def allocated(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """An array with arbitrary content from where this process's batches are to lie."""
    return _allocate(shape, dtype)


def stack_into(rows: Sequence[NDArray[Any]], out: NDArray[Any]) -> None:
    """Copy ``rows``, arrays of one shape and dtype, to the rows of ``out``: as ``numpy.stack(rows, out=out)``."""
    if (
        out.ndim > 1
        and out.dtype.kind in "biufc"
        and out.dtype.isnative
        and all(type(row) is np.ndarray and row.flags.c_contiguous for row in rows)
    ):
        _native.concat(rows, out)
    else:
        np.stack(rows, out=out)


def default_collate(batch: Sequence[Any]) -> Any:
    """Stack samples along a new first dimension, field by field.

    Parameters
    ----------
    batch : sequence
        Samples of one structure: arrays (or objects with ``__array__``, such as torch tensors), numbers, strings,
        bytes, and mappings and sequences of these.

    Returns
    -------
    object
        The first sample's structure with an array (a copy), or a list of strings, in place of each leaf.

    Raises
    ------
    SampleError
        If shapes or lengths differ; the positions in the batch are named.
    TypeError
        If a leaf is of a type that cannot be stacked.
    """
    return _collate(batch, "")


def default_convert(sample: Any) -> Any:
    """What a loader without batches yields for ``sample``: the same leaves, tuples as lists."""
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return type(sample)(*(default_convert(value) for value in sample))
    if isinstance(sample, tuple):
        return [default_convert(value) for value in sample]
    if isinstance(sample, Mapping):
        return rebuilt_mapping(sample, {name: default_convert(value) for name, value in sample.items()})
    if isinstance(sample, Sequence) and not isinstance(sample, (str, bytes)):
        return rebuilt_sequence(sample, [default_convert(value) for value in sample])
    return sample


@dataclass(slots=True)
class Untorched:
    """A batch by torch's rules that was collated without torch: ``default_convert`` makes tensors of its arrays."""

    batch: Any


class TorchCollate:
    """``torch.utils.data``'s own collation for processes in which torch may not be there; picklable without it.

    Without torch, the rules of this module (which are torch's) give an :class:`Untorched` batch; what they refuse is
    put to torch, so that torch's own error is raised.

    Parameters
    ----------
    batched : bool
        Whether samples are stacked (``default_collate``) or one sample is converted (``default_convert``).
    """

    def __init__(self, *, batched: bool = True) -> None:
        self.batched = batched

    def __call__(self, samples: Any) -> Any:
        """The batch of ``samples``; of one sample, without batches."""
        if "torch" not in sys.modules:
            if not self.batched:
                return Untorched(samples)
            try:
                return Untorched(_collate(samples, ""))
            except Exception:  # noqa: BLE001  # torch says what is wrong, in its words
                _logger.debug("collation is put to torch")
        torch_data = importlib.import_module("torch.utils.data")
        return torch_data.default_collate(samples) if self.batched else torch_data.default_convert(samples)


def rebuilt_mapping(like: Mapping[Any, Any], values: dict[Any, Any]) -> Any:
    """``values`` in a mapping of the type of ``like``; a dict where that type cannot be built."""
    try:
        if isinstance(like, MutableMapping):
            clone = copy.copy(like)
            clone.update(values)
            return clone
        return type(like)(values)  # type: ignore[call-arg]  # a mapping's constructor is not part of its protocol
    except TypeError:
        return values


def rebuilt_sequence(like: Sequence[Any], values: list[Any]) -> Any:
    """``values`` in a sequence of the type of ``like``; a list where that type cannot be built."""
    try:
        if isinstance(like, MutableSequence):
            clone = copy.copy(like)
            for i, value in enumerate(values):
                clone[i] = value
            return clone
        return type(like)(values)  # type: ignore[call-arg]  # a sequence's constructor is not part of its protocol
    except TypeError:
        return values


def _collate(batch: Sequence[Any], at: str) -> Any:
    first = batch[0]
    for kinds, collate in _LEAVES:
        if isinstance(first, kinds):
            return collate(batch, at)
    if isinstance(first, Mapping):
        values = {name: _collate([sample[name] for sample in batch], f"{at}[{name!r}]") for name in first}
        return rebuilt_mapping(first, values)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*_columns(batch, at))
    if isinstance(first, tuple):
        return _columns(batch, at)
    if isinstance(first, Sequence):
        return rebuilt_sequence(first, _columns(batch, at))
    if hasattr(first, "__array__"):
        return _stack([np.asarray(sample) for sample in batch], at)
    raise TypeError(
        f"default_collate: batch must contain arrays, numbers, strings, dicts or lists; found {type(first)}{_field(at)}"
        "; give the loader a collate_fn for other types"
    )


def _columns(batch: Sequence[Sequence[Any]], at: str) -> list[Any]:
    length = len(batch[0])
    for i, sample in enumerate(batch):
        if len(sample) != length:
            raise SampleError(
                "each element in list of batch should be of equal size, "
                f"but got {length} at entry 0 and {len(sample)} at entry {i}{_field(at)}"
            )
    return [_collate(column, f"{at}[{i}]") for i, column in enumerate(zip(*batch, strict=True))]


def _stack(batch: Sequence[NDArray[Any]], at: str) -> NDArray[Any]:
    if batch[0].dtype.kind in "OSUV":
        raise TypeError(
            f"default_collate: batch must contain arrays of numbers; found dtype {batch[0].dtype}{_field(at)}; "
            "give the loader a collate_fn for other types"
        )
    shape = batch[0].shape
    for i, array in enumerate(batch):
        if np.shape(array) != shape:
            raise SampleError(
                f"stack expects each array to be equal size, but got {shape} at entry 0 and {np.shape(array)} "
                f"at entry {i}{_field(at)}; crop, resize or pad the samples, or give the loader a collate_fn"
            )
    if any(array.dtype != batch[0].dtype for array in batch):
        return np.stack(batch)
    out = _allocate((len(batch), *shape), batch[0].dtype)
    stack_into(batch, out)
    return out


def _field(at: str) -> str:
    return f" in sample{at}" if at else ""


def _numbers(dtype: type) -> Callable[[Sequence[Any], str], NDArray[Any]]:
    def collate(batch: Sequence[Any], at: str) -> NDArray[Any]:
        try:
            array = np.array(batch)
            return array.astype(dtype if array.dtype.kind in "biu" else np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"default_collate: not all entries are numbers{_field(at)}: {error}") from error

    return collate


def _strings(batch: Sequence[Any], at: str) -> list[Any]:  # noqa: ARG001  # the signature of all leaves
    return list(batch)


_LEAVES: tuple[tuple[Any, Callable[[Sequence[Any], str], Any]], ...] = (
    (np.ndarray, _stack),
    ((str, bytes), _strings),  # before NumPy's scalars: numpy.str_ and numpy.bytes_ are both
    (np.generic, _stack),
    (bool, _numbers(np.bool_)),
    (int, _numbers(np.int64)),
    (float, _numbers(np.float64)),
)
"""Types of leaves, the narrower before the wider: a bool is an int."""
