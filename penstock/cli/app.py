"""The application, its entry point, and the table of commands.

A command is registered by the text ``"module:function"``, so that ``--help`` imports none of them, and none imports the
others. The module adds the function to :data:`app` when it is imported: when the command runs.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from penstock.cli.printing import print_error, print_line, shorten_warnings
from penstock.errors import ArgumentError, PenstockError, StoreError, name_page
from penstock.registry import Registry

__all__ = ["ABOUT", "COMMANDS", "FAILED", "INTERRUPTED", "USAGE", "app", "main", "register_commands", "resumable"]

FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130

COMMANDS = Registry("command")
ABOUT: Final[dict[str, tuple[str, str]]] = {}
"""The task of each command, and what it does: the first paragraph of its help."""


def register_commands(tasks: Mapping[str, Mapping[str, str]]) -> None:
    """Register commands, ``"module:function"`` and what each does, by their tasks."""
    for task, commands in tasks.items():
        for target, about in commands.items():
            name = target.partition(":")[2]
            COMMANDS.register(name, target)
            ABOUT[name] = task, about


class CommandTable(TyperGroup):
    """All registered commands; one that is not imported has nothing but its help."""

    def __init__(self, *, commands: Mapping[str, Any], **settings: Any) -> None:
        table = {name: TyperCommand(name, help=about) for name, (_, about) in ABOUT.items()} | dict(commands)
        for name, (task, _) in ABOUT.items():
            table[name].rich_help_panel = task
        super().__init__(commands=table, **settings)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that ``args`` begin with, which is imported."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, find_command(name) if name and command else None, rest


def find_command(name: str) -> Any:
    """Import a command of the table."""
    COMMANDS.get(name)
    return get_group(app).commands[name]


app = typer.Typer(
    cls=CommandTable,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _print_version(is_given: bool) -> None:
    if is_given:
        import penstock

        print_line(f"penstock {penstock.__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[  # noqa: ARG001  # its callback prints it
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="Import a module of yours first, from this folder too: it registers a kind of store, or an annotation "
            "format. May be given several times.",
        ),
    ] = None,
) -> None:
    """Feed a training with images: look at them, prepare them, and find out why a training waits.

    `penstock init FOLDER` writes a training script for the images in a folder; `penstock view FOLDER` shows them.
    """
    for name in imports or ():
        _import_module(name)


def _import_module(name: str) -> None:
    """Import a module that the user names, as a program in this folder does."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise ArgumentError(
            f"--import: the module {name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error


def main() -> None:
    """Run the console script, or ``python -m penstock``."""
    _open_closed_streams()
    try:
        try:
            with shorten_warnings():
                app(prog_name="penstock")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # who reads the output has seen enough, as `head` does
        _drop_output()
        sys.exit(FAILED)
    except (PenstockError, OSError) as error:  # others are a full disk, a file that cannot be written
        ours = error if isinstance(error, PenstockError) else StoreError(str(error))
        print_error(_format_error(ours))
        print_line(f"More: penstock explain {name_page(type(ours))}", file=sys.stderr)
        _drop_output()
        sys.exit(USAGE if isinstance(ours, ArgumentError) else FAILED)


def _drop_output() -> None:
    """Drop what could not be written to standard output, or the interpreter tries once more and exits with 120."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_closed_streams() -> None:
    """Open the null device where a standard stream is closed: the next file that is opened would take its place."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  # open to the end
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  # as above


@contextmanager
def resumable(*, overwrite: bool) -> Iterator[None]:
    """Say how to resume what is interrupted in the body."""
    try:
        yield
    except KeyboardInterrupt:
        again = "the same command without --overwrite" if overwrite else "the same command"
        print_error(f"interrupted; what was committed is kept, and {again} resumes it")
        raise typer.Exit(INTERRUPTED) from None


def _format_error(error: PenstockError) -> str:
    """Return the error's text. If it has several lines (a list of files), the location is added to the first."""
    first, newline, others = error.message.partition("\n")
    where = str(error).removeprefix(error.message)
    return f"{first.removesuffix(':')}{where}:\n{others}" if newline else str(error)
