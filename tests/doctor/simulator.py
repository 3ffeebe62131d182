"""Recordings of scripts whose costs are known: a loader and a trainer in time slices.

Time passes in small slices, in each of which every thread that can run gets its part of the cores; a sample is built
after the other.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from penstock.doctor.machine.usage import ProcessUsage
from penstock.doctor.watching.recording import BATCH, EVENT, SAMPLE, STAGES, LoaderSettings, Recording, StepTimes


@dataclass
class Script:
    """A training script with known costs, in milliseconds.

    ``stages`` are milliseconds of processor time per sample, ``idle`` of waiting; ``slow`` milliseconds of waiting of
    sample ``slow_index``.
    """

    workers: int
    prefetch: int = 2
    batch_size: int = 8
    cores: float = 2
    read: float = 0.0
    read_idle: float = 0.0
    decode: float = 0.0
    augment: float = 0.0
    collate: float = 0.0
    send: float = 0.0
    receive: float = 0.05
    step_idle: float = 10.0
    step_cpu: float = 0.0
    step_threads: int = 1
    copy: float = 0.0
    spread: float = 0.2
    threads: int = 1
    slow_index: int = -1
    slow_ms: float = 0.0
    slice_ms: float = 0.1
    seed: int = 0


class _Part:
    """Work of a stage: idle first, then processor time, in milliseconds."""

    def __init__(self, stage: str, idle: float, cpu: float, index: int = -1, threads: int = 1) -> None:
        self.stage, self.idle, self.cpu, self.index, self.threads = stage, idle, cpu, index, threads
        self.start = -1.0
        self.own_cpu = 0.0


def simulate(script: Script, batches: int = 200, replayed: int = 10) -> Recording:  # noqa: PLR0912, PLR0915  # a loop
    """Run the script for ``batches`` batches, and ``replayed`` steps more with the last one."""
    rng = np.random.default_rng(script.seed)
    count = script.workers
    now = 0.0
    queues: list[deque[int]] = [deque() for _ in range(count)]
    current: list[deque[_Part]] = [deque() for _ in range(count)]
    tasks = [-1] * count
    begun = [0.0] * count
    ready: set[int] = set()
    events: list[tuple[int, ...]] = []
    waits: list[float] = []
    steps: list[float] = []
    starts: list[float] = []
    cpus: list[float] = []
    flags: list[bool] = []
    issued = taken = 0
    trainer: deque[_Part] = deque()
    asked, arrived = 0.0, 0.0
    run_delay = [0.0] * count
    used = [0.0] * count
    batch_cpu = [0.0] * max(count, 1)
    replays = 0

    def make_batch(task: int) -> deque[_Part]:
        parts: deque[_Part] = deque()
        for index in range(task * script.batch_size, (task + 1) * script.batch_size):
            factor = max(0.05, rng.lognormal(-(script.spread**2) / 2, script.spread))
            slow = script.slow_ms if index % 1000 == script.slow_index else 0.0
            parts.append(_Part("read", script.read_idle * factor + slow, script.read * factor, index))
            parts.append(_Part("decode", 0.0, script.decode * factor, index, script.threads))
            parts.append(_Part("augment", 0.0, script.augment * factor, index, script.threads))
        parts.append(_Part("collate", 0.0, script.collate * script.batch_size))
        parts.append(_Part("transport", 0.0, script.send))
        return parts

    def ns(ms: float) -> int:
        return int(ms * 1e6)

    while True:
        while issued < taken + max(1, count * script.prefetch):
            if count:
                queues[issued % count].append(issued)
            issued += 1
        for number in range(count):
            if not current[number] and queues[number]:
                tasks[number] = queues[number].popleft()
                begun[number] = now
                current[number] = make_batch(tasks[number])
                batch_cpu[number] = 0.0
        if not trainer:
            if taken == batches and replays == replayed:
                break
            if taken == batches:
                waits.append(0.0)
                starts.append(now)
                arrived = now
                replays += 1
                flags.append(True)
                trainer = _make_step(script)
            elif count == 0:
                trainer = make_batch(taken)
                trainer.pop()
                trainer.append(_Part("taken", 0.0, 0.0))
            elif taken in ready:
                ready.discard(taken)
                trainer.append(_Part("receive", 0.0, script.receive))
                trainer.append(_Part("taken", 0.0, 0.0))
        # One slice: each thread that computes gets an equal part of the cores, and at most one core.
        heads = [(number, parts[0]) for number, parts in enumerate(current) if parts]
        if trainer:
            heads.append((-1, trainer[0]))
        running = [(number, part) for number, part in heads if part.idle <= 0 and part.cpu > 0]
        demand = sum(part.threads for _, part in running)
        speed = min(1.0, script.cores / demand) if demand else 1.0
        length = script.slice_ms
        for _, part in heads:
            if part.idle > 0:
                length = min(length, part.idle)
            elif part.cpu > 0:
                length = min(length, part.cpu / (part.threads * speed))
            else:
                length = 0.0
        for number, part in heads:
            if part.start < 0:
                part.start = now
            if part.idle > 0:
                part.idle -= length
            elif part.cpu > 0:
                part.cpu -= length * part.threads * speed
                part.own_cpu += length * speed
                if number >= 0:
                    run_delay[number] += length * (1 - speed) * part.threads
                    used[number] += length * part.threads * speed
            part.idle = 0.0 if part.idle < 1e-9 else part.idle
            part.cpu = 0.0 if part.cpu < 1e-9 else part.cpu
        now += length
        for number, part in heads:
            if part.idle > 0 or part.cpu > 0:
                continue
            parts = trainer if number < 0 else current[number]
            parts.popleft()
            if number >= 0 and part.stage != "transport":
                batch_cpu[number] += part.own_cpu
            row = (ns(part.start), ns(now), ns(part.own_cpu), -1, 1 if part.index >= 0 else script.batch_size)
            if part.stage in STAGES and part.stage not in {"step", "copy"}:
                batch = taken if number < 0 else tasks[number]
                events.append((STAGES.index(part.stage), number, batch, part.index, *row))
            elif part.stage == "receive":
                events.append((STAGES.index("transport"), -1, taken, -1, *row))
            if part.stage == "taken":
                taken += 1
                waits.append(now - asked)
                arrived = now
                starts.append(now)
                flags.append(False)
                trainer.extend(_make_step(script))
            elif number < 0 and part.stage == "step":
                steps.append(now - arrived)
                cpus.append(script.step_cpu)
                asked = now
            elif number >= 0 and not parts:
                ready.add(tasks[number])
                built_cpu = ns(batch_cpu[number])
                row = (ns(begun[number]), ns(part.start), built_cpu, -1, script.batch_size)
                events.append((BATCH, number, tasks[number], -1, *row))
    events.extend(_whole_samples(events))
    n = len(steps)
    times = StepTimes(
        wait_ns=np.array([ns(value) for value in waits]),
        step_ns=np.array([ns(value) for value in steps]),
        copy_ns=np.full(n, ns(script.copy)),
        cpu_ns=np.array([ns(value) for value in cpus]),
        samples=np.full(n, script.batch_size),
        start_ns=np.array([ns(value) for value in starts]),
        ready=np.full(n, -1),
        replayed=np.array(flags),
        device_ns=np.full(n, -1),
        epoch=np.zeros(n, np.int64),
    )
    usage = [ProcessUsage("main", 1, ns(sum(cpus)), ns(now))]
    usage += [
        ProcessUsage(
            f"worker {number}", 2 + number, ns(used[number]), ns(now), threads=3 + script.threads,
            waiting_for_cpu_ns=ns(run_delay[number]),
        )
        for number in range(count)
    ]  # fmt: skip
    settings = LoaderSettings(
        "torch", "processes" if count else "serial", count, script.prefetch if count else 0, script.batch_size,
        start_method="fork" if count else "", dataset="Photographs", length=100_000,
    )  # fmt: skip
    rows = np.array(sorted(events, key=lambda event: event[4]), dtype=EVENT)
    return Recording(settings, times, rows, usage=usage, machine={"processor": {"usable": script.cores}}, ended="steps")


def _make_step(script: Script) -> deque[_Part]:
    parts: deque[_Part] = deque()
    if script.copy:
        parts.append(_Part("copy", script.copy, 0.0))
    parts.append(_Part("step", script.step_idle, script.step_cpu, threads=script.step_threads))
    return parts


def _whole_samples(events: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """A SAMPLE event for each sample, from its parts."""
    spans: dict[tuple[int, int, int], list[tuple[int, ...]]] = {}
    for event in events:
        if event[0] < 3 and event[3] >= 0:
            spans.setdefault((event[1], event[2], event[3]), []).append(event)
    return [
        (
            SAMPLE,
            *key,
            min(part[4] for part in parts),
            max(part[5] for part in parts),
            sum(part[6] for part in parts),
            -1,
            1,
        )
        for key, parts in spans.items()
    ]
