"""The verdict: which stage limits the training, in one sentence, and how sure that is.

It is drawn from what was measured: the waiting of the loop, the trainer alone (the batch before once more), the loader
alone, the loader without each stage, and changes that were tried. The rules, in their order:

1. **copy**: a fifth of the time or more is spent in copies to the device, and more than in waiting.
2. The trainer is the limit if the script waits less than 5 % of its time, or if a loader that costs nothing would not
   bring 5 % (:attr:`Situation.gain_limit`). Where other programs compete for the cores, 10 % is little; what the script
   waits for a core while a batch is ready is not counted. Then nothing can be gained in the loader. **step**: the
   loader alone is at least ten times as fast as the trainer, so that it rests nearly all the time, and only the step
   can be made faster. **none**: the two fit one another; a loader needs some reserve.
3. The steps are a tenth slower or more while the loader works, although the script does not wait: the workers take the
   trainer's cores. Then the next two rules alone are asked.
4. **threads**: one thread in the main process has brought 30 %, and more than anything else, without more threads of
   other programs than there are cores; or one thread in each worker, where they compute with several, 10 %.
5. **workers**: their number or their start is wrong beyond doubt, as the trial has shown: there are more than two for a
   core, and fewer bring 10 %; most of the waiting is for their start in each epoch, and persistent ones bring 10 %; or
   another number brings more than the absence of any stage.
6. Few samples that are far slower than all others: the stage in which these spend their time.
7. Else the stage whose absence brings most. A sampler that takes more than any of them is told as **collate**: it
   chooses what a batch is made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from penstock.doctor.judge.advice.num_workers import WORKER_RULES
from penstock.doctor.judge.advice.remote_stores import describe_waiting
from penstock.doctor.judge.diagnosis import Advice, Verdict, VerdictStage
from penstock.doctor.judge.observations import measure_start_ns, waiting_for_start
from penstock.doctor.judge.situation import Situation, limiting_times
from penstock.doctor.judge.stage_costs import core_share, stages_of_samples
from penstock.doctor.watching.recording import WORK_STAGES

__all__ = ["Limit", "decide", "find_limit"]

Limit = str
"""One of "copy", "trainer", "cores", "loader" and "nothing" (no step was seen)."""

_LITTLE: Final = 0.05
_LITTLE_UNDER_LOAD: Final = 0.1
"""Part of the time in waiting that is little; where other programs compete for the cores, each batch wakes up late."""
_COPY: Final = 0.2
_CONCENTRATED: Final = 0.5
"""Part of the waiting that falls on few steps, from which on few samples are the limit."""
_SPARE: Final = 10.0
_SLOWED: Final = 1.1
_MUCH_SLOWER: Final = 1.3
_GAIN: Final = 1.1
_LACKING_CORES: Final = 0.6
"""Part of the time that threads had a core, below which other programs or threads decide what is measured."""
_DOING: Final = {
    "read": "Reading",
    "decode": "Decoding",
    "augment": "Work on samples (augmentation)",
    "collate": "Collation",
    "transport": "Sending batches to the main process",
}


def find_limit(situation: Situation) -> Limit:
    """Return what limits the script, by the first rules: before anything is tried."""
    steps = situation.steps
    if not steps.delivered:
        return "nothing"
    if steps.copy_share >= _COPY and steps.copy_share > steps.waiting_for_loader:
        return "copy"
    least = _LITTLE_UNDER_LOAD if situation.background >= situation.cores / 4 else _LITTLE
    # A loader that is slower than the trainer limits it, however many of its batches were ready when they were wanted.
    is_slower = 0 < situation.alone < steps.trainer
    waiting = steps.waiting if is_slower else steps.waiting_for_loader
    if waiting >= least and situation.gain_limit >= 1 + _LITTLE:
        return "loader"
    crowded = situation.workers + 1 > situation.cores or situation.threads > 1
    if steps.is_replayed and situation.workers and crowded:
        slowed = steps.seen_step_ns / max(steps.step_ns, 1.0)
        if slowed >= _SLOWED and situation.gain_limit >= _SLOWED:
            return "cores"
    return "trainer"


def decide(situation: Situation, limit: Limit, candidates: Mapping[str, Advice]) -> Verdict:
    """Return the verdict.

    ``situation``: what was observed. ``limit``: by :func:`find_limit`. ``candidates``: by their rules; with
    ``measured`` those that were tried, whatever they brought, without it facts.
    """
    stage, sentence = _choose(situation, limit, candidates)
    steps = situation.steps
    text = f"{sentence} {_explain(situation, stage)}" if steps.delivered else sentence
    absences = tuple(situation.absences.values()) if limit == "loader" else ()
    return Verdict(stage, text, steps.waiting, steps.delivered, steps.trainer, situation.alone, absences)


def _choose(situation: Situation, limit: Limit, candidates: Mapping[str, Advice]) -> tuple[VerdictStage, str]:
    steps = situation.steps
    if limit == "nothing":
        return "none", "The script took no batch from a loader, so there is nothing to judge."
    if limit == "copy":
        return "copy", f"Copies to the device limit the training: they take {steps.copy_share:.0%} of the time."
    if limit == "trainer":
        threads = _judge_threads(situation, candidates, 1.0)
        return threads or _judge_trainer(situation)
    most = situation.brings(*WORK_STAGES) if limit == "loader" else 1.0
    chosen = _judge_threads(situation, candidates, most) or _judge_workers(situation, limit, candidates, most)
    return chosen or (_judge_stages(situation, candidates) if limit == "loader" else _judge_trainer(situation))


def _judge_threads(
    situation: Situation, candidates: Mapping[str, Advice], most: float
) -> tuple[VerdictStage, str] | None:
    """Apply rule 4; ``most``: what the absence of a stage brings."""
    gain = _gain("main-threads", candidates)
    others = [_gain(rule, candidates) for rule in candidates if rule != "main-threads"]
    trial = situation.recording.thread_gain
    # Threads that wait for one another in loops are slow wherever other programs have the cores.
    is_own = situation.background < situation.cores
    if trial is not None and is_own and gain >= max(_MUCH_SLOWER, most, *others):
        return "threads", (
            f"Too many threads compute: torch uses {trial.threads} in the main process, for {situation.cores:g} cores, "
            "and the script is faster with one."
        )
    if _gain("worker-threads", candidates) >= _GAIN:
        return "threads", (
            f"Too many threads compute: {situation.workers} workers with about {situation.threads:.1f} busy threads "
            f"each share {situation.cores:g} cores."
        )
    return None


def _judge_stages(situation: Situation, candidates: Mapping[str, Advice]) -> tuple[VerdictStage, str]:
    """Apply rules 6 and 7: the stage of few slow samples, or that whose absence brings most."""
    few = _judge_stragglers(situation, candidates)
    if few is not None:
        return few
    waiting = f"the script waits {situation.steps.waiting:.0%} of its time"
    times, draw_ns = limiting_times(situation), situation.recording.draw_ns
    if times and max(times, key=lambda name: times[name]) == "draw":
        return "collate", (
            f"The sampler limits the training: to draw the indices of a batch takes {draw_ns / 1e6:.3g} ms of the main "
            f"process, {draw_ns / sum(times.values()):.0%} of the loader's time, while {waiting}."
        )
    if not situation.absences:
        stage: VerdictStage = "augment" if situation.workers else "workers"
        return stage, f"The loader limits the training: {waiting}; stages were not observed."
    largest = max(situation.absences.values(), key=lambda each: each.part)
    remote = f" {describe_waiting(situation.recording)}" if largest.stage == "read" else ""
    found = f"{largest.part:.0%} of the loader's time"
    if largest.measured is not None:
        found = f"if it cost nothing, the script would be {largest.gain:.2g} times as fast, as a trial without it shows"
    return cast("VerdictStage", largest.stage), (
        f"{_DOING[largest.stage]} limits the training: {found}, while {waiting}.{remote.rstrip()}"
    )


def _judge_trainer(situation: Situation) -> tuple[VerdictStage, str]:
    """Apply rule 2: the loader has nothing to gain."""
    steps, alone = situation.steps, situation.alone or situation.observed_speed
    if alone >= _SPARE * steps.trainer:
        return "step", (
            f"The training step is the limit, and there is nothing to gain in the loader: the trainer takes "
            f"{steps.trainer:,.0f} samples/s, the loader could give {alone:,.0f}."
        )
    waits = f"the script waits {steps.waiting:.1%} of its time for batches"
    if steps.waiting < _LITTLE:
        return "none", f"There is nothing to gain: {waits}, and loader and trainer fit one another."
    if situation.gain_limit < 1 + _LITTLE:
        return "none", f"There is nothing to gain: {waits}, but without waiting it would not be faster."
    late = steps.waiting - steps.waiting_for_loader
    if late >= steps.waiting / 2:
        return "none", (
            f"There is nothing to gain in the loader: {waits}, but in {late:.1%} batches are ready, and other programs "
            "have the cores."
        )
    return "none", (
        f"There is nothing to gain in the loader: {waits}, which is usual where other programs compete for the cores."
    )


def _gain(rule: str, candidates: Mapping[str, Advice]) -> float:
    """The gain of a change that was tried; 1 if it was not."""
    measured = candidates[rule].measured if rule in candidates else None
    return 1.0 if measured is None else measured.median


def _judge_workers(
    situation: Situation, limit: Limit, candidates: Mapping[str, Advice], most: float
) -> tuple[VerdictStage, str] | None:
    """Apply rule 5; ``most``: what the absence of a stage brings."""
    workers, cores = situation.workers, situation.cores
    if _gain("persistent_workers", candidates) >= _GAIN and waiting_for_start(situation.recording) > 0.5:
        return "workers", (
            f"The start of workers limits the training: each epoch waits "
            f"{measure_start_ns(situation.recording) / 1e9:.2f} s for {workers} of them."
        )
    fewer = max(_gain("fewer-workers", candidates), _gain("no-workers", candidates))
    least = 1 + _LITTLE if workers >= 4 * cores or limit == "cores" else _GAIN
    if workers > 2 * cores and fewer >= least:
        return "workers", (
            f"There are too many workers: {workers} for {cores:g} cores. They compete with one another and with the "
            "trainer."
        )
    best = max(WORKER_RULES, key=lambda rule: _gain(rule, candidates))
    one_thread = situation.one_thread_gain if not workers else 1.0  # is part of what first workers bring
    if limit == "loader" and _gain(best, candidates) / one_thread >= max(_GAIN, most):
        few = "few" if best in {"num_workers", "more-workers"} else "many"
        return "workers", (
            f"There are too {few} workers: the loader has {workers or 'no'} on {cores:g} cores, and with "
            f"{candidates[best].change} it is {_gain(best, candidates):.2g} times as fast; the script waits "
            f"{situation.steps.waiting:.0%} of its time."
        )
    return None


def _judge_stragglers(situation: Situation, candidates: Mapping[str, Advice]) -> tuple[VerdictStage, str] | None:
    """Apply rule 6: where the slow samples spend their time, if they explain most of what can be gained."""
    stragglers, candidate = situation.find_stragglers(), candidates.get("slow-samples")
    if stragglers is None or candidate is None or situation.steps.concentration < _CONCENTRATED:
        return None
    spent = stages_of_samples(situation.recording, stragglers.indices)
    stage = max(spent, key=lambda name: spent[name]) if any(spent.values()) else "augment"
    keys = situation.recording.keys
    names = [
        f"{keys[index]} (index {index})" if keys.get(index) else f"index {index}" for index in stragglers.indices[:3]
    ]
    return cast("VerdictStage", stage), (
        f"{_DOING[stage]} of few samples limits the training: {', '.join(names)} takes up to "
        f"{stragglers.slow_ms:,.0f} ms, the median sample {stragglers.usual_ms:.2g} ms, and the batches behind wait."
    )


def _explain(situation: Situation, stage: str) -> str:
    """Return how sure the verdict is, and why."""
    steps = situation.steps
    parts = [f"The script takes {steps.delivered:,.0f} samples/s"]
    if steps.is_replayed:
        parts.append(f"the same batch again and again {steps.trainer:,.0f}")
    if situation.alone:
        parts.append(f"the loader alone gives {situation.alone:,.0f}")
    text = "; ".join(parts) + "."
    doubts = _list_doubts(situation, stage)
    return f"{text} {' '.join(doubts)}" if doubts else text


def _list_doubts(situation: Situation, stage: str) -> Sequence[str]:
    doubts = []
    steps, recording = situation.steps, situation.recording
    if not steps.is_replayed and stage not in {"none", "step"}:
        doubts.append("No batch was replayed, so the trainer's own speed is that of its steps.")
    if int((~recording.steps.replayed).sum()) < 20:
        doubts.append("Fewer than 20 steps were seen: this is a first impression.")
    if stage in {"none", "step"} and steps.is_replayed and steps.seen_step_ns > _MUCH_SLOWER * steps.step_ns:
        doubts.append(
            f"A step took {steps.seen_step_ns / steps.step_ns:.1f} times as long as with the same batch: workers or "
            "other programs had the cores."
        )
    others = situation.background
    if others > 0.25 * situation.cores:
        doubts.append(
            f"The machine is busy: about {others:.1f} threads of other programs compete for "
            f"{situation.cores:g} cores, so speeds measured one after another may contradict each other."
        )
    elif (share := core_share(recording, "")) < _LACKING_CORES:
        doubts.append(
            f"Threads that could run waited for a core {1 - share:.0%} of the time, so speeds measured one after "
            "another may contradict each other."
        )
    parts = sorted(situation.absences.values(), key=lambda each: -each.part)
    if len(parts) > 1 and stage == parts[0].stage and parts[1].part > 0.7 * parts[0].part:
        doubts.append(f"{_DOING[parts[1].stage]} takes nearly as much ({parts[1].part:.0%}).")
    return doubts
