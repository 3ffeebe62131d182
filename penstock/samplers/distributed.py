"""All samples of a dataset once per epoch, divided among ranks."""

from __future__ import annotations

from collections.abc import Sized

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.samplers.permutation import permute
from penstock.samplers.ranks import DropLast, RankSampler, find_missing

__all__ = ["DistributedSampler"]


class DistributedSampler(RankSampler):
    """The part of a dataset for one rank, divided as torch's class of this name does, for programs without torch.

    All ranks together have the order of :class:`~penstock.samplers.RandomSampler` with the same seed and epoch, each
    every ``num_replicas``-th sample of it.

    Parameters
    ----------
    dataset : sized
        An object with a length; the cost does not depend on it.
    num_replicas, rank : int, optional
        Number of ranks, and this rank's number. By default those of ``torch.distributed``'s process group, as for
        torch's class, or else those that :func:`penstock.find_world` finds; torch is not imported.
    shuffle : bool
        A new order each epoch; False: 0, 1, 2, ...
    seed : int
        In [0, 2**64), the same on every rank.
    drop_last : bool or "uneven"
        Where the length is no multiple of ``num_replicas``: leave out the end (True), repeat the beginning (False;
        :meth:`find_repeats` says which samples these are), or neither: the first ranks have one sample more.

    Raises
    ------
    ArgumentError
        If an argument is out of range, or not given where nothing says that there are ranks.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: DropLast = False,
    ) -> None:
        super().__init__(*find_missing(num_replicas, rank), drop_last, seed)
        if not isinstance(shuffle, bool):
            raise ArgumentError(f"shuffle should be a boolean value, but got shuffle={shuffle!r}")
        self.dataset, self.shuffle = dataset, shuffle

    @property
    def job_size(self) -> int:
        """Length of the dataset."""
        return len(self.dataset)

    @property
    def num_samples(self) -> int:
        """Samples per rank and epoch."""
        return len(self)

    @property
    def total_size(self) -> int:
        """Samples of all ranks per epoch, including repeated ones, without those left out."""
        return self.job_size if self.is_uneven else len(self) * self.num_replicas

    def at(self, positions: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Indices at ``positions`` of the job's order."""
        return permute(positions, self.job_size, self._key(epoch, 0)) if self.shuffle else positions

    def parameters(self) -> dict[str, object]:
        """Return whether it shuffles."""
        return {"shuffle": self.shuffle}
