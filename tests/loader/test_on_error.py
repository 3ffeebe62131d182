"""Samples that cannot be built: what each policy makes of them, how many are too many, and where they are listed."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import CorruptRecordError, SampleError, StateError
from penstock.rng import uniforms
from penstock.sample import ArraySpec, SampleKeys

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

KINDS: dict[str, dict[str, Any]] = {
    "serial": {},
    "threads": {"num_workers": 2, "workers": "threads"},
    "processes": {"num_workers": 2, "workers": "processes"},
}
ON = pytest.mark.parametrize("kind", KINDS)


class Numbers(ps.Dataset[Any]):
    """``dataset[i]`` is i, its own random number, and the process that built it; some fail, each in its own way."""

    def __init__(self, n: int = 20, bad: Any = (), error: Any = ValueError) -> None:
        self.n, self.bad, self.error = n, frozenset(bad), error

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        if index in self.bad:
            raise self.error(f"bad {index}")
        return index, ps.rng().random()


class Several(Numbers):
    """The same, asked for several at once: one that fails takes the others with it."""

    def load_samples(self, indices: Any, keys: SampleKeys) -> list[Any]:
        """As the interface has it."""
        bad = sorted(self.bad.intersection(indices))
        if bad:
            raise self.error(f"bad {bad[0]}")
        return [(index, 0.0) for index in indices]


class ByTorch(Numbers):
    """The same by torch's ``__getitems__``."""

    def __getitems__(self, indices: Any) -> list[Any]:
        return [(self[index][0], 0.0) for index in indices]

    def __getitem__(self, index: int) -> Any:
        if index in self.bad:
            raise self.error(f"bad {index}")
        return index, 0.0


class Rows(Numbers):
    """The same, filled; which row of a chunk it was is not said."""

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError("a filler is not asked for samples")

    def spec(self) -> Any:
        """As the interface has it."""
        return ArraySpec((), np.dtype(np.int64)), ArraySpec((), np.dtype(np.float64))

    def fill(self, indices: Any, out: Any, keys: SampleKeys, rows: Any = None) -> None:
        """As the interface has it."""
        out[0][rows] = indices
        out[1][rows] = uniforms(keys, 0, 1)[:, 0]
        for index in sorted(self.bad.intersection(indices.tolist())):
            raise self.error(f"bad {index}")


class Walk:
    """Gives numbers, and goes on behind those that fail."""

    def __init__(self, numbers: Iterator[int], bad: frozenset[int], error: Any) -> None:
        self.numbers, self.bad, self.error = numbers, bad, error

    def __iter__(self) -> Walk:
        return self

    def __next__(self) -> Any:
        number = next(self.numbers)
        if number in self.bad:
            raise self.error(f"bad {number}")
        return number, ps.rng().random()


class Source(ps.IterableDataset[Any]):
    """A stream of them, shared out to worker processes."""

    def __init__(self, n: int = 20, bad: Any = (), error: Any = ValueError) -> None:
        self.n, self.bad, self.error = n, frozenset(bad), error

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Any:
        info = ps.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return Walk(iter(range(first, self.n, step)), self.bad, self.error)


DATASETS = pytest.mark.parametrize("make", [Numbers, Several, ByTorch, Rows])


def alone(kind: str) -> dict[str, Any]:
    """The arguments of a kind, with one worker at most: streams are not shared out."""
    return {**KINDS[kind], "num_workers": 1} if kind != "serial" else {}


def load(dataset: Any, kind: str, batch_size: int | None = 5, **kwargs: Any) -> ps.DataLoader:
    """A loader of one kind."""
    return ps.DataLoader(dataset, batch_size, seed=3, **KINDS[kind], **kwargs)


def numbers(batches: Any) -> list[list[int]]:
    """Which samples each batch has."""
    return [[int(number) for number in np.atleast_1d(batch[0])] for batch in batches]


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


# ---------------------------------------------------------------- policies


