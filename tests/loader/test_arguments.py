"""The loader's arguments: torch's names, order of checks and beginnings of texts."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import ArgumentError
from tests.loader.fakes import Rows, Samples, Stream
from tests.pack.images import make_photos

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "num_workers below zero": ({"num_workers": -1}, "num_workers option should be non-negative"),
    "timeout below zero": ({"timeout": -1}, "timeout option should be non-negative"),
    "prefetch_factor without workers": (
        {"prefetch_factor": 2},
        "prefetch_factor option could only be specified in multi",
    ),
    "prefetch_factor below zero": (
        {"prefetch_factor": -1, "num_workers": 1},
        "prefetch_factor option should be non-neg",
    ),
    "prefetch_factor zero": ({"prefetch_factor": 0, "num_workers": 1}, "prefetch_factor option should be positive"),
    "persistence without workers": ({"persistent_workers": True}, "persistent_workers option needs num_workers > 0"),
    "pinned arrays": ({"pin_memory": True}, r"pin_memory must be False, got True.*penstock\.torch\.DataLoader"),
    "a generator of torch's": ({"generator": object()}, r"generator must be None.*seed=.*penstock\.torch\.DataLoader"),
    "sampler and shuffle": ({"sampler": [1], "shuffle": True}, "sampler option is mutually exclusive with shuffle"),
    "sampler, shuffle and batch_sampler": (
        {"sampler": [1], "shuffle": True, "batch_sampler": [[1]]}, "sampler option is mutually exclusive with shuffle"
    ),
    "batch_sampler and batch_size": (
        {"batch_sampler": [[1]], "batch_size": 2},
        "batch_sampler option is mutually excl",
    ),
    "batch_sampler and no batch_size": ({"batch_sampler": [[1]], "batch_size": None}, "batch_sampler option is mutual"),
    "batch_sampler and drop_last": ({"batch_sampler": [[1]], "drop_last": True}, "batch_sampler option is mutually ex"),
    "no batches and drop_last": (
        {"batch_size": None, "drop_last": True},
        "batch_size=None option disables auto-batching",
    ),
    "batch_size zero": ({"batch_size": 0}, "batch_size should be a positive integer value"),
    "batch_size a float": ({"batch_size": 2.0}, "batch_size should be a positive integer value"),
    "batch_size true": ({"batch_size": True}, "batch_size should be a positive integer value"),
    "drop_last a number": ({"drop_last": 3}, "drop_last should be a boolean value"),
    "an unknown kind of worker": (
        {"workers": "fibres", "num_workers": 1}, "workers must be one of auto, serial, threads, proc"
    ),
    "serial with workers": ({"workers": "serial", "num_workers": 1}, "workers='serial' has no workers"),
    "ray with a start method": (
        {"workers": "ray", "num_workers": 1, "multiprocessing_context": "fork"},
        "multiprocessing_context must be None with workers='ray'",
    ),
    "threads without workers": ({"workers": "threads"}, "workers='threads' needs num_workers > 0"),
    "timeout without workers": ({"timeout": 1}, "timeout needs num_workers > 0"),
    "a context without workers": (
        {"multiprocessing_context": "fork"}, "multiprocessing_context can only be used with multi-process loading"
    ),
    "an unknown start method": (
        {"multiprocessing_context": "x", "num_workers": 1}, "multiprocessing_context option should specify a valid"
    ),
    "a context that is none": (
        {"multiprocessing_context": 3, "num_workers": 1}, "multiprocessing_context option should be a valid context"
    ),
    "a context for threads": (
        {"multiprocessing_context": "fork", "num_workers": 1, "workers": "threads"},
        "multiprocessing_context is about processes",
    ),
    "an unknown policy": ({"on_error": "ignore"}, "on_error must be one of raise, skip, replace, got 'ignore'"),
    "a limit of nothing left out": ({"max_errors": 3}, "max_errors needs on_error='skip' or 'replace'"),
    "a log of nothing left out": ({"error_log": "x"}, "error_log needs on_error='skip' or 'replace'"),
    "a negative limit": ({"on_error": "skip", "max_errors": -1}, "max_errors must be a number of samples"),
    "a share above one": ({"on_error": "skip", "max_errors": 1.5}, "max_errors must be a number of samples"),
    "a limit that is true": ({"on_error": "skip", "max_errors": True}, "max_errors must be a number of samples"),
    "a log in no folder": (
        {"on_error": "skip", "error_log": "/nowhere/x"}, "error_log must be a file in an existing folder"
    ),
    "a stall limit of zero": ({"stall_timeout": 0}, "stall_timeout should be positive or None"),
    "a chunk of nothing": ({"chunk_size": 0}, "chunk_size should be a positive integer value"),
    "a negative seed": ({"seed": -1}, "seed should be a non-negative integer value"),
    "a seed that is text": ({"seed": "0"}, "seed should be a non-negative integer value"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_means_nothing_is_refused(name: str) -> None:
    """A wrong argument is an ArgumentError (a ValueError) at construction, and says what was given."""
    kwargs, text = REFUSED[name]

    with pytest.raises(ArgumentError, match=f"^{text}".replace("(", r"\(")):
        ps.DataLoader(Samples(), **kwargs)


@pytest.mark.parametrize("kwargs", [{"shuffle": True}, {"sampler": [0]}, {"batch_sampler": [[0]]}])
def test_a_stream_has_no_order_to_choose(kwargs: dict[str, Any]) -> None:
    """shuffle, sampler and batch_sampler are refused for iterable datasets; shuffle=False passes."""
    with pytest.raises(
        ArgumentError, match=f"DataLoader with IterableDataset: expected unspecified {next(iter(kwargs))}"
    ):
        ps.DataLoader(Stream(), **kwargs)
    ps.DataLoader(Stream(), shuffle=False)


def test_shuffling_nothing_is_refused() -> None:
    """An empty dataset cannot be shuffled; without shuffling it is an epoch of nothing."""
    with pytest.raises(ArgumentError, match="num_samples=0"):
        ps.DataLoader([], shuffle=True)
    with pytest.raises(TypeError):
        ps.DataLoader(iter([]), shuffle=True)

    assert list(ps.DataLoader([])) == []


@pytest.mark.parametrize(
    "name", ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"]
)
def test_what_the_order_hangs_on_is_fixed(name: str) -> None:
    """These attributes cannot be set later; others can."""
    loader = ps.DataLoader(Samples())
    loader.collate_fn = list

    with pytest.raises(ValueError, match=f"{name} attribute should not be set after DataLoader is initialized"):
        setattr(loader, name, None)


def test_more_workers_than_cores_is_worth_a_warning() -> None:
    """Named with both numbers, where the loader was made."""
    cores = len(os.sched_getaffinity(0))

    with pytest.warns(UserWarning, match=f"will create {cores + 1} workers.*system is {cores}") as caught:
        ps.DataLoader(Samples(), num_workers=cores + 1)

    assert caught[0].filename == __file__


def test_attributes_are_torchs() -> None:
    """What torch's users read is there, with torch's values."""
    plain = ps.DataLoader(Samples(), 4, num_workers=1)
    batches = ps.DataLoader(Samples(), batch_sampler=[[0, 1]])
    single = ps.DataLoader(Samples(), batch_size=None)

    assert (plain.batch_size, plain.drop_last, plain.num_workers, plain.prefetch_factor) == (4, False, 1, 2)
    assert type(plain.sampler) is ps.SequentialSampler
    assert type(plain.batch_sampler) is ps.BatchSampler
    assert plain.collate_fn is ps.default_collate
    assert (batches.batch_size, batches.drop_last, batches.prefetch_factor) == (None, False, None)
    assert type(batches.sampler) is ps.SequentialSampler
    assert single.batch_sampler is None
    assert single.collate_fn is ps.default_convert
    assert (plain.workers, batches.workers) == ("processes", "serial")


def test_who_works_depends_on_the_dataset() -> None:
    """auto: threads where rows are filled and collated by default, processes for anything else that is asked for."""
    kinds = {
        name: ps.DataLoader(dataset, num_workers=1, **kwargs).workers
        for name, dataset, kwargs in (
            ("fills", Rows(), {}),
            ("another collation", Rows(), {"collate_fn": list}),
            ("no batches", Rows(), {"batch_size": None}),
            ("a context", Rows(), {"multiprocessing_context": "spawn"}),
            ("samples", Samples(), {}),
            ("a stream", Stream(), {}),
        )
    }

    assert kinds.pop("fills") == "threads"
    assert set(kinds.values()) == {"processes"}


def test_the_class_can_be_subscripted() -> None:
    """DataLoader[T] in annotations, as torch's."""
    loader = ps.DataLoader[int]([1, 2], 2)

    assert isinstance(loader, ps.DataLoader)
    assert [batch.tolist() for batch in pickle.loads(pickle.dumps(loader))] == [[1, 2]]


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({"batch_size": 8}, 7),
        ({"batch_size": 8, "drop_last": True}, 6),
        ({"batch_size": None}, 50),
        ({"batch_sampler": [[1], [2]]}, 2),
    ],
)
def test_len_counts_batches(kwargs: dict[str, Any], expected: int) -> None:
    """And samples where there are no batches; an iterator has the same length."""
    loader = ps.DataLoader(Samples(), **kwargs)

    assert len(loader) == len(iter(loader)) == expected


