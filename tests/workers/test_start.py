"""How workers are started: by which method, and importing what."""

from __future__ import annotations

import errno
import importlib
import logging
import multiprocessing
import os
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import system
from penstock.errors import WorkerError
from penstock.workers.processes import start
from penstock.workers.processes.start import Launcher, describe_start_error
from penstock.workers.stack_frames import current_frames


class Job:
    """Can be sent anywhere."""

    def __init__(self, dataset: Any = None) -> None:
        self.dataset = dataset


class Unpicklable(Job):
    """Cannot."""

    def __reduce__(self) -> Any:
        raise TypeError("not me")


@pytest.fixture(autouse=True)
def _forks_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python does on Linux up to 3.13, whatever this one does; and no threads but a test's own."""
    monkeypatch.setattr(multiprocessing, "get_context", by_default(multiprocessing.get_context))
    mine = threading.get_ident()
    others = set(current_frames()) - {mine}
    real = start._other_threads
    monkeypatch.setattr(start, "_is_in_service_code", without(start._is_in_service_code, others))
    assert real() == []


def by_default(get: Any) -> Any:
    """`get_context` whose default is fork."""
    return lambda method=None: get(method or "fork")


def without(is_in_service_code: Any, others: set[int]) -> Any:
    """Takes threads that were there before for service threads."""

    def check(frame: Any) -> bool:
        frames = current_frames()
        return any(frames.get(ident) is frame for ident in others) or is_in_service_code(frame)

    return check


@contextmanager
def a_thread() -> Iterator[None]:
    """A thread of the program's is at work."""
    stop, begun = [False], threading.Event()

    def work() -> None:
        begun.set()
        while not stop[0]:
            os.sched_yield()

    thread = threading.Thread(target=work, name="own-work")
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        stop[0] = True
        thread.join()


def method(context: Any, job: Any) -> str:
    """What would be used."""
    return Launcher.choose(context, job).context.get_start_method() or ""


def test_alone_workers_are_forked() -> None:
    """As torch does, without threads."""
    assert method(None, Job()) == "fork"


def test_what_forked_workers_import_for_torch_is_imported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch is there, they find imported what sends tensors; where it is not, nobody imports it for them."""
    pytest.importorskip("torch")
    name = "penstock.torch.tensor_sharing"
    importlib.import_module(name)
    monkeypatch.delitem(sys.modules, name)

    Launcher.choose(None, Job())

    assert name in sys.modules
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "torch")

    Launcher.choose(None, Job())

    assert not {"torch", name} & sys.modules.keys()


def test_a_program_in_a_folder_called_penstock_is_not_ours() -> None:
    """Its threads count: only this very package's are known to hold no lock."""
    stop, begun = threading.Event(), threading.Event()
    names: dict[str, Any] = {}
    source = "def work(begun, stop):\n    begun.set()\n    while not stop.is_set():\n        pass\n"
    exec(compile(source, "/home/somebody/penstock/train.py", "exec"), names)
    thread = threading.Thread(target=names["work"], args=(begun, stop), name="own-work")
    thread.start()
    try:
        begun.wait()
        others = start._other_threads()
    finally:
        stop.set()
        thread.join()

    assert "own-work" in others


def test_beside_a_thread_they_are_not(caplog: pytest.LogCaptureFixture) -> None:
    """And the log says why, with the thread's name."""
    with a_thread(), caplog.at_level(logging.INFO):
        chosen = method(None, Job())

    assert chosen == "forkserver"
    assert "own-work" in caplog.text


def test_after_a_library_without_fork_they_are_not(caplog: pytest.LogCaptureFixture) -> None:
    """And the log names the library."""
    system.note_use("Ferry")
    with caplog.at_level(logging.INFO):
        chosen = method(None, Job())

    assert chosen == "forkserver"
    assert "Ferry was used, which does not support fork" in caplog.text


def test_what_was_asked_for_is_done() -> None:
    """A context that is given is used, whatever runs."""
    with a_thread():
        assert [method(multiprocessing.get_context(name), Job()) for name in ("fork", "spawn", "forkserver")] == [
            "fork", "spawn", "forkserver",
        ]  # fmt: skip


