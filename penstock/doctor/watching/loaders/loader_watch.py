"""The steps of one loader: what the script waits for, and what it does between two batches.

::

    next(iterator)      asked ── wait ── arrived ── step: copies, the training ── asked ── wait ── ...
    in detail           batches that are ready      processor time, device             always, or in some steps

Other loaders that are used within a step (a validation inside the training loop, ``zip(a, b)``) are no part of it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.doctor.machine.step_events import StepEvents
from penstock.doctor.watching.batch_copies import ReplayedBatch
from penstock.doctor.watching.event_file import Control, EventList
from penstock.doctor.watching.loaders.loader_settings import WatchedLoader
from penstock.doctor.watching.recording import StepTimes
from penstock.doctor.watching.stack_sampling import Activity
from penstock.doctor.watching.steps.batch_places import BatchPlaces
from penstock.doctor.watching.thread_trial import ThreadTrial
from penstock.doctor.watching.watched_process import WatchedProcess
from penstock.doctor.watching.work_recorder import DetailChoice

__all__ = ["EpochWatch", "LoaderWatch", "ScriptStep", "step_times"]

_OWN_LOOKS_NS: Final = 200_000_000
"""A step that was looked at for so long is divided by its own looks; a shorter one by those of all."""
_STEP_NS: Final = 40_000
"""What it costs to observe one step in detail, where that is rare: the code is then not in the processor's caches."""


@dataclass(slots=True)
class ScriptStep:
    """One batch that the script took; times in nanoseconds.

    ``length`` is -1 where the end of the step is not known, ``cpu`` and ``device`` where they were not measured.
    ``seen`` and ``copying``: how long the script's thread was looked at since the step before, and found copying.
    """

    number: int
    epoch: int
    wait: int
    start: int
    ready: int
    samples: int
    replayed: bool = False
    length: int = -1
    cpu: int = -1
    seen: int = 0
    copying: int = 0
    device: int = -1


@dataclass(slots=True)
class EpochWatch:
    """One run over a loader."""

    number: int  # of the epoch
    first_batch: int  # number of its first batch
    began_ns: int
    started_ns: int = 0
    """``began_ns`` and ``started_ns``: when ``iter(loader)`` was called; the time that it took, since it starts the
    workers."""
    delivered: int = 0  # batches that it gave
    sizes: deque[int] = field(default_factory=deque)
    """Samples of batches that were asked for and not taken yet, as far as they are known."""


