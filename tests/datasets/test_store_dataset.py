"""StoreDataset: how fields shape samples, that filling equals the general path, and what errors name."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import penstock as ps
from penstock import transforms as T
from penstock.collate import default_collate, default_convert
from penstock.datasets.base import fetch
from penstock.errors import ArgumentError, CorruptRecordError, DecodeError, RecordIndexError
from penstock.sample import SampleKeys, tree_leaves, tree_map
from tests.pack.images import make_photos

FIELDS = {"image": "image", "label": "label", "weight": "float", "vector": "float32[4]", "name": "text", "raw": "bytes"}


class MemoryStore(ps.Store):
    """A store of generated pictures, kept in memory."""

    kind = "memory"

    def __init__(self, count: int = 12, broken: int | None = None, fields: dict[str, str] = FIELDS) -> None:
        super().__init__("memory")
        self.reads = 0
        self._schema = ps.Schema({name: ps.Field(kind) for name, kind in fields.items()})
        self._records = [self._make(i, i == broken) for i in range(count)]

    @staticmethod
    def _make(i: int, broken: bool) -> ps.Record:
        pixels = np.random.default_rng(i).integers(0, 255, (30 + i, 40, 3), np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=90)
        encoded = b"\xff\xd8 no picture" if broken else file.getvalue()
        vector = np.arange(4, dtype=np.float32) + i
        fields = {
            "image": memoryview(encoded),
            "label": i % 3,
            "weight": i / 2,
            "vector": vector,
            "name": f"n{i}",
            "raw": memoryview(b"r"),
        }
        return ps.Record(i, f"class/{i}.jpg", fields)

    @property
    def schema(self) -> ps.Schema:
        """As the interface has it."""
        return self._schema

    def __len__(self) -> int:
        return len(self._records)

    def read(self, indices: Iterable[int] | NDArray[np.int64]) -> list[ps.Record]:
        """As the interface has it."""
        self.reads += 1
        for index in indices:
            self._refuse_outside(index)
        return [self._records[i] for i in indices]

    def column(self, field: str) -> NDArray[Any]:
        """As the interface has it."""
        return np.array([record.fields[field] for record in self._records])

    def keys(self) -> Sequence[str]:
        """As the interface has it."""
        return [record.key for record in self._records]

    def digest(self) -> str:
        """As the interface has it."""
        return "memory"

    @classmethod
    def recognises(cls, path: str) -> bool:
        """As the interface has it."""
        return False


AUGMENT = T.Pipeline([T.Decode(), T.RandomResizedCrop(16), T.HorizontalFlip(), T.ToLayout("CHW", "uint8")])
EVERY = SampleKeys(5, 1, np.arange(12, dtype=np.int64))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (("label", "weight"), (1, 2.0)),
        (["name"], ("n4",)),
        ("label", 1),
        ({"y": "label", "n": "name"}, {"y": 1, "n": "n4"}),
    ],
)
def test_fields_shape_the_sample(fields: Any, expected: Any) -> None:
    """A tuple gives tuples, a string the bare value, a mapping dicts under its own names."""
    sample = ps.StoreDataset(MemoryStore(), fields=fields)[4]

    assert sample == expected
    assert type(sample) is type(expected)


def test_no_fields_means_every_field() -> None:
    """None gives a dict of all fields; without a transform images are encoded bytes."""
    sample = ps.StoreDataset(MemoryStore())[2]

    assert list(sample) == list(FIELDS)
    assert type(sample["image"]) is type(sample["raw"]) is bytes
    assert sample["image"].startswith(b"\xff\xd8")


def test_an_unknown_field_is_refused_at_once() -> None:
    """The message lists what there is."""
    with pytest.raises(ArgumentError, match="no field 'lable'; this store has: image, label"):
        ps.StoreDataset(MemoryStore(), fields=("image", "lable"))
    with pytest.raises(ArgumentError, match="at least one field"):
        ps.StoreDataset(MemoryStore(), fields=())


def test_any_callable_gets_the_whole_sample() -> None:
    """A transform that is no pipeline is called with the sample as shaped."""
    dataset = ps.StoreDataset(MemoryStore(), fields=("label", "name"), transform=lambda sample: {"both": sample})

    assert dataset[4] == {"both": (1, "n4")}
    assert dataset.spec() is None


def test_negative_indices_count_from_the_end() -> None:
    """As in a list; outside is an IndexError that names the store."""
    dataset = ps.StoreDataset(MemoryStore(), fields="name")

    assert dataset[-1] == "n11"
    assert fetch(dataset, [-12, 11], EVERY[:2]) == ["n0", "n11"]
    for outside in (12, -13):
        with pytest.raises(RecordIndexError, match="memory"):
            dataset[outside]


@pytest.mark.parametrize(
    "fields",
    [
        ("image", "label"),
        "image",
        {"x": "image", "w": "weight", "v": "vector"},
        ("label", "weight"),
        ("vector", "image"),
        "label",
    ],
)
def test_filling_is_collating(fields: Any) -> None:
    """The rows that are filled equal the collated samples of the general path, bit for bit and dtype for dtype."""
    uses_image = "image" in (
        fields.values() if isinstance(fields, dict) else [fields] if isinstance(fields, str) else fields
    )
    dataset = ps.StoreDataset(MemoryStore(), fields, AUGMENT if uses_image else None)
    indices = np.array([3, 0, 11, 3, -1])
    keys, rows = EVERY[[3, 0, 11, 4, 5]], np.array([6, 0, 2, 5, 1])
    out = tree_map(lambda leaf: np.full((7, *leaf.shape), 7, leaf.dtype), dataset.spec())

    dataset.fill(indices, out, keys, rows)

    expected = default_collate(fetch(dataset, indices.tolist(), keys))
    for got, want in zip(tree_leaves(default_convert(out)), tree_leaves(expected), strict=True):
        assert got.dtype == want.dtype
        assert np.array_equal(got[rows], want)
        assert (got[[3, 4]] == 7).all()


def test_numbers_alone_are_filled_without_reading_records() -> None:
    """Labels come from the column: no record is touched."""
    store = MemoryStore()
    dataset = ps.StoreDataset(store, fields=("label", "weight"))
    out = tree_map(lambda leaf: np.zeros((2, *leaf.shape), leaf.dtype), dataset.spec())

    dataset.fill(np.array([4, 5]), out, EVERY[:2])

    assert store.reads == 0
    assert out[0].tolist() == [1, 2]


@pytest.mark.parametrize("fields", [None, ("image", "name"), "raw"])
def test_what_has_no_fixed_shape_is_not_filled(fields: Any) -> None:
    """Text and bytes go the general path, and fill() says so."""
    dataset = ps.StoreDataset(MemoryStore(), fields, AUGMENT if fields != "raw" else None)

    assert dataset.spec() is None
    with pytest.raises(ArgumentError, match="no fixed shape"):
        dataset.fill(np.array([0]), None, EVERY[:1])


def test_images_of_several_shapes_are_not_filled() -> None:
    """A pipeline that leaves sizes as they are has nothing to fill; samples are still right."""
    dataset = ps.StoreDataset(MemoryStore(), "image", T.Pipeline([T.Decode()]))

    assert dataset.spec() is None
    assert dataset[5].shape == (35, 40, 3)


@pytest.mark.parametrize("wrong", [np.ones(1, np.float32), np.zeros((1, 4), np.float32), np.arange(4.0), np.float32(7)])
def test_an_array_that_is_not_of_the_schema_is_refused(wrong: Any) -> None:
    """A store's array of another shape or dtype is one error, filled or not: a row is never broadcast or cast."""
    store = MemoryStore()
    store._records[5] = ps.Record(5, "class/5.jpg", {**store._records[5].fields, "vector": wrong})
    dataset = ps.StoreDataset(store, "vector")

    with pytest.raises(CorruptRecordError, match=r"field 'vector' must be float32 of .* got float") as filled:
        dataset.fill(EVERY.indices, np.zeros((12, 4), np.float32), EVERY)
    with pytest.raises(CorruptRecordError) as built:
        list(dataset.load_samples(range(12), EVERY))

    assert str(filled.value) == str(built.value)
    assert filled.value.where == {"store": store.url, "key": "class/5.jpg", "index": 5}


