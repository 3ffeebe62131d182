"""When a pack that is being written commits; :class:`~penstock.stores.pack.writer.LmdbWriter` obeys it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CommitLimits"]


@dataclass(frozen=True, slots=True)
class CommitLimits:
    """When a commit is due, and how large the map is at first. The bytes of the file depend on these numbers.

    Parameters
    ----------
    records : int
        Largest number of records of a commit.
    nbytes : int
        Number of bytes that make a commit due at first; it is small, such that writing begins while the rest is read.
        Once eight times as many are committed, commits are eight times as large, and each is synced. A kill of the
        process loses at most the pending records, a power failure at most those and the first 64 MB.
    map_nbytes : int
        The first size of the map.
    """

    records: int = 16384
    nbytes: int = 8 << 20
    map_nbytes: int = 1 << 30

    def is_due(self, records: int, nbytes: int, committed_nbytes: int) -> bool:
        """Whether pending records must be committed now."""
        enough = 8 * self.nbytes if self.must_sync(committed_nbytes) else self.nbytes
        return records >= self.records or nbytes >= enough

    def must_sync(self, committed_nbytes: int) -> bool:
        """Whether a commit that makes this many bytes must reach the disk before packing goes on."""
        return committed_nbytes >= 8 * self.nbytes
