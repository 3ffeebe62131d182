"""Runs the stages: a process each, with a limit; what each has found is in ``session.json`` as soon as it has ended.

::

    left of the minutes x share of the stage / shares that are left = its limit: what a stage leaves is the next ones'

A stage ends in one of these states. In all of them what it had saved until then is kept, and the next stage runs.

======== =======================================================
done     it ended well
skipped  it has nothing to do here; a sentence says why
failed   it ended with an exit code; the end of its log is kept
crashed  a signal ended it
limit    it was ended, with all that it had started, at its limit
======== =======================================================
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

from benches.device.goals import judge
from benches.device.program import write_json
from benches.device.report import write_report

__all__ = ["STAGES", "Plan", "Session"]

END_S: Final = 3.0
"""For the report."""

FORMAT: Final = 1


@dataclass(frozen=True)
class Plan:
    """A stage as the session sees it.

    Parameters
    ----------
    name : str
        In ``session.json``.
    share : float
        Of the session's time, in proportion to the other stages'.
    command : sequence of str
        The program and its first arguments; ``--work``, ``--result``, ``--seconds`` and ``--rehearse`` follow.
    """

    name: str
    share: float
    command: Sequence[str]


def _plan(name: str, share: float, *module: str) -> Plan:
    first, *others = module or (name,)
    return Plan(name, share, (sys.executable, "-m", f"benches.device.{first}", *others))


STAGES: Final = (
    _plan("versions", 12),
    _plan("pixels", 16),
    _plan("kernels", 12),
    _plan("loaders", 44),
    _plan("training", 18),
    _plan("tests", 18, "testing", "tests"),
    _plan("sanitizer", 14, "testing", "sanitizer"),
)
"""In this order, so that a session that is cut off has the figures of the goals."""


class Session:
    """The stages of one run.

    Parameters
    ----------
    work : Path
        The unpacked folder: photographs.lmdb, malformed, tests, benches.
    out : Path
        Where ``session.json``, ``session.md`` and ``log.txt`` are written.
    minutes : float
        For all stages.
    rehearse : bool
        Whether the kernels run on the processor, with few images: figures are not figures then.
    environment : mapping, optional
        Variables of the stages, besides this process' own.
    """

    def __init__(
        self, work: Path, out: Path, minutes: float, *, rehearse: bool, environment: Mapping[str, str] | None = None
    ) -> None:
        self._work, self._out, self._rehearse = work, out, rehearse
        self._end = time.monotonic() + 60 * minutes - END_S
        self._environment = os.environ | (environment or {})
        self.record: dict[str, Any] = {
            "format": FORMAT,
            "rehearsed": rehearse,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "minutes": minutes,
            "stages": {},
            "goals": [],
        }

    def run(self, plans: Sequence[Plan]) -> dict[str, Any]:
        """Run the stages in order; returns what ``session.json`` holds."""
        self._out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="device-session-") as folder, _ended_by_signals():
            for number, plan in enumerate(plans):
                shares = sum(each.share for each in plans[number:])
                limit_s = max(self._end - time.monotonic(), 0) * plan.share / shares
                self._run_stage(plan, limit_s, Path(folder) / f"{plan.name}.json")
        return self.record

    def _run_stage(self, plan: Plan, limit_s: float, result: Path) -> None:
        record: dict[str, Any] = {"state": "running", "limit_s": round(limit_s, 1)}
        self.record["stages"][plan.name] = record
        log = self._out / "log.txt"
        command = [*plan.command, "--work", str(self._work), "--result", str(result), "--seconds", f"{limit_s - 2:.1f}"]
        print(f"==> {plan.name}, at most {limit_s:.0f} s", flush=True)
        started = time.monotonic()
        with log.open("ab") as output:
            output.write(f"==> {plan.name}\n".encode())
            output.flush()
            first = output.tell()
            process = subprocess.Popen(
                [*command, *(["--rehearse"] if self._rehearse else [])],
                cwd=self._work, env=self._environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
            try:
                code = self._wait(process, started + limit_s, record, result)
            except BaseException:
                record["state"] = "interrupted"
                raise
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # also what the stage has left running
                process.wait()
                record["seconds"] = round(time.monotonic() - started, 1)
                _read_figures(record, result)
                self._write()
        record |= _describe_end(code, limit_s)
        if record["state"] == "done" and "skipped" in record:
            record |= {"state": "skipped", "reason": record.pop("skipped")}
        if record["state"] not in {"done", "skipped"}:
            with log.open("rb") as written:
                written.seek(first)
                record["log"] = written.read()[-3000:].decode(errors="replace")
        self._write()
        print(f"    {record['state']} after {record['seconds']} s {record.get('reason', '')}", flush=True)

    def _wait(self, process: subprocess.Popen[bytes], end: float, record: dict[str, Any], result: Path) -> int | None:
        """The exit code, or None at the limit; what the stage saves meanwhile is written."""
        seen = 0.0
        while time.monotonic() < end:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(min(1.0, max(end - time.monotonic(), 0.01)))
            if result.exists() and (changed := result.stat().st_mtime) != seen:
                seen = changed
                _read_figures(record, result)
                self._write()
        return process.poll()

    def _write(self) -> None:
        self.record["goals"] = judge(self.record)
        write_json(self._out / "session.json", self.record)
        write_report(self.record, self._out / "session.md")


def _read_figures(record: dict[str, Any], result: Path) -> None:
    try:
        record["figures"] = json.loads(result.read_text())
    except (OSError, ValueError):
        record.setdefault("figures", {})
    if "skipped" in record["figures"] and isinstance(record["figures"]["skipped"], str):
        record["skipped"] = record["figures"].pop("skipped")


def _describe_end(code: int | None, limit_s: float) -> dict[str, Any]:
    if code is None:
        return {"state": "limit", "reason": f"it was ended after {limit_s:.0f} s"}
    if code < 0:
        return {"state": "crashed", "reason": f"by {signal.Signals(-code).name}"}
    return {"state": "done"} if code == 0 else {"state": "failed", "reason": f"it ended with {code}"}


@contextlib.contextmanager
def _ended_by_signals() -> Any:
    """SIGTERM and SIGHUP raise, so that the stage is ended and what was found is written."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
