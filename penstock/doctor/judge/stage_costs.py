"""What each stage costs, and the slowest samples: sums over the events of a recording.

The first batches of each worker are left out, where there are enough others: they open files, import modules and fill
caches. Parts of samples (read, decode, augment) are estimates of the recording; their sum is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.doctor.judge.diagnosis import SlowSample, StageCost
from penstock.doctor.watching.recording import SAMPLE, STAGES, WORK_STAGES, Recording

__all__ = [
    "BatchCosts",
    "StepSummary",
    "core_share",
    "cost_batches",
    "cost_stages",
    "find_slow_samples",
    "stages_of_samples",
    "summarize_steps",
]

_Times = npt.NDArray[np.float64]
_Events = npt.NDArray[np.void]
_IN_SAMPLE: Final = ("read", "decode", "augment")
_CODES: Final = {name: code for code, name in enumerate(STAGES)}
_MARGIN: Final = 1.25
_SLOW_SAMPLES: Final = 16
"""While a thread builds, it may get less of a core than on average, by so much."""


@dataclass(frozen=True, slots=True)
class BatchCosts:
    """What building costs a worker, for each batch observed."""

    wall_ns: dict[str, _Times]
    cpu_ns: dict[str, _Times]
    """``wall_ns`` and ``cpu_ns``: values (k,) float64: time and processor time of the building thread, by stage of
    :data:`~.recording.WORK_STAGES`."""
    samples: _Times  # (k,) float64: samples of each batch
    receive_ns: _Times  # (m,) float64: time of the main process to receive single batches

    @property
    def mean_receive_ns(self) -> float:
        """The mean time to receive one batch; 0 if it was not observed."""
        return float(self.receive_ns.mean()) if len(self.receive_ns) else 0.0


@dataclass(frozen=True, slots=True)
class StepSummary:
    """The script's steps, without those in which its loader started."""

    waiting: float  # part of the time that it waits for batches
    waiting_for_loader: float
    """The same without what it waits for a core while a batch is ready: other programs cause that, not the loader. It
    is at most what the main process has waited for a core in all."""
    delivered: float  # samples per second
    trainer: float
    """Samples per second if it never waited: of the steps with the batch before once more, where there are enough of
    them. Without a device, whose work a step may only begin, at least that of the steps that were seen."""
    is_replayed: bool  # whether there were
    step_ns: float  # time of one step that does not wait
    cpu_ns: float  # processor time of this step, all threads
    seen_step_ns: float  # of one step while the loader works
    copy_share: float  # part of the whole time that is spent in copies to the device
    samples: float  # of one batch
    concentration: float  # part of all waiting that falls on the twentieth of the steps that wait longest


