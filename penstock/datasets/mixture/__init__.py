"""Mixtures of several datasets with weights: how often each is drawn from, and in which order.

Where to find what:

- how draws are divided among sources: ``interleaving.py``; weights and schedules: ``shares.py``
- indices: ``sampler.py``, ``maps.py``; streams: ``streams.py``
- why so: ``docs/decisions/0040-*``
"""

from __future__ import annotations

from penstock.datasets.mixture.maps import MapMixture
from penstock.datasets.mixture.mixture import Mixture, SourceStats
from penstock.datasets.mixture.streams import StreamMixture

__all__ = ["MapMixture", "Mixture", "SourceStats", "StreamMixture"]
