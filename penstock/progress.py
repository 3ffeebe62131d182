"""Shows the progress of packing and verifying: a bar on a terminal, else a line of text every ten seconds."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from rich.progress import Task
    from rich.text import Text

__all__ = ["ProgressReporter", "can_draw", "make_reporter", "show_progress"]

ProgressReporter = Callable[[int, int, int], None]
"""``report(done, total, nbytes)``: number of records done, of all records, and of bytes done."""

_PERIOD_S: Final = 10.0


def make_reporter(
    progress: bool | Callable[[int, int], None] | None, what: str, stack: ExitStack, unit: str = "records"
) -> ProgressReporter:
    """What to call for an argument ``progress``: the caller's function, a bar that ``stack`` ends, or nothing."""
    if callable(progress):
        return lambda done, total, _nbytes: progress(done, total)
    if not progress:
        return lambda _done, _total, _nbytes: None
    return stack.enter_context(show_progress(what, unit=unit))


@contextmanager
def show_progress(what: str, stream: TextIO | None = None, unit: str = "records") -> Iterator[ProgressReporter]:
    """Show progress on ``stream`` (by default standard error) while the body runs; yields the function to call."""
    stream = sys.stderr if stream is None else stream
    if not can_draw(stream):
        yield _write_lines(what, stream, unit)
        return
    with _draw_bar(what, stream, unit) as report:
        yield report


def can_draw(stream: TextIO) -> bool:
    """Whether a stream is a terminal that can go back in a line, as a bar does."""
    return stream.isatty() and os.environ.get("TERM") not in {"dumb", "unknown"}


def _format_rates(done: float, nbytes: int, seconds: float, unit: str) -> str:
    parts = () if unit == "MB" else (f"{done / seconds:,.0f} {unit}/s",)
    return "  ".join((*parts, f"{nbytes / 1e6 / seconds:,.0f} MB/s"))


def _write_lines(what: str, stream: TextIO, unit: str) -> ProgressReporter:
    start = last = time.monotonic()

    def report(done: int, total: int, nbytes: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _PERIOD_S:
            last = now
            rates = ", ".join(_format_rates(done, nbytes, now - start, unit).split("  "))
            stream.write(f"{what}: {done:,} of {total:,} ({rates})\n")
            stream.flush()

    return report


@contextmanager
def _draw_bar(what: str, stream: TextIO, unit: str) -> Iterator[ProgressReporter]:
    from rich.console import Console  # imported only for a terminal
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class _Rates(ProgressColumn):
        """Records and megabytes per second since the start."""

        def render(self, task: Task) -> Text:
            elapsed_s = max(task.elapsed or 0.0, 1e-9)
            return Text(_format_rates(task.completed, task.fields["nbytes"], elapsed_s, unit), style="cyan")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        _Rates(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=stream), transient=True) as bars:
        bar = bars.add_task(what, total=None, nbytes=0)

        def report(done: int, total: int, nbytes: int) -> None:
            bars.update(bar, completed=done, total=total, nbytes=nbytes)

        yield report
