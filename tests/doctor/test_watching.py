"""Watching a loader changes nothing of it, and sees what it does, for each kind of loader and worker."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
import torch.utils.data

import penstock
import penstock.torch
from penstock import doctor
from penstock.datasets.sample_names import name_sample
from penstock.doctor import block as watching
from penstock.doctor.watching.batch_copies import ReplayedBatch
from penstock.doctor.watching.event_file import Control, EventFile, find_writer, make_row, read_events
from penstock.doctor.watching.loaders.loader_watch import EpochWatch, LoaderWatch, ScriptStep, step_times
from penstock.doctor.watching.recording import BATCH, EVENT, SAMPLE, STAGES, Recording
from penstock.doctor.watching.watched_process import WatchedProcess
from penstock.doctor.watching.watcher import Limits, Watcher, blocks
from penstock.doctor.watching.work_recorder import WorkRecorder
from penstock.errors import ArgumentError
from tests.effort import mark_slow

MS = 1_000_000
SEEN_NS = 50 * MS
PATCHED = [
    (kind, name) for kind in (torch.utils.data.DataLoader, penstock.DataLoader) for name in ("__init__", "__iter__")
]


class Numbers(torch.utils.data.Dataset[Any]):
    """Samples that draw from all global generators."""

    def __init__(self, count: int = 48, slow: int = -1) -> None:
        self.count, self.slow = count, slow
        self.files = [f"folder/{number}.jpg" for number in range(count)]

    def __len__(self) -> int:
        """Samples."""
        return self.count

    def __getitem__(self, index: int) -> Any:
        """The index, and random numbers."""
        if index == self.slow:
            read_slowly()
        drawn = [torch.rand(()).item(), float(np.random.rand()), random.random()]  # noqa: NPY002  # as users do
        return np.array([index, *drawn])


def read_slowly() -> None:
    """A read that waits for its disk, until it was looked at for :data:`SEEN_NS`."""
    works, deadline = [found for found in gc.get_objects() if type(found) is WorkRecorder], time.monotonic() + 60
    while not any(sum(seen.values()) >= SEEN_NS for seen in batches_in_sight(works)):
        assert time.monotonic() < deadline, "a slow sample was not looked at"
        time.sleep(0.005)


def batches_in_sight(works: list[WorkRecorder]) -> list[dict[str, int]]:
    """What was seen of the samples of each batch that this process builds, by stage."""
    return [work.thread.activity.weights.copy() for work in works if work.is_busy and work.thread.activity is not None]


class Stream(torch.utils.data.IterableDataset[Any]):
    """Numbers, each in one worker."""

    def __iter__(self) -> Iterator[Any]:
        """Every n-th number."""
        worker = torch.utils.data.get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return iter([np.array([number, random.random()]) for number in range(first, 48, step)])  # as users do


class OwnLoader(torch.utils.data.DataLoader[Any]):
    """A subclass with an ``__iter__`` of its own."""

    def __iter__(self) -> Any:
        """Torch's batches."""
        yield from super().__iter__()


