"""Each candidate of advice applies where it helps, and is silent elsewhere; what is kept was worth it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import penstock as ps
from penstock.doctor.judge import analysis
from penstock.doctor.judge.absences import find_absences
from penstock.doctor.judge.advice import CANDIDATES, num_workers
from penstock.doctor.judge.advice.loader_arguments import find_persistent_workers
from penstock.doctor.judge.analysis import _is_faster, diagnose
from penstock.doctor.judge.diagnosis import ONE_THREAD, Advice
from penstock.doctor.judge.situation import examine
from penstock.doctor.judge.verdict import decide, find_limit
from penstock.doctor.trials.changed_loader import Change
from penstock.doctor.trials.trial_child import StepShape, TrialOrder
from penstock.doctor.trials.trials import Trial
from penstock.doctor.trials.turns import Measured
from penstock.doctor.watching.recording import Recording, ThreadGain
from tests.doctor.simulator import Script, simulate
from tests.pack.images import make_photos

READING = Script(2, cores=4, read_idle=6.0, read=0.5, step_idle=5)
DECODING = Script(2, cores=2, decode=4.0, step_idle=5)


def candidates(rule: str, recording: Recording, loader: Any = None) -> list[Advice]:
    """What one file of advice says."""
    return list(CANDIDATES.get(rule)(examine(recording, loader)))


def record(script: Script, nbytes: int = 0, **changes: Any) -> Recording:
    """A recording of ``script`` with changed settings, and batches of ``nbytes``."""
    recording = simulate(script, batches=100)
    recording.settings = replace(recording.settings, **changes)
    recording.events["nbytes"][recording.events["stage"] == 3] = nbytes or -1
    return recording


def test_every_candidate_can_be_asked() -> None:
    """Each registered file answers for any script, and names itself or a variant of itself."""
    for script in (READING, DECODING, Script(0), Script(1, copy=20)):
        recording = record(script)
        for rule in CANDIDATES:
            for candidate in candidates(rule, recording):
                assert candidate.change
                assert candidate.reason.endswith(".")
                assert candidate.measured is None


def tried_workers(recording: Recording) -> dict[str, object]:
    """Numbers of workers that are tried, by their rules."""
    found = candidates("num_workers", recording)
    return {each.rule: each.trial.arguments["num_workers"] for each in found if each.trial is not None}


@pytest.mark.parametrize(
    ("script", "numbers"),
    [
        (READING, {"num_workers": 4, "more-workers": 8}),
        (DECODING, {}),
        (replace(DECODING, workers=12), {"fewer-workers": 2}),
        (replace(DECODING, workers=0), {"num_workers": 2}),
        (Script(2, cores=2, decode=0.1, step_idle=0.1), {"no-workers": 0}),
    ],
)
def test_numbers_of_workers_that_are_tried(script: Script, numbers: dict[str, int]) -> None:
    """As many as cores; twice as many where workers wait for a disk; none where batches are quick."""
    assert tried_workers(record(script)) == numbers


def test_prefetch_and_order_for_rare_slow_batches() -> None:
    """A longer buffer, or delivery out of order, where rare batches are slow."""
    recording = record(Script(4, prefetch=1, cores=8, decode=0.4, step_idle=4, slow_index=321, slow_ms=120))

    assert candidates("prefetch_factor", recording)[0].change == "prefetch_factor=4"
    assert candidates("in_order", recording)[0].change == "in_order=False"
    assert candidates("slow-samples", recording)[0].change == "repair or leave out index 321"
    assert candidates("prefetch_factor", record(DECODING)) == candidates("in_order", record(DECODING)) == []


def test_slow_samples_are_named_by_their_keys() -> None:
    """A sample that has a name is called by it."""
    recording = record(Script(2, cores=8, decode=0.4, step_idle=4, slow_index=321, slow_ms=500))
    recording.keys = {321: "cats/7.jpg"}

    assert candidates("slow-samples", recording)[0].change == "repair or leave out cats/7.jpg"


def test_threads_in_workers() -> None:
    """Workers that compute with several threads each; not those with one."""
    assert candidates("worker-threads", record(replace(DECODING, threads=4)))[0].trial is not None
    assert candidates("worker-threads", record(DECODING)) == []


def test_uint8_for_large_batches() -> None:
    """Large batches whose sending limits; not small ones."""
    script = Script(2, decode=0.2, send=8, receive=15, step_idle=3)

    assert candidates("uint8", record(script, nbytes=100 << 20))[0].trial is not None
    assert candidates("uint8", record(script, nbytes=1 << 20)) == []
    assert candidates("uint8", record(DECODING, nbytes=100 << 20)) == []


def test_arrays_are_joined_where_collation_is_slow_for_its_bytes() -> None:
    """Collation of small arrays; not that of much memory."""
    script = Script(2, collate=4.0, step_idle=3)

    assert candidates("join-arrays", record(script, nbytes=1 << 20))[0].trial is not None
    assert candidates("join-arrays", record(script, nbytes=1 << 30)) == []


def test_arrays_are_joined_where_sending_is_slow_for_its_bytes() -> None:
    """Each array of a batch is sent by itself: many of them take milliseconds."""
    sent = record(Script(2, send=8.0, receive=6.0, step_idle=3), nbytes=100_000)

    assert candidates("join-arrays", sent)[0].trial is not None
    assert candidates("join-arrays", record(DECODING, nbytes=100_000)) == []


def test_copies_that_overlap() -> None:
    """A script that copies for most of its time; the change depends on what is set already."""
    recording = record(Script(2, decode=0.2, copy=15, step_idle=10))
    pinned = record(Script(2, decode=0.2, copy=15, step_idle=10), pin_memory=True)

    assert candidates("pin_memory", recording)[0].change.startswith("pin_memory=True")
    assert candidates("pin_memory", pinned)[0].change == "copy with non_blocking=True"
    assert candidates("pin_memory", record(DECODING)) == []


def test_packing_unless_it_is_a_store() -> None:
    """Single files that are slow to read; a store of ours is packed already."""
    assert candidates("packing", record(READING))[0].trial is None
    assert candidates("packing", record(READING, dataset="StoreDataset")) == []
    assert candidates("packing", record(DECODING)) == []


def test_packing_names_coefficients_where_there_may_be_progressive_jpegs() -> None:
    """By the endings of the samples' names."""
    recording = record(READING)
    recording.keys = {0: "cat/1.png"}
    assert "coefficients" not in candidates("packing", recording)[0].reason

    recording.keys[1] = "cat/2.jpg"
    assert "--transcode coefficients" in candidates("packing", recording)[0].reason


