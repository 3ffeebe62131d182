"""The diagnosis of a script and its reports.

::

    the last step that is watched ── __init__ ──┐     the script's objects and files are still there
    the script unwinds                          │
    the script has ended ───────────────────────┴── report

A script that ends before enough steps were seen is examined when it has ended.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.doctor.fixes.candidates import LoaderSite, find_site
from penstock.doctor.fixes.patch import Fix, find_fix
from penstock.doctor.judge.analysis import diagnose
from penstock.doctor.judge.situation import examine
from penstock.doctor.judge.text_report import Diagnosis, format_report
from penstock.doctor.judge.tuning import tune
from penstock.doctor.reports.github_report import print_annotations
from penstock.doctor.reports.html_report import write_html
from penstock.doctor.reports.json_report import write_json
from penstock.doctor.trials.script_runs import ScriptRuns
from penstock.doctor.watching.loaders.loader_watch import LoaderWatch
from penstock.doctor.watching.ranks import measure_rate, merge_ranks
from penstock.doctor.watching.recording import Recording
from penstock.doctor.watching.script import Ending
from penstock.doctor.watching.watcher import Watcher
from penstock.errors import PenstockError
from penstock.progress import can_draw, report_lines

__all__ = ["ScriptReport", "exit_code"]


_COLOURS: Final = {"-": 1, "+": 2}


class ScriptReport:
    """What was found in a script; nothing of it needs the script's objects.

    It is made by the loop of the script itself when enough steps were seen, since what the dataset reads may be removed
    when the script unwinds; else when the script has ended.

    Parameters
    ----------
    watcher : Watcher
        Of the script's loaders.
    runs : ScriptRuns
        Run the script again; with the options of the command.
    ending : Ending
        How it ends.

    Attributes
    ----------
    recording : Recording, optional
        Of the loader that is reported; None if no loader was used.
    diagnosis : Diagnosis, optional
        None on ranks other than 0, and where no report is wanted.
    fix : Fix, optional
        What ``--fix`` has tried, when the script was run again.
    lines : str
        What is printed in the place of all reports: the choice of ``penstock tune``.
    failed : bool
        Whether ``penstock tune`` could not choose, or a fix was not written.
    """

    def __init__(self, watcher: Watcher, runs: ScriptRuns, ending: Ending) -> None:
        self.runs = runs
        self.options = options = runs.options
        self.recording = watcher.record(command=runs.target, ended=ending.text)
        self.diagnosis: Diagnosis | None = None
        self.fix: Fix | None = None
        self._site: LoaderSite | None = None
        self.lines, self.failed = "", False
        chosen = watcher.chosen()
        if self.recording is None or chosen is None:
            return
        for watch in watcher.watches:
            _end_workers(watch)
        ranks = None if options.speed is not None else merge_ranks(self.recording)
        if options.speed is not None or self.recording.rank:
            return
        gc.collect()  # iterators that the script's last traceback held
        if options.tune:
            self._tune(self.recording, chosen)
            return
        if ranks is not None and ranks.recording is not None:
            self.recording = ranks.recording  # what holds up the straggler holds up all
        self.diagnosis = self._diagnose(self.recording, chosen, ending)
        if ranks is not None:
            self.diagnosis.ranks = ranks.rows
            self.diagnosis.notes[:0] = ranks.sentences
        elif options.fix and ending.kind in {"steps", "finished"}:
            self._site = find_site(watcher, chosen)
        if ending.kind == "error":
            self.diagnosis.notes.insert(0, f"The script crashed ({ending.text.removeprefix('error: ')}).")

    def report(self, ending: Ending) -> int:
        """Print and write the reports of a script that has ended.

        Returns
        -------
        int
            The exit code: the script's own if it is not 0, else what ``fail_if_waiting`` asks for.
        """
        if self.recording is None:
            sys.stderr.write(
                "penstock doctor: no batch was taken from a DataLoader in this process; there is nothing to report\n"
            )
            return ending.code
        if self.options.speed is not None:
            Path(self.options.speed).write_text(str(measure_rate(self.recording, self.options.skip_s)))
        if self.lines:
            _clear_progress()
            sys.stderr.write(self.lines)
            return ending.code or int(self.failed)
        if self.diagnosis is None:
            return ending.code
        if self.options.fix:
            self._find_fix(self.diagnosis)
        try:
            self._write(self.diagnosis)
        except OSError as error:  # of a file that was asked for; the text is printed before
            sys.stderr.write(f"penstock doctor: the report cannot be written: {error}\n")
            return ending.code or 1
        return ending.code or int(self.failed) or exit_code(self.diagnosis, self.options.fail_if_waiting)

    def _find_fix(self, diagnosis: Diagnosis) -> None:
        """Measure changes with the script itself."""
        if self._site is None:
            diagnosis.notes.append("The script was not run again: it failed, or several ranks train together.")
        else:
            speed, budget_s = self.runs.measure_speed, self.options.budget_s
            self.fix = find_fix(diagnosis, self._site, speed, budget_s, _choose_progress())

    def _diagnose(self, recording: Recording, chosen: LoaderWatch, ending: Ending) -> Diagnosis:
        budget_s = self.options.budget_s
        tries = self.options.trials and budget_s > 0 and ending.kind in {"steps", "finished"}
        return diagnose(
            recording, chosen.loader, places=chosen.places, budget_s=budget_s, trials=tries, progress=_choose_progress()
        )

    def _tune(self, recording: Recording, chosen: LoaderWatch) -> None:
        """Choose workers and prefetch for the script's own steps."""
        shape = examine(recording, chosen.loader).shape
        try:
            tuning = tune(
                chosen.loader, step_s=shape.wall_ns / 1e9, step_cpu_s=shape.cpu_ns / 1e9,
                memory_bytes=self.options.memory_bytes, budget_s=self.options.budget_s, progress=_choose_progress(),
            )  # fmt: skip
        except PenstockError as error:
            self.lines, self.failed = f"penstock doctor: {error}\n", True
        else:
            self.lines = f"\n{tuning}\nMore: penstock explain limit-workers\n"
            if self.options.json is not None:
                write_json(tuning, self.options.json)

    def _print_fix(self, fix: Fix) -> bool:
        """Print the fix, and write it where that is asked for; returns whether it was written."""
        text, written = str(fix), False
        if can_draw(sys.stderr):
            text = re.sub(
                r"^([-+]).*$", lambda line: f"\x1b[3{_COLOURS[line[1]]}m{line[0]}\x1b[m", text, flags=re.MULTILINE
            )
        sys.stderr.write(f"\n{text}\n")
        if fix.diff and not self.options.write:
            sys.stderr.write(
                "--fix --write writes it into the file, and keeps a copy; or save the lines for `git apply`\n"
            )
        elif fix.diff:
            try:
                sys.stderr.write(f"penstock doctor: {fix.write()}\n")
                written = True
            except OSError as error:
                sys.stderr.write(f"penstock doctor: the fix is not written: {error}\n")
                self.failed = True
        return written

    def _write(self, diagnosis: Diagnosis) -> None:
        options = self.options
        _clear_progress()
        sys.stderr.write(f"\n{format_report(diagnosis)}\n")
        written = self.fix is not None and self._print_fix(self.fix)
        if options.json is not None:
            write_json(diagnosis, options.json, None if self.fix is None else self.fix.to_json(written=written))
        if options.html is not None:
            write_html(diagnosis, options.html)
            sys.stderr.write(f"penstock doctor: {Path(options.html).absolute()}: written\n")
        if options.github:
            print_annotations(diagnosis)


