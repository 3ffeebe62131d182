"""What the tests of other people's libraries share: recordings of training runs, and the loader classes to run with.

::

    record(TORCH, run)     -> Recording   torch.utils.data.DataLoader is passed to `run`
    record(GIVEN, run)     -> Recording   penstock.torch.DataLoader is passed to `run`
    record(REPLACED, run)  -> Recording   the same, and every name of torch's class in torch and in the library is ours

A recording holds what the training loop was given (every byte of every tensor), what it computed, and the state of the
global random generators at the end: two runs that agree in it cannot be told apart by the model. The samples carry
numbers drawn from the global generators of whoever builds them, so that another seed of a worker, or another number
of draws, is a difference too.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import random
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final

import numpy as np
import pytest
import torch
import torch.utils.data

import penstock.torch as pt

__all__ = [
    "EPOCHS",
    "GIVEN",
    "LOADINGS",
    "OURS",
    "REPLACED",
    "TORCH",
    "Loading",
    "Net",
    "Recording",
    "Samples",
    "assert_same",
    "frozen",
    "modules_over",
    "record",
    "replacing",
    "seed",
]

TORCH: Final = "torch"
GIVEN: Final = "given"
REPLACED: Final = "replaced"

TORCHS: Final = torch.utils.data.DataLoader
"""torch's own class, whatever the name refers to later."""

EPOCHS: Final = 2

OURS = pytest.mark.parametrize("way", [GIVEN, REPLACED])
"""The two ways in which a user brings our loader to a library."""


@dataclass(frozen=True)
class Loading:
    """How a loader works: the arguments that every library passes on."""

    num_workers: int
    persistent_workers: bool = False

    def arguments(self) -> dict[str, Any]:
        """For the constructor of a loader."""
        return {"num_workers": self.num_workers, "persistent_workers": self.persistent_workers}

    def __str__(self) -> str:
        return f"{self.num_workers}-persistent" if self.persistent_workers else str(self.num_workers)


LOADINGS = pytest.mark.parametrize("loading", [Loading(0), Loading(2), Loading(2, persistent_workers=True)], ids=str)


class Samples(torch.utils.data.Dataset[Any]):
    """``n`` samples ``(x, y, index)``: 4 floats drawn from the global generators of torch, NumPy and ``random``."""

    def __init__(self, n: int = 26) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        drawn = [float(torch.rand(())), random.random(), float(np.random.random())]  # noqa: NPY002  # the global ones are meant
        return torch.tensor([*drawn, float(index)]), index % 2, index


