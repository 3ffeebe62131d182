"""The command ``view``, which starts the viewer and opens the browser."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from penstock.cli.app import app
from penstock.cli.arguments import ClassesOption, LayoutOption, StoreOptions, open_store
from penstock.cli.printing import print_line
from penstock.errors import ArgumentError

__all__ = ["view"]


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
    if store is None and which is None:
        raise ArgumentError("STORE must be given, or --attach")
    found = find_store(which) if store is None and which is not None else None
    opened = open_store(store, classes, layout, option) if store is not None else found
    assert opened is not None, "one of both is given"
    with opened, start(opened, port=port, attach=which) as viewer:
        address = viewer.url if store is not None else f"{viewer.url}#view=live"
        print_line(address)
        if browser:
            webbrowser.open(address)
        try:
            viewer.wait()
        except KeyboardInterrupt:
            print_line("")
