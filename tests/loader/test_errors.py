"""What goes wrong in user code: its type, its place, and the batches around it."""

from __future__ import annotations

import contextlib
import gc
import json
import weakref
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import SampleError, StoreError
from tests.loader.fakes import Failing, Rows, Samples, Stream, threads, workers_alive

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
WORKERS = pytest.mark.parametrize("num_workers", [0, 1, 3])


class TwoArgumentsError(Exception):
    """An exception that cannot be built from one string."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(code, why)
        self.code = code


def drain(iterator: Any) -> tuple[list[Any], list[Any]]:
    """Everything that an iterator gives, and everything it raises on the way."""
    batches: list[Any] = []
    errors: list[Any] = []
    while True:
        try:
            batches.append(next(iterator))
        except StopIteration:
            return batches, errors
        except Exception as error:  # noqa: BLE001  # it is what the test looks at
            errors.append(error)


@WORKERS
@pytest.mark.parametrize(
    "error",
    [KeyError("k"), TwoArgumentsError(3, "y"), UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), OSError(2, "no")],
)
def test_the_original_error_is_raised(num_workers: int, error: Exception) -> None:
    """The very object that the dataset raised, with index and worker noted, after the batches before it."""
    walk = iter(ps.DataLoader(Failing(12, {5: error}), 4, **threads(num_workers)))

    batches, errors = drain(walk)

    assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert errors == [error]
    assert errors[0] is error
    notes = " ".join(error.__notes__)
    assert "index=5" in notes
    assert ("worker=" in notes) == (num_workers > 0)


@WORKERS
def test_the_first_row_that_fails_is_reported(num_workers: int) -> None:
    """With several bad samples in a batch, the error does not depend on which thread was faster."""
    loader = ps.DataLoader(
        Failing(16, dict.fromkeys((3, 7, 9, 14), ValueError)), 16, **threads(num_workers), chunk_size=1
    )

    for _ in range(20):
        with pytest.raises(ValueError, match=r"^3\n"):
            next(iter(loader))


@WORKERS
def test_stop_iteration_does_not_end_the_epoch(num_workers: int) -> None:
    """StopIteration from __getitem__ is an error that names the index; the rest of the epoch is delivered."""
    walk = iter(ps.DataLoader(Failing(12, {5: StopIteration()}), 4, **threads(num_workers)))

    batches, errors = drain(walk)

    assert len(batches) == 2
    assert [type(error) for error in errors] == [SampleError]
    assert errors[0].where["index"] == 5


@WORKERS
def test_sys_exit_in_a_dataset_is_an_error(num_workers: int) -> None:
    """It neither ends the program nor the epoch."""
    _, errors = drain(iter(ps.DataLoader(Failing(4, {1: SystemExit(0)}), 2, **threads(num_workers))))

    assert [type(error) for error in errors] == [SampleError]


@WORKERS
def test_an_error_in_collate_names_the_batch(num_workers: int) -> None:
    """The samples of the batch are named, and iteration goes on."""

    def collate(samples: list[Any]) -> Any:
        if 5 in samples:
            raise ZeroDivisionError
        return samples

    batches, errors = drain(iter(ps.DataLoader(Failing(8, {}), 2, **threads(num_workers), collate_fn=collate)))

    assert batches == [[0, 1], [2, 3], [6, 7]]
    assert [type(error) for error in errors] == [ZeroDivisionError]
    assert "batch=2" in errors[0].__notes__[0]
    assert "indices=[4, 5]" in errors[0].__notes__[0]


@WORKERS
def test_what_was_raised_was_not_delivered(num_workers: int) -> None:
    """A state taken after an error has its batch again; one taken after the batch that follows passes over it."""
    loader = ps.DataLoader(Failing(16, {5: ValueError}), 4, **threads(num_workers))
    walk = iter(loader)
    next(walk)
    with pytest.raises(ValueError, match="5"):
        next(walk)
    states = [loader.state_dict()]
    next(walk)
    states.append(loader.state_dict())

    rests = []
    for state in states:
        resumed = ps.DataLoader(Failing(16, {}), 4)
        resumed.load_state_dict(state)
        rests.append([batch.tolist() for batch in resumed])

    assert rests == [[[4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]], [[12, 13, 14, 15]]]


class Outage:
    """An outage of what samples are read from: while it lasts, one of them cannot be read."""

    def __init__(self) -> None:
        self.lasts = True

    def check(self, index: int) -> None:
        """Raise for the sample that cannot be read."""
        if self.lasts and index == 17:
            raise StoreError("the server does not answer")


class Remote:
    """A map-style dataset."""

    def __init__(self, outage: Outage) -> None:
        self.outage = outage

    def __len__(self) -> int:
        return 38

    def __getitem__(self, index: int) -> int:
        self.outage.check(index)
        return index


class RemoteParts(ps.PartitionedDataset[int]):
    """A stream of parts, read or decoded remotely."""

    def __init__(self, outage: Outage, *, decodes: bool) -> None:
        super().__init__()
        self.outage, self.decodes = outage, decodes

    def count_parts(self) -> int:
        """Four of ten."""
        return 4

    def read_part(self, part: int, epoch: int, first: int) -> Any:
        """Ten numbers; eight in the last part."""
        for index in range(10 * part + first, min(10 * part + 10, 38)):
            if not self.decodes:
                self.outage.check(index)
            yield index

    def make_sample(self, item: int) -> int:
        """The number."""
        if self.decodes:
            self.outage.check(item)
        return item


OUTAGES: dict[str, Any] = {
    "map": Remote,
    "read": lambda outage: RemoteParts(outage, decodes=False),
    "decoded": lambda outage: RemoteParts(outage, decodes=True),
    "mixture": lambda outage: ps.Mixture({"a": RemoteParts(outage, decodes=False)}, weights=[1], until="first"),
}


@pytest.mark.parametrize("kind", OUTAGES)
@pytest.mark.parametrize(
    "workers", [{}, {"num_workers": 2, "workers": "threads"}, {"num_workers": 2, "workers": "processes"}], ids=str
)
def test_a_run_that_an_outage_ended_loses_nothing(kind: str, workers: dict[str, Any]) -> None:
    """Resumed from the state after the error, it has each sample once, whoever reads."""
    outage = Outage()
    loader = ps.DataLoader(OUTAGES[kind](outage), 2, **workers)
    seen: list[int] = []
    with pytest.raises(StoreError, match="does not answer"):
        seen.extend(sample for batch in loader for sample in batch.tolist())
    outage.lasts = False
    resumed = ps.DataLoader(OUTAGES[kind](outage), 2, **workers)
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))

    seen += [sample for batch in resumed for sample in batch.tolist()]

    assert sorted(seen) == list(range(38))


def fail_and_catch(loader: Any) -> weakref.ref[Any]:
    """As in a program that goes on after an error; its frame is kept by the error's traceback."""
    walk = iter(loader)
    with contextlib.suppress(ConnectionError):
        list(walk)
    return weakref.ref(walk)


