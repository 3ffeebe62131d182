"""torch's own datasets, which also fill: a batch is written where it ends whenever what they wrap can do so.

::

    Subset ─┐                                     ┌─ spec(), fill()    the inner dataset's, translated
            ├─ is a torch.utils.data.Subset, and ─┤
            │  has all its semantics and errors   └─ fetch_samples()   the calls of torch's __getitems__, or else of its
    ConcatDataset, StackDataset, TensorDataset likewise                __getitem__, each sample under its own key

Filling is done by a twin, penstock's dataset of the same meaning, made anew at each ``spec()`` (each epoch begins with
one), so that ``indices`` and ``datasets`` may be changed between epochs as ever. :func:`native` lets torch's own
objects have the same. No method of a user's dataset is called that torch would not call. Nothing here knows a loader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils import data

from penstock import datasets
from penstock.datasets.base import Filler, Wrapper, fetch, fingerprint_of, iter_samples, prefetch, spec_of
from penstock.datasets.concat import iter_concatenated, prefetch_concatenated
from penstock.datasets.ragged_fields import ragged_forms
from penstock.errors import ArgumentError
from penstock.sample import Array, Index, Sample, SampleKeys, Tree, Watch

__all__ = ["ConcatDataset", "StackDataset", "Subset", "TensorDataset", "native", "random_split"]

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
T_stack = TypeVar("T_stack", tuple[Any, ...], dict[str, Any])


class _Filling:
    """:class:`~penstock.datasets.base.Filler` by a twin; a subclass defines ``_make_twin``."""

    __slots__ = (
        "_twin",
    )  # apart from the attributes, which are the user's, and may be shared with an object of torch's

    def _make_twin(self) -> Filler | None:
        """A dataset of penstock's that fills as this one would; None if there is none."""
        raise NotImplementedError(f"{type(self).__name__} must define _make_twin")

    def spec(self) -> Tree | None:
        """Shapes and dtypes of a sample, as things are now; None where rows cannot be filled."""
        twin = self._twin = self._make_twin()
        return None if twin is None else twin.spec()

    def fill(
        self, indices: NDArray[np.int64], out: Tree, keys: SampleKeys, rows: NDArray[np.int64] | None = None
    ) -> None:
        """Let what is inside fill; see :class:`~penstock.datasets.base.Filler`."""
        twin = getattr(self, "_twin", None)
        if twin is None:  # in another process, where nobody asked for the spec
            twin = self._twin = self._make_twin()
        assert twin is not None, "spec() said that there is something to fill"
        twin.fill(indices, out, keys, rows)

    def ragged_forms(self) -> Tree | None:
        """What batches hold of fields whose length varies; None where no field's does."""
        twin = self._make_twin()
        return None if twin is None else ragged_forms(twin)

    def fingerprint(self) -> str | None:
        """What tells this dataset from others of its length; None where nothing inside does."""
        return fingerprint_of(self._make_twin())

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__

    def __add__(self, other: Any) -> ConcatDataset[Any]:
        both: list[Any] = [self, other]
        return ConcatDataset(both)


class Subset(_Filling, Wrapper, data.Subset[T_co]):
    """``torch.utils.data.Subset``, which fills if ``dataset`` does.

    Parameters
    ----------
    dataset : dataset
        Any map-style dataset.
    indices : sequence of int
        Positions in it; kept, not copied. A list, tuple, range, array or tensor of ints lets it fill.

    Notes
    -----
    A subclass that overrides ``__getitem__`` and ``__getitems__`` is asked for samples and does not fill. The array of
    positions is made at the start of each epoch: about 40 ms for a list of a million.
    """

    def _make_twin(self) -> Filler | None:
        positions = _positions(self.indices)
        return None if positions is None else datasets.Subset(native(self.dataset), positions)

    def spec(self) -> Tree | None:
        """The inner dataset's; where it has none, positions are not looked at."""
        return None if spec_of(native(self.dataset)) is None else super().spec()

    def ragged_forms(self) -> Tree | None:
        """The inner dataset's."""
        return ragged_forms(native(self.dataset))

    def wrapped_datasets(self) -> list[Any]:
        """The dataset that this is a part of."""
        return [native(self.dataset)]

    def fetch_samples(self, indices: Sequence[Index], keys: SampleKeys, watch: Watch | None) -> Sample:
        """As torch's ``__getitems__`` asks."""
        inner = native(self.dataset)
        if _has_getitems(inner):
            return fetch(inner, [self.indices[index] for index in indices], keys, watch, as_given=True)
        return list(iter_samples(inner, (self.indices[index] for index in indices), keys, watch))

    def iter_samples(self, indices: Sequence[Index], keys: SampleKeys, watch: Watch | None = None) -> Iterator[Sample]:
        """As torch's ``__getitem__`` asks."""
        return iter_samples(native(self.dataset), [self.indices[index] for index in indices], keys, watch)

    def prefetch(self, indices: Sequence[Any]) -> None:
        """See :class:`~penstock.datasets.base.Wrapper`."""
        prefetch(native(self.dataset), [self.indices[index] for index in indices])


