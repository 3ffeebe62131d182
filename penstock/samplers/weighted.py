"""Samples drawn with probabilities in proportion to weights, for one rank or many, with random access.

With replacement, the draw at a position is one uniform number, searched in the float64 cumulative weights: O(log n).
Without replacement, each item gets an exponential number divided by its weight, and items are sorted by it, which
equals drawing one after the other by weight from the remaining items (P. Efraimidis, P. Spirakis, "Weighted random
sampling with a reservoir", Inf. Process. Lett. 97, 2006); that is O(n) once per epoch. Both depend
on (seed, epoch) alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.errors import ArgumentError
from penstock.rng import uniforms
from penstock.sample import SampleKeys
from penstock.samplers.base import check_count
from penstock.samplers.labels import Labels, Unlabelled, class_weights
from penstock.samplers.ranks import DropLast, RankSampler, RecentResults, find_missing

__all__ = ["DistributedWeightedSampler", "WeightedRandomSampler"]

Weights = Sequence[float] | ArrayLike | Mapping[str | int, float]

_WITH, _WITHOUT = 0xFFFE, 0xFFFD  # Philox streams; 0xFFFF is RandomSampler's, streams of ops begin at 0
_CHUNK: Final = 1 << 17
"""Items whose exponentials are computed at once; limits the temporary memory."""
_LN_2: Final = 0.6931471805599453
_SMALLEST: Final = 2.0**-960
"""Least sum of weights: its product with 2**-53 is still a normal number, and is rounded with full precision."""


class WeightedRandomSampler(RankSampler):
    """Indices in [0, len(weights)), each drawn with a probability in proportion to its weight.

    Parameters
    ----------
    weights : sequence of float, shape (n,), or mapping of class to float
        Finite, not negative, not all zero; any sum. Copied. An item of weight zero is never drawn. A mapping has the
        weights of some classes of ``labels``, by name or number; others have 1 (:func:`class_weights`).
    num_samples : int
        Draws per epoch.
    replacement : bool
        Draw each time from all items; False: from those not yet drawn in this epoch.
    seed : int, optional
        In [0, 2**64). None: drawn from the operating system and kept in :meth:`state_dict`.
    labels, field, unlabelled : store or array_like, and two str
        The classes of the items, where weights are those of classes: as for :func:`class_weights`.

    Raises
    ------
    ArgumentError
        If an argument is out of range; also if ``replacement`` is False and fewer than ``num_samples`` weights are not
        zero.

    Notes
    -----
    There is no limit of 2**24 items. A probability is exact to 2**-53 of the whole and the rounding of float64 sums.
    Memory: 8 bytes per item; without replacement also 8 bytes per draw of an epoch.
    """

    def __init__(
        self,
        weights: Weights,
        num_samples: int,
        replacement: bool = True,
        *,
        seed: int | None = None,
        labels: Labels | None = None,
        field: str = "label",
        unlabelled: Unlabelled = "skip",
    ) -> None:
        self._draw_from(_weigh(weights, labels, field, unlabelled), num_samples, replacement)
        super().__init__(1, 0, False, seed)

    def _draw_from(self, weights: Sequence[float] | ArrayLike, num_samples: int, replacement: bool) -> None:
        self._num_samples = check_count("num_samples", num_samples, least=1)
        if not isinstance(replacement, bool):
            raise ArgumentError(f"replacement should be a boolean value, but got replacement={replacement!r}")
        self.replacement = replacement
        checked = _check_weights(weights)
        self._length = len(checked)
        if not replacement and np.count_nonzero(checked) < num_samples:
            raise ArgumentError(
                "cannot sample n_sample > prob_dist.size(-1) samples without replacement: "
                f"num_samples={num_samples}, but {np.count_nonzero(checked)} of {len(checked)} weights are not zero"
            )
        # With replacement the cumulative weights, without it the weights themselves: never both.
        self._table = _cumulative(checked) if replacement else np.array(checked)
        self._digest = hashlib.blake2b(self._table.astype("<f8", copy=False).data, digest_size=16).hexdigest()
        self._orders: RecentResults[NDArray[np.int64]] = RecentResults(2)  # two, for iterators of neighbouring epochs

    @property
    def num_samples(self) -> int:
        """Draws of the whole job per epoch."""
        return self._num_samples

    @property
    def job_size(self) -> int:
        """Draws of the whole job per epoch."""
        return self._num_samples

    def at(self, positions: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Return indices drawn at ``positions``."""
        if not self.replacement:
            order: NDArray[np.int64] = self._orders.get(
                (self.seed, epoch), lambda: self._order_without_replacement(epoch)
            )
            return order[positions]
        draws = uniforms(SampleKeys(self.seed, epoch, positions), _WITH, 1)[:, 0] * self._table[-1]
        # side="right": the first item whose sum is above the draw, hence never one of weight zero. The draw is below
        # the total, for u <= 1 - 2**-53 and its product with the total is a normal number.
        found: NDArray[np.int64] = np.searchsorted(self._table, draws, side="right").astype(np.int64)
        return found

    def _order_without_replacement(self, epoch: int) -> NDArray[np.int64]:
        items = np.flatnonzero(self._table)
        times = np.empty(len(items), np.float64)
        for start in range(0, len(items), _CHUNK):
            part = items[start : start + _CHUNK]
            uniform = uniforms(SampleKeys(self.seed, epoch, part), _WITHOUT, 1)[:, 0]
            with np.errstate(over="ignore"):  # to infinity: such items come last
                times[start : start + _CHUNK] = -_log(1 - uniform) / self._table[part]
        if self._num_samples < len(items):
            first = np.sort(np.argpartition(times, self._num_samples - 1)[: self._num_samples])
            items, times = items[first], times[first]
        return items[np.argsort(times, kind="stable")].astype(np.int64)

    def parameters(self) -> dict[str, object]:
        """Return the number of items, a digest of their weights, replacement."""
        return {"length": self._length, "weights": self._digest, "replacement": self.replacement}


