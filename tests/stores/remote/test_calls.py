"""Requests that are sent in one call, and which pages of an object a file has."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pytest
from numpy.typing import NDArray

from penstock import _native
from penstock.stores.remote.cache import CacheFolder
from penstock.stores.remote.mirror import Mirror
from penstock.stores.remote.object_store import ObjectInfo, Place
from penstock.stores.remote.sparse_file import PAGE_NBYTES, Pages, SparseFile
from penstock.stores.remote.storage_client import StorageOptions
from tests.servers.web import WebServer
from tests.stores.remote.test_remote import server, wait_until_quiet

__all__ = ["server"]

CONTENT = np.random.default_rng(0).bytes(512 * PAGE_NBYTES)
RANGES = [(at * 16 * PAGE_NBYTES + 100, 5000) for at in range(31)]
"""Further apart than what one request is for."""


class Hashes:
    """Those of the pages of ``CONTENT``."""

    page_nbytes = PAGE_NBYTES

    def announce(self, ranges: Iterable[tuple[int, int]]) -> None:
        """They are known."""

    def fit(self, found: NDArray[np.uint64], first: int, *, again: bool) -> bool:
        """Whether pages have them."""
        del again
        pages = CONTENT[first * PAGE_NBYTES :][: len(found) * PAGE_NBYTES]
        return np.array_equal(found, _native.hash_pages(pages, PAGE_NBYTES))


@pytest.fixture(params=["1GB", "0"])
def mirror(server: WebServer, request: pytest.FixtureRequest) -> Mirror:
    """A copy of ``CONTENT``, whose hashes are known, with and without room in the cache."""
    (server.root / "data").write_bytes(CONTENT)
    place = Place(f"{server.url}/data", StorageOptions())
    info = place.find()
    assert info is not None
    cache = CacheFolder(server.root.parent / "cache", 10**9 if request.param == "1GB" else 0)
    made = Mirror(place, "", info, cache.make_folder(place.url, info.version) / "data", cache)
    made.hashes = Hashes()
    return made


def read_all(mirror: Mirror) -> None:
    """Compare each range."""
    for offset, nbytes in RANGES:
        assert mirror.read(offset, nbytes) == CONTENT[offset : offset + nbytes]


def count_gets(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often each offset is asked for in a call of its own."""
    asked, get = Counter[int](), Place.get

    def count(place: Place, name: str, begin: int, end: int, info: ObjectInfo) -> memoryview:
        asked[begin] += 1
        return get(place, name, begin, end, info)

    monkeypatch.setattr(Place, "get", count)
    return asked


