"""A dataset that can look ahead is told of each batch before the batch is built."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock.datasets import ConcatDataset, Dataset, StackDataset, Subset
from penstock.datasets.base import has_prefetch, prefetch
from penstock.sample import SampleKeys
from penstock.trace import Trace
from penstock.workers import WorkerStart
from penstock.workers.base import Task
from penstock.workers.jobs import SampleJob

KINDS = ["serial", "threads", "processes"]


class Ahead(Dataset[Any]):
    """Writes to a file, which processes share, what it is asked for."""

    def __init__(self, log: Path, count: int = 16) -> None:
        self.log, self.count = log, count

    def __len__(self) -> int:
        return self.count

    def note(self, *event: Any) -> None:
        """Append one line."""
        with self.log.open("a") as file:
            file.write(json.dumps(event) + "\n")

    def prefetch(self, indices: Sequence[int]) -> bool | None:
        """Note the batch, and the process."""
        self.note("prefetch", indices, os.getpid())
        return None

    def __getitem__(self, index: int) -> Any:
        self.note("sample", index, os.getpid())
        return np.full(3, index)


def events(log: Path) -> list[tuple[str, Any, int]]:
    """What was noted, in order."""
    return [tuple(json.loads(line)) for line in log.read_text().splitlines()]


def load(dataset: Any, workers: str, **arguments: Any) -> Any:
    """A loader of four batches."""
    count = 0 if workers == "serial" else 2
    return ps.DataLoader(dataset, 4, num_workers=count, workers=workers, **arguments)


@pytest.mark.parametrize("workers", KINDS)
def test_each_batch_is_prefetched_before_it_is_built(workers: str, tmp_path: Path) -> None:
    """Once, in the order of batches, in the process that builds it, before its first sample."""
    dataset = Ahead(tmp_path / "log")

    batches = [batch[:, 0].tolist() for batch in load(dataset, workers)]
    noted = events(dataset.log)

    ahead = [(indices, pid) for kind, indices, pid in noted if kind == "prefetch"]
    assert sorted(indices for indices, _ in ahead) == batches
    for pid in {pid for _, pid in ahead}:
        own = [indices for indices, by in ahead if by == pid]
        assert own == sorted(own)
    for indices, pid in ahead:
        first = min(noted.index(("sample", index, pid)) for index in indices)
        assert noted.index(("prefetch", indices, pid)) < first


def test_a_worker_process_looks_at_all_tasks_that_have_arrived(tmp_path: Path) -> None:
    """Before it builds the first batch, it prefetches those that wait behind it."""
    dataset, submitted = Ahead(tmp_path / "log"), multiprocessing.get_context("fork").Event()

    def hold(_: int) -> None:
        submitted.wait(60)

    loader = ps.DataLoader(
        dataset, 4, num_workers=1, workers="processes", prefetch_factor=3, multiprocessing_context="fork",
        worker_init_fn=hold,
    )  # fmt: skip

    walk = iter(loader)
    submitted.set()
    list(walk)

    kinds = [kind for kind, _, _ in events(dataset.log)]
    assert kinds[:4] == ["prefetch", "prefetch", "prefetch", "sample"]
    assert kinds.count("prefetch") == 4


class Fails(Ahead):
    """Cannot look ahead."""

    def prefetch(self, indices: Sequence[int]) -> None:
        """An error of the store's."""
        raise OSError("no connection")


@pytest.mark.parametrize("workers", KINDS)
def test_an_error_of_prefetch_is_ignored(workers: str, tmp_path: Path) -> None:
    """Samples are asked for all the same: if the error matters, they raise it."""
    batches = [batch[:, 0].tolist() for batch in load(Fails(tmp_path / "log"), workers)]

    assert batches == np.arange(16).reshape(4, 4).tolist()


