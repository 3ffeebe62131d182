"""A diagnosis as JSON, for programs: ``penstock doctor --json FILE`` writes it, ``--compare`` reads it.

The fields are documented in docs/doctor.md. A field may be added; one that changes or goes adds to :data:`VERSIONS`.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TextIO, cast

import numpy as np
import numpy.typing as npt

from penstock.doctor.judge.diagnosis import VERDICTS, Absence, Advice
from penstock.doctor.judge.text_report import Diagnosis
from penstock.doctor.trials.turns import Measured
from penstock.doctor.watching.recording import Recording
from penstock.errors import ArgumentError
from penstock.stores.common.regular_file import replacing_file
from penstock.wording import to_plain

__all__ = ["FORMAT", "VERSIONS", "compare", "open_new", "read_json", "to_json", "write_json"]

FORMAT: Final = "penstock-doctor"
VERSIONS: Final = (1, 2)
"""What is read; the last is written. Version 1 has ``advice[].predicted``, and no ``absences``."""
_COMPARED: Final = ("samples_per_s", "waiting", "verdict", "stages", "settings", "machine", "device", "command")
_CLOSE: Final = 0.1


def to_json(diagnosis: Diagnosis, fix: Mapping[str, object] | None = None) -> dict[str, Any]:
    """Return the diagnosis, and what ``--fix`` has tried, as dicts, lists, numbers and text for ``json.dumps``.

    Returns
    -------
    dict
        As documented in docs/doctor.md. Numbers that are not finite become None.
    """
    verdict, recording = diagnosis.verdict, diagnosis.recording
    report = {
        "format": FORMAT,
        "version": VERSIONS[-1],
        "verdict": {"stage": verdict.stage, "text": verdict.text},
        "waiting": verdict.waiting,
        "samples_per_s": {
            "delivered": verdict.delivered, "trainer": verdict.trainer, "loader": verdict.loader or None,
        },
        "stages": {stage.pop("stage"): stage for stage in map(asdict, diagnosis.stages)},
        "absences": {each.stage: _describe_absence(each) for each in verdict.absences},
        "advice": [_describe_advice(each) for each in diagnosis.advice],
        "fix": fix,
        "keys": [asdict(each) for each in diagnosis.samples],
        "traps": [{**asdict(each), "page": each.page} for each in diagnosis.findings],
        "notes": diagnosis.notes,
        "settings": asdict(recording.settings),
        "steps": _describe_steps(recording),
        "events": {"count": len(recording.events)},
        "command": recording.command,
        "ended": recording.ended,
        "rank": recording.rank,
        "world_size": recording.world_size,
        "ranks": diagnosis.ranks,
        "usage": [asdict(each) for each in recording.usage],
        "device": recording.device,
        "remote": recording.remote,
        "machine": recording.machine,
        "others": recording.others,
    }  # fmt: skip
    plain = to_plain(report)
    assert isinstance(plain, dict), "a dict stays a dict"
    return plain


def write_json(result: object, path: str | os.PathLike[str], fix: Mapping[str, object] | None = None) -> None:
    """Write a result to a file, a diagnosis and its fix as :func:`to_json`; the file is there whole, or not at all.

    Raises OSError if the file cannot be written.
    """
    with open_new(path) as file:
        plain = to_json(result, fix) if isinstance(result, Diagnosis) else to_plain(result)
        file.write(json.dumps(plain, indent=1, allow_nan=False) + "\n")


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what :func:`write_json` has written.

    Raises OSError if the file cannot be read. Raises ArgumentError if it is no such file, or one of a later version.
    """
    try:
        report = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{path} must be a file of `penstock doctor --json`, but is no JSON: {error}") from error
    if not isinstance(report, dict) or report.get("format") != FORMAT:
        raise ArgumentError(f"{path} must be a file of `penstock doctor --json`: its format must be {FORMAT!r}")
    if report.get("version") not in VERSIONS:
        raise ArgumentError(
            f"{path} has version {report.get('version')!r} of the format, and this penstock reads {VERSIONS[-1]} and "
            "before; read it with a later penstock"
        )
    verdict = report.get("verdict")
    if not isinstance(verdict, dict) or verdict.get("stage") not in VERDICTS:
        raise ArgumentError(f"{path} is damaged: verdict.stage must be one of {', '.join(VERDICTS)}")
    return report


