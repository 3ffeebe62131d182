"""The scripts of `examples/`, as modules and as programs."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

__all__ = ["EXAMPLES", "fork_example", "import_example", "run_example"]

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"


def import_example(name: str) -> Any:
    """Import a script, which finds what lies beside it as when it is run."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(EXAMPLES))


def run_example(name: str, *options: str) -> str:
    """Run a script to its end; what it printed."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def fork_example(name: str, output: Path, *options: str, folder: Path | None = None, with_errors: bool = True) -> str:
    """The same in a fork of this process, which need not import torch again; it prints into the file ``output``.

    It runs in ``folder``, if one is given. What it writes to standard error is in its output, or in a file beside it.
    """
    errors = output if with_errors else output.with_suffix(".errors")
    arguments = (name, output, errors, options, folder)
    process = multiprocessing.get_context("fork").Process(target=_run_as_main, args=arguments)
    process.start()
    process.join()
    printed = output.read_text()
    assert process.exitcode == 0, printed + errors.read_text()
    return printed


def _run_as_main(name: str, output: Path, errors: Path, options: tuple[str, ...], folder: Path | None) -> None:
    if folder is not None:
        os.chdir(folder)
    with errors.open("a") as file:
        os.dup2(file.fileno(), 2)
    with output.open("a") as file:
        os.dup2(file.fileno(), 1)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115  # not pytest's
    sys.argv = [str(EXAMPLES / f"{name}.py"), *options]
    sys.path.insert(0, str(EXAMPLES))
    runpy.run_path(sys.argv[0], run_name="__main__")