Make = Callable[[], Any]
TORCH: dict[str, Make] = {
    "serial": lambda: torch.utils.data.DataLoader(Numbers(), batch_size=4),
    "workers": lambda: torch.utils.data.DataLoader(Numbers(), batch_size=4, shuffle=True, num_workers=2),
    "persistent": lambda: torch.utils.data.DataLoader(
        Numbers(), batch_size=4, shuffle=True, num_workers=2, persistent_workers=True
    ),
    "forkserver": lambda: torch.utils.data.DataLoader(
        Numbers(), batch_size=4, num_workers=1, multiprocessing_context="forkserver"
    ),
    "stream": lambda: torch.utils.data.DataLoader(Stream(), batch_size=4, num_workers=2),
    "stream without workers": lambda: torch.utils.data.DataLoader(Stream(), batch_size=4),
    "batch sampler": lambda: torch.utils.data.DataLoader(
        Numbers(), batch_sampler=[[0, 1, 2], [3], [4, 5], [6, 7, 8, 9]] * 3, num_workers=2
    ),
    "single samples": lambda: torch.utils.data.DataLoader(Numbers(12), batch_size=None, num_workers=2),
    "subclass": lambda: OwnLoader(Numbers(), batch_size=4, num_workers=2),
    "any order": lambda: torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=1, in_order=False),
}
OWN: dict[str, Make] = {
    "numpy serial": lambda: penstock.DataLoader(Numbers(), batch_size=4, seed=1),
    "numpy threads": lambda: penstock.DataLoader(Numbers(), batch_size=4, num_workers=2, workers="threads", seed=1),
    "numpy processes": lambda: penstock.DataLoader(Numbers(), batch_size=4, num_workers=2, workers="processes", seed=1),
    "torch serial": lambda: penstock.torch.DataLoader(Numbers(), batch_size=4),
    "torch threads": lambda: penstock.torch.DataLoader(Numbers(), batch_size=4, num_workers=2, workers="threads"),
    "torch processes": lambda: penstock.torch.DataLoader(Numbers(), batch_size=4, num_workers=2, shuffle=True),
    "torch stream": lambda: penstock.torch.DataLoader(Stream(), batch_size=4, num_workers=2),
    "filled": lambda: penstock.DataLoader(
        penstock.ArrayDataset(np.arange(48 * 12, dtype=np.uint8).reshape(48, 2, 2, 3)),
        batch_size=4,
        num_workers=2,
    ),
}
DRAWS_IN_THREADS = {"numpy threads", "torch threads"}
"""Threads draw from shared generators in any order, watched or not: only the indices can be compared."""


