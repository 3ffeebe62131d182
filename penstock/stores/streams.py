"""Streams of shards: containers that are read from their beginning, such as tar files.

::

    shards      a.tar           b.tar           c.tar           d.tar
    rank 0      0, 1, 2, ...                    0, 1, 2, ...                records in order, shard after shard
    rank 1                      0, 1, 2, ...                    0, 1, ...
                                      └ StreamPosition(shard=1, record=2): where reading continues

A :class:`ShardStream` has no random access, unlike a :class:`~penstock.stores.base.Store`. Workers and ranks share the
shards, never the records of one shard. A stream holds no position and no open file: each call of
:meth:`ShardStream.records` reads on its own, in any thread or process.
"""

from __future__ import annotations

import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import xxhash

from penstock.errors import ArgumentError, StoreError, StoreNotFoundError
from penstock.stores.common.regular_file import identify, name_failure
from penstock.stores.location import Location, is_remote_url, read_file_url
from penstock.stores.patterns import expand_shards

if TYPE_CHECKING:
    from penstock.sample import Record, Schema

__all__ = ["ShardStream", "StreamPosition"]


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """The next record that a stream reads."""

    shard: int = 0  # number of the shard in :attr:`ShardStream.shards`
    record: int = 0  # number of the record in the shard


class ShardStream(ABC):
    """Shards whose records are read in order.

    Parameters
    ----------
    shards : str, path, Location, or sequence of these
        The shards; a text is expanded by :func:`~penstock.stores.patterns.expand_shards`, and so are URLs.
    storage_options, cache, cache_size
        For URLs, as for :func:`penstock.open`.

    Raises
    ------
    StoreNotFoundError
        If there is no shard, or none at a URL.
    StoreError
        If a place of URLs cannot be asked.

    Notes
    -----
    Pickled as its locations. Opening reads no shard; the schema is read from the first record when it is first used.
    Of URLs, size and version are asked for. Such a shard is read in parts of 4 MiB, of which up to 8 are fetched ahead.

    Examples
    --------
    A dataset whose shards are divided among workers::

        class ShardDataset(ps.IterableDataset):
            def __init__(self, stream):
                self.stream = stream

            def __iter__(self):
                worker = ps.get_worker_info()
                rank, count = (worker.id, worker.num_workers) if worker else (0, 1)
                for record, _ in self.stream.records(rank=rank, world_size=count):
                    yield record.fields
    """

    kind: ClassVar[str]
    """The name it is registered under; the scheme of its locations."""

    def __init__(
        self,
        shards: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        storage_options: Mapping[str, object] | None = None,
        cache: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
    ) -> None:
        given = [shards] if isinstance(shards, str | os.PathLike) else list(shards)
        options = {"storage_options": storage_options, "cache": cache, "cache_size": cache_size}
        runs = itertools.groupby(given, is_remote_url)
        self.shards: tuple[Location, ...] = tuple(
            shard
            for is_remote, run in runs
            for shard in (_locate_remote(self.kind, map(str, run), options) if is_remote else self._locate_all(run))
        )
        if not self.shards:
            raise StoreNotFoundError("there is no shard", store=str(shards))

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """Fields of the records; every record of every shard has them."""

    @abstractmethod
    def read_shard(self, shard: Location, first: int = 0) -> Iterator[Record]:
        """The records of one shard from number ``first`` on, in order; ``Record.index`` is the number in the shard.

        Raises
        ------
        StoreError
            If the shard cannot be read, or is damaged; names shard, key and index.
        """

    def assigned_shards(self, rank: int = 0, world_size: int = 1) -> range:
        """Return the numbers of the shards that ``rank`` of ``world_size`` readers reads; each shard has one reader.

        Raises
        ------
        ArgumentError
            If ``rank`` is not in ``0 .. world_size - 1``.
        """
        if not 0 <= rank < world_size:
            raise ArgumentError(f"rank must be in 0 .. world_size - 1, got rank {rank} of {world_size}")
        return range(rank, len(self.shards), world_size)

    def records(
        self, position: StreamPosition | None = None, *, rank: int = 0, world_size: int = 1
    ) -> Iterator[tuple[Record, StreamPosition]]:
        """The records of the assigned shards, each with the position behind it.

        Parameters
        ----------
        position : StreamPosition, optional
            Where to continue: what came with the last record that was used, from a reader of the same rank.
        rank, world_size : int
            The reader, and the number of readers: of all workers of all ranks.

        Raises
        ------
        ArgumentError
            If ``position`` is in a shard of another reader.
        StoreError
            As :meth:`read_shard`.
        """
        assigned = self.assigned_shards(rank, world_size)
        start = StreamPosition(rank) if position is None else position
        if position is not None and start.shard not in assigned:
            raise ArgumentError(
                f"position must be in a shard of rank {rank} of {world_size}, got shard {start.shard} of "
                f"{len(self.shards)}"
            )
        for number in assigned:
            if number >= start.shard:
                first = start.record if number == start.shard else 0
                for record in self.read_shard(self.shards[number], first):
                    yield record, StreamPosition(number, record.index + 1)

    def count_records(self) -> list[int]:
        """The number of records of each shard; reads all shards to their ends.

        Raises
        ------
        StoreError
            As :meth:`read_shard`.
        """
        return [sum(1 for _ in self.read_shard(shard)) for shard in self.shards]

    def fingerprint(self) -> str:
        """Return a short text that tells these shards, in this order, from others, by their names and sizes.

        Raises
        ------
        StoreError
            If a shard is missing.
        """
        state = xxhash.xxh3_128()
        for shard in self.shards:
            if shard.remote is not None:
                nbytes, name = shard.remote.nbytes, Path(shard.path).name
            else:
                try:
                    nbytes = identify(shard.local_path).nbytes if shard.is_local else 0
                except OSError as error:
                    raise StoreError(f"this shard cannot be read: {name_failure(error)}", store=str(shard)) from error
                name = shard.local_path.name if shard.is_local else str(shard)
            state.update(f"{name}\0{nbytes}\0".encode(errors="surrogateescape"))
        return state.hexdigest()

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.shards,)

    def __repr__(self) -> str:
        more = f", ... ({len(self.shards)} shards)" if len(self.shards) > 1 else ""
        return f"{type(self).__name__}({str(self.shards[0])!r}{more})"

    def _locate_all(self, shards: Iterable[str | os.PathLike[str]]) -> Iterator[Location]:
        return itertools.chain.from_iterable(map(self._locate, shards))

    def _locate(self, shard: str | os.PathLike[str]) -> list[Location]:
        if isinstance(shard, Location):
            return [shard]
        if not isinstance(shard, str):
            return [Location.from_path(self.kind, shard)]
        return [Location.from_path(self.kind, path) for path in expand_shards(read_file_url(shard))]


def _locate_remote(kind: str, urls: Iterable[str], options: Mapping[str, object]) -> list[Location]:
    from penstock.stores.remote.shards import locate_shards  # shards on this machine do not need it

    return locate_shards(kind, list(urls), options)
