"""Shards at several URLs, patterns of URLs, and streams of shards there."""

from __future__ import annotations

import gzip
import io
import pickle
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import ArgumentError, PenstockError, StoreError, StoreFormatError, StoreNotFoundError
from penstock.stores.common import compression
from penstock.stores.common.mirrors import find_mirror
from penstock.stores.remote import object_store as places
from penstock.stores.remote import request_queue
from penstock.stores.streams import StreamPosition
from penstock.stores.tar.stream import TarStream
from tests.servers.s3_server import S3Server
from tests.servers.web import serving
from tests.stores import written
from tests.stores.remote import memory_place
from tests.stores.remote.memory_place import URL
from tests.stores.remote.test_remote import wait_until_quiet

pytest.importorskip("obstore")
SHARDS, RECORDS = 4, 5


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty place; waits between attempts are short, and so are parts."""
    monkeypatch.setattr(places, "_WAIT", (0.001, 0.002))
    monkeypatch.setattr(compression, "_PART_NBYTES", 4096)
    memory_place.clear()
    yield
    memory_place.clear()


def make_shard(number: int) -> bytes:
    """A tar file of WebDataset."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for record in range(RECORDS):
            for suffix, content in (("jpg", bytes([number, record]) * 4000), ("cls", b"%d" % record)):
                member = tarfile.TarInfo(f"{number}/{record:02d}.{suffix}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


def put_shards(folder: Path, ending: str = ".tar") -> None:
    """The shards ``a/train-0.tar`` and so on, in the place and on this machine."""
    (folder / "a").mkdir(parents=True)
    for number in range(SHARDS):
        content = make_shard(number)
        content = gzip.compress(content, mtime=0) if ending.endswith("gz") else content
        memory_place.put({f"a/train-{number}{ending}": content})
        (folder / "a" / f"train-{number}{ending}").write_bytes(content)


def as_tuples(records: Any) -> list[tuple[str, bytes, int]]:
    """Key, image and label of records."""
    return [(record.key, bytes(record.fields["image"]), record.fields["label"]) for record in records]


PATTERNS = [
    "a/train-{0..3}.tar",
    "a/train-*.tar",
    "a/train-[0-3].tar",
    "*/train-*.tar",
    "a/train-{0,1}*",
    "a/train-1.tar",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_of_urls_means_what_it_means_in_paths(tmp_path: Path, pattern: str) -> None:
    """For stores and for streams."""
    put_shards(tmp_path / "local")
    local = ps.open(str(tmp_path / "local" / pattern))
    stream = TarStream(f"{URL}/{pattern}", cache=tmp_path / "cache")

    with ps.open(f"{URL}/{pattern}", cache=tmp_path / "cache") as store:
        assert store.kind == "tar"
        assert as_tuples(store) == as_tuples(local)
        assert as_tuples(record for record, _ in stream.records()) == as_tuples(local)
        assert stream.fingerprint() == TarStream(str(tmp_path / "local" / pattern)).fingerprint()


def test_several_urls_are_one_store(tmp_path: Path) -> None:
    """In the order that was given; it is named by one pattern, and is pickled."""
    put_shards(tmp_path / "local")
    names = [f"a/train-{number}.tar" for number in (2, 0)]

    with ps.open([f"{URL}/{name}" for name in names], cache=tmp_path / "cache") as store:
        assert as_tuples(store) == as_tuples(ps.open([tmp_path / "local" / name for name in names]))
        assert store.url == f"{URL}/a/train-{{2,0}}.tar"
        assert as_tuples(pickle.loads(pickle.dumps(store))) == as_tuples(store)  # our own


def test_a_shard_that_is_replaced_is_indexed_again(tmp_path: Path) -> None:
    """Though its name and its size are the same, and the first shard, beside whose copy the index lies, is too."""
    put_shards(tmp_path / "local")
    urls = [f"{URL}/a/train-0.tar", f"{URL}/a/train-1.tar"]
    first = as_tuples(ps.open(urls, cache=tmp_path / "cache"))
    memory_place.put({"a/train-1.tar": make_shard(7)})

    second = as_tuples(ps.open(urls, cache=tmp_path / "cache"))

    assert first[:RECORDS] == second[:RECORDS]
    assert [key for key, _, _ in second[RECORDS:]] == [f"7/{record:02d}" for record in range(RECORDS)]


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ([f"{URL}/a/train-0.tar", "b.tar"], ArgumentError, "must all be paths, or all be URLs"),
        (f"{URL}/a/none-{{0..2}}.tar", StoreNotFoundError, "there is no object at this URL"),
        (f"{URL}/a/none-*.tar", StoreNotFoundError, "there is no object that fits this pattern"),
        (f"{URL}/none/*.tar", StoreNotFoundError, "there is no object that fits this pattern"),
        (f"{URL}/a/train-{{0..3000000}}.tar", ArgumentError, "at most 1000000 shards"),
        (f"{URL}/{{a,b}}", StoreNotFoundError, "there is no object at this URL"),
    ],
)
def test_errors_say_what_to_do(tmp_path: Path, given: Any, error: type[PenstockError], match: str) -> None:
    """Before anything is read."""
    put_shards(tmp_path / "local")

    with pytest.raises(error, match=match):
        ps.open(given, cache=tmp_path / "cache")


