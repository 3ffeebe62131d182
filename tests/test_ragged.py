"""Arrays of different lengths in one batch: written by chunks in any order, joined in row order, in three forms."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.errors import ArgumentError, SampleError
from penstock.ragged import FORMS, Padded, Ragged, RaggedRows, RaggedSpec, check_form, join_rows

SPEC = RaggedSpec((4,), np.dtype(np.float32))


def boxes(count: int, seed: int = 0) -> NDArray[np.float32]:
    """So many boxes."""
    return np.random.default_rng([seed, count]).random((count, 4), np.float32)


def ragged(counts: list[int]) -> tuple[list[NDArray[np.float32]], Ragged]:
    """Arrays of these lengths, and the same as one."""
    arrays = [boxes(count, seed) for seed, count in enumerate(counts)]
    values = np.concatenate([*arrays, boxes(0)])
    return arrays, Ragged(values, np.cumsum([0, *counts]))


def assert_equal(found: Any, arrays: list[NDArray[Any]], form: str) -> None:
    """What a batch holds in one form is these arrays."""
    if form == "list":
        assert len(found) == len(arrays)
        for got, want in zip(found, arrays, strict=True):
            np.testing.assert_array_equal(got, want, strict=True)
    elif form == "flat":
        assert isinstance(found, Ragged)
        np.testing.assert_array_equal(found.values, np.concatenate(arrays), strict=True)
        assert found.counts.tolist() == [len(array) for array in arrays]
        assert found.offsets.dtype == np.int64
    else:
        assert isinstance(found, Padded)
        assert found.counts.tolist() == [len(array) for array in arrays]
        assert found.values.shape[:2] == (len(arrays), max(map(len, arrays)))
        for got, want in zip(found.values, arrays, strict=True):
            np.testing.assert_array_equal(got[: len(want)], want, strict=True)
            assert not got[len(want) :].any()


def test_ragged_is_a_sequence_of_views() -> None:
    """Arrays are reached by index from both ends, in order, and see what is written to the values."""
    arrays, found = ragged([2, 0, 3])

    found.values[0] = 7

    assert len(found) == 3
    assert [len(array) for array in found] == [2, 0, 3]
    np.testing.assert_array_equal(found[-1], arrays[2])
    assert found[0][0].tolist() == [7, 7, 7, 7]
    for outside in (3, -4):
        with pytest.raises(IndexError, match=r"index must be in \[-3, 3\)"):
            found[outside]


@pytest.mark.parametrize("counts", [[2, 0, 3], [0, 0], [1], []])
def test_padded_has_the_value_behind_each_array(counts: list[int]) -> None:
    """Every place behind an array holds the value; nothing else does."""
    arrays, found = ragged(counts)

    padded = found.padded(-1)

    assert padded.counts.tolist() == counts
    assert padded.values.shape == (len(counts), max(counts, default=0), 4)
    for row, array in zip(padded.values, arrays, strict=True):
        np.testing.assert_array_equal(row[: len(array)], array)
        assert (row[len(array) :] == -1).all()


def test_ragged_pickles() -> None:
    """It travels between processes."""
    arrays, found = ragged([1, 2])

    assert_equal(pickle.loads(pickle.dumps(found)), arrays, "flat")


def test_tensors_are_held_likewise() -> None:
    """A Ragged of tensors pads, moves and splits as one of arrays."""
    torch = pytest.importorskip("torch")
    arrays, found = ragged([2, 0, 1])
    tensors = Ragged(torch.from_numpy(found.values), torch.from_numpy(found.offsets))

    doubled = tensors.to(torch.float64)

    assert_equal([tensor.numpy() for tensor in tensors.list()], arrays, "list")
    np.testing.assert_array_equal(tensors.padded(3).values.numpy(), found.padded(3).values)
    assert doubled.values.dtype == torch.float64


@pytest.mark.parametrize("form", FORMS)
@given(
    counts=st.lists(st.integers(0, 5), min_size=1, max_size=12),
    chunk=st.integers(1, 5),
    order=st.randoms(use_true_random=False),
)
def test_chunks_in_any_order_give_the_batch(form: str, counts: list[int], chunk: int, order: Any) -> None:
    """Whatever the chunks and the order of rows within them, the batch holds the samples' arrays in order."""
    arrays, _ = ragged(counts)
    rows = list(range(len(counts)))
    order.shuffle(rows)
    chunks = [rows[start : start + chunk] for start in range(0, len(rows), chunk)]
    out = RaggedRows(RaggedSpec((4,), np.dtype(np.float32), form), len(counts))

    for mine in chunks:
        values = np.concatenate([arrays[row] for row in mine])
        out.write(np.array(mine), values, np.array([counts[row] for row in mine]))
    found = out.batch(np.arange(len(counts)), np.empty)

    assert_equal(found.list() if form == "list" and isinstance(found, Ragged) else found, arrays, form)
    assert_equal(join_rows(arrays, form), arrays, form)


