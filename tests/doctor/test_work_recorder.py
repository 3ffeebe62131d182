"""How one worker's batches are recorded."""

from __future__ import annotations

import pytest

from penstock.doctor.watching.event_file import EventList
from penstock.doctor.watching.recording import SAMPLE, STAGES
from penstock.doctor.watching.sample_events import unpack_samples
from penstock.doctor.watching.stack_sampling import SampledThread
from penstock.doctor.watching.work_recorder import WorkRecorder

MS = 1_000_000


def record_batch(work: WorkRecorder, number: int, looks: dict[str, int]) -> None:
    """One batch of a sample of 5 ms, in which ``looks`` were seen."""
    work.begin_batch(number)
    assert work.thread.activity is not None
    for stage, time_ns in looks.items():
        work.thread.activity.add(stage, time_ns, time_ns)
    work.write_many([number], [0, 5 * MS], [])
    work.end_batch(1)


def test_first_batch_says_little_of_the_others() -> None:
    """What a worker does once, in its first batch, is not what later samples are divided by."""
    sink = EventList()
    work = WorkRecorder(sink, 0, SampledThread())
    record_batch(work, 0, {"augment": 10 * MS})
    record_batch(work, 1, {"decode": 5 * MS})
    record_batch(work, 2, {})

    events = unpack_samples(sink.read())
    last = events[(events["batch"] == 2) & (events["stage"] < 3)]

    assert last["stage"][(last["end"] - last["start"]).argmax()] == 1


def test_samples_before_the_first_look_have_no_parts() -> None:
    """Nothing is known of them yet; later looks say how they are divided."""
    sink = EventList()
    work = WorkRecorder(sink, 0, SampledThread())
    record_batch(work, 0, {})
    record_batch(work, 1, {"read": 5 * MS})

    events = unpack_samples(sink.read())

    assert set(events["stage"][events["batch"] == 0].tolist()) - {SAMPLE, SAMPLE + 1} == set()
    assert 0 in events["stage"][events["batch"] == 1]


def test_a_part_that_was_counted_is_kept_however_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread may wait long between the parts of a chunk: the rest is divided, such that the whole is as seen."""
    clock = [1000 * MS]
    monkeypatch.setattr("time.perf_counter_ns", lambda: clock[0])
    sink = EventList()
    work = WorkRecorder(sink, 0, SampledThread())
    work.begin_batch(0)
    work.begin_chunk([5, 6])
    activity = work.thread.activity
    assert activity is not None
    clock[0] += 100 * MS
    activity.add("read", 75 * MS, 75 * MS)
    activity.add("decode", 25 * MS, 25 * MS)

    work.add_part("decode", 2 * MS, 2)
    work.end_chunk(2)
    work.leave_batch()

    events = sink.read()
    spent = {
        stage: [int(row["end"] - row["start"]) for row in events[events["stage"] == STAGES.index(stage)]]
        for stage in ("read", "decode", "augment")
    }
    assert spent == {"read": [75 * MS], "decode": [2 * MS, 23 * MS], "augment": []}
