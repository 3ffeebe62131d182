"""penstock.DataLoader over worker processes: batches as without them, whatever they hold and however they start."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import penstock as ps
from penstock.errors import ArgumentError, SampleError, StallError, WorkerError
from tests.loader.fakes import Rows, Samples, epoch, frozen

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Pair(NamedTuple):
    """A named tuple of the user's."""

    left: Any
    right: Any


@dataclass(eq=True)
class Thing:
    """A user's object."""

    name: str


class Nested(ps.Dataset[Any]):
    """One of everything that a batch may hold."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> Any:
        return {
            "array": np.full((2, 3), index, np.float32),
            "large": np.full(5000, index, np.uint8),
            "number": index,
            "real": index / 2,
            "text": f"sample {index}",
            "bytes": bytes([index]),
            "pair": Pair(index, (index, f"{index}")),
            "list": [index, [float(index)]],
            "none": None,
            "object": Thing(f"thing {index}"),
        }


class Told(ps.Dataset[Any]):
    """What a worker says of itself."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        info = ps.get_worker_info()
        assert info is not None, "a process has a number"
        return index, info.id, info.num_workers, info.seed, type(info.dataset).__name__, os.getpid()


def as_they_are(samples: list[Any]) -> list[Any]:
    """No collation."""
    return samples


def number_in_environment(worker: int) -> None:
    """A worker_init_fn whose doing can be seen."""
    os.environ["PENSTOCK_TEST_WORKER"] = str(worker)


class Environment(Told):
    """What it did."""

    def __getitem__(self, index: int) -> Any:
        return int(os.environ["PENSTOCK_TEST_WORKER"])


def processes(dataset: Any, batch_size: int | None = 4, num_workers: int = 2, **kwargs: Any) -> ps.DataLoader:
    """A loader over worker processes."""
    return ps.DataLoader(dataset, batch_size, num_workers=num_workers, workers="processes", **kwargs)


def of(num_workers: int) -> dict[str, Any]:
    """A loader's arguments for that many processes; for none, none."""
    return {"num_workers": num_workers, "workers": "processes"} if num_workers else {}


# ---------------------------------------------------------------- the same batches


@pytest.mark.parametrize(
    ("num_workers", "make", "kwargs"),
    [
        (2, Samples, {"batch_size": None}),
        *((num_workers, make, {"batch_size": 8}) for num_workers in (1, 5) for make in (Samples, Rows)),
        *(
            (2, make, kwargs)
            for make in (Samples, Rows)
            for kwargs in (
                {"batch_size": 8},
                {"batch_size": 8, "drop_last": True},
                {"batch_sampler": [[3], [1, 4, 1], [2]]},
            )
        ),
    ],
    ids=str,
)
def test_batches_are_those_of_no_workers(num_workers: int, make: Any, kwargs: dict[str, Any]) -> None:
    """Two epochs, each in the sampler's order, are the same to the byte."""
    if "batch_sampler" not in kwargs:
        kwargs = {**kwargs, "shuffle": True}
    plain = ps.DataLoader(make(30), seed=5, **kwargs)
    loader = ps.DataLoader(make(30), seed=5, **kwargs, **of(num_workers))

    for _ in range(2):
        assert epoch(loader) == epoch(plain)


def test_more_workers_than_batches_are_no_trouble() -> None:
    """Those without a task wait, and end."""
    for n in (0, 1, 3):
        assert [batch.tolist() for batch in processes(list(range(n)), 2, 5)] == [
            list(range(start, min(start + 2, n))) for start in range(0, n, 2)
        ]


def test_whatever_a_batch_holds_travels() -> None:
    """Nested structures, text, bytes, None and a user's objects come as they are without workers."""
    plain = list(ps.DataLoader(Nested(), 3, collate_fn=as_they_are))
    found = list(processes(Nested(), 3, collate_fn=as_they_are))

    assert len(found) == len(plain) == 3
    for ours, theirs in zip(found, plain, strict=True):
        assert [str(one) for one in ours] == [str(one) for one in theirs]
        assert ours[0]["object"] == theirs[0]["object"]
        assert type(ours[0]["pair"]) is Pair
        assert type(ours[0]["text"]) is str


def test_a_collated_batch_has_its_structure() -> None:
    """Arrays are joined, text and objects listed, in the sample's own structure, as without workers."""

    class Common(Nested):
        def __getitem__(self, index: int) -> Any:
            sample = super().__getitem__(index)
            return {name: sample[name] for name in ("array", "large", "number", "real", "text", "pair", "list")}

    plain, found = (epoch(loader) for loader in (ps.DataLoader(Common(), 3), processes(Common(), 3)))
    [batch, *_] = processes(Common(), 3)

    assert found == plain
    assert batch["array"].shape == (3, 2, 3)
    assert batch["text"] == ["sample 0", "sample 1", "sample 2"]
    assert type(batch["pair"]) is Pair


