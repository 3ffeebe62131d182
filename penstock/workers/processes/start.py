"""How worker processes are started: the start method, and what they import.

The start method is the one requested, else Python's default. If that is fork while other threads run (one of them may
hold a lock, which would stay locked in the child), or after a library was used that does not support fork, forkserver
is used instead, unless the job cannot be pickled, is large, or is defined in a script that would run again. The log
says which method is used and why.

A process that is not forked imports what its job refers to. It imports the main script only if the job refers to it: a
script that imports torch does not make the workers of a NumPy dataset import it. It has the environment variables that
the program has when it is started, credentials of object storage among them; those of the fork server may be older.
"""

from __future__ import annotations

import ast
import errno
import functools
import io
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
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, Final

from penstock.errors import WorkerError
from penstock.frameworks import FRAMEWORKS, array_types, imported_frameworks
from penstock.system import libraries_without_fork
from penstock.workers.stack_frames import current_frames, walk_stack

__all__ = ["Environment", "Launcher", "describe_start_error"]

_logger = logging.getLogger(__name__)

_LARGE: Final = 64 << 20
"""Bytes of a pickled job above which it is not copied to each worker; the risk of a fork is preferred."""

_DEEP: Final = 20
"""Depth of nested attributes in which one that cannot be pickled is searched for."""

_STANDARD_SERVICES: Final = (
    "asyncio/", "concurrent/futures/", "logging/handlers.py", "multiprocessing/", "queue.py", "selectors.py",
    "socket.py", "socketserver.py", "threading.py",
)  # fmt: skip
"""Modules of the standard library that run service threads."""

_INSTALLED_SERVICES: Final = (
    "IPython/", "debugpy/", "decorator.py", "execnet/", "ipykernel/", "pymongo/", "tensorboard/", "tornado/", "tqdm/",
    "traitlets/", "wandb/", "zmq/",
)  # fmt: skip
"""Installed packages that run service threads: notebooks, progress bars, experiment loggers, pytest-xdist, and pymongo,
which replaces its locks in a forked child."""

_STANDARD: Final = f"{os.path.dirname(os.__file__)}/"  # noqa: PTH120  # compared as text, once for each file
_INSTALLED: Final = re.compile(r".*/(?:site|dist)-packages/")

_PACKAGE: Final = str(Path(__file__).parents[2]) + os.sep
"""The folder of this package; a user's program may be in a folder of the same name."""

_lock = threading.Lock()


def _renew_lock_in_child() -> None:
    """Make another lock in a forked child, which does not have the thread that may hold this one."""
    global _lock  # noqa: PLW0603  # one for the process
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock_in_child)


class Environment:
    """The environment variables of the process that pickles it. Unpickling sets them, and returns None."""

    def __reduce__(self) -> tuple[object, ...]:
        return _set_environment, (dict(os.environ),)


def _set_environment(variables: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)


def _run(_: Environment | None, target: Callable[..., None], *args: object) -> None:
    target(*args)


@dataclass(slots=True)
class Launcher:
    """Starts the processes of one backend, all by the same method."""

    context: BaseContext  # of ``multiprocessing``
    needs_main: bool  # whether a process that is not forked must import the main script
    preload: tuple[str, ...] = ()  # modules besides penstock's that it will import

    @classmethod
    def choose(cls, context: BaseContext | None, job: object) -> Launcher:
        """Return the launcher for ``job`` in ``context``; None: chosen as described above.

        Raises
        ------
        WorkerError
            In a worker process, which cannot have workers of its own; in a notebook, if processes that are not forked
            would have to import what is defined there.
        """
        process = multiprocessing.current_process()
        if process.daemon:
            raise WorkerError(
                f"{process.name} is a daemonic process, such as a loader's worker, which cannot start processes; set "
                "num_workers=0 or workers='threads' for the loader in it"
            )
        if context is None:
            context = multiprocessing.get_context()
            if _method(context) == "fork" and (hazard := _find_hazard()):
                context = _choose_with_hazard(context, job, *hazard)
        if _method(context) == "fork":
            for framework in imported_frameworks():
                framework.import_for_workers()  # once, not in each worker
            return cls(context, needs_main=True)
        probe = _PickleProbe.of(job)
        if probe.names_main and not probe.failed and not hasattr(sys.modules.get("__main__"), "__file__"):
            _refuse_classes_of_notebooks(job, _method(context))
        preload = _modules_of_frameworks(job) + (_modules_of_main() if probe.names_main else ())
        return cls(context, needs_main=probe.names_main, preload=preload)

    @property
    def forks(self) -> bool:
        """Whether processes are forked."""
        return _method(self.context) == "fork"

    def start(self, target: Callable[..., None], args: tuple[object, ...], name: str) -> BaseProcess:
        """Start a daemonic process that runs ``target(*args)``."""
        process: BaseProcess = self.context.Process(  # type: ignore[attr-defined]  # every context has it
            target=_run, args=(Environment(), target, *args), name=name, daemon=True
        )
        try:
            with _lock:
                self._start(process, args)
        except Exception as error:
            if not self.forks and not isinstance(error, OSError):
                _note_unpicklable_attribute(error, args)
            raise
        return process

    def _start(self, process: BaseProcess, args: tuple[object, ...]) -> None:
        if _method(self.context) == "forkserver":
            _preload(args, self.preload)
        if self.needs_main:
            process.start()
            return
        with _without_main():
            process.start()


