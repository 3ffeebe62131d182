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

import glob
import itertools
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import xxhash

from penstock.errors import ArgumentError, StoreNotFoundError
from penstock.paths import refuse_remote
from penstock.stores.location import Location, is_remote_url, read_file_url

if TYPE_CHECKING:
    from penstock.sample import Record, Schema

__all__ = ["ShardStream", "StreamPosition", "expand_braces", "expand_shards", "is_own_file"]

_BRACES: Final = re.compile(r"\{([^{}]*)\}")
_RANGE: Final = re.compile(r"([0-9]+)\.\.([0-9]+)")
_MAX_SHARDS: Final = 1_000_000
_OWN_SUFFIX: Final = ".index.npz"
"""Of the indexes beside shards (:mod:`penstock.stores.common.record_index`), which ``train*`` would match."""


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """The next record that a stream reads.

    Parameters
    ----------
    shard : int
        Number of the shard in :attr:`ShardStream.shards`.
    record : int
        Number of the record in the shard.
    """

    shard: int = 0
    record: int = 0


class ShardStream(ABC):
    """Shards whose records are read in order.

    Parameters
    ----------
    shards : str, path, Location, or sequence of these
        The shards; a text is expanded by :func:`expand_shards`. URLs, which may be patterns too, as for
        :func:`penstock.open`.
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
    Places of URLs are asked for size and version of each shard. A shard at a URL is read in parts of 4 MiB, of which up
    to 8 are fetched ahead; they are kept in the cache as far as it has room.

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
        """The numbers of the shards that ``rank`` of ``world_size`` readers reads; each shard has one reader.

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

    def fingerprint(self) -> str:
        """A short text that tells these shards, in this order, from others, by their names and sizes."""
        state = xxhash.xxh3_128()
        for shard in self.shards:
            if shard.remote is not None:
                nbytes, name = shard.remote.nbytes, Path(shard.path).name
            else:
                nbytes = shard.local_path.stat().st_size if shard.is_local else 0
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


def expand_shards(pattern: str) -> list[str]:
    """The paths that a pattern stands for.

    Parameters
    ----------
    pattern : str
        A path with braces (``train-{000..009}.tar``, ``{a,b}.tar``), whose order they give, or with wildcards
        (``train-*.tar``), sorted by name. A path without either, or of an existing file, stands for itself.

    Raises
    ------
    ArgumentError
        If the braces give more than a million paths.

    Examples
    --------
    >>> expand_shards("{train,val}-{08..10}.tar")[2:4]
    ['train-10.tar', 'val-08.tar']
    """
    if os.path.lexists(pattern):
        return [pattern]
    refuse_remote(pattern)
    return [found for path in expand_braces(pattern) for found in _expand_wildcards(path)]


def expand_braces(pattern: str) -> list[str]:
    """The texts that the braces of a pattern give, in their order; ArgumentError if they are more than a million."""
    pieces = _BRACES.split(pattern)  # text, content of braces, text, ...
    choices = [_expand_braces(piece) if number % 2 else [piece] for number, piece in enumerate(pieces)]
    count = 1
    for each in choices:
        count *= len(each)
    if count > _MAX_SHARDS:
        raise ArgumentError(f"a pattern must give at most {_MAX_SHARDS} shards, got {count} from {pattern!r}")
    return ["".join(parts) for parts in itertools.product(*choices)]


def is_own_file(name: str) -> bool:
    """Whether a file is an index that lies beside a shard, which wildcards do not stand for."""
    return name.endswith(_OWN_SUFFIX)


def _expand_wildcards(path: str) -> list[str]:
    if os.path.lexists(path) or not glob.has_magic(path):
        return [path]
    found = glob.glob(path)  # noqa: PTH207  # the pattern may be absolute
    return sorted(each for each in found if not is_own_file(each))


def _expand_braces(content: str) -> Sequence[str]:
    span = _RANGE.fullmatch(content)
    if span is None:
        return content.split(",") if "," in content else [f"{{{content}}}"]
    first, last = int(span[1]), int(span[2])
    if abs(last - first) >= _MAX_SHARDS:
        raise ArgumentError(f"a pattern must give at most {_MAX_SHARDS} shards, got {{{content}}}")
    step = 1 if first <= last else -1
    width = len(span[1]) if span[1].startswith("0") or len(span[1]) == len(span[2]) else 0
    return [f"{number:0{width}d}" for number in range(first, last + step, step)]
