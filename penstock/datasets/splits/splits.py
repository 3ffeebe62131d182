"""Splits the records of a store into parts: at random, stratified by fields, or by groups. No image is decoded.

Labels are counted from columns and small arrays.

::

    store ──column, records──> LabelCounts, groups ──stratification──> Split: indices of each part, histograms, a file
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO, overload

import numpy as np
from numpy.typing import NDArray

from penstock import stores
from penstock.datasets.splits.stratification import LabelCounts, assign_groups, assign_randomly, stratify
from penstock.errors import ArgumentError, StateError, StoreError, check_choice
from penstock.sample import Array, Field, Value
from penstock.samplers.base import check_seed
from penstock.stores.base import Store
from penstock.wording import counted

__all__ = ["Histogram", "Split", "count_values", "split"]

Indices = NDArray[np.int64]
_LINES_SHOWN: Final = 40
_FORMAT: Final = "penstock-split"
_MAX_NBYTES_BEFORE: Final = 1 << 20
_MAX_NBYTES_EACH: Final = 64
"""Of a file of JSON: its names, and a number of each record."""
_READ_RECORDS: Final = 256


@dataclass(frozen=True, slots=True)
class Histogram:
    """How often each value of a field occurs in each part.

    Parameters
    ----------
    field : str
        The field.
    values : tuple of str
        Its values, by name where they have names.
    counts : ndarray of int64, shape (values, parts)
        Number of records, or of boxes, with the value.
    """

    field: str
    values: tuple[str, ...]
    counts: Indices


@dataclass(frozen=True, slots=True, repr=False)
class Split(Sequence[Indices]):
    """The parts of a store. ``split[0]`` and ``split["train"]`` are the indices of a part, in ascending order.

    Parameters
    ----------
    names : tuple of str
        Names of the parts.
    column : ndarray of int64
        The number of the part of each record; read-only.
    histograms : tuple of Histogram
        Of each field by which it was stratified.
    by, groups : tuple of str, str
        The fields; empty if there are none.
    seed : int
        The seed.
    fingerprint : str
        Of the store.
    keys : sequence of str
        Of the records, for :meth:`write`.
    """

    names: tuple[str, ...]
    column: Indices
    histograms: tuple[Histogram, ...]
    by: tuple[str, ...]
    groups: str
    seed: int
    fingerprint: str
    keys: Sequence[str]

    def __repr__(self) -> str:
        return f"Split({', '.join(f'{name}: {count:,}' for name, count in self.counts.items())}, seed={self.seed})"

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, part: int | str) -> Indices: ...
    @overload
    def __getitem__(self, part: slice) -> list[Indices]: ...
    def __getitem__(self, part: int | str | slice) -> Indices | list[Indices]:
        """The indices of the records of a part."""
        if isinstance(part, slice):
            return [self[number] for number in range(len(self))[part]]
        if isinstance(part, str):
            check_choice("part", part, self.names)
            part = self.names.index(part)
        return np.flatnonzero(self.column == range(len(self))[part])

    def __iter__(self) -> Iterator[Indices]:
        return (self[number] for number in range(len(self)))

    @property
    def counts(self) -> dict[str, int]:
        """Number of records of each part."""
        return dict(zip(self.names, np.bincount(self.column, minlength=len(self)).tolist(), strict=True))

    def report(self) -> str:
        """Return the sizes of the parts, and the histograms of all of them side by side, as text."""
        total = len(self.column)
        how = [f"by {', '.join(self.by)}" if self.by else "", f"in groups of {self.groups}" if self.groups else ""]
        sizes = ", ".join(f"{name} {count:,} ({_percent(count, total)})" for name, count in self.counts.items())
        lines = [", ".join([f"{counted(total, 'record')}: {sizes}", *filter(None, how), f"seed {self.seed}"])]
        for histogram in self.histograms:
            lines += ["", *self._tabulate(histogram)]
        return "\n".join(lines)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the split to a file.

        Parameters
        ----------
        path : str or path
            ``.csv``: a column, with a row (index, key, part) for each record. ``.json``: the indices of each part.
            :meth:`read` reads both.

        Raises
        ------
        ArgumentError
            If the name has another ending.
        StoreError
            If it cannot be written.
        """
        target = Path(path)
        _refuse_suffix(target)
        try:
            with target.open("w", encoding="utf-8", newline="") as file:
                if target.suffix == ".json":
                    parts = {name: self[name].tolist() for name in self.names}
                    origin = {"by": list(self.by), "groups": self.groups, "seed": self.seed}
                    json.dump({"format": _FORMAT, "fingerprint": self.fingerprint, **origin, "parts": parts}, file)
                    return
                writer = csv.writer(file)
                writer.writerow(("index", "key", "part"))
                numbered = enumerate(zip(self.keys, self.column.tolist(), strict=True))
                writer.writerows((index, key, self.names[part]) for index, (key, part) in numbered)
        except OSError as error:
            raise StoreError(f"the split cannot be written: {error.strerror}", store=str(target)) from error

    @classmethod
    def read(cls, path: str | os.PathLike[str], store: Store | str | os.PathLike[str]) -> Split:
        """Read a split that :meth:`write` wrote.

        Raises
        ------
        StateError
            If the file is damaged, or the split is of other records than those of ``store``.
        """
        source = Path(path)
        _refuse_suffix(source)
        with nullcontext(store) if isinstance(store, Store) else stores.open(store) as opened:
            try:
                with source.open(encoding="utf-8-sig", newline="") as file:  # keys may contain ends of lines
                    return _parse_json(file, opened) if source.suffix == ".json" else _parse_csv(file, opened)
            except OSError as error:
                raise StoreError(f"the split cannot be read: {error.strerror}", store=str(source)) from error
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError, csv.Error) as error:
                if isinstance(error, StateError):
                    raise
                raise StateError(f"{source.name} must be a split that Split.write wrote: {error}") from error

    def _tabulate(self, histogram: Histogram) -> Iterator[str]:
        totals = histogram.counts.sum(axis=1)
        first = max([len(histogram.field), *map(len, histogram.values[:_LINES_SHOWN])])
        yield f"{histogram.field:<{first}} {'all':>9}" + "".join(f"{name:>18}" for name in self.names)
        rows = zip(histogram.values, totals.tolist(), histogram.counts.tolist(), strict=True)
        for value, total, counts in itertools.islice(rows, _LINES_SHOWN):
            shares = "".join(f"{count:>9,}{_percent(count, total):>9}" for count in counts)
            yield f"{value:<{first}} {total:>9,}{shares}"
        if len(totals) > _LINES_SHOWN:
            yield f"... and {len(totals) - _LINES_SHOWN:,} more"
        for name, part in zip(self.names, histogram.counts.T, strict=True):
            if absent := [value for value, count in zip(histogram.values, part.tolist(), strict=True) if not count]:
                more = f" and {len(absent) - 5:,} more" if len(absent) > 5 else ""
                yield f"absent from {name}: {', '.join(absent[:5])}{more}"


