"""Workers that are beginning, or live oddly: asked too early, dead before they began, without descriptors."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock.torch
from penstock.errors import StallError, WorkerError
from tests.faults.conftest import Load
from tests.faults.harness import Indices, drain, run_script, running_script, wait_until, wait_until_gone, workers_of


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_04_a_worker_that_is_still_starting_is_not_ended_by_a_question(method: str, tmp_path: Path) -> None:
    """Fault 4: asking for stacks is a signal, which only a worker that has begun can answer; the others go on."""
    body = f"""
ASKED = {str(tmp_path / "asked")!r}
class SlowToArrive(Indices):
    def __setstate__(self, state):
        wait_until(lambda: os.path.exists(ASKED))
        self.__dict__.update(state)
if __name__ == "__main__":
    loader = ps.DataLoader(
        SlowToArrive(16), 4, num_workers=2, workers="processes", multiprocessing_context="{method}", timeout=0.3
    )
    walk, came, told = iter(loader), [], []
    before = [process.pid for process in walk.backend.processes]
    while len(came) < 16:
        try:
            came += next(walk)[:, 0].tolist()
        except ps.StallError as stalled:
            told.append(str(stalled))
            open(ASKED, "w").close()
    say(came=came, told=told[:1], same=before == [process.pid for process in walk.backend.processes])
    walk.close()
"""
    ran = run_script(tmp_path, body)

    assert (ran.returncode, ran.stderr) == (0, "")
    said = json.loads(ran.stdout)
    assert (said["came"], said["same"]) == (list(range(16)), True)
    assert "still starting" in said["told"][0]


def test_a2_workers_that_die_before_they_begin_are_an_error_of_iter() -> None:
    """Fault A2: a loader that waits for its workers to begin does not wait for dead ones."""

    def init(worker: int) -> None:
        os._exit(3)

    with pytest.raises(WorkerError, match="exited with code 3 before it had started"):
        iter(penstock.torch.StatefulDataLoader(Indices(16), 4, num_workers=2, worker_init_fn=init))


def test_a2_workers_killed_before_they_begin_are_replaced(tmp_path: Path) -> None:
    """Fault A2: one that is killed then costs nothing."""

    def init(worker: int) -> None:
        if worker == 1 and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    loader = penstock.torch.StatefulDataLoader(Indices(16), 4, num_workers=2, worker_init_fn=init)

    assert [x for batch in loader for x in batch.tolist()] == list(range(16))


def hang(worker: int) -> None:
    """A worker_init_fn that waits for somebody who never comes, in one of two workers."""
    if worker == 1:
        time.sleep(3600)


class Stream(penstock.torch.IterableDataset[Any]):
    """One whose state is asked for."""

    def __iter__(self) -> Iterator[Any]:
        return iter(range(8))


@pytest.mark.parametrize("limit", ["timeout", "stall_timeout"])
def test_04_a_worker_that_never_begins_is_an_error_of_iter(limit: str) -> None:
    """Fault 4: a loader that waits for its workers to begin has limits, and says where which one hangs, each time."""
    options: dict[str, Any] = {limit: 0.2}
    loader = penstock.torch.StatefulDataLoader(Indices(16), 4, num_workers=2, worker_init_fn=hang, **options)
    told = []

    def names_the_one() -> bool:
        with pytest.raises(StallError, match=r"have not started within 0\.2 seconds") as caught:
            iter(loader)
        told.append(str(caught.value))
        assert "worker 1" in told[-1]
        assert "worker_init_fn" in told[-1]
        assert loader.state_dict()
        assert workers_of() == []
        return len(told) > 1 and "in hang" in told[-1] and "worker 0" not in told[-1]

    wait_until(names_the_one, "worker 1 hangs, and worker 0 has begun")


def test_04_a_state_does_not_wait_for_ever_for_a_worker_that_never_begins() -> None:
    """Fault 4: a stream's state is that of its workers, who may not be there yet; the loader can be asked again."""
    loader = penstock.torch.DataLoader(Stream(), num_workers=2, worker_init_fn=hang, stall_timeout=0.2)
    walk = iter(loader)
    came: list[list[int]] = []

    def comes() -> bool:
        with suppress(StallError):
            came.append(next(walk).tolist())
        return bool(came)

    wait_until(comes, "the first batch")
    for _ in range(2):
        with pytest.raises(StallError, match=r"have not started within 0\.2 seconds; worker 1"):
            loader.state_dict()

    assert came == [[0]]


def test_a7_a_worker_that_begins_after_its_parents_death_ends(tmp_path: Path) -> None:
    """Fault A7: killed before a worker asks to be told of that, and would be busy for long."""
    body = """
from penstock.workers.processes import sockets
real, parent = sockets._exit_with_parent, os.getpid()
def late(lifeline):
    wait_until(lambda: os.getppid() != parent)
    real(lifeline)
sockets._exit_with_parent = late
if __name__ == "__main__":
    busy = lambda worker: time.sleep(3600)
    walk = iter(ps.DataLoader(Indices(16), 4, num_workers=2, workers="processes", worker_init_fn=busy))
    say(pids=children())
    os.kill(os.getpid(), signal.SIGKILL)
"""
    with running_script(tmp_path, body) as script:
        assert script.stdout is not None
        pids = json.loads(script.stdout.readline())["pids"]
        script.wait(60)
        wait_until_gone(pids)

    assert len(pids) == 2


