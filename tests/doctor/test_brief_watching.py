"""Short steps and batches, of which only some are observed in detail: what is reported of them stays right."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch.utils.data

from penstock import doctor
from penstock.doctor.judge.stage_costs import cost_batches, cost_stages
from penstock.doctor.watching import block as watching
from penstock.doctor.watching.brief_steps import BriefSteps, ScriptStep, fill_cpu_of_steps
from penstock.doctor.watching.detail_choice import DetailChoice
from penstock.doctor.watching.event_file import EventList
from penstock.doctor.watching.recorded_events import fill_cpu
from penstock.doctor.watching.recording import BATCH, EVENT, SAMPLE, STAGES
from penstock.doctor.watching.stack_sampling import SampledThread
from penstock.doctor.watching.work_recorder import WorkRecorder
from tests.doctor.recordings import EventRow, make_recording, make_steps
from tests.doctor.test_watching import OWN, TORCH, Numbers, draw, events_of, seed, to_lists, watch_epochs

MS = 1_000_000
PASSED = 3
"""Batches that are passed over after each one in detail."""


@pytest.fixture
def _few_details(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of four batches is observed in detail, however long they take; also in forked workers."""

    def choose(self: DetailChoice, batch_ns: float, cost_ns: float) -> None:
        self.left, self.long_ns = PASSED, 1e12

    monkeypatch.setattr(DetailChoice, "choose", choose)
    monkeypatch.setattr(watching, "_diagnose", lambda *_: None)


@pytest.mark.usefixtures("_few_details")
@pytest.mark.parametrize(
    "name", ["serial", "workers", "persistent", "stream", "any order", "numpy serial", "torch processes"]
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
@pytest.mark.parametrize("name", ["serial", "workers", "persistent", "batch sampler", "single samples", "any order"])
def test_each_step_and_batch_is_counted(name: str) -> None:
    """Steps have their own times and samples, and batches theirs, whether or not they are observed in detail."""
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
    ahead = recording.settings.num_workers * recording.settings.prefetch_factor  # built before the first step
    assert len(set(built["batch"].tolist())) == len(built) >= len(steps.samples) - ahead
    assert 0 < len(set(collated["batch"].tolist())) <= len(built) // 2
    assert (built["cpu"] >= 0).all()


@pytest.mark.usefixtures("_few_details")
def test_a_slow_sample_is_found() -> None:
    """Also in a batch whose samples are not timed: its index, and for about how long it was seen."""
    loader = torch.utils.data.DataLoader(Numbers(48, slow=22), batch_size=4, num_workers=1)
    with doctor.watch(loader, steps=1000, budget_s=0) as report:
        for _ in loader:
            pass

    recording = report.recording
    assert recording is not None
    samples = events_of(recording, SAMPLE)
    slowest = samples[np.argmax(samples["end"] - samples["start"])]
    assert slowest["index"] == 22
    assert slowest["samples"] == 0  # of a batch in brief
    assert slowest["end"] - slowest["start"] > 50 * MS
    assert recording.keys[22] == "folder/22.jpg"


@pytest.mark.usefixtures("_few_details")
def test_a_validation_within_a_brief_step_is_no_part_of_it() -> None:
    """Batches of another loader, and what is done with them, belong to that loader."""
    train = torch.utils.data.DataLoader(Numbers(48), batch_size=4)
    check = torch.utils.data.DataLoader(Numbers(12), batch_size=4)
    with doctor.watch(budget_s=0) as report:
        for number, _ in enumerate(train):
            time.sleep(0.002)
            if number in {3, 8}:  # in brief, and in detail
                for _ in check:
                    time.sleep(0.15)

    recording = report.recording
    assert recording is not None
    assert recording.settings.length == 48
    assert recording.steps.step_ns.max() < 200 * MS


@pytest.mark.usefixtures("_few_details")
def test_a_loop_that_is_left_has_no_last_step() -> None:
    """Where the brief step after a `break` ends is not known; it is left out."""
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4)
    with doctor.watch(loader, budget_s=0) as report:
        for number, _ in enumerate(loader):
            if number == 6:
                break
        time.sleep(0.3)
        for _ in loader:
            pass

    assert report.recording is not None
    assert report.recording.steps.step_ns.max() < 200 * MS
    assert len(report.recording.steps.step_ns) == 7 + 12 - 1 - report.recording.warm_up


