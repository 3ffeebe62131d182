"""Folders of images in object storage: listed by the rules of folders of this machine, one object an image."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import transforms as T
from penstock.errors import ArgumentError, IncompleteStoreError, PenstockError, StoreError, StoreFormatError
from penstock.stores.images.store import FilesStore
from penstock.stores.images.trees import ObjectTree
from penstock.stores.remote import folder as folders
from penstock.stores.remote import object_store as places
from penstock.stores.remote.object_store import ObjectInfo, Place
from penstock.stores.remote.storage_client import StorageOptions
from tests.photographs import write_photographs
from tests.servers.s3_server import S3Server
from tests.stores.remote import memory_place
from tests.stores.remote.memory_place import URL

pytest.importorskip("obstore")
NAMES = ["10/img2.jpg", "10/img10.jpg", "2/a/7.png", "2/b.jpeg", "zebra/x.jpg", "zebra/y/z.webp"]


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty place; waits between attempts are short."""
    monkeypatch.setattr(places, "_WAIT", (0.001, 0.002))
    memory_place.clear()
    yield
    memory_place.clear()


def contents(names: list[str]) -> dict[str, bytes]:
    """Bytes for files of these names, from none to several pages."""
    return {name: np.random.default_rng(number).bytes(number * 3001) for number, name in enumerate(names)}


def write_local(root: Path, files: dict[str, bytes]) -> Path:
    """The same files on this machine."""
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def open_remote(tmp_path: Path, **options: Any) -> FilesStore:
    """The folder ``train`` of the place, with a cache of the test's own."""
    store = ps.open(f"{URL}/train", **{"cache": tmp_path / "cache", **options})
    assert isinstance(store, FilesStore)
    return store


def put_train(files: dict[str, bytes]) -> None:
    """Write files below ``train``."""
    memory_place.put({f"train/{name}": content for name, content in files.items()})


def read_all(store: FilesStore) -> list[tuple[str, bytes, int]]:
    """Key, image and label of each record."""
    return [(r.key, bytes(r.fields["image"]), r.fields["label"]) for r in store.read(range(len(store)))]


@pytest.mark.parametrize("classes", [None, ["zebra", "10", "none", "2"]])
def test_a_folder_is_equal_to_that_of_this_machine(tmp_path: Path, classes: list[str] | None) -> None:
    """Order, keys, labels, classes, sizes, entries that are no records, and bytes."""
    files = contents(NAMES) | {"README.md": b"x", "2/notes.txt": b"x", "zebra/old.jp2": b"x", ".hidden/a.txt": b""}
    put_train(files)
    local = ps.open(write_local(tmp_path / "train", files), classes=classes)
    assert isinstance(local, FilesStore)

    with open_remote(tmp_path, classes=classes) as store:
        assert store.url == f"{URL}/train"
        assert (store.kind, len(store), store.schema) == ("files", len(NAMES), local.schema)
        assert list(store.keys()) == list(local.keys())
        assert store.column("label").tolist() == local.column("label").tolist()
        assert (store.problems, store.unreadable) == (local.problems, local.unreadable)
        assert store.fingerprint() == local.fingerprint()
        assert read_all(store) == read_all(local)


def test_a_folder_without_sub_folders_is_one_class(tmp_path: Path) -> None:
    """Which has the name of the folder."""
    put_train(contents(["2.jpg", "10.jpg"]))

    with open_remote(tmp_path) as store:
        assert list(store.keys()) == ["2.jpg", "10.jpg"]
        assert store.schema["label"].classes == ("train",)


@pytest.mark.parametrize(
    ("extra", "error", "match"),
    [
        ({"loose.jpg": b"x"}, StoreFormatError, "1 image beside the class folders"),
        ({"empty/a.txt": b"x"}, StoreFormatError, "there is no image in the folder 'empty'"),
        ({".more/a.jpg": b"x"}, StoreFormatError, "there are images in the hidden folder '.more'"),
        ({".unfinished.json": b"{}"}, IncompleteStoreError, "this folder was never finished"),
    ],
)
def test_what_is_refused_on_this_machine_is_refused_there(
    tmp_path: Path, extra: dict[str, bytes], error: type[PenstockError], match: str
) -> None:
    """With the URL."""
    put_train(contents(NAMES) | extra)

    with pytest.raises(error, match=match) as caught:
        open_remote(tmp_path)

    assert caught.value.where["store"] == f"{URL}/train"


def test_lists_that_are_superseded_are_deleted(tmp_path: Path) -> None:
    """Once nobody has opened them for a day; who still reads by one reads on."""
    files = contents(NAMES)
    put_train(files)
    old = open_remote(tmp_path)
    expected = read_all(old)[:3]
    memory_place.put({"train/2/a/8.png": b"new"})
    read_all(open_remote(tmp_path))
    copies = sorted((tmp_path / "cache").glob("*/images-*"))
    assert len(copies) == 4
    for each in copies:
        os.utime(each, (0, 0))

    read_all(open_remote(tmp_path))

    assert len(list((tmp_path / "cache").glob("*/images-*"))) == 2
    assert read_all(old)[:3] == expected


