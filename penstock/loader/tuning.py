"""``num_workers="auto"``: a loader's workers and the depth of its queue, found by trial while it runs.

::

    span under the present setting  ->  a change  ->  span under it  ->  kept, or taken back  ->  the next change
                                                                                none is left  ->  settled, until
                                                                                the speed or the machine changes

A span is a second or more of delivered batches, or less where a trial is far from what would be kept. What is tried:
more workers and a deeper queue where the loop waits; fewer workers always. A change is kept if more samples come per
second, or if as many come from fewer workers. No batch depends on any of it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar

from penstock.datasets.base import is_iterable
from penstock.errors import ArgumentError
from penstock.system.shares import MemoryBudget, find_cores
from penstock.system.system_files import SystemFiles
from penstock.workers.jobs.base import is_stateful

if TYPE_CHECKING:
    from penstock.workers import Capabilities

__all__ = [
    "AUTO",
    "AutoCount",
    "LoaderTuner",
    "Setting",
    "SettingChange",
    "TunerLimits",
    "check_memory_fraction",
    "choose_workers_count",
    "count_most",
    "find_tuner",
    "is_divided",
    "is_movable",
    "resolve",
]

_logger = logging.getLogger(__name__)

AUTO: Final = "auto"
CountT = TypeVar("CountT", int, int | None)

_SPAN_S: Final = 1.0
_SPAN_BATCHES: Final = 8
_LONG_SPAN_S: Final = 4.0
"""A span lasts as long as both of the first say, and as its speed is uncertain; but no longer than the last."""
_SHORT_SPAN_S: Final = 0.5
"""A trial may end so early, where its speed is far from what would be kept."""
_UNCERTAIN: Final = 0.02
"""The standard error of the speed, as a part of it, with which a span may end early."""
_GAIN: Final = 1.04
"""A change that costs something is kept if it is so many times as fast."""
_LOSS: Final = 0.985
"""A change that saves something is kept if it is so many times as fast."""
_WAITING: Final = 0.02
"""Part of the time that the loop may wait without more being tried."""
_MOSTLY: Final = 0.9
"""A loop that waits for more than this part of its time gets workers before a deeper queue."""
_DRIFT: Final = 0.15
"""A settled loader whose speed changes by this part, over two spans, tries anew."""
_AGAIN_S: Final = 60.0
_MOST_AGAIN_S: Final = 960.0
"""A settled loader that is waited for tries again after so many seconds, which double up to the second."""
_MOST_FACTOR: Final = 16


class AutoCount(int):
    """The ``num_workers`` or ``prefetch_factor`` of a loader that chooses it; ``most``: the most that it may be.

    It is an ``int`` for whoever reads it, or makes another kind of loader with it: the number of cores, or 2 batches.
    It is "auto" for a loader of penstock's that is made with it again.
    """

    most: int

    def __new__(cls, value: int, most: int = 0) -> Self:
        """Make one of a value."""
        made = super().__new__(cls, value)
        made.most = max(value, most)
        return made

    def __repr__(self) -> str:
        return repr(AUTO)


@dataclass(frozen=True, slots=True)
class Setting:
    """How many workers build batches, and how many batches of each are under way or ready."""

    workers: int
    factor: int = 2

    @property
    def limit(self) -> int:
        """Most batches under way or ready."""
        return self.workers * self.factor


@dataclass(frozen=True, slots=True)
class TunerLimits:
    """What a setting may not exceed."""

    cores: int
    """The cores that there are; workers that wait may be more."""
    workers: int
    batches: int
    """Most batches under way or ready."""


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A change of a loader's setting, as ``stats().changes`` lists it.

    Parameters
    ----------
    batches : int
        How many had been delivered.
    workers : int
        Workers from here on.
    batches_ahead : int
        Most batches under way or ready from here on.
    reason : str
        Why, in a few words.
    """

    batches: int
    workers: int
    batches_ahead: int
    reason: str

    def __str__(self) -> str:
        return f"{self.workers} workers, {self.batches_ahead} batches ahead ({self.reason})"


class TunedLoader(Protocol):
    """What is asked of a loader."""

    num_workers: int
    prefetch_factor: int | None
    memory_fraction: float


