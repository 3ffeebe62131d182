"""What becomes of samples that cannot be built: the rules for a job, and the record of one sample."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from penstock.datasets.error_location import location_of
from penstock.errors import PenstockError
from penstock.sample import Index

__all__ = ["LeftOut", "SampleRules"]

_REASON: Final = 1000
"""Characters of a reason."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A sample that was drawn and is not in its batch.

    Parameters
    ----------
    epoch, batch : int
        Where it was to be; ``batch`` counts from 0 in each epoch.
    index : object
        What the sampler drew; for a stream the sample's number in it (in its worker's share, where workers are
        processes).
    store, key : str, optional
        Where its record is kept, if the dataset says so.
    reason : str
        What the error said.
    type : str
        The error's type.
    worker : int, optional
        The worker process that tried; None in threads and in the main process.
    row : int, optional
        The row of the batch that the sample was drawn for, counted before samples are left out; None in a stream.
    """

    epoch: int
    batch: int
    index: Index
    store: str | None
    key: str | None
    reason: str
    type: str
    worker: int | None = None
    row: int | None = None

    @classmethod
    def of(cls, error: BaseException, epoch: int, batch: int, index: Index, row: int | None = None) -> LeftOut:
        """The record of a sample that could not be built because of ``error``."""
        place = location_of(error)
        store, key = place.get("store"), place.get("key")
        reason = error.message if isinstance(error, PenstockError) else str(error)
        return cls(
            epoch,
            batch,
            getattr(index, "item", lambda: index)(),
            None if store is None else str(store),
            None if key is None else str(key),
            reason[:_REASON],
            type(error).__qualname__,
            row=row,
        )

    def line(self) -> str:
        """The record as JSON; an index that JSON does not know, as its ``repr``."""
        names = ("store", "key", "index", "epoch", "batch", "worker", "type", "reason")
        return json.dumps({name: getattr(self, name) for name in names}, default=repr)


@dataclass(frozen=True, slots=True)
class SampleRules:
    """How a job builds samples; part of it, so that workers know."""

    on_error: str = "raise"  # what becomes of a sample that fails
    # where a batch has no sample that could stand in for another: how many samples of the dataset, from the
    # first, may. 0, unless the sampler draws from all of the dataset: a stand-in must not come from another split
    population: int = 0
    seed_per_sample: bool = False  # whether global random generators are seeded from each sample's key
    seed_per_batch: bool = False  # whether worker processes seed them from each batch's

    @property
    def tolerant(self) -> bool:
        """Whether a batch may come without some of its samples."""
        return self.on_error != "raise"
