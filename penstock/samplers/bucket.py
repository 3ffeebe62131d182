"""Batches of samples of similar size: by aspect ratio, length or area.

::

    sizes --boundaries--> buckets         each shuffled anew every epoch, then cut into batches
    bucket 0   [####][####][####][##]     '##': the bucket's short batch
    bucket 1   [####][####][####][####][####][#]
                                          with runs of 2 (for 2 ranks, say):
    epoch      [1 1][0 0][1 1] [0][1] [0'][1']
               '--- runs, ---' '-----' '----- the short batches
                 shuffled         full batches that fill no run

A run is ``run_length`` successive batches of one bucket. A step of the job takes ``num_replicas`` successive batches,
one for each rank: ranks work on samples of similar size at the same time, and do not wait for one another. Other
samples are in the batches at the end of each epoch.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.errors import ArgumentError
from penstock.samplers.base import check_count
from penstock.samplers.permutation import permute
from penstock.samplers.ranks import RankedSampler, RankRemainder, RecentResults

__all__ = ["BucketBatchSampler"]

_RUNS, _SINGLES, _SHORTS, _MEMBERS = 6, 7, 8, 9  # purposes of permutations

_KEPT: Final = 1 << 22
"""Largest bucket whose order is computed once per epoch and kept (32 MiB); that of a larger one batch by batch."""

_logger = logging.getLogger(__name__)


class BucketBatchSampler(RankedSampler[list[int]]):
    """Lists of indices of samples of similar size; every sample occurs once per epoch.

    Parameters
    ----------
    sizes : array_like of float, shape (n,)
        One number per sample: its aspect ratio, length, area, ...
    batch_size : int
        Samples per batch.
    boundaries : sequence of float, optional
        Increasing; bucket ``b`` has ``boundaries[b - 1] <= size < boundaries[b]``, the first and last are open.
    num_buckets : int, optional
        Instead of ``boundaries``: quantiles of ``sizes``, so that buckets have about the same number of samples. There
        are fewer buckets where many sizes are equal.
    shuffle : bool
        Shuffle samples in each bucket, and batches, anew each epoch; False: bucket after bucket, indices ascending.
    drop_last : bool
        Leave out short batches, at most one of each bucket; :meth:`dropped` counts their samples.
    uneven : {"pad", "drop", "keep"}
        Where ``num_replicas`` does not divide the number of batches: repeat the epoch's first ones
        (:meth:`find_repeats` says which these are), or leave out its last ones (:meth:`dropped` counts them too), so
        that each rank has equally many batches. "keep": neither; the first ranks have one batch more.
    num_replicas, rank : int
        Number of ranks, and this rank's number.
    run_length : int, optional
        Successive batches of one bucket; ``num_replicas`` by default. It determines the order: to resume on another
        number of ranks, give the same number, best a multiple of all numbers of ranks.
    seed : int, optional
        In [0, 2**64), the same on every rank. None, for one rank only: drawn from the operating system.

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    State is O(1) and counts batches of all ranks. Memory: 8 bytes per sample, and up to 16 more while iterated.
    """

    def __init__(
        self,
        sizes: Sequence[float] | ArrayLike,
        batch_size: int,
        *,
        boundaries: Sequence[float] | ArrayLike | None = None,
        num_buckets: int | None = None,
        shuffle: bool = True,
        drop_last: bool = False,
        uneven: str = "pad",
        num_replicas: int = 1,
        rank: int = 0,
        run_length: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(num_replicas, rank, "uneven" if uneven == "keep" else uneven == "drop", seed)
        self.batch_size = check_count("batch_size", batch_size, least=1)
        for name, value in (("shuffle", shuffle), ("drop_last", drop_last)):
            if not isinstance(value, bool):
                raise ArgumentError(f"{name} should be a boolean value, but got {name}={value!r}")
        if uneven not in {"pad", "drop", "keep"}:
            raise ArgumentError(f"uneven should be 'pad', 'drop' or 'keep', but got uneven={uneven!r}")
        self.shuffle, self.drop_last, self.uneven = shuffle, drop_last, uneven
        self.run_length = check_count("run_length", num_replicas if run_length is None else run_length, least=1)
        checked = _check_sizes(sizes)
        self.boundaries = _boundaries(checked, boundaries, num_buckets)
        bucket = np.searchsorted(self.boundaries, checked, side="right")
        self._members = np.argsort(bucket, kind="stable").astype(np.int64)
        counts = np.bincount(bucket, minlength=len(self.boundaries) + 1).astype(np.int64)
        self._batches = _BatchTable.of(counts, self.batch_size, self.run_length, drop_last)
        digest = hashlib.blake2b(bucket.astype("<i8").tobytes(), digest_size=16).hexdigest()
        self._digest = digest
        self._orders: RecentResults[NDArray[np.int64]] = RecentResults(
            2 * len(counts)
        )  # of each bucket, for two epochs
        if self.dropped():
            _logger.info("%d of %d samples are left out of each epoch", self.dropped(), len(checked))

    @property
    def job_size(self) -> int:
        """Batches of all ranks per epoch, before any is repeated or left out."""
        return len(self._batches)

    def dropped(self, epoch: int | None = None) -> int:
        """Number of samples in no batch of any rank in ``epoch``; None: the epoch set last."""
        left_out = len(self._members) - int(self._batches.counts.sum()) if self.drop_last else 0
        total, share = self.job_size, len(self) * self.num_replicas
        if share >= total or self.is_uneven:
            return left_out
        cut = self.at(np.arange(share, total), self.epoch if epoch is None else epoch)
        return left_out + sum(stop - start for _, start, stop in map(self._batches.place, cut.tolist()))

    def batches(self, start: int, stop: int, epoch: int | None = None) -> list[list[int]]:
        """Batches ``start..stop`` (cut at the end) of this rank in ``epoch``; None: the epoch set last."""
        return self.remaining(0).batches(start, stop, epoch)

    def remaining(self, consumed: int) -> RemainingBatches:
        """Return the part of this rank in what remains of an epoch after all ranks have consumed ``consumed`` batches.

        That number of ranks may have been another one, if ``run_length`` is the same.
        """
        return RemainingBatches(self, RankRemainder(self, check_count("consumed", consumed, least=0)))

    def _walk(self, position: int, epoch: int) -> Iterator[list[int]]:
        return map(partial(self._make_batch, epoch=epoch), self._walk_numbers(position, epoch))

    def _make_batch(self, number: int, epoch: int) -> list[int]:
        """Return the indices of the batch of this number."""
        bucket, start, stop = self._batches.place(number)
        first, count = int(self._batches.starts[bucket]), int(self._batches.members[bucket])
        places = np.arange(start, stop)
        if self.shuffle and count <= _KEPT:
            key = self.seed, epoch, bucket
            places = self._orders.get(key, lambda: self._shuffled(np.arange(count), bucket, epoch))[start:stop]
        elif self.shuffle:
            places = self._shuffled(places, bucket, epoch)
        found: list[int] = self._members[first + places].tolist()
        return found

    def _shuffled(self, places: NDArray[np.int64], bucket: int, epoch: int) -> NDArray[np.int64]:
        return permute(places, int(self._batches.members[bucket]), (self.seed, epoch, _MEMBERS, bucket))

    def at(self, positions: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Return numbers of batches: shuffled runs, then shuffled single batches, then short ones."""
        if not self.shuffle:
            return positions
        runs, singles, shorts = self._batches.zones
        length, found = self._batches.run_length, positions.copy()
        run, turn = np.divmod(positions, length)
        inside = run < runs
        found[inside] = permute(run[inside], runs, self._key(epoch, _RUNS)) * length + turn[inside]
        for first, count, purpose in (
            (runs * length, singles, _SINGLES),
            (runs * length + singles, shorts, _SHORTS),
        ):
            inside = (positions >= first) & (positions < first + count)
            found[inside] = first + permute(positions[inside] - first, count, self._key(epoch, purpose))
        return found

    def signature(self) -> dict[str, object]:
        """Parameters that determine the order, without seed and rank; O(1) in size."""
        return {
            "type": "BucketBatchSampler",
            "length": len(self._members),
            "buckets": self._digest,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "uneven": self.uneven,
            "run_length": self.run_length,
            "num_replicas": self.num_replicas,
        }


