"""What a pack is made from: the digest of its source, and the options that decide what its records hold.

::

    unfinished    in the lock's file and in each commit     resumed by a run of the same origin alone
    finished      in the note `.source` beside the data     used as it is by a run of the same origin

The data of a finished pack hold no origin: packs of the same images are the same bytes, wherever the images lay and
whenever they were written. A pack that lost its note is whole; packing to its place again is then refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.sample import Schema
from penstock.stores.names import differing_classes
from penstock.stores.regular import open_regular

__all__ = ["NOTE", "Origin", "read_note", "write_note"]

NOTE: Final = ".source"
_MAX_NOTE_NBYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a pack comes from.

    Parameters
    ----------
    digest : str
        The source's (:meth:`~penstock.stores.base.Store.digest`).
    options : mapping of str to str
        Options of packing by name, such as ``{"check": "header", "transcode": "none"}``.
    """

    digest: str
    options: Mapping[str, str] = field(default_factory=dict)

    def to_text(self) -> str:
        """One line; :meth:`from_text` is the inverse."""
        return json.dumps({"digest": self.digest, "options": dict(self.options)}) if self.options else self.digest

    @classmethod
    def from_text(cls, text: str) -> Origin:
        """The origin that the text says; any text that is none of :meth:`to_text` is a digest without options."""
        try:
            said = json.loads(text)
            return cls(str(said["digest"]), {str(name): str(value) for name, value in said["options"].items()})
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls(text)

    def difference(self, held: Schema, now: Origin, wanted: Schema) -> str:
        """How a pack of this origin and schema ``held`` differs from one that is to be made now, as a clause."""
        for name, value in self.options.items():
            if name in now.options and now.options[name] != value:
                return f"it was packed with {name}={value!r} (--{name} {value}), not {name}={now.options[name]!r}"
        for name in held.fields:
            if name in wanted and held[name].classes != wanted[name].classes:
                return f"its classes {differing_classes(held[name].classes, wanted[name].classes)}"
        if held != wanted:
            return f"its fields are {', '.join(held.fields)}, not {', '.join(wanted.fields)}"
        if self.options.keys() != now.options.keys():
            return "it was begun by another version of penstock, or its source was changed since"
        return "its source was changed since (names, sizes or times of change of its files), or is another"


def read_note(folder: Path, content: str) -> Origin | None:
    """What the finished pack in ``folder`` was made from, if it has a note for records of this hash."""
    try:
        with os.fdopen(open_regular(folder / NOTE), "rb") as file:
            said = json.loads(file.read(_MAX_NOTE_NBYTES))
        return Origin.from_text(said["source"]) if said["content"] == content else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # none, or one that was cut: the pack does not say


def write_note(folder: Path, content: str, origin: Origin) -> None:
    """Note what a finished pack was made from; on disk when this returns."""
    file_number = open_regular(folder / NOTE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)
    with os.fdopen(file_number, "w", encoding="utf-8") as file:
        json.dump({"content": content, "source": origin.to_text()}, file)
        file.flush()
        os.fsync(file.fileno())
