"""The command that says what is wrong: ``verify``, for stores and for annotations."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

from penstock.cli.app import FAILED, app
from penstock.cli.arguments import (
    AnnotationsOption,
    ClassesOption,
    FormatOption,
    JsonOption,
    LayoutOption,
    ReportFormat,
    ReportOption,
    SplitOption,
    StoreOptions,
    parse_class_names,
    parse_options,
    print_reading,
)
from penstock.cli.printing import print_json, print_line, print_list
from penstock.errors import ArgumentError, PenstockError
from penstock.wording import counted

__all__ = ["verify"]


@app.command()
def verify(
    store: Annotated[
        str | None,
        typer.Argument(
            metavar="STORE",
            help="A pack, a folder of images, a container of another library, or a URL; with `--annotations`, the "
            "folder of the images, if the annotations do not say where they are.",
        ),
    ] = None,
    *,
    source: Annotated[
        str | None, typer.Option(help="The store that STORE was packed from: compare keys, classes and bytes.")
    ] = None,
    annotations: AnnotationsOption = None,
    format: FormatOption = None,  # noqa: A002  # the name of the option
    split: SplitOption = None,
    classes: ClassesOption = None,
    as_json: JsonOption = False,
    report: ReportOption = ReportFormat.TEXT,
    layout: LayoutOption = None,
    option: StoreOptions = None,
) -> None:
    """Check every page, checksum, count and key of STORE; of a container of another program, read every record.

    With `--annotations`, check these: print images, objects and classes with their counts, and what is wrong, by reason
    and by file. The exit code is 1 if there are problems.
    """
    as_json = as_json or report is ReportFormat.JSON
    if annotations is not None:
        if source is not None or layout is not None:
            raise ArgumentError("--source and --layout are for stores; --annotations has neither")
        _verify_annotations(store, annotations, format, split, parse_class_names(classes), option, as_json=as_json)
        return
    if store is None:
        raise ArgumentError("verify needs a store, or --annotations")
    if format is not None or split is not None:
        raise ArgumentError("--format and --split are for --annotations")
    _verify_store(store, source, layout, parse_options(option, classes), as_json=as_json)


def _verify_store(
    store: str, source: str | None, layout: str | None, options: dict[str, object], *, as_json: bool
) -> None:
    from penstock import stores
    from penstock.pack import verify as run
    from penstock.stores.location import Location, is_remote_url

    target: str | Location = store  # found here, to say how much is read
    if is_remote_url(store):
        of_place = {name: options.pop(name) for name in stores.PLACE_OPTIONS if name in options}
        kind, target = stores.find_remote([store], layout, of_place)
        with suppress(PenstockError), kind(target, **options) as opened:  # what is wrong is found below
            print_reading(opened, past_cache=True)
    result = run(target, source, progress=True, layout=layout, **options)
    count = len(result.problems)
    if as_json:
        problems = [{"reason": each.reason, "key": each.key, "index": each.index} for each in result.problems]
        print_json({"ok": result.ok, "store": result.store, "records": result.records, "problems": problems})
    elif result.ok:
        compared = f", {result.compared:,} compared with {source}" if source is not None else ""
        print_line(f"{result.store}: {counted(result.records, 'record')}, nothing wrong{compared}")
    else:
        print_line(f"{result.store}: {counted(count, 'problem')}")
        print_list(map(str, result.problems), count)
        if source is not None and not result.compared:
            print_line("  (not compared with the source, because the store's structure is damaged)")
    if not result.ok:
        raise typer.Exit(FAILED)


def _verify_annotations(
    images: str | None,
    annotations: str,
    format: str | None,  # noqa: A002  # as the option
    split: str | None,
    classes: list[str] | None,
    option: list[str] | None,
    *,
    as_json: bool,
) -> None:
    from penstock.annotations import read
    from penstock.annotations.summary import AnnotationSummary

    options = parse_options(option)
    found = read(
        annotations, format or "auto", images, "skip", classes=classes, split=split,
        **options,  # type: ignore[arg-type]  # `read` checks them, also `upright`
    )  # fmt: skip
    summary = AnnotationSummary.of(found)
    if as_json:
        print_json(summary)
    else:
        for line in summary.lines():
            print_line(line)
    if not summary.ok:
        raise typer.Exit(FAILED)
