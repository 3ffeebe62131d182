"""The queueing model agrees with a simulation in time slices that is written in another way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.doctor.judge.observed_pipeline import observe_pipeline
from penstock.doctor.judge.queueing import TrainingPipeline, Work, predict
from penstock.doctor.judge.stage_costs import summarize_steps
from penstock.doctor.watching.recording import BATCH, SAMPLE, Recording
from tests.doctor.simulator import Script, simulate


def delivered(recording: Recording) -> float:
    """Samples per second in the later half of the steps, whose buffers are in a steady state."""
    steps = recording.steps
    seen = np.flatnonzero(~steps.replayed)
    group = max(recording.settings.num_workers, 1)
    last = seen[len(seen) // 2 :]
    last = last[: len(last) // group * group]
    return float(steps.samples[last].sum() * 1e9 / (steps.wait_ns[last] + steps.step_ns[last]).sum())


def predicted(recording: Recording, script: Script) -> float:
    """Samples per second of ``script`` by the model, from the recording of another one."""
    pipeline = observe_pipeline(recording)
    pipeline = replace(pipeline, workers=script.workers, prefetch=script.prefetch)
    return predict(pipeline).batches_per_s * script.batch_size


@given(
    workers=st.integers(0, 6),
    prefetch=st.integers(1, 4),
    cores=st.sampled_from([2, 4, 8]),
    decode=st.floats(0.1, 3),
    read_idle=st.floats(0, 3),
    step_idle=st.floats(0, 20),
    step_cpu=st.floats(0.2, 15),
    spread=st.floats(0, 0.5),
)
@settings(max_examples=min(15, settings().max_examples // 8))
def test_prediction_of_the_present_setting(
    workers: int,
    prefetch: int,
    cores: int,
    decode: float,
    read_idle: float,
    step_idle: float,
    step_cpu: float,
    spread: float,
) -> None:
    """Samples per second of the setting that was observed are predicted within 10 %."""
    script = Script(
        workers, prefetch, cores=cores, decode=decode, read_idle=read_idle, step_idle=step_idle, step_cpu=step_cpu,
        spread=spread,
    )  # fmt: skip
    recording = simulate(script, batches=120)

    assert predicted(recording, script) == pytest.approx(delivered(recording), rel=0.1)


@given(
    before=st.integers(1, 5),
    after=st.integers(1, 6),
    cores=st.sampled_from([2, 4, 8]),
    decode=st.floats(0.2, 3),
    read_idle=st.floats(0, 3),
    step_cpu=st.floats(0.2, 15),
)
@settings(max_examples=min(15, settings().max_examples // 8))
def test_prediction_of_another_number_of_workers(
    before: int, after: int, cores: int, decode: float, read_idle: float, step_cpu: float
) -> None:
    """Samples per second with another number of workers are predicted within 10 % from the recording of one."""
    script = Script(before, cores=cores, decode=decode, read_idle=read_idle, step_idle=4, step_cpu=step_cpu)
    changed = replace(script, workers=after)

    assert predicted(simulate(script, batches=120), changed) == pytest.approx(
        delivered(simulate(changed, batches=120)), rel=0.1
    )


@pytest.mark.parametrize("step_threads", [1, 2])
def test_trainer_shares_the_cores(step_threads: int) -> None:
    """A trainer that computes takes cores from the workers."""
    script = Script(4, cores=2, decode=2.0, step_idle=0, step_cpu=8, step_threads=step_threads)
    recording = simulate(script)

    assert predicted(recording, script) == pytest.approx(delivered(recording), rel=0.1)
    free = replace(observe_pipeline(recording), cores=8.0)
    assert predict(free).batches_per_s * 8 > 1.3 * delivered(recording)


def test_prefetch_hides_rare_slow_batches() -> None:
    """More batches ahead hide a straggler; the model says how much."""
    script = Script(2, prefetch=1, cores=8, decode=0.5, step_idle=8, slow_index=500, slow_ms=100)
    recording = simulate(script, batches=250)
    changed = replace(script, prefetch=8)

    assert predicted(recording, changed) == pytest.approx(delivered(simulate(changed, batches=250)), rel=0.1)
    assert predicted(recording, changed) > 1.02 * predicted(recording, script)


def test_waiting_is_that_of_the_trainer() -> None:
    """The predicted part of the time that the trainer waits is the one observed."""
    recording = simulate(Script(1, cores=4, decode=2.0, step_idle=5))

    assert predict(observe_pipeline(recording)).waiting == pytest.approx(summarize_steps(recording).waiting, abs=0.05)


def test_short_epochs_cost_a_start_each() -> None:
    """With epochs that end, each one pays the start of its workers and an empty buffer."""
    work = Work(np.full(8, 1e6), np.zeros(8))
    endless = TrainingPipeline(2, 2, 8.0, {"decode": work}, step_ns=1e6)
    short = replace(endless, epoch_batches=10, startup_ns=50e6)

    assert predict(endless).batches_per_s == pytest.approx(1000, rel=0.02)
    assert predict(short).batches_per_s == pytest.approx(10 / 0.061, rel=0.02)


def test_a_stage_can_be_made_cheaper() -> None:
    """A stage at half its cost, and with transport the receipt in the main process too."""
    work = Work(np.full(8, 4e6), np.zeros(8))
    pipeline = TrainingPipeline(1, 2, 8.0, {"decode": work, "transport": work}, step_ns=0.0, receive_ns=1e6)

    assert predict(pipeline).batches_per_s == pytest.approx(125, rel=0.02)
    assert predict(pipeline.with_stage("decode", 0.5)).batches_per_s == pytest.approx(1000 / 6, rel=0.02)
    assert pipeline.with_stage("transport", 0.25).receive_ns == 0.25e6


def test_preparation_is_paid_once_by_each_worker() -> None:
    """What a worker does with its first batch of an epoch costs less with fewer workers."""
    build = {"augment": Work(np.full(8, 1e6), np.zeros(8))}
    once = Work(np.array([20e6]), np.zeros(1))
    crowd = TrainingPipeline(8, 2, 2.0, build, step_ns=0.0, epoch_batches=16, preparation=once)

    assert predict(replace(crowd, preparation=None)).batches_per_s > 3 * predict(crowd).batches_per_s
    assert predict(replace(crowd, workers=2)).batches_per_s > 2 * predict(crowd).batches_per_s


def test_preparation_is_seen_in_first_samples() -> None:
    """The first sample of each worker in an epoch, where it is much slower than others, is preparation."""
    recording = simulate(Script(2, cores=8, augment=1.0, spread=0.0, step_idle=2), batches=60, replayed=0)
    steps, events = recording.steps, recording.events
    steps.epoch = np.arange(len(steps.wait_ns)) // 6
    first = (events["stage"] == SAMPLE) & (events["index"] % 48 == 0)
    plain = observe_pipeline(recording).preparation
    events["end"][first] += 50_000_000
    for stage in (2, BATCH):  # the part of the sample, and its batch
        other = (events["stage"] == stage) & np.isin(events["batch"], events["batch"][first])
        if stage == BATCH:
            events["end"][other] += 50_000_000
    slow = observe_pipeline(recording)

    assert plain is None
    assert slow.preparation is not None
    total_ns = float(slow.preparation.cpu_ns[0] + slow.preparation.idle_ns[0])
    assert total_ns == pytest.approx(25e6, rel=0.2)  # one of the two workers has it
