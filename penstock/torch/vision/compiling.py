"""``penstock.torch.compile``: make an existing torchvision dataset fill batches natively."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from typing import Final, cast

from torch.utils import data

from penstock import datasets
from penstock.datasets.base import spec_of
from penstock.errors import ArgumentError
from penstock.sample import DatasetLike
from penstock.torch.datasets import ConcatDataset, Subset, native
from penstock.torch.vision.folders import NATIVE, NativeFolder
from penstock.torch.vision.own_datasets import ReadDataset
from penstock.torch.vision.recognise import NotRecognisedError

__all__ = ["compile"]

_logger = logging.getLogger(__name__)

_SUBSETS: Final = {data.Subset, Subset, datasets.Subset}
_CONCATENATIONS: Final = {data.ConcatDataset, ConcatDataset, datasets.ConcatDataset}


def compile(dataset: DatasetLike) -> DatasetLike:  # noqa: A001  # torch.compile's word
    """Return a dataset like ``dataset`` whose samples are decoded and augmented natively.

    Parameters
    ----------
    dataset : dataset
        torchvision's ImageFolder, DatasetFolder, ImageNet, EuroSAT or Country211, an object of a user's class whose
        ``__getitem__`` returns an image and a target, or a Subset or ConcatDataset (torch's or penstock's) of these, at
        any depth. What reads its images must be one of the forms of ``docs/torchvision.md``: with Pillow, torchvision,
        TorchCodec or OpenCV.

    Returns
    -------
    dataset
        It has the same length, order and targets. A folder is still an instance of its class, and shares ``samples``
        with the original; for an object of a user's class, the result has its attributes, but not its methods. torch's
        wrappers become those of :mod:`penstock.torch`, which are instances of them. If nothing can be compiled,
        ``dataset`` itself is returned, and the reason is logged: it is of another class, it reads images otherwise,
        with the line of its source, or its first transform is not recognised. A StoreDataset compiles its transform
        itself, and is returned unchanged.

    Raises
    ------
    ArgumentError
        If the batches of a StoreDataset are not filled. The message says why.

    Notes
    -----
    :class:`penstock.torch.ImageFolder` says which transforms are native. ``dataset`` is not changed.

    Examples
    --------
    >>> import torchvision  # doctest: +SKIP
    >>> photographs = torchvision.datasets.ImageFolder("photos", transform)  # doctest: +SKIP
    >>> loader = penstock.torch.DataLoader(penstock.torch.compile(photographs), 64, num_workers=4)  # doctest: +SKIP
    """
    kind = type(dataset)
    if kind in NATIVE:
        return _compile_folder(dataset, NATIVE[kind])
    if kind in _SUBSETS:
        inner = compile(dataset.dataset)
        return (
            _replace_inner(dataset, dataset=inner) if _is_worth_replacing(kind, [dataset.dataset], [inner]) else dataset
        )
    if kind in _CONCATENATIONS:
        parts = [compile(part) for part in dataset.datasets]
        return (
            _replace_inner(dataset, datasets=parts) if _is_worth_replacing(kind, dataset.datasets, parts) else dataset
        )
    if isinstance(dataset, datasets.StoreDataset):
        if spec_of(dataset) is None:
            reason = dataset.why_not_filled() or f"{kind.__qualname__} defines __getitem__"
            raise ArgumentError(
                f"a StoreDataset compiles its transform itself, but the batches of this one are not filled: {reason}"
            )
        return dataset
    return dataset if isinstance(dataset, NativeFolder) else _compile_own(dataset)


def _compile_folder(dataset: object, native: type[NativeFolder]) -> object:
    compiled = native.__new__(native)
    compiled.__dict__.update(dataset.__dict__)
    return compiled if compiled._current_transform() is not None else dataset  # noqa: SLF001  # a class of this package


def _compile_own(dataset: object) -> object:
    try:
        compiled = ReadDataset(cast("Sequence[tuple[object, ...]]", dataset))
    except NotRecognisedError as error:
        _logger.info("%s: nothing is native: %s", type(dataset).__qualname__, error)
        return dataset
    return compiled if compiled._current_transform() is not None else dataset  # noqa: SLF001  # a class of this package


def _replace_inner(wrapper: DatasetLike, **inner: DatasetLike) -> DatasetLike:
    """A copy of ``wrapper`` with other datasets inside. torch's wrappers become those of penstock.torch."""
    if type(wrapper) is datasets.ConcatDataset:
        return datasets.ConcatDataset(**inner)
    copied = copy.copy(native(wrapper))
    vars(copied).update(inner)
    return copied


def _is_worth_replacing(kind: type, before: list[object], after: list[object]) -> bool:
    """Return whether an inner dataset was compiled, or torch's wrapper hides an inner dataset that fills batches."""
    if any(new is not old for new, old in zip(after, before, strict=True)):
        return True
    return kind in {data.Subset, data.ConcatDataset} and any(spec_of(part) is not None for part in after)
