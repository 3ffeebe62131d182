"""What is viewed where a loader or a dataset is given: its samples, their records, and the keys of its random numbers.

::

    DataLoader ──dataset──> Subset, ConcatDataset ──located──> StoreDataset, record
         └── seed, seed_per_sample                     └── else: samples as the dataset gives them

The given objects are not iterated and not changed: samples are built by copies of the datasets over the same stores,
which note repairs for themselves, and global generators are put back. Called by :mod:`.routes`; opens no store.
"""

from __future__ import annotations

import contextlib
import copy
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock import stores
from penstock.datasets.base import fetch, is_iterable
from penstock.datasets.concat import ConcatDataset
from penstock.datasets.seeded_libraries import find_seeders
from penstock.datasets.store.dataset import StoreDataset
from penstock.datasets.store.image_transforms import IMAGE_TRANSFORMS, SAMPLE_TRANSFORMS
from penstock.datasets.store.selection import FieldSelection
from penstock.datasets.subset import Subset
from penstock.errors import ArgumentError
from penstock.loader.loader import DataLoader
from penstock.rng import globals_put_back, seeding_globals
from penstock.sample import DatasetLike, Sample, SampleKeys, Tree
from penstock.stores.base import Store
from penstock.transforms.base import Lambda
from penstock.view.annotated import make_roles
from penstock.view.shown_pixels import PixelForm

__all__ = ["LocatedSamples", "ModelSource", "is_viewable", "open_source"]

_KNOWN: Final = ("penstock.", "torch.utils.data.", "builtins")
"""Modules whose code draws from no global generator where it has one of its own."""


@dataclass(frozen=True, slots=True)
class LocatedSamples:
    """The record of each sample of a dataset.

    Parameters
    ----------
    datasets : sequence of StoreDataset
        Where records are.
    owners, records : ndarray, shape (n,), int64
        The dataset of each sample, and its record there.
    """

    datasets: Sequence[StoreDataset]
    owners: NDArray[np.int64]
    records: NDArray[np.int64]

    def get(self, index: int) -> tuple[StoreDataset, int]:
        """The dataset and the record of a sample."""
        return self.datasets[self.owners[index]], int(self.records[index])


@dataclass
class ModelSource:
    """A loader, or a dataset, and how its samples are built.

    Parameters
    ----------
    given : object
        As the user has made it.
    loader : DataLoader or None
        Of penstock; one of torch's is adopted.
    dataset : dataset
        A copy that shares nothing which changes.
    located : LocatedSamples or None
        None where samples are no records of stores.
    """

    given: Any
    loader: Any
    dataset: DatasetLike
    located: LocatedSamples | None
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    """Datasets and transforms of the user are called by one thread at a time."""

    def __post_init__(self) -> None:
        self.title = type(self.given).__name__
        self.total = len(self.dataset)
        self.seed: int | None = getattr(self.loader, "seed", None)
        self.seeds_globals = bool(getattr(self.loader, "seed_per_sample", False))
        parts = [getattr(self.loader, name, None) for name in ("collate_fn", "sampler", "batch_sampler")]
        of_user = [part for part in parts if part is not None and not _get_module(part).startswith(_KNOWN)]
        self.calls_user = self.located is None or bool(of_user) or any(map(_calls_user, self.located.datasets))
        collate = getattr(self.loader, "collate_fn", None)
        self._seeders = find_seeders([("dataset", self.dataset), ("collate_fn", collate)]) if self.seeds_globals else ()

    def build(self, index: int, seed: int, epoch: int) -> Sample:
        """The sample that the loader builds with these random numbers.

        Raises
        ------
        Exception
            What the dataset raises, with a note of the index.
        """
        keys = SampleKeys(seed, epoch, np.array([index], np.int64))
        with self.lock, self._seeding():
            return fetch(_native(self.dataset), [index], keys)[0]

    def putting_back(self) -> contextlib.AbstractContextManager[None]:
        """A context after which global generators are as they were; they are left alone if nothing draws from them."""
        return globals_put_back() if self.calls_user else contextlib.nullcontext()

    @contextlib.contextmanager
    def _seeding(self) -> Iterator[None]:
        with seeding_globals(put_back=True, others=self._seeders) if self.calls_user else contextlib.nullcontext():
            yield

    def transform_of(self, index: int) -> object:
        """The transform of the dataset that a sample is of; None where there is none, or it is not known."""
        dataset = self.dataset if self.located is None else self.located.get(index)[0]
        return getattr(dataset, "transform", None)

    def form_of(self, index: int) -> PixelForm:
        """What the transform does to the form of images."""
        return PixelForm.of(self.transform_of(index))

    def roles_of(self, index: int) -> Tree:
        """The role of each value of a sample; None where names have to tell."""
        if self.located is None:
            return None
        dataset = self.located.get(index)[0]
        selection = FieldSelection(dataset.store, dataset.fields)
        return make_roles(dataset.store.schema, selection.to_tree(selection.names), dataset.kinds)

    def is_converted(self, transform: object) -> bool:
        """Whether a transform of another library is called with the random numbers of the sample."""
        library = _get_module(transform).partition(".")[0]
        return self.located is not None and (library in IMAGE_TRANSFORMS or library in SAMPLE_TRANSFORMS)