@pytest.fixture(autouse=True)
def _no_diagnosis(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are of the recording; what follows from it has its own."""
    if "diagnosis" not in request.node.name:
        monkeypatch.setattr(watching, "_diagnose", lambda *_: None)


def seed() -> None:
    """Set all global generators."""
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002  # as users do
    torch.manual_seed(3)


def draw() -> list[float]:
    """Where the global generators are."""
    return [random.random(), float(np.random.rand()), torch.rand(()).item()]  # noqa: NPY002  # as users do


def to_lists(batch: Any) -> Any:
    """Numbers of a batch."""
    return [to_lists(part) for part in batch] if isinstance(batch, (list, tuple)) else batch.tolist()


def watch_epochs(make: Make, epochs: int = 2) -> tuple[list[Any], Recording]:
    """All batches of a watched loader, and the recording."""
    loader = make()
    with doctor.watch(loader, steps=1000, budget_s=0) as report:
        batches = [to_lists(batch) for _ in range(epochs) for batch in loader]
    assert report.recording is not None
    return batches, report.recording


def events_of(recording: Recording, stage: str | int) -> Any:
    """Events of one stage."""
    number = STAGES.index(stage) if isinstance(stage, str) else stage
    return recording.events[recording.events["stage"] == number]


@pytest.mark.parametrize(
    "name",
    mark_slow(
        [*TORCH, *OWN],
        [
            each
            for each in [*TORCH, *OWN]
            if each
            not in {
                "workers",
                "batch sampler",
                "single samples",
                "subclass",
                "torch stream",
                "numpy processes",
            }
        ],
    ),
)
def test_watching_changes_nothing(name: str) -> None:
    """Batches, their order, and the global generators are as without it; what was replaced is put back."""
    make = {**TORCH, **OWN}[name]
    before = [vars(owner)[attribute] for owner, attribute in PATCHED]
    seed()
    loader = make()
    expected = [to_lists(batch) for _ in range(2) for batch in loader]
    state = draw()

    seed()
    batches, _ = watch_epochs(make)

    if name in DRAWS_IN_THREADS:
        batches, expected = ([[row[0] for row in batch] for batch in taken] for taken in (batches, expected))
    assert batches == expected
    assert draw() == state
    assert [vars(owner)[attribute] for owner, attribute in PATCHED] == before


class Looking(Numbers):
    """Samples that say whether the worker's dataset is the one that is asked."""

    def __getitem__(self, index: int) -> Any:
        """1 if it is."""
        worker = torch.utils.data.get_worker_info()
        return torch.tensor(worker is not None and worker.dataset is self)


@pytest.mark.parametrize("context", ["fork", "forkserver"])
def test_a_watched_loader_has_its_own_objects(context: str) -> None:
    """Workers see the dataset itself, and the loader has what it had, also while its iterator runs."""
    loader = torch.utils.data.DataLoader(Looking(), batch_size=4, num_workers=1, multiprocessing_context=context)
    before = dict(vars(loader))

    with doctor.watch(loader, budget_s=0):
        iterator: Any = iter(loader)
        during = dict(vars(loader))
        batches = list(iterator)

    assert all(batch.all() for batch in batches)
    assert during == before
    assert len(iterator) == 12
    assert [process.exitcode for process in iterator._workers] == [0]


@pytest.mark.parametrize("name", mark_slow(TORCH, [name for name in TORCH if name not in {"workers", "subclass"}]))
def test_torch_loaders_are_seen(name: str) -> None:
    """Steps, samples, stages and workers of each kind of torch loader."""
    batches, recording = watch_epochs(TORCH[name])
    steps, settings = recording.steps, recording.settings
    workers = settings.num_workers

    assert settings.library == "torch"
    assert settings.workers == ("processes" if workers else "serial")
    assert len(steps.wait_ns) == len(batches) - recording.warm_up
    sizes = [1 if name == "single samples" else len(batch) for batch in batches]
    if "stream" not in name:  # torch asks for full batches of a stream
        assert steps.samples.tolist() == sizes[recording.warm_up :]
    assert (steps.wait_ns > 0).all()
    assert (steps.step_ns > 0).all()
    assert set(steps.epoch.tolist()) <= {0, 1}
    built = events_of(recording, BATCH)
    assert set(built["worker"].tolist()) == (set(range(workers)) if workers else {-1})
    samples = events_of(recording, SAMPLE)
    assert samples["samples"].sum() > 0
    if "stream" not in name:
        indices = set(samples["index"].tolist())
        assert indices <= set(range(48))
    assert len(events_of(recording, "collate")) > 0


@pytest.mark.parametrize(
    "name", mark_slow(OWN, [name for name in OWN if name not in {"numpy processes", "torch stream"}])
)
def test_own_loaders_are_seen(name: str) -> None:
    """Steps, samples, stages and workers of each kind of penstock's loaders."""
    batches, recording = watch_epochs(OWN[name])
    settings = recording.settings

    assert settings.library == "penstock"
    assert len(recording.steps.wait_ns) == len(batches) - recording.warm_up
    assert recording.steps.samples.tolist() == [4] * len(recording.steps.samples)
    built = events_of(recording, BATCH)
    assert built["samples"].tolist() == [4] * len(built)
    expected = {-1} if settings.workers == "serial" else {0, 1}
    assert set(built["worker"].tolist()) <= expected
    assert set(events_of(recording, SAMPLE)["worker"].tolist()) <= expected
    assert events_of(recording, SAMPLE)["samples"].sum() >= 4 * (len(batches) - recording.warm_up - 8)
    if name != "filled":
        assert len(events_of(recording, "collate")) > 0


@pytest.mark.parametrize("num_workers", [0, 2])
def test_stages_that_a_dataset_of_penstock_times_are_events(num_workers: int, tmp_path: Path) -> None:
    """Its decoding is measured by the dataset itself, not estimated from stacks, and so are its readings."""
    for number in range(16):
        PIL.Image.fromarray(np.full((64, 64, 3), number, np.uint8)).save(tmp_path / f"{number}.jpg")
    ops = [penstock.transforms.Decode(), penstock.transforms.Resize((32, 32))]
    dataset = penstock.StoreDataset(tmp_path, "image", ops)

    _, recording = watch_epochs(lambda: penstock.DataLoader(dataset, batch_size=4, num_workers=num_workers))

    decoded = events_of(recording, "decode")
    assert decoded["samples"].sum() == 4 * len(events_of(recording, BATCH))
    assert (decoded["index"] == -1).all()


class TimingSampler(torch.utils.data.Sampler[int]):
    """Draws indices, and notes how long that has taken."""

    def __init__(self) -> None:
        self.spent_ns: list[int] = []

    def __iter__(self) -> Iterator[int]:
        for index in range(48):
            begun = time.perf_counter_ns()
            time.sleep(0.001)
            self.spent_ns.append(time.perf_counter_ns() - begun)
            yield index


@pytest.mark.parametrize("num_workers", [0, 2])
def test_draws_of_the_sampler_are_timed(num_workers: int) -> None:
    """The mean of a batch, in the main process; the first four are left out."""
    dataset, sampler = torch.utils.data.TensorDataset(torch.arange(48)), TimingSampler()
    loader = torch.utils.data.DataLoader(dataset, 4, sampler=sampler, num_workers=num_workers)

    _, recording = watch_epochs(lambda: loader)

    drawn = np.array(sampler.spent_ns).reshape(24, 4).sum(axis=1)
    assert recording.draw_ns >= drawn[4:].mean()


def test_parts_of_samples_fill_their_time() -> None:
    """Reading, decoding and augmenting are divided so that they add to the time of a batch's samples.

    Samples before the first look at a worker's stack have no parts.
    """
    _, recording = watch_epochs(TORCH["workers"])
    parts, samples = recording.events[recording.events["stage"] < 3], events_of(recording, SAMPLE)

    assert len(parts)
    for batch in np.unique(parts["batch"]):
        own, whole = parts[parts["batch"] == batch], samples[samples["batch"] == batch]
        assert own["start"].min() <= whole["start"].min()
        assert own["end"].max() >= whole["end"].max()
        spent = (own["end"] - own["start"]).sum()
        assert spent >= (whole["end"] - whole["start"]).sum()
        assert spent == own["end"].max() - own["start"].min()


@pytest.mark.parametrize("library", ["torch", "penstock"])
def test_a_slow_sample_is_found(library: str) -> None:
    """Its index and its name; most of the time of its batch has its stage."""
    dataset = Numbers(slow=22)
    kind: Any = torch.utils.data.DataLoader if library == "torch" else penstock.torch.DataLoader

    _, recording = watch_epochs(lambda: kind(dataset, batch_size=4, num_workers=2), 1)

    samples, read = events_of(recording, SAMPLE), events_of(recording, "read")
    assert samples["index"].tolist().count(22) == 1
    [slow] = samples[samples["index"] == 22]
    assert slow["end"] - slow["start"] == (samples["end"] - samples["start"]).max()
    assert (read["end"] - read["start"])[read["batch"] == slow["batch"]].sum() > (slow["end"] - slow["start"]) / 2
    assert recording.keys[22] == "folder/22.jpg"


def wait_until_seen(stage: str) -> None:
    """Wait until the step of the watched loader was seen in this stage."""
    (watch,), deadline = blocks[-1].watches, time.monotonic() + 60
    while not watch._activity.weights.get(stage):
        assert time.monotonic() < deadline, f"the script was not seen in the stage {stage}"
        time.sleep(0.005)


def test_copies_are_found_in_steps() -> None:
    """A function that says that it copies to the device is no part of the training."""

    def copy_to_device() -> None:
        wait_until_seen("copy")

    loader = torch.utils.data.DataLoader(Numbers(24), batch_size=4)
    with doctor.watch(loader, budget_s=0) as report:
        for _ in loader:
            copy_to_device()
            wait_until_seen("step")
        steps = blocks[-1].watches[0].steps

    assert len(steps) == 6
    assert all(0 < step.copying < step.seen for step in steps)
    assert report.recording is not None
    assert 0 < report.recording.steps.copy_ns.sum() < report.recording.steps.step_ns.sum()


def test_steps_are_divided_by_what_was_seen_of_them() -> None:
    """A step that was looked at for long has its own part of copies, others that of all."""
    steps = [
        ScriptStep(0, 0, 0, 0, 0, 4, length=1000, seen=300 * MS, copying=150 * MS),
        ScriptStep(1, 0, 0, 0, 0, 4, length=2000, seen=100 * MS, copying=0),
        ScriptStep(2, 0, 0, 0, 0, 4, length=400),
    ]

    assert step_times(steps).copy_ns.tolist() == [500, 750, 150]


def test_without_a_loader_each_one_is_watched() -> None:
    """The loader that is waited for longest is reported; the others are named."""
    train = torch.utils.data.DataLoader(Numbers(), batch_size=4)
    check = torch.utils.data.DataLoader(Numbers(12), batch_size=4)
    with doctor.watch(budget_s=0) as report:
        for _ in train:
            pass
        for _ in check:
            pass
        set_waits({48: 1 * MS, 12: 100 * MS})

    assert report.recording is not None
    assert report.recording.settings.length == 12
    assert [(other["dataset"], other["samples"]) for other in report.recording.others] == [("Numbers", 48)]


def set_waits(waits_ns: dict[int, int]) -> None:
    """Let the script have waited so long for each batch of loaders with so many samples, and have taken no step."""
    for watch in blocks[-1].watches:
        for step in watch.steps:
            step.wait, step.length = waits_ns[len(watch.loader.dataset)], 0  # type: ignore[arg-type]  # it has a length


@pytest.mark.parametrize(("wait_ns", "length"), [(4 * MS, 12), (2 * MS, 48)])
def test_the_loader_that_is_waited_for_is_chosen(wait_ns: int, length: int) -> None:
    """Where the script waits for a tenth of its time, or less, it is the one that it takes most samples from."""
    watcher = Watcher(Limits(100))
    watcher.is_active = True
    for samples in (48, 12):
        watch = watcher.watch_of(torch.utils.data.DataLoader(Numbers(samples)))
        assert watch is not None
        wait = wait_ns if samples == 12 else 1
        watch.steps = [ScriptStep(0, 0, wait, 0, 0, samples, length=15 * MS)]

    chosen = watcher.chosen()
    watcher.close()

    assert chosen is not None
    assert chosen.count_samples() == length


@pytest.fixture
def loader_watch(tmp_path: Path) -> LoaderWatch:
    """What is seen of a loader in a process whose threads are not looked at."""
    loader: Any = torch.utils.data.DataLoader(Numbers())
    return LoaderWatch(WatchedProcess(), loader, tmp_path / "watch")


def take_step(watch: LoaderWatch, epoch: EpochWatch) -> ScriptStep:
    """Begin a step of this epoch."""
    epoch.delivered += 1
    step = ScriptStep(len(watch.steps), epoch.number, 0, 0, -1, 4)
    watch.begin_step(step, epoch, is_detailed=True)
    return step


def test_what_other_loaders_take_within_a_step_is_no_part_of_it(loader_watch: LoaderWatch) -> None:
    """From where the first batch of another one is asked for until its last one has arrived; only in this step."""
    epoch = loader_watch.begin_epoch()
    first = take_step(loader_watch, epoch)
    for number in range(3):
        asked = first.start + (2 + 100 * number) * MS
        loader_watch.note_other(asked, asked + 5 * MS)
    loader_watch.end_step(first.start + 210 * MS, epoch)
    second = take_step(loader_watch, epoch)
    loader_watch.end_step(second.start + 9 * MS, epoch)

    assert [first.length, second.length] == [5 * MS, 9 * MS]


def test_a_step_ends_where_the_next_batch_is_asked_for(loader_watch: LoaderWatch) -> None:
    """By its own iterator, or by another one if each has given one batch; else the loop was left before its end."""
    first, second, third = (loader_watch.begin_epoch() for _ in range(3))
    whole = take_step(loader_watch, first)
    loader_watch.end_step(whole.start + 3 * MS, first)
    left = take_step(loader_watch, first)
    loader_watch.end_step(left.start + 500 * MS, second)
    alone = take_step(loader_watch, second)
    third.began_ns = alone.start + 7 * MS
    loader_watch.end_step(alone.start + 8 * MS, third)

    assert [whole.length, left.length, alone.length] == [3 * MS, -1, 7 * MS]


def assert_validations_are_left_out(*numbers: int) -> None:
    """Validate in these steps: they are shorter, at least by the time from the first batch to the end of the loop."""
    train = torch.utils.data.DataLoader(Numbers(48), batch_size=4)
    check = torch.utils.data.DataLoader(Numbers(12), batch_size=4)
    ended = {}
    with doctor.watch(budget_s=0):
        for number, _ in enumerate(train):
            if number in numbers:
                for _ in check:
                    time.sleep(0.02)
                    ended[number] = time.perf_counter_ns()
        training, validation = blocks[-1].watches

    for turn, number in enumerate(numbers):
        step, after = training.steps[number : number + 2]
        validated = ended[number] - validation.steps[3 * turn].start
        assert 0 < step.length <= after.start - after.wait - step.start - validated


def test_a_validation_within_a_step_is_no_part_of_it() -> None:
    """Batches of another loader, and what is done with them, belong to that loader."""
    assert_validations_are_left_out(5)


def test_two_steps_are_observed() -> None:
    """The second and the third step have a profile function; before and after them there is none."""
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4)

    with doctor.watch(loader, steps=20, budget_s=0):
        seen = [sys.getprofile() is not None for _ in loader]

    assert seen == [False, True, True, *[False] * 9]
    assert sys.getprofile() is None


