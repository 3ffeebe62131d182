"""The same batches, to the byte, however they are built."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from tests.loader.fakes import Rows, Samples, StatefulStream, Stream, epoch, frozen, threads

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "samples": (Samples, {"shuffle": True}),
    "rows": (Rows, {"shuffle": True}),
    "stream": (Stream, {}),
    "stateful-stream": (StatefulStream, {}),
    "one-by-one": (Samples, {"shuffle": True, "batch_size": None}),
}


def make(kind: str, **kwargs: Any) -> ps.DataLoader:
    """A loader of 50 samples in batches of 8, on threads if there are workers."""
    dataset, given = KINDS[kind]
    kwargs |= threads(kwargs.pop("num_workers", 0))
    return ps.DataLoader(dataset(), **{"batch_size": 8, "seed": 7, **given, **kwargs})


@pytest.mark.parametrize(
    ("kind", "drop_last"),
    [(kind, drop_last) for kind in KINDS for drop_last in (False, True) if not (kind == "one-by-one" and drop_last)],
)
def test_workers_and_chunks_change_nothing(kind: str, drop_last: bool) -> None:
    """Two epochs are equal for 0, 1, 2 and 7 threads and any chunk size."""
    reference = make(kind, drop_last=drop_last)
    expected = [epoch(reference), epoch(reference)]

    for num_workers in (0, 1, 2, 7):
        for chunk_size in (None, 1, 3, 100):
            loader = make(kind, drop_last=drop_last, num_workers=num_workers, chunk_size=chunk_size)

            assert [epoch(loader), epoch(loader)] == expected, (num_workers, chunk_size)
    assert len(expected[0]) == (50 if kind == "one-by-one" else 6 if drop_last else 7)
    assert len(reference) == len(expected[0]) if kind not in {"stream", "stateful-stream"} else True


class Held(Rows):
    """Rows whose filling waits for :attr:`go`; keeps the first index and the number of rows of each call."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.go, self.calls = threading.Event(), list[tuple[int, int]]()

    def fill(self, indices: Any, out: Any, keys: Any, rows: Any = None) -> None:
        """As the interface has it."""
        self.calls.append((int(indices[0]), len(indices)))
        assert self.go.wait(60)
        super().fill(indices, out, keys, rows)


@pytest.mark.parametrize("persistent", [False, True])
def test_threads_take_more_rows_where_more_wait(persistent: bool) -> None:
    """The first and the last batch of each epoch are divided among the threads; those between are taken whole."""
    dataset = Held(512)
    loader = ps.DataLoader(dataset, 64, **threads(4), prefetch_factor=2, persistent_workers=persistent)

    for _ in range(2):
        dataset.calls.clear()
        dataset.go.clear()
        batches = iter(loader)
        dataset.go.set()
        assert len(list(batches)) == 8

        sizes = [size for _, size in sorted(dataset.calls)]
        assert sizes == [16] * 4 + [64] * 4 + [48, 16] + [32] * 2 + [16] * 4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_resume_at_every_batch_twice(kind: str, persistent: bool) -> None:
    """A state taken after any batch gives the same tail in a fresh loader with other workers; its own state too."""
    whole = make(kind)
    first, second = epoch(whole), epoch(whole)
    loader = make(kind, num_workers=2, persistent_workers=persistent)
    states = [json.loads(json.dumps(loader.state_dict()))]
    states.extend(json.loads(json.dumps(loader.state_dict())) for _ in loader)

    for done, state in enumerate(states):
        resumed = make(kind, seed=None, num_workers=(0, 1, 2, 7)[done % 4])
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        tail, again = iter(resumed), make(kind)
        if done < len(first):
            assert frozen(next(tail)) == first[done]
        again.load_state_dict(json.loads(json.dumps(resumed.state_dict())))

        assert [frozen(batch) for batch in tail] == first[done + 1 :]
        assert epoch(again) == first[done + 1 :]
        assert epoch(again) == second
        assert epoch(resumed) == second


