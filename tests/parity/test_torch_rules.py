"""The same as torch.utils.data, where the two can be compared: samplers, splitting, collation, arguments."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest

import penstock as ps
from penstock.collate import default_collate, default_convert
from penstock.sample import tree_leaves

torch = pytest.importorskip("torch")
data = pytest.importorskip("torch.utils.data")


class Point(NamedTuple):
    """A sample of two parts."""

    x: Any
    y: Any


class Ten(ps.Dataset[int]):
    """Ten samples, for either library."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        return index


class Numbers(data.IterableDataset):  # type: ignore[name-defined,misc]  # a module found at run time
    """A stream that both libraries know."""

    def __iter__(self) -> Any:
        return iter(range(7))


def outcome(call: Any) -> Any:
    """A call's result, or the error's built-in type and the beginning of its text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except Exception as error:  # noqa: BLE001  # what it is, is compared
            kinds = [
                kind for kind in (ValueError, TypeError, IndexError, KeyError, RuntimeError) if isinstance(error, kind)
            ]
            return kinds[0], str(error)[:25]


ARGUMENTS: list[dict[str, Any]] = [
    {"num_workers": -1}, {"timeout": -1}, {"prefetch_factor": 2}, {"prefetch_factor": -1, "num_workers": 1},
    {"persistent_workers": True}, {"sampler": [1], "shuffle": True}, {"sampler": [1], "shuffle": True,
    "batch_sampler": [[1]]},
    {"batch_sampler": [[1]], "batch_size": 2}, {"batch_sampler": [[1]], "batch_size": None}, {"batch_sampler": [[1]]},
    {"batch_sampler": [[1]], "drop_last": True}, {"batch_sampler": [[1]], "sampler": [1]}, {"batch_size": None,
    "drop_last": True},
    {"batch_size": 0}, {"batch_size": -2}, {"batch_size": 2.0}, {"batch_size": True}, {"batch_size": None},
    {"batch_size": 3},
    {"batch_size": 3, "drop_last": True}, {"drop_last": 3}, {"sampler": [4, 2]}, {"shuffle": 0},
]  # fmt: skip


@pytest.mark.parametrize("kwargs", ARGUMENTS, ids=str)
def test_arguments_mean_the_same(kwargs: dict[str, Any]) -> None:
    """Refused alike, in the same order of checks, with the same kind and beginning of text; or the same batches."""

    def run(kind: Any) -> Any:
        loader = kind(Ten(), **kwargs)
        return (
            len(loader),
            loader.batch_size,
            loader.drop_last,
            loader.prefetch_factor,
            [np.asarray(b).tolist() for b in loader],
        )

    assert outcome(lambda: run(ps.DataLoader)) == outcome(lambda: run(data.DataLoader))


@pytest.mark.parametrize(
    "kwargs",
    [{"shuffle": True}, {"sampler": [0]}, {"batch_sampler": [[0]]}, {"batch_size": 3}, {"batch_size": None}],
    ids=str,
)
def test_streams_mean_the_same(kwargs: dict[str, Any]) -> None:
    """Arguments that make no sense for a stream are refused alike; its batches are the same."""

    def run(kind: Any) -> Any:
        return [np.asarray(batch).tolist() for batch in kind(Numbers(), **kwargs)]

    assert outcome(lambda: run(ps.DataLoader)) == outcome(lambda: run(data.DataLoader))


@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("batch_size", [1, 3, 7])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_of_a_sequence_are_the_same(n: int, batch_size: int, drop_last: bool) -> None:
    """SequentialSampler and BatchSampler."""
    ours = ps.BatchSampler(ps.SequentialSampler(range(n)), batch_size, drop_last)
    theirs = data.BatchSampler(data.SequentialSampler(range(n)), batch_size, drop_last)

    assert list(ours) == list(theirs)
    assert len(ours) == len(theirs)


@pytest.mark.parametrize(
    "lengths",
    [[6, 4], [0.5, 0.5], [0.33, 0.33, 0.34], [0.25, 0.5], [0.9999, 0.0001], [5, 4], [1.2, -0.2], [10]],
    ids=str,
)
def test_splits_have_the_same_sizes(lengths: list[float]) -> None:
    """random_split: lengths, fractions, remainders and refusals."""
    ours = outcome(lambda: [len(part) for part in ps.random_split(Ten(), lengths)])
    theirs = outcome(lambda: [len(part) for part in data.random_split(Ten(), lengths)])

    assert ours == theirs


BATCHES: dict[str, list[Any]] = {
    "ints": [1, 2], "floats": [1.5, 2.5], "float first": [1.5, 2], "bools": [True, False], "strings": ["a", "b"],
    "bytes": [b"a", b"b"],
    "scalars": [np.float32(1), np.float32(2)], "uint8": [np.uint8(1), np.uint8(2)],
    "arrays": [np.ones((2, 3)), np.zeros((2, 3))],
    "float16": [np.ones(2, np.float16)] * 2, "tuples": [(1, "a"), (2, "b")], "lists": [[1, 2.0], [3, 4.0]],
    "dicts": [{"a": 1, "b": [2]}, {"a": 3, "b": [4]}], "named": [Point(1, 2), Point(3, 4)], "deep": [{"a": [(1,
    {"b": 2.0})]}] * 2,
    "extra key": [{"a": 1}, {"a": 2, "b": 3}], "empty tuple": [(), ()], "a range": [range(2), range(2)],
    "missing key": [{"a": 1, "b": 2}, {"a": 1}], "shapes": [np.ones(2), np.ones(3)], "lengths": [[1, 2], [3]],
    "none": [None, None],
    "sets": [{1}, {2}], "nothing": [], "object array": [np.array([None])] * 2, "text array": [np.array(["a"])] * 2,
}  # fmt: skip


@pytest.mark.parametrize("name", BATCHES)
def test_collation_is_the_same(name: str) -> None:
    """The same structure, dtypes and values, or the same kind of error."""

    def described(batch: Any) -> Any:
        if isinstance(batch, (torch.Tensor, np.ndarray)):
            return str(np.asarray(batch).dtype), np.asarray(batch).tolist()
        if isinstance(batch, dict):
            return {key: described(value) for key, value in batch.items()}
        if isinstance(batch, (list, tuple)) and all(isinstance(value, (str, bytes)) for value in batch):
            return list(
                batch
            )  # torch gives a tuple for strings that stood in a tuple, and a list elsewhere; ours is a list
        if isinstance(batch, (list, tuple)):
            return type(batch).__name__, [described(value) for value in batch]
        return batch

    def kind(result: Any) -> Any:
        return result[0] if isinstance(result, tuple) and isinstance(result[0], type) else result

    ours = kind(outcome(lambda: described(default_collate(BATCHES[name]))))
    theirs = kind(outcome(lambda: described(data.default_collate(BATCHES[name]))))

    assert ours == theirs


def test_conversion_has_the_same_structure() -> None:
    """default_convert: tuples become lists, named tuples and dicts stay."""
    sample = (1, "a", Point(np.ones(2), (3,)), {"k": (4,)}, [5])

    ours, theirs = default_convert(sample), data.default_convert(sample)

    assert [type(x) for x in ours] == [type(x) for x in theirs]
    assert type(ours) is type(theirs) is list
    assert len(tree_leaves(ours)) == len(tree_leaves(theirs))
    assert type(ours[2].y) is type(theirs[2].y) is list


@pytest.mark.parametrize("index", [0, 9, 19, -1, -20, 20, -21])
def test_concatenation_is_the_same(index: int) -> None:
    """Values, and which error for what is outside."""
    ours = outcome(lambda: ps.ConcatDataset([Ten(), Ten()])[index])
    theirs = outcome(lambda: data.ConcatDataset([Ten(), Ten()])[index])

    assert (ours[0] if isinstance(ours, tuple) else ours) == (theirs[0] if isinstance(theirs, tuple) else theirs)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_unshuffled_epochs_are_the_same(num_workers: int) -> None:
    """The same samples in the same batches in the same order."""
    dataset = data.TensorDataset(torch.arange(23), torch.rand(23, 2))

    ours = ps.DataLoader(dataset, 5, num_workers=num_workers)

    for mine, theirs in zip(ours, data.DataLoader(dataset, 5), strict=True):
        assert type(mine) is type(theirs) is list
        assert all(np.array_equal(a, b.numpy()) for a, b in zip(mine, theirs, strict=True))
