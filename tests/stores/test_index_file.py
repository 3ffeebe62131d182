"""Decode indices beside a store: what was put is what is got, or nothing."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import ArgumentError, StoreError, StoreFormatError
from penstock.stores.index_file import IndexFile, index_path

COUNT = 50


def entry(index: int, size: int = 40) -> bytes:
    """Some bytes that tell which record they are of."""
    return bytes((index + i) % 251 for i in range(size))


@pytest.fixture
def file(tmp_path: Path) -> IndexFile:
    """An empty one, to be added to."""
    return IndexFile(tmp_path / "x.index", "abc", COUNT, "rows")


def test_entries_are_kept_by_record(file: IndexFile) -> None:
    """In whatever order they come, and for whoever opens the file next; records without one have None."""
    for index in (7, 0, 49):
        file.put(index, entry(index))
    file.put(7, entry(3))

    for reader in (file, IndexFile(file.path, "abc", COUNT), pickle.loads(pickle.dumps(file))):
        assert reader.get([0, 7, 8, 49]) == [entry(0), entry(3), None, entry(49)]
        assert len(reader) == 3
        assert reader.kind == "rows"
        assert set(reader.missing().tolist()) == set(range(COUNT)) - {0, 7, 49}


def test_what_belongs_to_others_is_refused(file: IndexFile) -> None:
    """Other records, another number of them, another kind, another file: each is said."""
    for given, reason in (
        (("abd", COUNT), "other records"),
        (("abc", COUNT + 1), "other records"),
        (("abc", COUNT, "tiles"), "of kind 'rows'"),
    ):
        with pytest.raises(StoreFormatError, match=reason):
            IndexFile(file.path, *given)
    file.path.write_bytes(b"x" * 100)
    with pytest.raises(StoreFormatError, match="no file of decode indices"):
        IndexFile(file.path, "abc", COUNT)
    with pytest.raises(StoreError, match="cannot be opened: No such file"):
        IndexFile(file.path.with_name("none"), "abc", COUNT)


def test_a_file_that_is_only_read_is_not_written(file: IndexFile) -> None:
    """Adding to it is an error that names record and file."""
    reader = IndexFile(file.path, "abc", COUNT)

    with pytest.raises(StoreError, match="cannot be written"):
        reader.put(3, entry(3))


@pytest.mark.parametrize("cut", [0, 1, 63, 64, 65, 200, 64 + 16 * COUNT, 64 + 16 * COUNT + 41])
def test_a_file_cut_off_gives_what_is_whole(file: IndexFile, cut: int) -> None:
    """An entry, or None; without a header, an error."""
    for index in range(COUNT):
        file.put(index, entry(index))
    os.truncate(file.path, cut)

    if cut < 64:
        with pytest.raises(StoreFormatError):
            IndexFile(file.path, "abc", COUNT)
        return
    found = IndexFile(file.path, "abc", COUNT).get(range(COUNT))

    assert all(got in (None, entry(index)) for index, got in enumerate(found))
    assert sum(got is not None for got in found) == max(0, cut - 64 - 16 * COUNT) // 40


def test_no_flipped_bit_gives_another_entry(file: IndexFile) -> None:
    """Anywhere in the file: the header is refused, an entry is None, and all others are as they were."""
    for index in range(COUNT):
        file.put(index, entry(index))
    content, rng = file.path.read_bytes(), np.random.default_rng(0)

    for bit in rng.choice(8 * len(content), 600, replace=False).tolist():
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        file.path.write_bytes(damaged)
        try:
            found = IndexFile(file.path, "abc", COUNT).get(range(COUNT))
        except StoreFormatError:
            assert bit < 8 * 64
            continue
        assert sum(got != entry(index) for index, got in enumerate(found)) <= 1
        assert all(got in (None, entry(index)) for index, got in enumerate(found))


def _add(path: Path, start: int) -> None:
    with IndexFile(path, "abc", COUNT, "rows") as file:
        for index in range(start, COUNT, 3):
            file.put(index, entry(index, 1000 + index))


def _put_all(file: IndexFile, indices: range) -> None:
    for index in indices:
        file.put(index, entry(index))


def test_processes_and_threads_add_to_one_file(file: IndexFile) -> None:
    """No entry is lost or torn."""
    processes = [get_context("spawn").Process(target=_add, args=(file.path, start)) for start in (0, 1)]
    for process in processes:
        process.start()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda index: file.put(index, entry(index, 1000 + index)), range(2, COUNT, 3)))
    for process in processes:
        process.join()

    found = IndexFile(file.path, "abc", COUNT).get(range(COUNT))

    assert found == [entry(index, 1000 + index) for index in range(COUNT)]


def test_a_forked_process_has_a_descriptor_of_its_own(file: IndexFile) -> None:
    """What it adds while its parent adds too is whole."""
    process = get_context("fork").Process(target=_put_all, args=(file, range(0, COUNT, 2)))
    process.start()
    _put_all(file, range(1, COUNT, 2))
    process.join()

    assert process.exitcode == 0
    assert IndexFile(file.path, "abc", COUNT).get(range(COUNT)) == [entry(index) for index in range(COUNT)]


def test_a_folder_has_it_inside_and_a_file_beside(tmp_path: Path) -> None:
    """Hidden in a folder, so that it is no stray file among images."""
    (tmp_path / "a.mdb").touch()

    assert index_path(tmp_path, "image") == tmp_path / ".image.index"
    assert index_path(tmp_path / "a.mdb", "image") == tmp_path / "a.mdb.image.index"


@pytest.mark.parametrize("field", ["../victim", "../../victim", "/victim", "a/b", "..", "", "a\0b"])
def test_a_field_names_no_other_folder(tmp_path: Path, field: str) -> None:
    """Whatever a field is called, its index lies in the store's folder, or beside its file."""
    (tmp_path / "a.mdb").touch()

    for store in (tmp_path, tmp_path / "a.mdb"):
        with pytest.raises(ArgumentError, match="field name must be"):
            index_path(store, field)


def test_a_link_is_not_followed_to_make_a_file(tmp_path: Path) -> None:
    """A link that came with a store does not have a file made, or written, where it leads; it may be read through."""
    victim, link = tmp_path / "victim", tmp_path / ".image.index"
    link.symlink_to(victim)
    with pytest.raises(StoreError, match="symbolic link"):
        IndexFile(link, "abc", COUNT, "rows")
    assert not victim.exists()
    victim.touch()
    with pytest.raises(StoreError, match="symbolic link"):
        IndexFile(link, "abc", COUNT, "rows")
    assert victim.read_bytes() == b""
    victim.unlink()

    with IndexFile(victim, "abc", COUNT, "rows") as file:
        file.put(1, entry(1))

    assert IndexFile(link, "abc", COUNT).get([1]) == [entry(1)]


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    """A FIFO does not block, a folder and a device are said."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()

    for path in (tmp_path / "fifo", tmp_path / "folder", Path("/dev/null")):
        for kind in (None, "rows"):
            with pytest.raises(StoreError, match=r"cannot be opened: (it is not a regular file|Is a directory)"):
                IndexFile(path, "abc", COUNT, kind)
