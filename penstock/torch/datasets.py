"""torch's own datasets, with the addition that they fill batches if the datasets inside them do.

::

    Subset ─┐                                     ┌─ spec(), fill()    the inner dataset's, translated
            ├─ is a torch.utils.data.Subset with ─┤
            │  the same semantics and errors      └─ fetch_samples()   the calls of torch's __getitems__, or else of its
    ConcatDataset, StackDataset, TensorDataset likewise                __getitem__, each sample with its key

A dataset fills by an equivalent dataset of penstock. Each ``spec()``, with which an epoch begins, makes a new one, so
that ``indices`` and ``datasets`` may change between epochs. :func:`native` adds this to objects of torch's classes. No
method of a user's dataset is called that torch does not call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils import data

from penstock import datasets
from penstock.datasets.base import Filler, Wrapper, fetch, iter_samples, prefetch, spec_of
from penstock.datasets.concat import iter_concatenated, prefetch_concatenated
from penstock.datasets.fingerprints import get_fingerprint
from penstock.datasets.store.batch_assembly import BatchAssembly, batch_assembly
from penstock.datasets.store.ragged_fields import ragged_forms
from penstock.errors import ArgumentError
from penstock.ragged import Ragged
from penstock.sample import Array, DatasetLike, Index, Record, Sample, SampleKeys, Tree, Watch, tree_map
from penstock.torch.collate import as_tensors
from penstock.wording import ShortRepr

__all__ = ["ConcatDataset", "StackDataset", "StoreDataset", "Subset", "TensorDataset", "native", "random_split"]

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
T_stack = TypeVar("T_stack", tuple[Any, ...], dict[str, Any])


class _FillerMixin(ShortRepr):
    """:class:`~penstock.datasets.base.Filler` by another dataset; a subclass defines ``_make_filler``."""

    __slots__ = (
        "_filler",
    )  # not in __dict__, which belongs to the user and may be shared with an object of torch's class

    def _make_filler(self) -> Filler | None:
        """Return an equivalent dataset of penstock; None if there is none."""
        raise NotImplementedError(f"{type(self).__name__} must define _make_filler")

    def spec(self) -> Tree | None:
        """Current shapes and dtypes of a sample; None if rows cannot be filled."""
        filler = self._filler = self._make_filler()
        return None if filler is None else filler.spec()

    def fill(
        self, indices: NDArray[np.int64], out: Tree, keys: SampleKeys, rows: NDArray[np.int64] | None = None
    ) -> None:
        """Let the datasets inside fill; see :class:`~penstock.datasets.base.Filler`."""
        filler = getattr(self, "_filler", None)
        if filler is None:  # in another process, where spec() was not called
            filler = self._filler = self._make_filler()
        assert filler is not None, "called only if there is a spec"
        filler.fill(indices, out, keys, rows)

    def ragged_forms(self) -> Tree | None:
        """Return the forms of fields whose length varies; None if there are none."""
        filler = self._make_filler()
        return None if filler is None else ragged_forms(filler)

    def batch_assembly(self) -> BatchAssembly | None:
        """Return how batches get their form; None if they have the structure of samples."""
        filler = self._make_filler()
        return None if filler is None else batch_assembly(filler)

    def fingerprint(self) -> str | None:
        """Return a fingerprint of the datasets inside; None if they have none."""
        return get_fingerprint(self._make_filler())

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__

    def __add__(self, other: DatasetLike) -> ConcatDataset[Sample]:
        both: list[DatasetLike] = [self, other]
        return ConcatDataset(both)


class Subset(_FillerMixin, Wrapper, data.Subset[T_co]):
    """``torch.utils.data.Subset``, which fills if ``dataset`` fills.

    Parameters
    ----------
    dataset : dataset
        Any map-style dataset.
    indices : sequence of int
        Positions in the dataset; not copied. To fill, a list, tuple, range, array or tensor of ints.

    Notes
    -----
    A subclass that overrides ``__getitem__`` and ``__getitems__`` does not fill. The array of positions is made at the
    start of each epoch: about 40 ms for a list of a million.
    """

    def _make_filler(self) -> Filler | None:
        positions = _as_positions(self.indices)
        return None if positions is None else datasets.Subset(native(self.dataset), positions)

    def spec(self) -> Tree | None:
        """Return the spec of the inner dataset; if it has none, positions are not read."""
        return None if spec_of(native(self.dataset)) is None else super().spec()

    def ragged_forms(self) -> Tree | None:
        """Return the forms of the inner dataset's ragged fields."""
        return ragged_forms(native(self.dataset))

    def batch_assembly(self) -> BatchAssembly | None:
        """Return the batch assembly of the inner dataset."""
        return batch_assembly(native(self.dataset))

    def wrapped_datasets(self) -> list[DatasetLike]:
        """Return the dataset of which this is a subset."""
        return [native(self.dataset)]

    def fetch_samples(self, indices: Sequence[Index], keys: SampleKeys, watch: Watch | None) -> Sample:
        """Fetch samples by the calls of torch's ``__getitems__``."""
        inner = native(self.dataset)
        if _has_getitems(inner):
            return fetch(inner, [self.indices[index] for index in indices], keys, watch, as_given=True)
        return list(iter_samples(inner, (self.indices[index] for index in indices), keys, watch))

    def iter_samples(self, indices: Sequence[Index], keys: SampleKeys, watch: Watch | None = None) -> Iterator[Sample]:
        """Yield samples by the calls of torch's ``__getitem__``."""
        return iter_samples(native(self.dataset), [self.indices[index] for index in indices], keys, watch)

    def prefetch(self, indices: Sequence[Index]) -> bool:
        """Have the inner dataset look ahead to its own indices."""
        return prefetch(native(self.dataset), [self.indices[index] for index in indices])


