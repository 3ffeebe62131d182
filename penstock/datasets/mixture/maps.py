"""Mixtures of map-style datasets: a concatenation, and the arithmetic of what is drawn from it.

::

    index of a sampler of the mixture   10**d and above   its rest is the sample's place in the concatenation
    any other index                     a position        sample of the first epoch, sources in their own order

So samplers that do not know mixtures, such as torch's, give the same shares: they draw positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.base import spec_of
from penstock.datasets.concat import ConcatDataset
from penstock.datasets.mixture.mixture import Mixture, SourceStats
from penstock.datasets.mixture.sampler import MixtureOrder, MixtureSampler
from penstock.datasets.streams.division import StatefulObject
from penstock.datasets.subset import IndexedDataset
from penstock.errors import ArgumentError
from penstock.sample import Index, Sample, Tree
from penstock.samplers.base import MakesSampler
from penstock.samplers.ranks import DropLast

__all__ = ["MapMixture"]


class MapMixture(Mixture, IndexedDataset[Sample], MakesSampler):
    """A :class:`Mixture` of map-style datasets; fills if all sources fill with one spec.

    ``len()`` is the number of samples of an epoch. ``mixture[position]`` is a sample of the first epoch, without
    shuffling: so samplers that do not know mixtures draw with the same shares, but the same samples in each epoch.
    """

    def _set_up(self) -> None:
        sizes = np.array(list(map(len, self.sources.values())), np.int64)
        length = self.until if isinstance(self.until, int) else self.interleaving.find_length(sizes, self.until)
        self.order = MixtureOrder(self.interleaving, sizes, length)
        self.dataset: ConcatDataset[Sample] = ConcatDataset(self.sources.values())

    def __len__(self) -> int:
        """Samples of an epoch."""
        return self.order.length

    def make_sampler(
        self,
        *,
        shuffle: bool = True,
        seed: int | None = None,
        num_replicas: int | None = 1,
        rank: int | None = 0,
        drop_last: DropLast = False,
    ) -> MixtureSampler:
        """Return the sampler of this mixture. A loader without a sampler makes one for a single rank.

        Parameters
        ----------
        shuffle : bool
            A new order of the samples of each source in each of its epochs; False: their own order. The order of the
            sources is random in both cases.
        seed : int, optional
            In [0, 2**64), and the same on every rank. None, for one rank only: drawn from the operating system.
        num_replicas, rank, drop_last
            As for :class:`~penstock.DistributedSampler`; None: as :func:`~penstock.find_world` finds them. A state fits
            any number of ranks.

        Raises
        ------
        ArgumentError
            If an argument is out of range.
        """
        return MixtureSampler(
            self.order, num_replicas=num_replicas, rank=rank, shuffle=shuffle, seed=seed, drop_last=drop_last
        )

    def locate(self, indices: Sequence[Index] | NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of samples in the concatenation of all sources.

        Parameters
        ----------
        indices : sequence of int, shape (n,)
            What a sampler of the mixture drew, or positions in [-len, len).

        Returns
        -------
        ndarray of int64, shape (n,)

        Raises
        ------
        IndexError
            If an index is neither.
        TypeError
            If one is no integer.
        """
        order, found = self.order, np.asarray(indices)
        if found.dtype.kind not in "iu" and len(found):
            raise TypeError(f"indices of a mixture must be integers, got {indices!r:.200}")
        found = found.astype(np.int64)
        places: NDArray[np.int64] = found % order.stride
        positions = np.flatnonzero(found < order.stride)
        outside = places >= self.dataset.cumulative_sizes[-1]
        outside[positions] = (found[positions] < -order.length) | (found[positions] >= order.length)
        if outside.any():
            raise IndexError(f"index {found[outside][0]} is out of range of {order.length} samples of the mixture")
        if len(positions):
            sources, numbers = self.interleaving.draw(found[positions] % order.length)
            places[positions] = order.starts[sources] + numbers % order.sizes[sources]
        return places

    def stats(self, loader: StatefulObject) -> dict[str, SourceStats]:
        """Return what a loader of this mixture has delivered of each source, by the state of its sampler."""
        state = loader.state_dict()
        state = state.get("penstock", state)  # in torchdata's layout
        described = state["order"]["sampler"]
        if described.get("type") != "MixtureSampler" or described.get("mixture") != self.order.digest():
            raise ArgumentError(
                f"stats must be asked for a loader whose sampler is one of this mixture, got {described.get('type')}: "
                "give the loader the mixture without a sampler, or sampler=mixture.make_sampler(...)"
            )
        ranks, delivered = state["ranks"], state.get("delivered", state["samples"])
        consumed = min(ranks["origin"] + ranks["num_replicas"] * delivered, self.order.length)
        counts = self.order.count(consumed, state["sampler_seed"], state["epoch"])
        return {
            name: SourceStats(count, count / max(sum(counts), 1), count // size)
            for name, count, size in zip(self.sources, counts, self.order.sizes.tolist(), strict=True)
        }

    def fingerprint(self) -> str | None:
        """Return one fingerprint of all sources that have one, in order."""
        return self.dataset.fingerprint()

    def spec(self) -> Tree | None:
        """Return the spec that all sources share; None if they differ in shape or dtype.

        Raises
        ------
        ArgumentError
            If all sources fill rows, and have different fields.
        """
        specs = {name: spec_of(source) for name, source in self.sources.items()}
        fields = [sorted(map(str, spec)) if isinstance(spec, dict) else type(spec).__name__ for spec in specs.values()]
        for name, found in zip(specs, fields, strict=True):
            if None not in specs.values() and found != fields[0]:
                raise ArgumentError(
                    f"the sources of a mixture must have the same fields, got {fields[0]} for {next(iter(specs))!r} "
                    f"and {found} for {name!r}"
                )
        return super().spec()