@pytest.mark.parametrize("count", [20, 300])
def test_19_a_first_batch_of_many_arrays_arrives(load: Load, count: int) -> None:
    """Fault 19: more arrays than descriptors fit beside a message, of a size that nobody knew before."""

    class Many(Indices):
        def __getitem__(self, index: int) -> Any:
            return {str(i): np.full(1200, index + i, np.float32) for i in range(count)}

    batches, errors = drain(iter(load(Many(24))))

    assert errors == []
    assert len(batches) == 6
    assert all(
        (np.asarray(batch[str(i)]) == np.arange(4 * n, 4 * n + 4)[:, None] + i).all()
        for n, batch in enumerate(batches)
        for i in range(count)
    )


def test_a26_arrays_that_share_a_slot_are_kept_together(load: Load) -> None:
    """Fault A26: a slot with several arrays of a batch waits for the last of them."""

    class Two(Indices):
        def __getitem__(self, index: int) -> Any:
            return np.full(2000, index, np.float32), np.full(3000, -index, np.float32)

    kept = [(np.asarray(second), 4 * n) for n, (_, second) in enumerate(load(Two(160)))]

    assert all((array == -np.arange(first, first + 4)[:, None]).all() for array, first in kept)


def test_a1_a_worker_that_lives_on_without_descriptors_is_ended(load: Load, tmp_path: Path) -> None:
    """Fault A1: code that turns its process into a daemon: it is killed, and another one does its work."""

    class Daemon(Indices):
        def __getitem__(self, index: int) -> Any:
            if index == 5 and not (tmp_path / "once").exists():
                (tmp_path / "once").touch()
                os.closerange(3, 4096)
                time.sleep(3600)
            return index

    batches, errors = drain(iter(load(Daemon(16))))

    assert errors == []
    assert [x for batch in batches for x in batch.tolist()] == list(range(16))
    wait_until(lambda: not workers_of(), "all workers have ended")


def test_a1_deaths_are_seen_where_nobody_waits_for_children(tmp_path: Path) -> None:
    """Fault A1: a program that ignores SIGCHLD has no exit codes; its workers are replaced and ended all the same."""
    body = """
import logging
class Dies(Indices):
    def __getitem__(self, index):
        if index == 9 and not os.path.exists(sys.argv[0] + ".once"):
            open(sys.argv[0] + ".once", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)
if __name__ == "__main__":
    logging.disable()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    loader = ps.DataLoader(Dies(32), 4, num_workers=2, workers="processes")
    came = [int(x) for batch in loader for x in batch[:, 0]]
    say(came=came, left=children())
"""
    ran = run_script(tmp_path, body)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout) == {"came": list(range(32)), "left": []}


@pytest.mark.parametrize("delay_s", [0.05, 0.3])
def test_a21_a_daemon_thread_that_iterates_ends_with_the_program(delay_s: float, tmp_path: Path) -> None:
    """Fault A21: in silence, at whatever it is, and its workers with it."""
    body = f"""
def forever():
    for batch in ps.DataLoader(Indices(100_000, 2000), 4, num_workers=2, workers="processes"):
        begun.set()
if __name__ == "__main__":
    begun = threading.Event()
    threading.Thread(target=forever, daemon=True).start()
    begun.wait()
    time.sleep({delay_s})  # whatever the thread does then
    say(pids=children())
"""
    ran = run_script(tmp_path, body)

    assert (ran.returncode, ran.stderr) == (0, "")
    wait_until_gone(json.loads(ran.stdout)["pids"])


def test_a27_a_jump_of_the_clock_is_not_noticed(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault A27: limits are kept by a clock that does not jump, as the wall's does on a laptop that wakes up."""
    hours = itertools.count(0, 3600)
    monkeypatch.setattr(time, "time", lambda: float(next(hours)))

    assert [x for batch in load(Indices(16), stall_timeout=3000) for x in batch.tolist()] == list(range(16))


def test_a10_a_state_that_cannot_be_loaded_is_an_error(tmp_path: Path) -> None:
    """Fault A10: what a dataset says of itself may come to pieces on the way; batches are errors, nothing hangs."""

    class Odd(Indices):
        def state_dict(self) -> Any:
            return {"odd": _Odd()}

        def load_state_dict(self, state: Any) -> None:
            raise AssertionError("there is no state to load")

    with pytest.raises(RuntimeError, match="state cannot be"):
        list(penstock.torch.StatefulDataLoader(Odd(16), 4, num_workers=2))


class _Odd:
    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    raise OSError("cannot be loaded here")


@pytest.mark.slow
def test_found_a_tensor_that_was_sent_does_not_keep_workers_from_being_forked(tmp_path: Path) -> None:
    """Found in use: multiprocessing's own thread, there since a tensor was sent, sleeps: workers are forked.

    So they are behind a loader of torch's.
    """
    body = """
import torch
import penstock.torch as pt
def child(given, back):
    back.put(given.get().sum().item())
given, back = torch.multiprocessing.Queue(), torch.multiprocessing.Queue()
process = torch.multiprocessing.Process(target=child, args=(given, back))
process.start()
given.put(torch.ones(3))
total = back.get()
process.join()
counts = [len(list(kind(Indices(8), num_workers=1))) for kind in (torch.utils.data.DataLoader, pt.DataLoader)]
walk = iter(pt.DataLoader(Indices(8), num_workers=1))
threads = [thread.name for thread in threading.enumerate() if "_serve" in thread.name]
say(total=total, counts=counts, threads=len(threads), kind=type(walk._workers[0]).__name__, more=len(list(walk)))
"""
    ran = run_script(tmp_path, body)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout) == {"total": 3.0, "counts": [8, 8], "threads": 1, "kind": "ForkProcess", "more": 8}
