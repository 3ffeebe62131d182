"""Little memory, few descriptors, few processes, locks, many epochs (faults 17 to 19, A14 to A17, A22, A26)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.faults.conftest import Load
from tests.faults.harness import Indices, run_script, wait_until

MAKE = """
import warnings
from penstock.errors import WorkerError
def make(dataset, batch_size=4, num_workers=2, **options):
    return ps.DataLoader(dataset, batch_size, num_workers=num_workers, workers="processes", **options)
def flat(batches):
    return [int(x) for batch in batches for x in batch[:, 0]]
"""


OF_MULTIPROCESSING = 4
"""Descriptors that multiprocessing itself loses at a start that fails, however many have succeeded."""


def result(ran: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What a script said, if it was well to the end."""
    assert (ran.returncode, ran.stderr) == (0, "")
    said: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return said


LOCK = """
LOCK = threading.Lock()
class Locked(Indices):
    def __getitem__(self, index):
        with LOCK:
            return super().__getitem__(index)
held = threading.Event()
def hold():
    with LOCK:
        held.set()
        while True:
            time.sleep(0.1)
"""


def test_17_a_lock_that_a_thread_holds_is_not_copied(tmp_path: Path) -> None:
    """Fault 17: with threads about, workers are not forked: they have locks of their own."""
    body = f"""
{MAKE}{LOCK}
if __name__ == "__main__":
    threading.Thread(target=hold, daemon=True).start()
    held.wait()
    say(came=flat(make(Locked())))
"""
    assert result(run_script(tmp_path, body)) == {"came": list(range(64))}


def test_17_a_lock_that_must_be_copied_is_a_stall_that_says_why(tmp_path: Path) -> None:
    """Fault 17: who insists on fork is not left to wait for ever, also when it is closed."""
    body = f"""
{MAKE}{LOCK}
class Unpicklable(Locked):
    def __reduce__(self):
        raise TypeError("not me")
if __name__ == "__main__":
    threading.Thread(target=hold, daemon=True).start()
    held.wait()
    walk, text = iter(make(Unpicklable(), stall_timeout=0.2)), ""
    while "in __getitem__" not in text:
        try:
            next(walk)
        except ps.StallError as error:
            text = str(error)
    walk.close()
    say(text=text)
"""
    said = result(run_script(tmp_path, body))

    assert "stall_timeout=0.2" in said["text"]


def test_17_a_lock_held_by_a_thread_that_waits_is_not_copied(tmp_path: Path) -> None:
    """Fault 17: a thread that waits inside the program's own code may hold a lock meanwhile; one in a pool may not."""
    body = f"""
{MAKE}{LOCK}
from concurrent.futures import ThreadPoolExecutor
def kinds(dataset):
    walk = iter(make(dataset))
    return [type(worker.process).__name__ for worker in walk.backend.workers], flat(walk)
def wait_with_lock():
    with LOCK:
        held.set()
        DONE.wait()
DONE = threading.Event()
if __name__ == "__main__":
    pool = ThreadPoolExecutor(1)
    pool.submit(int).result()
    pooled = kinds(Indices(8))
    threading.Thread(target=wait_with_lock, daemon=True).start()
    held.wait()
    say(pooled=pooled, locked=kinds(Locked(8)))
"""
    said = result(run_script(tmp_path, body))

    assert said == {
        "pooled": [["ForkProcess"] * 2, list(range(8))],
        "locked": [["ForkServerProcess"] * 2, list(range(8))],
    }


def test_17_a_script_without_a_guard_is_not_started_again(tmp_path: Path) -> None:
    """Fault 17: workers that would run the whole script are forked after all."""
    body = f"""
{MAKE}
def wait():
    begun.set()
    while True:
        time.sleep(0.1)
begun = threading.Event()
threading.Thread(target=wait, daemon=True).start()
begun.wait()
say(came=flat(make(Indices(16))))
"""
    ran = run_script(tmp_path, body)

    assert result(ran) == {"came": list(range(16))}
    assert len(ran.stdout.splitlines()) == 1


@pytest.mark.parametrize("limit", [1 << 20, 1 << 17])
def test_18_little_shared_memory_is_a_warning(limit: int, tmp_path: Path) -> None:
    """Fault 18: batches of 12 MB where no file may be as large: they come another way, whole, after one warning."""
    body = f"""
{MAKE}
if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        batches = [batch for batch in make(Indices(16, 750_000))]
    assert all((batch == batch[:, :1]).all() for batch in batches)
    say(came=flat(batches), told=[str(w.message) for w in told], kinds=[w.category.__name__ for w in told])
"""
    said = result(run_script(tmp_path, body))

    assert said["came"] == list(range(16))
    assert said["kinds"] == ["RuntimeWarning"]
    assert "shared memory" in said["told"][0]


def test_18_none_at_all_is_an_error_that_names_the_limit(tmp_path: Path) -> None:
    """Fault 18: not even the little that a worker needs: no signal, no hang."""
    body = f"""
{MAKE}
if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    before = descriptors()
    try:
        next(iter(make(Indices(16))))
    except WorkerError as error:
        say(text=str(error), left=children(), leaked=descriptors() - before)
"""
    said = result(run_script(tmp_path, body))

    assert "ulimit -f" in said["text"]
    assert (said["left"], said["leaked"]) == ([], 0)


