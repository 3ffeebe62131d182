"""Actors that die, come late or are refused; what a loader says then."""

from __future__ import annotations

import logging
import os
import pickle
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import penstock as ps
from penstock.errors import ArgumentError, OptionalPackageError, StallError, WorkerError
from penstock.workers.ray.running_actor import RunningActor
from tests.ray_cluster import send_by_value
from tests.workers.ray.datasets import Counting, Deadly, Filled, Global, Slow
from tests.workers.ray.test_parity import refuse

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

WIDE = {"num_workers": 2, "workers": "ray", "seed": 1}


@pytest.fixture(autouse=True)
def _sent(ray: Any) -> None:
    send_by_value("tests.workers.ray.datasets")


def flat(batches: Any) -> list[int]:
    """The indices that came."""
    return [int(index) for batch in batches for index in batch[:, 0]]


def kill_at_random(loader: Any, deaths: int) -> list[Any]:
    """The batches of a loader whose actors are killed so many times."""
    draw, batches, iterator, done = random.Random(0), [], iter(loader), 0
    for batch in iterator:
        batches.append(np.array(batch))
        if done < deaths and draw.random() < 0.5:
            alive = [one.pid for one in iterator.backend.processes if one.pid is not None and one.is_alive()]
            if alive:
                os.kill(draw.choice(alive), signal.SIGKILL)
                done += 1
    assert done == deaths
    return batches


KILLS: Final = int(os.environ.get("PENSTOCK_KILLS", "12"))
"""A thousand take a quarter of an hour."""


@pytest.mark.parametrize("deaths", [5, pytest.param(KILLS, marks=[pytest.mark.slow, pytest.mark.timeout(5000)])])
def test_actors_killed_at_random_change_nothing(deaths: int) -> None:
    """Every batch comes once, in order, with the numbers that worker processes draw."""
    options: dict[str, Any] = {"batch_size": 2, "shuffle": True, **WIDE}
    loader = ps.DataLoader(Repeated(deaths * 8), **options)

    assert np.array_equal(
        np.concatenate(kill_at_random(loader, deaths)),
        np.concatenate(list(ps.DataLoader(Repeated(deaths * 8), **{**options, "workers": "processes"}))),
    )


class Repeated(Global):
    """Small samples with global randomness, as many as are asked for."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.002)
        return super().__getitem__(index)[:100]


def test_a_sample_that_kills_its_actor_is_left_out() -> None:
    """With on_error="skip" the one sample is missing, and the record says what happened to its worker."""
    loader = ps.DataLoader(Deadly(), 4, on_error="skip", **WIDE)  # type: ignore[call-overload]  # options by name

    assert flat(loader) == [index for index in range(24) if index != 13]
    assert [record.index for record in loader.left_out] == [13]


def test_the_error_of_a_sample_that_kills_names_it_and_shows_the_stack() -> None:
    """As for processes: index, batch, worker and where the process was."""
    iterator = iter(ps.DataLoader(Deadly(), 4, **WIDE))  # type: ignore[call-overload]  # as above
    batches = [next(iterator) for _ in range(3)]

    with pytest.raises(WorkerError) as raised:
        next(iterator)

    assert (raised.value.where["index"], raised.value.where["batch"]) == (13, 3)
    assert "__getitem__" in "".join(raised.value.__notes__)
    assert flat([*batches, *iterator]) == [index for index in range(24) if index // 4 != 3]


def test_an_actor_that_never_starts_is_replaced_by_those_that_have(tmp_path: Path) -> None:
    """Where samples do not depend on their worker: two of three actors find CPUs, and build everything."""
    workers = ps.RayWorkers(num_cpus=3)

    batches = list(ps.DataLoader(Filled(48, 0.0), 4, num_workers=3, workers=workers))
    seeded = list(ps.DataLoader(Slow(48, 0.0), 4, num_workers=3, workers=workers, seed_per_sample=True))

    assert flat(batches) == flat(seeded) == list(range(48))


def test_actors_without_resources_end_in_an_error_that_names_them(caplog: pytest.LogCaptureFixture) -> None:
    """What each asks for, and what is free."""
    loader = ps.DataLoader(Slow(), 4, num_workers=1, workers=ps.RayWorkers(num_cpus=100), stall_timeout=0.5)

    with pytest.raises(StallError, match=r"each asks Ray for CPU: 100; the cluster has CPU: .* of 8 free"):
        next(iter(loader))


def test_tasks_go_to_the_worker_that_they_are_meant_for(tmp_path: Path) -> None:
    """Batch i is built by worker i modulo their number, as for processes, unless a worker is missing."""
    log = tmp_path / "log"

    assert flat(ps.DataLoader(Counting(log), 4, num_workers=2, workers="ray")) == list(range(48))

    built = [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
    assert sorted(built, key=lambda pair: pair[1]) == [(index // 4 % 2, index) for index in range(48)]


def test_more_passes_through_than_the_object_store_holds(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects are freed with their batches: nothing is spilled to a disk."""
    monkeypatch.setattr(RunningActor, "_open", refuse)  # as on another node
    folder = Path(ray.worker._global_node.get_session_dir_path())
    loader = ps.DataLoader(Slow(400, 0.0), 40, num_workers=2, workers=ps.RayWorkers(max_nbytes=20_000_000))
    for epoch in range(4):
        assert sum(len(batch) for batch in loader) == 400, epoch

    assert [file for file in folder.glob("ray_spilled_objects*/*") if file.is_file()] == []


