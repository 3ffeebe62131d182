"""What the order of samples depends on, and what of it may change between saving a state and loading it.

::

    a state of 4 ranks, 3 batches of 8 each           the same epoch on 3 ranks
    origin 0, samples 24  ──consumed = 0 + 4 * 24──>  origin 96, samples 0: the order from position 96 on, on 3 ranks
    the same state on 4 ranks  ─────────────────────>  origin 0, samples 24: the very next batch

Positions count the whole job's samples (batches, for a batch sampler), so that the state is the same on each rank that
has come equally far. Number of workers, kind of workers and rank are no part of it. Nothing here draws an index.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.base import is_iterable, look_ahead, prefetch
from penstock.datasets.fingerprints import get_fingerprint
from penstock.datasets.streams.division import DivisibleStream
from penstock.errors import ArgumentError, StateError
from penstock.loader.plan import SamplerPlan, TaskPlan, plan_ahead, plan_batches, plan_samples
from penstock.loader.position import Position
from penstock.sample import DatasetLike, SamplerLike, State, StateDict
from penstock.samplers import BatchSampler, DistributedSampler, RandomAccess, Sampler
from penstock.samplers.base import BatchAccess, RankPartitioned

if TYPE_CHECKING:
    from penstock.loader.sampler_cursor import SamplerCursor

__all__ = ["Fingerprint", "Order", "Ranks", "check_order", "has_all_samples", "length", "place_on_ranks"]


@dataclass(frozen=True, slots=True)
class Ranks:
    """How a sampler divides its order between ranks."""

    num_replicas: int  # number of ranks
    unit: Literal["samples", "batches"]  # what positions count
    is_uneven: bool = False  # whether some may have one position more than others

    def consumed(self, origin: int, samples: int, batches: int) -> int:
        """Positions that all ranks together have consumed, if each has come as far as this one."""
        return origin + self.num_replicas * (samples if self.unit == "samples" else batches)


class Fingerprint:
    """What distinguishes a dataset from others of its length; computed once, since it may take a while."""

    def __init__(self, dataset: DatasetLike) -> None:
        self._dataset = dataset

    @functools.cached_property
    def value(self) -> str | None:
        """The dataset's own; None where it has none."""
        return get_fingerprint(self._dataset)