def test_a_row_that_is_written_again_holds_the_last() -> None:
    """A sample that stands in for another takes its row; rows that are not kept are left out."""
    out = RaggedRows(SPEC, 3)
    out.write(np.arange(3), boxes(6), np.array([1, 2, 3]))

    out.write(np.array([1]), boxes(4, 9), np.array([4]))
    found = out.batch(np.array([0, 1]), np.empty)

    assert isinstance(found, Ragged)
    assert_equal(found.list(), [boxes(6)[:1], boxes(4, 9)], "list")


@pytest.mark.parametrize("form", FORMS)
@given(
    counts=st.lists(st.integers(0, 5), min_size=1, max_size=12),
    chunk=st.integers(1, 5),
    order=st.randoms(use_true_random=False),
    data=st.data(),
)
def test_arrays_are_joined_for_the_batch(form: str, counts: list[int], chunk: int, order: Any, data: Any) -> None:
    """Chunks of one array for each sample, or of one for all, in any order; some rows twice, and not all are kept."""
    arrays, _ = ragged(counts)
    rows = list(range(len(counts)))
    order.shuffle(rows)
    rows += data.draw(st.lists(st.sampled_from(rows), max_size=3))
    out = RaggedRows(RaggedSpec((4,), np.dtype(np.float32), form), len(counts))
    last = dict(enumerate(arrays))

    for start in range(0, len(rows), chunk):
        mine = rows[start : start + chunk]
        written = [boxes(counts[row], 100 + start) if start >= len(counts) else arrays[row] for row in mine]
        last |= dict(zip(mine, written, strict=True))
        if data.draw(st.booleans()):
            out.write_each(np.array(mine), written)
        else:
            out.write(np.array(mine), np.concatenate(written), np.array([len(array) for array in written]))
    kept = data.draw(st.lists(st.sampled_from(range(len(counts))), min_size=1, unique=True).map(sorted))
    found = out.batch(np.array(kept), np.empty)

    listed = found.list() if form == "list" and isinstance(found, Ragged) else found
    assert_equal(listed, [last[row] for row in kept], form)


def test_arrays_that_do_not_fit_the_spec_are_refused() -> None:
    """When they are joined, and there are as many as rows."""
    for wrong in (np.zeros((2, 5), np.float32), np.zeros((2, 4)), np.zeros(8, np.float32)):
        out = RaggedRows(SPEC, 2)
        out.write_each(np.arange(2), [boxes(1), wrong])
        with pytest.raises(ArgumentError, match=r"values must be float32 of shape \(n, 4\), got .*" + str(wrong.dtype)):
            out.batch(np.arange(2), np.empty)
    with pytest.raises(ArgumentError, match="one for each of 2 samples, got 1"):
        RaggedRows(SPEC, 2).write_each(np.arange(2), [boxes(1)])


def test_what_does_not_fit_the_spec_is_refused() -> None:
    """Shape, dtype and lengths are compared; a row that nobody wrote is named."""
    out = RaggedRows(SPEC, 2)

    for values in (np.zeros((2, 5), np.float32), np.zeros((2, 4)), np.zeros(8, np.float32)):
        with pytest.raises(ArgumentError, match=r"values must be float32 of shape \(n, 4\)"):
            out.write(np.arange(2), values, np.array([1, 1]))
    for lengths in ([1], [1, 2], [3, -1]):
        with pytest.raises(ArgumentError, match="lengths must have one number for each of 2 samples"):
            out.write(np.arange(2), boxes(2), np.array(lengths))
    out.write(np.array([0]), boxes(2), np.array([2]))
    with pytest.raises(SampleError, match="nothing for row 1"):
        out.batch(np.arange(2), np.empty)


def test_arrays_of_several_dtypes_or_shapes_are_not_joined() -> None:
    """The error names the entry; a list takes them all the same."""
    for odd in (np.zeros((1, 5), np.float32), np.zeros((1, 4)), np.float32(3)):
        arrays = [boxes(2), np.asarray(odd)]
        for form in ("flat", "padded"):
            with pytest.raises(SampleError, match="at entry 1"):
                join_rows(arrays, form)
        assert join_rows(arrays, "list") == arrays


def test_a_form_that_is_not_there_is_refused() -> None:
    """The error lists the forms."""
    with pytest.raises(ArgumentError, match="ragged must be one of list, padded, flat, got 'stacked'"):
        check_form("stacked")
