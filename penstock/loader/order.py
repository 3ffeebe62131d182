"""What the order of samples hangs on, and what of it may change between saving a state and loading it.

::

    a state of 4 ranks, 3 batches of 8 each           the same epoch on 3 ranks
    origin 0, samples 24  ──consumed = 0 + 4 * 24──>  origin 96, samples 0: positions 96, 97, ... are dealt out anew
    the same state on 4 ranks  ─────────────────────>  origin 0, samples 24: the very next batch

Positions count the whole job's samples (batches, for a batch sampler), so that a state says the same on each rank that
has come equally far. Number of workers, kind of workers and rank are no part of any of it. Nothing here draws an index.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock.errors import StateError
from penstock.samplers import DistributedSampler, RandomAccess
from penstock.samplers.base import BatchAccess, Dealt

__all__ = ["Ranks", "check_order", "described", "is_shared_out", "length", "ranks_of", "rest_of", "seekable"]


@dataclass(frozen=True, slots=True)
class Ranks:
    """How a sampler's order is shared out.

    Parameters
    ----------
    num_replicas : int
        Number of ranks.
    unit : {"samples", "batches"}
        What positions count.
    """

    num_replicas: int
    unit: Literal["samples", "batches"]

    def consumed(self, origin: int, samples: int, batches: int) -> int:
        """Positions that all ranks together have consumed, if each has come as far as this one."""
        return origin + self.num_replicas * (samples if self.unit == "samples" else batches)


def seekable(sampler: Any) -> Literal["samples", "batches"] | None:
    """Whether samples or batches can be asked for by position; None if ``sampler`` has to be iterated.

    It has, if a subclass overrides ``__iter__`` alone: its order is then the iterated one.
    """
    if isinstance(sampler, RandomAccess) and _speaks_for_iteration(sampler, "order"):
        return "samples"
    if isinstance(sampler, BatchAccess) and _speaks_for_iteration(sampler, "batches"):
        return "batches"
    return None


def _speaks_for_iteration(sampler: Any, method: str) -> bool:
    for cls in type(sampler).__mro__:
        if method in vars(cls):
            return True
        if "__iter__" in vars(cls):
            return False
    return True


def ranks_of(sampler: Any) -> Ranks | None:
    """The ranks of a sampler whose rest can be dealt out to another number of them; None for any other."""
    unit = seekable(sampler)
    return Ranks(sampler.num_replicas, unit) if unit is not None and isinstance(sampler, Dealt) else None


def rest_of(sampler: Any, origin: int) -> Any:
    """What is left of a sampler's order after ``origin`` positions of the whole job."""
    return sampler.remaining(origin) if origin else sampler


def described(sampler: Any) -> dict[str, Any]:
    """What fixes a sampler's order, besides seed and epoch; the number of ranks is kept apart where it may change."""
    if seekable(sampler) is None:
        return {"type": None if sampler is None else type(sampler).__name__, "length": length(sampler)}
    signature = dict(sampler.signature())
    if ranks_of(sampler) is not None:
        signature.pop("num_replicas", None)
    return signature


def is_shared_out(sampler: Any, dataset: Any) -> bool:
    """Whether ``sampler`` gives each rank a share of all of ``dataset``: a :class:`DistributedSampler` of it."""
    return type(sampler) is DistributedSampler and sampler.dataset is dataset


def check_order(theirs: Any, ours: Mapping[str, Any], *, besides: frozenset[str] = frozenset(), at: str = "") -> None:
    """Refuse a state whose order is another one.

    Parameters
    ----------
    theirs, ours : mapping
        The state's and the loader's; mappings inside are compared field by field.
    besides : frozenset of str
        Fields that may differ.

    Raises
    ------
    StateError
        Naming the first field that differs, with both values.
    """
    if not isinstance(theirs, Mapping):
        raise StateError(f"the state's order{at} should be a mapping, but is {theirs!r:.200}")
    for name in {**ours, **theirs}:
        mine, saved = ours.get(name), theirs.get(name)
        if isinstance(mine, Mapping) and isinstance(saved, Mapping):
            check_order(saved, mine, at=f"{at}.{name}")
        elif mine != saved and name not in besides and not (name == "fingerprint" and (mine is None or saved is None)):
            raise StateError(
                f"the state was taken with {(at + '.' + name).lstrip('.')}={saved!r}, this loader has {mine!r}: "
                "its order of samples is another one"
            )


def length(sized: Any) -> int | None:
    """``len(sized)``, or None where there is none."""
    try:
        return len(sized)
    except (TypeError, NotImplementedError):  # it has none, or only says so when asked
        return None
