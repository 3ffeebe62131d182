"""Shows the progress of packing and verifying.

A bar on a terminal; in a notebook an output of the cell that is replaced each second; else a line of text every ten
seconds.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from rich.progress import Task
    from rich.text import Text

__all__ = [
    "ProgressReporter",
    "can_draw",
    "find_notebook",
    "make_line_writer",
    "make_reporter",
    "report_lines",
    "show_in_cell",
    "show_progress",
]

ProgressReporter = Callable[[int, int, int], None]
"""``report(done, total, nbytes)``: number of records done, of all records, and of bytes done."""

_PERIOD_S: Final = 10.0
_NOTEBOOK_S: Final = 1.0


def make_reporter(
    progress: bool | Callable[[int, int], None] | None, what: str, stack: ExitStack, unit: str = "records"
) -> ProgressReporter:
    """Make what is called for ``progress``: the caller's function, a bar that ``stack`` ends, or nothing."""
    if callable(progress):
        return lambda done, total, _nbytes: progress(done, total)
    if not progress:
        return lambda _done, _total, _nbytes: None
    return stack.enter_context(show_progress(what, unit=unit))


@contextmanager
def show_progress(what: str, unit: str = "records") -> Iterator[ProgressReporter]:
    """Show progress on standard error while the body runs; yields the function to call."""
    if (display := find_notebook()) is not None:
        yield _report_texts(what, show_in_cell(display), unit, _NOTEBOOK_S)
        return
    stream = sys.stderr
    if not can_draw(stream):
        yield _report_texts(what, make_line_writer(stream), unit, _PERIOD_S)
        return
    with _draw_bar(what, stream, unit) as report:
        yield report


def can_draw(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that can go back in a line, as a bar does."""
    return stream.isatty() and os.environ.get("TERM") not in {"dumb", "unknown"}


def _format_rates(done: float, nbytes: int, seconds: float, unit: str) -> str:
    parts = () if unit == "MB" else (f"{done / seconds:,.0f} {unit}/s",)
    return "  ".join((*parts, f"{nbytes / 1e6 / seconds:,.0f} MB/s"))


def _report_texts(what: str, show: Callable[[str], None], unit: str, period_s: float) -> ProgressReporter:
    start = last = time.monotonic()

    def report(done: int, total: int, nbytes: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= period_s:
            last = now
            rates = ", ".join(_format_rates(done, nbytes, now - start, unit).split("  "))
            show(f"{what}: {done:,} of {total:,} ({rates})")

    return report


def report_lines(stream: TextIO) -> Callable[[str], None]:
    """Return a function that writes a text as a line, unless it has written one, or was made, within ten seconds."""
    write, last = make_line_writer(stream), time.monotonic()

    def report(text: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _PERIOD_S:
            last = now
            write(text)

    return report


def make_line_writer(stream: TextIO) -> Callable[[str], None]:
    """Return a function that writes a text as a line, at once."""

    def write(text: str) -> None:
        stream.write(f"{text}\n")
        stream.flush()

    return write


def find_notebook() -> ModuleType | None:
    """IPython's display module, if this program runs in a notebook; nothing is imported for it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return sys.modules.get("IPython.display") if hasattr(shell, "kernel") else None


def show_in_cell(display: ModuleType) -> Callable[[str], None]:
    """Return a function that shows a text in the output of the cell, in place of the text before."""
    shown: list[Callable[..., object]] = []

    def show(text: str) -> None:
        content = {"text/plain": text}
        if shown:
            shown[0](content, raw=True)
        else:
            shown.append(display.display(content, raw=True, display_id=True).update)

    return show


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
