"""Streams on worker processes: replicas in turn, resumable in mid-epoch, and what becomes of one that fails."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import StateError, WorkerError

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
SLOW = pytest.mark.slow


def part(n: int) -> range:
    """The part of a stream of ``n`` that is this worker's."""
    info = ps.get_worker_info()
    return range(n) if info is None else range(info.id, n, info.num_workers)


class Plain(ps.IterableDataset[Any]):
    """A stream in parts that draws, and knows nothing of states."""

    def __init__(self, n: int = 31) -> None:
        self.n = n

    def __iter__(self) -> Iterator[Any]:
        for i in part(self.n):
            yield i, ps.rng().random()


class Remembering(Plain):
    """The same, with an iterator that knows where it is."""

    def __iter__(self) -> Any:
        return _Walk(part(self.n))


class _Walk:
    def __init__(self, numbers: range) -> None:
        self.numbers, self.at = numbers, 0

    def __iter__(self) -> _Walk:
        return self

    def __next__(self) -> Any:
        if self.at >= len(self.numbers):
            raise StopIteration
        self.at += 1
        return self.numbers[self.at - 1], ps.rng().random()

    def state_dict(self) -> dict[str, int]:
        """As the interface has it."""
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """As the interface has it."""
        self.at = state["at"]


class Uneven(ps.IterableDataset[Any]):
    """Worker 0 has three samples, the next has six, and so on; the first is slow."""

    def __iter__(self) -> Iterator[Any]:
        info = ps.get_worker_info()
        number = 0 if info is None else info.id
        for i in range(3 * (number + 1)):
            time.sleep(0.01 * (number == 0))
            yield 100 * number + i, 0.0


def load(dataset: Any, num_workers: int = 2, batch_size: int | None = 3, **kwargs: Any) -> ps.DataLoader:
    """A loader over that many processes; for 0, none."""
    given = {"num_workers": num_workers, "workers": "processes"} if num_workers else {}
    return ps.DataLoader(dataset, batch_size, **{"seed": 9, **given, **kwargs})


def frozen(batches: Any) -> list[tuple[list[int], bytes]]:
    """Numbers, and draws by their bytes."""
    return [(np.atleast_1d(batch[0]).tolist(), np.asarray(batch[1]).tobytes()) for batch in batches]


def numbers(batches: Any) -> list[list[int]]:
    """Which samples each batch has."""
    return [numbers for numbers, _ in frozen(batches)]


def drain(iterator: Any, patience: int = 500) -> tuple[list[Any], list[Any]]:
    """Everything that an iterator gives, and everything it raises on the way."""
    batches: list[Any] = []
    errors: list[Any] = []
    for _ in range(patience):
        try:
            batches.append(next(iterator))
        except StopIteration:
            return batches, errors
        except Exception as error:  # noqa: BLE001  # it is what the test looks at
            errors.append(error)
    raise AssertionError("it never ends")


@pytest.mark.parametrize("num_workers", [1, 2, 5])
@pytest.mark.parametrize("make", [Plain, Remembering])
def test_parts_are_the_whole(make: Any, num_workers: int) -> None:
    """Each sample comes once, in two epochs that draw differently; the order is the same in every run."""
    loader, other = load(make(), num_workers), load(make(), num_workers)

    epochs = [frozen(loader), frozen(loader)]

    for found in epochs:
        assert sorted(i for batch, _ in found for i in batch) == list(range(31))
    assert epochs[0] != epochs[1]
    assert [frozen(other), frozen(other)] == epochs


def test_batches_come_in_turn_whoever_is_slow() -> None:
    """One of each worker, then the next of each; one whose stream has ended is left out of the round."""
    assert numbers(load(Uneven(), 3)) == [
        [0, 1, 2], [100, 101, 102], [200, 201, 202], [103, 104, 105], [203, 204, 205], [206, 207, 208]
    ]  # fmt: skip
    assert sorted(numbers(load(Uneven(), 3, in_order=False))) == sorted(numbers(load(Uneven(), 3)))


