"""How worker processes are started: which method, and what they import.

The method is the one asked for; else Python's default. Where that is fork and other threads run (one of them may hold
a lock that the child would wait for for ever), it is forkserver, if what the workers need can be pickled, is not large,
and does not live in a script that would start all over again; a line of the log says which and why.

A forked worker finds imported what it needs. One that starts afresh imports what its job names; the main script only if
the job names it: a script that imports torch at its top does not make every worker of a NumPy dataset do so.
"""

from __future__ import annotations

import ast
import errno
import functools
import importlib
import logging
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.spawn
import os
import pickle
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from pathlib import Path
from types import FrameType
from typing import Any, Final

from penstock.errors import WorkerError
from penstock.workers.frames import current_frames

__all__ = ["Launcher", "refusal"]

_logger = logging.getLogger(__name__)

_LARGE: Final = 64 << 20
"""Bytes of a pickled job above which copying it to each worker costs more than the danger of a fork."""

_DEEP: Final = 20
"""Attributes of attributes among which one that cannot be pickled is looked for."""

_STANDARD_SERVICES: Final = (
    "asyncio/", "concurrent/futures/", "logging/handlers.py", "multiprocessing/", "queue.py", "selectors.py",
    "socket.py", "socketserver.py", "threading.py",
)  # fmt: skip
"""Modules of the standard library that run service threads."""

_INSTALLED_SERVICES: Final = (
    "IPython/", "debugpy/", "decorator.py", "execnet/", "ipykernel/", "tensorboard/", "tornado/", "tqdm/", "traitlets/",
    "wandb/", "zmq/",
)  # fmt: skip
"""Installed packages that run service threads: notebooks, progress bars, loggers of experiments, pytest-xdist."""

_STANDARD: Final = f"{os.path.dirname(os.__file__)}/"  # noqa: PTH120  # compared as text, once for each file
_INSTALLED: Final = re.compile(r".*/(?:site|dist)-packages/")

_PACKAGE: Final = str(Path(__file__).parents[2]) + os.sep
"""Where this package lies: a program of the user's may well lie in a folder of the same name."""

_lock = threading.Lock()


def _unlock_in_child() -> None:
    """A forked child must not find the lock held by a thread that it does not have."""
    global _lock  # noqa: PLW0603  # as threading does with its own
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_in_child)


@dataclass(slots=True)
class Launcher:
    """Starts the processes of one pool, all in the same way.

    Parameters
    ----------
    context : BaseContext
        Whose processes are started.
    needs_main : bool
        Whether a process that starts afresh must import the main script.
    needs_torch : bool
        Whether it will import torch.
    """

    context: BaseContext
    needs_main: bool
    needs_torch: bool = False

    @classmethod
    def choose(cls, context: BaseContext | None, job: Any) -> Launcher:
        """The launcher for ``job`` in ``context``; None: chosen as the module says.

        Raises
        ------
        WorkerError
            In a worker process: it may have no workers of its own.
        """
        process = multiprocessing.current_process()
        if process.daemon:
            raise WorkerError(
                f"{process.name} is a daemonic process, such as a loader's worker, which may not start processes: give "
                "the loader in it num_workers=0 or workers='threads'"
            )
        if context is None:
            context = multiprocessing.get_context()
            if _method(context) == "fork" and (names := _other_threads()):
                context = _instead_of_fork(context, job, names)
        if _method(context) == "fork":
            _import_once()
            return cls(context, needs_main=True)
        return cls(context, needs_main=_Probe.of(job).names_main, needs_torch=_needs_torch(job))

    @property
    def forks(self) -> bool:
        """Whether a process begins as a copy of this one."""
        return _method(self.context) == "fork"

    def start(self, target: Callable[..., None], args: tuple[Any, ...], name: str) -> Any:
        """A process that runs ``target(*args)``; daemonic, started."""
        process = self.context.Process(target=target, args=args, name=name, daemon=True)  # type: ignore[attr-defined]  # every context has it
        try:
            with _lock:
                self._start(process, args)
        except Exception as error:
            if not self.forks and not isinstance(error, OSError):
                _tell_what_cannot_be_sent(error, args)
            raise
        return process

    def _start(self, process: Any, args: tuple[Any, ...]) -> None:
        if self.needs_main:
            process.start()
            return
        if _method(self.context) == "forkserver":
            _preload(args, with_torch=self.needs_torch)
        with _without_main():
            process.start()


