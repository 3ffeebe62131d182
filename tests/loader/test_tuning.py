"""``num_workers="auto"``: what is chosen, on simulated machines and clocks, and that no batch depends on it."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import penstock as ps
from penstock.loader.tuning import AutoCount, LoaderTuner, Setting, SettingChange, TunerLimits
from penstock.system.shares import find_cores
from penstock.system.system_files import SystemFiles


class Squares(ps.Dataset[NDArray[np.int64]]):
    """Samples that take no time."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        return np.array([index * index])


SPEED = 100.0
"""Batches per second of one worker."""


@dataclass
class Machine:
    """A loader and its consumer, batch by batch: ``speed`` gives batches per second of a setting, ``step_s`` a step."""

    speed: Callable[[Setting], float]
    step_s: Callable[[int], float] = lambda batch: 0.0
    limits: TunerLimits = field(default_factory=lambda: TunerLimits(cores=2, workers=16, batches=1000))
    now: float = 0.0
    ready: float = 0.0
    waited: float = 0.0
    batches: int = 0

    def tuner(self, workers: int = AutoCount(16), factor: int = 2, first: int = 2) -> LoaderTuner:
        """A tuner that looks at this machine's clock."""
        return LoaderTuner(workers, factor, lambda setting: self.limits, first, lambda: self.now)

    def run(self, tuner: LoaderTuner, seconds: float) -> None:
        """Deliver batches for some seconds."""
        end = self.now + seconds
        while self.now < end:
            speed = self.speed(tuner.setting)
            self.ready = min(self.ready, tuner.setting.limit)
            wait = max(0.0, (1 - self.ready) / speed)
            step = self.step_s(self.batches)
            self.ready = min(self.ready + (wait + step) * speed, tuner.setting.limit) - 1
            self.now, self.waited, self.batches = self.now + wait + step, self.waited + wait, self.batches + 1
            tuner.record(32, int(self.waited * 1e9))


def by_cores(cores: int) -> Callable[[Setting], float]:
    """Work of processors: more workers than cores cost a little."""
    return lambda setting: SPEED * min(setting.workers, cores) * 0.98 ** max(0, setting.workers - cores)


def test_work_of_processors_ends_with_a_worker_for_each_core() -> None:
    """More of them bring nothing, and are taken back."""
    machine = Machine(by_cores(2))
    tuner = machine.tuner()
    machine.run(tuner, 30)
    assert tuner.setting.workers == 2
    assert max(change.workers for change in tuner.changes) > 2


def test_workers_that_wait_become_many() -> None:
    """A disk or a network that answers late, to many at once."""
    machine = Machine(lambda setting: SPEED * setting.workers)
    tuner = machine.tuner()
    machine.run(tuner, 30)
    assert tuner.setting.workers == 16


def test_workers_that_wait_for_a_device_of_limited_speed_become_as_many_as_it_serves() -> None:
    """More would only queue there."""
    machine = Machine(lambda setting: SPEED * min(setting.workers, 7))
    tuner = machine.tuner()
    machine.run(tuner, 60)
    assert tuner.setting.workers in {7, 8}


def test_a_loop_that_does_not_wait_gets_fewer_workers() -> None:
    """One is enough for steps that take longer than a batch."""
    machine = Machine(by_cores(2), step_s=lambda batch: 1.5 / SPEED)
    tuner = machine.tuner()
    machine.run(tuner, 30)
    assert tuner.setting.workers == 1


def test_workers_that_are_far_too_many_become_half_as_many_at_a_time() -> None:
    """Steps on a device of a machine with many cores: one worker is enough, and few trials find it."""
    machine = Machine(by_cores(16), step_s=lambda batch: 1.5 / SPEED, limits=TunerLimits(16, 64, 1000))
    tuner = machine.tuner(first=16)
    machine.run(tuner, 10)
    assert tuner.setting.workers == 1
    assert len(tuner.changes) < 8


def test_more_workers_that_cost_speed_are_not_followed_by_one_more() -> None:
    """All cores work: what two more have made slower, one more does not make faster."""
    machine = Machine(by_cores(2))
    tuner = machine.tuner()
    machine.run(tuner, 5)
    assert {change.workers for change in tuner.changes} == {1, 2, 4}
    assert tuner.setting.workers == 2