@pytest.mark.parametrize(("transcode", "rules"), [("none", ["seek-tables"]), ("coefficients", [])])
def test_coefficients_need_no_decode_index(tmp_path: Path, transcode: str, rules: list[str]) -> None:
    """A pack without indices is to be given them, if they can be used."""
    ps.pack(make_photos(tmp_path / "photos"), tmp_path / "a.lmdb", transcode=transcode, index="none")
    with ps.open(tmp_path / "a.lmdb") as store:
        loader = SimpleNamespace(dataset=SimpleNamespace(store=store))
        found = candidates("seek-tables", record(DECODING, dataset="StoreDataset"), loader)

    assert [each.rule for each in found] == rules


class WholeArrays:
    """Reads a whole array for each sample."""

    def __getitem__(self, index: int) -> Any:
        return np.load("images.npy")[index]


class MappedArrays:
    """Maps the array."""

    def __getitem__(self, index: int) -> Any:
        return np.load("images.npy", mmap_mode="r")[index]


class OtherFiles:
    """Loads something else, and uses NumPy."""

    def __getitem__(self, index: int) -> Any:
        with Path(f"{index}.json").open() as file:
            return np.asarray(json.load(file))


@pytest.mark.parametrize(
    ("dataset", "rule"), [(WholeArrays(), "memory-map"), (MappedArrays(), "packing"), (OtherFiles(), "packing")]
)
def test_an_array_that_is_read_for_each_sample_is_to_be_mapped(dataset: Any, rule: str) -> None:
    """`penstock pack` takes no .npy file, and mapping one costs a word."""
    found = candidates("packing", record(READING), SimpleNamespace(dataset=dataset))

    assert [each.rule for each in found] == [rule]


