"""bfloat16 in NumPy: rounding, the two dtypes, and what a NumPy loader delivers."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import bfloat16
from penstock import transforms as T
from penstock.errors import OptionalPackageError
from tests.pack.images import make_photos

IMAGES = [T.Decode(), T.RandomResizedCrop(16), T.Normalize(0.5, 0.5)]


@pytest.fixture(params=["stand-in", "ml_dtypes"])
def dtype(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[np.dtype[Any]]:
    """The dtype without ml_dtypes, and with it where it is installed."""
    if request.param == "ml_dtypes":
        pytest.importorskip("ml_dtypes")
    else:
        monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    bfloat16._bfloat16.cache_clear()
    yield bfloat16.array_dtype("bfloat16")
    bfloat16._bfloat16.cache_clear()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ps.Store]:
    """A folder of twelve pictures, opened."""
    with ps.open(make_photos(tmp_path / "photos")) as opened:
        yield opened


def test_floats_are_rounded_to_the_nearest_ties_to_even(dtype: np.dtype[Any]) -> None:
    """Upper halves, increased where the lower one is above a half, or a half below an odd one; NaN stays."""
    bits = [0x3F80_7FFF, 0x3F80_8000, 0x3F80_8001, 0x3F81_8000, 0x7F7F_FFFF, 0xFF80_0000, 0x7F80_0001, 0xFFC1_2345]

    found = bfloat16.from_floats(np.array(bits, np.uint32).view(np.float32))

    assert found.dtype == dtype
    expected = [0x3F80, 0x3F80, 0x3F81, 0x3F82, 0x7F80, 0xFF80, 0x7FC0, 0xFFC0]
    assert bfloat16.as_words(found).tolist() == expected


def test_every_number_becomes_itself(dtype: np.dtype[Any]) -> None:
    """All bfloat16 numbers are floats, which round to the same bits; NaNs become the quiet ones."""
    words = np.arange(1 << 16).astype(np.uint16)
    numbers = words[(words & 0x7FFF) <= 0x7F80]

    floats = bfloat16.to_floats(numbers.view(dtype))

    np.testing.assert_array_equal(bfloat16.as_words(bfloat16.from_floats(floats)), numbers)


def test_it_is_a_dtype_of_its_own(dtype: np.dtype[Any]) -> None:
    """It has two bytes, survives pickling, and is never taken for uint16 or float16, nor these for it."""
    assert dtype.itemsize == 2
    assert pickle.loads(pickle.dumps(dtype)) == dtype
    assert bfloat16.is_bfloat16(dtype)
    assert not any(bfloat16.is_bfloat16(np.dtype(other)) for other in ("uint16", "float16", "V2", "O"))


def test_the_stand_in_does_not_compute() -> None:
    """Bits are no numbers: NumPy refuses arithmetic with them."""
    array = np.zeros(3, bfloat16.STAND_IN)

    with pytest.raises(TypeError):
        array + array
    with pytest.raises(TypeError):
        array.mean()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_numpy_loader_needs_ml_dtypes(store: ps.Store, dtype: np.dtype[Any], num_workers: int) -> None:
    """Filled batches have ml_dtypes' dtype and the rounded numbers; without the package, an error says what to do."""
    batches = [
        ps.DataLoader(
            ps.StoreDataset(store, ("image", "label"), transform=[*IMAGES, T.ToLayout("CHW", name)]),
            5, num_workers=num_workers, seed=3,
        )
        for name in ("bfloat16", "float32")
    ]  # fmt: skip

    if dtype == bfloat16.STAND_IN:
        with pytest.raises(OptionalPackageError, match=r"'ml_dtypes' is needed for NumPy.*pip install ml_dtypes"):
            next(iter(batches[0]))
        return
    for (images, _), (floats, _) in zip(*batches, strict=True):
        assert images.dtype == dtype
        np.testing.assert_array_equal(bfloat16.as_words(images), bfloat16.as_words(bfloat16.from_floats(floats)))


class Samples(ps.Dataset[Any]):
    """A dataset that does not fill."""

    def __init__(self) -> None:
        self.pipeline = T.Pipeline([T.ToLayout("CHW", "bfloat16")])

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return {"image": self.pipeline(np.full((4, 5, 3), index, np.uint8)), "index": index}


@pytest.mark.parametrize("batch_size", [2, None])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_the_general_path_needs_it_too(dtype: np.dtype[Any], batch_size: int | None, num_workers: int) -> None:
    """Samples are collated, or given one by one, in ml_dtypes' dtype; without the package they are refused."""
    loader = ps.DataLoader(Samples(), batch_size, num_workers=num_workers)

    if dtype == bfloat16.STAND_IN:
        with pytest.raises(OptionalPackageError, match="pip install ml_dtypes"):
            next(iter(loader))
        return
    images = [batch["image"] for batch in loader]
    assert {image.dtype for image in images} == {dtype}
    found = np.stack(images).reshape(4, 3, 4, 5).astype(np.float32)
    np.testing.assert_allclose(found[:, 0, 0, 0], np.arange(4) / 255, rtol=1 / 256)