def test_a_loop_that_is_left_has_no_last_step() -> None:
    """Where the step after a `break` ends is not known; it is left out."""
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4)
    with doctor.watch(loader, budget_s=0) as report:
        for number, _ in enumerate(loader):
            if number == 7:
                break
        for _ in loader:
            pass

    assert report.recording is not None
    assert np.bincount(report.recording.steps.epoch).tolist() == [8 - 1 - report.recording.warm_up, 12]


@pytest.mark.parametrize("kind", [torch.utils.data.DataLoader, penstock.torch.DataLoader, penstock.DataLoader])
def test_a_loader_that_is_made_for_each_epoch(kind: Callable[..., Any]) -> None:
    """Loaders that one call makes, one after another, are watched as one: their steps are enough together."""
    with doctor.watch(steps=20, budget_s=0) as report:
        for _ in range(12):
            for _ in kind(Numbers(12), batch_size=4):
                pass

    assert report.recording is not None
    assert report.recording.ended == "steps"
    assert report.recording.others == []
    assert len(set(report.recording.steps.epoch.tolist())) > 2


def test_loaders_that_one_call_makes_for_several_uses() -> None:
    """Loaders of training and validation are two, also if one call makes both and they look alike."""
    with doctor.watch(steps=1000, budget_s=0) as report:
        loaders = [torch.utils.data.DataLoader(Numbers(count), batch_size=4) for count in (48, 48)]
        for _ in range(2):
            for loader in loaders:
                for _ in loader:
                    pass

    assert report.recording is not None
    assert [other["samples"] for other in report.recording.others] == [96]


