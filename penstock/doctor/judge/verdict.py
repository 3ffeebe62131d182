"""The verdict: which stage limits the training, in one sentence, and how sure that is.

The rules, in their order:

0. **threads**: steps with one thread of torch's in the main process were 1.3 times as fast, which the script has tried;
   unless the loader is the limit, has no worker, and first workers bring as much beside it.
1. **copy**: a fifth of the time or more is spent in copies to the device, and more than in waiting.
2. The trainer is the limit if the script waits less than 5 % of its time, or if a loader that costs nothing would not
   bring 5 % (:attr:`Situation.gain_limit`). Where other programs compete for the cores, 10 % is little, and 25 % if the
   model says that the loader would keep pace without them; what the script waits for a core while a batch is ready is
   not counted. Then nothing can be gained in the loader. **step**: the loader alone is at least ten times as fast as
   the trainer, so that it rests nearly all the time, and only the step can be made faster. **none**: the two fit one
   another; a loader needs some reserve.
3. The steps are a tenth slower or more while the loader works, although the script does not wait: the workers take the
   trainer's cores. **threads** if workers compute with several threads each, **workers** if there are more of them than
   cores.
4. The loader is the limit. **threads**: workers compute with several threads each, more than there are cores, and one
   thread in each brings 10 % or more. **workers**: another number of workers alone brings a large part of what can
   be gained, and there are clearly too few (at most one, or one for four cores), or too many (more than two for a
   core), or most of the waiting is for their start in each epoch.
5. Few samples that are far slower than all others: the stage in which these spend their time.
6. Else the stage with the largest part of the time, when each stage's time is divided by how many do it at once. A
   sampler that takes more than any of them is told as **collate**: it chooses what a batch is made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from penstock.doctor.judge.advice.num_workers import with_workers
from penstock.doctor.judge.advice.remote_stores import describe_waiting
from penstock.doctor.judge.diagnosis import Advice, Verdict, VerdictStage
from penstock.doctor.judge.observed_pipeline import waiting_for_start
from penstock.doctor.judge.situation import Situation, limiting_shares
from penstock.doctor.judge.stage_costs import core_share, stages_of_samples

__all__ = ["Limit", "decide", "find_limit"]

Limit = str
"""One of "copy", "trainer", "cores", "loader" and "nothing" (no step was seen)."""

_LITTLE: Final = 0.05
_LITTLE_UNDER_LOAD: Final = 0.1
_LITTLE_IF_IT_FITS: Final = 0.25
"""Part of the time in waiting that is little; where other programs compete for the cores, each batch wakes up late. The
last is for loaders that, by the model, would keep pace without these programs."""
_CLEARLY_SLOWER: Final = 1.5
"""What a loader that costs nothing would gain without other programs, as a factor, from which on the loader is slow:
that batches were ready is then due to steps which other programs have made longer."""
_COPY: Final = 0.2
_SPARE: Final = 10.0
_SLOWED: Final = 1.1
_MUCH_SLOWER: Final = 1.3
_GAIN: Final = 1.1
_LACKING_CORES: Final = 0.6
"""Part of the time that threads had a core, below which other programs or threads decide what is measured."""
_LARGE_PART: Final = 0.45
"""Of what can be gained, in logarithms: if more workers bring less than this, what the workers do is what limits."""
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
    least, fits = _LITTLE, situation.idle_gain_limit < 1 + _LITTLE
    if situation.pipeline.background >= situation.pipeline.cores / 4:
        least = _LITTLE_IF_IT_FITS if fits else _LITTLE_UNDER_LOAD
    # A loader that is slower than the trainer limits it, however many of its batches were ready when they were wanted.
    is_slower = situation.alone < steps.trainer and not fits
    if situation.modelled_gain_limit >= _CLEARLY_SLOWER:
        least, is_slower = _LITTLE, True
    waiting = steps.waiting if is_slower else steps.waiting_for_loader
    if waiting >= least and situation.gain_limit >= 1 + _LITTLE:
        return "loader"
    crowded = situation.pipeline.workers + 1 > situation.pipeline.cores or situation.pipeline.threads > 1
    if steps.is_replayed and situation.pipeline.workers and crowded:
        slowed = steps.seen_step_ns / max(steps.step_ns, 1.0)
        if slowed >= _SLOWED and situation.gain_limit >= _SLOWED:
            return "cores"
    return "trainer"


def decide(situation: Situation, limit: Limit, candidates: Mapping[str, Advice]) -> Verdict:
    """Return the verdict.

    ``situation``: what was observed. ``limit``: by :func:`find_limit`. ``candidates``: by their rules; with
    ``measured`` those that were tried, whatever they brought.
    """
    stage, sentence = _choose(situation, limit, candidates)
    steps = situation.steps
    text = f"{sentence} {_explain(situation, stage)}" if steps.delivered else sentence
    return Verdict(stage, text, steps.waiting, steps.delivered, steps.trainer, situation.alone)


def _choose(situation: Situation, limit: Limit, candidates: Mapping[str, Advice]) -> tuple[VerdictStage, str]:
    steps, pipeline = situation.steps, situation.pipeline
    if limit == "nothing":
        return "none", "The script took no batch from a loader, so there is nothing to judge."
    if limit == "copy":
        return "copy", f"Copies to the device limit the training: they take {steps.copy_share:.0%} of the time."
    gain = _gain("main-threads", candidates)
    of_workers = _gain("num_workers", candidates) / gain if limit == "loader" and not pipeline.workers else 1.0
    if gain >= max(_MUCH_SLOWER, _best_without_threads(candidates), of_workers):
        threads = situation.recording.thread_gain.threads if situation.recording.thread_gain is not None else 0
        return "threads", (
            f"Too many threads compute: torch uses {threads} in the main process, for {pipeline.cores:g} cores, and "
            f"the script is faster with one.{' The loader has no worker: that limits it next.' * (of_workers >= _GAIN)}"
        )
    if limit != "trainer":
        if _gain("worker-threads", candidates) >= _GAIN:
            return "threads", (
                f"Too many threads compute: {pipeline.workers} workers with about {pipeline.threads:.1f} busy threads "
                f"each share {pipeline.cores:g} cores."
            )
        crowd = _judge_workers(situation, limit, candidates)
        if crowd is not None:
            return "workers", crowd
    return _judge_stages(situation, candidates) if limit == "loader" else _judge_trainer(situation)


def _judge_stages(situation: Situation, candidates: Mapping[str, Advice]) -> tuple[VerdictStage, str]:
    """Apply rules 5 and 6: the stage of few slow samples, or that which takes most of the time."""
    few = _judge_stragglers(situation, candidates)
    if few is not None:
        return few
    shares, waiting = limiting_shares(situation), f"{situation.steps.waiting:.0%} of its time"
    drawing = 1 - sum(shares.values())
    if shares and drawing > max(shares.values()):
        return "collate", (
            f"The sampler limits the training: to draw the indices of a batch takes "
            f"{situation.pipeline.draw_ns / 1e6:.3g} ms of the main process, {drawing:.0%} of the loader's time, while "
            f"the script waits {waiting}."
        )
    if not shares:
        stage: VerdictStage = "workers" if situation.pipeline.workers == 0 else "augment"
        return stage, f"The loader limits the training: the script waits {waiting}; stages were not observed."
    largest = max(shares, key=lambda name: shares[name])
    remote = f" {describe_waiting(situation.recording)}" if largest == "read" else ""
    return cast("VerdictStage", largest), (
        f"{_DOING[largest]} limits the training: {shares[largest]:.0%} of the loader's time, while the script waits "
        f"{waiting}.{remote.rstrip()}"
    )


def _judge_trainer(situation: Situation) -> tuple[VerdictStage, str]:
    """Apply rule 2: the loader has nothing to gain."""
    steps, alone = situation.steps, situation.alone
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
    """The gain of a change, by the model and by what was measured; 1 if it is no candidate."""
    candidate = candidates.get(rule)
    return 1.0 if candidate is None else candidate.estimate()


def _best_without_threads(candidates: Mapping[str, Advice]) -> float:
    """The largest measured gain of a change that leaves the threads of the main process; 1 if there is none."""
    with_threads = {"main-threads", "num_workers"}  # first workers are tried with one thread
    measured = [each.measured for each in candidates.values() if each.rule not in with_threads]
    return max((each.median for each in measured if each is not None), default=1.0)


def _judge_workers(situation: Situation, limit: Limit, candidates: Mapping[str, Advice]) -> str | None:
    """Apply rule 4: a sentence if the number of workers is what is wrong, else None."""
    pipeline, steps = situation.pipeline, situation.steps
    if _gain("persistent_workers", candidates) >= _GAIN and waiting_for_start(situation.recording) > 0.5:
        return (
            f"The start of workers limits the training: each epoch waits {pipeline.startup_ns / 1e9:.2f} s for "
            f"{pipeline.workers} of them."
        )
    fewer, more = _gain("fewer-workers", candidates), _gain("num_workers", candidates)
    candidate = candidates.get("num_workers")
    wanted = (
        pipeline.workers if candidate is None or candidate.trial is None else candidate.trial.arguments["num_workers"]
    )
    if wanted < pipeline.workers:
        fewer, more = max(fewer, more), 1.0
    crowded = pipeline.workers > 2 * pipeline.cores
    least = 1 + _LITTLE if pipeline.workers >= 4 * pipeline.cores or limit == "cores" else _GAIN
    if crowded and fewer >= least:
        return (
            f"There are too many workers: {pipeline.workers} for {pipeline.cores:g} cores. They compete with one "
            "another and with the trainer."
        )
    few = pipeline.workers <= 1 or pipeline.workers <= pipeline.cores / 4
    waits_for_disk = pipeline.workers and situation.share("read") >= 0.5 and situation.idle_share("read") >= 0.5
    promised = situation.idle_gain_of(with_workers(pipeline, wanted))
    enough = more >= 1 + _LITTLE and promised >= max(_GAIN, situation.idle_gain_limit**_LARGE_PART)
    if few and enough and not waits_for_disk:
        count = "no worker" if pipeline.workers == 0 else "only one worker" if pipeline.workers == 1 else (
            f"only {pipeline.workers} workers"
        )  # fmt: skip
        return (
            f"There are too few workers: the loader has {count} on {pipeline.cores:g} cores, and the script waits "
            f"{steps.waiting:.0%} of its time."
        )
    return None


def _judge_stragglers(situation: Situation, candidates: Mapping[str, Advice]) -> tuple[VerdictStage, str] | None:
    """Apply rule 5: where the slow samples spend their time, if they explain most of what can be gained."""
    stragglers, candidate = situation.find_stragglers(), candidates.get("slow-samples")
    if stragglers is None or candidate is None or candidate.predicted - 1 < 0.4 * (situation.gain_limit - 1):
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
    others = situation.pipeline.background
    if others > 0.25 * situation.pipeline.cores:
        doubts.append(
            f"The machine is busy: about {others:.1f} threads of other programs compete for "
            f"{situation.pipeline.cores:g} cores, so speeds measured one after another may contradict each other."
        )
    elif (share := core_share(recording, "")) < _LACKING_CORES:
        doubts.append(
            f"Threads that could run waited for a core {1 - share:.0%} of the time, so speeds measured one after "
            "another may contradict each other."
        )
    shares = sorted(limiting_shares(situation).items(), key=lambda item: -item[1])
    if len(shares) > 1 and stage == shares[0][0] and shares[1][1] > 0.7 * shares[0][1]:
        doubts.append(f"{_DOING[shares[1][0]]} takes nearly as much ({shares[1][1]:.0%}).")
    return doubts
