"""The pipeline that a recording shows: the input of the queueing model.

A worker's time is divided into three: processor time, time that needs no processor (a disk, a network), and time in
which it could run but had no core. The last is no cost of the stage: the model finds it itself, from the cores that all
threads share.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.doctor.judge.queueing import TrainingPipeline, Work
from penstock.doctor.judge.stage_costs import (
    BatchCosts,
    StepSummary,
    core_share,
    cost_batches,
    find_idle,
    summarize_steps,
)
from penstock.doctor.watching.recording import BATCH, SAMPLE, Recording
from penstock.system.control_group import count_usable_cores

__all__ = ["count_background", "count_cores", "measure_parallelism", "observe_pipeline", "waiting_for_start"]

_IN_SAMPLE: Final = ("read", "decode", "augment")
_MUCH_PREPARATION: Final = 0.2
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


def observe_pipeline(
    recording: Recording, costs: BatchCosts | None = None, steps: StepSummary | None = None
) -> TrainingPipeline:
    """Return the pipeline of ``recording`` with its present settings."""
    costs = cost_batches(recording) if costs is None else costs
    steps = summarize_steps(recording) if steps is None else steps
    settings = recording.settings
    threads, share = measure_parallelism(recording), _share_of_builders(recording, costs)
    own_share = core_share(recording, "main")
    step_ns, step_cpu_ns = _measure_step(recording, steps, own_share)
    build = {
        stage: Work(costs.cpu_ns[stage] * threads, find_idle(wall_ns, costs.cpu_ns[stage], share))
        for stage, wall_ns in costs.wall_ns.items()
    }
    epoch = _batches_of_short_epoch(recording)
    preparation = _take_preparation(recording, costs, build, epoch)
    return TrainingPipeline(
        workers=settings.num_workers,
        prefetch=max(settings.prefetch_factor, 1),
        cores=count_cores(recording),
        build=build if len(costs.samples) else {},
        background=count_background(recording),
        step_ns=step_ns,
        step_cpu_ns=step_cpu_ns,
        receive_ns=_time_receipt(costs, own_share),
        draw_ns=recording.draw_ns * own_share,
        threads=threads,
        in_order=settings.in_order,
        rotates=settings.library == "torch",
        startup_ns=_startup_ns(recording, epoch, preparation),
        preparation=preparation,
        epoch_batches=epoch,
    )


def count_cores(recording: Recording) -> float:
    """Cores that the script may use."""
    return _number(recording.machine, "processor", "usable") or float(count_usable_cores())


def count_background(recording: Recording) -> float:
    """Return the mean number of threads of other programs that compete for the cores all the time.

    Linux gives each thread that can run an equal part of the cores: where the script's threads get a part of the cores
    that they want, those of other programs get the same part, and are so many more than the cores that they use.
    """
    watched, load = recording.machine.get("watched") or {}, recording.machine.get("load") or {}
    others = _number(recording.machine, "watched" if "others_cores" in watched else "load", "others_cores")
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


def _share_of_builders(recording: Recording, costs: BatchCosts) -> float:
    """Part of the time in which a building thread could compute that it had a core."""
    role = "worker" if recording.settings.workers == "processes" else "main"
    if any(usage.waiting_for_cpu_ns >= 0 for usage in recording.usage if usage.role.startswith(role)):
        return core_share(recording, role)
    wall = max((usage.wall_ns for usage in recording.usage), default=0)
    used = sum(usage.cpu_ns for usage in recording.usage)
    if not wall or used < 0.9 * count_cores(recording) * wall:
        return 1.0
    building = sum(float(values.sum()) for values in costs.wall_ns.values())
    return max(sum(float(values.sum()) for values in costs.cpu_ns.values()) / max(building, 1.0), 1e-3)


def _measure_step(recording: Recording, steps: StepSummary, share: float) -> tuple[float, float]:
    """Time of a step if the main process has all the cores it wants, and the processor time in it.

    Where it lacks cores, the quicker steps count: those that are interrupted take many times as long, and threads of
    OpenMP that wait for one another compute meanwhile.
    """
    step_ns, cpu_ns = steps.step_ns, steps.cpu_ns
    if share < _LACKING:
        times = recording.steps
        for chosen in (np.flatnonzero(times.replayed)[1:], np.flatnonzero(~times.replayed)[recording.warm_up :]):
            quick_ns = (
                float(np.percentile(times.step_ns[chosen], _QUICK * share)) if len(chosen) >= _FEWEST else step_ns
            )
            if quick_ns < step_ns and (times.replayed[chosen].all() or not recording.device):
                step_ns, cpu_ns = quick_ns, float(np.percentile(times.cpu_ns[chosen].clip(0), _QUICK * share))
    return _time_step(step_ns, cpu_ns, share), cpu_ns


def _time_step(step_ns: float, cpu_ns: float, share: float) -> float:
    """Time of a step without what the main process, which gets ``share`` of a core, waits for cores."""
    threads = max(1.0, math.ceil(cpu_ns / max(step_ns, 1.0) - 0.05))
    computing = min(cpu_ns / threads, step_ns)
    return max(step_ns - computing / share, 0.0) + computing


def _time_receipt(costs: BatchCosts, share: float) -> float:
    """Time of the main process to receive a batch if it has a core; that of the quicker ones where it lacks cores."""
    mean_ns = costs.mean_receive_ns * share
    if share >= _LACKING or len(costs.receive_ns) < _FEWEST:
        return mean_ns
    return min(mean_ns, float(np.percentile(costs.receive_ns, _QUICK * share)))


def _batches_of_short_epoch(recording: Recording) -> int:
    """Batches of an epoch, if epochs are so short that several were seen and workers start anew for each."""
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
    if not _batches_of_short_epoch(recording):
        return 0.0
    return float(waits[_epoch_starts(recording)].sum() / max(waits[recording.warm_up :].sum(), 1.0))


def _startup_ns(recording: Recording, epoch: int, preparation: Work | None) -> float:
    """Return what the first batch of an epoch waits longer than the others, without the workers' own preparation."""
    if not epoch:
        return 0.0
    waits = recording.steps.wait_ns[~recording.steps.replayed].astype(float)
    starts = _epoch_starts(recording)
    own = 0.0 if preparation is None else float(preparation.cpu_ns[0] + preparation.idle_ns[0])
    return max(float(np.mean(waits[starts]) - np.median(waits)) - own, 0.0)


