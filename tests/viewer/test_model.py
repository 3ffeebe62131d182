"""What the viewer says of a loader: steps, draws, batches, warnings, and what cannot be viewed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import transforms as T
from penstock.errors import ArgumentError
from penstock.sample import Field
from penstock.viewer.command import open_viewed
from penstock.viewer.model.source import open_source
from penstock.viewer.model.steps import trace_sample
from tests.pack.images import make_photos
from tests.sheets.annotated_packs import encode, gray, write_pack

BOXED = {
    "image": Field("image"), "boxes": Field("boxes"), "labels": Field("int64[*]", ("cat", "dog")),
    "mask": Field("mask", ("none", "cat", "dog")),
}  # fmt: skip


def boxed(tmp_path: Path, *boxes: tuple[float, ...]) -> Path:
    """One picture of 200 x 100 with boxes of dogs and a mask whose left half is 2."""
    mask = np.zeros((100, 200), np.uint8)
    mask[:, :100] = 2
    record = {
        "image": gray(), "boxes": np.array(boxes, np.float32).reshape(-1, 4),
        "labels": np.array([1] * len(boxes), np.int64), "mask": encode(mask),
    }  # fmt: skip
    return write_pack(tmp_path / "boxed.lmdb", BOXED, [record])


def trace(dataset: Any, seed: int = 0) -> Any:
    """The first sample, step by step."""
    return trace_sample(open_source(dataset), 0, seed, 0, 256)


class Bend(T.Op):
    """An op of the user whose map is no projective one."""

    def image(self, image: Any, params: Any) -> Any:
        """Leaves the pixels, which no test reads."""
        return image

    def keypoints(self, points: Any, params: Any, size: Any) -> Any:
        """Moves the middle of the picture only."""
        return points + 20 * np.sin(points / 100 * np.pi).astype(np.float32)


@pytest.mark.parametrize(
    ("ops", "outline"),
    [
        ([T.CenterCrop((50, 100))], [[50, 25], [150, 25], [150, 75], [50, 75]]),
        ([T.CenterCrop((50, 100)), T.HorizontalFlip(1.0)], [[150, 25], [50, 25], [50, 75], [150, 75]]),
        ([T.Resize((50, 50)), T.CenterCrop((50, 26))], [[48, 0], [152, 0], [152, 100], [48, 100]]),
        ([T.Pad(10)], [[-10, -10], [210, -10], [210, 110], [-10, 110]]),
        ([T.CenterCrop(50), T.ToLayout("CHW")], [[75, 25], [125, 25], [125, 75], [75, 75]]),
        ([Bend()], None),
    ],
)
def test_outline_of_what_is_shown(tmp_path: Path, ops: list[Any], outline: Any) -> None:
    """The corners of the sample, in pixels of the original; none where a map is no projective one."""
    dataset = ps.StoreDataset(boxed(tmp_path), ("image",), [T.Decode(), *ops])

    steps = trace(dataset).steps

    if outline is None:
        assert steps[-1]["view"] is None
    else:
        np.testing.assert_allclose(steps[-1]["view"], outline, atol=0.02)


def test_a_rotated_crop_is_found_again(tmp_path: Path) -> None:
    """Pixels at the corners of the outline are those at the corners of the sample."""
    down, across = np.mgrid[0:100, 0:200]
    pixels = np.stack([across, down, across * 0], axis=2).astype(np.uint8)
    path = write_pack(tmp_path / "p.lmdb", {"image": Field("image")}, [{"image": encode(pixels)}])
    ops = [T.Decode(), T.RandomRotation((30, 30)), T.CenterCrop(40)]

    traced = trace(ps.StoreDataset(path, ("image",), ops))

    image, outline = traced.sample[0], np.array(traced.steps[-1]["view"])
    for row, column, corner in ((0, 0, 0), (0, 39, 1), (39, 39, 2), (39, 0, 3)):
        np.testing.assert_allclose(image[row, column, :2], outline[corner], atol=1.5)


def test_steps_say_what_was_drawn_and_what_is_there(tmp_path: Path) -> None:
    """Names of ops and of callables, numbers, annotations of each step, values of the image."""

    def darken(image: Any) -> Any:
        return image // 2

    path = boxed(tmp_path, (10, 10, 50, 50))
    ops = [T.Decode(), T.CenterCrop((80, 180)), darken, T.Normalize(0.5, 0.25), T.ToLayout("CHW")]

    steps = trace(ps.StoreDataset(path, transform=ops)).steps

    assert [step["name"] for step in steps] == ["Original", "CenterCrop", "darken", "Normalize", "ToLayout"]
    assert steps[1]["drawn"] == [10, 10, 180, 80]
    layers = {layer["id"]: layer["items"] for layer in steps[1]["layers"]}
    assert layers["boxes"][0]["box"] == [0, 0, 40, 40]
    assert layers["boxes"][0]["name"] == "dog"
    assert layers["masks"][0]["name"] == "dog"
    assert steps[-1]["values"]["shape"] == [3, 80, 180]
    assert steps[-1]["values"]["low"] == pytest.approx((45 / 255 - 0.5) / 0.25, abs=1e-3)
    assert [step["is_guess"] for step in steps] == [False, False, True, True, True]


def test_a_callable_for_samples_is_one_step_and_is_called_once(tmp_path: Path) -> None:
    """Functions of the user are called as the loader calls them."""
    calls = []

    def transform(sample: Any) -> Any:
        calls.append(1)
        return T.Decode().image(sample["image"], np.empty(0))[:50], sample["boxes"]

    traced = trace(ps.StoreDataset(boxed(tmp_path, (1, 1, 9, 9)), transform=transform))

    assert [step["name"] for step in traced.steps] == ["Original", "function"]
    assert traced.steps[-1]["height"] == 50
    assert len(calls) == 1
    assert any("seed_per_sample" in note for note in traced.notes)


def grow(mask: Any) -> Any:
    """Values between those of two classes, as a mask that is interpolated has."""
    return mask.astype(np.float32).cumsum(axis=1).astype(np.uint8) % 7


@pytest.mark.parametrize(
    ("boxes", "ops", "said"),
    [
        ([(0, 0, 9, 9), (90, 40, 110, 60)], [T.CenterCrop(50)], "1 of 2 boxes have no area left"),
        ([(0, 0, 9, 9)], [T.CenterCrop(50), T.SanitizeBoundingBoxes(labels=["labels"])], "1 of 1 box removed"),
        ([(150, 50, 240, 90)], [], "leave the picture of 200 x 100"),
        ([], [T.Lambda(lambda s: {**s, "mask": grow(s["mask"])}, on="sample")], "it was interpolated"),
    ],
)
def test_what_looks_wrong_is_said(tmp_path: Path, boxes: Any, ops: list[Any], said: str) -> None:
    """And nothing is said of the same sample without the fault."""
    good = ps.StoreDataset(boxed(tmp_path, (60, 30, 90, 60)), transform=[T.Decode(), T.CenterCrop(80)])
    assert trace(good).warnings == []

    (tmp_path / "bad").mkdir()
    dataset = ps.StoreDataset(boxed(tmp_path / "bad", *boxes), transform=[T.Decode(), *ops])

    assert [warning for warning in trace(dataset).warnings if said in warning], trace(dataset).warnings


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Eight pictures of two classes."""
    return make_photos(tmp_path / "photos", 8)