@pytest.mark.parametrize(
    ("disk", "words"),
    [
        ({"kind": "network", "file_system": "nfs4"}, "nfs4"),
        ({"kind": "disk", "is_rotational": True}, "rotating"),
        ({"kind": "disk", "is_rotational": False}, ""),
    ],
)
def test_disks(disk: dict[str, Any], words: str) -> None:
    """A network file system, a rotating disk, and another one."""
    recording = record(READING)
    recording.machine["disks"] = [disk]
    found = candidates("readahead", recording)

    assert bool(found) == bool(words)
    assert all(words in candidate.reason for candidate in found)


def test_large_images() -> None:
    """Decoding of large files: store them smaller, or decode at a fraction of the size."""
    recording = record(DECODING)
    assert candidates("resize-when-packing", recording) == []
    recording.usage[1].read_calls_bytes = 2_000_000 * 900

    assert candidates("resize-when-packing", recording)
    assert candidates("scaled-decoding", recording)

    recording.keys = {0: "cat/1.png", 1: "cat/2.PNG"}  # which cannot be decoded at a fraction
    assert candidates("scaled-decoding", recording) == []
    assert candidates("resize-when-packing", recording)
    recording.keys[2] = "cat/3.jpg"
    assert candidates("scaled-decoding", recording)


def test_short_epochs() -> None:
    """Workers that start anew for each short epoch."""
    recording = record(Script(2, cores=4, decode=0.3, step_idle=3))
    recording.steps.epoch = np.arange(len(recording.steps.wait_ns)) // 10
    recording.steps.wait_ns[10::10] = 200_000_000

    assert "waits 0.2" in candidates("persistent_workers", recording)[0].reason
    assert candidates("persistent_workers", record(DECODING)) == []


def test_threads_instead_of_processes_only_for_our_loader() -> None:
    """Our loader can use threads where sending limits."""
    script = Script(2, decode=0.2, send=8, receive=15, step_idle=3)

    assert candidates("threads-as-workers", record(script, library="penstock"))
    assert candidates("threads-as-workers", record(script)) == []


torch = pytest.importorskip("torch")

from torch.utils import data as td  # noqa: E402  # it needs torch


class Zeros(td.Dataset[Any]):
    """Samples."""

    def __len__(self) -> int:
        return 5000

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(4)


class Runs:
    """Trials that are made: ``speed`` of one worker or none, and of more; what was ordered is kept."""

    def __init__(self, speed: float, more: float, error: str = "") -> None:
        self.speed, self.more, self.error = speed, more, error
        self.orders: list[TrialOrder] = []

    def __call__(self, loader: Any, order: TrialOrder, **_: Any) -> Trial:
        """Batches per second."""
        self.orders.append(order)
        speed = self.more if order.change.count_workers(loader) > loader.num_workers else self.speed
        return Trial(0.0 if self.error else speed, 0 if self.error else 20, self.error)


def test_advice_is_measured() -> None:
    """A change has the gain of its trials; they have the script's step, but for the loader alone and its stages."""
    loader = td.DataLoader(Zeros(), batch_size=4, num_workers=1)
    recording = record(Script(1, batch_size=4, cores=8, read_idle=20.0, read=0.02, step_idle=20, spread=0.0))
    runs = Runs(12.5, 50.0)

    diagnosis = diagnose(recording, loader, budget_s=600, run_one=runs)

    (advice,) = [advice for advice in diagnosis.advice if advice.rule == "num_workers"]
    assert advice.measured == Measured(4.0, 4.0, 4.0, 5)  # as fast as twice as many: the order was never clear
    assert diagnosis.verdict.loader == pytest.approx(50)
    assert diagnosis.verdict.stage == "workers"  # no absence of a stage brought so much
    assert advice.code
    alone, *others = runs.orders
    assert (alone.change, alone.step) == (Change(), StepShape())
    tried = [order for order in others if order.change.arguments]
    assert {order.step for order in tried} == {examine(recording, loader).shape}
    left_out = [order for order in others if order.change.given]
    assert {order.change.given for order in left_out} == {"sample", "read", "decode", "collate", "transport"}
    assert {order.step for order in left_out} == {StepShape()}