def refusal(error: OSError) -> str:
    """Which limit an error at the start of a process speaks of."""
    limits = {
        errno.EAGAIN: "the limit on processes is reached; raise it by `ulimit -u`, or the container's limit on pids",
        errno.ENOMEM: "there is not enough memory for another process",
        errno.EMFILE: "this process has too many open files; raise the limit by `ulimit -n`",
        errno.ENFILE: "the system has too many open files",
        errno.EFBIG: "the limit on the size of files is too small; raise it by `ulimit -f`",
    }
    return f"a worker process cannot be started: {limits.get(error.errno or 0, str(error))}"


def _tell_what_cannot_be_sent(error: Exception, args: tuple[Any, ...]) -> None:
    """Note on an error of pickling which attribute it is about."""
    for arg in args:
        for name, part in getattr(arg, "__dict__", {}).items():
            if name[:1] != "_" and _Probe.of(part).failed:
                error.add_note(
                    f"{_culprit(part, name)} cannot be pickled, as workers need it that are not forked: make it of "
                    "module-level classes and functions, or give multiprocessing_context='fork'"
                )


def _culprit(value: Any, name: str, depth: int = 0) -> str:
    """The innermost part of ``value`` that cannot be pickled, as one would write it."""
    if hasattr(value, "__qualname__"):
        return name  # a function or a class: what is in it is not what is pickled
    parts = {f"{name}.{key}": part for key, part in getattr(value, "__dict__", {}).items()}
    if isinstance(value, dict):
        parts |= {f"{name}[{key!r}]": part for key, part in value.items()}
    elif isinstance(value, list | tuple):
        parts |= {f"{name}[{i}]": part for i, part in enumerate(value)}
    for inner, part in parts.items():
        if depth < _DEEP and _Probe.of(part).failed:
            return _culprit(part, inner, depth + 1)
    return name


def _import_once() -> None:
    """Import here what each forked worker would import by itself, where torch is there."""
    if "torch" in sys.modules:
        importlib.import_module("torch.multiprocessing")
        importlib.import_module("penstock.torch.transport")


def _needs_torch(job: Any) -> bool:
    """Whether the job's dataset is one of torch's classes: its module imports torch."""
    kinds = type(getattr(job, "dataset", None)).__mro__
    return any(kind.__module__.partition(".")[0] in {"torch", "torchvision"} for kind in kinds)


def _preload(args: tuple[Any, ...], *, with_torch: bool) -> None:
    """Have a fork server that is yet to be started import what workers need once, for all; no server is told twice."""
    server: Any = multiprocessing.forkserver._forkserver  # noqa: SLF001  # whether it is there
    if server._forkserver_pid is None and server._preload_modules == ["__main__"]:  # noqa: SLF001  # its default
        ours = {type(arg).__module__ for arg in args} | {__name__}
        modules = sorted(name for name in ours if name.startswith("penstock."))
        server.set_forkserver_preload([*modules, "torch.utils.data"] if with_torch else modules)


def _method(context: BaseContext) -> str:
    return str(context.get_start_method())


def _instead_of_fork(fork: BaseContext, job: Any, names: list[str]) -> BaseContext:
    probe = _Probe.of(job, limit=_LARGE)
    reason = (
        "the dataset cannot be pickled"
        if probe.failed
        else "the dataset is large"
        if probe.nbytes > _LARGE
        else "the main script has no `if __name__ == '__main__':`"
        if probe.names_main and not _main_is_guarded()
        else ""
    )
    if reason:
        _logger.info(
            "threads are running (%s) and workers are forked all the same, since %s: a lock that a thread holds now "
            "stays locked in the workers", ", ".join(names), reason,
        )  # fmt: skip
        return fork
    _logger.info(
        "threads are running (%s): workers are started by forkserver, not by fork, so that no lock held now is "
        "copied; give multiprocessing_context to choose", ", ".join(names),
    )  # fmt: skip
    return multiprocessing.get_context("forkserver")


