"""Sampling in which images of rare classes occur more often: repeat factors, from LVIS.

A. Gupta, P. Dollár, R. Girshick, "LVIS: A dataset for large vocabulary instance segmentation", CVPR 2019, section 4.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.rng import uniforms
from penstock.sample import SampleKeys
from penstock.samplers.labels import Labels, Unlabelled, find_memberships
from penstock.samplers.permutation import permute
from penstock.samplers.ranks import DropLast, RankSampler, RecentResults

__all__ = ["RepeatFactorSampler", "repeat_factors"]

_STREAM: Final = 0xFFFB  # of Philox; see penstock.samplers.weighted
_SLOTS, _IMAGES = 4, 5  # purposes of permutations
_UNIT: Final = 1 << 30
"""Repeat factors are integers in this unit: sums are exact, and an epoch may have 2**33 samples."""


def repeat_factors(
    labels: Labels, threshold: float = 1e-3, *, field: str = "label", unlabelled: Unlabelled = "skip"
) -> NDArray[np.float64]:
    """Return how often each image occurs per epoch, on average.

    Parameters
    ----------
    labels : array_like, sequence of collections, or store
        Ints of shape (n,): one class per image. Booleans of shape (n, classes), or a sequence of collections of ints:
        any number of classes per image. A store: its column ``field``, such as the classes of boxes; no image is read.
    threshold : float
        Fraction ``t`` of images below which a class is rare, in (0, 1]. LVIS has 0.001.
    field : str
        The store's field.
    unlabelled : {"skip", "draw", "raise"}
        What becomes of records of a store whose label is missing: the factor 0, and a warning gives their number; -1 is
        a class; or an error.

    Returns
    -------
    ndarray of float64, shape (n,)
        The largest ``max(1, sqrt(t / f))`` of the image's classes, where ``f`` is the fraction of images that have the
        class; 1 for an image of no class. Images that are skipped do not count.

    Raises
    ------
    ArgumentError
        If ``threshold`` is not in (0, 1], or ``labels`` have another form.
    """
    threshold = _checked_fraction(threshold)
    found = find_memberships(labels, field, unlabelled)
    frequency = np.bincount(found.classes, minlength=len(found.values)) / max(found.length - len(found.skipped), 1)
    per_class = np.maximum(1.0, np.sqrt(threshold / frequency))
    factors = np.ones(found.length)
    np.maximum.at(factors, found.samples, per_class[found.classes])
    factors[found.skipped] = 0.0
    return factors


class RepeatFactorSampler(RankSampler):
    """Draws each image as often per epoch as its repeat factor says, in a random order.

    An image with factor 2.3 occurs three times in 30% of the epochs, and else twice. The draws of an epoch are made
    together by systematic sampling (the images in random order are intervals as long as their factors, and marks at
    distance one choose among them), so that the length of an epoch is always the sum of factors, rounded up, and equal
    on all ranks. Where the marks are one too few, one image occurs once more.

    Parameters
    ----------
    labels, threshold, field, unlabelled
        As for :func:`repeat_factors`.
    num_replicas, rank : int
        Number of ranks, and this rank's number: all ranks together have the order of one.
    seed : int, optional
        In [0, 2**64), the same on every rank. None, for one rank only: drawn from the operating system.
    drop_last : bool or "uneven"
        Where ``num_replicas`` does not divide an epoch: leave out the end (True), repeat the beginning (False), or
        neither: the first ranks have one sample more.

    Raises
    ------
    ArgumentError
        If an argument is out of range, or an epoch would have 2**33 samples or more.

    Attributes
    ----------
    factors : ndarray of float64, shape (n,)
        The repeat factors.

    Notes
    -----
    An epoch costs O(n) once. Memory: 16 bytes per image, and 16 for each of the two newest epochs. State is O(1).
    """

    def __init__(
        self,
        labels: Labels,
        threshold: float = 1e-3,
        *,
        field: str = "label",
        unlabelled: Unlabelled = "skip",
        num_replicas: int = 1,
        rank: int = 0,
        seed: int | None = None,
        drop_last: DropLast = False,
    ) -> None:
        super().__init__(num_replicas, rank, drop_last, seed)
        self.factors = repeat_factors(labels, threshold, field=field, unlabelled=unlabelled)
        if not self.factors.any():
            raise ArgumentError(
                f"labels should be those of at least one sample, but no record has a value in {field!r}"
            )
        if self.factors.sum() >= 1 << 33:
            raise ArgumentError(
                f"threshold must be lower, because an epoch would have {self.factors.sum():.3g} samples"
            )
        self._parts = np.rint(self.factors * _UNIT).astype(np.int64)
        self._num_samples = math.ceil(int(self._parts.sum()) / _UNIT)
        self._digest = hashlib.blake2b(self._parts.astype("<i8").tobytes(), digest_size=16).hexdigest()
        self._tables: RecentResults[_RepeatTable] = RecentResults(2)

    @property
    def job_size(self) -> int:
        """Samples of all ranks per epoch: the sum of factors, rounded up."""
        return self._num_samples

    def at(self, positions: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Indices at ``positions`` of the job's order."""
        table = self._tables.get((self.seed, epoch), lambda: self._make_table(epoch))
        return table.images_at(permute(positions, self.job_size, self._key(epoch, _SLOTS)))

    def _make_table(self, epoch: int) -> _RepeatTable:
        images = permute(np.arange(len(self._parts)), len(self._parts), self._key(epoch, _IMAGES))
        shift = int(uniforms(SampleKeys(self.seed, epoch, np.zeros(1, np.int64)), _STREAM, 1)[0, 0] * _UNIT)
        return _RepeatTable(images, np.cumsum(self._parts[images]), shift)

    def parameters(self) -> dict[str, object]:
        """Return the number of images, and a digest of their factors."""
        return {"length": len(self.factors), "factors": self._digest}


def _checked_fraction(threshold: object) -> float:
    if (
        not isinstance(threshold, (int, float, np.floating, np.integer))
        or isinstance(threshold, bool)
        or not 0 < threshold <= 1
    ):
        raise ArgumentError(f"threshold should be a fraction in (0, 1], but got threshold={threshold!r}")
    return float(threshold)


@dataclass(frozen=True, slots=True)
class _RepeatTable:
    """Images as consecutive intervals, which end at ``ends``, and marks at ``k * _UNIT - shift``, k = 1, 2, ..."""

    images: NDArray[np.int64]
    ends: NDArray[np.int64]
    shift: int

    def images_at(self, marks: NDArray[np.int64]) -> NDArray[np.int64]:
        """The images at the marks of these numbers; a number past the last mark stands for the first one."""
        made = (int(self.ends[-1]) + self.shift) // _UNIT
        positions = (marks % made + 1) * _UNIT - self.shift
        return self.images[np.searchsorted(self.ends, positions, side="left")]
