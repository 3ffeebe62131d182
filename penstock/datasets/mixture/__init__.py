"""Mixtures of several datasets with weights: how often each is drawn from, and in which order."""

from __future__ import annotations

from penstock.datasets.mixture.maps import MapMixture
from penstock.datasets.mixture.mixture import Mixture, SourceStats
from penstock.datasets.mixture.streams import StreamMixture

__all__ = ["MapMixture", "Mixture", "SourceStats", "StreamMixture"]