@pytest.mark.parametrize("dominant", ["read", "decode", "collate", "transport"])
def test_the_stage_whose_absence_brings_most_is_the_verdict(dominant: str) -> None:
    """Whatever was observed: a trial without it is worth more."""
    loader = td.DataLoader(Zeros(), batch_size=8, num_workers=2)
    gains = {"sample": 1.3, "read": 1.1, "decode": 1.05, "collate": 1.0, "transport": 1.0, dominant: 3.0}
    if dominant in {"read", "decode"}:
        gains["sample"] = 3.2

    def run_one(loader: Any, order: TrialOrder, **_: Any) -> Trial:
        return Trial(10.0 * gains.get(str(order.change.given), 1.0), 20)

    diagnosis = diagnose(record(Script(2, augment=4.0, step_idle=1)), loader, budget_s=600, run_one=run_one)

    assert diagnosis.verdict.stage == dominant
    assert "3 times as fast, as a trial without it shows" in diagnosis.verdict.text
    absences = {each.stage: each for each in diagnosis.verdict.absences}
    assert absences[dominant].measured == Measured(3.0, 3.0, 3.0, 2)
    assert absences[dominant].gain == pytest.approx(3.0)


def test_augmentation_is_what_reading_and_decoding_leave() -> None:
    """Of the time that samples take; a stage that could not be left out has its part of what was observed."""
    measured = {"sample": Measured(5.0, 5.0, 5.0, 2), "read": Measured(1.25, 1.2, 1.3, 2)}

    found = find_absences({"read": 1.0, "decode": 1.0, "augment": 2.0, "draw": 1.0}, 3.0, measured, is_serial=False)

    assert found["read"].part == pytest.approx(0.2)
    assert found["decode"].part == pytest.approx(0.8 / 4)
    assert found["augment"].part == pytest.approx(0.8 - 0.2 - 0.2)
    assert found["augment"].measured == measured["sample"]
    assert found["decode"].measured is None
    assert max(each.gain for each in found.values()) <= 3.0


def test_stages_that_were_not_left_out_have_what_the_others_leave() -> None:
    """Where a stage was measured, and whole samples were not."""
    measured = {"decode": Measured(2.5, 2.4, 2.6, 2)}

    found = find_absences({"read": 3.0, "decode": 1.0}, 5.0, measured, is_serial=False)

    assert found["decode"].part == pytest.approx(0.6)
    assert found["read"].part == pytest.approx(0.4)


def test_a_loader_in_the_trainer_s_process_has_a_part_of_the_waiting() -> None:
    """Without trials, what it takes is the time that the script waits."""
    found = find_absences({"decode": 3.0, "collate": 1.0}, 2.0, {}, is_serial=True)

    assert found["decode"].gain == pytest.approx(1 / (1 - 0.5 * 0.75))


def test_one_thread_is_advised_where_the_script_was_faster_with_it() -> None:
    """What the script itself has gained is measured; workers, which compute with one thread, gain beside it."""
    recording = record(Script(0, cores=2, read=0.2, decode=3.0, step_idle=1))
    recording.thread_gain = ThreadGain(2, 6.0, 7.0)
    loader = td.DataLoader(Zeros(), batch_size=4)

    diagnosis = diagnose(recording, loader, budget_s=600, run_one=Runs(20.0, 20.0))

    advice = {each.rule: each.measured for each in diagnosis.advice}
    assert diagnosis.verdict.stage == "threads", diagnosis.verdict.text
    assert "torch uses 2 in the main process" in diagnosis.verdict.text
    assert advice["main-threads"] == Measured(42**0.5, 6.0, 7.0, 2)
    assert advice["num_workers"] is not None
    assert advice["num_workers"].median > 4  # workers, and one thread
    assert "torch.set_num_threads(1)" in next(each for each in diagnosis.advice if each.rule == "main-threads").code


