"""Hugging Face datasets: tables and streams, ``with_format``, transforms, and a stream's own state."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import torchdata.stateful_dataloader

import penstock.torch as pt
from tests.clients.harness import EPOCHS, GIVEN, LOADINGS, OURS, TORCH, Loading, Recording, assert_same, record


def table() -> Any:
    """26 rows with numbers, words and lists of one length."""
    return datasets.Dataset.from_dict(
        {
            "number": list(range(26)),
            "word": [f"w{index}" for index in range(26)],
            "vector": np.random.default_rng(0).normal(size=(26, 3)).tolist(),
            "label": [index % 2 for index in range(26)],
        }
    )


def noisy(rows: Any) -> Any:
    """A transform on the fly, for a batch of rows: numbers from the generators of whoever asks."""
    count = len(rows["number"])
    return {
        "number": torch.tensor(rows["number"]),
        "noise": torch.rand(count),
        "numpy": np.random.random(count),  # noqa: NPY002  # the global one is meant
    }


def look(loader: Any, recording: Recording, epochs: int = EPOCHS) -> None:
    """Epochs of a loop that draws a number for each batch."""
    for epoch in range(epochs):
        if hasattr(loader.dataset, "set_epoch"):
            loader.dataset.set_epoch(epoch)
        for batch in loader:
            recording.note("batch", batch)
            recording.note("draw", torch.rand(()))


@OURS
@LOADINGS
@pytest.mark.parametrize("form", ["python", "torch", "numpy", "transform"])
def test_a_table(way: str, loading: Loading, form: str) -> None:
    """Rows are asked by ``__getitems__``, many at once: so a transform draws as often as with torch's loader."""

    def run(kind: Any, recording: Recording) -> None:
        rows = table()
        rows = (
            rows.with_transform(noisy) if form == "transform" else rows.with_format(None if form == "python" else form)
        )
        look(kind(rows, batch_size=4, shuffle=True, **loading.arguments()), recording)

    assert_same(record(way, run, "datasets"), record(TORCH, run), batches=EPOCHS * 7)


@LOADINGS
def test_a_table_without_batches(loading: Loading) -> None:
    """``batch_size=None`` asks row by row."""

    def run(kind: Any, recording: Recording) -> None:
        rows = table().with_transform(noisy)
        look(kind(rows, batch_size=None, shuffle=True, **loading.arguments()), recording)

    assert_same(record(GIVEN, run), record(TORCH, run), batches=EPOCHS * 26)


@LOADINGS
def test_a_table_whose_order_is_the_sampler(loading: Loading) -> None:
    """A batch sampler as ``sampler``: one request for many rows, and no collation."""

    def run(kind: Any, recording: Recording) -> None:
        rows = table().with_format("torch")
        sampler = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(rows), batch_size=4, drop_last=False)
        look(kind(rows, batch_size=None, sampler=sampler, **loading.arguments()), recording)

    assert_same(record(GIVEN, run), record(TORCH, run), batches=EPOCHS * 7)


def stream(shards: int = 3) -> Any:
    """The rows as a stream that is shuffled and mapped; threads of the library's may read before the shuffle."""
    rows = table().to_iterable_dataset(num_shards=shards)
    return rows.shuffle(seed=5, buffer_size=6).map(scaled).with_format("torch")


def scaled(row: Any) -> Any:
    """A column more, with noise."""
    return {"twice": row["number"] * 2, "noise": float(torch.rand(()))}


@OURS
@LOADINGS
def test_a_stream(way: str, loading: Loading) -> None:
    """An ``IterableDataset`` shares its shards out over the workers and shuffles anew with ``set_epoch``."""

    def run(kind: Any, recording: Recording) -> None:
        look(kind(stream(), batch_size=4, **loading.arguments()), recording, epochs=1 + EPOCHS)

    theirs = record(TORCH, run)
    assert theirs.seen() >= (1 + EPOCHS) * 7  # with two workers each may end with a short batch
    assert_same(record(way, run, "datasets"), theirs, batches=theirs.seen())


def test_a_stream_with_fewer_shards_than_workers() -> None:
    """A worker without a shard ends at once."""

    def run(kind: Any, recording: Recording) -> None:
        look(kind(stream(shards=1), batch_size=4, num_workers=2), recording)

    assert_same(record(GIVEN, run), record(TORCH, run), batches=EPOCHS * 7)


@pytest.mark.parametrize("stop", [1, 3])
def test_a_streams_own_state_is_resumed(stop: int) -> None:
    """Without workers ``IterableDataset.state_dict`` belongs to the user, who puts it into a new dataset."""

    def run(kind: Any, recording: Recording) -> None:
        rows = table().to_iterable_dataset(num_shards=3).map(scaled)
        saved: Any = None
        for number, batch in enumerate(kind(rows, batch_size=4)):
            recording.note("batch", batch)
            if number + 1 == stop:
                saved = json.loads(json.dumps(rows.state_dict()))
        again = table().to_iterable_dataset(num_shards=3).map(scaled)
        again.load_state_dict(saved)
        for batch in kind(again, batch_size=4):
            recording.note("batch", batch)

    assert_same(record(GIVEN, run), record(TORCH, run), batches=7 + 7 - stop)


def resumed(kind: Any, rows: Any, loading: Loading, stop: int) -> Iterator[Any]:
    """Batches up to the stop, then those of a new loader that takes its state."""
    loader = kind(rows(), batch_size=4, **loading.arguments())
    for _, batch in zip(range(stop), loader, strict=False):
        yield batch
    saved = loader.state_dict()
    del loader
    again = kind(rows(), batch_size=4, **loading.arguments())
    again.load_state_dict(saved)
    yield from again


@LOADINGS
@pytest.mark.parametrize("stop", [1, 4])
def test_a_loaders_state_is_resumed(loading: Loading, stop: int) -> None:
    """torchdata's loader and ours keep a stream's own state for each worker, and go on with the same batches."""

    def rows() -> Any:
        return table().to_iterable_dataset(num_shards=4).with_format("torch")

    def run(kind: Any, recording: Recording) -> None:
        for batch in resumed(kind, rows, loading, stop):
            recording.note("batch", batch)

    theirs = record(TORCH, lambda _, recording: run(torchdata.stateful_dataloader.StatefulDataLoader, recording))
    ours = record(GIVEN, lambda _, recording: run(pt.DataLoader, recording))

    # The generators differ on purpose: torchdata draws other numbers when an iterator begins.
    ours.entries.pop()
    theirs.entries.pop()
    whole = [
        record(TORCH, lambda kind, recording: look(kind(rows(), batch_size=4, **loading.arguments()), recording, 1))
    ]
    assert_same(ours, theirs, batches=8 if loading.num_workers else 7)
    assert ours.all("batch") == whole[0].all("batch")


EXIT = """
import datasets, torch
import penstock.torch as pt

class Failing(torch.utils.data.Dataset):
    def __len__(self):
        return 26

    def __getitem__(self, index):
        return index

def main():
    loader = pt.DataLoader(Failing(), batch_size=4, num_workers={num_workers}, persistent_workers={num_workers} > 0)
    batches = iter(loader)
    next(batches)
    globals()["kept"] = loader, batches, next(batches)
    raise SystemExit("the program's own last words")

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_program_that_fails_has_the_last_word(num_workers: int) -> None:
    """dill, which datasets imports, keeps modules alive in another order at exit: no finaliser of ours complains."""
    script = Path("script.py")
    script.write_text(EXIT.format(num_workers=num_workers))

    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=100)

    assert done.returncode == 1
    assert done.stderr.strip().splitlines() == ["the program's own last words"]