def describe_start_error(error: OSError) -> str:
    """Text for an error at the start of a process, with the limit that is reached."""
    limits = {
        errno.EAGAIN: "the limit on processes is reached; raise it by `ulimit -u`, or the container's limit on pids",
        errno.ENOMEM: "there is not enough memory for another process",
        errno.EMFILE: "this process has too many open files; raise the limit by `ulimit -n`",
        errno.ENFILE: "the system has too many open files",
        errno.EFBIG: "the limit on the size of files is too small; raise it by `ulimit -f`",
    }
    return f"a worker process cannot be started: {limits.get(error.errno or 0, str(error))}"


def _note_unpicklable_attribute(error: Exception, args: tuple[object, ...]) -> None:
    """Add a note to an error of pickling: which attribute cannot be pickled."""
    for arg in args:
        for name, part in getattr(arg, "__dict__", {}).items():
            if name[:1] != "_" and _PickleProbe.of(part).failed:
                error.add_note(
                    f"{_unpicklable_part(part, name)} cannot be pickled, as workers that are not forked need; use "
                    "module-level classes and functions for it, or set multiprocessing_context='fork'"
                )
                error.add_note("More: penstock explain not-picklable")


def _unpicklable_part(value: object, name: str, depth: int = 0) -> str:
    """Return the innermost part of ``value`` that cannot be pickled, as an expression."""
    if hasattr(value, "__qualname__"):
        return name  # a function or a class: what is in it is not what is pickled
    parts = {f"{name}.{key}": part for key, part in getattr(value, "__dict__", {}).items()}
    if isinstance(value, dict):
        parts |= {f"{name}[{key!r}]": part for key, part in value.items()}
    elif isinstance(value, list | tuple):
        parts |= {f"{name}[{i}]": part for i, part in enumerate(value)}
    for inner, part in parts.items():
        if depth < _DEEP and _PickleProbe.of(part).failed:
            return _unpicklable_part(part, inner, depth + 1)
    return name


def _modules_of_frameworks(job: object) -> tuple[str, ...]:
    """Return modules to preload for the frameworks that a worker imports because of the class of the job's dataset."""
    packages = {kind.__module__.partition(".")[0] for kind in type(getattr(job, "dataset", None)).__mro__}
    needed = (framework for framework in FRAMEWORKS.values() if not packages.isdisjoint(framework.packages))
    return tuple(name for framework in needed for name in framework.preload)


def _modules_of_main() -> tuple[str, ...]:
    """List modules to preload for a main script that workers import: frameworks, what it imports of them and of us.

    Its other imports are its own, or may not be fit for a fork.
    """
    nodes = [] if (tree := _parse_main()) is None else tree.body
    imported = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    imported += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    known = {"penstock", *(package for framework in FRAMEWORKS.values() for package in framework.packages)}
    frameworks = [name for framework in imported_frameworks() for name in framework.preload]
    return (*frameworks, *(name for name in imported if name.partition(".")[0] in known))


def _preload(args: tuple[object, ...], more: tuple[str, ...]) -> None:
    """Have the fork server, unless it is started or configured, import once what workers need."""
    server: Any = multiprocessing.forkserver._forkserver  # noqa: SLF001  # there is no public way
    known = server._preload_modules  # noqa: SLF001  # as above
    if server._forkserver_pid is None and known == ["__main__"]:  # noqa: SLF001  # its default
        ours = {type(arg).__module__ for arg in args} | {__name__}
        modules = sorted(name for name in ours if name.startswith("penstock."))
        server.set_forkserver_preload([*modules, *more])
    elif __name__ in known and (missing := [name for name in more if name not in known]):
        known += missing  # said once
        _logger.warning(
            "each worker process imports %s anew: the fork server was started for a dataset that does not need it; set "
            "persistent_workers=True, or make the loader that needs it the first one with worker processes",
            ", ".join(missing),
        )


def _method(context: BaseContext) -> str:
    return str(context.get_start_method())


def _find_hazard() -> tuple[str, str] | None:
    """Why a fork is dangerous now, and what it may do to the workers; None where it is not."""
    if libraries := libraries_without_fork():
        used = " and ".join(libraries)
        return f"{used} was used, which does not support fork", f"{used} cannot be used in the workers"
    if names := _other_threads():
        return f"threads are running ({', '.join(names)})", "a lock that a thread holds now stays locked in the workers"
    return None


