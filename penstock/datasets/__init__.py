"""Datasets: from an index to a sample. One new kind is one new file and one line here.

Where to find what:

- how a mixture divides its draws among sources: ``mixture/``
- how a stream is divided among workers and ranks, resumes on others, and is shuffled: ``streams/``
- samples made of several: ``composed/``
- how a store is split, stratified or by groups: ``splits/splits.py``, ``splits/stratification.py``
- what a ``StoreDataset`` makes of a record: ``store/``
- which libraries' own generators ``seed_per_sample`` seeds: ``seeded_libraries.py``, one entry each
- where an error happened, in the user's code: ``error_location.py``, ``user_code.py``
"""

from __future__ import annotations

from penstock.datasets.arrays import ArrayDataset
from penstock.datasets.base import Dataset, Filler, IterableDataset
from penstock.datasets.concat import ChainDataset, ConcatDataset
from penstock.datasets.splits.splits import Split, split
from penstock.datasets.stack import StackDataset
from penstock.datasets.store.batch_forms import BatchForm
from penstock.datasets.store.dataset import StoreDataset
from penstock.datasets.streams.dataset import StreamDataset
from penstock.datasets.streams.division import DivisibleStream
from penstock.datasets.streams.partitioned import PartitionedDataset
from penstock.datasets.subset import Subset, random_split

__all__ = [
    "ArrayDataset",
    "BatchForm",
    "ChainDataset",
    "ConcatDataset",
    "Dataset",
    "DivisibleStream",
    "Filler",
    "IterableDataset",
    "PartitionedDataset",
    "Split",
    "StackDataset",
    "StoreDataset",
    "StreamDataset",
    "Subset",
    "random_split",
    "split",
]