@ON
@DATASETS
def test_skip_leaves_out_the_bad_sample_alone(kind: str, make: Any) -> None:
    """Its batch is shorter, all others are as they were, and what is missing is listed in the order of batches."""
    loader = load(make(20, {3, 11, 12}), kind, on_error="skip")

    found = numbers(loader)

    assert found == [[0, 1, 2, 4], [5, 6, 7, 8, 9], [10, 13, 14], [15, 16, 17, 18, 19]]
    assert [(lost.epoch, lost.batch, lost.index) for lost in loader.left_out] == [(0, 0, 3), (0, 2, 11), (0, 2, 12)]
    assert [(lost.type, lost.reason) for lost in loader.left_out] == [("ValueError", f"bad {i}") for i in (3, 11, 12)]
    assert {lost.worker for lost in loader.left_out} == ({0} if kind == "processes" else {None})


@ON
@DATASETS
def test_replace_puts_another_of_the_batch_in_its_place(kind: str, make: Any) -> None:
    """Batches keep their size; the stand-in is one that the batch has anyway, and the others stay where they were."""
    loader = load(make(20, {3, 11, 12}), kind, on_error="replace")

    found = numbers(loader)

    assert [len(batch) for batch in found] == [5, 5, 5, 5]
    assert found[0][:3] + found[0][4:] == [0, 1, 2, 4]
    assert found[0][3] in {0, 1, 2, 4}
    assert found[2][0::3] + found[2][4:] == [10, 13, 14]
    assert set(found[2][1:3]) <= {10, 13, 14}
    assert [lost.index for lost in loader.left_out] == [3, 11, 12]


@ON
@DATASETS
def test_raise_gives_an_error_for_the_batch(kind: str, make: Any) -> None:
    """The default: the batch of a bad sample is an error of the sample's type, and nothing is listed."""
    loader = load(make(20, {3, 11, 12}), kind)

    batches, errors = drain(iter(loader))

    assert numbers(batches) == [[5, 6, 7, 8, 9], [15, 16, 17, 18, 19]]
    assert [type(error) for error in errors] == [ValueError, ValueError]
    assert loader.left_out == []


@ON
@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_a_stream_goes_on_behind_what_failed(kind: str, policy: str) -> None:
    """Both policies leave it out; a batch is filled up with what comes next, and stays whole."""
    loader = load(Source(20, {3, 11, 12}), kind, on_error=policy)

    found = numbers(loader)
    lost = loader.left_out

    if kind == "processes":
        assert found == [[0, 2, 4, 6, 8], [1, 5, 7, 9, 13], [10, 14, 16, 18], [15, 17, 19]]
        assert {(one.worker, one.index, one.reason) for one in lost} == {
            (1, 1, "bad 3"), (1, 5, "bad 11"), (0, 6, "bad 12")
        }  # fmt: skip
    else:
        assert found == [[0, 1, 2, 4, 5], [6, 7, 8, 9, 10], [13, 14, 15, 16, 17], [18, 19]]
        assert [(one.batch, one.index, one.reason) for one in lost] == [
            (0, 3, "bad 3"), (2, 11, "bad 11"), (2, 12, "bad 12")
        ]  # fmt: skip


def test_a_stand_in_does_not_depend_on_who_works() -> None:
    """The same batches to the byte, stand-ins included, in another kind and number of workers and in other chunks."""
    chunked: list[dict[str, Any]] = [{}, {"chunk_size": 1}, {"chunk_size": 3}]
    found = [
        [
            (batch[0].tobytes(), batch[1].tobytes())
            for batch in ps.DataLoader(
                make(40, {1, 8, 9, 10, 33}), 8, shuffle=True, seed=5, on_error="replace", **kind, **chunks
            )
        ]
        for make in (Numbers, Rows)
        for kind in (*KINDS.values(), {"num_workers": 3, "workers": "threads"})
        for chunks in chunked
    ]

    assert found[:12] == [found[0]] * 12
    assert found[12:] == [found[12]] * 12


@ON
@DATASETS
def test_a_batch_of_nothing_is_not_delivered(kind: str, make: Any) -> None:
    """skip: of a batch whose samples all fail nothing comes; the state counts it as delivered."""
    loader = load(make(20, range(5, 10)), kind, on_error="skip")
    walk = iter(loader)
    first, second = numbers([next(walk), next(walk)])

    assert (first, second) == ([0, 1, 2, 3, 4], [10, 11, 12, 13, 14])
    assert (loader.state_dict()["batches"], loader.state_dict()["samples"]) == (3, 15)
    assert len(loader.left_out) == 5


