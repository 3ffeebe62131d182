"""What the rules for training scripts examine: how batches are taken, and what was seen in steps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from penstock.doctor.checks.findings import Finding, Severity
from penstock.doctor.checks.script.batch_places import BatchPlaces
from penstock.doctor.checks.script.events import EventKind, ScriptEvent, SourceLine
from penstock.doctor.checks.script.source import read_source
from penstock.doctor.checks.subject import Subject
from penstock.doctor.watching.recording import Recording

__all__ = ["NO_DEVICE", "ScriptSubject", "describe_events", "describe_line", "quote_events", "read_script"]

NO_DEVICE: Final = "nothing on this machine, which has no device; found by looking only"
_SHOWN: Final = 3
_OF_DEVICE: Final = frozenset({"copy", "cast", "wait"})


@dataclass(frozen=True, slots=True)
class ScriptSubject:
    """A script, in the form that rules read.

    Parameters
    ----------
    loader : DataLoader
        The loader that was watched.
    places : BatchPlaces
        Where its batches were taken, and what was seen in steps.
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

    @property
    def is_training(self) -> bool:
        """Whether gradients were computed in a step."""
        return self.places.steps is not None and self.places.steps.is_training

    @property
    def may_use_device(self) -> bool:
        """Whether the script uses a device where there is one: it names one, or a library chooses."""
        sources = [source for file in self.places.files if (source := read_source(file)) is not None]
        return self.has_device or self.places.passes_library or any(source.names_device() for source in sources)

    def events(self, kind: EventKind, *, each_step: bool = False) -> Iterator[list[ScriptEvent]]:
        """Events of a kind, those of one function together.

        Parameters
        ----------
        kind : str
            Of the events.
        each_step : bool
            Only those that happen in each step.
        """
        if self.places.steps is None or (kind in _OF_DEVICE and not self.may_use_device):
            return
        groups: dict[tuple[str, str], list[ScriptEvent]] = {}
        for event in self.places.steps.events(kind, each_step=each_step):
            groups.setdefault((event.line.file, event.line.function), []).append(event)
        for group in groups.values():
            yield sorted(group, key=lambda event: event.line.line)

    def device_severity(self) -> Severity:
        """Of a mistake that costs nothing without a device."""
        return "warning" if self.has_device else "note"


def read_script(
    loader: Any, places: BatchPlaces, recording: Recording | None = None, *, trial_s: float = 0.0
) -> ScriptSubject:
    """A script that was watched; rules may measure for ``trial_s`` seconds."""
    deadline = time.monotonic() + trial_s
    has_device = torch.accelerator.is_available()
    return ScriptSubject(loader, places, has_device, Subject(loader, 0), recording, deadline)


def describe_line(rule: str, line: SourceLine, what: str, advice: str, cost: str = "") -> Finding:
    """A warning about one line."""
    return Finding(rule, "warning", str(line), what, advice, cost, line.file, line.line)


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