@pytest.mark.parametrize("kwargs", [{"drop_last": True}, {"batch_size": None}, {"prefetch_factor": 5}], ids=str)
def test_batching_is_each_workers_own(kwargs: dict[str, Any]) -> None:
    """drop_last drops each worker's short batch; without batches samples come in turn; prefetching changes nothing."""
    found = numbers(load(Plain(8), 2, **kwargs))

    if "drop_last" in kwargs:
        assert found == [[0, 2, 4], [1, 3, 5]]
    elif "batch_size" in kwargs:
        assert found == [[i] for i in range(8)]
    else:
        assert found == [[0, 2, 4], [1, 3, 5], [6], [7]]


@pytest.mark.parametrize(
    ("num_workers", "n"), [(0, 20), (1, 20), (2, 20), pytest.param(3, 20, marks=SLOW), pytest.param(5, 31, marks=SLOW)]
)
@pytest.mark.parametrize("make", [Plain, Remembering])
def test_a_state_of_each_batch_resumes_twice(make: Any, num_workers: int, n: int) -> None:
    """At every batch, resumed, stopped one batch later and resumed again: the tail is the same, and the next epoch.

    With one and two workers, at every third batch, which is of either worker.
    """
    straight = load(make(n), num_workers)
    whole, after = frozen(straight), frozen(straight)
    loader = load(make(n), num_workers)
    walk = iter(loader)
    for stop in range(len(whole)):
        if num_workers in {1, 2} and stop % 3:
            next(walk)
            continue
        again = load(make(n), num_workers)
        again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        tail = iter(again)
        found = frozen([next(tail)])
        third = load(make(n), num_workers)
        third.load_state_dict(json.loads(json.dumps(again.state_dict())))
        tail.close()

        assert found + frozen(third) == whole[stop:]
        if stop == len(whole) // 6 * 3:
            assert frozen(third) == after
        next(walk)


@pytest.mark.parametrize("kinds", [(0, 1), (1, 0)])
def test_one_process_and_none_are_one_stream(kinds: tuple[int, int]) -> None:
    """A state of either resumes on the other: there is one stream, and its samples have the same keys."""
    loader = load(Remembering(), kinds[0])
    walk = iter(loader)
    for _ in range(4):
        next(walk)
    resumed = load(Remembering(), kinds[1])
    resumed.load_state_dict(loader.state_dict())

    assert frozen(resumed) == frozen(walk)


@pytest.mark.parametrize(("theirs", "ours"), [(2, 3), (2, 0), (0, 2)])
def test_another_number_of_streams_is_refused_in_mid_epoch(theirs: int, ours: int) -> None:
    """Where each would stand cannot be told; from the end of an epoch any number will do."""
    loader = load(Plain(), theirs)
    walk = iter(loader)
    next(walk)
    middle = loader.state_dict()
    list(walk)

    with pytest.raises(StateError, match="the position of each of its streams is unknown"):
        load(Plain(), ours).load_state_dict(middle)
    fresh, expected = load(Plain(), ours), load(Plain(), ours)
    fresh.load_state_dict(loader.state_dict())
    expected.set_epoch(1)

    assert frozen(fresh) == frozen(expected)


@pytest.mark.parametrize(
    "saved", [{}, {"last": 5, "shares": [[1, None, False]]}, {"last": 0, "shares": [[-1, None, 0]]}]
)
def test_a_damaged_state_of_workers_is_refused(saved: dict[str, Any]) -> None:
    """It says so, and nothing is started."""
    loader = load(Plain())
    next(iter(loader))
    state = loader.state_dict() | {"workers": saved}

    with pytest.raises(StateError, match="the state's workers must be what each had drawn"):
        load(Plain()).load_state_dict(state)


def test_persistent_workers_begin_each_epoch_anew() -> None:
    """The same processes iterate again, as fresh ones would."""
    kept, fresh = load(Plain(), persistent_workers=True), load(Plain())

    for _ in range(3):
        assert frozen(kept) == frozen(fresh)
    kept.close()