class ConcatDataset(_Filling, Wrapper, data.ConcatDataset[T_co]):
    """``torch.utils.data.ConcatDataset``, which fills if all of ``datasets`` do, with one spec.

    Parameters
    ----------
    datasets : iterable of dataset
        At least one, none of them a stream.

    Raises
    ------
    AssertionError
        As torch's does, for none and for streams.
    """

    def _make_twin(self) -> Filler | None:
        return _made(datasets.ConcatDataset, datasets=self.wrapped_datasets(), cumulative_sizes=self.cumulative_sizes)

    def wrapped_datasets(self) -> list[Any]:
        """The datasets, in order."""
        return [native(dataset) for dataset in self.datasets]

    def fetch_samples(self, indices: Sequence[Index], keys: SampleKeys, watch: Watch | None) -> list[Sample]:
        """As torch's ``__getitem__`` asks: there is no ``__getitems__``."""
        return list(self.iter_samples(indices, keys, watch))

    def iter_samples(self, indices: Sequence[Index], keys: SampleKeys, watch: Watch | None = None) -> Iterator[Sample]:
        """As torch's ``__getitem__`` asks."""
        return iter_concatenated(self, lambda i: native(self.datasets[i]), self.cumulative_sizes, indices, keys, watch)

    def prefetch(self, indices: Sequence[Any]) -> None:
        """See :class:`~penstock.datasets.base.Wrapper`."""
        prefetch_concatenated(self.wrapped_datasets(), self.cumulative_sizes, indices)


class StackDataset(_Filling, Wrapper, data.StackDataset[T_stack]):
    """``torch.utils.data.StackDataset``, which fills if all of its datasets do.

    Parameters
    ----------
    *args : dataset
        Samples are tuples.
    **kwargs : dataset
        Samples are dicts. One of the two kinds, not both.

    Raises
    ------
    ValueError
        As torch's does: for none, both kinds, and different lengths.
    """

    def _make_twin(self) -> Filler | None:
        return _made(datasets.StackDataset, datasets=self._stacked(self.wrapped_datasets()))

    def _stacked(self, values: Iterable[Sample]) -> Sample:
        return dict(zip(self.datasets, values, strict=True)) if isinstance(self.datasets, dict) else tuple(values)

    def wrapped_datasets(self) -> list[Any]:
        """The datasets side by side."""
        given = self.datasets.values() if isinstance(self.datasets, dict) else self.datasets
        return [native(dataset) for dataset in given]

    def fetch_samples(self, indices: Sequence[Index], keys: SampleKeys, watch: Watch | None) -> list[Sample]:
        """As torch's ``__getitems__`` asks: one dataset after the other."""
        columns = [self._fetch_column(inner, indices, keys, watch) for inner in self.wrapped_datasets()]
        return [self._stacked(values) for values in zip(*columns, strict=True)]

    @staticmethod
    def _fetch_column(inner: Any, indices: Sequence[Index], keys: SampleKeys, watch: Watch | None) -> Sample:
        if not _has_getitems(inner):
            return list(iter_samples(inner, indices, keys, watch))
        samples = fetch(inner, indices, keys, watch, as_given=True)
        if len(samples) != len(indices):
            raise ArgumentError(f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(samples)}")
        return samples

    def iter_samples(self, indices: Sequence[Index], keys: SampleKeys, watch: Watch | None = None) -> Iterator[Sample]:
        """As torch's ``__getitem__`` asks: one sample after the other, each of all datasets."""
        columns = [iter_samples(inner, indices, keys, watch) for inner in self.wrapped_datasets()]
        return map(self._stacked, zip(*columns, strict=True))

    def prefetch(self, indices: Sequence[Any]) -> None:
        """See :class:`~penstock.datasets.base.Wrapper`."""
        for inner in self.wrapped_datasets():
            prefetch(inner, indices)


