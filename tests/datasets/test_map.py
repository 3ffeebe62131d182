"""Map-style datasets: what they hold, what they refuse, and that filling equals collating."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.collate import default_collate, default_convert
from penstock.datasets.base import fetch, spec_of
from penstock.errors import ArgumentError, SampleError
from penstock.rng import uniforms
from penstock.sample import ArraySpec, SampleKeys, tree_leaves, tree_map


class Plain(ps.Dataset[Any]):
    """Squares, without filling."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: Any) -> Any:
        return index * index


class Noise(ps.Dataset[Any]):
    """A filler whose values depend on the key alone."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError

    def spec(self) -> Any:
        """As the interface has it."""
        return ArraySpec((2,), np.dtype(np.float64))

    def fill(self, indices: Any, out: Any, keys: SampleKeys, rows: Any = None) -> None:
        """As the interface has it."""
        out[slice(len(indices)) if rows is None else rows] = uniforms(keys, 0, 2) + indices[:, None]


def keys_for(indices: Any) -> SampleKeys:
    """Keys of some drawn indices."""
    return SampleKeys(1, 2, np.asarray(indices, np.int64))


def filled(dataset: Any, indices: Any, total: int, rows: Any) -> Any:
    """A batch of ``total`` rows of which ``rows`` are filled; the others hold 99."""
    out = tree_map(lambda leaf: np.full((total, *leaf.shape), 99, leaf.dtype), dataset.spec())
    dataset.fill(np.asarray(indices, np.int64), out, keys_for(indices), np.asarray(rows, np.int64))
    return out


ARRAYS = ps.ArrayDataset(np.arange(24).reshape(12, 2), np.linspace(0, 1, 12))
NAMED = ps.ArrayDataset(a=np.arange(12, dtype=np.int16), b=np.ones((12, 2), np.float32))
FILLERS = {
    "tuple": ARRAYS,
    "dict": NAMED,
    "subset": ps.Subset(ARRAYS, [3, 1, 1, 11, 0, 5, 7, 7, 2, 2, 9, 10]),
    "concat": ps.ConcatDataset([ps.Subset(ARRAYS, [0, 1, 2]), ps.Subset(ARRAYS, []), ps.Subset(ARRAYS, range(3, 12))]),
    "stack": ps.StackDataset(ARRAYS, ps.Subset(ARRAYS, list(range(12))[::-1])),
    "stack-dict": ps.StackDataset(x=ARRAYS, y=NAMED),
    "deep": ps.Subset(ps.ConcatDataset([ps.StackDataset(ARRAYS, NAMED), ps.StackDataset(ARRAYS, NAMED)]), range(4, 20)),
}


@pytest.mark.parametrize("mask", [[True, False], np.array([False, True])], ids=["list", "array"])
def test_a_mask_is_no_list_of_positions(mask: Any) -> None:
    """It would choose the first two samples, again and again."""
    with pytest.raises(ps.ArgumentError, match=r"got bools; of a mask, give numpy\.flatnonzero\(mask\)"):
        ps.Subset(ARRAYS, mask)


@pytest.mark.parametrize("name", FILLERS)
@given(st.lists(st.integers(-12, 11), min_size=1, max_size=20), st.randoms())
def test_filling_is_collating(name: str, indices: list[int], random: Any) -> None:
    """Whatever rows are asked for, filled rows hold what collated samples do, and no other row is touched."""
    dataset = FILLERS[name]
    if name in {"subset", "deep"}:
        indices = [index % 12 for index in indices]
    total = len(indices) + 5
    rows = random.sample(range(total), len(indices))

    out = filled(dataset, indices, total, rows)

    expected = default_collate([dataset[index] for index in indices])
    others = sorted(set(range(total)) - set(rows))
    for got, want in zip(tree_leaves(default_convert(out)), tree_leaves(expected), strict=True):
        assert got.dtype == want.dtype
        assert np.array_equal(got[rows], want)
        assert (got[others] == 99).all()


@pytest.mark.parametrize("name", FILLERS)
def test_loading_is_getting(name: str) -> None:
    """fetch() gives what indexing gives, whichever way a dataset loads."""
    dataset, indices = FILLERS[name], [4, 0, 4, 11]

    loaded = default_collate(fetch(dataset, indices, keys_for(indices)))

    expected = default_collate([dataset[index] for index in indices])
    assert all(np.array_equal(a, b) for a, b in zip(tree_leaves(loaded), tree_leaves(expected), strict=True))


def test_a_dataset_that_is_concatenated_twice_is_filled_once() -> None:
    """Repeats of one object share a call: chunks stay large however often a dataset is repeated."""
    calls = []

    class Counted(Noise):
        def fill(self, indices: Any, out: Any, keys: SampleKeys, rows: Any = None) -> None:
            calls.append(np.asarray(indices).tolist())
            super().fill(indices, out, keys, rows)

    one, other = Counted(), Counted()
    n = len(one)

    filled(ps.ConcatDataset([one, other, one]), [2 * n + 4, n + 3, 1], 3, [0, 1, 2])

    assert calls == [[4, 1], [3]]


def test_wrappers_pass_the_drawn_keys_on() -> None:
    """Randomness hangs on the index that the sampler drew, not on the inner one."""
    wrapped: ps.ConcatDataset[Any] = ps.ConcatDataset([ps.Subset(Noise(), [9, 8]), ps.Subset(Noise(), [7, 6, 5])])
    indices, rows = [4, 0, 3], [2, 0, 1]

    out = filled(wrapped, indices, 3, rows)

    assert np.array_equal(out[rows], uniforms(keys_for(indices), 0, 2) + np.array([[5], [9], [6]]))


def test_wrappers_run_samples_under_the_drawn_keys() -> None:
    """penstock.rng() inside a wrapped dataset gives the stream of the drawn index."""

    class Draws(ps.Dataset[Any]):
        def __len__(self) -> int:
            return 10

        def __getitem__(self, index: int) -> Any:
            return index, ps.rng().random()

    inner: ps.ConcatDataset[Any] = ps.ConcatDataset([ps.Subset(Draws(), [5]), Draws()])
    wrapped = ps.StackDataset(inner, range(11))
    direct = fetch(Draws(), [5], keys_for([0]))

    samples = fetch(wrapped, [0, 6], keys_for([0, 6]))

    assert samples[0] == (direct[0], 0)
    assert samples[1][0][1] != direct[0][1]


def test_a_dataset_without_spec_is_not_filled() -> None:
    """One child without a fixed shape, or two that differ, and nothing is filled."""
    assert spec_of(ps.ArrayDataset(np.array(["a", "b"]))) is None
    assert spec_of(ps.Subset(Plain(3), [0])) is None
    assert spec_of(ps.ConcatDataset([ARRAYS, NAMED])) is None
    assert spec_of(ps.StackDataset(ARRAYS, Plain(12))) is None
    assert spec_of(Plain(3)) is None


def test_datasets_add() -> None:
    """a + b is ConcatDataset([a, b])."""
    both = Plain(3) + Plain(2)

    assert isinstance(both, ps.ConcatDataset)
    assert [both[i] for i in range(5)] == [0, 1, 4, 0, 1]
    assert both[-1] == 1


@pytest.mark.parametrize(("index", "error"), [(5, IndexError), (-6, ValueError)])
def test_concat_refuses_what_is_outside(index: int, error: type[Exception]) -> None:
    """As torch: IndexError above, ValueError below."""
    with pytest.raises(error):
        (Plain(3) + Plain(2))[index]


@pytest.mark.parametrize(
    ("index", "error", "text"), [(12, IndexError, "12 is out of range of 12 samples"), (-13, ValueError, "-13 of 12")]
)
def test_concat_fills_nothing_outside(index: int, error: type[Exception], text: str) -> None:
    """The fast path refuses the same indices, with the same errors."""
    with pytest.raises(error, match=text):
        filled(FILLERS["concat"], [0, index], 2, [0, 1])


def test_arguments_that_mean_nothing_are_refused() -> None:
    """Each constructor says what it was given."""
    with pytest.raises(ArgumentError, match="empty iterable"):
        ps.ConcatDataset([])
    with pytest.raises(ArgumentError, match="does not support IterableDataset"):
        ps.ConcatDataset([ps.IterableDataset()])
    with pytest.raises(ArgumentError, match="both types"):
        ps.StackDataset(Plain(1), a=Plain(1))
    with pytest.raises(ArgumentError, match="At least one"):
        ps.StackDataset()
    with pytest.raises(ArgumentError, match=r"Size mismatch between datasets: \[1, 2\]"):
        ps.StackDataset(Plain(1), Plain(2))
    with pytest.raises(ArgumentError, match="Size mismatch between arrays"):
        ps.ArrayDataset(np.zeros(3), np.zeros(4))
    with pytest.raises(ArgumentError, match="Size mismatch between arrays"):
        ps.ArrayDataset(np.float64(3))
    with pytest.raises(ArgumentError, match="needs arrays"):
        ps.ArrayDataset()


def test_a_bare_dataset_says_what_to_define() -> None:
    """The base class's methods are for subclasses."""
    with pytest.raises(NotImplementedError, match="__getitem__"):
        ps.Dataset()[0]
    with pytest.raises(NotImplementedError, match="__iter__"):
        iter(ps.IterableDataset())