def test_batches_are_the_users() -> None:
    """Written to and kept, they change no other batch: memory is used again when the last view of it is gone."""
    kept = []
    for batch in processes(Samples(40), 4, seed=0):
        batch["x"] += 1000
        kept.append(batch["x"])

    assert [array[:, 0, 0].tolist() for array in kept] == [
        [1000.0 + i for i in range(start, start + 4)] for start in range(0, 40, 4)
    ]


def test_order_does_not_depend_on_who_is_slow() -> None:
    """A worker whose batches take long holds up delivery, not order; in_order=False gives each once."""

    class Slow(Samples):
        def __getitem__(self, index: int) -> Any:
            time.sleep(0.02 * (index % 8 < 4))
            return index

    in_order = [batch.tolist() for batch in processes(Slow(32))]
    as_they_come = [batch.tolist() for batch in processes(Slow(32), in_order=False)]

    assert in_order == [list(range(start, start + 4)) for start in range(0, 32, 4)]
    assert sorted(as_they_come) == in_order


# ---------------------------------------------------------------- states


@pytest.mark.parametrize("make", [Samples, Rows])
@pytest.mark.parametrize(
    "num_workers", [0, 2, pytest.param(1, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow)]
)
def test_a_state_of_each_batch_resumes_twice(make: Any, num_workers: int) -> None:
    """At every batch, resumed with another number of workers, stopped there and resumed again: the tail is the same."""

    def fresh(workers: int) -> ps.DataLoader:
        return ps.DataLoader(make(22), 4, shuffle=True, seed=11, **of(workers))

    straight = epoch(fresh(0))
    loader, others = fresh(num_workers), [0, 1, 2, 5]
    walk = iter(loader)
    for stop in range(len(straight)):
        again = fresh(others[stop % 4])
        again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        tail = iter(again)
        found = [frozen(next(tail))]
        third = fresh(others[(stop + 1) % 4])
        third.load_state_dict(json.loads(json.dumps(again.state_dict())))
        tail.close()
        found += epoch(third)

        assert found == straight[stop:]
        next(walk)


# ---------------------------------------------------------------- workers


def test_workers_know_who_they_are() -> None:
    """get_worker_info() there is number, count, seed and the worker's own dataset; here it is None."""
    batches = list(processes(Told(), 2, seed=4, collate_fn=as_they_are))

    told = [[sample[1:5] for sample in batch] for batch in batches]
    seeds = [batch[0][2] for batch in told]
    assert [batch[0][:2] for batch in told] == [(0, 2), (1, 2), (0, 2), (1, 2)]
    assert seeds[1] == seeds[0] + 1
    assert {batch[0][3] for batch in told} == {"Told"}
    assert ps.get_worker_info() is None


@pytest.mark.parametrize("persistent", [True, False])
def test_persistent_workers_live_from_epoch_to_epoch(persistent: bool) -> None:
    """The same processes; without it new ones, each of which calls worker_init_fn."""
    loader = processes(Told(), 2, persistent_workers=persistent, collate_fn=as_they_are)

    first, second = ({sample[5] for batch in loader for sample in batch} for _ in range(2))
    loader.close()

    assert len(first) == len(second) == 2
    assert (first == second) is persistent
    assert os.getpid() not in first


def test_an_iterator_of_persistent_workers_is_independent_of_others() -> None:
    """A second one while the first is under way has workers of its own; both give the whole epoch."""
    loader = processes(Samples(16), persistent_workers=True, seed=0)
    first, second = iter(loader), iter(loader)

    together = [(frozen(one), frozen(two)) for one, two in zip(first, second, strict=True)]
    loader.close()

    assert len(together) == 4
    assert [one[0] for one, _ in together] == [two[0] for _, two in together]


def test_worker_init_fn_runs_in_each_worker() -> None:
    """Before its first sample, with its number."""
    batches = [batch.tolist() for batch in processes(Environment(), 2, worker_init_fn=number_in_environment)]

    assert batches == [[0, 0], [1, 1], [0, 0], [1, 1]]
    assert "PENSTOCK_TEST_WORKER" not in os.environ


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
@pytest.mark.parametrize("as_context", [True, False])
def test_any_start_method_gives_the_same(method: str, as_context: bool) -> None:
    """multiprocessing_context is a name or a context; batches do not depend on it."""
    context = multiprocessing.get_context(method) if as_context else method
    loader = ps.DataLoader(Samples(12), 4, seed=1, num_workers=1, multiprocessing_context=context)

    assert loader.workers == "processes"
    assert epoch(loader) == epoch(ps.DataLoader(Samples(12), 4, seed=1))