@dataclass(frozen=True, slots=True)
class RemainingBatches:
    """The part of one rank in what remains of an epoch, with random access; position 0 is where it begins."""

    sampler: BucketBatchSampler
    numbers: RankRemainder

    def __len__(self) -> int:
        return len(self.numbers)

    def batches(self, start: int, stop: int, epoch: int | None = None) -> list[list[int]]:
        """Batches ``start..stop`` of what remains."""
        make_batch = self.sampler._make_batch  # noqa: SLF001  # a view of its sampler
        epoch = self.sampler.epoch if epoch is None else epoch
        return [make_batch(number, epoch) for number in self.numbers.order(start, stop, epoch).tolist()]

    def find_repeats(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Find which batches ``start..stop`` of what remains only fill the last step of a rank."""
        return self.numbers.find_repeats(start, stop)

    def signature(self) -> dict[str, object]:
        """Return the sampler's signature, with ``consumed``."""
        return self.numbers.signature()


@dataclass(frozen=True, slots=True)
class _BatchTable:
    """The batches of an epoch by number: those in runs, then single full ones, then short ones; each by bucket."""

    size: int
    run_length: int
    """``size`` and ``run_length``: samples per batch, batches per run."""
    members: NDArray[np.int64]  # (buckets,): samples of each bucket
    counts: NDArray[np.int64]  # (buckets,): samples of each bucket that are in batches
    starts: NDArray[np.int64]  # (buckets,): where the samples of each bucket begin in the array of all
    run_ends: NDArray[np.int64]  # (buckets,): runs, up to each bucket's last
    single_ends: NDArray[np.int64]  # (buckets,): single full batches, up to each bucket's last
    short: NDArray[np.int64]  # buckets with a short batch

    @classmethod
    def of(cls, members: NDArray[np.int64], size: int, run_length: int, drop_last: bool) -> _BatchTable:
        """Cut buckets with these numbers of members into batches."""
        full, odd = np.divmod(members, size)
        runs, singles = np.divmod(full, run_length)
        short = np.flatnonzero(odd) if not drop_last else np.empty(0, np.int64)
        counts = members - odd if drop_last else members
        starts = np.cumsum(members) - members
        return cls(size, run_length, members, counts, starts, np.cumsum(runs), np.cumsum(singles), short)

    @property
    def zones(self) -> tuple[int, int, int]:
        """Numbers of runs, of single full batches, and of short batches."""
        return int(self.run_ends[-1]), int(self.single_ends[-1]), len(self.short)

    def __len__(self) -> int:
        runs, singles, shorts = self.zones
        return runs * self.run_length + singles + shorts

    def place(self, number: int) -> tuple[int, int, int]:
        """Bucket, and start and stop among its members, of the batch of this number."""
        runs, singles, _ = self.zones
        single = number - runs * self.run_length
        if single < 0:
            run, turn = divmod(number, self.run_length)
            bucket = int(np.searchsorted(self.run_ends, run, side="right"))
            batch = (run - self._before(self.run_ends, bucket)) * self.run_length + turn
        elif single < singles:
            bucket = int(np.searchsorted(self.single_ends, single, side="right"))
            in_runs = int(self.run_ends[bucket]) - self._before(self.run_ends, bucket)
            batch = in_runs * self.run_length + single - self._before(self.single_ends, bucket)
        else:
            bucket = int(self.short[single - singles])
            batch = int(self.members[bucket]) // self.size
        start = batch * self.size
        return bucket, start, min(start + self.size, int(self.members[bucket]))

    @staticmethod
    def _before(ends: NDArray[np.int64], bucket: int) -> int:
        return int(ends[bucket - 1]) if bucket else 0


def _check_sizes(sizes: Sequence[float] | ArrayLike) -> NDArray[np.float64]:
    found = _numbers("sizes", sizes)
    if not len(found):
        raise ArgumentError("sizes must have at least one sample, got none")
    if not np.isfinite(found).all():
        first = int((~np.isfinite(found)).argmax())
        raise ArgumentError(f"sizes should be finite, but sizes[{first}] is {found[first]}")
    return found


def _boundaries(
    sizes: NDArray[np.float64], boundaries: Sequence[float] | ArrayLike | None, num_buckets: int | None
) -> NDArray[np.float64]:
    if (boundaries is None) == (num_buckets is None):
        raise ArgumentError(
            "give one of boundaries and num_buckets, but got "
            f"boundaries={boundaries!r:.200}, num_buckets={num_buckets!r}"
        )
    if boundaries is None:
        count = check_count("num_buckets", num_buckets, least=1)
        # A quantile that is a size itself, so that it means the same on every machine.
        inner = np.arange(1, count) / count
        quantiles: NDArray[np.float64] = np.unique(np.quantile(sizes, inner, method="higher")) if count > 1 else inner
        return np.extract(quantiles > sizes.min(), quantiles)
    found = _numbers("boundaries", boundaries)
    if not (np.isfinite(found).all() and (np.diff(found) > 0).all()):
        raise ArgumentError(f"boundaries should be finite and increasing, but got {boundaries!r:.200}")
    return found


def _numbers(name: str, values: object) -> NDArray[np.float64]:
    try:
        found = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{name} should be a 1d sequence of numbers, but got {values!r:.200}") from error
    if found.ndim != 1:
        raise ArgumentError(f"{name} should be a 1d sequence of numbers, but got one of shape {found.shape}")
    return found
