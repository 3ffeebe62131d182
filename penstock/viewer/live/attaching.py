"""Finds the running loaders of a viewer, and a store to show beside them."""

from __future__ import annotations

import contextlib
import time
from typing import ClassVar

from penstock import stores
from penstock.errors import ArgumentError, PenstockError
from penstock.loader.live.live_file import find_folder, read_from
from penstock.sample import Array, Field, Record, Schema
from penstock.stores.base import Store
from penstock.stores.indices import Indices
from penstock.viewer.live.sources import list_sources, read_number
from penstock.wording import counted, escape_unprintable

__all__ = ["NoRecords", "describe_running", "find_store", "parse_which"]


class NoRecords(Store):
    """What a viewer shows beside loaders that read from no store: no record."""

    kind: ClassVar[str] = "loaders"

    def __init__(self) -> None:
        super().__init__("running")

    @property
    def schema(self) -> Schema:
        """See :class:`~penstock.stores.base.Store`."""
        return Schema({"key": Field("text")})

    def __len__(self) -> int:
        return 0

    def read(self, indices: Indices) -> list[Record]:
        """See :class:`~penstock.stores.base.Store`."""
        self._check_indices(indices)
        return []

    def column(self, field: str) -> Array:
        """See :class:`~penstock.stores.base.Store`."""
        raise ArgumentError(f"there is no column {field!r}: no store is shown")

    def keys(self) -> list[str]:
        """See :class:`~penstock.stores.base.Store`."""
        return []

    def digest(self) -> str:
        """See :class:`~penstock.stores.base.Store`."""
        return "0"


def parse_which(text: str) -> str | int:
    """Which loaders the value of ``--attach`` names: "all", the number of a process, or a path."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 20 else text


def find_store(which: str | int) -> Store:
    """The store that the first of these loaders reads, opened; one without records if none of them reads one.

    Raises
    ------
    ArgumentError
        If there is no such process or file, or it is no file of a loader.
    OSError
        If it cannot be read.
    """
    paths = list_sources(which)
    if not paths and which != "all":
        named = f"process {which} writes nothing" if isinstance(which, int) else f"there is no file {which}"
        raise ArgumentError(
            f"{named}; loaders with view=True write to {find_folder()} while they are iterated, and --attach list "
            "shows them"
        )
    for path in paths:
        try:
            url = read_from(path).header.get("store")
        except (ArgumentError, OSError):
            if len(paths) == 1 and which != "all":
                raise
            continue
        if isinstance(url, str):
            with contextlib.suppress(PenstockError, OSError):  # it needs options, or is gone
                return stores.open(url)
    return NoRecords()


def describe_running() -> list[str]:
    """One line for each loader of this user that is iterated, or was when its process was killed."""
    lines = []
    for path in list_sources("all"):
        try:
            part = read_from(path)
        except (ArgumentError, OSError) as error:
            lines.append(f"{path}: {error}")
            continue
        header, last = part.header, part.lines[-1] if part.lines else {}
        idle = time.time() - read_number(last, "t")
        state = f"last batch {idle:.0f} s ago" if part.is_alive else "its process was killed"
        lines.append(
            f"{read_number(header, 'pid'):.0f}  rank {read_number(header, 'rank'):.0f}, {header.get('dataset')}, "
            f"{counted(int(read_number(last, 'batches')), 'batch')}, {state}: {escape_unprintable(str(path))}"
        )
    return lines or [f"no loader with view=True is iterated ({find_folder()})"]
