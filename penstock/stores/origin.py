"""What a pack is made from: the digest of its source, and the options that decide what its records contain.

::

    unfinished    in the lock file and in each commit       resumed only by a run of the same origin
    finished      in the sidecar file `.source`             used as it is by a run of the same origin

The data of a finished pack do not contain the origin: packs of the same images are the same bytes, wherever the images
were and whenever they were written. A pack without the sidecar file is complete; packing to its path is then refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.errors import ArgumentError
from penstock.sample import Schema
from penstock.stores.common.regular_file import read_json, replace_json
from penstock.stores.fields.record_names import describe_class_difference
from penstock.stores.location import Location
from penstock.stores.writing import MANIFEST, CommittedRecords

__all__ = ["ORIGIN_FILE", "Origin", "read_finished", "read_options", "read_origin", "write_origin"]

_SIDECAR: Final = "source"
ORIGIN_FILE: Final = f".{_SIDECAR}"
"""The sidecar file of a pack, in its folder."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a pack is made from."""

    digest: str  # of the source (:meth:`~penstock.stores.base.Store.digest`)
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of packing by name, such as ``{"check": "header", "transcode": "none"}``."""

    def to_text(self) -> str:
        """Write it as one line of text; :meth:`from_text` is the inverse."""
        return json.dumps({"digest": self.digest, "options": dict(self.options)}) if self.options else self.digest

    @classmethod
    def from_text(cls, text: str) -> Origin:
        """Return the origin in a text; a text that :meth:`to_text` did not make is a digest without options."""
        try:
            parsed = json.loads(text)
            return cls(str(parsed["digest"]), {str(name): str(value) for name, value in parsed["options"].items()})
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls(text)

    def describe_difference(self, held: Schema, now: Origin, wanted: Schema) -> str:
        """Return how a pack of this origin and schema ``held`` differs from the one to be made now, as a clause."""
        for name, value in self.options.items():
            if name in now.options and now.options[name] != value:
                option = f"--{name.replace('_', '-')} {value}"
                return f"it was packed with {name}={value!r} ({option}), not {name}={now.options[name]!r}"
        for name in held.fields:
            if name in wanted and held[name].classes != wanted[name].classes:
                return f"its classes {describe_class_difference(held[name].classes, wanted[name].classes)}"
        if held != wanted:
            return f"its fields are {', '.join(held.fields)}, not {', '.join(wanted.fields)}"
        for name in ("resize", "on"):
            if (given := self.options.get(name)) != now.options.get(name):
                return (
                    f"it was packed with {name}={given!r} (--{name} {given})"
                    if given
                    else f"it was packed without {name}"
                )
        if self.options.keys() != now.options.keys():
            return "it was begun by another version of penstock, or its source was changed since"
        return "its source was changed since (names, sizes or times of change of its files), or is another one"


def read_origin(location: Location, content: str) -> Origin | None:
    """The origin of the finished pack at ``location``, if a sidecar file for records of this hash says it."""
    entry = _read(location)
    return Origin.from_text(entry["source"]) if entry is not None and entry.get("content") == content else None


def read_options(location: Location) -> Mapping[str, str]:
    """Return the options that the store at ``location`` was packed with, if its sidecar file says them."""
    entry = _read(location)
    return {} if entry is None else Origin.from_text(entry["source"]).options


def read_finished(location: Location, content: str, origin: Origin) -> CommittedRecords | None:
    """Return what a finished store of this origin holds and left out, if its sidecar file says it; else None."""
    if read_origin(location, content) != origin:
        return None
    try:
        return CommittedRecords.from_json(_read(location) or {})
    except ArgumentError:
        return None  # a damaged file, or one without numbers


def write_origin(location: Location, content: str, origin: Origin, held: CommittedRecords | None = None) -> None:
    """Write the origin of a finished store, and what it holds, to its sidecar file; on disk when this returns."""
    entry: dict[str, object] = {"content": content, "source": origin.to_text()}
    if held is not None:
        entry |= held.to_json()
    replace_json(location.sidecar(_SIDECAR), entry)


def _read(location: Location) -> dict[str, Any] | None:
    """Return what the sidecar file says, or the manifest of a sharded pack.

    It is None if there is no file, or a damaged one.
    """
    is_sharded = location.scheme == "sharded"
    try:
        entry = read_json(location.local_path / MANIFEST if is_sharded else location.sidecar(_SIDECAR))
    except (OSError, ValueError):
        return None
    return entry if isinstance(entry, dict) and isinstance(entry.get("source"), str) else None
