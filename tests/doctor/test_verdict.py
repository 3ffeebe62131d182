"""The verdict names the stage that limits a simulated script whose costs are known."""

from __future__ import annotations

import pytest

from penstock.doctor.judge.analysis import diagnose
from penstock.doctor.judge.diagnosis import VERDICTS
from penstock.doctor.judge.situation import examine
from penstock.doctor.judge.stage_costs import cost_batches, summarize_steps
from penstock.doctor.judge.text_report import Diagnosis
from penstock.doctor.machine.usage import ProcessUsage
from penstock.doctor.watching.recording import BATCH, SAMPLE, STAGES
from tests.doctor.recordings import make_recording, make_steps
from tests.doctor.simulator import Script, simulate

LIMITED = {
    "read": Script(2, read_idle=8.0, read=0.2, decode=0.5, step_idle=10),
    "decode": Script(2, read=0.2, decode=5.0, augment=0.5, step_idle=10),
    "augment": Script(2, read=0.2, decode=0.5, augment=5.0, step_idle=10),
    "collate": Script(2, decode=0.2, collate=4.0, step_idle=8),
    "transport": Script(2, decode=0.3, send=12.0, receive=20.0, step_idle=8),
    "copy": Script(2, decode=0.3, copy=15.0, step_idle=10),
    "step": Script(2, decode=0.1, step_idle=60),
    "none": Script(2, decode=2.0, step_idle=20),
}


def diagnose_simulated(script: Script) -> Diagnosis:
    """Watch a simulated script for 120 steps, and try nothing."""
    return diagnose(simulate(script, batches=120), trials=False)


@pytest.mark.parametrize("stage", list(LIMITED))
def test_stage_that_limits(stage: str) -> None:
    """The stage that costs most where the script waits; the step or nothing where it does not."""
    verdict = diagnose_simulated(LIMITED[stage]).verdict

    assert verdict.stage == stage, verdict.text
    assert verdict.stage in VERDICTS
    assert verdict.text.endswith(".")


def test_straggler() -> None:
    """One sample in a thousand that takes half a second: it is named, and where it spends its time."""
    script = Script(2, cores=8, decode=0.5, step_idle=5, slow_index=321, slow_ms=500)
    diagnosis = diagnose_simulated(script)

    assert diagnosis.verdict.stage == "read", diagnosis.verdict.text
    assert "index 321" in diagnosis.verdict.text
    assert diagnosis.samples[0].index == 321
    assert diagnosis.samples[0].ms == pytest.approx(500, rel=0.1)
    assert "slow-samples" in [advice.rule for advice in diagnosis.advice]


def test_a_sample_that_was_interrupted_is_no_straggler() -> None:
    """Where workers get a fifth of a core, a sample may take 80 ms because others compute."""
    recording = simulate(Script(2, cores=8, decode=0.5, step_idle=5, slow_index=321, slow_ms=80), batches=120)
    assert examine(recording).find_stragglers() is not None

    for usage in recording.usage:
        usage.waiting_for_cpu_ns = 4 * usage.cpu_ns

    assert examine(recording).find_stragglers() is None


def test_healthy_script_has_no_advice() -> None:
    """Where the script hardly waits there is nothing to gain, and no advice."""
    for stage in ("none", "step"):
        diagnosis = diagnose_simulated(LIMITED[stage])

        assert diagnosis.advice == []
        assert "nothing to gain" in diagnosis.verdict.text


def test_numbers_of_the_verdict() -> None:
    """Waiting and speeds are those of the script."""
    verdict = diagnose_simulated(Script(2, cores=8, decode=5.0, step_idle=10)).verdict

    assert verdict.waiting == pytest.approx(0.5, abs=0.06)
    assert verdict.delivered == pytest.approx(400, rel=0.05)
    assert verdict.trainer == pytest.approx(800, rel=0.05)
    assert verdict.loader == 0  # nothing was tried


def test_stages_have_costs_and_shares() -> None:
    """Stages have their cost per sample; shares of the work add up to one."""
    stages = {cost.stage: cost for cost in diagnose_simulated(Script(2, cores=8, read=1.0, decode=3.0)).stages}

    assert stages["read"].us_per_sample == pytest.approx(1000, rel=0.1)
    assert stages["decode"].us_per_sample == pytest.approx(3000, rel=0.1)
    assert sum(cost.share for cost in stages.values()) == pytest.approx(1)
    assert stages["step"].us_per_sample == pytest.approx(10_000 / 8, rel=0.1)


def test_recording_without_steps() -> None:
    """A script that took no batch is nothing to judge."""
    recording = simulate(Script(2), batches=1, replayed=0)
    recording.steps = type(recording.steps)(*(getattr(recording.steps, name)[:0] for name in recording.steps.__slots__))
    diagnosis = diagnose(recording)

    assert diagnosis.verdict.stage == "none"
    assert diagnosis.verdict.delivered == 0


def test_waiting_that_is_little_is_explained() -> None:
    """Where a script waits and nothing is to be gained, the sentence says why."""
    recording = simulate(Script(2, decode=0.2, step_idle=9), batches=120)
    recording.machine = {"watched": {"others_cores": 1.5}, "load": {"average_1_min": 4.0}}
    recording.steps.wait_ns[~recording.steps.replayed] = 750_000
    verdict = diagnose(recording, trials=False).verdict

    assert verdict.stage in {"none", "step"}, verdict.text
    assert verdict.waiting > 0.05
    assert "usual where other programs compete" in verdict.text or verdict.stage == "step"


