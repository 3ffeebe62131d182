"""Calls a function with a loader's speed now and then, while batches are delivered; no thread is started."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Self

from penstock.errors import ArgumentError
from penstock.loader.counters import LoaderCounters
from penstock.loader.stats import LoaderRates
from penstock.trace import Observer

__all__ = ["PeriodicReport"]


class PeriodicReport(Observer):
    """One function that is called; a context manager.

    Parameters
    ----------
    counters : LoaderCounters
        Of the loader.
    callback : callable
        Called with the rates since the last call.
    period_s : float
        Least seconds between calls.
    clock : callable
        Gives seconds.

    Raises
    ------
    ArgumentError
        If ``period_s`` is negative, or ``callback`` cannot be called.
    """

    def __init__(
        self,
        counters: LoaderCounters,
        callback: Callable[[LoaderRates], object],
        period_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not callable(callback):
            raise ArgumentError(f"callback must be callable, got {type(callback).__name__}")
        if not period_s >= 0:
            raise ArgumentError(f"period_s must be at least 0, got {period_s}")
        self._counters, self._callback, self._period_s, self._clock = counters, callback, period_s, clock
        self._last = counters.stats()
        self._due = clock() + period_s
        counters.add_observer(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def delivered(self, samples: int) -> None:  # noqa: ARG002  # the counters have counted them
        """Call the function, if it is time to."""
        if self._clock() >= self._due:
            self._report()

    def close(self) -> None:
        """Call the function once more, if there were batches since the last call, and never again. Idempotent."""
        if self._counters.remove_observer(self) and self._counters.stats().batches > self._last.batches:
            self._report()

    def _report(self) -> None:
        now = self._counters.stats()
        rates, self._last = now.since(self._last), now
        self._due = self._clock() + self._period_s
        try:
            self._callback(rates)
        except Exception as error:  # noqa: BLE001  # training goes on: what is reported must not stop it
            self._counters.remove_observer(self)
            warnings.warn(
                f"reports of the loader end: {type(error).__name__}: {error} in {self._callback!r}",
                RuntimeWarning,
                stacklevel=2,
            )