def test_a_folder_without_images_says_so(tmp_path: Path) -> None:
    """By its URL, not by the path of its copies."""
    put_train({"a.txt": b"x", "b/c.txt": b"x"})

    with pytest.raises(StoreFormatError, match="there is no image in this folder") as caught:
        open_remote(tmp_path)

    assert str(tmp_path) not in str(caught.value)


def test_markers_of_folders_are_no_entries(tmp_path: Path) -> None:
    """Programs write empty objects with the names of folders."""
    put_train(contents(NAMES))

    tree = ObjectTree("train", ["2", "2/b.jpg", "3.jpg", "2-a/c.jpg"], [0, 1, 1, 1], ["a", "b", "c", "d"])

    assert sorted((each.name, each.is_dir()) for each in tree.list_entries("")) == [
        ("2", True), ("2-a", True), ("3.jpg", False),
    ]  # fmt: skip
    assert [each.name for each in tree.list_entries("2")] == ["b.jpg"]
    assert list(tree.iter_names("2-a")) == ["c.jpg"]
    assert (tree.has("2"), tree.has("2/b.jpg"), tree.has("2/b")) == (True, True, False)


def test_images_are_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And those that are not read are not fetched; a second store, as in another run, finds them in the cache."""
    asked: list[str] = []
    get = Place.get

    def count(self: Place, name: str, begin: int, end: int, info: ObjectInfo) -> memoryview:
        asked.append(name)
        return get(self, name, begin, end, info)

    put_train(contents(NAMES))
    monkeypatch.setattr(Place, "get", count)
    with open_remote(tmp_path) as store:
        assert not asked
        store.read([3, 1])
        assert sorted(asked) == ["10/img10.jpg", "2/a/7.png"]
        expected = read_all(store)
    asked.clear()

    with open_remote(tmp_path) as store:
        assert read_all(store) == expected

    assert not asked


@pytest.mark.parametrize("cache_size", [0, "50GB"])
def test_announced_images_are_fetched_by_one_request_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_size: int | str
) -> None:
    """Also neighbours, and also where nothing is kept."""
    asked: list[str] = []
    get = Place.get

    def count(self: Place, name: str, begin: int, end: int, info: ObjectInfo) -> memoryview:
        asked.append(name)
        return get(self, name, begin, end, info)

    put_train(contents(NAMES))
    monkeypatch.setattr(Place, "get", count)
    with open_remote(tmp_path, cache_size=cache_size) as store:
        assert store.prefetches
        assert store.look_ahead > 0
        store.prefetch(range(len(store)))
        found = read_all(store)

    assert sorted(asked) == sorted(name for name, content in contents(NAMES).items() if content)
    assert {key: image for key, image, _ in found} == contents(NAMES)


def test_a_listing_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is pickled, as for a worker or a later run, carries it."""
    put_train(contents(NAMES))
    with open_remote(tmp_path) as store:
        expected, pickled = read_all(store), pickle.dumps(store)
    shutil.rmtree(tmp_path / "cache")

    def fail(*_: object) -> None:
        raise AssertionError("it is listed again")

    monkeypatch.setattr(Place, "iter_pages", fail)
    monkeypatch.setattr(Place, "list_level", fail)
    with pickle.loads(pickled) as again:  # our own
        assert read_all(again) == expected


def test_an_image_that_was_replaced_or_removed_is_an_error(tmp_path: Path) -> None:
    """With its key and index; the others are read."""
    put_train(contents(NAMES))
    with open_remote(tmp_path) as store:
        put_train({"10/img10.jpg": b"other", "2/b.jpeg": b"y" * (3 * 3001)})
        memory_place.remove("train/2/a/7.png")
        for index, match in ((1, "was replaced"), (3, "vanished after the folder was listed"), (2, "was replaced")):
            with pytest.raises(StoreError, match=match) as caught:
                store.read([index])
            assert (caught.value.where["key"], caught.value.where["index"]) == (store.keys()[index], index)
        assert bytes(store[4].fields["image"]) == contents(NAMES)["zebra/x.jpg"]


