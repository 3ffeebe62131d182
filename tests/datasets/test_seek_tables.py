"""Decode indices in a dataset: whatever they are and wherever they come from, no pixel changes."""

from __future__ import annotations

import errno
import fcntl
import io
import logging
import os
import pickle
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock import _native
from penstock import transforms as T
from penstock.datasets.store.seek_tables import SeekTables
from penstock.errors import ArgumentError
from penstock.sample import SampleKeys
from penstock.stores.common import seek_table_file
from penstock.stores.common.seek_table_file import SeekTableFile, seek_table_path
from penstock.stores.images.store import FilesStore
from tests.faulty import held, refusing, run_forked

COUNT = 20


def photograph(seed: int, form: str = "JPEG", **how: Any) -> bytes:
    """A smooth picture with noise, of some hundred pixels a side."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (9, 12, 3), np.uint8)).resize(
        (260 + 9 * seed, 200), Image.Resampling.BICUBIC
    )
    pixels = np.asarray(small, np.int16) + rng.integers(-12, 12, (200, 260 + 9 * seed, 3))
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, form, **how)
    return file.getvalue()


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Baseline JPEGs, a progressive one and a PNG."""
    folder = tmp_path_factory.mktemp("photographs") / "all"
    folder.mkdir()
    for i in range(COUNT - 2):
        (folder / f"{i:02}.jpg").write_bytes(photograph(i, quality=90))
    (folder / "90.jpg").write_bytes(photograph(90, progressive=True))
    (folder / "91.png").write_bytes(photograph(91, "PNG"))
    return folder.parent


@pytest.fixture(params=["files", "lmdb"])
def url(request: pytest.FixtureRequest, photographs: Path, tmp_path: Path) -> str:
    """The photographs as a folder and as a pack, of one's own."""
    if request.param == "lmdb":
        ps.pack(photographs, tmp_path / "photographs.lmdb", index="none")
        return str(tmp_path / "photographs.lmdb")
    copy = tmp_path / "photographs" / "all"
    copy.mkdir(parents=True)
    for path in (photographs / "all").iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    return str(copy.parent)


def dataset(url: str, **how: Any) -> ps.StoreDataset:
    """Random crops of the store."""
    pipeline = T.Pipeline([T.Decode(), T.RandomResizedCrop(48, scale=(0.1, 0.6)), T.HorizontalFlip()])
    return ps.StoreDataset(ps.open(url), fields="image", transform=pipeline, **how)


def epoch(data: ps.StoreDataset, number: int) -> bytes:
    """One epoch's pixels, in chunks as loaders fill them."""
    out = np.zeros((COUNT, 48, 48, 3), np.uint8)
    for indices in np.array_split(np.random.default_rng(number).permutation(COUNT), 4):
        data.fill(indices, out, SampleKeys(0, number, indices), rows=indices)
    return out.tobytes()


def plain(url: str) -> list[bytes]:
    """Three epochs without any index."""
    data = dataset(url, index=None)
    return [epoch(data, number) for number in range(3)]


def indexed_of(data: ps.StoreDataset) -> SeekTables:
    """Its indices."""
    assert data._seek_tables is not None
    return data._seek_tables


@pytest.mark.parametrize("kind", ["rows", "tiles"])
def test_indices_beside_a_store_are_used_and_change_nothing(url: str, kind: str) -> None:
    """Made by `index`, read by every dataset over that store; what has none is decoded from its beginning."""
    expected = plain(url)
    report = ps.index(url, kind=kind)
    data = dataset(url, index_memory=0)

    assert report.indexed == len(indexed_of(data)) == COUNT - 2
    assert sum(entry is not None for entry in indexed_of(data).get(range(COUNT)).entries) == COUNT - 2
    assert [epoch(data, number) for number in range(3)] == expected


def test_indices_are_learned_in_the_first_epoch(url: str) -> None:
    """In memory, from crops alone; later epochs extend them, and no pixel changes."""
    data, known = dataset(url), []
    pixels = []
    for number in range(3):
        pixels.append(epoch(data, number))
        entries = indexed_of(data).get(range(COUNT)).entries
        images = data.store.blobs("image", range(COUNT))
        facts = [_native.inspect_index(images[i], entry) for i, entry in enumerate(entries) if entry is not None]
        known.append(sum(fact[1] for fact in facts if fact is not None))
        assert None not in facts

    assert pixels == plain(url)
    assert len(indexed_of(data)) == COUNT - 2
    assert 0 < known[0] < known[2]
    assert not seek_table_path(FilesStore.locate(url), "image").exists()