@ON
def test_without_batches_a_bad_sample_is_passed_over(kind: str) -> None:
    """batch_size=None: skip gives the next one, replace one of the whole dataset."""
    skipped = numbers(load(Numbers(6, {2, 4}), kind, None, on_error="skip"))
    replaced = numbers(load(Numbers(6, {2, 4}), kind, None, on_error="replace"))

    assert skipped == [[0], [1], [3], [5]]
    assert len(replaced) == 6
    assert {batch[0] for batch in replaced} <= {0, 1, 3, 5}


@ON
@DATASETS
def test_no_stand_in_comes_from_outside_an_order_of_the_users(kind: str, make: Any) -> None:
    """With a sampler of the user's, samples that it does not draw may be of another split: that is an error."""
    sampler = [3, 4, 11, 12, 7, 8]
    batches, errors = drain(iter(load(make(20, {3, 11, 12}), kind, 2, sampler=sampler, on_error="replace")))

    assert numbers(batches) == [[4, 4], [7, 8]]
    assert [type(error) for error in errors] == [SampleError]
    assert str(errors[0]).startswith("sample 11 cannot be built, nor can any of the 1 tried in its place")
    told = repr(errors[0].__cause__) + "".join(getattr(errors[0], "__notes__", ()))
    assert "bad 11" in told


@ON
def test_of_an_order_of_ours_the_whole_dataset_may_stand_in(kind: str) -> None:
    """Where the loader's own order draws from all of the dataset, a batch without a good sample takes others."""
    loader = load(Numbers(100, range(4)), kind, 4, on_error="replace")

    found = numbers(loader)

    assert len(found[0]) == 4
    assert min(found[0]) >= 4
    assert [lost.index for lost in loader.left_out] == [0, 1, 2, 3]


@ON
def test_stop_iteration_is_one_bad_sample(kind: str) -> None:
    """It ends neither the epoch nor the batch."""
    loader = load(Numbers(10, {7}, StopIteration), kind, on_error="skip")

    assert numbers(loader) == [[0, 1, 2, 3, 4], [5, 6, 8, 9]]
    assert [lost.index for lost in loader.left_out] == [7]
    assert loader.left_out[0].reason == "StopIteration was raised while a sample was built: bad 7"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "threads"])  # an interrupt reaches the main thread
def test_an_interrupt_is_no_bad_sample(kind: str) -> None:
    """KeyboardInterrupt inside a dataset is not put up with."""
    walk = iter(load(Numbers(10, {7}, KeyboardInterrupt), kind, on_error="skip"))
    next(walk)

    with pytest.raises(KeyboardInterrupt):
        next(walk)


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGSEGV])
@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_a_sample_that_kills_its_worker_is_left_out(sig: int, policy: str) -> None:
    """Once it has taken a few with it; the record says how they ended."""

    class Deadly(Numbers):
        def __getitem__(self, index: int) -> Any:
            if index in self.bad:
                os.kill(os.getpid(), sig)
                time.sleep(30)
            return index, 0.0

    loader = load(Deadly(10, {7}), "processes", on_error=policy)
    found = numbers(loader)

    assert found[0] == [0, 1, 2, 3, 4]
    assert found[1][:2] + found[1][-2:] == [5, 6, 8, 9]
    assert [(lost.index, lost.batch, lost.worker, lost.type) for lost in loader.left_out] == [(7, 1, 1, "WorkerError")]
    assert "killed by signal" in loader.left_out[0].reason


# ---------------------------------------------------------------- what is no sample's fault


@ON
@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_an_error_of_collation_is_raised(kind: str, policy: str) -> None:
    """It is nobody's sample: the batch is an error, named, and nothing is left out."""

    def collate(samples: list[Any]) -> Any:
        if samples[0][0] == 5:
            raise ZeroDivisionError("collate")
        return [sample[0] for sample in samples]

    loader = load(Numbers(15), kind, collate_fn=collate, on_error=policy)
    batches, errors = drain(iter(loader))

    assert batches == [[0, 1, 2, 3, 4], [10, 11, 12, 13, 14]]
    assert [type(error) for error in errors] == [ZeroDivisionError]
    assert loader.left_out == []