def test_a_kind_of_one_file_takes_no_list(tmp_path: Path) -> None:
    """It says so, with the URLs."""
    path = Path(written.write_many("beton", tmp_path, 5))
    memory_place.put({f"{number}.beton": path.read_bytes() for number in range(2)})

    with pytest.raises(ArgumentError, match=r"must be one URL, got 2: memory://bucket/\{0\.\.1\}\.beton"):
        ps.open([f"{URL}/{number}.beton" for number in range(2)], cache=tmp_path / "cache")


@pytest.mark.parametrize("ending", [".tar", ".tar.gz"])
@pytest.mark.parametrize("cache_size", [0, "50GB"])
def test_streams_continue_at_every_position(tmp_path: Path, ending: str, cache_size: int | str) -> None:
    """As those of this machine; also in another process, whatever the cache has room for."""
    put_shards(tmp_path / "local", ending)
    stream = TarStream(f"{URL}/a/train-*{ending}", cache=tmp_path / "cache", cache_size=cache_size)
    every = [(record, position) for rank in range(2) for record, position in stream.records(rank=rank, world_size=2)]
    local = TarStream(str(tmp_path / "local" / "a" / f"train-*{ending}"))

    again = pickle.loads(pickle.dumps(stream))  # our own

    assert sorted(as_tuples(record for record, _ in every)) == sorted(as_tuples(r for r, _ in local.records()))
    for position in (StreamPosition(1, 3), StreamPosition(3, 0), StreamPosition(3, RECORDS)):
        expected = as_tuples(record for record, _ in local.records(position))
        assert as_tuples(record for record, _ in again.records(position)) == expected


def test_a_stream_asks_for_the_next_parts_and_keeps_no_copy_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part is asked for once, with others at once; nothing is held when a shard is read, or given up."""
    monkeypatch.setattr(request_queue.Fetcher, "gap_nbytes", -1)  # a request for each part
    (tmp_path / "served").mkdir()
    for number in range(SHARDS):
        (tmp_path / "served" / f"{number}.tar").write_bytes(make_shard(number))
    with serving(tmp_path / "served") as server:
        stream = TarStream(f"{server.url}/{{0..3}}.tar", cache=tmp_path / "cache")
        assert server.ranges == 0  # opening asks for sizes alone

        records = stream.records()
        next(records)
        assert find_mirror(stream.shards[0].path) is not None
        del records
        assert len(list(stream.records())) == SHARDS * RECORDS

        asked = [found for method, path, found in server.asked if method == "GET" and path == "/1.tar"]
        begins = [int(re.findall(r"\d+", each)[0]) for each in asked]
        assert len(begins) == len(set(begins)) > 5
        wait_until_quiet()  # the end of an archive is asked for with the rest, and no reader waits for it
    assert all(find_mirror(shard.path) is None for shard in stream.shards)


def test_errors_of_streams_name_url_and_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard that is truncated, replaced, or cannot be read."""
    monkeypatch.setattr(compression, "_PARTS_AHEAD", 1)  # the end is not asked for before it is replaced
    (tmp_path / "served").mkdir()
    for number in range(2):
        (tmp_path / "served" / f"{number}.tar").write_bytes(make_shard(number))
    (tmp_path / "served" / "2.tar").write_bytes(make_shard(2)[:20_000])
    with serving(tmp_path / "served") as server:
        stream = TarStream(f"{server.url}/{{0..2}}.tar", cache=tmp_path / "cache")
        with pytest.raises(StoreFormatError, match="truncated") as caught:
            list(stream.records(rank=2, world_size=3))
        assert caught.value.where["store"] == f"{server.url}/2.tar"

        records = stream.records(rank=1, world_size=3)
        next(records)
        path = server.root / "1.tar"
        path.unlink()
        path.write_bytes(make_shard(5) + bytes(512))
        with pytest.raises(StoreError, match="was replaced while it was open") as replaced:
            list(records)
        assert replaced.value.where["store"] == f"{server.url}/1.tar"
        assert replaced.value.where["offset"] > 0


