"""The steps of one loader: what the script waits for, and what it does between two batches.

::

    next(iterator)        asked ── wait ── arrived ── step: copies, the training ── asked ── wait ── ...
    most short steps      asked ── wait ── arrived                                            (brief_steps.py)
    the last k steps      asked ── the batch before, copied ── step ── ...          the fixed-data test

Other loaders that are used within a step (a validation inside the training loop, ``zip(a, b)``) are no part of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from penstock.doctor.checks.script.batch_places import BatchPlaces
from penstock.doctor.machine.step_events import StepEvents
from penstock.doctor.watching.batch_copies import ReplayedBatch, synchronize_device
from penstock.doctor.watching.batch_layout import guess_samples
from penstock.doctor.watching.brief_steps import BriefRun, BriefSteps, ForeignTime, ScriptStep, fill_cpu_of_steps
from penstock.doctor.watching.detail_choice import DetailChoice
from penstock.doctor.watching.event_file import Control, EventList, is_any_busy
from penstock.doctor.watching.recording import StepTimes
from penstock.doctor.watching.stack_sampling import Activity
from penstock.doctor.watching.thread_trial import ThreadTrial

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.doctor.watching.watcher import Watcher

__all__ = ["EpochWatch", "LoaderWatch"]

_clock: Final = time.perf_counter_ns

_IDLE_LOOKS: Final = 4
_LOOK_S: Final = 0.01
_MOST_IDLE_WAIT_S: Final = 5.0
_OWN_LOOKS_NS: Final = 200_000_000
"""A step that was looked at for so long is divided by its own looks; a shorter one by those of all."""
_STEP_NS: Final = 60_000
"""What it costs to observe one step in detail, where that is rare: the code is then not in the processor's caches."""


@dataclass(slots=True)
class EpochWatch:
    """One run over a loader.

    Parameters
    ----------
    watch : LoaderWatch
        Of the loader.
    number : int
        Of the epoch.
    started_ns : int
        Time that ``iter(loader)`` took: it starts the workers.
    began_ns : int
        When it was called.
    delivered : int
        Batches that it gave.
    brief : int
        Of how many of the next steps only the times are kept.
    """

    watch: LoaderWatch
    number: int
    started_ns: int = 0
    began_ns: int = 0
    delivered: int = 0
    brief: int = 0