def _other_threads() -> list[str]:
    """Names of threads that may hold a lock of the program's: not this one, nor service threads."""
    frames = current_frames()
    frames.pop(threading.get_ident(), None)  # this very frame: it would hold itself, and all its callers' variables
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return [names.get(ident, f"thread {ident}") for ident, frame in frames.items() if not _is_in_service_code(frame)]


def _is_in_service_code(frame: FrameType | None) -> bool:
    """Whether a thread's whole stack is service code.

    A thread that waits inside other code (``with lock: event.wait()``) may hold a lock of that code's.
    """
    while frame is not None:
        if not _is_service(frame.f_code.co_filename):
            return False
        frame = frame.f_back
    return True


@functools.cache
def _is_service(file: str) -> bool:
    """Whether a file belongs to the modules in which service threads wait for work."""
    if file.startswith(_PACKAGE):
        return True
    installed = _INSTALLED.match(file)
    if installed is not None:
        return file.startswith(_INSTALLED_SERVICES, installed.end())
    return file.startswith(_STANDARD) and file.startswith(_STANDARD_SERVICES, len(_STANDARD))


def _main_is_guarded() -> bool:
    """Whether the main script can be imported without starting again; modules run by ``-m`` are looked at likewise."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    if path is None:
        return False  # a notebook, -c: nothing that another process could import
    try:
        with open(path, "rb") as file:  # noqa: PTH123  # a path of the interpreter's, str or None
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return False
    tests = [node.test for node in tree.body if isinstance(node, ast.If)]
    return any(isinstance(part, ast.Name) and part.id == "__name__" for test in tests for part in ast.walk(test))


class _TooLarge(Exception):  # noqa: N818  # a signal to ourselves
    pass


class _Probe:
    """Pickles a job into nothing, to learn whether it can be, how large it is, and whether it names the main script."""

    def __init__(self, limit: int | None) -> None:
        self.names_main = self.failed = False
        self.nbytes = 0
        self._limit = limit

    @classmethod
    def of(cls, job: Any, limit: int | None = None) -> _Probe:
        probe = cls(limit)
        try:
            _Weigher(probe, pickle.HIGHEST_PROTOCOL, buffer_callback=probe.count).dump(job)
        except _TooLarge:
            probe.names_main = True
        except Exception:  # noqa: BLE001  # whatever a user's object raises: it cannot be pickled, or not by this pickler
            probe.failed = probe.names_main = True
        return probe

    def write(self, data: Any) -> int:
        content = bytes(data)
        self.names_main = self.names_main or b"__main__" in content or b"__mp_main__" in content
        self._add(len(content))
        return len(content)

    def count(self, buffer: pickle.PickleBuffer) -> bool:
        self._add(buffer.raw().nbytes)
        return False

    def _add(self, nbytes: int) -> None:
        self.nbytes += nbytes
        if self._limit is not None and self.nbytes > self._limit:
            raise _TooLarge


class _Weigher(pickle.Pickler):
    """A tensor is weighed, not copied: torch moves it into shared memory when it is sent."""

    def __init__(self, probe: _Probe, *args: Any, **kwargs: Any) -> None:
        super().__init__(probe, *args, **kwargs)
        self._probe = probe

    def persistent_id(self, value: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(value, torch.Tensor):
            return None
        self._probe._add(value.nbytes)  # noqa: SLF001  # its other half
        return id(value)


@contextmanager
def _without_main() -> Iterator[None]:
    """Processes started inside do not import the main script."""
    prepare: Any = multiprocessing.spawn.get_preparation_data

    def prepared(name: str) -> dict[str, Any]:
        return {
            key: value
            for key, value in prepare(name).items()
            if key not in {"init_main_from_name", "init_main_from_path", "main_path"}
        }

    multiprocessing.spawn.get_preparation_data = prepared
    try:
        yield
    finally:
        multiprocessing.spawn.get_preparation_data = prepare
