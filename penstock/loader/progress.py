"""Shows a loader's speed while it is iterated: a line that changes, or lines of text in a file.

============  ==================================================================================================
terminal      one line that is written again (rich keeps it below what the script prints)
notebook      an output of the cell that is replaced
file, pipe    a line every ten seconds, so that a log stays short
============  ==================================================================================================
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from typing import Final, Self, TextIO

from penstock.loader.counters import LoaderCounters, PeriodicReport
from penstock.loader.order import length
from penstock.loader.stats import LoaderRates
from penstock.progress import find_notebook, make_line_writer, show_in_cell
from penstock.sample import Batch

__all__ = ["LoaderProgress"]

_TERMINAL_S: Final = 0.2
_NOTEBOOK_S: Final = 1.0
_FILE_S: Final = 10.0


class LoaderProgress:
    """What ``loader.progress()`` returns: iterate over it, or use it as a context manager.

    No thread is started: the line changes when a batch is delivered. It begins at ``with``, or when it is iterated, and
    ends with the last batch, ``break`` or an exception. Numbers of batches and samples count from there.

    Parameters
    ----------
    loader : iterable
        What is iterated.
    counters : LoaderCounters
        The loader's.
    stream, period_s
        As for :meth:`~penstock.loader.statistics.LoaderStatistics.progress`.
    """

    def __init__(
        self,
        loader: Collection[Batch],
        counters: LoaderCounters,
        *,
        stream: TextIO | None = None,
        period_s: float | None = None,
    ) -> None:
        self._loader, self._counters, self._stream, self._period_s = loader, counters, stream, period_s
        self._report: PeriodicReport | None = None
        self._end: Callable[[], None] = _do_nothing
        self._show: Callable[[str], None] = _show_nothing
        self._total: int | None = None
        self._first = counters.stats()

    def __iter__(self) -> Iterator[Batch]:
        with self:
            yield from self._loader

    def __len__(self) -> int:
        return len(self._loader)

    def __enter__(self) -> Self:
        self._total = length(self._loader)
        self._first = self._counters.stats()
        period_s = self._choose_display(sys.stderr if self._stream is None else self._stream)
        self._report = PeriodicReport(
            self._counters, self._update, period_s if self._period_s is None else self._period_s
        )
        return self

    def __exit__(self, *exc: object) -> None:
        report, self._report = self._report, None
        if report is not None:
            report.close()
        self._end()
        self._end, self._show = _do_nothing, _show_nothing

    def _update(self, rates: LoaderRates) -> None:
        batches = rates.all_batches - self._first.batches
        samples = rates.all_samples - self._first.samples
        of = "" if self._total is None else f" of {self._total:,}"
        self._show(f"{batches:,}{of} batches, {samples:,} samples, {rates}")

    def _choose_display(self, stream: TextIO) -> float:
        """Open the display that fits the stream; the seconds between two changes."""
        if self._stream is None and (shell := find_notebook()) is not None:
            self._show = show_in_cell(shell)
            return _NOTEBOOK_S
        if stream.isatty():
            self._show, self._end = _open_terminal(stream)
            return _TERMINAL_S
        self._show = make_line_writer(stream)
        return _FILE_S


def _open_terminal(stream: TextIO) -> tuple[Callable[[str], None], Callable[[], None]]:
    from rich.console import Console  # imported only for a terminal
    from rich.live import Live
    from rich.text import Text

    live = Live("", console=Console(file=stream), auto_refresh=False, transient=False)
    live.start()

    def show(text: str) -> None:
        live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)

    return show, live.stop


def _do_nothing() -> None:
    return None


def _show_nothing(text: str) -> None:  # noqa: ARG001  # before it begins and after its end
    return None