@settings(max_examples=settings().max_examples // 2)
@given(
    n=st.integers(1, 60), batch_size=st.integers(1, 20), drop_last=st.booleans(), num_workers=st.integers(0, 3),
    chunk_size=st.integers(1, 9), stops=st.lists(st.integers(0, 20), max_size=4), fills=st.booleans(),
)  # fmt: skip
def test_any_run_that_is_interrupted_is_the_run_that_was_not(
    n: int, batch_size: int, drop_last: bool, num_workers: int, chunk_size: int, stops: list[int], fills: bool
) -> None:
    """Whatever the sizes, and wherever a run is stopped and resumed, its batches are those of an unbroken one."""

    def fresh(workers: int) -> ps.DataLoader:
        return ps.DataLoader(
            Rows(n) if fills else Samples(n), batch_size, shuffle=True, drop_last=drop_last, seed=1,
            **threads(workers), chunk_size=chunk_size,
        )  # fmt: skip

    straight = fresh(0)
    expected = [batch for _ in range(3) for batch in epoch(straight)]
    loader, got, state = fresh(num_workers), [], None
    for stop in stops:
        if state is not None:
            loader = fresh(num_workers)
            loader.load_state_dict(state)
        for _, batch in zip(range(stop), loader, strict=False):
            got.append(frozen(batch))
        state = loader.state_dict()
        if state["epoch"] >= 3:
            break
    final = fresh(num_workers)
    if state is not None:
        final.load_state_dict(state)
    while final.state_dict()["epoch"] < 3:
        got += epoch(final)

    assert got[: len(expected)] == expected


def test_shuffling_is_by_seed_and_epoch() -> None:
    """Another seed and another epoch are other orders; set_epoch chooses; every sample comes once."""

    def order(loader: ps.DataLoader) -> list[int]:
        return [index for batch in loader for index in batch["y"][0].tolist()]

    loader = make("samples")
    first, second = order(loader), order(loader)
    loader.set_epoch(0)

    assert sorted(first) == list(range(50))
    assert first != second
    assert order(loader) == first
    assert order(make("samples", seed=8)) != first


def test_without_a_seed_runs_differ_and_resume() -> None:
    """seed=None: one is drawn, and the state carries it."""
    a, b = make("samples", seed=None), make("samples", seed=None)
    resumed = make("samples", seed=None, num_workers=2)
    resumed.load_state_dict(a.state_dict())

    first = epoch(a)

    assert first != epoch(b)
    assert epoch(resumed) == first


def test_filling_leaves_no_trace_of_reuse() -> None:
    """Batches that are kept stay as they were while others are built in memory used again."""
    loader = make("rows", num_workers=2)
    expected = epoch(make("rows"))

    kept = list(loader)
    epoch(loader)

    assert [frozen(batch) for batch in kept] == expected


def test_slots_are_used_again() -> None:
    """Fifty epochs allocate no more slots than one: memory is flat."""
    loader = make("rows", num_workers=2)
    epoch(loader)
    pool = loader._memory.pool
    assert pool is not None
    before = pool.allocated

    for _ in range(50):
        for _ in loader:
            pass

    assert pool.allocated <= before + 2  # the timing of the first epoch may not have needed the last of them
    assert pool.allocated <= 2 * 2 + 3  # in flight, and what the user's loop holds


@pytest.mark.parametrize("collate", [None, ps.default_collate])
def test_the_default_collation_may_be_named(collate: Any) -> None:
    """Giving default_collate is giving none: rows are still filled."""
    assert epoch(make("rows", collate_fn=collate)) == epoch(make("rows"))


def test_a_collate_fn_gets_the_samples() -> None:
    """A collate_fn of the user's is called with the list of samples, in order."""
    loader = ps.DataLoader(ps.ArrayDataset(np.arange(5)), 2, collate_fn=lambda samples: [int(x) for (x,) in samples])

    assert list(loader) == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_batch_sampler_may_give_batches_of_any_length(num_workers: int) -> None:
    """Longer batches than the first, in rows that are filled too."""
    batches = [[1], [4, 4, 2, 9, 0, 1, 2], [7, 8]]

    rows = [
        batch["x"][:, 0, 0].tolist() for batch in ps.DataLoader(Rows(), batch_sampler=batches, **threads(num_workers))
    ]
    samples = [
        batch["y"][0].tolist() for batch in ps.DataLoader(Samples(), batch_sampler=batches, **threads(num_workers))
    ]

    assert rows == samples == batches


def test_indices_need_not_be_integers() -> None:
    """A sampler of strings serves a dataset of strings; each has randomness of its own."""

    class ByName(ps.Dataset[Any]):
        def __getitem__(self, index: str) -> Any:
            return index, ps.rng().random()

    names = ["a", "b", "c", "a"]
    serial, threaded = (
        epoch(ps.DataLoader(ByName(), 2, sampler=names, **threads(workers), seed=0)) for workers in (0, 2)
    )
    one, two = ps.DataLoader(ByName(), 4, sampler=names, seed=0), ps.DataLoader(ByName(), 1, sampler=["b"], seed=0)
    noise = next(iter(one))[1]

    assert serial == threaded
    assert noise[0] == noise[3] != noise[1]
    assert next(iter(two))[1][0] == noise[1]


def test_two_iterators_are_independent() -> None:
    """Nested loops over one loader see each its own epoch, whole."""
    loader = make("rows", num_workers=2, persistent_workers=True)
    straight = make("rows")
    expected = [epoch(straight) for _ in range(4)]

    outer, inner = [], []
    for batch, _ in zip(loader, range(3), strict=False):
        outer.append(frozen(batch))
        inner.append(epoch(loader))

    assert outer == expected[0][:3]
    assert inner == expected[1:4]


def test_out_of_order_delivers_everything_once() -> None:
    """in_order=False: the same batches, whichever first; and a state taken in between resumes to exactly the rest."""
    expected = epoch(make("samples"))
    loader = make("samples", num_workers=3, in_order=False)
    walk = iter(loader)
    got = [frozen(next(walk)) for _ in range(3)]
    resumed = make("samples", num_workers=3, in_order=False)
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    rest = [frozen(batch) for batch in walk]

    assert sorted(map(repr, got + rest)) == sorted(map(repr, expected))
    assert sorted(map(repr, got + epoch(resumed))) == sorted(map(repr, expected))


def test_a_batch_held_up_is_overtaken_out_of_order() -> None:
    """in_order=False delivers what is ready; the state knows the gap and what lies beyond it."""
    from tests.loader.fakes import Blocking

    dataset = Blocking(8, at=0)
    loader = ps.DataLoader(dataset, 2, **threads(2), in_order=False, chunk_size=2)
    walk = iter(loader)
    early = [next(walk).tolist(), next(walk).tolist()]
    state = loader.state_dict()
    dataset.release.set()
    late = [batch.tolist() for batch in walk]

    assert [0, 1] not in early
    assert sorted(early + late) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert state["batches"] == 0
    assert len(state["ahead"]) == 2


def test_state_is_small_whatever_the_size() -> None:
    """10**9 samples: construction, state and resume in the middle of an epoch are O(1)."""
    import tracemalloc

    class Huge(Rows):
        def __len__(self) -> int:
            return 10**9

    tracemalloc.start()
    loader = ps.DataLoader(Huge(), 10, shuffle=True, seed=1)
    state = loader.state_dict()
    state.update(batches=5 * 10**7, samples=5 * 10**8)
    loader.load_state_dict(state)
    batch = next(iter(loader))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 3_000_000
    assert len(json.dumps(loader.state_dict())) < 600
    assert (
        batch["x"][:, 0, 0].tolist() == loader.sampler.order(5 * 10**8, 5 * 10**8 + 10, 0).astype(np.float32).tolist()
    )