def test_folders_are_listed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by lists of its own, and in parts; names come in order."""
    put_train(contents([f"{c}/{n}.jpg" for c in "abc" for n in range(5)]))
    listed: list[str] = []
    iter_pages = Place.iter_pages

    def note(self: Place, folder: str = "") -> Iterator[Any]:
        listed.append(folder)
        return iter_pages(self, folder)

    monkeypatch.setattr(Place, "iter_pages", note)
    monkeypatch.setattr(folders, "_FOLDERS_AT_ONCE", 2)

    with open_remote(tmp_path) as store:
        assert list(store.keys()) == [f"{c}/{n}.jpg" for c in "abc" for n in range(5)]

    assert listed == ["", "a", "b", "c"]


def test_too_many_objects_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which says what to do."""
    put_train(contents(NAMES))
    monkeypatch.setattr(folders, "_MAX_NAMES", 3)

    with pytest.raises(StoreError, match=r"more than 3 objects; pack them \(penstock pack\)"):
        open_remote(tmp_path)


def test_a_list_is_continued_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the last name on, and nothing comes twice."""

    class Library:
        failures = 2
        offsets: list[str | None] = []  # noqa: RUF012  # of this test

        def list(self, _: object, prefix: str | None, *, offset: str | None, chunk_size: int) -> Iterator[Any]:
            del chunk_size
            self.offsets.append(offset)
            names = [f"{prefix}/{number}" for number in range(6) if f"{prefix}/{number}" > (offset or "")]
            yield [{"path": name, "size": 1, "e_tag": name} for name in names[:2]]
            if self.failures:
                self.failures -= 1
                raise OSError("reset")
            yield [{"path": name, "size": 1, "e_tag": name} for name in names[2:]]

    library, place = Library(), Place("s3://bucket/a", StorageOptions())
    monkeypatch.setattr(place, "_load_library", lambda: library)
    monkeypatch.setattr(place, "_client", type("Client", (), {"get": lambda _: None})())

    pages = [list(page) for page in place.iter_pages()]

    assert pages == [["0", "1"], ["2", "3"], ["4", "5"]]
    assert library.offsets == [None, "a/1", "a/3"]


@pytest.mark.parametrize("workers", ["serial", "threads", "processes"])
def test_loaders_read_it(tmp_path: Path, workers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are those of the folder on this machine. Worker processes find the images in the cache."""
    folder = write_photographs(tmp_path / "train", per_class=1)
    memory_place.put_folder(folder, "train")

    def batches(store: ps.Store, workers: str) -> list[object]:
        dataset = ps.StoreDataset(store, transform=[T.Decode(), T.Resize((16, 16))])
        count = 2 * (workers != "serial")
        loader = ps.DataLoader(dataset, 4, shuffle=True, seed=1, num_workers=count, workers=workers)
        return [batch["image"].tolist() for batch in loader]

    with open_remote(tmp_path) as store, ps.open(folder) as local:
        if workers == "processes":  # memory is not shared with them
            store.read(range(len(store)))
        assert batches(store, workers) == batches(local, "serial")


def test_a_folder_can_be_packed(tmp_path: Path) -> None:
    """As one of this machine."""
    folder = write_photographs(tmp_path / "train", per_class=1)
    memory_place.put_folder(folder, "train")

    with open_remote(tmp_path) as store:
        ps.pack(store, tmp_path / "a.lmdb")
    ps.pack(folder, tmp_path / "b.lmdb")

    with ps.open(tmp_path / "a.lmdb") as mine, ps.open(tmp_path / "b.lmdb") as theirs:
        assert list(mine.keys()) == list(theirs.keys())
        assert [bytes(b) for b in mine.blobs("image", range(len(mine)))] == [
            bytes(b) for b in theirs.blobs("image", range(len(theirs)))
        ]


def test_classes_must_name_the_folders(tmp_path: Path) -> None:
    """As on this machine."""
    put_train(contents(NAMES))

    with pytest.raises(ArgumentError, match="it lacks the folder 'zebra'"):
        open_remote(tmp_path, classes=["2", "10"])


@pytest.mark.slow
def test_a_folder_in_s3_is_equal_to_its_files(
    empty_s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With faults, several answers for one folder, and several folders; images are read in any order."""
    monkeypatch.setattr(places, "_MAX_ATTEMPTS", 40)
    monkeypatch.setattr(places, "_PAGE_NAMES", 1000)
    names = [f"class {c}/{n:05d}.jpg" for c in range(12) for n in range(1500 if c == 3 else 40)]
    root = empty_s3.root / "bucket" / "train"
    write_local(root, {name: os.fsencode(name) * 100 for name in names})
    empty_s3.set_faults(seed=1, **{"503": 0.1, "reset": 0.05, "short": 0.05})

    with (
        ps.open("s3://bucket/train/", cache=tmp_path / "cache", storage_options=empty_s3.options) as store,
        ps.open(root) as local,
    ):
        order = np.random.default_rng(0).permutation(len(local))[:300]
        store.prefetch(order)
        assert list(store.keys()) == list(local.keys())
        assert store.fingerprint() == local.fingerprint()
        assert [bytes(r.fields["image"]) for r in store.read(order)] == [
            bytes(r.fields["image"]) for r in local.read(order)
        ]
    assert sum(empty_s3.count()["faults"].values()) > 0
