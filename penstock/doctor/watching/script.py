"""Runs a script as ``python SCRIPT``, ``python -m MODULE`` or ``python FOLDER`` would, and says how it ended.

``sys.argv``, ``sys.path[0]``, ``__file__``, ``__spec__`` and the module ``__main__`` are as without the doctor, so
that worker processes that are spawned find the script again. Standard library only: nothing is imported that the script
would not find imported.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import io
import linecache
import os
import pkgutil
import signal
import sys
import traceback
import types
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

__all__ = ["Ending", "EnoughStepsError", "ScriptNotFoundError", "run_script"]

_INTERRUPTED: Final = 130


class EnoughStepsError(SystemExit):
    """Raised in a script by the loader's iterator when enough steps were seen; ends it as ``sys.exit(0)`` does."""

    def __init__(self) -> None:
        super().__init__(0)


class ScriptNotFoundError(Exception):
    """There is no such script or module."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a script ended."""

    kind: str  # {"steps", "finished", "exit", "interrupted", "error"}: what ended it
    code: int  # the script's exit code
    text: str  # as in :class:`~penstock.doctor.watching.recording.Recording`

    def leave(self, code: int) -> NoReturn:
        """End this process: as Python does after an interrupt, else with ``code``."""
        if self.kind == "interrupted":
            sys.excepthook = _print_nothing
            signal.signal(signal.SIGINT, signal.default_int_handler)
            raise KeyboardInterrupt
        sys.exit(code)


def _print_nothing(*_: object) -> None:
    """The traceback is printed already."""


def run_script(target: Sequence[str], is_over: Callable[[], bool], sources: Mapping[str, str] | None = None) -> Ending:
    """Run a script to its end, whatever that is; tracebacks and messages are printed as Python prints them.

    ``target``: a path and its arguments, or "-m", a module and its arguments. ``is_over``: whether enough steps were
    seen: then an interrupt is how another thread ends the script. ``sources``: what is compiled in the place of files,
    by their names. Raises ScriptNotFoundError if there is no such script.
    """
    sources = sources or {}
    if sources:
        _replace_sources(sources)
    try:
        main, code = _load_module(target) if target[0] == "-m" else _load_path(target, sources)
        sys.modules["__main__"] = main
        exec(code, main.__dict__)  # noqa: S102  # the script that the user wants to run
    except SystemExit as ended:
        return _end_by_exit(ended)
    except KeyboardInterrupt as error:
        if is_over():
            return Ending("steps", 0, "steps")
        _print_error(error)
        return Ending("interrupted", _INTERRUPTED, "interrupted")
    except ScriptNotFoundError:
        raise
    except BaseException as error:  # noqa: BLE001  # whatever the script raises, it is reported as its end
        _print_error(error)
        return Ending("error", 1, f"error: {_describe_error(error)}")
    return Ending("finished", 0, "finished")


def _end_by_exit(ended: SystemExit) -> Ending:
    if isinstance(ended, EnoughStepsError):
        return Ending("steps", 0, "steps")
    code = ended.code
    if code is None or code == 0:
        return Ending("finished", 0, "finished")
    if not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        return Ending("exit", 1, "exit 1")
    return Ending("exit", code, f"exit {code}")


def _describe_error(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip()


def _print_error(error: BaseException) -> None:
    """Print a traceback by the script's own ``sys.excepthook``, from the script's first line on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.stdout.flush()
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def _new_main(file: str, spec: importlib.machinery.ModuleSpec | None, loader: Any) -> types.ModuleType:
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=file,
        __builtins__=builtins,
        __spec__=spec,
        __loader__=loader if spec is None else spec.loader,
        __package__=None if spec is None else spec.parent,
        __cached__=None if spec is None else spec.cached,
        __annotations__={},
    )
    return main


def _replace_sources(sources: Mapping[str, str]) -> None:
    """Have modules compiled from other sources than their files, in this process and those that it forks.

    Tracebacks and ``inspect`` have the lines of these sources, too.
    """
    for name, source in sources.items():
        linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name  # None: it is never stale
    loader = importlib.machinery.SourceFileLoader
    original = loader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> types.CodeType | None:
        source = sources.get(self.path)
        if source is None:
            return original(self, fullname)
        return compile(source, self.path, "exec", dont_inherit=True)

    setattr(loader, "get_code", get_code)  # noqa: B010  # its type is inherited; whichever finder has found the module


def _load_path(target: Sequence[str], sources: Mapping[str, str]) -> tuple[types.ModuleType, types.CodeType]:
    given = target[0]
    path = Path(given)
    if path.is_dir() or (path.is_file() and zipfile.is_zipfile(path)):
        sys.path[0] = os.path.join(os.getcwd(), given)  # noqa: PTH109, PTH118  # as Python sets it
        sys.argv[:] = list(target)
        return _load_spec("__main__", given)
    if not path.is_file():
        raise ScriptNotFoundError(f"can't open file {given!r}: no such file")
    sys.path[0] = os.path.dirname(os.path.realpath(given))  # noqa: PTH120  # as Python sets it
    sys.argv[:] = list(target)
    file = os.path.join(os.getcwd(), given)  # noqa: PTH109, PTH118  # as Python sets it: nothing is resolved
    with io.open_code(file) as opened:
        source: str | bytes = sources.get(file) or opened.read()
    loader = importlib.machinery.SourceFileLoader("__main__", file)
    return _new_main(file, None, loader), compile(source, file, "exec", dont_inherit=True)


def _load_module(target: Sequence[str]) -> tuple[types.ModuleType, types.CodeType]:
    if len(target) < 2:  # a name must follow
        raise ScriptNotFoundError("-m needs the name of a module")
    name = target[1]
    sys.path[0] = str(Path.cwd())
    sys.argv[:] = ["-m", *target[2:]]  # as Python sets it while the module is searched for
    main, code = _load_spec(name, name)
    sys.argv[0] = str(main.__file__)
    return main, code


def _load_spec(name: str, given: str) -> tuple[types.ModuleType, types.CodeType]:
    try:
        spec = _find_spec(name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ScriptNotFoundError(f"{given}: {_describe_error(error)}") from error
    if spec is not None and spec.submodule_search_locations is not None:
        spec = _find_spec(f"{name}.__main__")
    if spec is None or spec.loader is None:
        raise ScriptNotFoundError(f"there is no module named {given}")
    loader: Any = spec.loader
    code = loader.get_code(spec.name) if hasattr(loader, "get_code") else None
    if code is None:
        raise ScriptNotFoundError(f"no code for module {spec.name}")
    return _new_main(str(spec.origin or given), spec, loader), code


def _find_spec(name: str) -> importlib.machinery.ModuleSpec | None:
    if name == "__main__":  # of a folder or an archive: the importer of this path only, since __main__ is imported
        importer: Any = pkgutil.get_importer(sys.path[0])
        found: importlib.machinery.ModuleSpec | None = None if importer is None else importer.find_spec("__main__")
        return found
    return importlib.util.find_spec(name)
