"""The application to which the modules of this package add their commands, and its entry point."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer

from penstock.cli.printing import print_error, print_line
from penstock.errors import ArgumentError, PenstockError

__all__ = ["FAILED", "INTERRUPTED", "USAGE", "app", "main", "resumable"]

FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
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
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Pack images into stores with checksums for training; convert, verify and split stores, and show their content."""


def main() -> None:
    """Entry point of the console script and of ``python -m penstock``."""
    try:
        app(prog_name="penstock")
    except ArgumentError as error:
        print_error(_format_error(error))
        sys.exit(USAGE)
    except PenstockError as error:
        print_error(_format_error(error))
        sys.exit(FAILED)


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