@ON
@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_an_error_of_the_sampler_is_raised(kind: str, policy: str) -> None:
    """The batches before it come; then its own error."""

    def sampler() -> Iterator[int]:
        yield from range(7)
        raise ConnectionError("sampler")

    loader = load(Numbers(15), kind, sampler=sampler(), on_error=policy)
    batches, errors = drain(iter(loader))

    assert numbers(batches) == [[0, 1, 2, 3, 4]]
    assert [type(error) for error in errors] == [ConnectionError]
    assert loader.left_out == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "serial"])
def test_an_error_of_worker_init_fn_is_raised(kind: str) -> None:
    """A worker that cannot begin has no bad sample."""

    def init(worker: int) -> None:
        raise LookupError(f"init {worker}")

    loader = load(Numbers(10), kind, worker_init_fn=init, on_error="skip")
    _, errors = drain(iter(loader))

    assert {type(error) for error in errors} == {LookupError}
    assert loader.left_out == []


@ON
def test_a_generator_that_has_raised_is_an_error(kind: str) -> None:
    """Nothing behind its error can be had: an epoch that ended there would be short, and nobody would know."""

    class Broken(ps.IterableDataset[Any]):
        def __iter__(self) -> Any:
            yield from ((i, 0.0) for i in range(3))
            raise ValueError("torn")

    loader = ps.DataLoader(Broken(), 2, on_error="skip", **alone(kind))
    batches, errors = drain(iter(loader))

    assert numbers(batches) == [[0, 1], [2]]
    assert [type(error) for error in errors] == [ValueError]
    assert "a generator ends when it raises" in str(errors[0]) + "".join(getattr(errors[0], "__notes__", ()))


@ON
def test_an_iterator_that_only_raises_is_an_error(kind: str) -> None:
    """After a hundred errors in a row it is taken to be broken; it does not spin for ever."""
    loader = ps.DataLoader(
        Source(1000, range(4, 1000)), 2, on_error="skip", max_errors=10**6,
        **alone(kind),
    )  # fmt: skip
    walk = iter(loader)
    first = numbers([next(walk), next(walk)])

    assert first == [[0, 1], [2, 3]]
    with pytest.raises(ValueError, match="bad") as caught:
        next(walk)
    assert "raised 100 times in a row" in str(caught.value) + "".join(getattr(caught.value, "__notes__", ()))


@ON
def test_an_end_right_behind_an_error_is_an_error(kind: str) -> None:
    """A stream without a length that ends where it failed: whether it was cut short nobody can say."""

    class Endless(Source):
        def __len__(self) -> int:
            raise TypeError("no length")

    loader = ps.DataLoader(Endless(5, {4}), 2, on_error="skip", **alone(kind))
    batches, errors = drain(iter(loader))

    assert numbers(batches)[:2] == [[0, 1], [2, 3]]
    assert [type(error) for error in errors] == [SampleError]
    assert "the stream ended directly after a sample that failed" in str(errors[0])


# ---------------------------------------------------------------- all are accounted for


@ON
@pytest.mark.parametrize("policy", ["skip", "replace"])
@pytest.mark.parametrize("make", [Numbers, Rows, Source])
def test_delivered_and_left_out_are_what_was_drawn(kind: str, policy: str, make: Any) -> None:
    """Over two epochs and any kind, each sample is either delivered or listed, once."""
    bad = {0, 4, 5, 6, 17, 36}
    shuffle = {} if make is Source else {"shuffle": True}
    loader = load(make(37, bad), kind, on_error=policy, **shuffle)
    for epoch in range(2):
        found = [number for batch in numbers(loader) for number in batch]
        lost = [int(one.reason.split()[1]) for one in loader.left_out if one.epoch == epoch]

        assert sorted(lost) == sorted(bad)
        if policy == "skip" or make is Source:
            assert sorted(found + lost) == list(range(37))
        else:
            assert len(found) == 37
            assert set(found) == set(range(37)) - bad
    delivered = 2 * (37 if policy == "replace" and make is not Source else 37 - len(bad))
    assert (loader.stats().samples, loader.stats().left_out) == (delivered, 2 * len(bad))


