"""Steps of the script with one thread of torch's, between steps as they are: only the script can show their gain.

::

    steps as they are ── k with one thread ── k as they are ── the last normal step, the fixed-data test, the end

Trials in forked children cannot: threads of OpenMP do not survive a fork, so each of them computes with one. Used by
:class:`~penstock.doctor.watching.loaders.watched_iterators.WatchedIterator` where the script ends after its steps.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from penstock.doctor.watching.recording import ThreadGain

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["ThreadTrial"]

_MOST_STEPS: Final = 8
_LEAST_STEPS: Final = 3
_MOST_NS: Final = 5_000_000_000
"""Time of one part, after the least steps."""
_LONGEST_STEP_NS: Final = 5_000_000_000
_LEAST_WASTE: Final = 0.05
"""Processor time that threads which wait for one another take of a step, as a part of its time. Below it, steps differ
for other reasons: workers that start, batches that were ready."""


class ThreadTrial:
    """Measures steps between two requests of batches.

    Parameters
    ----------
    processor_ns : callable
        The processor time of this process so far, in ns.

    Attributes
    ----------
    begun_ns, ended_ns : int
        When it was begun and ended; 0 if it was not.
    gain : ThreadGain, optional
        What it has found; None where steps take no more processor time with the usual threads than with one.
    """

    def __init__(self, processor_ns: Callable[[], int] = time.process_time_ns) -> None:
        self.begun_ns = self.ended_ns = 0
        self.gain: ThreadGain | None = None
        self._threads = 0
        self._usual_ns = 0.0
        self._parts: list[list[tuple[int, int]]] = []
        """Time, and processor time of this process, of the steps of each part."""
        self._last: tuple[object, int, int] = (None, 0, 0)
        self._processor_ns = processor_ns

    def begin(self, now: int, epoch: object, times_ns: Sequence[int]) -> bool:
        """Begin, if torch computes with several threads: the batch that arrives now belongs to it. Once only.

        ``times_ns`` are those of the steps so far, waiting included.
        """
        torch: ModuleType | None = sys.modules.get("torch")
        threads = 1 if self.begun_ns or torch is None else int(torch.get_num_threads())
        if torch is None or threads <= 1 or len(times_ns) < _LEAST_STEPS:
            return False
        self._usual_ns = statistics.mean(times_ns[-_MOST_STEPS:])
        if self._usual_ns > _LONGEST_STEP_NS:
            return False
        self.begun_ns, self._threads, self._parts = now, threads, [[]]
        self._last = epoch, now, self._processor_ns()
        torch.set_num_threads(1)
        return True

    def goes_on(self, now: int, epoch: object) -> bool:
        """Return whether the next step belongs to it. Called when a batch is asked for: the step before has ended."""
        if not self._parts or self.ended_ns:
            return False
        part, spent = self._parts[-1], self._processor_ns()
        if self._last[0] is epoch:
            part.append((now - self._last[1], spent - self._last[2]))
        self._last = epoch, now, spent
        if len(part) <= _LEAST_STEPS or (len(part) <= _MOST_STEPS and sum(step for step, _ in part) < _MOST_NS):
            return True
        sys.modules["torch"].set_num_threads(self._threads)
        if len(self._parts) == 1:
            self._parts.append([])
            return True
        self.ended_ns = now
        (one, one_spent), (after, after_spent) = (
            map(statistics.mean, zip(*part[1:], strict=True))  # threads start in the first step
            for part in self._parts
        )
        if after_spent - one_spent >= _LEAST_WASTE * after:
            self.gain = ThreadGain(self._threads, *sorted([self._usual_ns / one, after / one]))
        return False

    def stop(self) -> None:
        """Let torch compute as before, if the script ends within it. Idempotent."""
        if self._parts and not self.ended_ns:
            sys.modules["torch"].set_num_threads(self._threads)
            self._parts = []
