"""torch's collation with functions of the user's own: they are called wherever torch calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

from torch.utils import data  # noqa: E402  # it is there now
from torch.utils.data._utils.collate import default_collate_fn_map  # noqa: E402  # as above

import penstock.torch as pt  # noqa: E402  # as above


class Pair(NamedTuple):
    """A type of the user's own."""

    one: int
    two: int


def summed(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """What a user registers."""
    return ("summed", sum(float(torch.as_tensor(sample).sum()) for sample in batch))


DATASETS: dict[str, Callable[[], Any]] = {
    "tensors": lambda: list(torch.arange(6.0)),
    "rows": lambda: pt.TensorDataset(torch.arange(6.0)),
    "rows of torch's own": lambda: data.TensorDataset(torch.arange(6.0)),
    "pairs": lambda: [Pair(i, 2 * i) for i in range(6)],
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [torch.Tensor, tuple, Pair])
@pytest.mark.parametrize("name", DATASETS)
def test_registered_functions_collate(name: str, kind: Any, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch documents that default_collate is extended by changing its map in place; also for types that it knows."""
    monkeypatch.setitem(default_collate_fn_map, kind, summed)
    given: dict[str, Any] = {"num_workers": workers, "multiprocessing_context": "fork" if workers else None}

    ours, theirs = (list(make(DATASETS[name](), 2, **given)) for make in (pt.DataLoader, data.DataLoader))

    assert repr(ours) == repr(theirs)