def split(
    store: Store | str | os.PathLike[str],
    parts: Sequence[float] | Mapping[str, float],
    *,
    by: str | Sequence[str] | None = None,
    groups: str | None = None,
    seed: int = 0,
) -> Split:
    """Split the records of a store into parts that do not overlap.

    Parameters
    ----------
    store : Store, str or path
        The store. Columns are read, and records only where ``by`` is a field without a column; no image is decoded.
    parts : sequence or mapping of numbers
        Fractions with the sum 1, or numbers of records with the sum of all of them. A mapping names the parts, such
        as ``{"train": 0.8, "val": 0.2}``; else two are ``train`` and ``val``, three also ``test``, others ``0``, ``1``,
        and so on.
    by : str or sequence of str, optional
        Fields whose values each part has in the proportion of the whole: a label, a text, an int; or a field of several
        values (``"int64[*]"``: labels, classes of boxes, which are counted; ``"bool[20]"``: labels by position).
    groups : str, optional
        A field (text, int or label): records of one value are in one part, such as all images of a patient.
    seed : int
        In [0, 2**64); the same seed gives the same split, on every machine.

    Returns
    -------
    Split
        ``len(parts)`` arrays of indices; ``report()`` shows how often each value is in each part.

    Raises
    ------
    ArgumentError
        If parts, a field or the seed is invalid.

    Notes
    -----
    By one label, each part has its share of each class to within one record for each part before it. By several, the
    share is approximate (:mod:`penstock.datasets.splits.stratification`), and the sizes are exact. With groups, both
    are approximate: the largest groups are assigned first.

    Examples
    --------
    >>> parts = ps.split("photos.lmdb", {"train": 0.8, "val": 0.2}, by="label")  # doctest: +SKIP
    >>> train = ps.Subset(dataset, parts["train"])  # doctest: +SKIP
    """
    names, numbers = _name_parts(parts)
    check_seed(seed)
    with nullcontext(store) if isinstance(store, Store) else stores.open(store) as opened:
        total = len(opened)
        sizes = _find_sizes(numbers, total)
        fields = (by,) if isinstance(by, str) else tuple(by or ())
        counts = [count_values(opened, name) for name in fields]
        if groups is not None:
            column = _split_groups(opened, groups, [found for found, _ in counts], sizes, seed)
        elif counts:
            column = stratify(join_counts([found for found, _ in counts], total), sizes, seed)
        else:
            column = assign_randomly(total, sizes, seed)
        return _make_split(names, column, opened, dict(zip(fields, counts, strict=True)), groups or "", seed)


