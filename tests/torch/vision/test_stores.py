"""torchvision transforms on stores: ImageFolder's pixels, from a pack or a folder, filled if possible."""

from __future__ import annotations

import logging
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")

from PIL import Image  # noqa: E402  # behind the skip
from torchvision.transforms import transforms as v1  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

import penstock as ps  # noqa: E402
import penstock.torch as pt  # noqa: E402
from penstock import transforms as T  # noqa: E402
from penstock.datasets.base import fetch, spec_of  # noqa: E402
from penstock.errors import ArgumentError, DecodeError  # noqa: E402
from penstock.rng import sample_scope  # noqa: E402
from penstock.sample import SampleKeys, tree_map  # noqa: E402
from tests.datasets.test_store_dataset import MemoryStore  # noqa: E402
from tests.datasets.test_store_targets import Targets, bbox  # noqa: E402
from tests.pack.images import make_photos  # noqa: E402

TRAIN = v2.Compose([
    v2.RandomResizedCrop(24), v2.RandomHorizontalFlip(), v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True),
    v2.Normalize([0.5], [0.25]),
])  # fmt: skip
EVAL = v1.Compose([v1.Resize(40), v1.CenterCrop(32), v1.ToTensor()])
PARTLY = v2.Compose([v2.RandomResizedCrop(24), v2.RandAugment(), v2.PILToTensor()])
UNKNOWN = v2.Compose([v2.RandAugment(), v2.Resize((24, 24)), v2.PILToTensor()])
SEQUENTIAL = torch.nn.Sequential(v2.Resize((20, 30)), v2.ToImage())
EVERY: dict[str, Any] = {
    "train": TRAIN, "eval": EVAL, "partly": PARTLY, "unknown": UNKNOWN, "sequential": SEQUENTIAL,
    "single": v2.Resize((8, 9)),
}  # fmt: skip
FILLED = ("train", "eval", "sequential")
KEYS = SampleKeys(7, 2, np.arange(12, dtype=np.int64))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve images of two classes, and a pack of them."""
    folder = tmp_path_factory.mktemp("photos")
    make_photos(folder / "photos")
    ps.pack(folder / "photos", folder / "photos.lmdb")
    return folder


def same(found: Any, expected: Any) -> None:
    """Type, dtype and all pixels are equal."""
    assert type(found) is type(expected)
    if isinstance(found, Image.Image):
        found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype
    assert (found == expected).all()


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("kind", ["pack", "folder"])
def test_samples_are_those_of_imagefolder(photos: Path, name: str, kind: str) -> None:
    """Type and pixels of the image are equal for the same key; the label is unchanged."""
    folder = pt.ImageFolder(photos / "photos", EVERY[name])
    store = ps.open(photos / ("photos.lmdb" if kind == "pack" else "photos"))
    dataset = ps.StoreDataset(store, ("image", "label"), EVERY[name])
    places = {str(Path(path).relative_to(photos / "photos")): i for i, (path, _) in enumerate(folder.samples)}

    for i, key in enumerate(store.keys()):
        drawn = []
        for found, at in ((dataset, i), (folder, places[key])):
            with sample_scope(7, 2, i):
                torch.manual_seed(i)
                drawn.append(found[at])
        same(drawn[0][0], drawn[1][0])
        assert drawn[0][1] == drawn[1][1]


@pytest.mark.parametrize("name", FILLED)
@pytest.mark.parametrize("fields", ["image", ("image", "label"), {"x": "image", "n": "index", "y": "label"}])
def test_filling_is_getting(photos: Path, name: str, fields: Any) -> None:
    """If all transforms are recognised, rows are filled, and equal samples."""
    dataset = ps.StoreDataset(photos / "photos.lmdb", fields, EVERY[name])
    indices = np.array([3, 0, 11, -1])
    out = tree_map(lambda leaf: np.zeros((4, *leaf.shape), leaf.dtype), dataset.spec())

    dataset.fill(indices, out, KEYS[:4])

    expected = pt.default_collate(fetch(dataset, indices.tolist(), KEYS[:4]))
    tree_map(lambda found, want: np.testing.assert_array_equal(found, want.numpy()), *_alike(out, expected))


def _alike(out: Any, expected: Any) -> tuple[Any, Any]:
    """Convert tuples and lists to lists, because collation turns tuples into lists."""
    return (list(out), list(expected)) if isinstance(out, tuple) else (out, expected)


@pytest.mark.parametrize("name", ["partly", "unknown", "single"])
def test_what_is_not_recognised_is_called_as_it_is(photos: Path, name: str) -> None:
    """Samples are collated, not filled."""
    dataset = ps.StoreDataset(photos / "photos.lmdb", ("image", "label"), EVERY[name])

    assert spec_of(dataset) is None
    assert isinstance(dataset[0][0], Image.Image if name == "single" else torch.Tensor)


@pytest.mark.parametrize("name", ["train", "partly"])
@pytest.mark.parametrize("module", [ps, pt])
def test_any_workers_give_the_same(photos: Path, name: str, module: Any) -> None:
    """With threads, processes or no workers, as NumPy arrays or tensors."""
    dataset = ps.StoreDataset(photos / "photos.lmdb", ("image", "label"), EVERY[name])
    given: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 3, "seed_per_sample": True}

    runs = [list(module.DataLoader(dataset, num_workers=workers, **given)) for workers in (0, 1, 2)]

    for run in runs[1:]:
        for (images, labels), (same_images, same_labels) in zip(run, runs[0], strict=True):
            assert (np.asarray(images) == np.asarray(same_images)).all()
            assert (np.asarray(labels) == np.asarray(same_labels)).all()
    assert isinstance(runs[0][0][0], np.ndarray if module is ps else torch.Tensor)


def test_the_log_says_what_is_native(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log has the same line as for folders."""
    with caplog.at_level(logging.INFO, "penstock.torch.vision"):
        ps.StoreDataset(photos / "photos.lmdb", "image", PARTLY)

    assert "native: RandomResizedCrop; called as usual: RandAugment, PILToTensor" in caplog.text


