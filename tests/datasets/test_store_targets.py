"""StoreDataset and targets: kinds from the schema, kinds that the caller says, and fields that would be left behind."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import penstock as ps
from penstock import transforms as T
from penstock.datasets.base import fetch
from penstock.errors import ArgumentError
from penstock.sample import SampleKeys

FLIP = T.Pipeline([T.Decode(), T.HorizontalFlip(p=1)])
CROP = T.Pipeline([T.Decode(), T.RandomResizedCrop(8), T.ToLayout("CHW", "uint8")])
KEYS = SampleKeys(5, 1, np.arange(6, dtype=np.int64))


class Targets(ps.Store):
    """A store of small pictures with one more field, of a name and kind to be tried."""

    kind = "targets"

    def __init__(self, name: str, kind: str, value: Any) -> None:
        super().__init__("targets")
        self._schema = ps.Schema({"image": ps.Field("image"), "label": ps.Field("label"), name: ps.Field(kind)})
        self._name, self._value = name, value

    @property
    def schema(self) -> ps.Schema:
        """As the interface has it."""
        return self._schema

    def __len__(self) -> int:
        return 6

    def read(self, indices: Iterable[int] | NDArray[np.int64]) -> list[ps.Record]:
        """As the interface has it."""
        return [ps.Record(i, f"{i}", {"image": encoded(i), "label": i, self._name: self._value}) for i in indices]

    def column(self, field: str) -> NDArray[Any]:
        """As the interface has it."""
        return np.arange(6)

    def keys(self) -> Sequence[str]:
        """As the interface has it."""
        return [f"{i}" for i in range(6)]

    def digest(self) -> str:
        """As the interface has it."""
        return "targets"

    @classmethod
    def recognises(cls, path: str) -> bool:
        """As the interface has it."""
        return False


def encoded(seed: int, width: int = 20, height: int = 16) -> memoryview:
    """A picture as a file."""
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (height, width, 3), np.uint8)).save(file, "PNG")
    return memoryview(file.getvalue())


def readonly(values: Any) -> NDArray[np.float32]:
    """An array as stores give it: a view of the record's bytes."""
    array = np.array(values, np.float32)
    array.flags.writeable = False
    return array


def bbox(name: str = "bbox") -> Targets:
    """Pictures with one box each, which the schema knows as four numbers."""
    return Targets(name, "float32[4]", readonly([2, 3, 10, 12]))


