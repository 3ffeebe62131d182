"""The command ``view``, which starts the viewer and opens the browser."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from pathlib import PurePath
from typing import Annotated, Final

import typer

from penstock.cli.app import app
from penstock.cli.arguments import (
    AnnotationsOption,
    ClassesOption,
    LayoutOption,
    StoreOptions,
    open_store,
)
from penstock.cli.printing import print_line
from penstock.errors import ArgumentError
from penstock.wording import counted, escape_unprintable

__all__ = ["view"]

_IN_TERMINALS: Final = frozenset({"lynx", "w3m", "links", "elinks", "links2", "browsh", "www-browser"})
"""Browsers that would take the terminal, and do not run the page."""


@app.command()
def view(
    store: Annotated[
        str | None,
        typer.Argument(metavar="[STORE]", help="What `penstock.open` opens; may be left out with `--attach`."),
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
    annotations: AnnotationsOption = None,
    annotation_format: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="The format of the annotations; by default found by the files."),
    ] = None,
    classes: ClassesOption = None,
    layout: LayoutOption = None,
    option: StoreOptions = None,
) -> None:
    """Look at STORE in a browser: a server on this machine, which only this machine can reach; Ctrl-C ends it."""
    from penstock.viewer.live.attaching import describe_running, find_store, parse_which
    from penstock.viewer.server.serving import view as start

    if attach == "list":
        for line in describe_running():
            print_line(line)
        return
    which = None if attach is None else parse_which(attach)
    if store is not None:
        opened, page = open_store(store, classes, layout, option), ""
    elif which is not None:
        opened, page = find_store(which), "#view=live"
    else:
        raise ArgumentError("STORE must be given, or --attach")
    with (
        opened,
        start(opened, annotations=annotations, format=annotation_format or "auto", port=port, attach=which) as viewer,
    ):
        address = viewer.url + page
        print_line(address)
        fields = ", ".join(viewer.session.collection.schema.fields)
        print_line(escape_unprintable(f"{opened.url}: {counted(len(opened), 'record')} ({fields}); Ctrl-C ends it"))
        sys.stdout.flush()  # it may be a pipe that is read for the address
        if browser and _has_display():
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        try:
            viewer.wait()
        except KeyboardInterrupt:
            print_line("")


def _has_display() -> bool:
    """Whether the browser that would be opened has a window of its own."""
    if sys.platform.startswith("linux") and not any(map(os.environ.get, ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))):
        return False
    try:
        found = webbrowser.get()
    except webbrowser.Error:
        return False
    return PurePath(getattr(found, "name", "")).name not in _IN_TERMINALS
