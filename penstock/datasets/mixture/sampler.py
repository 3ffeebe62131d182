"""The sampler of a mixture of map-style datasets: which sample of which source is at each position of the job.

::

    position of the job ──interleaving──> source i, its draw k ──> epoch k // n of the source, position k % n in it
                                                                            │ permuted by (seed, source, epoch)
    index = (epoch of the source + 1) * 10**d + sample of the concatenation  <┘

So a sample that comes again has another index, and with it other random numbers. An index of the mixture itself, below
``10**d``, is a position (:class:`~penstock.datasets.mixture.maps.MapMixture`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.mixture.interleaving import BLOCK, MAX_POSITION, Interleaving, permute_blocks
from penstock.errors import ArgumentError
from penstock.samplers.permutation import permute
from penstock.samplers.ranks import DropLast, RankSampler, find_missing

__all__ = ["MixtureOrder", "MixtureSampler"]

_SOURCES = 8  # purpose of permutations; see penstock.samplers.ranks


@dataclass(frozen=True, slots=True)
class MixtureOrder:
    """What the order of a mixture depends on, besides the seed."""

    interleaving: Interleaving  # the draws of the job
    sizes: NDArray[np.int64]  # samples of each source, shape (sources,)
    length: int  # draws of an epoch

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each source begins in the concatenation."""
        starts: NDArray[np.int64] = np.cumsum(self.sizes) - self.sizes
        return starts

    @property
    def stride(self) -> int:
        """Least index that a sampler of the mixture draws: a power of ten."""
        return int(10 ** len(str(max(int(self.sizes.sum()), self.length))))

    def draw(self, positions: NDArray[np.int64], seed: int, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the source at each position of an epoch, and how many draws the source had before it in the job."""
        first = epoch * self.length
        if first + self.length > MAX_POSITION:
            raise ArgumentError(
                f"epoch must be below {MAX_POSITION // self.length} for epochs of {self.length} samples, got {epoch}"
            )
        return permute_blocks(self.interleaving, positions, (seed, epoch), first, self.length)

    def count(self, position: int, seed: int, epoch: int) -> list[int]:
        """Draws of each source in the job before a position of an epoch."""
        begin = position // BLOCK * BLOCK
        sources, _ = self.draw(np.arange(begin, position, dtype=np.int64), seed, epoch)
        counts = self.interleaving.counts(epoch * self.length + begin) + np.bincount(sources, minlength=len(self.sizes))
        return [int(count) for count in counts]

    def digest(self) -> str:
        """Return a short text that tells these shares and sizes from others."""
        described = self.sizes.tolist(), [(stage.start, *stage.shares) for stage in self.interleaving.stages]
        return hashlib.blake2b(repr(described).encode(), digest_size=16).hexdigest()


class MixtureSampler(RankSampler):
    """Indices of a mixture of map-style datasets; :meth:`Mixture.make_sampler` makes it.

    Parameters
    ----------
    mixture : MixtureOrder
        What is drawn from.
    num_replicas, rank, shuffle, seed, drop_last
        As for :meth:`~penstock.datasets.mixture.maps.MapMixture.make_sampler`.
    """

    def __init__(
        self,
        mixture: MixtureOrder,
        *,
        num_replicas: int | None = 1,
        rank: int | None = 0,
        shuffle: bool = True,
        seed: int | None = None,
        drop_last: DropLast = False,
    ) -> None:
        super().__init__(*find_missing(num_replicas, rank), drop_last, seed)
        if not isinstance(shuffle, bool):
            raise ArgumentError(f"shuffle should be a boolean value, but got shuffle={shuffle!r}")
        self.mixture, self.shuffle = mixture, shuffle
        self._digest = mixture.digest()

    @property
    def job_size(self) -> int:
        """Samples of the whole job per epoch."""
        return self.mixture.length

    def at(self, positions: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Indices at ``positions`` of the job's order."""
        order = self.mixture
        sources, numbers = order.draw(positions, self.seed, epoch)
        epochs, samples = np.divmod(numbers, order.sizes[sources])
        if self.shuffle:
            by_group = np.lexsort((epochs, sources))
            changes = np.diff(sources[by_group]) | np.diff(epochs[by_group])
            for group in np.split(by_group, np.flatnonzero(changes) + 1) if len(positions) else ():
                source = int(sources[group[0]])
                key = self.seed, int(epochs[group[0]]), _SOURCES, source
                samples[group] = permute(samples[group], int(order.sizes[source]), key)
        stride = order.stride
        indices: NDArray[np.int64] = (epochs % ((1 << 62) // stride) + 1) * stride + order.starts[sources] + samples
        return indices

    def parameters(self) -> dict[str, object]:
        """A digest of sizes and shares, and whether it shuffles."""
        return {"mixture": self._digest, "shuffle": self.shuffle}