def test_it_pickles(photos: Path) -> None:
    """A copy gives the same pixels."""
    dataset = ps.StoreDataset(photos / "photos.lmdb", "image", TRAIN)
    copy = pickle.loads(pickle.dumps(dataset))

    for one, other in zip(fetch(dataset, [0, 1], KEYS[:2]), fetch(copy, [0, 1], KEYS[:2]), strict=True):
        same(one, other)


def test_another_transform_counts_at_once(photos: Path) -> None:
    """A new transform of the dataset is used from then on, for example for evaluation."""
    dataset = ps.StoreDataset(photos / "photos.lmdb", ("image", "label"), TRAIN)

    dataset.transform = EVAL

    assert dataset[0][0].shape == (3, 32, 32)
    assert next(iter(pt.DataLoader(dataset, 4)))[0].shape == (4, 3, 32, 32)


def test_errors_name_the_record() -> None:
    """They state store, key and index, for samples and for filled rows."""
    dataset = ps.StoreDataset(MemoryStore(broken=7), ("image", "label"), EVAL)
    out = tree_map(lambda leaf: np.zeros((2, *leaf.shape), leaf.dtype), dataset.spec())

    for run in (lambda: dataset[7], lambda: dataset.fill(np.array([1, 7]), out, KEYS[:2])):
        with pytest.raises(DecodeError) as caught:
            run()
        assert (caught.value.where["key"], caught.value.where["index"]) == ("class/7.jpg", 7)
        assert "position" not in caught.value.where


@pytest.mark.parametrize(
    ("store", "field"),
    [(bbox(), "bbox"), (Targets("boxes", "boxes", np.zeros((1, 4), np.float32)), "boxes")],
    ids=["looks like", "is"],
)
def test_targets_beside_the_image_are_refused(store: Any, field: str) -> None:
    """A torchvision transform is called with the image only; the kind None leaves the field unchanged."""
    with pytest.raises(ArgumentError, match=rf"'{field}'.*Pipeline.*kinds={{'{field}': None}}"):
        ps.StoreDataset(store, ("image", field), EVAL)
    assert ps.StoreDataset(store, ("image", field), EVAL, kinds={field: None})[0][0].shape == (3, 32, 32)


