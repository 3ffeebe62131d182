"""The commands that write packs: ``pack``, ``merge`` and ``index``."""

from __future__ import annotations

import enum
import math
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.app import app, resumable
from penstock.cli.arguments import (
    AnnotationsOption,
    ClassesOption,
    FormatOption,
    JsonOption,
    LayoutOption,
    OnOption,
    SplitOption,
    StoreArgument,
    StoreOptions,
    open_store,
    parse_class_names,
    parse_options,
    parse_pairs,
)
from penstock.cli.printing import print_json, print_line, print_one_class, print_skipped
from penstock.errors import ArgumentError
from penstock.wording import counted, format_bytes

if TYPE_CHECKING:
    from penstock.pack import IndexReport, PackReport
    from penstock.pack.resize.resizing import ResizeReport
    from penstock.sample import Field

__all__ = ["index", "merge", "pack"]


OnError = enum.StrEnum("OnError", "RAISE SKIP")
"""What to do with images that cannot be packed."""

Transcode = enum.StrEnum("Transcode", "NONE BASELINE COEFFICIENTS")
"""Which images are rewritten without loss."""

IndexKind = enum.StrEnum("IndexKind", "AUTO ROWS TILES")
"""Where in a JPEG decoding can begin; ``auto`` is the kind that the store has, else tiles."""

PackIndex = enum.StrEnum("PackIndex", "AUTO NONE ROWS TILES")
"""The same, or no index, for ``pack``; ``auto`` is tiles where images are JPEGs."""

ImageFormat = enum.StrEnum("ImageFormat", "JPEG PNG WEBP")
"""How resized images are encoded."""

Check = enum.StrEnum("Check", "HEADER DECODE")
"""How each image is checked."""


