"""The commands that run a training script under watch: ``doctor`` says what is slow, ``tune`` finds its workers."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from penstock.cli.app import FAILED, app
from penstock.cli.printing import print_line
from penstock.errors import ArgumentError
from penstock.paths import parse_size
from penstock.registry import require

if TYPE_CHECKING:
    from penstock.doctor.trials.run_options import RunOptions

__all__ = ["doctor", "tune"]


class ScriptCommand(TyperCommand):
    """A command whose options end at the script, or behind ``-m MODULE``: what follows is the script's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Mark the end of the options."""
        with_value = {
            name: getattr(option, "nargs", 1)
            for option in self.params
            if not getattr(option, "is_flag", False)
            for name in option.opts
            if name.startswith("-")
        }
        at = 0
        while at < len(args) and args[at].startswith("-") and args[at] != "--":
            if args[at] == "-m":
                return super().parse_args(ctx, [*args[: at + 2], "--", *args[at + 2 :]])
            at += 1 + with_value.get(args[at], 0)
        if at < len(args) and args[at] != "--":
            args = [*args[:at], "--", *args[at:]]
        return super().parse_args(ctx, args)


ScriptArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="TRAIN.py [ARGS]...", help="The script and its own arguments.", show_default=False),
]
ModuleOption = Annotated[
    str | None, typer.Option("-m", metavar="MODULE", help="Run a module instead, as `python -m` does.")
]


@app.command(cls=ScriptCommand, context_settings={"allow_interspersed_args": False})
def doctor(
    script: ScriptArgument = None,
    *,
    module: ModuleOption = None,
    steps: Annotated[int, typer.Option(min=8, help="Steps to watch, after a warm-up.")] = 100,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds after which fewer steps are enough.")] = 60.0,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the result as JSON.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with the result.")] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all events for Perfetto or chrome://tracing.")
    ] = None,
    no_trials: Annotated[bool, typer.Option("--no-trials", help="Only predict what a change brings.")] = False,
    budget: Annotated[float, typer.Option(min=0, help="Seconds for trials of changes.")] = 60.0,
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Run the script again with the advice, to measure the training itself.")
    ] = False,
    fail_if_waiting: Annotated[
        float | None,
        typer.Option(metavar="PART", min=0, max=1, help="Exit with 1 if a greater part of the time is waiting."),
    ] = None,
    github: Annotated[bool, typer.Option("--github", help="Also print annotations for GitHub Actions.")] = False,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="A.json B.json", help="List what differs between two results of --json."),
    ] = None,
) -> None:
    """Run TRAIN.py for some steps with its loader watched, and say what is slow, what to change, and what it brings.

    The script is not changed: its output, its exit code and Ctrl-C are its own. The report goes to standard error.
    After the steps the script is ended as by `sys.exit`. Changes are tried with the loader alone, in child processes.
    """
    if compare is not None:
        if script or module is not None:
            raise ArgumentError("--compare takes two files and no script")
        _compare(*compare)
        return
    from penstock.doctor.trials.run_options import RunOptions

    options = RunOptions(
        steps=steps, budget_s=budget, most_s=seconds, trials=not no_trials, rerun=rerun, json=_name(json),
        html=_name(html), trace=_name(trace), fail_if_waiting=fail_if_waiting, github=github,
    )  # fmt: skip
    _run(options, script, module, "doctor needs a script, -m MODULE or --compare A.json B.json")


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
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the result as JSON.")] = None,
) -> None:
    """Find the fewest workers that feed TRAIN.py as well as any number, and print the line of code.

    The script runs for some steps and is ended as by `sys.exit`; then its loader alone is measured in child processes,
    with few settings that a model chooses and the usual rules of thumb beside them.
    """
    from penstock.doctor.trials.run_options import RunOptions

    options = RunOptions(steps=steps, budget_s=budget, tune=True, memory_bytes=_parse_size(memory), json=_name(json))
    _run(options, script, module, "tune needs a script or -m MODULE")


def _run(options: RunOptions, script: list[str] | None, module: str | None, missing: str) -> None:
    """Make this process the script's: signals and the exit code are its own."""
    target = [*([] if module is None else ["-m", module]), *(script or [])]
    if not target:
        raise ArgumentError(missing)
    if importlib.util.find_spec("torch") is None:  # it is not imported before the script runs
        require("torch", extra="torch", purpose="for the doctor's rules, also where a script does not use it")
    command = [sys.executable, "-m", "penstock.doctor.run", options.to_text(), *target]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(command[0], command)  # noqa: S606  # the script that the user wants to run


def _parse_size(text: str | None) -> int | None:
    return None if text is None else parse_size(text, "--memory")


def _name(path: Path | None) -> str | None:
    """The absolute path: the script may change the folder."""
    if path is not None and not path.absolute().parent.is_dir():
        raise ArgumentError(f"the folder {str(path.parent)!r} does not exist, to write {path.name!r} there")
    return None if path is None else str(path.absolute())


def _compare(a: Path, b: Path) -> None:
    from penstock.doctor.reports.json_report import compare, read_json

    results: list[Any] = []
    for path in (a, b):
        try:
            results.append(read_json(path))
        except (OSError, ValueError) as error:
            print_line(f"penstock: {path} cannot be read: {error}", file=sys.stderr)
            raise typer.Exit(FAILED) from error
    for line in compare(*results):
        print_line(line)
