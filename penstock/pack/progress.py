"""How far packing or verifying is, for people: a live bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from rich.progress import Task
    from rich.text import Text

__all__ = ["Report", "shown"]

Report = Callable[[int, int, int], None]
"""``report(done, total, nbytes)``: records dealt with, records in all, bytes so far."""

_QUIET_S: Final = 10.0


@contextmanager
def shown(what: str, stream: TextIO | None = None) -> Iterator[Report]:
    """Show progress on ``stream`` (standard error by default) while the body runs; gives what to report to."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield _plain(what, stream)
        return
    with _live(what, stream) as report:
        yield report


def _plain(what: str, stream: TextIO) -> Report:
    start = last = time.monotonic()

    def report(done: int, total: int, nbytes: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _QUIET_S:
            last = now
            rates = f"{done / (now - start):,.0f} records/s, {nbytes / 1e6 / (now - start):,.0f} MB/s"
            stream.write(f"{what}: {done:,} of {total:,} ({rates})\n")
            stream.flush()

    return report


@contextmanager
def _live(what: str, stream: TextIO) -> Iterator[Report]:
    from rich.console import Console  # only where there is a terminal
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rates(ProgressColumn):
        """Records and megabytes a second since the start."""

        def render(self, task: Task) -> Text:
            elapsed_s = max(task.elapsed or 0.0, 1e-9)
            nbytes = task.fields["nbytes"]
            rates = f"{task.completed / elapsed_s:,.0f} records/s  {nbytes / 1e6 / elapsed_s:,.0f} MB/s"
            return Text(rates, style="cyan")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        Rates(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=stream), transient=True) as bars:
        bar = bars.add_task(what, total=None, nbytes=0)

        def report(done: int, total: int, nbytes: int) -> None:
            bars.update(bar, completed=done, total=total, nbytes=nbytes)

        yield report
