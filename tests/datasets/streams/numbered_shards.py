"""A stream of shards without files, whose records are numbers; its locations say how many each shard has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import penstock as ps
from penstock.errors import CorruptRecordError
from penstock.sample import Field, Record, Schema
from penstock.stores.location import Location
from penstock.stores.streams import ShardStream

IN_SHARD = 10_000
"""Record ``i`` of shard ``s`` is the number ``s * IN_SHARD + i``."""


class NumberedShards(ShardStream):
    """Shards of ``lengths`` records."""

    kind: ClassVar[str] = "numbered"
    bad: ClassVar[frozenset[int]] = frozenset()
    """Numbers of records that cannot be used."""

    @classmethod
    def of(cls, lengths: Sequence[int]) -> NumberedShards:
        """A stream of so many records in each shard."""
        return cls([Location(cls.kind, f"/{number}-{length}") for number, length in enumerate(lengths)])

    @property
    def schema(self) -> Schema:
        """One number."""
        return Schema({"number": Field("int")})

    def read_shard(self, shard: Location, first: int = 0) -> Iterator[Record]:
        """Records by the name of the shard."""
        number, length = map(int, shard.path.removeprefix("/").split("-"))
        for index in range(first, length):
            value = number * IN_SHARD + index
            if value in self.bad:
                raise CorruptRecordError("bad", store=str(shard), index=index)
            yield Record(index, str(value), {"number": value})

    def fingerprint(self) -> str:
        """By the names."""
        return repr([shard.path for shard in self.shards])


def numbers_of(lengths: Sequence[int]) -> list[int]:
    """All numbers, in order."""
    return [shard * IN_SHARD + index for shard, length in enumerate(lengths) for index in range(length)]


def with_draw(number: int) -> tuple[int, float]:
    """The number, and a random number of its sample."""
    return number, float(ps.rng().random())


def make_stream(lengths: Sequence[int], **more: Any) -> ps.StreamDataset:
    """A dataset of numbers with draws."""
    return ps.StreamDataset(NumberedShards.of(lengths), "number", with_draw, **more)