def test_a_killed_worker_goes_on_where_it_was(tmp_path: Any) -> None:
    """What it had not delivered is pulled again by another: no sample is lost or comes twice."""

    class Dies(Remembering):
        def __iter__(self) -> Any:
            return _Dying(part(self.n), tmp_path / "died")

    class _Dying(_Walk):
        def __init__(self, numbers: range, marker: Any) -> None:
            super().__init__(numbers)
            self.marker = marker

        def __next__(self) -> Any:
            if self.at == 7 and self.numbers[0] == 1 and not self.marker.exists():
                self.marker.touch()
                os._exit(9)
            return super().__next__()

    assert frozen(load(Dies())) == frozen(load(Remembering()))
    assert (tmp_path / "died").exists()


def test_a_replica_that_always_dies_ends_with_an_error() -> None:
    """The other's batches come; whoever goes on behind the error is not given it for ever."""

    class Deadly(Remembering):
        def __iter__(self) -> Any:
            return _Deadly(part(self.n))

    class _Deadly(_Walk):
        def __next__(self) -> Any:
            if self.at == 4 and self.numbers[0] == 1:
                os._exit(9)
            return super().__next__()

    batches, errors = drain(iter(load(Deadly(20))))

    assert numbers(batches) == [[0, 2, 4], [1, 3, 5], [6, 8, 10], [12, 14, 16], [18]]
    assert {type(error) for error in errors} == {WorkerError}
    assert len(errors) <= 2 * 2  # what was under way


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_replica_that_cannot_begin_ends_too(num_workers: int) -> None:
    """Its error comes for a while, in turn with the others' batches, and then no more."""

    class Closed(Plain):
        def __iter__(self) -> Any:
            info = ps.get_worker_info()
            if info is not None and info.id == 0:
                raise PermissionError("no")
            return super().__iter__()

    batches, errors = drain(iter(load(Closed(9), num_workers)))

    assert numbers(batches) == ([] if num_workers == 1 else [[1, 3, 5], [7]])
    assert {type(error) for error in errors} == {PermissionError}


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("stateful", [True, False])
def test_an_error_in_mid_stream_is_raised_and_passed(num_workers: int, stateful: bool) -> None:
    """A state behind it goes on behind it; what its batch had drawn before comes with the next one."""

    class Hiccup(_Walk):
        def __next__(self) -> Any:
            sample = super().__next__()
            if sample[0] == 7:
                raise BlockingIOError(7)
            return sample

    class Bare:
        def __init__(self, walk: Any) -> None:
            self.walk = walk

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> Any:
            return next(self.walk)

    class Source(Plain):
        def __iter__(self) -> Any:
            return Hiccup(part(self.n)) if stateful else Bare(Hiccup(part(self.n)))

    def fresh() -> ps.DataLoader:
        return load(Source(14), num_workers)

    batches, errors = drain(iter(fresh()))
    loader = fresh()
    walk = iter(loader)
    heads = [next(walk), next(walk)]
    with pytest.raises(BlockingIOError):
        next(walk)
    states = [loader.state_dict()]
    heads.append(next(walk))
    states.append(loader.state_dict())
    walk.close()
    tails = []
    for state in states:
        resumed = fresh()
        resumed.load_state_dict(json.loads(json.dumps(state)))
        tails.append(drain(iter(resumed)))

    assert numbers(batches) == [[0, 1, 2], [3, 4, 5], [6, 8, 9], [10, 11, 12], [13]]
    assert [type(error) for error in errors] == [BlockingIOError]
    assert numbers(heads) == [[0, 1, 2], [3, 4, 5], [6, 8, 9]]
    assert [numbers(tail) for tail, _ in tails] == [[[6, 8, 9], [10, 11, 12], [13]], [[10, 11, 12], [13]]]
    assert [len(errors) for _, errors in tails] == [1, 0]