class LoaderWatch:
    """All that is seen of one loader in the main process.

    Parameters
    ----------
    process : WatchedProcess
        That of the script.
    loader : DataLoader
        Kept, so that it can be tried again later.
    folder : Path
        For the files of its workers; made here.

    Attributes
    ----------
    loaders : int
        The loader, and those whose place it has taken.
    epoch : EpochWatch
        The one that was begun last.
    drawn_ns : list of int
        How long the sampler took to draw the indices of each batch.
    sink : EventList
        Events of the main process.
    places : BatchPlaces
        Where in the script batches are taken.
    iterator : callable
        Gives the iterator that runs, None if there is none.
    replayed : ReplayedBatch, optional
        The last batch, which the script gets again and again: the fixed-data test has begun.
    replays : int
        How many times it got it.
    """

    def __init__(self, process: WatchedProcess, loader: WatchedLoader, folder: Path) -> None:
        self.process, self.loader, self.folder = process, loader, folder
        folder.mkdir(mode=0o700)
        self.loaders = 1
        self.control = Control(folder / "control")
        self.sink = EventList()
        self.places = BatchPlaces()
        self.thread_trial = ThreadTrial()
        self.iterator: Callable[[], object] = lambda: None
        self.steps: list[ScriptStep] = []
        self.drawn_ns: list[int] = []
        self.replayed: ReplayedBatch | None = None
        self.replays = 0
        self.epoch = EpochWatch(-1, 0, 0)
        self.first_asked = self._next_number = 0
        self._open: tuple[ScriptStep, EpochWatch, bool] | None = None  # the step under way, and whether it is in detail
        self._thread = process.current_thread()
        self._activity = Activity("step")
        self._cpu_before = 0
        self._device_events = StepEvents()
        self._others: list[int] = []  # when other loaders were first asked, and last gave a batch, within the step
        self._details, self._chosen = DetailChoice(), (0, 0)  # steps then, and time

    # epochs

    def begin_epoch(self) -> EpochWatch:
        """``iter(loader)`` is called: its batches are numbered after those that were asked for before."""
        first = self._next_number = max(self._next_number, len(self.drawn_ns))
        self.control.first_batch = first
        self.epoch = EpochWatch(self.epoch.number + 1, first, time.perf_counter_ns())
        return self.epoch

    def files(self) -> list[Path]:
        """Return the files of its workers."""
        return sorted(self.folder.glob("*.events"))

    # steps

    def sees_detail(self) -> bool:
        """Return whether the step that begins is observed in detail; with a device each one is."""
        return self._details.left <= 0 or self.process.uses_device

    def begin_step(self, step: ScriptStep, epoch: EpochWatch, *, is_detailed: bool) -> None:
        """The script gets the batch of ``step``, which is the last one of the epoch."""
        self.steps.append(step)
        self._next_number = max(self._next_number, step.number + 1)
        self._others = []
        self._open = step, epoch, is_detailed
        step.start = self._activity.since = time.perf_counter_ns()
        if is_detailed:
            if self.process.uses_device:
                self._device_events.begin(len(self.steps) - 1)
            before, self._chosen = self._chosen, (len(self.steps), step.start)
            self._details.choose((step.start - before[1]) / max(len(self.steps) - before[0], 1), _STEP_NS)
            self._thread = self.process.current_thread()
            self._cpu_before = self.process.used_cpu_ns()
        else:
            self._details.left -= 1
        self._thread.activity = self._activity

    def end_step(self, now: int, epoch: EpochWatch | None) -> None:
        """The next batch is asked for, by ``epoch``; None if watching ends."""
        if self._open is None:
            return
        (step, opened_by, is_detailed), self._open = self._open, None
        self._thread.activity = None
        weights = self._activity.weights
        if weights:
            step.seen, step.copying, self._activity = sum(weights.values()), weights.get("copy", 0), Activity("step")
        if is_detailed:
            self.places.end_step()
        if epoch is None or (opened_by is not epoch and opened_by.delivered > 1):
            return  # the loop was left before its end: where the step ended is not known
        if opened_by is not epoch:
            now = epoch.began_ns  # next(iter(loader)) for each batch
        if is_detailed:
            step.cpu = self.process.used_cpu_ns() - self._cpu_before
            if self.process.uses_device:
                self._device_events.end()
        others = self._others[-1] - self._others[0] if self._others else 0
        step.length = max(0, now - step.start - others)

    def note_other(self, asked: int, arrived: int) -> None:
        """Another loader was asked, within the step; several calls are one loop over it."""
        self._others = [self._others[0] if self._others else asked, arrived]

    # the result

    def waited_ns(self) -> int:
        """Return how long the script waited for batches."""
        return sum(step.wait for step in self.steps)

    def spent_ns(self) -> int:
        """Return how long the script waited for batches and took steps."""
        return sum(step.wait + max(step.length, 0) for step in self.steps)

    def count_samples(self) -> int:
        """Count the samples of all steps."""
        return sum(step.samples for step in self.steps)

    def describe(self) -> dict[str, object]:
        """Make an entry of :attr:`~penstock.doctor.watching.recording.Recording.others`."""
        dataset = type(self.loader.dataset).__name__
        return {"dataset": dataset, "samples": self.count_samples(), "wait_ns": self.waited_ns()}

    def read_device(self) -> float | None:
        """Note for each step how long the device was busy. Waits for the device.

        Returns
        -------
        float, optional
            Part of the steps that are bound by launches; None without a device.
        """
        try:
            times = self._device_events.device_ns(len(self.steps))
            launch_bound = self._device_events.launch_bound()
        except RuntimeError:  # the device has failed, and the script with it
            return None
        for step, busy in zip(self.steps, times.tolist(), strict=True):
            step.device = busy
        return launch_bound


def step_times(steps: Sequence[ScriptStep]) -> StepTimes:
    """Arrays of ``steps``. Processor time that was not measured is the same part of a step as in others."""
    measured = [step for step in steps if step.cpu >= 0 and step.length > 0 and not step.replayed]
    computing = sum(step.cpu for step in measured) / max(sum(step.length for step in measured), 1)
    copying = sum(step.copying for step in steps) / max(sum(step.seen for step in steps), 1)

    def column(values: Sequence[int]) -> npt.NDArray[np.int64]:
        return np.array(values, np.int64)

    return StepTimes(
        wait_ns=column([step.wait for step in steps]),
        step_ns=column([step.length for step in steps]),
        copy_ns=column([round(step.length * _copying_part(step, copying)) for step in steps]),
        cpu_ns=column([step.cpu if step.cpu >= 0 else round(computing * max(step.length, 0)) for step in steps]),
        samples=column([step.samples for step in steps]),
        start_ns=column([step.start for step in steps]),
        ready=column([step.ready for step in steps]),
        replayed=np.array([step.replayed for step in steps], bool),
        device_ns=column([step.device for step in steps]),
        epoch=column([step.epoch for step in steps]),
    )


def _copying_part(step: ScriptStep, usual: float) -> float:
    """Part of a step that copies: by its own looks if there are several, else the usual one."""
    return step.copying / step.seen if step.seen >= _OWN_LOOKS_NS else usual
