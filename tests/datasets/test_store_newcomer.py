"""What people try with a store and a StoreDataset: it works, or one sentence says what to do."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import transforms as T
from penstock.collate import default_collate
from penstock.datasets.base import fetch, spec_of
from penstock.errors import ArgumentError, RecordIndexError, SampleError, StoreFormatError, StoreNotFoundError
from penstock.sample import SampleKeys, tree_leaves, tree_map
from tests.datasets.test_store_dataset import AUGMENT, MemoryStore
from tests.pack.images import make_photos

KEYS = SampleKeys(5, 1, np.arange(12, dtype=np.int64))


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """Three pictures of three classes, packed."""
    make_photos(tmp_path / "photos", 3, ("cats", "dogs", "birds"))
    ps.pack(tmp_path / "photos", tmp_path / "photos.lmdb")
    return tmp_path / "photos.lmdb"


def filled(dataset: Any, indices: Any, keys: SampleKeys) -> Any:
    """What the dataset writes for some indices."""
    out = tree_map(lambda leaf: np.zeros((len(indices), *leaf.shape), leaf.dtype), dataset.spec())
    dataset.fill(np.asarray(indices), out, keys)
    return out


# paths


@pytest.mark.parametrize("spell", [str, Path, lambda path: f"lmdb://{path}"])
def test_a_dataset_takes_a_path(pack: Path, spell: Any) -> None:
    """It opens the store itself, as ps.open does; a copy in another process opens it again."""
    dataset = ps.StoreDataset(spell(pack), ("image", "label"), AUGMENT)
    given = ps.StoreDataset(ps.open(pack), ("image", "label"), AUGMENT)

    image, label = fetch(dataset, [2], KEYS[2:3])[0]

    assert label == 2
    np.testing.assert_array_equal(image, fetch(given, [2], KEYS[2:3])[0][0])
    assert dataset.fingerprint() == given.fingerprint()
    assert len(pickle.loads(pickle.dumps(dataset))) == 3


def test_a_path_that_is_not_there_is_said(tmp_path: Path) -> None:
    """By ps.open's error."""
    with pytest.raises(StoreNotFoundError, match=r"nothing\.lmdb"):
        ps.StoreDataset(tmp_path / "nothing.lmdb")


@pytest.mark.parametrize("given", [[np.zeros(3)], None, 3, (7,), {"a": 1}])
@pytest.mark.parametrize("door", ["open", "dataset"])
def test_what_is_no_path_is_refused(given: Any, door: str) -> None:
    """Pictures in memory too: they go into a folder."""
    wrong = given[0] if isinstance(given, list | tuple) else given
    doors: dict[str, Any] = {"open": ps.open, "dataset": ps.StoreDataset}

    with pytest.raises(ArgumentError, match=rf"path.*got {type(wrong).__name__}.*folder"):
        doors[door](given)


@pytest.mark.parametrize("door", ["open", "dataset"])
def test_a_list_of_pictures_is_no_store(door: str, tmp_path: Path) -> None:
    """A list names the files of one store; pictures that are not there are named, those that are there are no store."""
    doors: dict[str, Any] = {"open": ps.open, "dataset": ps.StoreDataset}
    pictures = [tmp_path / "a.jpg", tmp_path / "b.jpg"]
    with pytest.raises(StoreNotFoundError, match=r"a\.jpg"):
        doors[door](pictures)
    for picture in pictures:
        picture.write_bytes(b"\xff\xd8\xff")

    with pytest.raises(StoreFormatError, match="folder of images"):
        doors[door](pictures)


# indexing


def test_a_store_is_indexed() -> None:
    """By ints, from either end, by NumPy's too, and by slices; and iterated."""
    store = MemoryStore()

    assert store[0].key == "class/0.jpg"
    assert store[-1].index == 11
    assert store[np.int64(3)].index == 3
    assert [record.index for record in store[2:9:3]] == [2, 5, 8]
    assert [record.index for record in store[-2:]] == [10, 11]
    assert store[5:5] == []
    assert [record.index for record in store] == list(range(12))


