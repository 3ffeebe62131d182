"""Images and boxes from a pack: one batch, whoever builds it, in each form, equal to what one would write by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import penstock as ps
from penstock import transforms as T
from penstock.collate import default_collate
from penstock.datasets.store.ragged_collate import RaggedCollate
from penstock.errors import ArgumentError
from penstock.ragged import FORMS
from penstock.stores.lmdb_pack.writer import LmdbWriter
from tests.loader.annotated_pictures import WORKERS, draw_picture
from tests.test_ragged import assert_equal

COUNT, BAD = 41, 17
SCHEMA = ps.Schema(
    {
        "image": ps.Field("image"),
        "boxes": ps.Field("boxes"),
        "classes": ps.Field("int64[*]"),
        "points": ps.Field("float32[*,3]"),
        "label": ps.Field("label"),
    }
)
FIELDS = ("image", "boxes", "classes", "points", "label")
AUGMENT = T.Pipeline(
    [
        T.Decode(),
        T.RandomResizedCrop(24),
        T.HorizontalFlip(0.5, []),
        T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD),
        T.ToLayout("CHW", "float32"),
    ]
)
NOT_FUSED = T.Pipeline([T.Decode(), T.RandomCrop(40, pad_if_needed=True), T.RandomRotation(20), T.Resize((16, 16))])


def fields(index: int) -> dict[str, Any]:
    """A picture with some objects; every fourth has none."""
    drawn = draw_picture(index)
    count = len(drawn.classes)
    return {
        "image": b"no picture" if index == BAD else drawn.image,
        "boxes": drawn.corners.reshape(-1, 4),
        "classes": drawn.classes,
        "points": np.concatenate([drawn.corners[:, 0], np.ones((count, 1), np.float32)], axis=1),
        "label": index % 3,
    }


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures with boxes, one of them damaged."""
    path = tmp_path_factory.mktemp("packs") / "boxes.lmdb"
    writer = LmdbWriter(str(path), SCHEMA, "source")
    for index in range(COUNT):
        writer.append(writer.prepare(f"{index}", fields(index)))
    writer.finish()
    return path


def dataset(pack: Path, form: Any, transform: Any = AUGMENT, names: Any = FIELDS) -> ps.StoreDataset:
    """Pictures and boxes; points follow too."""
    return ps.StoreDataset(pack, names, transform, kinds={"points": "keypoints"}, ragged=form)


def by_hand(samples: list[Any]) -> list[Any]:
    """What a training script collates itself."""
    images, boxes, classes, points, labels = zip(*samples, strict=True)
    return [np.stack(images), list(boxes), list(classes), list(points), np.array(labels)]


def loader(data: Any, workers: str = "serial", **options: Any) -> ps.DataLoader:
    """A loader of good pictures in a random order."""
    options = {"batch_size": 7, "seed": 3, **WORKERS[workers], **options}
    return ps.DataLoader(data, **options)


def good(data: ps.StoreDataset) -> ps.Subset[Any]:
    """All but the damaged picture."""
    return ps.Subset(data, [i for i in range(COUNT) if i != BAD])


def assert_batches_equal(found: list[Any], expected: list[Any], form: str) -> None:
    """Batches in one form are those made by hand."""
    assert len(found) == len(expected)
    for batch, (images, boxes, classes, points, labels) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(batch[0], images, strict=True)
        np.testing.assert_array_equal(batch[4], labels, strict=True)
        for got, want in zip(batch[1:4], (boxes, classes, points), strict=True):
            assert_equal(got, want, form)


def twice(data: ps.DataLoader) -> list[Any]:
    """Two epochs, all batches kept: slots are used again, and grow, while others are held."""
    return [*data, *data]


