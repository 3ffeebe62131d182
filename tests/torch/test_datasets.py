"""torch's datasets that also fill: torch's semantics by comparison with torch, and filling equal to samples."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import transforms as T
from penstock.datasets.base import fetch, spec_of
from penstock.datasets.fingerprints import get_fingerprint
from penstock.sample import ArraySpec, SampleKeys, tree_leaves, tree_map

torch = pytest.importorskip("torch")

from torch.utils import data  # noqa: E402  # it is there now

import penstock.torch as pt  # noqa: E402  # as above
from penstock.torch.collate import as_batch  # noqa: E402  # as above
from penstock.torch.datasets import native  # noqa: E402  # as above


class Rows(data.Dataset[Any]):
    """A filler: row ``i`` says whose it is and which."""

    def __init__(self, n: int, name: int = 0) -> None:
        self.n, self.name = n, name

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        if not -self.n <= index < self.n:
            raise IndexError(index)
        return np.array([self.name, index % self.n])

    def spec(self) -> Any:
        """As the interface has it."""
        return ArraySpec((2,), np.dtype(np.int64))

    def fill(self, indices: Any, out: Any, keys: SampleKeys, rows: Any = None) -> None:
        """As the interface has it."""
        target = slice(len(indices)) if rows is None else rows
        out[target, 0], out[target, 1] = self.name, indices % self.n


NUMBERS: Any = range(20)
"""The smallest dataset there is; type checkers would have it declared one."""


class Plain(data.Dataset[Any]):
    """Samples that are only asked for one by one, and tell the key that they were built under."""

    def __init__(self, n: int = 10) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        return index, ps.rng().random()


def keys_for(indices: Any) -> SampleKeys:
    """Keys of some drawn indices."""
    return SampleKeys(1, 2, np.asarray(indices, np.int64))


def filled(dataset: Any, indices: Any) -> Any:
    """What the loader delivers of a fill of these rows."""
    out = tree_map(lambda leaf: np.full((len(indices), *leaf.shape), 99, leaf.dtype), spec_of(dataset))
    dataset.fill(np.asarray(indices, np.int64), out, keys_for(indices), np.arange(len(indices)))
    return as_batch(out)


def collated(dataset: Any, indices: Any) -> Any:
    """What the loader delivers of samples."""
    return pt.default_collate(fetch(dataset, indices, keys_for(indices)))


def same(one: Any, two: Any) -> bool:
    """Equal trees of tensors, dtypes too."""
    a, b = tree_leaves(one), tree_leaves(two)
    return len(a) == len(b) and all(x.dtype == y.dtype and torch.equal(x, y) for x, y in zip(a, b, strict=True))


# torch's semantics


def raised(act: Any) -> tuple[type[BaseException], str] | Any:
    """The value of a call, or type and text of its error."""
    try:
        return act()
    except Exception as error:  # noqa: BLE001  # compared with another's
        return type(error), str(error)


CALLS: dict[str, Any] = {
    "subset": lambda m: [m.Subset("abcdef", [4, 1, 1])[i] for i in (0, 1, 2, -1)],
    "subset of an index behind the end": lambda m: m.Subset("abc", [1])[1],
    "subset by a list": lambda m: m.Subset(np.arange(10) * 2, [4, 1, 1])[[0, 2]].tolist(),
    "subset many": lambda m: m.Subset("abcdef", [4, 1, 1]).__getitems__([2, 0]),
    "subset length": lambda m: len(m.Subset("abcdef", range(2))),
    "concat": lambda m: [m.ConcatDataset(["abc", "", "de"])[i] for i in (0, 2, 3, 4, -1, -5)],
    "concat below": lambda m: m.ConcatDataset(["abc", "de"])[-6],
    "concat behind": lambda m: m.ConcatDataset(["abc", "de"])[5],
    "concat of nothing": lambda m: m.ConcatDataset([]),
    "concat of streams": lambda m: m.ConcatDataset([data.ChainDataset([])]),
    "concat sizes": lambda m: m.ConcatDataset(["abc", "de"]).cumulative_sizes,
    "stack": lambda m: [m.StackDataset("abc", [1, 2, 3])[i] for i in (0, -1)],
    "stack by name": lambda m: m.StackDataset(x="abc", y=[1, 2, 3])[1],
    "stack many": lambda m: m.StackDataset("abc", [1, 2, 3]).__getitems__([2, 0]),
    "stack of nothing": lambda m: m.StackDataset(),
    "stack of both": lambda m: m.StackDataset("abc", x="abc"),
    "stack of lengths": lambda m: m.StackDataset("abc", "ab"),
    "tensors": lambda m: m.TensorDataset(torch.arange(3), torch.arange(3) * 2)[-1],
    "tensors of lengths": lambda m: m.TensorDataset(torch.arange(3), torch.arange(2)),
    "no tensors": lambda m: len(m.TensorDataset()),
    "split": lambda m: [part.indices for part in m.random_split(range(9), [4, 5], torch.Generator().manual_seed(3))],
    "split by parts": lambda m: [
        part.indices for part in m.random_split(range(9), [0.5, 0.3, 0.2], torch.Generator().manual_seed(3))
    ],
    "split by no parts": lambda m: m.random_split(range(9), [-0.5, 1.5]),
    "split that does not add up": lambda m: m.random_split(range(9), [4, 4]),
}


@pytest.mark.parametrize("call", CALLS)
def test_values_and_errors_are_torchs(call: str) -> None:
    """Same values, same errors with the same text, by torch's own code."""
    assert raised(lambda: CALLS[call](pt)) == raised(lambda: CALLS[call](data))


