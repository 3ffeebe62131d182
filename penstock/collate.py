"""Collation of samples to a batch of NumPy arrays, by torch's rules: the general path.

The first sample determines the structure. Arrays are stacked; bools, ints and floats become bool, int64 and float64
arrays; NumPy scalars keep their dtype; strings and bytes stay lists; mappings and named tuples keep their type,
other tuples become lists, as in torch. Numbers of several types become an array of the dtype that torch chooses
(:mod:`penstock.scalars`), or are refused if torch refuses them. Datasets that fill rows give the same batches without
this module.
"""

from __future__ import annotations

import copy
import logging
import operator
from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence, Sequence, Sized
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import DTypeLike

from penstock import _native
from penstock.bfloat16 import is_bfloat16, refuse_stand_in
from penstock.frameworks import FRAMEWORKS, is_imported
from penstock.sample import Array, Batch, Index, Sample, Tree
from penstock.scalars import CollateError, CollateTypeError, as_array, as_doubles, as_dtype, common_dtype, stack_scalars

__all__ = [
    "ArrayBatch",
    "CollateError",
    "FrameworkCollate",
    "allocate",
    "convert_leaves",
    "default_collate",
    "default_convert",
    "rebuild_mapping",
    "rebuild_sequence",
    "set_allocator",
    "stack_into",
]

_logger = logging.getLogger(__name__)

_IMAGES: Final = "crop, resize or pad the samples"
_LISTS: Final = "pad the samples, give a StoreDataset ragged= (or batch_form= for boxes)"

_allocate: Callable[[tuple[int, ...], DTypeLike], Array] = np.empty


def set_allocator(allocate: Callable[[tuple[int, ...], DTypeLike], Array]) -> None:
    """Let collation in this process allocate arrays by ``allocate(shape, dtype)`` instead of ``numpy.empty``."""
    global _allocate  # noqa: PLW0603  # one setting for the process: a worker process has one loader
    _allocate = allocate


def allocate(shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Return a new array with arbitrary content, in the memory of the batches of this process."""
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
    """The result of a loader without batches for ``sample``: the same leaves, with tuples as lists."""
    return convert_leaves(sample, _deliverable)


def convert_leaves(sample: Sample, convert: Callable[[Sample], Sample]) -> Sample:
    """``sample`` with ``convert(leaf)`` for each leaf, and tuples as lists; other containers keep their types."""
    if isinstance(sample, np.ndarray):  # first, because the classes of `collections.abc` take longer
        return convert(sample)
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return type(sample)(*(convert_leaves(value, convert) for value in sample))
    if isinstance(sample, tuple):
        return [convert_leaves(value, convert) for value in sample]
    if isinstance(sample, Mapping):
        return rebuild_mapping(sample, {name: convert_leaves(value, convert) for name, value in sample.items()})
    if isinstance(sample, Sequence) and not isinstance(sample, (str, bytes)):
        return rebuild_sequence(sample, [convert_leaves(value, convert) for value in sample])
    return convert(sample)


def _deliverable(leaf: Sample) -> Sample:
    if isinstance(leaf, np.ndarray):
        refuse_stand_in(leaf.dtype)
    return leaf


@dataclass(slots=True)
class ArrayBatch:
    """A batch collated by a framework's rules without the framework: its arrays are still to be converted."""

    batch: Batch


class FrameworkCollate:
    """A framework's own collation, which does not import the framework if it can do without; can be pickled.

    If the process has not imported the framework, the rules of this module (which are torch's) give an
    :class:`ArrayBatch`. What they refuse is given to the framework, so that its own error is raised.

    ``framework``: a key of :data:`~penstock.frameworks.FRAMEWORKS`. ``batched``: whether samples are stacked (as by
    torch's ``default_collate``) or one sample is converted (``default_convert``).
    """

    def __init__(self, framework: str, *, batched: bool = True) -> None:
        self.framework, self.batched = framework, batched

    def __call__(self, samples: Sample) -> ArrayBatch | Batch:
        """The batch of ``samples``, a list; without batches, of one sample."""
        if not is_imported(self.framework):
            if not self.batched:
                return ArrayBatch(samples)
            try:
                return ArrayBatch(_collate(samples, "", _TORCH_LEAVES))
            except Exception:  # noqa: BLE001  # the framework raises its own error
                _logger.debug("samples are collated by %s", self.framework)
        framework = FRAMEWORKS[self.framework]
        return framework.collate(samples) if self.batched else framework.convert(samples)


def rebuild_mapping(like: Mapping[Index, Tree], values: dict[Index, Tree]) -> Tree:
    """Return ``values`` in a mapping of the type of ``like``; a dict where that type cannot be built."""
    try:
        if isinstance(like, MutableMapping):
            clone = copy.copy(like)
            clone.update(values)
            return clone
        return type(like)(values)  # type: ignore[call-arg]  # a mapping's constructor is not part of its protocol
    except TypeError:
        return values


def rebuild_sequence(like: Sequence[Tree], values: list[Tree]) -> Tree:
    """Return ``values`` in a sequence of the type of ``like``; a list where that type cannot be built."""
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
        values = {name: _collate(_get_items(batch, name, at), f"{at}[{name!r}]", leaves) for name in first}
        return rebuild_mapping(first, values)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*_collate_named_columns(batch, at, leaves))
    if isinstance(first, tuple):
        return _collate_columns(batch, at, leaves)
    if isinstance(first, Sequence):
        return rebuild_sequence(first, _collate_columns(batch, at, leaves))
    if hasattr(first, "__array__"):
        return _stack([_as_foreign(sample, first, i, at) for i, sample in enumerate(batch)], at)
    raise TypeError(
        f"default_collate: batch must contain arrays, numbers, strings, dicts or lists; found {type(first)}{_field(at)}"
        "; give the loader a collate_fn for other types"
    )