@pytest.mark.parametrize("transform", [AUGMENT, NOT_FUSED], ids=["fused", "not fused"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("workers", list(WORKERS))
def test_filled_boxes_are_the_general_path_s(pack: Path, workers: str, form: str, transform: T.Pipeline) -> None:
    """Whoever fills, the batch is what samples and a collation by hand give, box for box."""
    expected = twice(loader(good(dataset(pack, None, transform)), shuffle=True, collate_fn=by_hand))
    data = good(dataset(pack, form, transform))
    assert data.spec() is not None

    found = twice(loader(data, workers, shuffle=True))

    assert_batches_equal(found, expected, form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("workers", ["serial", "processes"])
def test_samples_are_collated_in_the_same_form(pack: Path, workers: str, form: str) -> None:
    """A dataset that cannot fill (a text is asked for) gives the same batches, by the default collation."""
    filled = list(loader(good(dataset(pack, form)), shuffle=True))
    data = good(dataset(pack, form, names=(*FIELDS, "key")))
    assert data.spec() is None

    found = list(loader(data, workers, shuffle=True))

    for batch, expected in zip(found, filled, strict=True):
        assert all(isinstance(key, str) for key in batch[5])
        for got, want in zip(batch[1:4], expected[1:4], strict=True):
            assert_equal(got, want if form == "list" else _arrays(want), form)
        np.testing.assert_array_equal(batch[0], expected[0], strict=True)


def _arrays(batch: Any) -> list[NDArray[Any]]:
    if isinstance(batch, ps.Ragged):
        return batch.list()
    return [values[:count] for values, count in zip(batch.values, batch.counts, strict=True)]


@pytest.mark.parametrize("workers", list(WORKERS))
def test_a_sample_that_is_skipped_has_no_boxes(pack: Path, workers: str) -> None:
    """Rows and boxes stay aligned when a sample is left out."""
    flat, samples = dataset(pack, "flat"), dataset(pack, None)

    found = list(loader(flat, workers, shuffle=False, on_error="skip"))

    expected = list(loader(samples, shuffle=False, on_error="skip", collate_fn=by_hand))
    assert [len(batch[1]) for batch in found] == [7, 7, 6, 7, 7, 6]
    assert_batches_equal(found, expected, "flat")


@pytest.mark.parametrize("workers", ["serial", "threads"])
def test_a_stand_in_brings_its_own_boxes(pack: Path, workers: str) -> None:
    """The row of a sample that failed holds the pixels and the boxes of the one that replaces it."""
    lists, samples = dataset(pack, "list"), dataset(pack, None)

    found = list(loader(lists, workers, shuffle=True, on_error="replace"))
    expected = list(loader(samples, shuffle=True, on_error="replace", collate_fn=by_hand))

    assert_batches_equal(found, expected, "list")


@pytest.mark.parametrize("workers", list(WORKERS))
def test_a_resumed_loader_goes_on_with_the_same_boxes(pack: Path, workers: str) -> None:
    """The batches behind a state are those that the first run had."""
    data = good(dataset(pack, "flat"))
    first = loader(data, workers, shuffle=True)
    batches: Iterator[Any] = iter(first)
    next(batches)
    next(batches)
    state = first.state_dict()
    expected = list(batches)

    again = loader(data, workers, shuffle=True)
    again.load_state_dict(state)

    for got, want in zip(again, expected, strict=True):
        np.testing.assert_array_equal(got[0], want[0], strict=True)
        assert_equal(got[1], want[1].list(), "flat")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("workers", list(WORKERS))
@pytest.mark.parametrize("names", [FIELDS, (*FIELDS, "key")], ids=["filled", "collated"])
def test_torch_gets_tensors_over_the_same_numbers(pack: Path, workers: str, form: str, names: Any) -> None:
    """penstock.torch gives the NumPy loader's batches as tensors, in each form."""
    torch = pytest.importorskip("torch")
    from penstock import torch as pt

    torch.manual_seed(5)
    found = list(pt.DataLoader(good(dataset(pack, form, names=names)), 7, shuffle=True, **WORKERS[workers]))
    torch.manual_seed(5)
    expected = list(pt.DataLoader(good(dataset(pack, None)), 7, shuffle=True, collate_fn=by_hand))

    def arrays(value: Any) -> Any:
        if isinstance(value, ps.Ragged):
            return ps.Ragged(value.values.numpy(), value.offsets.numpy())
        if isinstance(value, ps.Padded):
            return ps.Padded(value.values.numpy(), value.counts.numpy())
        return [tensor.numpy() for tensor in value] if isinstance(value, list) else value.numpy()

    assert_batches_equal([[arrays(value) for value in batch[:5]] for batch in found], expected, form)


@pytest.mark.parametrize("workers", list(WORKERS))
def test_torch_skips_and_resumes_with_the_same_boxes(pack: Path, workers: str) -> None:
    """Behind a state, and without a sample that fails, batches are those of a run that was not interrupted."""
    torch = pytest.importorskip("torch")
    from penstock import torch as pt

    def load(form: str | None, collate: Any = None, **options: Any) -> Any:
        torch.manual_seed(5)
        return pt.DataLoader(dataset(pack, form), 7, shuffle=True, on_error="skip", collate_fn=collate, **options)

    expected = list(load(None, by_hand))
    first = load("flat", **WORKERS[workers])
    batches = iter(first)
    begun = [next(batches), next(batches)]
    state = first.state_dict()
    again = load("flat", **WORKERS[workers])
    again.load_state_dict(state)

    found = [*begun, *again]

    arrays = [
        [v.numpy() if hasattr(v, "numpy") else ps.Ragged(v.values.numpy(), v.offsets.numpy()) for v in batch]
        for batch in found
    ]
    assert sum(len(batch[0]) for batch in found) == COUNT - 1
    assert_batches_equal(arrays, expected, "flat")


def test_slots_grow_for_ragged_arrays(pack: Path) -> None:
    """From the second batch on, values lie behind the images in one slot; slots are then used again."""
    data = loader(ps.Subset(good(dataset(pack, "flat")), [3, 7, 11, 15] * 6), batch_size=4)
    shares = []

    for _ in range(3):
        for batch in data:
            start, values = (array.__array_interface__["data"][0] for array in (batch[0], batch[1].values))
            shares.append(0 <= values - start - batch[0].nbytes < 1 << 14)
            del batch

    assert shares == [False, *[True] * 17]


def test_torch_s_wrappers_pass_the_forms_on(pack: Path) -> None:
    """Subset, ConcatDataset and StackDataset of torch fill ragged fields, and collate them, like their insides."""
    pytest.importorskip("torch")
    from torch.utils import data as torch_data

    from penstock import torch as pt

    for names in (FIELDS, (*FIELDS, "key")):
        one: Any = dataset(pack, "flat", names=names)
        several: Any = torch_data.ConcatDataset([torch_data.Subset(one, [1, 2]), torch_data.Subset(one, [3, 5])])
        [batch] = pt.DataLoader(torch_data.StackDataset(several, several), 4)
        assert [part[1].counts.tolist() for part in batch] == [[1, 2, 3, 1]] * 2


def test_wrappers_pass_the_forms_on(pack: Path) -> None:
    """ConcatDataset fills where all forms are one; StackDataset has each dataset's own."""
    flat, padded = good(dataset(pack, "flat")), good(dataset(pack, "padded"))

    [batch] = loader(ps.StackDataset(flat, padded), batch_size=COUNT)

    assert ps.ConcatDataset([flat, flat]).spec() == flat.spec()
    assert ps.ConcatDataset([flat, padded]).spec() is None
    assert ps.ConcatDataset([flat, padded]).ragged_forms() is None
    assert_equal(batch[0][1], batch[0][1].list(), "flat")
    assert_equal(batch[1][1], batch[0][1].list(), "padded")
    assert ps.StackDataset(a=flat, b=ps.ArrayDataset(np.zeros(COUNT - 1))).ragged_forms() == {
        "a": (None, "flat", "flat", "flat", None),
        "b": None,
    }


def test_each_field_may_have_its_own_form(pack: Path) -> None:
    """A mapping names fields of the store; those that it does not name are stacked."""
    data = good(dataset(pack, {"boxes": "padded", "classes": "flat", "points": "list"}))

    [batch] = loader(data, batch_size=COUNT)

    assert isinstance(batch[1], ps.Padded)
    assert isinstance(batch[2], ps.Ragged)
    assert isinstance(batch[3], list)
    assert "boxes" in dataset(pack, {"classes": "flat"}).why_not_filled()


def test_arrays_without_an_image_are_ragged_too(pack: Path) -> None:
    """Numbers of each record, as stored: no pipeline is needed."""
    data = ps.StoreDataset(pack, {"c": "classes", "y": "label"}, ragged="padded")

    [batch] = loader(data, batch_size=COUNT, shuffle=False)

    assert data.spec() is not None
    assert_equal(batch["c"], [fields(i)["classes"] for i in range(COUNT)], "padded")


def test_forms_that_mean_nothing_are_refused(pack: Path) -> None:
    """An unknown form, a field that the sample has not, a field of fixed shape."""
    with pytest.raises(ArgumentError, match="ragged must be one of list, padded, flat, got 'nested'"):
        dataset(pack, "nested")
    with pytest.raises(ArgumentError, match=r"ragged must name fields of the sample .*, got 'box'"):
        dataset(pack, {"box": "list"})
    with pytest.raises(ArgumentError, match=r"ragged must name arrays whose first length varies.*got 'label'"):
        dataset(pack, {"label": "list"})


def test_without_a_form_arrays_are_stacked_as_torch_does(pack: Path) -> None:
    """The default says nothing about lengths: equal ones are stacked, others are an error."""
    data = dataset(pack, None)

    [batch] = loader(ps.Subset(data, [1, 5, 9]), batch_size=3)

    assert data.spec() is None
    assert batch[1].shape == (3, 1, 4)
    with pytest.raises(ps.SampleError, match="equal size"):
        list(loader(ps.Subset(data, [1, 2]), batch_size=2))


def test_any_dataset_may_be_collated_so(pack: Path) -> None:
    """The collation itself takes any nesting of samples."""
    samples = [{"x": i, "target": {"boxes": fields(i)["boxes"], "id": (i, "a")}} for i in (1, 3)]

    batch = RaggedCollate({"target": {"boxes": "list", "id": None}}, default_collate)(samples)

    assert batch["x"].tolist() == [1, 3]
    assert batch["target"]["id"][0].tolist() == [1, 3]
    assert_equal(batch["target"]["boxes"], [fields(1)["boxes"], fields(3)["boxes"]], "list")
