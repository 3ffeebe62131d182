"""Decode indices beside a store: what was put is what is got, or nothing."""

from __future__ import annotations

import errno
import fcntl
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ArgumentError, StoreError, StoreFormatError
from penstock.stores.common import seek_table_file
from penstock.stores.common.seek_table_file import SeekTableFile, seek_table_path
from penstock.stores.images.store import FilesStore
from tests.faulty import held, refusing, run_forked

COUNT = 50


def entry(index: int, size: int = 40) -> bytes:
    """Some bytes that tell which record they are of."""
    return bytes((index + i) % 251 for i in range(size))


@pytest.fixture
def file(tmp_path: Path) -> SeekTableFile:
    """An empty one, to be added to."""
    return SeekTableFile(tmp_path / "x.index", "abc", COUNT, "rows")


def test_entries_are_kept_by_record(file: SeekTableFile) -> None:
    """In whatever order they come, and for whoever opens the file next; records without one have None."""
    for index in (7, 0, 49):
        file.put(index, entry(index))
    file.put(7, entry(3))

    for reader in (file, SeekTableFile(file.path, "abc", COUNT), pickle.loads(pickle.dumps(file))):
        assert reader.get([0, 7, 8, 49]) == [entry(0), entry(3), None, entry(49)]
        assert len(reader) == 3
        assert reader.kind == "rows"
        assert set(reader.missing().tolist()) == set(range(COUNT)) - {0, 7, 49}


def test_a_number_outside_of_the_directory_is_refused(file: SeekTableFile) -> None:
    """The native core reads no entry that is not there."""
    for number in (-1, COUNT):
        with pytest.raises(ValueError, match=r"numbers must be in \[0, m\)"):
            file.get([0, number])


def test_what_belongs_to_others_is_refused(file: SeekTableFile) -> None:
    """Other records, another number of them, another kind, another file: each is said."""
    for arguments, reason in (
        (("abd", COUNT), "other records"),
        (("abc", COUNT + 1), "other records"),
        (("abc", COUNT, "tiles"), "must be 'tiles', got 'rows'"),
    ):
        with pytest.raises(StoreFormatError, match=reason):
            SeekTableFile(file.path, *arguments)
    file.path.write_bytes(b"x" * 100)
    with pytest.raises(StoreFormatError, match="not a file of decode indices"):
        SeekTableFile(file.path, "abc", COUNT)
    with pytest.raises(StoreError, match="cannot be opened: No such file"):
        SeekTableFile(file.path.with_name("none"), "abc", COUNT)


def test_a_file_that_is_only_read_is_not_written(file: SeekTableFile) -> None:
    """Adding to it is an error that names record and file."""
    reader = SeekTableFile(file.path, "abc", COUNT)

    with pytest.raises(StoreError, match="cannot be written"):
        reader.put(3, entry(3))


@pytest.mark.parametrize("cut", [0, 1, 63, 64, 65, 200, 64 + 16 * COUNT, 64 + 16 * COUNT + 41])
def test_a_file_cut_off_gives_what_is_whole(file: SeekTableFile, cut: int) -> None:
    """An entry, or None; without a header, an error."""
    for index in range(COUNT):
        file.put(index, entry(index))
    os.truncate(file.path, cut)

    if cut < 64:
        with pytest.raises(StoreFormatError):
            SeekTableFile(file.path, "abc", COUNT)
        return
    found = SeekTableFile(file.path, "abc", COUNT).get(range(COUNT))

    assert all(got in (None, entry(index)) for index, got in enumerate(found))
    assert sum(got is not None for got in found) == max(0, cut - 64 - 16 * COUNT) // 40


def test_no_flipped_bit_gives_another_entry(file: SeekTableFile) -> None:
    """Anywhere in the file: the header is refused, an entry is None, and all others are as they were."""
    for index in range(COUNT):
        file.put(index, entry(index))
    content, rng = file.path.read_bytes(), np.random.default_rng(0)

    for bit in rng.choice(8 * len(content), 600, replace=False).tolist():
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        file.path.write_bytes(damaged)
        try:
            found = SeekTableFile(file.path, "abc", COUNT).get(range(COUNT))
        except StoreFormatError:
            assert bit < 8 * 64
            continue
        assert sum(got != entry(index) for index, got in enumerate(found)) <= 1
        assert all(got in (None, entry(index)) for index, got in enumerate(found))