def test_an_iterator_for_each_batch() -> None:
    """``next(iter(loader))`` in each step: a step ends when the next iterator is asked for."""
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4)
    taken, asking = [], []
    with doctor.watch(loader, steps=20, budget_s=0) as report:
        for _ in range(12):
            asking.append(time.perf_counter_ns())
            next(iter(loader))
            taken.append(time.perf_counter_ns())

    assert report.recording is not None
    steps, warm_up = report.recording.steps, report.recording.warm_up
    assert len(steps.step_ns) == 12 - 1 - warm_up
    assert (steps.start_ns <= taken[warm_up:-1]).all()
    assert (steps.start_ns + steps.step_ns >= asking[warm_up + 1 :]).all()
    assert (steps.start_ns + steps.step_ns <= taken[warm_up + 1 :]).all()


def test_a_profile_function_of_the_script_stays() -> None:
    """Steps are looked at by a profile function only where the script has none, and it does not stay set."""
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4)

    def note(*_: object) -> None:
        """A profiler of the script's."""

    with doctor.watch(loader, steps=20, budget_s=0):
        seen = [sys.getprofile() for _ in loader]
        after = sys.getprofile()
        sys.setprofile(note)
        try:
            kept = [sys.getprofile() for _ in loader]
        finally:
            sys.setprofile(None)

    assert [each is not None for each in seen] == [False, True, True, *[False] * 9]
    assert after is None
    assert set(kept) == {note}