def scale(image: Any) -> Any:
    """Floats on the scale of bytes."""
    return image.astype(np.float32)


def test_pages_of_a_loader(photos: Path, ask: Callable[..., Any]) -> None:
    """Source, steps, draws and a batch, as the page asks for them."""
    ops = [T.Decode(), T.RandomResizedCrop(16), scale]
    loader = ps.DataLoader(ps.StoreDataset(photos, ("image", "label"), ops), 3, shuffle=True, seed=1 << 60)
    asker = ask(loader)

    assert asker.json("api/session")["features"] == ["model"]
    source = asker.json("api/model/source")
    assert (source["total"], source["batches"], source["seed"]) == (8, 3, str(1 << 60))
    draws = asker.json("api/model/draws/2?n=5&epoch=7")["draws"]
    assert [draw["epoch"] for draw in draws] == [7, 8, 9, 10, 11]
    assert len({draw["picture"] for draw in draws}) == 5
    seeds = asker.json("api/model/draws/2?n=3&vary=seed&seed=4")["draws"]
    assert [draw["seed"] for draw in seeds] == ["4", "5", "6"]
    batch = asker.json("api/model/batch?epoch=1&number=2")
    assert [field["shape"] for field in batch["fields"]] == [[2, 16, 16, 3], [2]]
    assert batch["samples"][0]["label"]["name"] in {"cats", "dogs"}
    assert batch["indices"] == [int(index) for index in loader.sampler.order(6, 8, 1)]
    assert "were not scaled" in batch["warnings"][0]


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("steps/8", 400, "index must be in [0, 8)"),
        ("steps/1?seed=x", 400, "seed must be an integer"),
        ("steps/1?seed=99999999999999999999", 400, "seed must be an integer"),
        ("draws/0?vary=hue", 400, "vary must be epoch or seed"),
        ("batch?number=3", 400, "batches are 0 to 2"),
        ("steps/5", 422, "ValueError: five, at "),
    ],
)
def test_what_cannot_be_answered(photos: Path, ask: Callable[..., Any], path: str, status: int, said: str) -> None:
    """A sentence says why; errors of the user's code have file and line."""
    keys = ps.open(photos).keys()

    def fail(sample: Any) -> Any:
        if sample["key"] == keys[5]:
            raise ValueError("five")
        return np.zeros((4, 4, 3), np.uint8)

    dataset = ps.StoreDataset(photos, {"image": "image", "key": "key"}, fail)
    asker = ask(ps.DataLoader(dataset, 3, seed=1))

    found, _, body = asker.request(f"api/model/{path}")

    assert found == status
    assert said in body.decode()
    assert "test_model.py, line" in body.decode() or status == 400


