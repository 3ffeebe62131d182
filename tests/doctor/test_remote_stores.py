"""A script that trains from object storage is told for what its readers wait, and what helps, with measured figures."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock import doctor
from penstock import transforms as T
from penstock.doctor.judge.advice.remote_stores import describe_waiting, find
from penstock.doctor.judge.analysis import diagnose
from penstock.doctor.judge.situation import examine
from penstock.doctor.reports.json_report import to_json
from penstock.doctor.watching.recording import Recording, load_recording, save_recording
from penstock.loader.stats import RemoteStats
from tests.doctor.simulator import Script, simulate
from tests.servers.web import serving

STORE: dict[str, int | str] = {
    "url": "s3://bucket/set.lmdb",
    "objects": 2,
    "store_nbytes": 10**9,
    "cache_nbytes": 50 * 10**9,
}
COUNTS = RemoteStats(
    requests=1000, responses=1000, nbytes=10**8, first_byte_ns=4 * 10**9, transfer_ns=10**9, wait_ns=10**9, reads=1000,
    read_nbytes=10**8, misses=1000, missed_nbytes=10**8,
)  # fmt: skip


def record(counts: RemoteStats = COUNTS, **store: Any) -> Recording:
    """A script that waits for reading, of a store and with counts that are given; requests take 4 ms, many at once."""
    recording = simulate(Script(2, cores=4, read_idle=6.0, read=0.5, step_idle=5), batches=100)
    recording.remote = {**asdict(counts), **STORE, **store}
    return recording


def advise(recording: Recording) -> dict[str, str]:
    """Reasons of advice, by rule."""
    found = list(find(examine(recording)))
    assert all(each.measured is None and each.change and each.reason.endswith(".") for each in found)
    return {each.rule: each.reason for each in found}


def busy(counts: RemoteStats, latency_ms: int) -> RemoteStats:
    """The counts with another time to the first byte."""
    return RemoteStats(**{**asdict(counts), "first_byte_ns": counts.responses * latency_ms * 10**6})


def test_a_script_that_waits_for_latency_is_told_so(tmp_path: Path) -> None:
    """Verdict, advice and JSON have what was counted; here, in a script that waits, with 60 ms to the first byte."""
    pytest.importorskip("obstore")
    rng = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    for number in range(160):
        Image.fromarray(rng.integers(0, 256, (50, 50, 3), np.uint8)).save(tmp_path / "images" / f"{number:03}.png")
    (tmp_path / "served").mkdir()
    ps.pack(tmp_path / "images", tmp_path / "served" / "photos.lmdb")

    with (
        serving(tmp_path / "served") as server,
        ps.open(f"{server.url}/photos.lmdb", cache=tmp_path / "cache") as store,
    ):
        loader = ps.DataLoader(ps.StoreDataset(store, transform=[T.Decode()]), batch_size=4, shuffle=True, seed=1)
        with doctor.watch(loader, steps=30, budget_s=0) as report:
            for _ in loader:
                pass

    assert report.recording is not None
    seen = report.recording.remote
    assert isinstance(seen["responses"], int)
    assert seen["responses"] > 0
    assert isinstance(seen["first_byte_ns"], int)
    assert seen["first_byte_ns"] > 0
    waiting = record()
    waiting.machine = report.recording.machine
    waiting.remote = {**seen, "responses": 20, "first_byte_ns": 20 * 60 * 10**6, "transfer_ns": 10**6}
    diagnosis = diagnose(waiting, trials=False)
    assert diagnosis.verdict.stage == "read"
    assert "The cache had " in diagnosis.verdict.text
    assert "% for latency" in diagnosis.verdict.text
    reasons = advise(waiting)
    assert " requests were under way on average, each of " in reasons["look-ahead"]
    assert " ms to its first byte; within a region" in reasons["region"]
    assert to_json(diagnosis)["remote"]["url"] == f"{server.url}/photos.lmdb"
    assert any(disk["path"].startswith(str(tmp_path / "cache")) for disk in diagnosis.recording.machine["disks"])


def test_a_cache_that_is_too_small() -> None:
    """What part of the store fits, and what part of the bytes came from the cache; nothing where all of it fits."""
    half = RemoteStats(**{**asdict(COUNTS), "missed_nbytes": 5 * 10**7})

    assert "20% of it fits; 50% of the bytes came from it" in advise(record(half, cache_nbytes=2 * 10**8))["cache-size"]
    assert "cache-size" not in advise(record(half))


def test_few_requests_at_once_and_a_place_that_is_far_away() -> None:
    """Both by the time to the first byte; many requests at once, near the bucket, are no reason for advice."""
    few = busy(RemoteStats(**{**asdict(COUNTS), "requests": 10, "responses": 10, "transfer_ns": 10**8}), 80)

    found = advise(record(few))

    assert "each of 80 ms" in found["look-ahead"]
    assert "80 ms to its first byte" in found["region"]
    assert "look-ahead" not in advise(record(busy(COUNTS, 1000)))
    assert "region" not in advise(record(busy(COUNTS, 4)))


def test_many_small_objects() -> None:
    """Their number and mean size; a pack of two objects is none."""
    found = advise(record(objects=20_000))

    assert "20,000 objects of 50.0 kB on average" in found["small-objects"]
    assert "small-objects" not in advise(record())


def test_a_cache_on_a_slow_disk() -> None:
    """It is named by its mount, and the dataset is not to be copied by hand."""
    recording = record()
    recording.machine = {
        **recording.machine,
        "disks": [{"path": "/c", "mount": "/home", "kind": "network", "file_system": "nfs4"}],
    }

    assert "network file system (/home)" in advise(recording)["cache-folder"]
    assert "readahead" not in {each.rule for each in diagnose(recording, trials=False).advice}


def test_nothing_is_said_where_nothing_is_remote_or_reading_does_not_limit() -> None:
    """A recording without counts has no sentence, and one whose decoding limits no advice."""
    local = simulate(Script(2, cores=2, decode=4.0, step_idle=5), batches=100)
    assert describe_waiting(local) == ""
    local.remote = record().remote

    assert not advise(local)
    assert "80% for latency, 20% for bandwidth, 0% for retries (4 ms to the first byte" in describe_waiting(local)


def test_counts_of_another_rank_are_kept(tmp_path: Path) -> None:
    """They are part of what a rank sends."""
    recording = record()
    save_recording(recording, tmp_path / "rank.npz")

    assert load_recording(tmp_path / "rank.npz").remote == recording.remote
