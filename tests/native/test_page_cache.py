"""Ranges of a mapped file that the system is asked to read; bytes that are written to one; hashes of its pages."""

from __future__ import annotations

import errno
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from xxhash import xxh3_64_intdigest

from penstock import _native

PAGE = mmap.PAGESIZE


@pytest.fixture
def mapped(tmp_path: Path) -> Iterator[memoryview]:
    """A map of 64 pages that are, if the file system allows it, not in the page cache."""
    path = tmp_path / "file"
    path.write_bytes(bytes(64 * PAGE))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages, memoryview(pages) as view:
            yield view


def ask(mapped: memoryview, ranges: list[tuple[int, int]], most_nbytes: int = 1 << 30) -> int:
    """The bytes that are asked for."""
    begins, sizes = (np.array(values, np.int64) for values in zip(*ranges, strict=True))
    return _native.read_ahead(mapped, begins, sizes, most_nbytes=most_nbytes)


def test_pages_that_are_not_in_the_page_cache_are_asked_for_until_they_are(mapped: memoryview) -> None:
    """Whole pages are asked for; when they are there, nothing is."""
    asked = ask(mapped, [(PAGE + 5, 10 * PAGE)])

    assert asked in {0, 10 * PAGE + 5}  # 0 on file systems that are memory
    deadline = time.monotonic() + 60
    while ask(mapped, [(PAGE + 5, 10 * PAGE)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ask(mapped, [(PAGE + 5, 10 * PAGE)]) == 0


def test_a_range_between_pages_that_are_there_is_asked_for(mapped: memoryview) -> None:
    """The outer pages of a range may have been read with the ranges beside it; its middle tells."""
    whole, outer = [(0, 64 * PAGE)], [(0, PAGE), (63 * PAGE, PAGE)]
    if not ask(mapped, outer):
        pytest.skip("the file system is memory")
    deadline = time.monotonic() + 60
    while ask(mapped, outer) and time.monotonic() < deadline:
        time.sleep(0.01)

    assert ask(mapped, whole) == 64 * PAGE


def test_no_more_is_asked_for_than_is_allowed(mapped: memoryview) -> None:
    """The first ranges count, the last of them up to the limit."""
    asked = ask(mapped, [(0, 4 * PAGE), (8 * PAGE, 4 * PAGE), (16 * PAGE, 4 * PAGE)], most_nbytes=6 * PAGE)

    assert asked in {0, 6 * PAGE}


@pytest.mark.parametrize("place", [(-1, 10), (0, -1), (64 * PAGE, 10), (1 << 62, 1 << 62), (10, 0)])
def test_places_outside_of_the_map_are_left_out(mapped: memoryview, place: tuple[int, int]) -> None:
    """A range that is not there, or empty, asks for nothing."""
    assert ask(mapped, [place]) == 0


def test_ranges_need_begin_and_size(mapped: memoryview) -> None:
    """Arrays of different lengths are refused."""
    with pytest.raises(ValueError, match="begins and sizes must have the same length"):
        _native.read_ahead(mapped, np.zeros(2, np.int64), np.zeros(3, np.int64), most_nbytes=1)


def identify(path: Path) -> tuple[int, int]:
    """Device and inode of a file."""
    seen = path.stat()
    return seen.st_dev, seen.st_ino


def test_bytes_are_written_where_they_belong(tmp_path: Path) -> None:
    """And nowhere else; the file grows if it must."""
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")

    _native.write_at(path, identify(path), 3, b"abc")
    _native.write_at(path, identify(path), 9, memoryview(b"xyz"))

    assert path.read_bytes() == b"012abc678xyz"


@pytest.mark.parametrize(("other", "number"), [("file", errno.ESTALE), ("link", errno.ELOOP), (None, errno.ENOENT)])
def test_another_file_is_not_written_to(tmp_path: Path, other: str | None, number: int) -> None:
    """A file or a symbolic link that took the place of the one that is meant; nor is a file made."""
    path, kept = tmp_path / "file", tmp_path / "kept"
    path.write_bytes(b"mine")
    identity = identify(path)
    path.rename(kept)
    if other == "file":
        path.write_bytes(b"other")
    elif other == "link":
        path.symlink_to(kept)

    with pytest.raises(OSError, match=os.strerror(number)) as caught:
        _native.write_at(path, identity, 0, b"new")

    assert caught.value.errno == number
    assert kept.read_bytes() == b"mine"
    assert other != "file" or path.read_bytes() == b"other"


@pytest.mark.parametrize("nbytes", [0, 1, 4096, 4097, 3 << 20])
def test_hashes_of_pages_are_those_of_the_library(nbytes: int) -> None:
    """Of each page on its own, the last one as long as it is; with and without the interpreter's lock."""
    content = np.random.default_rng(0).bytes(nbytes)

    found = _native.hash_pages(content, 4096)

    assert found.tolist() == [xxh3_64_intdigest(content[at : at + 4096]) for at in range(0, nbytes, 4096)]
    assert found.dtype == np.uint64
    with pytest.raises(ValueError, match="page_nbytes must be at least 1, got 0"):
        _native.hash_pages(content, 0)