def test_an_error_that_was_caught_keeps_no_worker_process() -> None:
    """They are gone when the loop's frame is, without the cyclic collector."""
    gc.collect()
    gc.disable()
    try:
        walk = fail_and_catch(ps.DataLoader(Failing(12, {5: ConnectionError}), 2, num_workers=1, workers="processes"))
    finally:
        gc.enable()

    assert walk() is None


@WORKERS
def test_an_error_in_fill_names_the_chunk(num_workers: int) -> None:
    """A filler that does not say which row: the rows it was given."""

    class Bad(Rows):
        def fill(self, indices: Any, out: Any, keys: Any, rows: Any = None) -> None:
            if 5 in indices:
                raise OSError("disk")
            super().fill(indices, out, keys, rows)

    batches, errors = drain(iter(ps.DataLoader(Bad(12), 4, **threads(num_workers), chunk_size=2)))

    assert len(batches) == 2
    assert "indices=[4, 5]" in errors[0].__notes__[0]


@WORKERS
def test_batches_before_a_failing_sampler_are_delivered(num_workers: int) -> None:
    """The sampler raises at its sixth index: two whole batches come first, then its own error, then the end."""

    def sampler() -> Any:
        yield from range(5)
        raise ConnectionError("sampler")

    batches, errors = drain(iter(ps.DataLoader(Failing(9, {}), 2, sampler=sampler(), **threads(num_workers))))

    assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3]]
    assert [type(error) for error in errors] == [ConnectionError]


@WORKERS
def test_a_length_that_lies_is_named(num_workers: int) -> None:
    """IndexError below len(): the note says the length; the type is kept."""

    class Liar(Samples):
        def __len__(self) -> int:
            return self.n + 1

    batches, errors = drain(iter(ps.DataLoader(Liar(4), 2, **threads(num_workers))))

    assert len(batches) == 2
    assert [type(error) for error in errors] == [IndexError]
    assert "len(dataset) is 5" in " ".join(errors[0].__notes__)


