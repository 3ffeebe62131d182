"""Arrays whose first axis differs from sample to sample: boxes, keypoints, tokens.

::

    samples     (3, 4)  (0, 4)  (2, 4)
    "list"      [array (3, 4), array (0, 4), array (2, 4)]
    "padded"    Padded(values (3, 3, 4), counts [3, 0, 2])
    "flat"      Ragged(values (5, 4), offsets [0, 3, 3, 5])

A :class:`RaggedSpec` stands in a sample's spec where an :class:`~penstock.sample.ArraySpec` stands for an array of
fixed shape. A dataset that fills writes such rows to :class:`RaggedRows`; :func:`join_rows` joins the arrays of samples
that were built one by one. Both give the same batch. Nothing here knows a dataset, a slot or a loader.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, SampleError, check_choice
from penstock.sample import Array, DType

__all__ = ["FORMS", "Allocate", "Padded", "Ragged", "RaggedRows", "RaggedSpec", "Values", "check_form", "join_rows"]

FORMS: Final = ("list", "padded", "flat")
"""The forms in which a batch holds a ragged field."""

Allocate = Callable[[tuple[int, ...], DType], Array]
"""Gives an array of a shape and dtype, with arbitrary content."""

Values = Any
"""A NumPy array, or a torch tensor."""


def check_form(form: object) -> str:
    """``form``, if it is one of :data:`FORMS`.

    Raises ArgumentError if it is not.
    """
    check_choice("ragged", form, FORMS)
    return str(form)


@dataclass(frozen=True, slots=True)
class RaggedSpec:
    """Shape and dtype of the rows of one sample's array, which may have any number of rows."""

    shape: tuple[int, ...]  # of one row: ``(4,)`` for boxes of shape (n, 4)
    dtype: DType  # of the array
    form: str = "list"  # {"list", "padded", "flat"}: what a batch holds; see the module

    @property
    def nbytes(self) -> int:
        """The least number of bytes of one sample."""
        return 0

    def make_rows(self, count: int) -> RaggedRows:
        """The rows of ``count`` samples, to be written."""
        return RaggedRows(self, count)


