"""What a diagnosis consists of: the verdict, the costs of stages, changes and what they bring, slow samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, get_args

from penstock.doctor.trials.changed_loader import Change
from penstock.doctor.trials.turns import Measured

__all__ = ["ONE_THREAD", "VERDICTS", "Advice", "SlowSample", "StageCost", "Verdict", "VerdictStage"]

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
        Its name in the registry, such as "num_workers".
    change : str
        What to change, as a person would write it: ``num_workers=4``.
    reason : str
        Why; one sentence. It says what is assumed where ``predicted`` is not from observed costs alone.
    predicted : float
        Samples per second of the whole with the change, divided by those now: 1.25 is a quarter more.
    measured : Measured, optional
        The same ratio, measured with the loader in child processes, or by the script itself; None if it cannot be
        tried, or time ran out.
    code : str
        The line of code, where there is one.
    trial : Change, optional
        How to try it; None if it cannot be tried without writing files or running the training.
    doubt : float
        How far ``predicted`` may be off, as the standard error of its logarithm: 0.2 is about 20 %.
    """

    rule: str
    change: str
    reason: str
    predicted: float
    measured: Measured | None = None
    code: str = ""
    trial: Change | None = None
    doubt: float = 0.2

    def estimate(self) -> float:
        """Return the gain that is believed: the mean of what is predicted and what was measured, by how sure each is.

        Beside other programs, runs of a few seconds differ by a factor of two; the model then knows more than their
        median. On a quiet machine they differ by a few percent, and the model counts for little.
        """
        measured = self.measured
        if measured is None or self.predicted <= 0 or measured.lowest <= 0:
            return self.predicted if measured is None else measured.median
        weights = 1 / self.doubt**2, 1 / measured.error**2
        mean = (weights[0] * math.log(self.predicted) + weights[1] * math.log(measured.median)) / sum(weights)
        return math.exp(mean)


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
