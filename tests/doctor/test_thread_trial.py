"""Some steps of the script with one thread of torch's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils import data as td  # noqa: E402  # it needs torch

from penstock.doctor import block  # noqa: E402  # as above
from penstock.doctor.watching import thread_trial  # noqa: E402  # as above
from penstock.doctor.watching.loaders.loader_watch import ScriptStep  # noqa: E402  # as above
from penstock.doctor.watching.recording import ThreadGain  # noqa: E402  # as above
from penstock.doctor.watching.thread_trial import ThreadTrial  # noqa: E402  # as above
from penstock.doctor.watching.watcher import Limits, Watcher  # noqa: E402  # as above

MS = 1_000_000


@pytest.fixture(autouse=True)
def _three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def make_steps(count: int) -> list[int]:
    """Times of steps of 40 ms."""
    return [40 * MS] * count


@pytest.mark.parametrize(("wasted_ms", "gain"), [(2, ThreadGain(3, 3.0, 4.0)), (1, None)])
def test_steps_with_one_thread_are_compared_with_those_before_and_after(
    wasted_ms: int, gain: ThreadGain | None
) -> None:
    """The first step of a part, and steps in which an epoch begins, count in none; threads that wait must be seen."""
    now, spent, seen = 1000 * MS, 0, []
    trial = ThreadTrial(lambda: spent)
    epoch = object()
    assert trial.begin(now, epoch, make_steps(9))

    for number in range(30):
        now += (10 if torch.get_num_threads() == 1 else 30) * MS
        spent += (5 if torch.get_num_threads() == 1 else 5 + wasted_ms) * MS
        if number == 4:
            epoch, now = object(), now + 500 * MS
        if not trial.goes_on(now, epoch):
            break
        seen.append(torch.get_num_threads())

    assert seen == [1] * 9 + [3] * 9
    assert trial.gain == gain
    assert trial.ended_ns == now
    assert not trial.goes_on(now + MS, epoch)


@pytest.mark.parametrize(("threads", "count"), [(1, 9), (3, 2)])
def test_it_is_left_out_where_it_can_say_nothing(threads: int, count: int) -> None:
    """With one thread already, or after too few steps."""
    torch.set_num_threads(threads)

    assert not ThreadTrial().begin(1000, object(), make_steps(count))
    assert torch.get_num_threads() == threads


def test_a_script_that_ends_within_it_has_its_threads_again() -> None:
    """Nothing is found, and torch computes as before."""
    trial = ThreadTrial()
    assert trial.begin(1000 * MS, None, make_steps(9))

    trial.stop()

    assert torch.get_num_threads() == 3
    assert trial.gain is None


class Numbers(td.Dataset[Any]):
    """Samples."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([index])


@pytest.mark.parametrize(("wait_ms", "tries"), [(4, False), (6, True)])
def test_a_script_that_hardly_waits_is_not_tried(wait_ms: int, tries: bool) -> None:
    """From 5 % of its time on it waits."""
    watcher = Watcher(Limits(20), tries_threads=True)
    watcher.is_active = True
    watch = watcher.watch_of(td.DataLoader(Numbers()))
    assert watch is not None
    watch.steps = [ScriptStep(0, 0, wait_ms * MS, 0, 0, 4, length=100 * MS)]

    assert watcher.tries_threads(watch) is tries
    watcher.close()


def test_a_script_that_waits_is_run_with_one_thread_for_some_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come before the last normal step, and are no steps of the recording; no thread wastes processor time."""
    for limit in ("_MOST_NS", "_LONGEST_STEP_NS"):
        monkeypatch.setattr(thread_trial, limit, 10**15)

    class Enough(Exception):  # noqa: N818  # it is no error
        pass

    def finish() -> None:
        raise Enough

    watcher, seen = Watcher(Limits(20, replays=5), finish=finish, tries_threads=True), []

    def note() -> None:
        seen.append(torch.get_num_threads())
        (watch,) = watcher.watches
        for step in watch.steps:
            step.wait = max(step.length, MS)
        if len(seen) == 1:
            watch.thread_trial = ThreadTrial(lambda: 0)

    def train() -> None:
        for _ in td.DataLoader(Numbers(), batch_size=4):
            note()

    block.install_all(watcher)
    try:
        with pytest.raises(Enough):
            train()
        recording = watcher.record(command=[], ended="steps")
    finally:
        watcher.close()

    assert recording is not None
    assert recording.thread_gain is None
    assert seen == [3] * 16 + [1] * 9 + [3] * (9 + 6)
    assert recording.steps.replayed.tolist() == [False] * 15 + [True] * 5
