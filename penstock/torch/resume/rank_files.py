"""One file for each rank in a checkpoint's folder, which any number of ranks reads.

For trainers whose checkpoint has one state for all ranks: random states differ from rank to rank. Called by adapters,
and by programs whose checkpoint is a folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from penstock.errors import StateError
from penstock.loader.state import merge_states
from penstock.ranks import find_world
from penstock.sample import State
from penstock.torch.loader.saving import Stateful

__all__ = ["join_states", "load_loader", "load_states", "save_loader", "save_state"]


def save_loader(loader: Stateful, folder: str | os.PathLike[str], name: str = "penstock-loader") -> None:
    """Write where the loader of this rank stands to ``folder/NAME-RANK.pt``; call it on each rank, at the same step.

    Parameters
    ----------
    loader : DataLoader or Prefetcher
        Anything with ``state_dict`` that gives a loader's state.
    folder : path
        Exists. The same for all ranks, or one for each, whose files come together in the checkpoint.
    name : str
        Another one for each loader of the program.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    save_state(folder, name, loader.state_dict())


def load_loader(loader: Stateful, folder: str | os.PathLike[str], name: str = "penstock-loader") -> None:
    """Make the next ``iter()`` go on where :func:`save_loader` was called; on any number of ranks, if the order can.

    The state is that of this rank, or on another number of ranks that of all (:func:`~penstock.merge_states`).

    Raises
    ------
    StateError
        If a file is missing or damaged, or the state belongs to a loader with another order.
    """
    loader.load_state_dict(join_states(load_states(folder, name)))


def join_states(states: list[Any]) -> Any:
    """Return the state that a loader takes, of those that :func:`load_states` gives."""
    return states[0] if len(states) == 1 else merge_states(states)


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
    except Exception as error:  # there is no end to what reading a damaged file raises
        raise StateError(f"{path} is no state that a rank has saved, or damaged: {error!r:.200}") from error
    raise StateError(f"{path} is no state that a rank has saved, or damaged")
