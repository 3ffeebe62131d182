"""Samplers: which samples an epoch has, and in which order.

One new sampler is one new file and one line here; the line also enrols it in ``tests/conformance/test_samplers.py``.
"""

from __future__ import annotations

from penstock.registry import Registry
from penstock.samplers.base import RandomAccess, Sampler
from penstock.samplers.batch import BatchSampler
from penstock.samplers.random import RandomSampler, SubsetRandomSampler
from penstock.samplers.sequential import SequentialSampler

__all__ = [
    "SAMPLERS",
    "BatchSampler",
    "RandomAccess",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "SubsetRandomSampler",
]

SAMPLERS = Registry("sampler")
SAMPLERS.register("sequential", "penstock.samplers.sequential:SequentialSampler")
SAMPLERS.register("random", "penstock.samplers.random:RandomSampler")
SAMPLERS.register("subset-random", "penstock.samplers.random:SubsetRandomSampler")
