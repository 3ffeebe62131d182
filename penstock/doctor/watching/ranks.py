"""Several processes that train together: each writes what it has seen, and rank 0 says who waited for whom.

::

    rank 0, 1, 2 ...   Recording ──> TMP/penstock-doctor-ranks-UID-RUN/rank-N.npz, rank-N.json  (whole, then renamed)
    rank 0             waits for all of them, a minute at most ──> rows, sentences, the straggler's recording

Processes that train together take their steps together. One that waits for data comes late; the others wait for it in
their steps, where gradients are summed. So the straggler is the one with the least time in its steps and the most
waiting; the surplus of the others' steps is what they wait for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock.doctor.watching.recording import BATCH, Recording, load_recording, save_recording
from penstock.stores.common.regular_file import replace_json

__all__ = ["RankComparison", "compare_ranks", "measure_rate", "merge_ranks", "summarize_rank"]

_PATIENCE_S: Final = 60.0
_POLL_S: Final = 0.05
_MUCH: Final = 0.05
"""Part of the time of a step, from which on waiting for another rank is named."""
_SLOW: Final = 1.3
"""A worker that takes so many times what the others take is slower."""


@dataclass(slots=True)
class RankComparison:
    """What all ranks have seen."""

    rows: list[dict[str, Any]]
    """One for each rank: ``rank``, ``waiting`` (0..1), ``samples_per_s``, ``wait_ms`` and ``step_ms`` of a step,
    ``waited_for`` (a rank, or None), ``waited_ms`` of a step, ``slowest_worker``, ``host``."""
    sentences: list[str] = field(default_factory=list)
    """Who is the straggler, and who waits for it; who has not reported."""
    straggler: int = -1  # the rank that the others wait for; -1 if there is none
    recording: Recording | None = None  # the straggler's, if it is another rank: what holds it up holds up all


def merge_ranks(recording: Recording, *, patience_s: float = _PATIENCE_S) -> RankComparison | None:
    """Write this rank's part; on rank 0, wait for all parts and compare them.

    Parameters
    ----------
    recording : Recording
        Of this rank.
    patience_s : float
        Most seconds to wait for the others.

    Returns
    -------
    RankComparison, optional
        None on other ranks, and where a process trains alone.
    """
    if recording.world_size < 2:  # alone
        return None
    folder = _shared_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write_part(folder, recording)
    if recording.rank:
        return None
    parts = _read_parts(folder, recording.world_size, patience_s, _find_beginning_s(recording))
    ranks = compare_ranks(parts)
    if ranks.straggler > 0:
        with contextlib.suppress(OSError, ValueError, KeyError):  # then rank 0 is diagnosed
            ranks.recording = load_recording(folder / f"rank-{ranks.straggler}.npz")
    shutil.rmtree(folder, ignore_errors=True)
    missing = sorted(set(range(recording.world_size)) - {part["rank"] for part in parts})
    if missing:
        names = ", ".join(map(str, missing))
        ranks.sentences.append(f"Nothing was heard of rank {names} within {patience_s:g} seconds: not compared.")
    return ranks


def measure_rate(recording: Recording, skip_s: float = 0.0) -> float:
    """Return samples per second of the steps, without those that end in the first ``skip_s`` seconds of them.

    All of them count where none comes later.
    """
    steps = recording.steps
    kept = ~steps.replayed & (steps.step_ns >= 0)
    spent, samples = steps.wait_ns[kept] + steps.step_ns[kept], steps.samples[kept]
    late = np.cumsum(spent) > skip_s * 1e9
    if late.any():
        spent, samples = spent[late], samples[late]
    return float(samples.sum() / spent.sum() * 1e9) if spent.sum() else 0.0


def summarize_rank(recording: Recording) -> dict[str, Any]:
    """Return what other ranks need to know of this one; numbers and text only."""
    steps = recording.steps
    kept = ~steps.replayed & (steps.step_ns >= 0)
    wait, step = steps.wait_ns[kept], steps.step_ns[kept]
    total = int(wait.sum() + step.sum())
    events = recording.events
    return {
        "rank": recording.rank,
        "host": os.uname().nodename,
        "steps": len(wait),
        "waiting": float(wait.sum() / total) if total else 0.0,
        "samples_per_s": measure_rate(recording),
        "wait_ms": float(wait.mean() / 1e6) if len(wait) else 0.0,
        "step_ms": float(step.mean() / 1e6) if len(step) else 0.0,
        "slowest_worker": _find_slow_worker(events),
    }


def _find_slow_worker(events: Any) -> int:
    """Return the worker whose batches take much longer than those of the others; -1 if there is none."""
    batches = events[events["stage"] == BATCH]
    workers = np.unique(batches["worker"])
    if len(workers) < 2:  # none to compare with
        return -1
    times = [float(np.median((batches["end"] - batches["start"])[batches["worker"] == worker])) for worker in workers]
    most = int(np.argmax(times))
    others = float(np.median(np.delete(times, most)))
    return int(workers[most]) if times[most] > _SLOW * others else -1


def compare_ranks(parts: Sequence[dict[str, Any]]) -> RankComparison:
    """Say which rank the others wait for.

    ``parts``: of :func:`summarize_rank`, in any order.
    """
    rows = [{**part, "waited_for": None, "waited_ms": 0.0} for part in sorted(parts, key=lambda part: part["rank"])]
    if len(rows) < 2:  # nothing to compare
        return RankComparison(rows)
    straggler = max(rows, key=lambda row: row["wait_ms"])
    least = min(row["wait_ms"] for row in rows)
    whole = straggler["wait_ms"] + straggler["step_ms"]
    if straggler["wait_ms"] - least < _MUCH * whole:
        return RankComparison(rows, ["All ranks wait equally long for data: none holds up the others."])
    waiting = []
    for row in rows:
        surplus = row["step_ms"] - straggler["step_ms"]
        if row is not straggler and surplus > _MUCH * whole:
            row["waited_for"], row["waited_ms"] = straggler["rank"], surplus
            waiting.append(row)
    sentences = [_name_straggler(straggler, least)]
    if waiting:
        names = ", ".join(f"rank {row['rank']} {row['waited_ms']:.0f} ms" for row in waiting)
        sentences.append(f"In each step the others wait for rank {straggler['rank']}: {names}.")
    return RankComparison(rows, sentences, straggler["rank"])


def _name_straggler(row: dict[str, Any], least: float) -> str:
    where = f"Rank {row['rank']} holds up the others: it waits {row['wait_ms']:.0f} ms for each batch, "
    where += f"the quickest rank {least:.0f} ms."
    if row["slowest_worker"] >= 0:
        where += f" Its worker {row['slowest_worker']} is slower than its other workers."
    return where


# Files.


def _shared_folder() -> Path:
    """A folder that the ranks of one run on one machine find: by the launcher's variables, else by the launcher."""
    run = os.environ.get("TORCHELASTIC_RUN_ID", "")
    port = os.environ.get("MASTER_PORT", "")
    if run in {"", "none"}:
        run = f"{os.environ.get('MASTER_ADDR', 'local')}-{port}" if port else f"parent-{os.getppid()}"
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", f"{run}-{port or '0'}-{attempt}")
    return Path(tempfile.gettempdir()) / f"penstock-doctor-ranks-{os.getuid()}-{name}"


def _find_beginning_s(recording: Recording) -> float:
    """Return when the first step began, as file systems count time."""
    start = recording.steps.start_ns
    return time.time() - (time.perf_counter_ns() - int(start.min())) / 1e9 if len(start) else 0.0


def _write_part(folder: Path, recording: Recording) -> None:
    if recording.rank:
        save_recording(recording, folder / f"rank-{recording.rank}.npz")
    replace_json(folder / f"rank-{recording.rank}.json", summarize_rank(recording), sync=False)


def _read_parts(folder: Path, world_size: int, patience_s: float, since_s: float) -> list[dict[str, Any]]:
    """Return the parts of all ranks; after ``patience_s``, of those that there are.

    What is older than ``since_s`` is of a run that was killed: ranks that train together end after each has begun.
    """
    deadline = time.monotonic() + patience_s
    found: dict[int, dict[str, Any]] = {}
    while True:
        for rank in set(range(world_size)) - set(found):
            path = folder / f"rank-{rank}.json"
            if path.exists() and path.stat().st_mtime >= since_s:
                found[rank] = json.loads(path.read_text())
        if len(found) == world_size or time.monotonic() > deadline:
            break
        time.sleep(_POLL_S)
    return [found[rank] for rank in sorted(found)]
