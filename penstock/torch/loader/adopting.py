"""A loader of penstock's in the place of one that torch's class, or a framework, has made.

Frameworks that know loaders by their class keep a subclass (Lightning makes it again with all its arguments). Others
build ``torch.utils.data.DataLoader`` itself, out of the attributes of the loader that they are given (Accelerate, and
what stands on it): the batches are the same, but torch makes them. This module reads attributes alone, imports no
framework and changes no loader but the wrapper it is given.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

import torch.utils.data

from penstock.datasets.base import is_iterable
from penstock.errors import ArgumentError
from penstock.sample import StateDict
from penstock.samplers.base import RankPartitioned
from penstock.torch.loader.dataloader import DataLoader

__all__ = ["adopt"]

_OF_ORDER: Final = frozenset({"dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"})
"""Parameters that depend on one another; the others are passed on as they are."""
_ITERATES: Final = torch.utils.data.DataLoader.__iter__


def adopt(loader: Any, **more: object) -> Any:
    """Have penstock make the batches of a loader that is there already.

    Parameters
    ----------
    loader : torch.utils.data.DataLoader
        Not in use: where it stands in an epoch is not taken over. What ``Accelerator.prepare`` and
        ``accelerate.skip_first_batches`` return is one too: the loader inside is exchanged, and its state is saved and
        loaded by Accelerate (without torchdata), unless the main process hands out batches to the others. A sampler of
        penstock's that knows the ranks divides the order alone; Accelerate does not divide it again. What Ray
        Train's ``prepare_data_loader`` returns is a wrapper as well, which has no state; with
        ``move_to_device=False`` it is a loader.
    **more : object
        Any argument of :class:`DataLoader`, in place of what the loader has.

    Returns
    -------
    DataLoader
        With the dataset, sampler and arguments of ``loader``, the same objects; or the wrapper, if ``loader`` is one.

    Raises
    ------
    ArgumentError
        If ``loader`` is no loader of torch's, or iterates in a way of its own, which would be lost.
    """
    if not isinstance(loader, torch.utils.data.DataLoader):
        raise ArgumentError(f"adopt takes a torch.utils.data.DataLoader, or a wrapper of one, not {type(loader)}")
    inside = "_dataloader" if type(loader).__module__.startswith("ray.train.") else "base_dataloader"
    if inside not in vars(loader):
        return _again(loader, more)
    if inside == "_dataloader":  # it copies batches to the device, and has no state
        vars(loader)[inside] = _again(vars(loader)[inside], more)
        return loader
    wrapper: Any = loader  # its `__class__` is that of the loader inside
    shard = wrapper.batch_sampler
    wrapper.base_dataloader = _again(wrapper.base_dataloader, more)
    if wrapper.batch_sampler is not shard:  # Accelerate counts the samples of all ranks by it
        wrapper.batch_sampler.num_processes = getattr(shard, "num_processes", 1)
    wrapper.dl_state_dict = {}  # what it saves before it is iterated: a fresh start
    # Accelerate saves and loads global generators by itself, and later than it takes the loader's state.
    wrapper.base_dataloader._restores_globals = False  # noqa: SLF001  # the loader was made here
    # Where one process hands out the batches of all, the wrapper corrects the state of torchdata's loader by hand.
    hands_out = hasattr(wrapper, "slice_fn") and wrapper.state.num_processes > 1
    wrapper.use_stateful_dataloader = not hands_out
    return wrapper


def _again(loader: Any, more: StateDict) -> DataLoader[Any]:
    ours = isinstance(loader, DataLoader)
    if not (ours or type(loader).__iter__ is _ITERATES or type(loader).__module__.startswith("torchdata.")):
        raise ArgumentError(
            f"{type(loader).__qualname__} iterates in a way of its own, which a penstock loader in its place would not "
            "have; derive it from penstock.torch.DataLoader instead"
        )
    kind = type(loader) if ours else DataLoader
    names = [name for name in inspect.signature(DataLoader).parameters if name not in _OF_ORDER]
    arguments = {name: getattr(loader, name) for name in names if hasattr(loader, name)}
    return kind(**{"dataset": loader.dataset, **arguments, **_order(loader), **more})


def _order(loader: Any) -> StateDict:
    """Return the arguments that give the same batches of indices."""
    if is_iterable(loader.dataset):
        return {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    shard = loader.batch_sampler
    cut = getattr(shard, "batch_sampler", None)  # of Accelerate's BatchSamplerShard
    if cut is not None and isinstance(cut.sampler, RankPartitioned) and cut.sampler.num_replicas == shard.num_processes:
        size = cut.batch_size // shard.num_processes if shard.split_batches else cut.batch_size
        return {"batch_size": size, "sampler": cut.sampler, "drop_last": cut.drop_last}
    if loader.batch_size is None and loader.batch_sampler is not None:
        return {"batch_sampler": loader.batch_sampler}
    return {"batch_size": loader.batch_size, "sampler": loader.sampler, "drop_last": loader.drop_last}
