"""Arguments that several commands share, and the store that they name."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.printing import print_error
from penstock.errors import ArgumentError
from penstock.wording import format_bytes

if TYPE_CHECKING:
    from penstock.stores.base import Store

__all__ = [
    "AnnotationsOption",
    "ClassesOption",
    "FormatOption",
    "JsonOption",
    "LayoutOption",
    "On",
    "OnOption",
    "ReportFormat",
    "ReportOption",
    "SplitOption",
    "StoreArgument",
    "StoreOptions",
    "open_store",
    "parse_class_names",
    "parse_options",
    "parse_pairs",
    "print_reading",
]

_NUMBERS: Final = re.compile(r"-?[0-9]+(?:,-?[0-9]+)+,?")


ReportFormat = enum.StrEnum("ReportFormat", "TEXT JSON")
"""How a report is printed."""

ReportOption = Annotated[ReportFormat, typer.Option(hidden=True, help="`json` is the same as `--json`.")]
"""How earlier versions chose JSON."""

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")]

StoreArgument = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help="A pack, a folder of images, a container of another library, a pattern such as `train-{000..099}.tar`, "
        "or a URL such as `lmdb://photos.lmdb`.",
    ),
]

LayoutOption = Annotated[
    str | None,
    typer.Option(
        "--layout",
        metavar="NAME",
        help="The layout of an LMDB environment of another program: `pickle-index`, `pairs`, `names`, `words` or "
        "`datum`. By default it is detected.",
    ),
]

StoreOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help="An option of the kind of store, such as `shape=12,12,3` or `channels=BGR`: numbers with commas, JSON or "
        "text. May be given several times; an error names the options that a store needs.",
    ),
]

ClassesOption = Annotated[
    str | None,
    typer.Option(
        "--classes",
        metavar="NAMES",
        help="The classes in the order of their numbers: names separated by commas, or a text file with one name per "
        "line. By default the sub-folders in plain string order, as in torchvision.",
    ),
]

AnnotationsOption = Annotated[
    str | None,
    typer.Option(
        "--annotations",
        metavar="SRC",
        help="Annotations of the images: a folder or a file, with boxes, classes, points or masks.",
    ),
]

FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="The format of the annotations, such as `voc`, `coco` or `yolo`; `auto` finds it by the files. Without "
        "annotations, with `--resize`: that of the images, `jpeg`, `png` or `webp`.",
    ),
]

On = enum.StrEnum("On", "RAY")
"""Where a command works, if not in this process."""

OnOption = Annotated[
    On | None,
    typer.Option(
        "--on",
        help="Work in tasks of a Ray cluster: that of `RAY_ADDRESS`, or one that is started on this machine. Its nodes "
        "share the folders, or read and write URLs.",
    ),
]

SplitOption = Annotated[
    str | None, typer.Option("--split", metavar="NAME", help="One of the splits of the annotations, such as `train`.")
]


def open_store(
    store: str, classes: str | None = None, layout: str | None = None, options: Sequence[str] | None = None
) -> Store:
    """Open the store of a command."""
    from penstock import stores

    return stores.open(store, layout=layout, **parse_options(options, classes))


def print_reading(store: Store, records: int | None = None, *, past_cache: bool = False) -> None:
    """Say before a command reads a store in object storage how many bytes that are: all, or those of some records."""
    if store.location.remote is None:
        return
    from penstock.stores.remote.cached_stores import count_store_nbytes

    nbytes = count_store_nbytes(store)
    if records is not None:
        nbytes = nbytes * min(records, len(store)) // max(len(store), 1)
    known = "whatever is in the cache" if past_cache else "less what is in the cache"
    print_error(f"{store.url}: about {format_bytes(nbytes)} to read, {known}")


def parse_options(options: Sequence[str] | None, classes: str | None = None) -> dict[str, object]:
    """Return the options in the values of ``--option`` and ``--classes``, by name.

    A value is JSON, numbers separated by commas (a tuple), or text.

    Raises ArgumentError if one is not ``NAME=VALUE``.
    """
    parsed: dict[str, object] = {}
    for option in options or ():
        name, separator, value = option.partition("=")
        if not separator or not name:
            raise ArgumentError(f"--option must be NAME=VALUE, got {option!r}")
        parsed[name.strip().replace("-", "_")] = _parse_value(value)
    names = parse_class_names(classes)
    return parsed if names is None else {**parsed, "classes": names}


def parse_pairs(values: Sequence[str] | None, option: str) -> dict[str, str]:
    """Return the pairs in the values of an option, by name.

    Raises ArgumentError if one is not ``NAME=VALUE``.
    """
    pairs = {}
    for value in values or ():
        name, separator, text = value.partition("=")
        if not separator or not name or not text:
            raise ArgumentError(f"{option} must be NAME=VALUE, got {value!r}")
        pairs[name.strip()] = text.strip()
    return pairs


def _parse_value(value: str) -> object:
    if _NUMBERS.fullmatch(value):
        return tuple(int(number) for number in value.split(",") if number)
    try:
        return json.loads(value)
    except ValueError:
        return value


def parse_class_names(value: str | None) -> list[str] | None:
    """The names in the value of ``--classes``: separated by commas, or the lines of a file."""
    if value is None:
        return None
    if "," not in value and ("/" in value or value.endswith(".txt") or Path(value).is_file()):
        try:
            lines = Path(value).read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ArgumentError(f"--classes: the file {value} cannot be read: {error}") from error
    else:
        lines = value.split(",")
    return [name for name in map(str.strip, lines) if name]
