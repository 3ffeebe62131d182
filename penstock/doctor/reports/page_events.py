"""The parts of a recording that the HTML page draws: some batches of all workers, single batches, the queue.

A page stays small: only a window of time is drawn, and events that are too short to be seen are joined with their
neighbours of the same stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.doctor.watching.recording import BATCH, SAMPLE, STAGES, WORK_STAGES, Recording
from penstock.plurals import counted

__all__ = ["PAGE_STAGES", "draw_batches", "draw_queue", "draw_timeline"]

PAGE_STAGES: Final = (*STAGES, "sample", "batch")
"""Names of the stages on the page, by their numbers in its columns."""

_MOST_EVENTS: Final = 4000
_MOST_EVENTS_OF_BATCH: Final = 1000
_MOST_LANES: Final = 32
_MOST_POINTS: Final = 300
_PIXELS: Final = 6000
"""Width to which a timeline can be read, enlarged."""

_ROWS: Final = {
    "batch": 0, "room": 0, "wait": 0, "step": 0, "sample": 1, "collate": 1, "transport": 1, "copy": 1,
}  # fmt: skip
_PART_ROW: Final = 2
_COLUMNS: Final = ("lane", "row", "stage", "start", "duration", "batch", "index", "count")


@dataclass(frozen=True, slots=True)
class _Mark:
    """A rectangle of the page; times in nanoseconds."""

    lane: int
    stage: int
    start: int
    end: int
    batch: int = -1
    index: int = -1
    count: int = 1


def draw_timeline(recording: Recording) -> dict[str, Any]:
    """The events of all processes while some batches are taken, in the middle of the recording.

    Returns
    -------
    dict
        ``lanes``: their names. ``span``: microseconds. ``events``: columns ``lane``, ``row``, ``stage`` (position in
        :data:`PAGE_STAGES`), ``start`` and ``duration`` in microseconds, ``batch``, ``index``, ``count``. ``note``:
        what is left out.
    """
    begin, end = _choose_window(recording)
    events = recording.events
    seen = events[(events["end"] > begin) & (events["start"] < end)]
    workers = sorted(set(seen["worker"].tolist()) - {-1})
    lane_of = {-1: 0} | {worker: 1 + number for number, worker in enumerate(workers[:_MOST_LANES])}
    marks = [*_mark_steps(recording, begin, end), *_mark_events(seen, lane_of)]
    inside = [mark for mark in marks if mark.end > begin and mark.start < end]
    note = ""
    if len(workers) > _MOST_LANES:
        note = f"The first {_MOST_LANES} of {counted(len(workers), 'worker')} are shown."
    kind = "thread" if recording.settings.workers == "threads" else "worker"
    return {
        "lanes": ["trainer", *(f"{kind} {worker}" for worker in workers[:_MOST_LANES])],
        "span": max((end - begin) / 1000, 1.0),
        "events": _to_columns(_join_short(inside, end - begin, _MOST_EVENTS), begin, end),
        "note": note,
    }


def draw_batches(recording: Recording) -> list[dict[str, Any]]:
    """A typical batch and the slowest one, as :func:`draw_timeline` draws; those with samples are preferred."""
    found = _find_batches(recording)
    if not len(found):
        return []
    took = found["end"] - found["start"]
    typical = int(np.argsort(took, kind="stable")[(len(took) - 1) // 2])
    slowest = int(np.argmax(took))
    drawn = [_draw_batch(recording, found[typical], "A typical batch")]
    if slowest != typical:
        drawn.append(_draw_batch(recording, found[slowest], "The slowest batch"))
    return drawn


def draw_queue(recording: Recording) -> dict[str, Any]:
    """Batches that were ready, and the waiting for them, over time; without replayed batches.

    Returns
    -------
    dict
        ``time``: microseconds since the first step. ``ready``: the least number of each point, None where it cannot be
        seen. ``wait``: the longest wait of each point in microseconds.
    """
    steps = recording.steps
    kept = np.flatnonzero(~steps.replayed)
    points = np.array_split(kept, min(len(kept), _MOST_POINTS)) if len(kept) else []
    origin = int(steps.start_ns[kept[0]]) if len(kept) else 0
    ready = (steps.ready[each][steps.ready[each] >= 0] for each in points)
    return {
        "time": [round((int(steps.start_ns[each[0]]) - origin) / 1000, 1) for each in points],
        "ready": [int(each.min()) if len(each) else None for each in ready],
        "wait": [round(int(steps.wait_ns[each].max()) / 1000, 1) for each in points],
    }


def _choose_window(recording: Recording) -> tuple[int, int]:
    """Begin and end of the time in which the middle batches were taken."""
    steps, events = recording.steps, recording.events
    count = min(max(3 * recording.settings.num_workers, 8), 24)
    usual = np.flatnonzero(~steps.replayed & (np.arange(len(steps.start_ns)) >= recording.warm_up))
    if len(usual):
        first = usual[max((len(usual) - count) // 2, 0)]
        last = usual[min((len(usual) + count) // 2, len(usual) - 1)]
        return int(steps.start_ns[first] - steps.wait_ns[first]), int(steps.start_ns[last] + steps.step_ns[last])
    if not len(events):
        return 0, 1
    begin = int(events["start"].min())
    ends = np.sort(events["end"][events["stage"] == BATCH])[:count]
    return begin, int(ends[-1]) if len(ends) else int(events["end"].max())


def _mark_steps(recording: Recording, begin: int, end: int) -> Iterator[_Mark]:
    """Waits, copies and steps. When a copy begins is not known: it is drawn at the begin of its step."""
    steps = recording.steps
    inside = np.flatnonzero((steps.start_ns + steps.step_ns > begin) & (steps.start_ns - steps.wait_ns < end))
    for number in inside.tolist():
        arrival = int(steps.start_ns[number])
        spans = (
            ("wait", arrival - int(steps.wait_ns[number]), arrival),
            ("step", arrival, arrival + int(steps.step_ns[number])),
            ("copy", arrival, arrival + int(steps.copy_ns[number])),
        )
        yield from (_Mark(0, STAGES.index(name), start, until) for name, start, until in spans if until > start)


def _mark_events(events: npt.NDArray[Any], lane_of: dict[int, int]) -> Iterator[_Mark]:
    own = {STAGES.index(name) for name in ("wait", "copy", "step")}
    names = ("worker", "stage", "start", "end", "batch", "index")
    for worker, stage, start, end, batch, index in zip(*(events[name].tolist() for name in names), strict=True):
        if worker in lane_of and stage not in own:
            yield _Mark(lane_of[worker], _number(stage), start, end, batch, index)


def _number(stage: int) -> int:
    special = {SAMPLE: PAGE_STAGES.index("sample"), BATCH: PAGE_STAGES.index("batch")}
    return special.get(stage, stage)


def _find_batches(recording: Recording) -> npt.NDArray[Any]:
    """Whole batches of workers; without workers, the time of their samples in the main process."""
    events = recording.events
    samples = events[(events["stage"] == SAMPLE) & (events["batch"] >= 0)]
    whole: npt.NDArray[Any] = events[events["stage"] == BATCH]
    if len(whole):
        has_samples = np.isin(whole["batch"], samples["batch"])
        return np.compress(has_samples, whole) if has_samples.any() else whole
    if not len(samples):
        return whole
    samples = samples[np.lexsort((samples["start"], samples["worker"]))]
    changes = (np.diff(samples["batch"]) != 0) | (np.diff(samples["worker"]) != 0)
    firsts = np.concatenate([[0], np.flatnonzero(changes) + 1])
    joined: npt.NDArray[Any] = samples[firsts]
    joined["end"] = np.maximum.reduceat(samples["end"], firsts)
    return joined


def _draw_batch(recording: Recording, batch: Any, title: str) -> dict[str, Any]:
    events = recording.events
    worker, number = int(batch["worker"]), int(batch["batch"])
    begin, end = int(batch["start"]), int(batch["end"])
    parts = [STAGES.index(name) for name in WORK_STAGES]
    same = (events["worker"] == worker) & np.isin(events["stage"], [SAMPLE, *parts])
    same &= (events["start"] >= begin) & (events["start"] < end)
    if number >= 0:
        same &= events["batch"] == number
    marks = [_Mark(0, PAGE_STAGES.index("batch"), begin, end, number), *_mark_events(events[same], {worker: 0})]
    end = max(mark.end for mark in marks)
    return {
        "title": title,
        "lane": f"worker {worker}" if worker >= 0 else "main process",
        "number": number,
        "span": max((end - begin) / 1000, 1.0),
        "events": _to_columns(_join_short(marks, end - begin, _MOST_EVENTS_OF_BATCH), begin, end),
    }


def _join_short(marks: Iterable[_Mark], span: int, most: int) -> list[_Mark]:
    """Join marks that are too short to be seen with the next one of their lane and stage, until few enough are left."""
    kept = sorted(marks, key=lambda mark: (mark.lane, mark.stage, mark.start))
    visible = max(span // _PIXELS, 1)
    while True:
        joined: list[_Mark] = []
        for mark in kept:
            last = joined[-1] if joined else None
            if (
                last is not None
                and (last.lane, last.stage) == (mark.lane, mark.stage)
                and min(last.end - last.start, mark.end - mark.start) < visible
                and mark.start - last.end < visible
            ):
                joined[-1] = _Mark(
                    last.lane, last.stage, last.start, max(last.end, mark.end),
                    last.batch if last.batch == mark.batch else -1, -1, last.count + mark.count,
                )  # fmt: skip
            else:
                joined.append(mark)
        if len(joined) <= most or visible > span:
            return joined
        kept, visible = joined, 2 * visible


def _to_columns(marks: list[_Mark], begin: int, end: int) -> dict[str, list[Any]]:
    """The marks, cut at the window, as columns; outer ones first, so that inner ones lie above them."""
    rows = []
    for mark in sorted(marks, key=lambda each: (each.lane, each.start, -each.end)):
        start, until = max(mark.start, begin), min(mark.end, end)
        row = _ROWS.get(PAGE_STAGES[mark.stage], _PART_ROW)
        times = round((start - begin) / 1000, 1), round((until - start) / 1000, 1)
        rows.append((mark.lane, row, mark.stage, *times, mark.batch, mark.index, mark.count))
    columns = zip(*rows, strict=True) if rows else ([] for _ in _COLUMNS)
    return {name: list(column) for name, column in zip(_COLUMNS, columns, strict=True)}
