"""``ArrayDataset.from_store``: decoded once, within a budget, in memory that processes share."""

from __future__ import annotations

import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import transforms as T
from tests.pack.images import make_photos


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """A pack of thirty pictures of different sizes."""
    ps.pack(make_photos(tmp_path / "photos", 30), tmp_path / "p.lmdb")
    return tmp_path / "p.lmdb"


def rows(dataset: ps.ArrayDataset) -> Any:
    """Its arrays."""
    return dataset.arrays


def test_arrays_are_those_of_a_store_dataset(pack: Path) -> None:
    """Every pixel, every label; samples and batches too."""
    done: list[tuple[int, int]] = []

    kept = ps.ArrayDataset.from_store(pack, size=(12, 10), progress=lambda *at: done.append(at), workers=2)

    decoded = ps.StoreDataset(pack, ("image", "label"), transform=[T.Decode(), T.Resize((12, 10))])
    assert len(kept) == 30
    for index in range(30):
        assert np.array_equal(kept[index][0], decoded[index][0])
        assert kept[index][1] == decoded[index][1]
    assert rows(kept)[0].dtype == np.uint8
    assert done[-1] == (30, 30)
    for one, other in zip(ps.DataLoader(kept, 8), ps.DataLoader(decoded, 8), strict=True):
        assert np.array_equal(one[0], other[0])
        assert np.array_equal(one[1], other[1])


def test_fields_and_transform_may_be_given(pack: Path) -> None:
    """A mapping makes dicts; a transform may end in other dtypes and layouts."""
    transform = [T.Decode(), T.Resize((8, 8)), T.ToLayout("CHW", "float32")]

    kept = ps.ArrayDataset.from_store(pack, fields={"x": "image", "n": "index"}, transform=transform)

    assert kept[3]["x"].shape == (3, 8, 8)
    assert kept[3]["x"].dtype == np.float32
    assert kept[3]["n"] == 3


def test_images_of_one_size_need_no_size(tmp_path: Path) -> None:
    """The columns of a pack say it; their pixels are not resampled. Others need a size."""
    rng = np.random.default_rng(0)
    from PIL import Image

    pictures = [Image.fromarray(rng.integers(0, 255, (9, 7, 3), np.uint8)) for _ in range(4)]
    ps.pack(iter(pictures), tmp_path / "p.lmdb")

    kept = ps.ArrayDataset.from_store(tmp_path / "p.lmdb")

    assert np.array_equal(rows(kept)[0], np.stack([np.asarray(each) for each in pictures]))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "size must be given"),
        ({"size": 64, "max_nbytes": 1000}, r"need 368\d{3} bytes, and max_nbytes is 1000"),
        ({"size": 64, "transform": [T.Decode()]}, "size is for images without a transform"),
        ({"transform": [T.Decode()]}, "records must have one shape"),
        ({"size": 8, "fields": ("image", "key")}, "records must have one shape"),
    ],
)
def test_what_cannot_be_kept_is_refused(pack: Path, arguments: dict[str, Any], reason: str) -> None:
    """Before memory is allocated."""
    with pytest.raises(ps.ArgumentError, match=reason):
        ps.ArrayDataset.from_store(pack, **arguments)


def test_a_record_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    """By store, key and index."""
    photos = make_photos(tmp_path / "photos", 5)
    (photos / "cats" / "2.jpg").write_bytes(b"\xff\xd8\xff no image")

    with pytest.raises(ps.PenstockError, match=r"cats/2\.jpg"):
        ps.ArrayDataset.from_store(photos, size=8)


def read_in_child(dataset: Any, answer: Any) -> None:
    """In a process: a sum of all rows, and whether they can be written."""
    answer.put((int(dataset.arrays[0].sum()), dataset.arrays[0].flags.writeable, dataset[5][1]))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_share_the_memory(pack: Path, method: str) -> None:
    """A pickled dataset has the place of the memory and not its contents; it is read-only everywhere."""
    kept = ps.ArrayDataset.from_store(pack, size=64)
    context: Any = multiprocessing.get_context(method)
    answer = context.Queue()

    child = context.Process(target=read_in_child, args=(kept, answer))
    child.start()
    found = answer.get(timeout=60)
    child.join()

    assert len(pickle.dumps(kept)) < 2000
    assert found == (int(rows(kept)[0].sum()), False, kept[5][1])
    with pytest.raises(ValueError, match="read-only"):
        rows(kept)[0][0] = 0


def test_a_copy_in_the_process_stays_valid(pack: Path) -> None:
    """Memory lives as long as one dataset; a pickle of memory that is gone is refused."""
    kept = ps.ArrayDataset.from_store(pack, size=8, fields={"image": "image"})
    wanted, pickled = rows(kept)["image"].copy(), pickle.dumps(kept)
    copy: Any = pickle.loads(pickled)

    del kept

    assert np.array_equal(rows(copy)["image"], wanted)
    with pytest.raises(ps.StoreError, match="decode the store again"):
        pickle.loads(pickled)
