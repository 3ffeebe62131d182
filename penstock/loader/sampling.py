"""What a loader draws from: its sampler and batch sampler, or a stream, and the order and plan that these make.

Made once from checked arguments, asked whenever an epoch begins and a state is saved or loaded. It draws no index and
keeps no position: plans do (:mod:`penstock.loader.plan`), and states (:mod:`penstock.loader.state`).
"""

from __future__ import annotations

from typing import Any

from penstock.datasets.base import fingerprint_of, is_iterable
from penstock.errors import StateError
from penstock.loader.arguments import Arguments
from penstock.loader.order import Ranks, described, is_shared_out, length, ranks_of, rest_of, seekable
from penstock.loader.plan import BatchPlan, ForeignPlan, IndexPlan, Plan, StreamPlan
from penstock.loader.state import Progress
from penstock.samplers import BatchSampler, BucketBatchSampler, RandomSampler, SequentialSampler

__all__ = ["Sampling"]


class Sampling:
    """The samplers of a loader, the caller's or its own.

    Parameters
    ----------
    given : Arguments
        The loader's, checked.
    seed : int
        Of the order, where it is the loader's own.

    Attributes
    ----------
    sampler, batch_sampler, batch_size, drop_last
        As the loader's attributes of these names.
    stream : bool
        Whether the dataset is iterated, not indexed.
    own : bool
        Whether the order is the loader's own: all of the dataset is drawn from.
    batched : bool
        Whether samples come in batches.
    """

    def __init__(self, given: Arguments, seed: int) -> None:
        self._dataset = given.dataset
        self.stream = is_iterable(given.dataset)
        self.own = given.sampler is None and given.batch_sampler is None and not self.stream
        sampler, batch_sampler = given.sampler, given.batch_sampler
        if self.stream:
            sampler = None
        elif sampler is None and given.shuffle:
            sampler = RandomSampler(given.dataset, seed=seed)
        elif sampler is None:
            sampler = SequentialSampler(given.dataset)
        self.batch_size, self.drop_last = given.batch_size, given.drop_last
        if batch_sampler is not None:
            self.batch_size, self.drop_last = None, False
        elif given.batch_size is not None and not self.stream:
            batch_sampler = BatchSampler(sampler, given.batch_size, given.drop_last)
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.batched = batch_sampler is not None or (self.stream and given.batch_size is not None)
        self._identity: str | None = None
        self._identified = False

    @property
    def rows(self) -> int:
        """Most rows of a batch, where that is known beforehand; else 1."""
        if not isinstance(self.batch_sampler, (BatchSampler, BucketBatchSampler)):
            return 1
        rows: int = self.batch_sampler.batch_size
        return min(rows, max(length(self._dataset) or rows, 1))  # batch_size=10**9 is the whole dataset

    @property
    def population(self) -> int:
        """How many samples may stand in for one of another batch; 0 where not all of the dataset is drawn from.

        An order that somebody else made may be of one split alone: no stand-in comes from outside of it.
        """
        whole = self.own or is_shared_out(self._inner(), self._dataset)
        return len(self._dataset) if whole else 0

    @property
    def ranks(self) -> Ranks | None:
        """The ranks of a sampler whose rest can be dealt out to another number of them; None for any other."""
        return ranks_of(self._inner())

    @property
    def seed(self) -> int | None:
        """The sampler's own, if it has one."""
        seed = getattr(self._inner(), "seed", None)
        return seed if isinstance(seed, int) else None

    @seed.setter
    def seed(self, seed: int) -> None:
        self._inner().seed = seed

    def expected(self) -> int | None:
        """Samples of a whole epoch; None: unknown."""
        if self.stream:
            return length(self._dataset)
        return length(self.sampler) if self._cut() else None

    def plan(self, seed: int, progress: Progress) -> Plan:
        """The tasks of an epoch from where ``progress`` stands."""
        at = seed, progress.epoch, progress.batches
        if self.stream:
            return StreamPlan(*at)
        sampler, cut = self._inner(), self._cut()
        unit = seekable(sampler)
        if unit == "samples" and cut is not None:
            return IndexPlan(rest_of(sampler, progress.origin), *cut, *at)
        if unit == "batches" and cut is None:
            return BatchPlan(rest_of(sampler, progress.origin), *at)
        size, drop_last = cut or (None, False)
        return ForeignPlan(sampler, size, drop_last, *at, progress.sampler)

    def check_position(self, progress: Progress) -> None:
        """Compare batches with samples, where the order alone says how many samples so many batches have.

        Raises
        ------
        StateError
            If they do not fit.
        """
        sampler, cut = self._inner(), self._cut()
        unit = seekable(sampler)
        if unit == "samples" and cut is not None:
            fits = progress.samples == min(progress.batches * cut[0], len(rest_of(sampler, progress.origin)))
        else:
            fits = unit != "batches" or progress.batches <= len(rest_of(sampler, progress.origin))
        if not fits:
            raise StateError(f"the state's samples={progress.samples} do not fit its batches={progress.batches}")

    def order(self) -> dict[str, Any]:
        """What fixes the order, besides seed and epoch; JSON-able."""
        batches = self.batch_sampler
        known = isinstance(batches, BatchSampler)
        return {
            "dataset": None if self.stream else length(self._dataset),
            "fingerprint": self._fingerprint(),
            "sampler": described(self._inner()),
            "batch_size": batches.batch_size if known else self.batch_size,
            "drop_last": batches.drop_last if known else self.drop_last,
        }

    def _inner(self) -> Any:
        """The sampler whose indices are only cut into batches; else what draws batches."""
        batches = self.batch_sampler
        if batches is None:
            return self.sampler
        return batches.sampler if type(batches) is BatchSampler else batches

    def _cut(self) -> tuple[int, bool] | None:
        """Batch size and ``drop_last`` where samples are drawn and cut into batches; None where batches are drawn."""
        batches = self.batch_sampler
        if batches is None:
            return 1, False
        return (batches.batch_size, batches.drop_last) if type(batches) is BatchSampler else None

    def _fingerprint(self) -> str | None:
        """The dataset's, asked for once: it may take a while."""
        if not self._identified:
            self._identity, self._identified = fingerprint_of(self._dataset), True
        return self._identity