@app.command()
def pack(
    src: Annotated[
        str,
        typer.Argument(
            metavar="SRC",
            help="A folder of images (one sub-folder per class), a store or a container of another program, or a table "
            "of paths and other columns: .csv, .tsv, .json, .jsonl, .parquet.",
        ),
    ],
    dst: Annotated[
        str,
        typer.Argument(
            metavar="DST",
            help="The pack to write, such as `photos.lmdb` or `s3://bucket/photos.lmdb`; or, without checksums of "
            "records, another kind, such as `photos.tar` (`penstock convert`).",
        ),
    ],
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
            help="`baseline`: rewrite JPEGs of several scans (progressive) as baseline JPEGs of equal pixels. "
            "`coefficients`: store JPEGs without Huffman codes, which decodes faster; the files come back."
        ),
    ] = Transcode.NONE,
    resize: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Make images smaller: at most SIZE pixels for the shorter side, or `longest:SIZE`. Boxes, points and "
            "masks are scaled too. The loss is printed.",
        ),
    ] = None,
    upright: Annotated[
        bool | None,
        typer.Option(
            "--upright/--no-upright",
            help="Whether boxes, points and masks are of photographs as their Exif orientation turns them, or as their "
            "rows are stored. By default annotations are of the picture whose size they have, else of the upright one; "
            "of tables, nothing is known.",
            show_default=False,
        ),
    ] = None,
    quality: Annotated[
        int | None, typer.Option(min=1, max=100, help="With `--resize`, of JPEG and WebP; by default 95.")
    ] = None,
    image_format: Annotated[
        ImageFormat | None,
        typer.Option(
            help="With `--resize`: the format of images, by default jpeg. `--format jpeg` is the same, where no "
            "annotations need `--format`."
        ),
    ] = None,
    index: Annotated[
        PackIndex,
        typer.Option(
            help="Also create decode indices, with which a crop decodes only a part of its JPEG (`penstock index`); "
            "`auto`: tiles, if there are JPEGs."
        ),
    ] = PackIndex.AUTO,
    shard_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Write a folder of packs of this size, such as `1GB`, and a manifest that names them: for object "
            "storage, and for what is too large for one file. With `--on ray` by default 256MB.",
        ),
    ] = None,
    classes: ClassesOption = None,
    schema: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=KIND",
            help="The kind of a field of a table, such as `boxes=boxes` or `tags=int64[*]`; `none` leaves it out. May "
            "be given several times.",
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="NAME=COLUMN", help="A field, and the column of a table that it is made of."),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="The column of a table that names records; `index` for their numbers.")
    ] = None,
    root: Annotated[
        str | None, typer.Option(help="The folder of relative paths in a table; by default that of the table.")
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=0, help="Processes that read and check images, in place of threads. One process writes.")
    ] = 0,
    annotations: AnnotationsOption = None,
    format: FormatOption = None,  # noqa: A002  # the name of the option
    split: SplitOption = None,
    layout: LayoutOption = None,
    option: StoreOptions = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Threads that read and check images; by default one per core, except one core for the writer (with "
            "`--check decode`, all cores).",
        ),
    ] = None,
    on: OnOption = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Pack only the records that the file names: a key in each line; `.jsonl`: `key` of each object.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the pack at DST, whether it is finished or not.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Pack the images and other fields of SRC into DST, with a checksum for each record.

    With `--annotations`, SRC is the folder of the images; with `--format` alone, SRC is the annotations, which say
    where the images are; `--option` is then one of the format. What is wrong in annotations is treated as `--on-error`
    says; `penstock verify --annotations` lists it.

    If DST is a finished pack of the same source and options, nothing is done. To resume an interrupted pack, run the
    same command again. Skipped images are listed by name.
    """
    from penstock.pack import pack as run

    kinds = {name: None if kind == "none" else kind for name, kind in parse_pairs(schema, "--schema").items()}
    names = parse_class_names(classes)
    with ExitStack() as stack, resumable(overwrite=overwrite):
        is_annotated = annotations is not None or (format is not None and format not in set(ImageFormat))
        if is_annotated and layout is not None:
            raise ArgumentError("--layout is one of stores, and annotations have none")
        opens = not is_annotated and (layout is not None or option)
        opened = open_store(src, classes, layout, option) if opens else None
        source = src if opened is None else stack.enter_context(opened)
        report = run(
            source,
            dst,
            on_error=on_error,
            workers=workers,
            overwrite=overwrite,
            check=check,
            transcode=transcode,
            index=index.value,
            shard_size=shard_size,
            classes=names if opened is None else None,
            schema=kinds or None,
            columns=parse_pairs(columns, "--column") or None,
            key=key,
            root=root,
            jobs=jobs,
            annotations=annotations,
            format=format,
            split=split,
            annotation_options=parse_options(option) if is_annotated else None,
            upright=upright,
            resize=resize,
            quality=quality,
            image_format=None if image_format is None else image_format.value,
            on=on,
            keys=keys,
            progress=True,
        )
    if as_json:
        print_json(report)
        return
    _print_packed(report, index)
    if report.resized is not None:
        _print_resized(report.resized)
    if transcode is not Transcode.NONE and not report.reused:
        print_line(f"{counted(report.transcoded, 'image')} transcoded to {transcode}, {report.kept:,} unchanged")


def _print_resized(report: ResizeReport) -> None:
    """Say what resizing saved, and what it lost."""
    sizes = f"{format_bytes(report.nbytes_before)} became {format_bytes(report.nbytes_after)}"
    print_line(f"{counted(report.resized, 'image')} encoded anew, {report.kept:,} unchanged: {sizes}")
    if report.measured:
        lost = "nothing lost" if math.isinf(report.psnr) else f"mean PSNR {report.psnr:.1f} dB"
        print_line(f"{lost} against the resized pixels, of {counted(report.measured, 'image')} measured")


@app.command()
def merge(
    stores: Annotated[list[str], typer.Argument(metavar="SRC... DST", help="The packs, and the pack to write.")],
    *,
    prefix: Annotated[
        bool, typer.Option("--prefix", help="Put the name of its pack before each key, where packs have equal keys.")
    ] = False,
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="The classes of all packs, where these differ: names separated by commas, or a text file with one "
            "name per line. By default the packs have the same classes, and those of the first one have their numbers.",
        ),
    ] = None,
    on_error: Annotated[
        OnError,
        typer.Option(help="If records are damaged or have equal keys: `raise` an error, or `skip` them."),
    ] = OnError.RAISE,
    index: Annotated[PackIndex, typer.Option(help="Copy decode indices, and create missing ones.")] = PackIndex.AUTO,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads that read and check records.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the pack at DST.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Merge packs of the same fields into one, such as those that several machines packed.

    If all packs are in the folder DST, nothing is copied: a manifest is written there that names them, and DST is a
    sharded pack. Otherwise, images are copied, not encoded again; to resume an interrupted merge, run the same command
    again.
    """
    from penstock.pack import merge as run

    if len(stores) < 2:
        raise ArgumentError("merge needs at least one pack, and the pack to write")
    with resumable(overwrite=overwrite):
        report = run(
            stores[:-1],
            stores[-1],
            prefix=prefix,
            classes=parse_class_names(classes),
            on_error=on_error,
            index=index.value,
            workers=workers,
            overwrite=overwrite,
            progress=True,
        )
    if as_json:
        print_json(report)
    else:
        _print_packed(report, index)


