"""What a diagnosis consists of: the verdict, the costs of stages, changes and what they bring, slow samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from penstock.doctor.trials.changed_loader import Change
from penstock.doctor.trials.turns import Measured

__all__ = ["ONE_THREAD", "VERDICTS", "Absence", "Advice", "SlowSample", "StageCost", "Verdict", "VerdictStage"]

VerdictStage = Literal[
    "read", "decode", "augment", "collate", "transport", "copy", "step", "workers", "threads", "none"
]
VERDICTS: Final[tuple[VerdictStage, ...]] = get_args(VerdictStage)
ONE_THREAD: Final = "one thread of torch's in the main process"
"""A change, alone or behind another one and ``, with``."""


@dataclass(frozen=True, slots=True)
class StageCost:
    """What one stage costs.

    Parameters
    ----------
    stage : str
        One of :data:`penstock.doctor.watching.recording.STAGES`.
    us_per_sample : float
        Mean time of one sample, in microseconds, in the process that does it.
    share : float
        Of the work of one sample on its way to the trainer, 0..1; 0 for wait, copy and step.
    is_estimated : bool
        Whether it was found by sampling the stack instead of a timer.
    """

    stage: str
    us_per_sample: float
    share: float
    is_estimated: bool = False


@dataclass(frozen=True, slots=True)
class Absence:
    """What the whole training gains if a stage costs nothing.

    Parameters
    ----------
    stage : str
        One of :data:`penstock.doctor.watching.recording.WORK_STAGES`.
    gain : float
        Samples per second without the stage, divided by those now; at most what a loader that costs nothing gains.
    part : float
        Of the loader's time, 0..1, that the stage takes.
    measured : Measured, optional
        The speed of the loader without the stage, divided by that of the loader as it is; None if the part of the time
        is as it was observed.
    """

    stage: str
    gain: float
    part: float
    measured: Measured | None = None


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
    absences : tuple of Absence
        What the absence of each stage of the loader brings; empty if the loader is not the limit.
    """

    stage: VerdictStage
    text: str
    waiting: float
    delivered: float
    trainer: float
    loader: float = 0.0
    absences: tuple[Absence, ...] = ()


@dataclass(frozen=True, slots=True)
class Advice:
    """One change that was tried, and what it brings to the whole training; or a fact, which brings no number.

    Parameters
    ----------
    rule : str
        Its name in the registry, such as "num_workers".
    change : str
        What to change, as a person would write it: ``num_workers=4``.
    reason : str
        Why, in a sentence or two; of a fact, what was seen.
    measured : Measured, optional
        Samples per second of the whole with the change, divided by those now, measured with the loader in child
        processes, or by the script itself; None of a fact.
    code : str
        The line of code, where there is one.
    trial : Change, optional
        How it is tried; None of a fact.
    """

    rule: str
    change: str
    reason: str
    measured: Measured | None = None
    code: str = ""
    trial: Change | None = None


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
