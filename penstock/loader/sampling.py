"""The samplers of a loader: the caller's, or those that the loader makes."""

from __future__ import annotations

from typing import TypeGuard

from penstock.datasets.base import is_iterable
from penstock.loader.arguments import Arguments
from penstock.loader.order import Fingerprint, Order, has_all_samples, length
from penstock.sample import StateDict
from penstock.samplers import BatchSampler, BucketBatchSampler, RandomSampler, SequentialSampler
from penstock.samplers.base import MakesSampler

__all__ = ["LoaderOrder", "makes_sampler"]


def makes_sampler(dataset: object) -> TypeGuard[MakesSampler]:
    """Return whether ``dataset`` is a :class:`~penstock.samplers.base.MakesSampler` itself, and no proxy of one."""
    return issubclass(type(dataset), MakesSampler)


class LoaderOrder(Order):
    """The order of :class:`penstock.loader.DataLoader`; made once, from checked arguments.

    Attributes
    ----------
    own_sampler, batch_sampler, batch_size, drop_last
        The loader's attributes ``sampler``, ``batch_sampler``, ``batch_size``, ``drop_last``.
    """

    def __init__(self, given: Arguments, seed: int) -> None:
        is_stream = is_iterable(given.dataset)
        self._is_own = given.sampler is None and given.batch_sampler is None and not is_stream
        sampler, batch_sampler = given.sampler, given.batch_sampler
        if is_stream:
            sampler = None
        elif sampler is None and makes_sampler(given.dataset):
            sampler = given.dataset.make_sampler(shuffle=bool(given.shuffle), seed=seed)
        elif sampler is None and given.shuffle:
            sampler = RandomSampler(given.dataset, seed=seed)
        elif sampler is None:
            sampler = SequentialSampler(given.dataset)
        self.batch_size, self.drop_last = given.batch_size, given.drop_last
        if batch_sampler is not None:
            self.batch_size, self.drop_last = None, False
        elif given.batch_size is not None and not is_stream:
            batch_sampler = BatchSampler(sampler, given.batch_size, given.drop_last)
        self.own_sampler, self.batch_sampler = sampler, batch_sampler
        batched = batch_sampler is not None or (is_stream and given.batch_size is not None)
        index_sampler = sampler if batch_sampler is None else batch_sampler
        super().__init__(given.dataset, index_sampler, batched=batched, fingerprint=Fingerprint(given.dataset))

    @property
    def rows(self) -> int:
        """Most rows of a batch, where that is known beforehand; else 1."""
        if not isinstance(self.batch_sampler, (BatchSampler, BucketBatchSampler)):
            return 1
        rows: int = self.batch_sampler.batch_size
        return min(rows, max(length(self.dataset) or rows, 1))  # batch_size=10**9 is the whole dataset

    @property
    def population(self) -> int:
        """How many samples may replace one of another batch; 0 where not all of the dataset is drawn from.

        An order that somebody else made may be of one split alone: no replacement comes from outside of it.
        """
        return len(self.dataset) if self._is_own or has_all_samples(self.sampler, self.dataset) else 0

    @property
    def sampler_seed(self) -> int | None:
        """The seed that the sampler has, which is no part of the order: a state brings its own."""
        seed = getattr(self.sampler, "seed", None)
        return seed if isinstance(seed, int) else None

    def describe(self) -> StateDict:
        """Return what fixes the order, with ``batch_size`` and ``drop_last``."""
        batches = self.batch_sampler
        cut = batches if isinstance(batches, BatchSampler) else self
        return {**super().describe(), "batch_size": cut.batch_size, "drop_last": cut.drop_last}

    def count_batches(self) -> int:
        """Return the number of batches of an epoch; of a stream, as its ``len()`` says."""
        if not self.is_stream:
            return len(self.index_sampler)
        count = len(self.dataset)
        if self.batch_size is None:
            return count
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
