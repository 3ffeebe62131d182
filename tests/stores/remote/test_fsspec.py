"""Places that fsspec reads, by its file system in memory; and ``file://`` URLs, which are paths."""

from __future__ import annotations

import ftplib
import os
import pickle
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import penstock as ps
from penstock.errors import ArgumentError, OptionalPackageError, StoreError, StoreNotFoundError
from penstock.stores.location import read_file_url
from penstock.stores.remote import fsspec_library
from penstock.stores.remote import object_store as places
from penstock.stores.remote.object_store import Place
from penstock.stores.remote.storage_client import StorageOptions
from penstock.stores.tar.stream import TarStream
from tests.stores.lmdb_pack.packs import make_pack
from tests.stores.remote import memory_place
from tests.stores.remote.memory_place import URL

pytest.importorskip("obstore")


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty place; waits between attempts are short."""
    monkeypatch.setattr(places, "_WAIT", (0.001, 0.002))
    memory_place.clear()
    yield
    memory_place.clear()


def images(store: ps.Store, order: Any) -> list[bytes]:
    """The images of some records."""
    return [bytes(image) for image in store.blobs("image", order)]


def test_a_pack_is_equal_to_its_files(tmp_path: Path) -> None:
    """Read by ranges, in any order, after announcements, and from the cache."""
    make_pack(tmp_path / "photos.lmdb", 60)
    memory_place.put_folder(tmp_path / "photos.lmdb", "photos.lmdb")
    order = np.random.default_rng(0).permutation(60)

    for _ in range(2):
        with (
            ps.open(f"{URL}/photos.lmdb", cache=tmp_path / "cache") as store,
            ps.open(tmp_path / "photos.lmdb") as local,
        ):
            store.prefetch(order)
            assert (store.digest(), store.url) == (local.digest(), f"{URL}/photos.lmdb")
            assert images(store, order) == images(local, order)
            assert images(pickle.loads(pickle.dumps(store)), order) == images(local, order)  # our own


def test_what_is_replaced_is_an_error(tmp_path: Path) -> None:
    """By another version of the same size, too."""
    make_pack(tmp_path / "photos.lmdb", 60)
    memory_place.put_folder(tmp_path / "photos.lmdb", "photos.lmdb")

    with ps.open(f"{URL}/photos.lmdb", cache=tmp_path / "cache") as store:
        memory_place.put_folder(tmp_path / "photos.lmdb", "photos.lmdb")
        with pytest.raises(StoreError, match="replaced while it was open"):
            images(store, range(60))


def test_a_connection_is_used_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """And by few at once; one that failed is not used again."""
    memory_place.put({"a": b"abc"})
    client = fsspec_library.FileSystems(URL, {})
    seen: list[object] = []
    busy: set[int] = set()
    lock = threading.Lock()

    def use() -> None:
        for _ in range(50):
            with client.borrow() as (system, _):
                with lock:
                    assert id(system) not in busy
                    busy.add(id(system))
                    seen.append(system)
                assert system.cat_file("/bucket/a", 0, 2) == b"ab"
                with lock:
                    busy.remove(id(system))

    threads = [threading.Thread(target=use) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(system) for system in seen}) <= 8
    with pytest.raises(OSError, match="reset"), client.borrow() as (failed, _):
        raise OSError("reset")
    with client.borrow() as (system, _):
        assert system is not failed


@pytest.mark.parametrize("fault", [ConnectionResetError("reset"), EOFError(), ftplib.error_temp("421 busy")], ids=repr)
def test_faults_that_pass_are_not_noticed(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    """They are repeated as for every other place."""
    memory_place.put({"a": b"abcdef"})
    place = Place(URL, StorageOptions())
    info = place.find("a")
    assert info is not None
    cat_file, failures = fsspec.get_filesystem_class("memory").cat_file, [1, 1]

    def fail(self: Any, *args: Any, **kwargs: Any) -> bytes:
        if failures:
            failures.pop()
            raise fault
        content: bytes = cat_file(self, *args, **kwargs)
        return content

    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "cat_file", fail)

    assert bytes(place.get("a", 1, 4, info)) == b"bcd"
    assert not failures


@pytest.mark.parametrize(
    ("url", "error", "match"),
    [
        (f"{URL}/none.lmdb", StoreNotFoundError, "there is no object at this URL"),
        ("sftp://ann:sesame@host/p.lmdb", ArgumentError, "no user and password"),
        ("ftp://host/p.lmdb?token=sesame", ArgumentError, "no query"),
        ("hf://datasets::memory://a/b", ArgumentError, "no query"),
        ("hf://", ArgumentError, "scheme://bucket/path"),
    ],
)
def test_errors_say_what_to_do(tmp_path: Path, url: str, error: type[Exception], match: str) -> None:
    """And show no secret."""
    with pytest.raises(error, match=match) as caught:
        ps.open(url, cache=tmp_path / "cache")
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("missing", ["fsspec", "paramiko"])
def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """fsspec itself, and what it needs for a scheme."""
    monkeypatch.setitem(sys.modules, missing, None)

    with pytest.raises(OptionalPackageError, match=missing):
        ps.open("sftp://host/photos.lmdb", cache=tmp_path / "cache")


def test_a_place_without_versions_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes would not be noticed."""
    memory_place.put({"a.tar": b"x"})
    system = fsspec.get_filesystem_class("memory")
    monkeypatch.setattr(system, "info", lambda *_: {"name": "/bucket/a.tar", "size": 1, "type": "file"})

    with pytest.raises(StoreError, match="states no version or time of change of its files"):
        ps.open(f"{URL}/a.tar", cache=tmp_path / "cache")


def test_a_forked_process_says_what_to_do(tmp_path: Path) -> None:
    """As with every client."""
    make_pack(tmp_path / "photos.lmdb", 3)
    memory_place.put_folder(tmp_path / "photos.lmdb", "photos.lmdb")
    with ps.open(f"{URL}/photos.lmdb", cache=tmp_path / "cache", cache_size=0) as store:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                Place(URL, StorageOptions()).find("a")
            except StoreError as error:
                status = 0 if "forkserver" in str(error) else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert len(images(store, range(3))) == 3


def test_file_urls_are_paths(tmp_path: Path) -> None:
    """For stores, streams and packs; options of places are allowed, so that a script need not tell them apart."""
    make_pack(tmp_path / "my photos.lmdb", 3)
    url = f"file://{tmp_path}/my%20photos.lmdb"

    with ps.open(url, cache=tmp_path / "cache", cache_size="1GB") as store:
        assert store.url == f"lmdb://{tmp_path}/my photos.lmdb"
        assert len(store) == 3
    assert not (tmp_path / "cache").exists()
    with pytest.raises(StoreNotFoundError, match="no shard at this path"):
        list(TarStream(f"file://{tmp_path}/a.tar").records())


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("file:///a%20b", "/a b"), ("FILE://localhost/a", "/a"), ("/a%20b", "/a%20b"), ("files://a", "files://a"),
    ],
)  # fmt: skip
def test_a_file_url_names_a_path(text: str, path: str) -> None:
    """Other texts are left."""
    assert read_file_url(text) == path


@pytest.mark.parametrize("text", ["file://host/a", "file://", "file://a"])
def test_a_file_url_of_another_machine_is_refused(text: str) -> None:
    """It names no path here."""
    with pytest.raises(ArgumentError, match="absolute path of this machine"):
        read_file_url(text)