class Order:
    """A loader's index sampler and dataset, and what can be known of their order without drawing."""

    CUTTING: frozenset[type] = frozenset({BatchSampler})
    """Batch samplers that only cut what their sampler draws; a subclass may do anything."""

    def __init__(
        self, dataset: DatasetLike, index_sampler: SamplerLike, *, batched: bool, fingerprint: Fingerprint
    ) -> None:
        self.dataset, self.index_sampler, self.batched, self._fingerprint = dataset, index_sampler, batched, fingerprint
        self.is_stream = is_iterable(dataset)

    @property
    def cuts(self) -> bool:
        """Whether the index sampler only cuts into batches what its ``sampler`` draws."""
        return type(self.index_sampler) in self.CUTTING

    @property
    def sampler(self) -> SamplerLike:
        """The sampler whose indices are only cut into batches; else the index sampler itself."""
        return self.index_sampler.sampler if self.cuts else self.index_sampler

    @property
    def unit(self) -> Literal["samples", "batches"] | None:
        """Whether samples or batches can be drawn from any position; None if the sampler has to be iterated."""
        unit = seekable(self.sampler)
        return unit if unit == ("batches" if self.batched and not self.cuts else "samples") else None

    @property
    def ranks(self) -> Ranks | None:
        """The ranks of a sampler whose rest can be divided between another number of them; None for any other."""
        return None if self.unit is None else ranks_of(self.sampler)

    @property
    def sampler_seed(self) -> int | None:
        """The seed of a sampler of penstock's, which is no part of the order: a state brings its own."""
        seed = getattr(self.sampler, "seed", None)
        return seed if self.unit is not None and isinstance(seed, int) else None

    def cut(self) -> tuple[int, bool] | None:
        """Batch size and ``drop_last`` where samples are drawn; None where batches are drawn."""
        if self.cuts:
            return self.index_sampler.batch_size, self.index_sampler.drop_last
        return None if self.batched else (1, False)

    def expected_samples(self) -> int | None:
        """Samples of a whole epoch; None where that is unknown."""
        if self.is_stream:
            return length(self.dataset)
        return length(self.sampler) if self.cut() is not None else None

    def describe(self) -> StateDict:
        """Return what fixes the order besides seed and epoch, as JSON keeps it."""
        return {
            "dataset": None if self.is_stream else length(self.dataset),
            "fingerprint": self._fingerprint.value,
            "sampler": self.describe_sampler(),
            "batch_size": getattr(self.index_sampler, "batch_size", None),
            "drop_last": getattr(self.index_sampler, "drop_last", False),
        }

    def describe_sampler(self) -> StateDict:
        """Return what fixes the sampler's order; the number of ranks is kept apart where it may change."""
        if seekable(self.sampler) is None:
            sampler = self.sampler
            return {"type": None if sampler is None else type(sampler).__name__, "length": length(sampler)}
        signature = dict(self.sampler.signature())
        if ranks_of(self.sampler) is not None:
            signature.pop("num_replicas", None)
        return signature

    def check_position(self, position: Position) -> None:
        """Compare batches with samples, where the order alone fixes how many samples so many batches have.

        Raises StateError if they do not fit.
        """
        cut, unit = self.cut(), self.unit
        if unit is None:
            return
        count = len(rest_of(self.sampler, position.origin))
        ranks = self.ranks
        slack = int(ranks is not None and ranks.is_uneven)  # the state may be that of a rank with one more, or less
        if unit == "samples" and cut is not None:
            fits = abs(position.samples - min(position.batches * cut[0], count)) <= slack
        else:
            fits = position.batches <= count + slack
        if not fits:
            raise StateError(f"the state's samples={position.samples} do not fit its batches={position.batches}")

    def make_plan(
        self, seed: int, position: Position, cursor: SamplerCursor | None, *, fills: bool, checks_length: bool = False
    ) -> TaskPlan:
        """Plan the tasks of an epoch from ``position`` on; ``cursor`` is there where the sampler is iterated."""
        if cursor is None:
            plan, samples = self.seek(seed, position), look_ahead(self.dataset)
            return plan_ahead(plan, functools.partial(prefetch, self.dataset), samples) if samples else plan
        expected = length(self.sampler) if checks_length else None
        return SamplerPlan(
            cursor, batched=self.batched, seed=seed, epoch=position.epoch, start=position.batches, fills=fills,
            expected=expected,
        )  # fmt: skip

    def seek(self, seed: int, position: Position) -> TaskPlan:
        """The tasks of an epoch from ``position`` on, where they can be begun anywhere; nothing is announced."""
        cut, start = self.cut(), (seed, position.epoch, position.batches)
        rest = rest_of(self.sampler, position.origin)
        return plan_batches(rest, len(rest), *start) if cut is None else plan_samples(rest, len(rest), *cut, *start)

    def find_repeats(self, origin: int, batch: int, rows: int) -> NDArray[np.bool_]:
        """Find which of the ``rows`` samples of a batch only give all ranks equal steps, counted from ``origin``.

        Raises
        ------
        ArgumentError
            If the dataset is a stream, or the sampler knows ranks and does not say which samples it repeats.
        """
        if self.is_stream:
            raise ArgumentError("find_repeats() needs a map-style dataset: nothing says which samples a stream repeats")
        cut = self.cut()
        if self.ranks is not None:
            rest = rest_of(self.sampler, origin)
            if cut is None:
                return np.repeat(rest.find_repeats(batch, batch + 1), rows)
            found: NDArray[np.bool_] = rest.find_repeats(batch * cut[0], batch * cut[0] + rows)
            return found
        if getattr(self.sampler, "num_replicas", 1) != 1:
            raise ArgumentError(
                f"{type(self.sampler).__name__} does not say which samples it repeats; use penstock.DistributedSampler"
            )
        return np.zeros(rows, np.bool_)

    def set_sampler_epoch(self, epoch: int) -> None:
        """Give the epoch to a sampler of penstock's that is iterated; one that is seeked gets it with each question."""
        if isinstance(self.index_sampler, Sampler) and self.unit is None:
            self.index_sampler.set_epoch(epoch)
        if isinstance(self.sampler, Sampler) and self.unit is None:
            self.sampler.set_epoch(epoch)


def seekable(sampler: SamplerLike) -> Literal["samples", "batches"] | None:
    """Return whether samples or batches can be drawn from any position; None if ``sampler`` has to be iterated.

    It has to, if a subclass overrides ``__iter__`` alone: its order is then the iterated one.
    """
    if isinstance(sampler, RandomAccess) and _agrees_with_iteration(sampler, "order"):
        return "samples"
    if isinstance(sampler, BatchAccess) and _agrees_with_iteration(sampler, "batches"):
        return "batches"
    return None


