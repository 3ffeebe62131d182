"""Parents that die, are interrupted, fork, or end with an iterator alive (faults 14, 15, A6 to A8, A20, A21)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import IO, Any

import pytest

from tests.faults.harness import alive, run_script, running_script, wait_until_gone

# Both loaders have the same workers; a program that imports torch takes seconds to start.
LOADERS = pytest.mark.parametrize("kind", ["numpy", pytest.param("torch", marks=pytest.mark.slow)])
MAKE = {
    "numpy": """
def make(dataset, batch_size=4, num_workers=2, **options):
    return ps.DataLoader(dataset, batch_size, num_workers=num_workers, workers="processes", **options)
""",
    "torch": """
import penstock.torch
def make(dataset, batch_size=4, num_workers=2, **options):
    return penstock.torch.DataLoader(dataset, batch_size, num_workers=num_workers, workers="processes", **options)
""",
}
BUSY = """
class Busy(Indices):
    def __getitem__(self, index):
        if index >= 8:
            open(f"{sys.argv[0]}.{index // 4 % 2}", "w").close()
            time.sleep(3600)
        return index
"""


def said(stream: IO[str] | None) -> dict[str, Any]:
    """The next thing that a script says."""
    assert stream is not None
    line = stream.readline()
    assert line, "the script ended without a word"
    found: dict[str, Any] = json.loads(line)
    return found


IDLE = """loader = make(Indices(64), prefetch_factor=1); walk = iter(loader); next(walk)
    wait_until(lambda: walk.queue().ready == 2)"""
IN_A_SAMPLE = """loader = make(Busy()); walk = iter(loader); next(walk)
    wait_until(lambda: all(os.path.exists(f"{sys.argv[0]}.{i}") for i in (0, 1)))"""
FULL = """loader = make(Indices(512, 1 << 18), 8, prefetch_factor=8); walk = iter(loader); next(walk)
    wait_until(lambda: walk.queue().ready == 16)"""
BETWEEN = "loader = make(Indices(8), persistent_workers=True); list(loader)"


@LOADERS
@pytest.mark.parametrize("doing", [IDLE, IN_A_SAMPLE, FULL, BETWEEN], ids=["idle", "in a sample", "full", "between"])
@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
def test_14_workers_die_with_their_parent(kind: str, doing: str, sig: int, tmp_path: Path) -> None:
    """Fault 14, A6: whatever they do."""
    body = f"""
{MAKE[kind]}{BUSY}
if __name__ == "__main__":
    {doing}
    say(pids=children())
    time.sleep(3600)
"""
    with running_script(tmp_path, body) as script:
        pids = said(script.stdout)["pids"]
        os.kill(script.pid, sig)
        script.wait(60)
        wait_until_gone(pids)

    assert len(pids) == 2


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_14_workers_that_started_afresh_die_with_their_parent(method: str, tmp_path: Path) -> None:
    """Fault 14: also those that were not forked from it, and those that have hardly begun."""
    body = f"""
import multiprocessing
{MAKE["numpy"]}
class Named(Indices):
    def __getitem__(self, index):
        return np.array([os.getpid()])

if __name__ == "__main__":
    multiprocessing.set_start_method("{method}")
    loader = make(Named())
    say(pids=sorted({{int(pid) for batch in loader for pid in batch.ravel()}}))
    walk = iter(loader)
    say(pids=sorted({{int(pid) for _ in range(4) for pid in next(walk).ravel()}}))
    time.sleep(3600)
"""
    with running_script(tmp_path, body) as script:
        first, pids = said(script.stdout)["pids"], said(script.stdout)["pids"]
        wait_until_gone(first)
        was_alive = [alive(pid) for pid in pids]
        script.kill()
        wait_until_gone(pids)

    assert len(first) == len(pids) == 2
    assert all(was_alive)


@LOADERS
@pytest.mark.parametrize("doing", ["busy", "idle"])
def test_15_ctrl_c_is_one_traceback(kind: str, doing: str, tmp_path: Path) -> None:
    """Fault 15: SIGINT to the group ends the program and its workers, with KeyboardInterrupt told once."""
    then = "next(walk); next(walk)" if doing == "busy" else "time.sleep(3600)"
    body = f"""
{MAKE[kind]}{BUSY}
if __name__ == "__main__":
    walk = iter(make(Busy()))
    next(walk)
    wait_until(lambda: all(os.path.exists(f"{{sys.argv[0]}}.{{i}}") for i in (0, 1)))
    say(pids=children())
    {then}
"""
    with running_script(tmp_path, body) as script:
        pids = said(script.stdout)["pids"]
        os.killpg(script.pid, signal.SIGINT)
        _, stderr = script.communicate(timeout=60)
        wait_until_gone(pids)

    assert len(pids) == 2
    assert stderr.count("Traceback") == 1
    assert stderr.rstrip().endswith("KeyboardInterrupt")
    assert "penstock-worker" not in stderr


@LOADERS
def test_a8_a_state_can_be_read_while_a_signal_is_answered(kind: str, tmp_path: Path) -> None:
    """Fault A8: who is preempted saves where the epoch stands, in the handler."""
    body = f"""
{MAKE[kind]}
def preempted(*_):
    say(state=str(loader.state_dict()), left=len(children()))
    loader.close()
    sys.exit(3)

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, preempted)
    loader = make(Indices(4000, sleep_s=0.001))
    for i, batch in enumerate(loader):
        if i == 3:
            os.kill(os.getpid(), signal.SIGTERM)
