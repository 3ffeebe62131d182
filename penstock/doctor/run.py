"""``python -m penstock.doctor.run OPTIONS SCRIPT [args]``: the process in which ``penstock doctor`` runs a script.

::

    hooks on imports ──> the script as __main__ ──> enough steps, its own end, a crash, Ctrl-C
                                                        │
                         Recording ──> ranks ──> Diagnosis, with trials     after enough steps within the script's loop
                                                        │
                                          the script has ended ──> text on standard error, files
                                                        │
                                          the script's exit code, or 1 if it waits too much

Before the script runs, only the standard library is imported. What is printed goes to standard error: standard output
is the script's.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.doctor.trials.run_options import RunOptions
from penstock.doctor.trials.script_runs import ScriptRuns, read_sources
from penstock.doctor.watching.loaders import INSTALLERS
from penstock.doctor.watching.script import Ending, EnoughStepsError, ScriptNotFoundError, run_script
from penstock.registry import when_imported

if TYPE_CHECKING:
    from penstock.doctor.reports.script_report import ScriptReport
    from penstock.doctor.watching.watcher import Watcher

__all__ = ["main"]

_USAGE: Final = 2
_NO_TIME_LIMIT: Final = 1e9


class _Session:
    """The watcher of the script's loaders, made when the first loader is imported, and what was found."""

    def __init__(self, options: RunOptions, target: list[str]) -> None:
        self.options, self.pid = options, os.getpid()
        self._runs = ScriptRuns(options, target)
        self.watcher: Watcher | None = None
        self._report: ScriptReport | None = None
        self._error: BaseException | None = None

    def hook(self) -> None:
        for module, (home, function) in INSTALLERS.items():
            when_imported(module, partial(self._install, home, function))

    def _install(self, home: str, function: str) -> None:
        if self.watcher is None:
            from penstock.doctor.watching.watcher import Limits, Watcher

            alone = os.environ.get("WORLD_SIZE", "1") == "1"
            steps = self.options.steps
            limit_s = self.options.most_s if alone else _NO_TIME_LIMIT
            limits = Limits(steps, replays=min(10, steps // 4), limit_s=limit_s)
            tries, progress = self.options.trials and not self.options.tune, None
            if self.options.speed is not None:
                tries = False
            elif os.environ.get("RANK", "0") == "0":
                from penstock.progress import report_lines

                sys.stderr.write(self.options.describe_duration(limits.warm_up + steps, limit_s))
                progress = report_lines(sys.stderr)
            self.watcher = Watcher(
                limits, finish=self._end_script, change=self.options.change, tries_threads=tries, progress=progress
            )
            self.watcher.is_active = True
        getattr(importlib.import_module(home), function)(self.watcher)

    def is_done(self) -> bool:
        """Return whether enough steps were seen."""
        return self.watcher is not None and self.watcher.is_finished

    def _end_script(self) -> None:
        """End the script, from within its loop; before that, examine it, while its files are there."""
        if threading.current_thread() is not threading.main_thread():
            os.kill(os.getpid(), signal.SIGINT)  # the main thread may wait for this one
            raise SystemExit(0)  # of this class alone, a thread ends without a message
        self._examine(Ending("steps", 0, "steps"))
        raise EnoughStepsError

    def _examine(self, ending: Ending) -> None:
        """Make the report on the script, once."""
        if self.watcher is None or self._report is not None or self._error is not None:
            return
        from penstock.doctor.reports.script_report import ScriptReport

        try:
            self._report = ScriptReport(self.watcher, self._runs, ending)
        except BaseException as error:  # noqa: BLE001  # raised again when the script has ended: it is not the script's
            self._error = error

    def report(self, ending: Ending) -> int:
        """Print and write what was found in the script that has ended; returns the exit code."""
        self._examine(ending)
        if self._error is not None:
            raise self._error
        if self._report is None:
            sys.stderr.write(
                "penstock doctor: no DataLoader was imported in this process; there is nothing to report\n"
            )
            return ending.code
        return self._report.report(ending)


def main() -> None:
    """Run the script that the arguments name, and report."""
    options, target = RunOptions.from_text(sys.argv[1]), sys.argv[2:]
    session = _Session(options, target)
    session.hook()
    try:
        ending = run_script(target, session.is_done, read_sources(options))
    except ScriptNotFoundError as error:
        sys.stderr.write(f"penstock doctor: {error}\n")
        sys.exit(_USAGE)
    if os.getpid() != session.pid:  # a process that the script forked, and that runs to the script's end
        ending.leave(ending.code)
    if session.is_done():
        ending = Ending("steps", 0, "steps")
    sys.stdout.flush()
    code = ending.code
    try:
        code = session.report(ending)
    except KeyboardInterrupt:
        sys.stderr.write("penstock doctor: interrupted\n")
    finally:
        if session.watcher is not None:
            session.watcher.close()
    ending.leave(code)


if __name__ == "__main__":
    main()
