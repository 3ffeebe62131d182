"""Prints lines, lists and numbers for the commands. Text from a store is escaped before it reaches the terminal."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from penstock.wording import counted, escape_unprintable, list_problems, to_plain

if TYPE_CHECKING:
    from penstock.sample import Schema
    from penstock.stores.base import Skipped

__all__ = [
    "print_error",
    "print_json",
    "print_line",
    "print_list",
    "print_one_class",
    "print_skipped",
    "shorten_warnings",
]

_LINES_SHOWN: Final = 50
_NAMES_SHOWN: Final = 10
_PACKAGE: Final = Path(__file__).parents[1]


def print_line(line: str, file: TextIO | None = None) -> None:
    """Print one line, with unprintable characters escaped."""
    print(escape_unprintable(line), file=file)


def print_error(message: str) -> None:
    """Print a message to standard error."""
    for line in f"penstock: {message}".split("\n"):
        print_line(line, file=sys.stderr)


@contextmanager
def shorten_warnings() -> Iterator[None]:
    """Have warnings at a line of this package printed as a line; those at a line of a user's file keep its name."""
    before = warnings.formatwarning

    def format_warning(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        if not Path(filename).is_relative_to(_PACKAGE):
            return before(message, category, filename, lineno, line)
        return f"warning: {escape_unprintable(str(message))}\n"

    warnings.formatwarning = format_warning
    try:
        yield
    finally:
        warnings.formatwarning = before


def print_json(value: object) -> None:
    """Print a value as JSON. If it contains characters that a terminal would interpret, the JSON is ASCII.

    Reports (dataclasses and named tuples) become objects, other objects text, and numbers that are not finite null.
    """
    plain = to_plain(value)
    text = json.dumps(plain, ensure_ascii=False, indent=2, allow_nan=False)
    if not text.replace("\n", "").isprintable():
        text = json.dumps(plain, indent=2, allow_nan=False).replace("\x7f", "\\u007f")
    print(text)


def print_list(lines: Iterable[str], count: int) -> None:
    """Print the first of ``count`` lines, indented, and how many more there are."""
    for _, line in zip(range(_LINES_SHOWN), lines, strict=False):
        print_line(f"  {line}")
    if count > _LINES_SHOWN:
        print_line(f"  ... and {count - _LINES_SHOWN:,} more")


def print_one_class(schema: Schema) -> None:
    """Say what a label of a single class may come from: a folder of images without sub-folders."""
    for field in schema.fields.values():
        if field.kind == "label" and len(field.classes) == 1:
            name = field.classes[0]
            print_line(
                f"all records have the class {name!r}: images that are in no sub-folder have their folder's name, "
                "others that of the first sub-folder"
            )


def print_skipped(entries: Iterable[Skipped]) -> None:
    """Print one line for each reason, with the name of the entry, or how many there are and the first names."""
    from penstock.stores.fields.record_names import quote_names

    by_reason: dict[str, list[str]] = {}
    for key, reason in entries:
        by_reason.setdefault(reason, []).append(key)
    lines = list_problems(
        (keys[0], reason)
        if len(keys) == 1
        else ("", f"{reason} ({counted(len(keys), 'entry')}: {quote_names(keys, _NAMES_SHOWN)})")
        for reason, keys in by_reason.items()
    )
    print_list(lines, len(lines))
