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
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from penstock.errors import ArgumentError, PenstockError
from penstock.escapes import escape_unprintable
from penstock.plurals import counted

if TYPE_CHECKING:
    from penstock.pack import IndexReport
    from penstock.stores.base import Skipped
    from penstock.stores.base import Store as AnyStore
    from penstock.view import SizeRange, StoreInfo

__all__ = ["app", "main"]

app = typer.Typer(
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
_NAMES_SHOWN: Final = 10


class OnError(enum.StrEnum):
    """What becomes of images that cannot be packed."""

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

Classes = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="The classes in the order of their numbers: names separated by commas, or a text file with one name per "
        "line. By default the sub-folders in plain string order, as in torchvision.",
    ),
]


def _print_version(is_given: bool) -> None:
    if is_given:
        import penstock

        _say(f"penstock {penstock.__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Pack images into checksummed stores for training, verify them, and show what they hold."""


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
            help="Images that cannot be packed (damaged, empty, named alike): refuse the source, or leave them out."
        ),
    ] = OnError.RAISE,
    check: Annotated[
        Check, typer.Option(help="Read the header and the end of each image, or decode it too.")
    ] = Check.HEADER,
    transcode: Annotated[
        Transcode,
        typer.Option(
            help="`baseline`: store progressive JPEGs, and others of several scans, as baseline ones of equal pixels."
        ),
    ] = Transcode.NONE,
    index: Annotated[
        PackIndex,
        typer.Option(help="Also make decode indices: a crop then decodes a part of its JPEG (`penstock index`)."),
    ] = PackIndex.NONE,
    classes: Classes = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Threads that read and check; by default one per core, less the writer's (not with `--check decode`).",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the pack at DST, finished or not.")] = False,
) -> None:
    """Pack the images of SRC into DST, with a checksum for each record.

    If DST is a finished pack of the same source and options, nothing is done. An interrupted pack is resumed by the
    same command. What is left out is listed by name.
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
            classes=_class_names(classes),
            progress=True,
        )
    except KeyboardInterrupt:
        again = "the same command without --overwrite" if overwrite else "the same command"
        _complain(f"interrupted; what was committed is kept, and {again} resumes it")
        raise typer.Exit(INTERRUPTED) from None
    held = f"{counted(report.records, 'record')}{_earlier(report.resumed)}, {_bytes(report.nbytes)}"
    if report.reused:
        _say(f"{report.store} is already packed, nothing to do: {held}")
    else:
        _say(f"{report.store}: {held}, in {report.elapsed_s:.1f} s")
    if transcode is not Transcode.NONE and not report.reused:
        were = "it was" if report.kept == 1 else "they were"
        _say(f"{counted(report.transcoded, 'image')} transcoded to {transcode}, {report.kept:,} kept as {were}")
    if report.indexed is not None:
        _print_indexed(report.indexed)
    if report.skipped:
        _say(f"{len(report.skipped):,} left out:")
        _print_skipped(report.skipped)


@app.command()
def index(
    store: Store,
    *,
    kind: Annotated[
        Kind,
        typer.Option(
            help="Where decoding can begin: each row of blocks (0.25 % of the images' size), or each 64 pixels (2 %)."
        ),
    ] = Kind.ROWS,
    field: Annotated[str | None, typer.Option(help="The field to index, if several hold images.")] = None,
    classes: Classes = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads; by default one per core.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the indices of STORE.")] = False,
) -> None:
    """Make decode indices beside STORE, so that a crop decodes a part of its JPEG only. The images stay as they are.

    An interrupted run is resumed by the same command.
    """
    from penstock.pack import index as run

    try:
        with _opened(store, classes) as opened:
            report = run(opened, kind=kind.value, field=field, workers=workers, overwrite=overwrite, progress=True)
    except KeyboardInterrupt:
        _complain("interrupted; what was made is kept, and the same command without --overwrite resumes it")
        raise typer.Exit(INTERRUPTED) from None
    _print_indexed(report)


def _earlier(count: int) -> str:
    return f" ({count:,} of them earlier)" if count else ""


def _print_indexed(report: IndexReport) -> None:
    _say(
        f"{report.path}: {counted(report.indexed, 'image')} indexed by {report.kind}{_earlier(report.resumed)}, "
        f"{_bytes(report.nbytes)}, in {report.elapsed_s:.1f} s"
    )
    if report.left_out:
        their = "its" if len(report.left_out) == 1 else "their"
        _say(f"{counted(len(report.left_out), 'image')} without an index, decoded from {their} beginning:")
        _print_skipped(report.left_out)


@app.command()
def verify(
    store: Store,
    *,
    source: Annotated[
        str | None, typer.Option(help="The folder or pack that STORE was packed from: compare keys, classes and bytes.")
    ] = None,
) -> None:
    """Check every page, checksum, count and key of STORE. The exit code is 1 if anything is wrong."""
    from penstock.pack import verify as run

    report = run(store, source, progress=True)
    if report.ok:
        compared = f", {report.compared:,} compared with {source}" if source is not None else ""
        _say(f"{report.store}: {counted(report.records, 'record')}, nothing wrong{compared}")
        return
    count = len(report.problems)
    _say(f"{report.store}: {counted(count, 'problem')}")
    _print_bounded(map(str, report.problems), count)
    if source is not None and not report.compared:
        _say("  (not compared with the source: the store's structure is damaged)")
    raise typer.Exit(FAILED)


@app.command()
def info(
    store: Store,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    sheet: Annotated[
        Path | None, typer.Option(help="Also draw samples with their labels into this file: .png, .jpg or .webp.")
    ] = None,
    classes: Classes = None,
) -> None:
    """Show what STORE holds: fields, classes, and the sizes and formats of its images."""
    from penstock import view

    with _opened(store, classes) as opened:
        said = view.info(opened)
        if as_json:
            _say_json(said.to_json())
        else:
            _print_info(said)
        if sheet is not None:
            shown = view.contact_sheet(opened, sheet)
            _say(f"{sheet}: {counted(len(shown), 'sample')}", file=sys.stderr if as_json else sys.stdout)


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
        bool, typer.Option("--quick", help="Take seconds instead of minutes; the figures mean less.")
    ] = False,
) -> None:
    """Pack photographs, load them beside torch's loader, train on them, stop and resume."""
    from penstock.demo import run

    run(images, output, quick=quick)


