"""Class labels for samplers, from an array or from a column of a store; no image is read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.errors import ArgumentError
from penstock.sample import Array, Batch

__all__ = ["HasColumns", "Labels", "Memberships", "as_class_labels", "find_memberships"]


@runtime_checkable
class HasColumns(Protocol):
    """The part of a store that samplers use."""

    def column(self, field: str) -> Array:
        """The values of a small field of all records."""
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


def as_class_labels(labels: Labels, field: str) -> NDArray[np.int64]:
    """One label per sample, shape (n,), from an array of ints or the column ``field`` of a store.

    Raises
    ------
    ArgumentError
        If there are no samples, or a label is not an int.
    """
    found = _array(_given(labels, field))
    if found is None or found.ndim != 1 or found.dtype.kind not in "iu" or not len(found):
        shape = "a ragged sequence" if found is None else f"shape {found.shape}, dtype {found.dtype}"
        raise ArgumentError(f"labels should be one integer per sample, shape (n,) with n > 0, but got {shape}")
    return found.astype(np.int64)


def find_memberships(labels: Labels, field: str) -> Memberships:
    """The classes of each sample.

    Parameters
    ----------
    labels : array_like, sequence of collections, or store
        Ints of shape (n,): one class each. Booleans of shape (n, classes): many. A sequence of collections of ints:
        any number, also none. A store: its column ``field``, of either form.
    field : str
        The store's field.

    Raises
    ------
    ArgumentError
        If there are no samples, or the labels have another form.
    """
    given = _given(labels, field)
    found = _array(given)
    if found is not None and found.ndim == 2 and found.dtype.kind == "b":
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


def _given(labels: Labels, field: str) -> Batch:
    return labels.column(field) if isinstance(labels, HasColumns) else labels


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
