"""What the loader's tests share."""

from __future__ import annotations

import gc

import pytest

from tests.loader import simulated

clock = simulated.clock


@pytest.fixture(autouse=True)
def no_threads_of_other_tests() -> None:
    """A test that catches an error makes a cycle (error, traceback, frame, iterator): collect it before counting."""
    gc.collect()
