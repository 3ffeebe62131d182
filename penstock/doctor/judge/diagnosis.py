"""The result of watching a training script: what is slow, what to change, and what that brings.

:func:`penstock.doctor.watch` and ``penstock doctor`` make a :class:`Diagnosis`; the reports (text, JSON, HTML) read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from penstock.doctor.checks.findings import Finding
from penstock.doctor.watching.recording import Recording

__all__ = ["VERDICTS", "Advice", "Diagnosis", "Measured", "SlowSample", "StageCost", "Verdict", "VerdictStage"]

VerdictStage = Literal[
    "read", "decode", "augment", "collate", "transport", "copy", "step", "workers", "threads", "none"
]
VERDICTS: Final[tuple[VerdictStage, ...]] = (
    "read", "decode", "augment", "collate", "transport", "copy", "step", "workers", "threads", "none",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measured:
    """A value that was measured several times.

    Parameters
    ----------
    median, lowest, highest : float
        Of the repetitions.
    count : int
        How many there were.
    """

    median: float
    lowest: float
    highest: float
    count: int

    def scaled(self, factor: float) -> Measured:
        """The value times ``factor``."""
        return Measured(self.median * factor, self.lowest * factor, self.highest * factor, self.count)


@dataclass(frozen=True, slots=True)
class StageCost:
    """What one stage costs.

    Parameters
    ----------
    stage : str
        One of :data:`penstock.doctor.watching.recording.STAGES`.
    us_per_sample : float
        Mean time of one sample, in microseconds, in the process that does it.
    p50_us, p99_us : float
        Of single samples (of batches divided by their samples, for collate, transport, copy and step).
    share : float
        Of the work of one sample on its way to the trainer, 0..1; 0 for wait, room, copy and step.
    is_estimated : bool
        Whether it was found by sampling the stack instead of a timer.
    """

    stage: str
    us_per_sample: float
    p50_us: float
    p99_us: float
    share: float
    is_estimated: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which stage limits the training.

    Parameters
    ----------
    stage : str
        One of :data:`VERDICTS`: the stage that limits the loader; "step" if the trainer limits; "workers" if there are
        too few or too many of them; "threads" if more threads compute than there are cores; "none" if nothing can be
        gained.
    text : str
        One sentence for a person, and then how sure it is and why.
    waiting : float
        Part of the time that the script waits for batches, 0..1.
    delivered : float
        Samples per second that the script took.
    trainer : float
        Samples per second that it could take if it never waited.
    loader : float
        Samples per second that the loader gives alone; 0 if that was not measured.
    """

    stage: VerdictStage
    text: str
    waiting: float
    delivered: float
    trainer: float
    loader: float = 0.0


@dataclass(frozen=True, slots=True)
class Advice:
    """One change, and what it brings to the whole training.

    Parameters
    ----------
    rule : str
        Name of the candidate, such as "num_workers".
    change : str
        What to change, as a person would write it: ``num_workers=4``.
    reason : str
        Why; one sentence.
    predicted : float
        Samples per second of the whole with the change, divided by those now: 1.25 is a quarter more.
    measured : Measured, optional
        The same ratio, measured with the loader in child processes; None if it cannot be tried, or time ran out.
    code : str
        The line of code, where there is one.
    """

    rule: str
    change: str
    reason: str
    predicted: float
    measured: Measured | None = None
    code: str = ""


@dataclass(frozen=True, slots=True)
class SlowSample:
    """One of the slowest samples.

    Parameters
    ----------
    index : int
        In the dataset.
    key : str
        Its name in the store, or its file; empty where it has none.
    ms : float
        How long it took.
    worker, rank : int
        Who made it.
    """

    index: int
    key: str
    ms: float
    worker: int = -1
    rank: int = 0


@dataclass(slots=True)
class Diagnosis:
    """What watching has found. ``print`` shows it as text.

    Parameters
    ----------
    verdict : Verdict
        Which stage limits.
    stages : list of StageCost
        In the order a sample passes them.
    advice : list of Advice
        The most useful first; empty if nothing can be gained.
    samples : list of SlowSample
        The slowest first.
    findings : list of Finding
        Traps in the loader, the dataset and the script.
    notes : list of str
        What else matters: throttling, other programs, a crash of the script, what could not be measured.
    recording : Recording
        What it was computed from; of rank 0, where there are several.
    ranks : list of dict
        Of each rank: its waiting, its samples per second; who waited for whom.
    """

    verdict: Verdict
    stages: list[StageCost]
    advice: list[Advice]
    samples: list[SlowSample]
    findings: list[Finding]
    notes: list[str]
    recording: Recording
    ranks: list[dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        from penstock.doctor.reports.text_report import format_report  # which imports this module

        return format_report(self)