def _get_items(batch: Sequence[Sample], name: Index, at: str) -> list[Batch]:
    try:
        return [sample[name] for sample in batch]
    except (KeyError, IndexError, TypeError) as error:
        error.add_note(f"default_collate: not every sample has what entry 0 has at {name!r}{_field(at)}")
        raise


def _collate_columns(batch: Sequence[Sequence[Sample]], at: str, leaves: _Leaves) -> list[Batch]:
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


def _collate_named_columns(batch: Sequence[Sample], at: str, leaves: _Leaves) -> list[Batch]:
    """Collate named tuples; as in torch, parts that only later samples have are left out."""
    length = len(batch[0])
    for i, sample in enumerate(batch):
        if not isinstance(sample, Iterable) or (isinstance(sample, Sized) and len(sample) < length):
            raise CollateTypeError(
                f"default_collate: entry 0 is a {type(batch[0]).__name__} of {length} parts, entry {i} has fewer"
                f"{_field(at)}"
            )
    columns = zip(*batch, strict=False)
    return [_collate(column, f"{at}[{i}]", leaves) for i, column in zip(range(length), columns, strict=False)]


def _stack_arrays(batch: Sequence[Sample], at: str) -> Array:
    """Stack entries of which the first is an array; others are converted as by ``torch.as_tensor``."""
    _refuse_text(batch[0], at)
    if not set(map(type, batch)) <= {np.ndarray}:
        batch = [
            each if isinstance(each, np.ndarray) else as_array(each, i, _field(at)) for i, each in enumerate(batch)
        ]
    return _stack(batch, at)


def _stack_for_torch(batch: Sequence[Sample], at: str) -> Array:
    """Stack arrays of which torch makes tensors; those of bfloat16 are left to torch's collation."""
    if is_bfloat16(batch[0].dtype):
        raise CollateTypeError(f"default_collate: arrays of bfloat16 are stacked as tensors{_field(at)}")
    return _stack_arrays(batch, at)


def _as_foreign(sample: Sample, first: Sample, position: int, at: str) -> Array:
    """Return an array of another library; as in torch, these are not mixed with other arrays."""
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
                f"at entry {i}{_field(at)}; {_IMAGES if len(shape) == 3 else _LISTS}, or give the loader a collate_fn"
            )
    out = _allocate((len(batch), *shape), dtype)
    stack_into(batch, out)
    return out


def _refuse_text(first: Array, at: str) -> None:
    if is_bfloat16(first.dtype):
        refuse_stand_in(first.dtype)
    elif first.dtype.kind in "OSUV":
        raise TypeError(
            f"default_collate: batch must contain arrays of numbers; found dtype {first.dtype}{_field(at)}; "
            "give the loader a collate_fn for other types"
        )


def _field(at: str) -> str:
    return f" in sample{at}" if at else ""


def _stack_integers(batch: Sequence[Sample], at: str) -> Array:
    """Stack ints and bools.

    Their sum tells in one pass whether all are ints: with any other number, also one of NumPy, it has another type.
    """
    if type(batch[0]) is bool and operator.countOf(map(type, batch), bool) == len(batch):
        return np.fromiter(batch, np.bool_, len(batch))
    try:
        if type(sum(batch)) is int:
            return np.fromiter(batch, np.int64, len(batch))
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass  # the general way below has the better error
    return stack_scalars(batch, _field(at))


def _stack_floats(batch: Sequence[Sample], at: str) -> Array:
    """Stack entries of which the first is a float, as float64; NumPy finds another dtype if some are not numbers."""
    try:
        array = np.array(batch)
    except (TypeError, ValueError, OverflowError):
        array = None  # nested sequences
    if array is not None and array.dtype == np.float64 and array.ndim == 1:
        return array
    return as_doubles(batch, _field(at))


def _stack_numpy_scalars(batch: Sequence[Sample], at: str) -> Array:
    if len(set(map(type, batch))) > 1:
        return stack_scalars(batch, _field(at))
    return _stack(batch, at)


def _list_strings(batch: Sequence[Sample], at: str) -> list[Batch]:  # noqa: ARG001  # the signature of all leaves
    return list(batch)


def _keep_strings(batch: Sequence[Sample], at: str) -> Sequence[Sample]:  # noqa: ARG001  # the signature of all leaves
    return batch


_TEXTS: Final = (str, bytes)

_LEAVES: Final[_Leaves] = (
    (np.ndarray, _stack_arrays),
    (_TEXTS, _list_strings),  # before NumPy's scalars: numpy.str_ and numpy.bytes_ are both
    (np.generic, _stack_numpy_scalars),
    (int, _stack_integers),
    (float, _stack_floats),
)
"""Types of leaves, and the functions that stack them."""

_TORCH_LEAVES: Final[_Leaves] = (
    (np.ndarray, _stack_for_torch),
    (_TEXTS, _keep_strings),
    *_LEAVES[2:],
)
"""As in torch, strings of tuples stay a tuple."""
