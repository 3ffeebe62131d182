"""Which batches are observed in detail: each one while that is cheap, else one of several, drawn at random.

Of the others only the times of their beginning and end are kept. Used by :mod:`.work_recorder` for the
batches that a worker builds, and by :mod:`penstock.doctor.watching.loaders.loader_watch` for the steps of the script.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DetailChoice"]

_MOST_COST: Final = 0.003
"""Most that details cost, as a part of the time of all batches."""
_MOST_APART: Final = 256
"""One batch of so many is observed in detail at least, whatever it costs: else little would be known of a short run."""
_FIRST: Final = 40
"""Batches at the beginning that are all observed in detail: a short script has no others, and some of them are left out
as warm-up."""
_LONG: Final = 8
_LEAST_LONG_NS: Final = 20_000_000
"""For so long another program may have the processor."""


class DetailChoice:
    """Chooses batches by what details cost, and how long batches take.

    Attributes
    ----------
    left : int
        Batches until the next one in detail; who passes one over takes 1 away.
    long_ns : float
        A batch that takes longer than this is unusual: ``left`` is then set to 0, so that the next one is looked at.
    """

    __slots__ = ("_drawn", "_seen", "left", "long_ns")

    def __init__(self) -> None:
        self.left, self.long_ns = 0, 0.0
        self._seen, self._drawn = 0, 1

    def choose(self, batch_ns: float, cost_ns: float) -> None:
        """Set :attr:`left`, after a batch in detail.

        Parameters
        ----------
        batch_ns : float
            Time of a batch.
        cost_ns : float
            What the details of one cost.
        """
        self._seen += 1
        self.long_ns = max(_LONG * batch_ns, _LEAST_LONG_NS)
        every = self.most_apart(batch_ns, cost_ns)
        if self._seen < _FIRST or every == 1:
            self.left = 0
            return
        # Not each of a fixed number: that could miss slow samples that come as regularly.
        self._drawn = (self._drawn * 1_103_515_245 + 12_345) & 0x7FFFFFFF
        self.left = (self._drawn >> 8) % (2 * every - 1)

    @staticmethod
    def most_apart(batch_ns: float, cost_ns: float) -> int:
        """One batch of how many is observed in detail."""
        return min(int(cost_ns / (_MOST_COST * max(batch_ns, 1.0))) + 1, _MOST_APART)