def _name_parts(parts: Sequence[float] | Mapping[str, float]) -> tuple[tuple[str, ...], list[float]]:
    if isinstance(parts, Mapping):
        names, numbers = tuple(map(str, parts)), list(parts.values())
    else:
        numbers = list(parts)
        usual = {2: ("train", "val"), 3: ("train", "val", "test")}
        names = usual.get(len(numbers), tuple(map(str, range(len(numbers)))))
    if len(numbers) < 2 or not all(0 <= each < math.inf for each in numbers):
        raise ArgumentError(f"parts must be at least two fractions or numbers of records, got {parts!r}")
    return names, numbers


def _find_sizes(numbers: Sequence[float], total: int) -> Indices:
    if math.isclose(sum(numbers), 1) and total != 1:
        ends = np.rint(np.cumsum(numbers) * total).astype(np.int64)
        ends[-1] = total
        sizes: Indices = np.diff(ends, prepend=0)
        return sizes
    if all(isinstance(each, int) for each in numbers) and sum(numbers) == total:
        return np.array(numbers, np.int64)
    raise ArgumentError(
        f"parts must be fractions with the sum 1, or numbers with the sum {total} (all records), got {list(numbers)} "
        f"with the sum {sum(numbers):g}"
    )


def _split_groups(store: Store, name: str, counts: Sequence[LabelCounts], sizes: Indices, seed: int) -> Indices:
    if store.schema[name].kind not in {"label", "int", "text"}:
        raise ArgumentError(
            f"groups must name a field of kind text, int or label, and {name!r} is {store.schema[name].kind}"
        )
    values, members = np.unique(store.column(name), return_inverse=True)
    if len(values) < np.count_nonzero(sizes):
        raise ArgumentError(
            f"groups must give at least {np.count_nonzero(sizes)} groups, and {name!r} has {len(values)}"
        )
    members = members.astype(np.int64)
    labels = join_counts(counts, len(store)).merge(members, len(values))
    return assign_groups(labels, np.bincount(members), sizes / sizes.sum(), seed)[members]


def _refuse_suffix(path: Path) -> None:
    if path.suffix not in {".csv", ".json"}:
        raise ArgumentError(f"a split is written to a file named .csv or .json, got {path.name!r}")


def _parse_json(file: TextIO, store: Store) -> Split:
    most = _MAX_NBYTES_BEFORE + _MAX_NBYTES_EACH * len(store)
    if (nbytes := os.fstat(file.fileno()).st_size) > most:
        raise ValueError(f"it must have at most {most:,} bytes for {len(store):,} records, got {nbytes:,}")
    entry: dict[str, Value] = json.load(file)
    if entry["format"] != _FORMAT:
        raise ValueError(f"its format is {entry['format']!r}")
    if entry["fingerprint"] != store.fingerprint():
        raise StateError("the split is of other records than those of this store; split it again", store=store.url)
    column = np.full(len(store), -1, np.int64)
    for number, indices in enumerate(entry["parts"].values()):
        column[np.array(indices, np.int64)] = number
    return _restore(tuple(entry["parts"]), column, store, tuple(entry["by"]), entry["groups"], int(entry["seed"]))


def _parse_csv(file: TextIO, store: Store) -> Split:
    rows = csv.reader(file)
    if next(rows, None) != ["index", "key", "part"]:
        raise ValueError("its columns must be index, key, part")
    column = np.zeros(len(store), np.int64)
    numbers: dict[str, int] = {}
    for index, (row, key) in enumerate(itertools.zip_longest(rows, store.keys())):  # ends at the first that differs
        if row is None or key is None or row[:2] != [str(index), key] or len(row) < 3:
            raise StateError("the split is of other records than those of this store; split it again", store=store.url)
        column[index] = numbers.setdefault(row[2], len(numbers))
    return _restore(tuple(numbers), column, store, (), "", 0)


