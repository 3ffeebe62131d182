"""Who is asked for which samples, how and when: every call that torch's loader makes, ours makes, in the same order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch.utils import data  # noqa: E402  # it is there now

import penstock as ps  # noqa: E402  # as above
import penstock.torch as pt  # noqa: E402  # as above
from penstock.datasets.base import fetch  # noqa: E402  # as above
from penstock.rng import sample_scope  # noqa: E402  # as above
from penstock.sample import ArraySpec, SampleKeys  # noqa: E402  # as above
from penstock.torch.datasets import native  # noqa: E402  # as above

CALLS: list[Any] = []
"""What leaves were asked for: name, method, index or indices, and what was drawn meanwhile."""


class Leaf(data.Dataset[Any]):
    """Says how it is asked; its samples are drawn from a global generator."""

    def __init__(self, name: str, n: int, fails: int | None = None) -> None:
        self.name, self.n, self.fails = name, n, fails

    def __len__(self) -> int:
        CALLS.append((self.name, "__len__"))
        return self.n

    def __getitem__(self, index: Any) -> Any:
        drawn = random.random()
        CALLS.append((self.name, "__getitem__", repr(index), drawn))
        if index == self.fails:
            raise LookupError(f"{self.name} has no {index}")
        if not isinstance(index, list) and not -self.n <= index < self.n:
            raise IndexError(index)
        return self.name, index, drawn


class Rows(Leaf):
    """Fills, for whom its samples are collated as they are by default."""

    def __getitem__(self, index: Any) -> Any:
        CALLS.append((self.name, "__getitem__", repr(index)))
        return np.array([index % self.n])

    def spec(self) -> Any:
        """As the interface has it."""
        return ArraySpec((1,), np.dtype(np.int64))

    def fill(self, indices: Any, out: Any, keys: SampleKeys, rows: Any = None) -> None:
        """As the interface has it."""
        out[rows] = indices[:, None] % self.n


class Many(Leaf):
    """Also takes several indices at once, and draws once for all of them."""

    def __getitems__(self, indices: Any) -> Any:
        drawn = random.random()
        CALLS.append((self.name, "__getitems__", repr(indices), drawn))
        if self.fails in indices:
            raise LookupError(f"{self.name} has no {self.fails}")
        return [(self.name, index, drawn) for index in indices]


class Fewer(Many):
    """Leaves out what it does not like."""

    def __getitems__(self, indices: Any) -> Any:
        return [sample for sample in super().__getitems__(indices) if sample[1] % 3]


class Whole(Many):
    """Gives a batch that is none of samples."""

    def __getitems__(self, indices: Any) -> Any:
        return {"names": self.name, "samples": super().__getitems__(indices)}


class Off(Many):
    """Has switched it off."""

    __getitems__: Any = None


LEAVES: dict[str, Any] = {
    "leaf": Leaf,
    "many": Many,
    "fewer": Fewer,
    "whole": Whole,
    "off": Off,
    "list": lambda name, n, fails: [f"{name}{i}" for i in range(n)],  # a list does not fail
    "tensors": None,
}


def built(tree: Any, module: Any) -> Any:
    """The dataset that a tree describes, of one module's classes."""
    kind, *rest = tree
    if kind == "tensors":
        return module.TensorDataset(torch.arange(rest[1]))
    if kind in LEAVES:
        return LEAVES[kind](*rest)
    if kind == "subset":
        inner = built(rest[0], module)
        return module.Subset(inner, [place % len(inner) for place in rest[1] if len(inner)])
    parts = [built(part, module) for part in rest[0]]
    if kind == "concat":
        return module.ConcatDataset(parts)
    count = min(map(len, parts))
    parts = [module.Subset(part, range(count)) if len(part) > count else part for part in parts]
    if kind == "stack":
        return module.StackDataset(*parts)
    return module.StackDataset(**{f"f{i}": part for i, part in enumerate(parts)})