@pytest.mark.parametrize("index", [12, -13])
def test_a_store_refuses_what_is_outside(index: int) -> None:
    """The error names the index that was given."""
    with pytest.raises(RecordIndexError, match=rf"index {index} is outside this store of 12 records"):
        MemoryStore()[index]


@pytest.mark.parametrize("index", [b"class/0.jpg", 1.5, None, [1, 2], (1, 2)])
@pytest.mark.parametrize("what", ["store", "dataset"])
def test_an_index_is_an_int_or_a_slice(index: Any, what: str) -> None:
    """Of a store and of a dataset; a key has a way of its own."""
    held: Any = MemoryStore() if what == "store" else ps.StoreDataset(MemoryStore(), "label")

    with pytest.raises(ArgumentError, match=rf"an int or a slice, got {type(index).__name__}"):
        held[index]


def test_a_dataset_is_indexed() -> None:
    """A slice gives a list of samples, each as it would come alone."""
    dataset: Any = ps.StoreDataset(MemoryStore(), ("label", "name"))

    assert dataset[2:4] == [dataset[2], dataset[3]]
    assert dataset[-1] == dataset[11] == dataset[np.int64(11)]
    assert dataset[::-1][0] == dataset[11]
    assert dataset[20:] == []
    assert list(dataset) == [dataset[i] for i in range(12)]


def test_samples_of_a_slice_are_augmented_apart() -> None:
    """Two slices differ, as two single samples do: nobody has fixed a seed."""
    dataset = ps.StoreDataset(MemoryStore(), "image", AUGMENT)

    first, second = dataset[0:2], dataset[0:2]

    assert any((a != b).any() for a, b in zip(first, second, strict=True))


def test_tensors_are_indices() -> None:
    """Samplers of one's own often give them."""
    torch = pytest.importorskip("torch")
    dataset = ps.StoreDataset(MemoryStore(), "label")

    assert dataset[torch.tensor(4)] == dataset[4]


# index and key


def test_index_and_key_are_fields_of_every_record() -> None:
    """The number in the store, also from the end, and the name."""
    dataset = ps.StoreDataset(MemoryStore(), ("label", "index", "key"))

    assert dataset[4] == (1, 4, "class/4.jpg")
    assert dataset[-1][1] == 11
    assert fetch(dataset, [-2], KEYS[:1])[0][1] == 10


def test_the_index_is_filled() -> None:
    """Beside the image, as int64, by the store's own numbers also in a subset."""
    dataset = ps.StoreDataset(MemoryStore(), {"x": "image", "number": "index", "y": "label"}, AUGMENT)
    part: Any = ps.Subset(dataset, [7, 3, 11, 0])

    out = filled(part, [0, 2, 3], KEYS[:3])

    assert out["number"].tolist() == [7, 11, 0]
    assert out["number"].dtype == np.int64
    assert filled(dataset, [-1, 2], KEYS[:2])["number"].tolist() == [11, 2]
    expected = default_collate(fetch(part, [0, 2, 3], KEYS[:3]))
    for name in expected:
        np.testing.assert_array_equal(out[name], expected[name])
        assert out[name].dtype == expected[name].dtype


def test_the_index_alone_is_filled() -> None:
    """Without reading a record."""
    store = MemoryStore()

    out = filled(ps.StoreDataset(store, "index"), [3, 1], KEYS[:2])

    assert out.tolist() == [3, 1]
    assert store.reads == 0


def test_a_key_is_text_and_not_filled() -> None:
    """Samples are collated, keys stay a list."""
    dataset = ps.StoreDataset(MemoryStore(), ("image", "key"), AUGMENT)

    assert spec_of(dataset) is None
    assert next(iter(ps.DataLoader(dataset, 2)))[1] == ["class/0.jpg", "class/1.jpg"]


