"""Starting late, stopping early: no hang, no leak, no thread left behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import ArgumentError, StallError
from penstock.workers import threads as worker_threads
from tests.loader.fakes import Blocking, Failing, Rows, Samples, StatefulStream, epoch, workers_alive
from tests.loader.simulated import SimulatedClock


def test_nothing_starts_before_iteration() -> None:
    """Constructing a loader starts no thread and reads nothing."""
    before = threading.active_count()
    ps.DataLoader(Blocking(8, at=0), 2, num_workers=2, workers="threads")

    assert threading.active_count() == before


@pytest.mark.parametrize("dataset", [Samples(), Rows(), StatefulStream()])
def test_an_exhausted_epoch_leaves_no_thread(dataset: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the last batch the workers have ended, not merely been told to."""
    monkeypatch.setattr(worker_threads, "_JOIN_S", 60.0)
    epoch(ps.DataLoader(dataset, 8, num_workers=2, workers="threads"))

    assert [thread for thread in threading.enumerate() if thread.name.startswith("penstock-worker")] == []


def test_break_stops_the_workers() -> None:
    """A loop that is left early frees its iterator, and its threads end."""
    for _ in ps.DataLoader(Samples(), 2, num_workers=2, workers="threads"):
        break

    assert workers_alive() == []


def test_an_iterator_in_a_cycle_is_collected() -> None:
    """A traceback or a cycle that held the iterator holds no thread after a collection."""
    walk = iter(ps.DataLoader(Samples(), 2, num_workers=2, workers="threads"))
    next(walk)
    cycle: list[Any] = [walk]
    cycle.append(cycle)
    del walk, cycle

    gc.collect()

    assert workers_alive() == []


def test_close_returns_though_a_worker_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """close() gives up on a worker in user code after a limit; it ends when the user code does."""
    monkeypatch.setattr(worker_threads, "_JOIN_S", 0.05)
    dataset = Blocking(8, at=0)
    walk = iter(ps.DataLoader(dataset, 2, num_workers=1, workers="threads"))
    assert dataset.reached.wait(60)

    walk.close()
    walk.close()
    stuck = threading.active_count()
    dataset.release.set()

    assert stuck > 1
    assert workers_alive() == []
    with pytest.raises(StopIteration):
        next(walk)


def test_persistent_workers_persist_and_close() -> None:
    """The same threads serve every epoch, until close() or until the loader is forgotten."""
    loader = ps.DataLoader(Samples(), 8, num_workers=2, workers="threads", persistent_workers=True)
    epoch(loader)
    first = {thread.ident for thread in threading.enumerate() if thread.name.startswith("penstock-worker")}
    epoch(loader)
    second = {thread.ident for thread in threading.enumerate() if thread.name.startswith("penstock-worker")}

    loader.close()

    assert len(first) == 2
    assert first == second
    assert workers_alive() == []


def test_a_forgotten_loader_ends_its_persistent_workers() -> None:
    """No reference, no thread."""
    loader = ps.DataLoader(Samples(), 8, num_workers=2, workers="threads", persistent_workers=True)
    epoch(loader)
    del loader
    gc.collect()

    assert workers_alive() == []


@pytest.mark.parametrize(("num_workers", "prefetch_factor"), [(1, 1), (2, 2), (2, 5)])
@pytest.mark.usefixtures("clock")
def test_prefetching_is_bounded(num_workers: int, prefetch_factor: int) -> None:
    """A consumer that stops asking: workers begin at most prefetch_factor * num_workers batches beyond what it has."""
    begun: list[int] = []
    loader = ps.DataLoader(
        _Watched(200, begun), 2, num_workers=num_workers, workers="simulated", prefetch_factor=prefetch_factor
    )
    walk = iter(loader)
    for _ in range(3):
        next(walk)

    assert begun == list(range((3 + num_workers * prefetch_factor) * 2))


class _Watched(Samples):
    """Notes each index that is asked for."""

    def __init__(self, n: int, begun: list[int]) -> None:
        super().__init__(n)
        self.begun = begun

    def __getitem__(self, index: int) -> Any:
        self.begun.append(index)
        return index


def test_serial_works_only_when_asked() -> None:
    """Without workers nothing is built, nor drawn from a sampler, before it is asked for."""
    begun: list[int] = []
    drawn: list[int] = []

    def sampler() -> Any:
        for i in range(10):
            drawn.append(i)
            yield i

    walk = iter(ps.DataLoader(_Watched(10, begun), 2, sampler=sampler()))
    next(walk)

    assert begun == [0, 1]
    assert drawn == [0, 1]