def test_the_block_goes_on_after_enough_steps() -> None:
    """All batches come; only the first ones are recorded, and workers stop to record."""
    loader = torch.utils.data.DataLoader(Numbers(400), batch_size=4, num_workers=1)
    with doctor.watch(loader, steps=20, budget_s=0) as report:
        count = sum(1 for _ in loader)

    assert count == 100
    assert report.recording is not None
    assert report.recording.ended == "steps"
    assert len(report.recording.steps.wait_ns) <= 20
    assert events_of(report.recording, BATCH)["batch"].max() < 60


def test_the_same_batch_is_given_again() -> None:
    """The fixed-data test: the last batch comes again, unchanged whatever the step did to it, and waits for nothing."""
    ended: list[bool] = []

    class Enough(Exception):  # noqa: N818  # it is no error
        pass

    def finish() -> None:
        ended.append(True)
        raise Enough

    watcher = Watcher(Limits(20, replays=5), finish=finish)
    loader = torch.utils.data.DataLoader(Numbers(400), batch_size=4, num_workers=1)
    taken: list[Any] = []

    def train() -> None:
        for batch in loader:
            taken.append(batch.tolist())
            batch.zero_()

    watching.install_all(watcher)
    try:
        with pytest.raises(Enough):
            train()
        recording = watcher.record(command=[], ended="steps")
    finally:
        watcher.close()

    assert ended == [True]
    assert recording is not None
    assert recording.steps.replayed.tolist() == [False] * 15 + [True] * 5
    assert taken[-6:] == [taken[-6]] * 6
    assert taken[-7] != taken[-6]
    assert recording.steps.wait_ns[-5:].tolist() == [0] * 5
    assert recording.steps.samples.tolist() == [4] * 20