def test_fields_of_the_store_come_first() -> None:
    """A store that has a field of this name gives that."""
    store = MemoryStore(fields={"image": "image", "index": "int"})
    for i, record in enumerate(store):
        record.fields["index"] = 100 + i  # type: ignore[index]  # a dict, in this store

    dataset = ps.StoreDataset(store, ("index", "key"))

    assert dataset[2] == (102, "class/2.jpg")
    assert filled(ps.StoreDataset(store, "index"), [2], KEYS[:1]).tolist() == [102]


def test_every_field_does_not_mean_these() -> None:
    """fields=None are the store's own; the error for a wrong name tells of them."""
    assert {"index", "key"}.isdisjoint(ps.StoreDataset(MemoryStore())[0])
    with pytest.raises(ArgumentError, match=r"no field 'idx'; this store has: image.*index and key"):
        ps.StoreDataset(MemoryStore(), "idx")


# target_transform


def twice(label: int) -> int:
    """A target transform."""
    return 2 * label + 1


def test_a_target_transform_is_called_with_the_label() -> None:
    """In samples and in rows that are filled, which stay filled where it gives ints."""
    dataset = ps.StoreDataset(MemoryStore(), ("image", "label"), AUGMENT, target_transform=twice)
    plain = ps.StoreDataset(MemoryStore(), ("image", "label"), AUGMENT)

    out, before = filled(dataset, [1, 5, -1], KEYS[:3]), filled(plain, [1, 5, -1], KEYS[:3])

    np.testing.assert_array_equal(out[0], before[0])
    assert out[1].tolist() == [twice(label) for label in before[1].tolist()]
    assert [sample[1] for sample in fetch(dataset, [1, 5], KEYS[:2])] == out[1].tolist()[:2]
    assert dataset[5][1] == twice(2)


@pytest.mark.parametrize(("transform", "dtype"), [(float, np.float64), (lambda y: y / 2, np.float64), (int, np.int64)])
def test_a_target_may_become_a_float(transform: Any, dtype: Any) -> None:
    """Filled with the dtype that collation gives."""
    dataset = ps.StoreDataset(MemoryStore(), ("image", "label"), AUGMENT, target_transform=transform)

    out = filled(dataset, [1, 5], KEYS[:2])[1]

    assert out.dtype == default_collate([sample[1] for sample in fetch(dataset, [1, 5], KEYS[:2])]).dtype == dtype


@pytest.mark.parametrize("transform", [str, lambda y: [y, y], lambda y: np.eye(3)[y], lambda y: ps.rng().integers(9)])
def test_other_targets_are_collated(transform: Any) -> None:
    """Text, one-hot rows, and what draws from the sample's generator."""
    dataset = ps.StoreDataset(MemoryStore(), ("image", "label"), AUGMENT, target_transform=transform)
    loaders = [ps.DataLoader(dataset, 4, seed=0, num_workers=n, workers=w) for n, w in ((0, "auto"), (2, "threads"))]

    one, two = ([json.dumps(np.array(batch[1]).tolist()) for batch in loader] for loader in loaders)

    assert spec_of(dataset) is None
    assert one == two


def test_a_target_of_another_type_than_the_first_is_an_error() -> None:
    """Rows have one type; the record is named."""
    dataset = ps.StoreDataset(
        MemoryStore(), ("image", "label"), AUGMENT, target_transform=lambda y: y if y < 2 else str(y)
    )

    with pytest.raises(SampleError, match=r"'2'.*collate_fn") as caught:
        filled(dataset, [0, 2], KEYS[:2])

    assert caught.value.where["index"] == 2


def test_a_failing_target_transform_is_placed() -> None:
    """Store, key and index, on either path; the error keeps its type."""

    def fail(label: int) -> int:
        if label == 2:
            raise LookupError("mine")
        return label

    dataset = ps.StoreDataset(MemoryStore(), ("image", "label"), AUGMENT, target_transform=fail)

    runs: list[Callable[[], Any]] = [lambda: filled(dataset, [0, 2], KEYS[:2]), lambda: dataset[2]]
    for run in runs:
        with pytest.raises(LookupError) as caught:
            run()
        assert "key='class/2.jpg', index=2" in " ".join(caught.value.__notes__)


