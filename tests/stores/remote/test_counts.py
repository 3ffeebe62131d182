"""What loaders say of remote stores: requests, bytes, repetitions, waiting, and what the cache had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock import transforms as T
from penstock.loader.metrics import format_prometheus, list_scalars
from penstock.loader.stats import RemoteStats
from penstock.simulation import measure_records
from penstock.stores.remote import object_store as places
from penstock.trace import Trace, current
from tests.servers.web import WebServer, serving

pytest.importorskip("obstore")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    """A server of a pack of 120 images."""
    monkeypatch.setattr(places, "_WAIT", (0.001, 0.002))
    rng = np.random.default_rng(0)
    (tmp_path / "images" / "noise").mkdir(parents=True)
    for number in range(120):  # 8 kB each: far more than what is fetched when the store is opened
        pixels = rng.integers(0, 256, (50, 50, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / "noise" / f"{number:03}.png")
    (tmp_path / "served").mkdir()
    ps.pack(tmp_path / "images", tmp_path / "served" / "photos.lmdb")
    with serving(tmp_path / "served") as found:
        yield found


def load(server: WebServer, epochs: int = 1, **options: Any) -> list[RemoteStats]:
    """What a loader says after each epoch."""
    store = ps.open(f"{server.url}/photos.lmdb", cache=server.root.parent / "cache")
    with store:
        dataset = ps.StoreDataset(store, transform=[T.Decode(), T.Resize((32, 32))])
        loader = ps.DataLoader(dataset, batch_size=8, shuffle=True, seed=1, **options)
        said = []
        for _ in range(epochs):
            assert sum(len(batch["image"]) for batch in loader) == 120
            said.append(loader.stats().remote)
    return said


@pytest.mark.parametrize("workers", ["serial", "threads", "processes"])
def test_the_second_epoch_comes_from_the_cache(server: WebServer, workers: str) -> None:
    """Counts add up over threads and processes: each record is read once an epoch, and is fetched in the first."""
    first, both = load(server, 2, workers=workers, num_workers=0 if workers == "serial" else 2)

    second = both - first
    assert first.reads >= 120
    assert first.missed_nbytes >= 0.5 * first.read_nbytes
    assert 0 < first.responses <= first.requests <= server.ranges
    readers = 1 if workers == "serial" else 2  # each of which may miss a page that another one fetches at that moment
    assert readers * first.nbytes >= first.missed_nbytes > 0
    assert second.reads >= 120
    assert (second.misses, second.nbytes, second.hit_rate, second.record_hit_rate) == (0, 0, 1.0, 1.0)


def test_what_is_simulated_is_what_is_fetched(server: WebServer, tmp_path: Path) -> None:
    """Two nodes with a rank and a cache each: the first epoch, and what following ones find in the caches."""
    n, rng = 500, np.random.default_rng(1)
    arrays = {"image": [Image.fromarray(rng.integers(0, 256, (50, 50, 3), np.uint8)) for _ in range(n)]}
    ps.pack(arrays, server.root / "many.lmdb")
    measured, nbytes = np.zeros((3, 2)), 0
    for rank in range(2):
        with ps.open(f"{server.url}/many.lmdb", cache=tmp_path / f"cache-{rank}") as store:
            nbytes = measure_records(store)
            dataset = ps.StoreDataset(store, "image", transform=[T.Decode()])
            loader = ps.DataLoader(dataset, 10, sampler=ps.DistributedSampler(dataset, 2, rank, seed=1))
            before = RemoteStats()
            for epoch in range(3):
                assert sum(len(batch) for batch in loader) == n // 2
                now = loader.stats().remote
                measured[epoch] += (now - before).requests, (now - before).nbytes
                before = now

    storage = ps.ObjectStorage(nbytes, ranks_per_node=1, request_s=0.002)
    simulated = ps.simulate(n, 2, 10, storage=storage).requests

    # What is fetched at the ends of an object, when it is opened, is a tenth of this store.
    assert [each.requests for each in simulated] == pytest.approx(measured[:, 0].tolist(), rel=0.2)
    assert [each.nbytes for each in simulated] == pytest.approx(measured[:, 1].tolist(), rel=0.2)


def test_waiting_is_divided_by_what_requests_wait_for(server: WebServer) -> None:
    """Where each answer takes long to begin, readers wait for latency."""
    server.latency = 0.05

    (said,) = load(server)

    assert said.latency_ms >= 50
    assert said.wait_ns > 0
    assert said.waiting["latency"] > 0.5
    assert sum(said.waiting.values()) == pytest.approx(1)


def test_repetitions_are_counted(server: WebServer) -> None:
    """Of the requests of a thread that has a trace; without one, nothing is counted."""
    with ps.open(f"{server.url}/photos.lmdb", cache=server.root.parent / "cache") as store:
        trace = Trace()
        trace.activate()
        server.faults += ["503", "reset"]
        store.read([60])
        trace.deactivate()
        store.read([80])

    said = RemoteStats(**trace.remote())
    assert (said.retries, said.requests - said.responses) == (2, 2)
    assert said.retry_ns > 0
    assert said.waiting["retries"] > 0
    assert current() is None


def test_local_stores_count_nothing(server: WebServer) -> None:
    """All counts are 0, and no line says so."""
    with ps.open(server.root / "photos.lmdb") as store:
        loader = ps.DataLoader(ps.StoreDataset(store, transform=[T.Decode(), T.Resize((32, 32))]), batch_size=8)
        before = loader.stats()
        assert sum(1 for _ in loader) == 15
        stats = loader.stats()

    assert stats.remote == RemoteStats()
    assert "remote" not in str(stats)
    assert not any("remote" in name for name in list_scalars(stats.since(before)))


def test_counts_are_shown_and_written() -> None:
    """In the table, the line of progress, as scalars and for Prometheus."""
    remote = RemoteStats(
        requests=12, retries=2, hedges=1, responses=10, nbytes=3_000_000, first_byte_ns=600_000_000,
        transfer_ns=200_000_000, retry_ns=200_000_000, wait_ns=500_000_000, reads=40, read_nbytes=4_000_000, misses=30,
        missed_nbytes=2_000_000,
    )  # fmt: skip
    before = ps.DataLoader(ps.ArrayDataset([1])).stats()
    after = type(before)(before.stages, 10, 80, 0, taken_ns=before.taken_ns + 2_000_000_000, remote=remote)

    assert str(after).endswith(
        "remote: 50% of 4.0 MB from the cache (25% of the records); 12 requests, 3.0 MB fetched, 60 ms to the first "
        "byte, 2 repeated after an error, 1 sent again because they were slow\n"
        "        readers waited 0.500 s: 60% for latency, 20% for bandwidth, 20% for retries"
    )
    rates = after.since(before)
    assert str(rates).endswith("cache 50%, 1.5 MB/s fetched")
    scalars = list_scalars(rates)
    assert (scalars["remote/hit_rate"], scalars["remote/nbytes_per_s"]) == (0.5, 1_500_000)
    assert (scalars["remote/latency_ms"], scalars["remote/waiting"], scalars["remote/retries"]) == (60, 0.25, 2)
    assert "penstock_remote_missed_bytes_total 2000000\n" in format_prometheus(after)
