"""penstock.torch has the names of torch.utils.data, with torch's parameters."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils import data  # noqa: E402  # it is there now

import penstock as ps  # noqa: E402  # as above
import penstock.torch as pt  # noqa: E402  # as above

LEFT_OUT = {
    "DFIterDataPipe",
    "DataChunk",
    "IterDataPipe",
    "MapDataPipe",
    "_DatasetKind",
    "argument_validation",
    "functional_datapipe",
    "guaranteed_datapipes_determinism",
    "non_deterministic",
    "runtime_validation",
    "runtime_validation_disabled",
}
"""The DataPipes, which torch has deprecated, and a private name."""

NAMES = sorted({*data.__all__} - LEFT_OUT)


def parameters(thing: Any) -> list[tuple[str, Any, Any]]:
    """Name, kind and default of each parameter."""
    return [(p.name, p.kind, p.default) for p in inspect.signature(thing).parameters.values()]


@pytest.mark.parametrize("name", NAMES)
def test_each_name_of_torchs_is_there(name: str) -> None:
    """Whoever changes the import alone finds every name, also by `import *`."""
    assert name in pt.__all__
    assert callable(getattr(pt, name))


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_torchs(name: str) -> None:
    """By name, order, kind and default; what penstock adds can only be given by keyword."""
    theirs, ours = parameters(getattr(data, name)), parameters(getattr(pt, name))
    added = [p for p in ours if p not in theirs]

    assert [p for p in ours if p not in added] == theirs
    assert all(kind is inspect.Parameter.KEYWORD_ONLY for _, kind, _ in added)


@pytest.mark.parametrize("name", [name for name in NAMES if inspect.isclass(getattr(data, name))])
def test_classes_are_torchs_or_subclasses(name: str) -> None:
    """So that isinstance holds wherever a library asks for torch's class."""
    assert issubclass(getattr(pt, name), getattr(data, name))


@pytest.mark.parametrize("name", ["StatefulDataLoader", "StatefulDistributedSampler", "Stateful"])
def test_torchdatas_names_are_there(name: str) -> None:
    """What torchdata.stateful_dataloader has."""
    assert name in pt.__all__
    assert inspect.getdoc(getattr(pt, name))


@pytest.mark.parametrize(
    "name",
    [
        "BucketBatchSampler",
        "ClassBalancedSampler",
        "DistributedWeightedSampler",
        "RepeatFactorSampler",
    ],
)
def test_penstocks_own_are_the_same_objects(name: str) -> None:
    """What torch has no class for is penstock's, under one name in both places."""
    assert name in pt.__all__
    assert getattr(pt, name) is getattr(ps, name)


def test_the_dataset_of_a_store_is_of_both_libraries() -> None:
    """Samples of it hold tensors; whatever asks for either class takes it."""
    assert issubclass(pt.StoreDataset, ps.StoreDataset)
    assert issubclass(pt.StoreDataset, torch.utils.data.Dataset)


def test_every_exported_name_is_documented() -> None:
    """`help(penstock.torch.X)` says something for each name."""
    pytest.importorskip("torchvision")

    assert [name for name in pt.__all__ if not inspect.getdoc(getattr(pt, name))] == []
    assert sorted(pt.__all__) == sorted(set(pt.__all__))


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A misspelt name fails as Python's own attributes do."""
    with pytest.raises(AttributeError, match="Dataloader"):
        pt.Dataloader  # noqa: B018  # the access is the test


class Position:
    """Something that knows where it is."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing to tell."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing to do."""


def test_stateful_asks_for_two_methods() -> None:
    """isinstance(x, Stateful) is duck typing, as torchdata's."""
    assert isinstance(Position(), pt.Stateful)
    assert not isinstance([], pt.Stateful)