def test_a_replayed_batch_keeps_its_structure() -> None:
    """Containers are new each time; tensors and arrays are the same objects until they are written to."""
    batch = {"image": torch.ones(2, 3), "sizes": (np.arange(2), [1, "a"])}
    replayed = ReplayedBatch(batch)

    first = replayed.take()
    del first["sizes"]
    second = replayed.take()
    second["image"].mul_(5)
    second["sizes"][0][0] = 9
    third = replayed.take()

    assert second["image"] is batch["image"]
    assert third["image"].tolist() == [[1.0] * 3] * 2
    assert third["sizes"][0].tolist() == [0, 1]
    assert third["sizes"][1] == [1, "a"]


def test_two_blocks_cannot_watch_at_once() -> None:
    """An error says so, and the outer block goes on."""
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4)
    with doctor.watch(loader, budget_s=0) as report:
        with pytest.raises(ArgumentError, match="cannot be nested"), doctor.watch(loader):
            pass
        assert len(list(loader)) == 12

    assert report.recording is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loader": [1, 2]}, "loader must be a DataLoader, got list"),
        ({"steps": 0}, "steps"),
        ({"budget_s": -1.0}, "budget_s must be at least 0"),
        ({"budget_s": float("nan")}, "budget_s must be at least 0"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    """Before anything is replaced."""
    with pytest.raises(ArgumentError, match=message):
        doctor.watch(**arguments)


def test_a_block_without_batches_says_so() -> None:
    """There is no recording, and `print` says why."""
    with doctor.watch(budget_s=0) as report:
        pass

    assert report.recording is None
    assert "took no batch" in str(report)
    with pytest.raises(AttributeError, match="took no batch"):
        _ = report.verdict
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = report.nothing


def test_an_error_in_the_block_is_the_blocks_own() -> None:
    """It is raised as it is, and the recording says how the block ended."""
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4)
    report = doctor.watch(loader, budget_s=0)

    def train() -> None:
        with report:
            for number, _ in enumerate(loader):
                if number == 9:
                    raise ValueError("own")

    with pytest.raises(ValueError, match="own"):
        train()

    assert report.recording is not None
    assert report.recording.ended == "error: ValueError: own"