def test_datasets_over_others_translate_indices(tmp_path: Path) -> None:
    """Each inner dataset is told of its own samples."""
    one, two, three = (Ahead(tmp_path / name, 4) for name in ("one", "two", "three"))
    parts: list[Any] = [Subset(one, [3, 1]), two, [0] * 2]
    whole = StackDataset(ConcatDataset(parts), Subset(three, [3, 2, 1, 0] * 2))

    prefetch(whole, [0, 5, 2, 1, -1, -8])

    assert [[indices for _, indices, _ in events(each.log)] for each in (one, two, three)] == [
        [[3, 1, 3]],
        [[3, 0]],
        [[3, 2, 1, 2, 0, 3]],
    ]


def test_datasets_of_torch_translate_indices(tmp_path: Path) -> None:
    """As penstock's do."""
    pt = pytest.importorskip("penstock.torch")
    one, two = Ahead(tmp_path / "one", 4), Ahead(tmp_path / "two", 4)
    whole = pt.StackDataset(pt.ConcatDataset([pt.Subset(one, [3, 1]), [0, 0]]), two)

    prefetch(whole, [0, 2, 1])

    assert [[indices for _, indices, _ in events(each.log)] for each in (one, two)] == [[[3, 1]], [[0, 2, 1]]]


class Sparing(Ahead):
    """Could look ahead, and has no reason to."""

    prefetches = False


@pytest.mark.parametrize("overrides", [True, False])
def test_a_store_is_told_only_if_it_looks_ahead(
    overrides: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dataset of a store whose prefetch is the default one costs nothing."""
    told: list[Any] = []
    (tmp_path / "class").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "class" / "0.png")
    dataset = ps.StoreDataset(tmp_path)
    if overrides:
        monkeypatch.setattr(type(dataset.store), "prefetch", lambda _, indices: told.append(list(indices)))
        monkeypatch.setattr(type(dataset.store), "prefetches", True)

    prefetch(dataset, [0])

    assert has_prefetch(dataset) == overrides
    assert told == [[0]] * overrides


class Remapped(Subset[Any]):
    """Has the last word on which sample is which."""

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[0]


class Foreign:
    """Is no dataset of penstock's: its ``prefetch`` may mean anything."""

    def prefetch(self) -> None:
        """Start something else."""


@pytest.mark.parametrize(
    "make",
    [lambda ahead: Remapped(ahead, [1]), lambda ahead: Sparing(ahead.log), lambda _: Foreign(), lambda _: [1, 2, 3]],
)
def test_other_datasets_are_not_prefetched(make: Any, tmp_path: Path) -> None:
    """It is decided once for the epoch, so that tasks cost nothing more."""
    dataset = make(Ahead(tmp_path / "log"))
    job = SampleJob(Trace(), None, dataset, list, batched=True)
    job.start_epoch(WorkerStart())

    assert not has_prefetch(dataset)
    assert not job.prefetches


class AtHand(Ahead):
    """A dataset of which everything is in memory, but for some calls."""

    reads: int = -2

    def prefetch(self, indices: Sequence[int]) -> bool:
        """Note the batch."""
        super().prefetch(indices)
        return len(events(self.log)) in {self.reads, self.reads + 1}


def test_a_dataset_that_has_everything_at_hand_is_asked_rarely(tmp_path: Path) -> None:
    """After 16 calls that had nothing to do, it is asked once in 16 batches; after one that had, for each again."""
    dataset = AtHand(tmp_path / "log", 400)
    dataset.log.touch()
    job = SampleJob(Trace(), None, dataset, list, batched=True)
    job.start_epoch(WorkerStart())

    def ask(count: int) -> int:
        before = len(events(dataset.log))
        for number in range(count):
            job.prefetch(Task(number, [number], SampleKeys(0, 0, np.array([number]))))
        return len(events(dataset.log)) - before

    assert ask(16) == 16
    assert ask(160) == 10
    dataset.reads = len(events(dataset.log)) + 1
    assert ask(15 + 16) in range(17, 32)
