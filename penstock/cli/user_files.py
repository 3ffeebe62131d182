"""Objects from a Python file of the user: the value of ``--augment FILE.py:NAME``, and errors of the code in it.

The file is run as a module, with its folder on the path of imports, as ``python FILE.py`` has it.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.errors import ArgumentError, PenstockError, SampleError

__all__ = ["describe_error", "load_object", "make_object", "name_user_errors"]


def load_object(value: str, option: str) -> Any:
    """Return the object that ``FILE.py:NAME`` names.

    Raises ArgumentError if there is no such file or name, or the file raises an error while it runs.
    """
    path, separator, name = value.rpartition(":")
    if not separator or not path.endswith(".py") or not name.isidentifier():
        raise ArgumentError(f"{option} must be FILE.py:NAME, such as pipeline.py:augment, got {value!r}")
    file = Path(path)
    if not file.is_file():
        raise ArgumentError(f"{option}: there is no file {path!r}")
    module = _run(file, option)
    try:
        return getattr(module, name)
    except AttributeError:
        names = [each for each in vars(module) if not each.startswith("_")]
        raise ArgumentError(
            f"{option}: {path} must define {name!r}, but has only: {', '.join(names) or 'no names'}"
        ) from None


def make_object(value: str, option: str, fits: Callable[[object], bool], wanted: str) -> Any:
    """The object that ``FILE.py:NAME`` names, or what it returns, if it is a function and the object does not fit.

    Raises ArgumentError if neither fits, or the function raises an error.
    """
    found = load_object(value, option)
    if not fits(found) and callable(found) and not isinstance(found, type):
        try:
            found = found()
        except PenstockError:
            raise
        except Exception as error:
            raise ArgumentError(f"{value} failed: {describe_error(error, Path(value.rpartition(':')[0]))}") from error
    if not fits(found):
        raise ArgumentError(
            f"{value} must be {wanted}, or a function without arguments that returns one, got {type(found).__name__}"
        )
    return found


def _run(file: Path, option: str) -> ModuleType:
    called = f"_penstock_user_{re.sub(r'[^0-9a-zA-Z_]', '_', file.stem)}"
    spec = importlib.util.spec_from_file_location(called, file)
    assert spec is not None, "for a name that ends in .py"
    assert spec.loader is not None, "as it is a file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[called] = module  # dataclasses and pickle look their module up
    sys.path.insert(0, str(file.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ArgumentError(f"{option}: {file} cannot be run: {describe_error(error, file)}") from error
    return module


@contextmanager
def name_user_errors(value: str) -> Iterator[None]:
    """Raise errors of the code that ``FILE.py:NAME`` names as :class:`SampleError`, with file and line.

    Those of penstock, and those that no sample has raised, are raised as they are.
    """
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:
        from penstock.datasets.error_location import location_of

        if not (where := location_of(error)):
            raise
        file = Path(value.rpartition(":")[0])
        raise SampleError(f"{value} failed: {describe_error(error, file)}", **where) from error


def describe_error(error: BaseException, file: Path) -> str:
    """Return the error in one line: type, text, and the innermost line of the file, or else of any."""
    from penstock.datasets.user_code import describe_error as describe

    return describe(error, lambda name: Path(name).resolve() == file.resolve())