def _restore(
    names: tuple[str, ...], column: Indices, store: Store, by: tuple[str, ...], groups: str, seed: int
) -> Split:
    if (column < 0).any():
        raise ValueError(f"record {int(np.argmin(column))} is in no part")
    return _make_split(names, column, store, {name: count_values(store, name) for name in by}, groups, seed)


def _make_split(
    names: tuple[str, ...],
    column: Indices,
    store: Store,
    by: Mapping[str, tuple[LabelCounts, tuple[str, ...]]],
    groups: str,
    seed: int,
) -> Split:
    column.flags.writeable = False
    histograms = (Histogram(name, values, found.tally(column, len(names))) for name, (found, values) in by.items())
    return Split(names, column, tuple(histograms), tuple(by), groups, seed, store.fingerprint(), list(store.keys()))


def _percent(count: int, total: int) -> str:
    return f"{100 * count / max(total, 1):.1f} %"


def count_values(store: Store, name: str) -> tuple[LabelCounts, tuple[str, ...]]:
    """Return how often each record has each value of a field, and the names of the values.

    Raises ArgumentError if the field has no labels.
    """
    field = store.schema[name]
    if field.kind in {"label", "int", "text"}:
        items, labels = np.arange(len(store), dtype=np.int64), store.column(name)
    elif (kind := field.array) is not None and kind.dtype.kind in "biu" and len(kind.axes) == 1:
        items, labels = _read_lists(store, name, is_multi_hot=kind.dtype.kind == "b")
    else:
        raise ArgumentError(
            f"by must name fields of labels: label, int, text, or a list of ints or bools (int64[*], bool[20]), got "
            f"{name!r}, which is {field.kind}"
        )
    missing = store.find_missing(name) if field.array is None else np.empty(0, np.int64)
    values, inverse = np.unique(np.delete(labels, missing), return_inverse=True)
    places = np.zeros(len(items), np.int64)  # those without a value come first
    has_value = np.ones(len(items), np.bool_)
    has_value[missing] = False
    first = int(len(missing) > 0)
    places[has_value] = inverse + first
    counts = LabelCounts.from_pairs(items, places, len(store), first + len(values))
    return counts, (*["no value"] * first, *(_name_value(field, value) for value in values.tolist()))


def _read_lists(store: Store, name: str, *, is_multi_hot: bool) -> tuple[Indices, Indices]:
    """Pairs of record and label of a field of small arrays; those of one length are read from the records."""
    kind = store.schema[name].array
    if kind is not None and kind.shape is None and not is_multi_hot:
        column = store.ragged_column(name)
        return np.repeat(np.arange(len(store), dtype=np.int64), column.counts), column.values.astype(np.int64)
    items: list[Array] = []
    labels: list[Array] = []
    for first in range(0, len(store), _READ_RECORDS):
        for record in store.read(range(first, min(first + _READ_RECORDS, len(store)))):
            found = record.fields[name]
            if found is None:
                continue
            values = np.flatnonzero(found) if is_multi_hot else found.astype(np.int64)
            items.append(np.full(len(values), record.index, np.int64))
            labels.append(values)
    empty = [np.empty(0, np.int64)]
    return np.concatenate(items or empty), np.concatenate(labels or empty)


def _name_value(field: Field, value: object) -> str:
    if isinstance(value, int) and 0 <= value < len(field.classes):
        return field.classes[value]
    return "empty" if value == "" else str(value)


def join_counts(counts: Sequence[LabelCounts], num_items: int) -> LabelCounts:
    """Return the labels of several fields as one list of labels."""
    if len(counts) == 1:
        return counts[0]
    offsets = np.cumsum([0, *(each.num_labels for each in counts)])
    items = np.concatenate([each.items for each in counts] or [np.empty(0, np.int64)])
    labels = np.concatenate(
        [each.labels + offset for each, offset in zip(counts, offsets, strict=False)] or [np.empty(0, np.int64)]
    )
    numbers = np.concatenate([each.counts for each in counts] or [np.empty(0, np.int64)])
    order = np.argsort(items, kind="stable")
    return LabelCounts(items[order], labels[order], numbers[order], num_items, int(offsets[-1]))