class TunedCounters(Protocol):
    """What is asked of a loader's counters."""

    tuner: LoaderTuner | None
    """The loader's, once it has one."""

    @property
    def batch_nbytes(self) -> float:
        """Bytes of a batch."""
        ...

    def list_worker_pids(self) -> list[int]:
        """Return the worker processes."""
        ...


def resolve(name: str, value: CountT | str, automatic: AutoCount) -> CountT | int:
    """A count that was given, where "auto" becomes ``automatic``; ArgumentError for another text."""
    if isinstance(value, AutoCount) or value == AUTO:
        return automatic
    if isinstance(value, str):
        raise ArgumentError(f'{name} must be an int or "auto", got {value!r}')
    return value


def choose_workers_count(dataset: object) -> AutoCount:
    """``num_workers="auto"`` of a dataset: some wait for a disk or a network, so that more than cores are tried."""
    cores = find_cores(SystemFiles())
    return AutoCount(cores, 0 if is_divided(dataset) else max(16, 4 * cores))


def count_most(num_workers: int) -> int:
    """The most workers that a loader may have."""
    return num_workers.most if isinstance(num_workers, AutoCount) else num_workers


def check_memory_fraction(value: float) -> float:
    """``memory_fraction``, if it is one."""
    if not 0 < value <= 1:
        raise ArgumentError(f"memory_fraction must be above 0 and at most 1, got {value!r}")
    return value


def is_movable(loader: TunedLoader, dataset: object) -> bool:
    """Return whether a loader chooses its workers, any of which may build any batch of the dataset."""
    return isinstance(loader.num_workers, AutoCount) and not is_divided(dataset)


def is_divided(dataset: object) -> bool:
    """Whether each worker has a part of the dataset, or a state of it: a stream, or a dataset with a ``state_dict``."""
    return is_iterable(dataset) or is_stateful(dataset)


def find_tuner(
    loader: TunedLoader, dataset: object, counters: TunedCounters, capabilities: Capabilities
) -> LoaderTuner | None:
    """Return the tuner of a loader, made by the first call; None where nothing is to be chosen."""
    workers, factor = loader.num_workers, loader.prefetch_factor
    is_chosen = not is_divided(dataset) and (isinstance(workers, AutoCount) or isinstance(factor, AutoCount))
    if counters.tuner is None and workers and factor and is_chosen:
        files = SystemFiles()
        memory = MemoryBudget(loader.memory_fraction, files)

        def find_limits(setting: Setting) -> TunerLimits:
            pids, batch_nbytes = counters.list_worker_pids(), counters.batch_nbytes
            fitting, batches = memory.count_fitting(setting.workers, setting.factor, pids, batch_nbytes)
            return TunerLimits(find_cores(files), min(count_most(workers), fitting), batches)

        first = 1 if capabilities.isolated else find_cores(files)
        counters.tuner = LoaderTuner(workers, factor, find_limits, first)
    return counters.tuner


@dataclass(frozen=True, slots=True)
class _Span:
    """What was measured under one setting."""

    rate: float  # samples per second
    waiting: float  # part of the time that the loop waited, 0..1
    is_irregular: bool = False  # whether batches were asked for in bursts, or came in bursts


@dataclass(frozen=True, slots=True)
class _Trial:
    """A change whose span is measured."""

    name: str
    before: Setting
    base: _Span  # measured under the setting before

    @property
    def least_rate(self) -> float:
        """Samples per second with which it is kept."""
        return (_LOSS if "fewer" in self.name else _GAIN) * self.base.rate

    def is_clear(self, rate: float, error: float) -> bool:
        """Whether a longer span would not decide otherwise; ``error``: the standard error, as a part of the rate."""
        return abs(rate - self.least_rate) > 3 * error * rate + _UNCERTAIN * self.base.rate


