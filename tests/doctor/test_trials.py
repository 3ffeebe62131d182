"""A trial measures a changed loader in a child process, and leaves nothing behind."""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
import threading
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
from penstock.doctor.trials import trial_child, trials  # noqa: E402
from penstock.doctor.trials.changed_loader import (  # noqa: E402
    Change,
    JoiningCollate,
    NarrowingCollate,
    NotApplicableError,
    apply_change,
)
from penstock.doctor.trials.forked_child import find_members  # noqa: E402
from penstock.doctor.trials.trial_child import (  # noqa: E402
    EmulatedTrainer,
    StepShape,
    TrialOrder,
)
from penstock.doctor.trials.trials import Trial, run_trial  # noqa: E402
from penstock.doctor.trials.turns import Turns  # noqa: E402
from tests.effort import mark_slow  # noqa: E402  # as above


class Clock:
    """Seconds that pass while a trainer sleeps, and otherwise at each look, as many as ``tick_s``."""

    def __init__(self, tick_s: float = 0.0) -> None:
        self.now_s, self.tick_s = 0.0, tick_s

    def __call__(self) -> float:
        """The time."""
        self.now_s += self.tick_s
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds


class Numbers(td.Dataset[Any]):
    """Samples that note in a file which process has read which."""

    def __init__(self, log: Path | str = os.devnull, length: int = 1000) -> None:
        self.log, self.length = Path(log), length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        with self.log.open("a") as file:
            file.write(f"{os.getpid()} {index}\n")
        return torch.full((4,), float(index))

    def noted(self) -> list[tuple[int, int]]:
        """Process and index of each sample."""
        return [(int(pid), int(index)) for pid, index in (line.split() for line in self.log.read_text().splitlines())]


class Failing(Numbers):
    """Samples that cannot be read."""

    def __getitem__(self, index: int) -> Any:
        raise KeyError("no such record")


class Stuck(Numbers):
    """Samples that never come."""

    def __getitem__(self, index: int) -> Any:
        threading.Event().wait()


class Stream(td.IterableDataset[Any]):
    """A stream."""

    def __iter__(self) -> Iterator[Any]:
        yield from map(torch.tensor, range(1000))


def run(loader: Any, run_s: float = 3.5, limit_s: float = 120, **change: Any) -> Trial:
    """A trial whose clock goes on by a second at each look: two looks a batch, after those of the first round."""
    order = TrialOrder(Change(**change), StepShape(), run_s, limit_s, clock=Clock(1.0))
    return run_trial(loader, order, measure_memory=True)


LOADERS: dict[str, Callable[..., Any]] = {
    "torch": td.DataLoader,
    "penstock.torch": penstock.torch.DataLoader,
    "penstock": functools.partial(ps.DataLoader, collate_fn=np.array),
}


@pytest.mark.parametrize("kind", mark_slow(LOADERS, ["penstock.torch"]))
def test_more_workers_are_measured(kind: str, tmp_path: Path) -> None:
    """A loader of each library is drained with other numbers of workers; the loader itself stays as it was."""
    numbers = Numbers(tmp_path / "log")
    loader = LOADERS[kind](numbers, batch_size=2, num_workers=1)
    for workers in (1, 4):
        numbers.log.unlink(missing_ok=True)

        trial = run(loader, arguments={"num_workers": workers})

        assert trial.error == ""
        assert trial.batches_per_s == 0.5  # two looks at the clock for each
        assert trial.batches == max(workers, 2) + 2
        assert len({pid for pid, _ in numbers.noted()}) == workers
        assert os.getpid() not in {pid for pid, _ in numbers.noted()}
        assert trial.worker_pss_bytes > 1 << 20
        assert loader.num_workers == 1


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    mark_slow(
        ((kind, *pair) for kind in LOADERS for pair in ((0, 2), (2, 0))),
        [("torch", 0, 2), ("penstock.torch", 2, 0), ("penstock", 0, 2)],
    ),
)
def test_without_workers(kind: str, before: int, after: int) -> None:
    """A change to workers, and to none."""
    trial = run(LOADERS[kind](Numbers(), batch_size=2, num_workers=before), arguments={"num_workers": after})

    assert trial.error == ""
    assert trial.batches == 4
    assert (trial.worker_pss_bytes > 0) == (after > 0)


def test_stream() -> None:
    """A stream is drained from its beginning."""
    trial = run(td.DataLoader(Stream(), batch_size=4, num_workers=1))

    assert trial.error == ""
    assert trial.batches == 4
    assert trial.batch_nbytes == 4 * 8


def test_error_of_the_dataset_is_told() -> None:
    """What a dataset raises is the reason of the trial, as one line."""
    trial = run(td.DataLoader(Failing(), batch_size=2, num_workers=1))

    assert trial.batches_per_s == 0
    assert trial.error == "KeyError: 'no such record'"


