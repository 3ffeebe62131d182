"""BatchSampler and SequentialSampler."""

from __future__ import annotations

import pytest

from penstock.errors import ArgumentError
from penstock.samplers import BatchSampler, RandomSampler, Sampler, SequentialSampler


@pytest.mark.parametrize(
    ("drop_last", "expected"), [(False, [[0, 1, 2], [3, 4, 5], [6]]), (True, [[0, 1, 2], [3, 4, 5]])]
)
def test_batches_are_lists(drop_last: bool, expected: list[list[int]]) -> None:
    """Indices come in lists of batch_size; the short last one is kept or dropped, and len() says which."""
    batches = BatchSampler(SequentialSampler(range(7)), 3, drop_last)

    assert list(batches) == expected
    assert len(batches) == len(expected)


def test_any_iterable_can_be_batched() -> None:
    """The inner sampler need not be ours, nor give ints."""
    assert list(BatchSampler(iter("abc"), 2, drop_last=False)) == [["a", "b"], ["c"]]


def test_without_a_length_there_is_none() -> None:
    """len() of batches of a stream is a TypeError, as Python's own."""
    with pytest.raises(TypeError):
        len(BatchSampler(iter("abc"), 2, drop_last=False))


@pytest.mark.parametrize("batch_size", [0, -1, 2.0, True, "3", None])
def test_a_batch_size_is_a_positive_integer(batch_size: object) -> None:
    """Anything else is refused, booleans too."""
    with pytest.raises(ArgumentError, match="batch_size should be a positive integer value"):
        BatchSampler(range(3), batch_size, drop_last=False)  # type: ignore[arg-type]  # wrong on purpose


def test_drop_last_is_a_boolean() -> None:
    """Truthy is not enough."""
    with pytest.raises(ArgumentError, match="drop_last should be a boolean value"):
        BatchSampler(range(3), 2, drop_last=3)  # type: ignore[arg-type]  # wrong on purpose


def test_set_epoch_reaches_the_inner_sampler() -> None:
    """Batches of epoch 1 are those of the inner sampler's epoch 1."""
    inner = RandomSampler(range(10), seed=0)
    batches = BatchSampler(inner, 5, drop_last=False)

    batches.set_epoch(1)

    assert [index for batch in batches for index in batch] == inner.order(0, 10, epoch=1).tolist()


def test_a_sequence_follows_its_source() -> None:
    """SequentialSampler reads the length anew at each use."""
    source = [1, 2]
    sampler = SequentialSampler(source)
    source.append(3)

    assert list(sampler) == [0, 1, 2]
    assert len(sampler) == 3


def test_the_base_class_wants_iter() -> None:
    """A sampler that defines nothing says what it lacks."""
    with pytest.raises(NotImplementedError, match="__iter__"):
        iter(Sampler())


@pytest.mark.parametrize("epoch", [-1, 1.5, True])
def test_an_epoch_is_a_count(epoch: object) -> None:
    """set_epoch takes non-negative ints."""
    with pytest.raises(ArgumentError, match="epoch"):
        SequentialSampler(range(3)).set_epoch(epoch)  # type: ignore[arg-type]  # wrong on purpose
