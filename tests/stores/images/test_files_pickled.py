"""A pickled files store: what goes along, what is not done again, and what a file that changed in between becomes."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import transforms as T
from penstock.errors import StoreError, StoreNotFoundError
from penstock.stores.common.keys import KeyList
from penstock.stores.images.store import FilesStore
from tests.pack.images import make_photos, picture


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twelve pictures in two classes, and what is no picture."""
    photos = make_photos(tmp_path / "photos")
    (photos / "labels.csv").write_text("a,b")
    (photos / "cats" / "gone.jpg").symlink_to("nowhere")
    return photos


def copy_of(store: FilesStore) -> FilesStore:
    """The store as a worker gets it."""
    copy: FilesStore = pickle.loads(pickle.dumps(store))
    return copy


def test_opening_a_copy_looks_at_the_folder_alone(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy lists nothing and looks at no file: the listing came with it."""
    pickled = pickle.dumps(FilesStore(photos))
    looked: list[str] = []
    real_stat = os.stat

    def stat(path: object, *args: object, **kwargs: object) -> os.stat_result:
        looked.append(str(path))
        return real_stat(path, *args, **kwargs)  # type: ignore[arg-type]  # passed on as they came

    def refuse(path: object = ".") -> object:
        raise AssertionError(f"{path} was listed again")

    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(os, "scandir", refuse)
    monkeypatch.setattr(os, "listdir", refuse)
    copy = pickle.loads(pickled)
    monkeypatch.undo()

    assert set(looked) == {str(photos)}
    assert bytes(copy.read([3])[0].fields["image"]) == (photos / "cats" / "6.jpg").read_bytes()


def test_a_copy_says_what_the_store_says(photos: Path) -> None:
    """Names, labels, classes, problems, digest and fingerprint are the original's, also in a copy's copy."""
    store = FilesStore(photos, classes=["dogs", "ants", "cats"])

    for copy in (copy_of(store), copy_of(copy_of(store))):
        assert list(copy.keys()) == list(store.keys())
        assert copy.column("label").tolist() == store.column("label").tolist()
        assert not copy.column("label").flags.writeable
        assert copy.schema == store.schema
        assert (copy.problems, copy.unreadable) == (store.problems, store.unreadable)
        assert (copy.digest(), copy.fingerprint(), copy.url) == (store.digest(), store.fingerprint(), store.url)


def test_a_touched_file_is_the_same_file(photos: Path) -> None:
    """Another time of change alone refuses nothing, in the copy or in the original."""
    store = FilesStore(photos)
    pickled = pickle.dumps(store)
    os.utime(photos / "cats" / "0.jpg", ns=(1, 1))

    for each in (store, pickle.loads(pickled)):
        assert len(each.read(range(12))) == 12


def test_a_changed_file_is_an_error_of_its_own_sample(photos: Path) -> None:
    """A file of another size names store, key and index; all others are read."""
    store = FilesStore(photos)
    pickled = pickle.dumps(store)
    (photos / "dogs" / "3.jpg").write_bytes(picture(3) + b"\0")

    for each in (store, pickle.loads(pickled)):
        assert len(each.read([index for index in range(12) if index != 7])) == 11
        with pytest.raises(StoreError, match="changed after the folder was listed") as caught:
            each.read([7])
        assert caught.value.where == {"store": store.url, "key": "dogs/3.jpg", "index": 7}


def test_a_vanished_file_is_an_error_of_its_own_sample(photos: Path) -> None:
    """A file that is gone, or was renamed, is an error of its sample; a file that is new is none of the store's."""
    pickled = pickle.dumps(FilesStore(photos))
    (photos / "cats" / "0.jpg").rename(photos / "cats" / "1.jpg")

    copy = pickle.loads(pickled)

    assert len(copy) == 12
    assert len(copy.read(range(1, 12))) == 11
    with pytest.raises(StoreNotFoundError, match="vanished") as caught:
        copy.read([0])
    assert (caught.value.where["key"], caught.value.where["index"]) == ("cats/0.jpg", 0)


def test_a_copy_without_its_folder_says_so(photos: Path, tmp_path: Path) -> None:
    """Where the folder is gone (another machine, a disk that is not mounted), the copy is refused at once."""
    pickled = pickle.dumps(FilesStore(photos))
    photos.rename(tmp_path / "elsewhere")

    with pytest.raises(StoreNotFoundError, match="no such folder"):
        pickle.loads(pickled)


def test_a_pickle_takes_a_few_bytes_a_file(tmp_path: Path) -> None:
    """Names are shared and pressed together: a hundred thousand files take less than 12 bytes each."""
    draw = np.random.default_rng(0)
    keys = [f"n{c:08}/n{c:08}_{number}.JPEG" for c in range(100) for number in draw.integers(0, 99999, 100)]
    for key in keys:
        (tmp_path / key).parent.mkdir(exist_ok=True)
        (tmp_path / key).write_bytes(bytes(int(draw.integers(0, 3000))))

    store = FilesStore(tmp_path)

    assert len(pickle.dumps(store)) < 12 * len(store)


def test_worker_processes_leave_out_a_changed_file_alone(photos: Path) -> None:
    """With a spawned worker, on_error="skip" leaves out the file that grew, and nothing else."""
    store = ps.open(photos)
    program = T.Pipeline([T.Decode(), T.CenterCrop(16), T.ToLayout("HWC", "uint8")])
    dataset = ps.StoreDataset(store, fields=("image", "label"), transform=program)
    loader = ps.DataLoader(
        dataset, 4, num_workers=1, workers="processes", multiprocessing_context="spawn", on_error="skip"
    )
    file = photos / "dogs" / "5.jpg"
    file.write_bytes(file.read_bytes() + b"\0")

    labels = [label for _, labels in loader for label in labels.tolist()]

    assert labels == [0] * 6 + [1] * 5


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)))
def test_key_lists_are_lists_of_text(names: list[str]) -> None:
    """By index, by negative index, by slice, iterated, searched and pickled: what the list of the names gives."""
    keys: Sequence[str] = KeyList.from_names(names)

    for each in (keys, pickle.loads(pickle.dumps(keys))):
        assert len(each) == len(names)
        assert list(each) == names
        assert [each[index] for index in range(-len(names), len(names))] == names + names
        assert list(each[1:5:2]) == names[1:5:2]
        assert all(each.index(name) == names.index(name) for name in names)
    for index in (len(names), -len(names) - 1):
        with pytest.raises(IndexError):
            keys[index]
