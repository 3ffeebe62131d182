"""How much tests try: `make test` little, `make test-slow` all that they have, CI a fixed part of that."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Final

import pytest

__all__ = ["IS_PART", "IS_QUICK", "choose_tries", "mark_slow"]

IS_PART: Final = os.environ.get("HYPOTHESIS_PROFILE", "explore") == "many"
IS_QUICK: Final = os.environ.get("HYPOTHESIS_PROFILE", "house") == "house"


def choose_tries(count: int) -> int:
    """How often a test tries something random: ``count`` times where Hypothesis has many examples, else a fifth.

    The test is marked ``tries``, and then runs in `make test-slow`, too, as tests with Hypothesis do.
    """
    return -(-count // 5) if IS_QUICK else count


def mark_slow(parameters: Iterable[Any], quick: Iterable[Any]) -> list[Any]:
    """The parameters of a test, of which those that are not among ``quick`` are marked ``slow``.

    Where a test has several arguments, each element is a tuple of them. Values of ``quick`` that are no parameters are
    an error.
    """
    parameters, quick = list(parameters), list(quick)
    assert all(each in parameters for each in quick), f"{quick} must be among {parameters}"
    return [
        each if each in quick else pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=pytest.mark.slow)
        for each in parameters
    ]