def test_as_many_workers_as_the_loop_needs_stay() -> None:
    """Steps that take two thirds of the time of a batch of one worker need two."""
    machine = Machine(by_cores(4), step_s=lambda batch: 0.65 / SPEED, limits=TunerLimits(4, 16, 1000))
    tuner = machine.tuner(first=4)
    machine.run(tuner, 30)
    assert tuner.setting.workers == 2


def test_steps_in_bursts_get_a_deeper_queue() -> None:
    """Thirty quick steps, then one that takes as long as all of them: batches are built in the meantime."""
    machine = Machine(by_cores(2), step_s=lambda batch: 0.1 if batch % 30 == 0 else 0.0)
    tuner = machine.tuner(factor=AutoCount(2))
    machine.run(tuner, 20)
    assert tuner.setting.limit >= 16


@pytest.mark.parametrize("workers", [3, AutoCount(16)])
def test_a_number_that_was_given_stays(workers: int) -> None:
    """Of workers, or of batches for each of them."""
    machine = Machine(lambda setting: SPEED * setting.workers, step_s=lambda batch: 0.1 if batch % 30 == 0 else 0.0)
    tuner = machine.tuner(workers, 2 if isinstance(workers, AutoCount) else AutoCount(2))
    machine.run(tuner, 60)
    assert (tuner.setting.workers == 3) == (workers == 3)
    assert (tuner.setting.factor == 2) == isinstance(workers, AutoCount)


def test_a_settled_loader_notices_other_cores() -> None:
    """A control group is cut from four cores to one, and gets them back."""
    machine = Machine(by_cores(4), limits=TunerLimits(4, 16, 1000))
    tuner = machine.tuner(first=4)
    machine.run(tuner, 30)
    assert tuner.setting.workers == 4
    machine.speed, machine.limits = by_cores(1), TunerLimits(1, 16, 1000)
    machine.run(tuner, 60)
    assert tuner.setting.workers == 1
    machine.speed, machine.limits = by_cores(4), TunerLimits(4, 16, 1000)
    machine.run(tuner, 60)
    assert tuner.setting.workers == 4


def test_a_settled_loader_notices_another_speed() -> None:
    """Later samples are more work, or another program takes a part of the machine."""
    machine = Machine(by_cores(4), step_s=lambda batch: 1.2 / SPEED, limits=TunerLimits(4, 16, 1000))
    tuner = machine.tuner(first=4)
    machine.run(tuner, 30)
    assert tuner.setting.workers == 1
    machine.speed = lambda setting: by_cores(4)(setting) / 3
    machine.run(tuner, 30)
    assert tuner.setting.workers == 3


def test_a_settled_loader_changes_nothing() -> None:
    """It is left alone as long as nothing else changes, but for a trial now and then where the loop waits."""
    machine = Machine(by_cores(2), step_s=lambda batch: 1.5 / SPEED)
    tuner = machine.tuner()
    machine.run(tuner, 30)
    count = len(tuner.changes)
    machine.run(tuner, 300)
    assert len(tuner.changes) == count


def test_memory_limits_workers_at_once() -> None:
    """The first batch shows what a worker takes; what other programs take later too."""
    machine = Machine(lambda setting: SPEED * setting.workers, limits=TunerLimits(8, 3, 1000))
    tuner = machine.tuner(first=1)
    machine.run(tuner, 20)
    assert max(change.workers for change in tuner.changes) == 3
    machine.limits = TunerLimits(8, 1, 4)
    machine.run(tuner, 2)
    assert tuner.setting == Setting(1, 2)
    assert tuner.changes[-1].reason == "memory"


def test_batches_under_way_fit_into_memory() -> None:
    """Large batches: few are under way, whatever the workers."""
    machine = Machine(lambda setting: SPEED * setting.workers, limits=TunerLimits(8, 16, 5))
    tuner = machine.tuner(first=8)
    machine.run(tuner, 20)
    assert tuner.setting.limit <= 5