def test_a_subset_takes_lists_and_other_keys() -> None:
    """A list of positions goes to the inner dataset as a list; indices need not be ints."""

    class ByName(ps.Dataset[Any]):
        def __getitem__(self, index: Any) -> Any:
            return index

    names: Any = ["x", "y", "z"]
    subset: ps.Subset[Any] = ps.Subset(ByName(), names)

    assert subset[[0, 2]] == ["x", "z"]
    assert fetch(subset, [1, 2], keys_for([1, 2])) == ["y", "z"]
    assert subset.spec() is None


@pytest.mark.parametrize(
    ("n", "lengths", "expected"),
    [
        (10, [7, 3], [7, 3]),
        (10, [0.5, 0.5], [5, 5]),
        (10, [0.33, 0.33, 0.34], [4, 3, 3]),
        (7, [0.9, 0.1], [7, 0]),
        (0, [0, 0], [0, 0]),
    ],
)
@pytest.mark.filterwarnings("ignore:Length of split")
def test_random_split(n: int, lengths: list[float], expected: list[int]) -> None:
    """Lengths or fractions; the parts are disjoint, complete, shuffled by the seed."""
    parts = ps.random_split(Plain(n), lengths, seed=3)

    indices = [index for part in parts for index in part.indices]

    assert [len(part) for part in parts] == expected
    assert sorted(indices) == list(range(n))
    assert [list(part.indices) for part in ps.random_split(Plain(n), lengths, seed=3)] == [
        list(p.indices) for p in parts
    ]
    assert n < 5 or indices != list(range(n))