@pytest.mark.parametrize("path", ["fill", "fetch"])
def test_an_undecodable_record_is_named(path: str) -> None:
    """Store, key and index of the record that is broken, on either path, and the first of a chunk."""
    dataset = ps.StoreDataset(MemoryStore(broken=7), ("image", "label"), AUGMENT)
    indices = np.array([1, 7, 2])
    out = tree_map(lambda leaf: np.zeros((3, *leaf.shape), leaf.dtype), dataset.spec())

    def run() -> None:
        if path == "fill":
            dataset.fill(indices, out, EVERY[[1, 7, 2]])
        else:
            fetch(dataset, indices.tolist(), EVERY[[1, 7, 2]])

    with pytest.raises(DecodeError) as caught:
        run()

    where = {name: caught.value.where[name] for name in ("store", "key", "index")}
    assert where == {"store": dataset.store.url, "key": "class/7.jpg", "index": 7}


def test_a_failing_callable_keeps_its_type_and_is_placed() -> None:
    """An error of the user's transform is the same object, with a note of store, key and index."""
    error = LookupError("mine")

    def fail(sample: Any) -> Any:
        raise error

    with pytest.raises(LookupError) as caught:
        fetch(ps.StoreDataset(MemoryStore(), "label", fail), [3], EVERY[3:4])

    assert caught.value is error
    assert "key='class/3.jpg', index=3" in " ".join(caught.value.__notes__)