@given(
    st.integers(0, 40), st.sets(st.integers(0, 39)), st.integers(1, 9), st.booleans(), st.sampled_from([Numbers, Rows]),
    st.sampled_from(["serial", "threads"]),
)  # fmt: skip
def test_every_index_is_accounted_for(
    n: int, bad: set[int], batch_size: int, drop_last: bool, make: Any, kind: str
) -> None:
    """skip, any bad samples and any cut into batches: what comes and what is listed is what was drawn."""
    loader = load(make(n, bad), kind, batch_size, drop_last=drop_last, on_error="skip", max_errors=float("inf"))

    found, errors = drain(iter(loader))

    drawn = n - n % batch_size if drop_last else n
    lost = [one.index for one in loader.left_out]
    assert sorted([i for batch in numbers(found) for i in batch] + lost) == list(range(drawn))
    assert lost == sorted(bad & set(range(drawn)))
    assert [type(error) for error in errors] == ([SampleError] if drawn and len(lost) == drawn else [])


@ON
def test_a_batch_as_it_comes_brings_its_losses(kind: str) -> None:
    """in_order=False: listed when the batch is delivered, each once."""
    loader = load(Numbers(40, {3, 17, 39}), kind, on_error="skip", in_order=False)

    found = sorted(number for batch in numbers(loader) for number in batch)

    assert found == [i for i in range(40) if i not in {3, 17, 39}]
    assert sorted(lost.index for lost in loader.left_out) == [3, 17, 39]


@ON
def test_what_is_prefetched_is_not_listed(kind: str) -> None:
    """A sample is left out of a batch that was delivered, not of one that somebody has built ahead."""
    loader = load(Numbers(40, {3, 17, 39}), kind, on_error="skip")
    walk = iter(loader)
    next(walk)
    deadline = time.monotonic() + 60
    while (queue := loader.stats().queue).ready < queue.under_way:
        assert time.monotonic() < deadline, "batches are not built ahead"
        time.sleep(0.01)

    assert [lost.index for lost in loader.left_out] == [3]


# ---------------------------------------------------------------- how many are too many


@ON
@pytest.mark.parametrize(("limit", "n"), [(2, 40), (0.05, 40), (0, 40)])
@pytest.mark.parametrize("make", [Numbers, Rows])
def test_a_budget_that_is_spent_is_an_error(kind: str, limit: float, n: int, make: Any) -> None:
    """The batch that goes beyond it is an error that says the budget, how many failed, and why the first ones did."""
    bad = [1, 12, 13, 23, 30]
    loader = load(make(n, bad), kind, on_error="skip", max_errors=limit)
    walk = iter(loader)

    with pytest.raises(SampleError) as caught:
        for _ in walk:
            pass

    first = "0" if limit == 0 else "2"
    assert f"max_errors={limit}" in str(caught.value)
    assert "index 1: ValueError: bad 1" in str(caught.value)
    assert caught.value.where["batch"] == int(first)
    assert caught.value.where["index"] == (1 if limit == 0 else 13)


@ON
@pytest.mark.parametrize("limit", [5, 0.125, float("inf")])
def test_a_budget_that_is_kept_is_no_error(kind: str, limit: float) -> None:
    """As many as it allows, in each epoch anew."""
    loader = load(Numbers(40, [1, 12, 13, 23, 30]), kind, on_error="skip", max_errors=limit)

    for epoch in range(2):
        assert sum(map(len, numbers(loader))) == 35
        assert len(loader.left_out) == 5 * (epoch + 1)


def test_the_default_budget_is_a_hundred_or_one_in_a_hundred() -> None:
    """Of 5,000 samples 100 may be lost, of 20,000 200; one more is an error that says so."""
    for n, allowed in ((5_000, 100), (20_000, 200)):
        assert len(list(ps.DataLoader(Numbers(n, range(allowed)), 500, on_error="skip"))) == n // 500
        _, errors = drain(iter(ps.DataLoader(Numbers(n, range(allowed + 1)), 500, on_error="skip")))

        assert [type(error) for error in errors] == [SampleError]
        assert f"{allowed + 1} of" in str(errors[0])


