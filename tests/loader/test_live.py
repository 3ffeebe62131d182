"""What a loader with ``view=True`` writes for viewers: where, what, and when it is gone."""

from __future__ import annotations

import copy
import json
import os
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.datasets.sample_names import find_record
from penstock.errors import ArgumentError
from penstock.loader.live import live_file, publishing
from penstock.loader.live.live_file import LiveFile, find_folder, list_files, read_from, remove_stale
from penstock.trace import Observer
from penstock.workers.slow_samples import SlowSamples
from tests.faulty import run_forked
from tests.loader.fakes import Rows, Samples
from tests.pack.images import make_photos


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where loaders write; the end of each epoch writes a line, however short the epoch is."""
    monkeypatch.setenv("PENSTOCK_VIEW_DIR", str(tmp_path / "live"))
    monkeypatch.setattr(publishing, "_SHORT_S", 0.0)
    return tmp_path / "live"


@pytest.fixture
def photos(tmp_path: Path) -> Iterator[Any]:
    """A dataset of 24 pictures in a folder."""
    with ps.open(str(make_photos(tmp_path / "photos", 24))) as store:
        transform = [ps.transforms.Decode(), ps.transforms.Resize(16), ps.transforms.CenterCrop(16)]
        yield ps.StoreDataset(store, fields=("image", "label"), transform=transform)


def last_line(path: Path) -> dict[str, Any]:
    """The newest line of a loader's file."""
    return dict(read_from(path).lines[-1])


KINDS: list[dict[str, Any]] = [
    {},
    {"num_workers": 2, "workers": "threads"},
    {"num_workers": 2, "workers": "processes", "persistent_workers": True},
]