class _Shards(ps.IterableDataset[str]):
    """The keys of the records of a stream; its shards are divided among workers."""

    def __init__(self, stream: TarStream) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[str]:
        worker = ps.get_worker_info()
        rank, count = (worker.id, worker.num_workers) if worker else (0, 1)
        return (record.key for record, _ in self.stream.records(rank=rank, world_size=count))


def test_worker_processes_share_the_shards(tmp_path: Path) -> None:
    """They are started by forkserver, since the client does not support fork."""
    (tmp_path / "served").mkdir()
    for number in range(SHARDS):
        (tmp_path / "served" / f"{number}.tar").write_bytes(make_shard(number))
    with serving(tmp_path / "served") as server:
        stream = TarStream(f"{server.url}/{{0..3}}.tar", cache=tmp_path / "cache")
        loader = ps.DataLoader(_Shards(stream), 2, num_workers=2, workers="processes")

        keys = [key for batch in loader for key in batch]

    assert sorted(keys) == sorted(f"{number}/{record:02d}" for number in range(SHARDS) for record in range(RECORDS))


def test_braces_name_shards_of_web_servers(tmp_path: Path) -> None:
    """In a store as in a stream, with names that are escaped."""
    (tmp_path / "my shards").mkdir()
    for number in range(2):
        (tmp_path / "my shards" / f"{number}.tar").write_bytes(make_shard(number))
    with serving(tmp_path) as server, ps.open(f"{server.url}/my%20shards/{{0..1}}.tar", cache=tmp_path / "c") as store:
        assert [record.key for record in store][:RECORDS] == [f"0/{record:02d}" for record in range(RECORDS)]
        with pytest.raises(ArgumentError, match="a web server lists nothing"):
            ps.open(f"{server.url}/my%20shards/*.tar", cache=tmp_path / "c")


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_in_s3_are_those_of_paths(
    empty_s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    """Whatever the network does: for stores and for streams."""
    monkeypatch.setattr(places, "_MAX_ATTEMPTS", 40)
    put_shards(empty_s3.root / "bucket")
    local = as_tuples(ps.open(str(empty_s3.root / "bucket" / pattern)))
    options: dict[str, Any] = {"cache": tmp_path / "cache", "storage_options": empty_s3.options}
    empty_s3.set_faults(seed=1, **{"503": 0.1, "reset": 0.05, "short": 0.05, "repeat": 0.03})

    with ps.open(f"s3://bucket/{pattern}", **options) as store:
        stream = TarStream(f"s3://bucket/{pattern}", **options, cache_size=0)
        assert as_tuples(store) == local
        assert as_tuples(record for record, _ in stream.records()) == local
    for missing in ("a/none-*.tar", "none/*.tar", "a/none.tar"):
        with pytest.raises(StoreNotFoundError, match="there is no object"):
            ps.open(f"s3://bucket/{missing}", **options)