def test_a_watched_block_has_a_diagnosis() -> None:
    """The end to end of `watch`: the verdict's attributes are the report's."""
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4)
    with doctor.watch(loader, budget_s=0) as report:
        for _ in loader:
            pass

    assert report.verdict.stage in {"read", "decode", "augment", "collate", "step", "none", "workers"}
    assert report.verdict.text in " ".join(str(report).split())  # the lines are wrapped


# Files of events.


def test_events_are_read_back(tmp_path: Path) -> None:
    """What is written is read, in order; the name of the file says who writes it."""
    path = tmp_path / "0-1-7.events"
    file = EventFile(path)
    for number in range(4):
        file.add([make_row("collate", 1, number, 10, 20, samples=4)])

    events = read_events(path)

    assert events["batch"].tolist() == [0, 1, 2, 3]
    assert events.dtype == EVENT
    assert find_writer(path) == (7, 1)


def test_where_the_disk_is_full_no_more_events_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of which a part is written is left out, and so is what would come behind it."""
    path, row = tmp_path / "0-0-1.events", make_row("read", 0, 0, 1, 2)
    file = EventFile(path)
    file.add([row] * 3)

    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: write(descriptor, content[:20]))
    file.add([row])
    file.add([row])

    assert len(read_events(path)) == 3


def test_a_killed_process_loses_no_event(tmp_path: Path) -> None:
    """What was written before SIGKILL is there."""
    path = tmp_path / "0-0-1.events"
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from penstock.doctor.watching.event_file import EventFile, make_row\n"
        "file = EventFile(Path(sys.argv[1]))\n"
        "for number in range(500): file.add([make_row('read', 0, number, 1, 2)])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )

    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)

    assert done.returncode == -signal.SIGKILL
    assert read_events(path)["batch"].tolist() == list(range(500))


def test_workers_are_told_by_a_file(tmp_path: Path) -> None:
    """Two mappings of one control file see the same."""
    here, there = Control(tmp_path / "control"), Control(tmp_path / "control")

    here.first_batch = 12
    here.stop()

    assert there.first_batch == 12
    assert there.is_stopped


def test_names_of_samples() -> None:
    """The file of a sample, through subsets and concatenations; nothing where there is none."""
    numbers = Numbers(10)
    subset = torch.utils.data.Subset(numbers, [5, 3])
    joined: torch.utils.data.Dataset[Any] = torch.utils.data.ConcatDataset([subset, numbers])

    assert name_sample(numbers, 4) == "folder/4.jpg"
    assert name_sample(subset, 0) == "folder/5.jpg"
    assert name_sample(joined, 1) == "folder/3.jpg"
    assert name_sample(joined, 2) == "folder/0.jpg"
    assert name_sample(numbers, 10) == ""
    assert name_sample(Stream(), 0) == ""