def summarize_steps(recording: Recording) -> StepSummary:
    """Sum over the steps of ``recording``; all zero if there are none."""
    steps, settings = recording.steps, recording.settings
    seen = np.flatnonzero(~steps.replayed)
    if not len(seen):
        return StepSummary(0.0, 0.0, 0.0, 0.0, False, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    ahead = max(1, settings.num_workers * max(settings.prefetch_factor, 1))
    if not recording.warm_up:
        seen = seen[min(ahead, len(seen) // 4) :]
    wait, step = steps.wait_ns[seen].astype(float), steps.step_ns[seen].astype(float)
    total = max(float((wait + step).sum()), 1.0)
    samples = float(steps.samples[seen].sum())
    replayed = np.flatnonzero(steps.replayed)
    is_replayed = len(replayed) >= 3
    own = replayed[1:] if is_replayed else seen  # the first one may still end what the step before has begun
    own_ns, own_cpu_ns = float(steps.step_ns[own].mean()), float(steps.cpu_ns[own].clip(0).mean())
    own_samples = float(steps.samples[own].mean())
    if is_replayed and not recording.device and float(step.mean()) < own_ns:
        own_ns, own_cpu_ns = float(step.mean()), float(steps.cpu_ns[seen].clip(0).mean())
        own_samples = samples / len(seen)
    longest = np.sort(wait)[::-1]
    is_there = steps.ready[seen] > 0
    # Batches that are ready may be later ones than that which is wanted: they do not say that a core is missing.
    delayed = min(float(wait[is_there].sum()) * (1 - core_share(recording, "main")), _main_delay(recording) * total)
    return StepSummary(
        waiting=float(wait.sum()) / total,
        waiting_for_loader=(float(wait.sum()) - delayed) / total,
        delivered=samples * 1e9 / total,
        trainer=own_samples * 1e9 / max(own_ns, 1.0),
        is_replayed=is_replayed,
        step_ns=own_ns,
        cpu_ns=own_cpu_ns,
        seen_step_ns=float(step.mean()),
        copy_share=float(steps.copy_ns[seen].clip(0).sum()) / total,
        samples=samples / len(seen),
        concentration=float(longest[: max(1, len(longest) // 20)].sum() / max(float(wait.sum()), 1.0)),
    )


def core_share(recording: Recording, role: str) -> float:
    """Part of the time in which threads of processes could compute that they had a core: 1 without other load.

    ``recording``: with the processes' usage; 1 if that is not known. ``role``: the beginning of the processes' role:
    "main", "worker", or "" for all.
    """
    chosen = [usage for usage in recording.usage if usage.role.startswith(role) and usage.waiting_for_cpu_ns >= 0]
    cpu, delay = sum(usage.cpu_ns for usage in chosen), sum(usage.waiting_for_cpu_ns for usage in chosen)
    return cpu / (cpu + delay) if cpu > 0 else 1.0


def _main_delay(recording: Recording) -> float:
    """Part of the time in which threads of the main process could compute, but had no core; at most 1."""
    chosen = [usage for usage in recording.usage if usage.role == "main" and usage.waiting_for_cpu_ns >= 0]
    return min(1.0, max((usage.waiting_for_cpu_ns / max(usage.wall_ns, 1) for usage in chosen), default=0.0))


def find_idle(wall_ns: _Times, cpu_ns: _Times, share: float) -> _Times:
    """Time that needs no processor: of all batches what a thread that gets ``share`` of a core does not explain."""
    resting = (wall_ns - cpu_ns).clip(0)
    total = float(resting.sum())
    explained = _MARGIN * float(cpu_ns.sum()) * (1 / share - 1)
    return np.asarray(resting * (max(total - explained, 0.0) / total if total else 0.0), np.float64)


def cost_batches(recording: Recording) -> BatchCosts:
    """Costs of each batch whose building was observed, by stage."""
    events, settings = recording.events, recording.settings
    is_serial = settings.num_workers == 0
    durations = (events["end"] - events["start"]).astype(float)
    share = core_share(recording, "worker" if settings.workers == "processes" else "main")
    cpu = np.where(events["cpu"] >= 0, np.minimum(events["cpu"], durations), share * durations).astype(float)
    builds = (events["batch"] >= 0) & (is_serial | (events["worker"] >= 0))
    received = (events["stage"] == _CODES["transport"]) & (events["worker"] < 0) & ~np.bool_(is_serial)
    is_work = builds & ((events["stage"] < len(WORK_STAGES)) | (events["stage"] >= SAMPLE))
    batches = np.unique(events["batch"][is_work])
    if len(batches) > 3 * max(settings.num_workers, 1):
        batches = batches[max(settings.num_workers, 1) :]
    at = np.searchsorted(batches, events["batch"]).clip(0, max(len(batches) - 1, 0))
    kept = is_work & (batches[at] == events["batch"] if len(batches) else False)

    def sums(stage: int, values: _Times) -> _Times:
        chosen = kept & (events["stage"] == stage)
        return np.bincount(at[chosen], values[chosen], minlength=len(batches)).astype(float)

    wall_ns = {stage: sums(_CODES[stage], durations) for stage in WORK_STAGES}
    cpu_ns = {stage: sums(_CODES[stage], cpu) for stage in WORK_STAGES}
    samples = sums(SAMPLE, events["samples"].astype(float))
    samples = np.where(samples > 0, samples, summarize_steps(recording).samples)
    _divide_whole(wall_ns, cpu_ns, sums(SAMPLE, durations), share)
    return BatchCosts(wall_ns, cpu_ns, samples, durations[received])


def _divide_whole(wall_ns: dict[str, _Times], cpu_ns: dict[str, _Times], whole_ns: _Times, share: float) -> None:
    """Divide samples of which nothing was seen as all others; what needs no processor is reading, if there is so much.

    ``share`` is the part of a core that the building threads got when they could compute.
    """
    parts, cpu = (np.array([times[stage] for stage in _IN_SAMPLE]) for times in (wall_ns, cpu_ns))
    overall = parts.sum(axis=1)
    shares = overall / overall.sum() if overall.sum() > 0 else np.array([0.0, 0.0, 1.0])
    missing = np.where(parts.sum(axis=0) > 0, 0.0, whole_ns)
    parts, cpu = parts + missing * shares[:, None], cpu + share * missing * shares[:, None]
    used = cpu.sum(axis=0)
    computing = parts - [[1.0], [0.0], [0.0]] * np.minimum(find_idle(parts.sum(axis=0), used, share), parts[0])
    cpu = computing * (used / computing.sum(axis=0).clip(1))
    for number, stage in enumerate(_IN_SAMPLE):
        wall_ns[stage], cpu_ns[stage] = parts[number], np.minimum(cpu[number], parts[number])


def cost_stages(recording: Recording, costs: BatchCosts | None = None) -> list[StageCost]:
    """Return the cost of every stage that was observed, in the order a sample passes them."""
    costs = cost_batches(recording) if costs is None else costs
    per_batch = max(summarize_steps(recording).samples, 1.0)
    samples = max(float(costs.samples.sum()), 1.0)
    means = {stage: float(costs.wall_ns[stage].sum()) / samples for stage in WORK_STAGES}
    means["transport"] += costs.mean_receive_ns / per_batch
    total = sum(means.values()) or 1.0
    steps, seen = recording.steps, ~recording.steps.replayed
    copy_ns = steps.copy_ns[seen].clip(0)
    others = {"wait": steps.wait_ns[seen], "copy": copy_ns, "step": steps.step_ns[seen] - copy_ns}
    return [
        *(
            StageCost(stage, mean_ns / 1e3, mean_ns / total, is_estimated=stage in _IN_SAMPLE)
            for stage, mean_ns in means.items()
            if mean_ns > 0
        ),
        *(
            StageCost(stage, float(times_ns.mean()) / per_batch / 1e3, 0.0)
            for stage, times_ns in others.items()
            if len(times_ns) and times_ns.any()
        ),
    ]


def find_slow_samples(recording: Recording) -> list[SlowSample]:
    """The slowest samples, each index once, the slowest first."""
    whole = recording.events[recording.events["stage"] == SAMPLE]
    whole = whole[whole["index"] >= 0]
    order = np.argsort(whole["start"] - whole["end"], kind="stable")
    found: dict[int, SlowSample] = {}
    for row in whole[order]:
        index = int(row["index"])
        if index not in found:
            ms = float(row["end"] - row["start"]) / 1e6
            found[index] = SlowSample(index, recording.keys.get(index, ""), ms, int(row["worker"]), recording.rank)
        if len(found) == _SLOW_SAMPLES:
            break
    return list(found.values())


def stages_of_samples(recording: Recording, indices: Sequence[int]) -> dict[str, float]:
    """Nanoseconds of the batches with the samples ``indices`` in each stage, for all of them together."""
    events = recording.events
    batches = events["batch"][(events["stage"] == SAMPLE) & np.isin(events["index"], list(indices))]
    chosen = events[np.isin(events["batch"], batches)]
    return {
        stage: float((rows["end"] - rows["start"]).sum())
        for stage in _IN_SAMPLE
        for rows in (chosen[chosen["stage"] == _CODES[stage]],)
    }