def test_a_stream_of_unknown_length_is_judged_at_its_end() -> None:
    """A share of what was drawn, of a hundred at least until then: a few early losses are no error if many follow."""

    class Endless(Source):
        def __len__(self) -> int:
            raise TypeError("no length")

    long = ps.DataLoader(Endless(1000, range(4)), 20, on_error="skip", max_errors=0.05)
    short = ps.DataLoader(Endless(60, range(4)), 20, on_error="skip", max_errors=0.05)

    assert sum(map(len, numbers(long))) == 996
    batches, errors = drain(iter(short))
    assert sum(map(len, numbers(batches))) == 56
    assert [type(error) for error in errors] == [SampleError]
    assert str(errors[0]).startswith("4 of 60 samples drawn were left out, more than max_errors=0.05 allows (3 of 60)")


@ON
def test_an_epoch_of_nothing_is_an_error(kind: str) -> None:
    """Whatever the budget: if every sample fails, the fault is not the samples'."""
    batches, errors = drain(iter(load(Numbers(20, range(20)), kind, on_error="skip", max_errors=float("inf"))))

    assert batches == []
    assert [type(error) for error in errors] == [SampleError]
    assert "every one of the 20 samples drawn was left out" in str(errors[0])


@ON
@pytest.mark.parametrize("make", [Numbers, Source])
def test_a_resumed_epoch_has_spent_what_it_had(kind: str, make: Any) -> None:
    """The budget is the epoch's: a run that is resumed does not begin it anew."""
    given: dict[str, Any] = {"on_error": "skip", "max_errors": 3}
    loader = load(make(40, [1, 2, 13, 33, 38]), kind, **given)
    walk = iter(loader)
    for _ in range(4):
        next(walk)
    resumed = load(make(40, [1, 2, 13, 33, 38]), kind, **given)
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))

    with pytest.raises(SampleError, match="max_errors=3"):
        list(resumed)


# ---------------------------------------------------------------- the list, and the file


@ON
def test_a_record_says_where_it_was_kept(kind: str) -> None:
    """Store and key are the error's, if it knows; the index and the type too."""

    class Kept(Numbers):
        def __getitem__(self, index: int) -> Any:
            if index in self.bad:
                raise CorruptRecordError("checksum differs", store="cats.lmdb", key=f"cat/{index}.jpg")
            return index, 0.0

    loader = load(Kept(10, {7}), kind, on_error="skip")
    list(loader)

    [lost] = loader.left_out
    assert (lost.store, lost.key, lost.index, lost.epoch, lost.batch) == ("cats.lmdb", "cat/7.jpg", 7, 0, 1)
    assert (lost.type, lost.reason) == ("CorruptRecordError", "checksum differs")
    assert lost.worker == (1 if kind == "processes" else None)


@ON
def test_a_damaged_photograph_is_left_out_of_a_store(kind: str, tmp_path: Path) -> None:
    """A folder with a file that is no picture, by the native path: its key is listed, the others come."""
    from PIL import Image

    from penstock import transforms as T

    for number in range(8):
        Image.new("RGB", (40, 30), (number, 0, 0)).save(tmp_path / f"{number}.jpg")
    (tmp_path / "5.jpg").write_bytes((tmp_path / "5.jpg").read_bytes()[:200])
    pipeline = T.Pipeline([T.Decode(), T.CenterCrop(16), T.ToLayout("CHW", "uint8")])
    with ps.open(tmp_path) as store:
        dataset = ps.StoreDataset(store, fields="image", transform=pipeline)
        loader = load(dataset, kind, 4, on_error="skip")
        found = [batch.shape for batch in loader]

    assert found == [(4, 3, 16, 16), (3, 3, 16, 16)]
    [lost] = loader.left_out
    assert (lost.key, lost.index, lost.batch) == ("5.jpg", 5, 1)
    assert str(lost.store).endswith(str(tmp_path))
    assert lost.type == "DecodeError"


@ON
@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_the_log_is_lines_of_json(kind: str, policy: str, tmp_path: Path) -> None:
    """One for each sample left out, in the order of batches, behind what was there before."""
    log = tmp_path / "left-out.jsonl"
    log.write_text('{"index": "of another run"}\n')
    loader = load(Numbers(20, {3, 11, 12}), kind, on_error=policy, error_log=str(log))

    list(loader)

    lines = [json.loads(line) for line in log.read_text().splitlines()]
    worker = 0 if kind == "processes" else None
    assert lines[0] == {"index": "of another run"}
    assert lines[1:] == [
        {"store": None, "key": None, "index": index, "epoch": 0, "batch": index // 5, "worker": worker,
         "type": "ValueError", "reason": f"bad {index}"}
        for index in (3, 11, 12)
    ]  # fmt: skip