def test_the_length_of_a_stream_is_what_it_says() -> None:
    """len() of a stream's loader is reckoned from the stream's; without one it is a TypeError."""

    class Sized(Stream):
        def __len__(self) -> int:
            return 10

    assert len(ps.DataLoader(Sized(), 4)) == 3
    assert len(ps.DataLoader(Sized(), 4, drop_last=True)) == 2
    assert len(ps.DataLoader(Sized(), None)) == 10
    with pytest.raises(TypeError):
        len(ps.DataLoader(Stream(), 4))


def test_a_stream_longer_than_it_said_is_worth_a_warning() -> None:
    """Once len() was asked for, and not before."""

    class Sized(Stream):
        def __len__(self) -> int:
            return 3

    loader = ps.DataLoader(Sized(4), None)
    assert sum(1 for _ in loader) == 4  # list() would ask for the length
    assert len(loader) == 3

    with pytest.warns(UserWarning, match="was reported to be 3, but 4 samples have been fetched") as caught:
        for _ in loader:
            pass

    assert caught[0].filename == __file__


def test_samples_that_are_no_dataset_of_ours_will_do() -> None:
    """A list is a dataset."""
    assert [batch.tolist() for batch in ps.DataLoader([5, 6, 7], 2)] == [[5, 6], [7]]
    assert [type(sample) for sample in ps.DataLoader([np.zeros(2)], None)] == [np.ndarray]


@pytest.mark.parametrize("is_part", [False, True])
def test_a_store_is_no_dataset(tmp_path: Path, is_part: bool) -> None:
    """Records are not collated: the error says at construction what to write instead."""
    with ps.open(make_photos(tmp_path / "photos")) as store:
        dataset: Any = ps.Subset(store, [0, 1]) if is_part else store

        with pytest.raises(ArgumentError, match=r"got the records of .*photos.*StoreDataset\(store, .*collate_fn"):
            ps.DataLoader(dataset, 2)
        assert len(list(ps.DataLoader(dataset, 1, collate_fn=list))) == len(dataset)
