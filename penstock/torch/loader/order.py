"""What the order of a torch loader hangs on: which index samplers can be seeked, and where a state's position is here.

The rules are those of :mod:`penstock.loader.order`; this module reads them off torch's loader, whose index sampler is
its batch sampler, or its sampler without batches. Nothing here draws an index or a random number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

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

from penstock.datasets.base import fingerprint_of, is_iterable
from penstock.loader import order
from penstock.loader.order import Ranks, check_order, described, length, ranks_of
from penstock.loader.state import Progress, shared_out
from penstock.samplers import BatchSampler as OwnBatchSampler
from penstock.torch.datasets import native

if TYPE_CHECKING:
    from penstock.torch.loader.terms import Terms

__all__ = [
    "BATCHING",
    "Identity",
    "draws_from_globals",
    "innermost",
    "order_of",
    "placed",
    "ranks",
    "sampler_seed",
    "seekable",
]

BATCHING: Final = frozenset({BatchSampler, OwnBatchSampler})
"""Batch samplers that do nothing but cut what their sampler gives; a subclass may do anything."""


_FIXED: Final = frozenset(
    {SequentialSampler, DistributedSampler, _InfiniteConstantSampler, range, list, tuple, torch.Tensor}
)
"""Samplers whose order no random state of the program's decides."""
_SHUFFLING: Final = frozenset({RandomSampler, SubsetRandomSampler, WeightedRandomSampler})
"""Samplers that draw from their generator, or torch's global one, and from nothing else."""


class Identity:
    """What tells a loader's dataset from others of its length; asked for once, since it may take a while.

    Parameters
    ----------
    dataset : dataset
        The loader's.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._known = False
        self._fingerprint: str | None = None

    def fingerprint(self) -> str | None:
        """The dataset's own, or that of what it wraps; None where it does not say."""
        if not self._known:
            self._fingerprint, self._known = fingerprint_of(native(self._dataset)), True
        return self._fingerprint


def innermost(index_sampler: Any) -> Any:
    """The sampler whose indices are only cut into batches; else the index sampler itself."""
    return index_sampler.sampler if type(index_sampler) in BATCHING else index_sampler


def seekable(terms: Terms) -> Literal["samples", "batches"] | None:
    """What the order can be asked for by position; None if the index sampler must be walked."""
    inner = innermost(terms.index_sampler)
    unit = order.seekable(inner)
    drawn = "batches" if inner is terms.index_sampler and terms.batched else "samples"
    return unit if unit == drawn else None


def ranks(terms: Terms) -> Ranks | None:
    """The ranks of a sampler whose rest can be dealt out to another number of them; None for any other."""
    return None if seekable(terms) is None else ranks_of(innermost(terms.index_sampler))


def sampler_seed(terms: Terms) -> int | None:
    """The seed of a sampler of penstock's, which is no part of the order: a state brings its own."""
    seed = getattr(innermost(terms.index_sampler), "seed", None)
    return seed if seekable(terms) is not None and isinstance(seed, int) else None


def order_of(terms: Terms) -> dict[str, Any]:
    """What fixes the order besides random states; JSON-able."""
    sampler, dataset = innermost(terms.index_sampler), terms.dataset
    stream = is_iterable(dataset)
    if seekable(terms) is not None:
        shown = described(sampler)
    else:
        shown = {"type": type(sampler).__name__, "length": None if stream else length(sampler)}
        shown |= {
            name: getattr(sampler, name) for name in ("replacement", "num_replicas", "rank") if hasattr(sampler, name)
        }
    return {
        "dataset": None if stream else length(dataset),
        "fingerprint": terms.identity.fingerprint(),
        "sampler": shown,
        "batch_size": getattr(terms.index_sampler, "batch_size", None),
        "drop_last": getattr(terms.index_sampler, "drop_last", False),
        "seed": terms.seed,
    }


def placed(progress: Progress, own: Mapping[str, Any], terms: Terms) -> Progress:
    """Where a state's progress is in the order of this loader: ``progress`` itself, unless there are other ranks.

    Parameters
    ----------
    progress : Progress
        All that was delivered.
    own : mapping
        The state's part that is penstock's: its ``order`` and ``ranks`` are read.
    terms : Terms
        The loader's.

    Raises
    ------
    StateError
        If the state belongs to a loader with another order.
    """
    ours = ranks(terms)
    if ours is not None and own.get("ranks") is not None:
        return shared_out(progress, own, order_of(terms), ours)
    check_order(own["order"], order_of(terms))
    return progress


def draws_from_globals(terms: Terms) -> tuple[bool, bool]:
    """Whether the order may come from torch's global generator; from other global ones."""
    sampler = innermost(terms.index_sampler)
    if type(sampler) in _FIXED or seekable(terms) is not None:
        return False, False
    if type(sampler) in _SHUFFLING:
        return sampler.generator is None, False
    return True, True


def takes_given_generators(terms: Terms) -> bool:
    """Whether the sampler draws from a generator it was given, or from global ones; a foreign one may make its own."""
    return type(innermost(terms.index_sampler)) in _FIXED | _SHUFFLING or seekable(terms) is not None
