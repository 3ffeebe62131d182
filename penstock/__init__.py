"""penstock loads training data: packed stores, fast JPEG decoding, exact resume, NumPy or torch batches.

::

    import penstock as ps
    from penstock import transforms as T

    store = ps.open("photos.lmdb")
    loader = ps.DataLoader(ps.StoreDataset(store, fields=("image", "label"), transform=augment), batch_size=64)

``import penstock`` imports NumPy and no heavier package. Each public name is imported on first use. ``penstock.torch``
has the same loader for torch tensors. The name of the distribution on PyPI is ``penstock-data``.

Where to find what:

- what an error means, which to catch: the tree in ``errors.py``; a page for each error, finding and verdict:
  ``explain/pages/``
- what a record, a schema, a key and a field's name are: ``sample.py``
- how a process finds its rank and the number of ranks: ``ranks.py``; which samples a rank has: ``samplers/ranks.py``
- where random numbers come from (counters of Philox): ``rng.py``
- what is known of torch, JAX and cv2 outside ``penstock/torch/``, and whose transforms get decoded samples:
  ``frameworks.py``
- how a batch of stored pixels is named without an object for each image: ``pixel_rows.py``
- what a batch holds of boxes, and how a chunk writes them: ``ragged.py``; ``docs/decisions/0019-*``
- how masks of objects are encoded: ``run_lengths.py``
- what becomes of truncated and damaged images: ``repairs.py``; natively ``native/core/src/jpeg/repair/``;
  ``docs/decisions/0023-*``
- which picture boxes are of, where an Exif orientation turns it: ``Field.upright`` in ``sample.py``; arithmetic
  ``orientation.py``; found in annotations: ``annotations/records.py``; turned: ``pack/upright_fields.py``;
  ``docs/decisions/0045-*``
- what is timed, and who is told of it: ``trace.py``
- what a ``repr`` shows: ``wording.py``; in a notebook: ``sheets/notebook.py``
- how type checkers know the type of batches: ``datasets/batch_types.py``; ``tests/types/``, ``scripts/types.sh``
- what the native module offers: ``_native.pyi``, which ``native/stubs.py`` writes
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.collate import default_collate, default_convert
    from penstock.datasets import (
        ArrayDataset,
        BatchForm,
        ChainDataset,
        ConcatDataset,
        Dataset,
        IterableDataset,
        PartitionedDataset,
        Split,
        StackDataset,
        StoreDataset,
        StreamDataset,
        Subset,
        random_split,
        split,
    )
    from penstock.datasets.composed.copy_paste import CopyPaste
    from penstock.datasets.composed.mosaic import Mosaic
    from penstock.datasets.composed.sample_mixup import SampleMixUp
    from penstock.datasets.mixture import Mixture
    from penstock.errors import (
        AnnotationError,
        ArgumentError,
        BatchMemoryError,
        BrokenImageError,
        CorruptRecordError,
        DecodeError,
        DeviceError,
        ImageTooLargeError,
        IncompleteStoreError,
        OptionalPackageError,
        PackError,
        PenstockError,
        RecordIndexError,
        RecordKeyError,
        SampleError,
        StallError,
        StateError,
        StoreError,
        StoreFormatError,
        StoreNotFoundError,
        UnsupportedImageError,
        WorkerError,
    )
    from penstock.loader import DataLoader, merge_states
    from penstock.nested import NestedTensor
    from penstock.pack import convert, copy, index, merge, pack, verify
    from penstock.ragged import Padded, Ragged
    from penstock.ranks import World, find_world
    from penstock.rng import generator as rng
    from penstock.sample import Field, Record, Schema
    from penstock.samplers import (
        BatchSampler,
        BucketBatchSampler,
        ClassBalancedSampler,
        DistributedSampler,
        DistributedWeightedSampler,
        RandomSampler,
        RepeatFactorSampler,
        Sampler,
        SequentialSampler,
        SubsetRandomSampler,
        WeightedRandomSampler,
    )
    from penstock.sheets.showing import show
    from penstock.simulation import ObjectStorage, simulate
    from penstock.stores import open  # noqa: A004  # ps.open, as gzip.open
    from penstock.stores.base import Store
    from penstock.stores.common.key_files import find_keys
    from penstock.transforms.decoding.decode import decode
    from penstock.transforms.decoding.encode import encode
    from penstock.viewer.server.serving import Viewer, view
    from penstock.workers.info import get_worker_info
    from penstock.workers.ray.options import RayWorkers

__all__ = [
    "AnnotationError",
    "ArgumentError",
    "ArrayDataset",
    "BatchForm",
    "BatchMemoryError",
    "BatchSampler",
    "BrokenImageError",
    "BucketBatchSampler",
    "ChainDataset",
    "ClassBalancedSampler",
    "ConcatDataset",
    "CopyPaste",
    "CorruptRecordError",
    "DataLoader",
    "Dataset",
    "DecodeError",
    "DeviceError",
    "DistributedSampler",
    "DistributedWeightedSampler",
    "Field",
    "ImageTooLargeError",
    "IncompleteStoreError",
    "IterableDataset",
    "Mixture",
    "Mosaic",
    "NestedTensor",
    "ObjectStorage",
    "OptionalPackageError",
    "PackError",
    "Padded",
    "PartitionedDataset",
    "PenstockError",
    "Ragged",
    "RandomSampler",
    "RayWorkers",
    "Record",
    "RecordIndexError",
    "RecordKeyError",
    "RepeatFactorSampler",
    "SampleError",
    "SampleMixUp",
    "Sampler",
    "Schema",
    "SequentialSampler",
    "Split",
    "StackDataset",
    "StallError",
    "StateError",
    "Store",
    "StoreDataset",
    "StoreError",
    "StoreFormatError",
    "StoreNotFoundError",
    "StreamDataset",
    "Subset",
    "SubsetRandomSampler",
    "UnsupportedImageError",
    "Viewer",
    "WeightedRandomSampler",
    "WorkerError",
    "World",
    "convert",
    "copy",
    "decode",
    "default_collate",
    "default_convert",
    "encode",
    "find_keys",
    "find_world",
    "get_worker_info",
    "index",
    "merge",
    "merge_states",
    "open",
    "pack",
    "random_split",
    "rng",
    "show",
    "simulate",
    "split",
    "verify",
    "view",
]

_MODULES: Final = {
    "penstock.collate": "default_collate default_convert",
    "penstock.datasets": "ArrayDataset BatchForm ChainDataset ConcatDataset Dataset IterableDataset PartitionedDataset "
    "Split StackDataset StoreDataset StreamDataset Subset random_split split",
    "penstock.datasets.composed.copy_paste": "CopyPaste",
    "penstock.datasets.composed.mosaic": "Mosaic",
    "penstock.datasets.composed.sample_mixup": "SampleMixUp",
    "penstock.datasets.mixture": "Mixture",
    "penstock.errors": "AnnotationError ArgumentError BatchMemoryError BrokenImageError CorruptRecordError DecodeError "
    "DeviceError ImageTooLargeError IncompleteStoreError OptionalPackageError PackError PenstockError RecordIndexError "
    "RecordKeyError SampleError StallError StateError StoreError StoreFormatError StoreNotFoundError "
    "UnsupportedImageError WorkerError",
    "penstock.loader": "DataLoader merge_states",
    "penstock.nested": "NestedTensor",
    "penstock.pack": "convert copy index merge pack verify",
    "penstock.ragged": "Padded Ragged",
    "penstock.ranks": "World find_world",
    "penstock.sample": "Field Record Schema",
    "penstock.samplers": "BatchSampler BucketBatchSampler ClassBalancedSampler DistributedSampler "
    "DistributedWeightedSampler RandomSampler RepeatFactorSampler Sampler SequentialSampler SubsetRandomSampler "
    "WeightedRandomSampler",
    "penstock.simulation": "ObjectStorage simulate",
    "penstock.stores": "open",
    "penstock.stores.base": "Store",
    "penstock.stores.common.key_files": "find_keys",
    "penstock.transforms.decoding.decode": "decode",
    "penstock.transforms.decoding.encode": "encode",
    "penstock.sheets.showing": "show",
    "penstock.viewer.server.serving": "Viewer view",
    "penstock.workers.info": "get_worker_info",
    "penstock.workers.ray.options": "RayWorkers",
}
_NAMES: Final = {name: (module, name) for module, names in _MODULES.items() for name in names.split()} | {
    "rng": ("penstock.rng", "generator")
}


_PACKAGES: Final = frozenset({"annotations", "transforms"})
"""Packages that are imported when they are first asked for."""

_ELSEWHERE: Final = {
    **dict.fromkeys(("torch", "doctor"), "; it is a package to import by its name, such as import penstock.torch"),
    **dict.fromkeys(("ImageFolder", "compile", "StatefulDataLoader"), "; it is in penstock.torch"),
    **dict.fromkeys(("check", "watch"), "; it is in penstock.doctor"),
    **dict.fromkeys(("Pipeline", "Decode", "Resize", "Normalize"), "; it is in penstock.transforms"),
    **dict.fromkeys(("jax", "tensorflow"), "; give the NumPy batches of penstock.DataLoader to that library"),
    **dict.fromkeys(("LmdbDataset", "ImageDataset"), "; use penstock.StoreDataset(penstock.open(path))"),
}
"""Where names are that people look for here, after the usual text of the error."""

del annotations  # of `__future__`: it is the name of a package of ours

__version__: str


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value = globals()[name] = _version()
        return value
    if name in _PACKAGES:
        return importlib.import_module(f"penstock.{name}")
    if name not in _NAMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}{_ELSEWHERE.get(name, '')}")
    module, attribute = _NAMES[name]
    value = globals()[name] = getattr(importlib.import_module(module), attribute)
    return value


def _version() -> str:
    """The version of the installed distribution, read on first use because importlib.metadata is slow to import."""
    from importlib import metadata

    try:
        return metadata.version("penstock-data")
    except metadata.PackageNotFoundError as error:
        raise AttributeError(
            "module 'penstock' has no attribute '__version__', because the distribution 'penstock-data' is not "
            "installed; in a checkout of the repository, install it with: pip install ."
        ) from error


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__, *_PACKAGES, "__version__"})


class _Package(ModuleType):
    """Keeps ``ps.rng`` and ``ps.pack`` functions: importing a submodule of that name would replace the attribute."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _NAMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the module by name: cloudpickle knows no subclass of modules, and a function may refer to ``ps``."""
        return importlib.import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Package