def test_time_between_epochs_does_not_count() -> None:
    """Validation takes an hour: the loop did not wait then, nor was the loader slow."""
    machine = Machine(by_cores(2))
    tuner = machine.tuner()
    machine.run(tuner, 30)
    count = len(tuner.changes)
    for _ in range(20):
        machine.now += 3600
        tuner.begin_epoch()
        machine.run(tuner, 0.5)
    assert len(tuner.changes) == count


def test_the_first_settled_state_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """With the workers, the batches ahead, and how much the loop waits."""
    caplog.set_level("INFO", "penstock")
    machine = Machine(by_cores(2))
    machine.run(machine.tuner(), 300)
    text = "2 workers, 4 batches ahead: the loop waits 100% of its time"
    assert [record.message for record in caplog.records] == [text]


def test_a_chosen_count_stays_one_in_copies() -> None:
    """Wrappers make loaders again of attributes, and send them to other processes."""
    loader = ps.DataLoader(Squares(10), num_workers="auto", prefetch_factor="auto")
    assert loader.num_workers == find_cores(SystemFiles())
    assert repr(loader.num_workers) == "'auto'"
    again = ps.DataLoader(Squares(10), num_workers=loader.num_workers, prefetch_factor=loader.prefetch_factor)
    for other in (again, pickle.loads(pickle.dumps(loader))):
        assert isinstance(other.num_workers, AutoCount)
        assert other.num_workers.most == max(16, 4 * other.num_workers)
        assert isinstance(other.prefetch_factor, AutoCount)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_workers": "many"}, "num_workers must be an int or \"auto\", got 'many'"),
        ({"num_workers": 1, "prefetch_factor": "deep"}, "prefetch_factor must be an int or \"auto\", got 'deep'"),
        ({"num_workers": "auto", "workers": "ray"}, 'must be ints with workers="ray"'),
        ({"num_workers": "auto", "memory_fraction": 0}, "memory_fraction must be above 0 and at most 1, got 0"),
    ],
)
def test_other_texts_are_refused(options: dict[str, Any], text: str) -> None:
    """With what may be given."""
    with pytest.raises(ps.ArgumentError) as caught:
        ps.DataLoader(Squares(10), **options)
    assert text in str(caught.value)


class Draws(ps.Dataset[NDArray[np.float64]]):
    """Samples that draw from the global generators."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> NDArray[np.float64]:
        return np.array([index, random.random(), np.random.rand()])  # noqa: NPY002  # as users' datasets do


def change_at_random(monkeypatch: pytest.MonkeyPatch, seed: int) -> list[int]:
    """Have tuners change at random moments; returns the numbers of workers that they go through."""
    draw, seen = random.Random(seed), list[int]()

    def record(self: LoaderTuner, rows: int, waited_ns: int) -> bool:
        del rows, waited_ns
        if draw.random() < 0.4:
            return False
        self.setting = Setting(draw.randint(1, 4), draw.randint(1, 4))
        seen.append(self.setting.workers)
        return True

    monkeypatch.setattr(LoaderTuner, "record", record)
    return seen


@pytest.mark.parametrize("workers", ["threads", "processes"])
@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_no_batch_depends_on_the_workers(
    workers: str, in_order: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forced changes at random moments: order, draws and batches are those without workers."""
    seen = change_at_random(monkeypatch, seed)
    options: dict[str, Any] = {"batch_size": 5, "shuffle": True, "seed": seed, "seed_per_sample": True}
    want = [batch.tolist() for batch in ps.DataLoader(Draws(), **options)]
    loader = ps.DataLoader(Draws(), num_workers="auto", workers=workers, in_order=in_order, **options)
    got = [batch.tolist() for batch in loader]
    if in_order:
        assert got == want
    else:
        assert sorted(got) == sorted(want)
    assert {1, 2, 3, 4} <= set(seen)


