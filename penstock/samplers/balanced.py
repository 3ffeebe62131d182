"""Every class exactly equally often, whatever the numbers of its samples."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from penstock.rng import uniforms
from penstock.sample import SampleKeys
from penstock.samplers.base import checked_count
from penstock.samplers.labels import Labels, class_per_sample
from penstock.samplers.permutation import permuted
from penstock.samplers.ranks import RankSampler, Recent

__all__ = ["ClassBalancedSampler"]

_STREAM = 0xFFFC  # of Philox; see penstock.samplers.weighted
_SLOTS, _MEMBERS = 2, 3  # purposes of permutations


class ClassBalancedSampler(RankSampler):
    """Indices such that an epoch has every class equally often: exactly, not on average.

    Each class lays out its samples on a ring, in an order that the seed fixes. An epoch takes the next
    ``num_samples / classes`` of each ring, and shuffles all it has taken. So within an epoch no sample of a class comes
    twice before all of its class came once; and a class too large for an epoch is gone through over the next ones.

    Parameters
    ----------
    labels : array_like of int, shape (n,), or store
        One class per sample, or a store whose column ``field`` has it; no image is read. Every value that occurs is a
        class, so leave out records without a label first (``SubsetRandomSampler``'s indices, ``Subset``).
    num_samples : int, optional
        Samples of the whole job per epoch. By default ``n`` rounded up to a multiple of the number of classes; where
        another number is no such multiple, some classes (others each epoch) come once more than the rest.
    field : str
        The store's field.
    num_replicas, rank : int
        Number of ranks, and this rank's number: all ranks together have the order of one.
    seed : int, optional
        In [0, 2**64), the same on every rank. None, for one rank only: drawn from the operating system.
    drop_last : bool
        Where ``num_replicas`` does not divide ``num_samples``: leave out the tail (True), or repeat the head (False).

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
        num_replicas: int = 1,
        rank: int = 0,
        seed: int | None = None,
        drop_last: bool = False,
    ) -> None:
        super().__init__(num_replicas, rank, drop_last, seed)
        found = class_per_sample(labels, field)
        self.classes, self._class, counts = np.unique(found, return_inverse=True, return_counts=True)
        self._counts = counts.astype(np.int64)
        self._starts = np.cumsum(self._counts) - self._counts
        rounded = -(-len(found) // len(self.classes)) * len(self.classes)
        self._num_samples = rounded if num_samples is None else checked_count("num_samples", num_samples, least=1)
        self._digest = hashlib.blake2b(found.astype("<i8").tobytes(), digest_size=16).hexdigest()
        self._rings: Recent[NDArray[np.int64]] = Recent(1)

    @property
    def job_size(self) -> int:
        """Samples of the whole job per epoch."""
        return self._num_samples

    def at(self, positions: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Indices at ``positions`` of the whole job's order."""
        slots = permuted(positions, self.job_size, self._key(epoch, _SLOTS))
        classes = len(self.classes)
        turn, rest = np.divmod(slots, classes)
        # Which classes get the odd slots changes with the epoch.
        shift = int(uniforms(SampleKeys(self.seed, epoch, np.zeros(1, np.int64)), _STREAM, 1)[0, 0] * classes)
        chosen = (rest + shift) % classes
        turn += (epoch & 0xFFFFFFFF) * -(-self.job_size // classes)
        ring = self._rings.get((self.seed,), self._laid_out)
        places: NDArray[np.int64] = self._starts[chosen] + turn % self._counts[chosen]
        return ring[places]

    def _laid_out(self) -> NDArray[np.int64]:
        """All samples by class, each class in an order that the seed fixes."""
        words = np.random.Philox(np.random.SeedSequence((self.seed, _MEMBERS))).random_raw(len(self._class))
        return np.lexsort((words, self._class)).astype(np.int64)

    def parameters(self) -> dict[str, object]:
        """Number of labels, and a digest of them."""
        return {"length": len(self._class), "labels": self._digest}
