"""The command ``init``, which writes a training script for what lies in a folder."""

from __future__ import annotations

import enum
import os
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.app import app
from penstock.cli.arguments import JsonOption
from penstock.cli.printing import print_json, print_line, print_skipped
from penstock.errors import ArgumentError
from penstock.wording import counted

__all__ = ["init"]

_FEW: Final = 300

Task = enum.StrEnum("Task", "CLASSIFICATION DETECTION SEGMENTATION LANDMARKS REGRESSION")
"""What can be learned (`penstock.init.TASKS`, which the help must not import)."""


@app.command()
def init(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Images in sub-folders of classes; annotations (COCO, YOLO, VOC, masks, ...); a table of paths and "
            "labels; or a store that `penstock info` reads, such as a tar or an LMDB environment.",
        ),
    ],
    *,
    output: Annotated[Path, typer.Option("--output", help="The script to write.")] = Path("train.py"),
    task: Annotated[
        Task | None, typer.Option(help="What is learned; by default the first that the data have what is needed for.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the script, if it exists.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a short training script for what lies in FOLDER, and say what was recognised.

    The script needs torch. It packs the images once, or reads a store in place; trains a small network, validates it
    after each epoch, and continues where it was stopped. Nothing in FOLDER is changed.
    """
    from penstock.init import make_script, recognise
    from penstock.sheets.canvas import refuse_existing

    if os.path.lexists(folder):  # else that is what is wrong
        refuse_existing(output, overwrite=overwrite)
    if not output.absolute().parent.is_dir():
        raise ArgumentError(f"--output: the folder {output.parent} does not exist")
    found = recognise(folder, None if task is None else task.value)
    output.write_text(make_script(found, output), encoding="utf-8")
    if as_json:
        print_json({
            "script": output, "task": found.task, "recognised": found.reason, "others": found.others,
            "fields": list(found.fields), "records": found.records, "problems": len(found.problems),
        })  # fmt: skip
        return
    print_line(f"{folder}: {found.reason}")
    if found.problems:
        print_line(f"  {counted(len(found.problems), 'entry')} cannot be read, and the script leaves out what cannot:")
        print_skipped(found.problems)
    if found.records < _FEW:
        print_line(
            f"  {counted(found.records, 'record')}: the script's network begins with random weights, and learns little "
            "from so few; put a pretrained one in its place"
        )
    if found.others:
        print_line(f"  it could also be {'; '.join(found.others)}")
    print_line(f"{output}: written, for {found.task}. Next: python {output}; penstock doctor {output}")