@pytest.mark.parametrize(("gain", "stage"), [(30.0, "threads"), (1.4, "read")])
def test_one_thread_has_to_bring_more_than_a_stage(gain: float, stage: str) -> None:
    """Else the stage is named whose absence brings most."""
    recording = record(READING)
    recording.thread_gain = ThreadGain(2, gain, gain)
    situation = examine(recording, None)
    threads = Advice("main-threads", ONE_THREAD, "It was faster.", Measured(gain, gain, gain, 2))

    assert decide(situation, find_limit(situation), {"main-threads": threads}).stage == stage
    situation.background = 2 * situation.cores
    assert decide(situation, "loader", {"main-threads": threads}).stage == "read"  # other programs have the cores


def test_too_many_workers_are_named_whatever_a_stage_brings() -> None:
    """Where there are more than two for a core, and fewer were faster."""
    situation = examine(record(replace(DECODING, workers=8)), None)
    fewer = Advice("fewer-workers", "num_workers=2", "They compete.", Measured(1.2, 1.1, 1.3, 3))

    assert decide(situation, find_limit(situation), {"fewer-workers": fewer}).stage == "workers"
    assert decide(situation, find_limit(situation), {}).stage == "decode"


@pytest.mark.parametrize("lowest", [0.4, 1.05])
def test_one_thread_that_brings_little_is_no_advice(lowest: float) -> None:
    """Steps before and after must both be slower."""
    recording = record(Script(0, cores=2, decode=3.0, step_idle=1))
    recording.thread_gain = ThreadGain(2, lowest, 2.0)

    diagnosis = diagnose(recording, trials=False)

    assert "main-threads" not in [each.rule for each in diagnosis.advice]
    assert diagnosis.verdict.stage != "threads"


def test_what_does_not_help_is_not_advised() -> None:
    """A change that is tried, and slower, is left out: workers fight for what they share."""
    loader = td.DataLoader(Zeros(), batch_size=8, num_workers=1)
    recording, runs = record(Script(1, cores=8, read_idle=4.0, read=0.02, step_idle=5)), Runs(30.0, 25.0)

    diagnosis = diagnose(recording, loader, budget_s=600, run_one=runs)

    assert any("num_workers" in order.change.arguments for order in runs.orders)
    assert "num_workers" not in [advice.rule for advice in diagnosis.advice], diagnosis.advice


def test_what_was_mostly_slower_is_no_advice() -> None:
    """Nor what brings little, or less than its runs differ while one was slower."""
    assert not _is_faster(Measured(0.91, 0.66, 1.16, 2))
    assert not _is_faster(Measured(1.02, 1.01, 1.03, 5))
    assert not _is_faster(Measured(1.1, 0.9, 1.3, 5))
    assert _is_faster(Measured(1.1, 1.0, 1.3, 5))
    assert _is_faster(Measured(1.4, 0.95, 1.3, 5))


def test_what_was_not_tried_is_no_advice() -> None:
    """A dataset that fails in a trial leaves facts, and the reason; without trials there are facts alone."""
    loader = td.DataLoader(Zeros(), batch_size=8, num_workers=1)
    runs = Runs(1.0, 1.0, "FileNotFoundError: the folder is gone")

    failed = diagnose(record(READING), loader, budget_s=600, run_one=runs)
    untried = diagnose(record(READING), trials=False)

    assert len(runs.orders) == 1
    assert "the folder is gone" in failed.notes[0]
    for diagnosis in (failed, untried):
        assert [advice.rule for advice in diagnosis.advice] == ["packing"]
        assert diagnosis.advice[0].measured is None