def test_a_service_thread_that_sleeps_holds_no_lock() -> None:
    """One that waits in a queue or event of the standard library's does not change how workers start."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, daemon=True)
    thread.start()
    chosen = method(None, Job())
    stop.set()
    thread.join()

    assert chosen == "fork"


@pytest.mark.parametrize(
    ("file", "chosen"),
    [
        ("/home/somebody/train.py", "forkserver"),
        ("/usr/lib/python3/dist-packages/tqdm/_monitor.py", "fork"),
        ("/home/somebody/.venv/lib/python3.11/site-packages/ipykernel/iostream.py", "fork"),
        ("/home/somebody/.venv/lib/python3.11/site-packages/execnet/gateway_base.py", "fork"),
        ("/home/somebody/.venv/lib/python3.11/site-packages/own_project/train.py", "forkserver"),
        (f"{Path(os.__file__).parent}/concurrent/futures/thread.py", "fork"),
        (f"{Path(os.__file__).parent}/logging/__init__.py", "forkserver"),
    ],
)
def test_a_thread_that_waits_holds_no_lock_only_in_service_code(file: str, chosen: str) -> None:
    """`with lock: event.wait()` in the program holds the lock; the thread of a notebook or a progress bar does not."""
    begun, stop = threading.Event(), threading.Event()
    names: dict[str, Any] = {}
    exec(compile("def work(begun, stop):\n    begun.set()\n    stop.wait()\n", file, "exec"), names)
    thread = threading.Thread(target=names["work"], args=(begun, stop), daemon=True)
    thread.start()
    begun.wait()
    found = method(None, Job())
    stop.set()
    thread.join()

    assert found == chosen


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (Unpicklable(), "cannot be pickled"),
        (Job(np.empty(80 << 20, np.uint8)), "is large"),
        (Job(lambda: 0), "pickled"),
    ],
    ids=["unpicklable", "large", "inside"],
)
def test_what_cannot_travel_is_forked_after_all(job: Any, why: str, caplog: pytest.LogCaptureFixture) -> None:
    """With the reason in the log."""
    with a_thread(), caplog.at_level(logging.INFO):
        chosen = method(None, job)

    assert chosen == "fork"
    assert why in caplog.text


@pytest.mark.parametrize(
    ("guard", "chosen"), [("if __name__ == '__main__':\n    run()", "forkserver"), ("run()", "fork")]
)
def test_a_script_is_run_again_only_behind_a_guard(
    guard: str, chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dataset that lives in the main script has it imported by each worker that starts afresh."""
    script = tmp_path / "train.py"
    script.write_text(f"class Mine: pass\n{guard}\n")
    main = types.ModuleType("__main__")
    main.__file__ = str(script)
    main.Mine = type("Mine", (), {"__module__": "__main__", "__qualname__": "Mine"})  # type: ignore[attr-defined]  # made here
    monkeypatch.setitem(sys.modules, "__main__", main)

    with a_thread():
        assert method(None, Job(main.Mine())) == chosen


def test_the_main_script_is_imported_by_those_who_name_it() -> None:
    """A dataset from a module of its own does not bring the script's imports along."""
    spawn = multiprocessing.get_context("spawn")

    assert not Launcher.choose(spawn, Job(np.zeros(3))).needs_main
    assert Launcher.choose(spawn, Job("__main__")).needs_main


def test_a_lock_that_is_held_at_a_fork_is_free_in_the_child() -> None:
    """A program that forks while another thread starts workers may start workers in the child."""
    with start._lock:
        pid = os.fork()
        if not pid:
            os._exit(0 if start._lock.acquire(timeout=60) else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.EAGAIN, "ulimit -u"), (errno.EMFILE, "ulimit -n"), (errno.EFBIG, "ulimit -f"), (errno.EPERM, "not perm")],
)
def test_a_refusal_names_the_limit(number: int, words: str) -> None:
    """What to raise, or else what the system says."""
    assert words in describe_start_error(OSError(number, os.strerror(number))).lower()


def test_classes_of_a_notebook_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is not forked cannot import them: one sentence says so before any process starts."""
    main = types.ModuleType("__main__")  # of a notebook: no file
    main.Mine = type("Mine", (), {"__module__": "__main__", "__qualname__": "Mine"})  # type: ignore[attr-defined]  # made here
    monkeypatch.setitem(sys.modules, "__main__", main)
    spawn = multiprocessing.get_context("spawn")

    with pytest.raises(WorkerError, match=r"^Mine is defined in a notebook .* move it to a module .*'fork'"):
        Launcher.choose(spawn, Job(main.Mine()))

    assert Launcher.choose(spawn, Job("a text that names __main__")).needs_main
    assert Launcher.choose(multiprocessing.get_context("fork"), Job(main.Mine())).forks
