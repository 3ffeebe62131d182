"""read_ahead: ranges of a mapped file that the system is asked to read."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

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
