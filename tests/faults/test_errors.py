"""What user code raises or returns that does not travel well (faults 6 to 9, 11, A9 to A12)."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
import torch.utils.data

from penstock.errors import SampleError, WorkerError
from tests.faults.conftest import Load
from tests.faults.harness import Indices, drain


def as_it_is(samples: list[Any]) -> list[Any]:
    """Batches as lists, whatever is in them."""
    return samples


class OwnError(Exception):
    """Wants two arguments, and keeps one."""

    def __init__(self, key: str, code: int) -> None:
        super().__init__(f"{key} is missing")
        self.key, self.code = key, code


class Unloadable:
    """Can be pickled, but not loaded."""

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    raise OSError("cannot be loaded here")


class Raising(Indices):
    """Raises what ``make`` gives at index 37."""

    def __init__(self, make: Any, n: int = 64) -> None:
        super().__init__(n)
        self.make = make

    def __getitem__(self, index: int) -> Any:
        if index == 37:
            raise self.make()
        return index


class Returning(Indices):
    """Returns what ``make`` gives at index 37."""

    def __init__(self, make: Any, n: int = 64) -> None:
        super().__init__(n)
        self.make = make

    def __getitem__(self, index: int) -> Any:
        return self.make() if index == 37 else index


@pytest.mark.parametrize(
    "make", [lambda: (x for x in [0]), lambda: lambda: None, Unloadable], ids=["generator", "function", "unloadable"]
)
def test_06_a_result_that_cannot_be_sent_is_an_error(load: Load, make: Any) -> None:
    """Fault 6: with the type and what the reason is; all other batches come."""
    batches, errors = drain(iter(load(Returning(make), collate_fn=as_it_is)))

    assert [type(error) for error in errors] == [SampleError]
    assert errors[0].where["batch"] == 9
    assert errors[0].where.get("index") == 37 or "cannot be loaded here" in str(errors[0])
    assert [i for batch in batches for i in batch] == [i for i in range(64) if i // 4 != 9]


def test_07_an_exception_with_its_own_constructor_keeps_its_type(load: Load) -> None:
    """Fault 7: `except OwnError` catches it, with its attributes; the worker's traceback is told."""
    batches, errors = drain(iter(load(Raising(lambda: OwnError("k", 3)))))

    assert [type(error) for error in errors] == [OwnError]
    assert (errors[0].key, errors[0].code) == ("k", 3)
    assert "in __getitem__" in str(errors[0]) + "".join(errors[0].__notes__)
    assert "index=37" in str(errors[0]) + "".join(errors[0].__notes__)
    assert len(batches) == 15