@pytest.mark.parametrize("in_order", [True, False])
def test_a_slow_batch_holds_the_ones_behind_it(clock: SimulatedClock, in_order: bool) -> None:
    """In order means in order: batches that are ready wait for the one before them; else they come as they end."""

    class Slow(Samples):
        def __getitem__(self, index: int) -> Any:
            clock.sleep(10 if index == 0 else 1)
            return index

    loader = ps.DataLoader(Slow(12), 2, num_workers=2, workers="simulated", prefetch_factor=3, in_order=in_order)
    firsts, times = [], []
    for batch in loader:
        firsts.append(int(batch[0]))
        times.append(clock.now_s)

    assert firsts == ([0, 2, 4, 6, 8, 10] if in_order else [2, 6, 10, 0, 4, 8])
    assert times == ([11, 11, 13, 13, 15, 15] if in_order else [2, 4, 6, 11, 13, 15])


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [({"timeout": 0.05}, "DataLoader timed out after 0.05 seconds"), ({"stall_timeout": 0.05}, "stall_timeout=0.05")],
)
def test_a_stall_is_named(kwargs: dict[str, Any], text: str) -> None:
    """Waiting is bounded; the error says which worker, which samples, and where in whose code it stands."""
    dataset = Blocking(4, at=1)
    walk = iter(ps.DataLoader(dataset, 2, num_workers=1, workers="threads", **kwargs))
    assert dataset.reached.wait(60)

    with pytest.raises(StallError, match=text) as caught:
        next(walk)

    dataset.release.set()
    message = str(caught.value)
    assert "worker 0 has been busy" in message
    assert "sample 1 of batch 0 (index 1)" in message
    assert "self.release.wait(60)" in message
    assert caught.value.where == {"dataset": "Blocking", "epoch": 0, "batch": 0}
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, RuntimeError)  # what torch raises
    assert [batch.tolist() for batch in walk] == [[0, 1], [2, 3]]  # what was late still comes


def test_a_stall_in_collation_names_the_stage() -> None:
    """The stage that stands still is part of the message."""
    reached, release = threading.Event(), threading.Event()

    def collate(samples: list[Any]) -> Any:
        reached.set()
        release.wait(60)
        return samples

    walk = iter(
        ps.DataLoader(Failing(2, {}), 2, num_workers=1, workers="threads", collate_fn=collate, stall_timeout=0.05)
    )
    assert reached.wait(60)
    with pytest.raises(StallError, match="stage 'collate' of batch 0"):
        next(walk)
    release.set()

    assert list(walk) == [[0, 1]]


def test_memory_is_flat_over_epochs() -> None:
    """Fifty epochs leave no object behind: what the collector tracks does not grow."""
    loader = ps.DataLoader(Rows(), 8, shuffle=True, seed=0, num_workers=2, workers="threads")

    def run(epochs: int) -> int:
        for _ in range(epochs):
            for _ in loader:
                pass
        gc.collect()
        return len(gc.get_objects())

    run(10)
    before = run(1)

    after = run(50)

    assert after - before < 50
    assert len(loader._counters._spent.traces) == 0


def test_iterators_do_not_pickle() -> None:
    """A position is saved by state_dict(), not by pickling threads."""
    import pickle

    with pytest.raises(NotImplementedError, match="state_dict"):
        pickle.dumps(iter(ps.DataLoader(Samples(), 2)))


def test_loaders_pickle() -> None:
    """A loader travels to another process as its arguments and its position."""
    import pickle

    loader = ps.DataLoader(Samples(), 8, shuffle=True, num_workers=2, workers="threads", persistent_workers=True)
    walk = iter(loader)
    next(walk)
    copy = pickle.loads(pickle.dumps(loader))

    assert copy.state_dict() == loader.state_dict()
    walk.close()
    assert epoch(copy)
    copy.close()


def test_an_iterator_can_finish_in_another_thread() -> None:
    """Iterating inside a thread, also a daemon, is iterating."""
    got: list[Any] = []
    thread = threading.Thread(
        target=lambda: got.extend(epoch(ps.DataLoader(Samples(), 8, num_workers=2, workers="threads", seed=1))),
        daemon=True,
    )
    thread.start()
    thread.join()

    assert got == epoch(ps.DataLoader(Samples(), 8, seed=1))