def _add(path: Path, start: int) -> None:
    with SeekTableFile(path, "abc", COUNT, "rows") as file:
        for index in range(start, COUNT, 3):
            file.put(index, entry(index, 1000 + index))


def _put_all(file: SeekTableFile, indices: range) -> None:
    for index in indices:
        file.put(index, entry(index))


def test_processes_and_threads_add_to_one_file(file: SeekTableFile) -> None:
    """No entry is lost or torn."""
    processes = [get_context("spawn").Process(target=_add, args=(file.path, start)) for start in (0, 1)]
    for process in processes:
        process.start()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda index: file.put(index, entry(index, 1000 + index)), range(2, COUNT, 3)))
    for process in processes:
        process.join()

    found = SeekTableFile(file.path, "abc", COUNT).get(range(COUNT))

    assert found == [entry(index, 1000 + index) for index in range(COUNT)]


def test_a_forked_process_has_a_descriptor_of_its_own(file: SeekTableFile) -> None:
    """What it adds while its parent adds too is whole."""
    process = get_context("fork").Process(target=_put_all, args=(file, range(0, COUNT, 2)))
    process.start()
    _put_all(file, range(1, COUNT, 2))
    process.join()

    assert process.exitcode == 0
    assert SeekTableFile(file.path, "abc", COUNT).get(range(COUNT)) == [entry(index) for index in range(COUNT)]


def descriptors(path: Path) -> int:
    """How many descriptors of this process lead to a file."""
    return sum(link.exists() and link.samefile(path) for link in list(Path("/proc/self/fd").iterdir()))


def _add_and_read(file: SeekTableFile) -> None:
    file.put(3, entry(3))
    assert file.get([2, 3]) == [entry(2), entry(3)]
    assert len(file) == 2


def test_a_forked_process_has_a_lock_of_its_own(file: SeekTableFile) -> None:
    """A thread that held the lock when the process forked is not in the child, which adds and reads all the same."""
    file.put(2, entry(2))

    with held(file._lock):
        run_forked(_add_and_read, file)

    assert file.get([2]) == [entry(2)]


def _count_descriptors(file: SeekTableFile) -> None:
    assert descriptors(file.path) == 0
    assert file.get([2]) == [entry(2)]
    assert descriptors(file.path) == 1
    file.close()
    assert descriptors(file.path) == 0


def test_a_forked_process_keeps_no_descriptor_of_its_parent(file: SeekTableFile) -> None:
    """It would share the parent's locks, and keep them when the parent is gone; the parent's stays open."""
    file.put(2, entry(2))

    run_forked(_count_descriptors, file)

    assert descriptors(file.path) == 1
    assert file.get([2]) == [entry(2)]


def _closed_stays_closed(file: SeekTableFile) -> None:
    with pytest.raises(StoreError, match="closed"):
        file.get([2])


def test_a_closed_file_is_not_opened_by_a_fork(file: SeekTableFile) -> None:
    """Neither here nor there."""
    file.close()

    _closed_stays_closed(file)
    run_forked(_closed_stays_closed, file)


def _refuse_replaced(file: SeekTableFile, reason: str) -> None:
    with pytest.raises(StoreError, match=reason):
        file.get([2])
    with pytest.raises(StoreError, match=reason):
        file.put(2, entry(2))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (("other", COUNT, "rows"), "other records"),
        (("abc", COUNT, "tiles"), "must be 'rows', got 'tiles'"),
        (None, "No such file"),
    ],
)
def test_a_forked_process_opens_no_other_file(tmp_path: Path, given: tuple[str, int, str] | None, reason: str) -> None:
    """One that has taken the place of the parent's file since is refused, and left as it is."""
    SeekTableFile(tmp_path / "x.index", "abc", COUNT, "rows").close()
    file = SeekTableFile(tmp_path / "x.index", "abc", COUNT, "rows" if given else None)
    file.path.unlink()
    if given is not None:
        SeekTableFile(file.path, *given).close()
    before = file.path.read_bytes() if given else None

    run_forked(_refuse_replaced, file, reason)

    assert (file.path.read_bytes() if given else None) == before


