"""Samplers: which samples an epoch has, and in which order.

One new sampler is one new file and one line here; the line also enrols it in ``tests/conformance/test_samplers.py``.

Where to find what:

- which samples a rank has, and what remains of an epoch: ``ranks.py``
- how an order is permuted without a list of it: ``permutation.py``
"""

from __future__ import annotations

from penstock.registry import Registry
from penstock.samplers.balanced import ClassBalancedSampler
from penstock.samplers.base import RandomAccess, Sampler
from penstock.samplers.bucket import BucketBatchSampler
from penstock.samplers.distributed import DistributedSampler
from penstock.samplers.labels import class_weights
from penstock.samplers.random import RandomSampler, SubsetRandomSampler
from penstock.samplers.ranks import RankSampler
from penstock.samplers.repeat_factor import RepeatFactorSampler, repeat_factors
from penstock.samplers.sequential import BatchSampler, SequentialSampler
from penstock.samplers.weighted import DistributedWeightedSampler, WeightedRandomSampler

__all__ = [
    "BATCH_SAMPLERS",
    "SAMPLERS",
    "BatchSampler",
    "BucketBatchSampler",
    "ClassBalancedSampler",
    "DistributedSampler",
    "DistributedWeightedSampler",
    "RandomAccess",
    "RandomSampler",
    "RankSampler",
    "RepeatFactorSampler",
    "Sampler",
    "SequentialSampler",
    "SubsetRandomSampler",
    "WeightedRandomSampler",
    "class_weights",
    "repeat_factors",
]

SAMPLERS = Registry("sampler")
SAMPLERS.register("sequential", "penstock.samplers.sequential:SequentialSampler")
SAMPLERS.register("random", "penstock.samplers.random:RandomSampler")
SAMPLERS.register("subset-random", "penstock.samplers.random:SubsetRandomSampler")
SAMPLERS.register("weighted-random", "penstock.samplers.weighted:WeightedRandomSampler")
SAMPLERS.register("distributed", "penstock.samplers.distributed:DistributedSampler")
SAMPLERS.register("distributed-weighted", "penstock.samplers.weighted:DistributedWeightedSampler")
SAMPLERS.register("class-balanced", "penstock.samplers.balanced:ClassBalancedSampler")
SAMPLERS.register("repeat-factor", "penstock.samplers.repeat_factor:RepeatFactorSampler")
SAMPLERS.register("mixture", "penstock.datasets.mixture.sampler:MixtureSampler")

BATCH_SAMPLERS = Registry("batch sampler")
BATCH_SAMPLERS.register("bucket", "penstock.samplers.bucket:BucketBatchSampler")