class Net(torch.nn.Module):
    """4 numbers to 2, with dropout: the step draws from torch's generator, as most training steps do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.25), torch.nn.Linear(8, 2))

    def forward(self, x: Any) -> Any:
        """Logits."""
        return self.layers(x)


@dataclass
class Recording:
    """What happened in a run, in order: pairs of a word and what it says, as :func:`frozen` keeps it."""

    entries: list[tuple[str, Any]] = field(default_factory=list)
    iterations: int = 0
    """How often a loader of ours was iterated."""

    def note(self, word: str, value: Any) -> None:
        """Keep a value as it is now."""
        self.entries.append((word, frozen(value)))

    def all(self, word: str) -> list[Any]:
        """The values that were noted under a word."""
        return [value for name, value in self.entries if name == word]

    def seen(self) -> int:
        """How many batches were noted."""
        return len(self.all("batch"))


def frozen(value: Any) -> Any:
    """A value as nested tuples that compare equal only to those of the same types, shapes and bytes."""
    if isinstance(value, torch.Tensor):
        plain = value.detach().as_subclass(torch.Tensor).cpu().contiguous()
        nbytes = plain.reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8).numpy().tobytes()
        return type(value).__name__, str(value.dtype), tuple(value.shape), nbytes
    if isinstance(value, np.ndarray):
        return type(value).__name__, str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, Mapping):
        return type(value).__name__, tuple((key, frozen(part)) for key, part in value.items())
    if isinstance(value, list | tuple):
        return type(value).__name__, tuple(frozen(part) for part in value)
    if value is None or isinstance(value, bool | int | float | str | bytes | np.generic | torch.dtype | torch.Size):
        return type(value).__name__, repr(value)
    raise TypeError(f"a recording cannot keep a {type(value).__name__}")


def assert_same(ours: Recording, theirs: Recording, *, batches: int, used: bool = True) -> None:
    """Two recordings are equal, and not empty: ``batches`` were seen, and a loader of ours gave them.

    ``used=False`` where a library makes a loader of torch's class out of ours.
    """
    assert theirs.seen() == batches, f"torch's run saw {theirs.seen()} batches"
    assert theirs.iterations == 0, "torch's run used a loader of ours"
    for number, (own, other) in enumerate(zip(ours.entries, theirs.entries, strict=False)):
        if own != other:
            where = f"entry {number} ({other[0]} {sum(name == other[0] for name, _ in theirs.entries[:number])})"
            raise AssertionError(f"{where} differs:\n  torch {shown(other)}\n  ours  {shown(own)}")
    assert len(ours.entries) == len(theirs.entries), f"{ours.seen()} batches instead of {theirs.seen()}"
    assert (ours.iterations > 0) is used, f"loaders of ours were iterated {ours.iterations} times"


def shown(value: Any) -> str:
    """A frozen value for people: numbers instead of bytes."""
    if isinstance(value, tuple) and len(value) == 4 and isinstance(value[3], bytes):
        if len(value[3]) > 1024:
            return f"<{value[0]} {value[1]} {value[2]}>"
        kind = value[1].removeprefix("torch.")
        return str(np.frombuffer(value[3], kind if kind != "bfloat16" else "uint16").tolist())
    if isinstance(value, tuple):
        return f"({', '.join(shown(part) for part in value)})"
    return str(value)[:200]


# ------------------------------------------------------------------------------------------------ runs


def seed(number: int = 0) -> None:
    """Seed the global generators."""
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002  # the global one is meant


def record(way: str, run: Callable[[Any, Recording], None], *libraries: str) -> Recording:
    """Run once.

    Parameters
    ----------
    way : str
        TORCH, GIVEN or REPLACED; every other word is GIVEN.
    run : callable
        Given the loader class and the recording.
    *libraries : str
        With REPLACED, the names of packages whose modules hold torch's class under some name.
    """
    recording = Recording()
    with contextlib.ExitStack() as stack:
        count = stack.enter_context(counting())
        stack.enter_context(shutting_down())
        if way == REPLACED:
            stack.enter_context(replacing(*libraries))
        seed()
        run(TORCHS if way == TORCH else pt.DataLoader, recording)
        recording.note("generators", [torch.get_rng_state(), random.random(), np.random.random()])  # noqa: NPY002  # as above
        recording.iterations = count[0]
    gc.collect()  # loaders in cycles, and their workers with them
    return recording


@contextlib.contextmanager
def counting() -> Iterator[list[int]]:
    """Count how often an iterator is asked of loaders of our class, or of subclasses of it."""
    count = [0]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("__iter__", "_get_iterator"):
            patch.setattr(pt.DataLoader, name, _counted(getattr(pt.DataLoader, name), count))
        yield count


def _counted(method: Callable[[Any], Any], count: list[int]) -> Callable[[Any], Any]:
    def call(loader: Any) -> Any:
        count[0] += 1
        return method(loader)

    return call


@contextlib.contextmanager
def shutting_down() -> Iterator[None]:
    """Shut down the workers of torch's iterators at the end.

    One that is in a cycle, as libraries keep them, waits 5 s for each worker when it is collected: its queues may be
    gone by then. Ours are left to the collector.
    """
    kind = torch.utils.data.dataloader._MultiProcessingDataLoaderIter
    made: weakref.WeakSet[Any] = weakref.WeakSet()
    begin = kind.__init__

    def noted(iterator: Any, loader: Any) -> None:
        made.add(iterator)
        begin(iterator, loader)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "__init__", noted)
        yield
    for iterator in made:
        iterator._shutdown_workers()


@contextlib.contextmanager
def replacing(*libraries: str) -> Iterator[None]:
    """Have ``torch.utils.data.DataLoader``, and that class in the modules of these packages, be ours."""
    places = ("torch.utils.data", "torch.utils.data.dataloader", *libraries)
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name in places or name.startswith(tuple(f"{library}." for library in libraries)):
                for word in [word for word, value in vars(module).items() if value is TORCHS]:
                    patch.setattr(module, word, pt.DataLoader)
        yield


@contextlib.contextmanager
def modules_over(*names: str) -> Iterator[list[ModuleType]]:
    """Modules imported anew while torch's class is ours, so that their classes are subclasses of it.

    The modules that were there are put back at the end, also as attributes of their packages.
    """
    for name in names:
        importlib.import_module(name)
    kept = {name: sys.modules.pop(name) for name in names}
    try:
        with replacing():
            yield [importlib.import_module(name) for name in names]
    finally:
        for name, module in kept.items():
            sys.modules[name] = module
            package, _, last = name.rpartition(".")
            setattr(sys.modules[package], last, module)
