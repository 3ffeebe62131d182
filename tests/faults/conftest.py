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
from tests.faults.harness import SLACK, children_before, children_of, wait_until, workers_of

if not Path("/proc/self/task").is_dir():
    pytest.skip("processes are watched through /proc", allow_module_level=True)

Load = Callable[..., Any]


# One engine serves both loaders: the one without torch is for `make test-slow`.
@pytest.fixture(params=[pytest.param("numpy", marks=pytest.mark.slow), "torch"])
def load(request: pytest.FixtureRequest) -> Load:
    """Makes a loader over two worker processes."""

    def make(dataset: Any, batch_size: int | None = 4, num_workers: int = 2, **options: Any) -> Any:
        if request.param == "numpy":
            return ps.DataLoader(dataset, batch_size, num_workers=num_workers, workers="processes", **options)
        return penstock.torch.DataLoader(dataset, batch_size, num_workers=num_workers, workers="processes", **options)

    return make


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """No worker outlives a test."""
    children_before.clear()
    children_before.update(children_of(os.getpid()))
    yield

    gc.collect()
    assert wait_until(lambda: not workers_of(), 1 * SLACK), f"workers are left: {workers_of()}"
