"""The command ``view``, which starts the viewer and opens the browser."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from pathlib import Path, PurePath
from typing import Annotated, Final

import typer

from penstock.cli.app import app
from penstock.cli.arguments import (
    AnnotationsOption,
    ClassesOption,
    LayoutOption,
    StoreArgument,
    StoreOptions,
    open_store,
)
from penstock.cli.printing import print_line
from penstock.wording import counted, escape_unprintable

__all__ = ["view"]

_IN_TERMINALS: Final = frozenset({"lynx", "w3m", "links", "elinks", "links2", "browsh", "www-browser"})
"""Browsers that would take the terminal, and do not run the page."""


@app.command()
def view(
    store: StoreArgument,
    *,
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
    from penstock.viewer.server.serving import view as start

    with (
        open_store(store, classes, layout, option) as opened,
        start(
            opened,
            annotations=annotations,
            format=annotation_format or "auto",
            compare=compare,
            predictions=predictions,
            port=port,
        ) as viewer,
    ):
        print_line(viewer.url)
        fields = ", ".join(viewer.session.collection.schema.fields)
        print_line(escape_unprintable(f"{opened.url}: {counted(len(opened), 'record')} ({fields}); Ctrl-C ends it"))
        sys.stdout.flush()  # it may be a pipe that is read for the address
        if browser and _has_display():
            threading.Thread(target=webbrowser.open, args=(viewer.url,), daemon=True).start()
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
