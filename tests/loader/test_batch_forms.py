"""Batches of detection models from a pack: each form equals what a script collates from samples, whoever builds it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import penstock as ps
from penstock import transforms as T
from penstock.datasets.store.moved_arrays import ChunkTargets
from penstock.errors import ArgumentError
from penstock.stores.lmdb_pack.writer import LmdbWriter
from tests.loader.annotated_pictures import WORKERS, draw_picture

COUNT, BAD = 23, 17
SCHEMA = ps.Schema(
    {
        "image": ps.Field("image"),
        "boxes": ps.Field("boxes"),
        "classes": ps.Field("int64[*]"),
        "difficult": ps.Field("int64[*]"),
        "points": ps.Field("float32[*,5,3]"),
        "width": ps.Field("int"),
        "height": ps.Field("int"),
        "score": ps.Field("float"),
        "size": ps.Field("float32[2]"),
    }
)
FIELDS = {
    "image": "image",
    "boxes": "boxes",
    "labels": "classes",
    "difficult": "difficult",
    "keypoints": "points",
    "image_id": "index",
    "score": "score",
    "size": "size",
}
ONE_SIZE = [T.Decode(), T.Resize((24, 40)), T.HorizontalFlip(), T.ToLayout("CHW", "float32")]
SIZES = [T.Decode(), T.HorizontalFlip(), T.ToLayout("CHW", "uint8")]
CHANNELS_LAST = [T.Decode(), T.HorizontalFlip()]
NAMES = ("torchvision", "rows", "ultralytics", "nested")


def fields(index: int) -> dict[str, Any]:
    """A picture of its own size with some objects; every fourth has none."""
    image, width, height, corners, classes, random = draw_picture(index)
    count = len(classes)
    return {
        "image": b"no picture" if index == BAD else image,
        "boxes": corners.reshape(-1, 4),
        "classes": classes,
        "difficult": random.integers(0, 2, count),
        "points": random.random((count, 5, 3), np.float32) * np.array([width, height, 1], np.float32),
        "width": width,
        "height": height,
        "score": index / 7,
        "size": np.array([height, width], np.float32),
    }


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures with boxes, one of them damaged."""
    path = tmp_path_factory.mktemp("packs") / "boxes.lmdb"
    writer = LmdbWriter(str(path), SCHEMA, "source")
    for index in range(COUNT):
        writer.append(writer.prepare(f"{index:03}", fields(index)))
    writer.finish()
    return path


def dataset(pack: Path, form: Any, transform: Any, names: Any = None) -> ps.StoreDataset:
    """Pictures with all that is known of their objects; points stay where they are."""
    kinds: Any = None if isinstance(names, (str, tuple)) else {"points": None}
    return ps.StoreDataset(pack, names or FIELDS, transform, kinds=kinds, batch_form=form)


def good(data: ps.StoreDataset) -> ps.Subset[Any]:
    """All but the damaged picture."""
    return ps.Subset(data, [i for i in range(COUNT) if i != BAD])


def loader(data: Any, workers: str = "serial", **options: Any) -> ps.DataLoader:
    """A loader with a seed."""
    return ps.DataLoader(data, **{"batch_size": 7, "seed": 3, "shuffle": True, **WORKERS[workers], **options})


def hw(image: NDArray[Any], channels_last: bool) -> tuple[int, int]:
    """Height and width of an image."""
    shape = image.shape[:2] if channels_last else image.shape[1:]
    return int(shape[0]), int(shape[1])


def centred(sample: dict[str, Any], channels_last: bool) -> NDArray[np.float32]:
    """Centre and size of boxes, relative to the image's size, box by box."""
    height, width = hw(sample["image"], channels_last)
    found = [
        [(x0 + x1) / np.float32(2) / np.float32(width), (y0 + y1) / np.float32(2) / np.float32(height),
         (x1 - x0) / np.float32(width), (y1 - y0) / np.float32(height)]
        for x0, y0, x1, y1 in sample["boxes"]
    ]  # fmt: skip
    return np.array(found, np.float32).reshape(-1, 4)


