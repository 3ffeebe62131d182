"""torch's own datasets, which also fill: a batch is written where it ends whenever what they wrap can do so.

::

    Subset ─┐                                     ┌─ spec(), fill()    the inner dataset's, translated
            ├─ is a torch.utils.data.Subset, and ─┤
            │  has all its semantics and errors   └─ load_samples()    samples under their own keys
    ConcatDataset, StackDataset, TensorDataset likewise

Filling is done by a twin, penstock's dataset of the same meaning, made anew at each ``spec()`` (each epoch begins with
one), so that ``indices`` and ``datasets`` may be changed between epochs as ever. :func:`native` lets torch's own
objects have the same. Nothing here knows a loader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils import data

from penstock import datasets
from penstock.datasets.base import LoadsSamples, fetch, fingerprint_of
from penstock.sample import SampleKeys, Tree

__all__ = ["ConcatDataset", "StackDataset", "Subset", "TensorDataset", "native", "random_split"]

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
T_stack = TypeVar("T_stack", tuple[Any, ...], dict[str, Any])


class _Filling:
    """:class:`~penstock.datasets.base.Filler` by a twin; a subclass defines ``_make_twin``."""

    _twin: Any = None

    def _make_twin(self) -> Any:
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
        if self._twin is None:  # in another process, where nobody asked for the spec
            self._twin = self._make_twin()
        self._twin.fill(indices, out, keys, rows)

    def fingerprint(self) -> str | None:
        """What tells this dataset from others of its length; None where nothing inside does."""
        return fingerprint_of(self._make_twin())

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_twin"}

    def __add__(self, other: Any) -> ConcatDataset[Any]:
        both: list[Any] = [self, other]
        return ConcatDataset(both)


class _Wrapping(_Filling, LoadsSamples):
    """One that also passes keys on to what it wraps, where batches are not filled."""

    def load_samples(self, indices: Sequence[Any], keys: SampleKeys) -> list[Any]:
        """Samples of the inner datasets, under the same keys."""
        samples: list[Any] = self._make_twin().load_samples(indices, keys)
        return samples


class Subset(_Wrapping, data.Subset[T_co]):
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

    def _make_twin(self) -> Any:
        positions = _positions(self.indices)
        return None if positions is None else datasets.Subset(native(self.dataset), positions)

    def load_samples(self, indices: Sequence[Any], keys: SampleKeys) -> list[Any]:
        """Samples of the inner dataset, under the same keys."""
        return fetch(native(self.dataset), [self.indices[i] for i in indices], keys)


class ConcatDataset(_Wrapping, data.ConcatDataset[T_co]):
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

    def _make_twin(self) -> Any:
        return datasets.ConcatDataset(map(native, self.datasets))


class StackDataset(_Wrapping, data.StackDataset[T_stack]):
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

    def _make_twin(self) -> Any:
        if isinstance(self.datasets, dict):
            return datasets.StackDataset(**{name: native(child) for name, child in self.datasets.items()})
        return datasets.StackDataset(*map(native, self.datasets))


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

    def _make_twin(self) -> Any:
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
        With the same samples and attributes (shared, not copied), which fills if what is inside does, however deep
        torch's wrappers are nested, and else passes each sample's key on. It costs nothing: ask anew each epoch.
    """
    ours = _OURS.get(type(dataset))
    if ours is None or "__getitems__" in vars(dataset):
        return dataset
    found = ours.__new__(ours)
    vars(found).update(vars(dataset))
    return found


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


def _as_array(tensor: Any) -> NDArray[Any] | None:
    """The memory of a tensor as an array; None where a sample is more than that, or NumPy has no such dtype."""
    if type(tensor) is not torch.Tensor or tensor.layout != torch.strided or tensor.requires_grad:
        return None
    try:
        found: NDArray[Any] = tensor.numpy()
    except (TypeError, RuntimeError):  # on a device; a dtype that is torch's alone; lazily conjugated or negated
        return None
    return found