@pytest.mark.parametrize(
    "error",
    [
        KeyError("k"),
        OSError(2, "gone", "a.jpg"),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"),
        SampleError("bad sample", key="k"),
        ExceptionGroup("two", [ValueError(1), TypeError(2)]),
        MemoryError("no memory"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_07_the_type_is_kept(load: Load, error: Exception) -> None:
    """Fault 7: whatever the constructor of the class wants."""
    _, errors = drain(iter(load(Raising(lambda: error))))

    assert [type(found) for found in errors] == [type(error)]
    assert "index=37" in str(errors[0]) + "".join(getattr(errors[0], "__notes__", []))
    if isinstance(error, OSError):
        assert (errors[0].errno, errors[0].filename) == (2, "a.jpg")


def test_08_an_attribute_that_cannot_travel_stays_behind(load: Load) -> None:
    """Fault 8: the type and the other attributes come."""

    def make() -> Exception:
        error = OwnError("k", 3)
        error.stream = open("/dev/null")  # type: ignore[attr-defined]  # noqa: SIM115, PTH123  # that it is unpicklable
        return error

    _, errors = drain(iter(load(Raising(make))))

    assert [type(error) for error in errors] == [OwnError]
    assert errors[0].key == "k"
    assert not hasattr(errors[0], "stream")


def test_found_a_class_that_cannot_travel_is_named(load: Load) -> None:
    """Found in torch 2.15, which hangs: the class lives in a function."""

    class LocalError(Exception):
        pass

    batches, errors = drain(iter(load(Raising(lambda: LocalError("hidden")))))

    assert [type(error) for error in errors] == [SampleError]
    assert "LocalError" in str(errors[0])
    assert "hidden" in str(errors[0])
    assert "index=37" in str(errors[0])
    assert errors[0].where["worker"] == 1
    assert len(batches) == 15


@pytest.mark.parametrize("make", [StopIteration, GeneratorExit, SystemExit])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_09_stop_iteration_does_not_end_the_epoch(load: Load, make: Any, num_workers: int) -> None:
    """Faults 9, A11: nor GeneratorExit, nor sys.exit: it is an error with the index; 60 of 64 samples come."""
    loader = load(Raising(make))
    if not num_workers:
        loader = type(loader)(Raising(make), 4)

    batches, errors = drain(iter(loader))

    assert [type(error) for error in errors] == [SampleError]
    assert errors[0].where["index"] == 37
    assert sum(len(batch) for batch in batches) == 60


def test_09_an_empty_stop_iteration_reads_well(load: Load) -> None:
    """Fault 9: what says nothing of itself leaves no colon behind."""

    class Ends(Indices):
        def __getitem__(self, index: int) -> Any:
            raise StopIteration

    loader = type(load(Ends()))(Ends(), 4)

    with pytest.raises(SampleError) as caught:
        next(iter(loader))

    assert str(caught.value) == "StopIteration was raised while a sample was built [index=0]"


class Bad(Indices):
    """Four samples of 64 cannot be built; one of them ends its worker."""

    def __getitem__(self, index: int) -> Any:
        if index in {5, 6, 37}:
            raise ValueError(f"bad {index}")
        if index == 50:
            os._exit(9)
        return index


@pytest.mark.parametrize(("on_error", "missing"), [("raise", 12), ("skip", 4), ("replace", 4)])
def test_10_a_bad_sample_costs_itself_alone(load: Load, on_error: str, missing: int) -> None:
    """Fault 10: a caller who goes on misses, by policy, whole batches or the bad samples; these are listed."""
    loader = load(Bad(64), on_error=on_error)
    batches, errors = drain(iter(loader))
    came = [int(index) for batch in batches for index in batch]

    assert set(came) == set(range(64)) - ({*range(4, 8), *range(36, 40), *range(48, 52)} if missing == 12 else BAD)
    assert len(came) == (64 if on_error == "replace" else 64 - missing)
    assert [type(error) for error in errors] == ([ValueError, ValueError, WorkerError] if missing == 12 else [])
    assert {left.index for left in loader.left_out} == (set() if missing == 12 else BAD)


BAD = {5, 6, 37, 50}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_10_a_stream_goes_on_behind_an_error(load: Load, num_workers: int) -> None:
    """Fault 10: samples behind one that could not be parsed are not lost with it."""
    loader = load(Lines(), 1, num_workers=2) if num_workers else type(load(Lines(), 1))(Lines(), 1)
    batches, errors = drain(iter(loader))

    assert sorted(int(x) for batch in batches for x in batch) == [i for i in range(16) if i != 5]
    assert [type(error) for error in errors] == [ValueError]


class Lines(torch.utils.data.IterableDataset[int]):
    """A stream, cut among workers, one of whose items raises once."""

    def __iter__(self) -> Iterator[int]:
        return _Parsed()


class _Parsed:
    """An iterator that can go on after it has raised, as one over a file's lines can."""

    def __init__(self) -> None:
        info = torch.utils.data.get_worker_info()
        self.at, self.step = (0, 1) if info is None else (info.id, info.num_workers)

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self.at >= 16:
            raise StopIteration
        number, self.at = self.at, self.at + self.step
        if number == 5:
            raise ValueError("not a number")
        return number


def test_11_what_a_sampler_gave_before_it_raised_is_delivered(load: Load) -> None:
    """Fault 11: two batches, then the sampler's own error, then the end."""

    class Sampler:
        def __iter__(self) -> Iterator[int]:
            yield from range(9)
            raise ConnectionError("sampler")

        def __len__(self) -> int:
            return 16

    batches, errors = drain(iter(load(Indices(), sampler=Sampler())))

    assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [(type(error), str(error)) for error in errors] == [(ConnectionError, "sampler")]


def test_a9_an_error_of_collation_names_the_batch(load: Load) -> None:
    """Fault A9: with its type; the other batches come in order."""

    def collate(samples: list[int]) -> list[int]:
        if 37 in samples:
            raise ZeroDivisionError("in collate")
        return samples

    batches, errors = drain(iter(load(Indices(), collate_fn=collate)))

    assert [type(error) for error in errors] == [ZeroDivisionError]
    assert "batch=9" in str(errors[0]) + "".join(getattr(errors[0], "__notes__", []))
    assert batches == [[i, i + 1, i + 2, i + 3] for i in range(0, 64, 4) if i != 36]


def test_a9_indices_that_cannot_be_sent_are_an_error(load: Load) -> None:
    """Fault A9: what a sampler draws may be anything; what no worker can be given fails alone."""

    class ByAnything(Indices):
        def __getitem__(self, index: Any) -> Any:
            return 0

    drawn = [1, 2, lambda: 3, 4]
    batches, errors = drain(iter(load(ByAnything(), 1, sampler=drawn)))

    assert len(batches) == 3
    assert [type(error) for error in errors] == [SampleError]
    assert "indices cannot be sent" in str(errors[0])


class UnloadableError(Exception):
    """Goes into a pickle, and does not come out."""

    def __reduce__(self) -> Any:
        return _refuse, ()


class OddStateError(Exception):
    """Refuses the attributes that it gave."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "code":
            raise AttributeError(name)
        super().__setattr__(name, value)


def odd() -> OddStateError:
    """One that has such an attribute."""
    error = OddStateError("odd")
    error.__dict__["code"] = 3
    return error


@pytest.mark.parametrize("make", [UnloadableError, odd])
def test_a10_an_exception_that_cannot_be_rebuilt_is_told(load: Load, make: Any) -> None:
    """Fault A10: whatever happens in loading it, it is an error of its batch, with name and place."""
    batches, errors = drain(iter(load(Raising(make))))

    assert len(errors) == 1
    assert make().__class__.__name__ in "".join(traceback.format_exception(errors[0]))
    assert "index=37" in "".join(traceback.format_exception(errors[0]))
    assert len(batches) == 15


class Holds(Indices):
    """Has what cannot be pickled, somewhere inside."""

    def __init__(self) -> None:
        super().__init__()
        self.options = {"codecs": [1, lambda x: x]}


@pytest.mark.filterwarnings("ignore:Got pickle error")  # torch's loader gives a hint besides
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a13_a_dataset_that_cannot_be_sent_is_named_to_the_attribute(load: Load, method: str) -> None:
    """Fault A13: as pickle's own error, when iteration begins, with what is to be mended and how."""
    with pytest.raises((AttributeError, pickle.PicklingError)) as caught:
        iter(load(Holds(), multiprocessing_context=method))

    assert "dataset.options['codecs'][1] cannot be pickled" in "".join(caught.value.__notes__)


def test_a9_worker_init_fn_that_fails_is_raised(load: Load) -> None:
    """Fault A9: as its type, with the worker's number, for each of the worker's batches."""

    def init(worker: int) -> None:
        if worker == 1:
            raise LookupError("in init")

    batches, errors = drain(iter(load(Indices(16), worker_init_fn=init)))

    assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert {type(error) for error in errors} == {LookupError}
    assert "worker process 1" in str(errors[0]) + "".join(getattr(errors[0], "__notes__", []))


def test_a12_a_length_that_lies_is_named(load: Load) -> None:
    """Fault A12: IndexError below len() says the length."""

    class Liar(Indices):
        def __getitem__(self, index: int) -> Any:
            return list(range(self.n - 1))[index]

    _, errors = drain(iter(load(Liar(8))))

    assert [type(error) for error in errors] == [IndexError]
    assert "len(dataset) is 8" in str(errors[0]) + "".join(getattr(errors[0], "__notes__", []))