@ON
@pytest.mark.parametrize("make", [Numbers, Rows, Source])
def test_the_log_of_a_resumed_run_has_each_loss_once(kind: str, make: Any, tmp_path: Path) -> None:
    """Stopped and resumed at every batch, the file is the one of a run that was never stopped."""
    bad = {0, 3, 11, 12, 19}
    straight = load(make(20, bad), kind, on_error="skip", error_log=tmp_path / "straight")
    list(straight)
    state = straight.state_dict() | {"epoch": 0}
    while state["epoch"] == 0:
        loader = load(make(20, bad), kind, on_error="skip", error_log=tmp_path / "pieces")
        loader.load_state_dict(state)
        walk = iter(loader)
        next(walk, None)
        state = json.loads(json.dumps(loader.state_dict()))
        walk.close()

    assert (tmp_path / "pieces").read_text() == (tmp_path / "straight").read_text()
    assert len((tmp_path / "straight").read_text().splitlines()) == len(bad)


def test_a_log_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """A loss that nobody will read of is not passed over."""
    (tmp_path / "log").mkdir()
    walk = iter(ps.DataLoader(Numbers(4, {1}), 2, on_error="skip", error_log=tmp_path / "log"))

    with pytest.raises(IsADirectoryError):
        next(walk)


def test_an_index_that_json_does_not_know_is_written_as_text(tmp_path: Path) -> None:
    """Indices may be any object."""
    log = tmp_path / "log"
    samples = {("a", 1): 1, ("b", 2): 2}
    loader = ps.DataLoader(samples, 2, sampler=[("a", 1), frozenset({3}), ("b", 2)], on_error="skip", error_log=log)

    assert [batch.tolist() for batch in loader] == [[1], [2]]
    assert json.loads(log.read_text())["index"] == "frozenset({3})"
    assert loader.left_out[0].type == "KeyError"


def test_a_reason_is_not_a_book() -> None:
    """The list holds the newest ten thousand, each with a thousand characters at most; the count is of all."""

    class Verbose(Numbers):
        def __getitem__(self, index: int) -> Any:
            if index:
                raise ValueError(f"{index} " + "x" * 5000)
            return 0, 0.0

    loader = ps.DataLoader(Verbose(10_101), 1000, on_error="skip", max_errors=float("inf"))
    list(loader)

    assert len(loader.left_out) == 10_000
    assert loader.left_out[-1].index == 10_100
    assert len(loader.left_out[0].reason) == 1000
    assert loader.stats().left_out == 10_100


def test_the_list_is_a_copy() -> None:
    """Emptying it takes nothing from the loader."""
    loader = ps.DataLoader(Numbers(4, {1}), 2, on_error="skip")
    list(loader)

    loader.left_out.clear()

    assert len(loader.left_out) == 1


def test_a_pickled_loader_keeps_its_policy(tmp_path: Path) -> None:
    """Also its budget and its file."""
    loader = ps.DataLoader(Numbers(8, {1, 5}), 2, on_error="skip", max_errors=1, error_log=tmp_path / "log")

    _, errors = drain(iter(pickle.loads(pickle.dumps(loader))))

    assert [type(error) for error in errors] == [SampleError]
    assert len((tmp_path / "log").read_text().splitlines()) == 2


# ---------------------------------------------------------------- resuming


@pytest.mark.parametrize(
    ("kind", "policy"),
    [
        pytest.param(kind, policy, marks=pytest.mark.slow if (kind, policy) == ("processes", "skip") else ())
        for kind in KINDS
        for policy in ("skip", "replace")
    ],
)
@pytest.mark.parametrize("make", [Numbers, Rows, Source])
def test_resuming_gives_the_same_tail(kind: str, policy: str, make: Any) -> None:
    """At every batch: the rest is what it would have been, losses included, and no sample is lost or comes twice."""
    bad = {0, 6, 7, 8, 9, 10, 23}

    def fresh() -> ps.DataLoader:
        return load(make(30, bad), kind, on_error=policy)

    whole = fresh()
    straight = [(batch[0].tobytes(), batch[1].tobytes()) for batch in whole]
    for stop in range(len(straight) + 1):
        loader = fresh()
        walk = iter(loader)
        for _ in range(stop):
            next(walk)
        resumed = fresh()
        resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        walk.close()

        assert [(batch[0].tobytes(), batch[1].tobytes()) for batch in resumed] == straight[stop:]
        assert sorted(Counter(loader.left_out + resumed.left_out).values()) == [1] * len(whole.left_out)


