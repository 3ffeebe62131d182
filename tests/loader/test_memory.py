"""A batch that memory does not hold: one sentence with its size, wherever it was to be built."""

from __future__ import annotations

import gc
import pickle
import threading
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import BatchMemoryError
from penstock.sample import ArraySpec, SampleKeys
from penstock.workers.processes.memory import WorkerMemory
from penstock.workers.slots import SlotPool
from tests.loader.fakes import Rows

WORKERS: dict[str, dict[str, Any]] = {
    "serial": {},
    "threads": {"num_workers": 2, "workers": "threads"},
    "processes": {"num_workers": 1, "workers": "processes"},
}


class Huge(ps.Dataset[Any]):
    """Samples of a terabyte and a label."""

    def __len__(self) -> int:
        return 100

    def spec(self) -> Any:
        """As the interface has it."""
        return ArraySpec((1 << 20, 1 << 18), np.dtype(np.float32)), ArraySpec((), np.dtype(np.int64))

    def fill(self, indices: Any, out: Any, keys: SampleKeys, rows: Any = None) -> None:
        """As the interface has it."""
        raise AssertionError("there is nothing to fill")


def loaders(module: str) -> Any:
    """penstock, or penstock.torch."""
    return ps if module == "penstock" else pytest.importorskip("penstock.torch")


def first(loader: Any) -> Any:
    """Its first batch."""
    return next(iter(loader))


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("module", ["penstock", "torch"])
def test_a_batch_too_large_says_how_large(workers: str, module: str) -> None:
    """Bytes of the batch, shapes of a sample, and the number of samples; a MemoryError, in any kind of worker."""
    with pytest.raises(BatchMemoryError, match=r"batch_size") as caught:
        first(loaders(module).DataLoader(Huge(), 20, **WORKERS[workers]))

    assert isinstance(caught.value, MemoryError)
    for said in ("20 samples", "22.0 TB", "(1048576, 262144) float32", "() int64"):
        assert said in str(caught.value)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize(("error", "said"), [(OSError, "Cannot allocate memory"), (MemoryError, "Unable to allocate")])
def test_what_the_system_refuses_says_the_same(
    workers: str, error: type[Exception], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's own words stand in the message."""

    def refuse(*_: Any) -> Any:
        raise error(12, said)

    monkeypatch.setattr(SlotPool, "_allocate", refuse)
    monkeypatch.setattr(WorkerMemory, "take", refuse)

    with pytest.raises(BatchMemoryError, match=said) as caught:
        first(ps.DataLoader(Rows(10), 4, **WORKERS[workers]))

    assert "4 samples" in str(caught.value)
    assert "(2, 3) float32" in str(caught.value)


def test_threads_end_with_the_loader_that_failed() -> None:
    """The errors of batches that nobody took keep no worker alive."""
    before = set(threading.enumerate())
    with pytest.raises(BatchMemoryError):
        first(ps.DataLoader(Huge(), 20, **WORKERS["threads"]))

    gc.collect()
    left = set(threading.enumerate()) - before
    for thread in left:
        thread.join(60)

    assert not any(thread.is_alive() for thread in left)


def test_the_error_travels() -> None:
    """From a worker process to the loop."""
    error: Any = pickle.loads(pickle.dumps(BatchMemoryError("a batch of 3 samples", worker=1)))

    assert error.where == {"worker": 1}
    assert isinstance(error, MemoryError)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("module", ["penstock", "torch"])
def test_a_batch_size_beyond_the_dataset_takes_what_there_is(workers: str, module: str) -> None:
    """batch_size=10**9 is the whole dataset in one batch, and no more memory than that."""
    batches = list(loaders(module).DataLoader(Rows(10), 10**9, **WORKERS[workers]))

    assert [len(batch["x"]) for batch in batches] == [10]


def test_more_samples_than_the_dataset_has_are_a_batch_too() -> None:
    """A sampler that draws with replacement may fill a batch beyond the dataset's length."""
    sampler = ps.RandomSampler(range(10), replacement=True, num_samples=50, seed=0)

    batches = list(ps.DataLoader(Rows(10), 40, sampler=sampler))

    assert [len(batch["x"]) for batch in batches] == [40, 10]
