"""Sampling in which every class occurs equally often."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from penstock.rng import uniforms
from penstock.sample import SampleKeys
from penstock.samplers.base import check_count
from penstock.samplers.labels import Labels, as_class_labels
from penstock.samplers.permutation import permute
from penstock.samplers.ranks import RankSampler, RecentResults

__all__ = ["ClassBalancedSampler"]

_STREAM = 0xFFFC  # of Philox; see penstock.samplers.weighted
_SLOTS, _MEMBERS = 2, 3  # purposes of permutations


class ClassBalancedSampler(RankSampler):
    """Indices in which every class occurs exactly equally often in each epoch.

    The samples of each class have a circular order, which the seed determines. An epoch takes the next
    ``num_samples / classes`` samples of each class, and shuffles them. So in an epoch no sample of a class occurs twice
    before all others of its class have occurred; the samples of a large class are spread over several epochs.

    Parameters
    ----------
    labels : array_like of int, shape (n,), or store
        One class per sample, or a store whose column ``field`` has it; no image is read. Every value that occurs is a
        class, so leave out records without labels first (``SubsetRandomSampler``'s indices, ``Subset``).
    num_samples : int, optional
        Samples of the whole job per epoch. By default ``n`` rounded up to a multiple of the number of classes; where
        another number is no such multiple, some classes, others each epoch, occur once more than the rest.
    field : str
        The store's field.
    num_replicas, rank : int
        Number of ranks, and this rank's number: all ranks together have the order of one.
    seed : int, optional
        In [0, 2**64), the same on every rank. None, for one rank only: drawn from the operating system.
    drop_last : bool
        Where ``num_replicas`` does not divide ``num_samples``: leave out the tail (True), or repeat the head (False).

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
        num_replicas: int = 1,
        rank: int = 0,
        seed: int | None = None,
        drop_last: bool = False,
    ) -> None:
        super().__init__(num_replicas, rank, drop_last, seed)
        found = as_class_labels(labels, field)
        self.classes, self._class, counts = np.unique(found, return_inverse=True, return_counts=True)
        self._counts = counts.astype(np.int64)
        self._starts = np.cumsum(self._counts) - self._counts
        rounded = -(-len(found) // len(self.classes)) * len(self.classes)
        self._num_samples = rounded if num_samples is None else check_count("num_samples", num_samples, least=1)
        self._digest = hashlib.blake2b(found.astype("<i8").tobytes(), digest_size=16).hexdigest()
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
        """All samples by class; the seed determines the order in each class."""
        words = np.random.Philox(np.random.SeedSequence((self.seed, _MEMBERS))).random_raw(len(self._class))
        return np.lexsort((words, self._class)).astype(np.int64)

    def parameters(self) -> dict[str, object]:
        """Number of labels, and a digest of them."""
        return {"length": len(self._class), "labels": self._digest}
