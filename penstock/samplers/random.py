"""Shuffled orders that are computed from (seed, epoch, position) in constant memory.

These samplers do not use global random generators; the order of an epoch is the same on every machine.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence, Sized
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.rng import uniforms
from penstock.sample import SampleKeys
from penstock.samplers.base import IndexSampler, check_count, check_seed
from penstock.samplers.permutation import permute

__all__ = ["RandomSampler", "SubsetRandomSampler"]

_STREAM: Final = 0xFFFF
"""Philox stream of draws with replacement; streams of ops begin at 0."""


class RandomSampler(IndexSampler):
    """Indices in a random order that seed and epoch determine.

    Parameters
    ----------
    data_source : sized
        An object with a length; the cost does not depend on it.
    replacement : bool
        Draw each index independently.
    num_samples : int, optional
        Indices per epoch; the length of ``data_source`` by default. A larger number without replacement: whole
        permutations, each a different one, then a part of one.
    seed : int, optional
        In [0, 2**64). None: drawn from the operating system and kept in :meth:`state_dict`.

    Raises
    ------
    ArgumentError
        If an argument is out of range.
    """

    def __init__(
        self, data_source: Sized, replacement: bool = False, num_samples: int | None = None, *, seed: int | None = None
    ) -> None:
        super().__init__()
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement!r}")
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.seed = secrets.randbits(63) if seed is None else check_seed(seed)
        check_count("num_samples", self.num_samples, least=1)

    @property
    def num_samples(self) -> int:
        """Indices per epoch."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __len__(self) -> int:
        return self.num_samples

    def order(self, start: int, stop: int, epoch: int | None = None) -> NDArray[np.int64]:
        """Indices at positions ``start..stop``; O(stop - start)."""
        seed, epoch, n = _require_seed(self.seed), self.epoch if epoch is None else epoch, len(self.data_source)
        positions = np.arange(start, min(stop, self.num_samples), dtype=np.int64)
        if self.replacement:
            return (uniforms(SampleKeys(seed, epoch, positions), _STREAM, 1)[:, 0] * n).astype(np.int64)
        if not len(positions) or positions[-1] < n:
            return permute(positions, n, (seed, epoch, 0))
        laps = positions // n
        parts = [permute(positions[laps == lap] - lap * n, n, (seed, epoch, lap)) for lap in np.unique(laps).tolist()]
        return np.concatenate(parts)

    def signature(self) -> dict[str, object]:
        """Type, length, replacement, number of samples."""
        return {
            "type": "RandomSampler",
            "length": len(self.data_source),
            "replacement": self.replacement,
            "num_samples": self.num_samples,
        }


class SubsetRandomSampler(IndexSampler):
    """The given indices in a random order that seed and epoch determine.

    Parameters
    ----------
    indices : sequence of int
        Kept as an array (copied).
    seed : int, optional
        As for :class:`RandomSampler`.

    Raises
    ------
    ArgumentError
        If an argument is out of range.
    """

    def __init__(self, indices: Sequence[int] | NDArray[np.int64], *, seed: int | None = None) -> None:
        super().__init__()
        chosen = np.array(indices)
        if chosen.ndim != 1 or (len(chosen) and chosen.dtype.kind not in "iu"):
            raise ArgumentError(f"indices should be a sequence of integers, but got {indices!r:.200}")
        self.indices = chosen.astype(np.int64)
        self.seed = secrets.randbits(63) if seed is None else check_seed(seed)
        self._digest = hashlib.blake2b(self.indices.astype("<i8").tobytes(), digest_size=16).hexdigest()

    def __len__(self) -> int:
        return len(self.indices)

    def order(self, start: int, stop: int, epoch: int | None = None) -> NDArray[np.int64]:
        """Indices at positions ``start..stop``."""
        positions = np.arange(start, min(stop, len(self)), dtype=np.int64)
        key = (_require_seed(self.seed), self.epoch if epoch is None else epoch, 0)
        return self.indices[permute(positions, len(self), key)]

    def signature(self) -> dict[str, object]:
        """Return type, length and a digest of the indices."""
        return {"type": "SubsetRandomSampler", "length": len(self), "indices": self._digest}


def _require_seed(seed: int | None) -> int:
    assert seed is not None, "a random sampler always has a seed"
    return seed
