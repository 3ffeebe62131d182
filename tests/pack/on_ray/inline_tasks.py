"""Tasks of Ray that run in this process, one after the other: what they are given is pickled, as Ray does."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.pack import seek_tables
from penstock.pack.on_ray import parts

__all__ = ["run_inline"]


def run_inline(patch: pytest.MonkeyPatch, blind: Callable[[Path], list[str]] = lambda _path: []) -> list[Any]:
    """Have tasks run here; returns the list to which each task is added when it has run.

    ``blind`` says which nodes do not see a file.
    """
    done: list[Any] = []

    def run(work: Callable[..., Any], shared: Any, tasks: Iterable[Any], cpus: int = 1) -> Iterator[Any]:
        assert cpus >= 1
        held = pickle.loads(pickle.dumps(shared))
        for task in tasks:
            result = work(held, task)
            done.append(task)
            yield pickle.loads(pickle.dumps(result))

    for module in parts, seek_tables:
        patch.setattr(module, "run_on_ray", run)
        patch.setattr(module, "connected", contextlib.nullcontext)
    patch.setattr(parts, "list_blind_nodes", blind)
    return done
