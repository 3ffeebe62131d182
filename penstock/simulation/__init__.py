"""A job computed and not run: what each rank gets, and what is asked of object storage.

Where to find what:

- steps, draws and resumes of each rank: ``job.py``
- requests to object storage: ``object_storage.py``
"""

from __future__ import annotations

from penstock.simulation.job import Bounds, Coverage, RankShares, Simulation, simulate
from penstock.simulation.object_storage import EpochRequests, ObjectStorage, measure_records

__all__ = [
    "Bounds",
    "Coverage",
    "EpochRequests",
    "ObjectStorage",
    "RankShares",
    "Simulation",
    "measure_records",
    "simulate",
]