class ConcatDataset(_FillerMixin, Wrapper, data.ConcatDataset[T_co]):
    """``torch.utils.data.ConcatDataset``, which fills if all of ``datasets`` fill with one spec.

    Parameters
    ----------
    datasets : iterable of dataset
        At least one, and no streams.

    Raises
    ------
    AssertionError
        As torch's does, for none and for streams.
    """

    def _make_filler(self) -> Filler | None:
        return _make_object(
            datasets.ConcatDataset, datasets=self.wrapped_datasets(), cumulative_sizes=self.cumulative_sizes
        )

    def wrapped_datasets(self) -> list[DatasetLike]:
        """Return the datasets, in order."""
        return [native(dataset) for dataset in self.datasets]

    def fetch_samples(self, indices: Sequence[Index], keys: SampleKeys, watch: Watch | None) -> list[Sample]:
        """Fetch samples by the calls of torch's ``__getitem__``; there is no ``__getitems__``."""
        return list(self.iter_samples(indices, keys, watch))

    def iter_samples(self, indices: Sequence[Index], keys: SampleKeys, watch: Watch | None = None) -> Iterator[Sample]:
        """Yield samples by the calls of torch's ``__getitem__``."""
        return iter_concatenated(self, lambda i: native(self.datasets[i]), self.cumulative_sizes, indices, keys, watch)

    def prefetch(self, indices: Sequence[Index]) -> bool:
        """Have the inner datasets look ahead, each to its own indices."""
        return prefetch_concatenated(self.wrapped_datasets(), self.cumulative_sizes, indices)


class StackDataset(_FillerMixin, Wrapper, data.StackDataset[T_stack]):
    """``torch.utils.data.StackDataset``, which fills if all of its datasets fill.

    Parameters
    ----------
    *args : dataset
        Samples are tuples.
    **kwargs : dataset
        Samples are dicts. Give either ``args`` or ``kwargs``.

    Raises
    ------
    ValueError
        As torch's does: for none, both kinds, and different lengths.
    """

    def _make_filler(self) -> Filler | None:
        return _make_object(datasets.StackDataset, datasets=self._stack(self.wrapped_datasets()))

    def _stack(self, values: Iterable[Sample]) -> Sample:
        return dict(zip(self.datasets, values, strict=True)) if isinstance(self.datasets, dict) else tuple(values)

    def wrapped_datasets(self) -> list[DatasetLike]:
        """Return the datasets, in order."""
        given = self.datasets.values() if isinstance(self.datasets, dict) else self.datasets
        return [native(dataset) for dataset in given]

    def fetch_samples(self, indices: Sequence[Index], keys: SampleKeys, watch: Watch | None) -> list[Sample]:
        """Fetch samples by the calls of torch's ``__getitems__``: dataset after dataset."""
        columns = [self._fetch_column(inner, indices, keys, watch) for inner in self.wrapped_datasets()]
        return [self._stack(values) for values in zip(*columns, strict=True)]

    @staticmethod
    def _fetch_column(inner: DatasetLike, indices: Sequence[Index], keys: SampleKeys, watch: Watch | None) -> Sample:
        if not _has_getitems(inner):
            return list(iter_samples(inner, indices, keys, watch))
        samples = fetch(inner, indices, keys, watch, as_given=True)
        if len(samples) != len(indices):
            raise ArgumentError(f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(samples)}")
        return samples

    def iter_samples(self, indices: Sequence[Index], keys: SampleKeys, watch: Watch | None = None) -> Iterator[Sample]:
        """Yield samples by the calls of torch's ``__getitem__``: sample after sample, each from all datasets."""
        columns = [iter_samples(inner, indices, keys, watch) for inner in self.wrapped_datasets()]
        return map(self._stack, zip(*columns, strict=True))

    def prefetch(self, indices: Sequence[Index]) -> bool:
        """Have all inner datasets look ahead to the indices."""
        return sum(prefetch(inner, indices) for inner in self.wrapped_datasets()) > 0