@pytest.mark.parametrize("workers", ["threads", "processes"])
@pytest.mark.parametrize("persistent", [True, False])
def test_states_resume_amid_changes(workers: str, persistent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state says nothing of the workers: another loader goes on, and later epochs too."""
    change_at_random(monkeypatch, 1)
    options: dict[str, Any] = {"batch_size": 5, "shuffle": True, "seed": 3, "seed_per_sample": True}
    plain = ps.DataLoader(Draws(), **options)
    want = [[batch.tolist() for batch in plain] for _ in range(3)]
    loader = ps.DataLoader(Draws(), num_workers="auto", workers=workers, persistent_workers=persistent, **options)
    assert [batch.tolist() for batch in loader] == want[0]
    iterator = iter(loader)
    assert [next(iterator).tolist() for _ in range(33)] == want[1][:33]
    state = loader.state_dict()
    resumed = ps.DataLoader(Draws(), num_workers="auto", workers=workers, persistent_workers=persistent, **options)
    resumed.load_state_dict(state)
    assert [batch.tolist() for batch in resumed] == want[1][33:]
    assert [batch.tolist() for batch in resumed] == want[2]
    resumed.close()
    loader.close()


@pytest.mark.parametrize("in_order", [True, False])
def test_draws_of_processes_do_not_depend_on_changes(in_order: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ``seed_per_sample`` each batch seeds the global generators; a resumed run draws the same."""
    options: dict[str, Any] = {"batch_size": 5, "shuffle": True, "seed": 3, "in_order": in_order}

    def make() -> ps.DataLoader[NDArray[np.float64]]:
        return ps.DataLoader(Draws(), num_workers="auto", workers="processes", **options)

    change_at_random(monkeypatch, 4)
    loader = make()
    want = [batch.tolist() for batch in loader]
    assert len({row[1] for batch in want for row in batch}) == 400
    assert [batch.tolist() for batch in loader] != want
    change_at_random(monkeypatch, 5)
    other = make()
    iterator = iter(other)
    got = [next(iterator).tolist() for _ in range(33)]
    resumed = make()
    resumed.load_state_dict(other.state_dict())
    iterator.close()
    got += [batch.tolist() for batch in resumed]
    if in_order:
        assert got == want
    else:
        assert sorted(got) == sorted(want)


def test_workers_that_are_not_needed_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes beyond the number are ended when their tasks are done, and started again when they get one."""
    settings = iter([*[Setting(4)] * 12, *[Setting(1)] * 30])

    def record(self: LoaderTuner, rows: int, waited_ns: int) -> bool:
        del rows, waited_ns
        self.setting = next(settings, Setting(3))
        return True

    monkeypatch.setattr(LoaderTuner, "record", record)
    loader = ps.DataLoader(Squares(500), batch_size=5, num_workers="auto", workers="processes")
    iterator = iter(loader)
    counts = []
    for _ in range(60):
        next(iterator)
        counts.append(len(iterator.backend.processes))
    assert counts[11] == 4
    assert counts[40] == 1
    assert counts[-1] == 3
    iterator.close()


def test_streams_and_datasets_with_a_state_keep_their_workers() -> None:
    """Work cannot be moved between them: they are as many as cores."""

    class Numbers(ps.IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(20))

    class Counting(Squares):
        def state_dict(self) -> dict[str, int]:
            return {}

        def load_state_dict(self, state: object) -> None: ...

    cores = find_cores(SystemFiles())
    for dataset in (Numbers(), Counting(20)):
        loader = ps.DataLoader(dataset, num_workers="auto", workers="threads")
        assert loader.num_workers == cores
        list(loader)
        assert loader.stats().changes == ()


def test_stats_list_what_was_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its reason; asking changes nothing."""

    def record(self: LoaderTuner, rows: int, waited_ns: int) -> bool:
        del rows, waited_ns
        self._change(Setting(3, 2), "one more: the loop waited 50% of its time")
        return True

    monkeypatch.setattr(LoaderTuner, "record", record)
    loader = ps.DataLoader(Squares(10), batch_size=10, num_workers="auto", workers="threads")
    before = loader.stats()
    assert before.changes == ()
    list(loader)
    rates = loader.stats().since(before)
    assert rates.changes == loader.stats().changes
    assert str(rates).endswith("now 3 workers, 6 batches ahead (one more: the loop waited 50% of its time)")
    assert loader.stats().changes == (SettingChange(0, 3, 6, "one more: the loop waited 50% of its time"),)
    assert "from batch 0: 3 workers, 6 batches ahead (one more: the loop waited 50% of its time)" in str(loader.stats())
