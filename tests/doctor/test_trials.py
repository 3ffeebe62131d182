"""A trial measures a changed loader in a child process, and leaves nothing behind."""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils import data as td  # noqa: E402  # it needs torch

import penstock as ps  # noqa: E402  # as above
import penstock.torch  # noqa: E402  # as above
from penstock.doctor.trials.changed_loader import (  # noqa: E402
    Change,
    JoiningCollate,
    NarrowingCollate,
    NotApplicableError,
    apply_change,
)
from penstock.doctor.trials.trial_child import (  # noqa: E402
    EmulatedTrainer,
    StepShape,
    TrialOrder,
)
from penstock.doctor.trials.trials import Trial, run_trial  # noqa: E402
from penstock.doctor.trials.turns import Turns  # noqa: E402
from tests.effort import mark_slow  # noqa: E402  # as above


class Waiting(td.Dataset[Any]):
    """Samples that wait, so that more workers give more on any machine."""

    def __init__(self, wait_s: float = 0.02, length: int = 1000) -> None:
        self.wait_s, self.length = wait_s, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.wait_s)
        return torch.full((4,), float(index))


class Failing(Waiting):
    """Samples that cannot be read."""

    def __getitem__(self, index: int) -> Any:
        raise KeyError("no such record")


class Stuck(Waiting):
    """Samples that never come."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(1000)


class Stream(td.IterableDataset[Any]):
    """A stream."""

    def __iter__(self) -> Iterator[Any]:
        for number in range(1000):
            time.sleep(0.005)
            yield torch.tensor(number)


def run(loader: Any, step: StepShape | None = None, run_s: float = 0.4, limit_s: float = 30, **change: Any) -> Trial:
    """A short trial."""
    return run_trial(loader, TrialOrder(Change(**change), step or StepShape(), run_s, limit_s), measure_memory=True)


def group_members(group: int) -> list[int]:
    """Processes of a group."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(folder.name))
    return found


LOADERS: dict[str, Callable[..., Any]] = {
    "torch": td.DataLoader,
    "penstock.torch": penstock.torch.DataLoader,
    "penstock": functools.partial(ps.DataLoader, collate_fn=np.array),
}


@pytest.mark.parametrize("kind", mark_slow(LOADERS, ["penstock.torch"]))
def test_more_workers_are_measured(kind: str) -> None:
    """A loader of each library is drained with other numbers of workers; the loader itself stays as it was."""
    loader = LOADERS[kind](Waiting(), batch_size=2, num_workers=1)
    one, four = run(loader), run(loader, arguments={"num_workers": 4})

    assert not one.error
    assert not four.error
    assert four.batches_per_s > 2 * one.batches_per_s
    assert loader.num_workers == 1
    assert one.worker_pss_bytes > 1 << 20


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    mark_slow(
        ((kind, *pair) for kind in LOADERS for pair in ((0, 2), (2, 0))),
        [("torch", 0, 2), ("penstock.torch", 2, 0), ("penstock", 0, 2)],
    ),
)
def test_without_workers(kind: str, before: int, after: int) -> None:
    """A change to workers, and to none."""
    trial = run(LOADERS[kind](Waiting(0.005), batch_size=2, num_workers=before), arguments={"num_workers": after})

    assert not trial.error
    assert trial.batches > 5
    assert (trial.worker_pss_bytes > 0) == (after > 0)


def test_stream() -> None:
    """A stream is drained from its beginning."""
    trial = run(td.DataLoader(Stream(), batch_size=4, num_workers=1))

    assert not trial.error
    assert trial.batches > 5
    assert trial.batch_nbytes == 4 * 8


def test_error_of_the_dataset_is_told() -> None:
    """What a dataset raises is the reason of the trial, as one line."""
    trial = run(td.DataLoader(Failing(), batch_size=2, num_workers=1))

    assert trial.batches_per_s == 0
    assert trial.error == "KeyError: 'no such record'"


def test_empty_loader() -> None:
    """A loader without batches ends the trial at once."""
    assert "no batch" in run(td.DataLoader(Waiting(length=0))).error


def test_nothing_is_delivered_in_time() -> None:
    """A loader that hangs is killed with its workers."""
    began = time.perf_counter()
    trial = run(td.DataLoader(Stuck(), batch_size=1, num_workers=2), limit_s=1.0)

    assert trial.batches == 0
    assert trial.batches_per_s == 0
    assert time.perf_counter() - began < 30


def test_no_process_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child and its workers are gone when a trial returns."""
    groups: list[int] = []

    def note(group: int) -> int:
        groups.append(group)
        return 0

    monkeypatch.setattr("penstock.doctor.trials.trials._measure_worker_pss", note)
    run(td.DataLoader(Waiting(), batch_size=1, num_workers=2))
    deadline = time.perf_counter() + 10
    while group_members(groups[0]) and time.perf_counter() < deadline:
        time.sleep(0.05)

    assert group_members(groups[0]) == []


def test_no_folder_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are killed before they remove the folder of their sockets: it is removed for them."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    trial = run_trial(
        td.DataLoader(Waiting(), batch_size=2, num_workers=2), TrialOrder(Change(), StepShape(0, 0), 0.2, 20)
    )

    assert trial.batches > 0
    assert list(tmp_path.iterdir()) == []


def test_output_and_random_states_stay(capfd: pytest.CaptureFixture[str]) -> None:
    """A dataset that prints does so nowhere, and the script's random states are as before."""

    class Printing(Waiting):
        def __getitem__(self, index: int) -> Any:
            sys.stdout.write("read")
            return super().__getitem__(index)

    state = torch.random.get_rng_state()
    run(td.DataLoader(Printing(0.01), batch_size=1, shuffle=True))

    assert capfd.readouterr().out == ""
    assert torch.equal(state, torch.random.get_rng_state())


