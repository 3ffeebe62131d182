"""The commands that write a store again: ``convert``, as another kind, and ``copy``, as it is."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.app import app, resumable
from penstock.cli.arguments import (
    ClassesOption,
    JsonOption,
    LayoutOption,
    OnOption,
    ReportFormat,
    ReportOption,
    StoreOptions,
    open_store,
    parse_options,
)
from penstock.cli.pack_commands import OnError
from penstock.cli.printing import print_error, print_json, print_line
from penstock.wording import counted, format_bytes

__all__ = ["convert", "copy"]


@app.command()
def convert(
    src: Annotated[
        str,
        typer.Argument(
            metavar="SRC",
            help="A pack, a folder of images, a container of another program, a pattern such as "
            "`train-{000..099}.tar`, or a URL such as `mongodb://host/database/collection`.",
        ),
    ],
    dst: Annotated[
        str,
        typer.Argument(
            metavar="DST",
            help="What is written; its ending or scheme chooses the kind: `.lmdb`, `.tar`, `.h5`, `.parquet`, "
            "`files://folder`, a URL such as `s3://bucket/set.lmdb`.",
        ),
    ],
    *,
    layout: LayoutOption = None,
    option: StoreOptions = None,
    classes: ClassesOption = None,
    to_layout: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Write a folder of images and annotations: `voc`, `yolo` or `coco`.",
        ),
    ] = None,
    to_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="An option of what is written, such as `shard_records=1000` for `.tar`; may be given several times.",
        ),
    ] = None,
    on_error: Annotated[
        OnError,
        typer.Option(help="If records cannot be read or written: `raise` an error, or `skip` and list them."),
    ] = OnError.RAISE,
    as_json: JsonOption = False,
    report: ReportOption = ReportFormat.TEXT,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads that read; by default one per core.")] = None,
    on: OnOption = None,
    shard_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="With `--on ray`: the size of shards, by default 256MB.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is at DST.")] = False,
) -> None:
    """Write SRC as a store of another kind, then read both back and compare every record.

    Fields, class names and keys that the format has no place for are written to a pack beside DST, which is opened with
    it. The report is also kept beside DST. The exit code is 1 if anything differs. To resume an interrupted conversion,
    run the same command again.
    """
    from penstock.pack import convert as run

    with resumable(overwrite=overwrite), open_store(src, classes, layout, option) as source:
        result = run(
            source,
            dst,
            to_layout=to_layout,
            to_options=parse_options(to_option),
            on_error=on_error,
            workers=workers,
            on=on,
            shard_size=shard_size,
            overwrite=overwrite,
            progress=True,
        )
    if as_json or report is ReportFormat.JSON:
        print_json(result)
        return
    for line in result.lines():
        print_line(line)


@app.command()
def copy(
    src: Annotated[
        str,
        typer.Argument(
            metavar="SRC",
            help="A pack, or a file or folder of another kind; a path, or a URL such as `s3://bucket/a.lmdb`.",
        ),
    ],
    dst: Annotated[str, typer.Argument(metavar="DST", help="The path or URL of the copy.")],
    *,
    option: StoreOptions = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another store at DST.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy a store as it is, between this machine and object storage, and compare every byte of the copy.

    Credentials, region and endpoint of URLs are those of the environment, or of AWS's profiles. To resume an
    interrupted copy, run the same command again.
    """
    from penstock.pack.copying import Copying

    with (
        resumable(overwrite=overwrite),
        open_store(src, None, None, option) as source,
        Copying(source, dst, overwrite=overwrite) as copying,
    ):
        files = f"{counted(len(copying.contents), 'file')}, {format_bytes(copying.nbytes)}"
        print_error(f"{files} to copy from {source.url}")
        result = copying.run(progress=True)
    if as_json:
        print_json(result)
        return
    for line in result.lines():
        print_line(line)
