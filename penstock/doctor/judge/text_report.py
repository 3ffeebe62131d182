"""The result of watching a training script, and its text: what ``penstock doctor`` prints.

The verdict comes first, because it may be all that a person reads. Text of datasets (keys, paths) is escaped, so that
it cannot change the terminal.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.doctor.checks.findings import Finding
from penstock.doctor.judge.diagnosis import Absence, Advice, SlowSample, StageCost, Verdict
from penstock.doctor.trials.turns import Measured
from penstock.doctor.watching.recording import Recording
from penstock.wording import counted, escape_unprintable, format_time_us

__all__ = [
    "ABSENCE_COLUMNS",
    "ESTIMATED",
    "STAGE_COLUMNS",
    "Diagnosis",
    "describe_ending",
    "format_absence",
    "format_gain",
    "format_measured",
    "format_report",
    "format_stage",
]

STAGE_COLUMNS = ("stage", "per sample", "share")
ABSENCE_COLUMNS = ("without", "the script", "the loader")
ESTIMATED = "* estimated: the whole sample is timed, its parts are found by stack sampling"
_SAMPLES_SHOWN = 5
_ENDINGS = {
    "steps": "It was ended after enough steps.",
    "finished": "It ran to its end.",
    "interrupted": "It was interrupted.",
}


@dataclass(slots=True)
class Diagnosis:
    """What watching has found. ``print`` shows it as text.

    Parameters
    ----------
    verdict : Verdict
        Which stage limits.
    stages : list of StageCost
        In the order a sample passes them.
    advice : list of Advice
        The most useful first; empty if nothing can be gained.
    samples : list of SlowSample
        The slowest first.
    findings : list of Finding
        Traps in the loader, the dataset and the script.
    notes : list of str
        What else matters: throttling, other programs, a crash of the script, what could not be measured.
    recording : Recording
        What it was computed from; of rank 0, where there are several.
    ranks : list of dict
        Of each rank: its waiting, its samples per second; who waited for whom.
    """

    verdict: Verdict
    stages: list[StageCost]
    advice: list[Advice]
    samples: list[SlowSample]
    findings: list[Finding]
    notes: list[str]
    recording: Recording
    ranks: list[dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        return format_report(self)


def format_report(diagnosis: Diagnosis, *, width: int = 80) -> str:
    """Format a diagnosis as plain text.

    Parameters
    ----------
    diagnosis : Diagnosis
        Of a script, or of a block.
    width : int
        Characters in a line; only text that has no spaces is longer.

    Returns
    -------
    str
        Without a newline at the end. If nothing can be gained and there is nothing else to say, three statements: the
        verdict, the speeds, and the page of the verdict.
    """
    is_brief = diagnosis.verdict.stage in {"none", "step"} and not diagnosis.advice
    parts = [
        [*_wrap(diagnosis.verdict.text, width), *([] if is_brief else [""]), *_list_speeds(diagnosis, width, is_brief)],
        [] if is_brief else _list_stages(diagnosis.stages),
        _list_absences(diagnosis.verdict.absences),
        _list_advice(diagnosis.advice, width),
        [] if is_brief else _list_samples(diagnosis.samples, width),
        _list_findings(diagnosis.findings, width),
        _list_ranks(diagnosis, width),
        _list_notes(diagnosis, width),
        [f"More: penstock explain limit-{diagnosis.verdict.stage}"],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def format_stage(cost: StageCost) -> tuple[str, ...]:
    """Format a row of :data:`STAGE_COLUMNS`."""
    name = f"{cost.stage} *" if cost.is_estimated else cost.stage
    return name, format_time_us(cost.us_per_sample), f"{cost.share:.0%}" if cost.share else ""


def format_gain(ratio: float) -> str:
    """Return a ratio of speeds as a gain.

    Examples
    --------
    >>> format_gain(1.25), format_gain(0.9), format_gain(3.4)
    ('+25%', '-10%', '3.4 times')
    """
    return f"{ratio:.1f} times" if ratio >= 2.95 else f"{100 * (ratio - 1):+.0f}%"


def format_measured(measured: Measured | None) -> str:
    """Return a gain that was measured, with its spread; "not tried" of a fact."""
    if measured is None:
        return "not tried"
    gain, lowest, highest = (format_gain(value) for value in (measured.median, measured.lowest, measured.highest))
    if measured.count < 2:
        return f"{gain} (once)"
    return f"{gain} ({lowest} to {highest}, {counted(measured.count, 'run')})"


def describe_ending(recording: Recording) -> str:
    """Return how the script ended, in a sentence; empty if that is not known."""
    if recording.ended.startswith("exit "):
        return f"The script ended with exit code {recording.ended.removeprefix('exit ')}."
    if recording.ended.startswith("error: "):
        return f"The script crashed: {recording.ended.removeprefix('error: ')}"
    return _ENDINGS.get(recording.ended, "")


def _list_speeds(diagnosis: Diagnosis, width: int, is_brief: bool) -> list[str]:
    verdict, recording = diagnosis.verdict, diagnosis.recording
    alone = _count(verdict.loader) if verdict.loader else "not measured"
    if is_brief:
        speeds = f"delivered {_count(verdict.delivered)}, trainer {_count(verdict.trainer)}, loader alone {alone}"
        return list(_wrap(f"Samples/s: {speeds}. Waiting: {verdict.waiting:.1%}.", width))
    lines = [
        f"The script takes      {_count(verdict.delivered):>10} samples/s",
        f"The trainer can take  {_count(verdict.trainer):>10} samples/s",
        f"The loader gives alone{alone if verdict.loader else '?':>11} samples/s",
        f"Waiting for batches   {verdict.waiting:>10.0%} of the time",
    ]
    device = _describe_step(recording)
    return [*lines, *([device] if device else [])]


def _describe_step(recording: Recording) -> str:
    """Return how long a step takes, and what it consists of."""
    steps = recording.steps
    kept = np.arange(len(steps.step_ns)) >= recording.warm_up
    if not kept.any():
        return ""
    mean_ns = float(steps.step_ns[kept].mean())
    parts = []
    copy_ns = float(steps.copy_ns[kept].mean())
    if copy_ns > 0:
        parts.append(f"copies to the device {format_time_us(copy_ns / 1000)}")
    seen = kept & (steps.device_ns >= 0)
    if seen.any() and mean_ns > 0:
        parts.append(f"device busy {min(float(steps.device_ns[seen].mean()) / mean_ns, 1.0):.0%}")
    bound = recording.device.get("launch_bound")
    if bound is not None and seen.any():
        parts.append(f"{bound:.0%} of the steps wait for Python" if bound >= 0.05 else "Python is ahead of it")
    of_it = f" ({', '.join(parts)})" if parts else ""
    return f"One step takes        {format_time_us(mean_ns / 1000):>10}{of_it}"


def _list_stages(stages: Sequence[StageCost]) -> list[str]:
    rows = [STAGE_COLUMNS, *map(format_stage, stages)] if stages else []
    lines = [f"{name:<12}{mean:>12}{share:>8}".rstrip() for name, mean, share in rows]
    return [*lines, *([ESTIMATED] if any(cost.is_estimated for cost in stages) else [])]


def format_absence(absence: Absence) -> tuple[str, str, str]:
    """Format a row of :data:`ABSENCE_COLUMNS`; without a gain, where the stage was not left out."""
    if absence.measured is None:
        return absence.stage, "-", f"{absence.part:.0%} of it, as observed"
    return absence.stage, format_gain(absence.gain), format_measured(absence.measured)


def _list_absences(absences: Sequence[Absence]) -> list[str]:
    rows = [ABSENCE_COLUMNS, *map(format_absence, sorted(absences, key=lambda each: -each.part))] if absences else []
    lines = [f"{stage:<12}{gain:>12}    {how}" for stage, gain, how in rows]
    is_rest = any(each.stage == "augment" and each.measured is not None for each in absences)
    return [*lines, *(["augment: of all work on samples, what reading and decoding leave"] if is_rest else [])]


def _list_advice(advice: Sequence[Advice], width: int) -> list[str]:
    lines = ["What to change, and what the whole training gains"] if advice else []
    for number, each in enumerate(advice, 1):
        lines += _wrap(f"{number}. {each.change}", width, "  ", "     ")
        if each.measured is not None:
            lines.append(f"     measured {format_measured(each.measured)}")
        lines += _wrap(each.reason, width, "     ")
        lines += [f"     {escape_unprintable(line)}" for line in each.code.splitlines()]
    return lines


def _list_samples(samples: Sequence[SlowSample], width: int) -> list[str]:
    lines = ["Slowest samples", f"{'ms':>10}{'index':>12}  key"] if samples else []
    for each in samples[:_SAMPLES_SHOWN]:
        head = f"{each.ms:>10,.1f}{each.index:>12}  "
        key = escape_unprintable(each.key) or "-"
        room = max(width - len(head), 20)
        lines.append(head + (key if len(key) <= room else f"...{key[3 - room :]}"))
    return lines


def _list_findings(findings: Sequence[Finding], width: int) -> list[str]:
    lines = ["Found in the loader, the dataset and the script"] if findings else []
    for each in findings:
        lines += _wrap(f"{each.severity}: {each.where}  [{each.rule}]", width, "  ", "    ")
        lines += _wrap(each.what, width, "    ")
        if each.cost:
            lines += _wrap(f"costs {each.cost}", width, "    ")
        lines += _wrap(f"-> {each.advice}", width, "    ", "       ")
        lines.append(f"       More: penstock explain {each.rule}")
    return lines


def _list_ranks(diagnosis: Diagnosis, width: int) -> list[str]:
    lines = [f"{'rank':>6}{'samples/s':>12}{'waiting':>9}  waits for rank"] if diagnosis.ranks else []
    for row in diagnosis.ranks:
        speed, waiting, other = (row.get(name) for name in ("samples_per_s", "waiting", "waited_for"))
        lines.append(
            f"{row.get('rank', '?'):>6}{'?' if speed is None else _count(speed):>12}"
            f"{'?' if waiting is None else f'{waiting:.0%}':>9}  {'-' if other is None else other}"[:width]
        )
    return lines


def _list_notes(diagnosis: Diagnosis, width: int) -> list[str]:
    return [line for note in diagnosis.notes for line in _wrap(note, width, "- ", "  ")]


def _wrap(text: str, width: int, first: str = "", further: str | None = None) -> Iterator[str]:
    further = first if further is None else further
    for paragraph in text.splitlines() or [""]:
        yield from textwrap.wrap(
            escape_unprintable(paragraph), width, initial_indent=first, subsequent_indent=further,
            break_on_hyphens=False, break_long_words=False,
        )  # fmt: skip


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"
