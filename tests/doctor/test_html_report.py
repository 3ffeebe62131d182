"""The page: what is in it, and what cannot be."""

from __future__ import annotations

import base64
import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.doctor.reports.html_report import format_html, write_html
from penstock.doctor.reports.json_report import to_json
from penstock.doctor.reports.page_events import PAGE_STAGES, draw_batches, draw_queue, draw_timeline
from penstock.doctor.watching.recording import BATCH, SAMPLE, STAGES, Recording
from tests.doctor.diagnoses import HOSTILE, make_diagnosis, make_healthy, make_recording

JPEG = b"\xff\xd8\xff" + bytes(100)


def embedded(page: str) -> dict[str, Any]:
    """The JSON in the page."""
    found = re.search(r'<script type="application/json" id="report">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    values: dict[str, Any] = json.loads(found[1])
    return values


def without_events(recording: Recording) -> Recording:
    """The recording with neither steps nor events."""
    steps = recording.steps
    empty = {name: getattr(steps, name)[:0] for name in steps.__dataclass_fields__}
    return replace(recording, steps=replace(steps, **empty), events=recording.events[:0])


def test_the_page_holds_the_report() -> None:
    """The page has the same numbers as the JSON file, and the text for readers without JavaScript."""
    page = format_html(make_diagnosis())

    assert embedded(page)["report"] == to_json(make_diagnosis())
    assert "Decoding limits the training" in page.split("<noscript>")[1].split("</noscript>")[0]


def test_nothing_is_loaded_from_elsewhere() -> None:
    """No address but those of namespaces and of pictures within the page; the policy forbids all others."""
    page = format_html(make_diagnosis(), {417: JPEG})

    assert set(re.findall(r"[a-z]+://[^\s\"'<]+", page)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in html.unescape(page)
    assert re.search(r"<(img|link|script|iframe)[^>]*(src|href)=\"(?!data:)", page) is None


@pytest.mark.parametrize("key", HOSTILE)
def test_a_key_cannot_leave_its_script_element(key: str) -> None:
    """Whatever a dataset calls its samples, the elements of the page stay those of the template."""
    diagnosis = make_diagnosis(keys=[key], notes=[key])
    diagnosis.recording.command = [key]
    diagnosis.verdict = replace(diagnosis.verdict, text=key)

    page = format_html(diagnosis)

    assert embedded(page)["report"]["keys"][0]["key"] == key
    markup = re.sub(r"<style>.*?</style>|(?<=</script>\n)<script>.*?</script>", "", page, flags=re.DOTALL)
    assert re.findall(r"<[a-zA-Z!]+", markup) == re.findall(r"<[a-zA-Z!]+", markup.replace(key, ""))
    assert page.count("</script>") == 2
    page.encode()


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    """Keys are in the page as they were."""
    from penstock.doctor.reports.html_report import _to_script_text

    encoded = _to_script_text({"key": text})

    assert json.loads(encoded) == {"key": text}
    assert encoded.isascii()
    assert not set(encoded) & set("<>&")


def test_the_timeline_has_the_events_of_its_window() -> None:
    """Every event of the window is drawn once, with its times, in the lane of its process."""
    recording = make_recording(batches=30)

    timeline = draw_timeline(recording)

    begin, end = window(recording, timeline)
    events = recording.events
    inside = events[(events["end"] > begin) & (events["start"] < end)]
    expected = sorted(
        (1 + int(event["worker"]), name_of(int(event["stage"])), *cut(event, begin, end), int(event["index"]))
        for event in inside
    )
    columns = timeline["events"]
    drawn = sorted(
        (lane, PAGE_STAGES[stage], start, duration, index)
        for lane, stage, start, duration, index in zip(
            *(columns[name] for name in ("lane", "stage", "start", "duration", "index")), strict=True
        )
        if lane
    )
    assert timeline["lanes"] == ["trainer", "worker 0", "worker 1", "worker 2"]
    assert len(drawn) > 200
    assert drawn == expected
    assert set(columns["count"]) == {1}


def window(recording: Recording, timeline: dict[str, Any]) -> tuple[int, int]:
    """The window by the trainer's first wait, which begins with it."""
    steps = recording.steps
    starts = steps.start_ns - steps.wait_ns
    number = int(np.flatnonzero(~steps.replayed & (np.arange(len(starts)) >= recording.warm_up))[(22 - 9) // 2])
    return int(starts[number]), int(starts[number] + round(1000 * timeline["span"]))


def name_of(stage: int) -> str:
    """The name of a stage on the page."""
    return {SAMPLE: "sample", BATCH: "batch"}.get(stage) or STAGES[stage]


def cut(event: Any, begin: int, end: int) -> tuple[float, float]:
    """Start and duration within the window, in microseconds."""
    start, until = max(int(event["start"]), begin), min(int(event["end"]), end)
    return round((start - begin) / 1000, 1), round((until - start) / 1000, 1)


def test_a_page_of_many_events_is_small() -> None:
    """100,000 events, of which many are too short to be seen, make a page below 1 MB; all are counted."""
    recording = make_recording(batches=800, batch_size=32, workers=8)
    for name in ("start", "end"):  # all in one step: every event is in the window
        recording.events[name] = recording.events[name] // 1000
    steps = recording.steps
    span = int(recording.events["end"].max())
    recording.steps = replace(steps, start_ns=np.zeros_like(steps.start_ns), step_ns=np.full_like(steps.step_ns, span))

    page = format_html(make_diagnosis(recording))

    assert len(recording.events) > 100_000
    assert len(page.encode()) < 1_000_000
    columns = embedded(page)["timeline"]["events"]
    assert len(columns["lane"]) < 5000
    workers_events = sum(count for count, lane in zip(columns["count"], columns["lane"], strict=True) if lane)
    assert workers_events == int((recording.events["start"] < span).sum())


def test_a_typical_and_the_slowest_batch_are_drawn() -> None:
    """The slowest batch is the one that took longest; its samples and stages lie within it."""
    recording = make_recording()
    whole = recording.events[recording.events["stage"] == BATCH]
    took = whole["end"] - whole["start"]

    typical, slowest = draw_batches(recording)

    assert slowest["number"] == whole["batch"][took.argmax()]
    assert slowest["span"] == took.max() / 1000
    assert typical["span"] == np.sort(took)[(len(took) - 1) // 2] / 1000
    for batch in (typical, slowest):
        columns = batch["events"]
        names = [PAGE_STAGES[stage] for stage in columns["stage"]]
        assert {name: names.count(name) for name in set(names)} == {
            "batch": 1, "sample": 8, "read": 8, "decode": 8, "augment": 8, "collate": 1, "transport": 1,
        }  # fmt: skip
        assert max(map(sum, zip(columns["start"], columns["duration"], strict=True))) <= batch["span"] + 0.2


def test_a_loader_without_workers_has_batches_too() -> None:
    """Its samples are built by the main process, within the trainer's waiting."""
    recording = make_recording(workers=1, batches=20)
    recording.events = recording.events[~np.isin(recording.events["stage"], [BATCH, STAGES.index("room")])]
    recording.events["worker"] = -1

    batches, timeline = draw_batches(recording), draw_timeline(recording)

    assert [batch["lane"] for batch in batches] == ["main process"] * 2
    assert timeline["lanes"] == ["trainer"]
    assert "sample" in {PAGE_STAGES[stage] for stage in timeline["events"]["stage"]}


def test_the_queue_is_that_of_the_steps() -> None:
    """One point a step where there is room for all; replayed steps are left out; unknown depths are None."""
    recording = make_recording(batches=40)
    steps = recording.steps
    steps.ready[5] = -1

    queue = draw_queue(recording)

    assert queue["wait"] == (steps.wait_ns[:36] / 1000).round(1).tolist()
    assert queue["ready"] == [None if each < 0 else each for each in steps.ready[:36].tolist()]
    assert queue["time"] == ((steps.start_ns[:36] - steps.start_ns[0]) / 1000).round(1).tolist()


def test_many_steps_keep_the_longest_wait() -> None:
    """Where steps share a point, it has the longest wait and the least depth."""
    recording = make_recording(batches=2000, batch_size=1)
    recording.steps.wait_ns[1234] = 10**12

    queue = draw_queue(recording)

    assert len(queue["time"]) == 300
    assert max(queue["wait"]) == 1e9
    assert queue["ready"].count(0) >= 1


def test_a_diagnosis_without_anything_is_a_page() -> None:
    """No step, no event, no advice: the page has the verdict."""
    values = embedded(format_html(make_diagnosis(without_events(make_recording()), stages=[], advice=[], samples=[])))

    assert values["timeline"]["events"]["start"] == []
    assert values["batches"] == []
    assert values["queue"] == {"time": [], "ready": [], "wait": []}


def test_events_without_steps_are_drawn() -> None:
    """A script that crashes in its first step has a timeline of its workers."""
    recording = make_recording()
    events = recording.events
    recording = without_events(recording)
    recording.events = events

    assert len(draw_timeline(recording)["events"]["start"]) > 100


def test_thumbnails_are_pictures_of_the_slowest_samples() -> None:
    """A thumbnail is in the page byte for byte; what is no JPEG or PNG, too large or not asked for is left out."""
    png = b"\x89PNG\r\n\x1a\n" + bytes(10)
    given_bytes = {417: JPEG, 418: b"GIF89a", 419: JPEG + bytes(70_000), 420: png, 9999: JPEG}

    thumbnails = embedded(format_html(make_diagnosis(), given_bytes))["thumbnails"]

    assert sorted(thumbnails) == ["417", "420"]
    assert base64.b64decode(thumbnails["417"].removeprefix("data:image/jpeg;base64,")) == JPEG
    assert base64.b64decode(thumbnails["420"].removeprefix("data:image/png;base64,")) == png


def test_the_file_is_there_whole(tmp_path: Path) -> None:
    """Nothing but the page is left in the folder."""
    path = tmp_path / "report.html"

    write_html(make_healthy(), path)

    assert path.read_text() == format_html(make_healthy())
    assert list(tmp_path.iterdir()) == [path]
