"""write_trace(): a recording as a file of Chrome's trace event format."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.doctor.reports.trace_file import list_trace_events, write_trace
from penstock.doctor.watching.recording import BATCH, EVENT, SAMPLE, STAGES, Recording
from tests.doctor.recordings import EventRow, make_recording, make_steps

READ, DECODE, COLLATE, TRANSPORT = (STAGES.index(name) for name in ("read", "decode", "collate", "transport"))

NS = 1_000_000


def event(stage: int, worker: int, start: int, end: int, *, batch: int = 0, index: int = -1) -> EventRow:
    """An event between two milliseconds."""
    return stage, worker, batch, index, 1_000_000 * NS + start * NS, 1_000_000 * NS + end * NS, NS, -1, 1


def check_format(document: dict[str, Any]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """Compare a document with the rules of the format; the slices of each lane.

    Object form: ``traceEvents`` is a list. Each event has ``ph`` and ``pid``. Complete events (X) have ``name``,
    ``ts``, ``dur`` and ``tid``, and those of one thread nest. Counters (C) have numbers in ``args``. Metadata (M) name
    a process or a thread once, or its place.
    """
    lanes: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    named: set[tuple[int, int, str]] = set()
    assert isinstance(document["traceEvents"], list)
    assert document["displayTimeUnit"] in {"ms", "ns"}
    assert all(isinstance(value, str) for value in document["otherData"].values())
    for each in document["traceEvents"]:
        assert isinstance(each["name"], str)
        assert all(isinstance(each[name], int) for name in ("pid", "tid"))
        if each["ph"] == "M":
            key = "sort_index" if each["name"].endswith("sort_index") else "name"
            assert each["name"] in {"process_name", "process_sort_index", "thread_name", "thread_sort_index"}
            assert isinstance(each["args"][key], int if key == "sort_index" else str)
            assert (each["pid"], each["tid"], each["name"]) not in named
            named.add((each["pid"], each["tid"], each["name"]))
        elif each["ph"] == "C":
            assert each["ts"] >= 0
            assert all(isinstance(value, (int, float)) for value in each["args"].values())
        else:
            assert each["ph"] == "X"
            assert each["ts"] >= 0
            assert each["dur"] >= 0
            lanes[each["pid"], each["tid"]].append(each)
    for (process, thread), slices in lanes.items():
        assert (process, thread, "thread_name") in named
        assert (process, 0, "process_name") in named
        ends: list[int] = []
        for each in sorted(slices, key=lambda each: (each["ts"], -each["dur"])):
            start, end = (round(1000 * time) for time in (each["ts"], each["ts"] + each["dur"]))
            while ends and ends[-1] <= start:
                ends.pop()
            assert not ends or end <= ends[-1], "slices of a lane nest"
            ends.append(end)
    return lanes


def write_and_read(tmp_path: Path, recording: Recording | list[Recording]) -> dict[str, Any]:
    """The document, through a file."""
    path = tmp_path / "out.json"
    write_trace(recording, path)
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def test_each_event_is_a_slice_in_the_lane_of_its_worker(tmp_path: Path) -> None:
    """A batch holds its samples, these hold their stages; times are microseconds since the first event."""
    events = [
        event(BATCH, 1, 10, 20, batch=7),
        event(SAMPLE, 1, 10, 15, batch=7, index=3),
        event(READ, 1, 10, 12, batch=7, index=3),
        event(COLLATE, 1, 15, 19, batch=7),
        event(TRANSPORT, -1, 21, 22, batch=7),
    ]

    document = write_and_read(tmp_path, make_recording(events, keys={3: "a/3.jpg"}))

    lanes = check_format(document)
    titles = {e["tid"]: e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"}
    assert {titles[thread]: [each["name"] for each in slices] for (_, thread), slices in lanes.items()} == {
        "main": ["transport"],
        "worker 1": ["batch 7", "sample 3", "read", "collate"],
    }
    (sample,) = [each for slices in lanes.values() for each in slices if each["name"] == "sample 3"]
    assert (sample["ts"], sample["dur"], sample["cat"]) == (0.0, 5000.0, "sample")
    assert sample["args"] == {"batch": 7, "index": 3, "key": "a/3.jpg", "cpu_ms": 1.0}
    assert document["otherData"]["dataset"] == "Photos"


def test_steps_and_waits_are_in_the_main_lane(tmp_path: Path) -> None:
    """From the steps, where there are no events of them; a replayed batch was not waited for."""
    steps = make_steps([1000, 2000, 3000], wait=100, step=800, ready=2, device=400, replayed=1)

    document = write_and_read(tmp_path, make_recording(steps=steps))

    (slices,) = check_format(document).values()
    assert [(each["name"], each["ts"], each["dur"]) for each in slices] == [
        ("wait", 0.0, 0.1), ("step", 0.1, 0.8), ("wait", 1.0, 0.1), ("step", 1.1, 0.8),
        ("step (same batch again)", 2.1, 0.8),
    ]  # fmt: skip
    counters = [(e["name"], e["args"]["value"]) for e in document["traceEvents"] if e["ph"] == "C"]
    assert counters == [("batches ready", 2)] * 3 + [("device busy", 0.5)] * 3


def test_steps_that_are_events_are_not_written_twice(tmp_path: Path) -> None:
    """The events have their own times."""
    own = [event(STAGES.index("wait"), -1, 0, 1), event(STAGES.index("step"), -1, 1, 5)]

    lanes = check_format(write_and_read(tmp_path, make_recording(own, make_steps([1_000_001 * NS]))))

    assert [each["name"] for slices in lanes.values() for each in slices] == ["wait", "step"]


def test_a_queue_grows_by_batches_and_shrinks_by_steps(tmp_path: Path) -> None:
    """Batches that workers have finished and the script has not taken; those from before watching are counted in."""
    events = [event(BATCH, 0, 0, end, batch=end) for end in (2, 3, 9)]
    steps = make_steps([1_000_001 * NS, 1_000_004 * NS])

    document = write_and_read(tmp_path, make_recording(events, steps))

    check_format(document)
    counted = [e["args"]["value"] for e in document["traceEvents"] if e["name"] == "batches finished, not taken"]
    assert counted == [0, 1, 2, 1, 2]


def test_what_overlaps_gets_a_further_lane(tmp_path: Path) -> None:
    """Threads of one worker build two batches at once; a lane is used again when it is free."""
    events = [event(BATCH, 0, 0, 10, batch=0), event(BATCH, 0, 5, 15, batch=1), event(BATCH, 0, 10, 20, batch=2)]

    document = write_and_read(tmp_path, make_recording(events))

    lanes = check_format(document)
    assert sorted([each["name"] for each in slices] for slices in lanes.values()) == [
        ["batch 0", "batch 2"],
        ["batch 1"],
    ]
    titles = [e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"]
    assert titles == ["worker 0", "worker 0 (2)"]


def test_ranks_are_processes_with_one_clock(tmp_path: Path) -> None:
    """The earliest event of all is time zero."""
    ranks = [
        make_recording([event(BATCH, 0, 5, 6)], rank=0, world_size=2, command=["/home/me/train.py", "--fast"]),
        make_recording([event(BATCH, 0, 2, 3)], rank=1, world_size=2, command=["/home/me/train.py", "--fast"]),
    ]

    document = write_and_read(tmp_path, ranks)

    starts = {slices[0]["pid"]: slices[0]["ts"] for slices in check_format(document).values()}
    names = [e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"]
    assert names == ["rank 0: train.py", "rank 1: train.py"]
    assert starts == {1: 3000.0, 2: 0.0}


@pytest.mark.parametrize("recordings", [[], [make_recording()]])
def test_nothing_is_a_trace_too(tmp_path: Path, recordings: list[Recording]) -> None:
    """A script that ended before its first batch."""
    assert check_format(write_and_read(tmp_path, recordings)) == {}


def test_names_of_any_text_are_written(tmp_path: Path) -> None:
    """Keys are the user's: quotes, line breaks, bytes that are no text."""
    key = '"</script>\n\udcff\U0001f600'

    document = write_and_read(tmp_path, make_recording([event(SAMPLE, 0, 0, 1, index=2)], keys={2: key}))

    (slices,) = check_format(document).values()
    assert slices[0]["args"]["key"] == key