def test_what_came_for_another_thread_meanwhile_is_not_fetched_again(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the file and the announcement, another thread announces the same and waits for it."""
    if mirror._cache.max_nbytes == 0:
        pytest.skip("nothing is kept")
    asked = count_gets(monkeypatch)
    assert mirror.hashes is not None
    monkeypatch.setattr(mirror.hashes, "announce", lambda missing: mirror.require(*missing[0]))

    assert mirror.announce(RANGES[:1]) == 0
    read_all(mirror)

    assert max(asked.values()) == 1


def test_ten_requests_are_one_call(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """But the first one, whose version is compared; without hashes each is."""
    calls: list[int] = []
    asked, get_ranges = count_gets(monkeypatch), Place.get_ranges

    def count(place: Place, name: str, ranges: Sequence[tuple[int, int]]) -> Sequence[memoryview] | None:
        calls.append(len(ranges))
        return get_ranges(place, name, ranges)

    monkeypatch.setattr(Place, "get_ranges", count)
    mirror.announce(RANGES)
    read_all(mirror)

    assert (calls, asked) == ([10, 10, 10], {0: 1})
    calls.clear()
    mirror.hashes = None
    mirror.announce((offset + 4 * PAGE_NBYTES, nbytes) for offset, nbytes in RANGES)
    assert mirror.read(RANGES[30][0] + 4 * PAGE_NBYTES, 1) is not None
    assert calls == []


def test_requests_are_sent_in_the_order_of_reading(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in that of the file: what is read first does not wait for all that is announced with it."""
    sent: list[int] = []
    submit = Mirror._submit

    def note(mirror: Mirror, groups: list[list[tuple[int, int]]], *, is_alone: bool) -> None:
        sent.extend(offset for group in groups for offset, _ in group)
        submit(mirror, groups, is_alone=is_alone)

    monkeypatch.setattr(Mirror, "_submit", note)
    order = np.random.default_rng(0).permutation(len(RANGES)).tolist()
    mirror.announce(RANGES[at] for at in order)
    read_all(mirror)

    assert sent == [RANGES[at][0] for at in order]


@pytest.mark.parametrize("answer", ["wrong", "short", "error"])
def test_requests_of_a_call_that_fails_are_sent_again(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """Once each, in a call of its own: after an error, and for bytes that have not their hashes."""
    asked, get_ranges = count_gets(monkeypatch), obstore.get_ranges

    def fail(*given: Any, **options: Any) -> Sequence[bytes]:
        found = [bytes(content) for content in get_ranges(*given, **options)]
        if answer == "error":
            raise OSError("reset")
        return [*found[:-1], found[-1][:PAGE_NBYTES] if answer == "short" else bytes(len(found[-1]))]

    monkeypatch.setattr(obstore, "get_ranges", fail)
    mirror.announce(RANGES)
    read_all(mirror)

    assert asked == {offset // PAGE_NBYTES * PAGE_NBYTES: 1 for offset, _ in RANGES}
    wait_until_quiet()  # a page is there before the thread that brought it is done
    assert (mirror._held_nbytes, len(mirror._coming)) == (0, 0)


def test_requests_of_a_slow_call_are_sent_again(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them when the first one is late, so that a reader waits once."""
    asked, go = count_gets(monkeypatch), threading.Event()
    monkeypatch.setattr(Place, "get_ranges", lambda *_: go.wait(60) and None)
    mirror.announce(RANGES[:11])
    try:
        for offset, nbytes in RANGES[:11]:
            assert mirror.read(offset, nbytes) == CONTENT[offset : offset + nbytes]
        assert asked == {offset // PAGE_NBYTES * PAGE_NBYTES: 1 for offset, _ in RANGES[:11]}
    finally:
        go.set()


def test_shards_share_a_client() -> None:
    """And its connections: all places at one server with the options of one store, and no others."""
    options = StorageOptions()
    one, same = (Place(f"http://127.0.0.1:9/{name}", options)._client.get() for name in ("a", "b"))

    assert one is same
    assert Place("http://127.0.0.1:10/a", options)._client.get() is not one
    assert Place("http://127.0.0.1:9/a", StorageOptions())._client.get() is not one


def test_missing_ranges_are_found_at_once(tmp_path: Path) -> None:
    """As one by one: of pages that are there, that another process has written, and that are damaged."""
    cache, generator = CacheFolder(tmp_path, 10**9), np.random.default_rng(1)
    path = cache.make_folder("s3://bucket/data", "1") / "data"
    ours, theirs = (SparseFile(path, len(CONTENT) - 7, cache, "data") for _ in range(2))
    for file in (ours, theirs):
        for page in generator.choice(511, 150, replace=False).tolist():
            content = memoryview(CONTENT)[page * PAGE_NBYTES : (page + 1) * PAGE_NBYTES]
            file.add([Pages(page * PAGE_NBYTES, content, _native.hash_pages(content, PAGE_NBYTES))])
    held = bytearray(path.read_bytes())
    held[:: 7 * PAGE_NBYTES] = bytes(len(held[:: 7 * PAGE_NBYTES]))
    path.write_bytes(held)
    begins = generator.integers(0, len(held) - 1, 500)
    sizes = np.minimum(generator.integers(1, 3 * PAGE_NBYTES, 500), len(held) - begins)
    ranges = list(zip(begins.tolist(), sizes.tolist(), strict=True))

    found = ours.select_missing(ranges)

    assert found == [each for each in ranges if ours.lacks(*each)]
    assert 0 < len(found) < len(ranges)
    assert ours.select_missing([]) == []
