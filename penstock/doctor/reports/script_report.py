"""The diagnosis of a script and its reports.

::

    the last step that is watched ── examine ──┐     the script's objects and files are still there
    the script unwinds                         │
    the script has ended ──────────────────────┴── report

A script that ends before enough steps were seen is examined when it has ended.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.doctor.trials.rerunning import rerun_with_advice
from penstock.doctor.watching.ranks import merge_ranks, summarize_rank

if TYPE_CHECKING:
    from penstock.doctor.judge.diagnosis import Diagnosis
    from penstock.doctor.trials.run_options import RunOptions
    from penstock.doctor.watching.loaders.loader_watch import LoaderWatch
    from penstock.doctor.watching.recording import Recording
    from penstock.doctor.watching.script import Ending
    from penstock.doctor.watching.watcher import Watcher

__all__ = ["Examination", "examine_script", "report"]


@dataclass(slots=True)
class Examination:
    """What was found in a script; nothing of it needs the script's objects.

    Parameters
    ----------
    recording : Recording
        Of the loader that is reported.
    diagnosis : Diagnosis, optional
        None on ranks other than 0, and where no report is wanted.
    lines : str
        What is printed in the place of all reports: the choice of ``penstock tune``.
    failed : bool
        Whether ``penstock tune`` could not choose.
    """

    recording: Recording
    diagnosis: Diagnosis | None = None
    lines: str = ""
    failed: bool = False


def examine_script(
    watcher: Watcher | None, options: RunOptions, target: Sequence[str], ending: Ending
) -> Examination | None:
    """Record, compare the ranks, and make a diagnosis with its trials; None if no loader was used.

    Called by the loop of the script itself when enough steps were seen, since what the dataset reads may be removed
    when the script unwinds; else when the script has ended.
    """
    recording = None if watcher is None else watcher.record(command=list(target), ended=ending.text)
    if watcher is None or recording is None:
        return None
    for watch in watcher.watches:
        _end_workers(watch)
    examination = Examination(recording)
    if options.speed is not None:
        return examination
    ranks = merge_ranks(recording)
    if recording.rank:
        return examination
    chosen = watcher.chosen()
    assert chosen is not None, "what was recorded was chosen"
    gc.collect()  # iterators that the script's last traceback held
    if options.tune:
        _tune(examination, chosen.loader, options)
        return examination
    if ranks is not None and ranks.recording is not None:
        examination.recording = ranks.recording  # what holds up the straggler holds up all
    diagnosis = _diagnose(examination.recording, chosen, options, ending)
    if ranks is not None:
        diagnosis.ranks = ranks.rows
        diagnosis.notes[:0] = ranks.sentences
    if ending.kind == "error":
        diagnosis.notes.insert(0, f"The script crashed ({ending.text.removeprefix('error: ')}).")
    examination.diagnosis = diagnosis
    return examination


def report(
    examination: Examination | None, watcher: Watcher | None, options: RunOptions, target: Sequence[str], ending: Ending
) -> int:
    """Print and write the reports of a script that has ended.

    Returns
    -------
    int
        The exit code: the script's own if it is not 0, else what ``fail_if_waiting`` asks for.
    """
    if examination is None:
        what = "no DataLoader was imported" if watcher is None else "no batch was taken from a DataLoader"
        _say(f"{what} in this process; there is nothing to report")
        return ending.code
    if options.speed is not None:
        Path(options.speed).write_text(str(summarize_rank(examination.recording)["samples_per_s"]))
    if examination.lines:
        _clear_progress()
        sys.stderr.write(examination.lines)
        return ending.code or int(examination.failed)
    diagnosis = examination.diagnosis
    if diagnosis is None:
        return ending.code
    if options.rerun:
        rerun_with_advice(diagnosis, options, target)
    _write(diagnosis, examination, options)
    if ending.code:
        return ending.code
    from penstock.doctor.reports.exit_codes import exit_code

    return int(exit_code(diagnosis, options.fail_if_waiting))


def _say(line: str) -> None:
    sys.stderr.write(f"penstock doctor: {line}\n")


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


def _diagnose(recording: Recording, chosen: LoaderWatch, options: RunOptions, ending: Ending) -> Diagnosis:
    from penstock.doctor.judge.analysis import diagnose

    tries = options.trials and options.budget_s > 0 and ending.kind in {"steps", "finished"}
    progress = _show_progress if sys.stderr.isatty() else None
    diagnosis: Diagnosis = diagnose(
        recording, chosen.loader, places=chosen.places, budget_s=options.budget_s, trials=tries, progress=progress
    )
    return diagnosis


def _tune(examination: Examination, loader: Any, options: RunOptions) -> None:
    """Choose workers and prefetch for the script's own steps."""
    from penstock.doctor.judge.situation import examine
    from penstock.doctor.trials.tuning import tune
    from penstock.errors import PenstockError

    shape = examine(examination.recording, loader).shape
    progress = _show_progress if sys.stderr.isatty() else None
    try:
        tuning = tune(
            loader, step_s=shape.wall_ns / 1e9, step_cpu_s=shape.cpu_ns / 1e9, memory_bytes=options.memory_bytes,
            budget_s=options.budget_s, progress=progress,
        )  # fmt: skip
    except PenstockError as error:
        examination.lines, examination.failed = f"penstock doctor: {error}\n", True
    else:
        examination.lines = f"\n{tuning}\n"


def _show_progress(line: str) -> None:
    sys.stderr.write(f"\r\x1b[K{line}")
    sys.stderr.flush()


def _clear_progress() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")


def _write(diagnosis: Diagnosis, examination: Examination, options: RunOptions) -> None:
    from penstock.doctor.reports.text_report import format_report

    _clear_progress()
    sys.stderr.write(f"\n{format_report(diagnosis)}\n")
    if options.json is not None:
        from penstock.doctor.reports.json_report import write_json

        write_json(diagnosis, options.json)
    if options.html is not None:
        from penstock.doctor.reports.html_report import write_html

        write_html(diagnosis, options.html)
        _say(f"{Path(options.html).absolute()}: written")
    if options.trace is not None:
        from penstock.doctor.reports.trace_file import write_trace

        write_trace(examination.recording, options.trace)
    if options.github:
        from penstock.doctor.reports.github_report import print_annotations

        print_annotations(diagnosis)
