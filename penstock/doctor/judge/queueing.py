"""A small queueing model of a loader and its trainer: batches per second with other settings, without running them.

::

    tasks ──> workers (W servers) ──> ready batches (at most W * P not yet taken) ──> trainer (1 server)
                   └──────────── share the cores equally ──────┘

The model is solved by simulation: processor time is shared equally among all threads that
compute; time in which a worker waits for a disk or a network needs no core. Building times are those that were
observed, in their order, again and again, so that slow batches and the distances between them count. Nothing here
measures, or knows of a loader.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["Prediction", "TrainingPipeline", "Work", "predict"]

_BATCHES: Final = 320
_EPSILON: Final = 1e-6  # nanoseconds: less is rounding


@dataclass(frozen=True, slots=True)
class Work:
    """What one stage costs a worker, for each batch that was observed."""

    cpu_ns: npt.NDArray[np.float64]  # (k,): processor time, all threads
    idle_ns: npt.NDArray[np.float64]  # (k,): time that needs no processor

    def scaled(self, factor: float) -> Work:
        """Return work that costs ``factor`` times as much."""
        return Work(self.cpu_ns * factor, self.idle_ns * factor)


@dataclass(frozen=True, slots=True)
class TrainingPipeline:
    """A loader and its trainer, as the model sees them."""

    workers: int  # number of workers; 0: the trainer builds each batch itself when it needs it
    prefetch: int  # batches per worker that are under way or ready
    cores: float  # cores of the machine that these processes may use
    build: Mapping[str, Work]  # what building costs, by stage; all stages have the same number of batches
    step_ns: float  # trainer's time of a batch if it has all the cores it wants, copies included
    step_cpu_ns: float = 0.0  # processor time in it, all threads
    receive_ns: float = 0.0  # time of the main process to receive a batch; it computes
    draw_ns: float = 0.0  # time of the main process to draw the indices of a batch; it computes
    threads: float = 1.0  # threads that compute in a worker on average while it builds; their work is in ``build``
    in_order: bool = True  # whether a batch that is ready waits for those before it
    rotates: bool = True
    """Whether tasks are assigned to workers in turn (torch); else any idle worker takes the next one."""
    background: float = 0.0  # threads of other programs that compute all the time, on average
    startup_ns: float = 0.0  # before the first batch of each epoch, if the epoch ends within ``epoch_batches``
    preparation: Work | None = None
    """What each worker does once in an epoch, with its first batch: it opens files, or builds an index. One element."""
    epoch_batches: int = 0  # batches of an epoch after which workers begin anew; 0: never

    def with_stage(self, stage: str, factor: float) -> TrainingPipeline:
        """Return a pipeline with ``stage`` at ``factor`` times its cost; with "transport" also the receipt."""
        build = {name: work.scaled(factor) if name == stage else work for name, work in self.build.items()}
        receive_ns = self.receive_ns * (factor if stage == "transport" else 1.0)
        return replace(self, build=build, receive_ns=receive_ns)

    def alone(self) -> TrainingPipeline:
        """Return the loader without a trainer."""
        return replace(self, step_ns=0.0, step_cpu_ns=0.0)


@dataclass(frozen=True, slots=True)
class Prediction:
    """The speed that the model predicts."""

    batches_per_s: float  # of the whole
    waiting: float  # part of the time that the trainer waits, 0..1


def predict(pipeline: TrainingPipeline) -> Prediction:
    """Batches per second of ``pipeline``, after its buffers have filled."""
    if 0 < pipeline.epoch_batches <= _BATCHES:
        run = _Simulation(pipeline, pipeline.epoch_batches)
        run.simulate()
        total_ns = run.now + pipeline.startup_ns
        return Prediction(
            pipeline.epoch_batches * 1e9 / total_ns, 1 - pipeline.epoch_batches * pipeline.step_ns / total_ns
        )
    ahead = 2 * max(pipeline.workers, 1) * max(pipeline.prefetch, 1)
    # Deliveries come in groups of as many as there are workers: whole groups are counted.
    group = max(pipeline.workers, 1)
    counted = -(-max(_BATCHES, 4 * group) // group) * group
    run = _Simulation(pipeline, ahead + counted)
    run.simulate()
    first, last = run.taken_ns[ahead - 1], run.taken_ns[ahead + counted - 1]
    waited = sum(run.waited_ns[ahead : ahead + counted])
    span = max(last - first, _EPSILON)
    return Prediction(counted * 1e9 / span, min(max(waited / span, 0.0), 1.0))


@dataclass(slots=True)
class _Thread:
    """A worker, or the trainer: what is left of its present phase."""

    idle_ns: float = 0.0
    cpu_ns: float = 0.0
    threads: float = 1.0
    is_busy: bool = False

    def start(self, idle_ns: float, cpu_ns: float, threads: float = 1.0) -> None:
        """Begin with ``idle_ns`` without a processor, then compute ``cpu_ns``."""
        self.idle_ns, self.cpu_ns, self.threads, self.is_busy = idle_ns, cpu_ns, max(threads, 1e-3), True

    def ends(self) -> bool:
        """Return whether it was busy and has nothing left; it is then not busy any more."""
        if not self.is_busy or self.idle_ns > _EPSILON or self.cpu_ns > _EPSILON:
            return False
        self.is_busy = False
        return True


@dataclass(slots=True)
class _Simulation:
    """One run from empty buffers until ``batches`` were taken and used."""

    pipeline: TrainingPipeline
    batches: int
    now: float = 0.0
    taken_ns: list[float] = field(default_factory=list)
    waited_ns: list[float] = field(default_factory=list)
    _cpu: list[float] = field(default_factory=list)
    _idle: list[float] = field(default_factory=list)
    _issued: int = 0
    _queues: list[deque[int]] = field(default_factory=list)
    _building: list[int] = field(default_factory=list)
    _preparation: list[tuple[float, float]] = field(default_factory=list)
    _arrived: list[int] = field(default_factory=list)  # built and not taken, in the order of their arrival
    _asked_ns: float = 0.0
    _is_receiving: bool = False

    def simulate(self) -> None:
        """Run the simulation to the end."""
        pipeline = self.pipeline
        self._cpu, self._idle = self._repeat_batches()
        if pipeline.workers == 0:
            self._simulate_serial()
            return
        workers, trainer = [_Thread() for _ in range(pipeline.workers)], _Thread()
        self._queues = [deque() for _ in range(pipeline.workers if pipeline.rotates and pipeline.in_order else 1)]
        self._building = [-1] * pipeline.workers
        once = pipeline.preparation if pipeline.epoch_batches else None
        own = (0.0, 0.0) if once is None else (float(once.idle_ns[0]), float(once.cpu_ns[0]))
        self._preparation = [own] * pipeline.workers
        while trainer.is_busy or len(self.taken_ns) < self.batches:
            self._start_workers(workers)
            self._start_receipt(trainer)
            self._advance([*workers, trainer])
            for number, worker in enumerate(workers):
                if worker.ends():
                    self._arrived.append(self._building[number])
            if trainer.ends():
                self._end_phase(trainer)

    def _start_workers(self, workers: list[_Thread]) -> None:
        limit = self.pipeline.workers * max(self.pipeline.prefetch, 1)
        while self._issued < min(self.batches, len(self.taken_ns) + limit):
            self._queues[self._issued % len(self._queues)].append(self._issued)
            self._issued += 1
        for number, worker in enumerate(workers):
            queue = self._queues[number % len(self._queues)]
            if not worker.is_busy and queue:
                task = self._building[number] = queue.popleft()
                idle_ns, cpu_ns = self._preparation[number]
                self._preparation[number] = (0.0, 0.0)
                worker.start(self._idle[task] + idle_ns, self._cpu[task] + cpu_ns, self.pipeline.threads)

    def _start_receipt(self, trainer: _Thread) -> None:
        """Let the trainer receive the next batch, if it is there and the trainer has nothing else to do."""
        wanted = len(self.taken_ns) if self.pipeline.in_order else next(iter(self._arrived), -1)
        if not trainer.is_busy and wanted in self._arrived:
            self._arrived.remove(wanted)
            self._is_receiving = True
            trainer.start(0.0, self.pipeline.receive_ns + self.pipeline.draw_ns)

    def _end_phase(self, trainer: _Thread) -> None:
        """The trainer has received a batch, and begins its step; or it has ended a step, and asks for a batch."""
        if not self._is_receiving:
            self._asked_ns = self.now
            return
        self._is_receiving = False
        self.taken_ns.append(self.now)
        self.waited_ns.append(self.now - self._asked_ns)
        idle_ns, threads = _divide_step(self.pipeline)
        trainer.start(idle_ns, self.pipeline.step_cpu_ns, threads)

    def _simulate_serial(self) -> None:
        pipeline = self.pipeline
        step_idle_ns, step_threads = _divide_step(pipeline)
        step_ns = step_idle_ns + self._compute(pipeline.step_cpu_ns, step_threads)
        for idle_ns, cpu_ns in zip(self._idle, self._cpu, strict=True):
            self.waited_ns.append(idle_ns + self._compute(cpu_ns + pipeline.draw_ns, pipeline.threads))
            self.taken_ns.append(self.now + self.waited_ns[-1])
            self.now = self.taken_ns[-1] + step_ns

    def _compute(self, cpu_ns: float, threads: float) -> float:
        """Time in which threads compute, if no others of the script do."""
        return cpu_ns / (threads * min(1.0, self.pipeline.cores / (threads + self.pipeline.background)))

    def _repeat_batches(self) -> tuple[list[float], list[float]]:
        """Return building times of all batches: those observed, in their order, again and again."""
        works = list(self.pipeline.build.values())
        if not works:
            return [0.0] * self.batches, [0.0] * self.batches
        cpu = np.sum([work.cpu_ns for work in works], axis=0)
        idle = np.sum([work.idle_ns for work in works], axis=0)
        return np.resize(cpu, self.batches).tolist(), np.resize(idle, self.batches).tolist()

    def _advance(self, threads: list[_Thread]) -> None:
        """Let time pass until a phase of any thread ends."""
        demand = sum(thread.threads for thread in threads if thread.is_busy and thread.idle_ns <= _EPSILON)
        speed = min(1.0, self.pipeline.cores / (demand + self.pipeline.background)) if demand else 1.0
        least = math.inf
        for thread in threads:
            if thread.is_busy:
                if thread.idle_ns > _EPSILON:
                    least = min(least, thread.idle_ns)
                else:
                    least = min(least, thread.cpu_ns / (thread.threads * speed))
        if least is math.inf:
            raise AssertionError("the simulation has nothing to do, and has not ended")
        self.now += least
        for thread in threads:
            if thread.is_busy:
                if thread.idle_ns > _EPSILON:
                    thread.idle_ns -= least
                else:
                    thread.cpu_ns -= least * thread.threads * speed


def _divide_step(pipeline: TrainingPipeline) -> tuple[float, float]:
    """Time of the step in which the main process does not compute, and threads that compute in the rest."""
    if pipeline.step_ns <= 0:
        return 0.0, 1.0
    threads = max(1.0, math.ceil(pipeline.step_cpu_ns / pipeline.step_ns - 0.05))
    return max(pipeline.step_ns - pipeline.step_cpu_ns / threads, 0.0), threads