class Squares:
    """A dataset of the user, with a pipeline inside."""

    def __init__(self) -> None:
        self.augment = T.Pipeline([T.RandomCrop(8), T.HorizontalFlip()])

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return self.augment(np.full((12, 20, 3), index * 40, np.uint8)), index


def test_any_map_style_dataset(ask: Callable[..., Any]) -> None:
    """Its samples are the records, and ops inside of it are steps."""
    asker = ask(Squares())

    assert [row["index"] for row in asker.json("api/rows")["rows"]] == [0, 1, 2]
    assert asker.request("api/thumb/1?side=64")[0] == 200
    answer = asker.json("api/model/steps/2")
    assert [step["name"] for step in answer["steps"]][-1] == "HorizontalFlip"
    assert answer["steps"][-1]["width"] == 8
    status, _, body = asker.request("api/model/batch")
    assert status == 400
    assert b"a batch needs a loader" in body


def test_records_of_subsets_are_numbered_as_samples(photos: Path, ask: Callable[..., Any]) -> None:
    """The grid shows what the loader draws from, with the keys of the store."""
    keys = ps.open(photos).keys()
    dataset = ps.StoreDataset(photos, ("image", "label"), [T.Decode(), T.CenterCrop(8)])
    asker = ask(ps.ConcatDataset([ps.Subset(dataset, [6, 2]), dataset]))

    rows = asker.json("api/rows")["rows"]

    assert [row["key"] for row in rows] == [keys[6], keys[2], *keys]
    store = asker.viewer.session.collection.store
    np.testing.assert_array_equal(store.column("label"), ps.open(photos).column("label")[[6, 2, *range(8)]])
    assert store.read([1])[0].fields["image"] == ps.open(photos).read([2])[0].fields["image"]


def test_streams_and_other_objects_are_refused(photos: Path) -> None:
    """What has no index cannot be viewed."""
    with pytest.raises(ArgumentError, match="is a stream; view its store"):
        ps.view(ps.DataLoader(ps.ChainDataset([])))
    with pytest.raises(ArgumentError, match="with a length"):
        ps.view(type("Endless", (), {"__getitem__": lambda self, i: i})())


SCRIPT = """
import penstock as ps
loader = ps.DataLoader(ps.StoreDataset({folder!r}, ("image", "label")), 2)
number = 7
def make_loader():
    return loader
def fail():
    raise RuntimeError("no disk")
if __name__ == "__main__":
    raise SystemExit("training begins")
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("number", "train.py:number must be a loader, a dataset, or a function"),
        ("fail", r"RuntimeError: no disk, at .*train\.py, line 8"),
        ("nothing", "must define 'nothing'"),
    ],
)
def test_the_command_names_what_it_cannot_view(photos: Path, tmp_path: Path, name: str, said: str) -> None:
    """The script is run without its main part; what is wrong is said in a sentence."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(folder=str(photos)))

    with pytest.raises(ArgumentError, match=said), open_viewed(f"{script}:{name}"):
        pass


@pytest.mark.parametrize("name", ["loader", "make_loader"])
def test_a_script_names_a_loader(photos: Path, tmp_path: Path, name: str) -> None:
    """A name at the level of the module, or a function without arguments."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(folder=str(photos)))

    with open_viewed(f"{script}:{name}") as viewed, ps.view(viewed) as viewer:
        assert getattr(viewer.session.parts["model"], "title", "") == "DataLoader"


@pytest.mark.parametrize(
    ("more", "fields", "is_drawn"),
    [
        ({"ragged": "padded"}, ["image", "boxes.values", "boxes.counts", "labels.values", "labels.counts"], True),
        ({"ragged": "flat"}, ["image", "boxes.values", "boxes.offsets", "labels.values", "labels.offsets"], True),
        ({"batch_form": ps.BatchForm("torchvision", first_label=1)}, ["[0]", "[1]"], True),
        ({"batch_form": "ultralytics"}, ["img", "bboxes", "cls", "batch_idx"], False),
    ],
)
def test_batches_of_any_form(
    tmp_path: Path, ask: Callable[..., Any], more: dict[str, Any], fields: list[str], is_drawn: bool
) -> None:
    """Boxes are drawn where they are those of a sample, in pixels; all parts of a batch are listed."""
    named = {"image": "image", "boxes": "boxes", "labels": "labels"}
    ops = [T.Decode(), T.ToLayout("CHW", "float32")]
    dataset = ps.StoreDataset(boxed(tmp_path, (10, 20, 30, 40), (50, 60, 70, 80)), named, ops, **more)

    batch = ask(ps.DataLoader(dataset, 1, seed=1)).json("api/model/batch")

    assert [field["name"] for field in batch["fields"]] == fields
    [sample] = batch["samples"]
    boxes = [item["box"] for layer in sample.get("layers", ()) for item in layer["items"]]
    assert boxes == ([[10, 20, 30, 40], [50, 60, 70, 80]] if is_drawn else [])