class LoaderTuner:
    """Finds a loader's setting; see the module. One for a loader, whose epochs go on where the last one was.

    Parameters
    ----------
    workers, factor : int
        What the loader was given; an :class:`AutoCount` is chosen.
    find_limits : callable
        The limits of a setting now; called once a span.
    first : int
        Workers of the first batches, where they are chosen.
    clock : callable
        Seconds.

    Attributes
    ----------
    setting : Setting
        The one to use now.
    changes : deque of SettingChange
        The newest 64, oldest first.
    """

    def __init__(
        self,
        workers: int,
        factor: int,
        find_limits: Callable[[Setting], TunerLimits],
        first: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._tries_workers, self._tries_factor = isinstance(workers, AutoCount), isinstance(factor, AutoCount)
        self._find_limits, self._clock = find_limits, clock
        self.setting = Setting(first if self._tries_workers else int(workers), 2 if self._tries_factor else int(factor))
        self.changes: deque[SettingChange] = deque(maxlen=64)
        self._limits: TunerLimits | None = None
        self._batches = self._begin_batches = self._begin_waited = self._rows = 0
        self._last_s = self._squares = 0.0
        self._trial: _Trial | None = None
        self._refused: set[str] = set()
        self._settled: _Span | None = None
        self._drifts, self._again_s, self._settled_s = 0, _AGAIN_S, 0.0
        self._has_reported = False
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """Measure anew: neither what lies between two epochs nor the first batch of one counts."""
        self._skip_until, self._begin_s = self._batches + 1, -1.0

    def record(self, rows: int, waited_ns: int) -> bool:
        """Count a delivered batch of ``rows`` samples; ``waited_ns``: nanoseconds that the loop has waited in all.

        Returns whether :attr:`setting` has changed.
        """
        self._batches += 1
        if self._limits is None:
            return self._begin()
        if self._batches < self._skip_until:
            return False
        now = self._clock()
        if self._begin_s < 0:
            self._begin_span(now, waited_ns)
            return False
        self._rows += rows
        self._squares += (now - self._last_s) ** 2
        self._last_s = now
        seconds, batches = now - self._begin_s, self._batches - self._begin_batches
        if seconds < _SHORT_SPAN_S or batches < 2:
            return False
        variance = self._squares / batches - (seconds / batches) ** 2
        error = max(0.0, variance * batches) ** 0.5 / seconds  # standard error of the speed, as a part of it
        is_irregular, trial = error > _UNCERTAIN, self._trial
        if seconds < _LONG_SPAN_S and not (
            batches >= _SPAN_BATCHES
            and ((seconds >= _SPAN_S and not is_irregular) or (trial and trial.is_clear(self._rows / seconds, error)))
        ):
            return False
        span = _Span(self._rows / seconds, (waited_ns - self._begin_waited) / 1e9 / seconds, is_irregular)
        self._begin_span(now, waited_ns)
        before = self.setting
        if self._look_at_limits():
            self._decide(span, now)
        return self._has_changed(before)

    def _begin(self) -> bool:
        """Go to as many workers as there are cores, now that the memory of one is known."""
        before = self.setting
        self._limits = limits = self._find_limits(before)
        if self._tries_workers and before.workers != (first := self._fit(limits.cores, before.factor)).workers:
            self._change(first, "a worker for each core")
        return self._has_changed(before)

    def _begin_span(self, now: float, waited_ns: int) -> None:
        self._begin_s, self._begin_batches, self._begin_waited, self._rows = now, self._batches, waited_ns, 0
        self._last_s, self._squares = now, 0.0

    def _has_changed(self, before: Setting) -> bool:
        if self.setting == before:
            return False
        # Batches that were begun under the setting before come first.
        self._begin_s, self._skip_until = -1.0, self._batches + max(before.limit, self.setting.limit)
        return True

    def _look_at_limits(self) -> bool:
        """Obey limits that have changed, and begin anew where there are other cores; whether nothing of that was."""
        old, self._limits = self._limits, self._find_limits(self.setting)
        fitting = self._fit(self.setting.workers, self.setting.factor)
        if fitting == self.setting and old is not None and old.cores == self._limits.cores:
            return True
        self._trial, self._settled = None, None
        self._refused.clear()
        if fitting != self.setting:
            self._change(fitting, "memory")
        self._begin_s, self._skip_until = -1.0, self._batches + self.setting.limit
        return False

    def _fit(self, workers: int, factor: int) -> Setting:
        """Return the setting, or one within the limits."""
        limits = self._limits
        assert limits is not None, "the first batch was delivered"
        if self._tries_workers:
            workers = max(1, min(workers, limits.workers, limits.batches))
        if self._tries_factor or self._tries_workers:
            factor = max(1, min(factor, limits.batches // workers))
        return Setting(workers, factor)

    def _decide(self, span: _Span, now: float) -> None:
        if self._settled is not None and not self._is_due(self._settled, span, now):
            return
        trial, self._trial = self._trial, None
        if trial is not None:
            if self._is_better(trial, span):
                self._refused = set(_OPPOSITE.get(trial.name, ()))
            else:
                self._refused.add(trial.name)
                if span.rate < trial.base.rate:
                    self._refused.update(_NOT_EITHER.get(trial.name, ()))
                self._change(trial.before, f"{trial.name} brought {span.rate / max(trial.base.rate, 1e-9):.2f} x")
                span = trial.base
        self._try_next(span, now)

    def _is_better(self, trial: _Trial, span: _Span) -> bool:
        is_idle = span.waiting <= max(trial.base.waiting + _WAITING / 2, _WAITING)
        return span.rate >= trial.least_rate and (is_idle or "fewer" not in trial.name)

    def _try_next(self, span: _Span, now: float) -> None:
        """Try the next change that was not refused; if there is none, settle."""
        for name, setting in self._list_changes(span):
            if name not in self._refused and setting != self.setting:
                self._trial = _Trial(name, self.setting, span)
                self._change(setting, f"{name}: the loop waited {span.waiting:.0%} of its time")
                return
        self._settled, self._settled_s, self._drifts = span, now, 0
        if not self._has_reported:
            self._has_reported = True
            _logger.info("%s", self.describe())

    def _list_changes(self, span: _Span) -> list[tuple[str, Setting]]:
        now, found = self.setting, list[tuple[str, Setting]]()
        if span.waiting >= _WAITING:
            if self._tries_workers:
                found.append(("half more", self._fit(now.workers + max(2, now.workers // 2), now.factor)))
                found.append(("one more", self._fit(now.workers + 1, now.factor)))
            if self._tries_factor and now.factor < _MOST_FACTOR:
                deeper = "a deeper queue", self._fit(now.workers, min(4 * now.factor, _MOST_FACTOR))
                found.insert(0 if span.is_irregular and span.waiting < _MOSTLY else len(found), deeper)
        if self._tries_workers:
            if now.workers > 3 and span.waiting < _WAITING:
                found.append(("half fewer", self._fit(now.workers // 2, now.factor)))
            found.append(("one fewer", self._fit(now.workers - 1, now.factor)))
        return found

    def _is_due(self, settled: _Span, span: _Span, now: float) -> bool:
        """Whether to begin anew: the speed is no longer what it was, or the loop still waits and time has passed."""
        has_drifted = span.waiting > settled.waiting + 0.05 or abs(span.rate / max(settled.rate, 1e-9) - 1) > _DRIFT
        self._drifts = self._drifts + 1 if has_drifted else 0
        is_late = span.waiting >= _WAITING and now - self._settled_s >= self._again_s
        if self._drifts < 2 and not is_late:
            return False
        self._again_s = min(2 * self._again_s, _MOST_AGAIN_S) if is_late else _AGAIN_S
        self._settled = None
        self._refused.clear()
        return True

    def _change(self, setting: Setting, reason: str) -> None:
        self.setting = setting
        self.changes.append(SettingChange(self._batches, setting.workers, setting.limit, reason))

    def describe(self) -> str:
        """Return the setting, and how much the loop waits under it, in a sentence."""
        waiting = "" if self._settled is None else f": the loop waits {self._settled.waiting:.0%} of its time"
        return f"{self.setting.workers} workers, {self.setting.limit} batches ahead{waiting}"


_OPPOSITE: Final = {
    "half more": ("half fewer",),
    "one more": ("half fewer", "one fewer"),
    "half fewer": ("half more",),
    "one fewer": ("half more", "one more"),
}
"""What need not be tried after a change that was kept; half more may be too many."""
_NOT_EITHER: Final = {"half more": ("one more",)}
"""What need not be tried after a change that made the loader slower."""