@pytest.mark.parametrize("kind", KINDS)
def test_counts_and_slow_samples_are_written_while_a_loader_is_iterated(
    folder: Path, photos: Any, kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever builds: sums since the loader was made, and the slowest samples with their records."""
    monkeypatch.setattr(SlowSamples, "is_due", lambda *_: True)
    subset = ps.Subset(photos, range(4, 24))
    loader = ps.DataLoader(subset, 4, view=True, **kind)
    assert not folder.exists()

    for _ in range(2):
        assert len(list(loader)) == 5

    [path] = list_files(folder)
    part = read_from(path)
    assert part.is_alive
    assert part.header["dataset"] == "Subset"
    assert part.header["store"] == photos.store.url
    line = last_line(path)
    assert (line["epoch"], line["batch"], line["total"]) == (1, 5, 5)
    assert (line["batches"], line["samples"]) == (10, 40)
    assert sum(line["stages"].values()) == pytest.approx(
        sum(stage.time_ns for stage in loader.stats().stages if stage.stage != "wait")
    )
    slow: list[Any] = [each for line in part.lines for each in line["slow"]]  # type: ignore[attr-defined]  # JSON
    assert slow
    for each in slow:
        assert each["ms"] > 0
        assert each["record"] == each["indices"][0] + 4
        assert each["store"] == photos.store.url
        assert each["count"] == 1
    assert {each["worker"] for each in slow} <= (set(range(2)) if kind else {-1})

    loader.close()
    del loader
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dataset", [Rows(), Samples()])
def test_batches_are_the_same(dataset: Any, kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where rows are built one by one, as they are here in each batch."""
    monkeypatch.setattr(SlowSamples, "is_due", lambda *_: True)

    viewed, plain = (list(ps.DataLoader(dataset, 8, shuffle=True, seed=1, view=view, **kind)) for view in (True, False))

    for a, b in zip(viewed, plain, strict=True):
        for name in ("x", "noise"):
            np.testing.assert_array_equal(a[name], b[name])


def test_asking_and_pickling_write_nothing(folder: Path) -> None:
    """``view`` is a setting: a copy has it, and writes a file of its own when it is iterated."""
    loader = ps.DataLoader(Samples(), 8, seed=0, view=True)

    state, text, length = loader.state_dict(), repr(loader), len(loader)
    other = pickle.loads(pickle.dumps(loader))
    assert copy.copy(loader.stats()) == ps.DataLoader(Samples(), 8, seed=0).stats()

    plain = ps.DataLoader(Samples(), 8, seed=0)
    assert (state, text, length) == (plain.state_dict(), repr(plain), len(plain))
    assert other.view is True
    assert not folder.exists()
    batches = iter(loader)
    next(batches)
    again = pickle.loads(pickle.dumps(loader))
    assert len(list_files(folder)) == 1
    assert len(list(again)) == length - 1
    assert len(list_files(folder)) == 2


def test_view_is_changed_between_epochs(folder: Path) -> None:
    """The next epoch is told, or is not."""
    loader = ps.DataLoader(Samples(), 8)
    list(loader)
    assert not folder.exists()
    loader.view = True
    list(loader)
    assert len(list_files(folder)) == 1
    loader.view = False
    list(loader)
    assert list_files(folder) == []


def _iterate_in_child(loader: Any, path: Path) -> None:
    batches = list(loader)
    mine = [each for each in list_files(path.parent) if f"-{os.getpid()}-" in each.name]
    assert len(batches) == 7
    assert len(mine) == 1
    assert last_line(mine[0])["batches"] > 0


def test_a_forked_child_writes_a_file_of_its_own(folder: Path) -> None:
    """The parent's is as it was, still there after the child's end, and locked by the parent alone."""
    loader = ps.DataLoader(Samples(), 8, view=True)
    list(loader)
    [path] = list_files(folder)
    before = path.read_bytes()

    run_forked(_iterate_in_child, loader, path)

    assert path.read_bytes() == before
    assert read_from(path).is_alive
    list(loader)
    assert last_line(path)["batches"] == 14


def test_a_folder_that_cannot_be_used_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training goes on."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PENSTOCK_VIEW_DIR", str(tmp_path / "file"))

    with pytest.warns(RuntimeWarning, match="the loader cannot be viewed"):
        batches = list(ps.DataLoader(Samples(), 8, view=True))

    assert len(batches) == 7


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder that others may write to, a link or a file could be theirs."""
    monkeypatch.delenv("PENSTOCK_VIEW_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert find_folder(make=True).stat().st_mode & 0o777 == 0o700

    find_folder().chmod(0o777)
    with pytest.raises(ArgumentError, match="set PENSTOCK_VIEW_DIR"):
        find_folder()
    find_folder_of_user = tmp_path / "penstock"
    find_folder_of_user.rmdir()
    find_folder_of_user.symlink_to(tmp_path)
    with pytest.raises(ArgumentError, match="must be a folder"):
        find_folder()


def test_a_file_of_somebody_else_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is read."""
    folder.mkdir()
    file = LiveFile(folder / "host-1-0.jsonl", {"penstock": 1})
    file.append({"t": 1})
    (folder / "link.jsonl").symlink_to(file.path)
    with pytest.raises(OSError, match="link"):
        read_from(folder / "link.jsonl")

    monkeypatch.setattr(os, "getuid", lambda: -2)
    with pytest.raises(ArgumentError, match="belongs to another user"):
        read_from(file.path)


def test_a_file_stays_small_and_is_read_on(folder: Path) -> None:
    """Twenty minutes at most; a line is read once, whatever was removed in between."""
    folder.mkdir()
    file = LiveFile(folder / "host-1-0.jsonl", {"penstock": 1})
    offset = 0
    seen: list[Any] = []

    for number in range(5 * live_file.KEPT_LINES):
        file.append({"n": number})
        if number % 250 == 0:
            part = read_from(file.path, offset)
            offset = part.offset
            seen += [line["n"] for line in part.lines if not seen or line["n"] > seen[-1]]

    newest = [line["n"] for line in read_from(file.path).lines]
    assert seen == list(range(number - number % 250 + 1))
    assert live_file.KEPT_LINES <= len(newest) <= 2 * live_file.KEPT_LINES
    assert newest[-1] == number
    file.close()
    assert not file.path.exists()