def test_others_are_not_waited_for_for_ever(file: SeekTableFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process, or a thread, that does not let go of the lock is an error that says so; without it all goes on."""
    monkeypatch.setattr(seek_table_file, "LOCK_WAIT_S", 0.05)
    with file.path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(
            StoreError, match=r"cannot be written: another process held their lock for 0\.05 s"
        ) as caught:
            file.put(3, entry(3))
    with held(file._lock), pytest.raises(StoreError, match="another thread held their lock"):
        file.put(3, entry(3))

    assert caught.value.where == {"store": str(file.path), "index": 3}
    file.put(3, entry(3))
    assert file.get([3]) == [entry(3)]


def test_a_new_file_that_is_locked_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Making one waits no longer than adding to one."""
    monkeypatch.setattr(seek_table_file, "LOCK_WAIT_S", 0.05)
    with (tmp_path / "x.index").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        with pytest.raises(StoreError, match="cannot be used: another process held their lock"):
            SeekTableFile(tmp_path / "x.index", "abc", COUNT, "rows")


REASONS = [errno.ENOLCK, errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT, errno.ESTALE]


def error_of(use: Callable[[], object]) -> StoreError | None:
    """What it raises, which can only be one of ours."""
    try:
        use()
    except StoreError as error:
        return error
    return None


@pytest.mark.parametrize("number", REASONS)
@pytest.mark.parametrize("call", ["fcntl.flock", "os.pwrite", "os.ftruncate", "os.fstat", "os.preadv", "os.pread"])
def test_whatever_the_system_refuses_is_a_store_error(
    tmp_path: Path, call: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the file's name and the system's reason, whichever call it is; no descriptor is left open."""
    made = SeekTableFile(tmp_path / "made.index", "abc", COUNT, "rows")
    made.put(3, entry(3))
    monkeypatch.setattr(call, refusing(number))
    errors = [
        error_of(lambda: SeekTableFile(tmp_path / "new.index", "abc", COUNT, "rows")),
        error_of(lambda: made.put(4, entry(4))),
        error_of(lambda: made.get([3])),
        error_of(lambda: SeekTableFile(made.path, "abc", COUNT)),
    ]
    monkeypatch.undo()
    failed = [error for error in errors if error is not None]

    assert all(os.strerror(number) in error.message for error in failed)
    assert all(error.where["store"].startswith(str(tmp_path)) for error in failed)
    assert failed
    assert descriptors(made.path) == 1
    assert not (tmp_path / "new.index").exists() or descriptors(tmp_path / "new.index") == 0


def test_a_disk_that_is_full_is_a_store_error(tmp_path: Path) -> None:
    """What had been added stays; what had no room is not half there."""
    program = (
        "import resource, sys; import penstock as ps\n"
        "from penstock.stores.common.seek_table_file import SeekTableFile\n"
        "file = SeekTableFile(sys.argv[1], 'abc', 50, 'rows'); file.put(3, bytes(500))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "try:\n    file.put(4, bytes(5000))\n"
        "except ps.StoreError as error:\n    print(error)\n"
        "print(file.get([3, 4]) == [bytes(500), None])"
    )

    command = [sys.executable, "-c", program, str(tmp_path / "x.index")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    said, whole = done.stdout.splitlines()
    assert "cannot be written" in said
    assert "index=4" in said
    assert whole == "True"


@pytest.mark.parametrize("cut", [64, 100, 64 + 16 * COUNT - 1])
def test_a_file_cut_off_in_its_table_is_added_to(file: SeekTableFile, cut: int) -> None:
    """Entries are never written over the table, nor over one another."""
    for index in range(COUNT):
        file.put(index, entry(index))
    file.close()
    os.truncate(file.path, cut)

    with SeekTableFile(file.path, "abc", COUNT, "rows") as again:
        assert len(again) == (cut - 64) // 16
        for index in range(COUNT):
            again.put(index, entry(index + 1))

    assert SeekTableFile(file.path, "abc", COUNT).get(range(COUNT)) == [entry(index + 1) for index in range(COUNT)]


@given(head=st.binary(max_size=64), table=st.binary(max_size=64), behind=st.binary(max_size=64), checked=st.booleans())
def test_any_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, head: bytes, table: bytes, behind: bytes, *, checked: bool
) -> None:
    """Whatever a header and a table say, under a checksum that holds."""
    path = tmp_path_factory.mktemp("index") / "x.index"
    with SeekTableFile(path, "abc", COUNT, "rows") as file:
        file.put(3, entry(3))
    content = bytearray(path.read_bytes())
    content[: len(head)] = head
    content[64 : 64 + len(table)] = table
    if checked:
        content[56:64] = struct.pack("<Q", xxhash.xxh3_64_intdigest(content[:56]))
    path.write_bytes(bytes(content) + behind)

    found: list[bytes | None] = []

    def read() -> None:
        with SeekTableFile(path, "abc", COUNT) as file:
            found.extend(file.get(range(COUNT)))

    error = error_of(read)

    assert (error is None) == (len(found) == COUNT)
    assert error is None or error.where["store"] == str(path)
    assert not any(found[4:])


def test_a_table_that_points_anywhere_gives_nothing(file: SeekTableFile) -> None:
    """Beyond the file, beyond what a file may have, with more bytes than an index takes; with a checksum that holds."""
    most = 0xFFFFFFFF
    places = [(0, 1), (2**63, 40), (2**64 - 1, 40), (2**62, 40), (2**62 - 1, most), (0, most), (2**40, 64 << 20)]
    empty = xxhash.xxh3_64_intdigest(b"", seed=0) & 0xFFFFFFFF
    table = np.array([(offset, length, empty) for offset, length in places], [("o", "<u8"), ("l", "<u4"), ("c", "<u4")])
    with file.path.open("r+b") as opened:
        opened.seek(64)
        opened.write(table.tobytes())

    assert SeekTableFile(file.path, "abc", COUNT).get(range(1, len(places))) == [None] * (len(places) - 1)


def test_a_folder_has_it_inside_and_a_file_beside(tmp_path: Path) -> None:
    """Hidden in a folder, so that it is no stray file among images."""
    (tmp_path / "a.mdb").touch()

    assert seek_table_path(FilesStore.locate(tmp_path), "image") == tmp_path / ".image.index"
    assert seek_table_path(FilesStore.locate(tmp_path / "a.mdb"), "image") == tmp_path / "a.mdb.image.index"


@pytest.mark.parametrize("field", ["../victim", "../../victim", "/victim", "a/b", "..", "", "a\0b"])
def test_a_field_names_no_other_folder(tmp_path: Path, field: str) -> None:
    """Whatever a field is called, its index lies in the store's folder, or beside its file."""
    (tmp_path / "a.mdb").touch()

    for store in (tmp_path, tmp_path / "a.mdb"):
        with pytest.raises(ArgumentError, match="field name must be"):
            seek_table_path(FilesStore.locate(store), field)


def test_a_link_is_not_followed_to_make_a_file(tmp_path: Path) -> None:
    """A link that came with a store does not have a file made, or written, where it leads; it may be read through."""
    victim, link = tmp_path / "victim", tmp_path / ".image.index"
    link.symlink_to(victim)
    with pytest.raises(StoreError, match="symbolic link"):
        SeekTableFile(link, "abc", COUNT, "rows")
    assert not victim.exists()
    victim.touch()
    with pytest.raises(StoreError, match="symbolic link"):
        SeekTableFile(link, "abc", COUNT, "rows")
    assert victim.read_bytes() == b""
    victim.unlink()

    with SeekTableFile(victim, "abc", COUNT, "rows") as file:
        file.put(1, entry(1))

    assert SeekTableFile(link, "abc", COUNT).get([1]) == [entry(1)]


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    """A FIFO does not block, a folder and a device are said."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()

    for path in (tmp_path / "fifo", tmp_path / "folder", Path("/dev/null")):
        for kind in (None, "rows"):
            with pytest.raises(StoreError, match=r"cannot be opened: (it is not a regular file|Is a directory)"):
                SeekTableFile(path, "abc", COUNT, kind)