@pytest.mark.usefixtures("_few_details")
def test_as_many_steps_as_asked_for_are_seen() -> None:
    """The last normal step is observed in detail, so that watching ends where it would without brief steps."""
    loader = torch.utils.data.DataLoader(Numbers(400), batch_size=4)
    with doctor.watch(loader, steps=20, budget_s=0) as report:
        count = sum(1 for _ in loader)

    assert count == 100
    assert report.recording is not None
    assert report.recording.ended == "steps"
    assert len(report.recording.steps.step_ns) + report.recording.warm_up == 20 + 2 - 1


@pytest.mark.usefixtures("_few_details")
def test_an_error_of_the_dataset_is_the_scripts_own() -> None:
    """It is raised where the batch is asked for, in brief too."""

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


def test_brief_steps_have_times_of_their_own() -> None:
    """From arrival to the next request, less the time of other loaders; the rest is that of the step before."""
    last = ScriptStep(7, 1, 5, 100, ready=2, samples=4)
    steps = BriefSteps()
    steps.times += [200, 210, 300, 320]
    steps.note_foreign(330, 340)
    steps.note_foreign(350, 360)
    steps.times += [400, 440]

    run = steps.end(500, last, [8, 0, 8])
    found = run.make_steps()

    assert steps.times == []
    assert [step.number for step in found] == [8, 9, 10]
    assert [step.wait for step in found] == [10, 20, 40]
    assert [step.length for step in found] == [90, 80 - 30, 60]
    assert [step.samples for step in found] == [8, 4, 8]
    assert {(step.epoch, step.ready, step.is_brief) for step in found} == {(1, 2, True)}


def test_brief_steps_compute_as_much_as_others() -> None:
    """Their processor time is not measured: it is the same part of their length."""
    steps = [
        ScriptStep(0, 0, 0, 0, 0, 4, length=100, cpu=50),
        ScriptStep(1, 0, 0, 0, 0, 4, length=300, cpu=250),
        ScriptStep(2, 0, 0, 0, 0, 4, length=200, is_brief=True),
        ScriptStep(3, 0, 0, 0, 0, 4, length=-1, is_brief=True),
        ScriptStep(-1, 0, 0, 0, 0, 4, length=100, cpu=0, replayed=True),
    ]

    fill_cpu_of_steps(steps)

    assert [step.cpu for step in steps] == [50, 250, 150, 0, 0]


def test_batches_in_brief_compute_as_much_as_others() -> None:
    """Of the same worker; what is known stays."""
    rows = [
        (BATCH, 0, 0, -1, 0, 100, 50, 64, 4),
        (BATCH, 0, 1, -1, 100, 300, -1, -1, 4),
        (BATCH, 0, 2, -1, 300, 700, 7, -1, 4),
        (BATCH, 1, 3, -1, 0, 100, 100, 64, 4),
        (BATCH, 1, 4, -1, 100, 150, -1, -1, 4),
        (BATCH, 2, 5, -1, 0, 100, -1, -1, 4),
    ]

    events = fill_cpu(np.array(rows, EVENT))

    assert events["cpu"].tolist() == [50, 100, 7, 100, 50, -1]