def test_lines_that_are_none_are_passed_over(folder: Path) -> None:
    """A line that is being written, text, long and deep values; a file without a header is refused."""
    folder.mkdir()
    path = folder / "host-1-0.jsonl"
    deep = "[" * 30_000
    path.write_text(
        "\n".join(['{"penstock":1}', "{}", "text", "[1]", deep, '{"a":"' + "b" * 70_000 + '"}', '{"t":1}', '{"t"']),
        encoding="utf-8",
    )

    part = read_from(path)

    assert part.lines == [{}, {"t": 1}]
    assert not part.is_alive
    path.write_text(json.dumps({"t": 1}))
    with pytest.raises(ArgumentError, match="no header"):
        read_from(path)


def test_files_of_killed_processes_go_after_a_day(folder: Path) -> None:
    """Not before, and not those that are written."""
    folder.mkdir()
    alive = LiveFile(folder / "host-1-0.jsonl", {"penstock": 1})
    for name in ("host-2-0.jsonl", "host-3-0.jsonl"):
        (folder / name).write_text('{"penstock":1}\n')
    for path in (alive.path, folder / "host-2-0.jsonl"):
        os.utime(path, (0, 0))

    remove_stale(folder)

    assert sorted(each.name for each in folder.iterdir()) == ["host-1-0.jsonl", "host-3-0.jsonl"]


def test_the_slowest_samples_are_kept() -> None:
    """Eight of them, by the time for each sample; those of a call together; none twice."""
    slow = SlowSamples()
    for batch in range(3):
        slow.begin_part(batch, list(np.arange(10 * batch, 10 * batch + 10)))
        for place in range(10):
            slow.begin_sample(place, 1)
        slow.begin_sample(-1, 1)
        slow.end_part(10)
    slow.begin_part(3, ["a", 5])
    slow.end_part(2)

    taken = slow.take()

    assert len(taken) == 8
    assert sorted(taken, key=lambda each: -each.time_ns / each.samples) == taken
    assert all(each.samples == 1 and each.indices[0] // 10 == each.batch for each in taken if each.batch < 3)
    assert all(each.indices == (5,) and each.samples == 2 for each in taken if each.batch == 3)
    assert slow.take() == []
    slow.begin_part(0, [])
    slow.end_part(0)
    assert slow.take() == []


def test_few_batches_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one, and then the fewer the more rows they have."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    slow = SlowSamples()
    assert slow.is_due(64)
    assert not any(slow.is_due(64) for _ in range(1000))

    now = 1.0
    assert not slow.is_due(64)
    now = 2.0
    assert [slow.is_due(64) for _ in range(3)] == [True, False, False]


def test_records_are_found_through_subsets_and_concatenations(photos: Any) -> None:
    """As the samples are drawn; None for what is no store."""
    joined = ps.ConcatDataset([ps.Subset(photos, [5, 7]), photos])
    found = [find_record(joined, index) for index in (1, 2, 25)]

    assert [each and each[1] for each in found] == [7, 0, 23]
    assert all(each is not None and each[0] is photos.store for each in found)
    assert find_record(Samples(), 0) is None
    assert find_record(ps.ConcatDataset([photos]), 99) is None
    assert find_record(None, 0) is None


class Parts(Observer):
    """Keeps what it is told of the work."""

    observes_work = True

    def __init__(self) -> None:
        self.told: list[tuple[int, list[int]]] = []

    def begin_part(self, batch: int, indices: Any) -> None:
        """A part."""
        self.told.append((batch, [int(index) for index in indices]))


@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_viewed_loader_has_other_observers(folder: Path, kind: dict[str, Any]) -> None:
    """Such as the doctor's: both are told, also of the batch that is timed row by row."""
    loader, observer = ps.DataLoader(Rows(16), 8, view=True, **kind), Parts()
    loader.add_observer(observer)

    list(loader)

    assert sorted(observer.told) == [*((0, [index]) for index in range(8)), (1, list(range(8, 16)))]
    [path] = list_files(folder)
    slow = [each for line in read_from(path).lines for each in line["slow"]]  # type: ignore[attr-defined]  # JSON
    assert sorted(each["indices"] for each in slow) == [[index] for index in range(8)]