def test_a_numpy_worker_imports_no_torch(tmp_path: Path) -> None:
    """A program that imports torch, and whose dataset is NumPy's, has forkserver workers without it."""
    (tmp_path / "numbers_of_mine.py").write_text(
        textwrap.dedent(
            """
            import sys
            import numpy as np

            class Numbers:
                def __len__(self):
                    return 8

                def __getitem__(self, index):
                    assert "torch" not in sys.modules, "torch was imported"
                    return np.full(3, index)
            """
        )
    )
    (tmp_path / "program.py").write_text(
        textwrap.dedent(
            """
            import sys, torch
            import penstock as ps
            from numbers_of_mine import Numbers

            if __name__ == "__main__":
                for method in ("forkserver", "spawn"):
                    loader = ps.DataLoader(Numbers(), 4, num_workers=2, multiprocessing_context=method)
                    print([batch[:, 0].tolist() for batch in loader], "torch" in sys.modules)
            """
        )
    )
    pytest.importorskip("torch")

    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(ps.__file__).parent.parent)},
    )  # fmt: skip

    assert done.stderr == ""
    assert done.stdout.splitlines() == ["[[0, 1, 2, 3], [4, 5, 6, 7]] True"] * 2


# ---------------------------------------------------------------- what goes wrong


def test_a_timeout_is_a_stall_error() -> None:
    """timeout is for one batch, whoever works; it says what was waited for, and the iterator can be closed at once."""

    class Hangs(Samples):
        def __getitem__(self, index: int) -> Any:
            if index == 5:
                threading.Event().wait()
            return index

    walk = iter(processes(Hangs(8), timeout=5))
    assert next(walk).tolist() == [0, 1, 2, 3]

    with pytest.raises(StallError, match=r"timed out after 5 seconds.*\(index 5\)") as caught:
        next(walk)
    walk.close()
    assert isinstance(caught.value, RuntimeError)


def test_a_batch_that_cannot_be_sent_names_its_sample() -> None:
    """A lambda among samples: an error with its index, and the next batches come."""

    class Unsendable(Samples):
        def __getitem__(self, index: int) -> Any:
            return (lambda: index) if index == 5 else index

    walk = iter(processes(Unsendable(12), collate_fn=as_they_are))
    first = next(walk)
    with pytest.raises(SampleError, match="cannot be sent to the parent") as caught:
        next(walk)

    assert first == [0, 1, 2, 3]
    assert caught.value.where["index"] == 5
    assert list(walk) == [[8, 9, 10, 11]]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_dataset_that_cannot_be_sent_is_an_error_at_once(method: str) -> None:
    """It is raised by iter(), with what could not be pickled; no worker is left."""

    class Local(Samples):
        pass

    before = set(multiprocessing.active_children())

    with pytest.raises((ArgumentError, WorkerError, SampleError, AttributeError, TypeError), match="Local") as caught:
        iter(processes(Local(8), multiprocessing_context=method))

    assert caught.value.__notes__[-1] == "More: penstock explain not-picklable"

    assert set(multiprocessing.active_children()) == before


class Variables(Samples):
    """Environment variables as they are where a sample is built, and where the dataset is unpickled."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, unpickled=os.environ.get("PENSTOCK_TEST_NEW"))

    def __getitem__(self, index: int) -> Any:
        names = ("PENSTOCK_TEST_NEW", "PENSTOCK_TEST_OLD")
        return (getattr(self, "unpickled", None), *map(os.environ.get, names))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_have_the_environment_of_their_start(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it was when the first ones were started: credentials may be set, renewed and removed in between."""
    monkeypatch.setenv("PENSTOCK_TEST_OLD", "old")
    loader = processes(Variables(2), None, 1, multiprocessing_context=method, shuffle=False)
    assert list(loader) == [[None, None, "old"]] * 2

    monkeypatch.delenv("PENSTOCK_TEST_OLD")
    monkeypatch.setenv("PENSTOCK_TEST_NEW", "new")
    assert list(loader) == [[None if method == "fork" else "new", "new", None]] * 2


def test_an_error_of_a_dataset_keeps_its_type() -> None:
    """With its own attributes; the message tells worker and traceback."""

    class Fails(Samples):
        def __getitem__(self, index: int) -> Any:
            raise FileNotFoundError(2, "no such picture", f"{index}.jpg")

    with pytest.raises(FileNotFoundError) as caught:
        next(iter(processes(Fails(8))))

    assert caught.value.filename == "0.jpg"
    told = str(caught.value) + "".join(getattr(caught.value, "__notes__", ()))
    assert "worker process 0" in told
    assert "__getitem__" in told


def test_a_loader_inside_a_worker_works_by_itself() -> None:
    """A worker may not have processes: "auto" takes threads there."""

    class Outer(Samples):
        def __getitem__(self, index: int) -> Any:
            inner = ps.DataLoader(Samples(4), 2, num_workers=1)
            return inner.workers, len(list(inner))

    assert list(processes(Outer(2), 1, collate_fn=as_they_are)) == [[("threads", 2)], [("threads", 2)]]


def test_threads_of_the_program_do_not_hold_workers_up() -> None:
    """While another thread runs, nothing is forked that could be pickled; batches are the same."""
    ended = threading.Event()

    def spin() -> None:
        while not ended.wait(0.001):
            sum(range(1000))

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        found = epoch(processes(Samples(12), seed=1))
    finally:
        ended.set()
        thread.join()

    assert found == epoch(ps.DataLoader(Samples(12), 4, seed=1))
