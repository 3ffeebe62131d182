"""Calls that ask for many samples at once: slow ones are waited for, those that hang are reported and then an error."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pytest
from torch.utils.data import BatchSampler, SequentialSampler

import penstock as ps
import penstock.torch
from penstock.errors import StallError, WorkerError
from penstock.sample import ArraySpec
from tests.faults.harness import Indices, drain

COUNT: Final = 8
"""Samples of a batch."""
SLOW_S: Final = 0.12
"""What each of them takes: all together more than twice ``LIMIT_S``."""
LIMIT_S: Final = 0.4
HANG_LIMIT_S: Final = 0.3
"""Where nothing slow must stay below it."""

_released = threading.Event()

Make = Callable[..., Any]


KINDS: Final = ("numpy-threads", "numpy-processes", "torch-threads", "torch-processes")


# One engine serves both loaders: each loader with each kind of workers is for `make test-slow`.
@pytest.fixture(params=[KINDS[0], *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1:3]), KINDS[3]])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes a loader with one worker that builds batches of ``COUNT`` samples; what waits in it is released."""
    kind, workers = request.param.split("-")
    loader = {"numpy": ps.DataLoader, "torch": penstock.torch.DataLoader}[kind]
    _released.clear()

    def made(dataset: Any, batch_size: int | None = COUNT, **options: Any) -> Any:
        return loader(dataset, batch_size, num_workers=1, workers=workers, **options)

    yield made
    _released.set()


def begun(loader: Any) -> Any:
    """An iterator whose worker has started, however long that took: it is no part of what is limited here."""
    walk = iter(loader)
    walk.backend.wait_for_start(60)
    return walk


def sleep_for(samples: int) -> None:
    """Take as long as ``samples`` slow samples."""
    time.sleep(SLOW_S * samples)


def hang(_samples: int) -> None:
    """Wait until the test ends."""
    _released.wait(60)


class Many(Indices):
    """Asked for many samples by ``__getitems__``."""

    def __init__(self, work: Callable[[int], None]) -> None:
        super().__init__(COUNT)
        self.work = work

    def __getitems__(self, indices: list[int]) -> list[int]:
        self.work(len(indices))
        return indices


class Loads(Many, ps.Dataset[Any]):
    """Asked for many samples by ``load_samples``."""

    __getitems__ = None  # type: ignore[assignment]  # the other way of asking

    def load_samples(self, indices: list[int], keys: Any) -> Any:
        """See :class:`penstock.Dataset`."""
        self.work(len(indices))
        return indices


class LoadsAtFirst(Loads):
    """``load_samples`` reads for all samples when the first one is asked for."""

    def load_samples(self, indices: list[int], keys: Any) -> Any:
        """See :class:`penstock.Dataset`."""
        self.work(len(indices))
        yield from indices


class Fills(Many):
    """Fills rows."""

    __getitems__ = None  # type: ignore[assignment]  # the other way of asking

    def spec(self) -> Any:
        """See :class:`penstock.Filler`."""
        return ArraySpec((), np.dtype(np.int64))

    def fill(self, indices: Any, out: Any, keys: Any, rows: Any = None) -> None:
        """See :class:`penstock.Filler`."""
        self.work(len(indices))
        out[rows] = indices


class AnyIndex(Many):
    """One index asks for many samples."""

    def __getitem__(self, index: Any) -> Any:
        self.work(np.size(index))
        return np.asarray(index)


def beside(work: Callable[[int], None]) -> Any:
    """Datasets side by side: the first is asked sample by sample."""
    return ps.StackDataset(Indices(COUNT), Many(work))


def behind(work: Callable[[int], None]) -> Any:
    """Datasets one behind the other: the second loads its samples at once when its first one is asked for."""
    return ps.ConcatDataset([Indices(1), ps.Subset(LoadsAtFirst(work), range(COUNT - 1))])


def inside(work: Callable[[int], None]) -> Any:
    """A dataset inside torch's and penstock's."""
    both: list[Any] = [Loads(work)]
    return penstock.torch.Subset(penstock.torch.ConcatDataset(both), range(COUNT))


CALLS: Final[dict[str, Callable[[Callable[[int], None]], Any]]] = {
    "__getitems__": Many,
    "load_samples": Loads,
    "a generator": LoadsAtFirst,
    "fill": Fills,
}
WRAPPED: Final = {"StackDataset": beside, "ConcatDataset": behind, "Subset": inside}

every_call = pytest.mark.parametrize(
    ("make", "call"),
    [(KINDS[0], call) for call in CALLS | WRAPPED]
    + [(KINDS[1], call) for call in CALLS]
    + [(kind, call) for kind in KINDS[2:] for call in ("__getitems__", "fill")],
    indirect=["make"],
)


@every_call
def test_05_a_slow_call_for_many_samples_is_not_stuck(make: Make, call: str) -> None:
    """Fault 5: a call is given the stall limit for each sample that it asks for."""
    loader = make((CALLS | WRAPPED)[call](sleep_for), stall_timeout=LIMIT_S)

    assert len(list(begun(loader))) == 1


def test_05_samples_that_come_one_by_one_are_each_given_the_limit(make: Make) -> None:
    """Fault 5: a chunk of many slow samples is no stall."""

    class Slow(Indices):
        def __getitem__(self, index: int) -> int:
            sleep_for(1)
            return index

    assert next(begun(make(Slow(COUNT), stall_timeout=LIMIT_S))).tolist() == list(range(COUNT))


