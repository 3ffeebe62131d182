"""``penstock.torch.compile``: a dataset that somebody has already, filled natively where it can be."""

from __future__ import annotations

import copy
import logging
from typing import Any, Final

from torch.utils import data

from penstock import datasets
from penstock.datasets.base import spec_of
from penstock.errors import ArgumentError
from penstock.torch.datasets import ConcatDataset, Subset, native
from penstock.torch.vision.folders import NATIVE, NativeFolder

__all__ = ["compile"]

_logger = logging.getLogger(__name__)

_SUBSETS: Final = {data.Subset, Subset, datasets.Subset}
_CONCATENATIONS: Final = {data.ConcatDataset, ConcatDataset, datasets.ConcatDataset}


def compile(dataset: Any) -> Any:  # noqa: A001  # torch.compile's word
    """A dataset like ``dataset`` whose samples are decoded and augmented natively.

    Parameters
    ----------
    dataset : dataset
        torchvision's ImageFolder, DatasetFolder, ImageNet, EuroSAT or Country211 with its own loader for PIL images; a
        Subset or ConcatDataset (torch's or penstock's) of such, however deep.

    Returns
    -------
    dataset
        With the same length, order and targets; a folder stays an instance of its class and shares its ``samples``,
        torch's wrappers become :mod:`penstock.torch`'s, which are instances of them. ``dataset`` itself, where nothing
        of it can be compiled: a subclass, another loader, a transform that begins with one that is not recognised. A
        line of the log says so. A StoreDataset compiles its transform by itself, and is returned as it is.

    Raises
    ------
    ArgumentError
        If a StoreDataset's batches are not filled; the message says why.

    Notes
    -----
    See :class:`penstock.torch.ImageFolder` for what is recognised and what then holds. ``dataset`` is not changed.

    Examples
    --------
    >>> import torchvision  # doctest: +SKIP
    >>> photographs = torchvision.datasets.ImageFolder("photos", transform)  # doctest: +SKIP
    >>> loader = penstock.torch.DataLoader(penstock.torch.compile(photographs), 64, num_workers=4)  # doctest: +SKIP
    """
    kind = type(dataset)
    if kind in NATIVE:
        return _compiled_folder(dataset, NATIVE[kind])
    if kind in _SUBSETS:
        inner = compile(dataset.dataset)
        return _with(dataset, dataset=inner) if _gains(kind, [dataset.dataset], [inner]) else dataset
    if kind in _CONCATENATIONS:
        parts = [compile(part) for part in dataset.datasets]
        return _with(dataset, datasets=parts) if _gains(kind, dataset.datasets, parts) else dataset
    if isinstance(dataset, datasets.StoreDataset):
        if spec_of(dataset) is None:
            why = dataset.why_not_filled() or f"{kind.__qualname__} defines __getitem__"
            raise ArgumentError(f"this StoreDataset compiles its own transform, and its batches are not filled: {why}")
        return dataset
    if not isinstance(dataset, NativeFolder):
        _logger.info("%s: nothing is native: it is no dataset that penstock knows", kind.__qualname__)
    return dataset


def _compiled_folder(dataset: Any, native: type[NativeFolder]) -> Any:
    compiled = native.__new__(native)
    compiled.__dict__.update(dataset.__dict__)
    return compiled if compiled._current() is not None else dataset  # noqa: SLF001  # a neighbour in this package


def _with(wrapper: Any, **inside: Any) -> Any:
    """``wrapper``, or penstock.torch's in place of torch's, with other datasets inside."""
    if type(wrapper) is datasets.ConcatDataset:
        return datasets.ConcatDataset(**inside)
    found = copy.copy(native(wrapper))
    vars(found).update(inside)
    return found


def _gains(kind: type, before: list[Any], after: list[Any]) -> bool:
    """Whether a wrapper of our own is of use: something inside was compiled, or torch's wrapper hides what fills."""
    if any(new is not old for new, old in zip(after, before, strict=True)):
        return True
    return kind in {data.Subset, data.ConcatDataset} and any(spec_of(part) is not None for part in after)
