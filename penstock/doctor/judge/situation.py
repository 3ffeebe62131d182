"""What candidates of advice and the verdict read: a recording, and what was computed from it once."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from penstock.doctor.judge.absences import find_absences
from penstock.doctor.judge.diagnosis import Absence, StageCost
from penstock.doctor.judge.observations import (
    count_background,
    count_cores,
    count_epoch_batches,
    measure_parallelism,
    measure_step,
)
from penstock.doctor.judge.stage_costs import (
    BatchCosts,
    StepSummary,
    core_share,
    cost_batches,
    cost_stages,
    summarize_steps,
)
from penstock.doctor.trials.trial_child import StepShape
from penstock.doctor.trials.turns import Measured
from penstock.doctor.watching.recording import BATCH, SAMPLE, WORK_STAGES, Recording

__all__ = ["Situation", "Stragglers", "count_threads", "examine", "limiting_times"]

_SLOW: Final = 20.0
"""A straggler takes this many times as long as the median sample,"""
_LEAST_MS: Final = 20.0
"""at least this long,"""
_COST: Final = 0.05
"""and all stragglers together at least this part of the workers' time."""


@dataclass(frozen=True, slots=True)
class Stragglers:
    """Few samples that are far slower than the others, and for which the trainer waits."""

    indices: list[int]  # in the dataset, the slowest first
    slow_ms: float  # time of the slowest sample
    usual_ms: float  # time of the median sample
    cost: float  # part of the workers' time that the slow samples take