@pytest.mark.parametrize("beside", [None, "rows", "tiles"])
@pytest.mark.parametrize("kind", ["rows", "tiles"])
def test_a_kind_that_is_named_is_learned(
    url: str, kind: str, beside: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory, whatever lies beside the store; that is used if it is of the kind. No file is made of the name."""
    monkeypatch.chdir(tmp_path)
    expected = plain(url)
    if beside is not None:
        ps.index(url, kind=beside)
    data = dataset(url, index=kind)
    before = len(indexed_of(data))
    pixels = [epoch(data, number) for number in range(3)]
    image = data.store.blobs("image", [0])[0]
    [entry] = indexed_of(data).get([0]).entries
    assert entry is not None
    facts = _native.inspect_index(image, entry)

    assert pixels == expected
    assert before == (COUNT - 2 if beside == kind else 0)
    assert facts is not None
    assert facts[0] == kind
    assert not (tmp_path / kind).exists()


def test_no_file_is_called_none(url: str) -> None:
    """The word of the command line is not taken for a path."""
    with pytest.raises(ArgumentError, match="index=None uses no"):
        dataset(url, index="none")


def test_a_cache_file_serves_the_next_run(url: str, tmp_path: Path) -> None:
    """What one run has learned the next one begins with, and goes on with; the store is not written to."""
    expected, cache = plain(url), tmp_path / "cache.index"
    first = dataset(url, index=cache)
    pixels = [epoch(first, 0)]
    again = pickle.loads(pickle.dumps(dataset(url, index=cache)))

    assert len(indexed_of(again)) == COUNT - 2
    assert [*pixels, epoch(again, 1), epoch(again, 2)] == expected
    assert not seek_table_path(FilesStore.locate(url), "image").exists()


def test_a_cache_may_be_a_link(url: str, tmp_path: Path) -> None:
    """The user's own links are followed, also to a file that is not there yet."""
    (tmp_path / "link.index").symlink_to(tmp_path / "cache.index")

    epoch(dataset(url, index=tmp_path / "link.index"), 0)

    assert (tmp_path / "link.index").is_symlink()
    assert len(indexed_of(dataset(url, index=tmp_path / "cache.index"))) == COUNT - 2


def test_memory_is_bounded(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Beyond the budget nothing is learned, and that is said once."""
    data = dataset(url, index_memory=1500)
    with caplog.at_level(logging.INFO, "penstock"):
        pixels = [epoch(data, number) for number in range(3)]

    assert pixels == plain(url)
    assert 0 < len(indexed_of(data)) < COUNT - 2
    assert indexed_of(data)._nbytes <= 1500
    assert sum("index_memory" in record.message for record in caplog.records) == 1


def swapped(entry: bytes, other: bytes) -> bytes:
    """Another image's index."""
    del entry
    return other


def flipped(entry: bytes, other: bytes) -> bytes:
    """A bit in the middle."""
    del other
    middle = len(entry) // 2
    return entry[:middle] + bytes([entry[middle] ^ 4]) + entry[middle + 1 :]


def short(entry: bytes, other: bytes) -> bytes:
    """Cut off."""
    del other
    return entry[:-3]


@pytest.mark.parametrize("damage", [swapped, flipped, short])
def test_a_wrong_index_is_told_once_with_the_key(
    url: str, damage: Callable[[bytes, bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """Images are decoded without it: the same pixels; a new one is learned in its place."""
    expected = plain(url)
    ps.index(url)
    with SeekTableFile(
        seek_table_path(FilesStore.locate(url), "image"), ps.open(url).fingerprint(), COUNT, "tiles"
    ) as file:
        first, second = file.get([3, 4])
        assert first is not None
        assert second is not None
        file.put(3, damage(first, second))
    data = dataset(url)
    with caplog.at_level(logging.WARNING, "penstock"):
        pixels = [epoch(data, number) for number in range(3)]

    assert pixels == expected
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert "03.jpg" in told[0]
    assert "damaged or of another image" in told[0]
    problems = ps.verify(url).problems
    assert [problem.index for problem in problems] == [3]
    assert "penstock index --overwrite" in problems[0].reason
    ps.index(url, overwrite=True)
    assert ps.verify(url).ok


def test_indices_of_another_store_are_not_used(url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Beside a store they are passed over with a warning; a cache that is named is refused."""
    for path in (seek_table_path(FilesStore.locate(url), "image"), tmp_path / "other.index"):
        SeekTableFile(path, "another", COUNT, "rows").close()

    with caplog.at_level(logging.WARNING, "penstock"):
        data = dataset(url)

    assert "belong to other records" in caplog.text
    assert epoch(data, 0) == plain(url)[0]
    with pytest.raises(ArgumentError, match="cannot be used: these decode indices belong to other records"):
        dataset(url, index=tmp_path / "other.index")


def test_loaders_deliver_the_same_with_every_kind_of_worker(url: str) -> None:
    """Threads share what is learned, processes learn for themselves."""
    ps.index(url, kind="tiles")
    expected = list(ps.DataLoader(dataset(url, index=None), 6, shuffle=True, seed=1))

    for workers in ("threads", "processes"):
        loader = ps.DataLoader(dataset(url), 6, shuffle=True, seed=1, num_workers=2, workers=workers)
        assert all(np.array_equal(a, b) for a, b in zip(loader, expected, strict=True))


REASONS = [errno.ENOLCK, errno.ENOSPC, errno.EROFS, errno.EIO]


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was warned of."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("number", REASONS)
@pytest.mark.parametrize("call", ["fcntl.flock", "os.pwrite"])
def test_a_cache_that_cannot_be_added_to_fails_no_sample(
    url: str, tmp_path: Path, call: str, number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The run goes on to the same pixels, learns in memory, and one warning says why the file is not used."""
    expected = plain(url)
    data = dataset(url, index=tmp_path / "cache.index")
    monkeypatch.setattr(call, refusing(number))
    with caplog.at_level(logging.WARNING, "penstock"):
        pixels = [fill_by_threads(data, number) for number in range(3)]
    monkeypatch.undo()

    assert pixels == expected
    assert len(warnings_in(caplog)) == 1
    assert os.strerror(number) in warnings_in(caplog)[0]
    assert "cache.index" in warnings_in(caplog)[0]
    assert len(indexed_of(data)) == COUNT - 2


def fill_by_threads(data: ps.StoreDataset, number: int) -> bytes:
    """One epoch's pixels, by four threads at once."""
    out = np.zeros((COUNT, 48, 48, 3), np.uint8)
    parts = np.array_split(np.random.default_rng(number).permutation(COUNT), 8)

    def fill(indices: Any) -> None:
        data.fill(indices, out, SampleKeys(0, number, indices), rows=indices)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(fill, parts))
    return out.tobytes()


@pytest.mark.parametrize("beside", [False, True])
def test_a_file_that_cannot_be_read_fails_no_sample(
    url: str, tmp_path: Path, beside: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that fails under the store's own indices, or under a cache, is told once; memory takes their place."""
    expected = plain(url)
    if beside:
        ps.index(url)
    else:
        epoch(dataset(url, index=tmp_path / "cache.index"), 0)
    data = dataset(url, index="auto" if beside else tmp_path / "cache.index")
    assert data.store.read([0])
    file = indexed_of(data)._file
    assert isinstance(file, SeekTableFile)
    only_written = os.open(file.path, os.O_WRONLY)  # reading it is an error of the system, also in native code
    os.dup2(only_written, file._fd)
    os.close(only_written)

    with caplog.at_level(logging.WARNING, "penstock"):
        pixels = [fill_by_threads(data, number) for number in range(3)]

    assert pixels == expected
    assert len(warnings_in(caplog)) == 1
    assert "cannot be read: Bad file descriptor" in warnings_in(caplog)[0]
    assert len(indexed_of(data)) == COUNT - 2


def test_a_locked_cache_is_not_waited_for_for_ever(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever holds its lock: decoding goes on in memory, and one warning says so."""
    expected = plain(url)
    monkeypatch.setattr(seek_table_file, "LOCK_WAIT_S", 0.05)
    data = dataset(url, index=tmp_path / "cache.index")
    with (tmp_path / "cache.index").open("rb") as other, caplog.at_level(logging.WARNING, "penstock"):
        fcntl.flock(other, fcntl.LOCK_EX)
        pixels = [fill_by_threads(data, number) for number in range(3)]

    assert pixels == expected
    assert len(warnings_in(caplog)) == 1
    assert "held their lock" in warnings_in(caplog)[0]


@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_without_its_cache_a_run_learns_what_memory_takes(
    url: str, tmp_path: Path, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is nothing where none is allowed."""
    data = dataset(url, index=tmp_path / "cache.index", index_memory=memory)
    monkeypatch.setattr(os, "pwrite", refusing(errno.ENOSPC))
    pixels = epoch(data, 0)
    monkeypatch.undo()

    assert pixels == plain(url)[0]
    assert len(indexed_of(data)) == (COUNT - 2 if memory else 0)
    assert (indexed_of(data).get([0]).learn is None) == (memory == 0)


@pytest.mark.parametrize("number", REASONS)
@pytest.mark.parametrize("call", ["fcntl.flock", "os.ftruncate", "os.pwrite"])
def test_a_cache_that_cannot_be_made_now_is_done_without(
    url: str, tmp_path: Path, call: str, number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What may pass (a full disk, a file system without locks) does not keep a run from starting."""
    monkeypatch.setattr(call, refusing(number))
    with caplog.at_level(logging.WARNING, "penstock"):
        data = dataset(url, index=tmp_path / "cache.index")
    monkeypatch.undo()

    assert epoch(data, 0) == plain(url)[0]
    assert len(warnings_in(caplog)) == 1
    assert os.strerror(number) in warnings_in(caplog)[0]


@pytest.mark.parametrize("name", ["nowhere/cache.index", "", "file/cache.index", "x" * 300])
def test_a_path_that_cannot_be_is_refused(url: str, tmp_path: Path, name: str) -> None:
    """The caller's mistake is said when the dataset is made."""
    (tmp_path / "file").touch()

    with pytest.raises(ArgumentError, match="cannot be used"):
        dataset(url, index=tmp_path / name)


def test_a_cache_on_read_only_media_is_read(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is there is used; what is missing is learned in memory."""
    half = np.arange(0, COUNT - 2, 2)
    first = dataset(url, index=tmp_path / "cache.index")
    first.fill(half, np.zeros((len(half), 48, 48, 3), np.uint8), SampleKeys(0, 0, half))
    content, opened = (tmp_path / "cache.index").read_bytes(), os.open

    def read_only(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_RDWR:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", read_only)
    with caplog.at_level(logging.WARNING, "penstock"):
        data = dataset(url, index=tmp_path / "cache.index")
    monkeypatch.undo()

    assert len(indexed_of(data)) == len(half)
    assert [epoch(data, number) for number in range(2)] == plain(url)[:2]
    assert len(indexed_of(data)) == COUNT - 2
    assert (tmp_path / "cache.index").read_bytes() == content
    assert len(warnings_in(caplog)) == 1
    assert "Read-only file system" in warnings_in(caplog)[0]


def test_a_cache_that_went_away_fails_no_worker(url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A dataset is unpickled in a worker, where its cache may not be: it is done without there."""
    (tmp_path / "folder").mkdir()
    sent = pickle.dumps(dataset(url, index=tmp_path / "folder" / "cache.index"))
    shutil.rmtree(tmp_path / "folder")

    with caplog.at_level(logging.WARNING, "penstock"):
        data = pickle.loads(sent)

    assert epoch(data, 0) == plain(url)[0]
    assert len(warnings_in(caplog)) == 1
    assert "kept in memory" in warnings_in(caplog)[0]


def _fill_forked(data: ps.StoreDataset, expected: bytes) -> None:
    assert epoch(data, 0) == expected


@pytest.mark.parametrize("removed", [False, True])
def test_a_forked_process_fills_whoever_held_the_locks(url: str, tmp_path: Path, *, removed: bool) -> None:
    """Threads of the parent that held them are not in the child; nor need the file be there any longer."""
    expected = plain(url)[0]
    data = dataset(url, index=tmp_path / "cache.index")
    file = indexed_of(data)._file
    assert isinstance(file, SeekTableFile)
    if removed:
        file.path.unlink()

    with held(indexed_of(data)._lock), held(file._lock):
        run_forked(_fill_forked, data, expected)

    assert epoch(data, 0) == expected


def test_learning_in_a_forked_process_whoever_held_the_lock(url: str) -> None:
    """The same where indices are learned in memory."""
    expected, data = plain(url)[0], dataset(url)

    with held(indexed_of(data)._lock):
        run_forked(_fill_forked, data, expected)
