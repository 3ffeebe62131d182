"""The commands that show something: ``info`` and ``demo``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.app import app
from penstock.cli.arguments import ClassesOption, StoreArgument, open_store
from penstock.cli.printing import format_bytes, print_json, print_line
from penstock.escapes import escape_unprintable
from penstock.plurals import counted

if TYPE_CHECKING:
    from penstock.view import SizeRange, StoreInfo

__all__ = ["demo", "info"]

_CLASSES_SHOWN: Final = 20


@app.command()
def info(
    store: StoreArgument,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    sheet: Annotated[
        Path | None, typer.Option(help="Also draw samples with their labels to this file: .png, .jpg or .webp.")
    ] = None,
    classes: ClassesOption = None,
) -> None:
    """Show what STORE contains: fields, classes, and the sizes and formats of its images."""
    from penstock import view

    with open_store(store, classes) as opened:
        summary = view.info(opened)
        if as_json:
            print_json(summary.to_json())
        else:
            _print_info(summary)
        if sheet is not None:
            shown = view.contact_sheet(opened, sheet)
            print_line(f"{sheet}: {counted(len(shown), 'sample')}", file=sys.stderr if as_json else sys.stdout)


@app.command()
def demo(
    *,
    images: Annotated[
        Path | None,
        typer.Option(help="Your photographs, one sub-folder per class; by default crops of those in scikit-image."),
    ] = None,
    output: Annotated[Path, typer.Option(help="The folder for packs, pictures and the saved state.")] = Path(
        "demo-output"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="Take seconds instead of minutes; the measured speeds are then inaccurate.")
    ] = False,
) -> None:
    """Pack photographs, compare loading speed with torch's loader, train on them, stop and resume."""
    from penstock.demo import run

    run(images, output, quick=quick)


def _print_info(summary: StoreInfo) -> None:
    print_line(summary.url)
    rows: list[tuple[str, str]] = [("records", f"{summary.records:,}")]
    rows += [("field", f"{name}: {field.kind}") for name, field in summary.schema.fields.items()]
    for name, as_text in _SIZES.items():
        values: SizeRange | None = getattr(summary, name)
        if values is not None:
            rows.append((name, _format_range(values, as_text)))
    if summary.formats:
        sampled = "" if summary.measured == summary.records else f" (of {summary.measured:,} sampled)"
        rows.append(("formats", ", ".join(f"{name} {count:,}" for name, count in summary.formats.items()) + sampled))
    if summary.skipped:
        rows.append(("left out", f"{counted(summary.skipped, 'entry')} of the source"))
    for name, value in rows:
        print_line(f"  {name:<9}{value}")
    _print_classes(summary)


def _print_classes(summary: StoreInfo) -> None:
    if not summary.classes:
        return
    counts = summary.classes.values()
    least, most = min(counts), max(counts)
    records = f"{least:,} to {counted(most, 'record')}" if least < most else counted(most, "record")
    each = " each" if least == most and len(counts) > 1 else ""
    print_line(f"  {counted(len(counts), 'class')} of {records}{each}")
    shown = [(escape_unprintable(name), count) for name, count in list(summary.classes.items())[:_CLASSES_SHOWN]]
    longest = max(len(name) for name, _ in shown)
    for name, count in shown:
        print_line(f"    {name:<{longest}} {count:>9,} {'▇' * round(30 * count / max(*counts, 1))}")
    if len(summary.classes) > _CLASSES_SHOWN:
        print_line(f"    ... and {len(summary.classes) - _CLASSES_SHOWN:,} more")


def _format_range(values: SizeRange, as_text: Callable[[float], str]) -> str:
    if values.min == values.max:
        return as_text(values.min)
    return f"{as_text(values.min)} to {as_text(values.max)}, median {as_text(values.median)}"


def _format_pixels(count: float) -> str:
    return f"{count:g}"


_SIZES: Final[dict[str, Callable[[float], str]]] = {
    "width": _format_pixels,
    "height": _format_pixels,
    "nbytes": format_bytes,
}
