"""penstock.torch.DataLoader beside the installed torch.utils.data.DataLoader: same seeds, same batches, same errors."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import penstock.torch as pt  # noqa: E402  # it needs torch
from tests.torch.streams import Drawn, Plain, frozen  # noqa: E402  # as above

Reference = torch.utils.data.DataLoader


def outcome(make: Any, epochs: int, seed: int = 7, **arguments: Any) -> Any:
    """Batches of some epochs and what global generators draw after them; or type and text of the error."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  # datasets draw from the global one
    try:
        loader = make(**arguments)
        batches = [[frozen(batch) for batch in loader] for _ in range(epochs)]
    except Exception as error:  # noqa: BLE001  # whatever it is, both must raise it
        return type(error), str(error)[:60]
    return batches, torch.rand(()).item(), random.random(), np.random.random()  # noqa: NPY002  # as above


def forked(workers: int) -> dict[str, Any]:
    """That many workers, forked as by torch's default: ours are not if a thread of torch's own is still there."""
    return {"num_workers": workers, "multiprocessing_context": "fork" if workers else None}


LARGE_SEED = 2**31 + 1
CASES = [
    (kind, workers, batch_size, shuffle, drop_last, persistent, seed)
    for kind, workers, batch_size, shuffle, drop_last, persistent, seed in itertools.product(
        ("map", "stream"), (0, 2), (None, 1, 3), (False, True), (False, True), (False, True), (7, LARGE_SEED)
    )
    if not (kind == "stream" and shuffle)
    and not (batch_size is None and drop_last)
    and not (drop_last and batch_size == 1)
    and not (persistent and (workers == 0 or batch_size == 1 or drop_last))
    and not (seed == LARGE_SEED and (batch_size != 3 or drop_last or persistent))
]


QUICK = {
    ("map", None, True, False, False, 7),
    ("map", 1, True, False, False, 7),
    ("map", 3, False, False, False, 7),
    ("map", 3, True, True, False, 7),
    ("map", 3, True, False, False, LARGE_SEED),
    ("map", 3, True, False, True, 7),
    ("stream", None, False, False, True, 7),
    ("stream", 1, False, False, False, 7),
    ("stream", 3, False, True, False, 7),
    ("stream", 3, False, False, False, LARGE_SEED),
}
"""Of the cases with workers: any two values of two arguments that can be together are in one."""
MARKED = [
    pytest.param(*case, marks=[pytest.mark.slow] * (case[1] > 0 and (case[0], *case[2:]) not in QUICK))
    for case in CASES
]


@pytest.mark.parametrize(("kind", "workers", "batch_size", "shuffle", "drop_last", "persistent", "seed"), MARKED)
def test_batches_are_torchs(
    kind: str, workers: int, batch_size: int | None, shuffle: bool, drop_last: bool, persistent: bool, seed: int
) -> None:
    """Two epochs have torch's batches, with torch's random numbers in the samples, and leave generators alike."""
    arguments: dict[str, Any] = {
        "dataset": Drawn() if kind == "map" else Plain(),
        "batch_size": batch_size,
        "drop_last": drop_last,
        "persistent_workers": persistent,
        **forked(workers),
    }
    if kind == "map":
        arguments["shuffle"] = shuffle

    assert outcome(pt.DataLoader, 2, seed, **arguments) == outcome(Reference, 2, seed, **arguments)


class Eager:
    """A sampler that draws when it is asked for an iterator."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(self.n).tolist())

    def __len__(self) -> int:
        return self.n


class Stepwise(Eager):
    """A sampler that draws at every step."""

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.n):
            yield int(torch.randint(self.n, ()).item())


class Batches(Eager):
    """A batch sampler of one's own, of tensors, eager."""

    def __iter__(self) -> Iterator[Any]:
        return iter(torch.randperm(self.n).split(3))


ORDERS: dict[str, Any] = {
    "generator": lambda: {"shuffle": True, "generator": torch.Generator().manual_seed(3)},
    "replacement": lambda: {"sampler": torch.utils.data.RandomSampler(range(11), replacement=True, num_samples=40)},
    "more": lambda: {"sampler": torch.utils.data.RandomSampler(range(11), num_samples=25)},
    "subset": lambda: {"sampler": torch.utils.data.SubsetRandomSampler([7, 1, 9, 3])},
    "weighted": lambda: {"sampler": torch.utils.data.WeightedRandomSampler([0.1] * 11, 9)},
    "eager": lambda: {"sampler": Eager(11)},
    "stepwise": lambda: {"sampler": Stepwise(11)},
    "tensor": lambda: {"sampler": torch.arange(10, -1, -1)},
    "eager alone": lambda: {"sampler": Eager(11), "batch_size": None},
    "batches": lambda: {"batch_sampler": Batches(11)},
    "lists": lambda: {"batch_sampler": [[1, 2], (3,), range(4, 9)]},
}


TORCHS = ("replacement", "more", "subset", "weighted", "tensor")
"""Orders that are drawn as that of ``generator`` is, by a sampler of torch's, or not at all."""


