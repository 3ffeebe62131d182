"""How workers are started in programs as people write them: spawned ranks, service threads, a caller's variables."""

from __future__ import annotations

import gc
import logging.handlers
import multiprocessing.forkserver
import queue
import subprocess
import sys
import textwrap
import threading
import types
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.workers.processes.start import _other_threads, _preload


def run(folder: Path, program: str) -> list[str]:
    """What a script prints, line by line."""
    path = folder / "program.py"
    path.write_text(textwrap.dedent(program))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_spawned_process_has_workers_for_classes_of_its_script(tmp_path: Path, method: str) -> None:
    """In a rank of a job the script is called `__mp_main__`; its workers find the dataset's class all the same."""
    lines = run(
        tmp_path,
        f"""
        import multiprocessing as mp
        import penstock as ps

        class Squares:
            def __len__(self):
                return 6
            def __getitem__(self, index):
                return index * index

        def rank():
            loader = ps.DataLoader(Squares(), 3, num_workers=1, workers="processes", multiprocessing_context="{method}")
            print([batch.tolist() for batch in loader], flush=True)

        if __name__ == "__main__":
            process = mp.get_context("spawn").Process(target=rank)
            process.start()
            process.join()
            assert process.exitcode == 0
        """,
    )

    assert lines == ["[[0, 1, 4], [9, 16, 25]]"]


def test_service_threads_that_wait_for_work_hold_no_lock() -> None:
    """A log's listener, asleep in a queue, is no reason not to fork; a thread in code of the program's own is."""
    work: queue.Queue[Any] = queue.Queue()
    go, done = threading.Event(), threading.Event()

    def wait() -> None:
        work.get()

    def busy() -> None:
        go.set()
        while not done.is_set():
            sum(range(100))

    before = set(threading.enumerate())
    listener = logging.handlers.QueueListener(queue.Queue())
    listener.start()
    [service] = set(threading.enumerate()) - before
    own = [
        threading.Thread(target=wait, name="waiting"),
        threading.Thread(target=busy, name="busy"),
    ]
    for thread in own:
        thread.start()
    go.wait()

    try:
        others = _other_threads()
    finally:
        done.set()
        work.put(None)
        listener.stop()
        for thread in own:
            thread.join()

    assert {"busy", "waiting"} <= set(others)
    assert service.name not in others


class _Mine:
    pass


def _epoch() -> weakref.ref[_Mine]:
    mine = _Mine()
    assert len(list(ps.DataLoader(np.arange(4), 2, num_workers=1, workers="processes"))) == 2
    return weakref.ref(mine)


def test_starting_workers_keeps_no_variable_of_the_caller_alive() -> None:
    """What a function held is gone when it returns, without the cyclic collector: batches, tensors of a device."""
    gc.collect()
    gc.disable()
    try:
        mine = _epoch()
    finally:
        gc.enable()

    assert mine() is None


def test_a_fork_server_imports_once_what_a_script_with_its_dataset_imports(tmp_path: Path) -> None:
    """In a thread, workers of a dataset of the script import the script, for which the server has imported torch."""
    pytest.importorskip("torch")

    lines = run(
        tmp_path,
        """
        import sys
        WAS_THERE = "torch" in sys.modules
        import threading
        from penstock.torch import DataLoader

        class Mine:
            def __len__(self):
                return 1
            def __getitem__(self, index):
                return WAS_THERE

        if __name__ == "__main__":
            def epoch():
                print([bool(batch) for batch in DataLoader(Mine(), 1, num_workers=1)], WAS_THERE)

            thread = threading.Thread(target=epoch)
            thread.start()
            thread.join()
        """,
    )

    assert lines == ["[True] False"]


def test_what_a_running_fork_server_lacks_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each worker imports it anew, and the log says what to write; what the user has configured is left alone."""
    server = types.SimpleNamespace(_forkserver_pid=7, _preload_modules=[_preload.__module__])
    monkeypatch.setattr(multiprocessing.forkserver, "_forkserver", server)

    for _ in range(2):
        _preload((), ("torch.utils.data",))
    server._preload_modules = ["mine"]
    _preload((), ("torch.utils.data",))

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "imports torch.utils.data anew" in caplog.text
    assert "persistent_workers=True" in caplog.text
