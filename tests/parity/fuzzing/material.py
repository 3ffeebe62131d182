"""What programs are made of: the log of all calls, errors, samples, and functions that log and draw random numbers.

Everything is importable by worker processes. A call in the main process is logged by :func:`note`; one in a worker is
told by the sample that it returns: worker, number of the call, what was drawn.
"""

from __future__ import annotations

import collections
import os
import random
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils import data

__all__ = ["COLLATES", "ERRORS", "EVENTS", "INITS", "SAMPLES", "Failing", "begin", "code", "draw", "note"]

EVENTS: list[tuple[Any, ...]] = []
"""What has happened in the main process, in order."""

_home: list[int] = []


def begin() -> None:
    """Forget what was logged; this process is the main one."""
    EVENTS.clear()
    _home[:] = [os.getpid()]


def note(*event: Any) -> None:
    """Log an event of the main process."""
    if _home and _home[0] == os.getpid():
        EVENTS.append(event)


def draw(sources: list[str]) -> list[float]:
    """One number from each of the global generators that are named."""
    return [_SOURCES[source]() for source in sources]


_SOURCES: dict[str, Callable[[], float]] = {
    "random": random.random,
    "numpy": lambda: float(np.random.random()),  # noqa: NPY002  # the global one is meant
    "torch": lambda: float(torch.rand((), dtype=torch.float64)),
}


def code(index: Any) -> int:
    """A number for any index."""
    try:
        return int(index)
    except (TypeError, ValueError):
        return zlib.crc32(repr(index).encode()) % 1000


# errors


class PairError(Exception):
    """Cannot be made again from a message."""

    def __init__(self, name: str, number: int) -> None:
        super().__init__(f"{name} {number}")
        self.name, self.number = name, number


class OwnError(LookupError):
    """A class of the user's own."""


ERRORS: dict[str, Callable[[str], BaseException]] = {
    "ValueError": ValueError,
    "KeyError": KeyError,
    "IndexError": IndexError,
    "OSError": lambda text: OSError(2, text),
    "OwnError": OwnError,
    "PairError": lambda text: PairError(text, 1),
    "StopIteration": StopIteration,
    "UnicodeError": lambda text: UnicodeDecodeError("utf-8", b"\xff", 0, 1, text),
}


class Failing:
    """Raises an error at one call for ``at``."""

    def __init__(self, at: int, error: str) -> None:
        self.at, self.error = at, error

    def check(self, what: str, at: int) -> None:
        """Raise if this is the one."""
        if at == self.at:
            raise ERRORS[self.error](f"user:{what}@{at}")


# samples


class Point(NamedTuple):
    """A named tuple."""

    x: Any
    y: Any


class Fields(dict[str, Any]):
    """A mapping of the user's own."""


class Row(collections.UserList[Any]):
    """A sequence of the user's own."""


SAMPLES: dict[str, Callable[[int, list[float]], Any]] = {
    "tuple": lambda i, x: (i, torch.tensor(x, dtype=torch.float64)),
    "dict": lambda i, x: {"i": i, "x": np.array(x)},
    "named": lambda i, x: Point(i, tuple(x)),
    "tensor": lambda i, x: torch.tensor([float(i), *x], dtype=torch.float64),
    "half": lambda i, x: torch.tensor([float(i), *x], dtype=torch.bfloat16),
    "array": lambda i, x: np.array([i, *x], np.float32).reshape(1, -1),
    "float": lambda i, x: i + sum(x),
    "int": lambda i, _: i,
    "bool": lambda i, _: i % 2 == 0,
    "text": lambda i, x: f"{i}:{x}",
    "bytes": lambda i, x: f"{i}:{x}".encode(),
    "list": lambda i, x: [i, list(x)],
    "nested": lambda i, x: {"a": (i, {"b": [np.int32(i), *x]}), "c": "t"},
    "fields": lambda i, x: Fields(i=i, x=sum(x)),
    "row": lambda i, x: Row([i, sum(x)]),
    "scalar": lambda i, _: np.float32(i),
    "big": lambda i, _: i + 2**40,
    "ragged": lambda i, _: torch.arange(1 + i % 3),
    "mixed": lambda i, x: i if i % 2 else i + sum(x) + 0.5,
    "types": lambda i, _: torch.tensor(i) if i % 3 else torch.tensor(float(i)),
    "none": lambda i, _: None if i % 4 == 3 else i,  # cannot be collated
    "empty": lambda _i, _x: (),
    "range": lambda i, _: range(i, i + 2),
    "complex": lambda i, x: np.complex64(complex(i, sum(x))),
    "sparse": lambda i, _: torch.eye(2).to_sparse() * i,
    "transposed": lambda i, x: torch.tensor([[float(i), *x]] * 2).T,
    "shared": lambda i, _: torch.full((2,), i).share_memory_(),  # type: ignore[no-untyped-call]  # torch's has no types
    "grad": lambda i, _: torch.full((2,), float(i), requires_grad=True),
}


# functions


def _listed(samples: Any) -> Any:
    note("collate", type(samples).__name__)
    return samples


def _drawing(samples: Any) -> Any:
    note("collate", draw(["random", "numpy", "torch"]))
    return {"batch": data.default_collate(samples), "drawn": torch.tensor(draw(["random", "numpy", "torch"]))}


def _counting(samples: Any) -> Any:
    note("collate", "counting")
    return len(samples) if isinstance(samples, (list, tuple)) else samples


def _failing(samples: Any) -> Any:
    note("collate", "failing")
    if random.random() < 0.3:
        raise ValueError("user:collate")
    return data.default_collate(samples)


def _stopping(samples: Any) -> Any:
    note("collate", "stopping")
    if random.random() < 0.2:
        raise StopIteration("user:collate")
    return _listed(samples)


COLLATES: dict[str, Any] = {
    "list": _listed,
    "draws": _drawing,
    "count": _counting,
    "fails": _failing,
    "stops": _stopping,
    "default": data.default_collate,
    "convert": data.default_convert,
}


def _init_draws(worker: int) -> None:
    note("init", worker)
    draw(["random", "numpy", "torch"])


def _init_seeds(worker: int) -> None:
    random.seed(worker)
    np.random.seed(worker)  # noqa: NPY002  # the global one is meant
    torch.manual_seed(worker)


def _init_scales(worker: int) -> None:
    info = data.get_worker_info()
    if info is not None and hasattr(info.dataset, "scale"):
        info.dataset.scale = 10 * (worker + 1)


def _init_fails(worker: int) -> None:
    if worker == 0:
        raise ValueError("user:init")


INITS: dict[str, Any] = {"draws": _init_draws, "seeds": _init_seeds, "scales": _init_scales, "fails": _init_fails}
