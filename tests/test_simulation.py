"""What a job would get, computed: compared with loaders that run, and with requests that are counted."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import ArgumentError
from penstock.samplers import distributed, permutation
from penstock.simulation import Bounds, job, measure_records
from tests.pack.images import make_photos
from tests.test_cli import run

POLICIES: Final[dict[str, Any]] = {"pad": False, "drop": True, "keep": "uneven"}


def make_job(n: int, replicas: int, batch_size: int, uneven: str, drop_last: bool) -> list[ps.DataLoader]:
    """One loader for each rank, over the indices of n samples."""
    data = ps.ArrayDataset(np.arange(n))
    return [
        ps.DataLoader(
            data, batch_size, drop_last=drop_last, seed=0,
            sampler=ps.DistributedSampler(range(n), replicas, rank, drop_last=POLICIES[uneven]),
        )
        for rank in range(replicas)
    ]  # fmt: skip


def take(ranks: list[ps.DataLoader], steps: int | None) -> list[list[list[int]]]:
    """The batches of each rank: so many, or all that are left."""
    walks = [iter(loader) for loader in ranks]
    return [
        [batch[0].tolist() for batch in (walk if steps is None else (next(walk) for _ in range(steps)))]
        for walk in walks
    ]


@given(
    n=st.integers(1, 90),
    replicas=st.integers(1, 6),
    batch_size=st.integers(1, 5),
    uneven=st.sampled_from(["pad", "drop", "keep"]),
    drop_last=st.booleans(),
    others=st.lists(st.integers(1, 6), max_size=3),
)
def test_what_is_simulated_is_what_loaders_do(
    n: int, replicas: int, batch_size: int, uneven: str, drop_last: bool, others: list[int]
) -> None:
    """Steps, samples, repeats and losses of each world are those of loaders that run and are resumed."""
    found = ps.simulate(n, replicas, batch_size, uneven=uneven, drop_last=drop_last, resume_ranks=others)

    whole = take(make_job(n, replicas, batch_size, uneven, drop_last), None)
    assert found.shares.steps == Bounds(min(map(len, whole)), max(map(len, whole)))
    drawn = [index for batches in whole for batch in batches for index in batch]
    assert found.shares.repeated == len(drawn) - len(set(drawn))
    assert found.shares.left_out == n - len(set(drawn))
    draws = [index for loader in make_job(n, replicas, batch_size, uneven, drop_last) for index in loader.sampler]
    assert (found.coverage.draws, found.coverage.distinct) == (len(draws), len(set(draws)))

    ranks, seen, steps = make_job(n, replicas, batch_size, uneven, drop_last), [], found.shares.steps.least
    for left, (other, share) in zip(range(len(others), 0, -1), zip(others, found.resumes, strict=True), strict=True):
        parts = take(ranks, steps // (left + 1))
        seen += [index for batches in parts for batch in batches for index in batch]
        state = ranks[-1].state_dict()
        ranks = make_job(n, other, batch_size, uneven, drop_last)
        for loader in ranks:
            loader.load_state_dict(state)
        steps = share.steps.least
        assert share.consumed == len(seen)
    rest = take(ranks, None)
    last = found.resumes[-1] if others else found.shares
    assert last.steps == Bounds(min(map(len, rest)), max(map(len, rest)))
    sizes = [sum(map(len, batches)) for batches in rest]
    assert last.samples == Bounds(min(sizes), max(sizes))
    seen += [index for batches in rest for batch in batches for index in batch]
    assert last.left_out == n - len(set(seen))
    assert last.repeated == len(seen) - len(set(seen))


def test_a_thousand_ranks_and_a_thousand_million_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few draws are computed, in the same memory for any number of samples; the rest is arithmetic."""
    computed: list[int] = []

    def permute(positions: Any, *rest: Any) -> Any:
        computed.append(len(positions))
        return real(positions, *rest)

    real = permutation.permute
    monkeypatch.setattr(distributed, "permute", permute)
    storage = ps.ObjectStorage(110_000, 2 * 10**12)

    found = ps.simulate(10**9, 1000, 256, resume_ranks=[768, 1000], storage=storage)
    work = sum(computed), len(computed)
    monkeypatch.setattr(job, "_CHECKED", 1 << 13)
    peaks = []
    for n in (10**9, 10**15):
        tracemalloc.start()
        ps.simulate(n, 8, 256, resume_ranks=[6, 8], storage=storage)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    assert (found.shares.steps, found.shares.samples) == (Bounds(3907, 3907), Bounds(10**6, 10**6))
    assert (found.shares.repeated, found.shares.left_out) == (0, 0)
    assert found.coverage.distinct == found.coverage.draws > 200_000
    assert [each.num_replicas for each in found.resumes] == [768, 1000]
    assert [each.consumed for each in found.resumes] == [1302 * 256_000, 1302 * 256_000 + 1695 * 256 * 768]
    assert found.resumes[-1].steps == Bounds(1303, 1303)
    assert found.state_nbytes < 1000
    assert work[0] < 400_000
    assert work[1] < 10_000
    assert max(peaks) < 2_000_000
    assert peaks[1] < 1.2 * peaks[0]