"""
    ran = run_script(tmp_path, body)

    assert (ran.returncode, ran.stderr) == (3, "")
    assert json.loads(ran.stdout)["left"] == 2


@LOADERS
@pytest.mark.parametrize("where", ["global", "cycle", "persistent", "class"])
def test_a21_the_interpreter_ends_in_silence(kind: str, where: str, tmp_path: Path) -> None:
    """Fault A21: an iterator that is alive at exit: no hang, no message, no worker left."""
    keep = {
        "global": "walk = iter(make(Indices(512, 1 << 16))); next(walk)",
        "cycle": "walk = iter(make(Indices(512))); next(walk); ring = [walk]; ring.append(ring); del walk",
        "persistent": "loader = make(Indices(8), persistent_workers=True); list(loader); walk = iter(loader)",
        "class": "Indices.walk = iter(make(Indices(512, 1 << 16))); kept = [next(Indices.walk) for _ in 'abc']",
    }[where]
    body = f"{MAKE[kind]}\nif __name__ == '__main__':\n    {keep}\n    say(pids=children())"

    ran = run_script(tmp_path, body)

    assert (ran.returncode, ran.stderr) == (0, "")
    wait_until_gone(json.loads(ran.stdout)["pids"])


@LOADERS
@pytest.mark.parametrize("leave", ["os._exit(0)", "sys.exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_found_a_fork_that_ends_leaves_the_parents_workers_alone(kind: str, leave: str, tmp_path: Path) -> None:
    """Found in torch 2.15, A21: the program forks in mid-epoch; only who started workers ends them."""
    body = f"""
{MAKE[kind]}
if __name__ == "__main__":
    walk = iter(make(Indices(400, 2000, sleep_s=0.001), 8))
    came = [next(walk)[:, 0].tolist()]
    workers = children()
    forked = os.fork()
    if not forked:
        {leave}
    os.waitpid(forked, 0)
    forked = os.fork()
    if not forked:
        del walk
        gc.collect()
        {leave}
    os.waitpid(forked, 0)
    lived = [alive(pid) for pid in workers]
    came += [batch[:, 0].tolist() for batch in walk]
    say(came=[int(x) for batch in came for x in batch], lived=lived)
"""
    ran = run_script(tmp_path, body)

    assert ran.stderr == ""
    found = json.loads(ran.stdout)
    assert found["came"] == list(range(400))
    assert found["lived"] == [True, True]


def test_found_a_fork_does_not_keep_workers_alive(tmp_path: Path) -> None:
    """Faults 14, A21: a child that outlives the parent holds none of the ends by which workers see it die."""
    body = f"""
{MAKE["numpy"]}{BUSY}
if __name__ == "__main__":
    walk = iter(make(Busy()))
    next(walk)
    pids = children()
    forked = os.fork()
    if not forked:
        time.sleep(3600)
        os._exit(0)
    say(pids=pids, forked=forked)
    time.sleep(3600)
"""
    with running_script(tmp_path, body) as script:
        found = said(script.stdout)
        script.kill()
        script.wait(60)
        wait_until_gone(found["pids"])
        forked_lives = alive(found["forked"])

    assert forked_lives


def test_found_a_fork_may_iterate_for_itself(tmp_path: Path) -> None:
    """Fault A21: a loader that came along in a fork starts workers of its own there."""
    body = f"""
{MAKE["numpy"]}
if __name__ == "__main__":
    loader = make(Indices(32), persistent_workers=True)
    list(loader)
    mine = children()
    forked = os.fork()
    if not forked:
        came = [int(x) for batch in loader for x in batch[:, 0]]
        assert came == list(range(32)), came
        assert not set(children()) & set(mine)
        loader.close()
        os._exit(7)
    status = os.waitpid(forked, 0)[1]
    say(status=os.waitstatus_to_exitcode(status), again=len(list(loader)), same=sorted(children()) == sorted(mine))
    loader.close()
"""
    ran = run_script(tmp_path, body)

    assert ran.stderr == ""
    assert json.loads(ran.stdout) == {"status": 7, "again": 8, "same": True}


@LOADERS
def test_a20_a_loader_is_iterated_in_a_thread(kind: str, tmp_path: Path) -> None:
    """Fault A20: made in the main thread, iterated in another, closed by its end."""
    body = f"""
import multiprocessing
{MAKE[kind]}
if __name__ == "__main__":
    loader, came = make(Indices(64)), []
    thread = threading.Thread(target=lambda: came.extend(int(x) for batch in loader for x in batch[:, 0].tolist()))
    thread.start()
    thread.join()
    say(came=came, left=len(multiprocessing.active_children()))
"""
    ran = run_script(tmp_path, body)

    assert ran.stderr == ""
    assert json.loads(ran.stdout) == {"came": list(range(64)), "left": 0}


@LOADERS
def test_a20_a_loader_with_processes_inside_a_worker_is_refused(kind: str, tmp_path: Path) -> None:
    """Fault A20: a worker may start no processes; the error says what to do instead."""
    body = f"""
{MAKE[kind]}
class Nested(Indices):
    def __getitem__(self, index):
        return sum(len(batch) for batch in make(Indices(8)))

if __name__ == "__main__":
    try:
        next(iter(make(Nested(8))))
    except RuntimeError as error:
        say(error=str(error))
"""
    ran = run_script(tmp_path, body)

    assert ran.stderr == ""
    assert "num_workers=0 or workers='threads'" in json.loads(ran.stdout)["error"]