def test_a_loader_inside_a_worker_works() -> None:
    """A dataset may itself use a loader."""

    class Nested(Samples):
        def __getitem__(self, index: int) -> Any:
            return sum(int(batch.sum()) for batch in ps.DataLoader(Failing(4, {}), 2, num_workers=1, workers="threads"))

    assert next(iter(ps.DataLoader(Nested(2), 2, num_workers=1, workers="threads"))).tolist() == [6, 6]


PREAMBLE = """
import atexit, os, sys, time, threading
import numpy as np
import penstock as ps
reached = threading.Event()
class D(ps.Dataset):
    def __len__(self): return 10_000
    def __getitem__(self, i):
        if i == 50:
            reached.set()
            SLEEP
        return np.zeros(10)
"""

ENDINGS = {
    "end of program": "next(it)",
    "error": "next(it); raise SystemError('mine')",
    "sys.exit": "next(it); sys.exit(3)",
    "iterator in a cycle": "it.me = it; del it",
    "stuck worker": "reached.wait()",
    "inside a thread": "threading.Thread(target=lambda: [None for _ in it], daemon=True).start(); reached.wait()",
    "unraisable-free del": "next(it); del it, dl",
}


def test_a_forgotten_busy_worker_is_waited_for_at_exit() -> None:
    """Native code must not wake up in a dead interpreter: a worker of a collected loader ends its sample first."""
    code = PREAMBLE.replace("SLEEP", "(exiting.wait(), time.sleep(0.3), os.write(1, b'woke'))") + textwrap.dedent("""
        from penstock.workers import threads
        threads._JOIN_S = 60
        exiting = threading.Event()
        it = iter(ps.DataLoader(D(), 5, num_workers=2, workers="threads", prefetch_factor=20))
        atexit.register(exiting.set)  # called before what penstock has registered
        next(it)
        reached.wait()
        del it
    """)

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "woke", "")


@pytest.mark.parametrize(
    ("persistent", "ending"),
    [
        *((True, ending) for ending in ENDINGS),
        (False, "end of program"),
        (False, "stuck worker"),
        *(
            pytest.param(False, each, marks=pytest.mark.slow)
            for each in ENDINGS
            if each not in ("end of program", "stuck worker")
        ),
    ],
)
def test_the_interpreter_exits(ending: str, persistent: bool) -> None:
    """However a program ends with an iterator alive, it ends, and says nothing that it need not."""
    code = PREAMBLE.replace("SLEEP", f"time.sleep({3600 if ending == 'stuck worker' else 0})") + textwrap.dedent(f"""
        kind = dict(num_workers=2, workers="threads", persistent_workers={persistent})
        dl = ps.DataLoader(D(), 5, prefetch_factor=20, **kind)
        it = iter(dl)
        {ENDINGS[ending]}
    """)

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120, check=False
    )

    assert done.returncode == {"error": 1, "sys.exit": 3}.get(ending, 0), done.stderr
    if ending != "error":
        assert done.stderr == ""


KEEPERS = {"module": "import __main__ as main", "sys": "import sys, __main__; sys.kept = __main__"}