def _print_packed(report: PackReport, index: PackIndex) -> None:
    records = f"{counted(report.records, 'record')}{_format_resumed(report.resumed)}, {format_bytes(report.nbytes)}"
    if report.reused:
        print_line(f"{report.store} is already packed, nothing to do: {records}")
    else:
        print_line(f"{report.store}: {records}, in {report.elapsed_s:.1f} s")
    if report.schema is not None and not report.reused:
        print_line(f"fields: {', '.join(_format_field(*item) for item in report.schema.fields.items())}")
        images = [repr(name) for name, field in report.schema.fields.items() if field.is_image]
        if images and "'image'" not in images:
            print_line(f"no field is called image: images are in {', '.join(images)}")
        print_one_class(report.schema)
    is_new = report.indexed is not None and report.indexed.indexed > report.indexed.resumed
    if report.indexed is not None and (is_new or index is not PackIndex.AUTO or not report.reused):
        _print_indexed(report.indexed, lists_others=index is not PackIndex.AUTO)
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
            "(2 %). `auto`: as the indices that STORE has, else tiles."
        ),
    ] = IndexKind.AUTO,
    field: Annotated[str | None, typer.Option(help="The field to index, if several fields are images.")] = None,
    classes: ClassesOption = None,
    layout: LayoutOption = None,
    option: StoreOptions = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads; by default one per core.")] = None,
    on: OnOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the indices of STORE.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Create decode indices beside STORE, so that a crop decodes only a part of its JPEG. Images are not changed.

    To resume an interrupted run, run the same command again.
    """
    from penstock.pack import index as run

    with resumable(overwrite=overwrite), open_store(store, classes, layout, option) as opened:
        report = run(opened, kind=kind.value, field=field, workers=workers, overwrite=overwrite, progress=True, on=on)
    if as_json:
        print_json(report)
    else:
        _print_indexed(report)


def _format_resumed(count: int) -> str:
    return f" ({count:,} of them earlier)" if count else ""


def _format_field(name: str, field: Field) -> str:
    classes = f", {counted(len(field.classes), 'class')}" if field.classes else ""
    return f"{name} ({field.kind}{classes})"


def _print_indexed(report: IndexReport, *, lists_others: bool = True) -> None:
    print_line(
        f"{report.path}: {counted(report.indexed, 'image')} indexed by {report.kind}{_format_resumed(report.resumed)}, "
        f"{format_bytes(report.nbytes)}, in {report.elapsed_s:.1f} s"
    )
    if report.left_out and lists_others:
        print_line(f"{counted(len(report.left_out), 'image')} without an index, always decoded from the beginning:")
        print_skipped(report.left_out)
