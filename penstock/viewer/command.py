"""The command ``view``, which starts the viewer and opens the browser."""

from __future__ import annotations

import getpass
import os
import re
import shlex
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from penstock.cli.app import app
from penstock.cli.arguments import (
    AnnotationsOption,
    ClassesOption,
    LayoutOption,
    StoreOptions,
    open_store,
)
from penstock.cli.browser import has_display, open_browser
from penstock.cli.printing import print_line
from penstock.cli.user_files import make_object
from penstock.errors import ArgumentError
from penstock.sample import DatasetLike
from penstock.stores.base import Store
from penstock.wording import counted

__all__ = ["open_viewed", "view"]

_SCRIPT: Final = re.compile(r".+\.py:\w+", re.DOTALL)


@app.command()
def view(
    store: Annotated[
        str | None,
        typer.Argument(metavar="STORE", help="What `penstock.open` opens; may be left out with `--attach`."),
    ] = None,
    *,
    attach: Annotated[
        str | None,
        typer.Option(
            metavar="LOADERS",
            help="Show running loaders that were made with `view=True`: `all` of yours, the number of a process, or a "
            "loader's file. `list` prints them, and starts nothing.",
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="The port to listen on; by default a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the browser.")] = True,
    compare: Annotated[
        str | None, typer.Option(metavar="STORE", help="Another store to compare with, record by record.")
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Predictions of a model: COCO's results (.json), or a table with key, label and score."
        ),
    ] = None,
    filter: Annotated[  # noqa: A002  # the name of the option
        str,
        typer.Option(metavar="EXPR", help="Open the grid with this filter, as it is typed there: 'label = dog'."),
    ] = "",
    annotations: AnnotationsOption = None,
    annotation_format: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="The format of the annotations; by default found by the files."),
    ] = None,
    classes: ClassesOption = None,
    layout: LayoutOption = None,
    option: StoreOptions = None,
) -> None:
    """Look at STORE, at what a loader of a script makes of it (FILE.py:NAME), or at running loaders, in a browser.

    The server can be reached from this machine only; Ctrl-C ends it.
    """
    from penstock.viewer.live.sources import describe_running, parse_which
    from penstock.viewer.server.serving import view as start

    if attach == "list":
        for line in describe_running():
            print_line(line)
        return
    which = None if attach is None else parse_which(attach)
    if store is None and which is None:
        raise ArgumentError("STORE must be given, or --attach")
    with (
        nullcontext() if store is None else open_viewed(store, classes, layout, option) as opened,
        start(
            opened,
            annotations=annotations,
            format=annotation_format or "auto",
            compare=compare,
            predictions=predictions,
            port=port,
            attach=which,
            filter=filter,
        ) as viewer,
    ):
        print_line(viewer.page_url)
        if not has_display() and (connection := os.environ.get("SSH_CONNECTION")):
            print_line(_format_forward(urlsplit(viewer.url).port, connection))
        shown = viewer.session.collection
        said = f"{shown.store.url}: {counted(shown.total, 'record')} ({', '.join(shown.schema.fields)}); Ctrl-C ends it"
        print_line(said)
        sys.stdout.flush()  # it may be a pipe that is read for the address
        if browser:
            open_browser(viewer.page_url)
        try:
            viewer.wait()
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # again: ends the process at once, with nothing half closed
            print_line("")


@contextmanager
def open_viewed(
    given: str, classes: str | None = None, layout: str | None = None, option: Sequence[str] | None = None
) -> Iterator[Store | DatasetLike]:
    """Open what is viewed: a store, or the loader or dataset that ``FILE.py:NAME`` names, or a function returns."""
    if not _SCRIPT.fullmatch(given):
        with open_store(given, classes, layout, option) as opened:
            yield opened
        return
    if classes or layout or option:
        raise ArgumentError(f"--classes, --layout and --option are for stores, got them with {given!r}")
    from penstock.viewer.model.source import is_viewable

    yield make_object(given, "STORE", is_viewable, "a loader, a dataset")


def _format_forward(port: int | None, connection: str) -> str:
    """Return the command that forwards the port, for the machine from which one is connected, by what sshd says of it.

    ``connection`` is ``SSH_CONNECTION``: address and port of the client, then of this machine.
    """
    words = connection.split()
    host, ssh_port = words[2:] if len(words) == 4 else (socket.gethostname(), "22")
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the number of this user has no name
        user = "user"
    other_port = [] if ssh_port == "22" else ["-p", ssh_port]
    command = ["ssh", "-L", f"{port}:127.0.0.1:{port}", *other_port, f"{user}@{host}"]
    return shlex.join(command)