def test_the_bytes_under_way_are_bounded(tmp_path: Path) -> None:
    """At most three batches here, besides the one taken and one that came with it: workers wait for the trainer."""
    log = tmp_path / "log"
    loader = ps.DataLoader(
        Counting(log), 4, num_workers=2, prefetch_factor=8, workers=ps.RayWorkers(max_nbytes=3 * 4 * 120_000 + 10_000)
    )
    iterator: Any = iter(loader)
    next(iterator)
    sent = 48 // 4 - len(iterator.backend._held)  # until the next batch is taken
    deadline = time.monotonic() + 60
    while len(log.read_text().splitlines()) < 4 * sent:
        assert time.monotonic() < deadline, f"{sent} batches were not built"
        time.sleep(0.01)

    assert 1 < sent <= 5
    assert len(log.read_text().splitlines()) == 4 * sent
    assert flat(iterator) == list(range(4, 48))


def test_ray_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra that installs it."""
    monkeypatch.setitem(sys.modules, "ray", None)

    with pytest.raises(OptionalPackageError, match=r"penstock-data\[ray\]"):
        next(iter(ps.DataLoader(Slow(), 4, num_workers=1, workers="ray")))


def test_a_dataset_that_cannot_be_sent_is_named() -> None:
    """Before an actor is asked for."""
    dataset = Slow()
    dataset.lock = threading.Lock()  # type: ignore[attr-defined]  # what cannot be pickled

    with pytest.raises(TypeError) as raised:
        next(iter(ps.DataLoader(dataset, 4, num_workers=1, workers="ray")))

    assert any("Slow must be picklable" in note for note in raised.value.__notes__)


def test_options_are_checked_and_kept() -> None:
    """Numbers are not negative; a loader with options can be pickled."""
    with pytest.raises(ArgumentError, match="num_cpus of RayWorkers must be a number of at least 0, got -1"):
        ps.RayWorkers(num_cpus=-1)
    with pytest.raises(ArgumentError, match="disk of RayWorkers"):
        ps.RayWorkers(resources={"disk": "much"})  # type: ignore[dict-item]  # that is the mistake

    loader = ps.DataLoader(Slow(), 4, num_workers=1, workers=ps.RayWorkers(num_cpus=0.5))

    assert pickle.loads(pickle.dumps(loader)).workers == ps.RayWorkers(num_cpus=0.5)


def test_statistics_are_measured_in_the_actors(caplog: pytest.LogCaptureFixture) -> None:
    """Times of stages come with the batches; asking a loader starts nothing."""
    loader = ps.DataLoader(Slow(24), 4, num_workers=2, workers="ray")
    asked = loader.state_dict(), len(loader), repr(loader)
    with caplog.at_level(logging.INFO):
        assert flat(loader) == list(range(24))

    assert asked[1] == 6
    read = loader.stats()["read"]
    assert (read.items, read.time_ns >= 24 * 5_000_000) == (24, True)
