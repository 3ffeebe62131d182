"""Copies of remote objects: what is asked twice, given up, deleted, refused, or has an odd name."""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import pickle
import queue
import shutil
import tarfile
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

import penstock as ps
from penstock.errors import StoreError, StoreFormatError
from penstock.stores.common import mapped_files
from penstock.stores.common.mirrors import find_mirror
from penstock.stores.remote import mirror as mirrors
from penstock.stores.remote import request_queue
from penstock.stores.remote.cache import CacheFolder
from penstock.stores.remote.mirror import Mirror
from penstock.stores.remote.object_store import ObjectInfo, Place
from penstock.stores.remote.sparse_file import SparseFile
from penstock.stores.remote.storage_client import StorageOptions
from tests.servers.web import WebServer
from tests.stores import written
from tests.stores.lmdb_pack.packs import make_pack
from tests.stores.remote.test_remote import content, open_remote, server, wait_until_quiet

__all__ = ["server"]


def make_mirror(server: WebServer, nbytes: int, **options: Any) -> Mirror:
    """A copy of a file of ``nbytes`` on the server."""
    (server.root / "data").write_bytes(bytes(range(256)) * (nbytes // 256))
    place = Place(f"{server.url}/data", StorageOptions())
    info = place.find()
    assert info is not None
    cache = CacheFolder(server.root.parent / "cache", options.get("cache_nbytes", 10**9))
    return Mirror(place, "", info, cache.make_folder(place.url, info.version) / "data", cache)


def test_threads_make_one_folder_at_once(tmp_path: Path) -> None:
    """Of the same store, as when several processes open it; each finds the folder made."""
    for number in range(50):
        cache = CacheFolder(tmp_path, 10**6)
        with ThreadPoolExecutor(8) as pool:
            folders = set(pool.map(cache.make_folder, [f"s3://b/{number}"] * 8, ["1"] * 8))
        assert len(folders) == 1
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize("moment", ["listing", "deleting"])
def test_processes_that_make_room_at_once_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A copy that another process deletes, between any two steps, is gone and no error."""
    for number in range(3):
        about = tmp_path / f"{number:032x}" / "about.json"
        about.parent.mkdir()
        about.write_bytes(bytes(1 << 16))
        os.utime(about, (number, number))
    cache = CacheFolder(tmp_path, 1 << 17)
    own = cache.make_folder("s3://bucket/x", "1")
    glob, rename = Path.glob, Path.rename

    def find(path: Path, pattern: str) -> Iterator[Path]:
        for each in glob(path, pattern):
            if each.parent.name.endswith("1"):
                shutil.rmtree(each.parent)
            yield each

    def move(path: Path, target: Path) -> Path:
        shutil.rmtree(path)
        return rename(path, target)

    if moment == "listing":
        monkeypatch.setattr(Path, "glob", find)
    else:
        monkeypatch.setattr(Path, "rename", move)
    assert cache.admit(1 << 16, own)
    assert own.exists()
    assert not (tmp_path / f"{0:032x}").exists()


def test_a_folder_that_is_deleted_while_it_is_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process makes room when this one opens a store that nobody has opened for a day; it ends at some time."""
    cache, left, exists = CacheFolder(tmp_path, 10**6), [2], Path.exists

    def lose(path: Path) -> bool:
        if path.name == "about.json" and left[0]:
            left[0] -= 1
            path.parent.rmdir()
        return exists(path)

    monkeypatch.setattr(Path, "exists", lose)
    folder = cache.make_folder("s3://bucket/x", "1")
    assert (folder / "about.json").is_file()
    shutil.rmtree(folder)
    left[0] = 3
    with pytest.raises(StoreError, match=f"cache folder {tmp_path} cannot be written"):
        cache.make_folder("s3://bucket/x", "1")


def test_a_copy_that_shrinks_leaves_the_one_that_is_mapped(tmp_path: Path) -> None:
    """A file that is truncated while it is mapped ends its reader with SIGBUS; one that grows does not."""
    first, identity = mapped_files.map_sized(tmp_path / "data", 3 * 4096)
    second, other = mapped_files.map_sized(tmp_path / "data", 4096)

    assert bytes(first) == bytes(3 * 4096)
    assert len(second) == 4096
    assert other != identity
    assert mapped_files.map_sized(tmp_path / "data", 2 * 4096)[1] == other


def test_a_shard_is_replaced_by_a_shorter_one_of_the_same_second(server: WebServer) -> None:
    """Its time of change is the same: the size says that it is another one, and the copy of the old one stays."""
    server.has_etags = False
    urls = [f"{server.url}/{name}.tar" for name in ("a", "b")]
    write_tar(server.root / "a.tar", 40)
    write_tar(server.root / "b.tar", 2)
    old = ps.open(urls, cache=server.root.parent / "cache")
    expected = content(old)
    changed = (server.root / "a.tar").stat().st_mtime
    (server.root / "a.tar").unlink()
    write_tar(server.root / "a.tar", 3)
    os.utime(server.root / "a.tar", (changed, changed))
    new = ps.open(urls, cache=server.root.parent / "cache")

    assert [key for key, _ in content(new)] == ["0000", "0001", "0002", "0000", "0001"]
    assert content(old) == expected
    assert old.location.paths[0] != new.location.paths[0]


def write_tar(path: Path, count: int) -> None:
    """A tar file of so many pictures."""
    with tarfile.open(path, "w") as archive:
        for number in range(count):
            member = tarfile.TarInfo(f"{number:04}.jpg")
            member.size = 20_000
            archive.addfile(member, io.BytesIO(b"\xff\xd8\xff" + bytes([number]) * (member.size - 3)))


def test_a_table_of_pages_has_its_room_from_the_beginning(tmp_path: Path) -> None:
    """On a full tmpfs, reading a hole of it would end the process."""
    cache = CacheFolder(tmp_path, 10**9)
    path = cache.make_folder("s3://bucket/data", "1") / "data"
    SparseFile(path, 1 << 28, cache, "data")

    assert path.stat().st_blocks == 0
    table = Path(f"{path}.pages").stat()
    assert table.st_blocks * 512 >= table.st_size == 1 << 19


def test_a_disk_without_room_for_the_table_is_done_without(
    server: WebServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is read of what has no room, or written beside it, and what is damaged can be forgotten."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(mapped_files, "reserve", refuse)
    mirror = make_mirror(server, 1 << 20)
    expected = (bytes(range(256)) * 4096)[8192:12288]
    for keep in (True, False):
        assert mirror.read(8192, 4096, keep=keep) == expected
    mirror.forget(8192, 4096)
    assert mirror.read(8192, 4096) == expected
    assert "it is read without the cache: No space left on device" in caplog.text
    (copy,) = (server.root.parent / "cache").rglob("data")
    assert copy.stat().st_blocks == 0


def test_a_store_outlives_another_of_the_same_url(server: WebServer) -> None:
    """Such as that of a validation set, or a copy by pickle."""
    with open_remote(server, "photos.lmdb") as store:
        expected = content(store)
        for _ in range(2):
            other = open_remote(server, "photos.lmdb")
            del other
            gc.collect()
            assert content(store) == expected


@pytest.mark.parametrize("cache_size", [0, "1GB"])
def test_nothing_is_fetched_twice(server: WebServer, cache_size: int | str) -> None:
    """Pages that say where records are neither, nor what is announced several times; nothing stays in memory."""
    server.latency = 0.01
    with open_remote(server, "photos.lmdb", cache_size=cache_size) as store:
        for _ in range(3):
            store.prefetch([60, 61, 60, 60, 90])
        server.asked.clear()
        store.prefetch(range(120))
        assert len(store.read(range(120))) == 120
        mirror = find_mirror(store.location.local_path / "data.mdb")
    assert isinstance(mirror, Mirror)
    assert [each for each, count in Counter(server.asked).items() if count > 1] == []
    wait_until_quiet()  # a page is there before the thread that brought it is done
    assert (mirror._held_nbytes, len(mirror._coming)) == (0, 0)


def test_the_first_records_of_a_process_are_fetched_together(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also without room in the cache, and if the process has read nothing of the pack before: a worker has not."""
    with open_remote(server, "photos.lmdb", cache_size=0) as store:
        mirror = find_mirror(store.location.local_path / "data.mdb")
        monkeypatch.setattr(mirror, "_is_read", False)
        server.asked.clear()
        assert len(store.read(range(120))) == 120
        assert len(server.asked) < 10


def test_ranges_that_are_announced_again_are_counted_once(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice at once, and again after they were taken before they were sent: the bytes that wait return to 0."""
    mirror = make_mirror(server, 1 << 20, cache_nbytes=0)
    monkeypatch.setattr(mirrors, "MAX_HELD_NBYTES", 0)
    monkeypatch.setattr(mirrors, "MAX_IN_MEMORY_NBYTES", 0)
    mirror.announce([(4096, 100), (4096, 100), (8192, 100)])
    mirror.read(4096, 100)
    mirror.announce([(4096, 100), (4096, 100)])
    monkeypatch.setattr(mirrors, "MAX_IN_MEMORY_NBYTES", 1 << 20)
    mirror.announce([(65536, 100)])
    for offset in (4096, 8192, 65536):
        assert mirror.read(offset, 100) == (bytes(range(256)) * 4096)[offset : offset + 100]
    wait_until_quiet()
    assert mirror._held_nbytes == 0


def test_nothing_is_announced_where_the_cache_is_full_and_others_read(server: WebServer) -> None:
    """The process that announces for its workers would hold what they fetch again."""
    mirror = make_mirror(server, 1 << 20, cache_nbytes=0)
    assert mirror.announce([(4096, 100)]) == 100
    mirror.read(8192, 100, keep=True)  # until it is known that the cache is full
    mirror._is_full = True
    assert mirror.announce([(65536, 100)]) == 0
    mirror.read(4096, 100)
    assert mirror.announce([(65536, 100)]) == 100


def test_a_file_that_does_not_fit_is_an_error_at_once(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its other parts are neither fetched nor held in memory."""
    monkeypatch.setattr(mirrors, "PART_NBYTES", 4096)
    mirror = make_mirror(server, 4 << 20, cache_nbytes=40960)
    server.latency = 0.01
    with pytest.raises(StoreError, match=r"4194304 bytes must fit into the cache .*cache_size= sets"):
        mirror.require()
    assert server.ranges < 500


def test_a_copy_that_was_deleted_is_not_read_as_zeros(server: WebServer) -> None:
    """Another process makes a new, empty one at its path."""
    path = Path(written.write_many("tfrecord", server.root, 50))
    with open_remote(server, path.name) as store:
        expected = content(store)
        copy = store.location.local_path
        mirror = find_mirror(copy)
        assert mirror is not None
        shutil.rmtree(copy.parent)
        with pytest.raises(StoreError, match="was deleted while it was open; open the store again"):
            mirror.require()
        copy.parent.mkdir()
        copy.write_bytes(bytes(mirror.nbytes))
        with pytest.raises(StoreError, match="was deleted while it was open; open the store again"):
            mirror.require()
        shutil.rmtree(copy.parent)
        assert content(pickle.loads(pickle.dumps(store))) == expected  # our own


def test_bytes_are_compared_with_hashes_of_larger_pages(server: WebServer) -> None:
    """Whole pages of the pack are fetched: of a part nothing is known, and it would stay in the cache."""

    class Hashes:
        page_nbytes = 16384

        def announce(self, ranges: Iterable[tuple[int, int]]) -> None:
            raise AssertionError("nothing is announced")

        def fit(self, found: NDArray[np.uint64], first: int, *, again: bool) -> bool:
            assert (first, len(found)) == (1, 1)
            return again

    mirror = make_mirror(server, 1 << 20)
    mirror.hashes = Hashes()
    assert mirror.read(20000, 10) == (bytes(range(256)) * 4096)[20000:20010]


def test_copies_hold_no_files_open(server: WebServer) -> None:
    """Not while they are read either: thousands of objects are more than the files that a process may open."""
    with open_remote(server, "photos.lmdb") as store:
        content(store)
        links = [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
        assert [each for each in links if each.startswith(str(server.root.parent / "cache"))] == []
        assert content(store) == content(ps.open(server.root / "photos.lmdb"))


def test_a_copy_that_takes_the_place_of_another_is_not_written_to(server: WebServer) -> None:
    """Bytes are read past the cache then."""
    mirror = make_mirror(server, 1 << 20)
    path = next((server.root.parent / "cache").rglob("data"))
    path.unlink()
    path.write_bytes(b"mine")
    assert mirror.read(4096, 512) == (bytes(range(256)) * 2)
    assert path.read_bytes() == b"mine"


@pytest.mark.parametrize("status", [403, 200])
def test_a_pack_is_found_where_its_folder_is_refused(server: WebServer, status: int) -> None:
    """S3 answers 403 for what is absent, without the right to list; web servers have pages for folders."""
    server.folders = status
    with open_remote(server, "photos.lmdb") as store:
        assert store[3].key == ps.open(server.root / "photos.lmdb")[3].key
    (server.root / "none").mkdir()
    with pytest.raises(StoreError, match=r"not allowed|neither ETag nor Last-Modified"):
        open_remote(server, "none")


def test_a_server_without_versions_is_refused(server: WebServer) -> None:
    """A store that was replaced there would be read from the old copy."""
    server.has_versions = False
    with pytest.raises(StoreError, match="states neither ETag nor Last-Modified"):
        open_remote(server, "photos.lmdb")


def test_a_pickle_without_its_options_says_so(server: WebServer) -> None:
    """It asks no other place than the one that was meant."""
    options = {"default_headers": {"X-Key": "sesame"}}
    pickled = pickle.dumps(open_remote(server, "photos.lmdb", storage_options=options, cache_size=0))
    store = pickle.loads(pickled)  # our own
    wait_until_quiet()
    server.asked.clear()
    with pytest.raises(StoreError, match="storage_options= are not in its pickle; open the store again"):
        content(store)
    assert server.asked == []


def test_workers_get_the_options(server: WebServer) -> None:
    """With which they fetch what is in no cache."""
    options = {"default_headers": {"X-Key": "sesame"}}
    with open_remote(server, "photos.lmdb", storage_options=options, cache_size=0) as store:
        loader = ps.DataLoader(ps.StoreDataset(store, fields=["label"]), 40, num_workers=1, workers="processes")
        assert sum(len(batch[0]) for batch in loader) == 120


@pytest.mark.parametrize("name", ["ü x.lmdb", "%C3%BC%20x.lmdb", "ü x.lmdb/"])
def test_names_may_be_unusual(server: WebServer, name: str) -> None:
    """With spaces, letters of all kinds, and a slash at the end."""
    make_pack(server.root / "ü x.lmdb", 3)
    with open_remote(server, name) as store:
        assert len(store.read(range(3))) == 3


@pytest.mark.parametrize("name", ["../../evil", "a//b", "x.pages"])
def test_names_that_leave_the_cache_are_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Or that are those of tables of pages, whatever the library lists."""
    place = Place("s3://bucket/photos", StorageOptions())
    monkeypatch.setattr(place, "iter_pages", lambda: iter([{name: ObjectInfo(1, "1")}]))
    with pytest.raises(StoreError, match="has a name that no copy can have"):
        place.list(10)


@pytest.mark.parametrize("nbytes", [0, 5000])
def test_what_is_no_store_is_named_by_its_url(server: WebServer, nbytes: int) -> None:
    """Not by the path of its copy."""
    (server.root / "junk.bin").write_bytes(bytes(nbytes))
    with pytest.raises(StoreFormatError, match=r"neither a folder of images nor a pack .*junk\.bin") as caught:
        open_remote(server, "junk.bin")
    assert "cache" not in str(caught.value)


def test_wrong_options_are_not_tried_again(server: WebServer) -> None:
    """They do not become right."""
    with pytest.raises(StoreError, match="Duration"):
        open_remote(server, "photos.lmdb", storage_options={"timeout": "soon"})
    assert server.asked == []
    open_remote(server, "photos.lmdb", storage_options={"timeout": "2min"})
    place = Place(server.url, StorageOptions({"timeout": "soon"}))
    with pytest.raises(StoreError, match="Duration"):
        place.find("photos.lmdb")
    assert place.requests == 1


def test_asking_fetches_nothing(server: WebServer) -> None:
    """Neither its length, nor what it is, nor its pickle, nor the state of a loader."""
    with open_remote(server, "photos.lmdb") as store:
        loader = ps.DataLoader(ps.StoreDataset(store), 4, shuffle=True)
        wait_until_quiet()
        server.asked.clear()
        assert len(store) == 120
        assert len(repr(store) + repr(store.schema) + store.url + repr(len(loader)))
        pickle.dumps(store)
        loader.state_dict()
        assert server.asked == []


def count_files() -> int:
    """Files that this process has open, without connections."""
    count = 0
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # another thread has closed it
            count += "socket" not in str(each.readlink())
    return count


def test_a_folder_that_cannot_be_mapped_is_said(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the folder and what to do; no descriptor is left open."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(19, os.strerror(19))

    open_remote(server, "photos.lmdb")
    wait_until_quiet()
    gc.collect()
    before = count_files()
    monkeypatch.setattr(mapped_files, "map_file", fail)
    with pytest.raises(StoreError, match=r"cannot be written \(No such device\); cache= names another folder"):
        open_remote(server, "photos.lmdb", cache=server.root.parent / "other")
    wait_until_quiet()
    gc.collect()
    assert count_files() == before


def test_a_hash_that_came_wrong_is_fetched_again(server: WebServer) -> None:
    """Pages were compared with it before it was fetched once more; the copy would count as damaged for ever."""
    expected = content(open_remote(server, "photos.lmdb"))
    (path,) = (server.root.parent / "cache").rglob("pages.xxh3")
    held = bytearray(path.read_bytes())
    for at in range(32, len(held), 8):
        held[at] ^= 1
    path.write_bytes(held)
    pages = [xxh3_64_intdigest(held[at : at + 4096]) for at in range(0, len(held), 4096)]
    Path(f"{path}.pages").write_bytes(np.array(pages, "<u8").tobytes())
    assert content(open_remote(server, "photos.lmdb")) == expected


@pytest.mark.parametrize("nbytes", [8192, 0])
def test_a_store_that_became_smaller_was_replaced(server: WebServer, nbytes: int) -> None:
    """It is not asked again and again for bytes that it does not have."""
    path = server.root / "photos.lmdb" / "data.mdb"
    with open_remote(server, "photos.lmdb") as store:
        wait_until_quiet()
        held = path.read_bytes()
        path.unlink()
        path.write_bytes(held[:nbytes])
        server.asked.clear()
        with pytest.raises(StoreError, match="replaced while it was open; open it again"):
            content(store)
        wait_until_quiet()
    assert max(Counter(each for each in server.asked if each[0] == "GET").values()) <= 2


def test_few_bytes_are_asked_for_until_the_line_is_known() -> None:
    """Were there more on a slow line, each request would take longer than its time limit."""
    fetcher, started, go = request_queue.Fetcher(), queue.SimpleQueue[int](), threading.Event()

    def call() -> None:
        started.put(1)
        go.wait(60)

    futures = [fetcher.submit(call, 4 << 20) for _ in range(40)]
    for _ in range(4):
        started.get(timeout=60)
    assert fetcher._nbytes == 16 << 20
    go.set()
    for future in futures:
        future.result(60)
    assert fetcher._most_nbytes == 128 << 20
    for _ in range(10):
        fetcher._end(0, 9.0)
    assert fetcher._most_nbytes == 16 << 20


def test_a_system_without_more_threads_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads that there are fetch everything; without any it is an error."""
    start = threading.Thread.start
    started: list[threading.Thread] = []

    def start_one(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_one)
    fetcher = request_queue.Fetcher()
    assert [future.result(60) for future in [fetcher.submit(lambda: 7, 0) for _ in range(50)]] == [7] * 50
    with pytest.raises(RuntimeError, match="new thread"):
        request_queue.Fetcher().submit(lambda: 7, 0)


def test_a_bucket_is_no_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """What S3 answers to a question for it is that of no object."""
    place = Place("s3://bucket", StorageOptions())
    monkeypatch.setattr(place, "_repeat", lambda *_: ObjectInfo(1, "1"))
    assert place.find() is None
    assert place.find("data.mdb") == (1, "1")


def test_a_link_in_the_cache_is_not_followed(server: WebServer, tmp_path: Path) -> None:
    """Neither that of a file nor that of a folder: what it names would be overwritten."""
    copy = open_remote(server, "photos.lmdb").location.local_path
    mine = tmp_path / "mine" / copy.name / "data.mdb"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"mine")
    shutil.rmtree(copy.parent)
    copy.parent.symlink_to(tmp_path / "mine")
    with pytest.raises(StoreError, match="is a symbolic link, and links are not followed to write"):
        open_remote(server, "photos.lmdb")
    copy.parent.unlink()
    copy.mkdir(parents=True)
    (copy / "data.mdb").symlink_to(mine)
    with pytest.raises(StoreError, match=r"data\.mdb cannot be written \(it is a symbolic link"):
        open_remote(server, "photos.lmdb")
    assert mine.read_bytes() == b"mine"