class TensorDataset(_FillerMixin, data.TensorDataset):
    """``torch.utils.data.TensorDataset``, which fills.

    Parameters
    ----------
    *tensors : torch.Tensor
        Of equal length; not copied. Batches are copies of rows, as collated samples are.

    Notes
    -----
    Tensors on a device, with ``requires_grad``, or of a dtype that NumPy does not have (bfloat16) are not filled.

    Raises
    ------
    AssertionError
        As torch's does, for different lengths.
    """

    def _make_filler(self) -> Filler | None:
        arrays = [_as_array(tensor) for tensor in self.tensors]
        if not arrays or any(array is None for array in arrays):
            return None
        return datasets.ArrayDataset(*arrays)


def random_split(
    dataset: data.Dataset[T],
    lengths: Sequence[int | float],
    generator: torch.Generator | None = torch.default_generator,
) -> list[Subset[T]]:
    """``torch.utils.data.random_split``, whose parts fill if ``dataset`` fills.

    Parameters
    ----------
    dataset : dataset
        With a length.
    lengths : sequence of int or float
        Lengths with the sum of the dataset's length, or fractions with the sum one.
    generator : torch.Generator, optional
        The generator of the permutation, which is torch's.

    Returns
    -------
    list of Subset
        With torch's indices for the same generator.

    Raises
    ------
    ValueError
        As torch's does, if the lengths have another sum.
    """
    return [native(part) for part in data.random_split(dataset, lengths, generator)]


_OURS: Final[dict[type, type[_FillerMixin]]] = {
    data.Subset: Subset,
    data.ConcatDataset: ConcatDataset,
    data.StackDataset: StackDataset,
    data.TensorDataset: TensorDataset,
}


class StoreDataset(datasets.StoreDataset, data.Dataset[Sample]):
    """:class:`penstock.StoreDataset` whose samples hold tensors, for a ``collate_fn`` that calls ``torch.stack``.

    A tensor is a view of its array, or a copy if the array may not be written. Strings, numbers and bytes stay as they
    are, and the transform gets arrays. Batches that are collated by default are the same as with the other class.
    """

    def _sample(self, record: Record) -> Sample:
        return tree_map(_as_tensor, super()._sample(record))


def _as_tensor(value: Sample) -> Sample:
    if isinstance(value, np.ndarray) and value.dtype.kind not in "OSU":
        return as_tensors(value if value.flags.writeable else value.copy())
    return as_tensors(value) if isinstance(value, Ragged) else value


def native(dataset: DatasetLike) -> DatasetLike:
    """``dataset``, or an equivalent object of this module if it is one of torch's own.

    Parameters
    ----------
    dataset : dataset
        Any object. Only exactly ``torch.utils.data.Subset``, ``ConcatDataset``, ``StackDataset`` and ``TensorDataset``
        are replaced, not their subclasses, which may override methods.

    Returns
    -------
    dataset
        With the same samples and attributes. It fills if the datasets inside do, also through nested wrappers, and
        else passes on the keys of samples. Attributes are shared: one that is set later, is set for both. The call
        costs nothing; repeat it each epoch.
    """
    ours = _OURS.get(type(dataset))
    if ours is None or "__getitems__" in vars(dataset):
        return dataset
    found: DatasetLike = ours.__new__(ours)
    found.__dict__ = vars(dataset)
    return found


def _has_getitems(dataset: object) -> bool:
    """Return whether torch's wrappers request several samples of ``dataset`` by one call."""
    return callable(getattr(dataset, "__getitems__", None))


def _make_object(kind: type[T], **attributes: object) -> T:
    """A ``kind`` with these attributes, without its constructor, which would call ``len`` once more than torch."""
    made = kind.__new__(kind)
    vars(made).update(attributes)
    return made


def _as_positions(indices: object) -> NDArray[np.int64] | None:
    """``indices`` as an array, if ``indices[i]`` is an int for each ``i`` in ``range(len(indices))``; else None.

    Only for types for which this is known: a pandas Series is indexed by labels, and a lazy sequence may be slow.
    """
    kind = type(indices)
    if kind is torch.Tensor:
        indices = _as_array(indices)
    elif kind not in {list, tuple, range, np.ndarray}:
        return None
    try:
        found = np.asarray(indices)
    except ValueError:  # ragged
        return None
    if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
        return None
    return found.astype(np.int64, copy=False)


def _as_array(tensor: object) -> Array | None:
    """Return a tensor as an array over its memory; None if it needs gradients, or NumPy cannot represent it."""
    if type(tensor) is not torch.Tensor or tensor.layout != torch.strided or tensor.requires_grad:
        return None
    try:
        found: Array = tensor.numpy()
    except (TypeError, RuntimeError):  # on a device; a dtype that is torch's alone; lazily conjugated or negated
        return None
    return found