class TensorDataset(_Filling, data.TensorDataset):
    """``torch.utils.data.TensorDataset``, which fills.

    Parameters
    ----------
    *tensors : torch.Tensor
        Of one length, kept. Batches are rows copied out of them, as collated samples are.

    Notes
    -----
    On a device, with ``requires_grad``, or of a dtype that NumPy does not have (bfloat16), tensors are asked for
    samples, as ever.

    Raises
    ------
    AssertionError
        As torch's does, for different lengths.
    """

    def _make_twin(self) -> Filler | None:
        arrays = [_as_array(tensor) for tensor in self.tensors]
        if not arrays or any(array is None for array in arrays):
            return None
        return datasets.ArrayDataset(*arrays)


def random_split(
    dataset: data.Dataset[T],
    lengths: Sequence[int | float],
    generator: torch.Generator | None = torch.default_generator,
) -> list[Subset[T]]:
    """``torch.utils.data.random_split``, whose parts fill if ``dataset`` does.

    Parameters
    ----------
    dataset : dataset
        With a length.
    lengths : sequence of int or float
        Lengths that add up to the dataset's, or fractions that add up to one.
    generator : torch.Generator, optional
        What the permutation is drawn from, as torch draws it.

    Returns
    -------
    list of Subset
        With torch's indices for the same generator.

    Raises
    ------
    ValueError
        As torch's does, if the lengths do not add up.
    """
    return [native(part) for part in data.random_split(dataset, lengths, generator)]


_OURS: Final[dict[type, type[_Filling]]] = {
    data.Subset: Subset,
    data.ConcatDataset: ConcatDataset,
    data.StackDataset: StackDataset,
    data.TensorDataset: TensorDataset,
}


def native(dataset: Any) -> Any:
    """``dataset``, or an object of this module in its place if it is one of torch's own.

    Parameters
    ----------
    dataset : dataset
        Anything. Only the very types ``torch.utils.data.Subset``, ``ConcatDataset``, ``StackDataset`` and
        ``TensorDataset`` are exchanged: what a subclass of them overrides is its own.

    Returns
    -------
    dataset
        With the same samples and attributes, which fills if what is inside does, however deep torch's wrappers are
        nested, and else passes each sample's key on. The attributes are shared: one that is set later, is set for both.
        It costs nothing: ask anew each epoch.
    """
    ours = _OURS.get(type(dataset))
    if ours is None or "__getitems__" in vars(dataset):
        return dataset
    found: Any = ours.__new__(ours)
    found.__dict__ = vars(dataset)
    return found


def _has_getitems(dataset: object) -> bool:
    """Whether torch's wrappers would ask ``dataset`` for several samples at once."""
    return callable(getattr(dataset, "__getitems__", None))


def _made(kind: type[T], **attributes: object) -> T:
    """A ``kind`` with these attributes, past its constructor: it asks for lengths, which torch asks for once."""
    made = kind.__new__(kind)
    vars(made).update(attributes)
    return made


def _positions(indices: Any) -> NDArray[np.int64] | None:
    """``indices`` as an array, if ``indices[i]`` is an int for each ``i`` in ``range(len(indices))``.

    Only for types of which that is known: a pandas Series looks its labels up, and a lazy sequence may be costly.
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
    """The memory of a tensor as an array; None where a sample is more than that, or NumPy has no such dtype."""
    if type(tensor) is not torch.Tensor or tensor.layout != torch.strided or tensor.requires_grad:
        return None
    try:
        found: Array = tensor.numpy()
    except (TypeError, RuntimeError):  # on a device; a dtype that is torch's alone; lazily conjugated or negated
        return None
    return found
