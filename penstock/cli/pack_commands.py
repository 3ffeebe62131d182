"""The commands that write and verify packs: ``pack``, ``index`` and ``verify``."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.app import FAILED, INTERRUPTED, app
from penstock.cli.arguments import ClassesOption, StoreArgument, open_store, parse_class_names
from penstock.cli.printing import format_bytes, print_error, print_line, print_list, print_skipped
from penstock.plurals import counted

if TYPE_CHECKING:
    from penstock.pack import IndexReport

__all__ = ["index", "pack", "verify"]


class OnError(enum.StrEnum):
    """What to do with images that cannot be packed."""

    RAISE = "raise"
    SKIP = "skip"


class Transcode(enum.StrEnum):
    """Which images are rewritten without loss."""

    NONE = "none"
    BASELINE = "baseline"


class IndexKind(enum.StrEnum):
    """Where in a JPEG decoding can begin."""

    ROWS = "rows"
    TILES = "tiles"


class PackIndex(enum.StrEnum):
    """:class:`IndexKind`, or no index, for ``pack``."""

    NONE = "none"
    ROWS = "rows"
    TILES = "tiles"


class Check(enum.StrEnum):
    """How each image is checked."""

    HEADER = "header"
    DECODE = "decode"


@app.command()
def pack(
    src: Annotated[
        str, typer.Argument(metavar="SRC", help="A folder of images (one sub-folder per class), or a pack.")
    ],
    dst: Annotated[str, typer.Argument(metavar="DST", help="The pack to write, such as `photos.lmdb`.")],
    *,
    on_error: Annotated[
        OnError,
        typer.Option(
            help="If images cannot be packed (damaged, empty, equal names): `raise` an error, or `skip` them."
        ),
    ] = OnError.RAISE,
    check: Annotated[
        Check, typer.Option(help="Read the header and the end of each image, or `decode` it too.")
    ] = Check.HEADER,
    transcode: Annotated[
        Transcode,
        typer.Option(
            help="`baseline`: rewrite JPEGs of several scans (progressive) as baseline JPEGs of equal pixels."
        ),
    ] = Transcode.NONE,
    index: Annotated[
        PackIndex,
        typer.Option(
            help="Also create decode indices: a crop then decodes only a part of its JPEG (`penstock index`)."
        ),
    ] = PackIndex.NONE,
    classes: ClassesOption = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Threads that read and check images; by default one per core, except one core for the writer (with "
            "`--check decode`, all cores).",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the pack at DST, whether it is finished or not.")
    ] = False,
) -> None:
    """Pack the images of SRC into DST, with a checksum for each record.

    If DST is a finished pack of the same source and options, nothing is done. To resume an interrupted pack, run the
    same command again. Skipped images are listed by name.
    """
    from penstock.pack import pack as run

    try:
        report = run(
            src,
            dst,
            on_error=on_error,
            workers=workers,
            overwrite=overwrite,
            check=check,
            transcode=transcode,
            index=index.value,
            classes=parse_class_names(classes),
            progress=True,
        )
    except KeyboardInterrupt:
        again = "the same command without --overwrite" if overwrite else "the same command"
        print_error(f"interrupted; what was committed is kept, and {again} resumes it")
        raise typer.Exit(INTERRUPTED) from None
    records = f"{counted(report.records, 'record')}{_format_resumed(report.resumed)}, {format_bytes(report.nbytes)}"
    if report.reused:
        print_line(f"{report.store} is already packed, nothing to do: {records}")
    else:
        print_line(f"{report.store}: {records}, in {report.elapsed_s:.1f} s")
    if transcode is not Transcode.NONE and not report.reused:
        print_line(f"{counted(report.transcoded, 'image')} transcoded to {transcode}, {report.kept:,} unchanged")
    if report.indexed is not None:
        _print_indexed(report.indexed)
    if report.skipped:
        print_line(f"{len(report.skipped):,} left out:")
        print_skipped(report.skipped)


@app.command()
def index(
    store: StoreArgument,
    *,
    kind: Annotated[
        IndexKind,
        typer.Option(
            help="Where decoding can begin: at each row of blocks (0.25 % of the images' size), or every 64 pixels "
            "(2 %)."
        ),
    ] = IndexKind.ROWS,
    field: Annotated[str | None, typer.Option(help="The field to index, if several fields are images.")] = None,
    classes: ClassesOption = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads; by default one per core.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the indices of STORE.")] = False,
) -> None:
    """Create decode indices beside STORE, so that a crop decodes only a part of its JPEG. Images are not changed.

    To resume an interrupted run, run the same command again.
    """
    from penstock.pack import index as run

    try:
        with open_store(store, classes) as opened:
            report = run(opened, kind=kind.value, field=field, workers=workers, overwrite=overwrite, progress=True)
    except KeyboardInterrupt:
        print_error("interrupted; what was made is kept, and the same command without --overwrite resumes it")
        raise typer.Exit(INTERRUPTED) from None
    _print_indexed(report)


@app.command()
def verify(
    store: StoreArgument,
    *,
    source: Annotated[
        str | None, typer.Option(help="The folder or pack that STORE was packed from: compare keys, classes and bytes.")
    ] = None,
) -> None:
    """Check every page, checksum, count and key of STORE. The exit code is 1 if there are problems."""
    from penstock.pack import verify as run

    report = run(store, source, progress=True)
    if report.ok:
        compared = f", {report.compared:,} compared with {source}" if source is not None else ""
        print_line(f"{report.store}: {counted(report.records, 'record')}, nothing wrong{compared}")
        return
    count = len(report.problems)
    print_line(f"{report.store}: {counted(count, 'problem')}")
    print_list(map(str, report.problems), count)
    if source is not None and not report.compared:
        print_line("  (not compared with the source, because the store's structure is damaged)")
    raise typer.Exit(FAILED)


def _format_resumed(count: int) -> str:
    return f" ({count:,} of them earlier)" if count else ""


def _print_indexed(report: IndexReport) -> None:
    print_line(
        f"{report.path}: {counted(report.indexed, 'image')} indexed by {report.kind}{_format_resumed(report.resumed)}, "
        f"{format_bytes(report.nbytes)}, in {report.elapsed_s:.1f} s"
    )
    if report.left_out:
        print_line(f"{counted(len(report.left_out), 'image')} without an index, always decoded from the beginning:")
        print_skipped(report.left_out)