def test_a_broken_image_is_told_once() -> None:
    """Where one image of a chunk prevents the plan of all, its error is the only one of the traceback."""
    dataset = ps.StoreDataset(MemoryStore(broken=7), ("image", "label"), AUGMENT)

    with pytest.raises(ps.DecodeError) as caught:
        list(ps.DataLoader(dataset, 12))

    assert caught.value.__context__ is None
    assert caught.value.where["index"] == 7


@pytest.mark.parametrize(
    ("fields", "words"),
    [("image", "does not end in images of one shape and dtype"), (("image", "image"), "more than one image")],
)
def test_one_reason_is_given_for_a_batch_that_is_not_filled(fields: Any, words: str) -> None:
    """The first that holds, and no other."""
    reason = ps.StoreDataset(MemoryStore(), fields, [T.Decode(), T.ToLayout()]).why_not_filled()

    assert words in reason
    assert " or " not in reason


SMALL = [T.Decode(), T.Resize((8, 8))]


@pytest.mark.parametrize(
    ("field", "ops", "ragged", "words"),
    [
        ("keypoints", SMALL, None, "the field 'keypoints' is keypoints, which follows the image"),
        ("boxes", SMALL, None, "'boxes' is boxes, which follows the image sample by sample; ragged= says"),
        ("points", SMALL, None, "'points' is float32[2,2], which follows the image sample by sample"),
        ("boxes", [*SMALL, T.SanitizeBoundingBoxes()], None, "'boxes' is boxes, which follows the image"),
        ("boxes", [T.Decode(scale="auto"), *SMALL[1:]], "list", "a reduced size, where no field may follow the image"),
        ("boxes", SMALL[:1], "list", "does not end in images of one shape"),
    ],
)
def test_the_reason_is_the_field_that_follows_the_image(
    field: str, ops: list[T.Op], ragged: str | None, words: str, tmp_path: Path
) -> None:
    """Where all images have one shape, their pipeline is not the cause."""
    schema = {"image": "image", "keypoints": "keypoints", "boxes": "boxes", "points": "float32[2,2]"}
    points, image = np.zeros((2, 2), np.float32), ps.encode(np.zeros((9, 9, 3), np.uint8), "png")
    record = {"image": image, "keypoints": points, "boxes": np.zeros((1, 4), np.float32), "points": points}
    ps.pack([record], tmp_path / "targets.lmdb", schema=schema)
    kinds = {"points": "keypoints"} if field == "points" else None

    dataset = ps.StoreDataset(tmp_path / "targets.lmdb", ("image", field), ops, kinds=kinds, ragged=ragged)

    assert words in dataset.why_not_filled()


def test_a_sampler_that_gives_no_ints_is_refused_by_name(tmp_path: Path) -> None:
    """As `dataset[index]` refuses such an index, also where batches are filled."""
    dataset = ps.StoreDataset(make_photos(tmp_path / "photos", 4), ("image", "label"), [T.Decode(), T.Resize((8, 8))])

    for sampler in (np.array([True, False]), [1.0]):
        with pytest.raises(ps.ArgumentError, match=r"a StoreDataset is indexed by an int or a slice, got (bool|float)"):
            list(ps.DataLoader(dataset, 4, sampler=sampler))
    assert dataset.why_not_filled() == ""