def test_a_split_draws_from_the_global_generator() -> None:
    """Without a generator, as torch draws: manual_seed fixes the split."""
    torch.manual_seed(5)
    theirs = [part.indices for part in data.random_split(NUMBERS, [12, 8])]
    torch.manual_seed(5)
    ours = pt.random_split(NUMBERS, [12, 8])

    assert [part.indices for part in ours] == theirs
    assert all(type(part) is pt.Subset for part in ours)


def test_an_empty_split_warns() -> None:
    """With torch's words."""
    with pytest.warns(UserWarning, match="Length of split at index 1 is 0"):
        pt.random_split(NUMBERS, [1.0, 0.0])


def test_a_subset_that_overrides_getitem_alone_is_refused() -> None:
    """As torch refuses it: batches would not see what it does."""

    class Half(pt.Subset[Any]):
        def __getitem__(self, idx: Any) -> Any:
            return 1

    with pytest.raises(NotImplementedError, match="overrides __getitem__ but not __getitems__"):
        Half(Rows(3), [0])


def test_a_sum_of_ours_fills() -> None:
    """`a + b` is penstock.torch's ConcatDataset, whatever b is."""
    wholes = [
        pt.Subset(Rows(3), [0]) + Rows(2),
        pt.ConcatDataset([Rows(1)]) + Rows(2),
        pt.TensorDataset(torch.ones(1, 2, dtype=torch.int64)) + Rows(2),
    ]

    assert all(type(whole) is pt.ConcatDataset and len(whole) == 3 for whole in wholes)
    assert filled(wholes[0], [0, 1, 2]).tolist() == [[0, 0], [0, 0], [0, 1]]


def test_they_pickle_without_what_they_can_make_again() -> None:
    """A copy in a worker process fills though nobody asked it for its spec."""
    dataset: Any = pt.Subset(pt.ConcatDataset([Rows(3), Rows(3, 1)]), [5, 0])
    size = len(pickle.dumps(dataset))
    dataset.spec()
    copy = pickle.loads(pickle.dumps(dataset))
    out = np.zeros((2, 2), np.int64)
    copy.fill(np.arange(2), out, keys_for([0, 1]))

    assert len(pickle.dumps(dataset)) == size
    assert out.tolist() == [[1, 2], [0, 0]]


# filling