def test_random_split_by_another_seed_is_another() -> None:
    """The seed decides."""
    first, second = (ps.random_split(Plain(100), [100], seed=seed)[0].indices for seed in (0, 1))

    assert list(first) != list(second)


@pytest.mark.parametrize(
    ("lengths", "text"),
    [([5, 4], "Sum of input lengths"), ([0.5, 0.3], "Sum of input lengths"), ([1.5, -0.5], "not between")],
)
def test_random_split_refuses_what_does_not_add_up(lengths: list[float], text: str) -> None:
    """The message names the lengths."""
    with pytest.raises(ArgumentError, match=text):
        ps.random_split(Plain(10), lengths)


def test_random_split_warns_of_an_empty_part() -> None:
    """A fraction that comes to nothing is probably a mistake."""
    with pytest.warns(UserWarning, match="Length of split at index 1 is 0"):
        ps.random_split(Plain(3), [0.99, 0.01])


def test_fetch_names_the_index_and_keeps_the_type() -> None:
    """What a dataset raises stays catchable, and says for which index."""

    class Broken(ps.Dataset[Any]):
        def __getitem__(self, index: int) -> Any:
            if index == 3:
                raise KeyError("nothing")
            return index

    with pytest.raises(KeyError) as caught:
        fetch(Broken(), [1, 3, 5], keys_for([1, 3, 5]))

    assert caught.value.__notes__ == ["[index=3]"]


@pytest.mark.parametrize("error", [StopIteration("x"), GeneratorExit(), SystemExit(0), StopAsyncIteration()])
def test_what_would_end_an_epoch_silently_is_an_error(error: BaseException) -> None:
    """StopIteration from __getitem__ must not look like the end of the data (PEP 479)."""

    class Stops(ps.Dataset[Any]):
        def __getitem__(self, index: int) -> Any:
            raise error

    with pytest.raises(SampleError, match=type(error).__name__) as caught:
        fetch(Stops(), [7], keys_for([7]))

    assert caught.value.where == {"index": 7}
    assert caught.value.__cause__ is error


def test_getitems_is_used_and_checked() -> None:
    """torch's __getitems__ is asked for a whole chunk; a wrong number of samples is refused."""

    class Many(ps.Dataset[Any]):
        def __getitems__(self, indices: list[int]) -> list[int]:
            return [index * 10 for index in indices if index != 9]

    assert fetch(Many(), [1, 2], keys_for([1, 2])) == [10, 20]
    with pytest.raises(SampleError, match="returned 1 for 2 indices"):
        fetch(Many(), [1, 9], keys_for([1, 9]))


def test_an_error_in_getitems_names_the_chunk() -> None:
    """Which of them failed is not known: all are named."""

    class Many(ps.Dataset[Any]):
        def __getitems__(self, indices: list[int]) -> list[int]:
            raise OSError("gone")

    with pytest.raises(OSError, match="gone") as caught:
        fetch(Many(), [4, 5], keys_for([4, 5]))

    assert caught.value.__notes__ == ["[indices=[4, 5]]"]


def test_chains_open_one_stream_after_the_other() -> None:
    """ChainDataset yields each member's samples, checks members when their turn comes, and adds their lengths."""

    class Few(ps.IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter([1, 2])

        def __len__(self) -> int:
            return 2

    chain = Few() + Few()

    assert list(chain) == [1, 2, 1, 2]
    assert len(chain) == 4
    with pytest.raises(ArgumentError, match="only supports IterableDataset"):
        list(ps.ChainDataset([Few(), [3]]))