@pytest.mark.parametrize(
    ("workers", "order"),
    [
        pytest.param(workers, order, marks=[pytest.mark.slow] * (workers > 0 and order in TORCHS))
        for workers, order in itertools.product((0, 2), ORDERS)
    ],
)
def test_orders_are_torchs(order: str, workers: int) -> None:
    """Samplers draw as often, and when, they do under torch: lazy ones, eager ones, with a generator and without."""
    ours, theirs = (outcome(make, 2, dataset=Drawn(), **forked(workers), **ORDERS[order]()) for make in LOADERS)

    assert ours == theirs


LOADERS = (pt.DataLoader, Reference)

REFUSED: list[dict[str, Any]] = [
    {"num_workers": -1},
    {"timeout": -1},
    {"prefetch_factor": 2},
    {"prefetch_factor": -1, "num_workers": 1},
    {"prefetch_factor": 0, "num_workers": 1, "dataset": range(3)},
    {"persistent_workers": True},
    {"multiprocessing_context": "fork"},
    {"multiprocessing_context": "bad", "num_workers": 1},
    {"multiprocessing_context": object(), "num_workers": 1},
    {"shuffle": True, "sampler": range(3)},
    {"batch_sampler": [[0]], "batch_size": 2},
    {"batch_sampler": [[0]], "batch_size": None},
    {"batch_sampler": [[0]], "shuffle": True},
    {"batch_sampler": [[0]], "sampler": range(3)},
    {"batch_sampler": [[0]], "drop_last": True},
    {"batch_size": None, "drop_last": True},
    {"batch_size": 0},
    {"batch_size": 2.0},
    {"batch_size": True},
    {"drop_last": 3},
    {"dataset": [], "shuffle": True},
    {"dataset": Plain(), "shuffle": True},
    {"dataset": Plain(), "shuffle": []},
    {"dataset": Plain(), "sampler": range(3)},
    {"dataset": Plain(), "batch_sampler": [[0]]},
    {"timeout": 1},
]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # torch's half-made iterators
@pytest.mark.parametrize("arguments", REFUSED, ids=lambda arguments: re.sub(r" at 0x\w+", "", str(arguments)))
def test_what_torch_refuses_is_refused(arguments: dict[str, Any]) -> None:
    """The same type of error, at the same place; the text begins alike where the constructor refuses."""
    arguments = {"dataset": Drawn(), **arguments}

    ours, theirs = (outcome(make, 1, **arguments) for make in LOADERS)

    assert isinstance(theirs[0], type), "torch refuses it"
    assert issubclass(ours[0], theirs[0])
    if theirs[0] is not AssertionError:
        assert ours[1] == theirs[1]


FIXED = ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"]


@pytest.mark.parametrize("name", FIXED)
def test_fixed_attributes_stay(name: str) -> None:
    """What torch does not let be set later cannot be set; the text names the class."""
    for make in LOADERS:
        loader = make(Drawn(), 2)

        with pytest.raises(ValueError, match=f"{name} attribute should not be set after DataLoader is initialized"):
            setattr(loader, name, None)


class Failing(Drawn):
    """Raises at one index."""

    def __init__(self, error: type[Exception], at: int) -> None:
        super().__init__()
        self.error, self.at = error, at

    def __getitem__(self, index: int) -> Any:
        if index == self.at:
            raise self.error("broken")
        return index


@pytest.mark.parametrize("error", [ValueError, KeyError, OSError])
@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_keeps_its_type_and_the_rest_comes(error: type[Exception], workers: int) -> None:
    """A failed batch is raised in its turn, once; with workers the iterator goes on behind it to its end."""
    for make in LOADERS:
        walk, got = iter(make(Failing(error, 5), 2, **forked(workers))), []
        for _ in range(6):
            try:
                got.append(next(walk).tolist())
            except error as raised:
                got.append("broken" in str(raised))

        assert got == [[0, 1], [2, 3], True, [6, 7], [8, 9], [10]]
        assert list(walk) == []  # torch's workers end here at once; with an iterator that is dropped, after 5 s each


class Short(Plain):
    """Says that it has fewer samples than it gives."""

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[Any]:
        return iter(range(5))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("batch_size", [None, 1, 2])
def test_a_stream_longer_than_it_said_is_warned_of_as_by_torch(batch_size: int | None, workers: int) -> None:
    """At every batch beyond the number of samples reported, and only if len() was asked for."""
    counts = []
    for make in LOADERS:
        loader = make(Short(), batch_size, **forked(workers))
        assert list(loader)
        assert len(loader) == (2 if batch_size == 2 else 3)
        with pytest.warns(UserWarning, match="was reported to be 3") if batch_size != 2 else nothing() as caught:
            list(loader)
        counts.append([str(w.message).replace(hex(id(loader.dataset)), "") for w in caught or ()])

    assert counts[0] == counts[1]


class nothing:  # noqa: N801  # reads as a statement
    """A context of no warnings: they are errors."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        return None
