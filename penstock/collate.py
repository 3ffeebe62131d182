"""Many samples as one batch of NumPy arrays: the general path, with torch's rules.

The first sample decides the structure. Arrays are stacked; bools, ints and floats become bool, int64 and float64
arrays; NumPy scalars keep their dtype; strings and bytes stay lists; mappings and named tuples keep their type,
other tuples become lists, as in torch. Numbers of several types become an array of the dtype that torch would choose
(:mod:`penstock.scalars`); what torch refuses to mix is refused. A dataset that fills rows never comes here, and gives
the same batches.
"""

from __future__ import annotations

import copy
import importlib
import logging
import operator
import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence, Sequence, Sized
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import DTypeLike

from penstock import _native
from penstock.sample import Array, Batch, Index, Sample, Tree
from penstock.scalars import CollateError, CollateTypeError, as_array, as_doubles, as_dtype, common_dtype, stack_scalars

__all__ = [
    "CollateError",
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

_allocate: Callable[[tuple[int, ...], DTypeLike], Array] = np.empty


def allocate_by(allocate: Callable[[tuple[int, ...], DTypeLike], Array]) -> None:
    """Have batches of this process stacked into arrays from ``allocate(shape, dtype)`` instead of ``numpy.empty``."""
    global _allocate  # noqa: PLW0603  # a worker process collates for one loader
    _allocate = allocate


def allocated(shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """An array with arbitrary content from where this process's batches are to lie."""
    return _allocate(shape, dtype)


def stack_into(rows: Sequence[Array], out: Array) -> None:
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


def default_collate(batch: Sequence[Sample]) -> Batch:
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
    CollateError
        If shapes or lengths differ, numbers are mixed with what is no number, or do not fit the dtype; the positions in
        the batch are named. It is a :class:`SampleError`, and also a TypeError, ValueError or OverflowError
        where torch raises one of these.
    TypeError
        If the first leaf is of a type that cannot be stacked.
    """
    return _collate(batch, "", _LEAVES)


def default_convert(sample: Sample) -> Sample:
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

    batch: Batch


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

    def __call__(self, samples: Sample) -> Batch:
        """The batch of ``samples``; of one sample, without batches."""
        if "torch" not in sys.modules:
            if not self.batched:
                return Untorched(samples)
            try:
                return Untorched(_collate(samples, "", _TORCH_LEAVES))
            except Exception:  # noqa: BLE001  # torch says what is wrong, in its words
                _logger.debug("collation is put to torch")
        torch_data = importlib.import_module("torch.utils.data")
        return torch_data.default_collate(samples) if self.batched else torch_data.default_convert(samples)


def rebuilt_mapping(like: Mapping[Index, Tree], values: dict[Index, Tree]) -> Tree:
    """``values`` in a mapping of the type of ``like``; a dict where that type cannot be built."""
    try:
        if isinstance(like, MutableMapping):
            clone = copy.copy(like)
            clone.update(values)
            return clone
        return type(like)(values)  # type: ignore[call-arg]  # a mapping's constructor is not part of its protocol
    except TypeError:
        return values


def rebuilt_sequence(like: Sequence[Tree], values: list[Tree]) -> Tree:
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


_Leaves = tuple[tuple[type | tuple[type, ...], Callable[[Sequence[Sample], str], Batch]], ...]


def _collate(batch: Sequence[Sample], at: str, leaves: _Leaves) -> Batch:
    first = batch[0]
    for kinds, collate in leaves:
        if isinstance(first, kinds):
            return collate(batch, at)
    if isinstance(first, Mapping):
        values = {name: _collate(_items(batch, name, at), f"{at}[{name!r}]", leaves) for name in first}
        return rebuilt_mapping(first, values)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*_named_columns(batch, at, leaves))
    if isinstance(first, tuple):
        return _columns(batch, at, leaves)
    if isinstance(first, Sequence):
        return rebuilt_sequence(first, _columns(batch, at, leaves))
    if hasattr(first, "__array__"):
        return _stack([_as_foreign(sample, first, i, at) for i, sample in enumerate(batch)], at)
    raise TypeError(
        f"default_collate: batch must contain arrays, numbers, strings, dicts or lists; found {type(first)}{_field(at)}"
        "; give the loader a collate_fn for other types"
    )


def _items(batch: Sequence[Sample], name: Index, at: str) -> list[Batch]:
    try:
        return [sample[name] for sample in batch]
    except (KeyError, IndexError, TypeError) as error:
        error.add_note(f"default_collate: not every sample has what entry 0 has at {name!r}{_field(at)}")
        raise


def _columns(batch: Sequence[Sequence[Sample]], at: str, leaves: _Leaves) -> list[Batch]:
    length = len(batch[0])
    for i, sample in enumerate(batch):
        if not hasattr(sample, "__len__"):
            raise CollateTypeError(
                f"default_collate: entry 0 has {length} parts, entry {i} is of type {type(sample).__name__}{_field(at)}"
            )
        if len(sample) != length:
            raise CollateError(
                "each element in list of batch should be of equal size, "
                f"but got {length} at entry 0 and {len(sample)} at entry {i}{_field(at)}"
            )
    return [_collate(column, f"{at}[{i}]", leaves) for i, column in enumerate(zip(*batch, strict=True))]


def _named_columns(batch: Sequence[Sample], at: str, leaves: _Leaves) -> list[Batch]:
    """As torch does it: what a later sample has beyond the first one's parts is left out."""
    length = len(batch[0])
    for i, sample in enumerate(batch):
        if not isinstance(sample, Iterable) or (isinstance(sample, Sized) and len(sample) < length):
            raise CollateTypeError(
                f"default_collate: entry 0 is a {type(batch[0]).__name__} of {length} parts, entry {i} has fewer"
                f"{_field(at)}"
            )
    columns = zip(*batch, strict=False)
    return [_collate(column, f"{at}[{i}]", leaves) for i, column in zip(range(length), columns, strict=False)]


def _arrays(batch: Sequence[Sample], at: str) -> Array:
    """Stack what began with an array; other entries become arrays as torch's ``as_tensor`` would make them."""
    _refuse_text(batch[0], at)
    if not set(map(type, batch)) <= {np.ndarray}:
        batch = [
            each if isinstance(each, np.ndarray) else as_array(each, i, _field(at)) for i, each in enumerate(batch)
        ]
    return _stack(batch, at)


def _as_foreign(sample: Sample, first: Sample, position: int, at: str) -> Array:
    """An array of another library; like torch, those stack with their like alone."""
    if isinstance(sample, (np.ndarray, np.generic)) or not hasattr(sample, "__array__"):
        raise CollateTypeError(
            f"default_collate: entry 0 is {type(first).__name__}, entry {position} is {type(sample).__name__}"
            f"{_field(at)}"
        )
    return np.asarray(sample)


def _stack(batch: Sequence[Array], at: str) -> Array:
    _refuse_text(batch[0], at)
    shape, dtype = batch[0].shape, batch[0].dtype
    if any(array.dtype != dtype for array in batch):
        dtype = common_dtype([array.dtype for array in batch], _field(at))
        batch = [as_dtype(array, dtype) for array in batch]
    for i, array in enumerate(batch):
        if array.shape != shape:
            raise CollateError(
                f"stack expects each array to be equal size, but got {shape} at entry 0 and {array.shape} "
                f"at entry {i}{_field(at)}; crop, resize or pad the samples, or give the loader a collate_fn"
            )
    out = _allocate((len(batch), *shape), dtype)
    stack_into(batch, out)
    return out


def _refuse_text(first: Array, at: str) -> None:
    if first.dtype.kind in "OSUV":
        raise TypeError(
            f"default_collate: batch must contain arrays of numbers; found dtype {first.dtype}{_field(at)}; "
            "give the loader a collate_fn for other types"
        )


def _field(at: str) -> str:
    return f" in sample{at}" if at else ""


def _integers(batch: Sequence[Sample], at: str) -> Array:
    """Ints and bools.

    One pass, their sum, tells whether all are: any other number, NumPy's too, makes it one of its own type.
    """
    if type(batch[0]) is bool and operator.countOf(map(type, batch), bool) == len(batch):
        return np.fromiter(batch, np.bool_, len(batch))
    try:
        if type(sum(batch)) is int:
            return np.fromiter(batch, np.int64, len(batch))
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass  # said better in the general way
    return stack_scalars(batch, _field(at))


def _floats(batch: Sequence[Sample], at: str) -> Array:
    """What begins with a float is float64; NumPy finds another dtype where there is anything but numbers."""
    try:
        array = np.array(batch)
    except (TypeError, ValueError, OverflowError):
        array = None  # nested sequences
    if array is not None and array.dtype == np.float64 and array.ndim == 1:
        return array
    return as_doubles(batch, _field(at))


def _scalars(batch: Sequence[Sample], at: str) -> Array:
    if len(set(map(type, batch))) > 1:
        return stack_scalars(batch, _field(at))
    return _stack(batch, at)


def _strings(batch: Sequence[Sample], at: str) -> list[Batch]:  # noqa: ARG001  # the signature of all leaves
    return list(batch)


def _same(batch: Sequence[Sample], at: str) -> Sequence[Sample]:  # noqa: ARG001  # the signature of all leaves
    return batch


_TEXTS: Final = (str, bytes)

_LEAVES: Final[_Leaves] = (
    (np.ndarray, _arrays),
    (_TEXTS, _strings),  # before NumPy's scalars: numpy.str_ and numpy.bytes_ are both
    (np.generic, _scalars),
    (int, _integers),
    (float, _floats),
)
"""Types of leaves, and what stacks them."""

_TORCH_LEAVES: Final = tuple((kinds, _same if kinds is _TEXTS else collate) for kinds, collate in _LEAVES)
"""torch leaves a column of strings the tuple that it is among tuples."""