def test_19_descriptors_stay_the_same_while_batches_are_kept(tmp_path: Path) -> None:
    """Fault 19: 300 batches kept under a limit of 64 descriptors; every one stays what it was."""
    body = f"""
{MAKE}
if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    kept, counts = [], []
    for batch in make(Indices(1200, 2000)):
        kept.append(batch)
        counts.append(descriptors())
    assert all((batch == batch[:, :1]).all() for batch in kept)
    say(came=flat(kept), most=max(counts[20:]), least=min(counts[20:]))
"""
    said = result(run_script(tmp_path, body))

    assert said["came"] == list(range(1200))
    assert said["most"] == said["least"]


def test_19_too_few_descriptors_to_start_is_an_error(tmp_path: Path) -> None:
    """Faults 19, A16: it names the limit; nothing is left of the workers that had started."""
    body = f"""
{MAKE}
if __name__ == "__main__":
    before = descriptors()
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 12, before + 12))
    warnings.simplefilter("ignore")
    try:
        iter(make(Indices(16), num_workers=8))
    except WorkerError as error:
        text = str(error)
    gc.collect()
    say(text=text, left=children(), leaked=descriptors() - before)
"""
    said = result(run_script(tmp_path, body))

    assert "ulimit -n" in said["text"]
    assert said["left"] == []
    assert said["leaked"] <= OF_MULTIPROCESSING


def test_a17_a_fork_that_is_refused_is_an_error(tmp_path: Path) -> None:
    """Fault A17: the system gives two processes and no third: the error names the limit, the two are ended."""
    body = f"""
{MAKE}
import errno
fork = os.fork
def refuse_the_third():
    if len(children()) >= 2:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
    return fork()
if __name__ == "__main__":
    os.fork = refuse_the_third
    before = descriptors()
    warnings.simplefilter("ignore")
    try:
        iter(make(Indices(16), num_workers=4))
    except WorkerError as error:
        text = str(error)
    gc.collect()
    say(text=text, left=children(), leaked=descriptors() - before, then=flat(make(Indices(8))))
"""
    said = result(run_script(tmp_path, body))

    assert "ulimit -u" in said["text"]
    assert "worker=2" in said["text"]
    assert said["left"] == []
    assert said["leaked"] <= OF_MULTIPROCESSING
    assert said["then"] == list(range(8))


def test_a17_a_worker_that_cannot_be_replaced_is_an_error(tmp_path: Path) -> None:
    """Fault A17: what it had to build fails, with the limit's name; the other worker's batches come."""
    body = f"""
{MAKE}
import errno
def refuse():
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
class Dies(Indices):
    def __getitem__(self, index):
        if index == 4:
            os._exit(1)
        return super().__getitem__(index)
if __name__ == "__main__":
    import logging
    logging.disable()
    walk = iter(make(Dies(64)))
    os.fork = refuse
    came, errors = [], []
    while True:
        try:
            came += flat([next(walk)])
        except StopIteration:
            break
        except WorkerError as error:
            errors.append(str(error))
    say(came=came, errors=errors)
"""
    said = result(run_script(tmp_path, body))

    assert said["came"] == [i for i in range(64) if i // 4 % 2 == 0]
    assert len(said["errors"]) == 8
    assert all("ulimit -u" in error for error in said["errors"])


def test_a22_epochs_leave_nothing_behind(tmp_path: Path) -> None:
    """Fault A22: memory, descriptors, processes and threads after 30 epochs are what they were after 8."""
    body = f"""
{MAKE}
def rss(pid="self"):
    return int(open(f"/proc/{{pid}}/statm").read().split()[1]) * 4096 / 1e6
def look(loader):
    gc.collect()
    return [rss(), sum(map(rss, children())), descriptors(), len(children()), threading.active_count()]
if __name__ == "__main__":
    persistent, fresh = make(Indices(160, 100_000), 8, persistent_workers=True), make(Indices(16, 100_000), 8)
    for epoch in range(30):
        assert flat(persistent) == list(range(160))
        assert flat(fresh) == list(range(16))
        if epoch == 7:
            before = look(persistent)
    say(before=before, after=look(persistent))
"""
    said = result(run_script(tmp_path, body))

    (rss, of_workers, *counts), (rss_after, of_workers_after, *counts_after) = said["before"], said["after"]
    assert counts == counts_after
    assert rss_after < rss + 8  # MB; a batch has 3.2
    assert of_workers_after < of_workers + 8


def test_a26_a_kept_batch_is_never_written_again(load: Load) -> None:
    """Fault A26: not while any view of it lives, whatever else is dropped; a consumer may write into what it got."""
    kept = []
    for i, batch in enumerate(load(Indices(400, width=4000))):
        if i % 7 == 0:
            kept.append((4 * i, batch[1:3]))
        batch[0] = -1

    assert len(kept) == 15
    assert all(np.array_equal(np.asarray(view)[:, 17], [first + 1, first + 2]) for first, view in kept)


def test_a26_a_slow_consumer_holds_the_workers_up(load: Load, tmp_path: Path) -> None:
    """Fault A26: they begin no more than prefetch_factor batches each beyond what was taken."""

    class Counted(Indices):
        def __getitem__(self, index: int) -> Any:
            (tmp_path / str(index)).touch()
            return index

    most = (5 + 2 * 3) * 4
    walk = iter(load(Counted(400), prefetch_factor=3))
    for _ in range(5):
        next(walk)
    wait_until(lambda: len(list(tmp_path.iterdir())) >= most, "all that may be begun is")
    walk.close()

    assert len(list(tmp_path.iterdir())) == most
