"""torch.bfloat16 batches: float32 batches rounded as torch rounds, on every path, without ml_dtypes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import transforms as T

torch = pytest.importorskip("torch")

import penstock.torch as pt  # noqa: E402  # it needs torch
from tests.datasets.test_pixels import MemoryStore, make_images  # noqa: E402  # as above
from tests.pack.images import make_photos  # noqa: E402  # as above

NORMALIZE = T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ps.Store]:
    """A folder of twelve pictures, opened."""
    with ps.open(make_photos(tmp_path / "photos")) as opened:
        yield opened


def assert_rounded(loaders: list[Any]) -> None:
    """Both give the same batches, the first the second's images as ``Tensor.bfloat16`` rounds them."""
    count = 0
    for (found, labels), (expected, others) in zip(*loaders, strict=True):
        assert found.dtype is torch.bfloat16
        assert found.is_contiguous()
        assert torch.equal(found.view(torch.int16), expected.bfloat16().view(torch.int16))
        assert torch.equal(labels, others)
        count += 1
    assert count > 1


def make_loaders(store: ps.Store, ops: list[Any], **arguments: Any) -> list[Any]:
    """Loaders of bfloat16 and of float32 images with the same random numbers."""
    loaders = []
    for dtype in ("bfloat16", "float32"):
        dataset = ps.StoreDataset(store, ("image", "label"), transform=[*ops, T.ToLayout("CHW", dtype)])
        loaders.append(pt.DataLoader(dataset, 5, generator=torch.Generator().manual_seed(1), **arguments))
    return loaders


@pytest.mark.parametrize("workers", ["serial", "threads", "processes"])
@pytest.mark.parametrize("ops", [[NORMALIZE], [], [T.Grayscale(3), NORMALIZE, T.RandomErasing(1.0)]], ids=repr)
def test_encoded_images(store: ps.Store, ops: list[Any], workers: str) -> None:
    """Fused, with an op that does not fuse, and sample by sample in worker processes."""
    arguments: dict[str, Any] = {} if workers == "serial" else {"num_workers": 2, "workers": workers}

    loaders = make_loaders(store, [T.Decode(), T.RandomResizedCrop(24), *ops], shuffle=True, **arguments)

    assert_rounded(loaders)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_stored_pixels(dtype: str) -> None:
    """Images that are stored as their pixels, of each dtype."""
    images = make_images(dtype, [(12, 12, 3)] * 9)
    store = MemoryStore({"image": f"pixels:{dtype}[12,12,3]", "label": "label"}, {"image": images, "label": [1] * 9})

    loaders = make_loaders(store, [T.RandomCrop(8), T.HorizontalFlip(), NORMALIZE], num_workers=2)

    assert_rounded(loaders)


class Samples(ps.Dataset[Any]):
    """A dataset that does not fill."""

    def __init__(self, dtype: str) -> None:
        self.pipeline = T.Pipeline([NORMALIZE, T.ToLayout("CHW", dtype)])

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return self.pipeline(np.random.default_rng(index).integers(0, 256, (6, 7, 3), np.uint8)), index


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("loader", [pt.DataLoader, torch.utils.data.DataLoader])
def test_collated_samples(loader: Any, num_workers: int) -> None:
    """Samples of a user's dataset are collated by torch's rules, also by torch's own loader."""
    loaders = [loader(Samples(dtype), 5, num_workers=num_workers) for dtype in ("bfloat16", "float32")]

    assert_rounded(loaders)


@pytest.mark.parametrize(("workers", "num_workers"), [("serial", 0), ("threads", 2), ("processes", 2)])
def test_samples_without_batches(store: ps.Store, workers: str, num_workers: int) -> None:
    """Without batches, samples that are not filled are converted as by torch, those of bfloat16 to its tensors."""
    chosen: dict[str, Any] = {"num_workers": num_workers, "workers": workers} if num_workers else {}

    for datasets in (
        [Samples(dtype) for dtype in ("bfloat16", "float32")],
        [ps.StoreDataset(store, ("image", "label"), [T.Decode(), T.Resize(9), NORMALIZE, T.ToLayout("CHW", dtype)])
         for dtype in ("bfloat16", "float32")],
    ):  # fmt: skip
        assert_rounded_singly([list(pt.DataLoader(each, batch_size=None, **chosen)) for each in datasets])


def assert_rounded_singly(samples: list[list[Any]]) -> None:
    """Each image of the first is the second's, rounded; labels are what torch's ``default_convert`` gives."""
    for (found, label), (expected, other) in zip(*samples, strict=True):
        assert found.dtype is torch.bfloat16
        assert torch.equal(found.view(torch.int16), expected.bfloat16().view(torch.int16))
        assert (type(label), label) == (type(other), other)
    assert len(samples[0]) == 12


def test_what_torch_does_not_convert_is_refused_as_by_torch() -> None:
    """Beside an array of bfloat16, an array that torch refuses raises torch's own error."""
    image = T.ToLayout("CHW", "bfloat16").image(np.zeros((2, 3, 3), np.uint8), np.empty(0))
    samples = [(image, np.zeros(2, "datetime64[s]"))]

    with pytest.raises(TypeError, match="datetime64"):
        list(pt.DataLoader(samples, batch_size=None))


def test_a_run_that_is_resumed(store: ps.Store) -> None:
    """The batches after a state are those of the run without an interruption."""
    whole, resumed = (make_loaders(store, [T.Decode(), T.RandomResizedCrop(24)], num_workers=2)[0] for _ in range(2))
    iterator = iter(whole)
    next(iterator)
    state = whole.state_dict()
    expected = [images for images, _ in iterator]

    resumed.load_state_dict(state)
    found = [images for images, _ in resumed]

    assert len(found) == len(expected) == 2
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def test_memory_is_shared() -> None:
    """``as_tensors`` makes a view of an array of bfloat16."""
    array = T.ToLayout("CHW", "bfloat16").image(np.full((2, 3, 3), 255, np.uint8), np.empty(0))

    tensor = pt.as_tensors(array)

    tensor.zero_()
    assert tensor.dtype is torch.bfloat16
    assert not array.view(np.uint16).any()
