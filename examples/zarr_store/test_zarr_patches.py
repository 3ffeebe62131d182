"""What every store of penstock promises, of Zarr groups of patches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from zarr_patches import write_patches

import penstock as ps
from penstock.testing import StoreMaker, StoreTests, read_photos

pytest.importorskip("zarr", reason="zarr is not installed: pip install zarr")


def crop(encoded: bytes) -> NDArray[np.uint8]:
    """The part of a picture that all of them have: 8 x 9 pixels."""
    return ps.decode(encoded)[:8, :9]


def make_patches(folder: Path) -> str:
    """A group of the suite's pictures."""
    photos = read_photos(folder)
    images = np.stack([crop(encoded) for _, encoded, _ in photos])
    labels = np.array([label for _, _, label in photos])
    write_patches(folder / "patches.zarr", images, labels, ["cats", "dogs"])
    return str(folder / "patches.zarr")


class TestZarrPatches(StoreTests):
    """The suite, of a store that gives pixels, and keys that are numbers."""

    maker = StoreMaker(make_patches, keys=None, decoded=crop, survives_fork=False)


def test_a_group_of_patches_is_packed(tmp_path: Path) -> None:
    """It is found by its path, since the entry point names it, and converted as any other store."""
    images = np.random.default_rng(0).integers(0, 256, (100, 16, 16, 3), np.uint8)
    write_patches(tmp_path / "patches.zarr", images, np.arange(100) % 2, ["cats", "dogs"])

    assert ps.convert(tmp_path / "patches.zarr", tmp_path / "patches.lmdb").ok

    with ps.open(tmp_path / "patches.lmdb") as store:
        assert np.array_equal(store[99].fields["image"], images[99])
