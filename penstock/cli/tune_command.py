"""The command ``tune``: finds the number of workers and the prefetch factor for a training script."""

from __future__ import annotations

import os
import re
import sys
from typing import Annotated, Final

import typer

from penstock.cli.app import app
from penstock.cli.doctor_command import ModuleOption, ScriptArgument, ScriptCommand
from penstock.errors import ArgumentError

__all__ = ["tune"]

_UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


@app.command(cls=ScriptCommand, context_settings={"allow_interspersed_args": False})
def tune(
    script: ScriptArgument = None,
    *,
    module: ModuleOption = None,
    steps: Annotated[int, typer.Option(min=8, help="Steps to watch, to know how long one takes.")] = 40,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Most memory for workers and batches ahead, such as 4GB.")
    ] = None,
    budget: Annotated[float, typer.Option(min=1, help="Seconds for measuring settings.")] = 30.0,
) -> None:
    """Find the fewest workers that feed TRAIN.py as well as any number, and print the line of code.

    The script runs for some steps and is ended as by `sys.exit`; then its loader alone is measured in child processes,
    with few settings that a model chooses and the usual rules of thumb beside them.
    """
    target = [*([] if module is None else ["-m", module]), *(script or [])]
    if not target:
        raise ArgumentError("tune needs a script or -m MODULE")
    from penstock.doctor.trials.run_options import RunOptions

    options = RunOptions(steps=steps, budget_s=budget, tune=True, memory_bytes=_parse_size(memory))
    command = [sys.executable, "-m", "penstock.doctor.run", options.to_text(), *target]
    sys.stdout.flush()
    sys.stderr.flush()
    # This process becomes the script's: signals and the exit code are its own.
    os.execv(command[0], command)  # noqa: S606  # the script that the user wants to run


def _parse_size(text: str | None) -> int | None:
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)B?\s*", text.upper())
    if match is None:
        raise ArgumentError(f"--memory must be a size such as 500MB or 4GB, got {text!r}")
    return int(float(match[1]) * _UNITS[match[2]])
