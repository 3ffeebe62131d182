"""The command ``show``, which draws samples with their annotations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.app import app
from penstock.cli.arguments import (
    ClassesOption,
    JsonOption,
    LayoutOption,
    StoreArgument,
    StoreOptions,
    open_store,
    parse_pairs,
    print_reading,
)
from penstock.cli.printing import print_json, print_line
from penstock.cli.user_files import load_object, name_user_errors
from penstock.errors import ArgumentError

__all__ = ["show"]


@app.command()
def show(
    store: StoreArgument,
    *,
    n: Annotated[int, typer.Option("--n", "-n", help="The largest number of samples.")] = 16,
    augment: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:NAME",
            help="A pipeline, a list of ops or a callable in a Python file, which is run; each sample is then drawn "
            "before and after it.",
        ),
    ] = None,
    output: Annotated[Path, typer.Option(help="The file to write: .png, .jpg or .webp.")] = Path("sheet.png"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file, if it exists.")] = False,
    seed: Annotated[int, typer.Option(help="The seed of the loader.")] = 0,
    epoch: Annotated[int, typer.Option(help="The epoch of the loader.")] = 0,
    by: Annotated[
        str | None,
        typer.Option(
            help="A field whose values are shown in turn: `label`, which is the default, or the classes of boxes, "
            "such as `labels`."
        ),
    ] = None,
    index: Annotated[
        list[int] | None, typer.Option("--index", help="Show this record; may be given several times.")
    ] = None,
    fields: Annotated[
        str | None,
        typer.Option(help="Fields separated by commas: the callable is then given a tuple of them, not a mapping."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=KIND",
            help="What a field is, where the store does not say it: `bbox=boxes`, `points=keypoints`, `seg=mask`, or "
            "`none`, to leave it in place. May be given several times.",
        ),
    ] = None,
    tile: Annotated[int, typer.Option(help="Side of the square of an image, in pixels.")] = 320,
    columns: Annotated[int | None, typer.Option(help="Samples in a row.")] = None,
    classes: ClassesOption = None,
    layout: LayoutOption = None,
    option: StoreOptions = None,
    as_json: JsonOption = False,
) -> None:
    """Draw samples of STORE with their boxes, class names, keypoints and masks, before and after augmentation."""
    from penstock.sheets.canvas import check_output, refuse_existing
    from penstock.sheets.showing import show as draw

    refuse_existing(check_output(output), overwrite=overwrite)  # before the user's file is run
    kinds = {name: None if value == "none" else value for name, value in parse_pairs(kind, "--kind").items()}
    transform = None if augment is None else load_object(augment, "--augment")
    with (
        _name_option_of_kinds(),
        open_store(store, classes, layout, option) as opened,
        nullcontext() if augment is None else name_user_errors(augment),
    ):
        print_reading(opened, n if index is None else len(index))
        sheet = draw(
            opened,
            n,
            augment=transform,
            fields=None if fields is None else tuple(name.strip() for name in fields.split(",")),
            kinds=kinds or None,
            indices=index,
            by=by,
            seed=seed,
            epoch=epoch,
            output=output,
            overwrite=overwrite,
            columns=columns,
            tile=tile,
            progress=True,
        )
    if as_json:
        print_json({"file": output, "width": sheet.width, "height": sheet.height})
        return
    print_line(f"{output}: {sheet.width} x {sheet.height} pixels")


@contextmanager
def _name_option_of_kinds() -> Iterator[None]:
    """Errors that ask for the argument ``kinds`` also say how it is given here."""
    try:
        yield
    except ArgumentError as error:
        if "kinds={" not in error.message:
            raise
        raise ArgumentError(f"{error.message} (here: --kind FIELD=KIND, or FIELD=none)", **error.where) from error
