"""What a candidate of advice says."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.doctor.judge.diagnosis import Measured
from penstock.doctor.judge.gains import estimate_gain
from penstock.doctor.trials.changed_loader import Change

__all__ = ["Candidate"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One change that may help.

    Parameters
    ----------
    rule : str
        The name of its file, as in the registry.
    change : str
        What to change, as a person would write it.
    reason : str
        Why; one sentence. It says what is assumed where ``predicted`` is not from observed costs alone.
    predicted : float
        Speed of the whole with the change, divided by that now.
    trial : Change, optional
        How to try it; None if it cannot be tried without writing files or running the training.
    code : str
        The line of code.
    measured : Measured, optional
        What the script itself has gained with it.
    doubt : float
        How far ``predicted`` may be off, as the standard error of its logarithm.
    """

    rule: str
    change: str
    reason: str
    predicted: float
    trial: Change | None = None
    code: str = ""
    doubt: float = 0.2
    measured: Measured | None = None

    def estimate(self, measured: Measured | None) -> float:
        """The gain by prediction and measurement; see :func:`~penstock.doctor.judge.gains.estimate_gain`."""
        return estimate_gain(self.predicted, measured, doubt=self.doubt)
