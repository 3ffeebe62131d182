"""Short steps and batches, of which some are passed over: what is reported of them stays right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch.utils.data

from penstock import doctor
from penstock.doctor import block as watching
from penstock.doctor.judge.stage_costs import cost_batches, cost_stages
from penstock.doctor.watching.loaders.loader_watch import ScriptStep, step_times
from penstock.doctor.watching.recording import BATCH, SAMPLE, STAGES
from penstock.doctor.watching.work_recorder import DetailChoice
from tests.doctor.recordings import EventRow, make_recording, make_steps
from tests.doctor.test_watching import (
    MS,
    OWN,
    TORCH,
    Numbers,
    assert_validations_are_left_out,
    draw,
    events_of,
    seed,
    to_lists,
    watch_epochs,
)

PASSED = 3
"""Batches that are passed over after each one in detail."""


@pytest.fixture
def _few_details(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of four batches is observed in detail, however long they take; also in forked workers."""

    def choose(self: DetailChoice, batch_ns: float, cost_ns: float) -> None:
        self.left = PASSED

    monkeypatch.setattr(DetailChoice, "choose", choose)
    monkeypatch.setattr(watching, "_diagnose", lambda *_: None)


@pytest.mark.usefixtures("_few_details")
@pytest.mark.parametrize(
    "name",
    [
        "serial",
        "persistent",
        "stream",
        "numpy serial",
        "torch processes",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("workers", "any order")),
    ],
)
def test_watching_changes_nothing(name: str) -> None:
    """Batches, their order, and the global generators are as without it."""
    make = {**TORCH, **OWN}[name]
    seed()
    loader = make()
    expected = [to_lists(batch) for _ in range(2) for batch in loader]
    state = draw()

    seed()
    batches, _ = watch_epochs(make)

    assert batches == expected
    assert draw() == state


@pytest.mark.usefixtures("_few_details")
@pytest.mark.parametrize(
    "name",
    [
        "serial",
        "persistent",
        "single samples",
        "any order",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("workers", "batch sampler")),
    ],
)
def test_each_step_is_counted(name: str) -> None:
    """Steps have their own times and samples, whether or not they are observed in detail; few batches are recorded."""
    batches, recording = watch_epochs(TORCH[name])

    steps, warm_up = recording.steps, recording.warm_up
    sizes = [1 if name == "single samples" else len(batch) for batch in batches]
    assert steps.samples.tolist() == sizes[warm_up:]
    assert (steps.wait_ns > 0).all()
    assert (steps.step_ns > 0).all()
    assert (np.diff(steps.start_ns) > 0).all()
    assert (steps.start_ns[1:] - steps.wait_ns[1:] >= steps.start_ns[:-1] + steps.step_ns[:-1]).all()
    assert np.bincount(steps.epoch).tolist() == [len(batches) // 2 - warm_up, len(batches) // 2]
    built, collated = events_of(recording, BATCH), events_of(recording, "collate")
    assert 0 < len(built) <= len(batches) // 2
    assert set(built["batch"].tolist()) == set(collated["batch"].tolist())
    assert set(built["batch"].tolist()) <= set(range(len(batches)))
    assert (built["cpu"] >= 0).all()


@pytest.mark.usefixtures("_few_details")
def test_a_validation_within_a_step_that_is_passed_over() -> None:
    """Batches of another loader, and what is done with them, belong to that loader."""
    assert_validations_are_left_out(3, 8)  # passed over, and in detail


@pytest.mark.usefixtures("_few_details")
def test_a_loop_that_is_left_has_no_last_step() -> None:
    """Where the step after a `break` ends is not known; it is left out."""
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4)
    with doctor.watch(loader, budget_s=0) as report:
        for number, _ in enumerate(loader):
            if number == 6:
                break
        for _ in loader:
            pass

    assert report.recording is not None
    assert np.bincount(report.recording.steps.epoch).tolist() == [7 - 1 - report.recording.warm_up, 12]


