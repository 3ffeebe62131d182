"""The order of a torch loader: which index samplers can be begun anywhere, and what the others draw from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.dataloader import _InfiniteConstantSampler

from penstock.loader.order import Order, length
from penstock.loader.recipe import Settings
from penstock.sample import StateDict
from penstock.samplers import BatchSampler as OwnBatchSampler
from penstock.torch.loader.randomness import generators_of

if TYPE_CHECKING:
    from penstock.torch.loader.randomness import Randomness

__all__ = ["TorchOrder", "TorchSettings"]

_FIXED: Final = frozenset(
    {SequentialSampler, DistributedSampler, _InfiniteConstantSampler, range, list, tuple, torch.Tensor}
)
"""Samplers whose order depends on no random state of the program."""
_SHUFFLING: Final = frozenset({RandomSampler, SubsetRandomSampler, WeightedRandomSampler})
"""Samplers that draw from their generator, or torch's global one, and from nothing else."""


class TorchOrder(Order):
    """The order of a torch loader; ``index_sampler`` is ``loader._index_sampler``."""

    CUTTING = frozenset({BatchSampler, OwnBatchSampler})
    seed: int | None = None
    """The loader's."""

    def describe(self) -> StateDict:
        """Describe what fixes the order, and the loader's seed, as JSON keeps it."""
        return {**super().describe(), "seed": self.seed}

    def describe_sampler(self) -> StateDict:
        """Describe what fixes the sampler's order; of a foreign sampler its type, length and some attributes."""
        if self.unit is not None:
            return super().describe_sampler()
        sampler = self.sampler
        names = [name for name in ("replacement", "num_replicas", "rank") if hasattr(sampler, name)]
        shown = {"type": type(sampler).__name__, "length": None if self.is_stream else length(sampler)}
        return {**shown, **{name: getattr(sampler, name) for name in names}}

    def draws_from_globals(self) -> tuple[bool, bool]:
        """Return whether the order may be drawn from torch's global generator; from other global ones."""
        if type(self.sampler) in _FIXED or self.unit is not None:
            return False, False
        if type(self.sampler) in _SHUFFLING:
            return self.sampler.generator is None, False
        return True, True

    def is_fixed(self) -> bool:
        """Whether the order depends on no random state, but on the sampler's seed and epoch: it may be drawn early."""
        return not self.is_stream and (self.unit is not None or type(self.sampler) in _FIXED)

    def takes_given_generators(self) -> bool:
        """Return whether it is drawn from given generators or global ones.

        Another sampler may make a generator itself.
        """
        return type(self.sampler) in _FIXED | _SHUFFLING or self.unit is not None


@dataclass(slots=True)
class TorchSettings(Settings):
    """What an iterator of a torch loader reads of it; see :class:`penstock.loader.recipe.Settings`."""

    order: TorchOrder
    generator: torch.Generator | None = None  # the loader's
    restores_globals: bool = True  # whether a state that is resumed puts global random generators back

    def generators(self) -> list[torch.Generator]:
        """Return the generators that loader and samplers were given."""
        return generators_of(self, self.order.index_sampler)

    def restore(self, states: Randomness) -> None:
        """Put back global generators, and those of the loader and its samplers."""
        states.restore(self.generators(), all_given=self.order.takes_given_generators())
