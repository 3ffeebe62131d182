"""Class labels for samplers, from an array or from a column of a store, also of boxes' classes; no image is read."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.errors import ArgumentError
from penstock.ragged import Ragged
from penstock.sample import Array, Batch, Schema

__all__ = ["HasColumns", "Labels", "Memberships", "Unlabelled", "class_weights", "find_memberships"]


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
        """Return the values of a field of small arrays, whose length varies, of all records."""
        ...


@runtime_checkable
class KnowsMissing(HasColumns, Protocol):
    """The part of a store that samplers use where a record may have no value."""

    def find_missing(self, field: str) -> NDArray[np.int64]:
        """The records that have no value in a field."""
        ...


Labels = HasColumns | ArrayLike | Sequence[Collection[int]]
Unlabelled = Literal["draw", "skip", "raise"]

_MISSING = -1
"""What :meth:`penstock.Store.column` has for a record without a value; a class may have this number, too."""


@dataclass(frozen=True, slots=True)
class Memberships:
    """Pairs of sample and class; each pair once, sorted by sample and then by class."""

    length: int  # number of samples
    samples: NDArray[np.int64]
    classes: NDArray[np.int64]
    """``samples`` and ``classes``: (pairs,): sample ``samples[i]`` has the label ``values[classes[i]]``."""
    values: NDArray[np.int64]  # the labels that occur
    skipped: NDArray[np.int64]  # records of a store that have no label, and are not to be drawn


def find_memberships(labels: Labels, field: str, unlabelled: Unlabelled = "skip") -> Memberships:
    """The classes of each sample.

    Parameters
    ----------
    labels : array_like, sequence of collections, or store
        Ints of shape (n,): one class each. Booleans of shape (n, classes): many. A sequence of collections of ints:
        any number, also none. A store: its column ``field``, of any of these forms, such as the classes of boxes.
    field : str
        The store's field.
    unlabelled : {"draw", "skip", "raise"}
        What becomes of records of a store whose label is missing, as :meth:`penstock.Store.find_missing` says it: they
        are a class of their own, -1 or the next lower number that is none; they have no class, and a warning gives
        their number; or an error.

    Raises
    ------
    ArgumentError
        If there are no samples, the labels have another form, or a label is missing and ``unlabelled`` is "raise".
    """
    if isinstance(labels, str | os.PathLike):
        raise ArgumentError(f"labels should be a store, such as penstock.open({str(labels)!r}), but got a path")
    if unlabelled not in ("draw", "skip", "raise"):
        raise ArgumentError(f"unlabelled must be one of draw, skip, raise, got {unlabelled!r}")
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
    missing = _find_missing(labels, field, flat) if _has_one_each(labels, found) else np.empty(0, np.int64)
    _report_missing(missing, length, field, unlabelled)
    if unlabelled == "skip":
        samples, flat = np.delete(samples, missing), np.delete(flat, missing)
    elif len(missing) and (_MISSING in (others := np.delete(flat, missing))):
        flat = flat.copy()
        flat[missing] = min(int(others.min()), _MISSING) - 1
    values, classes = np.unique(flat, return_inverse=True)
    pairs = np.unique(samples.astype(np.int64) * max(len(values), 1) + classes)
    skipped = missing if unlabelled == "skip" else missing[:0]
    return Memberships(length, *np.divmod(pairs, max(len(values), 1)), values.astype(np.int64), skipped)


def class_weights(
    labels: Labels,
    weights: Mapping[str | int, float],
    *,
    field: str = "label",
    default: float = 1.0,
    unlabelled: Unlabelled = "skip",
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
    unlabelled : {"skip", "draw", "raise"}
        What becomes of records of a store whose label is missing: the weight 0, and a warning gives their number;
        ``default``; or an error.

    Returns
    -------
    ndarray of float64, shape (n,)
        The largest weight of the classes of each sample; also where that is below ``default``.

    Raises
    ------
    ArgumentError
        If there is no such class, ``labels`` have another form, or a label is missing and ``unlabelled`` is "raise".
    """
    found = find_memberships(labels, field, unlabelled)
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
    made[found.skipped] = 0.0
    return made


def _given(labels: Labels, field: str) -> Batch:
    if not isinstance(labels, HasColumns):
        return labels
    kind = labels.schema[field].array if isinstance(labels, HasRaggedColumns) else None
    if kind is not None and kind.shape is None and isinstance(labels, HasRaggedColumns):
        return labels.ragged_column(field)
    return labels.column(field)


def _has_one_each(labels: Labels, found: Array | None) -> bool:
    """Whether labels are those of a store's records, one each: in an array that a user gives, each value is a class."""
    return isinstance(labels, HasColumns) and found is not None and found.ndim == 1 and found.dtype.kind in "iu"


def _find_missing(labels: Labels, field: str, column: Array) -> NDArray[np.int64]:
    """Records without a label: as a store says it; of what only has columns, those of the label -1."""
    if not (column == _MISSING).any():
        return np.empty(0, np.int64)
    return labels.find_missing(field) if isinstance(labels, KnowsMissing) else np.flatnonzero(column == _MISSING)


def _report_missing(missing: NDArray[np.int64], length: int, field: str, unlabelled: Unlabelled) -> None:
    if not len(missing) or unlabelled == "draw":
        return
    said = f"{len(missing):,} of {length:,} records have no value in field {field!r} (the first is index {missing[0]})"
    if unlabelled == "raise":
        raise ArgumentError(f'{said}; unlabelled="skip" leaves them out')
    if len(missing) < length:  # else there is no class, which is an error of its own
        warnings.warn(
            f'{said} and are not drawn; unlabelled="draw" draws them too, "raise" refuses them',
            UserWarning,
            stacklevel=5,
        )


def _check_integers(values: Array) -> NDArray[np.int64]:
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise ArgumentError(f"labels should be integers, but got {values.dtype} of shape {values.shape}")
    return values.astype(np.int64, copy=False)


def _array(given: object) -> Array | None:
    """Return an array of numbers, or None where there is no rectangular one."""
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