def test_empty_loader() -> None:
    """A loader without batches ends the trial at once."""
    assert "no batch" in run(td.DataLoader(Numbers(length=0))).error


@pytest.mark.parametrize(
    ("dataset", "limit_s", "batches"), [(Numbers(), 120, 4), (Stuck(), 1.0, 0)], ids=["delivers", "hangs"]
)
def test_no_process_is_left(dataset: Numbers, limit_s: float, batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child and its workers are killed when a trial returns, also where nothing was delivered in time."""
    groups: list[int] = []

    def note(group: int) -> int:
        groups.append(group)
        return 0

    monkeypatch.setattr(trials, "_measure_worker_pss", note)
    trial = run(td.DataLoader(dataset, batch_size=1, num_workers=2), limit_s=limit_s)

    assert (trial.batches, trial.batches_per_s > 0, trial.error) == (batches, batches > 0, "")
    deadline = time.monotonic() + 60
    while left := find_members(groups[0]):
        assert time.monotonic() < deadline, f"processes of the trial still run: {left}"
        time.sleep(0.01)


def test_no_folder_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are killed before they remove the folder of their sockets: it is removed for them."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    trial = run(td.DataLoader(Numbers(), batch_size=2, num_workers=2))

    assert trial.batches > 0
    assert list(tmp_path.iterdir()) == []


def test_output_and_random_states_stay(capfd: pytest.CaptureFixture[str]) -> None:
    """A dataset that prints does so nowhere, and the script's random states are as before."""

    class Printing(Numbers):
        def __getitem__(self, index: int) -> Any:
            sys.stdout.write("read")
            return super().__getitem__(index)

    state = torch.random.get_rng_state()
    run(td.DataLoader(Printing(), batch_size=1, shuffle=True))

    assert capfd.readouterr().out == ""
    assert torch.equal(state, torch.random.get_rng_state())


def test_the_trainer_limits() -> None:
    """A trainer that holds each batch for 50 ms takes 20 batches a second, and as long as it was asked to."""
    clock = Clock()
    order = TrialOrder(Change(), StepShape(50e6), 1.02, 120, clock=clock, sleep=clock.sleep)

    trial = run_trial(td.DataLoader(Numbers(), batch_size=1, num_workers=1), order)

    assert trial.batches == 2 + 20
    assert trial.batches_per_s == pytest.approx(20)


@pytest.mark.parametrize(
    ("shape", "computed_ms", "slept_s"),
    [
        (StepShape(40e6, 60e6), [30, 30], 0.01),
        (StepShape(40e6, 41e6), [41], 0.0),
        (StepShape(40e6, 30e6), [30], 0.01),
        (StepShape(40e6), [0], 0.04),
        (StepShape(), [0], 0.0),
    ],
)
def test_trainer_uses_processor_time(
    shape: StepShape, computed_ms: list[int], slept_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of 40 ms with 60 ms of processor time computes in two threads; where nobody computes, it sleeps."""
    computed: list[float] = []
    monkeypatch.setattr(trial_child, "_compute", computed.append)
    clock = Clock()

    EmulatedTrainer(shape, clock.sleep).hold()

    assert computed == [ms * 1e6 for ms in computed_ms]
    assert clock.now_s == pytest.approx(slept_s)


def test_computing_takes_processor_time() -> None:
    """The thread has used as much as it was asked to."""
    before = time.thread_time_ns()
    trial_child._compute(5e6)

    assert time.thread_time_ns() - before >= 5e6


@pytest.mark.parametrize(
    ("taken", "epochs", "workers", "rate"),
    [
        ([], [], 1, 0.0),
        ([3.0], [(0.0, 0)], 1, 0.0),
        ([3.0, 3.5], [(0.0, 0)], 1, 2.0),
        ([5.0, 5.5, 6.0, 7.0, 8.0], [(0.0, 0)], 1, 1.0),  # workers start, and the first round is ahead
        ([5.0, 5.1, 5.2, 5.3, 7.3, 7.4], [(0.0, 0)], 2, 2 / 2.1),  # whole rounds: the last batch is of the next one
        ([2.0, 2.1, 6.0, 6.1], [(0.0, 0), (4.0, 2)], 1, 10.0),  # one whole epoch says nothing
        ([2.0, 2.1, 6.0, 6.1], [(0.0, 0), (4.0, 2), (8.0, 4)], 1, 0.5),  # the start of the workers counts
    ],
)
def test_rate(taken: list[float], epochs: list[tuple[float, int]], workers: int, rate: float) -> None:
    """It is that of whole rounds behind the first one; of whole epochs with their start, where two were whole."""
    assert trials._measure_rate(taken, epochs, workers) == pytest.approx(rate)


def test_short_epochs_are_told_apart() -> None:
    """Where epochs end within the trial, they are begun again, and counted whole."""
    trial = run(td.DataLoader(Numbers(length=8), batch_size=2, num_workers=1), run_s=21.0)

    assert trial.batches == 12
    assert trial.batches_per_s == pytest.approx(4 / 9)  # a look when an epoch begins, and two a batch


class Runs:
    """Trials that are made: their speeds by workers, each as long as the order says; what was ordered is kept."""

    def __init__(self, *speeds: dict[int, float]) -> None:
        self.clock, self.orders, self._speeds = Clock(), list[TrialOrder](), speeds

    def __call__(self, loader: Any, order: TrialOrder, **_: Any) -> Trial:
        """The speed of the present turn; those that have none fail."""
        self.orders.append(order)
        self.clock.sleep(order.run_s)
        speed = self._speeds[order.seed].get(order.change.count_workers(loader), 0.0)
        return Trial(speed, int(10 * speed), "" if speed else "ValueError: no")


def take_turns(runs: Runs, budget_s: float, most: int, *numbers: int) -> Turns:
    """Turns of a loader with one worker against these numbers."""
    changes = [Change({"num_workers": number}) for number in numbers]
    loader = td.DataLoader(Numbers(), num_workers=1)
    turns = Turns(loader, changes, StepShape(7.0), 0.5, budget_s, run_one=runs, clock=runs.clock)
    turns.run(most)
    return turns


def test_turns_compare_with_the_present_setting() -> None:
    """Each change has its ratio to the present setting of the same turn; what fails has a reason, and one trial."""
    runs = Runs({1: 10.0, 4: 30.0}, {1: 5.0, 4: 20.0})

    turns = take_turns(runs, 60.0, 2, 4, 6)
    more, wrong = turns.measured()

    assert more is not None
    assert (more.lowest, more.highest, more.count) == (3.0, 4.0, 2)
    assert wrong is None
    assert turns.errors == ["", "ValueError: no"]
    assert [trial.batches_per_s for trial in turns.present] == [10.0, 5.0]
    tried = [(order.seed, order.change.arguments.get("num_workers")) for order in runs.orders]
    assert tried == [(0, None), (0, 4), (0, 6), (1, None), (1, 4)]
    assert {(order.step, order.run_s, order.limit_s) for order in runs.orders} == {(StepShape(7.0), 0.5, 12.0)}


def test_every_other_turn_is_taken_backwards() -> None:
    """What changes on the machine in the course of a turn favours none of the changes."""
    runs = Runs(*[{1: 1.0, 2: 1.0, 3: 1.0}] * 3)

    take_turns(runs, 60.0, 3, 2, 3)

    assert [order.change.arguments.get("num_workers") for order in runs.orders] == [None, 2, 3, None, 3, 2, None, 2, 3]


@pytest.mark.parametrize(("budget_s", "ran", "reasons"), [
    (0.0, 0, ["there was no time left"] * 2),
    (1.2, 2, ["", "there was no time left"]),
    (2.9, 3, ["", ""]),
    (3.1, 6, ["", ""]),
])  # fmt: skip
def test_turns_end_in_time(budget_s: float, ran: int, reasons: list[str]) -> None:
    """A run for which there is no time is not begun, and that is the reason; nor is a turn after the first one."""
    runs = Runs(*[{1: 1.0, 2: 1.0, 3: 1.0}] * 3)

    turns = take_turns(runs, budget_s, 3, 2, 3)

    assert len(runs.orders) == ran
    assert turns.errors == reasons
    assert [found is not None for found in turns.measured()] == [not reason for reason in reasons]


def test_a_run_has_no_more_time_than_is_left() -> None:
    """Of the budget, which the runs before have taken from."""
    runs = Runs({1: 1.0, 2: 1.0})

    take_turns(runs, 4.0, 1, 2)

    assert [order.limit_s for order in runs.orders] == [4.0, 3.5]


def limited(worker: int) -> None:
    """A worker_init_fn of a user's."""
    torch.set_num_threads(3)


class Threads(Numbers):
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
    turns = Turns(td.DataLoader(Numbers()), [Change(), Change()], StepShape(), 1.0, 1.0)
    turns.ratios, turns.errors = [[1.2, 100.0, 1.4], [90.0]], ["", ""]
    first, second = turns.measured(3.0)

    assert first is not None
    assert (first.lowest, first.highest, first.count) == (1.2, 1.4, 2)
    assert second is None
    assert "differ too much" in turns.errors[1]


class Locked(Numbers):
    """Samples of which one is read at a time, whichever process reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = multiprocessing.Lock()

    def __getitem__(self, index: int) -> Any:
        with self.lock:
            return super().__getitem__(index)


def test_a_lock_that_a_killed_worker_held_is_free_in_the_next_trial() -> None:
    """Workers are killed at the end of a trial, whatever lock of the dataset they hold."""
    dataset = Locked()
    dataset.lock.acquire()

    trial = run(td.DataLoader(dataset, batch_size=2, num_workers=2))

    assert trial.error == ""
    assert trial.batches == 4