@pytest.mark.parametrize("fields", ["image", ("image", "name"), {"x": "image", "w": "weight"}])
def test_a_target_transform_needs_a_label(fields: Any) -> None:
    """The error says what gets the whole sample."""
    with pytest.raises(ArgumentError, match=r"label.*transform="):
        ps.StoreDataset(MemoryStore(), fields, AUGMENT, target_transform=twice)


# transforms


@pytest.mark.parametrize(
    "transform",
    [[T.Decode(), T.CenterCrop(8)], (T.Decode(), T.CenterCrop(8)), T.Pipeline([T.Decode(), T.CenterCrop(8)])],
)
def test_a_list_of_ops_is_a_pipeline(transform: Any) -> None:
    """As people write it who know Compose."""
    dataset = ps.StoreDataset(MemoryStore(), ("image", "label"), transform)

    assert dataset[0][0].shape == (8, 8, 3)
    assert dataset.spec() is not None


def test_one_op_is_a_pipeline() -> None:
    """Decode alone, say."""
    assert ps.StoreDataset(MemoryStore(), "image", T.Decode())[0].shape == (30, 40, 3)


@pytest.mark.parametrize("transform", [T.Decode, "flip", 3])
def test_what_is_no_transform_is_refused(transform: Any) -> None:
    """At once."""
    with pytest.raises(ArgumentError, match=r"T\.Decode\(\)|callable"):
        ps.StoreDataset(MemoryStore(), "image", transform)


def test_a_transform_in_place_of_fields_is_refused() -> None:
    """Fields come second, as the error says."""
    with pytest.raises(ArgumentError, match=r"fields.*transform="):
        ps.StoreDataset(MemoryStore(), AUGMENT)  # type: ignore[arg-type]  # the mistake under test


def test_another_transform_counts_at_once() -> None:
    """As in torchvision's datasets: evaluation with the same dataset; what is filled changes too."""
    dataset = ps.StoreDataset(MemoryStore(), ("image", "label"), AUGMENT)

    dataset.transform = T.Pipeline([T.Decode(), T.CenterCrop(5), T.ToLayout("HWC", "uint8")])
    dataset.target_transform = twice

    assert dataset[3][0].shape == (5, 5, 3)
    assert [leaf.shape for leaf in tree_leaves(dataset.spec())] == [(5, 5, 3), ()]
    assert next(iter(ps.DataLoader(dataset, 4)))[1].tolist() == [1, 3, 5, 1]
    dataset.transform = None
    assert type(dataset[3][0]) is bytes


def test_the_text_says_what_it_is() -> None:
    """Store, number of samples, fields, transform, and whether batches are filled."""
    dataset = ps.StoreDataset(MemoryStore(), ("image", "label"), AUGMENT)

    assert repr(dataset).startswith("StoreDataset(<MemoryStore ")
    assert "fields=('image', 'label')" in repr(dataset)
    assert "RandomResizedCrop" in repr(dataset)


@pytest.mark.parametrize("given", ["photos.lmdb", Path("photos.lmdb"), MemoryStore()])
def test_a_loader_asks_for_a_dataset(given: Any) -> None:
    """A path's characters are no samples, nor are a store's records."""
    with pytest.raises(ArgumentError, match=r"dataset.*StoreDataset"):
        ps.DataLoader(given, 4)


def test_a_dataset_says_the_names_of_its_classes(tmp_path: Path) -> None:
    """In the order of their numbers; none without labels."""
    ps.pack(
        [{"label": name} for name in (1, 0)], tmp_path / "named.lmdb", schema={"label": "label"}, classes=["cat", "dog"]
    )
    ps.pack([{"value": 1}], tmp_path / "plain.lmdb")

    assert ps.StoreDataset(ps.open(tmp_path / "named.lmdb"), "label").classes == ["cat", "dog"]
    assert ps.StoreDataset(ps.open(tmp_path / "plain.lmdb"), "value").classes == []
