"""The command ``view``, which starts the viewer and opens the browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.app import app
from penstock.cli.arguments import ClassesOption, LayoutOption, StoreArgument, StoreOptions, open_store
from penstock.cli.printing import print_line

__all__ = ["view"]


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
    classes: ClassesOption = None,
    layout: LayoutOption = None,
    option: StoreOptions = None,
) -> None:
    """Look at STORE in a browser: a server on this machine, which only this machine can reach; Ctrl-C ends it."""
    from penstock.viewer.server.serving import view as start

    with (
        open_store(store, classes, layout, option) as opened,
        start(opened, compare=compare, predictions=predictions, port=port) as viewer,
    ):
        print_line(viewer.url)
        if browser:
            webbrowser.open(viewer.url)
        try:
            viewer.wait()
        except KeyboardInterrupt:
            print_line("")
