"""Both loaders, over worker processes; and what no test may leave behind."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
import penstock.torch
from tests.faults.harness import children_before, children_of, wait_until, workers_of
from tests.loader import simulated

if not Path("/proc/self/task").is_dir():
    pytest.skip("processes are watched through /proc", allow_module_level=True)

Load = Callable[..., Any]

clock = simulated.clock


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A thread watches, for what hangs here may answer no signal; programs and waits for workers take their time."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(180, method="thread"))


# One engine serves both loaders: the one without torch is for `make test-slow`.
@pytest.fixture(params=[pytest.param("numpy", marks=pytest.mark.slow), "torch"])
def load(request: pytest.FixtureRequest) -> Load:
    """Makes a loader over two worker processes."""

    def make(dataset: Any, batch_size: int | None = 4, num_workers: int = 2, **options: Any) -> Any:
        if request.param == "numpy":
            return ps.DataLoader(dataset, batch_size, num_workers=num_workers, workers="processes", **options)
        return penstock.torch.DataLoader(dataset, batch_size, num_workers=num_workers, workers="processes", **options)

    return make


@pytest.fixture(params=["numpy", "torch"])
def simulate(request: pytest.FixtureRequest, clock: simulated.SimulatedClock) -> Load:
    """Makes a loader over workers whose time is that of ``clock``."""
    loader = {"numpy": ps.DataLoader, "torch": penstock.torch.DataLoader}[request.param]

    def make(dataset: Any, batch_size: int | None = 4, num_workers: int = 2, **options: Any) -> Any:
        return loader(dataset, batch_size, num_workers=num_workers, workers="simulated", **options)

    return make


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """No worker outlives a test."""
    children_before.clear()
    children_before.update(children_of(os.getpid()))
    yield

    gc.collect()
    wait_until(lambda: not workers_of(), "all workers have ended")