def outcome(make: Any, dataset: Any, **arguments: Any) -> Any:
    """Every batch or error, with the calls that had been made by then."""
    random.seed(5)
    torch.manual_seed(6)
    CALLS.clear()
    seen: list[Any] = []

    def calls() -> list[Any]:
        """Without those for a length: an IndexError's note tells it."""
        return [call for call in CALLS if call[1] != "__len__"]

    try:
        walk = iter(make(dataset, collate_fn=list_or_as_it_is, **arguments))
        for _ in range(40):
            try:
                seen.append((repr(next(walk)), calls()))
            except StopIteration:
                break
            except Exception as error:  # noqa: BLE001  # whatever it is, both must raise it
                kind = next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")
                seen.append((kind, str(error), calls()))  # an error of penstock's own is one of these too
    except ValueError as error:  # nothing to shuffle
        seen.append(str(error))
    return seen, calls(), random.random()


def list_or_as_it_is(samples: Any) -> Any:
    """The type of what the dataset gave, and what is in it."""
    return type(samples), samples


_names = st.sampled_from("abcdef")
_leaves = st.tuples(
    st.sampled_from(sorted(LEAVES)), _names, st.integers(1, 6), st.one_of(st.none(), st.none(), st.integers(0, 5))
)
_trees = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.tuples(st.just("subset"), inner, st.lists(st.integers(0, 50), max_size=6)),
        st.tuples(st.just("concat"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.sampled_from(["stack", "fields"]), st.lists(inner, min_size=1, max_size=2)),
    ),
    max_leaves=6,
)


@given(_trees, st.sampled_from([None, 1, 3, 4]), st.booleans())
@example(("concat", [("leaf", "a", 6, None), ("leaf", "b", 6, None)]), 4, True)
@example(("many", "a", 6, None), None, True)
@example(("subset", ("whole", "a", 6, None), [1, 2, 3, 4]), 3, False)
@example(("concat", [("fields", [("leaf", "a", 3, None), ("many", "b", 3, None)])] * 2), 4, True)
def test_samples_are_asked_for_as_torch_asks(tree: Any, batch_size: int | None, shuffle: bool) -> None:
    """Any nesting, of ours and of torch's own: the same methods of the same datasets, in the same order, and errors."""
    arguments = {"batch_size": batch_size, "shuffle": shuffle}
    expected = outcome(data.DataLoader, built(tree, data), **arguments)

    assert outcome(pt.DataLoader, built(tree, pt), **arguments) == expected
    assert outcome(pt.DataLoader, built(tree, data), **arguments) == expected