class Padded(NamedTuple):
    """Arrays of different lengths in one array.

    Parameters
    ----------
    values : ndarray or torch.Tensor, shape (n, longest, ...)
        Row ``i`` holds array ``i``, followed by zeros.
    counts : ndarray or torch.Tensor, shape (n,), int64
        The length of each array.
    """

    values: Values
    counts: Values


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Arrays of different lengths, concatenated.

    Parameters
    ----------
    values : ndarray or torch.Tensor, shape (total, ...)
        All arrays.
    offsets : ndarray or torch.Tensor, shape (n + 1,), int64
        Array ``i`` is ``values[offsets[i]:offsets[i + 1]]``.

    Examples
    --------
    >>> import numpy as np
    >>> boxes = Ragged(np.arange(6).reshape(3, 2), np.array([0, 1, 1, 3]))
    >>> boxes[2].tolist()
    [[2, 3], [4, 5]]
    >>> boxes.padded(-1).counts.tolist()
    [1, 0, 2]
    """

    values: Values
    offsets: Values

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Values:
        """Return array ``index``, a view; a negative index counts from the end.

        Raises IndexError if there is no such array.
        """
        count = len(self)
        at = operator.index(index)
        if not -count <= at < count:
            raise IndexError(f"index must be in [{-count}, {count}), got {at}")
        at %= count
        return self.values[int(self.offsets[at]) : int(self.offsets[at + 1])]

    def __iter__(self) -> Iterator[Values]:
        ends = self.offsets.tolist()
        return (self.values[start:stop] for start, stop in itertools.pairwise(ends))

    @property
    def counts(self) -> Values:
        """The length of each array, shape (n,)."""
        return self.offsets[1:] - self.offsets[:-1]

    def list(self) -> list[Values]:
        """Return the arrays, each a view of ``values``."""
        if isinstance(self.values, np.ndarray):
            return [*self]
        ends = self.offsets.tolist()
        counts = list(map(operator.sub, ends[1:], ends))
        return list(self.values.unsafe_split_with_sizes(counts))  # the same views, without autograd's bookkeeping

    def padded(self, value: float = 0) -> Padded:
        """Return the arrays in one new array, each followed by ``value``."""
        counts = self.counts
        shape = (len(self), int(counts.max()) if len(self) else 0, *self.values.shape[1:])
        is_array = isinstance(self.values, np.ndarray)
        out = np.full(shape, value, self.values.dtype) if is_array else self.values.new_full(shape, value)
        for row, array in zip(out, self, strict=True):
            row[: len(array)] = array
        return Padded(out, counts)

    def to(self, *args: object, **kwargs: object) -> Ragged:
        """Tensors moved by ``torch.Tensor.to``, which gets the arguments."""
        return Ragged(self.values.to(*args, **kwargs), self.offsets.to(*args, **kwargs))

    def pin_memory(self) -> Ragged:
        """Copy tensors to page-locked memory; called by loaders with ``pin_memory=True``."""
        return Ragged(self.values.pin_memory(), self.offsets.pin_memory())


class RaggedRows:
    """The rows of a ragged leaf while a batch is filled: the target of :meth:`Filler.fill` for a :class:`RaggedSpec`.

    Thread-safe for calls with different rows. A row that is written again holds what was written last.

    ``spec``: of one sample. ``rows``: samples of the batch.
    """

    def __init__(self, spec: RaggedSpec, rows: int) -> None:
        self.spec = spec
        self._rows = rows
        self._pieces: dict[int, _Piece] = {}  # chunks by number; adding to a dict is atomic
        self._numbers = itertools.count()

    def write(self, rows: NDArray[np.int64], values: Array, lengths: NDArray[np.int64]) -> None:
        """Set the arrays of some samples.

        Parameters
        ----------
        rows : ndarray of int64, shape (n,)
            Positions of the samples in the batch.
        values : ndarray, shape (sum(lengths), ...)
            Their arrays, concatenated; not copied.
        lengths : ndarray of int64, shape (n,)
            How many rows of ``values`` belong to each sample.

        Raises
        ------
        ArgumentError
            If ``values`` has another shape or dtype than the spec, or ``lengths`` do not add up.
        """
        if values.shape[1:] != self.spec.shape or values.dtype != self.spec.dtype:
            raise self._describe_wrong(values)
        counts = lengths.tolist()  # of a chunk: less time than NumPy's reductions take to begin
        if len(counts) != len(rows) or sum(counts) != len(values) or min(counts, default=0) < 0:
            raise ArgumentError(
                f"lengths must have one number for each of {len(rows)} samples, which add up to the {len(values)} rows "
                f"of values, got {counts!r:.200}"
            )
        if len(rows):
            self._pieces[next(self._numbers)] = _Piece(rows.copy(), [values], lengths)

    def write_each(self, rows: NDArray[np.int64], arrays: Sequence[Array]) -> None:
        """Set the arrays of some samples, which are not joined yet: that is done once, for the batch.

        ``rows``: (n,): positions of the samples in the batch. ``arrays``: the array of each, of
        the spec's shape and dtype; not copied. :meth:`batch` compares them with the spec. Raises ArgumentError if there
        are more or fewer arrays than rows.
        """
        if len(arrays) != len(rows):
            raise ArgumentError(f"arrays must have one for each of {len(rows)} samples, got {len(arrays)}")
        if len(rows):
            lengths = np.fromiter(map(len, arrays), np.int64, len(rows))
            self._pieces[next(self._numbers)] = _Piece(rows.copy(), arrays, lengths)

    def batch(self, kept: NDArray[np.int64], allocate: Allocate) -> Ragged | Padded:
        """The samples ``kept`` as a batch, in this order, in memory from ``allocate``.

        Returns
        -------
        Ragged or Padded
            Padded where the spec's form is "padded".

        Raises
        ------
        SampleError
            If one of the samples was not written.
        ArgumentError
            If an array of :meth:`write_each` has another shape or dtype than the spec.
        """
        found = self._in_order(kept)
        if found is None:
            found = self._last_written(kept)
        values, lengths = found
        offsets = np.empty(len(kept) + 1, np.int64)
        offsets[0] = 0
        lengths.cumsum(out=offsets[1:])
        total = int(offsets[-1])
        is_padded = self.spec.form == "padded"
        out = (np.empty if is_padded else allocate)((total, *self.spec.shape), self.spec.dtype)
        try:
            if values:
                np.concatenate(values, out=out, casting="equiv")
        except (TypeError, ValueError) as error:
            raise self._find_wrong(values) from error
        return _padded(out, lengths, allocate) if is_padded else Ragged(out, offsets)

    def _in_order(self, kept: NDArray[np.int64]) -> tuple[Sequence[Array], NDArray[np.int64]] | None:
        """Values and lengths of ``kept``, if the chunks are these samples, each once, in their order."""
        if not self._pieces:
            return None
        places, values, lengths = zip(*sorted(self._pieces.values(), key=_first_row), strict=True)
        if np.concatenate(places).tobytes() != kept.tobytes():  # a fifth of the time of != and any()
            return None
        return list(itertools.chain.from_iterable(values)), np.concatenate(lengths)

    def _last_written(self, kept: NDArray[np.int64]) -> tuple[Sequence[Array], NDArray[np.int64]]:
        """Values and lengths of ``kept``, if rows were written several times or in any order, or are not kept."""
        places = np.zeros((self._rows, 3), np.int64)  # of each row: number of its piece, begin and length there
        places[:, 0] = -1
        for number, piece in sorted(self._pieces.items()):
            begins = piece.lengths.cumsum() - piece.lengths
            places[piece.rows] = np.stack([np.full_like(begins, number), begins, piece.lengths], 1)
        chosen = places[kept]
        missing = kept[chosen[:, 0] < 0]
        if len(missing):
            raise SampleError(f"fill must write every row of the batch, got nothing for row {int(missing[0])}")
        joined = {number: np.concatenate(self._pieces[number].values) for number in set(chosen[:, 0].tolist())}
        return [joined[of][begin : begin + length] for of, begin, length in chosen.tolist()], chosen[:, 2]

    def _find_wrong(self, arrays: Sequence[Array]) -> ArgumentError:
        """Return what :meth:`write_each` was given that is not of the spec."""
        shape, dtype = self.spec.shape, self.spec.dtype
        wrong = next((each for each in arrays if each.shape[1:] != shape or each.dtype != dtype), arrays[0])
        return self._describe_wrong(wrong)

    def _describe_wrong(self, values: Array) -> ArgumentError:
        return ArgumentError(
            f"values must be {self.spec.dtype} of shape (n, {', '.join(map(str, self.spec.shape))}), got "
            f"{values.dtype} of shape {values.shape}"
        )


class _Piece(NamedTuple):
    """What a chunk has written: arrays of one sample each, or one of all of them."""

    rows: NDArray[np.int64]
    values: Sequence[Array]
    lengths: NDArray[np.int64]


def _first_row(piece: _Piece) -> int:
    return int(piece.rows[0])


def join_rows(arrays: Sequence[Array], form: str, allocate: Allocate = np.empty) -> list[Array] | Ragged | Padded:
    """The arrays of samples that were built one by one, in one of :data:`FORMS`.

    ``arrays``: sequence of ndarray: at least one; all of one dtype, and of one shape but for the first axis. For
    "list", any. ``form``: {"list", "padded", "flat"}: which form. ``allocate``: gives the memory. Raises SampleError if
    dtypes or shapes differ; names the sample's position in the batch.
    """
    if form == "list":
        return list(arrays)
    shape, dtype = arrays[0].shape[1:], arrays[0].dtype
    for position, array in enumerate(arrays):
        if array.ndim == 0 or array.shape[1:] != shape or array.dtype != dtype:
            raise SampleError(
                f"the arrays of a ragged field must have one dtype, and one shape but for the first axis, got "
                f"{arrays[0].dtype} of shape {arrays[0].shape} at entry 0 and {array.dtype} of shape {array.shape} at "
                f"entry {position}"
            )
    lengths = np.array([len(array) for array in arrays], np.int64)
    if form == "padded":
        return _padded(np.concatenate(arrays), lengths, allocate)
    offsets = np.zeros(len(arrays) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    values = allocate((int(offsets[-1]), *shape), dtype)
    np.concatenate(arrays, out=values)
    return Ragged(values, offsets)


def _padded(values: Array, lengths: NDArray[np.int64], allocate: Allocate) -> Padded:
    """Return the arrays of these lengths, which ``values`` concatenates, each followed by zeros."""
    longest = int(lengths.max(initial=0))
    out = allocate((len(lengths), longest, *values.shape[1:]), values.dtype)
    out[...] = 0
    out[np.arange(longest) < lengths[:, None]] = values
    return Padded(out, lengths)
