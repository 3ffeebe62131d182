"""What every registered stream of shards promises; a new one inherits these tests by its registration and a maker."""

from __future__ import annotations

import io
import pickle
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import ArgumentError, StoreError, StoreNotFoundError
from penstock.stores import STREAMS
from penstock.stores.streams import ShardStream, StreamPosition

SHARDS, RECORDS = 5, 4
Example = tuple[str, bytes, int]


def examples(shard: int) -> list[Example]:
    """Key, image and label of each record of a shard."""
    return [(f"{shard}/{number:02d}", bytes([shard, number]) * 700, 10 * shard + number) for number in range(RECORDS)]


def write_tar(path: Path, records: list[Example]) -> None:
    """Write records as WebDataset does."""
    with tarfile.open(path, "w") as tar:
        for key, image, label in records:
            for suffix, content in (("jpg", image), ("cls", str(label).encode())):
                member = tarfile.TarInfo(f"{key}.{suffix}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


WRITERS: dict[str, Callable[[Path, list[Example]], None]] = {"tar": write_tar}


@pytest.fixture(params=list(STREAMS))
def stream(request: pytest.FixtureRequest, tmp_path: Path) -> ShardStream:
    """A stream of each registered kind, of five shards with four records each."""
    for shard in range(SHARDS):
        WRITERS[request.param](tmp_path / f"{shard}.shard", examples(shard))
    kind: type[ShardStream] = STREAMS.get(request.param)
    return kind(str(tmp_path / "{0..4}.shard"))


def as_examples(
    stream: ShardStream, position: StreamPosition | None = None, *, rank: int = 0, world_size: int = 1
) -> list[Example]:
    """What a reader reads."""
    records = (record for record, _ in stream.records(position, rank=rank, world_size=world_size))
    return [(record.key, bytes(record.fields["image"]), record.fields["label"]) for record in records]


def test_every_registered_stream_is_made_here() -> None:
    """A stream that is registered is held to this suite."""
    assert set(WRITERS) == set(STREAMS)


def test_records_come_in_order(stream: ShardStream) -> None:
    """One reader reads all shards, one after the other, as often as it is asked."""
    expected = [example for shard in range(SHARDS) for example in examples(shard)]

    assert as_examples(stream) == expected
    assert as_examples(stream) == expected
    assert {name: field.kind for name, field in stream.schema.fields.items()} == {"image": "image", "label": "label"}


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
def test_readers_share_the_shards(stream: ShardStream, world_size: int) -> None:
    """Each shard has one reader; together they read every record once; a reader may have none."""
    found = [as_examples(stream, rank=rank, world_size=world_size) for rank in range(world_size)]

    for rank, read in enumerate(found):
        assert read == [example for shard in range(rank, SHARDS, world_size) for example in examples(shard)]


@pytest.mark.parametrize("world_size", [1, 2])
def test_reading_continues_at_every_position(stream: ShardStream, world_size: int) -> None:
    """The position behind a record gives the rest, also of another process's stream."""
    rank = world_size - 1
    whole = as_examples(stream, rank=rank, world_size=world_size)
    copy = pickle.loads(pickle.dumps(stream))

    for number, (_, position) in enumerate(stream.records(rank=rank, world_size=world_size), 1):
        assert as_examples(copy, position, rank=rank, world_size=world_size) == whole[number:]


def test_a_record_knows_its_number_in_the_shard(stream: ShardStream) -> None:
    """Index and position count from 0 in each shard."""
    found = [(position.shard, record.index, position.record) for record, position in stream.records()]

    assert found == [(shard, number, number + 1) for shard in range(SHARDS) for number in range(RECORDS)]


def test_a_position_of_another_reader_is_refused(stream: ShardStream) -> None:
    """Nothing is read twice, or left out, because the number of readers changed."""
    with pytest.raises(ArgumentError, match="must be in a shard of rank 0 of 2, got shard 1 of 5"):
        next(stream.records(StreamPosition(1, 2), rank=0, world_size=2))
    for rank, world_size in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(ArgumentError, match="rank must be in"):
            stream.assigned_shards(rank, world_size)


def test_a_missing_shard_is_named(stream: ShardStream) -> None:
    """A shard that is not there is an error when it is its turn, with its path."""
    stream.shards[3].local_path.unlink()
    records = stream.records()

    read = [next(records) for _ in range(3 * RECORDS)]

    assert len(read) == 3 * RECORDS
    with pytest.raises(StoreNotFoundError) as caught:
        next(records)
    assert caught.value.where["store"] == str(stream.shards[3])


def test_the_fingerprint_of_a_missing_shard_is_an_error_of_ours(stream: ShardStream) -> None:
    """It names the shard, and what the system says."""
    stream.shards[3].local_path.unlink()

    with pytest.raises(StoreError, match="No such file or directory") as caught:
        stream.fingerprint()

    assert caught.value.where["store"] == str(stream.shards[3])


@pytest.mark.parametrize("share", [0.0, 0.3, 0.55])
def test_a_truncated_shard_is_an_error(stream: ShardStream, share: float) -> None:
    """What was cut off is not silently the end of the shard."""
    path = stream.shards[2].local_path
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content)) - 700 if share else 0])

    with pytest.raises(StoreError) as caught:
        as_examples(stream)

    assert caught.value.where["store"] == str(stream.shards[2])


def test_fingerprints_tell_shards_apart(stream: ShardStream) -> None:
    """A copy has the same fingerprint; other shards, or another order of them, have others."""
    kind = type(stream)
    others = [kind(stream.shards[:-1]), kind(stream.shards[::-1])]

    assert kind(list(stream.shards)).fingerprint() == stream.fingerprint()
    assert stream.fingerprint() not in {other.fingerprint() for other in others}


class ShardDataset(ps.IterableDataset[Any]):
    """The example in the documentation of ShardStream."""

    def __init__(self, stream: ShardStream) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[Any]:
        worker = ps.get_worker_info()
        rank, count = (worker.id, worker.num_workers) if worker else (0, 1)
        for record, _ in self.stream.records(rank=rank, world_size=count):
            yield record.fields["label"]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_workers_read_each_record_once(stream: ShardStream, num_workers: int) -> None:
    """A loader's worker processes divide the shards."""
    workers = {"workers": "processes", "num_workers": num_workers} if num_workers else {"workers": "serial"}
    loader = ps.DataLoader(ShardDataset(stream), 3, **workers)

    labels = [label for batch in loader for label in batch.tolist()]

    assert sorted(labels) == sorted(label for shard in range(SHARDS) for _, _, label in examples(shard))
