"""The command ``penstock``: what the package does, from a shell. One function per command, no logic of its own.

Exit codes: 0 done, 1 it failed or ``verify`` found problems, 2 wrong usage, 130 packing was interrupted. Results go to
standard output; progress and errors to standard error, errors as one plain message without a traceback.
"""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.errors import ArgumentError, PenstockError

if TYPE_CHECKING:
    from penstock.pack import IndexReport
    from penstock.view import SizeRange, StoreInfo

__all__ = ["app", "main"]

app = typer.Typer(
    help="Feeds training: packs pictures into stores, checks them, and says what they hold.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
_CLASSES_SHOWN: Final = 20
_PROBLEMS_SHOWN: Final = 50


class OnError(enum.StrEnum):
    """What becomes of files that cannot be packed."""

    RAISE = "raise"
    SKIP = "skip"


class Transcode(enum.StrEnum):
    """What is rewritten, without loss."""

    NONE = "none"
    BASELINE = "baseline"


class Kind(enum.StrEnum):
    """Places inside a JPEG where decoding can begin."""

    ROWS = "rows"
    TILES = "tiles"


class PackIndex(enum.StrEnum):
    """The same, when packing."""

    NONE = "none"
    ROWS = "rows"
    TILES = "tiles"


class Check(enum.StrEnum):
    """How closely each image is looked at."""

    HEADER = "header"
    DECODE = "decode"


Store = Annotated[
    str, typer.Argument(metavar="STORE", help="A pack, a folder of images, or a URL such as `lmdb://photos.lmdb`.")
]


@app.command()
def pack(
    src: Annotated[
        str, typer.Argument(metavar="SRC", help="A folder of images (one sub-folder per class), or a store.")
    ],
    dst: Annotated[str, typer.Argument(metavar="DST", help="The pack to write, such as `photos.lmdb`.")],
    *,
    on_error: Annotated[
        OnError, typer.Option(help="Files that are no whole images: refuse the source, or leave them out.")
    ] = OnError.RAISE,
    check: Annotated[
        Check, typer.Option(help="Look at each image's header and end, or decode it besides.")
    ] = Check.HEADER,
    transcode: Annotated[
        Transcode,
        typer.Option(help="Store progressive JPEGs, and others of several scans, as baseline ones of the same pixels."),
    ] = Transcode.NONE,
    index: Annotated[
        PackIndex, typer.Option(help="Make decode indices besides, so that crops decode in part (`penstock index`).")
    ] = PackIndex.NONE,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Threads that read and check; by default one per core, less the writer's.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a pack that is there.")] = False,
) -> None:
    """Pack SRC into DST, in parallel and with a checksum for every record.

    An interrupted pack is resumed by the same command. Files that cannot be packed are listed by name.
    """
    from penstock.pack import pack as run
    from penstock.pack.packing import list_bounded

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
            progress=True,
        )
    except KeyboardInterrupt:
        again = "the same command without --overwrite" if overwrite else "the same command"
        _complain(f"interrupted; what was committed is kept, and {again} resumes it")
        raise typer.Exit(INTERRUPTED) from None
    resumed = f" ({report.resumed:,} of them earlier)" if report.resumed else ""
    print(f"{report.store}: {report.records:,} records{resumed}, {_bytes(report.nbytes)}, in {report.elapsed_s:.1f} s")
    if transcode is not Transcode.NONE:
        print(f"{report.transcoded:,} images transcoded to {transcode}, {report.kept:,} kept as they were")
    if report.indexed is not None:
        _print_indexed(report.indexed)
    if report.skipped:
        print(f"{len(report.skipped)} left out:\n{list_bounded(report.skipped, _PROBLEMS_SHOWN)}")


@app.command()
def index(
    store: Store,
    *,
    kind: Annotated[
        Kind, typer.Option(help="Places to begin: each row of blocks (0.25 % of the images' size), or each 64 pixels.")
    ] = Kind.ROWS,
    field: Annotated[str | None, typer.Option(help="Which field, where several are images.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads; by default one per core.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Make again what is there.")] = False,
) -> None:
    """Make decode indices beside STORE, so that a crop decodes only its part of a JPEG. Images stay as they are.

    An interrupted run is resumed by the same command.
    """
    from penstock.pack import index as run

    try:
        report = run(store, kind=kind.value, field=field, workers=workers, overwrite=overwrite, progress=True)
    except KeyboardInterrupt:
        _complain("interrupted; what was made is kept, and the same command without --overwrite resumes it")
        raise typer.Exit(INTERRUPTED) from None
    _print_indexed(report)


def _print_indexed(report: IndexReport) -> None:
    from penstock.pack.packing import list_bounded

    resumed = f" ({report.resumed:,} of them earlier)" if report.resumed else ""
    print(
        f"{report.path}: {report.indexed:,} images indexed by {report.kind}{resumed}, {_bytes(report.nbytes)}, in "
        f"{report.elapsed_s:.1f} s"
    )
    if report.left_out:
        print(f"{len(report.left_out)} without, decoded from their beginning:")
        print(list_bounded(report.left_out, _CLASSES_SHOWN))


