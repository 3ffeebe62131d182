"""What the rules for training scripts examine: the loops that take batches of a loader, and what was seen of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from penstock.doctor.checks.findings import Finding, Severity
from penstock.doctor.checks.script.batch_places import BatchPlaces
from penstock.doctor.checks.script.loops import TrainingLoop, read_loops
from penstock.doctor.checks.script.values import EventKind, ScriptEvent
from penstock.doctor.checks.subject import Subject
from penstock.doctor.watching.recording import Recording

__all__ = ["ScriptSubject", "read_script"]

NO_DEVICE: Final = "nothing on this machine, which has no device; found by looking only"
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class ScriptSubject:
    """A script, in the form that rules read.

    Parameters
    ----------
    loader : DataLoader
        The loader that was watched.
    places : BatchPlaces
        Where its batches were taken.
    loops : list of TrainingLoop
        What is done with them.
    has_device : bool
        Whether torch finds an accelerator on this machine.
    samples : Subject
        How the loader's samples are made.
    recording : Recording, optional
        What was measured.
    deadline : float
        Until when costs may be measured in child processes, by ``time.monotonic``; 0: not at all.
    """

    loader: Any
    places: BatchPlaces
    loops: list[TrainingLoop]
    has_device: bool
    samples: Subject
    recording: Recording | None = None
    deadline: float = 0.0

    @property
    def left_s(self) -> float:
        """Seconds that are left to measure."""
        return max(self.deadline - time.monotonic(), 0.0)

    @property
    def is_pinned(self) -> bool:
        """Whether the loader is asked to page-lock batches."""
        return bool(getattr(self.loader, "pin_memory", False))

    @property
    def num_workers(self) -> int:
        """Workers of the loader."""
        return int(getattr(self.loader, "num_workers", 0) or 0)

    @property
    def mean_start_s(self) -> float:
        """Seconds that the start of an epoch takes; 0 if unknown."""
        starts = [each for each in self.places.epoch_starts_ns if each > 0]
        return sum(starts) / len(starts) / 1e9 if starts else 0.0

    def events(
        self, kind: EventKind, *, training: bool = False, each_step: bool = False
    ) -> Iterator[list[ScriptEvent]]:
        """Events of a kind, those of one function together.

        Parameters
        ----------
        kind : str
            Of the events.
        training : bool
            Only those of loops that train.
        each_step : bool
            Only those that happen in each step.
        """
        groups: dict[tuple[str, str], dict[tuple[int, str], ScriptEvent]] = {}
        for loop in self.loops:
            if training and not loop.is_training:
                continue
            for event in loop.events:
                if event.kind == kind and (event.is_each_step or not each_step):
                    group = groups.setdefault((event.line.file, event.line.function), {})
                    group.setdefault((event.line.line, event.text), event)
        for group in groups.values():
            yield sorted(group.values(), key=lambda event: event.line.line)

    def device_severity(self) -> Severity:
        """Of a mistake that costs nothing without a device."""
        return "warning" if self.has_device else "note"


def read_script(
    loader: Any, places: BatchPlaces, recording: Recording | None = None, *, trial_s: float = 0.0
) -> ScriptSubject:
    """Read the source of the loops that take batches of ``loader``; rules may measure for ``trial_s`` seconds."""
    deadline = time.monotonic() + trial_s
    has_device = torch.accelerator.is_available()
    return ScriptSubject(loader, places, read_loops(places), has_device, Subject(loader, 0), recording, deadline)


def describe_events(
    rule: str, severity: Severity, events: Sequence[ScriptEvent], what: str, advice: str, cost: str = ""
) -> Finding:
    """A finding about events of one function; its line is that of the first."""
    first = events[0].line
    lines = sorted({event.line.line for event in events})
    shown = ", ".join(map(str, lines))
    name = first.file.replace("\\", "/").rpartition("/")[2]
    place = f"{name}, line {shown}"
    where = f"{first.function} ({place})" if first.function else place
    return Finding(rule, severity, where, what, advice, cost, first.file, first.line)


def quote_events(events: Sequence[ScriptEvent]) -> str:
    """The source of the first events."""
    texts = list(dict.fromkeys(event.text for event in events))
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more
