"""adopt: a loader of penstock's with the dataset, order and arguments of one that is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import penstock as ps

torch = pytest.importorskip("torch")

import penstock.torch as pt  # noqa: E402  # it needs torch

TORCHS = torch.utils.data.DataLoader


def first(batch: list[Any]) -> Any:
    """A collation of our own."""
    return batch[0]


def begin(worker: int) -> None:
    """A beginning of our own."""


def test_arguments_are_taken_over() -> None:
    """Every argument of torch's loader is the same object in ours; the batches are the same."""
    numbers: Any = list(range(10))
    arguments: dict[str, Any] = {
        "batch_size": 4, "num_workers": 2, "collate_fn": first, "drop_last": True, "timeout": 5,
        "worker_init_fn": begin, "generator": torch.Generator().manual_seed(1), "prefetch_factor": 3,
        "persistent_workers": True, "in_order": False,
    }  # fmt: skip
    theirs = TORCHS(numbers, shuffle=True, multiprocessing_context="fork", **arguments)

    ours = pt.adopt(theirs)

    assert type(ours) is pt.DataLoader
    assert ours.dataset is numbers
    assert ours.sampler is theirs.sampler
    assert ours.multiprocessing_context is theirs.multiprocessing_context
    assert {name: getattr(ours, name) for name in arguments} == arguments


class Stream(pt.IterableDataset[Any]):
    """Nine numbers."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(9))


BATCHES = torch.utils.data.BatchSampler(range(7, 0, -1), 3, drop_last=False)


@pytest.mark.parametrize(
    ("dataset", "arguments"),
    [
        (range(9), {"batch_size": 4}),
        (range(9), {"batch_size": 4, "drop_last": True}),
        (range(9), {"batch_size": None}),
        (range(9), {"batch_size": None, "sampler": [3, 1]}),
        (range(9), {"batch_size": 2, "sampler": [3, 1, 2]}),
        (range(9), {"batch_sampler": BATCHES}),
        (range(9), {"batch_sampler": BATCHES, "num_workers": 1}),
        (Stream(), {"batch_size": 4}),
        (Stream(), {"batch_size": 4, "drop_last": True}),
        (Stream(), {"batch_size": None}),
    ],
)
def test_batches_are_the_same(dataset: Any, arguments: dict[str, Any]) -> None:
    """However the order was asked for: by size, sampler, batches of indices, or by a stream."""
    theirs = TORCHS(dataset, **arguments)

    ours = pt.adopt(theirs)

    assert len(list(ours)) == len(list(theirs)) > 0
    assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(ours, theirs, strict=True))


def test_more_is_said_by_name() -> None:
    """What is given beside the loader stands in place of what the loader has, and the rest stays."""
    theirs = TORCHS(ps.ArrayDataset(np.arange(9)), 4, sampler=[8, 0, 5], num_workers=1)

    ours = pt.adopt(theirs, batch_size=2, workers="threads", stall_timeout=90.0)

    assert (ours.workers, ours.stall_timeout, ours.num_workers) == ("threads", 90.0, 1)
    assert [batch[0].tolist() for batch in ours] == [[8, 0], [5]]


def test_contradictions_are_torchs_own() -> None:
    """Arguments that cannot stand together are refused as the constructor refuses them."""
    with pytest.raises(ValueError, match="mutually exclusive with shuffle"):
        pt.adopt(TORCHS(range(9), 4), shuffle=True)


def test_a_loader_of_ours_keeps_its_class_and_arguments() -> None:
    """Adopting one of penstock's makes another of its kind, with what penstock adds."""
    loader = pt.StatefulDataLoader(range(9), 4, num_workers=2, seed=3, snapshot_every_n_steps=5, shuffle=True)

    again = pt.adopt(loader, num_workers=1)

    assert type(again) is pt.StatefulDataLoader
    assert (again.seed, again.snapshot_every_n_steps, again.num_workers) == (3, 5, 1)
    assert again.generator is loader.generator


def test_a_loader_that_iterates_in_its_own_way_is_refused() -> None:
    """A subclass with an ``__iter__`` of its own does what penstock would leave out; nothing is lost silently."""

    class Doubled(TORCHS):  # type: ignore[misc, valid-type]  # importorskip leaves torch untyped
        def __iter__(self) -> Any:
            return (2 * batch for batch in super().__iter__())

    with pytest.raises(ps.ArgumentError, match="Doubled iterates in a way of its own"):
        pt.adopt(Doubled(range(9)))


@pytest.mark.parametrize("wrong", [[1, 2], None, ps.DataLoader(range(3))])
def test_what_is_no_loader_of_torchs_is_refused(wrong: Any) -> None:
    """The error says what adopt takes."""
    with pytest.raises(ps.ArgumentError, match=r"adopt takes a torch\.utils\.data\.DataLoader"):
        pt.adopt(wrong)
