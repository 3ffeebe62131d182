"""The command ``explain``, which prints the page of an error."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from penstock.cli.app import app
from penstock.cli.arguments import JsonOption
from penstock.cli.printing import print_json, print_line

__all__ = ["explain"]


@app.command()
def explain(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="What the last line of an error or a finding names, such as `corrupt-record`, or the class of an "
            "error, such as `CorruptRecordError`. Without it, all pages are listed.",
        ),
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Explain an error, a finding of the doctor or what limits a training: what it means, and how to mend it.

    Nothing is read from the network.
    """
    from penstock.explain import find_page, list_pages, read_page

    if name is None:
        groups = list_pages()
        if as_json:
            print_json(groups)
            return
        widest = max(len(each) for pages in groups.values() for each in pages)
        for group, pages in groups.items():
            print_line(group)
            for each, about in pages.items():
                print_line(f"  {each:<{widest}}  {about}")
        return
    page = find_page(name)
    text = read_page(page)
    if as_json:
        print_json({"name": page, "text": text})
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(text, code_theme="ansi_dark"))
    else:
        print(text, end="")
