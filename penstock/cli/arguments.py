"""Arguments that several commands share, and the store that they name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.errors import ArgumentError

if TYPE_CHECKING:
    from penstock.stores.base import Store

__all__ = ["ClassesOption", "StoreArgument", "open_store", "parse_class_names"]

StoreArgument = Annotated[
    str, typer.Argument(metavar="STORE", help="A pack, a folder of images, or a URL such as `lmdb://photos.lmdb`.")
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


def open_store(store: str, classes: str | None) -> Store:
    """Open the store of a command."""
    from penstock import stores

    names = parse_class_names(classes)
    return stores.open(store, **({} if names is None else {"classes": names}))


def parse_class_names(value: str | None) -> list[str] | None:
    """The names in the value of ``--classes``: separated by commas, or the lines of a file."""
    if value is None:
        return None
    if "," not in value and ("/" in value or value.endswith(".txt") or Path(value).is_file()):
        try:
            lines = Path(value).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ArgumentError(f"--classes: the file {value} cannot be read: {error}") from error
    else:
        lines = value.split(",")
    return [name for name in map(str.strip, lines) if name]
