"""What a change is believed to gain: by prediction and measurement."""

from __future__ import annotations

import pytest

from penstock.doctor.judge.diagnosis import Advice
from penstock.doctor.trials.turns import Measured


def estimate_gain(predicted: float, measured: Measured | None, doubt: float = 0.2) -> float:
    """The gain of a change that is predicted and measured so."""
    return Advice("rule", "change", "Reason.", predicted, measured, doubt=doubt).estimate()


def test_runs_that_agree_count_more_than_the_model() -> None:
    """On a quiet machine the estimate is what was measured."""
    assert estimate_gain(2.0, Measured(1.0, 0.98, 1.02, 5)) == pytest.approx(1.0, abs=0.02)


def test_runs_that_differ_count_less_than_the_model() -> None:
    """Where runs differ by a factor of two, the estimate is nearer to the prediction."""
    assert estimate_gain(1.7, Measured(1.0, 0.5, 1.3, 4)) > 1.35


def test_a_doubtful_prediction_counts_less() -> None:
    """A model that knows little leaves more to the same runs."""
    measured = Measured(1.0, 0.7, 1.4, 4)

    assert estimate_gain(2.0, measured, doubt=0.5) < estimate_gain(2.0, measured)


def test_without_runs_the_prediction_is_all() -> None:
    """What was not measured is as predicted."""
    assert estimate_gain(1.3, None) == 1.3
    assert 1.0 < estimate_gain(1.3, Measured(1.0, 1.0, 1.0, 1)) < 1.3