def test_waiting_with_later_batches_ready_is_for_the_loader() -> None:
    """A batch that is ready may be a later one: only what the main process waited for a core is taken off."""
    recording = simulate(Script(2, decode=5.0, step_idle=10), batches=120)
    recording.steps.ready[:] = 1
    main = next(usage for usage in recording.usage if usage.role == "main")
    main.cpu_ns, main.waiting_for_cpu_ns, main.wall_ns = 10_000_000, 40_000_000, 4_000_000_000
    steps = summarize_steps(recording)

    assert steps.waiting_for_loader == pytest.approx(steps.waiting - 0.01, abs=0.002)


def test_what_is_sent_within_a_batch_counts_once() -> None:
    """Copies into shared memory are part of the batch's time, and not of its samples'."""
    ms = 1_000_000
    events = []
    for batch in range(30):
        start = batch * 100 * ms
        events += [
            (SAMPLE, 0, batch, batch, start, start + 2 * ms, 2 * ms, -1, 1),
            (STAGES.index("augment"), 0, batch, batch, start, start + 2 * ms, 2 * ms, -1, 1),
            (STAGES.index("transport"), 0, batch, -1, start + 2 * ms, start + 42 * ms, 40 * ms, 50_000_000, 4),
            (BATCH, 0, batch, -1, start, start + 42 * ms, 42 * ms, 50_000_000, 4),
            (STAGES.index("transport"), 0, batch, -1, start + 43 * ms, start + 44 * ms, ms, 50_000_000, 4),
        ]
    costs = cost_batches(make_recording(events, make_steps(range(0, 3000 * ms, 100 * ms))))

    assert costs.wall_ns["augment"].mean() == pytest.approx(2 * ms)
    assert costs.wall_ns["transport"].mean() == pytest.approx(41 * ms)


def test_reading_that_computes_keeps_its_processor_time_where_cores_lack() -> None:
    """What a thread waits for a core is no waiting for files: it is divided among the stages as their time is."""
    ms = 1_000_000
    read, augment = STAGES.index("read"), STAGES.index("augment")
    events = []
    for batch in range(30):
        start = batch * 100 * ms
        events += [
            (SAMPLE, 0, batch, batch, start, start + 40 * ms, 10 * ms, -1, 1),
            (read, 0, batch, batch, start, start + 30 * ms, 0, -1, 1),
            (augment, 0, batch, batch, start + 30 * ms, start + 40 * ms, 10 * ms, -1, 1),
            (BATCH, 0, batch, -1, start, start + 40 * ms, 10 * ms, -1, 1),
        ]
    usage = ProcessUsage("worker 0", 2, 300 * ms, 3000 * ms, waiting_for_cpu_ns=900 * ms)
    crowded = make_recording(events, make_steps(range(0, 3000 * ms, 100 * ms)), usage=[usage])
    quiet = make_recording(events, make_steps(range(0, 3000 * ms, 100 * ms)))

    assert cost_batches(crowded).cpu_ns["read"].mean() == pytest.approx(7.5 * ms, rel=0.01)
    assert cost_batches(quiet).cpu_ns["read"].mean() == pytest.approx(0, abs=ms / 10)


def test_samples_before_the_first_look_are_as_the_later_ones() -> None:
    """A sample without parts is divided as the others are."""
    ms = 1_000_000
    events = []
    for batch in range(30):
        start = batch * 100 * ms
        events.append((SAMPLE, 0, batch, batch, start, start + 40 * ms, 40 * ms, -1, 1))
        if batch >= 20:
            events.append((STAGES.index("decode"), 0, batch, batch, start, start + 40 * ms, 40 * ms, -1, 1))
    costs = cost_batches(make_recording(events, make_steps(range(0, 3000 * ms, 100 * ms))))

    assert costs.wall_ns["decode"].mean() == pytest.approx(40 * ms)
    assert costs.wall_ns["augment"].sum() == 0


def test_a_sampler_that_is_slow_is_named() -> None:
    """It works in the main process: no stage of the workers, nor the receipt of batches, is the limit."""
    recording = simulate(Script(2, cores=8, decode=0.2, step_idle=2), batches=120)
    recording.steps.wait_ns[~recording.steps.replayed] = 20_000_000
    recording.draw_ns = 20_000_000

    diagnosis = diagnose(recording, trials=False)

    assert diagnosis.verdict.stage == "collate"
    assert "sampler limits" in diagnosis.verdict.text
    assert [advice.rule for advice in diagnosis.advice] == ["faster-sampler"]


def test_a_busy_machine_is_said() -> None:
    """Speeds that were measured one after another are not comparable where cores lack: the verdict says so."""
    recording = simulate(Script(2, decode=5.0, step_idle=1), batches=60)
    assert "contradict" not in diagnose(recording, trials=False).verdict.text
    for usage in recording.usage:
        usage.waiting_for_cpu_ns = usage.cpu_ns
    waits = diagnose(recording, trials=False).verdict.text
    recording.machine = {"watched": {"others_cores": 3.0}, "load": {"average_1_min": 8.0}}
    busy = diagnose(recording, trials=False).verdict.text

    assert "waited for a core 50% of the time" in waits
    assert "The machine is busy: about" in busy
    assert "contradict" in busy
