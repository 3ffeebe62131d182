"""Diagnoses for tests of reports: a script that waits for slow decoding, and a healthy one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from penstock.doctor.checks.findings import Finding
from penstock.doctor.judge.diagnosis import Absence, Advice, SlowSample, StageCost, Verdict
from penstock.doctor.judge.text_report import Diagnosis
from penstock.doctor.machine.usage import ProcessUsage
from penstock.doctor.trials.turns import Measured
from penstock.doctor.watching.recording import BATCH, EVENT, SAMPLE, LoaderSettings, Recording, StepTimes

HOSTILE = [
    "</script><script>window.broken = 1</script>",
    "<img src=x onerror='window.broken = 2'>",
    "line\nbreak\r\n::error::forged \x1b[31m red",
    "surrogate \udc80 and separators \u2028\u2029 | pipe `tick` &amp; &lt;",
    "<!--<script>",
]
"""Keys that would break out of a page, a terminal, a table or a command."""

_MACHINE: dict[str, Any] = {
    "processor": {"model": "Example 3000 @ 2.50GHz", "architecture": "x86_64", "physical": 4, "usable": 8},
    "control_group": {"quota_cores": None, "throttled_s": 0.0},
    "load": {"average_1_min": 1.5},
    "memory": {"total_bytes": 33_000_000_000, "available_bytes": 20_000_000_000},
    "disks": [{"path": "/photos", "kind": "nfs4", "rotational": None}],
    "versions": {"python": "3.11.9", "kernel": "6.1.0", "torch": "2.6.0", "numpy": "2.1.0"},
}


def make_recording(*, batches: int = 60, workers: int = 3, batch_size: int = 8, seed: int = 0) -> Recording:
    """A loader whose workers decode slowly: every batch is built in turn, and the trainer waits for it."""
    draw = np.random.default_rng(seed)
    rows: list[tuple[int, ...]] = []
    clock = np.full(workers, 1_000_000_000, np.int64)
    finished = []
    for batch in range(batches):
        worker = batch % workers
        at = begin = int(clock[worker])
        for number in range(batch_size):
            parts = {0: draw.uniform(1e5, 4e5), 1: draw.uniform(2e6, 5e6), 2: draw.uniform(2e5, 1e6)}
            if draw.random() < 0.01:
                parts[1] *= 20
            first, index = at, batch * batch_size + number
            for stage, took in parts.items():
                rows.append((stage, worker, batch, index, at, at + int(took), int(took), -1, 1))
                at += int(took)
            rows.append((SAMPLE, worker, batch, index, first, at, at - first, 150_528, 1))
        rows.append((3, worker, batch, -1, at, at + 800_000, 800_000, 1_204_224, batch_size))
        at += 800_000
        rows.append((4, worker, batch, -1, at, at + 500_000, 300_000, 1_204_224, batch_size))
        at += 500_000
        rows.append((BATCH, worker, batch, -1, begin, at, at - begin, 1_204_224, batch_size))
        clock[worker] = at + 100_000
        finished.append(at)
    steps = _take(finished, batch_size)
    events = np.array(rows, EVENT)
    events = events[np.argsort(events["start"], kind="stable")]
    return Recording(
        LoaderSettings("torch", "processes", workers, 2, batch_size, start_method="fork", dataset="Photos"),
        steps, events, machine=_MACHINE, command=["train.py", "--epochs", "3"], ended="steps", warm_up=4,
        usage=[
            ProcessUsage("main", 100, 2_000_000_000, 4_000_000_000, threads=9),
            *(
                ProcessUsage(f"worker {each}", 101 + each, 3_800_000_000, 4_000_000_000)
                for each in range(workers)
            ),
        ],
    )  # fmt: skip


def _take(finished: list[int], batch_size: int) -> StepTimes:
    """The trainer: it takes batches in order, 4 ms each; the last four are the batch before once more."""
    now, rows = finished[0] - 5_000_000, []
    last = len(finished) - 4
    for number, done in enumerate(finished):
        replayed = number >= last
        arrival = now if replayed else max(now, done)
        ready = min(sum(1 for each in finished[number:] if each <= now), 6)
        rows.append((arrival - now, 4_000_000, 300_000, 3_500_000, batch_size, arrival, ready, replayed, 2_500_000))
        now = arrival + 4_000_000
    columns = list(zip(*rows, strict=True))
    names = ("wait_ns", "step_ns", "copy_ns", "cpu_ns", "samples", "start_ns", "ready", "replayed", "device_ns")
    values: dict[str, Any] = {
        name: np.array(column, np.bool_ if name == "replayed" else np.int64)
        for name, column in zip(names, columns, strict=True)
    }
    return StepTimes(**values)


def make_diagnosis(recording: Recording | None = None, *, keys: list[str] | None = None, **more: Any) -> Diagnosis:
    """A script that waits 58 % of its time for decoding; attributes can be replaced."""
    keys = keys or [f"photos/train/n0144/{name}.jpg" for name in ("0017", "2291", "0483", "1190", "0008", "0721")]
    diagnosis = Diagnosis(
        Verdict(
            "decode",
            "Decoding limits the training: 81% of the loader's time, while the script waits 58% of its time. The "
            "script takes 412 samples/s; the same batch again and again 1,030; the loader alone gives 431.",
            waiting=0.58, delivered=412.0, trainer=1030.0, loader=431.0,
            absences=(
                Absence("read", 1.04, 0.04),
                Absence("decode", 2.5, 0.81, Measured(5.2, 4.9, 5.6, 3)),
                Absence("augment", 1.15, 0.13, Measured(9.9, 9.1, 10.2, 3)),
            ),
        ),
        [
            StageCost("read", 210.0, 0.04, is_estimated=True),
            StageCost("decode", 3510.0, 0.81, is_estimated=True),
            StageCost("augment", 600.0, 0.13, is_estimated=True),
            StageCost("collate", 100.0, 0.02),
            StageCost("transport", 62.5, 0.01),
            StageCost("wait", 1400.0, 0.0),
            StageCost("copy", 37.5, 0.0),
            StageCost("step", 500.0, 0.0),
        ],
        [
            Advice(
                "num_workers", "num_workers=8", "Workers are busy, and 8 cores are not: 8 workers build more at once.",
                Measured(1.98, 1.91, 2.04, 5), "DataLoader(..., num_workers=8)",
            ),
            Advice(
                "scaled-decoding", "decode JPEG at half the size", "Images are 2,048 pixels wide and resized to 224.",
                Measured(1.7, 1.52, 1.77, 5), 'penstock.datasets.Images(path, size=224, scaled="auto")',
            ),
            Advice("packing", "pack the dataset", "Files are read one by one."),
        ],
        [
            SlowSample(417 + number, key, 96.4 / (number + 1), worker=number % 3)
            for number, key in enumerate(keys)
        ],
        [
            Finding(
                "global-randomness", "error", "Photos.__getitem__ (train.py, line 31)",
                "np.random.rand gives the same numbers in each of 3 workers.", "Use penstock.rng().random().",
            ),
            Finding("loader-setting", "note", "pin_memory", "No device is used.", "Leave pin_memory out."),
        ],
        ["The processor was throttled for 1.2 s by its control group."],
        make_recording() if recording is None else recording,
    )  # fmt: skip
    return replace(diagnosis, **more)


def make_healthy() -> Diagnosis:
    """A script that nothing can make faster."""
    text = (
        "There is nothing to gain: the script waits 0.4% of its time for batches, and loader and trainer fit one "
        "another. The script takes 1,020 samples/s; the same batch again and again 1,024."
    )
    verdict = Verdict("none", text, waiting=0.004, delivered=1020.0, trainer=1024.0, loader=2200.0)
    return make_diagnosis(verdict=verdict, advice=[], findings=[], notes=[])
