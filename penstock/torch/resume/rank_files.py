"""One file for each rank in a checkpoint's folder, which any number of ranks reads.

For trainers whose checkpoint has one state for all ranks: random states differ from rank to rank. Called by the
adapters. Knows nothing of what a state contains.
"""

from __future__ import annotations

import os
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from penstock.errors import StateError
from penstock.ranks import find_world
from penstock.sample import State

__all__ = ["load_states", "save_state"]


def save_state(folder: str | os.PathLike[str], name: str, state: State) -> None:
    """Write the state of this rank; a file is there as a whole, or not."""
    world = find_world()
    path = _path(folder, name, world.rank)
    partial = path.with_suffix(".partial")
    torch.save({"num_replicas": world.num_replicas, "state": state}, partial)
    partial.replace(path)


def load_states(folder: str | os.PathLike[str], name: str) -> list[Any]:
    """Return the state of this rank alone if as many ranks have written, else those of all that have.

    Raises
    ------
    StateError
        If a file is missing, or is none that :func:`save_state` has written.
    """
    world = find_world()
    own = _path(folder, name, world.rank)
    first = _read(own if own.exists() else _path(folder, name, 0))
    if first["num_replicas"] == world.num_replicas:
        return [_read(own)["state"]]
    return [_read(_path(folder, name, rank))["state"] for rank in range(first["num_replicas"])]


def _path(folder: str | os.PathLike[str], name: str, rank: int) -> Path:
    return Path(folder, f"{name}-{rank}.pt")


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise StateError(
            f"{path} is missing: the checkpoint was saved without penstock's adapter, or before it was complete; "
            "resume from another checkpoint, or without the adapter"
        )
    try:
        saved = torch.load(path, weights_only=True)
        if saved["num_replicas"] >= 1 and "state" in saved:
            found: dict[str, Any] = saved
            return found
    except (RuntimeError, UnpicklingError, KeyError, TypeError, EOFError) as error:
        raise StateError(f"{path} is no state that a rank has saved, or damaged: {error!r:.200}") from error
    raise StateError(f"{path} is no state that a rank has saved, or damaged")