def test_a_compressed_file_holds_the_same(tmp_path: Path) -> None:
    """By its name."""
    recording = make_recording([event(BATCH, 0, 0, 1)])
    write_trace(recording, tmp_path / "out.json.gz")

    with gzip.open(tmp_path / "out.json.gz", "rt") as file:
        assert json.load(file) == write_and_read(tmp_path, recording)


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    """A file is replaced when the new one is whole."""
    path = tmp_path / "out.json"
    path.write_text("old")
    broken = dataclasses.replace(make_recording([event(BATCH, 0, 0, 1)]), keys={-1: object()})  # type: ignore[dict-item]  # wrong on purpose

    with pytest.raises(TypeError):
        write_trace(broken, path)

    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["out.json"]


@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from([*range(len(STAGES)), SAMPLE, BATCH, 77]), st.integers(-1, 2), st.integers(-1, 3),
            st.integers(-1, 9), st.integers(0, 30), st.integers(0, 30), st.integers(-1, 5), st.integers(-1, 5),
            st.integers(0, 3),
        ),
        max_size=40,
    ),
    starts=st.lists(st.integers(0, 100), max_size=5),
)  # fmt: skip
def test_any_events_give_a_valid_trace(rows: list[EventRow], starts: list[int]) -> None:
    """Of any stage, worker and time, also of stages that are not known, and every event is there."""
    recording = make_recording(rows, make_steps(sorted(starts)))

    document = {"traceEvents": list(list_trace_events([recording])), "displayTimeUnit": "ms", "otherData": {}}
    slices = [each for lane in check_format(document).values() for each in lane]

    has_steps = any(row[0] == STAGES.index("step") and row[1] < 0 for row in rows)
    assert len(slices) == len(rows) + (0 if has_steps else 2 * len(starts))
    assert np.array(rows, EVENT).shape == (len(rows),)
