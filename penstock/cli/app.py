"""The application to which the modules of this package add their commands, and its entry point."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.printing import print_error, print_line, shorten_warnings
from penstock.errors import ArgumentError, PenstockError, StoreError, name_page

__all__ = ["FAILED", "INTERRUPTED", "USAGE", "app", "group_commands", "main", "resumable"]

FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130

app = typer.Typer(
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


def group_commands(groups: Mapping[str, Sequence[str]]) -> None:
    """Put the commands in this order, and show each under its task in ``--help``."""
    tasks = {name: task for task, names in groups.items() for name in names}
    known = {info.name or info.callback.__name__: info for info in app.registered_commands if info.callback}
    for name, info in known.items():
        info.rich_help_panel = tasks[name]
    app.registered_commands = [known[name] for name in tasks if name in known]
    for group in app.registered_groups:
        group.rich_help_panel = tasks[str(group.name)]


def main() -> None:
    """Entry point of the console script and of ``python -m penstock``."""
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
    """The error's text. If it has several lines (a list of files), the location is added to the first."""
    first, newline, others = error.message.partition("\n")
    where = str(error).removeprefix(error.message)
    return f"{first.removesuffix(':')}{where}:\n{others}" if newline else str(error)