def main() -> None:
    """Entry point of the console script and of ``python -m penstock``."""
    try:
        app(prog_name="penstock")
    except ArgumentError as error:
        _complain(_text(error))
        sys.exit(USAGE)
    except PenstockError as error:
        _complain(_text(error))
        sys.exit(FAILED)


def _opened(store: str, classes: str | None) -> AnyStore:
    from penstock import stores

    names = _class_names(classes)
    return stores.open(store, **({} if names is None else {"classes": names}))


def _class_names(given: str | None) -> list[str] | None:
    """The value of --classes: names with commas, or the lines of a file."""
    if given is None:
        return None
    if "," not in given and ("/" in given or given.endswith(".txt") or Path(given).is_file()):
        try:
            lines = Path(given).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ArgumentError(f"--classes: the file {given} cannot be read: {error}") from error
    else:
        lines = given.split(",")
    return [name for name in map(str.strip, lines) if name]


def _complain(message: str) -> None:
    for line in f"penstock: {message}".split("\n"):
        _say(line, file=sys.stderr)


def _say(line: str, file: TextIO | None = None) -> None:
    """Print one line. Much of it comes from a store, and none of that reaches the terminal raw."""
    print(escape_unprintable(line), file=file)


def _say_json(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    if not text.replace("\n", "").isprintable():
        text = json.dumps(value, indent=2).replace("\x7f", "\\u007f")
    print(text)


def _text(error: PenstockError) -> str:
    """The error's text; of several lines (a list of files), where it happened stands at the end of the first."""
    first, newline, others = error.message.partition("\n")
    where = str(error).removeprefix(error.message)
    return f"{first.removesuffix(':')}{where}:\n{others}" if newline else str(error)


def _print_bounded(lines: Iterable[str], count: int) -> None:
    for _, line in zip(range(_PROBLEMS_SHOWN), lines, strict=False):
        _say(f"  {line}")
    if count > _PROBLEMS_SHOWN:
        _say(f"  ... and {count - _PROBLEMS_SHOWN:,} more")


def _print_skipped(entries: Iterable[Skipped]) -> None:
    """One line for each reason: the name it concerns, or how many and the first of them."""
    from penstock.stores.names import quote_names

    by_reason: dict[str, list[str]] = {}
    for key, reason in entries:
        by_reason.setdefault(reason, []).append(key)
    lines = (
        f"{keys[0]}: {reason}"
        if len(keys) == 1
        else f"{reason} ({counted(len(keys), 'entry')}: {quote_names(keys, _NAMES_SHOWN)})"
        for reason, keys in by_reason.items()
    )
    _print_bounded(lines, len(by_reason))


def _print_info(said: StoreInfo) -> None:
    _say(said.url)
    rows: list[tuple[str, str]] = [("records", f"{said.records:,}")]
    rows += [("field", f"{name}: {field.kind}") for name, field in said.schema.fields.items()]
    rows += [(name, _range(getattr(said, name), str_of)) for name, str_of in _MEASURES.items() if getattr(said, name)]
    if said.formats:
        sampled = "" if said.measured == said.records else f" (of {said.measured:,} sampled)"
        rows.append(("formats", ", ".join(f"{name} {count:,}" for name, count in said.formats.items()) + sampled))
    if said.skipped:
        rows.append(("left out", f"{counted(said.skipped, 'entry')} of the source"))
    for name, value in rows:
        _say(f"  {name:<9}{value}")
    _print_classes(said)


def _print_classes(said: StoreInfo) -> None:
    if not said.classes:
        return
    counts = said.classes.values()
    least, most = min(counts), max(counts)
    records = f"{least:,} to {counted(most, 'record')}" if least < most else counted(most, "record")
    each = " each" if least == most and len(counts) > 1 else ""
    _say(f"  {counted(len(counts), 'class')} of {records}{each}")
    shown = [(escape_unprintable(name), count) for name, count in list(said.classes.items())[:_CLASSES_SHOWN]]
    longest = max(len(name) for name, _ in shown)
    for name, count in shown:
        _say(f"    {name:<{longest}} {count:>9,} {'▇' * round(30 * count / max(*counts, 1))}")
    if len(said.classes) > _CLASSES_SHOWN:
        _say(f"    ... and {len(said.classes) - _CLASSES_SHOWN:,} more")


def _range(values: SizeRange, str_of: Callable[[float], str]) -> str:
    if values.min == values.max:
        return str_of(values.min)
    return f"{str_of(values.min)} to {str_of(values.max)}, median {str_of(values.median)}"


def _bytes(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return counted(round(count), "byte") if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _pixels(count: float) -> str:
    return f"{count:g}"


_MEASURES: Final[dict[str, Callable[[Any], str]]] = {"width": _pixels, "height": _pixels, "nbytes": _bytes}