def test_a_target_transform_beside_it(photos: Path) -> None:
    """Rows are still filled."""
    dataset = ps.StoreDataset(photos / "photos.lmdb", ("image", "label"), EVAL, lambda label: 10 + label)

    images, labels = next(iter(pt.DataLoader(dataset, 12)))

    assert spec_of(dataset) is not None
    assert labels.tolist() == [10 + label for label in ps.open(photos / "photos.lmdb").column("label").tolist()]
    assert images.shape == (12, 3, 32, 32)


# penstock.torch.compile


@pytest.mark.parametrize("transform", [TRAIN, T.Pipeline([T.Decode(), T.CenterCrop(8), T.ToLayout()])])
def test_compile_gives_back_what_fills_already(photos: Path, transform: Any) -> None:
    """A StoreDataset is native already, alone and in torch's wrappers."""
    dataset = ps.StoreDataset(photos / "photos.lmdb", ("image", "label"), transform)
    part: Any = torch.utils.data.Subset(dataset, [1, 3])

    assert pt.compile(dataset) is dataset
    assert spec_of(pt.compile(part)) is not None


@pytest.mark.parametrize(
    ("transform", "fields", "words"),
    [
        (PARTLY, ("image", "label"), "RandAugment"),
        (T.Pipeline([T.Decode()]), ("image", "label"), "one shape"),
        (T.Pipeline([T.Decode(), T.CenterCrop(8)]), ("image", "key"), "'key'"),
        (lambda sample: sample, ("image", "label"), "<lambda>"),
        (None, ("image", "label"), "no transform"),
    ],
)
def test_compile_says_why_it_cannot(photos: Path, transform: Any, fields: Any, words: str) -> None:
    """A dataset that would be collated is an error, because it is not compiled."""
    with pytest.raises(ArgumentError, match=words):
        pt.compile(ps.StoreDataset(photos / "photos.lmdb", fields, transform))


# torchvision's own folders


def of_random(label: int) -> int:
    """A target transform that draws from the global generator."""
    return 100 * label + random.randrange(100)


def of_rng(label: int) -> int:
    """A target transform that draws from penstock.rng()."""
    return 100 * label + int(ps.rng().integers(100))


@pytest.mark.parametrize("target_transform", [of_random, of_rng])
@pytest.mark.parametrize("kind", ["folder", "store"])
def test_targets_that_draw_are_the_same_for_any_workers(photos: Path, target_transform: Any, kind: str) -> None:
    """They are seeded by sample, filled by threads or collated in processes; with penstock.rng() they are collated."""
    if kind == "folder":
        dataset: Any = pt.ImageFolder(photos / "photos", EVAL, target_transform)
    else:
        dataset = ps.StoreDataset(photos / "photos.lmdb", ("image", "label"), EVAL, target_transform)
    given: dict[str, Any] = {"batch_size": 5, "shuffle": True, "seed": 3, "seed_per_sample": True}

    runs = [
        [labels.tolist() for _, labels in pt.DataLoader(dataset, num_workers=number, workers=workers, **given)]
        for number, workers in ((0, "auto"), (1, "threads"), (2, "threads"), (1, "processes"), (2, "processes"))
    ]

    assert all(run == runs[0] for run in runs)
    assert (spec_of(dataset) is not None) == (target_transform is of_random)


def test_looking_at_a_target_transform_draws_nothing(photos: Path) -> None:
    """It is called once to find its result type; the global generators are restored."""

    def drawing(label: int) -> int:
        return label + random.randrange(2) + int(torch.randint(2, ())) + int(np.random.randint(2))  # noqa: NPY002  # what users do

    of_numpy = str(np.random.get_state(legacy=False))  # noqa: NPY002  # the global one is meant
    states = random.getstate(), torch.get_rng_state(), of_numpy

    pt.ImageFolder(photos / "photos", EVAL, drawing).spec()
    ps.StoreDataset(photos / "photos.lmdb", ("image", "label"), EVAL, drawing).spec()

    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])
    assert str(np.random.get_state(legacy=False)) == states[2]  # noqa: NPY002  # as above
