"""The program that DESIGN promises, word for word, on a folder of photographs with and without class folders."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock import transforms as T


def photograph(path: Path, seed: int) -> None:
    """A JPEG of soft noise, of a size of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(seed)
    coarse = draw.integers(0, 256, (9, 12, 3), dtype=np.uint8)
    size = (int(draw.integers(230, 400)), int(draw.integers(230, 400)))
    Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(path, quality=int(draw.integers(50, 96)))


@pytest.fixture(params=["with class folders", "without"])
def photos(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, int]:
    """A folder named ``photos`` with 150 pictures, and how many classes it has."""
    classes = ["cats", "dogs", "owls"] if request.param == "with class folders" else ["."]
    for i in range(150):
        photograph(tmp_path / "photos" / classes[i % len(classes)] / f"{i}.jpg", i)
    return str(tmp_path / "photos"), len(classes)


def test_the_promised_program_runs_as_it_is_written(photos: tuple[str, int], tmp_path: Path) -> None:
    """Pack, open, augment, load three epochs, take the state: names, shapes and dtypes as promised."""
    folder, classes = photos
    target = str(tmp_path / "photos.lmdb")

    ps.pack(folder, target)
    store = ps.open(target)
    augment = T.Pipeline([
        T.Decode(),
        T.RandomResizedCrop(224),
        T.HorizontalFlip(),
        T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD),
        T.ToLayout("CHW", "float32"),
    ])  # fmt: skip
    dataset = ps.StoreDataset(store, fields=("image", "label"), transform=augment)
    loader = ps.DataLoader(dataset, batch_size=64, shuffle=True, num_workers=2, workers="threads", seed=0)
    seen = []
    for _epoch in range(3):
        for images, labels in loader:
            seen.append((images.shape, images.dtype, labels.shape, labels.dtype, set(labels.tolist())))
    state = loader.state_dict()

    assert [shape for shape, *_ in seen] == [(n, 3, 224, 224) for n in (64, 64, 22)] * 3
    assert {(dtype, label_dtype) for _, dtype, _, label_dtype, _ in seen} == {(np.dtype("f4"), np.dtype("i8"))}
    assert set().union(*(labels for *_, labels in seen)) == set(range(classes))
    assert isinstance(state, dict)


def test_decode_gives_the_pixels_of_a_region(tmp_path: Path) -> None:
    """``ps.decode`` of bytes and a region: HWC uint8, the pixels that a whole decode has there."""
    photograph(tmp_path / "one.jpg", 7)
    jpeg_bytes = (tmp_path / "one.jpg").read_bytes()
    x0, y0, x1, y1 = 31, 17, 201, 150

    pixels = ps.decode(jpeg_bytes, region=(x0, y0, x1, y1), scale=1)

    whole = np.asarray(Image.open(io.BytesIO(jpeg_bytes)).convert("RGB"))
    assert pixels.dtype == np.uint8
    assert np.array_equal(pixels, whole[y0:y1, x0:x1])


def test_torch_batches_are_the_same_numbers(photos: tuple[str, int]) -> None:
    """The plain folder through ``penstock.torch``: torch tensors, equal to NumPy's batches."""
    torch = pytest.importorskip("torch")
    from penstock.torch import DataLoader

    augment = T.Pipeline([T.Decode(), T.RandomResizedCrop(64), T.ToLayout("CHW", "float32")])
    dataset = ps.StoreDataset(ps.open(photos[0]), fields={"x": "image", "y": "label"}, transform=augment)

    ours = list(ps.DataLoader(dataset, 32, num_workers=2, seed=3))
    theirs = list(DataLoader(dataset, 32, num_workers=2, seed=3))

    assert all(isinstance(batch["x"], torch.Tensor) and isinstance(batch["y"], torch.Tensor) for batch in theirs)
    assert all(
        np.array_equal(a["x"], b["x"].numpy()) and np.array_equal(a["y"], b["y"].numpy())
        for a, b in zip(ours, theirs, strict=True)
    )