@pytest.mark.parametrize(
    ("kind", "keeper"),
    [
        *((kind, keeper) for kind in ("serial", "threads", "processes", "index file") for keeper in KEEPERS),
        ("prefetch", "module"),
        *(pytest.param(kind, "sys", marks=pytest.mark.slow) for kind in ("torch", "prefetch")),
    ],
)
@pytest.mark.timeout(180)  # programs that import torch
def test_finalisers_say_nothing_when_modules_are_gone(kind: str, keeper: str, tmp_path: Path) -> None:
    """A module that keeps the main script alive (dill does) has iterators and batches die after our globals."""
    (tmp_path / "keeper.py").write_text(KEEPERS[keeper])
    workers = {"serial": "num_workers=0"}.get(
        kind, f"num_workers=2, workers={'threads' if kind == 'threads' else 'processes'!r}"
    )
    body = {
        "torch": f"penstock.torch.DataLoader(Rows(), 4, {workers})",
        "prefetch": f"penstock.torch.prefetch(penstock.torch.DataLoader(Rows(), 4, {workers}), 'cpu')",
    }.get(kind, f"ps.DataLoader(Rows(), 4, {workers})")
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(f"""
        import keeper
        import numpy as np
        import penstock as ps
        from penstock.sample import ArraySpec
        from penstock.stores.common.seek_table_file import SeekTableFile
        {"import penstock.torch" if kind in {"torch", "prefetch"} else ""}

        class Rows(ps.Dataset):
            def __len__(self):
                return 400
            def spec(self):
                return ArraySpec((2048,), np.dtype(np.float32))
            def fill(self, indices, out, keys, rows=None):
                out[rows] = indices[:, None]

        if __name__ == "__main__":
            kept = SeekTableFile({str(tmp_path / "index")!r}, "print", 4, "rows") if {kind == "index file"} else None
            walk = iter({body})
            first, second = next(walk), next(walk)
            raise SystemError("mine")
        """)
    )

    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "SystemError: mine"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_in_the_middle_of_an_epoch_hangs_nobody() -> None:
    """The child is told that the iterator is not its own, and can begin an epoch itself; the parent goes on."""
    code = PREAMBLE.replace("SLEEP", "pass") + textwrap.dedent("""
        import os
        dl = ps.DataLoader(D(), 1000, num_workers=2, workers="threads", persistent_workers=True, seed=0)
        for _ in dl: pass
        it = iter(dl)
        next(it)
        pid = os.fork()
        if pid == 0:
            try:
                next(it)
            except ps.ArgumentError as error:
                assert "forked" in str(error)
                it.close()
                n = sum(1 for _ in dl)
                dl.close()
                os._exit(0 if n == 10 else 1)
            os._exit(2)
        assert os.waitpid(pid, 0)[1] == 0
        assert sum(1 for _ in it) == 9
    """)

    quiet = "ignore:This process:DeprecationWarning"  # of Python 3.12 and newer: the parent has threads
    done = subprocess.run(
        [sys.executable, "-W", quiet, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_worker_processes_close_what_they_have_opened(tmp_path: Path) -> None:
    """Python warns of a socket that is not closed, if it is asked to."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import penstock as ps

        class Numbers:
            def __len__(self): return 64
            def __getitem__(self, index): return index

        if __name__ == "__main__":
            for batch in ps.DataLoader(Numbers(), 4, num_workers=2, multiprocessing_context="spawn"):
                break
    """)
    )

    command = [sys.executable, "-W", "always::ResourceWarning", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize(
    ("module", "kind"),
    [
        *(("penstock", kind) for kind in ("serial", "threads", "processes")),
        ("penstock.torch", "processes"),
        *(pytest.param("penstock.torch", kind, marks=pytest.mark.slow) for kind in ("serial", "threads")),
    ],
)
@pytest.mark.timeout(180)  # as above
def test_a_batch_that_was_given_to_a_forked_process_stays_as_it_was(kind: str, module: str, tmp_path: Path) -> None:
    """A process that saves a batch in the background saves that batch, however far the loop has gone on meanwhile."""
    workers = f"workers={kind!r}, num_workers=2" if kind != "serial" else "num_workers=0"
    code = textwrap.dedent(f"""
        import multiprocessing
        import numpy as np
        import penstock as ps
        import {module}
        from penstock.sample import ArraySpec

        class Rows(ps.Dataset):
            def __len__(self):
                return 400
            def spec(self):
                return ArraySpec((2048,), np.dtype(np.float32))
            def fill(self, indices, out, keys, rows=None):
                out[rows] = indices[:, None]
            def __getitem__(self, index):
                return np.full(2048, index, np.float32)

        def save(batch, go, results):
            go.wait()
            results.put(sorted({{float(value) for row in batch for value in row}}))

        if __name__ == "__main__":
            fork = multiprocessing.get_context("fork")
            go, results, processes = fork.Event(), fork.Queue(), []
            for number, batch in enumerate({module}.DataLoader(Rows(), 8, {workers})):
                if number < 5:
                    processes.append(fork.Process(target=save, args=(batch, go, results)))
                    processes[-1].start()
                del batch
            go.set()
            found = sorted(results.get() for _ in processes)
            for process in processes:
                process.join()
            assert found == [[8.0 * k + j for j in range(8)] for k in range(5)], found
    """)
    program = tmp_path / "program.py"
    program.write_text(code)

    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_arguments_of_a_forked_iterator_error_are_clear() -> None:
    """The message says what to do."""
    walk = iter(ps.DataLoader(Samples(), 2))
    walk._pid = -1

    with pytest.raises(ArgumentError, match="must call iter"):
        next(walk)