def is_viewable(value: object) -> bool:
    """Whether ``value`` is a loader or a map-style dataset, not a store and not what :func:`penstock.open` takes."""
    if isinstance(value, str | bytes | os.PathLike | list | tuple | Store):
        return False
    if _is_loader(value):
        return True
    is_wrapped = any(stores.OBJECTS.get(name).wraps(value) for name in stores.OBJECTS)
    return hasattr(value, "__getitem__") and not is_iterable(value) and not is_wrapped


def open_source(given: Any) -> ModelSource:
    """Find out what a loader or a dataset is made of.

    Raises
    ------
    ArgumentError
        If it is none, its dataset is a stream, or has no length.
    """
    loader = _adopt(given) if _is_loader(given) else None
    dataset = given if loader is None else loader.dataset
    if is_iterable(dataset):
        raise ArgumentError(
            f"a dataset to view must give samples by index, but {type(dataset).__name__} is a stream; view its store, "
            "such as penstock view STORE"
        )
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise ArgumentError(
            f"only a store, a loader or a map-style dataset with a length can be viewed, got {type(given).__name__}"
        )
    detached = _detach(dataset)
    return ModelSource(given, loader, detached, _locate(detached, np.arange(len(detached), dtype=np.int64)))


def _is_loader(value: object) -> bool:
    return isinstance(value, (DataLoader, *_torch_types("DataLoader")))


def _torch_types(name: str) -> tuple[type, ...]:
    """A class of torch.utils.data, if it is imported."""
    module = sys.modules.get("torch.utils.data")
    return () if module is None else (getattr(module, name),)


def _adopt(loader: Any) -> Any:
    """A loader of penstock, with the samplers and arguments of one of torch's."""
    if isinstance(loader, DataLoader):
        return loader
    from penstock.torch.loader.adopting import adopt
    from penstock.torch.loader.dataloader import DataLoader as TorchLoader

    return loader if isinstance(loader, TorchLoader) else adopt(loader)


def _native(dataset: DatasetLike) -> DatasetLike:
    """A dataset that passes on the keys of samples, in place of one of torch's own."""
    if not isinstance(dataset, _torch_types("Dataset")):
        return dataset
    from penstock.torch.datasets import native

    return native(dataset)


def _get_module(value: object) -> str:
    """The module of a function, or of the class of another object."""
    return str(getattr(value, "__module__", None) or type(value).__module__) + "."


def _calls_user(dataset: StoreDataset) -> bool:
    """Whether code that is not penstock's makes samples."""
    ops = getattr(dataset.transform, "ops", dataset.transform)
    parts = [dataset, dataset.target_transform, *(ops if isinstance(ops, list | tuple) else [ops])]
    known = (part for part in parts if part is not None)
    return any(isinstance(part, Lambda) or not _get_module(part).startswith("penstock.") for part in known)


def _detach(dataset: DatasetLike) -> DatasetLike:
    """A copy of a dataset over the same stores, down to the first class that is not known."""
    if isinstance(dataset, StoreDataset):
        made = dataset._detach()  # noqa: SLF001  # of this package
        with contextlib.suppress(Exception):  # whatever a transform raises that cannot be copied: then it is shared
            made.transform = copy.deepcopy(made.transform)  # callables may keep a state
        return made
    found = dataset
    if _is_subset(dataset):
        found = copy.copy(dataset)
        found.dataset = _detach(dataset.dataset)
    elif _is_concatenation(dataset):
        found = copy.copy(dataset)
        found.datasets = [_detach(each) for each in dataset.datasets]
    return found


def _is_subset(dataset: object) -> bool:
    return isinstance(dataset, (Subset, *_torch_types("Subset")))


def _is_concatenation(dataset: object) -> bool:
    return isinstance(dataset, (ConcatDataset, *_torch_types("ConcatDataset")))


def _locate(dataset: DatasetLike, indices: NDArray[np.int64]) -> LocatedSamples | None:
    """The records of samples ``indices``; None unless all of them are known."""
    if isinstance(dataset, StoreDataset):
        return LocatedSamples([dataset], np.zeros(len(indices), np.int64), indices)
    if _is_subset(dataset):
        positions = np.asarray(dataset.indices)
        is_known = positions.dtype.kind in "iu"
        return _locate(dataset.dataset, positions.astype(np.int64)[indices]) if is_known else None
    if not _is_concatenation(dataset):
        return None
    ends = np.asarray(dataset.cumulative_sizes, np.int64)
    children = np.searchsorted(ends, indices, side="right")
    owners, records = np.zeros_like(indices), np.zeros_like(indices)
    found: list[StoreDataset] = []
    for number, child in enumerate(dataset.datasets):
        rows = np.flatnonzero(children == number)
        part = _locate(child, indices[rows] - (ends[number - 1] if number else 0))
        if part is None:
            return None
        owners[rows], records[rows] = part.owners + len(found), part.records
        found += part.datasets
    return LocatedSamples(found, owners, records)