class DistributedWeightedSampler(WeightedRandomSampler):
    """One rank's share of the draws of a :class:`WeightedRandomSampler`: all ranks together draw that one sequence.

    Parameters
    ----------
    weights, num_samples, replacement, labels, field, unlabelled
        As for :class:`WeightedRandomSampler`; ``num_samples`` counts the draws of the whole job.
    num_replicas, rank : int, optional
        Number of ranks, and this rank's number: it has the draws ``rank``, ``rank + num_replicas``, ... By default
        those that :func:`penstock.find_world` finds.
    seed : int
        In [0, 2**64), the same on every rank.
    drop_last : bool or "uneven"
        Where ``num_samples`` is no multiple of ``num_replicas``: leave out the last draws (True), repeat the first ones
        (False), or neither: the first ranks have one draw more.
    """

    def __init__(
        self,
        weights: Weights,
        num_samples: int,
        replacement: bool = True,
        *,
        num_replicas: int | None = None,
        rank: int | None = None,
        seed: int = 0,
        drop_last: DropLast = False,
        labels: Labels | None = None,
        field: str = "label",
        unlabelled: Unlabelled = "skip",
    ) -> None:
        self._draw_from(_weigh(weights, labels, field, unlabelled), num_samples, replacement)
        RankSampler.__init__(self, *find_missing(num_replicas, rank), drop_last, seed)


def _weigh(weights: Weights, labels: Labels | None, field: str, unlabelled: Unlabelled) -> Sequence[float] | ArrayLike:
    """Return the weights of items, by those of their classes if these are given."""
    if isinstance(weights, Mapping):
        if labels is None:
            raise ArgumentError("weights of classes need the classes of the items: give labels=store, field=...")
        return class_weights(labels, weights, field=field, unlabelled=unlabelled)
    if labels is not None:
        raise ArgumentError("labels must be given with weights of classes, such as weights={'platelet': 2}")
    return weights


def _check_weights(weights: Sequence[float] | ArrayLike) -> NDArray[np.float64]:
    try:
        found = np.asarray(weights, np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"weights should be a 1d sequence of numbers, but got {weights!r:.200}") from error
    if found.ndim != 1:
        raise ArgumentError(f"weights should be a 1d sequence but given weights have shape {found.shape}")
    wrong = ~((found >= 0) & (found < np.inf))
    if wrong.any():
        first = int(wrong.argmax())
        raise ArgumentError(f"weights should be finite and not negative, but weights[{first}] is {found[first]}")
    if not found.any():
        raise ArgumentError(f"weights should not all be zero, but none of {len(found)} is above it")
    return found


def _cumulative(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):
        sums = np.cumsum(weights)
    if not _SMALLEST <= sums[-1] < np.inf:
        raise ArgumentError(
            f"weights must add up to a finite number of at least {_SMALLEST:g}, got {sums[-1]}; scale them"
        )
    return sums


def _log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logarithm of 2**-53 <= x <= 1 to about 1e-16, by additions, multiplications and divisions alone.

    The processor's or the C library's may differ in the last bit, and with it the order of two items on two machines.
    ``ln m = 2 artanh((m - 1) / (m + 1))``, with m in [sqrt(1/2), sqrt(2)].
    """
    mantissa, exponent = np.frexp(x)
    small = mantissa < np.sqrt(0.5)
    mantissa = np.where(small, mantissa * 2, mantissa)
    ratio = (mantissa - 1) / (mantissa + 1)
    square = ratio * ratio
    series = np.zeros_like(x)
    for odd in range(23, 0, -2):
        series = series * square + 1 / odd
    found: NDArray[np.float64] = (exponent - small) * _LN_2 + 2 * ratio * series
    return found