def test_requests_join_neighbours() -> None:
    """Records in order are one request a batch, as long as it is not too large; shuffled ones are one each."""
    storage = ps.ObjectStorage(4096, 0, ranks_per_node=1)

    (ordered, *_), (strided, *_), (shuffled, *_) = (
        ps.simulate(10**5, ranks, 256, shuffle=shuffle, storage=storage).requests
        for ranks, shuffle in ((1, False), (500, False), (1, True))
    )

    assert (ordered.requests, ordered.nbytes) == (round(10**5 / 256), 10**5 * 4096)
    assert strided.requests == 10**5
    assert 0.98 < shuffled.requests / 10**5 < 1
    assert shuffled.limited_by == "requests"
    assert shuffled.hours == pytest.approx(shuffled.requests * 0.05 / 640 / 3600, rel=1e-4)
    assert shuffled.requests_per_hour == pytest.approx(shuffled.requests / shuffled.hours, rel=1e-4)


@pytest.mark.parametrize(
    ("ranks", "shuffle", "cache", "rates"),
    [
        (8, True, 10**8, [0, 1, 1]),
        (8, True, 25 * 10**6, [0, 0.25, 0.25]),
        (32, True, 10**8, [0, 0.25, 1 - 0.75**2]),
        (32, True, 30 * 10**6, [0, 0.25, 0.3]),
        (32, False, 12_500_000, [0, 0.5, 0.5]),
    ],
)
def test_caches_fill_from_epoch_to_epoch(ranks: int, shuffle: bool, cache: int, rates: list[float]) -> None:
    """A node has seen its part of each epoch, and keeps what its cache has room for."""
    storage = ps.ObjectStorage(1000, cache, ranks_per_node=8)

    found = ps.simulate(10**5, ranks, 64, shuffle=shuffle, storage=storage)

    assert [each.hit_rate for each in found.requests] == pytest.approx(rates)
    for each, rate in zip(found.requests, rates, strict=True):
        assert each.requests == pytest.approx(found.requests[0].requests * (1 - rate), abs=1)


def test_training_limits_where_it_is_slower() -> None:
    """The duration of an epoch is the longest of what could limit it."""
    storage = ps.ObjectStorage(100_000)

    slow, fast = (ps.simulate(10**5, 8, 64, samples_per_second=rate, storage=storage) for rate in (10, 10**6))

    assert slow.hours is not None
    assert slow.requests[0].limited_by == "training"
    assert slow.requests[0].hours == slow.hours == 12_500 / 10 / 3600
    assert fast.requests[0].limited_by == "bandwidth"


