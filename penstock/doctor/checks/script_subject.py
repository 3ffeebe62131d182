"""What the rules for training scripts examine: how batches are taken, and what was seen in steps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from penstock.doctor.checks.findings import Finding, Severity
from penstock.doctor.checks.subject import Subject
from penstock.doctor.watching.recording import Recording
from penstock.doctor.watching.steps.batch_places import BatchPlaces
from penstock.doctor.watching.steps.events import EventKind, ScriptEvent
from penstock.doctor.watching.steps.source import read_source

__all__ = ["NO_DEVICE", "ScriptSubject", "describe_events", "quote_events"]

NO_DEVICE: Final = "nothing on this machine, which has no device; found by looking only"
_SHOWN: Final = 3
_OF_DEVICE: Final = frozenset({"copy", "cast", "wait"})


@dataclass(frozen=True, slots=True)
class ScriptSubject:
    """A script, in the form that rules read."""

    samples: Subject  # the loader that was watched, and how its samples are made
    places: BatchPlaces  # where its batches were taken, and what was seen in steps
    recording: Recording  # what was measured
    deadline: float = 0.0  # until when costs may be measured in child processes, by ``time.monotonic``; 0: not at all

    @property
    def has_device(self) -> bool:
        """Whether torch finds an accelerator on this machine."""
        return torch.accelerator.is_available()

    @property
    def left_s(self) -> float:
        """Seconds that are left to measure."""
        return max(self.deadline - time.monotonic(), 0.0)

    @property
    def num_workers(self) -> int:
        """The number of the loader's workers."""
        return self.samples.settings.num_workers or 0

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
        """Return events of a kind, those of one function together.

        ``kind``: of the events. ``each_step``: only those that happen in each step.
        """
        if self.places.steps is None or (kind in _OF_DEVICE and not self.may_use_device):
            return
        groups: dict[tuple[str, str], list[ScriptEvent]] = {}
        for event in self.places.steps.events(kind, each_step=each_step):
            groups.setdefault((event.line.file, event.line.function), []).append(event)
        for group in groups.values():
            yield sorted(group, key=lambda event: event.line.line)

    def device_severity(self) -> Severity:
        """Return the severity of a mistake that costs nothing without a device."""
        return "warning" if self.has_device else "note"


def describe_events(
    rule: str, severity: Severity, events: Sequence[ScriptEvent], what: str, advice: str, cost: str = ""
) -> Finding:
    """Return a finding about events of one function; its line is that of the first."""
    first, lines = events[0].line, (event.line.line for event in events)
    return Finding.at_lines(rule, severity, first.function, first.file, lines, what, advice, cost)


def quote_events(events: Sequence[ScriptEvent]) -> str:
    """Return the source of the first events."""
    texts = list(dict.fromkeys(event.text for event in events))
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more
