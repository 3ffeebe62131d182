"""What a change is believed to gain: the mean of what the model predicts and what was measured, by how sure each is.

Beside other programs, runs of a few seconds differ by a factor of two; the model then knows more than their median.
On a quiet machine they differ by a few percent, and the model counts for little.
"""

from __future__ import annotations

import math
from typing import Final

from penstock.doctor.judge.diagnosis import Measured

__all__ = ["estimate_gain"]

_MODEL_DOUBT: Final = 0.2
"""Standard error of predicted ratios, in logarithms."""
_LEAST_DOUBT: Final = 0.02
_ONE_RUN: Final = 0.25
_RANGES: Final = (1.0, 1.0, 1.13, 1.69, 2.06, 2.33, 2.53, 2.70, 2.85, 2.97, 3.08)
"""Range of n normal values, in standard deviations."""
_MEDIAN: Final = 1.25
"""Standard error of a median, divided by that of a mean."""


def estimate_gain(predicted: float, measured: Measured | None, *, doubt: float = _MODEL_DOUBT) -> float:
    """The ratio of speeds that a change is believed to bring.

    Parameters
    ----------
    predicted : float
        By the model.
    measured : Measured, optional
        In trials; without it the prediction is all that is known.
    doubt : float
        Standard error of the prediction, in logarithms: 0.2 is about 20 %.

    Examples
    --------
    >>> round(estimate_gain(1.7, Measured(1.0, 0.99, 1.01, 5)), 2)
    1.01
    >>> round(estimate_gain(1.7, Measured(1.0, 0.5, 1.5, 4)), 2)
    1.47
    """
    if measured is None or predicted <= 0 or measured.lowest <= 0:
        return predicted if measured is None else measured.median
    error = _ONE_RUN
    if measured.count > 1:
        deviation = math.log(measured.highest / measured.lowest) / _RANGES[min(measured.count, len(_RANGES) - 1)]
        error = max(_MEDIAN * deviation / math.sqrt(measured.count), _LEAST_DOUBT)
    weights = 1 / doubt**2, 1 / error**2
    mean = (weights[0] * math.log(predicted) + weights[1] * math.log(measured.median)) / sum(weights)
    return math.exp(mean)
