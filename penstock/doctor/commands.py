"""The commands that run a training script under watch: ``doctor`` says what is slow, ``tune`` finds its workers.

And ``env``, which prints what a report of a fault needs.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from penstock.cli.app import FAILED, app
from penstock.cli.arguments import JsonOption
from penstock.cli.printing import print_json, print_line
from penstock.errors import ArgumentError
from penstock.paths import parse_size
from penstock.registry import require
from penstock.wording import counted, format_bytes

if TYPE_CHECKING:
    from penstock.doctor.trials.run_options import RunOptions

__all__ = ["doctor", "env", "tune"]


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
    no_trials: Annotated[bool, typer.Option("--no-trials", help="Try no changes: only facts.")] = False,
    budget: Annotated[float, typer.Option(min=0, help="Seconds for trials of changes.")] = 60.0,
    fix: Annotated[
        bool,
        typer.Option("--fix", help="Run the script again with changes of its file, and print the best as a patch."),
    ] = False,
    write: Annotated[bool, typer.Option("--write", help="With --fix: write the patch, and keep FILE.orig.")] = False,
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
    if write and not fix:
        raise ArgumentError("--write needs --fix, whose patch it writes")
    from penstock.doctor.trials.run_options import RunOptions

    options = RunOptions(
        steps=steps, budget_s=budget, most_s=seconds, trials=not no_trials, fix=fix, write=write,
        json=_name(json), html=_name(html), fail_if_waiting=fail_if_waiting, github=github,
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
    with the usual rules of thumb first, and then beside the best of them.
    """
    from penstock.doctor.trials.run_options import RunOptions

    nbytes = None if memory is None else parse_size(memory, "--memory")
    options = RunOptions(steps=steps, budget_s=budget, tune=True, memory_bytes=nbytes, json=_name(json))
    _run(options, script, module, "tune needs a script or -m MODULE")


@app.command()
def env(*, as_json: JsonOption = False) -> None:
    """Print versions, processor, memory and limits as one block, to paste into a report of a fault.

    It has no paths, no names of users or hosts, and no values of variables. torch is not imported.
    """
    from penstock.doctor.machine.environment import describe_environment

    found = describe_environment()
    if as_json:
        print_json(found)
        return
    rows = [(name, text) for name, text in _list_rows(found) if text]
    widest = max(len(name) for name, _ in rows)
    for name, text in rows:
        print_line(f"{name:<{widest}}  {text}")


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


def _name(path: Path | None) -> str | None:
    """Return the absolute path: the script may change the folder."""
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


def _list_rows(found: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    versions, python, system = dict(found["versions"]), found["python"], found["system"]
    processor, memory = found["processor"], found["memory"]
    yield "penstock", versions.pop("penstock")
    threads = "with a GIL" if python["has_gil"] else "free-threaded"
    method = f"starts processes by {python['start_method']}"
    yield "Python", f"{versions.pop('python')}, {python['implementation']}, {threads}, {method}"
    yield "system", ", ".join(str(system[name]) for name in ("name", "kernel", "libc") if system[name])
    yield "processor", f"{processor['model'] or 'unknown'}, {processor['architecture']}"
    yield "native", " ".join(processor["features"]) or "portable code"
    quota = processor["quota_cores"]
    limits = "no quota" if quota is None else f"a quota of {quota:g}"
    online, affinity = counted(processor["online"] or 0, "core"), processor["affinity"] or 0
    yield "cores", f"{online}, {affinity} for this process, {limits}"
    limit = memory["limit_bytes"]
    group = "no limit" if limit is None else f"a limit of {_size(limit)}"
    yield "memory", f"{_size(memory['total_bytes'])}, {_size(memory['available_bytes'])} available, {group}"
    yield "shm", f"{_size(memory['shm_bytes'])}, {_size(memory['shm_free_bytes'])} free"
    cuda = [f"torch is built for {system['cuda']}"] if system["cuda"] else []
    cuda += [f"driver {system['nvidia_driver']}"] if system["nvidia_driver"] else []
    yield "CUDA", ", ".join(cuda)
    yield from versions.items()
    yield "absent", ", ".join(found["absent"]["packages"])


def _size(nbytes: int | None) -> str:
    return "unknown" if nbytes is None else format_bytes(nbytes)
