"""Accelerate: the position of a loader in ``save_state`` and ``load_state``, and the order with it.

What ``prepare`` returns reads one batch ahead and counts epochs in an attribute that no checkpoint has; all ranks write
one file. Here each rank has a file with what the training has consumed, the epoch, and the sampler's seed.
"""

from __future__ import annotations

import weakref
from typing import Any, Final

from penstock.errors import ArgumentError
from penstock.registry import require
from penstock.sample import State, StateDict
from penstock.torch.loader.adopting import adopt
from penstock.torch.resume.rank_files import join_states, load_states, save_state

__all__ = ["adopt_for_accelerate", "adopt_prepared", "dump_prepared", "load_prepared"]

_counts: Final[weakref.WeakKeyDictionary[object, int]] = weakref.WeakKeyDictionary()
"""How many loaders each accelerator saves."""


def adopt_for_accelerate(accelerator: Any, loader: Any, **more: object) -> Any:
    """Have penstock make the batches of a prepared loader, and Accelerate's checkpoints contain where it stands.

    ``accelerator.save_state`` writes, and ``load_state`` reads, a file ``penstock-loader-NUMBER-RANK.pt`` for each
    rank. The loop over ``loader`` that comes after ``load_state`` is the rest of the epoch: nothing is to be skipped.

    Parameters
    ----------
    accelerator : accelerate.Accelerator
        The one that prepared the loader. The order of calls numbers the loaders of one.
    loader : accelerate.data_loader.DataLoaderShard
        What ``accelerator.prepare`` returned for a loader; not in use.
    **more : object
        Any argument of :class:`~penstock.torch.DataLoader`, in place of what the loader has.

    Returns
    -------
    DataLoaderShard
        ``loader``.

    Raises
    ------
    ArgumentError
        If it is no such loader, or the main process hands out its batches to the others (``dispatch_batches``).
    """
    adopt_prepared(loader, **more)
    name = f"penstock-loader-{_counts.get(accelerator, 0)}"
    _counts[accelerator] = _counts.get(accelerator, 0) + 1

    def save(_models: object, _weights: object, folder: str) -> None:
        save_state(folder, name, dump_prepared(loader))

    def load(_models: object, folder: str) -> None:
        load_prepared(loader, load_states(folder, name))

    accelerator.register_save_state_pre_hook(save)
    accelerator.register_load_state_pre_hook(load)
    return loader


def adopt_prepared(loader: Any, **more: object) -> None:
    """Exchange the loader inside a prepared one, whose state Accelerate then leaves to us."""
    shard = require("accelerate.data_loader", purpose="for its loaders").DataLoaderShard
    if type(loader) is not shard:
        raise ArgumentError(
            f"a loader that Accelerate has prepared is needed, a DataLoaderShard, got {type(loader).__qualname__}; "
            "where the main process hands out batches (dispatch_batches=True), no rank knows what it has consumed"
        )
    adopt(loader, **more).use_stateful_dataloader = False


def dump_prepared(loader: Any) -> StateDict:
    """Return what the training has consumed of a prepared loader, and what fixes the order of this and later epochs."""
    state = loader.state_dict()
    # The epoch is over, but the loop has not asked for another batch, upon which it would be counted.
    is_suspended = any(loader is active for active in loader.gradient_state.dataloader_references)
    ended = bool(state.get("_iterator_finished")) and is_suspended
    seed = getattr(loader.get_sampler(), "initial_seed", None)
    return {"loader": state, "iteration": loader.iteration + ended, "seed": seed}


def load_prepared(loader: Any, states: list[State]) -> None:
    """Continue where ``states``, of this rank or of all ranks of another number, were taken."""
    parts = [each["loader"] for each in states]
    loader.load_state_dict(join_states(parts))
    loader.dl_state_dict = loader.base_dataloader.state_dict() if parts[0] else {}  # until a batch is consumed
    loader.iteration = states[0]["iteration"]
    if states[0]["seed"] is not None and hasattr(loader.get_sampler(), "initial_seed"):
        loader.get_sampler().initial_seed = states[0]["seed"]