def _agrees_with_iteration(sampler: SamplerLike, method: str) -> bool:
    for cls in type(sampler).__mro__:
        if method in vars(cls):
            return True
        if "__iter__" in vars(cls):
            return False
    return True


def ranks_of(sampler: SamplerLike) -> Ranks | None:
    """Return the ranks of a sampler whose rest can be divided between another number of them; None for any other."""
    unit = seekable(sampler)
    if unit is None or not isinstance(sampler, RankPartitioned):
        return None
    return Ranks(sampler.num_replicas, unit, bool(getattr(sampler, "is_uneven", False)))


def rest_of(sampler: SamplerLike, origin: int) -> SamplerLike:
    """Return what is left of a sampler's order after ``origin`` positions of the whole job."""
    return sampler.remaining(origin) if origin else sampler


def has_all_samples(sampler: SamplerLike, dataset: DatasetLike) -> bool:
    """Return whether ``sampler`` is a :class:`DistributedSampler` of all of ``dataset``."""
    return type(sampler) is DistributedSampler and sampler.dataset is dataset


def check_order(
    theirs: object, ours: Mapping[str, State], *, besides: frozenset[str] = frozenset(), at: str = ""
) -> None:
    """Raise a StateError if a state's order differs from the loader's, but for the fields ``besides``."""
    if not isinstance(theirs, Mapping):
        raise StateError(f"the state's order{at} must be a mapping, got {theirs!r:.200}")
    for name in {**ours, **theirs}:
        mine, saved = ours.get(name), theirs.get(name)
        if isinstance(mine, Mapping) and isinstance(saved, Mapping):
            check_order(saved, mine, at=f"{at}.{name}")
        elif name == "rank" and ours.get("type") == DistributedSampler.__name__:
            continue  # torch's: ranks take equal steps, and some programs keep the state of rank 0 alone
        elif mine != saved and name not in besides and not (name == "fingerprint" and (mine is None or saved is None)):
            raise StateError(
                f"the state was taken with {(at + '.' + name).lstrip('.')}={saved!r}, this loader has {mine!r}: "
                "its order of samples is another one"
            )


def place_on_ranks(position: Position, state: Mapping[str, State], order: Order) -> Position:
    """``position`` as it was on equally many ranks; on others a new one, from where all of them together were.

    Reads ``ranks`` and ``order`` of ``state``; raises a StateError if the order is another one, or is known to as many
    ranks only.
    """
    saved, ranks = state.get("ranks"), order.ranks
    if ranks is None or saved is None:
        # Items are consumed, not batches, of a stream that is divided anew.
        free = frozenset({"batch_size"}) if isinstance(order.dataset, DivisibleStream) else frozenset[str]()
        check_order(state["order"], order.describe(), besides=free)
        return position
    if not isinstance(saved, Mapping) or {"num_replicas", "origin"} - saved.keys():
        raise StateError(f"the state's ranks must have num_replicas and origin, got {saved!r:.200}")
    check_count("ranks.num_replicas", saved["num_replicas"], least=1)
    check_count("ranks.origin", saved["origin"], least=0)
    position.origin = saved["origin"]
    theirs = replace(ranks, num_replicas=saved["num_replicas"])
    if theirs == ranks:
        check_order(state["order"], order.describe())
        return position
    # Positions are consumed, not batches: another number of ranks may cut them into other batches.
    check_order(state["order"], order.describe(), besides=frozenset({"batch_size"}))
    if position.ahead:
        raise StateError(
            f"the state of {theirs.num_replicas} ranks has batches beyond a gap (in_order=False), which are unknown to "
            f"{ranks.num_replicas} ranks; resume on {theirs.num_replicas}, or from the next epoch"
        )
    samples = position.samples
    if ranks.is_uneven:  # the state may be that of a rank whose last batch is shorter than those of others
        size = state["order"].get("batch_size") or 1
        check_count("order.batch_size", size, least=1)
        samples = position.batches * size
    consumed = theirs.consumed(position.origin, samples, position.batches)
    return Position(position.epoch, origin=consumed, lost=position.lost, workers=position.workers)


def check_count(name: str, value: object, *, least: int) -> None:
    """Raise a StateError if the state's ``name`` is no int of at least ``least``, 0 or 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        kind = "a positive" if least else "a non-negative"
        raise StateError(f"the state's {name} must be {kind} int, got {value!r:.200}")


def length(sized: object) -> int | None:
    """``len(sized)``, or None where there is none."""
    try:
        return len(sized)  # type: ignore[arg-type]  # whatever it is
    except (TypeError, NotImplementedError):  # it has none, or only says so when asked
        return None