def exit_code(diagnosis: Diagnosis, fail_if_waiting: float | None) -> int:
    """Return the exit code that a limit of waiting asks for.

    Parameters
    ----------
    diagnosis : Diagnosis
        Of the script.
    fail_if_waiting : float, optional
        The greatest part of the time that may be waiting, 0..1; None: any.

    Returns
    -------
    int
        1 if the script waits longer, or if its waiting is no number; else 0. Of several ranks, the one that waits
        longest counts.
    """
    if fail_if_waiting is None:
        return 0
    of_ranks = (row.get("waiting") for row in diagnosis.ranks)
    waiting = [diagnosis.verdict.waiting, *(each for each in of_ranks if each is not None)]
    return 0 if all(each <= fail_if_waiting for each in waiting) else 1


def _end_workers(watch: LoaderWatch) -> None:
    """End the workers of a loader: the script is over, and trials need the shared memory of their batches."""
    kept = vars(watch.loader).get("_iterator")  # with persistent_workers
    for iterator in (kept, watch.iterator()):
        shutdown = getattr(iterator, "_shutdown_workers", None)
        if shutdown is None:
            continue
        shutdown()
        getattr(iterator, "_task_info", {}).clear()  # torch's: batches that were received
        if iterator is kept:
            vars(watch.loader)["_iterator"] = None


def _choose_progress() -> Callable[[str], None]:
    if can_draw(sys.stderr):
        return _show_progress
    report = report_lines(sys.stderr)
    return lambda line: report(f"penstock doctor: {line}")


def _show_progress(line: str) -> None:
    sys.stderr.write(f"\r\x1b[K{line}")
    sys.stderr.flush()


def _clear_progress() -> None:
    if can_draw(sys.stderr):
        sys.stderr.write("\r\x1b[K")
