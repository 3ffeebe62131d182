"""Workers that die: at a sample, at any moment, by a signal or by their own hand (faults 1 to 3, A3, A5)."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import WorkerError
from penstock.workers.processes import backend
from tests.faults.conftest import Load
from tests.faults.harness import Indices, drain, kill_once, run_script, wait_until, wait_until_gone, workers_of


def flat(batches: list[Any]) -> list[int]:
    """The indices that came, in their order."""
    return [int(index) for batch in batches for index in batch.reshape(len(batch), -1)[:, 0].tolist()]


def test_01_a_worker_killed_once_costs_nothing(load: Load, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Fault 1: SIGKILL at sample 37 of 64: another worker builds what was lost; the log names the sample."""

    class Dies(Indices):
        def __getitem__(self, index: int) -> Any:
            if index == 37:
                kill_once(tmp_path / "died")
            return super().__getitem__(index)

    with caplog.at_level(logging.WARNING):
        batches, errors = drain(iter(load(Dies(64, width=2000))))

    assert errors == []
    assert flat(batches) == list(range(64))
    assert "index=37" in caplog.text


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS])
def test_01_a_sample_that_always_kills_is_named(load: Load, sig: int) -> None:
    """Faults 1, 3: it fails after a few workers, as RuntimeError and by its index; all other batches come."""

    class Deadly(Indices):
        def __getitem__(self, index: int) -> Any:
            if index == 37:
                os.kill(os.getpid(), sig)
                time.sleep(3600)
            return super().__getitem__(index)

    batches, errors = drain(iter(load(Deadly(64, width=1))))

    assert [type(error) for error in errors] == [WorkerError]
    assert errors[0].where["index"] == 37
    assert errors[0].where["batch"] == 9
    assert flat(batches) == [i for i in range(64) if i // 4 != 9]


def test_03_a_segfault_brings_the_stack(load: Load) -> None:
    """Fault 3: the error tells the signal and shows where the worker was."""

    def wild_pointer() -> None:
        ctypes.string_at(0)

    class Crashes(Indices):
        def __getitem__(self, index: int) -> Any:
            if index == 5:
                wild_pointer()
            return index

    _, errors = drain(iter(load(Crashes(8))))

    told = str(errors[0]) + str(errors[0].__cause__) + "".join(errors[0].__notes__)
    assert "Segmentation fault" in told
    assert "wild_pointer" in told


def test_03_the_stack_comes_whatever_the_handlers_of_the_parent(tmp_path: Path) -> None:
    """Fault 3: the parent's fault handler is enabled, and a library has replaced its signal handler."""
    ran = run_script(
        tmp_path,
        """
import ctypes, faulthandler, signal
from penstock import DataLoader
from penstock.errors import WorkerError

class Crashes:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5:
            self.wild_pointer()
        return index

    def wild_pointer(self):
        ctypes.string_at(0)

if __name__ == "__main__":
    faulthandler.enable()
    ctypes.CDLL(None).signal(int(signal.SIGSEGV), None)
    try:
        list(DataLoader(Crashes(), batch_size=4, num_workers=1, multiprocessing_context="fork"))
    except WorkerError as error:
        print("wild_pointer" in str(error.__cause__))
""",
    )

    assert ran.stdout.split() == ["True"]


@pytest.mark.parametrize("code", [0, 7])
def test_a3_a_worker_that_ends_itself_is_an_error(load: Load, code: int) -> None:
    """Fault A3: os._exit in a dataset, of whatever code, does not end the epoch."""

    class Leaves(Indices):
        def __getitem__(self, index: int) -> Any:
            if index == 5:
                os._exit(code)
            return index

    batches, errors = drain(iter(load(Leaves(16))))

    assert [(type(error), error.where["index"]) for error in errors] == [(WorkerError, 5)]
    assert f"exited with code {code}" in str(errors[0])
    assert len(batches) == 3


def test_a5_a_worker_that_was_stopped_goes_on(load: Load) -> None:
    """Fault A5: SIGSTOP and SIGCONT cost time, no sample; nothing comes twice."""
    walk = iter(load(Indices(256, width=1)))
    first = [next(walk)]
    for pid in workers_of():
        os.kill(pid, signal.SIGSTOP)
    for pid in workers_of():
        os.kill(pid, signal.SIGCONT)
    batches, errors = drain(walk)

    assert errors == []
    assert flat(first + batches) == list(range(256))


def test_a1_a_death_is_seen_while_nothing_else_happens(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault A1: a worker that dies while the consumer waits is replaced at once, not after some timeout."""
    monkeypatch.setattr(backend, "_POLL_S", 3600.0)

    class Sleeps(Indices):
        def __getitem__(self, index: int) -> Any:
            if not (tmp_path / "slept").exists():
                (tmp_path / "slept").touch()
                time.sleep(3600)
            return index

    walk = iter(load(Sleeps(4), num_workers=1, stall_timeout=None))
    wait_until((tmp_path / "slept").exists, "a worker sleeps")
    os.kill(workers_of()[0], signal.SIGKILL)
    batches, errors = drain(walk)

    assert flat(batches) == [0, 1, 2, 3]
    assert errors == []


def test_a2_a_pool_that_cannot_live_says_so(load: Load) -> None:
    """Fault A2: workers that die as soon as they start end in an error, not in starting for ever."""

    def init(worker: int) -> None:
        os._exit(3)

    batches, errors = drain(iter(load(Indices(16), worker_init_fn=init)))

    assert batches == []
    assert len(errors) == 4
    assert {type(error) for error in errors} == {WorkerError}


def test_02_idle_workers_killed_between_epochs_are_replaced(load: Load) -> None:
    """Fault 2: persistent workers that nobody watched when they died."""
    loader = load(Indices(16, width=1), persistent_workers=True)
    first = flat(list(loader))
    victims = workers_of()
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    wait_until_gone(victims)

    second = flat(list(loader))
    loader.close()

    assert first == second == list(range(16))
    assert len(victims) == 2


KILLS = """
import random, subprocess
KILLER = '''
import os, random, signal, sys, time
parent, rng = int(sys.argv[1]), random.Random(int(sys.argv[2]))
own = open(f"/proc/{parent}/cmdline").read()
def kill_one():
    try:
        pids = open(f"/proc/{parent}/task/{parent}/children").read().split()
        victim = int(rng.choice([p for p in pids if open(f"/proc/{p}/cmdline").read() == own]))
        os.kill(victim, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return False
    print(victim, flush=True)
    return True
while sys.stdin.readline():  # a batch has come: workers that never get to build one are another matter
    time.sleep(rng.uniform(0, 0.1))
    while not kill_one():
        pass
'''
import warnings
warnings.simplefilter("error")
MAKE

if __name__ == "__main__":
    loader = make(Indices(400, width=3000, sleep_s=0.0002), 8)
    before = None
    others = set(os.listdir("/dev/shm"))  # of processes before, whose numbers may come again
    bad = 0
    errors = []
    command = [sys.executable, "-S", "-c", KILLER, str(os.getpid()), "SEED"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as killer:
        os.set_blocking(killer.stdout.fileno(), False)
        killed, is_asked = [], False
        while len(killed) < WANTED:
            came = []
            walk = iter(loader)
            while True:
                try:
                    batch = next(walk)
                except StopIteration:
                    break
                except Exception as error:
                    errors.append(f"{type(error).__name__}: {error}")
                    continue
                came += [int(x) for x in batch[:, 0].tolist()]
                assert all(len(set(row)) == 1 for row in batch.tolist()), "a batch is torn"
                del batch
                if victims := (killer.stdout.read() or b"").split():
                    killed, is_asked = killed + victims, False
                elif not is_asked:
                    is_asked = bool(killer.stdin.write(b"\\n"))
            bad += came != list(range(400))
            walk = None
            before = before or descriptors()
        killer.kill()
        after = descriptors()
    loader.close()
    made = set(os.listdir("/dev/shm")) - others
    files = [name for name in made if FILES in name and set(name.encode().split(b"_")) & set(killed)]
    del loader
    gc.collect()
    mapped = [line for line in open("/proc/self/maps") if "memfd:penstock" in line]
    every = open(f"/proc/self/task/{os.getpid()}/children").read().split()
    zombies = [pid for pid in every if not alive(int(pid))]
    say(kills=len(killed), bad=bad, errors=errors, before=before, after=after, files=files, left=children(),
        mapped=mapped, zombies=zombies, open=descriptors())
"""
MAKERS = {
    "numpy": """
def make(dataset, batch_size):
    return ps.DataLoader(dataset, batch_size, num_workers=2, workers="processes", persistent_workers=True)
""",
    "torch": """
import penstock.torch
def make(dataset, batch_size):
    return penstock.torch.DataLoader(dataset, batch_size, num_workers=2, workers="processes", persistent_workers=True)
""",
}


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("numpy", 30),
        pytest.param("torch", 30, marks=pytest.mark.slow),
        pytest.param("numpy", 300, marks=[pytest.mark.slow, pytest.mark.timeout(600, method="thread")]),
    ],
)
def test_02_random_kills_lose_nothing(kind: str, wanted: int, tmp_path: Path) -> None:
    """Fault 2: workers killed at random moments: no hang, no error, every sample once and whole, nothing left."""
    files = {"numpy": "penstock", "torch": "torch_"}[kind]  # another test's process may get a killed one's number
    body = (
        KILLS.replace("MAKE", MAKERS[kind])
        .replace("FILES", repr(files))
        .replace("WANTED", str(wanted))
        .replace("SEED", str(wanted))
    )

    ran = run_script(tmp_path, body, timeout_s=120 + wanted)

    assert ran.returncode == 0, ran.stderr[-3000:]
    said: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    assert said["kills"] >= wanted
    assert said["errors"] == []
    assert said["bad"] == 0
    assert said["left"] == []
    assert said["files"] == said["mapped"] == said["zombies"] == []
    assert said["after"] <= said["before"] + 8  # two workers' ends may be there or not
