"""What candidates of advice and the verdict read: a recording, and what was computed from it once."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from penstock.doctor.judge.diagnosis import StageCost
from penstock.doctor.judge.observed_pipeline import observe_pipeline
from penstock.doctor.judge.queueing import Prediction, TrainingPipeline, predict
from penstock.doctor.judge.stage_costs import (
    BatchCosts,
    StepSummary,
    core_share,
    cost_batches,
    cost_stages,
    summarize_steps,
)
from penstock.doctor.trials.trial_child import StepShape
from penstock.doctor.watching.recording import BATCH, SAMPLE, WORK_STAGES, Recording

__all__ = ["Situation", "Stragglers", "count_threads", "examine", "rename_copies"]

_SLOW: Final = 20.0
"""A straggler takes this many times as long as the median sample,"""
_LEAST_MS: Final = 20.0
"""at least this long,"""
_LARGE_BATCH: Final = 4 << 20
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
    pipeline: TrainingPipeline  # the observed settings and costs, as the model takes them
    now: Prediction  # what the model predicts for this pipeline
    alone: float  # samples per second of the loader alone: measured, or else the model's
    nbytes: int = 0  # of a batch, measured in a trial; 0 if unknown

    @property
    def shape(self) -> StepShape:
        """The step that an emulated trainer takes in the place of the script's."""
        return StepShape(self.pipeline.step_ns, self.pipeline.step_cpu_ns)

    @property
    def gain_limit(self) -> float:
        """What a loader that costs nothing would gain, as a factor."""
        return self.steps.trainer / self.steps.delivered if self.steps.delivered else 1.0

    @property
    def idle_gain_limit(self) -> float:
        """What it would gain by the model on a machine without other programs."""
        now = _predict_idle(self.pipeline) * self.steps.samples
        return max(self.steps.trainer / now, 1.0) if now else self.gain_limit

    @property
    def modelled_gain_limit(self) -> float:
        """The gain limit by the model alone, whose trainer's speed was not measured beside other programs."""
        now = _predict_idle(self.pipeline)
        return max(1e9 / (self.pipeline.step_ns * now), 1.0) if now and self.pipeline.step_ns else self.idle_gain_limit

    def gain_of(self, pipeline: TrainingPipeline) -> float:
        """Divide the speed with ``pipeline`` by that now; at most what a loader that costs nothing gains."""
        now = self.now.batches_per_s
        gain = predict(pipeline).batches_per_s / now if now else 1.0
        return min(gain, max(self.gain_limit, 1.0))

    def idle_gain_of(self, pipeline: TrainingPipeline) -> float:
        """Predict the gain of ``pipeline`` on a machine without other programs, without a limit."""
        now = _predict_idle(self.pipeline)
        return _predict_idle(pipeline) / now if now else 1.0

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

    def share(self, stage: str) -> float:
        """Part of the loader's limiting time that ``stage`` takes."""
        return limiting_shares(self).get(stage, 0.0)

    def idle_share(self, stage: str) -> float:
        """Part of the stage's time in which it needs no processor."""
        work = self.pipeline.build.get(stage)
        if work is None:
            return 0.0
        idle, cpu = float(work.idle_ns.sum()), float(work.cpu_ns.sum())
        return idle / (idle + cpu) if idle + cpu else 0.0

    def batch_nbytes(self) -> float:
        """Return the number of bytes of a batch; 0 if unknown."""
        events = self.recording.events
        known = events[(events["nbytes"] > 0) & (events["stage"] == WORK_STAGES.index("transport"))]
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


def _predict_idle(pipeline: TrainingPipeline) -> float:
    """Return batches per second on a machine without other programs, by the model."""
    return predict(replace(pipeline, background=0.0)).batches_per_s


def count_threads() -> int:
    """Threads with which torch computes in this process, that of the script."""
    torch = sys.modules.get("torch")
    return 1 if torch is None else int(torch.get_num_threads())


def examine(recording: Recording, loader: object = None) -> Situation:
    """Compute what follows from ``recording``; nothing is run."""
    steps, costs = summarize_steps(recording), cost_batches(recording)
    pipeline = observe_pipeline(recording, costs, steps)
    alone = predict(pipeline.alone()).batches_per_s * steps.samples if pipeline.build else 0.0
    now = predict(pipeline) if pipeline.build or steps.step_ns else Prediction(0.0, 0.0)
    return Situation(recording, loader, steps, costs, cost_stages(recording, costs), pipeline, now, alone)


def rename_copies(situation: Situation) -> Situation:
    """The situation in which collation is transport, if all that penstock's workers do in it is to copy large arrays.

    They write batches into memory that the main process shares, so a copy of the samples' bytes is what sends them.
    torch's recordings make this difference themselves.
    """
    recording, work = situation.recording, situation.pipeline.build.get("collate")
    settings = recording.settings
    if settings.library != "penstock" or settings.workers != "processes" or work is None:
        return situation
    copied_ns = float(work.cpu_ns.mean()) if len(work.cpu_ns) else 0.0
    if not _LARGE_BATCH <= situation.nbytes >= copied_ns:  # a copy takes about a nanosecond for a byte or more
        return situation
    events = recording.events
    is_collation = (events["stage"] == WORK_STAGES.index("collate")) & (events["worker"] >= 0)
    events["stage"][is_collation] = WORK_STAGES.index("transport")
    return replace(examine(recording, situation.loader), alone=situation.alone, nbytes=situation.nbytes)


def limiting_shares(situation: Situation) -> dict[str, float]:
    """Part of the time of a batch that each stage takes, divided by how many workers share it.

    Workers share what they build; the receipt of a batch in the main process is shared by nobody, as is the sampler's
    work, which is part of the whole.
    """
    pipeline = situation.pipeline
    parallel = max(pipeline.workers, 1)
    times = {}
    for stage, work in pipeline.build.items():
        cpu, idle = float(work.cpu_ns.mean()), float(work.idle_ns.mean())
        servers = min(parallel * pipeline.threads, pipeline.cores)
        times[stage] = cpu / max(servers, 1e-9) + idle / parallel
    times["transport"] = times.get("transport", 0.0) + pipeline.receive_ns
    total = sum(times.values()) + pipeline.draw_ns
    return {stage: value / total for stage, value in times.items()} if total else {}
