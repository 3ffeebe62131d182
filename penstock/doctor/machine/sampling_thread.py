"""A thread that calls a function every half second or so, and never uses more than a given part of a core."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self

__all__ = ["SamplingThread"]


class SamplingThread:
    """Calls ``sample`` from :meth:`start` to :meth:`stop`.

    The processor time of each call is measured: if it is more than ``most_share`` of the period, the period grows.

    Parameters
    ----------
    sample : callable
        Called without arguments, by one thread at a time.
    period_s : float
        Seconds from one call to the next, at least.
    most_share : float
        Most processor time of the calls, as a part of a core.
    name : str
        Of the thread.

    Attributes
    ----------
    samples, cpu_ns : int
        Calls by the thread itself, and their processor time.
    """

    def __init__(
        self,
        sample: Callable[[], None],
        *,
        period_s: float = 0.5,
        most_share: float = 0.002,
        name: str = "penstock-usage",
    ) -> None:
        self._sample, self._period_s, self._most_share, self._name = sample, period_s, most_share, name
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.samples, self.cpu_ns = 0, 0

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not stopped."""
        return self._thread is not None

    def start(self) -> Self:
        """Call it once, and begin, also again after :meth:`stop`. Idempotent."""
        if self.is_running:
            return self
        self._stopping.clear()
        self._sample()
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End the thread, and call it a last time. Idempotent."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stopping.set()
        thread.join(10.0)  # a read of a kernel file ends soon; a hung one (NFS below /proc does not exist) is left
        if not thread.is_alive():
            self._sample()

    def _run(self) -> None:
        period_s = self._period_s
        while not self._stopping.wait(period_s):
            start = time.thread_time_ns()
            self._sample()
            spent = time.thread_time_ns() - start
            self.samples, self.cpu_ns = self.samples + 1, self.cpu_ns + spent
            period_s = max(self._period_s, spent / 1e9 / self._most_share)
