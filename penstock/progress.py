"""Shows the progress of packing and verifying: a bar on a terminal, else a line of text every ten seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from rich.progress import Task
    from rich.text import Text

__all__ = ["ProgressReporter", "make_reporter", "show_progress"]

ProgressReporter = Callable[[int, int, int], None]
"""``report(done, total, nbytes)``: number of records done, of all records, and of bytes done."""

_PERIOD_S: Final = 10.0


def make_reporter(progress: bool | Callable[[int, int], None] | None, what: str, stack: ExitStack) -> ProgressReporter:
    """What to call for an argument ``progress``: the caller's function, a bar that ``stack`` ends, or nothing."""
    if callable(progress):
        return lambda done, total, _nbytes: progress(done, total)
    if not progress:
        return lambda _done, _total, _nbytes: None
    return stack.enter_context(show_progress(what))


@contextmanager
def show_progress(what: str, stream: TextIO | None = None) -> Iterator[ProgressReporter]:
    """Show progress on ``stream`` (by default standard error) while the body runs; yields the function to call."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield _write_lines(what, stream)
        return
    with _draw_bar(what, stream) as report:
        yield report


def _write_lines(what: str, stream: TextIO) -> ProgressReporter:
    start = last = time.monotonic()

    def report(done: int, total: int, nbytes: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _PERIOD_S:
            last = now
            rates = f"{done / (now - start):,.0f} records/s, {nbytes / 1e6 / (now - start):,.0f} MB/s"
            stream.write(f"{what}: {done:,} of {total:,} ({rates})\n")
            stream.flush()

    return report


@contextmanager
def _draw_bar(what: str, stream: TextIO) -> Iterator[ProgressReporter]:
    from rich.console import Console  # imported only for a terminal
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class _Rates(ProgressColumn):
        """Records and megabytes per second since the start."""

        def render(self, task: Task) -> Text:
            elapsed_s = max(task.elapsed or 0.0, 1e-9)
            nbytes = task.fields["nbytes"]
            rates = f"{task.completed / elapsed_s:,.0f} records/s  {nbytes / 1e6 / elapsed_s:,.0f} MB/s"
            return Text(rates, style="cyan")

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
