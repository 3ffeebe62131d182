"""Steps of the script of which only the times are kept, where steps are too short to observe each one in detail.

::

    step in detail ── asked, arrived ── asked, arrived ── ... ── step in detail        a run of brief steps

Used by :class:`.loader_watch.LoaderWatch`. What else a step has (its processor time, batches that were
ready) is taken from the steps in detail, when watching has ended: to make an object for each step would cost more than
its times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.doctor.watching.stack_sampling import Activity

__all__ = ["BriefRun", "BriefSteps", "ForeignTime", "ScriptStep", "fill_cpu_of_steps"]


@dataclass(slots=True)
class ScriptStep:
    """One batch that the script took; times in nanoseconds. ``length`` -1: where the step ended is not known."""

    number: int
    epoch: int
    wait: int
    start: int
    ready: int
    samples: int
    replayed: bool = False
    length: int = -1
    cpu: int = 0
    seen: int = 0
    seen_copying: int = 0
    device: int = -1
    is_brief: bool = False


@dataclass(slots=True)
class ForeignTime:
    """Time within a step that belongs to other loaders; several calls are one loop over another loader."""

    calls: int = 0
    begin: int = 0
    end: int = 0

    def note(self, asked: int, arrived: int) -> None:
        """Another loader was asked, within the step."""
        if not self.calls:
            self.begin = asked
        self.calls += 1
        self.end = arrived

    @property
    def spent(self) -> int:
        """Nanoseconds."""
        return self.end - self.begin


class BriefSteps:
    """A run of brief steps of one iterator, and what the stack sampler has seen in them.

    Attributes
    ----------
    times : list of int
        When a batch was asked for, and when it arrived, in turns.
    activity : Activity
        Of the thread within these steps.
    """

    __slots__ = ("_foreign", "activity", "times")

    def __init__(self) -> None:
        self.times: list[int] = []
        self.activity = Activity("step")
        self._foreign: dict[int, ForeignTime] = {}

    def note_foreign(self, asked: int, arrived: int) -> None:
        """Another loader was asked, within the last step."""
        if self.times:
            self._foreign.setdefault(len(self.times) // 2 - 1, ForeignTime()).note(asked, arrived)

    def end(self, ended: int, last: ScriptStep, samples: list[int]) -> BriefRun:
        """The run is over; see :class:`BriefRun`."""
        run = BriefRun(self.times, ended, last, samples, self._foreign, self.activity.weights)
        self.times, self._foreign, self.activity = [], {}, Activity("step")
        return run


@dataclass(slots=True)
class BriefRun:
    """A run of brief steps that is over.

    Parameters
    ----------
    times : list of int
        As in :class:`BriefSteps`.
    ended : int
        When the last step ended; -1 if that is not known.
    last : ScriptStep
        The step in detail before the run.
    samples : list of int
        Of each batch; 0 where it is not known.
    foreign : dict of int to ForeignTime
        By the number of the step in the run.
    weights : dict of str to int
        What the stack sampler has seen, as in :class:`~penstock.doctor.watching.stack_sampling.Activity`.
    """

    times: list[int]
    ended: int
    last: ScriptStep
    samples: list[int]
    foreign: dict[int, ForeignTime]
    weights: dict[str, int]

    def make_steps(self) -> list[ScriptStep]:
        """The steps."""
        last, count = self.last, len(self.samples)
        seen, copying = sum(self.weights.values()) // count, self.weights.get("copy", 0) // count
        steps = []
        for at, end in enumerate([*self.times[2::2], self.ended]):
            asked, arrived = self.times[2 * at], self.times[2 * at + 1]
            step = ScriptStep(last.number + 1 + at, last.epoch, arrived - asked, arrived, last.ready, self.samples[at])
            step.samples = step.samples or last.samples
            if end >= 0:
                step.length = max(0, end - arrived - (self.foreign[at].spent if at in self.foreign else 0))
            step.seen, step.seen_copying, step.is_brief = seen, copying, True
            steps.append(step)
        return steps


def fill_cpu_of_steps(steps: Sequence[ScriptStep]) -> None:
    """Give brief steps the processor time that steps in detail have had, as a part of their length. Idempotent."""
    detailed = [step for step in steps if not step.is_brief and not step.replayed and step.length > 0]
    share = sum(step.cpu for step in detailed) / max(sum(step.length for step in detailed), 1)
    for step in steps:
        if step.is_brief:
            step.cpu = round(share * max(step.length, 0))
