"""The command ``penstock check``: a user's pictures, decoded by penstock and by other decoders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.app import FAILED, app
from penstock.cli.arguments import ClassesOption, JsonOption, LayoutOption, StoreOptions, open_store, print_reading
from penstock.cli.printing import print_json, print_line, print_list
from penstock.wording import counted

if TYPE_CHECKING:
    from penstock.sheets.pixels import PixelReport

__all__ = ["check"]


@app.command()
def check(
    *,
    pixels: Annotated[
        str, typer.Option(metavar="STORE", help="A folder of pictures, or any other store of encoded images.")
    ],
    limit: Annotated[int | None, typer.Option(min=1, help="Most pictures, evenly spaced.")] = None,
    as_json: JsonOption = False,
    classes: ClassesOption = None,
    layout: LayoutOption = None,
    option: StoreOptions = None,
) -> None:
    """Decode your pictures by penstock, and by Pillow, TorchCodec and OpenCV if they are installed; compare all pixels.

    One row for each format, decoder and mode. Damaged files are named. The exit code is 1 if pixels differ, or penstock
    refuses what another decoder reads. `penstock.torch.check` checks a loader.
    """
    from penstock.progress import show_progress
    from penstock.sheets.pixels import compare_pixels

    with open_store(pixels, classes, layout, option) as opened, show_progress("compare", unit="pictures") as report:
        print_reading(opened, limit)
        found = compare_pixels(opened, limit, report)
    if as_json:
        print_json(found)
    else:
        _print_pixels(found)
    if not found.ok:
        raise typer.Exit(FAILED)


def _print_pixels(found: PixelReport) -> None:
    print_line(f"{found.store}: {counted(found.pictures, 'picture')}")
    rows = [["format", "decoder", "mode", "files", "equal", "largest", "refused", "refused here", "first that differs"]]
    for row in found.rows:
        counts = (row.files, row.equal, row.largest, row.refused, row.refused_here)
        rows.append([row.format, row.decoder, row.mode, *(f"{count:,}" for count in counts), row.differing])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for texts in rows:
        cells = (
            text.rjust(width) if 3 <= at < 8 else text.ljust(width)
            for at, (text, width) in enumerate(zip(texts, widths, strict=True))
        )
        print_line(f"  {'  '.join(cells)}".rstrip())
    for text in found.absent:
        print_line(f"not compared: {text}")
    if found.damaged:
        print_line(f"penstock does not decode {counted(len(found.damaged), 'file')}:")
        print_list((f"{key}: {reason}" for key, reason in found.damaged.items()), len(found.damaged))