def test_memory_counts_batches_under_way() -> None:
    """Two batches a worker, and two with the consumer; look-ahead stops at its limit of bytes, or of records."""
    found = ps.simulate(10**5, 8, 64, num_workers=8, sample_nbytes=1000, storage=ps.ObjectStorage(1000))
    large = ps.simulate(10**5, 8, 64, storage=ps.ObjectStorage(10**6))

    assert (found.batches, found.batches_nbytes) == (18, 18 * 64 * 1000)
    assert found.look_ahead_nbytes == 3072 * 1000  # of 80 MiB for 8 ranks
    assert large.batches_nbytes is None
    assert large.look_ahead_nbytes == (48 << 20) // 8


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"samples": 0}, "samples should be a positive integer"),
        ({"samples": 1 << 63}, r"samples must be in \[1, 2\*\*62\]"),
        ({"num_replicas": job.MAX_RANKS + 1}, "the number of ranks must be in"),
        ({"resume_ranks": [0]}, "number of ranks should be a positive integer"),
        ({"batch_size": 0}, "batch_size should be"),
        ({"uneven": "join"}, "uneven must be one of pad, drop, keep, got 'join'"),
        ({"samples_per_second": 0.0}, "samples_per_second must be a positive number"),
        ({"num_workers": -1}, "num_workers should be"),
        ({"sample_nbytes": 0}, "sample_nbytes should be"),
    ],
)
def test_what_means_nothing_is_refused(arguments: dict[str, Any], text: str) -> None:
    """The argument is named."""
    with pytest.raises(ArgumentError, match=text):
        ps.simulate(**{"samples": 10, "num_replicas": 2, "batch_size": 2, **arguments})


@pytest.mark.parametrize(
    "arguments",
    [{"record_nbytes": 0}, {"cache_nbytes": -1}, {"ranks_per_node": 0}, {"request_s": 0.0}, {"bandwidth": float("inf")},
     {"epochs": 1001}],
)  # fmt: skip
def test_storage_that_means_nothing_is_refused(arguments: dict[str, Any]) -> None:
    """The argument is named."""
    with pytest.raises(ArgumentError, match=next(iter(arguments))):
        ps.ObjectStorage(**{"record_nbytes": 100, **arguments})


def test_records_are_measured(tmp_path: Path) -> None:
    """Mean bytes of encoded images and other fields."""
    photos = make_photos(tmp_path / "photos")
    files = [path.stat().st_size for path in photos.rglob("*") if path.is_file()]

    with ps.open(photos) as store:
        measured = measure_records(store)

    assert measured == -(-(sum(files) + 8 * len(files)) // len(files))


# the command


def test_plan_prints_what_each_rank_gets() -> None:
    """Everything in a few lines; numbers may be written as people do."""
    done = run(
        "plan", "--samples", "1e6", "--ranks", 100, "--batch-size", 64, "--workers", 2, "--sample-size", "600KB",
        "--rate", 100, "--resume-ranks", 80, "--record-size", "110KB", "--cache-size", "1TB",
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:3] == [
        "1,000,000 samples, 100 ranks, batch size 64",
        "  steps     157 on each rank",
        "  samples   10,000 on each rank; 0 samples repeated, 0 left out",
    ]
    assert "all draws computed: 1,000,000 samples in 1,000,000 draws" in done.stdout
    assert "6 batches on each rank: 230.4 MB" in done.stdout
    assert "after 499,200 samples on 80 ranks: steps left 98, each of 5,120 samples; " in done.stdout
    assert lines[-5].startswith("object storage, 13 nodes")
    assert lines[-3].split()[:2] == ["0", "0.0%"]


def test_plan_takes_a_store(tmp_path: Path) -> None:
    """Its records are counted and measured."""
    photos = make_photos(tmp_path / "photos")

    done = run("plan", photos, "--ranks", 5, "--batch-size", 2, "--json")

    found = json.loads(done.stdout)
    assert found["samples"] == 12
    assert found["shares"] == {
        "num_replicas": 5, "consumed": 0, "steps": {"least": 2, "most": 2}, "samples": {"least": 3, "most": 3},
        "repeated": 3, "left_out": 0,
    }  # fmt: skip
    assert [each["hit_rate"] for each in found["requests"]] == [0, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "one of STORE and --samples"),
        (["--samples", "many"], "--samples must be a number, such as 1e9, got 'many'"),
        (["--samples", "nan"], "--samples must be a number"),
        (["--samples", "1e9", "--record-size", "x"], "--record-size must be a number of bytes"),
    ],
)
def test_plan_names_the_option_that_is_wrong(arguments: list[str], text: str) -> None:
    """Wrong usage is exit code 2."""
    done = run("plan", "--ranks", 2, "--batch-size", 2, *arguments)

    assert done.returncode == 2
    assert text in done.stderr