def _choose_with_hazard(fork: BaseContext, job: object, hazard: str, effect: str) -> BaseContext:
    probe = _PickleProbe.of(job, limit=_LARGE)
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
        _logger.info("%s, but workers are forked because %s: %s", hazard, reason, effect)
        return fork
    _logger.info(
        "%s: workers are started by forkserver, not by fork (%s); set multiprocessing_context to choose", hazard, effect
    )
    return multiprocessing.get_context("forkserver")


def _other_threads() -> list[str]:
    """Names of threads that may hold a lock of the program: all but this one and service threads."""
    frames = current_frames()
    frames.pop(threading.get_ident(), None)  # or this frame would reference itself, and its callers' variables
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return [names.get(ident, f"thread {ident}") for ident, frame in frames.items() if not _is_in_service_code(frame)]


def _is_in_service_code(frame: FrameType) -> bool:
    """Return whether all frames of a thread's stack are service code.

    A thread that waits inside other code (``with lock: event.wait()``) may hold a lock of that code.
    """
    return all(_is_service(place.f_code.co_filename) for place in walk_stack(frame))


@functools.cache
def _is_service(file: str) -> bool:
    """Return whether a file belongs to the modules in which service threads wait for work."""
    if file.startswith(_PACKAGE):
        return True
    installed = _INSTALLED.match(file)
    if installed is not None:
        return file.startswith(_INSTALLED_SERVICES, installed.end())
    return file.startswith(_STANDARD) and file.startswith(_STANDARD_SERVICES, len(_STANDARD))


def _parse_main() -> ast.Module | None:
    """Return the main script, or a module run by ``-m``.

    It is None for a notebook, or -c: another process cannot import it.
    """
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    if path is None:
        return None
    try:
        with open(path, "rb") as file:  # noqa: PTH123  # the interpreter's path, a str
            return ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return None


def _main_is_guarded() -> bool:
    """Return whether the main script can be imported without running the program again."""
    tree = _parse_main()
    tests = [] if tree is None else [node.test for node in tree.body if isinstance(node, ast.If)]
    return any(isinstance(part, ast.Name) and part.id == "__name__" for test in tests for part in ast.walk(test))


class _TooLarge(Exception):  # noqa: N818  # ends the pickling
    pass


def _refuse_classes_of_notebooks(job: object, method: str) -> None:
    """Raise an error if the job refers to classes or functions of a notebook, of ``python -c`` or of standard input."""
    pickler = _MainPickler()
    pickler.dump(job)
    if pickler.names:
        raise WorkerError(
            f"{', '.join(dict.fromkeys(pickler.names))} is defined in a notebook or an interpreter, and workers that "
            f"are started by {method!r} import it from a file; move it to a module (.py) and import it, or use the "
            "start method 'fork', or workers='threads'"
        )


class _MainPickler(pickle.Pickler):
    """Finds the classes and functions of ``__main__`` that a pickle refers to."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), pickle.HIGHEST_PROTOCOL, buffer_callback=lambda _: False)
        self.names: list[str] = []

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, type | FunctionType) and value.__module__ == "__main__":
            self.names.append(value.__qualname__)
        return NotImplemented


class _PickleProbe:
    """Pickles a job and drops the result: whether that is possible, its size, whether it names the main script."""

    def __init__(self, limit: int | None) -> None:
        self.names_main = self.failed = False
        self.nbytes = 0
        self._limit = limit

    @classmethod
    def of(cls, job: object, limit: int | None = None) -> _PickleProbe:
        probe = cls(limit)
        try:
            _ProbePickler(probe).dump(job)
        except _TooLarge:
            probe.names_main = True
        except Exception:  # noqa: BLE001  # a user's object may raise anything
            probe.failed = probe.names_main = True
        return probe

    def write(self, data: bytes | bytearray | memoryview) -> int:
        content = bytes(data)
        self.names_main = self.names_main or b"__main__" in content or b"__mp_main__" in content
        self.add(len(content))
        return len(content)

    def count(self, buffer: pickle.PickleBuffer) -> bool:
        self.add(buffer.raw().nbytes)
        return False

    def add(self, nbytes: int) -> None:
        """Add to the size; ends the pickling above the limit."""
        self.nbytes += nbytes
        if self._limit is not None and self.nbytes > self._limit:
            raise _TooLarge


class _ProbePickler(pickle.Pickler):
    """Counts the arrays of frameworks without copying them: these move them to shared memory when they are sent."""

    def __init__(self, probe: _PickleProbe) -> None:
        super().__init__(probe, pickle.HIGHEST_PROTOCOL, buffer_callback=probe.count)
        self._probe, self._array_types = probe, array_types()

    def persistent_id(self, value: object) -> int | None:
        if not isinstance(value, self._array_types):
            return None
        self._probe.add(getattr(value, "nbytes", 0))
        return id(value)


@contextmanager
def _without_main() -> Iterator[None]:
    """Processes that are started while the body runs do not import the main script."""
    prepare: Any = multiprocessing.spawn.get_preparation_data

    def prepared(name: str) -> dict[str, object]:
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