@pytest.mark.parametrize("kind", ["concat", "stack", "fields", "subset"])
@pytest.mark.parametrize("leaf", [Leaf, Rows])
def test_no_dataset_is_asked_for_its_length_again(kind: str, leaf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A length may be costly, or change: torch asks when a wrapper is made, and its samplers ask; nobody else."""
    monkeypatch.setitem(LEAVES, "leaf", leaf)
    parts = [("leaf", "a", 6, None), ("leaf", "b", 6, None)]
    tree = ("subset", parts[0], [5, 1, 1]) if kind == "subset" else (kind, parts)
    seen = []
    for make, module in ((data.DataLoader, data), (pt.DataLoader, pt), (pt.DataLoader, data)):
        dataset = built(tree, module)
        CALLS.clear()
        loader = make(dataset, 4, shuffle=True)
        batches = [len(list(loader)) for _ in range(2)]
        seen.append((batches, [call for call in CALLS if call[1] == "__len__"]))

    assert seen[1] == seen[0]
    assert seen[2] == seen[0]


@pytest.mark.parametrize("module", [data, pt])
def test_exchanged_datasets_are_found_where_torch_finds_them(module: Any) -> None:
    """ConcatDataset keeps the sizes of its construction; a part that is exchanged is indexed by these."""
    got = []
    for make in (data.DataLoader, pt.DataLoader):
        whole = module.ConcatDataset([Rows("a", 2), Rows("b", 3)])
        whole.datasets[0] = Rows("c", 50)
        got.append([batch.tolist() for batch in make(whole, 2)])

    assert got[0] == got[1] == [[[0], [1]], [[0], [1]], [[2]]]


@pytest.mark.parametrize("module", [data, pt])
def test_attributes_that_are_set_in_mid_epoch_count_at_once(module: Any) -> None:
    """Without workers, a dataset that is changed is asked as it is now, also where it is one of torch's own."""
    got = []
    for make in (data.DataLoader, pt.DataLoader):
        subset = module.Subset([f"s{i}" for i in range(9)], [0, 1, 2, 3])
        walk = iter(make(subset, 2))
        got.append([next(walk)])
        subset.indices = [5, 6, 7, 8]
        got[-1].append(next(walk))

    assert got[0] == got[1] == [["s0", "s1"], ["s7", "s8"]]


INDICES: dict[str, Any] = {
    "numbers of NumPy's": [[np.int64(1), np.int64(4)], [np.int64(0)]],
    "tensors": [[torch.tensor(1), torch.tensor(4)]],
    "behind the end": [[1, 99, 2], [3]],
    "before the start": [[1, -99, 2], [3]],
    "negative": [[-1, -5]],
    "lists": [[[1, 2], [3]]],
    "bools": [[True, False]],
}


@pytest.mark.parametrize("indices", INDICES)
@pytest.mark.parametrize("kind", ["leaf", "many", "concat", "subset", "stack"])
def test_odd_indices_reach_datasets_as_torch_passes_them(kind: str, indices: str) -> None:
    """An index of another type, or outside, is asked for in its turn, and fails as it does with torch."""
    leaves: list[Any] = [("leaf", "a", 3, None), ("many", "b", 3, None)]
    trees: dict[str, Any] = {
        "leaf": ("leaf", "a", 6, None),
        "many": ("many", "a", 6, None),
        "concat": ("concat", leaves),
        "subset": ("subset", ("concat", leaves), [5, 0, 3, 2, 4]),
        "stack": ("stack", [("concat", leaves), ("many", "c", 6, None)]),
    }
    batches = {"batch_sampler": INDICES[indices]}

    assert outcome(pt.DataLoader, built(trees[kind], pt), **batches) == outcome(
        data.DataLoader, built(trees[kind], data), **batches
    )


class Reads(ps.Dataset[Any]):
    """Reads several records at once, and builds each sample when it is asked for, as a store's dataset does."""

    def __init__(self, name: str, n: int) -> None:
        self.name, self.n = name, n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        return self.name, index, ps.rng().random(), random.random()

    def load_samples(self, indices: Any, keys: SampleKeys) -> Iterator[Any]:
        """As the interface has it."""
        CALLS.append((self.name, list(indices)))
        for index, drawn in zip(indices, keys.indices.tolist(), strict=True):
            with sample_scope(keys.seed, keys.epoch, drawn):
                sample = self[index]
            yield sample


@pytest.mark.parametrize("module", [data, pt, ps])
def test_reads_are_grouped_and_samples_built_in_the_order_of_indices(module: Any) -> None:
    """Datasets one after the other, some of which load many at once: one read for each, no draw out of turn."""
    whole = module.ConcatDataset(
        [Reads("a", 3), module.Subset(module.StackDataset(Reads("b", 4), Leaf("c", 4)), [3, 0, 2]), Leaf("d", 2)]
    )
    indices = [4, 7, 0, 3, 6, 2, 5]
    keys = SampleKeys(1, 2, np.asarray(indices))
    random.seed(3)
    CALLS.clear()
    found = fetch(native(whole), indices, keys)
    reads = [call for call in CALLS if len(call) == 2]
    random.seed(3)
    expected = []
    for index in indices:
        with sample_scope(1, 2, index):
            expected.append(whole[index])

    assert found == expected
    assert reads == [("b", [0, 3, 2]), ("a", [0, 2])]


BATCHES: dict[str, Any] = {
    "tuples": [(1, 4), (0,)],
    "arrays": [np.array([1, 4]), np.array([0])],
    "tensors": torch.arange(6).split(4),
    "ranges": [range(2), range(2, 5)],
    "none": [[], [1], []],
}


@pytest.mark.parametrize("batches", BATCHES)
@pytest.mark.parametrize("kind", ["leaf", "many", "whole", "subset", "stack"])
def test_getitems_is_given_what_the_batch_sampler_gave(kind: str, batches: str) -> None:
    """An array stays one, and no indices are a question too."""
    many = ("many", "a", 6, None)
    tree: Any = {"subset": ("subset", many, [0, 1, 2, 3, 4, 5]), "stack": ("stack", [many, many])}.get(
        kind, (kind, "a", 6, None)
    )
    arguments = {"batch_sampler": BATCHES[batches]}

    assert outcome(pt.DataLoader, built(tree, pt), **arguments) == outcome(
        data.DataLoader, built(tree, data), **arguments
    )
