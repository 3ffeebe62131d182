"""Sampling in which every class occurs equally often."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.rng import uniforms
from penstock.sample import SampleKeys
from penstock.samplers.base import check_count
from penstock.samplers.labels import Labels, Memberships, Unlabelled, find_memberships
from penstock.samplers.permutation import permute
from penstock.samplers.ranks import DropLast, RankSampler, RecentResults

__all__ = ["ClassBalancedSampler"]

_STREAM = 0xFFFC  # of Philox; see penstock.samplers.weighted
_SLOTS, _MEMBERS = 2, 3  # purposes of permutations


class ClassBalancedSampler(RankSampler):
    """Indices in which every class occurs exactly equally often in each epoch.

    The samples of each class have a circular order, which the seed determines. An epoch takes the next
    ``num_samples / classes`` samples of each class, and shuffles them. So in an epoch no sample of a class occurs twice
    before all others of its class have occurred; the samples of a large class are spread over several epochs.

    Where samples have several classes, such as those of an image's boxes, each sample is drawn for one of them: each
    class is drawn for equally often, and a sample may occur for each class that it has. Samples without any class are
    not drawn.

    Parameters
    ----------
    labels : array_like of int, shape (n,), sequence of collections, or store
        One class per sample; or any number, as for :func:`repeat_factors`; or a store whose column ``field`` has them:
        no image is read. In an array every value that occurs is a class.
    num_samples : int, optional
        Samples of the whole job per epoch. By default ``n``, without records that are skipped, rounded up to a multiple
        of the number of classes; where another number is no such multiple, some classes, others each epoch, occur once
        more than the rest.
    field : str
        The store's field.
    unlabelled : {"skip", "draw", "raise"}
        What becomes of records of a store whose label is missing: they are not drawn, and a warning gives their number;
        they are drawn as a class of their own, with the label -1; or an error.
    num_replicas, rank : int
        Number of ranks, and this rank's number: all ranks together have the order of one.
    seed : int, optional
        In [0, 2**64), the same on every rank. None, for one rank only: drawn from the operating system.
    drop_last : bool or "uneven"
        Where ``num_replicas`` does not divide ``num_samples``: leave out the end (True), repeat the beginning (False),
        or neither: the first ranks have one sample more.

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    Memory: 16 bytes per sample. State is O(1).
    """

    def __init__(
        self,
        labels: Labels,
        num_samples: int | None = None,
        *,
        field: str = "label",
        unlabelled: Unlabelled = "skip",
        num_replicas: int = 1,
        rank: int = 0,
        seed: int | None = None,
        drop_last: DropLast = False,
    ) -> None:
        super().__init__(num_replicas, rank, drop_last, seed)
        found = _find_pairs(labels, field, unlabelled)
        if not len(found.values):
            raise ArgumentError("labels should have at least one class, but no sample has any")
        self.classes, self._class, self._samples = found.values, found.classes, found.samples
        self._length = found.length
        counts = np.bincount(self._class, minlength=len(self.classes))
        self._counts = counts.astype(np.int64)
        self._starts = np.cumsum(self._counts) - self._counts
        rounded = -(-(found.length - len(found.skipped)) // len(self.classes)) * len(self.classes)
        self._num_samples = rounded if num_samples is None else check_count("num_samples", num_samples, least=1)
        state = hashlib.blake2b(self.classes[self._class].astype("<i8").tobytes(), digest_size=16)
        if not self._has_one_each():
            state.update(self._samples.astype("<i8").tobytes())
        self._digest = state.hexdigest()
        self._rings: RecentResults[NDArray[np.int64]] = RecentResults(1)

    @property
    def job_size(self) -> int:
        """Samples of the whole job per epoch."""
        return self._num_samples

    def at(self, positions: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Indices at ``positions`` of the whole job's order."""
        slots = permute(positions, self.job_size, self._key(epoch, _SLOTS))
        classes = len(self.classes)
        turn, rest = np.divmod(slots, classes)
        # Other classes get the surplus positions in each epoch.
        shift = int(uniforms(SampleKeys(self.seed, epoch, np.zeros(1, np.int64)), _STREAM, 1)[0, 0] * classes)
        chosen = (rest + shift) % classes
        turn += (epoch & 0xFFFFFFFF) * -(-self.job_size // classes)
        ring = self._rings.get((self.seed,), self._make_table)
        places: NDArray[np.int64] = self._starts[chosen] + turn % self._counts[chosen]
        return ring[places]

    def _make_table(self) -> NDArray[np.int64]:
        """Return all samples by class; the seed determines the order in each class."""
        words = np.random.Philox(np.random.SeedSequence((self.seed, _MEMBERS))).random_raw(len(self._class))
        order = np.lexsort((words, self._class))
        made: NDArray[np.int64] = self._samples[order].astype(np.int64)
        return made

    def _has_one_each(self) -> bool:
        """Return whether each sample has one class."""
        return len(self._samples) == self._length and bool((np.diff(self._samples) == 1).all())

    def parameters(self) -> dict[str, object]:
        """Number of samples, and a digest of their labels."""
        return {"length": self._length, "labels": self._digest}


def _find_pairs(labels: Labels, field: str, unlabelled: Unlabelled) -> Memberships:
    """The classes of each sample.

    Raises ArgumentError as :func:`find_memberships`.
    """
    try:
        return find_memberships(labels, field, unlabelled)
    except ArgumentError as error:
        raise ArgumentError(f"labels should be one integer per sample, or several: {error.message}") from error
