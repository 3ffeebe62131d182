"""The names, arguments and semantics of ``torch.utils.data`` on penstock. Batches are torch tensors.

Some classes are torch's own. Classes that fill batches, have a state or move memory are subclasses of torch's. The
deprecated DataPipes are not included. No package in a lower layer imports torch.

Where to find what:

- what torch does, and what differs on purpose: ``loader/dataloader.py``; ``docs/from-torch.md``
- when random numbers are drawn, and how an epoch is begun again: ``loader/epoch_draws.py``
- how batches are copied to a device ahead of their use: ``device/``
- what a device decodes and augments: ``cuda/``
- TorchCodec's image decoders: ``decoders.py``
- why a torchvision transform was compiled or not: ``vision/recognise.py``, ``vision/compiling.py``
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from penstock.registry import require
from penstock.wording import list_public_names

require("torch", extra="torch", purpose="for penstock.torch")

from torch.utils.data import (  # noqa: E402  # after the check above
    BatchSampler,
    ChainDataset,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)

from penstock.samplers import (  # noqa: E402  # as above
    BucketBatchSampler,
    ClassBalancedSampler,
    DistributedWeightedSampler,
    RepeatFactorSampler,
)
from penstock.torch.collate import as_tensors, default_collate, default_convert  # noqa: E402  # as above
from penstock.torch.datasets import (  # noqa: E402  # as above
    ConcatDataset,
    StackDataset,
    StoreDataset,
    Subset,
    TensorDataset,
    random_split,
)
from penstock.torch.device.normalizing import normalize_on_device  # noqa: E402  # as above
from penstock.torch.device.prefetching import prefetch  # noqa: E402  # as above
from penstock.torch.loader.adopting import adopt  # noqa: E402  # as above
from penstock.torch.loader.dataloader import DataLoader, StatefulDataLoader  # noqa: E402  # as above
from penstock.torch.loader.saving import Stateful  # noqa: E402  # as above
from penstock.torch.samplers import StatefulDistributedSampler  # noqa: E402  # as above

if TYPE_CHECKING:
    from penstock.doctor import check
    from penstock.torch.vision import ImageFolder, compile  # noqa: A004  # torch.compile's name

__all__ = [
    "BatchSampler",
    "BucketBatchSampler",
    "ChainDataset",
    "ClassBalancedSampler",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "DistributedWeightedSampler",
    "ImageFolder",
    "IterableDataset",
    "RandomSampler",
    "RepeatFactorSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Stateful",
    "StatefulDataLoader",
    "StatefulDistributedSampler",
    "StoreDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "adopt",
    "as_tensors",
    "check",
    "compile",
    "default_collate",
    "default_convert",
    "get_worker_info",
    "normalize_on_device",
    "prefetch",
    "random_split",
]

_ELSEWHERE: Final = {
    "ImageFolder": "penstock.torch.vision",  # torchvision is optional, and slow to import
    "check": "penstock.doctor",
    "compile": "penstock.torch.vision",
}
"""Where public names are that are imported when they are asked for."""


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(_ELSEWHERE[name]), name)
    if name == "decoders":
        return importlib.import_module("penstock.torch.decoders")
    raise AttributeError(f"module 'penstock.torch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list_public_names(globals(), __all__)