@pytest.mark.usefixtures("_few_details")
def test_as_many_steps_as_asked_for_are_seen() -> None:
    """Watching ends where it would if no step were passed over."""
    loader = torch.utils.data.DataLoader(Numbers(400), batch_size=4)
    with doctor.watch(loader, steps=20, budget_s=0) as report:
        count = sum(1 for _ in loader)

    assert count == 100
    assert report.recording is not None
    assert report.recording.ended == "steps"
    assert len(report.recording.steps.step_ns) + report.recording.warm_up == 20 + 2 - 1


@pytest.mark.usefixtures("_few_details")
def test_an_error_of_the_dataset_is_the_scripts_own() -> None:
    """It is raised where the batch is asked for, also if that is passed over."""

    class Fails(Numbers):
        def __getitem__(self, index: int) -> Any:
            if index == 9:
                raise ValueError("sample 9")
            return super().__getitem__(index)

    loader = torch.utils.data.DataLoader(Fails(), batch_size=4)
    with pytest.raises(ValueError, match="sample 9"), doctor.watch(loader, budget_s=0):
        for _ in loader:
            pass


# what is computed


def test_steps_that_are_passed_over_compute_as_much_as_others() -> None:
    """Their processor time is not measured: it is the same part of their length."""
    steps = [
        ScriptStep(0, 0, 0, 0, 0, 4, length=100, cpu=50),
        ScriptStep(1, 0, 0, 0, 0, 4, length=300, cpu=250),
        ScriptStep(2, 0, 0, 0, 0, 4, length=200),
        ScriptStep(-1, 0, 0, 0, 0, 4, length=100, cpu=0, replayed=True),
    ]

    assert step_times(steps).cpu_ns.tolist() == [50, 250, 150, 0]


def make_batch(batch: int) -> list[EventRow]:
    """Events of a batch of 4 samples by one of two workers: 8 ms of samples, 2 ms of collation, 1 ms of sending."""
    start, worker = batch * 20 * MS, batch % 2
    rows: list[EventRow] = [(BATCH, worker, batch, -1, start, start + 10 * MS, 9 * MS, -1, 4)]
    for at in range(4):
        begin = start + 2 * at * MS
        rows += [
            (SAMPLE, worker, batch, 4 * batch + at, begin, begin + 2 * MS, -1, -1, 1),
            (STAGES.index("decode"), worker, batch, 4 * batch + at, begin, begin + MS, -1, -1, 1),
            (STAGES.index("augment"), worker, batch, 4 * batch + at, begin + MS, begin + 2 * MS, -1, -1, 1),
        ]
    return [
        *rows,
        (STAGES.index("collate"), worker, batch, -1, start + 8 * MS, start + 10 * MS, -1, 4096, 4),
        (STAGES.index("transport"), worker, batch, -1, start + 11 * MS, start + 12 * MS, MS, 4096, 4),
    ]


def test_costs_are_those_of_batches_in_detail() -> None:
    """Costs per stage and sample do not depend on how many batches are observed in detail."""
    steps = make_steps(range(0, 60 * 20 * MS, 20 * MS))
    found = []
    for apart in (1, 5):
        events = [row for batch in range(0, 60, apart) for row in make_batch(batch)]
        recording = make_recording(events, steps)
        costs = cost_batches(recording)
        found.append({cost.stage: (cost.us_per_sample, cost.share) for cost in cost_stages(recording, costs)})
        assert costs.wall_ns["collate"].tolist() == pytest.approx([2 * MS] * (60 // apart - 2))
        assert costs.wall_ns["transport"].tolist() == pytest.approx([MS] * (60 // apart - 2))
        assert costs.wall_ns["decode"].tolist() == pytest.approx([4 * MS] * (60 // apart - 2))
        assert costs.samples.tolist() == [4] * (60 // apart - 2)

    assert set(found[0]) >= {"decode", "augment", "collate", "transport"}
    assert found[1] == {stage: pytest.approx(values) for stage, values in found[0].items()}