@pytest.mark.parametrize(
    ("store", "field"),
    [
        (bbox(), "bbox"),
        (bbox("box"), "box"),
        (Targets("bboxes", "float32[*,4]", readonly([[2, 3, 10, 12]])), "bboxes"),
        (Targets("landmarks", "float32[5,2]", readonly(np.zeros((5, 2)))), "landmarks"),
        (Targets("masks", "uint8[16,20]", np.zeros((16, 20), np.uint8)), "masks"),
        (Targets("segmentation", "bytes", encoded(0)), "segmentation"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("pipeline", [FLIP, CROP])
@pytest.mark.parametrize("shape", ["tuple", "dict", "renamed", "all"])
def test_a_field_that_looks_like_a_target_is_not_left_behind(
    store: Any, field: str, pipeline: T.Pipeline, shape: str
) -> None:
    """Whatever it is called in the sample: the dataset is refused when it is made, before it could fill wrong rows."""
    fields: Any = {"tuple": ("image", field), "dict": {"image": "image", field: field}}
    fields |= {"renamed": {"x": "image", "y": field}, "all": None}

    with pytest.raises(ArgumentError, match=rf"'{field}'.*kinds={{'{field}': '(boxes|keypoints|mask)'}}"):
        ps.StoreDataset(store, fields[shape], pipeline)


def test_a_field_that_is_not_asked_for_is_not_looked_at() -> None:
    """Nor is any where nothing is moved, or nobody transforms."""
    kept = T.Pipeline([T.Decode(), T.Invert()])

    assert len(ps.StoreDataset(bbox(), ("image", "label"), FLIP)[0]) == 2
    assert len(ps.StoreDataset(bbox(), ("image", "bbox"), kept)[0]) == 2
    assert len(ps.StoreDataset(bbox(), ("image", "bbox"))[0]) == 2
    assert len(ps.StoreDataset(Targets("vector", "float32[4]", readonly([1, 2, 3, 4])), None, FLIP)[0]) == 3


def test_kinds_make_a_field_a_target() -> None:
    """By the store's name of the field, whatever the sample's structure is."""
    expected = [10, 3, 18, 12]

    of_tuple = ps.StoreDataset(bbox(), ("image", "bbox"), FLIP, kinds={"bbox": "boxes"})[0]
    of_dict = ps.StoreDataset(bbox(), {"x": "image", "y": "bbox"}, FLIP, kinds={"bbox": "boxes"})[0]

    np.testing.assert_array_equal(of_tuple[1], expected)
    np.testing.assert_array_equal(of_dict["y"], expected)


def test_kinds_of_the_pipeline_count() -> None:
    """They say what each value of the sample is, as in a call; the dataset's own come first."""
    pipeline = T.Pipeline(FLIP.ops, kinds=("image", "boxes"))

    moved = ps.StoreDataset(bbox(), ("image", "bbox"), pipeline)
    left = ps.StoreDataset(bbox(), ("image", "bbox"), pipeline, kinds={"bbox": None})

    np.testing.assert_array_equal(moved[0][1], [10, 3, 18, 12])
    np.testing.assert_array_equal(left[0][1], [2, 3, 10, 12])
    with pytest.raises(ArgumentError, match="must have the structure"):
        ps.StoreDataset(bbox(), ("image", "label", "bbox"), pipeline)


def test_none_leaves_a_field_as_it_is() -> None:
    """Said on purpose; rows are then filled as they were."""
    dataset = ps.StoreDataset(bbox(), ("image", "bbox"), CROP, kinds={"bbox": None})

    assert dataset.spec() is not None
    np.testing.assert_array_equal(dataset[0][1], [2, 3, 10, 12])


def test_an_image_that_is_left_as_it_is_is_bytes() -> None:
    """A view of the store's memory is for transforms alone."""
    store = Targets("mask", "mask", encoded(3))

    sample = ps.StoreDataset(store, ("image", "mask"), FLIP, kinds={"mask": None})[0]

    assert type(sample[1]) is bytes
    assert sample[1] == bytes(encoded(3))


def test_what_moves_is_not_filled() -> None:
    """Targets that follow the image take the general path, where every sample is right."""
    dataset = ps.StoreDataset(bbox(), ("image", "bbox"), CROP, kinds={"bbox": "boxes"})

    samples = fetch(dataset, [0, 1], KEYS[:2])

    assert dataset.spec() is None
    for (image, box), key in zip(samples, (0, 1), strict=True):
        both = {"image": bytes(encoded(key)), "boxes": [[2, 3, 10, 12]]}
        expected = CROP(both, keys=KEYS[key : key + 1])
        np.testing.assert_array_equal(image, expected["image"])
        np.testing.assert_array_equal(box, expected["boxes"][0])


def test_kinds_that_mean_nothing_are_refused() -> None:
    """A field that the sample has not, a kind that there is not."""
    with pytest.raises(ArgumentError, match=r"image, bbox.*'bboxes'"):
        ps.StoreDataset(bbox(), ("image", "bbox"), FLIP, kinds={"bboxes": "boxes"})
    with pytest.raises(ArgumentError, match=r"kind must be one of.*'box'"):
        ps.StoreDataset(bbox(), ("image", "bbox"), FLIP, kinds={"bbox": "box"})


def test_small_arrays_are_the_sample_s_own() -> None:
    """A store gives views of a record's bytes, which nobody may write to; a sample's array may be written to."""
    torch = pytest.importorskip("torch")
    sample = ps.StoreDataset(bbox(), ("bbox", "label"))[0]

    assert sample[0].flags.writeable
    assert torch.as_tensor(sample[0]).tolist() == [2, 3, 10, 12]


@pytest.mark.parametrize("said", ["dataset", "pipeline", "mixture"])
def test_a_flip_of_keypoints_without_pairs_is_said_when_the_dataset_is_made(said: str) -> None:
    """Before a worker reads a sample, and once: by the schema's kinds, those of the dataset, or of the pipeline."""
    store = Targets("keypoints", "float32[2,2]", readonly([(3, 4), (9, 4)]))
    fields, kinds = {"image": "image", "keypoints": "keypoints"}, {"image": "image", "keypoints": "keypoints"}
    flip = T.HorizontalFlip(1)
    make: dict[str, Callable[[], Any]] = {
        "dataset": lambda: ps.StoreDataset(store, fields, [T.Decode(), flip], kinds=kinds),
        "pipeline": lambda: ps.StoreDataset(store, fields, T.Pipeline([T.Decode(), flip], kinds)),
        "mixture": lambda: ps.Mosaic(ps.StoreDataset(store, fields, kinds=kinds), 16, transform=[flip]),
    }

    with pytest.warns(UserWarning, match="keypoint_pairs"):
        dataset = make[said]()

    assert len(dataset[0]) == 2