def test_05_with_seed_per_sample_samples_are_reported_one_by_one(make: Make) -> None:
    """Fault 5: where generators are seeded for each sample, ``__getitems__`` is called for each."""
    loader = make(Many(sleep_for), stall_timeout=LIMIT_S, seed_per_sample=True)

    assert next(begun(loader)).tolist() == list(range(COUNT))


def test_05_a_slow_sample_of_many_indices_is_not_stuck(make: Make) -> None:
    """Fault 5: without automatic batching one index may be a list of many."""
    sampler = BatchSampler(SequentialSampler(range(COUNT)), COUNT, drop_last=False)
    loader = make(AnyIndex(sleep_for), None, sampler=sampler, stall_timeout=LIMIT_S)

    assert [batch.tolist() for batch in begun(loader)] == [list(range(COUNT))]


def test_05_a_slow_collation_is_not_stuck(make: Make) -> None:
    """Fault 5: collate_fn is given the limit for each sample that it joins."""

    def collate(samples: list[Any]) -> list[Any]:
        sleep_for(len(samples))
        return samples

    walk = begun(make(Indices(COUNT), collate_fn=collate, stall_timeout=LIMIT_S))

    assert list(walk) == [list(range(COUNT))]


def test_05_a_slow_collation_of_a_stream_is_not_stuck(make: Make) -> None:
    """Fault 5: also where nobody knew how many samples there would be."""

    class Stream(penstock.torch.IterableDataset[Any]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(COUNT))

    def collate(samples: list[Any]) -> list[Any]:
        sleep_for(len(samples))
        return samples

    walk = begun(make(Stream(), collate_fn=collate, stall_timeout=LIMIT_S))

    assert list(walk) == [list(range(COUNT))]


@every_call
def test_04_a_call_for_many_samples_that_hangs_is_a_stall(
    make: Make, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault 4: a warning after the limit, once; then the error; both name worker, dataset, samples and line."""
    dataset = (CALLS | WRAPPED)[call](hang)
    walk = begun(make(dataset, 3, stall_timeout=HANG_LIMIT_S))

    with caplog.at_level(logging.WARNING, "penstock"), pytest.raises(StallError) as caught:
        next(walk)

    warnings = [record for record in caplog.records if record.name.startswith("penstock.loader")]
    said = [warnings[0].getMessage(), str(caught.value)]
    many = 3 - (call == "ConcatDataset")
    assert len(warnings) == 1
    assert all("worker 0" in text and "in hang" in text and type(dataset).__name__ in text for text in said)
    assert all(f"samples {3 - many}..2 of batch 0 (indices" in text for text in said)
    assert all(f"stall_timeout={HANG_LIMIT_S} seconds for each of the {many} samples" in text for text in said)
    assert f"within {HANG_LIMIT_S * many:g} seconds" in said[1]
    assert caught.value.where["batch"] == 0
    _released.set()
    walk.close()


@pytest.mark.parametrize("work", ["collate", "sample"])
def test_04_a_hang_behind_a_long_call_is_seen_at_once(make: Make, work: str, caplog: pytest.LogCaptureFixture) -> None:
    """Fault 4: what was allowed to a call is not allowed to the next one: one sample has the limit of one."""

    class Hangs(Indices):
        def __getitem__(self, index: int) -> int:
            if work == "sample" and index == 5:
                hang(1)
            return index

    class Both(ps.StackDataset):
        def __init__(self) -> None:
            super().__init__(Many(lambda _: None), Hangs(COUNT))

    def collate(samples: list[Any]) -> Any:
        if work == "collate":
            hang(len(samples))
        return samples

    walk = begun(make(Both(), 6, collate_fn=collate, stall_timeout=HANG_LIMIT_S))
    with pytest.raises(StallError) as caught:
        next(walk)

    expected = {"sample": f"within stall_timeout={HANG_LIMIT_S} seconds; ", "collate": "for each of the 6 samples"}[
        work
    ]
    assert expected in str(caught.value)
    assert {"sample": "sample 5 of batch 0 (index 5)", "collate": "in collate"}[work] in str(caught.value)
    assert bool(caplog.records) == (work == "collate")
    _released.set()
    walk.close()


def test_04_each_batch_is_warned_of_once(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Fault 4: a slow dataset does not flood the log, and a batch that comes after all is delivered."""

    class Slower(Many):
        def __init__(self) -> None:
            super().__init__(sleep_for)
            self.n = 2 * COUNT

    walk = begun(make(Slower(), stall_timeout=LIMIT_S))
    with caplog.at_level(logging.WARNING, "penstock"):
        batches = [batch.tolist() for batch in walk]

    told = [record.getMessage() for record in caplog.records if record.name.startswith("penstock.loader")]
    assert batches == [list(range(COUNT)), list(range(COUNT, 2 * COUNT))]
    assert [f"batch={number}" in text for number, text in enumerate(told)] == [True, True]


def test_a1_a_worker_that_dies_in_a_call_for_many_names_all_of_them() -> None:
    """Fault A1: which of the samples is to blame cannot be seen: none is named alone."""

    class Deadly(Indices):
        def __getitems__(self, indices: list[int]) -> list[int]:
            if 5 in indices:
                os._exit(3)
            return indices

    loader = ps.DataLoader(Deadly(8), 4, num_workers=1, workers="processes")
    batches, errors = drain(iter(loader))

    assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3]]
    assert [(type(error), error.where.get("index")) for error in errors] == [(WorkerError, None)]
    assert errors[0].where["indices"] == [4, 5, 6, 7]
