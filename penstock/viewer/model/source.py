"""What is viewed where a loader or a dataset is given: its samples, their records, and the keys of its random numbers.

The given objects are not iterated and not changed: samples are built by copies of the datasets over the same stores,
which note repairs for themselves, and global generators are put back. Called by :mod:`.routes`; opens no store.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.base import fetch, is_iterable
from penstock.datasets.concat import ConcatDataset
from penstock.datasets.seeded_libraries import find_seeders
from penstock.datasets.store.dataset import StoreDataset
from penstock.datasets.subset import Subset
from penstock.errors import ArgumentError
from penstock.loader.loader import DataLoader
from penstock.rng import seeding_globals
from penstock.sample import DatasetLike, Sample, SampleKeys
from penstock.sheets.annotated import Annotated, find_annotations
from penstock.sheets.showing import DatasetSamples, StoreSamples, is_dataset
from penstock.stores.base import Store
from penstock.transforms.base import Lambda

__all__ = ["LocatedSamples", "ModelSource", "is_viewable", "open_source"]

_KNOWN: Final = ("penstock.", "torch.utils.data.", "builtins")
"""Modules whose code draws from no global generator where it has one of its own."""


@dataclass(frozen=True, slots=True)
class LocatedSamples:
    """Where the samples of a dataset are: ``places``, (n, 2), the number of a part and the index in it."""

    parts: list[StoreSamples | DatasetSamples]
    places: NDArray[np.int64]


class ModelSource:
    """A loader, or a dataset, and how its samples are built; ``loader`` is None, or one of penstock."""

    def __init__(self, given: DatasetLike, loader: DatasetLike) -> None:
        self.loader, self.title = loader, type(given).__name__
        self.dataset, self.located = _take_apart(given if loader is None else loader.dataset)
        self.total = len(self.dataset)
        self.seed: int | None = getattr(loader, "seed", None)
        self.seeds_globals = bool(getattr(loader, "seed_per_sample", False))
        self.calls_user = not all(map(_is_known, self._iterate_code()))
        self.lock = threading.RLock()  # datasets and transforms of the user are called by one thread at a time
        roots = [("dataset", self.dataset), ("collate_fn", getattr(loader, "collate_fn", None))]
        self._seeders = find_seeders(roots) if self.seeds_globals else ()
        self._native = self.dataset
        torch_data = sys.modules.get("torch.utils.data")
        if torch_data is not None and isinstance(self.dataset, torch_data.Dataset):
            from penstock.torch.datasets import native

            self._native = native(self.dataset)  # passes on the keys of samples

    def _iterate_code(self) -> Iterator[object]:
        """Whatever may be code of the user."""
        yield from (getattr(self.loader, name, None) for name in ("collate_fn", "sampler", "batch_sampler"))
        for dataset in (part.dataset for part in self.located.parts):
            transform = getattr(dataset, "transform", None)
            ops = getattr(transform, "ops", transform)
            yield from (dataset, getattr(dataset, "target_transform", None))
            yield from ops if isinstance(ops, list | tuple) else [ops]

    def part_of(self, index: int) -> tuple[StoreSamples | DatasetSamples, int]:
        """The part of the dataset that has a sample, and its index there: of the record, where the part has a store."""
        number, inner = self.located.places[index].tolist()
        return self.located.parts[number], inner

    def build(self, index: int, seed: int, epoch: int) -> Sample:
        """The sample that the loader builds with these random numbers; raises what the dataset raises."""
        keys = SampleKeys(seed, epoch, np.array([index], np.int64))
        others = self._seeders
        seeding = seeding_globals(put_back=True, others=others) if self.calls_user else contextlib.nullcontext()
        with self.lock, seeding:
            return fetch(self._native, [index], keys)[0]

    def find(self, index: int, seed: int, epoch: int) -> Annotated:
        """The annotations of the sample that :meth:`build` gives."""
        return find_annotations(self.build(index, seed, epoch), self.part_of(index)[0].roles)


def is_viewable(value: object) -> bool:
    """Whether ``value`` is a loader or a map-style dataset, not a store and not what :func:`penstock.open` takes."""
    is_map_style = is_dataset(value) and not isinstance(value, Store) and not is_iterable(value)
    return is_map_style or _is_instance(value, DataLoader)


def open_source(given: DatasetLike) -> ModelSource:
    """Return what a loader or a dataset is made of; an ArgumentError if it is none, a stream, or has no length."""
    loader = given if _is_instance(given, DataLoader) else None
    if loader is not None and not isinstance(loader, DataLoader):
        from penstock.torch.loader.adopting import adopt
        from penstock.torch.loader.dataloader import DataLoader as TorchLoader

        loader = loader if isinstance(loader, TorchLoader) else adopt(loader)
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
    return ModelSource(given, loader)


def _is_instance(value: object, own: type) -> bool:
    """Return whether it is of a class of penstock, or of torch's of the same name."""
    torch_data = sys.modules.get("torch.utils.data")
    return isinstance(value, own) or (torch_data is not None and isinstance(value, getattr(torch_data, own.__name__)))


def _is_known(part: object) -> bool:
    """Return whether code, a function or the class of an object, draws from no global generator."""
    module = str(getattr(part, "__module__", None) or type(part).__module__)
    return part is None or (not isinstance(part, Lambda) and f"{module}.".startswith(_KNOWN))


def _take_apart(dataset: DatasetLike) -> tuple[DatasetLike, LocatedSamples]:
    """A copy over the same stores, down to the first class that is not known, and where its samples are."""
    made = copy.copy(dataset) if _is_instance(dataset, Subset) or _is_instance(dataset, ConcatDataset) else dataset
    if _is_instance(dataset, Subset) and np.asarray(dataset.indices).dtype.kind in "iu":
        made.dataset, inner = _take_apart(dataset.dataset)
        return made, LocatedSamples(inner.parts, inner.places[np.asarray(dataset.indices)])
    if _is_instance(dataset, ConcatDataset):
        children = [_take_apart(child) for child in dataset.datasets]
        made.datasets = [child for child, _ in children]
        starts = np.cumsum([0, *(len(located.parts) for _, located in children)])
        places = [located.places + np.array([start, 0]) for (_, located), start in zip(children, starts, strict=False)]
        return made, LocatedSamples([part for _, located in children for part in located.parts], np.concatenate(places))
    if isinstance(dataset, StoreDataset):
        made = dataset._detach()  # noqa: SLF001  # of this package
        with contextlib.suppress(Exception):  # whatever a transform raises that cannot be copied: then it is shared
            made.transform = copy.deepcopy(made.transform)  # callables may keep a state
    part = StoreSamples(made) if isinstance(made, StoreDataset) else DatasetSamples(made)
    indices = np.arange(len(made), dtype=np.int64)
    return made, LocatedSamples([part], np.column_stack([np.zeros_like(indices), indices]))
