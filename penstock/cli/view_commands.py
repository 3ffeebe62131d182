"""The commands that show what a store contains, ``info``, and how it is divided, ``split``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.app import app
from penstock.cli.arguments import (
    ClassesOption,
    JsonOption,
    LayoutOption,
    StoreArgument,
    StoreOptions,
    open_store,
    print_reading,
)
from penstock.cli.printing import print_json, print_line, print_one_class
from penstock.errors import ArgumentError
from penstock.wording import counted, escape_unprintable, format_bytes

if TYPE_CHECKING:
    from penstock.sheets import SizeRange, StoreInfo

__all__ = ["info", "split"]

_CLASSES_SHOWN: Final = 20
_NAME_WIDTH: Final = 60


@app.command()
def info(
    store: StoreArgument,
    *,
    as_json: JsonOption = False,
    sheet: Annotated[
        Path | None, typer.Option(help="Also draw samples with their labels to this file: .png, .jpg or .webp.")
    ] = None,
    classes: ClassesOption = None,
    layout: LayoutOption = None,
    option: StoreOptions = None,
) -> None:
    """Show what STORE contains: what was detected, fields, classes, and the sizes and formats of its images."""
    from penstock.sheets.info import SAMPLED
    from penstock.sheets.info import info as summarise
    from penstock.sheets.sheet import contact_sheet

    with open_store(store, classes, layout, option) as opened:
        print_reading(opened, SAMPLED)
        summary = summarise(opened)
        if as_json:
            print_json(summary)
        else:
            _print_info(summary)
        if sheet is not None:
            shown = contact_sheet(opened, sheet)
            print_line(f"{sheet}: {counted(len(shown), 'sample')}", file=sys.stderr if as_json else sys.stdout)


@app.command()
def split(
    store: StoreArgument,
    parts: Annotated[
        list[str],
        typer.Argument(metavar="PART...", help="Fractions with the sum 1 (`0.8 0.2`), or numbers of records."),
    ],
    *,
    by: Annotated[
        list[str] | None,
        typer.Option(
            help="A field whose values each part has in equal proportion, such as `label`. May be given several times."
        ),
    ] = None,
    groups: Annotated[
        str | None, typer.Option(help="A field such as `patient`: records of one value are in one part.")
    ] = None,
    names: Annotated[str | None, typer.Option(help="Names of the parts, separated by commas.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same split.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", help="Write the split: `.csv`, a row for each record, or `.json`, the indices of each part."
        ),
    ] = None,
    layout: LayoutOption = None,
    option: StoreOptions = None,
    as_json: JsonOption = False,
) -> None:
    """Split the records of STORE into parts, and show how often each value is in each part."""
    from penstock.datasets import split as run

    fractions = [_parse_part(part) for part in parts]
    numbers = [int(part) if part.is_integer() and sum(fractions) != 1 else part for part in fractions]
    given = None if names is None else names.split(",")
    if given is not None and len(given) != len(numbers):
        raise ArgumentError(f"--names must be {len(numbers)} names, got {names!r}")
    with open_store(store, None, layout, option) as opened:
        named = numbers if given is None else dict(zip(given, numbers, strict=True))
        found = run(opened, named, by=by, groups=groups, seed=seed)
    if as_json:
        print_json({
            "seed": found.seed, "by": found.by, "groups": found.groups, "fingerprint": found.fingerprint,
            "counts": found.counts, "histograms": found.histograms,
        })  # fmt: skip
    else:
        for line in found.report().split("\n"):
            print_line(line)
    if output is not None:
        found.write(output)
        print_line(f"{output}: written", file=sys.stderr)


def _parse_part(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ArgumentError(
            f"each PART must be a fraction (0.8 0.2), or a number of records, got {text!r}; --names gives their names"
        ) from error


def _print_info(summary: StoreInfo) -> None:
    print_line(summary.url)
    if summary.description:
        print_line(f"  {summary.description}")
    rows: list[tuple[str, str]] = [("records", f"{summary.records:,}")]
    pictures = {None: "", True: ", of upright pictures, to which Decode turns images", False: ", of pictures as stored"}
    rows += [
        ("field", f"{name}: {field.kind}{pictures[field.upright]}") for name, field in summary.schema.fields.items()
    ]
    for name, as_text in _SIZES.items():
        values: SizeRange | None = getattr(summary, name)
        if values is not None:
            rows.append((name, _format_range(values, as_text)))
    if summary.formats:
        sampled = "" if summary.measured == summary.records else f" (of {summary.measured:,} sampled)"
        rows.append(("formats", ", ".join(f"{name} {count:,}" for name, count in summary.formats.items()) + sampled))
        rows.append(("stored", ", ".join(_format_stored(summary, name) for name in summary.stored_nbytes) + sampled))
    if summary.skipped:
        rows.append(("left out", f"{counted(summary.skipped, 'entry')} of the source"))
    for name, value in rows:
        print_line(f"  {name:<9}{value}")
    for key, reason in summary.first_skipped:
        print_line(f"    {key}: {reason}")
    if summary.skipped > len(summary.first_skipped):
        print_line(f"    ... and {summary.skipped - len(summary.first_skipped):,} more")
    _print_classes(summary)
    print_one_class(summary.schema)


def _print_classes(summary: StoreInfo) -> None:
    if not summary.classes:
        return
    counts = summary.classes.values()
    least, most = min(counts), max(counts)
    records = f"{least:,} to {counted(most, summary.counted)}" if least < most else counted(most, summary.counted)
    each = " each" if least == most and len(counts) > 1 else ""
    masks = f", in {counted(summary.masks_measured, 'mask')}" if summary.counted == "pixel" else ""
    print_line(f"  {counted(len(counts), 'class')} of {records}{each}{masks}")
    shown = [(escape_unprintable(name), count) for name, count in list(summary.classes.items())[:_CLASSES_SHOWN]]
    from rich.cells import cell_len, set_cell_size  # other commands need not load it

    widest = min(max(cell_len(name) for name, _ in shown), _NAME_WIDTH)
    for name, count in shown:
        bar = "▇" * round(30 * count / max(*counts, 1))
        print_line(f"    {set_cell_size(name, widest)} {count:>9,} {bar}")
    if len(summary.classes) > _CLASSES_SHOWN:
        print_line(f"    ... and {len(summary.classes) - _CLASSES_SHOWN:,} more")


def _format_stored(summary: StoreInfo, name: str) -> str:
    stored, files = summary.stored_nbytes[name], summary.files_nbytes[name]
    part = "" if stored == files else f" ({stored / max(files, 1):.3f} of the files' {format_bytes(files)})"
    return f"{name} {format_bytes(stored)}{part}"


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