class LoaderWatch:
    """All that is seen of one loader in the main process.

    Parameters
    ----------
    watcher : Watcher
        What it belongs to.
    loader : DataLoader
        Kept, so that it can be tried again later.
    number : int
        Of the loader, from 0.
    folder : Path
        For the files of its workers; made here.

    Attributes
    ----------
    lengths : dict of int to int
        Samples of each batch that was asked for and not taken yet, by number.
    drawn_ns : list of int
        How long the sampler took to draw the indices of each batch.
    sink : EventList
        Events of the main process.
    places : BatchPlaces
        Where in the script batches are taken.
    iterator : callable
        Gives torch's iterator that runs, None if there is none.
    is_brief : bool
        Whether little is to be recorded at the moment: the present step is not observed in detail.
    """

    def __init__(self, watcher: Watcher, loader: Any, number: int, folder: Path) -> None:
        self.watcher, self.loader, self.number, self.folder = watcher, loader, number, folder
        folder.mkdir(mode=0o700)
        self.control = Control(folder / "control")
        self.sink = EventList()
        self.places = BatchPlaces()
        self.iterator: Callable[[], Any] = _get_none
        self.steps: list[ScriptStep] = []
        self.lengths: dict[int, int] = {}
        self.drawn_ns: list[int] = []
        self.first_batch = self.epochs = self.iterators = 0
        self.first_asked, self._last_number = 0, -1
        self._open: ScriptStep | None = None
        self._opened_by: EpochWatch | None = None
        self._cpu_before = 0
        self._device_events = StepEvents()
        self._foreign = ForeignTime()
        self.is_brief = False
        self._detail, self._briefs = DetailChoice(), BriefSteps()
        self._runs: list[tuple[int, BriefRun]] = []  # with how many steps in detail there were before
        self._run_steps = 0
        self._brief_thread = watcher.current_thread()
        self._last_asked = self._asked_steps = 0  # of the last step in detail; and how many steps there were before
        self._replayed: ReplayedBatch | None = None
        self._is_replaying, self._replays = False, 0
        self.thread_trial = ThreadTrial()

    # epochs

    def begin_epoch(self, started_ns: int = 0) -> EpochWatch:
        """``iter(loader)`` was called."""
        epoch = EpochWatch(self, self.epochs, started_ns, time.perf_counter_ns() - started_ns)
        self.epochs += 1
        return epoch

    def next_number(self) -> int:
        """A number greater than those of all batches that were asked for."""
        self.end_briefs()
        return max([self.first_batch, *(number + 1 for number in self.lengths), self._last_number + 1])

    def files(self) -> list[Path]:
        """The files of its workers."""
        return sorted(self.folder.glob("*.events"))

    # steps

    def next(self, epoch: EpochWatch, take: Callable[[], Any], count_ready: Callable[[], int]) -> Any:
        """What the script gets for ``next(iterator)``.

        Parameters
        ----------
        epoch : EpochWatch
            Of the iterator.
        take : callable
            The loader's own ``next``.
        count_ready : callable
            Batches that are ready.
        """
        asked = time.perf_counter_ns()
        self.first_asked = self.first_asked or asked
        self.is_brief = False
        if self._briefs.times:
            self.end_briefs(asked, epoch)
            asked = time.perf_counter_ns()
        self._end_step(asked, epoch)
        if self._is_replaying:
            return self._replay(epoch)
        if self.thread_trial.goes_on(asked, epoch):
            batch = take()
            epoch.delivered += 1
            return batch
        if not epoch.delivered:
            self.places.note(self.loader, epoch.started_ns)
            asked = time.perf_counter_ns()
        ready = count_ready()
        try:
            batch = take()
        except StopIteration:
            self.watcher.note_wait(self, asked, time.perf_counter_ns())
            raise
        arrived = time.perf_counter_ns()
        self.watcher.note_wait(self, asked, arrived)
        if self.places.layout is None:
            self.places.note_batch(batch)
        number = self._last_number = self.first_batch + epoch.delivered
        samples = self.lengths.pop(number, 0) or guess_samples(batch)
        wait = arrived - asked + epoch.started_ns
        epoch.delivered, epoch.started_ns = epoch.delivered + 1, 0
        step = ScriptStep(number, epoch.number, wait, arrived, ready, samples)
        if self.watcher.is_enough(self, arrived):
            if self.watcher.tries_threads(self) and self.thread_trial.begin(arrived, epoch, self.steps):
                return batch
            if self.watcher.replays:
                self._replayed, self._is_replaying = ReplayedBatch(batch), True
            else:
                self.steps.append(step)
                self.watcher.finish()
                return batch
        self._begin_step(step, epoch)
        self.places.begin_step(self.loader, batch, len(self.steps))
        if not self._is_replaying:
            self._choose_briefs(asked, epoch)
        return batch

    def next_briefly(self, epoch: EpochWatch, next_batch: Callable[[Any], Any], iterator: Any) -> Any:
        """What the script gets for ``next(iterator)``, where only the times of the step are kept."""
        if self._open is not None:
            self._end_step(time.perf_counter_ns(), epoch)
            self._opened_by = epoch
        thread, activity, times, clock = self._brief_thread, self._briefs.activity, self._briefs.times, _clock
        thread.activity = None
        asked = clock()
        try:
            batch = next_batch(iterator)
        except BaseException as error:
            self.end_briefs(asked, epoch)
            if isinstance(error, StopIteration):
                self.watcher.note_wait(self, asked, clock())
            raise
        arrived = activity.since = clock()
        times += (asked, arrived)
        epoch.brief -= 1
        epoch.delivered += 1
        if len(self.watcher.watches) > 1:
            self.watcher.note_wait(self, asked, arrived)
        thread.activity = activity
        return batch

    def _choose_briefs(self, asked: int, epoch: EpochWatch) -> None:
        """Choose the next step that is observed in detail; with a device each one is."""
        count, watcher = self.count_steps(), self.watcher
        spent, self._last_asked = asked - self._last_asked, asked
        passed, self._asked_steps = count - self._asked_steps, count
        self._detail.choose(spent / max(passed, 1), _STEP_NS)
        if self._detail.left and not watcher.device.is_used:
            epoch.brief = max(0, min(self._detail.left, watcher.limits.normal - 1 - count))
            self.is_brief = epoch.brief > 0
            self._brief_thread = watcher.current_thread()

    def end_briefs(self, asked: int = -1, epoch: EpochWatch | None = None) -> None:
        """Keep the brief steps so far. The last one ended when ``epoch`` was asked for the next batch, at ``asked``."""
        count = len(self._briefs.times) // 2
        if not count:
            return
        first = self.steps[-1].number + 1
        samples = [self.lengths.pop(first + at, 0) for at in range(count)]
        ended = asked if epoch is self._opened_by else -1
        if self._brief_thread.activity is self._briefs.activity:
            self._brief_thread.activity = None
        self._runs.append((len(self.steps), self._briefs.end(ended, self.steps[-1], samples)))
        self._run_steps += count
        self._last_number = first + count - 1

    def count_steps(self) -> int:
        """Steps so far, without those of a run of brief steps that is not over."""
        return len(self.steps) + self._run_steps

    def complete_steps(self) -> None:
        """Put the brief steps into :attr:`steps`. Idempotent; called when watching has ended."""
        self.end_briefs()
        steps, at = [], 0
        for position, run in self._runs:
            steps += [*self.steps[at:position], *run.make_steps()]
            at = position
        self.steps = [*steps, *self.steps[at:]]
        self._runs, self._run_steps = [], 0

    def _begin_step(self, step: ScriptStep, epoch: EpochWatch) -> None:
        self.steps.append(step)
        self._open, self._opened_by = step, epoch
        self._foreign = ForeignTime()
        step.start = time.perf_counter_ns()
        if self.watcher.device.is_used:
            self._device_events.begin(self.count_steps() - 1)
        self._cpu_before = self.watcher.used_cpu_ns()
        self.watcher.current_thread().activity = Activity("step", step.start)

    def _end_step(self, now: int, epoch: EpochWatch) -> None:
        step, self._open = self._open, None
        self.places.end_step(is_whole=self._opened_by is epoch)
        if step is None or self._opened_by is None:
            return
        thread = self.watcher.current_thread()
        activity, thread.activity = thread.activity, None
        if self._opened_by is not epoch:
            if self._opened_by.delivered > 1:
                return  # the loop was left before its end: where the step ended is not known
            now = epoch.began_ns  # next(iter(loader)) for each batch
        step.cpu = self.watcher.used_cpu_ns() - self._cpu_before
        if self.watcher.device.is_used:
            self._device_events.end()
        step.length = max(0, now - step.start - self._foreign.spent)
        if activity is not None and activity.kind == "step":
            step.seen = sum(activity.weights.values())
            step.seen_copying = activity.weights.get("copy", 0)

    def note_foreign(self, asked: int, arrived: int) -> None:
        """Another loader was asked, within a step."""
        if self._open is not None:
            self._foreign.note(asked, arrived)
        else:
            self._briefs.note_foreign(asked, arrived)

    # the fixed-data test

    def _replay(self, epoch: EpochWatch) -> Any:
        if not self._replays:
            self._await_idle_workers()
            synchronize_device()
        elif self._replays >= self.watcher.replays:
            before = time.perf_counter_ns()
            synchronize_device()
            self.steps[-1].length += time.perf_counter_ns() - before
            self.watcher.finish()
        self._replays += 1
        last = self.steps[-1]
        assert self._replayed is not None, "kept when the last batch came"
        batch = self._replayed.take()
        self._begin_step(ScriptStep(-1, epoch.number, 0, 0, -1, last.samples, replayed=True), epoch)
        return batch

    def _await_idle_workers(self) -> None:
        """Let workers end what they were asked for: the test is of the trainer alone."""
        deadline, idle = time.monotonic() + _MOST_IDLE_WAIT_S, 0
        while idle < _IDLE_LOOKS and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
            busy = is_any_busy(self.files()) or self.watcher.is_thread_busy()
            idle = 0 if busy else idle + 1

    # the result

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

    def step_times(self, steps: list[ScriptStep]) -> StepTimes:
        """Arrays of ``steps``."""
        fill_cpu_of_steps(steps)
        seen = sum(step.seen for step in steps)
        share = sum(step.seen_copying for step in steps) / seen if seen else 0.0
        copies = [round(step.length * _copy_share(step, share)) for step in steps]

        def column(values: list[int]) -> Any:
            return np.array(values, np.int64)

        return StepTimes(
            wait_ns=column([step.wait for step in steps]),
            step_ns=column([step.length for step in steps]),
            copy_ns=column(copies),
            cpu_ns=column([step.cpu for step in steps]),
            samples=column([step.samples for step in steps]),
            start_ns=column([step.start for step in steps]),
            ready=column([step.ready for step in steps]),
            replayed=np.array([step.replayed for step in steps], bool),
            device_ns=column([step.device for step in steps]),
            epoch=column([step.epoch for step in steps]),
        )


def _get_none() -> None:
    """No iterator runs."""


def _copy_share(step: ScriptStep, mean: float) -> float:
    """Part of a step that copies: by its own looks if there are several, else by those of all steps."""
    return step.seen_copying / step.seen if step.seen and step.seen >= _OWN_LOOKS_NS else mean
