"""What a recording shows of the machine and of the loader's setting: cores, other programs, threads, epochs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.doctor.judge.stage_costs import StepSummary, core_share
from penstock.doctor.trials.trial_child import StepShape
from penstock.doctor.watching.recording import BATCH, SAMPLE, Recording
from penstock.system.control_group import count_usable_cores

__all__ = [
    "count_background",
    "count_cores",
    "count_epoch_batches",
    "measure_parallelism",
    "measure_start_ns",
    "measure_step",
    "waiting_for_start",
]

_SEVERAL: Final = 1.3
_LITTLE: Final = 0.1
_OWN_THREADS: Final = 4
"""A worker computes with several threads if its process uses :data:`_SEVERAL` times the processor time of the thread
that builds, and at least :data:`_LITTLE` of a core more; the worker's main thread, that which sends, and those that
watch are no proof."""
_LACKING: Final = 0.8
"""A process that gets a smaller part of the cores that it wants lacks cores."""
_QUICK: Final = 30.0
"""The percentile that is taken then, times that part: the less it gets, the fewer steps are not interrupted."""
_FEWEST: Final = 3


def count_cores(recording: Recording) -> float:
    """Cores that the script may use."""
    return _number(recording.machine, "processor", "usable") or float(count_usable_cores())


def count_background(recording: Recording) -> float:
    """Return the mean number of threads of other programs that compete for the cores all the time.

    Linux gives each thread that can run an equal part of the cores: where the script's threads get a part of the cores
    that they want, those of other programs get the same part, and are so many more than the cores that they use.
    """
    load, others = recording.machine.get("load") or {}, _number(recording.machine, "watched", "others_cores")
    # A process that mostly sleeps waits long for little: all threads of the machine that can run are the most.
    most = max(_number(recording.machine, "load", "average_1_min"), others) if load else math.inf
    return min(others / core_share(recording, ""), most)


def _number(machine: Mapping[str, Mapping[str, object] | None], group: str, name: str) -> float:
    """Return a number of the machine's description; 0 where it is not known."""
    value = (machine.get(group) or {}).get(name)
    return float(value) if isinstance(value, (int, float)) else 0.0


def measure_parallelism(recording: Recording) -> float:
    """Threads of a worker that compute on average while it builds; 1 if that is not known."""
    events = recording.events
    ratios = []
    for usage in recording.usage:
        match = re.fullmatch(r"worker (\d+)", usage.role)
        if match is None or usage.threads <= _OWN_THREADS:
            continue
        mine = events[(events["worker"] == int(match[1])) & (events["cpu"] >= 0)]
        whole = mine[mine["stage"] == BATCH]
        rows = whole if len(whole) else mine[mine["stage"] < SAMPLE]
        own = float(rows["cpu"].sum())
        if own > 0:
            others = usage.cpu_ns - own
            ratios.append(usage.cpu_ns / own if others > _LITTLE * usage.wall_ns else 1.0)
    ratio = float(np.median(ratios)) if ratios else 1.0
    return ratio if ratio >= _SEVERAL else 1.0


def measure_step(recording: Recording, steps: StepSummary) -> StepShape:
    """Time of a step if the main process has all the cores it wants, and the processor time in it.

    Where it lacks cores, the quicker steps count: those that are interrupted take many times as long, and threads of
    OpenMP that wait for one another compute meanwhile.
    """
    share = core_share(recording, "main")
    step_ns, cpu_ns = steps.step_ns, steps.cpu_ns
    if share < _LACKING:
        times = recording.steps
        for chosen in (np.flatnonzero(times.replayed)[1:], np.flatnonzero(~times.replayed)[recording.warm_up :]):
            quick_ns = (
                float(np.percentile(times.step_ns[chosen], _QUICK * share)) if len(chosen) >= _FEWEST else step_ns
            )
            if quick_ns < step_ns and (times.replayed[chosen].all() or not recording.device):
                step_ns, cpu_ns = quick_ns, float(np.percentile(times.cpu_ns[chosen].clip(0), _QUICK * share))
    return StepShape(_time_step(step_ns, cpu_ns, share), cpu_ns)


def _time_step(step_ns: float, cpu_ns: float, share: float) -> float:
    """Time of a step without what the main process, which gets ``share`` of a core, waits for cores."""
    threads = max(1.0, math.ceil(cpu_ns / max(step_ns, 1.0) - 0.05))
    computing = min(cpu_ns / threads, step_ns)
    return max(step_ns - computing / share, 0.0) + computing


def count_epoch_batches(recording: Recording) -> int:
    """Count the batches of an epoch, if several were seen and workers start anew for each; else 0."""
    starts = _epoch_starts(recording)
    if len(starts) < 2 or recording.settings.persistent_workers or recording.settings.num_workers == 0:
        return 0
    return int(np.median(np.diff(starts)))


def _epoch_starts(recording: Recording) -> npt.NDArray[np.int64]:
    """Steps after the first that are the first of an epoch, and the end of the steps' epochs that are whole."""
    steps = recording.steps
    epochs = steps.epoch[~steps.replayed] if len(steps.epoch) == len(steps.replayed) else steps.epoch
    return np.flatnonzero(np.diff(epochs)) + 1


def waiting_for_start(recording: Recording) -> float:
    """Return the part of all waiting that falls on the first batches of short epochs; 0 where workers go on."""
    waits = recording.steps.wait_ns[~recording.steps.replayed].astype(float)
    if not count_epoch_batches(recording):
        return 0.0
    return float(waits[_epoch_starts(recording)].sum() / max(waits[recording.warm_up :].sum(), 1.0))


def measure_start_ns(recording: Recording) -> float:
    """Return what the first batch of a short epoch waits longer than the others; 0 where workers go on."""
    if not count_epoch_batches(recording):
        return 0.0
    waits = recording.steps.wait_ns[~recording.steps.replayed].astype(float)
    return max(float(np.mean(waits[_epoch_starts(recording)]) - np.median(waits)), 0.0)