def test_the_trainer_limits() -> None:
    """A trainer that holds each batch for 50 ms takes 20 batches a second."""
    trial = run(td.DataLoader(Waiting(0.0), batch_size=1, num_workers=1), StepShape(50e6), run_s=1.0)

    assert 0 < trial.batches_per_s <= 21


def test_trainer_uses_processor_time() -> None:
    """A step of 40 ms with 60 ms of processor time computes in two threads."""
    trainer = EmulatedTrainer(StepShape(40e6, 60e6))
    before = time.process_time()
    trainer.hold()

    assert time.process_time() - before == pytest.approx(0.06, abs=0.03)


def test_short_epochs_count_with_their_start() -> None:
    """Where epochs end within the trial, the start of workers counts."""
    long, short = (run(td.DataLoader(Waiting(0.001, length), batch_size=2, num_workers=1)) for length in (2000, 8))

    assert short.batches_per_s < 0.7 * long.batches_per_s


@pytest.mark.slow
def test_turns_compare_with_the_present_setting() -> None:
    """Each change has its ratio to the present setting; what fails has a reason."""
    changes = [Change({"num_workers": 4}), Change({"num_workers": -1})]
    turns = Turns(td.DataLoader(Waiting(), batch_size=2, num_workers=1), changes, StepShape(), 0.4, 60)
    turns.run(2)
    more, wrong = turns.measured()

    assert more is not None
    assert more.count == 2
    assert more.median > 2
    assert wrong is None
    assert turns.errors[1]
    assert len(turns.present) == 2


def test_turns_end_in_time() -> None:
    """Without time nothing is run, and that is the reason."""
    turns = Turns(td.DataLoader(Waiting()), [Change({"num_workers": 4})], StepShape(), 0.4, 0.0)
    turns.run(2)

    assert turns.measured() == [None]
    assert turns.errors == ["there was no time left"]


def limited(worker: int) -> None:
    """A worker_init_fn of a user's."""
    torch.set_num_threads(3)


class Threads(Waiting):
    """The threads of the worker as a sample."""

    def __getitem__(self, index: int) -> Any:
        return torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")


def test_threads_of_workers() -> None:
    """The change is made behind the user's own function, in the worker."""
    loader = td.DataLoader(Threads(), batch_size=1, num_workers=1, worker_init_fn=limited)
    threads, variable = next(iter(apply_change(loader, Change(worker_threads=2))))

    assert int(threads) == 2
    assert list(variable) == ["2"]
    assert loader.worker_init_fn is limited


def test_narrowed_batches_have_a_quarter_of_the_bytes() -> None:
    """Large float arrays become uint8; small ones and others stay."""
    samples = [(torch.ones(3, 64, 64), torch.ones(4), np.ones((64, 64), np.float32), {"label": 3})] * 2
    images, boxes, arrays, labels = NarrowingCollate(td.default_collate)(samples)

    assert (images.dtype, boxes.dtype, arrays.dtype) == (torch.uint8, torch.float32, torch.uint8)
    assert labels["label"].tolist() == [3, 3]


def test_joined_arrays_hold_all_numbers() -> None:
    """Small arrays are one for each type; large ones are collated."""
    small = {f"a{number}": torch.ones(3) for number in range(8)}
    samples = [{**small, "b": torch.ones(2, dtype=torch.int64), "image": torch.zeros(3, 64, 64)}] * 4
    joined, rest = JoiningCollate(td.default_collate)(samples)

    assert joined["torch.float32"].shape == (96,)
    assert joined["torch.int64"].shape == (8,)
    assert rest["image"].shape == (4, 3, 64, 64)


def test_few_small_arrays_are_not_joined() -> None:
    """Joining means nothing for samples that hold few small tensors: the trial says so."""
    with pytest.raises(NotApplicableError):
        JoiningCollate(td.default_collate)([{"a": torch.ones(3), "text": [1, 2, 3]}] * 4)


def test_ratios_that_cannot_be_are_left_out() -> None:
    """A run that had none of the rare slow batches gains more than a loader that costs nothing: it is not counted."""
    turns = Turns(td.DataLoader(Waiting()), [Change(), Change()], StepShape(), 1.0, 1.0)
    turns.ratios, turns.errors = [[1.2, 100.0, 1.4], [90.0]], ["", ""]
    first, second = turns.measured(3.0)

    assert first is not None
    assert (first.lowest, first.highest, first.count) == (1.2, 1.4, 2)
    assert second is None
    assert "differ too much" in turns.errors[1]


class Locked(Waiting):
    """Samples of which one is read at a time, whichever process reads it."""

    def __init__(self) -> None:
        super().__init__(0.005)
        self.lock = multiprocessing.Lock()

    def __getitem__(self, index: int) -> Any:
        with self.lock:
            return super().__getitem__(index)


def test_a_lock_that_a_killed_worker_held_is_free_in_the_next_trial() -> None:
    """Workers are killed at the end of a trial, whatever lock of the dataset they hold."""
    dataset = Locked()
    dataset.lock.acquire()

    trial = run_trial(td.DataLoader(dataset, batch_size=2, num_workers=2), TrialOrder(Change(), StepShape(), 0.1, 30.0))

    assert trial.error == ""
    assert trial.batches > 2