_names = st.integers(0, 5)
_trees = st.recursive(
    st.tuples(st.just("rows"), st.integers(1, 6), _names),
    lambda inner: st.one_of(
        st.tuples(st.just("subset"), inner, st.lists(st.integers(-50, 50), max_size=6)),
        st.tuples(st.just("concat"), st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=6,
)


def built(tree: Any, module: Any) -> Any:
    """The dataset that a tree describes, of one module's classes."""
    if tree[0] == "rows":
        return Rows(*tree[1:])
    if tree[0] == "subset":
        inner = built(tree[1], module)
        return module.Subset(inner, [i % len(inner) - len(inner) * (i < 0) for i in tree[2]] if len(inner) else [])
    return module.ConcatDataset([built(part, module) for part in tree[1]])


@given(_trees, st.integers(0, 2**32))
def test_nested_wrappers_fill_what_torch_gives(tree: Any, seed: int) -> None:
    """Any nesting of ours and of torch's: filled rows are the samples of torch's own classes."""
    theirs, ours = built(tree, data), built(tree, pt)
    indices = np.random.default_rng(seed).integers(-len(ours), len(ours), size=7 if len(ours) else 0)
    expected = collated(theirs, indices.tolist()) if len(ours) else None

    if expected is not None:
        assert same(filled(ours, indices), expected)
        assert same(filled(native(theirs), indices), expected)
        assert same(collated(ours, indices.tolist()), expected)


def test_stacks_fill_side_by_side() -> None:
    """Tuples and dicts of what the parts fill."""
    by_place, by_name = pt.StackDataset(Rows(4), Rows(4, 1)), pt.StackDataset(a=Rows(4), b=Rows(4, 1))

    assert same(filled(by_place, [3, 1]), collated(by_place, [3, 1]))
    assert same(filled(by_name, [3, 1]), collated(by_name, [3, 1]))
    assert same(filled(native(data.StackDataset(a=Rows(4), b=Rows(4, 1))), [3, 1]), collated(by_name, [3, 1]))


DTYPES = [torch.uint8, torch.int64, torch.float16, torch.float32, torch.bool, torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_fill(dtype: Any) -> None:
    """Rows of tensors of every dtype that NumPy has, of any strides."""
    dataset = pt.TensorDataset((torch.arange(24) % 3).to(dtype).reshape(3, 8).T, torch.arange(8))

    assert same(filled(dataset, [7, 0, -1]), collated(dataset, [7, 0, -1]))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(3, requires_grad=True),
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(3, dtype=torch.complex64).conj(),
        torch.ones(3).to_sparse(),
        torch.nn.Parameter(torch.ones(3)),
    ],
)
def test_tensors_that_are_more_than_their_memory_do_not_fill(tensor: Any) -> None:
    """They are asked for samples, which is right for all of them."""
    assert spec_of(pt.TensorDataset(tensor)) is None


def test_changes_between_epochs_are_seen() -> None:
    """Users exchange a subset's indices or datasets between epochs; the next spec() sees it."""
    dataset = pt.Subset(Rows(9), [1, 2])
    before = filled(dataset, [0, 1])[:, 1].tolist()
    assert isinstance(dataset.indices, list)
    dataset.indices.reverse()
    swapped = filled(dataset, [0, 1])[:, 1].tolist()
    dataset.dataset = Rows(9, 4)

    assert (before, swapped) == ([1, 2], [2, 1])
    assert filled(dataset, [0])[:, 0].tolist() == [4]


class Labelled:
    """Looks labels up, as a pandas Series does; position 0 is not label 0."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, label: int) -> int:
        return {0: 2, 1: 1, 2: 0}[label]

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.arange(3)


@pytest.mark.parametrize(
    ("indices", "fills"),
    [
        ([], True),
        ((2, 1), True),
        (range(3), True),
        (np.array([2, 1], np.uint8), True),
        (torch.tensor([2, 1]), True),
        ([True, False], False),
        (["a"], False),
        ([[1], [1, 2]], False),
        (Labelled(), False),
    ],
)
def test_only_indices_that_are_understood_fill(indices: Any, fills: bool) -> None:
    """What else may stand for indices is used as it is, sample by sample."""
    assert (spec_of(pt.Subset(Rows(3), indices)) is not None) == fills


def test_labels_are_looked_up() -> None:
    """A sequence that is indexed by label gives the samples that torch gives."""
    subset = pt.Subset(Rows(3), Labelled())  # type: ignore[arg-type]  # no Sequence, but what users pass

    assert collated(subset, [0, 1, 2])[:, 1].tolist() == [2, 1, 0]


# who has the last word


def test_a_subclass_with_its_own_getitem_is_asked() -> None:
    """A transform in a subclass of Subset, ConcatDataset or StoreDataset is not passed over."""

    class Negated(pt.Subset[Any]):
        def __getitem__(self, idx: Any) -> Any:
            return -super().__getitem__(idx)  # type: ignore[no-untyped-call]  # torch's has no types

        def __getitems__(self, indices: list[int]) -> list[Any]:
            return [self[i] for i in indices]

    class Shifted(pt.ConcatDataset[Any]):
        def __getitem__(self, idx: Any) -> Any:
            return super().__getitem__(idx) + 100  # type: ignore[no-untyped-call]  # torch's has no types

    class Twice(ps.ArrayDataset):
        def __getitem__(self, index: Any) -> Any:
            return super().__getitem__(index)[0] * 2

    twice: Any = Twice(np.arange(3))
    datasets: list[Any] = [Shifted([Rows(3)]), twice, pt.Subset(twice, [2])]
    samples = [fetch(dataset, [0], keys_for([0]))[0].tolist() for dataset in datasets]

    assert [spec_of(dataset) for dataset in (*datasets, Negated(Rows(3), [2]))] == [None] * 4
    assert samples == [[100, 100], 0, 4]
    assert fetch(Negated(Rows(3), [2]), [0], keys_for([0]))[0].tolist() == [0, -2]


def test_a_proxy_is_asked() -> None:
    """A wrapper that finds all it lacks in what it wraps does not fill past its own `__getitem__`."""

    class Proxy:
        def __init__(self, dataset: Any) -> None:
            self.dataset = dataset

        def __getattr__(self, name: str) -> Any:
            return getattr(self.dataset, name)

        def __getitem__(self, index: int) -> Any:
            return "mine"

    assert spec_of(Proxy(Rows(3))) is None
    assert fetch(Proxy(Rows(3)), [0], keys_for([0])) == ["mine"]


def test_a_method_that_is_only_called_so_is_left_alone() -> None:
    """A user's `load_samples` that means something else is not called."""

    class Eager(Plain):
        def load_samples(self) -> None:
            raise AssertionError

    assert fetch(Eager(), [3], keys_for([3]))[0][0] == 3


# native


def test_torchs_own_become_ours_with_all_that_hangs_on_them() -> None:
    """Attributes are shared; the object itself is not changed."""
    theirs = data.Subset(Rows(3), [2, 0])
    theirs.classes = ["cat"]  # type: ignore[attr-defined]  # as users hang them on
    ours = native(theirs)

    assert type(ours) is pt.Subset
    assert ours.classes is theirs.classes  # type: ignore[attr-defined]  # as above
    assert ours.indices is theirs.indices
    assert type(theirs) is data.Subset


def test_only_the_very_types_are_exchanged() -> None:
    """A subclass may override anything, an object may carry its own `__getitems__`, and ours are ours already."""

    class Mine(data.ConcatDataset[Any]):
        pass

    patched = data.Subset(Rows(3), [0])
    patched.__getitems__ = None  # type: ignore[assignment,method-assign]  # a way to switch it off
    others: list[Any] = [Mine([Rows(1)]), patched, pt.Subset(Rows(3), [0]), Rows(3), [1, 2], ps.Subset(Rows(3), [0])]

    assert all(native(other) is other for other in others)
    assert spec_of(pt.Subset(patched, [0])) is None


def test_keys_reach_samples_inside_torchs_own_wrappers() -> None:
    """A split by torch of a dataset that draws from penstock.rng(): each sample under the key of its drawn index."""
    split: Any = data.Subset(data.ConcatDataset([Plain(), Plain()]), [13, 4, 13])
    drawn = fetch(native(split), [2, 1], keys_for([2, 1]))
    direct = fetch(Plain(), [3, 4], keys_for([2, 1]))

    assert drawn == direct


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_loader_fills_subsets(num_workers: int) -> None:
    """End to end: batches of a split are views of slots, and hold what its samples do."""
    part, _ = pt.random_split(Rows(20), [12, 8], torch.Generator().manual_seed(0))
    loader: Any = pt.DataLoader(part, 5, num_workers=num_workers)

    assert torch.cat(list(loader))[:, 1].tolist() == list(part.indices)


def test_a_subset_of_an_image_folder_fills(tmp_path: Path) -> None:
    """The training script's random_split of an ImageFolder decodes natively."""
    image = pytest.importorskip("PIL.Image")
    transforms = pytest.importorskip("torchvision").transforms
    for i in range(4):
        folder = tmp_path / "ab"[i % 2]
        folder.mkdir(exist_ok=True)
        image.fromarray(np.full((9, 12, 3), 50 * i, np.uint8)).save(folder / f"{i}.png")
    folder = pt.ImageFolder(tmp_path, transforms.Compose([transforms.Resize(8), transforms.ToTensor()]))
    crop = transforms.Compose([transforms.CenterCrop(8), transforms.ToTensor()])
    part: Any = data.Subset(pt.ImageFolder(tmp_path, crop), [3, 0])

    images, targets = filled(native(part), [0, 1])

    assert spec_of(pt.Subset(folder, [0])) is None  # of two sizes: nothing to fill
    assert targets.tolist() == [1, 0]
    assert torch.equal(images, collated(part, [0, 1])[0])


def test_fingerprints_are_those_of_what_is_inside(tmp_path: Path) -> None:
    """Another split, another folder: another fingerprint; a copy of the folder elsewhere has the same."""
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("torchvision")
    folders: list[Any] = []
    for place, names in (("one", "wx"), ("copy", "wx"), ("other", "wy")):
        for name in names:
            target = tmp_path / place / "cat" / f"{name}.png"
            target.parent.mkdir(parents=True, exist_ok=True)
            image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(target)
        folders.append(pt.ImageFolder(tmp_path / place))
    one, copy, other = folders
    wrappers: list[Any] = [
        lambda d: d,
        lambda d: pt.Subset(d, [1, 0]),
        lambda d: native(data.ConcatDataset([d, Plain()])),
        lambda d: pt.StackDataset(a=d, b=pt.TensorDataset(torch.arange(2))),
    ]

    for wrap in wrappers:
        assert get_fingerprint(wrap(one)) == get_fingerprint(wrap(copy)) != get_fingerprint(wrap(other))
    assert get_fingerprint(pt.Subset(one, [1])) != get_fingerprint(pt.Subset(one, [0]))
    assert get_fingerprint(pt.TensorDataset(torch.arange(2))) is None


@pytest.mark.parametrize("module", [data, pt])
def test_without_batching_a_list_is_one_index(module: Any) -> None:
    """batch_size=None with a batch sampler: the dataset is asked for the whole list at once, as torch asks."""

    class Vector(Plain):
        def __getitem__(self, index: Any) -> Any:
            return torch.arange(10)[index] * 2

    subset = module.Subset(Vector(), [5, 4, 3, 2, 1])
    cut = data.BatchSampler(data.SequentialSampler(subset), 2, drop_last=False)
    loader: Any = pt.DataLoader(subset, batch_size=None, sampler=cut)

    assert [batch.tolist() for batch in loader] == [[10, 8], [6, 4], [2]]


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight photographs of 40 by 30 pixels, with one to three objects each."""
    path: Path = tmp_path_factory.mktemp("objects") / "objects.lmdb"
    photo = ps.encode(np.arange(3600, dtype=np.uint8).reshape(30, 40, 3))
    boxes = [np.array([[1, 2, 20 + i, 20]] * (i % 3 + 1), np.float32) for i in range(8)]
    ps.pack([{"image": photo, "boxes": each, "labels": np.arange(len(each)), "name": "a"} for each in boxes], path)
    return path


def stack(samples: list[Any]) -> Any:
    """The collation of models such as SSD."""
    images, boxes, labels = zip(*samples, strict=True)
    return torch.stack(images), list(boxes), list(labels)


def objects_of(kind: Any, path: Path, fields: Any = ("image", "boxes", "labels"), **more: Any) -> Any:
    """A dataset of them, of one size."""
    ops = [T.Decode(), T.Resize((16, 16)), T.ToLayout("CHW", "float32")]
    return kind(path, fields, ops, kinds={"boxes": "boxes"}, **more)


@pytest.mark.parametrize("loader", [data.DataLoader, pt.DataLoader])
def test_a_collate_fn_gets_tensors_of_a_store(objects: Path, loader: Any) -> None:
    """As its name says, ``penstock.torch.StoreDataset`` gives what ``torch.stack`` takes; with torch's loader too."""
    images, boxes, labels = next(iter(loader(objects_of(pt.StoreDataset, objects), 3, collate_fn=stack)))
    arrays = [objects_of(ps.StoreDataset, objects)[i] for i in range(3)]

    assert torch.equal(images, torch.from_numpy(np.stack([sample[0] for sample in arrays])))
    assert [each.tolist() for each in boxes] == [sample[1].tolist() for sample in arrays]
    assert [each.tolist() for each in labels] == [[0], [0, 1], [0, 1, 2]]


@pytest.mark.parametrize(
    "more", [{"ragged": "padded"}, {"batch_form": "torchvision"}, {"batch_form": "nested"}], ids=str
)
@pytest.mark.parametrize("is_filled", [False, True])
def test_default_batches_of_tensors_are_those_of_arrays(objects: Path, more: Any, *, is_filled: bool) -> None:
    """Filled or built of samples, batches do not depend on which of the two classes the dataset is of."""
    fields = {name: name for name in ("image", "boxes", "labels", "name")}
    if is_filled:
        del fields["name"]
    batches = [
        list(pt.DataLoader(objects_of(kind, objects, fields, **more), 4, seed=0))
        for kind in (ps.StoreDataset, pt.StoreDataset)
    ]

    assert repr(batches[0]) == repr(batches[1])


def test_samples_of_tensors_may_be_written(objects: Path) -> None:
    """An array over the memory of a store is copied; what is no array stays as it is."""
    sample = pt.StoreDataset(objects)[1]
    sample["boxes"][:] = 0

    assert pt.StoreDataset(objects)[1]["boxes"].sum() > 0
    assert isinstance(sample["image"], bytes)
    assert sample["name"] == "a"


def test_samples_of_tensors_are_mixed(objects: Path) -> None:
    """What makes one sample of several takes them."""
    fields = {name: name for name in ("image", "boxes", "labels")}
    mixed = [
        next(
            iter(
                pt.DataLoader(
                    ps.SampleMixUp(kind(objects, fields, [T.Decode()], kinds={"boxes": "boxes"})), None, seed=0
                )
            )
        )
        for kind in (ps.StoreDataset, pt.StoreDataset)
    ]

    assert repr(mixed[0]) == repr(mixed[1])


def test_arrays_where_tensors_are_needed_bring_a_hint(objects: Path) -> None:
    """The error of ``torch.stack`` says which dataset gives tensors."""
    loader = pt.DataLoader(objects_of(ps.StoreDataset, objects), 3, collate_fn=stack)

    with pytest.raises(TypeError, match="but got numpy") as caught:
        next(iter(loader))

    assert any("penstock.torch.StoreDataset" in note for note in caught.value.__notes__)
