"""How one worker's batches are recorded."""

from __future__ import annotations

import pytest

from penstock.doctor.watching.event_file import EventList
from penstock.doctor.watching.recording import BATCH, SAMPLE, STAGES
from penstock.doctor.watching.stack_sampling import SampledThread
from penstock.doctor.watching.work_recorder import DetailChoice, WorkRecorder

MS = 1_000_000


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time, which goes on where a test says so."""
    now = [1000 * MS]
    monkeypatch.setattr("time.perf_counter_ns", lambda: now[0])
    return now


def record_batch(
    work: WorkRecorder, clock: list[int], number: int, looks: dict[str, int], length: int = 5 * MS
) -> None:
    """One batch of a sample of 5 ms, or of ``length``, in which ``looks`` were seen."""
    work.begin_batch(number)
    work.begin_samples([number])
    work.begin_sample(0)
    assert work.thread.activity is not None
    for stage, time_ns in looks.items():
        work.thread.activity.add(stage, time_ns)
    clock[0] += length
    work.end_samples(1)
    work.end_batch(1)
    work.leave_batch()


def test_first_batch_says_little_of_the_others(clock: list[int]) -> None:
    """What a worker does once, in its first batch, is not what later samples are divided by."""
    sink = EventList()
    work = WorkRecorder(sink, 0, SampledThread())
    record_batch(work, clock, 0, {"augment": 10 * MS})
    record_batch(work, clock, 1, {"decode": 5 * MS})
    record_batch(work, clock, 2, {})

    events = sink.read()
    last = events[(events["batch"] == 2) & (events["stage"] < 3)]

    assert last["stage"][(last["end"] - last["start"]).argmax()] == 1


def test_a_batch_that_was_seen_for_long_is_divided_by_its_own_looks(clock: list[int]) -> None:
    """A shorter one is divided as those before it."""
    sink = EventList()
    work = WorkRecorder(sink, 0, SampledThread())
    for number in range(10):
        record_batch(work, clock, number, {"decode": 100 * MS}, 100 * MS)
    record_batch(work, clock, 10, {"read": 15 * MS, "augment": 5 * MS}, 40 * MS)
    record_batch(work, clock, 11, {"augment": 14 * MS}, 40 * MS)

    events = sink.read()
    spent = {
        (int(row["batch"]), STAGES[row["stage"]]): int(row["end"] - row["start"])
        for row in events[(events["batch"] >= 10) & (events["stage"] < 3)]
    }
    assert (spent[10, "read"], spent[10, "augment"]) == (30 * MS, 10 * MS)
    assert (10, "decode") not in spent
    assert spent[11, "decode"] > 36 * MS


def test_samples_before_the_first_look_have_no_parts(clock: list[int]) -> None:
    """Nothing is known of them yet; later looks say how they are divided."""
    sink = EventList()
    work = WorkRecorder(sink, 0, SampledThread())
    record_batch(work, clock, 0, {})
    record_batch(work, clock, 1, {"read": 5 * MS})

    events = sink.read()

    assert set(events["stage"][events["batch"] == 0].tolist()) == {SAMPLE, BATCH}
    assert 0 in events["stage"][events["batch"] == 1]


def test_a_part_that_was_counted_is_kept_however_short(clock: list[int]) -> None:
    """A thread may wait long between the parts of a chunk: the rest is divided, such that the whole is as seen."""
    sink = EventList()
    work = WorkRecorder(sink, 0, SampledThread())
    work.begin_batch(0)
    work.begin_samples([5, 6])
    activity = work.thread.activity
    assert activity is not None
    clock[0] += 100 * MS
    activity.add("read", 75 * MS)
    activity.add("decode", 25 * MS)

    work.add_part("decode", 2 * MS, 2)
    work.end_samples(2)
    work.leave_batch()

    events = sink.read()
    spent = {
        stage: [int(row["end"] - row["start"]) for row in events[events["stage"] == STAGES.index(stage)]]
        for stage in ("read", "decode", "augment")
    }
    assert spent == {"read": [75 * MS], "decode": [2 * MS, 23 * MS], "augment": []}


# which of torch's batches are recorded


def passed_over(batch_ns: float, cost_ns: float, count: int) -> list[int]:
    """How many batches are passed over after each of ``count`` batches in detail."""
    choice = DetailChoice()
    passed = []
    for _ in range(count):
        choice.choose(batch_ns, cost_ns)
        passed.append(choice.left)
    return passed


def test_each_long_batch_is_observed() -> None:
    """Where details cost little of a batch's time, none is passed over."""
    assert passed_over(100e6, 200e3, 300) == [0] * 300


def test_the_first_batches_are_observed() -> None:
    """A script with few steps is seen in detail, however short they are."""
    assert passed_over(50e3, 200e3, 39) == [0] * 39


@pytest.mark.parametrize(("batch_ns", "cost_ns"), [(1e6, 100e3), (2e6, 200e3), (20e6, 100e3)])
def test_details_cost_little(batch_ns: float, cost_ns: float) -> None:
    """Of short batches so few are observed that this costs 0.3 % of their time, but not fewer."""
    passed = passed_over(batch_ns, cost_ns, 4000)[100:]

    cost = cost_ns * len(passed) / (batch_ns * (len(passed) + sum(passed)))

    assert 0.0023 < cost < 0.0031


def test_some_are_observed_whatever_they_cost() -> None:
    """Of the shortest batches one of 256 is observed, and never fewer than one of 511."""
    passed = passed_over(1e3, 200e3, 2000)[100:]

    assert max(passed) < 511
    assert 240 < sum(passed) / len(passed) < 270


def test_distances_differ() -> None:
    """A batch that is slow each n-th time is neither always passed over, nor always observed."""
    passed = passed_over(1e6, 30e3, 1000)[100:]

    assert len(set(passed)) == 2 * 11 - 1