def _take_preparation(recording: Recording, costs: BatchCosts, build: dict[str, Work], epoch: int) -> Work | None:
    """Return what the first sample of each worker in an epoch costs more than others; it is taken out of ``build``.

    None if epochs are long, or if it is little.
    """
    events = recording.events
    single = events[(events["stage"] == SAMPLE) & (events["worker"] >= 0) & (events["samples"] == 1)]
    single = single[np.isin(single["batch"], costs.numbers)]
    if not epoch or not len(single):
        return None
    group = (single["batch"] // epoch).astype(np.int64) * (int(single["worker"].max()) + 1) + single["worker"]
    order = np.lexsort((single["start"], group))
    is_first = np.r_[True, np.diff(group[order]) != 0]
    first, others = single[order][is_first], single[order][~is_first]
    if not len(others):
        return None
    wall_ns = (first["end"] - first["start"]).astype(float) - float(np.median(others["end"] - others["start"]))
    extra_ns = wall_ns.clip(0)
    mean_ns = float(extra_ns.mean())
    if mean_ns < _MUCH_PREPARATION * sum(float(work.cpu_ns.mean() + work.idle_ns.mean()) for work in build.values()):
        return None
    at = np.searchsorted(costs.numbers, first["batch"])
    taken_cpu = taken_idle = 0.0
    own_ns = np.sum([costs.wall_ns[stage][at] for stage in _IN_SAMPLE], axis=0)
    left = (1 - extra_ns / own_ns.clip(1)).clip(0, 1)
    for stage in _IN_SAMPLE:
        if stage in build:
            cpu_ns, idle_ns = build[stage].cpu_ns.copy(), build[stage].idle_ns.copy()
            taken_cpu += float((cpu_ns[at] * (1 - left)).sum()) / len(at)
            taken_idle += float((idle_ns[at] * (1 - left)).sum()) / len(at)
            cpu_ns[at] *= left
            idle_ns[at] *= left
            build[stage] = Work(cpu_ns, idle_ns)
    return Work(np.array([taken_cpu]), np.array([taken_idle]))