def make_batch(batch: int, *, detailed: bool) -> list[EventRow]:
    """Events of a batch of 4 samples by one of two workers: 8 ms of samples, 2 ms of collation, 1 ms of sending."""
    start, worker = batch * 20 * MS, batch % 2
    rows: list[EventRow] = [(BATCH, worker, batch, -1, start, start + 10 * MS, 9 * MS, -1, 4)]
    if not detailed:
        return rows
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
    """Costs per stage and sample, and their tails, do not depend on how many batches are observed in detail."""
    steps = make_steps(range(0, 60 * 20 * MS, 20 * MS))
    found = []
    for apart in (1, 5):
        events = [row for batch in range(60) for row in make_batch(batch, detailed=batch % apart == 0)]
        recording = make_recording(events, steps)
        costs = cost_batches(recording)
        found.append(
            {
                cost.stage: (cost.us_per_sample, cost.p50_us, cost.p99_us, cost.share)
                for cost in cost_stages(recording, costs)
            }
        )
        assert costs.wall_ns["collate"].tolist() == pytest.approx([2 * MS] * 58)
        assert costs.wall_ns["transport"].tolist() == pytest.approx([MS] * 58)
        assert costs.wall_ns["decode"].tolist() == pytest.approx([4 * MS] * 58)
        assert costs.samples.tolist() == [4] * 58

    assert set(found[0]) >= {"decode", "augment", "collate", "transport"}
    assert found[1] == {stage: pytest.approx(values) for stage, values in found[0].items()}


def test_a_slow_batch_in_brief_counts_whole() -> None:
    """Its time is known: what collation and sending do not take is that of its samples."""
    events = [row for batch in range(60) for row in make_batch(batch, detailed=batch % 5 == 0)]
    slow = next(at for at, row in enumerate(events) if row[2] == 33)
    events[slow] = (BATCH, 1, 33, -1, 33 * 20 * MS, 33 * 20 * MS + 110 * MS, 100 * MS, -1, 4)

    costs = cost_batches(make_recording(events, make_steps(range(0, 60 * 20 * MS, 20 * MS))))

    at = costs.numbers.tolist().index(33)
    assert costs.wall_ns["decode"][at] + costs.wall_ns["augment"][at] == pytest.approx(108 * MS)
    assert costs.wall_ns["collate"][at] == pytest.approx(2 * MS)


def test_a_batch_in_brief_is_one_event() -> None:
    """With its time, worker, number and samples; the next one in detail comes nearer."""
    sink = EventList()
    work = WorkRecorder(sink, 3, SampledThread())
    work.first_batch, work.detail.left, work.detail.long_ns = 100, 2, 1e12

    built = work.build_briefly(lambda index: [index], 5, lambda: 7, 4)

    [event] = sink.read()
    assert built == [5]
    assert (event["stage"], event["worker"], event["batch"], event["samples"]) == (BATCH, 3, 107, 4)
    assert event["end"] >= event["start"]
    assert (work.detail.left, work.is_brief, work.thread.activity) == (1, False, None)


def test_after_an_unusual_batch_the_next_is_observed() -> None:
    """And its own processor time is measured, as far as it can be told from that of the batches before it."""
    sink = EventList()
    work = WorkRecorder(sink, 3, SampledThread())
    work.detail.left, work.detail.long_ns = 9, 0.5 * MS

    work.build_briefly(lambda _: time.sleep(0.05), 5, lambda: 7, 4)

    [event] = sink.read()
    assert work.detail.left == 0
    assert 0 <= event["cpu"] <= event["end"] - event["start"]


def test_what_was_seen_in_brief_is_kept() -> None:
    """A sample that was looked at for long is written, with the stage that was seen; and a collation is no sample."""
    sink = EventList()
    work = WorkRecorder(sink, 0, SampledThread())
    work.detail.left, work.detail.long_ns = 9, 1e12

    def collate(samples: Any) -> Any:
        activity = work.thread.activity
        assert activity is not None
        assert activity.kind == "collate"
        activity.add("collate", 5 * MS, 5 * MS)
        return samples

    def build(index: list[int]) -> Any:
        activity = work.thread.activity
        assert activity is not None
        activity.add("read", 40 * MS, 30 * MS, 1000, 42)
        return work.collate_briefly(collate, index, 2)

    work.build_briefly(build, [41, 42], lambda: 0, 2)

    events = sink.read()
    slow = events[events["stage"] == SAMPLE]
    assert [(row["index"], row["end"] - row["start"], row["samples"]) for row in slow] == [(42, 30 * MS, 0)]
    assert events[events["stage"] == STAGES.index("read")]["index"].tolist() == [42]