def compare(a: Mapping[str, object], b: Mapping[str, object]) -> list[str]:
    """Compare two results side by side: speeds, stages, settings and machine, where they differ.

    Numbers that differ by less than a tenth are left out: such differences come and go.
    """
    runs = [dict(_flatten({name: run.get(name) for name in _COMPARED})) for run in (a, b)]
    lines = []
    for field in dict.fromkeys([*runs[0], *runs[1]]):
        values = [run.get(field) for run in runs]
        numbers = [each for each in values if isinstance(each, (int, float)) and not isinstance(each, bool)]
        low, high = (min(numbers), max(numbers)) if len(numbers) == 2 else (0.0, 0.0)
        is_close = len(numbers) == 2 and high - low <= _CLOSE * abs(high)
        if values[0] != values[1] and not is_close:
            ratio = f"{high / low:>10.2f}" if low > 0 else ""
            shown = (f"{each:.6g}" if isinstance(each, float) else str(each) for each in values)
            lines.append(f"{field:<44} {next(shown):>20} {next(shown):>20}{ratio}")
    head = f"{'different':<44} {'A':>20} {'B':>20}{'ratio':>10}"
    return [head, *lines] if lines else ["Nothing that was measured differs by more than a tenth."]


def _flatten(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield the numbers and texts in a result, by their paths; of stages the mean time alone."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            if not (path.startswith("stages.") and name != "us_per_sample"):
                yield from _flatten(each, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _flatten(each, f"{path}[{number}]")
    elif path != "verdict.text":
        yield path, value


@contextlib.contextmanager
def open_new(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """Open a text file for writing that appears whole, or not at all; compressed if its name ends in ``.gz``."""
    with replacing_file(Path(path)) as content:
        is_packed = Path(path).suffix == ".gz"
        with gzip.open(content, "wt", encoding="utf-8") if is_packed else io.TextIOWrapper(content, "utf-8") as file:
            yield cast("TextIO", file)


def _describe_absence(absence: Absence) -> dict[str, object]:
    gain = None if absence.measured is None else absence.gain
    return {"gain": gain, "part": absence.part, **_describe_measured(absence.measured)}


def _describe_advice(advice: Advice) -> dict[str, object]:
    texts = {name: getattr(advice, name) for name in ("rule", "change", "reason", "code")}
    return {**texts, **_describe_measured(advice.measured)}


def _describe_measured(measured: Measured | None) -> dict[str, object]:
    return {
        "measured": None if measured is None else measured.median,
        "spread": None if measured is None else [measured.lowest, measured.highest],
        "runs": 0 if measured is None else measured.count,
    }


def _describe_steps(recording: Recording) -> dict[str, object]:
    """The steps after the warm-up; replayed ones are counted, and left out of the times."""
    steps = recording.steps
    kept = (np.arange(len(steps.step_ns)) >= recording.warm_up) & ~steps.replayed
    on_device = kept & (steps.device_ns >= 0)
    return {
        "count": int(kept.sum()),
        "warm_up": recording.warm_up,
        "replayed": int(steps.replayed.sum()),
        "samples": int(steps.samples[kept].sum()),
        "wait_ms": _summarize(steps.wait_ns[kept]),
        "step_ms": _summarize(steps.step_ns[kept]),
        "copy_ms": _summarize(steps.copy_ns[kept]),
        "cpu_ms": _summarize(steps.cpu_ns[kept]),
        "device_ms": _summarize(steps.device_ns[on_device]),
        "ready": _mean(steps.ready[kept & (steps.ready >= 0)]),
    }


def _summarize(times_ns: npt.NDArray[np.int64]) -> dict[str, float] | None:
    if not len(times_ns):
        return None
    p50, p99 = np.percentile(times_ns, [50, 99]) / 1e6
    return {"mean": round(float(times_ns.mean()) / 1e6, 6), "p50": round(p50, 6), "p99": round(p99, 6)}


def _mean(values: npt.NDArray[np.int64]) -> float | None:
    return float(values.mean()) if len(values) else None
