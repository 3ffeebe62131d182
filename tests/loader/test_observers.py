"""Observers: told what a loader delivers and how it is built, by threads and in the program itself."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest

import penstock as ps
from penstock.trace import Observer
from tests.loader.fakes import Samples


class Recorder(Observer):
    """Keeps what it is told."""

    observes_work = True

    def __init__(self) -> None:
        self.delivered_samples: list[int] = []
        self.parts: list[tuple[int, int]] = []
        self.built: list[int] = []
        self.stages: set[str] = set()

    def delivered(self, samples: int) -> None:
        """A batch."""
        self.delivered_samples.append(samples)

    def begin_part(self, batch: int, indices: Sequence[object]) -> None:
        """Some rows of it."""
        self.parts.append((batch, len(indices)))

    def end_batch(self, samples: int, begun_ns: int) -> None:
        """All of it."""
        assert begun_ns > 0
        self.built.append(samples)

    def add(self, stage: str, time_ns: int, items: int) -> None:
        """A stage."""
        assert time_ns >= 0
        self.stages.add(stage)


@pytest.mark.parametrize("workers", [{}, {"num_workers": 2, "workers": "threads"}])
def test_an_observer_is_told_of_each_batch_and_its_parts(workers: dict[str, Any]) -> None:
    """Every row is a part of one batch, whoever builds it; nothing more after it is removed."""
    loader: Any = ps.DataLoader(Samples(), batch_size=8, **workers)
    batches, recorder = len(loader), Recorder()
    loader.add_observer(recorder)

    list(loader)
    loader.remove_observer(recorder)
    list(loader)

    count = len(loader.dataset)
    assert (len(recorder.delivered_samples), sum(recorder.delivered_samples)) == (batches, count)
    assert {batch for batch, _ in recorder.parts} == set(range(batches))
    assert sum(rows for _, rows in recorder.parts) == count
    assert sorted(recorder.built) == sorted(recorder.delivered_samples)
    assert "collate" in recorder.stages


def test_asking_and_pickling_tell_an_observer_nothing() -> None:
    """A copy of a loader has no observers."""
    loader: Any = ps.DataLoader(Samples(), batch_size=8)
    recorder = Recorder()
    loader.add_observer(recorder)

    len(loader), repr(loader), loader.state_dict(), loader.stats()
    list(pickle.loads(pickle.dumps(loader)))

    assert (recorder.delivered_samples, recorder.parts) == ([], [])


def test_what_an_observer_raises_is_raised_by_the_loader() -> None:
    """It is not swallowed."""

    class Fails(Observer):
        def delivered(self, samples: int) -> None:
            raise RuntimeError("no room for the count")

    loader: Any = ps.DataLoader(Samples(), batch_size=8)
    loader.add_observer(Fails())

    with pytest.raises(RuntimeError, match="no room for the count"):
        list(loader)
