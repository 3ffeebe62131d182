"""torch's collation with functions of the user's own: they are called wherever torch calls them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import penstock as ps
from penstock import transforms as T
from penstock.sample import Field
from tests.sheets.annotated_packs import encode, write_pack

torch = pytest.importorskip("torch")

from torch.utils import data  # noqa: E402  # it is there now
from torch.utils.data._utils import collate as torch_collate  # noqa: E402  # as above
from torch.utils.data._utils.collate import default_collate_fn_map  # noqa: E402  # as above

import penstock.torch as pt  # noqa: E402  # as above
from penstock.torch.loader.recipe import choose_backend  # noqa: E402  # as above


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


@pytest.mark.parametrize(("kind", "workers"), [(torch.Tensor, 0), (torch.Tensor, 2), (tuple, 0), (Pair, 0)])
@pytest.mark.parametrize("name", DATASETS)
def test_registered_functions_collate(name: str, kind: Any, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch documents that default_collate is extended by changing its map in place; also for types that it knows."""
    monkeypatch.setitem(default_collate_fn_map, kind, summed)
    given: dict[str, Any] = {"num_workers": workers, "multiprocessing_context": "fork" if workers else None}

    ours, theirs = (list(make(DATASETS[name](), 2, **given)) for make in (pt.DataLoader, data.DataLoader))

    assert repr(ours) == repr(theirs)


class Tagged(torch.Tensor):  # type: ignore[name-defined,misc]  # torch is imported where it is there
    """A subclass of tensors, as libraries have one; MONAI registers a function for its own."""


def detections(folder: Path, transform: list[Any]) -> ps.StoreDataset:
    """Images of two sizes with boxes, in the form of torchvision's models."""
    fields = {"image": Field("image"), "boxes": Field("boxes"), "labels": Field("int64[*]")}
    records = [
        {
            "image": encode(np.full((40, 30 + n % 2, 3), 20 * n, np.uint8)),
            "boxes": np.array([[1, 2, 9, 8]] * (n % 3), np.float32).reshape(-1, 4),
            "labels": np.full(n % 3, n, np.int64),
        }
        for n in range(6)
    ]
    path = folder / "boxes.lmdb"
    return ps.StoreDataset(
        path if path.exists() else write_pack(path, fields, records), None, transform, batch_form="torchvision"
    )


@pytest.mark.parametrize("kind", [Tagged, torch.Tensor, str])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("size", [[], [T.Resize((20, 20))]], ids=["several sizes", "one size"])
def test_forms_of_batches_do_not_depend_on_registered_functions(
    kind: Any, workers: int, size: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The arguments of the dataset say what a batch is, whatever another library has registered."""
    dataset = detections(tmp_path, [T.Decode(), *size, T.ToLayout("CHW", "float32")])
    expected = list(pt.DataLoader(dataset, 3))
    monkeypatch.setitem(default_collate_fn_map, kind, torch_collate.collate_tensor_fn if kind is str else summed)

    found = list(pt.DataLoader(dataset, 3, num_workers=workers, multiprocessing_context="fork" if workers else None))

    assert [len(images) for images, _ in found] == [3, 3]
    for (images, targets), (others, wanted) in zip(found, expected, strict=True):
        assert all(map(torch.equal, images, others))
        for one, other in zip(targets, wanted, strict=True):
            assert torch.equal(one["boxes"], other["boxes"])
            assert torch.equal(one["labels"], other["labels"])


def test_rows_are_filled_beside_functions_for_other_tensors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A function for a subclass of tensors cannot concern them; one for tensors or containers may."""
    dataset = detections(tmp_path, [T.Decode(), T.Resize((20, 20)), T.ToLayout("CHW", "float32")])
    loader = pt.DataLoader(dataset, 3, num_workers=2)

    chosen = {}
    for kind in (Tagged, torch.Tensor, dict, Pair):
        with monkeypatch.context() as patch:
            patch.setitem(default_collate_fn_map, kind, summed)
            chosen[kind] = choose_backend(loader)

    assert chosen == {Tagged: "threads", torch.Tensor: "processes", dict: "processes", Pair: "processes"}