@WORKERS
@pytest.mark.parametrize("promised", [3, 9])
def test_a_sampler_that_gives_another_count_is_an_error(num_workers: int, promised: int) -> None:
    """delivered = drawn: an epoch that ends shorter or longer than promised says so, with both numbers."""

    class Short:
        def __iter__(self) -> Any:
            return iter(range(6))

        def __len__(self) -> int:
            return promised

    batches, errors = drain(iter(ps.DataLoader(Failing(9, {}), 2, sampler=Short(), **threads(num_workers))))

    assert len(batches) == 3
    assert [str(error) for error in errors] == [f"Short gave 6 indices, but its len() was {promised} [epoch=0]"]


def test_a_dataset_that_shrinks_is_an_error() -> None:
    """The length at the start of an epoch is a promise for all of it."""
    dataset = Failing(8192, {})
    walk = iter(ps.DataLoader(dataset, 2048))
    for _ in range(2):
        next(walk)
    dataset.n = 4097

    with pytest.raises(SampleError, match="1 of 4096"):
        next(walk)


@WORKERS
def test_an_error_in_a_stream_loses_only_itself(num_workers: int) -> None:
    """What a stream gave before its error, in the same batch, comes with the next batch."""

    class Hiccup:
        def __init__(self) -> None:
            self.i = -1

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> int:
            self.i += 1
            if self.i == 6:
                raise BlockingIOError
            if self.i == 12:
                raise StopIteration
            return self.i

    class Source(ps.IterableDataset[int]):
        def __iter__(self) -> Any:
            return Hiccup()

    batches, errors = drain(iter(ps.DataLoader(Source(), 4, **threads(num_workers))))

    assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 7, 8], [9, 10, 11]]
    assert [type(error) for error in errors] == [BlockingIOError]
    assert "sample=6" in errors[0].__notes__[0]


@WORKERS
def test_an_error_in_iter_is_raised_at_once(num_workers: int) -> None:
    """A stream that cannot be opened fails at iter(), and leaves no thread."""

    class Closed(ps.IterableDataset[int]):
        def __iter__(self) -> Any:
            raise PermissionError("no")

    with pytest.raises(PermissionError):
        iter(ps.DataLoader(Closed(), **threads(num_workers)))

    assert workers_alive() == []


def test_an_error_in_worker_init_fn_reaches_the_consumer() -> None:
    """Each worker's failed start is raised once, with its number; the other batches are built."""

    def init(worker: int) -> None:
        raise LookupError(f"init {worker}")

    batches, errors = drain(
        iter(ps.DataLoader(Failing(8, {}), 2, num_workers=1, workers="threads", worker_init_fn=init))
    )

    assert len(batches) == 3
    assert [str(error) for error in errors] == ["'init 0'"] or [str(error) for error in errors] == ["init 0"]
    assert "worker=0" in errors[0].__notes__[0]


def test_worker_init_fn_runs_once_in_each_worker() -> None:
    """With the worker's number, before it works; again in the next epoch unless workers persist."""
    seen: list[int] = []
    for persistent, expected in ((True, [0, 1]), (False, [0, 0, 1, 1])):
        seen.clear()
        loader = ps.DataLoader(
            Failing(64, {}),
            1,
            num_workers=2,
            workers="threads",
            worker_init_fn=seen.append,
            persistent_workers=persistent,
        )
        for _ in range(2):
            list(loader)

        assert sorted(seen) == expected
        loader.close()


def test_rng_where_many_samples_are_built_at_once_is_refused() -> None:
    """In ``__getitems__`` there is no current sample."""

    class AtOnce(Samples):
        def __getitems__(self, indices: Any) -> Any:
            return [ps.rng() for _ in indices]

    with pytest.raises(ps.ArgumentError, match="__getitem__"):
        next(iter(ps.DataLoader(AtOnce(2), 2)))


@WORKERS
def test_samples_of_unequal_shape_are_named(num_workers: int) -> None:
    """The collation error carries the batch and its indices."""

    class Ragged(Samples):
        def __getitem__(self, index: int) -> Any:
            return np.zeros(index)

    with pytest.raises(SampleError, match=r"\(0,\) at entry 0 and \(1,\) at entry 1") as caught:
        next(iter(ps.DataLoader(Ragged(4), 2, **threads(num_workers))))

    assert caught.value.where["indices"] == [0, 1]


def test_streams_share_no_state_with_errors_of_others() -> None:
    """A loader goes on to a good epoch after a broken one."""
    dataset = Failing(4, {1: ValueError})
    loader = ps.DataLoader(dataset, 2, num_workers=2, workers="threads", persistent_workers=True)
    drain(iter(loader))
    dataset.errors = {}

    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]
    assert len(list(ps.DataLoader(Stream(3)))) == 3