@ON
def test_a_stream_that_raised_resumes_without_a_loss(kind: str) -> None:
    """raise: behind the error, what had come before it in its batch is delivered, also by a resumed run."""

    def fresh() -> ps.DataLoader:
        return ps.DataLoader(Source(12, {6}), 4, seed=0, **alone(kind))

    walks: list[list[int]] = []
    for stop in range(4):
        loader = fresh()
        walk = iter(loader)
        head: list[Any] = []
        for _ in range(stop):
            with contextlib.suppress(ValueError):
                head.append(next(walk))
        resumed = fresh()
        resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        walk.close()
        tail, _ = drain(iter(resumed))
        walks.append([i for batch in numbers(head + tail) for i in batch])

    assert walks == [[0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11]] * 4


def test_a_stream_that_is_shorter_than_its_state_is_refused() -> None:
    """Running forward over more than there is: the state is another stream's, and an empty epoch would hide it."""
    loader = ps.DataLoader(Source(20), 5)
    walk = iter(loader)
    for _ in range(3):
        next(walk)
    resumed = ps.DataLoader(Source(12), 5)
    resumed.load_state_dict(loader.state_dict())

    with pytest.raises(StateError, match=r"15 samples.*ended after 12"):
        next(iter(resumed))


@ON
@pytest.mark.parametrize(("on_error", "expected"), [("skip", [[0, 0], [0]]), ("replace", [[0, 0], [1, 0], [1]])])
def test_repeats_and_replaced_samples_are_found(kind: str, on_error: str, expected: list[list[int]]) -> None:
    """A row that the sampler repeats, or that stands in for another, is marked; rows left out have no mark."""
    data = Numbers(9, bad=[5, 8] if on_error == "replace" else [5, 0])
    sampler = ps.DistributedSampler(data, num_replicas=2, rank=1, shuffle=False)  # 1 3 5 7 0, and 0 is repeated
    loader = ps.DataLoader(data, 2, sampler=sampler, on_error=on_error, **KINDS[kind])

    found = [loader.find_repeats().tolist() for _ in loader]

    assert found == expected


def test_repeats_are_those_after_a_state_of_other_ranks() -> None:
    """Positions are counted from where the loader continues; without a batch there is nothing to say."""
    data = ps.ArrayDataset(np.arange(10))
    before = ps.DataLoader(data, 2, sampler=ps.DistributedSampler(data, num_replicas=2, rank=0, shuffle=False))
    next(iter(before))
    loader = ps.DataLoader(data, 2, sampler=ps.DistributedSampler(data, num_replicas=4, rank=3, shuffle=False))
    loader.load_state_dict(before.state_dict())
    with pytest.raises(ps.ArgumentError, match="call it in the loop"):
        loader.find_repeats()

    found = [(batch[0].tolist(), loader.find_repeats().tolist()) for batch in loader]

    assert found == [([7, 1], [False, True])]
    with pytest.raises(ps.ArgumentError, match="call it in the loop"):
        loader.find_repeats()


def test_torchs_sampler_does_not_say_what_it_repeats() -> None:
    """The drop-in finds the repeats of penstock's samplers, and refuses to guess those of torch's."""
    torch = pytest.importorskip("torch")
    from penstock.torch import DataLoader

    ours = ps.DistributedSampler(range(3), num_replicas=2, rank=1, shuffle=False)
    loader = DataLoader(range(3), 2, sampler=ours)
    assert [loader.find_repeats().tolist() for _ in loader] == [[False, True]]
    theirs = torch.utils.data.DistributedSampler(range(3), num_replicas=2, rank=1, shuffle=False)
    loader = DataLoader(range(3), 2, sampler=theirs)
    with pytest.raises(ps.ArgumentError, match="DistributedSampler does not say which samples it repeats"):
        [loader.find_repeats() for _ in loader]