def test_collation_that_is_slow_for_other_reasons() -> None:
    """Slow collation gets advice also where samples hold no small arrays."""
    assert candidates("faster-collation", record(Script(2, collate=4.0, step_idle=3)))
    assert candidates("faster-collation", record(DECODING)) == []


def test_images_in_memory_are_decoded_at_a_fraction() -> None:
    """Where a dataset reads no files, the size of its images is not known: the advice says what it assumes."""
    recording = record(DECODING)
    assert candidates("scaled-decoding", recording)
    recording.usage[1].read_calls_bytes = 50_000 * 900

    assert candidates("scaled-decoding", recording) == []


def test_first_workers_come_with_one_thread_in_the_main_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials compute with one thread there; the advice says so where that is no loss, and its gain is counted."""
    monkeypatch.setattr(num_workers, "count_threads", lambda: 2)
    recording = record(replace(DECODING, workers=0))
    (found,) = candidates("num_workers", recording)
    assert "thread" in found.change  # it was not tried, and there are more threads and workers than cores
    recording.thread_gain = ThreadGain(2, 1.2, 1.3)
    (found,) = candidates("num_workers", recording)

    assert found.change.endswith(", with one thread of torch's in the main process")
    assert found.code.endswith("; torch.set_num_threads(1)")
    recording.thread_gain = ThreadGain(2, 0.5, 0.6)
    (found,) = candidates("num_workers", recording)
    assert "thread" not in found.change


class Lines(IterableDataset[int]):
    """A stream that every worker reads whole."""

    def __iter__(self) -> Iterator[int]:
        yield from range(10)


class Parts(IterableDataset[int]):
    """A stream of which every worker reads a part."""

    def __iter__(self) -> Iterator[int]:
        worker = get_worker_info()
        yield from range(10)[
            slice(0 if worker is None else worker.id, None, 1 if worker is None else worker.num_workers)
        ]


def test_first_workers_of_a_stream_get_parts_of_it() -> None:
    """Workers that would all give every sample are not tried, and the advice says how to divide the stream."""
    recording = record(replace(DECODING, workers=0))
    (whole,) = candidates("num_workers", recording, DataLoader(Lines(), 4))
    (parts,) = candidates("num_workers", recording, DataLoader(Parts(), 4))

    assert whole.trial is None
    assert "get_worker_info" in whole.code
    assert parts.trial is not None
    assert "__iter__" not in parts.change


def test_a_loader_of_each_epoch_is_to_be_made_once() -> None:
    """Persistent workers of a loader that is made anew for each epoch would end with it."""
    recording = record(Script(2, cores=4, decode=4.0, step_idle=5), num_workers=2)
    situation = examine(recording)
    situation.epoch_batches = 4
    (once,) = find_persistent_workers(situation)
    recording.loaders = 3
    (anew,) = find_persistent_workers(situation)

    assert once.change == "persistent_workers=True"
    assert anew.change.startswith("make the loader once")


@pytest.mark.parametrize(("key", "found"), [("cat.jpg", 1), ("signal.pkl", 0)])
def test_smaller_pictures_are_for_pictures(key: str, found: int) -> None:
    """What is decoded is a picture by its name."""
    recording = record(DECODING)
    recording.keys = {3: key}

    assert len(candidates("scaled-decoding", recording)) == found


@pytest.mark.parametrize(("threads", "present", "factor"), [(2, 0.5, 0.5), (2, 1.3, 1.0), (1, 0.5, 1.0)])
def test_trials_with_one_thread_are_compared_with_the_script(
    threads: int, present: float, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the script computes with several threads and was not run with one, its own speed says what that loses."""
    situation = examine(record(replace(DECODING, workers=0)))
    (candidate,) = CANDIDATES.get("num_workers")(situation)
    monkeypatch.setattr(analysis, "count_threads", lambda: threads)

    work = analysis._Work(situation, 0.0, None)

    assert work._factor(candidate, present * situation.steps.delivered) == pytest.approx(factor)
    situation.recording.thread_gain = ThreadGain(2, 0.6, 0.6)
    assert work._factor(candidate, present * situation.steps.delivered) == pytest.approx(0.6)