def by_script(form: str, channels_last: bool = False) -> Any:
    """The collation that a training script of this form has, in plain Python."""

    def collate(samples: list[dict[str, Any]]) -> Any:
        images, targets = [s["image"] for s in samples], [{k: s[k] for k in s if k != "image"} for s in samples]
        if form == "torchvision":
            return images, targets
        if form == "rows":
            rows = [
                np.array(
                    [
                        [*box, label, difficult, *points.ravel()]
                        for box, label, difficult, points in zip(
                            s["boxes"], s["labels"], s["difficult"], s["keypoints"], strict=True
                        )
                    ],
                    np.float32,
                ).reshape(-1, 6 + 15)
                for s in samples
            ]
            others = [np.array([s[name] for s in samples]) for name in ("image_id", "score", "size")]
            return (np.stack(images), rows, *others)
        if form == "ultralytics":
            return {
                "img": np.stack(images),
                "bboxes": np.concatenate([centred(s, channels_last) for s in samples]),
                "cls": np.concatenate([s["labels"] for s in samples]).astype(np.float32)[:, None],
                "batch_idx": np.array([i for i, s in enumerate(samples) for _ in s["boxes"]], np.float32),
                "difficult": np.concatenate([s["difficult"] for s in samples]),
                "keypoints": np.concatenate([s["keypoints"] for s in samples]),
                **{name: np.array([s[name] for s in samples]) for name in ("image_id", "score", "size")},
            }
        sizes = np.array([hw(image, channels_last) for image in images])
        height, width = (-(-sizes.max(axis=0) // 16) * 16).tolist()
        mask = np.ones((len(images), height, width), np.bool_)
        padded = np.full((len(images), *((height, width, 3) if channels_last else (3, height, width))), 9)
        padded = padded.astype(images[0].dtype)
        for row, hidden, image, (h, w) in zip(padded, mask, images, sizes, strict=True):
            hidden[:h, :w] = False
            (row[:h, :w] if channels_last else row[:, :h, :w])[...] = image
        new = [{**target, "boxes": centred(s, channels_last)} for target, s in zip(targets, samples, strict=True)]
        return ps.NestedTensor(padded, mask), new

    return collate


def form_of(name: str) -> Any:
    """The form, by its name where it has no options."""
    return ps.BatchForm("nested", multiple=16, padding=9) if name == "nested" else name


def assert_same(found: Any, expected: Any) -> None:
    """Two batches have the same containers, types, dtypes, shapes and numbers; tensors count as arrays."""
    if isinstance(expected, ps.NestedTensor):
        assert isinstance(found, ps.NestedTensor)
        assert_same(found.decompose(), expected.decompose())
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for name in expected:
            assert_same(found[name], expected[name])
    elif isinstance(expected, (list, tuple)):
        assert type(found) is type(expected)
        assert len(found) == len(expected)
        for got, want in zip(found, expected, strict=True):
            assert_same(got, want)
    elif isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(found.numpy() if hasattr(found, "numpy") else found, expected, strict=True)
    else:
        assert type(found) is type(expected)
        assert found == expected


def cases() -> list[Any]:
    """Forms and the pictures that they take."""
    sized = [pytest.param(name, ONE_SIZE, id=f"{name}-filled") for name in NAMES]
    several = [pytest.param(name, SIZES, id=f"{name}-sizes") for name in ("torchvision", "nested")]
    return [*sized, *several, pytest.param("nested", CHANNELS_LAST, id="nested-channels last")]


def cases_and_workers() -> list[Any]:
    """Each case with each kind of workers; with processes, most are for `make test-slow`."""
    return [
        pytest.param(
            workers,
            *case.values,
            id=f"{workers}-{case.id}",
            marks=[pytest.mark.slow]
            * (workers == "processes" and case.id not in {"ultralytics-filled", "nested-sizes"}),
        )
        for workers in WORKERS
        for case in cases()
    ]


@pytest.mark.parametrize(("name", "transform"), cases())
@pytest.mark.parametrize("workers", list(WORKERS))
def test_a_form_is_what_a_script_collates(pack: Path, workers: str, name: str, transform: list[Any]) -> None:
    """Filled or built one by one, by whatever workers: the batch is the script's, number for number, in two epochs."""
    data = good(dataset(pack, form_of(name), transform))
    script = loader(good(dataset(pack, None, transform)), collate_fn=by_script(name, transform is CHANNELS_LAST))
    assert (data.spec() is not None) == (transform is ONE_SIZE)

    batches = loader(data, workers)
    found = [*batches, *batches]

    assert_same(found, [*script, *script])


@pytest.mark.parametrize(("workers", "name", "transform"), cases_and_workers())
def test_torch_gets_tensors_of_the_same_numbers(
    pack: Path, workers: str, name: str, transform: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """penstock.torch gives tensors where the script has arrays; with pinned memory, all of them are pinned."""
    torch = pytest.importorskip("torch")
    from penstock import torch as pt
    from penstock.torch.device import pinning

    data, plain = good(dataset(pack, form_of(name), transform)), good(dataset(pack, None, transform))
    monkeypatch.setattr(pinning, "should_pin", lambda pin_memory, *_, **__: pin_memory)
    monkeypatch.setattr(pinning, "create_slot_lock", lambda _device=None: None)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self, device=None: self.clone())
    script = by_script(name, transform is CHANNELS_LAST)

    def load(source: Any, **options: Any) -> list[Any]:
        torch.manual_seed(5)
        return list(pt.DataLoader(source, 7, shuffle=True, **options))

    expected = load(plain, collate_fn=script)

    for pin_memory in (False, True):
        found = load(data, pin_memory=pin_memory, **WORKERS[workers])
        assert_same(found, expected)
        assert all(isinstance(leaf, torch.Tensor | int | float) for leaf in leaves(found))


def leaves(value: Any) -> list[Any]:
    """Everything in a batch that is no container."""
    if isinstance(value, ps.NestedTensor):
        return leaves(value.decompose())
    if isinstance(value, (list, tuple, dict)):
        return [leaf for each in (value.values() if isinstance(value, dict) else value) for leaf in leaves(each)]
    return [value]


def test_targets_are_views_of_the_memory_that_was_filled(pack: Path) -> None:
    """No box is copied once the batch is filled: images and boxes of all targets lie in one slot."""
    data = loader(good(dataset(pack, "torchvision", ONE_SIZE)), batch_size=4, shuffle=False)

    _, _, (images, targets), *_ = data

    base = images[0].base
    while getattr(base, "base", None) is not None:
        base = base.base
    assert all(np.shares_memory(target["boxes"], base) for target in targets if len(target["boxes"]))
    assert sum(len(target["boxes"]) for target in targets) == 6


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("workers", list(WORKERS))
def test_a_sample_that_is_skipped_has_no_target(pack: Path, workers: str, name: str) -> None:
    """Images, targets and numbers of images stay aligned when a sample is left out."""
    data, plain = dataset(pack, form_of(name), ONE_SIZE), dataset(pack, None, ONE_SIZE)

    found = list(loader(data, workers, on_error="skip"))

    assert_same(found, list(loader(plain, on_error="skip", collate_fn=by_script(name))))


@pytest.mark.parametrize(("workers", "name", "transform"), cases_and_workers())
def test_a_resumed_loader_goes_on_with_the_same_batches(
    pack: Path, workers: str, name: str, transform: list[Any]
) -> None:
    """The batches behind a state are those of a run that was not interrupted."""
    data = good(dataset(pack, form_of(name), transform))
    expected = list(loader(data))
    first = loader(data, workers)
    batches = iter(first)
    begun = [next(batches), next(batches)]
    again = loader(data, workers)

    again.load_state_dict(first.state_dict())

    assert_same([*begun, *again], expected)


@pytest.mark.parametrize("name", NAMES)
def test_samples_that_cannot_be_filled_get_the_same_form(pack: Path, name: str) -> None:
    """A text among the fields: samples are built one by one, and the rest of the batch is the filled one."""
    filled = list(loader(good(dataset(pack, form_of(name), ONE_SIZE))))
    data = good(dataset(pack, form_of(name), ONE_SIZE, {**FIELDS, "im_file": "key"}))
    assert data.spec() is None

    found = list(loader(data, "processes"))

    for batch, want in zip(found, filled, strict=True):
        if name == "rows":
            ids, texts = want[2], batch[-1]
            assert_same(batch[:-1], want)
        elif name == "ultralytics":
            ids, texts = want["image_id"], batch.pop("im_file")
            assert_same(batch, want)
        else:
            ids, texts = [t["image_id"] for t in want[1]], [t.pop("im_file") for t in batch[1]]
            assert_same(batch, want)
        assert list(texts) == [f"{index:03}" for index in ids]


def test_fields_of_a_tuple_have_the_store_s_names(pack: Path) -> None:
    """A tuple of fields gives targets by the names of the store; an image alone gives empty targets."""
    data = dataset(pack, "torchvision", ONE_SIZE, ("image", "classes"))
    alone = dataset(pack, "torchvision", ONE_SIZE, "image")

    [(_, targets)] = loader(good(data), batch_size=COUNT, shuffle=False)
    [(images, nothing)] = loader(good(alone), batch_size=COUNT, shuffle=False)

    assert [target["classes"].tolist() for target in targets] == [
        fields(i)["classes"].tolist() for i in range(COUNT) if i != BAD
    ]
    assert (len(images), nothing) == (COUNT - 1, [{}] * (COUNT - 1))


def one_by_one(sample: Any) -> Any:
    """A callable, for which samples are built and collated."""
    return T.Pipeline(ONE_SIZE)(sample)


@pytest.mark.parametrize("workers", ["serial", "processes"])
@pytest.mark.parametrize("transform", [ONE_SIZE, one_by_one], ids=["fill", "collate"])
def test_height_and_width_are_the_shape_for_ultralytics(pack: Path, transform: Any, workers: str) -> None:
    """Two fields called so give ``ori_shape`` in Python numbers, and stay; one of them gives nothing."""
    names = {"image": "image", "boxes": "boxes", "cls": "classes", "height": "height", "width": "width"}
    one = {name: field for name, field in names.items() if name != "width"}
    whole, half = (ps.StoreDataset(pack, each, transform, batch_form="ultralytics") for each in (names, one))

    [batch] = loader(good(whole), workers, batch_size=COUNT, shuffle=False)
    [other] = loader(good(half), workers, batch_size=COUNT, shuffle=False)

    expected = [(fields(i)["height"], fields(i)["width"]) for i in range(COUNT) if i != BAD]
    assert batch["ori_shape"] == expected
    assert all(type(side) is int for shape in batch["ori_shape"] for side in shape)
    assert batch["ratio_pad"] == [None] * len(expected)
    assert batch["height"].tolist() == [height for height, _ in expected]
    assert "ori_shape" not in other


def test_pixels_need_no_transform(tmp_path: Path) -> None:
    """Stored pixels are images as they are; boxes of ints become float32; keypoints are relative, like boxes."""
    schema = ps.Schema(
        {
            "x": ps.Field("pixels:uint8[6,8,3]"),
            "b": ps.Field("int64[*,4]"),
            "c": ps.Field("int64[*]"),
            "p": ps.Field("float32[*,2,3]"),
        }
    )
    writer = LmdbWriter(str(tmp_path / "pack"), schema, "source")
    rows = [np.array([[0, 0, 8, 6], [2, 3, 4, 6]]), np.zeros((0, 4), np.int64)]
    for index, boxes in enumerate(rows):
        pixels = np.full((6, 8, 3), index, np.uint8)
        points = np.full((len(boxes), 2, 3), 2, np.float32)
        writer.append(writer.prepare(str(index), {"x": pixels, "b": boxes, "c": np.arange(len(boxes)), "p": points}))
    writer.finish()
    data = ps.StoreDataset(tmp_path / "pack", kinds={"b": "boxes", "p": "keypoints"}, batch_form="ultralytics")

    [batch] = ps.DataLoader(data, 2)

    assert batch["img"][:, 0, 0, 0].tolist() == [0, 1]
    np.testing.assert_array_equal(
        batch["bboxes"], np.array([[0.5, 0.5, 1, 1], [0.375, 0.75, 0.25, 0.5]], np.float32), strict=True
    )
    np.testing.assert_array_equal(
        batch["p"], np.broadcast_to(np.array([1 / 4, 1 / 3, 2], np.float32), (2, 2, 3)), strict=True
    )
    assert (batch["cls"].tolist(), batch["batch_idx"].tolist()) == ([[0], [1]], [0, 0])


@pytest.mark.parametrize("transform", [ONE_SIZE, SIZES], ids=["one size", "sizes"])
def test_boxes_have_the_format_that_is_asked_for(pack: Path, transform: list[Any]) -> None:
    """Six formats, in pixels and relative, of images of one size and of several."""
    transform = [op for op in transform if not isinstance(op, T.HorizontalFlip)]
    samples = [good(dataset(pack, None, transform))[i] for i in range(COUNT - 1)]
    order = list(range(COUNT - 1))

    def load(boxes: str) -> list[NDArray[np.float32]]:
        data = good(dataset(pack, ps.BatchForm("torchvision", boxes=boxes), transform))
        [(_, targets)] = loader(data, batch_sampler=[order], batch_size=1, shuffle=None)
        return [target["boxes"] for target in targets]

    found = {name: load(name) for name in ("xyxy", "xywh", "cxcywh", "xyxyn", "xywhn", "cxcywhn")}

    for index, sample in enumerate(samples):
        corners, size = sample["boxes"], np.array([*sample["image"].shape[:0:-1]] * 2, np.float32)
        extent = corners[:, 2:] - corners[:, :2]
        pixels = {
            "xyxy": corners,
            "xywh": np.concatenate([corners[:, :2], extent], axis=1),
            "cxcywh": np.concatenate([(corners[:, :2] + corners[:, 2:]) / 2, extent], axis=1),
        }
        for name, expected in pixels.items():
            np.testing.assert_array_equal(found[name][index], expected, strict=True)
            np.testing.assert_array_equal(found[f"{name}n"][index], expected / size, strict=True)


def test_buckets_of_similar_sizes_need_little_padding(pack: Path) -> None:
    """Sizes come from columns; a bucket's images are padded to one another, and no sample is lost."""
    data = dataset(pack, "nested", SIZES)
    width, height = data.store.column("width"), data.store.column("height")
    sampler = ps.BucketBatchSampler(width / height, 4, num_buckets=5, seed=1)

    def padding(batches: ps.DataLoader) -> tuple[int, list[int]]:
        found = list(batches)
        ids = [target["image_id"] for _, targets in found for target in targets]
        return sum(int(nested.mask.sum()) for nested, _ in found), sorted(ids)

    bucketed, ids = padding(ps.DataLoader(data, batch_sampler=sampler, on_error="skip"))
    shuffled, _ = padding(ps.DataLoader(data, 4, shuffle=True, seed=1, on_error="skip"))

    assert ids == [i for i in range(COUNT) if i != BAD]
    assert bucketed < 0.7 * shuffled


def test_wrappers_pass_the_form_on(pack: Path) -> None:
    """Subset and ConcatDataset, ours and torch's, have the form of the datasets inside; several forms are refused."""
    torch_data = pytest.importorskip("torch").utils.data
    from penstock import torch as pt

    fixed = [T.Decode(), T.Resize((24, 40))]
    one, other = dataset(pack, "torchvision", fixed), dataset(pack, "rows", fixed)
    several: Any = torch_data.ConcatDataset([torch_data.Subset(one, [1, 2]), torch_data.Subset(one, [3, 5])])

    [(images, targets)] = pt.DataLoader(several, 4)
    [(same, _)] = ps.DataLoader(ps.ConcatDataset([ps.Subset(one, [1, 2]), ps.Subset(one, [3, 5])]), 4)

    assert [target["image_id"] for target in targets] == [1, 2, 3, 5]
    assert_same(images, same)
    with pytest.raises(ArgumentError, match="concatenated datasets must have one batch_form"):
        list(ps.DataLoader(ps.ConcatDataset([one, other]), 4))


def test_single_samples_and_own_collations_have_no_form(pack: Path) -> None:
    """Without batches, and with a collate_fn, a loader gives what it gives without a form."""
    data: ps.Subset[Any] = ps.Subset(dataset(pack, "torchvision", ONE_SIZE), [1, 2])

    assert [sample["image_id"] for sample in ps.DataLoader(data, None)] == [1, 2]
    assert [len(batch) for batch in ps.DataLoader(data, 2, collate_fn=list)] == [2]


def test_objects_without_a_label_are_refused(tmp_path: Path) -> None:
    """Where boxes and labels of a record differ in number, the error names both, and the record's place."""
    schema = ps.Schema({"x": ps.Field("pixels:uint8[2,2,3]"), "boxes": ps.Field("boxes"), "cls": ps.Field("int64[*]")})
    writer = LmdbWriter(str(tmp_path / "pack"), schema, "source")
    for index in range(2):
        values = {
            "x": np.zeros((2, 2, 3), np.uint8),
            "boxes": np.zeros((2, 4), np.float32),
            "cls": np.zeros(2 - index, int),
        }
        writer.append(writer.prepare(str(index), values))
    writer.finish()

    for name in ("rows", "ultralytics"):
        with pytest.raises(ps.SampleError, match=r"2 rows of 'boxes' and 1 of 'cls' at entry 1"):
            list(ps.DataLoader(ps.StoreDataset(tmp_path / "pack", batch_form=name), 2))


def test_images_of_several_sizes_are_not_stacked(pack: Path) -> None:
    """The forms that stack images say so."""
    for name in ("rows", "ultralytics"):
        with pytest.raises(ps.SampleError, match="crop, resize or pad the samples"):
            list(loader(good(dataset(pack, name, SIZES))))


def test_what_a_form_lacks_is_refused(pack: Path) -> None:
    """Unknown names and options, samples without what the form needs, two ways to say one thing."""
    for arguments, message in (
        (("coco",), "batch_form must be one of torchvision, rows, ultralytics, nested, got 'coco'"),
        (("rows", "yxyx"), "boxes must be one of xyxy, .*, got 'yxyx'"),
        (("nested", None, 0), "multiple must be an int of at least 1, got 0"),
    ):
        with pytest.raises(ArgumentError, match=message):
            ps.BatchForm(*arguments)
    for names, transform, form, message in (
        (("boxes", "classes"), None, "torchvision", "needs one image in a sample, got 0"),
        (("image", "classes"), ONE_SIZE, "rows", "needs one field of kind boxes"),
        (("image", "boxes"), ONE_SIZE, "ultralytics", "and one of their classes"),
        (("image", "classes", "classes"), ONE_SIZE, "torchvision", "must have different names"),
        (("image", "classes"), None, "torchvision", "needs decoded images, got 'image'"),
    ):
        with pytest.raises(ArgumentError, match=message):
            ps.StoreDataset(pack, names, transform, batch_form=form)
    with pytest.raises(ArgumentError, match="give either batch_form or ragged, got ragged='list'"):
        ps.StoreDataset(pack, FIELDS, ONE_SIZE, kinds={"points": None}, ragged="list", batch_form="rows")


@pytest.mark.parametrize(
    ("more", "left"),
    [
        ([T.SanitizeBoundingBoxes(min_visible=0.2, labels=["labels", "difficult"])], ["size"]),
        ([T.RandomRotation(9)], ["boxes", "size"]),
        ([], ["size"]),
    ],
    ids=["removed", "turned", "moved"],
)
def test_objects_of_a_chunk_are_moved_together(
    pack: Path, monkeypatch: pytest.MonkeyPatch, more: Any, left: Any
) -> None:
    """Only what must be is moved record by record; samples that are built one by one have the same objects."""
    ops = [T.Decode(), T.RandomResizedCrop((24, 40)), T.HorizontalFlip(), *more, T.ColorJitter(0.3)]
    data = dataset(pack, "torchvision", ops)
    seen: set[str] = set()

    class Counted(ChunkTargets):
        def arrays(self, names: Any, parts: Any, rows: Any) -> None:
            seen.update(names)
            super().arrays(names, parts, rows)

    monkeypatch.setattr("penstock.datasets.store.dataset.ChunkTargets", Counted)
    found = list(loader(good(data)))
    assert not data.why_not_filled()
    assert seen == set(left)

    expected = list(loader(good(data), collate_fn=list))
    for (images, targets), samples in zip(found, expected, strict=True):
        for image, target, sample in zip(images, targets, samples, strict=True):
            np.testing.assert_array_equal(image, sample["image"], strict=True)
            for name in ("boxes", "labels", "difficult"):
                np.testing.assert_array_equal(target[name], sample[name], strict=True)


def test_first_label_counts_classes_from_it(pack: Path) -> None:
    """A form whose labels begin at 1 has those of the store, each one more, with any collation."""
    for transform in (ONE_SIZE, SIZES):
        for form in ("torchvision", "nested"):
            plain, counted = (
                next(iter(loader(good(dataset(pack, ps.BatchForm(form, first_label=first), transform)))))[1]
                for first in (0, 1)
            )

            assert [one["labels"].tolist() for one in counted] == [(one["labels"] + 1).tolist() for one in plain]
    with pytest.raises(ps.ArgumentError, match="first_label must be a non-negative int, got -1"):
        ps.BatchForm("rows", first_label=-1)


@pytest.mark.parametrize(("first", "warns"), [("cat", True), ("__background__", False), ("BG", False), ("", False)])
def test_class_0_of_an_object_is_warned_of_once(tmp_path: Path, first: str, warns: bool) -> None:
    """Models of torchvision take class 0 for background: a store that names it otherwise is warned of."""
    schema = ps.Schema({
        "image": ps.Field("image"), "boxes": ps.Field("boxes"),
        "labels": ps.Field("int64[*]", classes=(first, "dog") if first else ()),
    })  # fmt: skip
    writer = LmdbWriter(str(tmp_path / "pack"), schema, "source")
    writer.append(
        writer.prepare("0", {"image": b"", "boxes": np.zeros((1, 4), np.float32), "labels": np.zeros(1, int)})
    )
    writer.finish()

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for form in ("torchvision", ps.BatchForm("torchvision", first_label=0), "rows"):
            ps.StoreDataset(tmp_path / "pack", None, ONE_SIZE, batch_form=form)

    assert ["label 0 of 'labels' is 'cat'" in str(one.message) for one in found] == [True] * warns
    assert all(one.filename == __file__ for one in found)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("transform", [ONE_SIZE, SIZES], ids=["filled", "collated"])
def test_crowds_are_left_out_of_batches(tmp_path: Path, name: str, transform: list[Any]) -> None:
    """With all their values, whoever builds the batch; a store that says which they are is warned of otherwise."""
    rng = np.random.default_rng(3)
    flags = [[0, 1, 0], [1], [], [0, 0]]
    samples: list[dict[str, Any]] = [
        {
            "image": draw_picture(2)[0], "boxes": rng.random((len(each), 4)).astype(np.float32) + np.float32(1),
            "labels": np.arange(len(each)), "crowd": np.array(each, np.int64), "notes": [f"{row}" for row in each],
            "difficult": np.arange(len(each)) + 10,
        }
        for each in flags
    ]  # fmt: skip
    objects = {"boxes": "boxes", "labels": "int64[*]", "difficult": "int64[*]"}
    ps.pack(samples, tmp_path / "p", schema={"image": "image", **objects, "crowd": "int64[*]", "notes": "json"})
    ordinary = [
        {"image": sample["image"], **{field: sample[field][sample["crowd"] == 0] for field in objects}}
        for sample in samples
    ]
    ps.pack(ordinary, tmp_path / "q", schema={"image": "image", **objects})
    names = ("image", *objects)
    has_lists = name in {"torchvision", "nested"} and transform is SIZES

    def load(path: str, form: Any, fields: Any) -> Any:
        data = ps.StoreDataset(tmp_path / path, fields, transform, batch_form=form)
        return next(iter(ps.DataLoader(data, 4, seed=1)))

    batch = load("p", name, (*names, "crowd", *(["notes"] if has_lists else [])))
    if name == "ultralytics":
        assert batch.pop("crowd").tolist() == [0, 0, 0, 0]
    for target in batch[1] if name in {"torchvision", "nested"} else ():
        assert not target.pop("crowd").any()
        assert target.pop("notes", ["0"] * len(target["labels"])) == ["0"] * len(target["labels"])
    assert_same([batch], [load("q", name, names)])
    with pytest.warns(UserWarning, match="objects that are crowds"):
        assert leaves(load("p", name, names))
    kept = load("p", ps.BatchForm(name, keep_crowds=True), names)
    assert sum(map(np.size, leaves(kept))) > sum(map(np.size, leaves(batch)))