@dataclass(slots=True)
class Situation:
    """A recording, and what follows from it."""

    recording: Recording  # what was observed
    loader: Any  # the user's; None if it is not there any more
    steps: StepSummary  # the times of the steps
    costs: BatchCosts  # what each batch costs a worker
    stages: list[StageCost]  # what a sample costs, by stage
    shape: StepShape  # the step that an emulated trainer takes in the place of the script's
    cores: float  # that the script may use
    background: float  # threads of other programs that compute all the time, on average
    threads: float  # that compute in a worker on average while it builds
    epoch_batches: int  # batches of an epoch after which workers begin anew; 0: never
    alone: float = 0.0  # samples per second of the loader alone; 0 until it is measured
    nbytes: int = 0  # of a batch, measured in a trial; 0 if unknown
    absences: Mapping[str, Absence] = field(default_factory=dict)  # what the absence of each stage brings

    @property
    def workers(self) -> int:
        """The loader's workers."""
        return self.recording.settings.num_workers

    @property
    def gain_limit(self) -> float:
        """What a loader that costs nothing would gain, as a factor."""
        return self.steps.trainer / self.steps.delivered if self.steps.delivered else 1.0

    @property
    def batch_ns(self) -> float:
        """Mean time in which one thread builds a batch."""
        return sum(float(wall_ns.mean()) for wall_ns in self.costs.wall_ns.values() if len(wall_ns))

    @property
    def observed_speed(self) -> float:
        """Samples per second that the loader could give alone, by what its stages take; 0 if they were not observed."""
        total_ns = sum(limiting_times(self).values())
        return self.steps.samples * 1e9 / total_ns if total_ns else 0.0

    def note_absences(self, measured: Mapping[str, Measured], *, has_reads: bool = True) -> None:
        """Judge what the absence of each stage brings.

        ``measured``: as for :func:`find_absences`. ``has_reads``: whether samples may read by calls that are not known;
        else only what waits is taken for reading.
        """
        times = dict(limiting_times(self))
        if not has_reads and times:
            waits = times["read"] * self.idle_share("read")
            times["augment"], times["read"] = times["augment"] + times["read"] - waits, waits
        self.absences = find_absences(times, self.gain_limit, measured, is_serial=not self.workers)

    def brings(self, *stages: str) -> float:
        """The most that the absence of one of ``stages`` brings, as a factor."""
        return max((self.absences[stage].gain for stage in stages if stage in self.absences), default=1.0)

    @property
    def one_thread_gain(self) -> float:
        """What one thread of torch's in the main process gains or, below 1, loses; 1 where that is unknown.

        Trials of a loader, and workers, compute with one thread.
        """
        gain = self.recording.thread_gain
        return 1.0 if gain is None else gain.middle

    def mean_ns(self, stage: str) -> float:
        """Mean time of a sample in ``stage``."""
        return next((cost.us_per_sample * 1e3 for cost in self.stages if cost.stage == stage), 0.0)

    def idle_share(self, *stages: str) -> float:
        """Part of the time of ``stages`` in which they need no processor."""
        wall, cpu = (
            sum(float(times[stage].sum()) for stage in stages) for times in (self.costs.wall_ns, self.costs.cpu_ns)
        )
        role = "worker" if self.recording.settings.workers == "processes" else "main"
        return max(1 - cpu / core_share(self.recording, role) / wall, 0.0) if wall else 0.0

    def batch_nbytes(self) -> float:
        """Return the number of bytes of a batch; 0 if unknown."""
        events = self.recording.events
        known = events[(events["nbytes"] > 0) & (events["stage"] == WORK_STAGES.index("collate"))]
        return float(np.median(known["nbytes"])) if len(known) else float(self.nbytes)

    def find_stragglers(self) -> Stragglers | None:
        """Samples that are far slower than the others, if there are few of them and they cost much."""
        events, samples = self.recording.events, self.steps.samples
        whole = events[(events["stage"] == SAMPLE) & (events["index"] >= 0) & (events["samples"] <= 1)]
        batches = events[events["stage"] == BATCH]
        if len(batches) < 20 or not len(whole) or samples <= 0:
            return None
        # Not all samples are timed where they take microseconds, but slow ones and whole batches are.
        batch_ms = (batches["end"] - batches["start"]) / 1e6
        usual = float(np.median(batch_ms)) / samples
        ms = (whole["end"] - whole["start"]) / 1e6
        # Where cores lack, a sample that is interrupted takes long too.
        share = core_share(self.recording, "worker" if self.recording.settings.workers == "processes" else "main")
        slow = np.flatnonzero(ms > max(_SLOW * usual, _LEAST_MS) / share)
        cost = float(ms[slow].sum() / max(batch_ms.sum(), 1e-9))
        if not 0 < len(slow) <= max(2, len(batches) * samples / 100) or cost < _COST:
            return None
        order = slow[np.argsort(-ms[slow], kind="stable")]
        indices = list(dict.fromkeys(int(index) for index in whole["index"][order]))
        return Stragglers(indices, float(ms[order[0]]), usual, cost)


def count_threads() -> int:
    """Threads with which torch computes in this process, that of the script."""
    torch = sys.modules.get("torch")
    return 1 if torch is None else int(torch.get_num_threads())


def examine(recording: Recording, loader: object = None) -> Situation:
    """Compute what follows from ``recording``; nothing is run."""
    steps, costs = summarize_steps(recording), cost_batches(recording)
    situation = Situation(
        recording, loader, steps, costs, cost_stages(recording, costs), measure_step(recording, steps),
        count_cores(recording), count_background(recording), measure_parallelism(recording),
        count_epoch_batches(recording),
    )  # fmt: skip
    situation.note_absences({})
    return situation


def limiting_times(situation: Situation) -> dict[str, float]:
    """Nanoseconds of a batch in each stage, divided by how many workers share it; "draw" is the sampler's.

    Workers share what they build, and what computes is not faster than with all cores; the receipt of a batch in the
    main process is shared by nobody, nor is the sampler's work.
    """
    costs, parallel = situation.costs, max(situation.workers, 1)
    if not len(costs.samples):
        return {}
    times = {}
    for stage, wall_ns in costs.wall_ns.items():
        idle_ns = float(wall_ns.mean()) * situation.idle_share(stage)
        times[stage] = idle_ns / parallel + (float(wall_ns.mean()) - idle_ns) / min(parallel, situation.cores)
    times["transport"] += costs.mean_receive_ns
    return {**times, "draw": situation.recording.draw_ns}
