"""Class labels for samplers, from an array or from a column of a store, also of boxes' classes; no image is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.errors import ArgumentError
from penstock.ragged import Ragged
from penstock.sample import Array, Batch, Schema

__all__ = ["HasColumns", "Labels", "Memberships", "class_weights", "find_memberships"]


@runtime_checkable
class HasColumns(Protocol):
    """The part of a store that samplers use."""

    def column(self, field: str) -> Array:
        """The values of a small field of all records."""
        ...


@runtime_checkable
class HasRaggedColumns(HasColumns, Protocol):
    """The part of a store that samplers use where records have several classes, or these have names."""

    @property
    def schema(self) -> Schema:
        """Its fields."""
        ...

    def ragged_column(self, field: str) -> Ragged:
        """The values of a field of small arrays, whose length varies, of all records."""
        ...


Labels = HasColumns | ArrayLike | Sequence[Collection[int]]


@dataclass(frozen=True, slots=True)
class Memberships:
    """Pairs of sample and class; each pair once, sorted by sample and then by class.

    Parameters
    ----------
    length : int
        Number of samples.
    samples, classes : ndarray of int64, shape (pairs,)
        Sample ``samples[i]`` has the label ``values[classes[i]]``.
    values : ndarray of int64
        The labels that occur.
    """

    length: int
    samples: NDArray[np.int64]
    classes: NDArray[np.int64]
    values: NDArray[np.int64]


def find_memberships(labels: Labels, field: str) -> Memberships:
    """The classes of each sample.

    Parameters
    ----------
    labels : array_like, sequence of collections, or store
        Ints of shape (n,): one class each. Booleans of shape (n, classes): many. A sequence of collections of ints:
        any number, also none. A store: its column ``field``, of any of these forms, such as the classes of boxes.
    field : str
        The store's field.

    Raises
    ------
    ArgumentError
        If there are no samples, or the labels have another form.
    """
    given = _given(labels, field)
    found = None if isinstance(given, Ragged) else _array(given)
    if isinstance(given, Ragged):
        samples, flat = np.repeat(np.arange(len(given)), given.counts), _check_integers(given.values)
    elif found is not None and found.ndim == 2 and found.dtype.kind == "b":
        samples, flat = np.nonzero(found)
    elif found is not None and found.ndim == 1 and found.dtype.kind in "iu":
        samples, flat = np.arange(len(found)), found
    else:
        samples, flat = _flattened(given if found is None else found)
    length = len(given)
    if not length:
        raise ArgumentError("labels should be those of at least one sample, but got none")
    values, classes = np.unique(flat, return_inverse=True)
    pairs = np.unique(samples.astype(np.int64) * max(len(values), 1) + classes)
    return Memberships(length, *np.divmod(pairs, max(len(values), 1)), values.astype(np.int64))


def class_weights(
    labels: Labels, weights: Mapping[str | int, float], *, field: str = "label", default: float = 1.0
) -> NDArray[np.float64]:
    """A weight for each sample, by its classes: for :class:`~penstock.samplers.WeightedRandomSampler`.

    Parameters
    ----------
    labels : array_like, sequence of collections, or store
        As for :func:`repeat_factors`; a store also says the names of its classes. No image is read.
    weights : mapping of str or int to float
        The weight of each class, by name or by number.
    field : str
        The store's field.
    default : float
        The weight of other classes, and of samples without a class.

    Returns
    -------
    ndarray of float64, shape (n,)
        The largest weight of the classes of each sample; also where that is below ``default``.

    Raises
    ------
    ArgumentError
        If there is no such class, or ``labels`` have another form.
    """
    found = find_memberships(labels, field)
    names = labels.schema[field].classes if isinstance(labels, HasRaggedColumns) else ()
    numbers = {name: number for number, name in enumerate(names)}
    by_number: dict[int, float] = {}
    for given, weight in weights.items():
        number = numbers.get(given) if isinstance(given, str) else given
        if number is None or (names and not 0 <= number < len(names)):
            known = ", ".join(map(repr, names[:20])) if names else "known by number only"
            raise ArgumentError(f"weights must be those of classes ({known}), got {given!r}")
        by_number[int(number)] = float(weight)
    of_values = np.array([by_number.get(value, default) for value in found.values.tolist()], np.float64)
    made = np.full(found.length, -np.inf)
    np.maximum.at(made, found.samples, of_values[found.classes])
    made[np.isneginf(made)] = default
    return made


def _given(labels: Labels, field: str) -> Batch:
    if not isinstance(labels, HasColumns):
        return labels
    kind = labels.schema[field].array if isinstance(labels, HasRaggedColumns) else None
    if kind is not None and kind.shape is None and isinstance(labels, HasRaggedColumns):
        return labels.ragged_column(field)
    return labels.column(field)


def _check_integers(values: Array) -> NDArray[np.int64]:
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise ArgumentError(f"labels should be integers, but got {values.dtype} of shape {values.shape}")
    return values.astype(np.int64, copy=False)


def _array(given: object) -> Array | None:
    """An array of numbers, or None where there is no rectangular one."""
    try:
        found = np.asarray(given)
    except ValueError:  # rows of unequal length
        return None
    return found if found.dtype.kind in "biuf" and found.ndim else None


def _flattened(rows: Batch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    try:
        lengths = [len(row) for row in rows]
        flat = np.array([label for row in rows for label in row] or np.empty(0, np.int64))
    except TypeError as error:
        raise ArgumentError(
            "labels should be ints of shape (n,), booleans of shape (n, classes), or a collection of ints per sample, "
            f"but got {rows!r:.200}"
        ) from error
    if flat.ndim != 1 or flat.dtype.kind not in "iu":
        raise ArgumentError(f"labels should be integers, but some are {flat.dtype}")
    return np.repeat(np.arange(len(lengths)), lengths), flat
