"""Writes recordings as a trace file that ``chrome://tracing`` and ui.perfetto.dev open.

::

    process: a rank          main       | wait |  step          | wait | step   |
                             worker 0   | batch 0               || room || batch 2 ...
                             worker 1      | batch 1  [sample 7 [read|decode|augment]] [collate] |
             counters        batches ready, batches finished but not taken, part of a step in which the device was busy

The format is Chrome's "Trace Event Format" (JSON object form). Slices of one lane must nest, so that what only overlaps
gets a further lane.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from penstock.doctor.reports.json_report import open_new
from penstock.doctor.watching.recording import BATCH, SAMPLE, STAGES, Recording

__all__ = ["list_trace_events", "write_trace"]

_LANES: Final = 1000
"""Lanes that a worker may have: threads that work on parts of the same batch."""

_ORDER: Final = {BATCH: 0, SAMPLE: 1}
"""Of events with the same times the outer one comes first."""


def write_trace(recording: Recording | Sequence[Recording], path: str | os.PathLike[str]) -> None:
    """Write a trace file; it is there whole, or not at all.

    ``recording``: several ranks of one machine appear below one another. ``path``: compressed if it ends in ``.gz``,
    which Perfetto reads. Raises OSError if the file cannot be written.
    """
    recordings = [recording] if isinstance(recording, Recording) else list(recording)
    with open_new(path) as file:
        file.write('{"displayTimeUnit": "ms", "otherData": ')
        json.dump(_describe_settings(recordings), file)
        file.write(', "traceEvents": [\n')
        for number, event in enumerate(list_trace_events(recordings)):
            file.write((",\n" if number else "") + json.dumps(event, allow_nan=False))
        file.write("\n]}\n")


def list_trace_events(recordings: Sequence[Recording]) -> Iterator[dict[str, object]]:
    """Yield the events of a trace file, in microseconds since the first one."""
    origin_ns = min((begin for begin in map(_find_first_ns, recordings) if begin is not None), default=0)
    for recording in recordings:
        process = recording.rank + 1
        yield _name(process, 0, "process_name", _title(recording))
        yield {"name": "process_sort_index", "ph": "M", "pid": process, "tid": 0, "args": {"sort_index": process}}
        slices = [*_list_events(recording), *_list_steps(recording)]
        slices.sort(key=lambda each: (each.lane, each.start, -each.end, each.order))
        yield from _arrange(slices, process, origin_ns)
        for counter, time_ns, value in _list_counters(recording):
            at = (time_ns - origin_ns) / 1000
            yield {"name": counter, "ph": "C", "ts": at, "pid": process, "tid": 0, "args": {"value": value}}


@dataclasses.dataclass(frozen=True, slots=True)
class _Slice:
    lane: int  # -1: the main process; else the worker
    start: int
    end: int
    name: str
    category: str
    order: int
    arguments: Mapping[str, object]


def _arrange(slices: Iterable[_Slice], process: int, origin_ns: int) -> Iterator[dict[str, object]]:
    """Give each slice a lane in which it nests; they come by lane and start, outer ones first."""
    lane: int | None = None
    open_ends: list[list[int]] = []  # for each lane of a worker: ends of slices that are open, innermost last
    for each in slices:
        if each.lane != lane:
            lane, open_ends = each.lane, []
        further = _find_lane(open_ends, each)
        if further == len(open_ends):
            open_ends.append([])
            yield from _name_lane(process, lane, further)
        open_ends[further].append(each.end)
        yield {
            "name": each.name,
            "cat": each.category,
            "ph": "X",
            "ts": (each.start - origin_ns) / 1000,
            "dur": (each.end - each.start) / 1000,
            "pid": process,
            "tid": _number_lane(lane, further),
            "args": each.arguments,
        }


def _find_lane(open_ends: list[list[int]], each: _Slice) -> int:
    """Return the first lane in which a slice nests; their number, if there is none."""
    for number, ends in enumerate(open_ends):
        while ends and ends[-1] <= each.start:
            ends.pop()
        if not ends or each.end <= ends[-1]:
            return number
    return len(open_ends)


def _name_lane(process: int, worker: int, further: int) -> Iterator[dict[str, object]]:
    title = "main" if worker < 0 else f"worker {worker}"
    thread = _number_lane(worker, further)
    yield _name(process, thread, "thread_name", title if not further else f"{title} ({further + 1})")
    yield {"name": "thread_sort_index", "ph": "M", "pid": process, "tid": thread, "args": {"sort_index": thread}}


def _number_lane(worker: int, further: int) -> int:
    return (worker + 1) * _LANES + min(further, _LANES - 1)


def _name(process: int, thread: int, kind: str, title: str) -> dict[str, object]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": title}}


def _list_events(recording: Recording) -> Iterator[_Slice]:
    names = recording.events.dtype.names or ()
    columns = {name: recording.events[name].tolist() for name in names}  # once: rows of a structured array are slow
    for stage, worker, batch, index, start, end, cpu, nbytes, samples in zip(
        *(columns[name] for name in ("stage", "worker", "batch", "index", "start", "end", "cpu", "nbytes", "samples")),
        strict=True,
    ):
        known = {"batch": batch, "index": index, "nbytes": nbytes}
        arguments = {name: value for name, value in known.items() if value >= 0}
        if samples > 1:
            arguments["samples"] = samples
        if cpu >= 0:
            arguments["cpu_ms"] = cpu / 1e6
        if index in recording.keys:
            arguments["key"] = recording.keys[index]
        category = {BATCH: "batch", SAMPLE: "sample"}.get(stage) or (
            STAGES[stage] if stage < len(STAGES) else "unknown"
        )
        number = {BATCH: batch, SAMPLE: index}.get(stage, -1)
        name = category if number < 0 else f"{category} {number}"
        yield _Slice(worker, start, max(start, end), name, category, _ORDER.get(stage, 2), arguments)


def _list_steps(recording: Recording) -> Iterator[_Slice]:
    """Waits and steps of the main process, unless they are events of their own."""
    events, steps = recording.events, recording.steps
    if np.any((events["worker"] < 0) & (events["stage"] == STAGES.index("step"))):
        return
    for number, start in enumerate(steps.start_ns.tolist()):
        wait, length, copy = (int(values[number]) for values in (steps.wait_ns, steps.step_ns, steps.copy_ns))
        arguments = {
            "samples": int(steps.samples[number]),
            "cpu_ms": int(steps.cpu_ns[number]) / 1e6,
            "copy_ms": copy / 1e6,
        }
        is_replayed = bool(steps.replayed[number])
        if wait > 0 and not is_replayed:
            yield _Slice(-1, start - wait, start, "wait", "wait", 2, {})
        name = "step (same batch again)" if is_replayed else "step"
        yield _Slice(-1, start, start + max(0, length), name, "step", 2, arguments)


def _list_counters(recording: Recording) -> Iterator[tuple[str, int, float]]:
    """Name, time and value: of queues and of the device."""
    steps, events = recording.steps, recording.events
    asked = (steps.start_ns - steps.wait_ns).tolist()
    yield from (("batches ready", at, int(ready)) for at, ready in zip(asked, steps.ready, strict=True) if ready >= 0)
    batches = events[events["stage"] == BATCH]
    finished = np.maximum(batches["start"], batches["end"])
    taken = steps.start_ns[~steps.replayed]
    if len(finished):
        times = np.concatenate([finished, taken])
        changes = np.repeat([1, -1], [len(finished), len(taken)])
        order = np.argsort(times, kind="stable")
        waiting = np.cumsum(changes[order])
        waiting -= min(0, int(waiting.min()))  # batches that were finished before watching began
        yield from (
            ("batches finished, not taken", at, count)
            for at, count in zip(times[order].tolist(), waiting.tolist(), strict=True)
        )
    for start, length, busy in zip(
        steps.start_ns.tolist(), steps.step_ns.tolist(), steps.device_ns.tolist(), strict=True
    ):
        if busy >= 0 and length > 0:
            yield "device busy", start, round(min(1.0, busy / length), 4)


def _find_first_ns(recording: Recording) -> int | None:
    """Time of the first event or wait; None if there is none."""
    times = np.concatenate([recording.events["start"], recording.steps.start_ns - recording.steps.wait_ns])
    return int(times.min()) if len(times) else None


def _title(recording: Recording) -> str:
    what = Path(recording.command[0]).name if recording.command else recording.settings.dataset or "training"
    return f"rank {recording.rank}: {what}" if recording.world_size > 1 else what


def _describe_settings(recordings: Sequence[Recording]) -> dict[str, str]:
    """Return what a viewer shows beside the trace; it takes text only."""
    first = recordings[0] if recordings else None
    if first is None:
        return {}
    settings = {name: str(value) for name, value in dataclasses.asdict(first.settings).items()}
    return {**settings, "command": " ".join(first.command), "ended": first.ended, "dropped": str(first.dropped)}