@app.command()
def verify(
    store: Store,
    *,
    source: Annotated[str | None, typer.Option(help="What it was packed from: compare keys, labels and bytes.")] = None,
) -> None:
    """Check every page, checksum, count and key of STORE; exit code 1 if anything is wrong."""
    from penstock.pack import verify as run

    report = run(store, source, progress=True)
    if report.ok:
        compared = f", {report.compared:,} compared with {source}" if source is not None else ""
        print(f"{report.store}: {report.records:,} records, nothing wrong{compared}")
        return
    count = len(report.problems)
    print(f"{report.store}: {count:,} {'problem' if count == 1 else 'problems'}")
    _print_bounded(map(str, report.problems), count)
    if source is not None and not report.compared:
        print("  (not compared with the source: the store's structure is damaged)")
    raise typer.Exit(FAILED)


@app.command()
def info(
    store: Store,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    sheet: Annotated[
        Path | None, typer.Option(help="Also draw samples with their labels into this file: .png, .jpg or .webp.")
    ] = None,
) -> None:
    """Say what STORE holds: fields, classes, sizes and formats of its images."""
    from penstock import view

    said = view.info(store)
    if as_json:
        print(json.dumps(said.to_json(), ensure_ascii=False, indent=2))
    else:
        _print_info(said)
    if sheet is not None:
        shown = view.contact_sheet(store, sheet)
        print(f"{sheet}: {len(shown)} samples", file=sys.stderr if as_json else sys.stdout)


@app.command()
def demo(
    *,
    images: Annotated[
        Path | None,
        typer.Option(help="Your photographs, a sub-folder a class; by default crops of those inside scikit-image."),
    ] = None,
    output: Annotated[Path, typer.Option(help="Where packs, pictures and the saved state go.")] = Path("demo-output"),
    quick: Annotated[bool, typer.Option("--quick", help="Seconds instead of minutes; figures that mean less.")] = False,
) -> None:
    """Pack photographs, load them next to torch's loader, train on them, stop and resume."""
    from penstock.demo import run

    run(images, output, quick=quick)


def main() -> None:
    """Entry point of the console script and of ``python -m penstock``."""
    try:
        app(prog_name="penstock")
    except ArgumentError as error:
        _complain(str(error))
        sys.exit(USAGE)
    except PenstockError as error:
        _complain(str(error))
        sys.exit(FAILED)


def _complain(message: str) -> None:
    print(f"penstock: {message}", file=sys.stderr)


def _print_bounded(lines: Iterable[str], count: int) -> None:
    for _, line in zip(range(_PROBLEMS_SHOWN), lines, strict=False):
        print(f"  {line}")
    if count > _PROBLEMS_SHOWN:
        print(f"  ... and {count - _PROBLEMS_SHOWN:,} more")


def _print_info(said: StoreInfo) -> None:
    print(said.url)
    rows: list[tuple[str, str]] = [("records", f"{said.records:,}")]
    rows += [("field", f"{name}: {field.kind}") for name, field in said.schema.fields.items()]
    rows += [(name, _range(getattr(said, name), str_of)) for name, str_of in _MEASURES.items() if getattr(said, name)]
    if said.formats:
        sampled = "" if said.measured == said.records else f" (of {said.measured:,} sampled)"
        rows.append(("formats", ", ".join(f"{name} {count:,}" for name, count in said.formats.items()) + sampled))
    if said.skipped:
        rows.append(("left out", f"{said.skipped:,} of the source's files"))
    for name, value in rows:
        print(f"  {name:<9}{value}")
    _print_classes(said)


def _print_classes(said: StoreInfo) -> None:
    if not said.classes:
        return
    counts = said.classes.values()
    print(f"  {len(said.classes):,} classes of {min(counts):,} to {max(counts):,} records")
    longest = max(map(len, list(said.classes)[:_CLASSES_SHOWN]))
    for name, count in list(said.classes.items())[:_CLASSES_SHOWN]:
        print(f"    {name:<{longest}} {count:>9,} {'▇' * round(30 * count / max(*counts, 1))}")
    if len(said.classes) > _CLASSES_SHOWN:
        print(f"    ... and {len(said.classes) - _CLASSES_SHOWN:,} more")


def _range(values: SizeRange, str_of: Callable[[float], str]) -> str:
    return f"{str_of(values.min)} to {str_of(values.max)}, median {str_of(values.median)}"


def _bytes(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _pixels(count: float) -> str:
    return f"{count:g}"


_MEASURES: Final[dict[str, Callable[[Any], str]]] = {"width": _pixels, "height": _pixels, "nbytes": _bytes}
